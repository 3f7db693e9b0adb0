"""In which dtypes the gradient at h_L is resolved: the precision line of (b)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.modules.conv import _ConvNd

from ..judge.errors import AuditError
from ..judge.records import BATCH, BATCHES, Precision, Resolution
from .copies import copy_of
from .inputs import like, rows
from .reference import passed
from .types import Batch, ModelInput, Numbers
from .vectors import directed, median, row_cosines, row_norms

if TYPE_CHECKING:
    from .run import NetworkSource

SAMPLES, TOKENS = 64, 512
"""How many samples the dtypes are compared on at most, and how many tokens of these."""
PASSES = 9
"""What one sample costs in all dtypes, in forward passes of float32: 6 to 12 on a CPU."""
SHARE = 20
"""The comparison takes at most one in so many of the forward passes of (a) to (d)."""


class GradientPrecision:
    """The cosine of the gradient at h_L in one dtype to that in float64, and the samples lost."""

    needs = frozenset({"reference"})

    def __init__(self, source: NetworkSource) -> None:
        self.source = source
        self.task = source.task
        self.result: Precision | None = None

    def update(self, batch: Batch) -> None:
        """Compare on the first samples, as for the mean loss of 128."""
        if batch.start or self.source.proof.dtype != "float64":
            return
        number = self.affordable(batch)
        if not number:
            problem = f"skipped: one sample has more than {TOKENS} tokens"
            self.result = Precision(samples=0, dtypes=(), problem=problem)
            return
        x = rows(batch.x, slice(number))
        y = batch.y[:number]
        wide = self.gradient(x, y, torch.float64)
        resolutions = [
            self.resolution(x, y, wide, dtype)
            for dtype in (torch.float32, torch.bfloat16, torch.float16)
        ]
        samples = int(directed(row_norms(wide)).sum())
        self.result = Precision(samples=samples, dtypes=tuple(resolutions))

    def affordable(self, batch: Batch) -> int:
        """How many samples may be compared; a backward pass counts as two forward passes."""
        samples = len(self.source.labels)
        evaluated = BATCH * min(BATCHES, samples // BATCH)
        passes = samples + 2 * evaluated
        number = min(SAMPLES, passes // (SHARE * PASSES))
        if self.task.kind == "tokens":
            return min(number, TOKENS // batch.y.shape[1])
        return number

    def gradient(self, x: ModelInput, y: Tensor, dtype: torch.dtype) -> Tensor:
        """The gradient of each sample at h_L by a copy of the network in this dtype."""
        network = copy_of(self.source.network, dtype)

        def loss(outputs: Tensor) -> Tensor:
            return self.task.losses(outputs, y).sum() / BATCH

        stream = self.source.stream
        last = len(stream.sites) - 1
        gradients = passed(network, stream, like(x, network), loss, first=last).gradients
        return gradients[-1].flatten(1)

    def resolution(self, x: ModelInput, y: Tensor, wide: Tensor, dtype: torch.dtype) -> Resolution:
        """How the gradient in one dtype compares with the wide one."""
        name = str(dtype).removeprefix("torch.")
        has_convolutions = any(isinstance(part, _ConvNd) for part in self.source.network.modules())
        if dtype is not torch.float32 and y.device.type == "cpu" and has_convolutions:
            problem = "skipped: convolutions in half precision are slow on a CPU"
            return Resolution(dtype=name, problem=problem)
        try:
            narrow = self.gradient(x, y, dtype).to(wide)
        except AuditError as error:  # not every operation exists in half precision
            return Resolution(dtype=name, problem=f"does not run: {str(error).splitlines()[0]}")
        has_direction = directed(row_norms(wide))
        resolved = has_direction & directed(row_norms(narrow))
        cosine = median(row_cosines(narrow[resolved], wide[resolved]))
        lost = int((has_direction & ~resolved).sum())
        return Resolution(dtype=name, cosine=cosine, lost=lost)

    def compute(self) -> Numbers:
        """The comparison; nothing where the network does not run in float64."""
        return {"precision": self.result}
