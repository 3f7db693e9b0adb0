"""The frozen-random (or shallow) control of a network, and what makes it doubtful."""

from __future__ import annotations

import enum
import hashlib
import math
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from .margins import reads_less
from .records import Inputs, Score
from .words import and_more, fraction, limit

if TYPE_CHECKING:
    from .report import Report


SETTINGS = {
    "epochs": ("epochs", "n_epochs", "num_epochs", "max_epochs", "num_train_epochs"),
    "lr": ("lr", "learning_rate", "base_lr"),
    "batch size": ("batch", "batch_size", "bs", "train_batch_size", "per_device_train_batch_size"),
    "optimiser": ("optimiser", "optimizer", "optim", "opt"),
    "data": ("data", "dataset", "data_set", "dataset_name"),
}
"""What a control must have in common with the network, and what configs call it."""
SCALAR = (str, int, float)


class Severity(str, enum.Enum):
    """What follows from a doubt about a control."""

    INVALID = "invalid"
    """There is no control left: (d) is not measured."""
    WARNING = "warning"
    """No pass rests on it."""
    REMARK = "remark"


class Doubt(msgspec.Struct, frozen=True):
    """One reason to question a control."""

    severity: Severity
    text: str
    mismatched: bool = False
    """Whether it is not this network with random blocks, trained by the same rule."""


class ControlKind(str, enum.Enum):
    """What a control has in place of trained blocks."""

    FROZEN = "frozen"
    SHALLOW = "shallow"
    UNMARKED = "unmarked"
    """Neither name nor config say frozen or shallow; it is taken for frozen."""


class Control(msgspec.Struct, frozen=True):
    """A control's accuracy and where it comes from.

    >>> Control(Score(0.349)).source
    'given as a number'
    """

    score: Score
    source: str = "given as a number"
    method: str | None = None
    seed: int | None = None
    kind: ControlKind = ControlKind.FROZEN
    inputs: Inputs | None = None
    doubts: tuple[Doubt, ...] = ()
    """What its file told against it when it was compared with the network."""
    config: dict[str, Any] = {}
    probes: tuple[float, ...] = ()
    """Linear probes of its h_0 … h_L, where measured."""
    balanced: float | None = None
    """Its accuracy on the images that these read, classes weighted equally, where measured."""

    @property
    def blocks(self) -> str:
        """What it has in place of trained blocks, in words."""
        return "no blocks" if self.kind is ControlKind.SHALLOW else "frozen random blocks"

    def __str__(self) -> str:
        return ", ".join(
            filter(
                None, (self.source, self.method, "" if self.seed is None else f"seed {self.seed}")
            )
        )


class Fingerprint(msgspec.Struct, frozen=True):
    """What tells the tensors of two networks apart without keeping them."""

    shapes: dict[str, tuple[int, ...]] = {}
    weights: dict[str, str] = {}
    """A digest of every matrix or kernel."""
    moved: tuple[str, ...] = ()
    """Scales and shifts of normalisation layers whose entries differ: these were trained."""
    blocks: tuple[tuple[str, ...], ...] = ()
    """The parameters of each block."""

    @property
    def digest(self) -> str:
        """One digest of all matrices: two training runs have no matrix in common."""
        return hashlib.blake2b(
            repr(sorted(self.weights.items())).encode(), digest_size=16
        ).hexdigest()

    def doubts(self, control: Fingerprint, *, shallow: bool = False) -> tuple[Doubt, ...]:
        """What a control's tensors tell against it as a control of this network."""
        inside = {name for block in self.blocks for name in block}
        ours, theirs = self.shapes, control.shapes
        if shallow:  # it has no blocks
            ours = {name: shape for name, shape in ours.items() if name in theirs}
        odd = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
        trained = [name for name in control.moved if name in inside and not shallow]
        same = {
            name for name, digest in self.weights.items() if control.weights.get(name) == digest
        }
        matrices = [self.weights.keys() & {*block} for block in self.blocks]
        shared = [str(at) for at, names in enumerate(matrices) if names and names <= same]
        where = f"block {', '.join(shared)} of {len(self.blocks)}" if shared else ""
        found = (
            Doubt(
                Severity.WARNING,
                f"control of a different architecture: {odd[0]} is "
                f"{theirs.get(odd[0], 'absent')}, here {ours.get(odd[0], 'absent')}",
                True,
            )
            if odd
            else None,
            Doubt(
                Severity.WARNING,
                f"the control's blocks were trained: entries of {and_more(trained)} differ",
                True,
            )
            if trained
            else None,
            Doubt(
                Severity.WARNING,
                f"network and control share their weights in {where}: the network's blocks were "
                "never trained, or the control's are not random",
                True,
            )
            if where
            else None,
        )
        return tuple(filter(None, found))


