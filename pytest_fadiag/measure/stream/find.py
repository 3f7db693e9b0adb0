"""Where the residual stream h_0 … h_L of a network can be seen, and the hooks that see it."""

from __future__ import annotations

import inspect
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...judge.errors import AuditError
from .chains import Call, Chain, End, Glimpse, candidate_chains, last_state

Observer = Callable[[int, Tensor], None]

REMEDY = (
    "name the blocks and the module that takes h_L with stream='BLOCKS.* -> MODULE' (--fa-stream), "
    "or let the network answer model(x, return_hidden=True) with (logits, [h_0, …, h_L])"
)


@dataclass(frozen=True)
class Site:
    """One hidden state: the tensor that enters or leaves a module in one of its calls."""

    module: str
    end: End = "input"
    call: int = 0
    copied: bool = False
    """Whether what comes after gets a copy, since it writes in place to the state, which autograd then loses sight of."""

    @classmethod
    def at(cls, call: Call, end: End = "input") -> Site:
        """The site at one end of a module call."""
        seen = call.inputs[0] if end == "input" else call.left
        return cls(call.name, end, call.number, seen is not None and seen.overwritten)

    @property
    def place(self) -> tuple[str, End, int]:
        """Where the site is."""
        return self.module, self.end, self.call


@dataclass(frozen=True)
class Stream:
    """The sites of h_0 … h_L in the order in which they run; none where the model returns its states itself."""

    sites: tuple[Site, ...]
    batch_dim: int = 0
    source: str = ""

    @property
    def returned(self) -> bool:
        """Whether ``model(x, return_hidden=True)`` gives the states."""
        return not self.sites

    def run(self, model: nn.Module, x: Tensor, observe: Observer) -> Tensor:
        """Forward ``x``, showing each state to ``observe`` as it appears; returns the logits."""
        if self.returned:
            # A clone: autograd lets nobody write in place to a leaf, and some networks write to their input.
            x = x.detach().requires_grad_().clone() if torch.is_grad_enabled() else x
            logits, states = model(x, return_hidden=True)
            for layer, state in enumerate(states):
                observe(layer, state)
            return logits_of(logits)
        with _hooked(model, self.sites, observe):
            return logits_of(model(x))


def find_stream(model: nn.Module, x: Tensor, spec: str | None = None) -> Stream:
    """The stream of a network: what the user names, else what the model returns, else its longest chain of blocks.

    ``x`` is a handful of samples: one forward pass shows which modules run, and in which order.
    """
    try:
        # Of a clone: a network may write to its input in place.
        return _named(model, x.clone(), spec) if spec is not None else _returned(model, x) or _detected(model, x.clone())
    except _AsManyTokensAsSamples:
        return find_stream(model, x[:-1], spec)


def logits_of(output: Any) -> Tensor:
    """The logits in whatever a model returns: a tensor, the first of a tuple, or something with ``logits``."""
    logits = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", output)
    if isinstance(logits, (tuple, list)) and logits:
        logits = logits[0]
    if not isinstance(logits, Tensor):
        raise AuditError(
            f"the network returned {type(output).__name__}, which holds no logits; let it return a tensor [B, classes]"
        )
    return logits


def first_tensor(*values: Any) -> Tensor | None:
    """The first tensor among the arguments or results of a module."""
    return next((tensor for value in values for tensor in _tensors(value)), None)


def _tensors(values: Any) -> Iterator[Tensor]:
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, (Mapping, tuple, list)):
        items = values.values() if isinstance(values, Mapping) else values
        yield from (item for item in items if isinstance(item, Tensor))


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


def _returned(model: nn.Module, x: Tensor) -> Stream | None:
    """The stream of a model that answers ``return_hidden=True`` with states that the loss can be differentiated by."""
    try:
        parameters = inspect.signature(model.forward).parameters
    except (TypeError, ValueError):
        return None
    if "return_hidden" not in parameters or not x.is_floating_point():
        return None
    with torch.enable_grad():
        answer = model(x.detach().requires_grad_().clone(), return_hidden=True)
        if not (isinstance(answer, (tuple, list)) and len(answer) == 2 and isinstance(answer[1], (tuple, list))):
            return None
        states = list(answer[1])
        if not states or not _differentiable(logits_of(answer[0]), states):
            return None
    return Stream((), batch_dim_of(states[0], len(x)), "return_hidden=True")


