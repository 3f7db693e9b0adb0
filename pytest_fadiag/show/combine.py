"""Several audits as one: the parts of a divided audit, or audits of different checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from ..judge.diagnostics.frozen_margin import FrozenMargin
from ..judge.errors import AuditError
from ..judge.report import Report
from ..judge.seed_margins import SeedVerdict
from ..judge.seeds import SeedReport
from ..judge.words import and_more, grouped
from .audit import Audit, Keys, Margin, Origin, Outcome, Row, decide, outcome_of, united
from .compare import compare

SAME_OPTIONS = (
    *("checkpoint", "log", "trace", "seeds", "model", "stream", "normalize", "frozen"),
    *("diagnostics", "protocol", "credit", "step"),
)
"""Options that the parts of one audit share; data and thresholds are compared by rows."""


def combine(
    audits: Sequence[Audit],
    thresholds: Mapping[str, float | str] | None = None,
    expected: Callable[[str, str], Keys | None] | None = None,
    margins: Mapping[str, str] | None = None,
) -> Audit:
    """The rows of all audits with the margins over their seeds; a contradiction is an error.

    ``thresholds`` judge all rows again, ``expected`` says by id and method what a record expects to
    fire, ``margins`` what it expects of margins over seeds.

    >>> combine([read_audit(Path("1.json")), read_audit(Path("2.json"))])  # doctest: +SKIP
    """
    changes = thresholds or {}
    parts = [audit for audit in audits if audit.shard is not None]
    _check_parts(parts)
    rows: dict[str, Row] = {}
    limits: dict[str, object] = {}
    for audit in audits:
        for row in audit.rows:
            judged = _judged(row, changes, expected)
            rows[row.checkpoint] = _united(rows.get(row.checkpoint), judged)
            if len(audits) > 1 and judged.report is not None:
                _check_thresholds(judged.report, limits)
    if len(audits) == 1 and not changes and expected is None:
        return audits[0]
    if margins is None:
        margins = _recorded_margins(audits)
    ordered = united(rows.values())
    origin = None
    if len(audits) in (1, len(parts)):
        origin = _origin(audits)
    return Audit(
        ordered,
        margins_of(ordered, margins),
        origin=origin,
        interrupted=any(audit.interrupted for audit in audits),
    )


def _recorded_margins(audits: Sequence[Audit]) -> dict[str, str]:
    """What a record expected of each margin when it was audited."""
    recorded = {}
    for audit in audits:
        for margin in audit.margins:
            if margin.expected:
                recorded[margin.name] = margin.expected
    return recorded


def _check_parts(parts: Sequence[Audit]) -> None:
    """Refuse parts of different audits, and parts of which one is missing."""
    reason = next(_differences(parts), "")
    if reason:
        raise AuditError(f"these are parts of different audits: {reason}")
    total = 0
    numbers = set()
    for audit in parts:
        if audit.shard is not None:
            number, total = audit.shard
            numbers.add(number)
    absent = [f"{part}/{total}" for part in range(1, total + 1) if part not in numbers]
    if absent:
        names = and_more(absent)
        raise AuditError(f"part {names} is missing; audit it with --fa-shard={names}")


def _differences(parts: Sequence[Audit]) -> Iterator[str]:
    """Why these cannot be parts of one audit."""
    totals = {audit.shard[1] for audit in parts if audit.shard is not None}
    if len(totals) > 1:
        yield f"divided by {' and '.join(map(str, sorted(totals)))}"
    test_data = set()
    for audit in parts:
        for report in audit.reports:
            if "data_sha256" in report.environment:
                test_data.add(report.environment["data_sha256"])
    if len(test_data) > 1:
        yield "their test data differ"
    for name in SAME_OPTIONS:
        values = set()
        for audit in parts:
            options: Mapping[str, tuple[str, ...]] = {}
            if audit.origin is not None:
                options = audit.origin.options
            values.add(options.get(name, ()))
        if len(values) > 1:
            yield f"--fa-{name} differs"


def _judged(
    row: Row,
    changes: Mapping[str, float | str],
    expected: Callable[[str, str], Keys | None] | None,
) -> Row:
    """The row judged by other thresholds or another record; a test's own failure stays."""
    if row.report is None or not (changes or expected):
        return row
    keys = row.expected
    if expected is not None:
        keys = expected(row.checkpoint, row.method)
    report = row.report.replace(thresholds=row.report.thresholds.replace(**changes))
    outcomes = dict(row.outcomes)
    for key, outcome in row.outcomes.items():
        if outcome is outcome_of(row.report.finding(key), [key], row.expected):
            outcomes[key] = outcome_of(report.finding(key), [key], keys)
    return replace(row, report=report, outcomes=outcomes, expected=keys)


