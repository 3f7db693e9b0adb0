"""Blocks with the weights of a new initialisation: what the architecture does before anything is learnt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from .modules import named_modules, named_parameters
from .parametrised import computed_weights, drawing
from .stream.sites import Stream
from .wide import copy_of


def reinitialise(network: nn.Module, stream: Stream, seed: int) -> list[str]:
    """Draw the weights of every block of a stream anew, in place, and return the names of the blocks that cannot be drawn.

    A module's own ``reset_parameters`` decides where it has one, inner modules first, so that the last word on a block is its
    own; batch statistics are then those of a new module. Parameters that no such method draws get their own mean and spread.
    A weight that is computed from others is drawn as the module uses it, and these are made what a new module makes of it.
    What is read outside the blocks too stays as it is. The global random state is left as it was found.
    """
    parameters = named_parameters(network)
    drawable = frozenset().union(*stream.parameters) - stream.outside
    with _seeded(parameters, seed):
        drawn = _reset_all(network, parameters, stream, drawable)
        drawn |= _redraw_computed(network, parameters, drawable - drawn)
        for name in sorted(drawable - drawn):
            drawn |= _redrawn(name, parameters[name])
    return [name for name, own in zip(stream.blocks, stream.parameters, strict=True) if not own or not own <= drawn]


def initial_values(network: nn.Module, stream: Stream, seeds: Sequence[int]) -> Iterator[dict[str, Tensor]]:
    """What the modules' own methods draw for the parameters of the blocks, by name; the network's own values are left."""
    copy = copy_of(network)
    parameters = named_parameters(copy)
    for seed in seeds:
        with _seeded(parameters, seed):
            drawn = _reset_all(copy, parameters, stream, frozenset().union(*stream.parameters) - stream.outside)
        yield {name: parameters[name].detach().clone() for name in sorted(drawn)}


@contextmanager
def _seeded(parameters: dict[str, Tensor], seed: int) -> Iterator[None]:
    """Random numbers from a seed, and the global random state as it was afterwards."""
    cuda = {parameter.device.index or 0 for parameter in parameters.values() if parameter.device.type == "cuda"}
    with torch.random.fork_rng(devices=sorted(cuda)), torch.no_grad():
        torch.manual_seed(seed)
        yield


def _reset_all(network: nn.Module, parameters: dict[str, Tensor], stream: Stream, drawable: frozenset[str]) -> set[str]:
    """Let the modules of the blocks draw their parameters, and return the names of what they drew."""
    drawn: set[str] = set()
    for module, held in modules_of_blocks(network, parameters, stream):
        drawn |= _reset(module, {name: parameters[name] for name in sorted(held & drawable)})
    return drawn


def modules_of_blocks(network: nn.Module, parameters: dict[str, Tensor], stream: Stream) -> list[tuple[nn.Module, set[str]]]:
    """The modules that belong to the blocks alone and what they hold, inner ones first; one that holds nothing goes with the
    module that it is in."""
    names = {parameter: name for name, parameter in parameters.items()}
    modules = named_modules(network)
    held: dict[str, set[str]] = {name: set() for name in modules}
    for name, module in modules.items():
        own = {names[parameter] for parameter in module._parameters.values() if parameter is not None}
        for outer in held.keys() & set(_around(name)):
            held[outer] |= own
    inside = frozenset().union(*stream.parameters)
    belonging = {name for name, own in held.items() if own & inside and not own & stream.outside}
    chosen = [name for name in modules if name in belonging or (not held[name] and belonging & set(_around(name)))]
    return [(modules[name], held[name]) for name in sorted(chosen, key=lambda name: -len(_around(name)))]


def _around(name: str) -> list[str]:
    """A module's name and those of the modules that it is in, of which the network itself is the first."""
    parts = name.split(".") if name else []
    return [".".join(parts[:length]) for length in range(len(parts) + 1)]


def _reset(module: nn.Module, parameters: dict[str, Tensor]) -> set[str]:
    """What a module's own method draws; nothing where it has none, or one that needs more than the module."""
    reset: Any = getattr(module, "reset_parameters", None)
    if not callable(reset):
        return set()
    before = {name: parameter.clone() for name, parameter in parameters.items()}
    try:
        with drawing(module, set(parameters.values())) as computed:
            reset()
    except Exception:  # somebody's code, which may want arguments; what it has begun is undone
        for name, parameter in parameters.items():
            parameter.copy_(before[name])
        return set()
    own = {parameter for parameter in module._parameters.values() if parameter is not None}
    stored = {parameter for one in computed for parameter in one.parameters}
    # A constant of a new module may be what it was before. Weights that are still the same were drawn in vain.
    return {
        name
        for name, parameter in parameters.items()
        if not _same(parameter, before[name])
        or parameter in stored
        or (parameter in own and (parameter.ndim < 2 or _constant(parameter)))
    }


def _redraw_computed(network: nn.Module, parameters: dict[str, Tensor], names: frozenset[str]) -> set[str]:
    """Draw weights that are computed from some parameters, and from no others, with their own mean and spread."""
    by_parameter = {parameters[name]: name for name in names}
    drawn: set[str] = set()
    for module in named_modules(network).values():
        for one in computed_weights(module):
            value = _drawn_like(one.value) if by_parameter.keys() >= set(one.parameters) else None
            if value is not None:
                one.store(value)
                drawn |= {by_parameter[parameter] for parameter in one.parameters}
    return drawn


def _redrawn(name: str, parameter: Tensor) -> set[str]:
    """Draw a parameter with its own mean and spread; nothing where none of its values is finite."""
    drawn = _drawn_like(parameter)
    if drawn is None:
        return set()
    parameter.copy_(drawn)
    return {name}


def _drawn_like(tensor: Tensor) -> Tensor | None:
    """Random numbers of the same mean and spread; nothing where none of its values is finite."""
    finite = tensor[torch.isfinite(tensor)].double()
    if not len(finite) or not tensor.is_floating_point():
        return None
    noise = torch.randn(tensor.shape, dtype=torch.float64).to(tensor.device)
    return (finite.mean() + noise * finite.std(correction=0)).to(tensor)


def _same(one: Tensor, other: Tensor) -> bool:
    if torch.equal(one, other):
        return True
    return bool(one.isnan().any()) and torch.equal(one.nan_to_num(), other.nan_to_num())


def _constant(parameter: Tensor) -> bool:
    return bool((parameter == parameter.flatten()[0]).all())
