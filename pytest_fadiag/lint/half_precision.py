"""Pitfall 3: float16 ends at 6e-8, and the gradients of backpropagation lie below that."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .bindings import FUNCTIONS, Kind
from .finding import Hit
from .gradients import AUTOGRAD, Gradients
from .tree import Tree, argument, called_name, keyword, position
from .words import GRADIENT, words

_CUDA = {"torch.cuda.amp.autocast", "torch.cuda.amp.autocast_mode.autocast"}
_ANY = {"torch.autocast", "torch.amp.autocast", "torch.amp.autocast_mode.autocast"}
_OTHER = {"torch.cpu.amp.autocast"}
_HALF = {"torch.float16", "torch.half", "numpy.float16"}
_STATISTICS = {"norm", "vector_norm", "cosine_similarity", "mean", "abs", "std", "var", "median", "amax", "quantile", "histc"}
_NAMED_STATISTICS = words("norm norms cosine cos stats statistics snr alignment variance")
_FIX = (
    "measure in float32 or float64: leave autocast, or switch it off around the measurement with "
    '`torch.autocast("cuda", enabled=False)`; if memory forces 16 bits, dtype=torch.bfloat16 keeps the range'
)


def find(tree: Tree) -> Iterator[Hit]:
    """Every statistic of gradients that float16 took part in."""
    for node in tree.nodes:
        if isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                if isinstance(item.context_expr, ast.Call) and _is_half(tree, item.context_expr):
                    yield from _around(tree, item.context_expr, node)
        elif isinstance(node, FUNCTIONS):
            for decorator in node.decorator_list:
                call = decorator if isinstance(decorator, ast.Call) else ast.Call(decorator, [], [])
                if _is_half(tree, call):
                    yield from _around(tree, decorator, node)
        elif isinstance(node, ast.Call) and _is_cast(tree, node):
            yield from _cast(tree, node)


def _is_half(tree: Tree, call: ast.Call) -> bool:
    """Whether a call opens autocast to float16: on CUDA that is the default, on the CPU bfloat16 is."""
    full = tree.dotted(call.func)
    if full not in _CUDA | _ANY or _is_off(call, full):
        return False
    dtype = argument(call, 1, "dtype", "fast_dtype")
    if dtype is not None:
        value = tree.only_value(dtype) if isinstance(dtype, ast.Name) else dtype
        return value is not None and tree.dotted(value) in _HALF
    device = None if full in _CUDA else argument(call, 0, "device_type")
    # A device known only at run time is most often CUDA: there the default is float16.
    return not (isinstance(device, ast.Constant) and str(device.value).partition(":")[0] != "cuda")


def _is_off(call: ast.Call, full: str | None) -> bool:
    enabled = argument(call, 0 if full in _CUDA else 2, "enabled")
    return isinstance(enabled, ast.Constant) and enabled.value is False


def _around(
    tree: Tree, autocast: ast.expr, block: ast.With | ast.AsyncWith | ast.FunctionDef | ast.AsyncFunctionDef
) -> Iterator[Hit]:
    """The finding of one autocast block, if statistics of gradients are taken in it or of a loss it made."""
    if _is_scaled(tree, block):
        return  # a scaled loss keeps gradients in range: the ordinary mixed-precision training
    statistics = [node for node in _inside(tree, block) if isinstance(node, ast.Call) and _is_statistic(tree, node)]
    statistics += [] if isinstance(block, FUNCTIONS) else _of_its_losses(tree, block)
    if statistics:
        first = min(statistics, key=position)
        where = "" if first.lineno == autocast.lineno else f" on line {first.lineno}"
        message = f"`{_short(first)}`{where} is a statistic of gradients that ran through float16: below 6e-8 they are 0"
        yield Hit(autocast, message, _FIX)


def _inside(tree: Tree, block: ast.stmt) -> Iterator[ast.AST]:
    """The nodes of a block, without the blocks in it that set autocast anew and without the functions it only defines."""
    pending: list[ast.AST] = list(getattr(block, "body", []))
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.With, ast.AsyncWith)):
            calls = [item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call)]
            if any(tree.dotted(call.func) in _CUDA | _ANY | _OTHER and not _is_half(tree, call) for call in calls):
                continue
        if isinstance(node, FUNCTIONS):
            continue
        yield node
        pending.extend(ast.iter_child_nodes(node))


def _of_its_losses(tree: Tree, block: ast.stmt) -> list[ast.Call]:
    """Statistics after the block, when a loss computed in it is differentiated after it: its backward runs in float16 too."""
    losses = {
        target.id
        for node in _inside(tree, block)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and "loss" in words(target.id)
    }
    end = (block.end_lineno or 0, 0)
    after = [node for node in tree.body(block) if isinstance(node, ast.Call) and position(node) > end]
    derivatives = [call for call in after if losses & _differentiates(tree, call)]
    if not derivatives:
        return []
    start = min(position(call) for call in derivatives)
    return [call for call in after if position(call) > start and _is_statistic(tree, call)]


def _differentiates(tree: Tree, call: ast.Call) -> set[str]:
    """The losses a call differentiates, unscaled."""
    if isinstance(call.func, ast.Attribute) and call.func.attr == "backward" and isinstance(call.func.value, ast.Name):
        return {call.func.value.id}
    if tree.dotted(call.func) in AUTOGRAD:
        return {arg.id for arg in call.args[:1] if isinstance(arg, ast.Name)}
    return set()


def _is_statistic(tree: Tree, node: ast.AST) -> bool:
    """Whether a node is a norm, cosine, mean or the like of gradients; clipping is none."""
    if not isinstance(node, ast.Call):
        return False
    name = called_name(node) or ""
    parts = words(name)
    if "clip" in parts:
        return False
    if parts & GRADIENT and parts & _NAMED_STATISTICS:
        return True
    if name not in _STATISTICS:
        return False
    gradients = tree.fact(Gradients)
    receiver = tree.receiver(node)
    return gradients.any(node.args) if receiver is None else gradients(receiver)


def _is_scaled(tree: Tree, node: ast.AST) -> bool:
    """Whether the function around a node scales its loss with a GradScaler."""
    owner = node if isinstance(node, FUNCTIONS) else tree.function(node)
    nodes = ast.walk(owner) if owner is not None else iter(tree.nodes)
    names = (part.id if isinstance(part, ast.Name) else getattr(part, "attr", "") for part in nodes)
    return any("scaler" in words(name) for name in names if isinstance(name, str))


def _is_cast(tree: Tree, call: ast.Call) -> bool:
    """Whether a call casts a gradient to float16."""
    if not (isinstance(call.func, ast.Attribute) and tree.fact(Gradients)(call.func.value)):
        return False
    arguments = [*call.args, *([dtype] if (dtype := keyword(call, "dtype")) is not None else [])]
    return call.func.attr == "half" or (
        call.func.attr in ("to", "type", "astype") and any(tree.dotted(arg) in _HALF for arg in arguments)
    )


def _cast(tree: Tree, call: ast.Call) -> Iterator[Hit]:
    """The finding of a cast that a statistic follows: on its result, or on the name it is given."""
    message = f"`{_short(call)}` makes float16 of a gradient before a statistic is taken of it: below 6e-8 it is 0"
    fix = "take the statistic in float32 or float64, and cast for storage only afterwards"
    for above in tree.ancestors(call):
        if isinstance(above, ast.Call) and _is_statistic(tree, above):
            yield Hit(call, message, fix)
            return
        if isinstance(above, ast.stmt):
            break
    for node in tree.body(call):
        if not (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and call in tree.values(node, Kind.VALUE)):
            continue
        if any(_is_statistic(tree, above) for above in tree.ancestors(node)):
            yield Hit(call, message, fix)
            return


def _short(node: ast.AST) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 60 else f"{text[:57]}..."
