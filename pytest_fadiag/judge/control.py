"""The frozen-random (or shallow) control of a network, and what makes it doubtful."""

from __future__ import annotations

import enum
import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from .margins import balanced_score, reads_less
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
LONGER = "train the network and its control longer"


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
    remedy: str = ""
    """What mends it, where that takes no new control."""


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
        parts = [self.source, self.method]
        if self.seed is not None:
            parts.append(f"seed {self.seed}")
        return ", ".join(filter(None, parts))


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
        weights = repr(sorted(self.weights.items()))
        return hashlib.blake2b(weights.encode(), digest_size=16).hexdigest()

    def doubts(self, control: Fingerprint, *, shallow: bool = False) -> tuple[Doubt, ...]:
        """What a control's tensors tell against it as a control of this network."""
        return tuple(self._doubts(control, shallow))

    def _doubts(self, control: Fingerprint, shallow: bool) -> Iterator[Doubt]:
        yield from self._on_shapes(control, shallow)
        inside = {name for block in self.blocks for name in block}
        trained = [name for name in control.moved if name in inside]
        if trained and not shallow:
            yield Doubt(
                Severity.WARNING,
                f"the control's blocks were trained: entries of {and_more(trained)} differ",
                mismatched=True,
            )
        shared = [
            str(number)
            for number, block in enumerate(self.blocks)
            if self._shares_matrices(block, control)
        ]
        if shared:
            yield Doubt(
                Severity.WARNING,
                f"network and control share their weights in block {', '.join(shared)} of "
                f"{len(self.blocks)}: the network's blocks were never trained, or the control's "
                "are not random",
                mismatched=True,
            )

    def _on_shapes(self, control: Fingerprint, shallow: bool) -> Iterator[Doubt]:
        """The first tensor that another architecture has; a shallow control has no blocks."""
        shapes = self.shapes
        if shallow:
            shapes = {name: shape for name, shape in shapes.items() if name in control.shapes}
        for name in {**shapes, **control.shapes}:
            if shapes.get(name) != control.shapes.get(name):
                yield Doubt(
                    Severity.WARNING,
                    f"control of a different architecture: {name} is "
                    f"{control.shapes.get(name, 'absent')}, here {shapes.get(name, 'absent')}",
                    mismatched=True,
                )
                break  # the first says it

    def _shares_matrices(self, block: Sequence[str], control: Fingerprint) -> bool:
        """Whether all matrices of a block are the control's too."""
        matrices = [name for name in block if name in self.weights]
        same = [name for name in matrices if self.weights[name] == control.weights.get(name)]
        return bool(matrices) and same == matrices


class _Readout(NamedTuple):
    """A linear readout that a trained control should match."""

    name: str
    score: float
    images: int
    """How many images it was read on."""


def doubts_about(report: Report) -> tuple[Doubt, ...]:
    """Everything that makes the control of a report doubtful."""
    if report.control is None:
        return ()
    if void(report.control.doubts):
        return report.control.doubts  # its accuracy says nothing then
    return tuple(_doubts_about(report, report.control))


def _doubts_about(report: Report, control: Control) -> Iterator[Doubt]:
    yield from _on_validity(report, control)
    yield from _on_training(report, control)
    yield from control.doubts
    yield from _on_provenance(report, control)


def _on_validity(report: Report, control: Control) -> Iterator[Doubt]:
    """Why there is nothing to compare: other test data, or an accuracy that guessing gives."""
    data = control.score.data
    expected = str(report.environment.get("data_sha256") or "")
    if report.score and report.score.data:
        expected = report.score.data
    if data and expected and data != expected:
        yield Doubt(
            Severity.INVALID,
            f"control rejected: measured on other test data ({data[:12]}…, here {expected[:12]}…)",
            remedy="measure the control on the same test data",
        )
    for guess in guesses(report, control.score, _images(report, control)):
        if guess.above <= guess.slack:
            numbers = f"({fraction(guess.accuracy)}, {guess.how})"
            yield Doubt(
                Severity.INVALID,
                f"control rejected: {report.score_name} at chance {numbers}",
                remedy=LONGER,
            )
            break  # the best guess says it


def _on_training(report: Report, control: Control) -> Iterator[Doubt]:
    """Whether it reads less than a linear readout does, and which settings differ."""
    accuracy = control.score.value
    images = _images(report, control)
    if control.score.class_counts:  # readouts weigh classes equally
        accuracy, _ = balanced_score(control.score)
    if control.balanced is not None:
        accuracy = control.balanced
        images = None  # those that the probes read
    readouts = sorted(_readouts(report, control), key=lambda readout: -readout.score)
    for name, score, read in readouts:
        if read and reads_less(accuracy, images or read, score, read):
            below = f"{report.score_name} below a {name} ({fraction(score)})"
            consequence = "so the margin may be too large"
            if report.headline_acc is not None and report.headline_acc < control.score.value:
                consequence = "and a better one would only lower the margin"
            yield Doubt(
                Severity.WARNING,
                f"the control looks undertrained, {consequence}: {below}",
                remedy=LONGER,
            )
            break  # the best of them says it
    settings = "; ".join(differing_settings(report.config, control.config))
    if settings:
        text = f"the control was trained otherwise: {settings}"
        remedy = "train the control with the settings of the network"
        yield Doubt(Severity.WARNING, text, mismatched=True, remedy=remedy)


