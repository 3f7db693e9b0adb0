"""Every number of one network, as plain structs: the same in memory, across processes, in JSON."""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from .errors import AuditError
from .words import and_more, plural, sig

if TYPE_CHECKING:
    from typing_extensions import Self

BATCH = 128
"""The batch size at which the thresholds were calibrated."""
BATCHES = 10
"""How many disjoint batches of 128 are differentiated: the evaluation batches."""
LEAST_IMAGES = 1_000
"""With fewer test images a linear probe cannot resolve a few percentage points."""

SKEW = 1.5
"""Where one class has so many times more images than another, accuracies are compared by class."""
BP_COSINE = 0.999
"""A step with this cosine or more to the BP gradient is BP's own."""
LABEL_FREE = 1e-6
"""A step of which labels change no more than this share ignores them."""

ENDS = ("embedding", "head")
"""The parts of a network that are no blocks."""

BITS = bytes.maketrans(b"01", bytes([0, 1]))

Bounds = tuple[float, float]
MOST_LAYERS = msgspec.Meta(max_length=10_000)
Norms = Annotated[tuple[float | None, ...], MOST_LAYERS]
Floats = Annotated[tuple[float, ...], MOST_LAYERS]
"""Numbers by layer, as many as a file may hold."""


class Score(msgspec.Struct, frozen=True):
    """An accuracy in [0, 1] and, where known, which test images were classified correctly."""

    value: float
    images: Annotated[int, msgspec.Meta(ge=1)] | None = None
    correct: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]+$")] | None = None
    """One bit an image, class by class, packed big-endian into hexadecimal digits."""
    order: str | None = None
    """SHA-256 of the labels in their order: outcomes are paired only on the same images."""
    data: str | None = None
    """SHA-256 of the test data, where known."""
    parts: tuple[float, ...] = ()
    """What each sample or sequence contributes, where that is no bit; their mean is the value."""
    class_counts: tuple[int, ...] = ()
    """How many images each class has; which class each of ``correct`` is of follows from them."""

    def __post_init__(self) -> None:
        value = check_accuracy(self.value, "accuracy", "regression")
        msgspec.structs.force_setattr(self, "value", value)
        counts = self.class_counts
        if counts and (not self.correct or min(counts) < 1 or sum(counts) != self.images):
            raise AuditError("class_counts of a score must count the images of correct")

    @classmethod
    def of(
        cls,
        hits: Sequence[bool],
        order: str | None = None,
        data: str | None = None,
        labels: Sequence[int] = (),
    ) -> Score:
        """The score of these per-image outcomes, by class where the labels are given.

        >>> Score.of([True, False, True], labels=[1, 0, 1]).class_counts
        (1, 2)
        """
        if not hits:
            raise AuditError("no test image was classified; check the evaluation data")
        if labels:
            by_class = sorted(range(len(hits)), key=labels.__getitem__)
            hits = [hits[image] for image in by_class]
        digits = -(-len(hits) // 4)
        bits = "".join("1" if hit else "0" for hit in hits).ljust(4 * digits, "0")
        correct = f"{int(bits, 2):0{digits}x}"
        counts = tuple(count for _, count in sorted(Counter(labels).items()))
        accuracy = sum(hits) / len(hits)
        return cls(accuracy, len(hits), correct, order, data, class_counts=counts)

    @classmethod
    def of_parts(
        cls, parts: Sequence[float], order: str | None = None, data: str | None = None
    ) -> Score:
        """The score that is the mean of these."""
        rounded = tuple(round(part, 7) for part in parts)
        return cls(sum(rounded) / len(rounded), len(rounded), None, order, data, rounded)

    @property
    def outcomes(self) -> Sequence[float] | None:
        """Of each image 1 or 0, or its part; ``None`` where only the score is known."""
        if self.parts:
            return self.parts
        if self.correct is None or not self.images:
            return None
        bits = f"{int(self.correct, 16):0{4 * len(self.correct)}b}"[: self.images]
        return bits.encode().translate(BITS)

    @property
    def by_class(self) -> list[Sequence[float]]:
        """The outcomes of each class, or those of all images; empty where none are known."""
        outcomes = self.outcomes
        if outcomes is None:
            return []
        counts = self.class_counts or (len(outcomes),)
        ends = zip(counts, accumulate(counts), strict=True)
        return [outcomes[end - count : end] for count, end in ends]

    @property
    def is_skewed(self) -> bool:
        """Whether classes differ so much in size that a plain accuracy is not the balanced one."""
        counts = self.class_counts
        return bool(counts) and max(counts) > SKEW * min(counts)


class StreamInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Which modules are the blocks between h_0 and h_L, as a report names them."""

    blocks: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=10_000)]
    residual: bool | None = None
    """Unknown of a trace."""
    head: str = ""
    """The module that h_L goes to."""
    outside: float | None = None
    """The share of the parameters that no block reads."""
    states: tuple[str, ...] = ()
    """Where each state is seen: the input of 'blocks.1'."""
    sizes: tuple[int, ...] = ()
    """How many numbers each state has: where they differ, growth compares root mean squares."""
    spec: str = ""
    """``--fa-stream``, where the user named the blocks."""
    covered: float | None = None
    """The share of the weights between embedding and head, where named blocks hold few of them."""

    def __str__(self) -> str:
        return "".join(self._phrases())

    def _phrases(self) -> Iterator[str]:
        yield self.blocks[0]
        if len(set(self.blocks)) > 1:
            yield f" … {self.blocks[-1]}"
        if self.head:
            yield f" → {self.head}"
        yield f", {plural(len(self.blocks), 'block')}"
        if self.residual:
            yield ", residual"
        if self.residual is False:  # None is unknown
            yield ", no residual connections"
        if self.outside:
            yield f", {100 * self.outside:.3g} % of parameters outside the blocks"
        if self.spec:
            yield f", named by --fa-stream='{self.spec}'"


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """How the BP gradient was proven to be the derivative of what the network computes."""

    problem: str = ""
    """Why it is not proven; empty where it is."""
    error: float | None = None
    """Median relative difference between autograd and finite differences."""
    dtype: str = "float64"
    remark: str = ""
    """Why it was not proven in float64, or why there is nothing to compare."""
    reinitialised: bool = False
    """Whether it was checked at re-initialised weights."""
    own_backward: bool = False
    """Whether the network's own backward gives another gradient."""
    modules: tuple[str, ...] = ()
    """The modules with a backward of their own."""

    def __str__(self) -> str:
        if self.problem:
            return f"not proven: {self.problem}"
        return "; ".join(self._clauses())

    def _clauses(self) -> Iterator[str]:
        if self.error is None:
            yield "BP gradient"
            where = ""
        else:
            yield f"BP gradient, agrees with finite differences to {sig(self.error)}"
            where = f"in {self.dtype}: "
        if self.remark:
            yield f"{where}{self.remark}"
        if self.reinitialised:
            yield (
                "checked at re-initialised weights (the trained ones give no resolvable difference)"
            )
        if self.own_backward:
            yield f"custom backward of {and_more(self.modules)} bypassed"


class NormalisedBy(str, enum.Enum):
    """Whose mean and std the inputs were normalised by."""

    OPTION = "option"
    CHECKPOINT = "checkpoint"
    USUAL = "usual"
    """The constants that people use for a data set."""
    DATA = "data"
    NOTHING = "nothing"
    CALLER = "caller"
    """Batches were given as they are to be used."""


_NORMALISED = {
    NormalisedBy.OPTION: "normalised",
    NormalisedBy.CHECKPOINT: "normalised by the checkpoint's mean and std",
    NormalisedBy.USUAL: "normalised by its usual constants",
    NormalisedBy.DATA: "normalised by the data's own mean and std",
    NormalisedBy.CALLER: "batches as given",
}


class Inputs(msgspec.Struct, frozen=True, kw_only=True):
    """Which data a network was measured on, and how it was normalised."""

    data: str = ""
    by: NormalisedBy = NormalisedBy.CALLER
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    pixels: bool = False
    """Whether the data holds bytes, which are scaled to [0, 1] first."""
    option: str | None = None
    """``--fa-normalize``, where given."""
    checkpoint_mean: tuple[float, ...] | None = None
    checkpoint_std: tuple[float, ...] | None = None
    """What the checkpoint's config says, applied or not."""

    @property
    def normalisation(self) -> str:
        """The numbers that were in force: mean 0.286 and std 0.353."""
        if self.mean and self.std:
            return _constants(self.mean, self.std)
        if self.by is NormalisedBy.CALLER:
            return "given batches"
        return "none"

    def __str__(self) -> str:
        return "".join(self._phrases())

    def _phrases(self) -> Iterator[str]:
        if self.data:
            yield f"{self.data}, "
        raw = "pixels in [0, 1], not normalised" if self.pixels else "not normalised"
        if self.by is NormalisedBy.NOTHING:
            yield raw
        elif self.by is NormalisedBy.CHECKPOINT and not self.mean:
            yield f"{raw}, as the checkpoint says"
        else:
            yield _NORMALISED[self.by]
        if self.option:
            yield f" (--fa-normalize={self.option})"

    @property
    def remarks(self) -> Iterator[str]:
        """What was assumed, and what the checkpoint says that was not done."""
        mean, std = self.checkpoint_mean, self.checkpoint_std
        guessed = self.by in (NormalisedBy.USUAL, NormalisedBy.NOTHING) and self.option is None
        if self.pixels and guessed:
            used = "pixels in [0, 1]"
            if self.mean:
                used = f"its usual constants, {self.normalisation},"
            yield (
                f"normalisation not recorded; used {used} for {self.data}. Override with "
                "--fa-normalize=data, none or MEAN/STD"
            )
        if mean and std and (mean, std) != (self.mean, self.std):
            yield (
                f"the checkpoint's {_constants(mean, std)} were not applied ({self}); if they "
                "should be, give --fa-normalize=MEAN/STD"
            )


class Normalisation(msgspec.Struct, frozen=True):
    """What ``--fa-normalize`` says.

    >>> Normalisation.parse("0.286/0.353").mean
    (0.286,)
    """

    text: str
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    @classmethod
    def parse(cls, text: str) -> Normalisation:
        """``data``, ``none``, or one mean and one std for all channels or for each."""
        text = "".join(text.split())
        if text in ("data", "none"):
            return cls(text)
        try:
            mean, std = map(_numbers, text.split("/"))
        except ValueError:
            raise AuditError(
                "expected data, none, or MEAN/STD such as 0.286/0.353 or "
                f"0.49,0.48,0.45/0.25,0.24,0.26, not {text!r}"
            ) from None
        check_constants(mean, std, repr(text))
        return cls(text, mean, std)


def check_constants(mean: Sequence[float], std: Sequence[float], what: str) -> None:
    """Raise where inputs cannot be normalised by this mean and std."""
    if not _can_normalise(mean, std):
        raise AuditError(
            f"{what}: expected finite means and as many positive stds, got {mean} and {std}"
        )


def _can_normalise(mean: Sequence[float], std: Sequence[float]) -> bool:
    if not mean or not std:
        return False
    if len(mean) != len(std) and 1 not in (len(mean), len(std)):
        return False
    return all(map(math.isfinite, (*mean, *std))) and min(std) > 0


class Depth(msgspec.Struct, frozen=True, kw_only=True):
    """(e): linear probes of h_0 … h_L, as fractions; intervals are 95 %, paired, in pp."""

    probes: Floats = ()
    null: Annotated[tuple[Floats, ...], MOST_LAYERS] = ()
    """The same with re-initialised blocks, one tuple a seed; empty where there is no null."""
    interval: Bounds | None = None
    """Of the depth utility, without a null of the gain; ``allowance_pp`` is off its lower bound."""
    half_interval: Bounds = (0.0, 0.0)
    """Of how much higher it is by probes that are fitted to half as many images."""
    step_intervals: tuple[Bounds, ...] = ()
    """Of what each block adds beyond its null."""
    change: tuple[float, ...] = ()
    """Median ‖f_l‖/‖h_l‖ of every block; NaN where shapes differ."""
    fitted: int = 0
    """How many images a probe is fitted to."""
    read: int = 0
    training: str = ""
    """The training split that probes are fitted to; else each half of the images, in turn."""
    tokens: str = ""
    """Which tokens are read, where the head does not read all of them."""
    nonfinite: tuple[int, ...] = ()
    """Images with a NaN or inf state, by state."""
    as_initialised: tuple[int, ...] = ()
    """Blocks whose weights cannot be told from an initialisation."""
    trained: tuple[int, ...] = ()
    """Blocks whose weights no initialisation left, until half of all are found; the second of two
    neighbours of which one was trained."""
    network: float | None = None
    """The network's own accuracy on the images that are read, classes weighted equally."""
    left_out: tuple[int, ...] = ()
    """Classes with fewer than 5 images in a half, which neither probes nor scores count."""
    null_problem: str = ""
    problem: str = ""
    """Why nothing was measured; empty where it was."""

    @property
    def gain_pp(self) -> float:
        """probe(h_L) − probe(h_0)."""
        return _pp(self.probes[-1] - self.probes[0])

    @property
    def null_gains_pp(self) -> tuple[float, ...]:
        """The gain of each re-initialised network."""
        return tuple(_pp(draw[-1] - draw[0]) for draw in self.null)

    @property
    def null_pp(self) -> float | None:
        """The mean of these gains."""
        if not self.null:
            return None
        return sum(self.null_gains_pp) / len(self.null)

    @property
    def random_pp(self) -> float:
        """max(null, 0): what random blocks gain; 0 where they lose, or were not measured."""
        return max(self.null_pp or 0.0, 0.0)

    @property
    def utility_pp(self) -> float | None:
        """gain − max(null, 0); ``None`` without a null."""
        if not self.null:
            return None
        return round(self.gain_pp - self.random_pp, 9)

    @property
    def value_pp(self) -> float:
        """What is judged: the utility, or the gain where there is no null."""
        return self.gain_pp if self.utility_pp is None else self.utility_pp

    @property
    def bounds_pp(self) -> Bounds:
        """Its interval, or itself twice where there is none."""
        return self.interval or (self.value_pp, self.value_pp)

    @property
    def allowance_pp(self) -> float:
        """What the utility loses for certain from half as many images to all.

        Few images flatter late states. Where classes have a dozen images each, most of the
        difference is noise, which the interval holds already.
        """
        return max(self.half_interval[0], 0.0)

    @property
    def null_probes(self) -> tuple[float, ...]:
        """The probes of the null at each state, averaged over seeds."""
        return tuple(sum(draws) / len(draws) for draws in zip(*self.null, strict=True))

    @property
    def steps_pp(self) -> tuple[float, ...]:
        """What each block adds to the probe."""
        return tuple(_pp(after - before) for before, after in pairwise(self.probes))

    @property
    def idle(self) -> tuple[int, ...]:
        """Blocks that add nothing by their interval, or nothing that they learnt."""
        blocks = []
        for block, (low, _) in enumerate(self.step_intervals):
            if not low > 0 or block in self.as_initialised:  # NaN adds nothing
                blocks.append(block)
        return tuple(blocks)

    @property
    def untrained(self) -> bool:
        """Whether every block is still at initialisation."""
        return bool(self.probes) and len(self.as_initialised) == len(self.probes) - 1


class LinearReadout(msgspec.Struct, frozen=True, kw_only=True):
    """(g): a ridge readout of the raw inputs beside the network; scores weigh classes equally."""

    readout: float | None = None
    network: float | None = None
    interval: Bounds | None = None
    """95 % interval of network − readout in pp, paired and stratified by class."""
    fitted: int = 0
    """How many samples the readout is fitted to."""
    read: int = 0
    training: str = ""
    """The training split that it is fitted to; else each half of the samples, in turn."""
    features: int = 0
    """How many numbers of each input the readout sees."""
    reduced: str = ""
    """How inputs of more than 2,048 numbers were made smaller: average-pooled, projected."""
    ridges: tuple[float, ...] = ()
    """λ/n of each readout, chosen by leave-one-out squared error."""
    left_out: tuple[int, ...] = ()
    problem: str = ""
    """Why nothing was measured; empty where it was."""

    @property
    def difference_pp(self) -> float | None:
        """network − readout."""
        if self.readout is None or self.network is None:
            return None
        return _pp(self.network - self.readout)


class SiteState(str, enum.Enum):
    """Whether credit at one site points down the loss."""

    ALIGNED = "aligned"
    NULL = "null"
    AGAINST = "against"
    UNDEFINED = "undefined"


class Credit(msgspec.Struct, frozen=True, kw_only=True):
    """(f): credit against the BP gradient, one entry a site; NaN is undefined or not resolved."""

    source: str = ""
    sites: tuple[str, ...] = ()
    """h_0 first where the method has credit there, then the block outputs h_1 … h_L."""
    gamma: Floats = ()
    null_mean: tuple[float, ...] = ()
    null_sd: tuple[float, ...] = ()
    null_low: tuple[float, ...] = ()
    null_high: tuple[float, ...] = ()
    nudge: tuple[float, ...] = ()
    random_nudge: tuple[tuple[float, ...], ...] = ()
    magnitude: tuple[float, ...] = ()
    undefined: tuple[int, ...] = ()
    """Samples without a cosine."""
    samples: int = 0
    problem: str = ""
    """Why nothing was measured; empty where it was."""

    def __post_init__(self) -> None:
        if not self.problem and not (self.blocks and self.z):  # which zip all entries strictly
            raise AuditError("expected one entry a site")

    @property
    def state(self) -> tuple[SiteState, ...]:
        """Aligned above the null and downhill, against below it and uphill, else null."""
        sites = zip(
            self.gamma, self.null_low, self.null_high, self.nudge, self.undefined, strict=True
        )
        return tuple(self._state_of(*site) for site in sites)

    def _state_of(
        self, gamma: float, low: float, high: float, nudge: float, undefined: int
    ) -> SiteState:
        if math.isnan(gamma) or 2 * undefined > self.samples:
            return SiteState.UNDEFINED
        if gamma > high and not nudge <= 0:  # a nudge that is NaN tells nothing against it
            return SiteState.ALIGNED
        if gamma < low and not nudge >= 0:
            return SiteState.AGAINST
        return SiteState.NULL

    @property
    def blocks(self) -> tuple[tuple[str, SiteState], ...]:
        """The sites that count, with their states; h_0 does not count."""
        sites = zip(self.sites, self.state, strict=True)
        return tuple((site, state) for site, state in sites if site != "h_0")

    @property
    def aligned(self) -> int:
        """How many block sites are aligned."""
        return sum(state is SiteState.ALIGNED for _, state in self.blocks)

    @property
    def z(self) -> tuple[float, ...]:
        """How many standard deviations of the null Γ lies from its mean."""
        return tuple(
            (gamma - mean) / sd if sd else math.nan
            for gamma, mean, sd in zip(self.gamma, self.null_mean, self.null_sd, strict=True)
        )

    @property
    def is_gradient(self) -> bool:
        """Whether the credit is the BP gradient itself, up to rounding."""
        exact = all(gamma >= 1 - 1e-6 for gamma in self.gamma)
        return bool(self.gamma) and exact and SiteState.UNDEFINED not in self.state


class PartState(str, enum.Enum):
    """What one step of a rule does to one part of the network."""

    FROZEN = "frozen"
    BP = "BP's own"
    LABEL_FREE = "label-free"
    AGAINST = "against"
    ALIGNED = "aligned"
    NULL = "null"


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """(f) by one step Δ of the rule, one entry a part; g is the BP gradient, ỹ reordered labels.

    Of a log the means over the updates since the last record, which have no contrast.
    """

    source: str = ""
    parts: tuple[str, ...] = ()
    """The embedding, each block by its name, the head."""
    plain: tuple[float, ...] = ()
    """cos(Δ(y), g(y)), the mean over batches, then the least one."""
    least_plain: tuple[float, ...] = ()
    contrast: tuple[float, ...] = ()
    """cos(Δ(y) − Δ(ỹ), g(y) − g(ỹ)), in which what ignores labels cancels; 95 % t-interval."""
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    change: tuple[float, ...] = ()
    """‖Δ(y)‖/‖θ‖."""
    label_share: tuple[float, ...] = ()
    """The largest ‖Δ(y) − Δ(ỹ)‖/‖Δ(y)‖."""
    batches: int = 0
    states: int = 1
    """Over how many random states steps are averaged."""
    training: str = ""
    """The training split that batches are of; else they are the evaluation batches."""
    problem: str = ""
    """Why nothing was measured; empty where it was."""

    @property
    def state(self) -> tuple[PartState, ...]:
        """What the step does to each part."""
        return tuple(map(self._state_of, range(len(self.contrast))))

    def _state_of(self, part: int) -> PartState:
        if self.change[part] == 0:
            return PartState.FROZEN
        if self.least_plain[part] >= BP_COSINE:
            return PartState.BP
        if self.label_share[part] <= LABEL_FREE:
            return PartState.LABEL_FREE
        if self.high[part] < 0:
            return PartState.AGAINST
        if self.low[part] > 0:
            return PartState.ALIGNED
        return PartState.NULL

    @property
    def blocks(self) -> tuple[tuple[str, PartState], ...]:
        """The parts that count, with their states: embedding, head and frozen blocks do not."""
        blocks = []
        for part, state in zip(self.parts, self.state, strict=False):  # logs hold no contrast
            if part not in ENDS and state is not PartState.FROZEN:
                blocks.append((part, state))
        return tuple(blocks)

    @property
    def aligned(self) -> int:
        """How many of these blocks are aligned or BP's own."""
        return sum(state in (PartState.ALIGNED, PartState.BP) for _, state in self.blocks)

    @property
    def is_bp(self) -> bool:
        """Whether the step of embedding and blocks, where they change, is BP's own."""
        changed = []
        for part, cosine, change in zip(self.parts, self.least_plain, self.change, strict=True):
            if part != "head" and change:
                changed.append((part, cosine))
        has_blocks = any(part != "embedding" for part, _ in changed)
        return has_blocks and all(cosine >= BP_COSINE for _, cosine in changed)


class Resolution(msgspec.Struct, frozen=True, kw_only=True):
    """How the BP gradient at h_L comes out in one dtype."""

    dtype: str
    cosine: float | None = None
    """Median cosine to float64; ``None`` where it does not run, NaN where all samples are lost."""
    lost: int = 0
    problem: str = ""


class Precision(msgspec.Struct, frozen=True, kw_only=True):
    """The BP gradient at h_L in narrower dtypes, against a float64 copy."""

    samples: int
    dtypes: tuple[Resolution, ...]
    problem: str = ""
    """Why nothing was compared."""


class Decisive(msgspec.Struct, frozen=True, kw_only=True):
    """What decides (a), (b), (c) and (f): of a network, or of one epoch of its training."""

    residual_norms: Norms = ()
    bp_grad_norms: Norms = ()
    cross_batch_stability: float | None = None
    gradient_per_unit_error: float | None = None
    sample_invariance: float | None = None
    """Mean product of two classes' mean unit gradients, without the class predicted most often."""
    eval_classes: int | None = None
    """Classes among the evaluation batches."""
    predicted_class_share: float | None = None
    nonfinite_states: tuple[int, ...] = ()
    nonfinite_gradients: tuple[int, ...] = ()
    nonfinite_outputs: int = 0
    credit: Credit | None = None
    step: Step | None = None


COMPUTED = {
    "states": ("residual_norms", "nonfinite_states"),
    "gradients": (
        *("bp_grad_norms", "gradient_per_unit_error", "nonfinite_gradients", "effective_rank"),
        *("tokens", "tokens_without_gradient"),
    ),
    "directions": (
        *("stability_layer", "cross_batch_stability", "sample_invariance", "eval_classes"),
        "zero_gradient_samples",
    ),
    "output-error": ("output_error_norm", "output_error_drift", "loss_bias"),
    **{name: (name,) for name in ("credit", "step", "depth", "floor", "precision")},
}
"""What single metrics compute."""
WITHOUT_STREAM = {"accuracy", "output-error", "floor"}
WITHOUT_REFERENCE = {*WITHOUT_STREAM, "states", "depth", "control-readout"}
"""The metrics that need no stream, and those that rest on no proven reference."""


class Epoch(Decisive, frozen=True, kw_only=True):
    """What a log says about one epoch; gradients as for batches of 128."""

    epoch: int
    headline_acc: float | None = None


class Measurement(Decisive, frozen=True, kw_only=True, dict=True):
    """What was measured of a network, before any threshold, method name or control.

    ``None`` was not measured, NaN is undefined. Norms are medians over samples (and tokens),
    gradients as for a mean loss over batches of 128.
    """

    stability_layer: int | None = None
    batches: int | None = None
    samples: int | None = None
    output_error_norm: float | None = None
    output_error_drift: float | None = None
    zero_gradient_samples: int = 0
    nonfinite_weights: tuple[str, ...] = ()
    tokens: int | None = None
    tokens_without_gradient: tuple[int, ...] = ()
    classes: int | None = None
    """Outputs of the network; then classes in the test set, and the share of the largest one."""
    label_classes: int | None = None
    label_class_share: float | None = None
    score: Score | None = None
    stream: StreamInfo | None = None
    stream_problem: str = ""
    """Why no stream was found: then only what needs none was measured."""
    reference: Reference | None = None
    precision: Precision | None = None
    depth: Depth | None = None
    floor: LinearReadout | None = None
    inputs: Inputs | None = None
    task: str = "classes"
    """``classes``, ``regression`` or ``tokens``."""
    loss: str = "cross-entropy"
    """Also ``squared error``, ``binary cross-entropy``, or the name of a function."""
    loss_assumed: bool = False
    """Whether neither options nor the checkpoint name the loss."""
    loss_bias: dict[str, float] = {}
    """‖mean e‖/mean‖e‖ under the loss that is assumed, squared error and binary cross-entropy."""
    effective_rank: float | None = None
    """Of the gradients at the states, the smallest, divided by that of the output errors."""
    trace: bool = False
    """Whether states and gradients were given as arrays: the reference is not proven."""
    secants: float | None = None
    """Of a trace: the smallest rank correlation of secants by states and by outputs."""
    environment: dict[str, str | int | bool] = {}
    extra: dict[str, dict[str, Any]] = {}
    """What metrics of other packages computed, by their names."""

    def restricted_to(self, metrics: Iterable[str]) -> Self:
        """This measurement with no more than these metrics compute."""
        asked = set(metrics)
        unasked = [name for metric in COMPUTED.keys() - asked for name in COMPUTED[metric]]
        if asked <= WITHOUT_REFERENCE:
            unasked.append("reference")
        if asked <= WITHOUT_STREAM:
            unasked += ["stream", "stream_problem"]
        unset = Measurement()
        return msgspec.structs.replace(self, **{name: getattr(unset, name) for name in unasked})


class Log(msgspec.Struct, frozen=True, kw_only=True):
    """The training log that a report comes from."""

    epochs: tuple[Epoch, ...] = ()
    gradient_batch: int | None = None
    """The batch size at which gradients were logged; the report has them as at 128."""
    assumed_batch: int | None = None
    """The training's batch size, assumed where the log does not state that of the gradients."""
    depth_known: bool = True
    """Where it is not, the last norms are those of h_L and g_L, the others of numbered layers."""


def check_accuracy(value: Any, what: str, task: str) -> float:
    """The accuracy as a float in [0, 1], or an error that says what is wrong with it.

    An R² may be negative.
    """
    try:
        accuracy = float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise AuditError(f"{what} must be a number, not a {type(value).__name__}") from None
    if 0.0 <= accuracy <= 1.0:
        return accuracy
    if task == "regression" and -math.inf < accuracy < 0.0:
        return accuracy
    hint = "; did you pass a percentage?" if 1.0 < accuracy <= 100.0 else ""
    raise AuditError(f"{what} must be a fraction in [0, 1], not {accuracy:g}{hint}")


def check_norms(values: Any, what: str) -> tuple[float | None, ...]:
    """The norms as floats, ``None`` for a layer that is not known, or an error."""
    try:
        norms = tuple(None if value is None else float(value) for value in values)
    except (TypeError, ValueError, OverflowError):
        raise AuditError(f"{what} must be a list of numbers, not {values!r:.200}") from None
    if any(norm is not None and norm < 0 for norm in norms):
        raise AuditError(f"{what} holds a negative number, but a norm is never negative")
    return norms


def _constants(mean: Sequence[float], std: Sequence[float]) -> str:
    return f"mean {_listed(mean)} and std {_listed(std)}"


def _listed(values: Sequence[float]) -> str:
    return ",".join(f"{value:g}" for value in values)


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(map(float, text.split(",")))


def _pp(difference: float) -> float:
    """Percentage points, rounded so that 0.03 is 3 and not a hair below."""
    return round(100 * difference, 9)


def plain(value: Any) -> Any:
    """JSON values; NaN and infinities as the strings that ``convert(strict=False)`` reads."""
    return _spelled(msgspec.to_builtins(value, str_keys=True))


def _spelled(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _spelled(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_spelled(entry) for entry in value]
    if not isinstance(value, float) or math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    if value > 0:
        return "Infinity"
    return "-Infinity"
