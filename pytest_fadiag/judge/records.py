"""What one pass over a network yields: plain numbers that travel between processes and round-trip through JSON."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .codec import read, to_plain
from .errors import AuditError
from .limits import MOST_LAYERS
from .observers import FIELD_OBSERVERS
from .ranges import hold, hold_cosines
from .stream import ResidualStream

PROTOCOL_VERSION = 1
"""The version of a measurement as :meth:`Measurement.to_dict` writes it; the cache goes by the versions of observers."""

BATCH = 128
"""The batch size at which the thresholds were calibrated; gradients are scaled and directions grouped by it."""

BATCHES = 10
"""How many disjoint batches the protocol measures."""

AT_ONCE = 512
"""How many samples of a file of data are forwarded at once; those of the probe, which are differentiated, are 128."""

LABEL_NAMES = ("labels", "label", "label_ids", "targets", "target", "y")
"""What batches of named tensors and forward passes call the labels."""


@dataclass(frozen=True)
class AuxiliaryStatistics:
    """Numbers without which (b) and (c) can be misread; ``None`` is not measured, NaN is undefined."""

    batches: int | None = None
    samples: int | None = None
    gradient_per_unit_error: float | None = None
    output_error_norm: float | None = None
    sample_invariance: float | None = None
    """The mean product of the mean unit gradients of two classes, without the class that is predicted most often."""
    invariance_between_samples: float | None = None
    """The mean cosine of two samples' gradients, by which earlier versions told drift, and which an uneven class mix raises."""
    output_error_drift: float | None = None
    zero_gradient_samples: int = 0
    probe_classes: int | None = None
    """How many classes the probe has."""
    largest_class_share: float | None = None
    """How much of the probe is of its most frequent class."""
    nonfinite_states: tuple[int, ...] = ()
    nonfinite_gradients: tuple[int, ...] = ()
    nonfinite_logits: int = 0
    nonfinite_weights: tuple[str, ...] = ()
    tokens_without_gradient: tuple[int, ...] = ()
    tokens: int | None = None
    classes: int | None = None
    """How many outputs the network has."""
    label_classes: int | None = None
    """How many classes occur among all test images."""
    largest_label_share: float | None = None
    """How many of them are of the most frequent class."""
    predicted_class_share: float | None = None
    largest_logit: float | None = None

    def __post_init__(self) -> None:
        hold(self, "batches", "samples", "zero_gradient_samples", "probe_classes", "tokens", "classes", "label_classes")
        hold(self, "nonfinite_states", "nonfinite_gradients", "nonfinite_logits", "tokens_without_gradient")
        hold(self, "largest_class_share", "largest_label_share", "predicted_class_share", high=1)
        hold(self, "gradient_per_unit_error", "output_error_norm", "largest_logit", undefined=True)
        hold_cosines(self, "sample_invariance", "invariance_between_samples", "output_error_drift")


_NAMES_BEFORE = {"directionless_samples": "zero_gradient_samples", "unread_tokens": "tokens_without_gradient"}
"""What audits and logs called two of the auxiliary statistics before."""
_BEFORE_CLASSES = {"sample_invariance": "invariance_between_samples"}
"""What the same name meant where the classes of the probe were not counted."""


def with_present_names(companions: Any) -> Any:
    """The JSON object of auxiliary statistics under the names that they have now; anything else as it is."""
    if not isinstance(companions, Mapping):
        return companions
    names = _NAMES_BEFORE if "probe_classes" in companions else {**_NAMES_BEFORE, **_BEFORE_CLASSES}
    return {names.get(name, name): value for name, value in companions.items()}


@dataclass(frozen=True)
class Accuracy:
    """A headline accuracy, and which images were classified correctly where that is known."""

    value: float
    images: int | None = None
    correct: str | None = None
    """One bit an image, packed big-endian into hexadecimal digits: 2.5 kB for 10,000 images."""
    order: str | None = None
    """A digest of the labels in their order: outcomes are paired only with outcomes on the same images."""
    data: str | None = None
    """A digest of the test data themselves, where it is known: labels do not tell images of one class apart."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", check_accuracy(self.value, "accuracy"))
        if self.images is not None and self.images < 0:
            raise AuditError(f"the number of test images is {self.images}, but it is never negative")
        digits = _digits(self.images or 0)
        if self.correct is not None and not (len(self.correct) == digits and re.fullmatch("[0-9a-f]*", self.correct)):
            raise AuditError(
                f"correct must be {digits} hexadecimal digits, a bit for each of {self.images or 0:,} images, not "
                f"{len(self.correct)}: {self.correct!r:.40}"
            )

    @classmethod
    def of(cls, hits: list[bool], order: str | None = None, data: str | None = None) -> Accuracy:
        """The accuracy of these per-image outcomes."""
        if not hits:
            raise AuditError("no test image was classified, so there is no accuracy; check the evaluation data")
        bits = "".join("1" if hit else "0" for hit in hits)
        digits = _digits(len(hits))
        return cls(sum(hits) / len(hits), len(hits), f"{int(bits.ljust(4 * digits, '0'), 2):0{digits}x}", order, data)

    def bits(self) -> int | None:
        """The per-image outcomes as the bits of one number, or ``None`` where only the accuracy is known."""
        return None if self.correct is None or not self.images else int(self.correct, 16)


@dataclass(frozen=True)
class Reference:
    """How the reference, the BP gradient of what the network computes, was proven by finite differences."""

    problem: str
    """Why it is not proven; empty where it is."""
    dtype: str
    remark: str = ""
    """Why it was not proven in float64, or why there is nothing to compare."""
    redrawn: bool = False
    """Whether the weights were drawn anew for it, since at the network's own nothing could be resolved."""
    own_backward: bool = False
    """Whether the network's own backward gives another gradient."""
    modules: tuple[str, ...] = ()
    """Those with a backward of their own."""


