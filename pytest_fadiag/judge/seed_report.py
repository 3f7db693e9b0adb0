"""The report of one method over its seeds: each seed's margin, their mean with its interval, and what would decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .control import ControlKind
from .diagnostics.frozen_margin import compared_otherwise, doubts_about, in_words, margin, void
from .errors import AuditError
from .margins import SeedMargin, SeedVerdict, seed_margin
from .records import Accuracy
from .report import DiagnosticReport
from .wording import count, fraction, limit, points

MEANING = {
    SeedVerdict.FIRE: "Over its seeds the method does not beat its control by the minimum.",
    SeedVerdict.PASS: "Over its seeds the method beats its control by the minimum or more.",
    SeedVerdict.INCONCLUSIVE: "Neither a pass nor a failure: these seeds and images cannot tell whether the margin reaches the "
    "minimum.",
}

TWO_SEEDS = "two seeds rarely decide; a third may narrow the interval to a third of its width"


@dataclass(frozen=True)
class SeedReport:
    """What the margins of several seeds say together; an interval that begins exactly at the minimum passes, as (d) does."""

    method: str
    reports: tuple[DiagnosticReport, ...]
    margin: SeedMargin

    @classmethod
    def of(cls, reports: Sequence[DiagnosticReport], minimum: float) -> SeedReport:
        """The report of networks that differ in their seeds alone; each must have its accuracy and its control's.

        One network under several names is refused: it would count as several seeds that agree.
        """
        methods = sorted({report.method_name for report in reports})
        if len(methods) > 1:
            raise AuditError(
                f"these checkpoints are not seeds of one method: by their config they are of {', '.join(methods)}; name each "
                "file <method>_s<seed>"
            )
        _check_distinct(reports)
        ordered = tuple(sorted(reports, key=lambda report: -1 if report.seed is None else report.seed))
        ours = [_accuracy(report) for report in ordered]
        theirs = [_control(report) for report in ordered]
        return cls(methods[0], ordered, seed_margin(ours, theirs, minimum))

    @property
    def headline(self) -> str:
        """The verdict with its numbers, short enough for a summary line."""
        result = self.margin
        sign = {SeedVerdict.PASS: ">=", SeedVerdict.FIRE: "<", SeedVerdict.INCONCLUSIVE: "around"}[result.verdict]
        bounds = f"[{points(result.interval.low)}, {points(result.interval.high)}]"
        margin_pp = f"margin {points(result.margin)} pp {bounds}"
        return f"{result.verdict.value}: {margin_pp} {sign} {limit(result.minimum)}, n={result.seeds}"

    @property
    def _meaning(self) -> str:
        """What the verdict means, and where it fires what the interval says of the blocks."""
        result, kinds = self.margin, {report.control.kind for report in self.reports if report.control is not None}
        if result.verdict is not SeedVerdict.FIRE:
            return MEANING[result.verdict]
        without = next(iter(kinds)).blocks if len(kinds) == 1 else ControlKind.FROZEN.blocks
        reasons = [(report.seed, compared_otherwise(report)) for report in self.reports]
        otherwise = "; ".join(f"seed {seed}: {reason}" for seed, reason in reasons if reason)
        said = in_words(result.margin, result.interval, result.minimum, without, otherwise)
        return f"{MEANING[result.verdict]} {said}"

    def __str__(self) -> str:
        result = self.margin
        lines = [f"FA seed margin: {self.method}, {count(result.seeds, 'seed')}"]
        shared = len({report.control for report in self.reports}) < len(self.reports)
        for report in self.reports:
            value = margin(report)
            source = "" if report.control is None else f" ({report.control.describe(report.method_name, report.seed)})"
            lines.append(
                f"    seed {report.seed}: accuracy {fraction(_accuracy(report).value)}, "
                f"control {fraction(_control(report).value)}{source}, margin {points(value or 0.0)} pp"
            )
        doubts = [(report.seed, doubt) for report in self.reports for doubt in doubts_about(report) if doubt.weighs]
        lines += [f"    note: seed {seed}: {doubt.text}" for seed, doubt in doubts]
        if shared:
            lines.append("    note: several seeds share one control, whose own spread over seeds is not seen")
        lines += [
            f"    mean margin {points(result.margin)} pp, sample sd over seeds {result.seed_sd:.2f} pp",
            f"    95 % interval {points(result.interval.low)} to {points(result.interval.high)} pp ({result.interval.kind})",
            f"    minimum {limit(result.minimum)} pp",
        ]
        if result.seeds == 2:
            lines.append(f"    {TWO_SEEDS}")
        if result.caveat:
            lines.append(f"    note: {result.caveat}")
        if result.verdict is not SeedVerdict.PASS:
            lines.append(f"    FLAG: {self.headline}. {self._meaning}")
        if result.verdict is SeedVerdict.INCONCLUSIVE:
            lines.append(f"    to decide: {result.needed()}")
        return "\n".join([*lines, f"VERDICT: {result.verdict.value}"])


def _check_distinct(reports: Sequence[DiagnosticReport]) -> None:
    seeds: dict[object, DiagnosticReport] = {}
    files: dict[object, DiagnosticReport] = {}
    networks: dict[object, DiagnosticReport] = {}
    for report in reports:
        digest = report.environment.get("checkpoint_sha256")
        if digest is not None and digest in files:
            raise AuditError(
                f"{_named(files[digest])} and {_named(report)} are the same file under two names, and one training is no two "
                "seeds; leave out the copy, or give the checkpoint of another seed"
            )
        if report.seed is not None and report.seed in seeds:
            raise AuditError(
                f"{_named(seeds[report.seed])} and {_named(report)} are both of seed {report.seed} by their config or name, "
                "and a margin over seeds needs distinct ones; leave out one of them, or correct the seed in its config"
            )
        weights = report.environment.get("weights_digest")
        if weights is not None and weights in networks:
            raise AuditError(
                f"{_named(networks[weights])} and {_named(report)} hold the same weights, and one training is no two seeds; "
                "leave out the copy, or give the checkpoint of another seed"
            )
        files[digest] = seeds[report.seed] = networks[weights] = report


def _named(report: DiagnosticReport) -> str:
    """The file of a report, else its method and seed."""
    return report.checkpoint or f"{report.method_name}, seed {report.seed}"


def _accuracy(report: DiagnosticReport) -> Accuracy:
    if report.accuracy is not None:
        return report.accuracy
    if report.headline_acc is None:
        raise AuditError(f"seed {report.seed} of {report.method_name} has no accuracy")
    return Accuracy(report.headline_acc)


def _control(report: DiagnosticReport) -> Accuracy:
    none = void(report)
    if none is not None:
        raise AuditError(f"seed {report.seed} of {report.method_name}: {none.text}")
    if report.control is not None:
        return report.control.accuracy
    if report.frozen_baseline_acc is None:
        raise AuditError(f"seed {report.seed} of {report.method_name} has no frozen-random control")
    return Accuracy(report.frozen_baseline_acc)
