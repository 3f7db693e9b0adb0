"""The evaluation data beyond one pass: what is known of it before it is read, and reading it again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..judge.errors import AuditError
from .batches import checked
from .inputs import ModelInput, rows

SHUFFLE = 0
"""The seed of the shuffle by which sorted data is dealt."""


class Evaluation:
    """Batches of inputs and labels, as whoever measures was given them."""

    def __init__(self, batches: Iterable[Any] = ()) -> None:
        self.batches = batches

    @cached_property
    def labels(self) -> Tensor | None:
        """Every label, where they are known without reading the inputs."""
        own = getattr(self.batches, "labels", None)
        if isinstance(own, Tensor):
            return own
        if not isinstance(self.batches, (list, tuple)) or not self.batches:
            return None
        return torch.cat([y for _, y in checked(self.batches)])

    @property
    def samples(self) -> int | None:
        """How many samples there are, or should be by what the data says of itself."""
        if self.labels is not None:
            return len(self.labels)
        try:
            return len(getattr(self.batches, "dataset", None))  # type: ignore[arg-type]  # a DataLoader has one
        except TypeError:
            return None

    @property
    def once(self) -> bool:
        """Whether it can be read only once, as what a generator gives."""
        return isinstance(self.batches, Iterator)

    def chosen(self, labels: Tensor, mask: Tensor) -> Iterator[tuple[ModelInput, Tensor, Tensor]]:
        """Read the data again: the inputs, labels and numbers of the chosen samples, batch by batch.

        ``labels`` are those that were seen before: data that comes in another order would mix the halves up.
        """
        start = 0
        for x, y in checked(self.batches):
            part = slice(start, start := start + len(y))
            if not torch.equal(y.cpu().long(), labels[part]):
                raise AuditError(
                    "the evaluation data comes in another order when it is read again, and the images that a probe is fitted "
                    "to must not be those it is read on; do not shuffle it"
                )
            wanted = torch.nonzero(mask[part]).flatten()
            if len(wanted):
                yield rows(x, wanted), y[wanted], part.start + wanted
        if start != len(labels):
            raise AuditError(f"the evaluation data had {len(labels):,} samples, and {start:,} when it was read again")


def halves(labels: Tensor) -> tuple[Tensor, bool]:
    """Which samples probes are fitted to, and whether they had to be dealt.

    They are the first half; where some class is missing in a half, what a fixed shuffle makes the first half.
    """
    number, classes = len(labels), torch.unique(labels)
    fitted = torch.arange(number) < number // 2
    if all(len(torch.unique(labels[half])) == len(classes) for half in (fitted, ~fitted)):
        return fitted, False
    order = torch.randperm(number, generator=torch.Generator().manual_seed(SHUFFLE))
    dealt = torch.zeros(number, dtype=torch.bool)
    dealt[order[: number // 2]] = True
    return dealt, True
