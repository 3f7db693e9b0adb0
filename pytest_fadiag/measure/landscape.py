"""The loss around the states of a stream, in float64: its gradients, and what becomes of it when one state is moved."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..judge.errors import AuditError
from .inputs import ModelInput, call_network, copied, each, given_labels, optional_label, tensors_of
from .output_error import Loss, output_error
from .reference import Proof, passed
from .shifts import Pass, Shifts
from .shortcuts import Shortcuts
from .stream.sites import Stream
from .wide import copy_of, in_float64

SAME_STATE = 1e-9
"""How far the state of a pass with shortcuts may lie from that of a whole one, relative."""


class Landscape:
    """A float64 copy of a network; where none runs, the network itself in its own precision."""

    def __init__(self, network: nn.Module, stream: Stream, loss: Loss, proof: Proof) -> None:
        self.stream, self.loss, self.proof = stream, loss, proof
        self.network, self.dtype = network, next(network.parameters()).dtype
        self.as_given = network
        self.takes_shortcuts = True
        if proof.record.dtype == "float64":
            self.network, self.dtype = copy_of(network, torch.float64), torch.float64

    def around(self, x: ModelInput, y: Tensor) -> Surroundings:
        """The loss of some samples around their states."""
        x = each(x, lambda tensor: tensor.to(self.dtype) if tensor.is_floating_point() else tensor)
        errors: list[tuple[Tensor, Tensor]] = []

        def carried(logits: Tensor) -> Tensor:
            errors.append(output_error(logits.detach(), y, self.loss))
            return (logits * errors[0][0].to(logits.dtype)).sum()

        with self.precision():
            taken = passed(self.network, self.stream, x, carried, own_backward=not self.proof.undoes)
            losses = self.loss(taken.logits, y)
        return Surroundings(self, x, y, taken, *errors[0], losses, self._shortcuts(x))

    def _shortcuts(self, x: ModelInput) -> Shortcuts | None:
        if not self.takes_shortcuts:
            return None
        shortcuts = Shortcuts()
        with torch.no_grad(), self.precision(), shortcuts.recorded(self.network):
            self.stream.run(self.network, copied(x), lambda *_: shortcuts.at_state())
        return shortcuts

    def precision(self) -> AbstractContextManager[Any]:
        """In which the network is run."""
        return in_float64() if self.dtype is torch.float64 else nullcontext()


def _like(x: ModelInput, network: nn.Module) -> ModelInput:
    """The inputs on the device and in the precision of a network."""
    weight = next(network.parameters())
    return each(x, lambda tensor: tensor.to(weight.device, weight.dtype if tensor.is_floating_point() else tensor.dtype))


def _traced(tensor: Tensor) -> Tensor:
    """An input from which the graph begins, so that it shows what is done to h_0."""
    return tensor.detach().requires_grad_() if tensor.is_floating_point() else tensor


@dataclass(frozen=True, eq=False)
class Surroundings:
    """States and gradients of some samples: ∂ℓ_i/∂h_l is ‖e_i‖ times what the unit error gives, which is held here."""

    landscape: Landscape
    x: ModelInput
    y: Tensor
    taken: Pass
    unit_error: Tensor
    error_norms: Tensor
    losses: Tensor
    """The loss of each sample."""
    shortcuts: Shortcuts | None

    @property
    def bytes_each(self) -> int:
        """How much the outputs of the network's modules take for a sample, as far as they are known; never 0."""
        held = self.taken.states if self.shortcuts is None else [*self.taken.states, *self.shortcuts.held]
        return max(1, sum(tensor.nbytes for tensor in held) // len(self.y))

    @property
    def error(self) -> Tensor:
        """e_i = ∂ℓ_i/∂logits_i."""
        return self.unit_error * self.error_norms.unsqueeze(1)

    def own_credit(self, *, labelled: bool = False, as_given: bool = False) -> list[Tensor | None]:
        """What the network's own backward brings to h_0 … h_L from the losses of these samples.

        With the labels, where its forward takes them if they are given; in the network's own precision, where it needs that.
        """
        network = self.landscape.as_given if as_given else self.landscape.network
        x = _like(self.x, network) if as_given else self.x
        if labelled:
            x = given_labels(network, x, self.y) or x
            self._check_labels_unused(network, x)
        seen = self._own_pass(network, x)
        if not seen.handed_on:
            return [*seen.gradients]
        x = each(x, _traced)  # h_0 may be handed on too, which stands in a graph that begins before it
        traced = any(tensor.requires_grad for tensor in tensors_of(x))
        return [*self._own_pass(network, x).gradients] if traced else [None, *seen.gradients[1:]]

    def _own_pass(self, network: nn.Module, x: ModelInput) -> Pass:
        error = self.error

        def carried(logits: Tensor) -> Tensor:
            for module in network.modules():
                if hasattr(module, "loss_gradient"):  # where BioTorch's layers of direct feedback alignment look for it
                    module.loss_gradient = error.to(logits)
            return (logits * error.to(logits)).sum()

        with self.landscape.precision() if network is self.landscape.network else nullcontext():
            return passed(network, self.landscape.stream, x, carried, own_backward=True)

    def _check_labels_unused(self, network: nn.Module, x: ModelInput) -> None:
        """An error where logits depend on the labels that a forward may be given: it is then another network's backward."""
        same = 1e-9 if network is self.landscape.network and self.landscape.dtype is torch.float64 else 1e-4
        with torch.no_grad(), self.landscape.precision() if same < 1e-4 else nullcontext():
            logits = self.landscape.stream.outputs(call_network(network, copied(x)))
        known = self.taken.logits.to(logits)
        if logits.shape != known.shape or not torch.allclose(logits, known, rtol=same, atol=same, equal_nan=True):
            raise AuditError(
                f"its forward takes {optional_label(network)!r}, and with the labels its logits are others than without: what "
                "its backward brings then is no credit for the predictions that are audited"
            )

    def moved(self, layer: int, shift: Tensor) -> Tensor:
        """The loss of each sample after something was added to h_l, samples first."""
        stream, network = self.landscape.stream, self.landscape.network
        with torch.no_grad(), self.landscape.precision():
            logits = None
            if self.shortcuts is not None and self.landscape.takes_shortcuts:
                logits = self._by_shortcut(self.shortcuts, layer, shift)
                self.landscape.takes_shortcuts = logits is not None
            if logits is None:
                logits = Shifts(network, stream, self.x, shift).moved(self.x, lambda *_: None, layer, shift)
            return self.landscape.loss(logits, self.y)

    def _by_shortcut(self, shortcuts: Shortcuts, layer: int, shift: Tensor) -> Tensor | None:
        """The logits of a pass that computes only what comes after h_l; nothing where another state would have been moved."""
        stream, known = self.landscape.stream, self.taken.states[layer]
        right = False

        def on_state(number: int, state: Tensor) -> None:
            nonlocal right
            if number == 0:
                rows = state.movedim(stream.batch_dims[layer], 0)
                right = rows.shape == known.shape and bool((rows - known).abs().max() <= SAME_STATE * known.abs().max())
                if right:
                    rows.add_(shift)

        try:
            with shortcuts.taken(layer):
                behind = replace(stream, sites=stream.sites[layer:])
                logits = behind.run(self.landscape.network, copied(self.x), on_state)
        except Exception:  # a network may mind that its modules return what they returned before
            return None
        return logits if right else None
