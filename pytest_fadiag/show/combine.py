"""Several audits as one: the parts of a divided audit, or audits of different checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from ..judge.errors import AuditError
from ..judge.report import Report
from ..judge.seeds import SeedReport
from ..judge.words import and_more, grouped
from .audit import Audit, Keys, Margin, Outcome, Row, decide, judge, united
from .compare import compare

SAME_OPTIONS = (
    *("checkpoint", "log", "trace", "seeds", "model", "stream", "normalize", "frozen"),
    *("diagnostics", "protocol", "credit"),
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
    for row in (row for audit in audits for row in audit.rows):
        judged = _judged(row, changes, expected)
        other = rows.setdefault(row.checkpoint, judged)
        problems = _contradiction(other, judged)
        if problems:
            raise AuditError(f"two audits of {row.checkpoint}: {problems}; leave one out")
        rows[row.checkpoint] = other if other is judged else other + judged
        for name, value in judged.report.thresholds.by_name().items() if judged.report else ():
            if limits.setdefault(name, value) != value and len(audits) > 1:
                raise AuditError(
                    f"different thresholds: {name} is {limits[name]} in one, {value} in another; "
                    f"say which with --threshold={name}=…"
                )
    if len(audits) == 1 and not changes and expected is None:
        return audits[0]
    recorded = {m.name: m.expected for audit in audits for m in audit.margins if m.expected}
    whole = united(rows.values())
    origins = [audit.origin for audit in audits if audit.origin is not None]
    origin = None
    if len(origins) == len(audits) and len(audits) in (1, len(parts)):
        files = {path: digest for one in origins for path, digest in one.files.items()}
        origin = msgspec.structs.replace(origins[0], files=files)
    return Audit(
        whole,
        margins_of(whole, recorded if margins is None else margins),
        origin=origin,
        interrupted=any(audit.interrupted for audit in audits),
    )


def _check_parts(parts: Sequence[Audit]) -> None:
    """Refuse parts of different audits, and parts of which one is missing."""
    shards = {audit.shard for audit in parts if audit.shard is not None}
    totals = {total for _, total in shards}
    environments = [report.environment for audit in parts for report in audit.reports]
    options = [audit.origin.options if audit.origin else {} for audit in parts]
    facts: dict[str, set[Any]] = {
        f"divided by {' and '.join(map(str, sorted(totals)))}": totals,
        "their test data differ": {e["data_sha256"] for e in environments if "data_sha256" in e},
    }
    for name in SAME_OPTIONS:
        facts[f"--fa-{name} differs"] = {option.get(name) for option in options}
    for why, values in facts.items():
        if len(values) > 1:
            raise AuditError(f"these are parts of different audits: {why}")
    every = [(part, total) for total in totals for part in range(1, total + 1)]
    absent = and_more([f"{part}/{total}" for part, total in every if (part, total) not in shards])
    if absent:
        raise AuditError(f"part {absent} is missing; audit it with --fa-shard={absent}")


def _contradiction(one: Row, other: Row) -> str:
    """Why two rows cannot be of one measurement; nothing where they can."""
    if one.digest and other.digest and one.digest != other.digest:
        return "they are different files"
    if one is other or one.report is None or other.report is None:
        return ""
    return and_more(compare(one.report, other.report).problems, 2)


def _judged(
    row: Row,
    changes: Mapping[str, float | str],
    expected: Callable[[str, str], Keys | None] | None,
) -> Row:
    """The row judged by other thresholds or another record; a test's own failure stays."""
    if row.report is None or not (changes or expected):
        return row
    keys = row.expected if expected is None else expected(row.checkpoint, row.method)
    report = row.report.replace(thresholds=row.report.thresholds.replace(**changes))
    outcomes = dict(row.outcomes)
    for key, outcome in row.outcomes.items():
        if outcome is judge(row.report.finding(key), [key], row.expected):
            outcomes[key] = judge(report.finding(key), [key], keys)
    return msgspec.structs.replace(row, report=report, outcomes=outcomes, expected=keys)


def margins_of(rows: Sequence[Row], recorded: Mapping[str, str]) -> tuple[Margin, ...]:
    """The margin of each group of seeds, computed from its rows."""
    groups = grouped((row.group, row) for row in rows if row.group and row.report is not None)
    margins = []
    for name, seeds in groups.items():
        method, partial, expected = seeds[0].method, seeds[0].partial, recorded.get(name)
        reports = {row.checkpoint: row.report for row in seeds if row.report is not None}
        result, reason = None, ""
        try:
            made = over_seeds(method, reports)
            result, reason = (None, made) if isinstance(made, str) else (made.margin, "")
            outcome = decide(result.verdict.value if result else None, expected)
        except AuditError as error:
            outcome, reason = Outcome.ERROR, str(error)
        margins.append(Margin(name, method, partial, result, outcome, reason, expected))
    return tuple(margins)


def over_seeds(method: str, reports: Mapping[str, Report]) -> SeedReport | str:
    """A method over its seeds, by the ids of their reports; else why it has no margin."""
    for name, report in reports.items():
        finding = report.replace(diagnostics=("frozen-margin",)).finding("d")
        if finding.error or report.nonfinite_outputs:
            problem = finding.error or "its outputs are not finite, so it has no margin"
            raise AuditError(f"{name}: {problem}")
        if not finding.measured:
            return f"{name}: {finding.headline}" if report.control else finding.headline
    minimum = next(iter(reports.values())).thresholds.frozen_acc_margin_pp
    return SeedReport.of(method, list(reports.values()), minimum)
