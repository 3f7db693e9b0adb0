"""The null of depth: copies of a network whose blocks are drawn anew, with batch statistics of their own."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from .batches import Batch, regrouped
from .inputs import Inputs, ModelInput
from .modules import named_modules
from .reinitialise import reinitialise
from .stream.sites import Stream
from .wide import copy_of


def redrawn_blocks(network: nn.Module, stream: Stream, seed: int) -> tuple[nn.Module, list[str]]:
    """A copy with every block drawn anew, and the names of the blocks that cannot be."""
    copy = copy_of(network)
    undrawn = reinitialise(copy, stream, seed)
    for module in named_modules(copy).values():
        module.training = False
    return copy, undrawn


def has_batch_statistics(network: nn.Module) -> bool:
    """Whether some module normalises by averages over batches."""
    return bool(_averaging(network))


@torch.no_grad()
def retake_statistics(networks: Sequence[nn.Module], stream: Stream, batches: Iterable[Batch]) -> None:
    """Take the batch statistics of all that runs behind h_0 from some samples: the mean over their batches.

    These are of 128, whatever is forwarded at once elsewhere, since the numbers depend on it; a rest that fills none is left.
    """
    with ExitStack() as stack:
        retaking = [stack.enter_context(_Retaking(network, stream)) for network in networks]
        for number, (x, y) in regrouped(batches, sys.maxsize):
            if number is not None:
                for one in retaking:
                    one.run(Inputs(one.network).moved(x, y)[0])


class _Retaking:
    """Lets the modules behind h_0 normalise by the batch, and keep the mean of what they normalise by."""

    def __init__(self, network: nn.Module, stream: Stream) -> None:
        self.network, self.stream = network, stream
        self.behind, self.begun = False, set[nn.Module]()
        self.momenta = {module: getattr(module, "momentum", None) for module in _averaging(network)}
        self.hooks: list[Any] = []

    def __enter__(self) -> _Retaking:
        self.hooks = [module.register_forward_pre_hook(self._enter) for module in self.momenta]
        return self

    def __exit__(self, *exc: object) -> None:
        for hook in self.hooks:
            hook.remove()
        for module, momentum in self.momenta.items():
            module.training = False
            if isinstance(module, nn.modules.batchnorm._NormBase):
                module.momentum = momentum

    def run(self, x: ModelInput) -> None:
        """Forward one batch."""
        self.behind = False
        self.stream.run(self.network, x, self._on_state)

    def _on_state(self, _layer: int, _state: Tensor) -> None:
        self.behind = True

    def _enter(self, module: nn.Module, _args: Any) -> None:
        module.training = self.behind
        if self.behind and module not in self.begun and isinstance(module, nn.modules.batchnorm._NormBase):
            module.reset_running_stats()
            module.momentum = None
        if self.behind:
            self.begun.add(module)


def _averaging(network: nn.Module) -> list[nn.Module]:
    return [
        module
        for module in named_modules(network).values()
        if isinstance(getattr(module, "running_mean", None), Tensor)
        and isinstance(getattr(module, "running_var", None), Tensor)
    ]
