"""What makes a control questionable: one that is none, one of another network, one that was trained where it should not be."""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .names import one_line
from .wording import listed

MOST_NAMED = 3
LONGEST_DETAIL = 300


class DoubtKind(str, enum.Enum):
    """What a control is doubted for."""

    AT_CHANCE = "at chance"
    UNTRAINED = "untrained"
    OTHER_DATA = "other data"
    HARDLY_TRAINED = "hardly trained"
    OTHER_SHAPES = "other shapes"
    TRAINED = "trained"
    SAME_BLOCKS = "same blocks"
    BELOW_READOUT = "below the readout of h_0"
    UNMARKED = "unmarked"
    OTHER_METHOD = "other method"
    OTHER_SEED = "other seed"

    def __str__(self) -> str:
        return self.value


_WORDS = {
    DoubtKind.AT_CHANCE: "the control is at chance, {}: it is no control",
    DoubtKind.UNTRAINED: "the control was never trained, {}: it is no control",
    DoubtKind.OTHER_DATA: "the control was measured on other test data, {}: it is no control",
    DoubtKind.HARDLY_TRAINED: "the control was hardly trained: {} is as it begins, and the network's is not",
    DoubtKind.OTHER_SHAPES: "control of another architecture: {}",
    DoubtKind.TRAINED: "the control's blocks were trained: {}",
    DoubtKind.SAME_BLOCKS: "network and control have the same weights in {}: either the network's were never trained, or the "
    "control's were not drawn at random",
    DoubtKind.BELOW_READOUT: "the control is weaker than a linear readout of h_0, {}: it was trained too little",
    DoubtKind.UNMARKED: "the control {}: nothing in its name or config says that its blocks are frozen",
    DoubtKind.OTHER_METHOD: "control of another method: {}",
    DoubtKind.OTHER_SEED: "control of another seed: {}",
}


@dataclass(frozen=True)
class Doubt:
    """One reason to question a control, with what was seen."""

    kind: DoubtKind
    detail: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "detail", one_line(self.detail[:LONGEST_DETAIL]))  # it may hold names of tensors

    @property
    def text(self) -> str:
        """The doubt in words, for the report and below the table."""
        return _WORDS[self.kind].format(self.detail)

    @property
    def voids(self) -> bool:
        """Whether there is no control left to compare with."""
        return self.kind in (DoubtKind.AT_CHANCE, DoubtKind.UNTRAINED, DoubtKind.OTHER_DATA)

    @property
    def weighs(self) -> bool:
        """Whether it is about the control itself, and not about whose it is."""
        return self.kind not in (DoubtKind.OTHER_METHOD, DoubtKind.OTHER_SEED)

    @property
    def of_another(self) -> bool:
        """Whether it is no frozen control that this network must beat, so that no pass rests on it."""
        return self.kind in (DoubtKind.OTHER_SHAPES, DoubtKind.TRAINED, DoubtKind.BELOW_READOUT)

    @property
    def compares_otherwise(self) -> bool:
        """Whether what is compared is something else than this network with random blocks, trained by the same rule."""
        others = (DoubtKind.OTHER_SHAPES, DoubtKind.TRAINED, DoubtKind.SAME_BLOCKS, DoubtKind.UNMARKED, DoubtKind.OTHER_METHOD)
        return self.kind in others


@dataclass(frozen=True)
class Fingerprint:
    """What tells the tensors of one network from those of another without keeping them."""

    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Of every tensor, by name."""
    weights: Mapping[str, str] = field(default_factory=dict)
    """A digest of every matrix or kernel, by name."""
    moved: tuple[str, ...] = ()
    """Scales and shifts of normalisation layers whose entries differ, which no initialisation gives."""
    blocks: tuple[tuple[str, ...], ...] = ()
    """The parameters of each block, by name, where somebody looked for the stream."""

    @property
    def digest(self) -> str:
        """One digest of all matrices: two trainings have no matrix in common."""
        return hashlib.blake2b(repr(sorted(self.weights.items())).encode(), digest_size=16).hexdigest()

    def doubts(self, control: Fingerprint, *, shallow: bool) -> tuple[Doubt, ...]:
        """What a control's tensors tell against it.

        Random weights do not tell whether they were trained; normalisation layers, which begin with one value, do.
        """
        inside = {name for block in self.blocks for name in block}
        moved = [name for name in control.moved if name in inside]
        outside = [name for name in self.moved if name in control.shapes and name not in inside]
        still = outside if self.blocks and not set(outside) & set(control.moved) else []
        found = {
            DoubtKind.OTHER_SHAPES: self._other_shapes(control, shallow=shallow),
            DoubtKind.HARDLY_TRAINED: _named(still),
            DoubtKind.TRAINED: f"{_named(moved)}: entries differ, and begin with one value" if moved and not shallow else "",
            DoubtKind.SAME_BLOCKS: self._same(control),
        }
        return tuple(Doubt(kind, detail) for kind, detail in found.items() if detail)

    def _other_shapes(self, control: Fingerprint, *, shallow: bool) -> str:
        """The first tensors that differ; a control without blocks may lack some."""
        for name, shape in self.shapes.items():
            theirs = control.shapes.get(name)
            if theirs is not None and theirs != shape:
                return f"{name} is {_size(theirs)} there and {_size(shape)} here"
        lacking = [] if shallow else [name for name in self.shapes if name not in control.shapes]
        if lacking:
            return f"it lacks {_named(lacking)}"
        beyond = [name for name in control.shapes if name not in self.shapes]
        return f"the network lacks {_named(beyond)}" if beyond else ""

    def _same(self, control: Fingerprint) -> str:
        """The blocks whose every matrix is the control's too."""
        if self.weights and self.weights == control.weights:
            return "all of their layers"
        common = [str(number) for number, block in enumerate(self.blocks) if self._shares(control, block)]
        if not common:
            return ""
        number = len(self.blocks)
        return f"block {common[0]} of {number}" if len(common) == 1 else f"blocks {listed(common)} of {number}"

    def _shares(self, control: Fingerprint, block: Iterable[str]) -> bool:
        own = {name: self.weights[name] for name in block if name in self.weights}
        return bool(own) and all(control.weights.get(name) == digest for name, digest in own.items())


def _size(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "a number"


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(names[:MOST_NAMED])}{more}"