def doubts_about(report: Report) -> tuple[Doubt, ...]:
    """Everything that makes the control of a report doubtful."""
    control, score, depth = report.control, report.score, report.depth
    if control is None:
        return ()
    method, seed, theirs = control.method, control.seed, control.score
    accuracy, data = theirs.value, theirs.data
    images = theirs.images or (score.images if score else None)
    ours = str((score.data if score else None) or report.environment.get("data_sha256") or "")
    chance, how = max(guesses(report), default=(-1.0, ""))
    floor, name, whole, balanced = report.floor, report.score_name, images, accuracy
    if control.balanced is not None:
        whole, balanced = None, control.balanced  # of the half that the probes read
    readouts = [("linear probe of h_0", probe, (images or 0) // 2) for probe in control.probes[:1]]
    if depth and depth.probes:
        readouts.append(("linear probe of h_0", depth.probes[0], depth.read))
    if floor and floor.readout is not None:
        readouts.append(("linear readout of the inputs", floor.readout, floor.read))
    above = [
        f"{what} ({fraction(value)})"
        for what, value, read in sorted(readouts, key=lambda readout: -readout[1])
        if read and reads_less(balanced, whole or read, value, read)
    ]
    otherwise = unlike(report.config, control.config)
    found = (
        Doubt(
            Severity.INVALID,
            f"control rejected: measured on other test data ({data[:12]}…, here {ours[:12]}…)",
        )
        if data and ours and data != ours
        else None,
        Doubt(Severity.INVALID, f"control rejected: {name} at chance ({fraction(accuracy)}, {how})")
        if accuracy <= chance + slack(chance, images)
        else None,
        Doubt(
            Severity.WARNING,
            f"the control looks undertrained, so the margin may be too large: {name} below "
            f"a {above[0]}",
        )
        if above
        else None,
        Doubt(Severity.WARNING, f"the control was trained otherwise: {'; '.join(otherwise)}", True)
        if otherwise
        else None,
        *control.doubts,
        Doubt(
            Severity.REMARK,
            f"control {control.source}: cannot confirm that its blocks were frozen (set "
            "`frozen: true` in its config)",
            True,
        )
        if control.kind is ControlKind.UNMARKED
        else None,
        Doubt(
            Severity.WARNING,
            f"compared with the control of {method}; {report.method_name} has none of its own",
            True,
        )
        if method not in (None, report.method_name)
        else None,
        Doubt(Severity.WARNING, f"compared with the control of seed {seed}, not seed {report.seed}")
        if None not in (seed, report.seed) and seed != report.seed
        else None,
    )
    return tuple(filter(None, found))


def unlike(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """The training settings that both configs tell and that differ.

    >>> unlike({"lr": 1e-3, "epochs": 30}, {"learning_rate": "0.001", "epochs": 1})
    ['epochs 1, here 30']
    """
    found = []
    for what, names in SETTINGS.items():
        here, there = (_setting(config, names) for config in (ours, theirs))
        if here and there and _comparable(here) != _comparable(there):
            found.append(f"{what} {there}, here {here}")
    return found


def _setting(config: Mapping[str, Any], names: Iterable[str]) -> str:
    """A setting by the first of its names that a config has, as text."""
    known = {str(name).casefold(): value for name, value in config.items()}
    value = next((known[name] for name in names if isinstance(known.get(name), SCALAR)), "")
    return limit(value) if isinstance(value, float) else str(value)


def _comparable(text: str) -> float | str:
    """A number, or a name without its folder, case and punctuation: fashionmnist, adamw."""
    try:
        return float(text)
    except ValueError:
        last = re.split(r"[/\\]|torch\.optim\.", text.rstrip("/\\"))[-1]
        return re.sub(r"[\W_]", "", last.casefold())


def void(doubts: Iterable[Doubt]) -> str:
    """Why the control that was supplied is rejected; empty where it is not."""
    return next((doubt.text for doubt in doubts if doubt.severity is Severity.INVALID), "")


def guesses(report: Report) -> list[tuple[float, str]]:
    """What guessing gives, and how: by the classes that occur, the outputs, the largest class."""
    share, kind = report.label_class_share, "token" if report.task == "tokens" else "class"
    if report.task == "regression":
        return [(0.0, "R² ≤ 0")]
    counts = (report.label_classes, report.classes) if kind == "class" else ()
    return [
        *((1 / classes, f"1/{classes}") for classes in counts if classes),
        *([(share, f"{fraction(share)}, the share of the most frequent {kind}")] if share else []),
    ]


def slack(chance: float, images: int | None) -> float:
    """Two standard errors of an accuracy at chance; one point for an unknown number of images."""
    return 2 * math.sqrt(max(chance * (1 - chance), 0.0) / images) if images else 0.01
