"""The modules of a network by name, those in plain Python lists and dictionaries among them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn

_PLAIN = (bool, int, float, str, type(None))
"""What most attributes are, and holds no module."""


def named_modules(model: nn.Module) -> dict[str, nn.Module]:
    """Every module once, by its first name; ``blocks.0`` also where ``blocks`` is a list that torch knows nothing of."""
    found: dict[nn.Module, str] = {}
    waiting = [("", model)]
    while waiting:
        name, module = waiting.pop(0)
        if module not in found:
            found[module] = name
            waiting += [(f"{name}.{own}" if name else own, child) for own, child in _children(module)]
    return {name: module for module, name in found.items()}


def module_names(model: nn.Module) -> dict[str, nn.Module]:
    """Every name that leads to a module; one that is held twice has two."""
    names: dict[str, nn.Module] = {}
    waiting: list[tuple[str, nn.Module, tuple[nn.Module, ...]]] = [("", model, ())]
    while waiting:
        name, module, path = waiting.pop(0)
        names[name] = module
        if module not in path:
            waiting += [(f"{name}.{own}" if name else own, child, (*path, module)) for own, child in _children(module)]
    return names


def named_parameters(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter once, by its first name."""
    names: dict[Tensor, str] = {}
    for name, module in named_modules(model).items():
        for own, parameter in module._parameters.items():
            if parameter is not None and parameter not in names:
                names[parameter] = f"{name}.{own}" if name else own
    return {name: parameter for parameter, name in names.items()}


def _children(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    yield from ((name, child) for name, child in module._modules.items() if child is not None)
    for name, value in vars(module).items():
        if name[:1] != "_" and not isinstance(value, _PLAIN):
            yield from _held(name, value)


def _held(name: str, value: Any) -> Iterator[tuple[str, nn.Module]]:
    """The modules in a list, a tuple or a dictionary, or hidden as a plain attribute."""
    if isinstance(value, nn.Module):
        yield name, value
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _held(f"{name}.{index}", item)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _held(f"{name}.{key}", item)
