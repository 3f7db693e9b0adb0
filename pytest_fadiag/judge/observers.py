"""What is observed of a network, by name: enough to look a result up without the code that measures it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from .credit import Credit
from .depth import Depth
from .ranges import hold, hold_cosines

Result_co = TypeVar("Result_co", covariant=True)


@dataclass(frozen=True)
class ObserverSpec(Generic[Result_co]):
    """An observer that a diagnostic needs."""

    name: str
    version: int
    """Raised when what it computes changes its meaning, so that results kept under the old one are not used."""
    place: str
    """``package.module:Class``, imported when it measures."""
    probe: bool = True
    """Whether it looks at the stream of the probe's batches, so that its result depends on the stream and on their number."""
    result: type[Result_co] | None = None
    """The dataclass that its numbers make, by which a report gives them (``report.observed(spec)``) and a file of them is held
    to it; nothing where they are fields of a measurement."""

    @property
    def is_own(self) -> bool:
        """Whether it is built in; another package's code may change without this package's version."""
        return self.place.startswith("pytest_fadiag.")


@dataclass(frozen=True)
class Resolution:
    """How a gradient comes out in one dtype."""

    dtype: str
    cosine: float | None
    """The median over the samples that are not lost; ``None`` where the dtype does not run, NaN where all are lost."""
    lost: int
    """How many samples have a gradient that is zero or not finite in it."""
    problem: str = ""

    def __post_init__(self) -> None:
        hold(self, "lost")
        hold_cosines(self, "cosine")


@dataclass(frozen=True)
class Precision:
    """The BP gradient at h_L in narrower dtypes, against that of a float64 copy."""

    samples: int
    """How many samples have a gradient in float64."""
    dtypes: tuple[Resolution, ...]

    def __post_init__(self) -> None:
        hold(self, "samples")


@dataclass(frozen=True)
class ControlReads:
    """What linear probes read of a control, from h_0 on; nothing where it has no stream, or too few images to read."""

    probes: tuple[float, ...]


_HOME = "pytest_fadiag.measure.observers"
STATES: ObserverSpec[object] = ObserverSpec("states", 2, f"{_HOME}.states:StateNorms")
GRADIENTS: ObserverSpec[object] = ObserverSpec("gradients", 4, f"{_HOME}.gradients:GradientNorms")
DIRECTIONS: ObserverSpec[object] = ObserverSpec("directions", 3, f"{_HOME}.directions:GradientDirections")
OUTPUT_ERROR: ObserverSpec[object] = ObserverSpec("output-error", 1, f"{_HOME}.output_error:OutputErrors")
ACCURACY: ObserverSpec[object] = ObserverSpec("accuracy", 2, f"{_HOME}.accuracy:Classification", probe=False)
REFERENCE: ObserverSpec[object] = ObserverSpec("reference", 1, f"{_HOME}.reference:ReferenceProof")
PRECISION = ObserverSpec("precision", 1, f"{_HOME}.precision:GradientPrecision", result=Precision)
DEPTH = ObserverSpec("depth", 7, f"{_HOME}.depth:DepthProbes", result=Depth)
CONTROL_PROBES = ObserverSpec("control-probes", DEPTH.version + 1, f"{_HOME}.depth:ControlProbes", result=ControlReads)
CONTROL_READOUT = replace(CONTROL_PROBES, name="control-readout", place=f"{_HOME}.depth:ControlReadout")
CREDIT = ObserverSpec("credit", 4, f"{_HOME}.credit:CreditAlignments", result=Credit)
FIELD_OBSERVERS = (STATES, GRADIENTS, DIRECTIONS, OUTPUT_ERROR, ACCURACY, REFERENCE)
"""Those whose results are fields of a measurement."""
