"""What linear probes read at every state of the stream, and at those of the network with its blocks drawn anew."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ...judge.depth import LEAST_IMAGES, Bounds, Depth, paired_mean
from ...judge.errors import AuditError
from ...judge.observers import CONTROL_PROBES, CONTROL_READOUT, DEPTH, ObserverSpec
from ...judge.records import BATCH
from ...judge.wording import count
from ..accumulators import Rows, per_sample_norms
from ..as_initialised import as_initialised
from ..evaluation import Evaluation, halves
from ..features import Layout
from ..inputs import Inputs, ModelInput, copied, rows
from ..probes import Curve, Features, Part
from ..readout import tells_places, tokens_read
from ..redraw import has_batch_statistics, redrawn_blocks, retake_statistics
from ..vectors import median
from .base import EveryBatch, Observer, PassInfo, State

LOOK = 16
"""How many samples are looked at to tell which tokens the head reads."""


class DepthProbes(Observer[EveryBatch | State]):
    """Fits probes to the first half of the images as they pass, and reads them on the other half.

    Where the halves are not known beforehand, or are none since the data is sorted, the images are read once more. What keeps
    it from being measured is part of the result: it is no reason not to measure the rest.
    """

    spec: ClassVar[ObserverSpec[object]] = DEPTH
    watches = (EveryBatch, State)
    every_batch = True
    draws: ClassVar[tuple[int, ...]] = (0, 1)
    """The seeds of the null."""
    states: ClassVar[int | None] = None
    """How many states are probed, from h_0 on; all where it says nothing."""

    def __init__(self, info: PassInfo) -> None:
        self.evaluation, self.batch_size = info.evaluation, info.batch_size
        self.labels: list[Tensor] = []
        self.change = _Change(info.batches * BATCH)
        self.first: EveryBatch | None = None
        self.probing: _Probing | None = None
        self.part: Part | None = None
        """Of the samples that pass, which are fitted to."""
        self.problem = ""
        self.fitted = self._fitted_in_passing()

    def _fitted_in_passing(self) -> Tensor | None:
        """Which images probes are fitted to where that is known before they pass, and all of these pass before the others."""
        labels, samples = self.evaluation.labels, self.evaluation.samples or 0
        if samples < LEAST_IMAGES:
            return None
        fitted, dealt = (torch.arange(samples) < samples // 2, False) if labels is None else halves(labels)
        return None if dealt else fitted

    def update(self, seen: EveryBatch | State) -> None:
        if isinstance(seen, State):
            if seen.samples.in_probe:
                self.change.take(seen)
            wanted = self.states is None or seen.layer < self.states
            if wanted and self.probing is not None and self.part is not None:
                part = self.part
                self._try(lambda probing: probing.own.take(seen.layer, seen.value, part))
            return
        self.labels.append(seen.samples.labels.cpu())
        if self.first is None:
            look = copied(rows(seen.x, slice(LOOK)))
            self.first = EveryBatch(seen.samples, look, seen.network, seen.stream)
            self.probing = self._begin_in_passing(self.first)
        if self.fitted is not None and seen.samples.start + len(seen.samples.labels) > len(self.fitted):
            self.probing = None  # more than the data said it has: it is read again
        if self.probing is not None:
            assert self.fitted is not None
            labels, start = seen.samples.labels, seen.samples.start
            part = self.part = Part(labels, self.fitted[start : start + len(labels)])
            self._try(lambda probing: probing.take_null(seen.x, part))

    def _begin_in_passing(self, first: EveryBatch) -> _Probing | None:
        if self.fitted is None or (self.evaluation.labels is None and has_batch_statistics(first.network)):
            return None
        labels = self.evaluation.labels
        return self._begun(first, torch.zeros(len(self.fitted)) if labels is None else labels.cpu().long(), self.fitted)

    def _begun(self, first: EveryBatch, labels: Tensor, fitted: Tensor) -> _Probing | None:
        try:
            return _Probing(first, self.draws, labels, fitted, self.evaluation)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            self.problem = _said(error)
            return None

    def _try(self, run: Callable[[_Probing], None]) -> None:
        assert self.probing is not None
        try:
            run(self.probing)
        except AuditError as error:
            self.probing, self.problem = None, str(error)

    @torch.no_grad()
    def compute(self) -> dict[str, Any]:
        labels = torch.cat(self.labels) if self.labels else torch.zeros(0, dtype=torch.long)
        if len(labels) < LEAST_IMAGES:
            self.problem = f"{count(len(labels), 'test image')}; a probe needs {LEAST_IMAGES:,}, of which it is read on half"
        fitted, dealt = halves(labels)
        in_passing = self.probing is not None and self.fitted is not None and torch.equal(self.fitted, fitted)
        if not self.problem and not in_passing:
            try:
                self._read_again(labels, fitted)
            except AuditError as error:
                self.problem = str(error)
        if self.problem or self.probing is None:
            return asdict(Depth(problem=self.problem))
        return self._result(self.probing, dealt)

    def _result(self, probing: _Probing, dealt: bool) -> dict[str, Any]:
        return asdict(probing.result(dealt=dealt, change=self.change.medians()))

    def _read_again(self, labels: Tensor, fitted: Tensor) -> None:
        """Read the images to fit to, then those to read the probes on."""
        assert self.first is not None
        if self.evaluation.once:
            why = "is sorted by class" if self.evaluation.samples else "does not say how many images it has"
            raise AuditError(f"the evaluation data {why} and can be read only once; give it as a list of batches")
        self.probing = self._begun(self.first, labels, fitted)
        if self.probing is None:
            return
        inputs = Inputs(self.first.network)
        for half in (fitted, ~fitted):
            for x, y, numbers in self.evaluation.chosen(labels, half):
                for start in range(0, len(y), self.batch_size):
                    part = slice(start, start + self.batch_size)
                    moved, own = inputs.moved(rows(x, part), y[part])
                    self.probing.take(moved, Part(own, fitted[numbers[part]]))


class ControlProbes(DepthProbes):
    """What probes read of a control, which is a null itself."""

    spec = CONTROL_PROBES
    draws = ()

    def compute(self) -> dict[str, Any]:
        return {"probes": super().compute()["probes"]}

    def _result(self, probing: _Probing, dealt: bool) -> dict[str, Any]:
        return {"probes": _means(probing.own.outcomes()[: self.states])}


class ControlReadout(ControlProbes):
    """The same of h_0 alone, by which a control that was hardly trained is told."""

    spec = CONTROL_READOUT
    states = 1


class _Probing:
    """The probes of a network and of its null."""

    def __init__(self, first: EveryBatch, draws: Sequence[int], labels: Tensor, fitted: Tensor, evaluation: Evaluation) -> None:
        self.network, self.stream = first.network, first.stream
        self.fitted, self.read = int(fitted.sum()), int((~fitted).sum())
        layout, tokens = Layout(self.network, self.stream), tokens_read(self.network, self.stream, first.x)
        places = tells_places(self.network, self.stream, first.x, layout, tokens)
        features = Features(layout, tokens, places=places)
        self.own = Curve(features, self.read)
        self.null: list[tuple[nn.Module, Curve]] = []
        self.undrawn: list[str] = []
        self.null_problem = ""
        self.as_initialised: tuple[int, ...] = ()
        try:
            self.as_initialised = as_initialised(self.network, self.stream) if draws else ()
            copies = []
            for seed in draws:
                copy, self.undrawn = redrawn_blocks(self.network, self.stream, seed)
                copies.append(copy)
            if self.undrawn:
                return
            if draws and has_batch_statistics(self.network):
                if evaluation.once:
                    raise AuditError("batch statistics need a pass of their own, and the data can be read only once")
                chosen = ((x, y) for x, y, _ in evaluation.chosen(labels, fitted))
                retake_statistics(copies, self.stream, chosen)
            self.null = [(copy, Curve(features, self.read)) for copy in copies]
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            self.null_problem = _said(error)

    def take(self, x: ModelInput, part: Part) -> None:
        """Some samples, through the network and its null."""
        self.take_null(x, part)
        self._run(self.network, self.own, x, part)

    @torch.no_grad()
    def take_null(self, x: ModelInput, part: Part) -> None:
        """The same through the null alone; h_0 is the network's own."""
        try:
            for network, curve in self.null:
                self._run(network, curve, x, part, begin=1)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            self.null, self.null_problem = [], _said(error)

    def _run(self, network: nn.Module, curve: Curve, x: ModelInput, part: Part, begin: int = 0) -> None:
        def on_state(layer: int, state: Tensor) -> None:
            if layer >= begin:
                curve.take(layer, state.movedim(self.stream.batch_dims[layer], 0), part)

        self.stream.run(network, copied(x), on_state)

    def result(self, *, dealt: bool, change: Sequence[float]) -> Depth:
        """The numbers of both."""
        self._drop_broken_null()
        own = self.own.outcomes()
        null = [[own[0], *curve.outcomes()] for _, curve in self.null]
        return Depth(
            probes=_means(own),
            null=tuple(_means(draw) for draw in null),
            interval=_interval(own, null, 0, len(own) - 1),
            step_intervals=tuple(_interval(own, null, block, block + 1) for block in range(len(own) - 1)),
            change=tuple(change),
            fitted=self.fitted,
            read=self.read,
            tokens=self.own.tokens,
            dealt=dealt,
            nonfinite=tuple(self.own.broken[layer] for layer in range(len(own))),
            as_initialised=self.as_initialised,
            undrawn=tuple(self.undrawn),
            null_problem=self.null_problem,
        )

    def _drop_broken_null(self) -> None:
        """A null of which a state is not finite reads too little: it is none, or every network would look better than it."""
        broken = max((number for _, curve in self.null for number in curve.broken.values()), default=0)
        if broken:
            self.null, self.null_problem = [], f"with blocks drawn anew, states are not finite for {count(broken, 'image')}"


