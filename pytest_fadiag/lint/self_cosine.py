"""Pitfall 4, second half: credit that is missing and yet reported as perfectly aligned."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .cosines import Cosines
from .finding import Hit
from .gradients import Gradients
from .tree import Tree
from .words import COSINE, words

_FIX = "report a credit signal that is missing or zero as NaN, «not available», and leave it out of every average"


def find(tree: Tree) -> Iterator[Hit]:
    """Every cosine of a gradient with itself, and every 1.0 put in place of a cosine of gradients."""
    gradients = tree.fact(Gradients)
    for cosine in tree.fact(Cosines):
        same = ast.dump(cosine.first) == ast.dump(cosine.second)
        if same and gradients(cosine.first) and not _is_tested(tree, cosine.node):
            message = f"the cosine of `{ast.unparse(cosine.first)}` with itself is 1.0 whatever the credit is"
            yield Hit(cosine.node, message, _FIX)
    for assign in tree.all(ast.Assign):
        target = assign.targets[0]
        if (
            _is_one(assign.value)
            and isinstance(target, ast.Subscript)
            and _is_condition(tree, target.slice)
            and _is_credit(tree, target.value)
        ):
            yield Hit(
                assign, f"sets `{ast.unparse(target.value)}` to 1.0, perfect alignment, where there is no credit to align", _FIX
            )
    for choice in tree.all(ast.IfExp):
        for chosen, other in ((choice.body, choice.orelse), (choice.orelse, choice.body)):
            if _is_one(chosen) and _is_credit(tree, other):
                yield Hit(choice, "gives 1.0, perfect alignment, where there is no cosine of gradients", _FIX)


def _is_tested(tree: Tree, node: ast.AST) -> bool:
    """Whether a test checks the cosine itself: cos(g, g) must be 1 there."""
    function = tree.function(node)
    return (function is not None and function.name.startswith("test")) or isinstance(tree.statement(node), ast.Assert)


def _is_one(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 1 and not isinstance(node.value, bool)


def _is_condition(tree: Tree, index: ast.expr) -> bool:
    """Whether an index is a mask."""
    values = tree.values(index) if isinstance(index, ast.Name) else [index]
    return any(isinstance(part, (ast.Compare, ast.Invert, ast.Call)) for value in values for part in ast.walk(value))


def _is_credit(tree: Tree, node: ast.expr) -> bool:
    """Whether an expression is a cosine of gradients."""
    cosine = tree.fact(Cosines).inside(node)
    if cosine is None:
        return False
    named = not isinstance(node, ast.Name) or bool(words(node.id) & COSINE)
    return named and tree.fact(Gradients).any(cosine.sides)
