"""The search for the residual stream of a network: by name, as the model returns it, or as its longest chain of blocks."""

from __future__ import annotations

import inspect
import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...judge.errors import AuditError
from ..inputs import ModelInput, call_network, copied, rows, size_of, tensors_of, with_graph
from .chains import Call, Chain, End, TensorVersion, candidate_chains, last_state
from .sites import Site, Stream, first_tensor, logits_of, tensors_in

REMEDY = (
    "name the blocks and the module that takes h_L with stream='BLOCKS.* -> MODULE' (--fa-stream), "
    "or let the network answer model(x, return_hidden=True) with (logits, [h_0, …, h_L])"
)


def find_stream(model: nn.Module, x: ModelInput, spec: str | None = None) -> Stream:
    """The stream of a network: what the user names, else what the model returns, else its longest chain of blocks.

    ``x`` is a handful of samples: one forward pass shows which modules run, and in which order.
    """
    try:
        # With a clone: a network may write to its input in place.
        if spec is not None:
            return _stream_named(model, copied(x), spec)
        return _stream_returned(model, x) or _stream_detected(model, copied(x))
    except _AsManyTokensAsSamples:
        return find_stream(model, rows(x, slice(-1)), spec)


def batch_dim_of(state: Tensor, batch: int) -> int:
    """Which dimension of a state counts the samples: the first, or the second of a sequence-first transformer."""
    fitting = [dim for dim in ((0, 1) if state.ndim == 3 else (0,)) if state.ndim > dim and state.shape[dim] == batch]
    if not fitting:
        raise AuditError(
            f"a hidden state has shape {tuple(state.shape)} for {batch} samples: no dimension counts the samples; {REMEDY}"
        )
    if len(fitting) > 1 and batch > 1:
        raise _AsManyTokensAsSamples
    return fitting[0]


class _AsManyTokensAsSamples(Exception):
    """A state whose sizes do not tell tokens from samples: fewer samples do."""


def _stream_returned(model: nn.Module, x: ModelInput) -> Stream | None:
    """The stream of a model that answers ``return_hidden=True`` with states that the loss can be differentiated by."""
    try:
        parameters = inspect.signature(model.forward).parameters
    except (TypeError, ValueError):
        return None
    if "return_hidden" not in parameters or not any(tensor.is_floating_point() for tensor in tensors_of(x)):
        return None
    with torch.enable_grad():
        answer = call_network(model, with_graph(x), return_hidden=True)
        if not (isinstance(answer, (tuple, list)) and len(answer) == 2 and isinstance(answer[1], (tuple, list))):
            return None
        states = list(answer[1])
        if not states or not _differentiable(logits_of(answer[0]), states):
            return None
    return Stream((), batch_dim_of(states[0], size_of(x)), "return_hidden=True")


def _differentiable(logits: Tensor, states: Sequence[Any]) -> bool:
    """Whether these are the states on the way to the logits: not copies kept for plotting, nor one tensor written over."""
    if not all(isinstance(state, Tensor) and state.requires_grad for state in states):
        return False
    if len({id(state) for state in states}) < len(states) or not logits.requires_grad:
        return False
    return all(gradient is not None for gradient in torch.autograd.grad(logits.sum(), states, allow_unused=True))


def _stream_named(model: nn.Module, x: ModelInput, spec: str) -> Stream:
    left, arrow, right = (part.strip() for part in spec.partition("->"))
    calls = _trace(model, x)
    blocks = _matching(model, calls, left, spec)
    chain = Chain(tuple(blocks))
    if not arrow:
        return _stream_of(model, x, chain, last_state(chain, calls), f"named {spec!r}")
    ends = [call for call in _matching(model, calls, right, spec) if call.start > blocks[-1].end]
    if not ends:
        raise AuditError(f"stream {spec!r}: {right!r} does not run after the last block, {blocks[-1].name!r}")
    return _stream_of(model, x, chain, (ends[0], "input"), f"named {spec!r}")


def _stream_detected(model: nn.Module, x: ModelInput) -> Stream:
    calls = _trace(model, x)
    chains = candidate_chains(calls)
    if not chains:
        raise AuditError(
            "no residual stream found: no chain of two or more same-class blocks of a ModuleList or Sequential runs in this "
            f"network. Modules that ran: {_modules_that_ran(calls)}.\nTo audit it, {REMEDY}"
        )
    longest = max(len(chain.blocks) for chain in chains)
    best = [chain for chain in chains if len(chain.blocks) == longest]
    if len(best) > 1:
        raise AuditError(
            f"cannot tell which of {len(best)} chains of {longest} blocks is the residual stream. "
            "Name one with stream=… (--fa-stream):\n" + "\n".join(f"  {_as_option(chain, calls)}" for chain in chains)
        )
    return _stream_of(model, x, best[0], last_state(best[0], calls), f"detected {best[0].describe()}")