class _Change:
    """By how much each block changes the stream, relative to what it is: of a vector, of each token, or of a whole map."""

    def __init__(self, samples: int) -> None:
        self.samples = samples
        self.before: Tensor | None = None
        self.ratios: dict[int, Rows] = {}

    def take(self, seen: State) -> None:
        """A state, of which the next one is compared with it."""
        before, self.before = (None if seen.layer == 0 else self.before), seen.value
        if before is None:
            return
        ratios = self.ratios.setdefault(seen.layer, Rows(self.samples))
        if before.shape == seen.value.shape:
            change, size = (per_sample_norms(rows, tokens=seen.tokens) for rows in (seen.value - before, before))
            ratios.add(change / size)

    def medians(self) -> list[float]:
        """The median of every block; NaN where a block changes the shape."""
        self.before = None
        return [median(rows.all()) if rows.filled else math.nan for _, rows in sorted(self.ratios.items())]


def _means(outcomes: Sequence[Tensor]) -> tuple[float, ...]:
    return tuple(float(right.mean()) for right in outcomes)


def _interval(own: Sequence[Tensor], null: Sequence[Sequence[Tensor]], start: int, end: int) -> Bounds:
    """That of what is gained from one state to another, beyond what the null gains if it gains anything."""
    gained = own[end] - own[start]
    if null:
        by_chance = torch.stack([draw[end] - draw[start] for draw in null]).mean(0)
        gained = gained - by_chance if float(by_chance.mean()) > 0 else gained
    return paired_mean(gained.tolist())


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, AuditError) else f"{type(error).__name__}: {str(error)[:300]}"
