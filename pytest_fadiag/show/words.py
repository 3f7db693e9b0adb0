"""What every output says about a row, a margin over seeds and a whole audit."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from ..judge.diagnostics import Diagnostic
from ..judge.margins import SeedVerdict
from ..judge.report import Report
from ..judge.thresholds import DiagnosticThresholds
from ..judge.verdict import Verdict, Word
from ..judge.words import and_more, grouped, limit, one_line, plural
from .audit import Audit, Margin, Outcome, Row

TONES = {Word.WALK_BACK: "red", Word.INCOMPLETE: "yellow"}
COUNTED: dict[Word | None, str] = {
    Word.WALK_BACK: "to walk back",
    Word.TRUSTWORTHY: Word.TRUSTWORTHY.value,
    Word.AS_GIVEN: Word.AS_GIVEN.value,
    Word.INCOMPLETE: Word.INCOMPLETE.value,
    None: "without a verdict",
}
DECIMAL = re.compile(r"(?<![\w.])[+−]?\d+\.\d+(?:e-?\d+)?(?!\w)")
FAILED = "✗ fails its threshold"
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


def words(row: Row) -> str:
    """What became of a row: «walk back (a b? d)», «trustworthy (e not measured)», «error: …».

    >>> words(Row("runs/bp_s42.pt", "bp", outcomes={"a": Outcome.NOT_RUN}))
    'not run'
    """
    verdict = row.status
    if verdict.word is None:
        if verdict.errors:
            return one_line(f"error: {row.reason}" if row.reason else "error")
        return "not run" if verdict.not_run else "skipped"
    details = []
    if verdict.fired:
        details.append(" ".join(_with_doubt(key, verdict) for key in verdict.fired))
    for state, keys in _undecided_keys(verdict).items():
        details.append(f"{' '.join(keys)} {state}")
    text = verdict.word.value
    if details:
        text += f" ({'; '.join(details)})"
    if row.as_expected is False:
        text += f", expected {' '.join(row.expected or ()) or 'nothing'}"
    return text


def _with_doubt(key: str, verdict: Verdict) -> str:
    return f"{key}?" if key in verdict.likely else key


def _undecided_keys(verdict: Verdict) -> dict[str, list[str]]:
    """The keys of what did not come out, by the state that a table gives them."""
    keys: dict[str, list[str]] = {}
    for key, state in verdict.undecided.items():
        name = "in doubt" if state.kind.in_doubt else state.kind.value
        keys.setdefault(name, []).append(key)
    return keys


def tone(row: Row) -> str:
    """The colour of these words: red, green, yellow, or none for a row that was skipped."""
    verdict = row.status
    if verdict.word is None:
        return "red" if verdict.errors or verdict.not_run else ""
    return TONES.get(verdict.word, "green")


def margin_words(row: Margin, *, bounds: bool = True) -> str:
    """What became of a margin over seeds: «margin < 2 pp [−14.5, −9.5]», «inconclusive …»."""
    if row.margin is None:
        reason = f": {row.reason}" if row.reason and row.outcome is Outcome.ERROR else ""
        skipped = row.outcome is Outcome.SKIPPED
        return one_line("margin not judged" if skipped else f"{row.outcome.value}{reason}")
    minimum, interval = limit(row.margin.minimum), row.margin.interval
    said = {
        "PASS": f"margin ≥ {minimum} pp",
        "FIRE": f"margin < {minimum} pp",
        "INCONCLUSIVE": "inconclusive",
    }
    text = said[row.margin.verdict]
    text += f" [{interval.low:+.1f}, {interval.high:+.1f}]".replace("-", "−") if bounds else ""
    expected = said.get(row.expected or "", "").removeprefix("margin ")
    return f"{text}, expected {expected}" if row.as_expected is False else text


def headline(audit: Audit) -> str:
    """The audit in one sentence: how many results stand, and margins over seeds."""
    verdicts = Counter(row.status.word for row in audit.rows)
    parts = [
        f"{verdicts[verdict]} {said}" for verdict, said in COUNTED.items() if verdicts[verdict]
    ]
    kinds = Counter(
        "log" if row.partial else "trace" if row.report and row.report.trace else "checkpoint"
        for row in audit.rows
    )
    nouns = [noun for noun in ("checkpoint", "trace", "log") if kinds[noun]]
    audited = " and ".join(plural(kinds[noun], noun) for noun in nouns)
    said = [f"{audited}: {', '.join(parts)}"] if audit.rows else []
    if len(audit.rows) == 1:
        row = audit.rows[0]
        seed = "" if row.seed is None else f", seed {row.seed}"
        said = [f"{one_line(row.method)}{seed}: {words(row)}"]
    results = {SeedVerdict.PASS: "pass", SeedVerdict.FIRE: "fail"}
    margins = Counter(
        results.get(row.margin.verdict, "inconclusive") if row.margin else row.outcome.value
        for row in audit.margins
    )
    if margins:
        said.append("seed margins: " + ", ".join(f"{n} {word}" for word, n in margins.items()))
    text = "; ".join(said) or "nothing was audited"
    return f"interrupted: {text}" if audit.interrupted else text


def legend(audit: Audit) -> list[str]:
    """What the marks of a table mean, as far as they occur, and whether the record is met."""
    statuses = [row.status for row in audit.rows]
    lines = [FAILED] if any(s.fired for s in statuses) else []
    lines += [LIKELY] if any(set(s.likely) & set(s.fired) for s in statuses) else []
    lines += [EXEMPTED] if any(s.exempted for s in statuses) else []
    if any(row.report and {*row.report.first_fired} - {*row.status.fired} for row in audit.rows):
        lines.append("first fired: the epoch; in brackets: passes at the end")
    compared = {row.checkpoint: row.as_expected for row in audit.rows}
    compared |= {f"{row.name}::seed-margin": row.as_expected for row in audit.margins}
    known = [name for name, same in compared.items() if same is not None]
    differ = [one_line(name) for name in known if not compared[name]]
    options = audit.origin.options if audit.origin else {}
    record = one_line(options.get("expect", ("the record",))[-1].rpartition("/")[2])
    if differ:
        count = f"{len(differ)} of {plural(len(known), 'verdict')}"
        lines.append(f"differs from {record}: {count} ({and_more(differ)})")
    elif known:
        lines.append(f"all {len(known)} verdicts match {record}")
    return lines


def notes(audit: Audit) -> list[str]:
    """Remarks on rows, one for all that differ in numbers alone, and on the audit as a whole."""
    alike = grouped(
        (DECIMAL.sub("\0", remark), (row, remark))
        for row in audit.rows
        for remark in (row.report.remarks if row.report else ())
    )
    said = []
    for form, held in alike.items():
        numbers = zip(*(DECIMAL.findall(remark) for _, remark in held), strict=True)
        methods = list(dict.fromkeys(row.method for row, _ in held))
        several = f"{and_more(methods, 9)} ({len(held)} networks)"
        ends = iter([_range(found) for found in numbers])
        text = "".join(part + next(ends, "") for part in form.split("\0"))
        said.append(f"{several if held[1:] else held[0][0].checkpoint}: {text}")
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
    return [one_line(note) for note in said]


def rule(diagnostic: Diagnostic, audit: Audit) -> str:
    """When a diagnostic fires: «growth > 50×»."""
    limits = {limit(diagnostic.limit(report)) for report in audit.reports}
    text = diagnostic.fails_if or f"{diagnostic.threshold} {{}}"
    return text.format(" or ".join(sorted(limits)) or "–")


def score_name(reports: Sequence[Report]) -> str:
    """What the tasks of these reports call their score; «score» where they differ."""
    names = {report.score_name for report in reports} or {"accuracy"}
    return names.pop() if len(names) == 1 else "score"


def made(audit: Audit) -> str:
    """How many numbers were not measured in this run: «3 of 21 from the cache», else nothing."""
    held = [row.cached for row in audit.rows if row.digest and not row.partial]
    return f"{sum(held)} of {len(held)} from the cache" if any(held) else ""


def about(audit: Audit) -> dict[str, str]:
    """What was measured: data, network, loss, and the task where that is not classes."""
    found = grouped(
        (what, text)
        for report in audit.reports
        if report.environment and not report.partial
        for what, text in _about(report).items()
        if text
    )
    said = {what: and_more(list(dict.fromkeys(texts))) for what, texts in found.items()}
    return {what: text for what, text in said.items() if (what, text) != ("task", "classes")}


def _about(report: Report) -> dict[str, str]:
    pixels = report.inputs is not None and report.inputs.pixels
    count = report.score.images if report.score else None
    size = plural(count, "image" if pixels else "sample") if count else ""
    return {
        "data": ", ".join(filter(None, (str(report.inputs or ""), size))),
        "network": str(report.stream or "given as arrays" * report.trace),
        "loss": report.loss + " (assumed)" * report.loss_assumed,
        "task": report.task,
    }


def setting(audit: Audit) -> dict[str, str]:
    """The same, and by which thresholds it was judged."""
    rules = " · ".join(f"({d.key}) {rule(d, audit)}" for d in audit.diagnostics)
    return about(audit) | {"fails if": rules} if audit.reports else {}


def _value(value: float | str) -> str:
    return value if isinstance(value, str) else limit(value)


def _range(numbers: Sequence[str]) -> str:
    """Equal numbers once, others from the least to the largest."""
    ends = sorted(set(numbers), key=lambda text: float(text.replace("−", "-")))
    return ends[0] if len(ends) == 1 else f"{ends[0]} to {ends[-1]}"
