"""The residual stream h_0 … h_L of a network: where each state is seen, and what shows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from ...judge.errors import AuditError
from ...judge.records import StreamInfo
from ..copies import named_modules
from ..inputs import Outputs, call_network, tensors_in
from ..types import ModelInput

if TYPE_CHECKING:
    from ..pooling import Layout

Place = tuple[str, str, int]
"""A module's name, its ``input`` or ``output``, and how many calls of it came before."""
OnState = Callable[[int, Tensor], None]
"""Takes a layer and its state, while the forward pass is still running."""


@dataclass(frozen=True)
class Site:
    """Where one value is seen: among what enters or leaves a module, or what a function returns."""

    place: Place
    position: int = 0
    function: str = ""
    """The function that returns it after ``place`` and before any other module, if no module."""
    occurrence: int = 0
    """How many calls of that function came between the two."""
    batch_dim: int = 0
    """Which of its dimensions counts the samples."""
    copied: bool = False
    """Whether the forward goes on with a copy, since it writes in place to the state."""

    def is_at(self, other: Site) -> bool:
        """Whether both are the same end of a module call, or the same call of a function."""
        function = (other.function, other.occurrence)
        return self.place == other.place and (self.function, self.occurrence) == function

    def __str__(self) -> str:
        name, end, _ = self.place
        place = f"the {end} of {name!r}"
        if not name:
            place = f"the network's {end}"
        if self.function:
            return f"what {self.function} returns after {place}"
        return place


@dataclass(frozen=True)
class Stream:
    """The sites of h_0 … h_L in the order in which they run, and what lies between them.

    >>> stream = find_stream(network, x)
    >>> stream.blocks
    ('blocks.0', 'blocks.1')
    >>> outputs = stream.run(network, x, lambda layer, state: print(layer, state.norm()))
    """

    sites: tuple[Site, ...]
    info: StreamInfo = field(compare=False)
    """How a report names it."""
    parameters: tuple[frozenset[str], ...]
    """The parameters that each block reads, by name."""
    outside: frozenset[str]
    """Those that are read before, between or after the blocks."""
    tokens: tuple[bool, ...]
    """Which states are lists of tokens, each of which has a norm of its own."""
    layout: Layout = field(compare=False)
    """Which dimension of a state counts its features."""
    outputs: Outputs = field(default_factory=Outputs, compare=False)
    """What reads the logits."""

    @property
    def blocks(self) -> tuple[str, ...]:
        """The names of the blocks."""
        return self.info.blocks

    @property
    def exclusive_parameters(self) -> tuple[tuple[str, ...], ...]:
        """The parameters that are read in a block and nowhere outside, block by block."""
        return tuple(tuple(sorted(block - self.outside)) for block in self.parameters)

    @property
    def batch_dims(self) -> tuple[int, ...]:
        """Which dimension of each state counts the samples."""
        return tuple(site.batch_dim for site in self.sites)

    def run(self, model: nn.Module, x: ModelInput, on_state: OnState) -> Tensor:
        """Forward ``x``, showing each state to ``on_state`` as it appears; returns the logits."""
        watch = _Watch(self.sites, on_state)
        events = Events(watch.take)
        with ExitStack() as stack:
            for name, end in dict.fromkeys(site.place[:2] for site in self.sites):
                try:
                    module = model.get_submodule(name)
                except AttributeError:  # it is in a plain list or dictionary
                    module = named_modules(model)[name]
                stack.callback(events.hook(name, module, end).remove)
            if any(site.function for site in self.sites):
                stack.enter_context(events)
            returned = call_network(model, x)
        if watch.error is not None:
            raise watch.error
        if watch.layer < len(self.sites):
            raise AuditError(
                "the network does not run as it did when its stream was found: expected a state at "
                f"{self.sites[watch.layer]} after {watch.layer} others, but it did not come"
            )
        return self.outputs(returned)


class Events(TorchFunctionMode):
    """Hands over what enters or leaves modules and what functions return, with its site.

    What ``take`` returns goes on in its place; the last argument are those of the function.
    """

    def __init__(self, take: Callable[[Site, Any, Any], Any]) -> None:
        super().__init__()
        self.take = take
        self.place: Place = ("", "input", 0)
        self.times: Counter[tuple[str, str]] = Counter()
        self.functions: Counter[str] = Counter()

    def hook(self, name: str, module: nn.Module, end: str) -> Any:
        """Watch one end of a module; what is returned has to be removed."""

        def passing(values: Any) -> Any:
            self.place = (name, end, self.times[name, end])
            self.times[name, end] += 1
            self.functions.clear()
            return self.take(Site(self.place), values, ())

        if end == "input":
            return module.register_forward_pre_hook(
                lambda _, args, kwargs: passing((args, kwargs)), with_kwargs=True
            )
        return module.register_forward_hook(lambda _, args, output: passing(output))

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if name in ("double", "half", "bfloat16"):  # a float64 copy calls one for another
            name = "float"
        site = Site(self.place, 0, name, self.functions[name])
        self.functions[name] += 1
        return self.take(site, result, args)


class _Watch:
    """Waits for one site after the other: a state out of turn is never taken for another."""

    def __init__(self, sites: tuple[Site, ...], on_state: OnState) -> None:
        self.sites = sites
        self.on_state = on_state
        self.layer = 0
        """The layer whose state comes next."""
        self.before = torch.empty(0)
        """The state before it."""
        self.error: Exception | None = None
        """Of ``on_state``: raised after the forward pass, since it is not the network's failure."""

    def take(self, place: Site, values: Any, _: Any) -> Any:
        """Show what is a state; where it is copied, the copy goes on."""
        while self.error is None and self.layer < len(self.sites):
            site = self.sites[self.layer]
            if not site.is_at(place):
                break
            with torch._C.DisableTorchFunction():
                tensors = list(tensors_in(values))
                if site.position >= len(tensors):
                    break
                self._refuse_freed(site)
                state = tensors[site.position]
                if 0 in state.stride():  # an expanded tensor cannot be written to
                    state = state.clone()
                    values = _replaced(values, tensors[site.position], state)
                try:
                    self.on_state(self.layer, state)
                except Exception as error:
                    self.error = error
                    break
                self.layer += 1
                self.before = state
                if site.copied:
                    self.before = state.clone()
                    values = _replaced(values, state, self.before)
        return values

    def _refuse_freed(self, site: Site) -> None:
        if self.before.numel() and not self.before.untyped_storage().nbytes():
            raise AuditError(
                f"the state before {site} was freed in the forward pass, as reversible blocks do; "
                "let the blocks keep their input"
            )


def _replaced(values: Any, old: Tensor, new: Tensor) -> Any:
    """The arguments or results of a module with one tensor in the place of another."""
    changed = tree_map(lambda value: new if value is old else value, values)
    if not any(tensor is new for tensor in tensors_in(changed)):
        raise AuditError("a state in a dataclass is overwritten in place; let the forward clone it")
    return changed
