"""What every output says about a row, a margin over seeds and a whole audit."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from ..judge.diagnostics import Diagnostic, OpenKind
from ..judge.report import Report
from ..judge.seed_margins import SeedVerdict
from ..judge.thresholds import DiagnosticThresholds
from ..judge.verdict import Verdict, Word
from ..judge.words import and_more, join_and, limit, one_line, plural
from .audit import Audit, Margin, Outcome, Row

GROUPS = (Word.WALK_BACK, Word.INCOMPLETE, Word.TRUSTWORTHY, Word.AS_GIVEN, None)
"""The verdicts of an audit in the order in which they are read."""
TONES = {Word.WALK_BACK: "red", Word.INCOMPLETE: "yellow"}
COUNTED: dict[Word | None, str] = {
    Word.WALK_BACK: Word.WALK_BACK.value,
    Word.TRUSTWORTHY: Word.TRUSTWORTHY.value,
    Word.AS_GIVEN: Word.AS_GIVEN.value,
    Word.INCOMPLETE: Word.INCOMPLETE.value,
    None: "without a verdict",
}
RESULTS = {SeedVerdict.PASS: "pass", SeedVerdict.FIRE: "fail"}
"""How the headline counts margins; any other is inconclusive."""
NUMBER = re.compile(r"(?<![\w.,])[+−]?(?:\d+\.\d+(?:e-?\d+)?|\d{1,3}(?:,\d{3})+)(?![\w,])")
"""A decimal, or thousands: what may differ between sentences that are shown as one."""
COMMAND = "fadiag control"
OF_CONTROL = ("model", "stream", "data", "forward")
"""The options that it shares with an audit."""
MARKS = {Word.WALK_BACK: "✗", Word.INCOMPLETE: "~", None: "!"}
"""Before the verdict of one network or of several."""
FAILED = "✗ fails"
UNDECIDED = "~ undecided: threshold inside the 95 % CI"
IN_DOUBT = "? in doubt, or only likely"
EXEMPTED = "^ exceeds its threshold; exempted (reason in the report)"
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
    verdict = row.conclusion
    if verdict.word is None:
        return _without_verdict(row)
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


def mark(word: Word | None) -> str:
    """The mark of a verdict."""
    return MARKS.get(word, "✓")


def details(row: Row) -> str:
    """What a table that is grouped by verdict and marks its numbers does not show of a row."""
    verdict = row.conclusion
    if verdict.errors and verdict.word is None:
        return "error"
    if verdict.word is None:
        return _without_verdict(row)
    texts = [f"{key} likely" for key in verdict.fired if key in verdict.likely]
    for key, state in verdict.undecided.items():
        is_unmeasured = verdict.word is not Word.WALK_BACK and key in verdict.unmeasured
        is_marked = state.kind is OpenKind.NOT_RESOLVED
        if state.kind.untested or (is_unmeasured and not is_marked):
            texts.append(f"{key} {state.kind.value}")
    if row.as_expected is False:
        texts.append(f"expected {' '.join(row.expected or ()) or 'nothing'}")
    return "; ".join(texts)


def _without_verdict(row: Row) -> str:
    if row.conclusion.errors and row.reason:
        return one_line(f"error: {row.reason}")
    if row.conclusion.errors:
        return "error"
    if row.conclusion.not_run:
        return "not run"
    return "skipped"


def _with_doubt(key: str, verdict: Verdict) -> str:
    if key in verdict.likely:
        return f"{key}?"
    return key


def _undecided_keys(verdict: Verdict) -> dict[str, list[str]]:
    """The keys of what did not come out, by the state that a table gives them."""
    keys: dict[str, list[str]] = {}
    for key, state in verdict.undecided.items():
        name = state.kind.value
        if state.kind.in_doubt:
            name = "in doubt"
        keys.setdefault(name, []).append(key)
    return keys


def tone(row: Row) -> str:
    """The colour of these words: red, green, yellow, or none for a row that was skipped."""
    verdict = row.conclusion
    if verdict.word is not None:
        return TONES.get(verdict.word, "green")
    if verdict.errors or verdict.not_run:
        return "red"
    return ""


def margin_words(row: Margin, *, bounds: bool = True) -> str:
    """What became of a margin over seeds: «margin < 2 pp [−14.5, −9.5]», «inconclusive …»."""
    if row.margin is None:
        return _without_margin(row)
    minimum = limit(row.margin.minimum)
    by_verdict = {
        "PASS": f"margin ≥ {minimum} pp",
        "FIRE": f"margin < {minimum} pp",
        "INCONCLUSIVE": "inconclusive",
    }
    text = by_verdict[row.margin.verdict]
    if bounds:
        interval = row.margin.interval
        text += f" [{interval.low:+.1f}, {interval.high:+.1f}]".replace("-", "−")
    if row.as_expected is False:
        text += f", expected {by_verdict.get(row.expected or '', '').removeprefix('margin ')}"
    return text


def _without_margin(row: Margin) -> str:
    if row.outcome is Outcome.SKIPPED:
        return "margin not judged"
    if row.outcome is Outcome.ERROR and row.reason:
        return one_line(f"error: {row.reason}")
    return str(row.outcome.value)


def headline(audit: Audit) -> str:
    """The audit in one sentence: how many results stand, and margins over seeds."""
    parts = []
    if len(audit.rows) == 1:
        parts.append(f"{title_of(audit.rows[0])}: {words(audit.rows[0])}")
    elif audit.rows:
        parts.append(f"{audited(audit)}: {_counted(audit)}")
    if audit.margins:
        results = Counter(map(_result, audit.margins))
        counts = [f"{count} {result}" for result, count in results.items()]
        parts.append(f"seed margins: {', '.join(counts)}")
    text = "; ".join(parts) or "nothing was audited"
    if audit.interrupted:
        return f"interrupted: {text}"
    return text


def title_of(row: Row) -> str:
    """«dfa, seed 42»."""
    if row.seed is None:
        return one_line(row.method)
    return f"{one_line(row.method)}, seed {row.seed}"


def advice(audit: Audit) -> str:
    """What not to claim: «Do not claim dfa or dfa-lam as they stand.»"""
    methods: dict[str, None] = {}
    for row in audit.rows:
        if row.conclusion.word is Word.WALK_BACK:
            methods[one_line(row.method)] = None
    if not methods:
        return ""
    verb = "it stands" if len(methods) == 1 else "they stand"
    return f"Do not claim {and_more(list(methods), 6).replace(' and ', ' or ')} as {verb}."


def more(audit: Audit) -> str:
    """How to see more of an audit on a terminal."""
    report = "-v for the report"
    if len(audit.rows) > 1:
        name = min(audit.rows, key=lambda row: GROUPS.index(row.conclusion.word)).checkpoint
        report = f"-k {one_line(name.rpartition('/')[2])} -v for one report"
    return f"{report} · --fa-report=html for charts"


def audited(audit: Audit) -> str:
    """What was audited: «3 checkpoints and 1 log»."""
    counts = Counter(map(_kind, audit.rows))
    parts = []
    for kind in ("checkpoint", "trace", "log"):
        if counts[kind]:
            parts.append(plural(counts[kind], kind))
    return " and ".join(parts)


def _kind(row: Row) -> str:
    if row.partial:
        return "log"
    if row.report is not None and row.report.trace:
        return "trace"
    return "checkpoint"


def _counted(audit: Audit) -> str:
    """How many rows have each verdict: «2 to walk back, 1 trustworthy»."""
    counts = Counter(row.conclusion.word for row in audit.rows)
    parts = [f"{counts[word]} {name}" for word, name in COUNTED.items() if counts[word]]
    return ", ".join(parts)


def _result(row: Margin) -> str:
    if row.margin is None:
        return row.outcome.value
    return RESULTS.get(row.margin.verdict, "inconclusive")


def legend(audit: Audit) -> list[str]:
    """What the marks of a table mean, as far as they occur, and whether the record is met."""
    return [*_marks(audit), *_record(audit)]


def _marks(audit: Audit) -> Iterator[str]:
    verdicts = [row.conclusion for row in audit.rows]
    if any(verdict.fired for verdict in verdicts):
        yield FAILED
    states = [state.kind for verdict in verdicts for state in verdict.undecided.values()]
    if OpenKind.NOT_RESOLVED in states:
        yield UNDECIDED
    if any(kind.in_doubt or kind is OpenKind.LIKELY for kind in states):
        yield IN_DOUBT
    if any(verdict.exempted for verdict in verdicts):
        yield EXEMPTED
    for row in audit.rows:
        if row.report and {*row.report.first_fired} - {*row.conclusion.fired}:
            yield "first failed: the epoch; in brackets: passes at the end"
            return


def _record(audit: Audit) -> Iterator[str]:
    """Whether the verdicts are those that a record has."""
    verdicts = {row.checkpoint: row.as_expected for row in audit.rows}
    margins = {f"{row.name}::seed-margin": row.as_expected for row in audit.margins}
    differing = []
    for name, is_as_expected in (verdicts | margins).items():
        if is_as_expected is False:
            differing.append(one_line(name))
    record = "the record"
    if audit.origin and "expect" in audit.origin.options:
        path = audit.origin.options["expect"][-1]
        record = one_line(path.rpartition("/")[2])
    if differing:
        yield f"differs from {record}: {and_more(differing)}"
        return
    parts = []
    for noun, results in (("verdict", verdicts), ("seed margin", margins)):
        matching = [*results.values()].count(True)
        if matching:
            parts.append(plural(matching, noun))
    if parts:
        verb = "matches" if parts == ["1 verdict"] else "match"
        yield f"{join_and(parts)} {verb} {record}"


def notes(audit: Audit) -> list[str]:
    """Remarks on rows, one for all that differ in numbers alone, and on the audit as a whole."""
    lines = [*_errors(audit), *_remarks(audit), *_mixtures(audit)]
    changed = _changed_thresholds(audit)
    if changed:
        lines.append(f"non-default thresholds: {', '.join(changed)}")
    return list(map(one_line, lines))


def _errors(audit: Audit) -> Iterator[str]:
    """Why tests were errors, each reason once."""
    reasons: dict[str, list[str]] = {}
    for row in audit.rows:
        if row.conclusion.errors and row.reason:
            reason = row.reason.removeprefix(f"{row.checkpoint}: ")
            reasons.setdefault(reason, []).append(row.checkpoint)
    for reason, names in reasons.items():
        yield f"{and_more(names)}: {reason}"


def _remarks(audit: Audit) -> Iterator[str]:
    """The remarks of all reports."""
    remarks = []
    for row in audit.rows:
        for remark in row.report.remarks if row.report else ():
            remarks.append((row, remark))
    for rows, text in _alike(remarks):
        yield text if len(audit.rows) == 1 else f"{_named(rows)}: {text}"


def next_steps(audit: Audit) -> list[str]:
    """What to do about each result that is not trustworthy, or to write about it.

    >>> next_steps(Audit(()))
    []
    """
    options = ""
    if audit.origin is not None:
        for name in OF_CONTROL:
            for value in audit.origin.options.get(name, ()):
                options += f" --{name}={shlex.quote(value)}"
    steps = []
    for row in audit.rows:
        step = row.conclusion.next
        if row.report is not None and row.report.checkpoint:
            of_report = f"{COMMAND} {shlex.quote(one_line(row.report.checkpoint))}"
            step = step.replace(of_report, f"{COMMAND} FILE{options}")
        if step:
            steps.append((row, step))
    lines = []
    for rows, text in _alike(steps):
        subject = f"{_named(rows)}: " if len(audit.rows) > 1 else ""
        path = shlex.quote(rows[0].checkpoint) if len(rows) == 1 else "FILE"
        lines.append(one_line(subject + text.replace(f"{COMMAND} FILE", f"{COMMAND} {path}")))
    return lines


def _alike(sentences: Iterable[tuple[Row, str]]) -> Iterator[tuple[list[Row], str]]:
    """Sentences about rows; those that differ in numbers alone as one, with their ranges."""
    alike: dict[str, list[tuple[Row, str]]] = {}
    for row, sentence in sentences:
        alike.setdefault(NUMBER.sub("\0", sentence), []).append((row, sentence))
    for pattern, occurrences in alike.items():
        numbers = [NUMBER.findall(sentence) for _, sentence in occurrences]
        text = pattern
        for values in zip(*numbers, strict=True):
            text = text.replace("\0", _range(values), 1)
        yield [row for row, _ in occurrences], text


def _named(rows: Sequence[Row]) -> str:
    """One row by its id, several by their methods."""
    if len(rows) == 1:
        return rows[0].checkpoint
    methods = dict.fromkeys(row.method for row in rows)
    return f"{and_more(list(methods), 9)} ({len(rows)} networks)"


def _mixtures(audit: Audit) -> Iterator[str]:
    """In what the rows were not measured alike."""
    for name, description in ENVIRONMENT.items():
        values = set()
        for report in audit.reports:
            if name in report.environment:
                values.add(str(report.environment[name]))
        if len(values) > 1:
            yield f"these rows differ in their {description}: {', '.join(sorted(values))}"


def _changed_thresholds(audit: Audit) -> list[str]:
    """Thresholds other than the published ones, each once."""
    published = DiagnosticThresholds().by_name()
    changed = []
    for report in audit.reports:
        for name, value in report.thresholds.by_name().items():
            if value != published.get(name, value):
                changed.append(f"{name} {_value(value)} (default {_value(published[name])})")
    return list(dict.fromkeys(changed))


def rule(diagnostic: Diagnostic, audit: Audit) -> str:
    """When a diagnostic fires: «growth > 50×»."""
    limits = {limit(diagnostic.limit(report)) for report in audit.reports}
    text = diagnostic.fails_if or f"{diagnostic.threshold} {{}}"
    return text.format(" or ".join(sorted(limits)) or "–")


def score_name(reports: Sequence[Report]) -> str:
    """What the tasks of these reports call their score; «score» where they differ."""
    names = {report.score_name for report in reports}
    if not names:
        return "accuracy"
    if len(names) > 1:
        return "score"
    return names.pop()


def cache_summary(audit: Audit) -> str:
    """How many numbers were not measured in this run: «3 of 21 from the cache», else nothing."""
    measured = 0
    cached = 0
    for row in audit.rows:
        if row.digest and not row.partial:
            measured += 1
            cached += row.cached
    if not cached:
        return ""
    return f"{cached} of {measured} from the cache"


def about(audit: Audit) -> dict[str, str]:
    """What was measured: data, network, loss, and the task where that is not classes."""
    topics: dict[str, dict[str, None]] = {}
    for report in audit.reports:
        if report.environment and not report.partial:
            for topic, text in _about(report):
                topics.setdefault(topic, {})[text] = None
    texts = {topic: and_more(list(distinct)) for topic, distinct in topics.items()}
    if texts.get("task") == "classes":
        del texts["task"]
    return texts


def _about(report: Report) -> Iterator[tuple[str, str]]:
    """The topics of one report that have a text."""
    data = []
    if report.inputs is not None:
        data.append(str(report.inputs))
    if report.score is not None and report.score.images:
        is_image = report.inputs is not None and report.inputs.pixels
        data.append(plural(report.score.images, "image" if is_image else "sample"))
    if data:
        yield "data", ", ".join(data)
    if report.stream is not None:
        yield "network", str(report.stream)
    elif report.trace:
        yield "network", "given as arrays"
    if report.loss_assumed:
        yield "loss", f"{report.loss} (assumed)"
    elif report.loss:
        yield "loss", report.loss
    if report.task:
        yield "task", report.task


def setting(audit: Audit) -> dict[str, str]:
    """The same, and by which thresholds it was judged."""
    if not audit.reports:
        return about(audit)
    rules = [f"({diagnostic.key}) {rule(diagnostic, audit)}" for diagnostic in audit.diagnostics]
    return about(audit) | {"fails if": " · ".join(rules)}


def _value(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return limit(value)


def _range(numbers: Sequence[str]) -> str:
    """Equal numbers once, others from the least to the largest."""
    ends = sorted(set(numbers), key=lambda text: float(text.replace("−", "-").replace(",", "")))
    if len(ends) == 1:
        return ends[0]
    return f"{ends[0]} to {ends[-1]}"
