"""The way back from the logits of some samples to h_0, on which each state's gradient is shown as it arrives."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..judge.errors import AuditError
from .observers import Gradient, OutputError
from .stream.sites import Stream


class Backward:
    """The hooks on the states of one forward pass, and the backward pass that calls them."""

    def __init__(self, show: Callable[[Gradient], None], stream: Stream) -> None:
        self.show, self.stream = show, stream
        self.depth = 0
        self.first: Tensor | None = None
        self.error: OutputError | None = None
        self.layers: set[int] = set()

    def attach(self, layer: int, state: Tensor) -> None:
        """Wait for the gradient at a state."""
        if layer == 0:
            # No parameter and no input requires grad, so h_0 is where the graph begins: nothing before it is kept.
            self.first = state if state.requires_grad else state.requires_grad_()
        elif not state.requires_grad:
            raise AuditError(
                f"the stream is detached before h_{layer}, so no BP gradient reaches the states below it; audit the "
                "network with a forward pass that does not detach its states"
            )
        self.depth = layer
        state.register_hook(lambda gradient: self._on_gradient(layer, gradient))  # type: ignore[no-untyped-call]

    def run(self, logits: Tensor, error: OutputError) -> None:
        """Carry the unit output errors back to h_0."""
        assert self.first is not None
        self.error = error
        # ⟨logits, unit error⟩ has the unit error as its gradient; passed as grad_outputs, torch would load sympy for it.
        carried = (logits * error.units.to(logits.dtype)).sum()
        torch.autograd.grad(carried, self.first, allow_unused=True)
        self.first = None  # the hook on h_0 refers to this object: both would wait for the garbage collector

    @property
    def unreached(self) -> list[int]:
        """The states that no gradient came to."""
        return [layer for layer in range(self.depth + 1) if layer not in self.layers]

    def _on_gradient(self, layer: int, gradient: Tensor) -> None:
        if self.error is None:
            return  # of the forward's own, which differentiates by itself
        self.layers.add(layer)
        value = gradient.detach().movedim(self.stream.batch_dims[layer], 0)
        self.show(Gradient(self.error.samples, layer, self.depth, value, self.error, self.stream.tokens[layer]))
