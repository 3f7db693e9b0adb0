"""The residual stream h_0 … h_L of a network as sites at its modules, and the hooks that show each state as it passes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...judge.errors import AuditError
from ..inputs import ModelInput, call_network, with_graph
from .chains import Call, End

OnState = Callable[[int, Tensor], None]
"""Takes a layer and its state, while the forward pass is still running."""


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
        state = call.inputs[0] if end == "input" else call.output
        return cls(call.name, end, call.number, state is not None and state.overwritten)

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

    def run(self, model: nn.Module, x: ModelInput, on_state: OnState) -> Tensor:
        """Forward ``x``, showing each state to ``on_state`` as it appears; returns the logits."""
        if self.returned:
            x = with_graph(x) if torch.is_grad_enabled() else x
            logits, states = call_network(model, x, return_hidden=True)
            for layer, state in enumerate(states):
                on_state(layer, state)
            return logits_of(logits)
        with _hooked(model, self.sites, on_state):
            return logits_of(call_network(model, x))


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
    return next((tensor for value in values for tensor in tensors_in(value)), None)


def tensors_in(values: Any) -> Iterator[Tensor]:
    """The tensors among the arguments or results of a module, those inside further containers left aside."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, (Mapping, tuple, list)):
        items = values.values() if isinstance(values, Mapping) else values
        yield from (item for item in items if isinstance(item, Tensor))


@contextmanager
def _hooked(model: nn.Module, sites: Sequence[Site], on_state: OnState) -> Iterator[None]:
    """Show each site's tensor as it passes; a site that does not come in its turn is an error, not a wrong layer."""
    seen = 0
    places = {site.place: site for site in sites}
    times: Counter[tuple[str, End]] = Counter()

    def show(module: str, end: End, tensor: Tensor | None) -> Tensor | None:
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
        on_state(seen - 1, tensor)
        return tensor.clone() if site.copied else None

    def at_input(name: str) -> Callable[[nn.Module, Any, Any], Any]:
        def hook(_module: nn.Module, args: Any, kwargs: Any) -> Any:
            tensor = first_tensor(args, kwargs)
            copy = show(name, "input", tensor)
            return None if copy is None else (_with_replacement(args, tensor, copy), _with_replacement(kwargs, tensor, copy))

        return hook

    def at_output(name: str) -> Callable[[nn.Module, Any, Any], Any]:
        def hook(_module: nn.Module, _args: Any, output: Any) -> Any:
            tensor = first_tensor(output)
            copy = show(name, "output", tensor)
            return None if copy is None else _with_replacement(output, tensor, copy)

        return hook

    handles = []
    try:
        for name, end in dict.fromkeys((site.module, site.end) for site in sites):
            module = model.get_submodule(name)
            if end == "input":
                handles.append(module.register_forward_pre_hook(at_input(name), with_kwargs=True))
            else:
                handles.append(module.register_forward_hook(at_output(name)))
        yield
    finally:
        for handle in handles:
            handle.remove()
    if seen != len(sites):
        raise AuditError(f"only {seen} of {len(sites)} states of the stream were seen in one forward pass")


def _with_replacement(values: Any, old: Tensor | None, new: Tensor) -> Any:
    """The arguments or results of a module with one tensor in the place of another."""
    if isinstance(values, dict):
        return {key: new if value is old else value for key, value in values.items()}
    if isinstance(values, (tuple, list)):
        return type(values)(new if value is old else value for value in values)
    return new if values is old else values
