"""What a network was given: which data, and how its inputs were normalised; every report states it."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .errors import AuditError

RULES = ("data", "none")

EXPECTED = "expected data, none, or MEAN/STD such as 0.286/0.353 or 0.49,0.48,0.45/0.25,0.24,0.26"


class NormalisedBy(str, enum.Enum):
    """Whose mean and std the inputs were normalised by."""

    OPTION = "option"
    CHECKPOINT = "checkpoint"
    USUAL = "usual"
    """The constants that people use for a data set."""
    DATA = "data"
    """The mean and std that the caller's data set brings."""
    NOTHING = "nothing"
    CALLER = "caller"
    """Batches that are given as they are to be used; what was done to them before nobody here knows."""


@dataclass(frozen=True)
class StatedInputs:
    """The inputs of a measurement: the name of the data, and what was done to it."""

    data: str
    by: NormalisedBy
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    pixels: bool = False
    """Whether it holds bytes, which are scaled to [0, 1] first."""
    option: str | None = None
    """What --fa-normalize says, where it is given."""
    checkpoint_mean: tuple[float, ...] | None = None
    checkpoint_std: tuple[float, ...] | None = None
    """What the checkpoint's config says, applied or not."""

    def __str__(self) -> str:
        said = {
            NormalisedBy.OPTION: f"normalised by --fa-normalize={self.option}",
            NormalisedBy.CHECKPOINT: "normalised by the checkpoint's mean and std",
            NormalisedBy.USUAL: "normalised by its usual constants",
            NormalisedBy.DATA: "normalised by the data's own mean and std",
            NormalisedBy.NOTHING: self._plain,
            NormalisedBy.CALLER: "batches as they are given",
        }[self.by]
        if self.by is NormalisedBy.CHECKPOINT and self.mean is None:
            said = f"{self._plain}, as the checkpoint says"
        option = "" if self.option is None or self.by is NormalisedBy.OPTION else f" (--fa-normalize={self.option})"
        return f"{self.data}{', ' if self.data else ''}{said}{option}"

    @property
    def _plain(self) -> str:
        return "pixels in [0, 1], not normalised" if self.pixels else "as it is"

    @property
    def normalisation(self) -> str:
        """The numbers that were in force: mean 0.286 and std 0.353."""
        if self.mean is not None and self.std is not None:
            return _constants(self.mean, self.std)
        return "given batches" if self.by is NormalisedBy.CALLER else "none"

    @property
    def assumed(self) -> bool:
        """Whether nobody said how the network's inputs were normalised."""
        return self.pixels and self.option is None and self.by in (NormalisedBy.USUAL, NormalisedBy.NOTHING)

    def remarks(self) -> Iterator[str]:
        """What was assumed, and what the checkpoint says that was not done."""
        if self.assumed:
            usual = f"its usual constants, {self.normalisation}," if self.mean is not None else "pixels in [0, 1]"
            yield (
                f"nothing says how the inputs were normalised in training, so of {self.data} {usual} were taken; "
                "say it with --fa-normalize=data, none or MEAN/STD"
            )
        mean, std = self.checkpoint_mean, self.checkpoint_std
        if mean is None or std is None or self.by is NormalisedBy.CHECKPOINT or (mean, std) == (self.mean, self.std):
            return
        if self.option is not None:
            why = f"--fa-normalize={self.option} is given"
        elif self.by is NormalisedBy.DATA:
            why = f"the data brings {self.normalisation}"
        else:
            why = (
                "data of fractions is taken as it is; if it is not normalised yet, say "
                f"--fa-normalize={_listed(mean)}/{_listed(std)}"
            )
        yield f"the checkpoint's config has {_constants(mean, std)}, which were not applied: {why}"


def _constants(mean: Sequence[float], std: Sequence[float]) -> str:
    return f"mean {_listed(mean)} and std {_listed(std)}"


def _listed(values: Sequence[float]) -> str:
    return ",".join(f"{value:g}" for value in values)


@dataclass(frozen=True)
class Normalisation:
    """What --fa-normalize says."""

    text: str
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    @classmethod
    def parse(cls, text: str) -> Normalisation:
        """``data``, ``none``, or one mean and one std for all channels or for each."""
        text = "".join(text.split())
        if text in RULES:
            return cls(text)
        mean, _, std = text.partition("/")
        try:
            means, stds = (tuple(float(number) for number in part.split(",")) for part in (mean, std))
        except ValueError:
            raise AuditError(f"{EXPECTED}, not {text!r}") from None
        check_constants(means, stds, f"{text!r} has")
        if 1 not in (len(means), len(stds)) and len(means) != len(stds):
            raise AuditError(f"{text!r} has {len(means)} values of mean and {len(stds)} of std; {EXPECTED}")
        return cls(text, means, stds)


def check_constants(means: Sequence[float], stds: Sequence[float], whose: str) -> None:
    """An error where inputs cannot be normalised by a mean and a std."""
    for what, numbers in (("mean", means), ("std", stds)):
        wrong = [number for number in numbers if not math.isfinite(number) or (what == "std" and number <= 0)]
        if wrong or not numbers:
            value = f"a {what} of {wrong[0]:g}" if wrong else f"no {what}"
            raise AuditError(f"{whose} {value}, by which nothing can be normalised")
