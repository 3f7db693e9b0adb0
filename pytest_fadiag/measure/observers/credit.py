"""Γ at every state of the stream: a method's credit against the BP gradient, its null, its size, and where a step leads."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy
import torch
from torch import Tensor

from ...judge.credit import Credit
from ...judge.errors import AuditError
from ...judge.observers import CREDIT
from ...judge.records import BATCH
from ...judge.wording import count
from ..alignment import quantile, unit_rows
from ..credit import CreditSource, FunctionCredit, NoCredit, check_credits, feedback_credit, feedback_fits
from ..features import Layout
from ..inputs import ModelInput, joined, optional_label, rows
from ..landscape import Landscape, Surroundings
from ..null import SignedPermutations
from ..reference import differ
from ..vectors import median, row_norms
from .base import Observer, PassInfo, ProbeBatch

ETA = 1e-3
"""The length of a nudge, relative to ‖h‖."""
RESOLVED = 1e-12
"""Of the loss: what a nudge changes by less than this is rounding."""
RANDOM_DRAWS = 5
ROOM = 1 << 24
"""How many bytes the outputs of a network's modules may take: as many samples as fit are measured at once."""


class CreditAlignments(Observer[ProbeBatch]):
    """Takes credit and gradient of each batch of 128, the gradient in float64, and compares them sample by sample.

    What is wrong with the credit is part of the result: it is no reason not to measure the rest.
    """

    spec = CREDIT
    watches = (ProbeBatch,)

    def __init__(self, info: PassInfo) -> None:
        self.source = info.credit or CreditSource()
        self.function = None if self.source.function is None else FunctionCredit(self.source, info.network)
        self.landscape: Landscape | None = None
        self.layout: Layout | None = None
        self.parts: list[ProbeBatch] = []
        self.waiting: list[_Batch] = []
        self.at_once = self.measured = 0
        """How many samples are measured at once, and how many are."""
        self.sites: dict[int, _Site] = {}
        self.name = self.source.name
        self.problem, self.absent = self.source.problem, False

    def update(self, seen: ProbeBatch) -> None:
        """Parts of a batch wait for the whole of it: a rule may normalise its credit over the batch."""
        self.parts.append(seen)
        if sum(len(part.samples.labels) for part in self.parts) == BATCH:
            parts, self.parts = self.parts, []
            self._attempt(lambda: self._take(parts))

    def _attempt(self, measure: Callable[[], None]) -> None:
        """Do it unless something went wrong before; what goes wrong is kept."""
        if self.problem:
            return
        try:
            measure()
        except AuditError as error:
            self.problem, self.absent = str(error), isinstance(error, NoCredit)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # most of this runs inside the network
            self.problem = f"credit and gradient cannot be compared: {type(error).__name__}: {error}"

    def _take(self, parts: list[ProbeBatch]) -> None:
        """The credit of a batch; where the network is small, several of them wait to be measured together."""
        x, y = joined([part.x for part in parts]), torch.cat([part.samples.labels for part in parts])
        self.waiting.append(_Batch(x, y, None if self.function is None else self.function(x, y)))
        if self.landscape is None:
            self.landscape = Landscape(parts[0].network, parts[0].stream, parts[0].loss, parts[0].proof)
            self.layout = Layout(parts[0].network, parts[0].stream)
            self.at_once = len(parts[0].samples.labels)
        if BATCH * len(self.waiting) >= self.at_once:
            self._measure(self.landscape)

    def _measure(self, landscape: Landscape) -> None:
        waiting, self.waiting = self.waiting, []
        x, y = joined([batch.x for batch in waiting]), torch.cat([batch.y for batch in waiting])
        start = 0
        while start < len(y):
            part = slice(start, start := min(start + self.at_once, len(y)))
            around = landscape.around(rows(x, part), y[part])
            for layer, credit in enumerate(self._credits(waiting, around, part)):
                if credit is not None:
                    self._compare(layer, credit, around)
            self.measured += len(y[part])
            self.at_once = max(self.at_once, ROOM // around.bytes_each)

    def _credits(self, waiting: Sequence[_Batch], around: Surroundings, part: slice) -> Sequence[Tensor | None]:
        """The credit of these samples at h_0 … h_L, samples first."""
        shapes = [tuple(state.shape[1:]) for state in around.taken.states]
        if self.function is not None:
            dims = around.landscape.stream.batch_dims
            own = [(*shape[:dim], BATCH, *shape[dim:]) for shape, dim in zip(shapes, dims, strict=True)]
            checked = [check_credits(batch.returned or (), own, self.function.what) for batch in waiting]
            return [_rows(layer, dim, part) for layer, dim in zip(zip(*checked, strict=True), dims, strict=True)]
        feedback, classes = self.source.feedback, around.error.shape[1]
        if feedback_fits(feedback, shapes, classes):
            self.name = "the checkpoint's Bs (e B_lᵀ at h_{l+1})"
            return [None, *feedback_credit(feedback, around.error)]
        credit, problem = self._own_credit(around)
        if credit is None:
            raise NoCredit(feedback, shapes, classes, problem)
        return credit

    def _own_credit(self, around: Surroundings) -> tuple[Sequence[Tensor | None] | None, str]:
        """What the network's own backward gives, else why it was not seen; with the labels where its forward takes them."""
        landscape, failed = around.landscape, []
        label, has_own = optional_label(landscape.network), landscape.proof.record.own_backward
        for labelled, as_given in _attempts(label is not None, has_own, landscape.dtype is torch.float64):
            try:
                credit = around.own_credit(labelled=labelled, as_given=as_given)
                if not has_own and not differ(credit, around.own_credit(as_given=as_given)):
                    return None, ""
            except torch.OutOfMemoryError:
                raise
            except Exception as error:  # most of this runs inside the network
                failed.append(f"{type(error).__name__}: {error}" if not isinstance(error, AuditError) else str(error))
                if isinstance(error, AuditError):
                    break
                continue
            ways = [f"given the labels as {label!r}"] if labelled else []
            if as_given:
                dtype = str(next(landscape.as_given.parameters()).dtype).removeprefix("torch.")
                ways.append(f"in {dtype}, since it fails in float64")
            if label is not None and not labelled:
                ways.append(f"without the labels, with which it fails: {failed[0]}")
            self.name = "the network's own backward" + (f" ({'; '.join(ways)})" if ways else "")
            return credit, ""
        if has_own:
            raise AuditError(
                f"the network's own backward fails ({failed[0]}); give its credit by --fa-credit=package.module:function"
            )
        return None, failed[0] if failed else ""

    def _compare(self, layer: int, credit: Tensor, around: Surroundings) -> None:
        gradient, error = around.taken.gradients[layer], around.error_norms
        a, g = credit.to(gradient).flatten(1), gradient.flatten(1)
        finite = torch.isfinite(a).all(1)
        broken = int((torch.isfinite(g).all(1) & ~finite).sum())
        if broken:
            raise AuditError(
                f"the credit from {self.name} is NaN or inf at h_{layer} for {broken} of {count(len(a), 'sample')} of a batch, "
                "where the gradient is finite: it has no direction"
            )
        assert self.layout is not None
        site = self.sites.get(layer) or self.sites.setdefault(layer, _Site(layer, gradient, self.layout))
        defined = finite & torch.isfinite(g).all(1) & (error > 0) & (a != 0).any(1) & (g != 0).any(1)
        site.undefined += int((~defined).sum())
        units_a, units_g = (torch.where(defined.unsqueeze(1), unit_rows(rows), 0.0) for rows in (a, g))
        site.add(units_a[defined], units_g[defined], (row_norms(a) / (row_norms(g) * error))[defined])
        step = ETA * row_norms(around.taken.states[layer].flatten(1)).unsqueeze(1)

        def change(direction: Tensor) -> float:
            """What a step of η‖h‖ down this direction makes of the loss, summed over the samples that have both vectors."""
            moved = around.moved(layer, (-step * direction).view_as(gradient))
            return float((moved - around.losses)[defined].sum())

        along_gradient = change(units_g)
        site.loss += float(around.losses[defined].sum())
        site.along_gradient += along_gradient
        site.along_credit += change(units_a)
        if self.measured < BATCH:  # they say what 0 looks like, and each of them costs a pass
            site.random_reference += along_gradient
            rows_of_first = slice(self.measured, self.measured + len(g))
            for draw in range(RANDOM_DRAWS):
                site.along_random[draw] += change(site.random_units(draw, rows_of_first, g))

    def compute(self) -> dict[str, Any]:
        if self.landscape is not None and self.waiting:
            landscape = self.landscape
            self._attempt(lambda: self._measure(landscape))
        sites = [] if self.problem else [self.sites[layer] for layer in sorted(self.sites)]
        nudges = [site.nudge() for site in sites]
        nulls = [site.null_medians() for site in sites]
        credit = Credit(
            source=self.name,
            sites=tuple(f"h_{site.layer}" for site in sites),
            gamma=tuple(median(torch.cat(site.cosines)) for site in sites),
            null_mean=tuple(float(null.mean()) for null in nulls),
            null_sd=tuple(float(null.std()) for null in nulls),
            null_low=tuple(quantile(null, 0.025) for null in nulls),
            null_high=tuple(quantile(null, 0.975) for null in nulls),
            nudge=tuple(nudges),
            random_nudge=tuple(tuple(site.random_nudges()) for site in sites),
            magnitude=tuple(median(torch.cat(site.ratios)) for site in sites),
            undefined=tuple(site.undefined for site in sites),
            samples=self.measured,
            problem=self.problem,
            absent=self.absent,
        )
        return asdict(credit)


def _attempts(takes_labels: bool, has_own: bool, wide: bool) -> list[tuple[bool, bool]]:
    """Whether labels are given, and whether the network runs in its own precision: in float64 first, which it may not bear."""
    labels = [True] * takes_labels + [False] * has_own
    return [(labelled, as_given) for labelled in labels for as_given in ((False, True) if wide else (False,))]


class _Batch(NamedTuple):
    """A whole batch, and what the credit function returned for it."""

    x: ModelInput
    y: Tensor
    returned: list[Any] | None


def _rows(batches: Sequence[Tensor | None], dim: int, part: slice) -> Tensor | None:
    """Some samples of the credit of several batches at one state, samples first."""
    there = [credit.movedim(dim, 0) for credit in batches if credit is not None]
    return torch.cat(there)[part] if len(there) == len(batches) else None


class _Site:
    """What is gathered at one state."""

    def __init__(self, layer: int, values: Tensor, layout: Layout) -> None:
        self.layer, self.layout = layer, layout
        self.cosines: list[Tensor] = []
        self.ratios: list[Tensor] = []
        self.null: list[Tensor] = []
        self.permutations = SignedPermutations(layout.by_feature(values).shape[2], layer, values.device)
        self.shape = values.shape[1:]
        self.undefined = 0
        self.loss = self.along_gradient = self.along_credit = self.random_reference = 0.0
        self.along_random = [0.0] * RANDOM_DRAWS

    def add(self, a: Tensor, g: Tensor, ratios: Tensor) -> None:
        """Take the unit vectors of some samples, and ‖a‖/‖g‖."""
        self.cosines.append((a * g).sum(1).clamp(-1, 1))
        self.ratios.append(ratios)
        self.null.append(self.permutations.cosines(*(self.layout.by_feature(units.view(-1, *self.shape)) for units in (a, g))))

    def null_medians(self) -> Tensor:
        """Γ of every draw of the null."""
        cosines = torch.cat(self.null, 1).cpu().numpy()
        n = cosines.shape[1]
        if not n:
            return torch.full((len(cosines),), math.nan)
        middle = sorted({(n - 1) // 2, n // 2})
        return torch.from_numpy(numpy.partition(cosines, middle, axis=1)[:, middle].mean(1)).double()

    def nudge(self) -> float:
        """The loss that a step along the credit saves, as a share of what BP's saves; NaN where BP's is not resolved."""
        return self.along_credit / self.along_gradient if self._resolved else math.nan

    def random_nudges(self) -> list[float]:
        """The same of random directions."""
        resolved = self._resolved and self.random_reference < 0
        return [total / self.random_reference if resolved else math.nan for total in self.along_random]

    def random_units(self, draw: int, part: slice, like: Tensor) -> Tensor:
        """A random direction for some samples of a batch, the same however many are measured at once."""
        generator = torch.Generator().manual_seed(RANDOM_DRAWS * self.layer + draw)
        return unit_rows(torch.randn(BATCH, like.shape[1], generator=generator, dtype=torch.float64)[part].to(like))

    @property
    def _resolved(self) -> bool:
        return self.along_gradient < -RESOLVED * self.loss
