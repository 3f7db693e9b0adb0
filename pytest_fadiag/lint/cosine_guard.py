"""Pitfall 2: torch's cosine clamps each norm at eps=1e-8, so small gradients read as unaligned."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .bindings import Kind
from .cosines import Cosine, Cosines
from .finding import Hit
from .gradients import Gradients
from .tree import Tree, called_name, position
from .words import NORM, UNIT, words

SMALL_EPS = 1e-12  # under the norm of any gradient that a float32 network can still learn from
DEFAULT_EPS = 1e-8
_DOUBLE = {"torch.float64", "torch.double"}
_SCALES = NORM | {"max", "amax", "sum", "std"}
_JUMPS = (ast.Return, ast.Continue, ast.Raise, ast.Break)


def find(tree: Tree) -> Iterator[Hit]:
    """Every cosine of torch on gradients that nothing guards against the clamp."""
    gradients = tree.fact(Gradients)
    for cosine in tree.fact(Cosines):
        if not cosine.torch:
            continue
        compared = [side for side in cosine.sides if gradients(side)]
        if compared and not _guarded(tree, cosine, compared):
            yield _hit(tree, cosine, compared[0])


def _guarded(tree: Tree, cosine: Cosine, compared: list[ast.expr]) -> bool:
    return (
        _own_eps(tree, cosine, compared)
        or all(_rescaled(tree, side) for side in compared)
        or any(_guards(tree, compare, cosine) for compare in _floors(tree, cosine, compared))
    )


def _own_eps(tree: Tree, cosine: Cosine, compared: list[ast.expr]) -> bool:
    """Whether the code sets an eps of its own that lets small gradients through."""
    if cosine.eps is None:
        return False
    eps = tree.number(cosine.eps)
    if eps is None:  # set elsewhere: its author knows that there is one
        return True
    return eps <= SMALL_EPS or (eps < DEFAULT_EPS and all(_is_double(tree, side) for side in compared))


def _is_double(tree: Tree, node: ast.expr) -> bool:
    calls = [part for part in ast.walk(node) if isinstance(part, ast.Call)]
    return any(called_name(call) == "double" or any(tree.dotted(arg) in _DOUBLE for arg in call.args) for call in calls)


def _rescaled(tree: Tree, node: ast.expr, depth: int = 6) -> bool:
    """Whether an expression was divided by its own size, so that its norm is far from any eps."""
    if depth == 0:
        return False
    if isinstance(node, ast.Name):
        return _rescaled_name(tree, node, depth)
    if isinstance(node, ast.Call):
        return _rescaled_call(tree, node, depth)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return _is_scale(tree, node.right) or _rescaled(tree, node.left, depth - 1)
    inner = node.value if isinstance(node, ast.Subscript) else getattr(node, "elt", None)
    return isinstance(inner, ast.expr) and _rescaled(tree, inner, depth - 1)


def _rescaled_name(tree: Tree, node: ast.Name, depth: int) -> bool:
    for binding in tree.reaching(node):  # gradient /= gradient.norm()
        change = binding.node
        if isinstance(change, ast.AugAssign) and isinstance(change.op, ast.Div) and _is_scale(tree, change.value):
            return True
    values = tree.values(node, Kind.VALUE, Kind.ITEM)
    # A parameter's name is all there is to go by.
    return all(_rescaled(tree, value, depth - 1) for value in values) if values else bool(words(node.id) & UNIT)


def _rescaled_call(tree: Tree, node: ast.Call, depth: int) -> bool:
    name = called_name(node) or ""
    if words(name) & UNIT or (name in ("div", "div_", "divide") and node.args and _is_scale(tree, node.args[-1])):
        return True
    inner = tree.receiver(node) or next(iter(node.args), None)
    return inner is not None and _rescaled(tree, inner, depth - 1)


def _is_scale(tree: Tree, node: ast.expr, depth: int = 3) -> bool:
    """Whether an expression is the size of something: a norm, a maximum, perhaps plus an eps."""
    for part in ast.walk(node):
        name = part.id if isinstance(part, ast.Name) else called_name(part) if isinstance(part, ast.Call) else None
        if name and words(name) & _SCALES:
            return True
        if isinstance(part, ast.Name) and depth:
            calls = [value for value in tree.values(part, Kind.VALUE) if isinstance(value, ast.Call)]
            if any(_is_scale(tree, call, depth - 1) for call in calls):
                return True
    return False


def _floors(tree: Tree, cosine: Cosine, compared: list[ast.expr]) -> Iterator[ast.Compare]:
    """The comparisons in the cosine's function of a norm of what it compares."""
    sources = {name.id for side in compared for name in ast.walk(side) if isinstance(name, ast.Name)}
    for compare in tree.body(cosine.node):
        if isinstance(compare, ast.Compare) and any(_norm_of(tree, part, sources) for part in ast.walk(compare)):
            yield compare


def _norm_of(tree: Tree, part: ast.AST, sources: set[str]) -> bool:
    """Whether a node is a norm of one of these names, or a name that was assigned one."""
    values = tree.values(part) if isinstance(part, ast.Name) else []
    nodes = [part, *(inner for value in values for inner in ast.walk(value))]
    norms = [call for call in nodes if isinstance(call, ast.Call) and words(called_name(call) or "") & NORM]
    return any(isinstance(name, ast.Name) and name.id in sources for call in norms for name in ast.walk(call))


def _guards(tree: Tree, compare: ast.Compare, cosine: Cosine) -> bool:
    """Whether a comparison decides if the cosine counts: around it, before it with a way out, or as a mask on it."""
    result = tree.statement(cosine.node)
    results = {ast.unparse(target) for target in getattr(result, "targets", [])}
    for above in tree.ancestors(compare):
        if isinstance(above, (ast.If, ast.While, ast.IfExp)) and any(part is compare for part in ast.walk(above.test)):
            leaves = any(isinstance(part, _JUMPS) for part in ast.walk(above))
            replaces = any(
                isinstance(part, ast.Assign) and results & {ast.unparse(t) for t in part.targets} for part in ast.walk(above)
            )
            return above in set(tree.ancestors(cosine.node)) or leaves or replaces
        if isinstance(above, ast.Assert):
            return position(above) < position(cosine.node)
        if isinstance(above, ast.stmt):
            break
    return True  # a mask: torch.where, an index, a name for later


def _hit(tree: Tree, cosine: Cosine, gradient: ast.expr) -> Hit:
    number = tree.number(cosine.eps)
    eps = f"{DEFAULT_EPS if number is None else number:g}".replace("e-0", "e-")
    code = ast.unparse(gradient)
    subject = f"`{code}`" if len(code) <= 60 else "one of them"
    return Hit(
        cosine.node,
        f"a cosine of gradients ({subject}) whose norms are clamped at eps={eps}: below that norm it shrinks towards 0 "
        "whatever the directions are",
        "divide each gradient by its own norm first, in float64, and report NaN where that norm is 0 or under a stated floor; "
        "or pass eps=0 and mask those rows",
    )