def _united(earlier: Row | None, row: Row) -> Row:
    """Both rows of one checkpoint as one; refused where they cannot be of one measurement."""
    if earlier is None or earlier is row:
        return row
    problems = ""
    if earlier.digest and row.digest and earlier.digest != row.digest:
        problems = "they are different files"
    elif earlier.report is not None and row.report is not None:
        problems = and_more(compare(earlier.report, row.report).problems, 2)
    if problems:
        raise AuditError(f"two audits of {row.checkpoint}: {problems}; leave one out")
    return earlier + row


def _check_thresholds(report: Report, limits: dict[str, object]) -> None:
    """Refuse a threshold that differs from an earlier report's, and note new ones."""
    for name, value in report.thresholds.by_name().items():
        earlier = limits.setdefault(name, value)
        if earlier != value:
            raise AuditError(
                f"different thresholds: {name} is {earlier} in one, {value} in another; "
                f"say which with --threshold={name}=…"
            )


def _origin(audits: Sequence[Audit]) -> Origin | None:
    """The origin of the first with the files of all; nothing where one has none."""
    origins = []
    files: dict[str, str] = {}
    for audit in audits:
        if audit.origin is None:
            return None
        origins.append(audit.origin)
        files |= audit.origin.files
    return replace(origins[0], files=files)


def margins_of(rows: Sequence[Row], recorded: Mapping[str, str]) -> tuple[Margin, ...]:
    """The margin of each group of seeds, computed from its rows."""
    groups = grouped((row.group, row) for row in rows if row.group and row.report is not None)
    return tuple(_margin(name, seeds, recorded.get(name)) for name, seeds in groups.items())


def _margin(name: str, rows: Sequence[Row], expected: str | None) -> Margin:
    """The margin of one group; an error is its outcome."""
    method = rows[0].method
    reports = {row.checkpoint: row.report for row in rows if row.report is not None}
    margin = None
    reason = ""
    try:
        result = over_seeds(method, reports)
        if isinstance(result, str):
            reason = result
            outcome = decide(None, expected)
        else:
            margin = result.margin
            outcome = decide(margin.verdict.value, expected)
    except AuditError as error:
        outcome = Outcome.ERROR
        reason = str(error)
    return Margin(name, method, rows[0].partial, margin, outcome, reason, expected)


def over_seeds(method: str, reports: Mapping[str, Report]) -> SeedReport | str:
    """A method over its seeds, by the ids of their reports; else why it has no margin."""
    for name, report in reports.items():
        finding = report.replace(diagnostics=(FrozenMargin.name,)).findings[0]
        if finding.error or report.nonfinite_outputs:
            problem = finding.error or "its outputs are not finite, so it has no margin"
            raise AuditError(f"{name}: {problem}")
        if report.margin is None and report.control:
            return f"{name}: {finding.headline}"
        if report.margin is None:
            return finding.headline
    minimum = next(iter(reports.values())).thresholds.frozen_acc_margin_pp
    result = SeedReport.of(method, list(reports.values()), minimum)
    is_short = result.margin.verdict is not SeedVerdict.PASS and result.margin.interval.high >= 0
    if is_short and any(report.twin and report.twin.asks_no_depth for report in reports.values()):
        return f"BP needs no depth here: this task cannot tell ({result.headline})"
    return result
