"""Pitfall 6: a mean over layers lets the one layer that aligns, mostly the embedding, speak for all."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .bindings import Kind
from .context import speaks_of_credit
from .cosines import Cosines
from .finding import Hit
from .gradients import Gradients
from .sequences import Sequences
from .tree import Tree, argument, called_name
from .words import ALIGNMENT, COSINE, GRADIENT, LAYER, words

_OF_CREDIT = ALIGNMENT | GRADIENT
_MEANS = {"mean", "fmean", "nanmean", "average"}


def find(tree: Tree) -> Iterator[Hit]:
    """Every mean over layers of cosines of gradients."""
    for node in tree.nodes:
        cosines = _list_of_mean(tree, node)
        if cosines is not None and isinstance(node, (ast.expr, ast.stmt)) and _is_per_layer(tree, cosines):
            code = ast.unparse(cosines)
            subject = f"`{code}`" if len(code) <= 40 else "these cosines"
            yield Hit(
                node,
                f"the mean of {subject} over layers: one aligned layer, mostly the embedding, hides that the others are near 0",
                "report the cosine of every layer, the embedding apart; if one number is needed, give the smallest",
            )


def _list_of_mean(tree: Tree, node: ast.AST) -> ast.expr | None:
    """The list of which a node takes the mean over its elements."""
    if isinstance(node, ast.Call) and called_name(node) in _MEANS:
        receiver = tree.receiver(node)
        values = receiver or argument(node, 0, "a", "input", "data")
        dimension = argument(node, 1 if receiver is None else 0, "dim", "axis")
        # The first dimension of a stack runs over the layers; a mean along another leaves them apart.
        return values if dimension is None or tree.number(dimension) == 0 else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return _list_of_sum(tree, node.left)
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div) and isinstance(node.target, ast.Name):
        return _total(tree, node.target)
    return None


def _list_of_sum(tree: Tree, node: ast.expr) -> ast.expr | None:
    """The list of a sum that is divided: ``sum(cosines) / len(cosines)``, or a total that a loop over layers adds to."""
    if isinstance(node, ast.Call) and called_name(node) == "sum":
        return tree.receiver(node) or argument(node, 0, "a", "input")
    if isinstance(node, ast.Name):
        values = [binding.value for binding in tree.reaching(node) if binding.kind is Kind.VALUE]
        sums = [value for value in values if isinstance(value, ast.Call) and called_name(value) == "sum"]
        return _list_of_sum(tree, sums[0]) if sums and len(values) == 1 else _total(tree, node)
    return None


def _total(tree: Tree, node: ast.Name) -> ast.expr | None:
    """What a loop over layers adds up under a name; the loop must not contain the total's beginning or its division."""
    bindings = tree.reaching(node)
    around_start = {above for binding in bindings if binding.kind is Kind.VALUE for above in tree.ancestors(binding.node)}
    for binding in bindings:
        if binding.kind is not Kind.AUGMENT or not isinstance(getattr(binding.node, "op", None), ast.Add):
            continue
        for above in tree.ancestors(binding.node):
            outside = above not in around_start and above not in set(tree.ancestors(node))
            if isinstance(above, ast.For) and outside and tree.fact(Sequences).loop_over_layers(above):
                return binding.value
    return None


def _is_per_layer(tree: Tree, node: ast.expr) -> bool:
    """Whether a list holds one cosine of gradients for each layer."""
    if isinstance(node, ast.Subscript):
        return False  # cosines[1:] leaves the embedding out, cosines[layer] is one layer's
    if isinstance(node, ast.Name) and any(binding.kind is Kind.AUGMENT for binding in tree.reaching(node)):
        return False
    parent = tree.parent(node)
    if isinstance(parent, ast.AugAssign) and _is_credit(tree, node):
        return True  # a total over layers
    elements = list(tree.fact(Sequences).elements(node))
    if any(over and _is_credit(tree, element) for element, over in elements):
        return True
    return not elements and _says_per_layer(tree, node)


def _is_credit(tree: Tree, node: ast.expr) -> bool:
    """Whether one element is a cosine of gradients, by what it is or by its name."""
    cosine = tree.fact(Cosines).inside(node)
    if cosine is not None:
        return tree.fact(Gradients).any(cosine.sides) or _in_credit(tree, node)
    parts = words(_last_name(node))
    if isinstance(node, ast.Attribute) and "gamma" in parts:
        return False  # the scale of a layer
    # Attention has alignments too: such a name counts in a file that speaks of credit.
    return bool(parts & COSINE) and (bool(parts & GRADIENT) or (bool(parts & ALIGNMENT) and speaks_of_credit(tree)))


def _says_per_layer(tree: Tree, node: ast.expr) -> bool:
    """Whether a name that is bound elsewhere says that it holds alignments by layer."""
    parts = words(_last_name(node))
    return (
        bool(parts & LAYER)
        and bool(parts & COSINE)
        and speaks_of_credit(tree)
        and bool(parts & _OF_CREDIT or _in_credit(tree, node))
    )


def _in_credit(tree: Tree, node: ast.expr) -> bool:
    """Whether the function around a node is about credit, by its own name."""
    function = tree.function(node)
    return function is not None and bool(words(function.name) & _OF_CREDIT)


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript):
        return _last_name(node.value)
    if isinstance(node, ast.Call):
        inner = node.func.value if isinstance(node.func, ast.Attribute) else node.args[0] if node.args else None
        name = called_name(node) or ""
        return name if words(name) & COSINE or inner is None else _last_name(inner)
    return ""