def _stream_of(model: nn.Module, x: ModelInput, chain: Chain, last: tuple[Call, End] | None, source: str) -> Stream:
    """The inputs of the blocks, then where the last state is seen."""
    if last is None:
        raise AuditError(
            f"cannot see the last state h_L of {chain.describe()}: something is done to the states between the blocks, such as "
            f"adding the residual, and no module takes h_L as it is after the last one. To audit this network, {REMEDY}"
        )
    sites = (*(Site.at(block) for block in chain.blocks), Site.at(*last))
    stream = Stream(sites, batch_dim_of(chain.blocks[0].input_tensor, size_of(x)), source)
    overwritten = next((site for site in sites if site.copied), None)
    if overwritten is not None and not _copies_suffice(model, x, stream):
        raise AuditError(
            f"the state at the {overwritten.end} of {overwritten.module!r} is overwritten in place and then used again, so "
            "autograd cannot differentiate by it. Write h = h + f instead of h += f, and blocks without inplace=True"
        )
    return stream


def _copies_suffice(model: nn.Module, x: ModelInput, stream: Stream) -> bool:
    """Whether giving copies to what writes in place leaves the logits as they were, and the states unwritten."""
    states: list[TensorVersion] = []
    with torch.no_grad():
        logits = stream.run(model, copied(x), lambda layer, state: states.append(TensorVersion.of(state)))
        same = torch.allclose(logits, logits_of(call_network(model, copied(x))), equal_nan=True)
    return same and not any(state.overwritten for state in states)


def _trace(model: nn.Module, x: ModelInput) -> list[Call]:
    """Every module call of one forward pass, in the order in which they began."""
    calls: list[Call] = []
    running: list[Call] = []
    clock = itertools.count()
    names = {module: name for name, module in model.named_modules() if name}
    times: Counter[nn.Module] = Counter()

    def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
        inputs = tuple(TensorVersion.of(tensor) for tensor in (*tensors_in(args), *tensors_in(kwargs)))
        call = Call(names[module], module, next(clock), inputs, times[module])
        times[module] += 1
        running.append(call)
        calls.append(call)

    def leave(module: nn.Module, _args: Any, output: Any) -> None:
        call, tensor = running.pop(), first_tensor(output)
        call.end, call.output = next(clock), None if tensor is None else TensorVersion.of(tensor)

    handles = []
    try:
        for module in names:
            handles.append(module.register_forward_pre_hook(enter, with_kwargs=True))
            handles.append(module.register_forward_hook(leave))
        with torch.no_grad():
            call_network(model, x)
    finally:
        for handle in handles:
            handle.remove()
    return [call.resolved(model) for call in calls if call.end > 0]


def _matching(model: nn.Module, calls: Sequence[Call], patterns: str, spec: str) -> list[Call]:
    """The calls of the modules that a pattern names, in the order in which they run; ``*`` is one part of a dotted name."""
    wanted = [pattern.strip().split(".") for pattern in patterns.split(",") if pattern.strip()]
    named = {
        name: module
        for name, module in model.named_modules(remove_duplicate=False)
        if any(_fits(name.split("."), parts) for parts in wanted)
    }
    if not named:
        top_level = ", ".join(name for name, _ in model.named_children()) or "none"
        raise AuditError(
            f"stream {spec!r}: no module matches {patterns!r} (* stands for one part of a dotted name); "
            f"the network's top-level modules are: {top_level}"
        )
    modules = set(named.values())
    on_tensors = [call for call in calls if call.module in modules and call.takes_tensor]
    if not on_tensors:
        raise AuditError(f"stream {spec!r}: {patterns!r} matches {', '.join(named)}, but none of them ran on a tensor")
    return on_tensors


def _fits(name: Sequence[str], pattern: Sequence[str]) -> bool:
    return len(name) == len(pattern) and all(part in ("*", own) for own, part in zip(name, pattern, strict=True))


def _as_option(chain: Chain, calls: Sequence[Call]) -> str:
    last = last_state(chain, calls)
    arrow = f" -> {last[0].name}" if last is not None and last[1] == "input" else ""
    return f"{chain.pattern()}{arrow}    ({chain.describe()})"


def _modules_that_ran(calls: Sequence[Call], most: int = 12) -> str:
    shown = [f"{call.name} ({type(call.module).__name__})" for call in calls]
    return ", ".join(shown[:most]) + (f" and {len(shown) - most} more" if len(shown) > most else "") if shown else "none"
