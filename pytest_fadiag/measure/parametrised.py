"""Weights that are computed from other parameters: weight norm, spectral norm, orthogonal matrices and other such ways."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from .modules import named_modules

ITERATIONS = 100
"""Steps of the power method, each a product of a matrix and a vector."""


class Computed(ABC):
    """A weight of a module that others are kept for."""

    def __init__(self, module: nn.Module, name: str) -> None:
        self.module, self.name = module, name

    @property
    def value(self) -> Tensor:
        """The weight as the module uses it."""
        value: Tensor = getattr(self.module, self.name)
        return value

    @property
    @abstractmethod
    def parameters(self) -> list[Tensor]:
        """What it is computed from."""

    @abstractmethod
    def store(self, value: Tensor) -> None:
        """Make it what a module would make of a weight that it begins with."""


class _Parametrised(Computed):
    """By :mod:`torch.nn.utils.parametrize`."""

    @property
    def chain(self) -> Any:
        return self.module.parametrizations[self.name]  # type: ignore[index]

    @property
    def parameters(self) -> list[Tensor]:
        return [*self.chain._parameters.values(), *self.chain._buffers.values()]

    def store(self, value: Tensor) -> None:
        """As when it was registered: what has no inverse, or none that is known, is taken for the identity."""
        made: Any = value
        for link in reversed(self.chain):
            if hasattr(link, "right_inverse"):
                try:
                    made = link.right_inverse(made)
                except NotImplementedError:
                    continue
        for own, new in zip(self.parameters, [made] if isinstance(made, Tensor) else made, strict=True):
            own.copy_(new)
        self._settle()

    def _settle(self) -> None:
        made: Any = self.parameters
        for link in self.chain:
            if isinstance(link, parametrizations._SpectralNorm) and hasattr(link, "_u"):
                _begin(link._u, link._v)
                mode, link.training = link.training, True
                for _ in range(ITERATIONS):
                    link(*made)
                link.training = mode
            made = [link(*made)]


class _WeightNormed(Computed):
    """By the hook of ``torch.nn.utils.weight_norm``."""

    @property
    def parameters(self) -> list[Tensor]:
        return [getattr(self.module, self.name + end) for end in ("_g", "_v")]

    def store(self, value: Tensor) -> None:
        length, direction = self.parameters
        direction.copy_(value)
        hook = _hook(self.module, self.name)
        length.copy_(torch.norm_except_dim(value, 2, hook.dim))
        setattr(self.module, self.name, hook.compute_weight(self.module))


class _SpectralNormed(Computed):
    """By the hook of ``torch.nn.utils.spectral_norm``."""

    @property
    def parameters(self) -> list[Tensor]:
        return [getattr(self.module, f"{self.name}_orig")]

    def store(self, value: Tensor) -> None:
        self.parameters[0].copy_(value)
        _begin(*(getattr(self.module, self.name + end) for end in ("_u", "_v")))
        hook = _hook(self.module, self.name)
        for _ in range(ITERATIONS):
            made = hook.compute_weight(self.module, do_power_iteration=True)
        setattr(self.module, self.name, made)


_HOOKS = {WeightNorm: _WeightNormed, SpectralNorm: _SpectralNormed}


def computed_weights(module: nn.Module) -> list[Computed]:
    """The weights of one module that are computed from others."""
    names = list(module.parametrizations) if parametrize.is_parametrized(module) else []  # type: ignore[arg-type]
    hooks: Sequence[Any] = list(module._forward_pre_hooks.values())
    return [
        *(_Parametrised(module, str(name)) for name in names),
        *(_HOOKS[type(hook)](module, hook.name) for hook in hooks if type(hook) in _HOOKS),
    ]


@contextmanager
def drawing(module: nn.Module, parameters: Set[Tensor]) -> Iterator[list[Computed]]:
    """While it is open, weights that are computed from these parameters can be written to; then they are stored, and listed."""
    drawn: list[Computed] = []
    computed = [one for inner in named_modules(module).values() for one in computed_weights(inner)]
    inside = [one for one in computed if parameters >= set(one.parameters)]
    if not inside:
        yield drawn
        return
    with parametrize.cached():
        before = [one.value.clone() for one in inside]
        yield drawn
        after = [one.value.detach().clone() for one in inside]
    for one, old, new in zip(inside, before, after, strict=True):
        if not torch.equal(old.nan_to_num(), new.nan_to_num()):
            one.store(new)
            drawn.append(one)


def _hook(module: nn.Module, name: str) -> Any:
    hooks: Sequence[Any] = list(module._forward_pre_hooks.values())
    return next(hook for hook in hooks if type(hook) in _HOOKS and hook.name == name)


def _begin(*vectors: Tensor) -> None:
    """Vectors for the power method to begin with: those of an earlier matrix say nothing of this one."""
    for vector in vectors:
        drawn = torch.randn(vector.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        vector.copy_(drawn / drawn.norm())