def _digits(images: int) -> int:
    """How many hexadecimal digits hold one bit an image."""
    return -(-images // 4)


@dataclass(frozen=True)
class Measurement:
    """What was measured of a network, independent of thresholds, method name and control; empty or ``None`` is what was not."""

    residual_norms: tuple[float, ...] = ()
    bp_grad_norms: tuple[float, ...] = ()
    stability_layer: int | None = None
    cross_batch_stability: float | None = None
    companions: AuxiliaryStatistics = field(default_factory=AuxiliaryStatistics)
    accuracy: Accuracy | None = None
    environment: Mapping[str, str | int | bool] = field(default_factory=dict)
    extra: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What other observers computed, by their names, as plain JSON values."""
    reference: Reference | None = None
    reference_error: float | None = None
    """How far autograd lies from finite differences, relative."""
    stream: ResidualStream | None = None
    """Which blocks it was measured at; ``None`` where nothing of it was."""

    @classmethod
    def of(
        cls,
        results: Mapping[str, Mapping[str, Any]],
        environment: Mapping[str, str | int | bool],
        stream: ResidualStream | Mapping[str, Any] | None = None,
    ) -> Measurement:
        """The measurement that the results of some observers make, as they computed them or as JSON kept them."""
        own = [observer.name for observer in FIELD_OBSERVERS]
        fields = {key: value for name in own for key, value in results.get(name, {}).items()}
        extra = {name: result for name, result in results.items() if name not in own and result}
        return cls._read({**fields, "companions": fields, "environment": environment, "extra": extra, "stream": stream})

    def to_dict(self) -> dict[str, Any]:
        """The measurement as plain JSON values."""
        return {"protocol_version": PROTOCOL_VERSION, **to_plain(self)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Measurement:
        """The measurement that :meth:`to_dict` wrote."""
        version = values.get("protocol_version")
        if version != PROTOCOL_VERSION:
            raise AuditError(f"a measurement of protocol version {version!r} cannot be read by version {PROTOCOL_VERSION}")
        return cls._read(values)

    @classmethod
    def _read(cls, values: Mapping[str, Any]) -> Measurement:
        plain = to_plain({**values, "companions": with_present_names(values.get("companions"))})
        return read(cls, plain, "measurement")


def check_norms(values: Any, name: str, *, empty: bool = False) -> tuple[float | None, ...]:
    """The norms as a tuple of floats, ``None`` for a layer that was not logged, or an error that says what is wrong."""
    try:
        norms = tuple(None if value is None else float(value) for value in values)
    except (TypeError, ValueError, OverflowError):
        raise AuditError(f"{name} must be a list of numbers, not {values!r:.200}") from None
    if len(norms) > MOST_LAYERS:
        raise AuditError(f"{name} has {len(norms):,} entries, and at most {MOST_LAYERS:,} layers are read")
    if not norms and not empty:
        raise AuditError(f"{name} is empty: nothing was measured, so there is nothing to judge")
    negative = [norm for norm in norms if norm is not None and norm < 0 and not math.isnan(norm)]
    if negative:
        raise AuditError(f"{name} holds {negative[0]:g}, but a norm is never negative")
    return norms


def check_accuracy(value: Any, what: str) -> float:
    """The accuracy as a float in [0, 1], or an error that says what is wrong with it."""
    try:
        accuracy = float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # the last where a tensor has several entries
        shown = type(value).__name__ if isinstance(value, int) else f"{value!r:.60}"  # thousands of digits cannot be written
        raise AuditError(f"{what} must be a number in [0, 1], not {shown}") from None
    if 1.0 < accuracy <= 100.0:
        raise AuditError(f"{what} is {accuracy:g}, but accuracies are fractions in [0, 1]; did you pass a percentage?")
    if not 0.0 <= accuracy <= 1.0:
        raise AuditError(f"{what} must be a number in [0, 1], not {accuracy!r}")
    return accuracy
