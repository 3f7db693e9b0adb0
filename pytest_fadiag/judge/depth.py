"""What linear probes read along the stream, what they read of the same network with its blocks drawn anew, and what follows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from .errors import AuditError
from .ranges import hold, hold_bounds
from .student_t import Z95

LEAST_IMAGES = 1_000
"""With fewer a probe is fitted and read on too few to say anything of a few percentage points."""
Bounds = tuple[float, float]


@dataclass(frozen=True)
class Depth:
    """Accuracies are fractions, of h_0 to h_L; intervals are of 95 %, paired over the images that were read, in pp."""

    probes: tuple[float, ...] = ()
    """What a linear probe reads at each state."""
    null: tuple[tuple[float, ...], ...] = ()
    """The same for each draw of the blocks; none where they cannot be drawn."""
    interval: Bounds | None = None
    """Of the depth utility; without a null of the gain."""
    step_intervals: tuple[Bounds, ...] = ()
    """Of what each block adds to what its null adds, if that adds anything."""
    change: tuple[float, ...] = ()
    """The median ‖h_{l+1} − h_l‖/‖h_l‖ of every block; NaN where the shapes differ."""
    fitted: int = 0
    read: int = 0
    """How many images the probes were fitted to, and on how many others they were read."""
    tokens: str = ""
    """Which tokens of h_0 are read, «the class token», where the head does not read all of them."""
    dealt: bool = False
    """Whether the halves were dealt by a fixed shuffle, since the data is sorted."""
    nonfinite: tuple[int, ...] = ()
    """The images of which a state is NaN or inf; their probes read nothing."""
    as_initialised: tuple[int, ...] = ()
    """The blocks that nothing tells from a new initialisation: whatever they add, it was not learnt in them."""
    undrawn: tuple[str, ...] = ()
    """The blocks that cannot be drawn anew, for which there is no null."""
    null_problem: str = ""
    """What else keeps the blocks from being drawn anew."""
    problem: str = ""
    """Why nothing of it was measured; empty where it was."""

    def __post_init__(self) -> None:
        blocks = len(self.probes) - 1
        lists = {"null": self.null, "probes": (self.probes,), "nonfinite": (self.nonfinite,)}
        hold(self, "fitted", "read", "nonfinite")
        hold(self, "change", undefined=True)
        for bounds in (self.interval, *self.step_intervals):
            hold_bounds("depth: an interval", bounds)
        if self.problem:
            return
        if blocks < 1:
            raise AuditError(f"depth: probes has {len(self.probes)} entries; there is one for h_0 and one a block")
        if any(len(own) != blocks + 1 for several in lists.values() for own in several):
            raise AuditError(f"depth: {', '.join(lists)} must have {blocks + 1} entries each, from h_0 to h_L")
        if len(self.step_intervals) != blocks or len(self.change) != blocks:
            raise AuditError(f"depth: step_intervals and change must have an entry for each of {blocks} blocks")
        if not all(0 <= accuracy <= 1 for own in (self.probes, *self.null) for accuracy in own):
            raise AuditError("depth: what a probe reads must be fractions in [0, 1]; did you pass percentages?")
        if len({*self.as_initialised} & {*range(blocks)}) != len(self.as_initialised):
            raise AuditError(f"depth: as_initialised must be blocks from 0 to {blocks - 1}, each once: {self.as_initialised}")

    @property
    def gain_pp(self) -> float:
        """What a probe reads at h_L beyond what it reads at h_0."""
        return _pp(self.probes[-1] - self.probes[0])

    @property
    def null_gains_pp(self) -> tuple[float, ...]:
        """The same of every draw."""
        return tuple(_pp(draw[-1] - draw[0]) for draw in self.null)

    @property
    def null_pp(self) -> float | None:
        """The mean of the draws."""
        return _mean(self.null_gains_pp) if self.null else None

    @property
    def utility_pp(self) -> float | None:
        """What learning has made easier to read: blocks that only keep what random ones would lose add nothing."""
        return None if self.null_pp is None else _pp((self.gain_pp - max(self.null_pp, 0.0)) / 100)

    @property
    def by_draw_pp(self) -> float:
        """By how much the utility differs with the draw; draws that lose take nothing off it."""
        taken = [max(gain, 0.0) for gain in self.null_gains_pp] or [0.0]
        return _pp((max(taken) - min(taken)) / 100)

    @property
    def null_probes(self) -> tuple[float, ...]:
        """What a probe reads at each state with drawn blocks, the mean of the draws."""
        return tuple(_mean(draws) for draws in zip(*self.null, strict=True))

    @property
    def steps_pp(self) -> tuple[float, ...]:
        """What each block makes easier to read."""
        return tuple(_pp(after - before) for before, after in pairwise(self.probes))

    @property
    def null_steps_pp(self) -> tuple[float, ...]:
        """The same of drawn blocks."""
        return tuple(_pp(after - before) for before, after in pairwise(self.null_probes))

    @property
    def idle(self) -> tuple[int, ...]:
        """The blocks that add nothing by their interval, or nothing that they learnt."""
        return tuple(block for block, (low, _) in enumerate(self.step_intervals) if not low > 0 or block in self.as_initialised)

    @property
    def untrained(self) -> bool:
        """Whether every block is as initialised."""
        return len(self.as_initialised) == len(self.probes) - 1


def reads_less(accuracy: float, images: int, readout: float, read: int) -> bool:
    """Whether an accuracy over some images is below what a probe reads of others, by two standard errors."""
    variance = readout * (1 - readout) / read + accuracy * (1 - accuracy) / images
    return accuracy < readout - 2 * math.sqrt(variance)


def paired_mean(differences: Sequence[float]) -> Bounds:
    """The 95 % interval of a mean over images, in pp; one image is added to each side, as for two paired proportions."""
    n = len(differences) + 2
    mean = sum(differences) / n
    variance = (sum(d * d for d in differences) + 2) / n - mean**2
    half = Z95 * math.sqrt(variance / n)
    return max(100 * (mean - half), -100.0), min(100 * (mean + half), 100.0)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _pp(difference: float) -> float:
    """Percentage points, rounded so that 0.03 is 3 and not a hair below."""
    return round(100 * difference, 9)
