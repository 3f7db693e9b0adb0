"""The report of one method over its seeds: their margins, the mean, what would decide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .control import Control, Doubt
from .diagnostics.frozen_margin import FrozenMargin, margin_in_words
from .errors import AuditError
from .records import Score
from .report import Report
from .seed_margins import SeedMargin, SeedVerdict, seed_margin
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
        _check(ordered)
        networks = [report.score or Score(report.headline_acc or 0.0) for report in ordered]
        controls = [report.control.score for report in ordered if report.control]
        return cls(method, ordered, seed_margin(networks, controls, minimum))

    @property
    def headline(self) -> str:
        """The verdict with its numbers: «mean margin …, 95 % CI […], entirely below 2 pp»."""
        margin = self.margin
        bounds = interval(margin.interval.low, margin.interval.high)
        where = f"{_WHERE[margin.verdict]} {limit(margin.minimum)} pp"
        if margin.skewed:
            where = "of plain accuracies"
        return f"mean margin {pp(margin.margin)} pp, {bounds}, {where}"

    def __str__(self) -> str:
        return printable("\n".join(self._lines()))

    def _lines(self) -> Iterator[str]:
        margin = self.margin
        seeds = plural(margin.seeds, "seed")
        yield f"FA seed margin: {one_line(self.method)}, {seeds}: {margin.verdict.value}"
        for line in table(self._rows()):
            yield f"    {line}"
        for note in self._notes():
            yield f"    note: {note}"
        kind = margin.interval.kind.replace("image", self.reports[0].unit)
        yield f"    sample sd {margin.seed_sd:.2f} pp; {kind}"
        yield f"    {self._conclusion()}"

    def _rows(self) -> list[list[str]]:
        """The cells of the table: a header, then one row a seed."""
        score_name = self.reports[0].score_name
        rows = [["seed", score_name, "control", "margin/pp", "source of the control"]]
        for report in self.reports:
            row = [
                str(report.seed),
                fraction(report.headline_acc or 0.0),
                fraction(report.frozen_baseline_acc or 0.0),
                pp(report.margin_pp or 0.0),
                report.control.source if report.control else "",
            ]
            rows.append(row)
        return rows

    @property
    def _controls(self) -> list[Control]:
        return [report.control for report in self.reports if report.control]

    @property
    def _doubts(self) -> dict[str, Doubt]:
        """The doubts about the controls by their texts: each is named once."""
        return {doubt.text: doubt for report in self.reports for doubt in report.doubts}

    def _notes(self) -> Iterator[str]:
        """Doubts about the controls, and what limits the interval."""
        fires = self.margin.verdict is SeedVerdict.FIRE
        for text, doubt in self._doubts.items():
            if not (fires and doubt.mismatched):  # the conclusion names those
                yield text
        controls = self._controls
        if any(controls.count(control) > 1 for control in controls):
            yield "several seeds share one control, whose own spread over seeds is not seen"
        if self.margin.caveat:
            yield self.margin.caveat
        if self.margin.seeds == 2:
            yield "two seeds rarely decide; a third may narrow the interval to a third of its width"

    def _conclusion(self) -> str:
        """The headline; where it fails what it means, where it is open what would decide."""
        margin = self.margin
        if margin.verdict is SeedVerdict.PASS:
            return self.headline
        if margin.verdict is SeedVerdict.INCONCLUSIVE:
            return f"seed-margin is inconclusive: {self.headline}. To decide: {margin.needed}"
        mismatches = [text for text, doubt in self._doubts.items() if doubt.mismatched]
        words = margin_in_words(
            margin.margin,
            margin.interval,
            margin.minimum,
            self._controls[0].blocks,
            "; ".join(mismatches),
        )
        return f"seed-margin fails: {self.headline}. {words.meaning}"


def _check(reports: Sequence[Report]) -> None:
    """Refuse what is not several seeds of one method, each with a margin."""
    names = [report.checkpoint or f"{report.method_name}, seed {report.seed}" for report in reports]
    if len({report.method_name for report in reports}) > 1:
        raise AuditError(
            f"expected seeds of one method, got {', '.join(names)}; check their configs"
        )
    for key in ("seed", "checkpoint_sha256", "weights_digest"):
        values = [{"seed": report.seed, **report.environment}.get(key) for report in reports]
        repeated = []
        for name, value in zip(names, values, strict=True):
            if value is not None and values.count(value) > 1:
                repeated.append(name)
        if repeated:
            why = "one training run cannot count as two seeds; leave one out"
            raise AuditError(f"{join_and(repeated)} have the same {key}: {why}")
    for name, report in zip(names, reports, strict=True):
        if report.margin_pp is None:
            raise AuditError(f"{name}: {FrozenMargin().judge(report).headline}")
