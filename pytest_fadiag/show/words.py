"""What every output says about a row, a margin over seeds and a whole audit."""

from __future__ import annotations

from collections import Counter

from ..judge.diagnostics import Diagnostic
from ..judge.margins import SeedVerdict
from ..judge.thresholds import DiagnosticThresholds
from ..judge.words import and_more, limit, one_line, plural
from .audit import Audit, Margin, Outcome, RowStatus, Verdict

TONES = {
    Verdict.WALK_BACK: "red",
    Verdict.TRUSTWORTHY: "green",
    Verdict.AS_GIVEN: "green",
    Verdict.INCOMPLETE: "yellow",
}
SHORT_STATES = ("not measured", "not resolved", "not asked for", "likely", "error", "not run")
"""States of a diagnostic that a table says in full; any other is «in doubt»."""
EXEMPTED = "^ exceeds its threshold; exempted (reason in the report)"
LIKELY = "? likely, as far as a log tells"
ENVIRONMENT = {
    "torch": "torch versions",
    "device": "devices",
    "threads": "numbers of threads",
    "tf32": "TF32 settings",
    "data_sha256": "test data",
}
"""What should be the same for all rows of an audit."""


def words(status: RowStatus) -> str:
    """What became of a row: «walk back (a b? d)», «trustworthy (e not measured)», «error: …».

    >>> words(RowStatus(verdict=Verdict.WALK_BACK, fired=("a", "d"), errors=("f",)))
    'walk back (a d; f error)'
    """
    if status.verdict is None:
        error = one_line(f"error: {status.reason}" if status.reason else "error")
        return error if status.errors else "not run" if status.not_run else "skipped"
    states = status.unmeasured | status.undecided
    states |= dict.fromkeys(status.not_run, "not run") | dict.fromkeys(status.errors, "error")
    by_state: dict[str, list[str]] = {}
    for key, state in states.items():
        by_state.setdefault(state if state in SHORT_STATES else "in doubt", []).append(key)
    fired = " ".join(f"{key}?" if key in status.likely else key for key in status.fired)
    details = [fired, *(f"{' '.join(keys)} {state}" for state, keys in by_state.items())]
    text = "; ".join(filter(None, details))
    differs = f", expected {' '.join(status.expected or ()) or 'nothing'}"
    return (
        status.verdict.value
        + (f" ({text})" if text else "")
        + (differs if status.as_expected is False else "")
    )


def tone(status: RowStatus) -> str:
    """The colour of these words: red, green, yellow, or none for a row that was skipped."""
    if status.verdict is None:
        return "red" if status.errors or status.not_run else ""
    return TONES[status.verdict]


def margin_words(row: Margin, *, bounds: bool = True) -> str:
    """What became of a margin over seeds: «margin < 2 pp [−14.5, −9.5]», «inconclusive …»."""
    if row.margin is None:
        reason = f": {row.reason}" if row.reason and row.outcome is Outcome.ERROR else ""
        skipped = row.outcome is Outcome.SKIPPED
        return one_line("no control" if skipped else f"{row.outcome.value}{reason}")
    minimum, interval = limit(row.margin.minimum), row.margin.interval
    said = {
        SeedVerdict.PASS.value: f"margin ≥ {minimum} pp",
        SeedVerdict.FIRE.value: f"margin < {minimum} pp",
        SeedVerdict.INCONCLUSIVE.value: "inconclusive",
    }
    text = said[row.margin.verdict.value]
    text += f" [{interval.low:+.1f}, {interval.high:+.1f}]".replace("-", "−") if bounds else ""
    differs = row.as_expected is False
    expected = said.get(row.expected or "", "").removeprefix("margin ")
    return f"{text}, expected {expected}" if differs else text


def headline(audit: Audit) -> str:
    """The audit in one sentence: how many results stand, margins over seeds, published forms."""
    verdicts = Counter(row.status.verdict for row in audit.rows)
    said_of = {Verdict.WALK_BACK: "to walk back", None: "without a verdict"}
    parts = [
        f"{verdicts[verdict]} {said_of.get(verdict) or (verdict and verdict.value)}"
        for verdict in (*Verdict, None)
        if verdicts[verdict]
    ]
    logs = sum(row.partial for row in audit.rows)
    traces = sum(report.trace for report in audit.reports)
    files = len(audit.rows) - logs - traces
    kinds = [(files, "checkpoint"), (traces, "trace"), (logs, "log")]
    audited = " and ".join(plural(number, noun) for number, noun in kinds if number)
    said = [f"{audited}: {', '.join(parts)}"] if audit.rows else []
    if len(audit.rows) == 1:
        row = audit.rows[0]
        seed = "" if row.seed is None else f", seed {row.seed}"
        said = [f"{one_line(row.method)}{seed}: {words(row.status)}"]
    results = {SeedVerdict.PASS: "pass", SeedVerdict.FIRE: "fail"}
    margins = Counter(
        results.get(row.margin.verdict, "inconclusive") if row.margin else row.outcome.value
        for row in audit.margins
    )
    if margins:
        said.append("seed margins: " + ", ".join(f"{n} {word}" for word, n in margins.items()))
    forms = Counter(row.status.published.partition("(")[0] for row in audit.rows)
    if any(forms):
        counts = (f"{forms[word]} {word}" for word in ("PASS", "FAIL", "INCOMPLETE") if forms[word])
        said.append("D1 to D3: " + ", ".join(counts))
    text = "; ".join(said) or "nothing was audited"
    return f"interrupted: {text}" if audit.interrupted else text


