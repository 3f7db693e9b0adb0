"""In which dtypes the BP gradient at h_L is resolved: a collapsed gradient is small in all of them, and gone in some."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from ...judge.observers import PRECISION
from ..alignment import row_cosines
from ..inputs import copied, each
from ..vectors import median
from ..wide import copy_of, in_float64
from .base import FirstBatch, Observer, PassInfo

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


class GradientPrecision(Observer[FirstBatch]):
    """The cosine of each sample's gradient, computed in one dtype throughout, to that of a float64 copy, and samples lost."""

    spec = PRECISION
    watches = (FirstBatch,)

    def __init__(self, info: PassInfo) -> None:
        self.samples = 0
        self.cosines: dict[torch.dtype, list[Tensor]] = {dtype: [] for dtype in DTYPES}
        self.lost = dict.fromkeys(DTYPES, 0)
        self.problems: dict[torch.dtype, str] = {}

    def update(self, seen: FirstBatch) -> None:
        if seen.proof.record.problem:
            return  # there is no gradient to resolve
        try:
            wide = _gradient(seen, torch.float64)
        except Exception as error:
            self.problems = dict.fromkeys(DTYPES, f"not compared, since float64 does not run: {_first_line(error)}")
            return
        there = torch.isfinite(wide).all(1) & (wide != 0).any(1)
        self.samples += int(there.sum())
        for dtype in DTYPES:
            try:
                narrow = _gradient(seen, dtype).to(wide)
            except Exception as error:  # not every operation exists in half precision
                self.problems[dtype] = f"does not run: {_first_line(error)}"
                continue
            kept = there & torch.isfinite(narrow).all(1) & (narrow != 0).any(1)
            self.cosines[dtype].append(row_cosines(narrow[kept], wide[kept]))
            self.lost[dtype] += int((there & ~kept).sum())

    def compute(self) -> dict[str, Any]:
        resolved = [
            {
                "dtype": str(dtype).removeprefix("torch."),
                "cosine": median(torch.cat(self.cosines[dtype])) if self.cosines[dtype] else None,
                "lost": self.lost[dtype],
                "problem": self.problems.get(dtype, ""),
            }
            for dtype in DTYPES
        ]
        return {"samples": self.samples, "dtypes": resolved}


def _gradient(seen: FirstBatch, dtype: torch.dtype) -> Tensor:
    """The gradient of the mean loss of 128 samples at h_L, all of it in one dtype; a row a sample."""
    network = copy_of(seen.network, dtype)
    device = next(network.parameters(), torch.empty(0)).device
    x = each(seen.x, lambda tensor: tensor.to(device, dtype if tensor.is_floating_point() else tensor.dtype))
    last: list[Tensor] = []
    throughout: AbstractContextManager[Any] = in_float64() if dtype == torch.float64 else nullcontext()
    with throughout, torch.enable_grad(), seen.proof.forward(network) as through:

        def on_state(layer: int, state: Tensor) -> None:
            with nullcontext() if through is None else through.aside():
                if not state.requires_grad and layer + 1 == len(seen.stream.sites):
                    state.requires_grad_()  # before h_L nothing is differentiated
            last[:] = [state]

        logits = seen.stream.run(network, copied(x), on_state)
        with nullcontext() if through is None else through.aside():
            loss = seen.loss(logits, seen.samples.labels.to(device)).sum() / 128
    (gradient,) = torch.autograd.grad(loss, last, allow_unused=True)
    made = torch.zeros_like(last[0]) if gradient is None else gradient
    return made.detach().movedim(seen.stream.batch_dims[-1], 0).flatten(1)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0]
