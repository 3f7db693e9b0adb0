"""Pitfall 1: ``x.norm(-1)`` takes -1 for the order of the norm, not for the dimension."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator

from .bindings import Kind
from .finding import Hit
from .tree import Tree, argument, keyword
from .words import words

# Where each function takes the order: its place after the tensor, and its name.
_ORDERS = {
    "torch.norm": "p",
    "torch.functional.norm": "p",
    "torch.Tensor.norm": "p",
    "torch.nn.functional.normalize": "p",
    "torch.linalg.norm": "ord",
    "torch.linalg.vector_norm": "ord",
    "numpy.linalg.norm": "ord",
    "jax.numpy.linalg.norm": "ord",
}
_MINUS_ONE = ast.dump(ast.parse("-1", mode="eval").body)
_DIMENSIONS = ("dim", "axis")


def find(tree: Tree) -> Iterator[Hit]:
    """Every norm whose order is -1."""
    for call in tree.all(ast.Call):
        full = tree.dotted(call.func)
        if full in _ORDERS:
            place, name = 1, _ORDERS[full]
        elif full is None and _is_method(call):
            place, name = 0, "p"
        else:
            continue
        order = argument(call, place, name)
        if order is None or (place < len(call.args) and isinstance(call.args[place], ast.Starred)):
            continue
        by_keyword = place >= len(call.args)
        # ``p=-1, dim=1`` names both: its author means the L₋₁ norm. ``norm(-1, dim=1)`` still reads like a slip.
        if by_keyword and keyword(call, *_DIMENSIONS) is not None:
            continue
        if (written := _slip(tree, order)) is not None:
            yield _hit(call, full, place, order, written)


def _is_method(call: ast.Call) -> bool:
    """Whether a call is ``tensor.norm(…)``; ``self.norm(…)`` is a layer or a method of the class."""
    func = call.func
    own = isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id in ("self", "cls")
    return isinstance(func, ast.Attribute) and func.attr == "norm" and not own


def _slip(tree: Tree, order: ast.expr) -> str | None:
    """What stands in the place of the order, if that is -1 meant as a dimension; -1.0 is an order for sure."""
    if _is_minus_one(order):
        return "-1"
    if not isinstance(order, ast.Name):
        return None
    bindings = tree.reaching(order)
    is_dimension = bool(words(order.id) & {"dim", "axis"})
    # A parameter may get another value than its default: only its name then says that a dimension was meant.
    values = [binding for binding in bindings if binding.value is not None and _is_minus_one(binding.value)]
    is_parameter = any(binding.kind is Kind.PARAMETER for binding in bindings)
    return f"`{order.id}`, -1," if values and len(values) == len(bindings) and (is_dimension or not is_parameter) else None


def _is_minus_one(node: ast.expr) -> bool:
    return ast.dump(node) == _MINUS_ONE


def _hit(call: ast.Call, full: str | None, place: int, order: ast.expr, written: str) -> Hit:
    name = _ORDERS.get(full or "", "p")
    rewrite = copy.copy(call)
    rewrite.args = [arg for arg in call.args if arg is not order]
    rewrite.keywords = [word for word in call.keywords if word.value is not order]
    along = keyword(call, *_DIMENSIONS) is not None or len(rewrite.args) > place
    if along:
        fix = f"write {name}=2 for the L2 norm along that dimension; if the L₋₁ norm is meant, {name}=-1 by keyword says so"
    else:
        rewrite.keywords = [ast.keyword("axis" if "numpy" in (full or "") else "dim", order), *rewrite.keywords]
        fix = f"write `{ast.unparse(rewrite)}`"
    if full == "torch.nn.functional.normalize":
        what = "it divides by the L₋₁ norm, 1/Σ(1/|x|), not by the L2 norm along the last dimension"
    elif along:
        what = "this is the L₋₁ norm along the dimension given, 1/Σ(1/|x|), not the L2 norm"
    elif (full or "").endswith("linalg.norm"):
        what = "of a matrix this is the smallest column sum, of a vector 1/Σ(1/|x|), not the L2 norm along the last dimension"
    else:
        what = "this is the L₋₁ norm of the whole tensor, 1/Σ(1/|x|), not the L2 norm along the last dimension"
    return Hit(call, f"{written} is taken as the order {name}: {what}", fix)
