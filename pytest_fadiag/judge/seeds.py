"""The report of one method over its seeds: their margins, the mean, what would decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .diagnostics.frozen_margin import FrozenMargin, margin_in_words
from .errors import AuditError
from .margins import SeedMargin, SeedVerdict, seed_margin
from .records import Score
from .report import Report
from .words import fraction, interval, join_and, limit, one_line, plural, pp, printable, table

_WHERE = {
    SeedVerdict.PASS: "entirely at or above",
    SeedVerdict.FIRE: "entirely below",
    SeedVerdict.INCONCLUSIVE: "around",
}


@dataclass(frozen=True)
class SeedReport:
    """What the margins of several seeds say together."""

    method: str
    reports: tuple[Report, ...]
    margin: SeedMargin

    @classmethod
    def of(cls, method: str, reports: Sequence[Report], minimum: float) -> SeedReport:
        """The report of networks that differ in their seeds alone, each with a control.

        One network under several names is refused: it would count as several seeds that agree.
        """
        ordered = tuple(sorted(reports, key=lambda report: report.seed or 0))
        names = [one.checkpoint or f"{one.method_name}, seed {one.seed}" for one in ordered]
        if len({report.method_name for report in ordered}) > 1:
            raise AuditError(
                f"expected seeds of one method, got {', '.join(names)}; check their configs"
            )
        for what in ("seed", "checkpoint_sha256", "weights_digest"):
            values = [{"seed": one.seed, **one.environment}.get(what) for one in ordered]
            twins = [
                name
                for name, value in zip(names, values, strict=True)
                if value is not None and values.count(value) > 1
            ]
            if twins:
                why = "one training run cannot count as two seeds; leave one out"
                raise AuditError(f"{join_and(twins)} have the same {what}: {why}")
        for name, report in zip(names, ordered, strict=True):
            if report.margin_pp is None:
                raise AuditError(f"{name}: {FrozenMargin().judge(report).headline}")
        ours = [report.score or Score(report.headline_acc or 0.0) for report in ordered]
        theirs = [report.control.score for report in ordered if report.control]
        return cls(method, ordered, seed_margin(ours, theirs, minimum))

    @property
    def headline(self) -> str:
        """The verdict with its numbers: «mean margin …, 95 % CI […], entirely below 2 pp»."""
        result, where = self.margin, _WHERE[self.margin.verdict]
        bounds = interval(result.interval.low, result.interval.high)
        return f"mean margin {pp(result.margin)} pp, {bounds}, {where} {limit(result.minimum)} pp"

    def __str__(self) -> str:
        result, reports = self.margin, self.reports
        rows = [
            [
                str(report.seed),
                fraction(report.headline_acc or 0.0),
                fraction(report.frozen_baseline_acc or 0.0),
                pp(report.margin_pp or 0.0),
                report.control.source if report.control else "",
            ]
            for report in reports
        ]
        kind = result.interval.kind.replace("image", reports[0].unit)
        header = ["seed", reports[0].score_name, "control", "margin/pp", "source of the control"]
        fires = result.verdict is SeedVerdict.FIRE  # what differs about the control is in the flag
        doubts = [doubt for report in reports for doubt in report.doubts]
        controls = [report.control for report in reports if report.control]
        notes = (
            *dict.fromkeys(doubt.text for doubt in doubts if not (fires and doubt.mismatched)),
            "several seeds share one control, whose own spread over seeds is not seen"
            if any(controls.count(control) > 1 for control in controls)
            else "",
            result.caveat,
            "two seeds rarely decide; a third may narrow the interval to a third of its width"
            if result.seeds == 2
            else "",
        )
        flag = f"seed-margin is inconclusive: {self.headline}. To decide: {result.needed}"
        if fires:
            other = "; ".join(dict.fromkeys(doubt.text for doubt in doubts if doubt.mismatched))
            _, meaning = margin_in_words(
                result.margin, result.interval, result.minimum, controls[0].blocks, other
            )
            flag = f"seed-margin fails: {self.headline}. {meaning}"
        lines = [
            f"FA seed margin: {one_line(self.method)}, {plural(result.seeds, 'seed')}: "
            f"{result.verdict.value}",
            *(f"    {line}" for line in table([header, *rows])),
            *(f"    note: {note}" for note in notes if note),
            f"    sample sd {result.seed_sd:.2f} pp; {kind}",
            f"    {self.headline if result.verdict is SeedVerdict.PASS else f'FLAG: {flag}'}",
        ]
        return printable("\n".join(lines))