def legend(audit: Audit) -> list[str]:
    """What the marks of a table mean, as far as they occur, and whether the record is met."""
    statuses = [row.status for row in audit.rows]
    lines = [LIKELY] if any(set(s.likely) & set(s.fired) for s in statuses) else []
    lines += [EXEMPTED] if any(s.exempted for s in statuses) else []
    if any(set(row.first_fired) - set(row.status.fired) for row in audit.rows):
        lines.append("first fired: the epoch; in brackets: passes at the end")
    compared = [s.as_expected for s in statuses] + [row.as_expected for row in audit.margins]
    known = [same for same in compared if same is not None]
    options = audit.origin.options if audit.origin else {}
    record = one_line(options.get("expect", ("the record",))[-1].rpartition("/")[2])
    if known and all(known):
        lines.append(f"all {len(known)} verdicts match {record}")
    elif known:
        lines.append(
            f"differs from {record}: {known.count(False)} of {plural(len(known), 'verdict')}"
        )
    return lines


def notes(audit: Audit) -> list[str]:
    """Remarks on rows, each once with the rows that it holds for, and on the audit as a whole."""
    names: dict[str, list[str]] = {}
    for row in audit.rows:
        for remark in row.report.remarks if row.report else ():
            names.setdefault(remark, []).append(row.checkpoint)
    said = [f"{and_more(rows, 1)}: {remark}" for remark, rows in names.items()]
    for name, what in ENVIRONMENT.items():
        values = {str(r.environment[name]) for r in audit.reports if name in r.environment}
        if len(values) > 1:
            said.append(f"these rows differ in their {what}: {', '.join(sorted(values))}")
    published = DiagnosticThresholds().by_name()
    changed = {
        f"{name} {_value(value)} (default {_value(published[name])})": None
        for report in audit.reports
        for name, value in report.thresholds.by_name().items()
        if value != published.get(name, value)
    }
    said += [f"non-default thresholds: {', '.join(changed)}"] if changed else []
    cached = sum(row.cached for row in audit.rows)
    said += [f"{cached} of {plural(len(audit.rows), 'result')} from the cache"] if cached else []
    return [one_line(note) for note in said]


def rule(diagnostic: Diagnostic, audit: Audit) -> str:
    """When a diagnostic fires, in words: «fails if growth > 50×»."""
    forms = {
        "a": "growth > {}×",
        "b": "‖g_L‖ < {}, also per unit of output error",
        "c": "cosine > {}",
        "d": "margin < {} pp",
        "e": "depth utility < {} pp",
        "f": "share of aligned blocks ≤ {}",
    }
    limits = {limit(diagnostic.limit(report)) for report in audit.reports}
    text = forms.get(diagnostic.key, f"{diagnostic.threshold} {{}}")
    return "fails if " + text.format(" or ".join(sorted(limits)) or "–")


def setting(audit: Audit) -> list[str]:
    """On which data and by which rules: «data: fashion-mnist …», «fails if growth > 50× · …»."""
    reports = audit.reports
    data = list(dict.fromkeys(str(report.inputs) for report in reports if report.inputs))
    rules = [rule(diagnostic, audit).removeprefix("fails if ") for diagnostic in audit.diagnostics]
    said = {
        "per_block": "per-block growth",
        "cumulative": "cumulative growth",
        "excuse": "known confounds exempted",
        "flag": "nothing exempted",
    }
    used = dict.fromkeys(
        name for r in reports for name in (r.thresholds.growth, r.thresholds.confounds)
    )
    lines = [f"data: {and_more(data)}"] if data else []
    lines += [f"a diagnostic fails if: {' · '.join(rules)}"] if reports else []
    return lines + ([f"settings: {'; '.join(said[name] for name in used)}"] if used else [])


def fired_counts(audit: Audit, key: str) -> tuple[int, int]:
    """In how many rows a diagnostic fired, and how many have an answer."""
    fired = sum(key in row.status.fired for row in audit.rows)
    return fired, fired + sum(key in row.status.passed for row in audit.rows)


def _value(value: float | str) -> str:
    return value if isinstance(value, str) else limit(value)
