"""The reporting form: what a paper's appendix says of each method, filled in as far as the audit knows."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from .. import __version__
from ..judge.diagnostics import Diagnostic
from ..judge.diagnostics.frozen_margin import margin
from ..judge.keys import labelled
from ..judge.reference import reference_line
from ..judge.report import DiagnosticReport
from ..judge.trajectory import Trajectory
from ..judge.wording import fraction, limit, listed, points
from .audit import Audit, AuditRow, MarginRow
from .checklist import checklist_lines
from .groups import MethodGroup, seed_groups
from .headline import INTERRUPTED
from .markdown import cells, escaped
from .printable import one_line
from .status import RowStatus, in_a_sentence, in_words

AUTHOR = "*left to the author*"
ENVIRONMENT = {
    "torch": "torch",
    "python": "Python",
    "device": "device",
    "device_name": "device name",
    "dtype": "dtype of the checkpoint",
    "threads": "threads",
    "tf32": "TF32",
    "data_sha256": "test data, SHA-256",
    "checkpoint_sha256": "checkpoint, SHA-256",
}
"""What the environment is called in the form; what is not named here is given under its own name."""


def form(audit: Audit, version: str = __version__) -> str:
    """The filled-in form of every method, in Markdown; what comes from files is escaped."""
    lines = ["# FA reporting form", "", f"Filled in by pytest-fadiag {_text(version)}. What it cannot know is {AUTHOR}."]
    lines += ["", f"The audit was {INTERRUPTED}."] if audit.interrupted else []
    groups = seed_groups(audit)
    shown = [group.margin for group in groups]
    alone = [margin for margin in audit.margins if not any(margin is other for other in shown)]
    if not groups:
        lines += ["", "No method was audited by itself: only its margin over seeds." if alone else "No method was audited."]
    for group in groups:
        lines += ["", f"## {_text(group.label)}"]
        for title, content in _sections(group, audit, version):
            if content:
                lines += ["", f"### {title}", "", *content]
    if alone:
        rows = [(_text(margin.name), _over_seeds(margin)) for margin in alone]
        lines += ["", "## Margins over seeds", "", *cells(("method", "margin over seeds"), rows)]
    if not groups and audit.checklist is not None:
        lines += ["", "## Checklist of pitfalls", "", *checklist_lines(None, audit.checklist)]
    return "\n".join(lines) + "\n"


def _sections(group: MethodGroup, audit: Audit, version: str) -> Iterable[tuple[str, list[str]]]:
    yield "Identification", _identification(group, version)
    yield "Headline numbers", _headline(group)
    for diagnostic in audit.diagnostics:
        yield f"{diagnostic.label}: {escaped(diagnostic.question)}", _diagnostic(group, diagnostic)
    yield "First epoch at which each diagnostic fires", _first_fired(group, audit.diagnostics)
    yield "Control and its provenance", _control(group)
    yield "Thresholds", _thresholds(group.reports)
    yield "Environment", _environment(group)
    yield "Checklist of pitfalls", checklist_lines(group, audit.checklist)


def _identification(group: MethodGroup, version: str) -> list[str]:
    seeds = [row for row in group.rows if row.seed is not None]
    source = "training logs (a partial audit: what a log lacks is bounded or not measured)" if group.partial else "checkpoints"
    fields = [
        ("method", _text(group.method)),
        ("seeds", f"{', '.join(_seed(row) for row in seeds)} (n = {len(seeds)})" if seeds else "not known"),
        ("audited", f"{source}: {', '.join(_text(row.checkpoint) for row in group.rows)}"),
        ("tool", f"pytest-fadiag {_text(version)}"),
        *(("stream", _text("; ".join(named))) for named in [_streams(group)] if named),
        *(("inputs", _text("; ".join(stated))) for stated in [_inputs(group)] if stated),
        *(("reference", _text("; ".join(proven))) for proven in [_references(group)] if proven),
        ("architecture, data, optimiser, epochs", AUTHOR),
    ]
    lines = cells(("field", "value"), fields)
    repeated = sorted(seed for seed, runs in Counter(row.seed for row in seeds).items() if runs > 1 and seed is not None)
    if repeated:
        lines += ["", f"**Warning: {_repeated(repeated)}**"]
    verdicts = [(_seed(row), _text(in_a_sentence(row.status))) for row in group.rows]
    lines += ["", *cells(("seed", "verdict"), verdicts)]
    remarks = [
        f"- {escaped(_name(row), start=True)}: {_text(remark)}"
        for row in group.rows
        if row.report is not None
        for remark in (*row.report.remarks, *row.report.notes.splitlines())
    ]
    return [*lines, *([""] if remarks else []), *remarks]


def _streams(group: MethodGroup) -> list[str]:
    """The streams of its networks, each once."""
    return list(dict.fromkeys(str(report.stream) for report in group.reports if report.stream is not None))


def _inputs(group: MethodGroup) -> list[str]:
    """What its networks were measured on, each statement once."""
    return list(dict.fromkeys(str(report.inputs) for report in group.reports if report.inputs is not None))


def _references(group: MethodGroup) -> list[str]:
    """How the BP gradient of each seed was proven."""
    lines = ((row, "" if row.report is None else reference_line(row.report)) for row in group.rows)
    return [f"seed {_name(row)}: {line}" for row, line in lines if line]


def _repeated(seeds: Sequence[int]) -> str:
    """Runs of one seed differ by something else than their seed, or are the same run twice."""
    which = f"seed {seeds[0]} occurs" if len(seeds) == 1 else f"seeds {listed(map(str, seeds))} occur"
    return f"{which} more than once, so n counts runs and not seeds, and the spread below is not one over seeds."


def _headline(group: MethodGroup) -> list[str]:
    reports = group.reports
    if not reports:
        return []
    margins = [margin(report) for report in reports]
    fields = [
        ("accuracy", _spread([report.headline_acc for report in reports], fraction)),
        ("accuracy of the control", _spread([report.frozen_baseline_acc for report in reports], fraction)),
        ("margin, percentage points", _spread(margins, points)),
        ("margin over seeds", _over_seeds(group.margin)),
    ]
    return cells(("number", "mean ± sample sd"), fields)


def _over_seeds(row: MarginRow | None) -> str:
    if row is None or row.margin is None:
        reason = f": {_text(row.reason)}" if row is not None and row.reason else ""
        return f"not tested{reason}"
    over = row.margin
    bounds = f"95 % interval {points(over.interval.low)} to {points(over.interval.high)} ({_text(over.interval.kind)})"
    text = f"**{over.verdict.value}**: {points(over.margin)} pp, {bounds}, minimum {limit(over.minimum)} pp, n = {over.seeds}"
    return f"{text}; {_text(over.caveat)}" if over.caveat else text


def _spread(values: Sequence[float | None], show: Callable[[float], str]) -> str:
    numbers = [value for value in values if value is not None]
    if not numbers:
        return "not measured"
    mean = show(statistics.fmean(numbers))
    of = f"n = {len(numbers)}" if len(numbers) == len(values) else f"n = {len(numbers)} of {len(values)}"
    return f"{mean} ± {statistics.stdev(numbers):.2g} ({of})" if len(numbers) > 1 else f"{mean} ({of}, no spread)"


def _diagnostic(group: MethodGroup, diagnostic: Diagnostic) -> list[str]:
    """One line a seed: the outcome, the number against its threshold, and every layer."""
    rows = []
    for row in group.rows:
        if row.report is None:
            rows.append((_seed(row), "not measured", _text(row.reason or in_words(row.status)), ""))
            continue
        key, status, finding = diagnostic.key, row.status, row.report.finding(diagnostic.key)
        outcome, said = _text(finding.outcome), _text(finding.headline)
        if key in status.fired:
            outcome = f"**{outcome}**"
        elif key in status.broken:
            outcome, said = "error", _text(row.reason) or said
        elif key not in status.judged:
            outcome, said = "not run", f"{said} (not part of this run)"
        values = [] if row.report.lacks(diagnostic) else diagnostic.values(row.report)
        rows.append((_seed(row), outcome, said, "; ".join(map(_text, values))))
    return cells(("seed", "outcome", "number and threshold", "values"), rows)


def _first_fired(group: MethodGroup, diagnostics: Sequence[Diagnostic]) -> list[str]:
    rows = []
    for row in group.rows:
        trajectory = None if row.report is None else row.report.trajectory
        if trajectory is not None:
            epochs = [_epoch(row.status, trajectory, diagnostic.key) for diagnostic in diagnostics]
            rows.append((_seed(row), *epochs, f"{trajectory.epochs[0]} to {trajectory.epochs[-1]}"))
    return cells(("seed", *(labelled(diagnostic.key) for diagnostic in diagnostics), "epochs logged"), rows)


def _epoch(status: RowStatus, trajectory: Trajectory, key: str) -> str:
    epoch = trajectory.first_fired.get(key)
    if key not in status.judged:
        return "not run"
    if epoch is None and key not in trajectory.known:
        return "not measured" if key in status.unmeasured else "not logged by epoch"
    if epoch is None:
        return "only in the final numbers" if key in status.fired else "never"
    return str(epoch) if key in status.fired else f"{epoch} (not at the end)"


def _control(group: MethodGroup) -> list[str]:
    rows = []
    for row in group.rows:
        if row.report is None or row.report.frozen_baseline_acc is None:
            continue
        control, value = row.report.control, fraction(row.report.frozen_baseline_acc)
        if control is None:
            rows.append((_seed(row), "not said", value, "not known", AUTHOR))
            continue
        images = f"{control.accuracy.images:,}" if control.accuracy.images else "not known"
        rows.append((_seed(row), control.kind.value, value, images, _text(control.describe(row.method, row.seed))))
    if not rows:
        return [f"No control was supplied, so (d) is not measured: {AUTHOR}."] if group.reports else []
    lines = cells(("seed", "kind", "accuracy", "test images", "provenance"), rows)
    same = f"that it was trained with the same method, optimiser, epochs and data as the network: {AUTHOR}"
    return [*lines, "", f"- [ ] {same}"]


def _thresholds(reports: Sequence[DiagnosticReport]) -> list[str]:
    if not reports:
        return []
    published = reports[0].available.thresholds().by_name()
    rows = []
    for name, default in published.items():
        used = sorted({_number(report.thresholds.by_name().get(name, default)) for report in reports})
        shown = ", ".join(used)
        rows.append((_text(name), shown if used == [_number(default)] else f"**{shown}** (default {_number(default)})"))
    return cells(("threshold", "value"), rows)


def _number(value: float | str) -> str:
    return _text(value) if isinstance(value, str) else limit(value)


def _environment(group: MethodGroup) -> list[str]:
    rows = [row for row in group.rows if row.report is not None]
    names = dict.fromkeys([*ENVIRONMENT, *(name for row in rows if row.report is not None for name in row.report.environment)])
    fields = []
    for name in names:
        values = {
            _seed(row): _plain(row.report.environment[name]) for row in rows if row.report and name in row.report.environment
        }
        if values:
            alike = len(set(values.values())) == 1 and len(values) == len(rows)
            each = "; ".join(f"seed {seed}: {_text(value)}" for seed, value in values.items())
            fields.append((_text(ENVIRONMENT.get(name, name)), _text(next(iter(values.values()))) if alike else each))
    if not fields:
        return [f"Not recorded: {AUTHOR}."] if rows else []
    return cells(("item", "value"), fields)


def _plain(value: str | int | bool) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _seed(row: AuditRow) -> str:
    return escaped(_name(row))


def _name(row: AuditRow) -> str:
    """The seed of a row, or where it has none its file."""
    return one_line(row.checkpoint) if row.seed is None else str(row.seed)


def _text(text: str) -> str:
    return escaped(one_line(text))
