"""Pitfall 5: the cosine of layers put end to end is the cosine of the layer with the largest gradient."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from .bindings import Kind
from .cosines import Cosine, Cosines
from .finding import Hit
from .gradients import Gradients
from .sequences import Sequences
from .tree import Tree, called_name

_JOINS = {"cat", "concat", "concatenate", "hstack"}
_FLATTENERS = {"parameters_to_vector", "_flatten_dense_tensors", "ravel_pytree"}
_FLAT = {"flatten", "ravel", "view", "reshape"}
# Parts of one layer may be joined: they are one layer.
_PARTS = {"weight", "bias", "kernel", "data", "grad"}


def find(tree: Tree) -> Iterator[Hit]:
    """Every cosine of which a side joins the gradients of several layers."""
    for cosine in tree.fact(Cosines):
        join = _first_join(tree, cosine.sides, 7) or _sum_over_layers(tree, cosine)
        if join is not None:
            where = "" if join.lineno == cosine.node.lineno else f" (line {join.lineno})"
            yield Hit(
                cosine.node,
                f"one cosine of the gradients of all layers end to end{where}: the layer with the largest gradient decides it",
                "take the cosine of each layer by itself, per sample and then the median, and report them side by side",
            )


def _first_join(tree: Tree, nodes: Iterable[ast.expr], depth: int) -> ast.expr | None:
    return next((join for node in nodes if (join := _join(tree, node, depth - 1)) is not None), None)


def _join(tree: Tree, node: ast.expr, depth: int) -> ast.expr | None:
    """The call that puts layers end to end, in an expression or in what flows into it."""
    if depth == 0:
        return None
    if isinstance(node, ast.Call):
        return _join_by_call(tree, node, depth)
    inner: list[ast.expr] = []
    if isinstance(node, ast.Name):
        for binding in tree.reaching(node):
            if binding.kind is Kind.PARAMETER and (function := tree.function(node)) is not None:
                inner += tree.arguments(function, node.id)
            elif binding.value is not None and (binding.kind is Kind.VALUE or isinstance(binding.node, ast.Assign)):
                inner.append(binding.value)
    elif isinstance(node, ast.Attribute):
        inner = tree.values(node)
    elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Call):
        inner = [node.value]  # ravel_pytree(…)[0]
    elif isinstance(node, ast.BinOp):
        inner = [node.left]
    return _first_join(tree, inner, depth)


def _join_by_call(tree: Tree, node: ast.Call, depth: int) -> ast.expr | None:
    name = called_name(node)
    if name in _JOINS and node.args:
        return node if _is_layers(tree, node.args[0]) else None
    if name in _FLATTENERS and node.args:
        return node if tree.fact(Gradients)(node.args[0]) else None
    if (stack := tree.receiver(node)) is not None:
        if name in _FLAT and isinstance(stack, ast.Call) and called_name(stack) == "stack" and stack.args:
            return stack if _is_layers(tree, stack.args[0]) else None
        if (join := _join(tree, stack, depth - 1)) is not None:
            return join
    return _first_join(tree, tree.results(node), depth)


def _is_layers(tree: Tree, node: ast.expr) -> bool:
    """Whether a list holds the gradients of several layers."""
    if not tree.fact(Gradients)(node):
        return False
    if isinstance(node, (ast.List, ast.Tuple)):
        return len(_owners(node.elts)) > 1
    return tree.fact(Sequences).over_layers(node)


def _owners(parts: list[ast.expr]) -> set[str]:
    """The layers whose ``.grad`` a written list joins: weight and bias of one layer are one."""
    owners = set()
    for part in parts:
        for node in ast.walk(part):
            if isinstance(node, ast.Attribute) and node.attr == "grad":
                owner: ast.expr = node
                while isinstance(owner, ast.Attribute) and owner.attr in _PARTS:
                    owner = owner.value
                owners.add(ast.unparse(owner))
    return owners


def _sum_over_layers(tree: Tree, cosine: Cosine) -> ast.expr | None:
    """The sum over layers in a cosine written out as sum(dots) / (norm * norm), which joins the layers as well."""
    if not isinstance(cosine.node, ast.BinOp) or not tree.fact(Gradients).any(cosine.sides):
        return None
    numerator: ast.expr | None = cosine.node.left
    if isinstance(numerator, ast.Name):
        numerator = tree.only_value(numerator)
    if isinstance(numerator, ast.Call) and called_name(numerator) == "sum" and numerator.args:
        generator = numerator.args[0]
        if isinstance(generator, (ast.GeneratorExp, ast.ListComp)) and tree.fact(Sequences).over_layers(generator):
            return numerator
    return None
