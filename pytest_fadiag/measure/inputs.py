"""The evaluation data on their way to the network's device, and what is wrong with them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..judge.errors import AuditError
from ..judge.wording import count


class Inputs:
    """Moves samples to the device of a network, and remembers what its checks need."""

    def __init__(self, network: nn.Module) -> None:
        weight = next(network.parameters(), torch.empty(0))
        self.device, self.dtype = weight.device, weight.dtype
        self.labels: set[int] = set()
        self.nonfinite: list[Tensor] = []

    def on_device(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Copies on the device: a network may write to its input in place, and the caller's data serve the next one too."""
        self.labels.update(torch.unique(y).tolist())
        x = x.detach().to(self.device, self.dtype if x.is_floating_point() else x.dtype, non_blocking=True, copy=True)
        if x.is_floating_point():
            # Only NaN and inf times 0 is not 0; isfinite takes thrice as long.
            self.nonfinite.append((x * 0).count_nonzero())
        return x, y.to(self.device, torch.long, non_blocking=True, copy=True)

    def check_logits(self, logits: Tensor, y: Tensor) -> None:
        """An error where the logits are not those of these samples, or a label is none of the network's classes."""
        if logits.ndim != 2 or len(logits) != len(y):
            raise AuditError(
                f"the network returned logits of shape {tuple(logits.shape)} for {len(y)} samples; expected [{len(y)}, classes]"
            )
        classes = logits.shape[1]
        outside = sorted(label for label in self.labels if not 0 <= label < classes)
        if outside:
            raise AuditError(
                f"label {outside[0]} is out of range: the network has {classes} outputs, so labels run from 0 to {classes - 1}"
            )

    def check_values(self) -> None:
        """An error where inputs are not finite: what the network makes of them says nothing of it."""
        broken = int(torch.stack(self.nonfinite).sum()) if self.nonfinite else 0
        if broken:
            raise AuditError(f"{count(broken, 'input value')} NaN or inf; the evaluation data is broken, not the network")

    def check_classes(self, samples: int) -> None:
        """An error where all labels are one."""
        if len(self.labels) == 1:
            raise AuditError(
                f"all {samples:,} labels are {min(self.labels)}: one class only measures neither accuracy nor direction; "
                "check the labels, or shuffle data that is sorted by class"
            )