def _differentiable(logits: Tensor, states: Sequence[Any]) -> bool:
    """Whether these are the states on the way to the logits: not copies kept for plotting, nor one tensor written over."""
    if not all(isinstance(state, Tensor) and state.requires_grad for state in states):
        return False
    if len({id(state) for state in states}) < len(states) or not logits.requires_grad:
        return False
    return all(gradient is not None for gradient in torch.autograd.grad(logits.sum(), states, allow_unused=True))


def _named(model: nn.Module, x: Tensor, spec: str) -> Stream:
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


def _detected(model: nn.Module, x: Tensor) -> Stream:
    calls = _trace(model, x)
    chains = candidate_chains(calls)
    if not chains:
        raise AuditError(
            "no residual stream found: no chain of two or more same-class blocks of a ModuleList or Sequential runs in this "
            f"network. Modules that ran: {_ran(calls)}.\nTo audit it, {REMEDY}"
        )
    longest = max(len(chain.blocks) for chain in chains)
    best = [chain for chain in chains if len(chain.blocks) == longest]
    if len(best) > 1:
        raise AuditError(
            f"cannot tell which of {len(best)} chains of {longest} blocks is the residual stream. "
            "Name one with stream=… (--fa-stream):\n" + "\n".join(f"  {_spelled(chain, calls)}" for chain in chains)
        )
    return _stream_of(model, x, best[0], last_state(best[0], calls), f"detected {best[0].describe()}")


def _stream_of(model: nn.Module, x: Tensor, chain: Chain, last: tuple[Call, End] | None, source: str) -> Stream:
    """The inputs of the blocks, then where the last state is seen."""
    if last is None:
        raise AuditError(
            f"cannot see the last state h_L of {chain.describe()}: something is done to the states between the blocks, such as "
            f"adding the residual, and no module takes h_L as it is after the last one. To audit this network, {REMEDY}"
        )
    sites = (*(Site.at(block) for block in chain.blocks), Site.at(*last))
    stream = Stream(sites, batch_dim_of(chain.blocks[0].entered, len(x)), source)
    overwritten = next((site for site in sites if site.copied), None)
    if overwritten is not None and not _copies_suffice(model, x, stream):
        raise AuditError(
            f"the state at the {overwritten.end} of {overwritten.module!r} is overwritten in place and then used again, so "
            "autograd cannot differentiate by it. Write h = h + f instead of h += f, and blocks without inplace=True"
        )
    return stream


def _copies_suffice(model: nn.Module, x: Tensor, stream: Stream) -> bool:
    """Whether giving copies to what writes in place leaves the logits as they were, and the states unwritten."""
    states: list[Glimpse] = []
    with torch.no_grad():
        copied = stream.run(model, x.clone(), lambda layer, state: states.append(Glimpse.of(state)))
        same = torch.allclose(copied, logits_of(model(x.clone())), equal_nan=True)
    return same and not any(state.overwritten for state in states)


def _trace(model: nn.Module, x: Tensor) -> list[Call]:
    """Every module call of one forward pass, in the order in which they began."""
    calls: list[Call] = []
    running: list[Call] = []
    clock = itertools.count()
    names = {module: name for name, module in model.named_modules() if name}
    times: Counter[nn.Module] = Counter()

    def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
        entered = tuple(Glimpse.of(tensor) for tensor in (*_tensors(args), *_tensors(kwargs)))
        call = Call(names[module], module, next(clock), entered, times[module])
        times[module] += 1
        running.append(call)
        calls.append(call)

    def leave(module: nn.Module, _args: Any, output: Any) -> None:
        call, left = running.pop(), first_tensor(output)
        call.end, call.left = next(clock), None if left is None else Glimpse.of(left)

    handles = []
    try:
        for module in names:
            handles.append(module.register_forward_pre_hook(enter, with_kwargs=True))
            handles.append(module.register_forward_hook(leave))
        with torch.no_grad():
            model(x)
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
        known = ", ".join(name for name, _ in model.named_children()) or "none"
        raise AuditError(
            f"stream {spec!r}: no module matches {patterns!r} (* stands for one part of a dotted name); "
            f"the network's top-level modules are: {known}"
        )
    modules = set(named.values())
    found = [call for call in calls if call.module in modules and call.takes_tensor]
    if not found:
        raise AuditError(f"stream {spec!r}: {patterns!r} matches {', '.join(named)}, but none of them ran on a tensor")
    return found