def _readouts(report: Report, control: Control) -> Iterator[_Readout]:
    depth = report.depth
    linear = report.floor
    if control.probes:
        images = _images(report, control) or 0
        yield _Readout("linear probe of h_0", control.probes[0], images)
    if depth and depth.probes:
        yield _Readout("linear probe of h_0", depth.probes[0], depth.read)
    if linear and linear.readout is not None:
        yield _Readout("linear readout of the inputs", linear.readout, linear.read)


def _images(report: Report, control: Control) -> int | None:
    """The number of test images of the control; that of the network where it is not known."""
    if report.score is None:
        return control.score.images
    return control.score.images or report.score.images


def _on_provenance(report: Report, control: Control) -> Iterator[Doubt]:
    """Whether it is marked as frozen, and of the same method and seed."""
    if control.kind is ControlKind.UNMARKED:
        yield Doubt(
            Severity.REMARK,
            f"control {control.source}: cannot confirm that its blocks were frozen (set "
            "`frozen: true` in its config)",
            mismatched=True,
            remedy="set `frozen: true` in the config of the control",
        )
    if control.method not in (None, report.method_name):
        yield Doubt(
            Severity.WARNING,
            f"compared with the control of {control.method}; {report.method_name} has none of "
            "its own",
            mismatched=True,
            remedy=f"train a control by {report.method_name}",
        )
    if None not in (control.seed, report.seed) and control.seed != report.seed:
        yield Doubt(
            Severity.WARNING,
            f"compared with the control of seed {control.seed}, not seed {report.seed}",
            remedy="train a control of each seed",
        )


def differing_settings(network: Mapping[str, Any], control: Mapping[str, Any]) -> list[str]:
    """The training settings that both configs tell and that differ.

    >>> differing_settings({"lr": 1e-3, "epochs": 30}, {"learning_rate": "0.001", "epochs": 1})
    ['epochs 1, here 30']
    """
    differing = []
    for name, spellings in SETTINGS.items():
        expected = _setting(network, spellings)
        value = _setting(control, spellings)
        if expected and value and _comparable(expected) != _comparable(value):
            differing.append(f"{name} {value}, here {expected}")
    return differing


def _setting(config: Mapping[str, Any], spellings: Iterable[str]) -> str:
    """A setting by the first of its names that a config has, as text."""
    values = {str(name).casefold(): value for name, value in config.items()}
    for name in spellings:
        value = values.get(name)
        if isinstance(value, float):
            return limit(value)
        if isinstance(value, (str, int)):
            return str(value)
    return ""


def _comparable(text: str) -> float | str:
    """A number, or a name without its folder, case and punctuation: fashionmnist, adamw."""
    try:
        return float(text)
    except ValueError:
        last = re.split(r"[/\\]|torch\.optim\.", text.rstrip("/\\"))[-1]
        return re.sub(r"[\W_]", "", last.casefold())


def void(doubts: Iterable[Doubt]) -> str:
    """Why the control that was supplied is rejected; empty where it is not."""
    for doubt in doubts:
        if doubt.severity is Severity.INVALID:
            return doubt.text
    return ""


class Guess(NamedTuple):
    """One way of guessing, beside an accuracy."""

    accuracy: float
    chance: float
    slack: float
    """Two standard errors; one point for an unknown number of images."""
    how: str

    @property
    def above(self) -> float:
        """How far the accuracy is above it."""
        return self.accuracy - self.chance


def guesses(report: Report, score: Score, images: int | None) -> list[Guess]:
    """What guessing gives, the best first: by the outputs, the classes, or the most frequent one.

    Where the classes of images are known, these count equally, and the most frequent is one of all.
    """
    if score.class_counts:
        accuracy, noise = balanced_score(score)
        classes = len(score.class_counts)
        return [Guess(accuracy, 1 / classes, 2 * math.sqrt(noise), f"1/{classes}")]
    ways = []
    if report.task == "regression":
        ways.append((0.0, "R² ≤ 0"))
    if report.task == "classes":
        for classes in filter(None, (report.label_classes, report.classes)):
            ways.append((1 / classes, f"1/{classes}"))
    share = report.label_class_share
    if share and report.task != "regression":
        kind = "token" if report.task == "tokens" else "class"
        ways.append((share, f"{fraction(share)}, the share of the most frequent {kind}"))
    ordered = []
    for chance, how in sorted(ways, reverse=True):
        noise = chance * (1 - chance) / images if images else 0.005**2
        ordered.append(Guess(score.value, chance, 2 * math.sqrt(max(noise, 0.0)), how))
    return ordered
