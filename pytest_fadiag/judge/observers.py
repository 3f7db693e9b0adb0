"""What is observed of a network, by name: enough to look a result up without the code that measures it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ObserverSpec:
    """An observer that a diagnostic needs."""

    name: str
    version: int
    """Raised when what it computes changes its meaning, so that results kept under the old one are not used."""
    place: str
    """``package.module:Class``, imported when it measures."""
    probe: bool = True
    """Whether it looks at the stream of the probe's batches, so that its result depends on the stream and on their number."""


_HOME = "pytest_fadiag.measure.observers"
STATES = ObserverSpec("states", 1, f"{_HOME}.states:StateNorms")
GRADIENTS = ObserverSpec("gradients", 1, f"{_HOME}.gradients:GradientNorms")
DIRECTIONS = ObserverSpec("directions", 2, f"{_HOME}.directions:GradientDirections")
OUTPUT_ERROR = ObserverSpec("output-error", 1, f"{_HOME}.output_error:OutputErrors")
ACCURACY = ObserverSpec("accuracy", 1, f"{_HOME}.accuracy:Classification", probe=False)
FIELD_OBSERVERS = (STATES, GRADIENTS, DIRECTIONS, OUTPUT_ERROR, ACCURACY)
"""Those whose results are fields of a measurement."""
