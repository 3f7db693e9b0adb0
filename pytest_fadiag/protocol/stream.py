"""Where the residual stream h_0 … h_L of a network can be seen, and the hooks that see it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from .chains import Call, Chain, candidate_chains, module_after
from .errors import AuditError

Observer = Callable[[int, Tensor], None]


@dataclass(frozen=True)
class Site:
    """One hidden state: the tensor that enters or leaves a module."""

    module: str
    end: Literal["input", "output"] = "input"


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
            x = x.requires_grad_() if torch.is_grad_enabled() and x.is_floating_point() else x
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
    if spec is not None:
        return _named(model, x, spec)
    return _returned(model, x) or _detected(model, x)


def logits_of(output: Any) -> Tensor:
    """The logits in whatever a model returns: a tensor, the first of a tuple, or an object with ``logits``."""
    logits = getattr(output, "logits", output)
    if isinstance(logits, (tuple, list)) and logits:
        logits = logits[0]
    if not isinstance(logits, Tensor):
        raise AuditError(
            f"the network returned {type(output).__name__}, not logits; wrap it so that it returns a tensor [B, classes]"
        )
    return logits


def first_tensor(values: Any) -> Tensor | None:
    """The first tensor among the arguments or results of a module."""
    if isinstance(values, Tensor):
        return values
    if isinstance(values, dict):
        values = values.values()
    elif not isinstance(values, (tuple, list)):
        return None
    return next((value for value in values if isinstance(value, Tensor)), None)


def batch_dim_of(state: Tensor, batch: int) -> int:
    """Which dimension of a state counts the samples: the first, or the second of a sequence-first transformer."""
    if state.ndim and state.shape[0] == batch:
        return 0
    if state.ndim == 3 and state.shape[1] == batch:
        return 1
    raise AuditError(
        f"a hidden state has shape {tuple(state.shape)} for {batch} samples: no dimension counts the samples; "
        "name other sites with stream='BLOCKS.* -> MODULE' (--fa-stream)"
    )


def _returned(model: nn.Module, x: Tensor) -> Stream | None:
    """The stream of a model that answers ``return_hidden=True`` with states that the loss can be differentiated by."""
    try:
        parameters = inspect.signature(model.forward).parameters
    except (TypeError, ValueError):
        return None
    if "return_hidden" not in parameters or not x.is_floating_point():
        return None
    with torch.enable_grad():
        answer = model(x.detach().clone().requires_grad_(), return_hidden=True)
        if not (isinstance(answer, (tuple, list)) and len(answer) == 2 and isinstance(answer[1], (tuple, list))):
            return None
        logits, states = logits_of(answer[0]), list(answer[1])
        if not states or not all(isinstance(state, Tensor) and state.requires_grad for state in states):
            return None  # detached copies, kept for plotting: the chain of blocks still has the real ones
        reached = torch.autograd.grad(logits.sum(), states, allow_unused=True)
    if any(gradient is None for gradient in reached):
        return None
    return Stream((), batch_dim_of(states[0], len(x)), "return_hidden=True")


def _named(model: nn.Module, x: Tensor, spec: str) -> Stream:
    left, arrow, right = (part.strip() for part in spec.partition("->"))
    calls = _trace(model, x)
    blocks = _matching(model, calls, left, spec)
    chain = Chain(tuple(blocks))
    if not arrow:
        return _stream_of(chain, calls, len(x), f"named {spec!r}")
    ends = [call for call in _matching(model, calls, right, spec) if call.start > blocks[-1].start]
    if not ends:
        raise AuditError(f"stream {spec!r}: {right!r} does not run after the last block, {blocks[-1].name!r}")
    sites = [*(Site(block.name) for block in blocks), Site(ends[0].name)]
    return Stream(tuple(sites), batch_dim_of(blocks[0].entered, len(x)), f"named {spec!r}")


def _detected(model: nn.Module, x: Tensor) -> Stream:
    calls = _trace(model, x)
    chains = candidate_chains(calls)
    if not chains:
        raise AuditError(
            "no residual stream found: no chain of two or more same-class blocks runs in this network. "
            "Name the blocks and the module after them with stream='BLOCKS.* -> MODULE' (--fa-stream); "
            f"modules that ran: {_ran(calls)}"
        )
    longest = max(len(chain.blocks) for chain in chains)
    best = [chain for chain in chains if len(chain.blocks) == longest]
    if len(best) > 1:
        raise AuditError(
            f"cannot tell which of {len(best)} chains of {longest} blocks is the residual stream. "
            "Name one with stream=… (--fa-stream):\n" + "\n".join(f"  {_spelled(chain, calls)}" for chain in chains)
        )
    return _stream_of(best[0], calls, len(x), f"detected {best[0].describe()}")


def _stream_of(chain: Chain, calls: Sequence[Call], batch: int, source: str) -> Stream:
    """The inputs of the blocks, then the output of the last or, where f_l is added outside, what enters the next module."""
    sites = [Site(block.name) for block in chain.blocks]
    if chain.adds_itself:
        sites.append(Site(chain.ends[-1].name, "output"))
    else:
        after = module_after(chain, calls)
        if after is None:
            raise AuditError(
                f"the residual of {chain.describe()} is added outside the blocks, and no module takes h_L as it is after the "
                "last one: name one with stream='BLOCKS.* -> MODULE' (--fa-stream)"
            )
        sites.append(Site(after.name))
    return Stream(tuple(sites), batch_dim_of(chain.blocks[0].entered, batch), source)


def _trace(model: nn.Module, x: Tensor) -> list[Call]:
    """Every module call of one forward pass, in the order in which they began."""
    calls: list[Call] = []
    running: list[Call] = []
    clock = iter(range(1 << 62))
    names = {module: name for name, module in model.named_modules() if name}

    def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
        entered = first_tensor(args)
        call = Call(names[module], module, next(clock), first_tensor(kwargs) if entered is None else entered)
        running.append(call)
        calls.append(call)

    def leave(module: nn.Module, _args: Any, output: Any) -> None:
        call = running.pop()
        call.end, call.left = next(clock), first_tensor(output)

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
    names = [name for name, _ in model.named_modules() if any(_fits(name.split("."), parts) for parts in wanted)]
    if not names:
        known = ", ".join(name for name, _ in model.named_children()) or "none"
        raise AuditError(f"stream {spec!r}: no module matches {patterns!r}; the network's top-level modules are: {known}")
    found = [call for call in calls if call.name in names and call.entered is not None]
    if not found:
        raise AuditError(f"stream {spec!r}: {patterns!r} matches {', '.join(names)}, but none of them ran on a tensor")
    return found


def _fits(name: Sequence[str], pattern: Sequence[str]) -> bool:
    return len(name) == len(pattern) and all(part in ("*", own) for own, part in zip(name, pattern, strict=True))


def _spelled(chain: Chain, calls: Sequence[Call]) -> str:
    after = module_after(chain, calls)
    return f"{chain.pattern()}{' -> ' + after.name if after else ''}    ({chain.describe()})"


def _ran(calls: Sequence[Call], most: int = 12) -> str:
    shown = [f"{call.name} ({type(call.module).__name__})" for call in calls]
    return ", ".join(shown[:most]) + (f" and {len(shown) - most} more" if len(shown) > most else "") if shown else "none"


@contextmanager
def _hooked(model: nn.Module, sites: Sequence[Site], observe: Observer) -> Iterator[None]:
    """Show each site's tensor as it passes; a site that does not come in its turn is an error, not a wrong layer."""
    seen = 0

    def arrived(site: Site, tensor: Tensor | None) -> None:
        nonlocal seen
        if seen >= len(sites) or sites[seen] != site:
            expected = "no further site" if seen >= len(sites) else f"the {sites[seen].end} of {sites[seen].module!r}"
            raise AuditError(f"the stream changed its path: {site.end} of {site.module!r} came where {expected} was expected")
        if tensor is None:
            raise AuditError(f"the {site.end} of {site.module!r} is no tensor, so it is no state of the stream")
        seen += 1
        observe(seen - 1, tensor)

    def before(site: Site) -> Callable[[nn.Module, Any, Any], None]:
        def hook(_module: nn.Module, args: Any, kwargs: Any) -> None:
            entered = first_tensor(args)
            arrived(site, first_tensor(kwargs) if entered is None else entered)

        return hook

    def behind(site: Site) -> Callable[[nn.Module, Any, Any], None]:
        return lambda _module, _args, output: arrived(site, first_tensor(output))

    handles = []
    try:
        for site in dict.fromkeys(sites):
            module = model.get_submodule(site.module)
            if site.end == "input":
                handles.append(module.register_forward_pre_hook(before(site), with_kwargs=True))
            else:
                handles.append(module.register_forward_hook(behind(site)))
        yield
    finally:
        for handle in handles:
            handle.remove()
    if seen != len(sites):
        raise AuditError(f"only {seen} of {len(sites)} states of the stream were seen in one forward pass")
