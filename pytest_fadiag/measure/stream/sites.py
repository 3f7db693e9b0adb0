"""The residual stream h_0 … h_L of a network as sites at its modules and functions, and what shows each state as it passes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ...judge.errors import AuditError
from ...judge.stream import ResidualStream
from ..inputs import ModelInput, call_network
from ..modules import named_modules
from ..outputs import Outputs
from .tape import Place, Sight, name_of, tensors_in

OnState = Callable[[int, Tensor], None]
"""Takes a layer and its state, while the forward pass is still running."""


@dataclass(frozen=True)
class Site:
    """One hidden state: a tensor among those that enter or leave a module, or that a function returns."""

    place: Place
    position: int = 0
    function: str = ""
    """Where no module shows the state: the function that returns it, called after the module event at ``place``."""
    occurrence: int = 0
    """How many calls of that function come between the two."""
    batch_dim: int = 0
    """Which of its dimensions counts the samples."""
    copied: bool = False
    """Whether what comes after gets a copy, since it writes in place to the state, which autograd then loses sight of."""

    @classmethod
    def at(cls, sight: Sight, batch_dim: int, *, copied: bool) -> Site:
        """The site where a value was seen."""
        return cls(sight.place, sight.position, sight.function, sight.occurrence, batch_dim, copied)

    def __str__(self) -> str:
        module, end, _ = self.place
        where = f"the {end} of {module!r}" if module else f"the network's {end}"
        return f"what {self.function} returns after {where}" if self.function else where


@dataclass(frozen=True)
class Stream:
    """The sites of h_0 … h_L in the order in which they run, and the names of what lies between them."""

    sites: tuple[Site, ...]
    blocks: tuple[str, ...] = ()
    source: str = ""
    outputs: Outputs = field(default_factory=Outputs, compare=False)
    """What reads the logits."""
    parameters: tuple[frozenset[str], ...] = ()
    """The parameters that each block reads, by name."""
    outside: frozenset[str] = frozenset()
    """Those that are read before, between or behind the blocks."""
    tokens: tuple[bool, ...] = ()
    """Which states are lists of tokens, each of which has a norm of its own."""
    record: ResidualStream | None = field(default=None, compare=False)
    """How a report names it."""

    @property
    def own(self) -> tuple[tuple[str, ...], ...]:
        """The parameters that are read in a block and nowhere else, block by block."""
        return tuple(tuple(sorted(block - self.outside)) for block in self.parameters)

    @property
    def batch_dims(self) -> tuple[int, ...]:
        """Which dimension of each state counts the samples."""
        return tuple(site.batch_dim for site in self.sites)

    def run(self, model: nn.Module, x: ModelInput, on_state: OnState) -> Tensor:
        """Forward ``x``, showing each state to ``on_state`` as it appears; returns the logits."""
        with _Showing(model, self.sites, on_state):
            return self.outputs(call_network(model, x))


def _module(model: nn.Module, name: str) -> nn.Module | None:
    """The module of a name; only where torch does not know it are all of them looked through, which takes its time."""
    try:
        return model.get_submodule(name)
    except AttributeError:
        return named_modules(model).get(name)


class _Showing:
    """Shows each site's tensor as it passes; a site that does not come in its turn is an error, not a wrong layer."""

    def __init__(self, model: nn.Module, sites: tuple[Site, ...], on_state: OnState) -> None:
        self.model, self.sites, self.on_state = model, sites, on_state
        self.by_place: dict[Place, list[Site]] = {}
        for site in sites:
            self.by_place.setdefault(site.place, []).append(site)
        self.times: Counter[tuple[str, str]] = Counter()
        self.functions: Counter[str] = Counter()
        self.seen = 0
        self.stack = ExitStack()

    def __enter__(self) -> None:
        try:
            for name, end in dict.fromkeys(site.place[:2] for site in self.sites):
                module = _module(self.model, name)
                if module is None:
                    raise AuditError(f"the network has no module {name!r}, where a state of its stream was found")
                self.stack.callback(self._hook(name, end, module).remove)
            if any(site.function for site in self.sites):
                self.stack.enter_context(_Functions(self))
        except BaseException:
            self.stack.close()
            raise

    def __exit__(self, kind: object, *error: object) -> None:
        self.stack.close()
        if kind is None and self.seen != len(self.sites):
            raise AuditError(f"only {self.seen} of {len(self.sites)} states of the stream were seen in one forward pass")

    def _hook(self, name: str, end: str, module: nn.Module) -> Any:
        if end == "input":

            def enter(_module: nn.Module, args: Any, kwargs: Any) -> Any:
                return self._event(name, "input", (args, kwargs))

            return module.register_forward_pre_hook(enter, with_kwargs=True)
        return module.register_forward_hook(lambda _module, _args, output: self._event(name, "output", output))

    def _event(self, name: str, end: Any, values: Any) -> Any:
        """Show the states among what enters or leaves a module; the same with copies where they shall go on in their place."""
        place = (name, end, self.times[name, end])
        self.times[name, end] += 1
        self.functions = Counter()
        self.watched = {site.function for site in self.by_place.get(place, ()) if site.function}
        self.place = place
        return self._show([site for site in self.by_place.get(place, ()) if not site.function], values)

    def returned(self, function: str, result: Any) -> Any:
        """What a function returned, a copy of it where that shall go on in its place."""
        if function not in self.watched:
            return result
        occurrence = self.functions[function]
        self.functions[function] += 1
        wanted = [site for site in self.by_place[self.place] if (site.function, site.occurrence) == (function, occurrence)]
        changed = self._show(wanted, result)
        return result if changed is None else changed

    def _show(self, sites: list[Site], values: Any) -> Any:
        changed = None
        with torch._C.DisableTorchFunction():
            for site in sites:
                tensors = list(tensors_in(values if changed is None else changed))
                if self.seen >= len(self.sites) or self.sites[self.seen] != site or site.position >= len(tensors):
                    expected = self.sites[min(self.seen, len(self.sites) - 1)]
                    raise AuditError(
                        f"the network does not run as it did when its stream was found: {site} came where {expected} "
                        "was expected"
                    )
                state = tensors[site.position]
                self.on_state(self.seen, state)
                self.seen += 1
                if site.copied:
                    changed = with_replacement(values if changed is None else changed, state, state.clone())
        return changed


class _Functions(TorchFunctionMode):
    """Hands over what functions return."""

    def __init__(self, showing: _Showing) -> None:
        super().__init__()
        self.showing = showing
        showing.watched, showing.place = set(), ("", "input", -1)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return self.showing.returned(name_of(func), result) if self.showing.watched else result


def with_replacement(values: Any, old: Tensor, new: Tensor) -> Any:
    """The arguments or results of a module with one tensor in the place of another."""
    if values is old:
        return new
    if isinstance(values, Mapping):
        changed = {key: with_replacement(value, old, new) for key, value in values.items()}
        return changed if type(values) is dict else type(values)(**changed)
    if isinstance(values, (tuple, list)):
        items = [with_replacement(value, old, new) for value in values]
        return type(values)(*items) if hasattr(values, "_fields") else type(values)(items)
    if is_dataclass(values) and not isinstance(values, type):
        return replace(values, **{own.name: with_replacement(getattr(values, own.name), old, new) for own in fields(values)})
    return values