def _fits(name: Sequence[str], pattern: Sequence[str]) -> bool:
    return len(name) == len(pattern) and all(part in ("*", own) for own, part in zip(name, pattern, strict=True))


def _spelled(chain: Chain, calls: Sequence[Call]) -> str:
    last = last_state(chain, calls)
    arrow = f" -> {last[0].name}" if last is not None and last[1] == "input" else ""
    return f"{chain.pattern()}{arrow}    ({chain.describe()})"


def _ran(calls: Sequence[Call], most: int = 12) -> str:
    shown = [f"{call.name} ({type(call.module).__name__})" for call in calls]
    return ", ".join(shown[:most]) + (f" and {len(shown) - most} more" if len(shown) > most else "") if shown else "none"


@contextmanager
def _hooked(model: nn.Module, sites: Sequence[Site], observe: Observer) -> Iterator[None]:
    """Show each site's tensor as it passes; a site that does not come in its turn is an error, not a wrong layer."""
    seen = 0
    places = {site.place: site for site in sites}
    times: Counter[tuple[str, End]] = Counter()

    def arrived(module: str, end: End, tensor: Tensor | None) -> Tensor | None:
        """Show the tensor if this is a site; the copy that shall go on in its place, if any."""
        nonlocal seen
        site = places.get((module, end, times[module, end]))
        times[module, end] += 1
        if site is None:
            return None
        if sites[seen] != site:
            raise AuditError(
                f"the network does not run as it did when its stream was found: the {end} of {module!r} came where "
                f"the {sites[seen].end} of {sites[seen].module!r} was expected"
            )
        if tensor is None:
            raise AuditError(f"the {end} of {module!r} is no tensor, so it is no state of the stream")
        seen += 1
        observe(seen - 1, tensor)
        return tensor.clone() if site.copied else None

    def before(name: str) -> Callable[[nn.Module, Any, Any], Any]:
        def hook(_module: nn.Module, args: Any, kwargs: Any) -> Any:
            tensor = first_tensor(args, kwargs)
            copy = arrived(name, "input", tensor)
            return None if copy is None else (_replaced(args, tensor, copy), _replaced(kwargs, tensor, copy))

        return hook

    def behind(name: str) -> Callable[[nn.Module, Any, Any], Any]:
        def hook(_module: nn.Module, _args: Any, output: Any) -> Any:
            tensor = first_tensor(output)
            copy = arrived(name, "output", tensor)
            return None if copy is None else _replaced(output, tensor, copy)

        return hook

    handles = []
    try:
        for name, end in dict.fromkeys((site.module, site.end) for site in sites):
            module = model.get_submodule(name)
            if end == "input":
                handles.append(module.register_forward_pre_hook(before(name), with_kwargs=True))
            else:
                handles.append(module.register_forward_hook(behind(name)))
        yield
    finally:
        for handle in handles:
            handle.remove()
    if seen != len(sites):
        raise AuditError(f"only {seen} of {len(sites)} states of the stream were seen in one forward pass")


def _replaced(values: Any, old: Tensor | None, new: Tensor) -> Any:
    """The arguments or results of a module with one tensor in the place of another."""
    if isinstance(values, dict):
        return {key: new if value is old else value for key, value in values.items()}
    if isinstance(values, (tuple, list)):
        return type(values)(new if value is old else value for value in values)
    return new if values is old else values
