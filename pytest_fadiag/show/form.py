"""The reporting form of a paper, on one page: what is common is said once, then a row a method and seed."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from .. import __version__
from ..judge.diagnostics import Diagnostic
from ..judge.diagnostics.frozen_margin import margin
from ..judge.keys import labelled
from ..judge.reference import reference_line
from ..judge.report import DiagnosticReport
from ..judge.trajectory import Trajectory
from ..judge.wording import count, figure, fraction, limit, listed, points
from .audit import Audit, AuditRow, MarginRow
from .checklist import checklist_lines
from .groups import MethodGroup, seed_groups, whose_control
from .headline import headline
from .markdown import cells, escaped
from .notes import notes_of
from .numbers import deciding
from .printable import one_line
from .share import MEANS, TITLE, share_of_bp
from .status import RowStatus, in_words
from .training import SUBJECTS, common, configured, own, unlike_its_control

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
}
"""What the environment is called in the form; what is not named here is given under its own name."""
APART = ("checkpoint_sha256", "weights_digest", "feedback_saved", "not_cached")
"""What of it is said of each file, in the checklist, or among the remarks."""


def form(audit: Audit, version: str = __version__) -> str:
    """The filled-in form of an audit, in Markdown; what comes from files is escaped."""
    groups = seed_groups(audit)
    lines = ["# FA reporting form", "", _about(audit, version)]
    for title, content in _sections(audit, groups):
        if content:
            lines += ["", f"## {title}", "", *content]
    return "\n".join(lines) + "\n"


def _about(audit: Audit, version: str) -> str:
    made = "" if audit.origin is None else f" on {_text(audit.origin.created[:10])}"
    if audit.origin is not None and audit.origin.commit:
        made += f" from commit {_text(audit.origin.commit)}"
    filled = f"Filled in by pytest-fadiag {_text(version)}{made}. What it cannot know is {AUTHOR}."
    found = headline(audit)
    return f"{found[:1].upper()}{found[1:]}. {filled}"


def _sections(audit: Audit, groups: Sequence[MethodGroup]) -> Iterable[tuple[str, list[str]]]:
    reports = [report for group in groups for report in group.reports]
    yield "Setting", _setting(audit, groups) if groups else ["No method was audited by itself."]
    yield "Results", _results(audit, groups)
    yield "Methods", _methods(audit, groups)
    yield "First epoch at which each diagnostic fires", _first_fired(audit, groups)
    yield "Remarks", _remarks(audit, groups)
    yield "Checklist of pitfalls", checklist_lines(reports, audit.checklist) if groups or audit.checklist is not None else []
    yield "Layer by layer", _layers(audit, groups)


def _setting(audit: Audit, groups: Sequence[MethodGroup]) -> list[str]:
    """What was audited, how it was trained and how it was measured; where rows differ, who differs how."""
    reports = [report for group in groups for report in group.reports]
    said, told = common(reports), len(configured(reports))
    silent = f" (as {told} of {count(len(reports), 'file')} say; the others have no config)" if told < len(reports) else ""
    names = dict.fromkeys([*ENVIRONMENT, *(name for report in reports for name in report.environment)])
    environment = [(ENVIRONMENT.get(name, name), _each(groups, _used(name))) for name in names if name not in APART]
    fields = [
        ("audited", _audited(audit)),
        ("command", "" if audit.origin is None else audit.origin.command),
        *((subject, f"{said[subject]}{silent}" if subject in said else _differs(reports, subject)) for subject in SUBJECTS),
        *((subject, f"{text}{silent}") for subject, text in said.items() if subject not in SUBJECTS),
        ("stream", _each(groups, lambda report: "" if report.stream is None else str(report.stream))),
        ("inputs", _each(groups, lambda report: "" if report.inputs is None else str(report.inputs))),
        ("reference", _each(groups, _proven(reports))),
        ("thresholds", _thresholds(reports)),
        ("environment", ", ".join(f"{name} {text}" for name, text in environment if text) or ("" if not reports else AUTHOR)),
    ]
    return cells(("item", "value"), [(name, text if text == AUTHOR else _text(text)) for name, text in fields if text])


def _used(name: str) -> Callable[[DiagnosticReport], str]:
    """What a report was measured with, by its name."""

    def text(report: DiagnosticReport) -> str:
        value = report.environment.get(name)
        return "" if value is None else ("yes" if value else "no") if isinstance(value, bool) else str(value)

    return text


def _audited(audit: Audit) -> str:
    logs = sum(row.partial for row in audit.rows)
    parts = [count(number, noun) for number, noun in ((len(audit.rows) - logs, "checkpoint"), (logs, "training log")) if number]
    partial = " (a partial audit: what a log lacks is bounded or not measured)" if logs else ""
    return f"{listed(parts)}{partial}"


def _differs(reports: Sequence[DiagnosticReport], subject: str) -> str:
    """What stands in the place of a setting that is not common to all."""
    told = any(subject in common([report]) for report in reports)
    return "differs between methods or seeds, see their own settings below" if told else AUTHOR


def _each(groups: Sequence[MethodGroup], of: Callable[[DiagnosticReport], str]) -> str:
    """What all reports say alike once, else what each method says, or each seed where these differ."""
    said: dict[str, list[str]] = {}
    for group in groups:
        texts = {_name(row): of(row.report) for row in group.rows if row.report is not None}
        alike = len(set(texts.values())) == 1
        for name, text in {"": next(iter(texts.values()))}.items() if alike else texts.items():
            said.setdefault(text, []).append(f"{group.label} {name}".strip())
    if len(said) < 2:
        return next(iter(said), "")
    return "; ".join(f"{', '.join(names)}: {text}" for text, names in said.items() if text)


def _proven(reports: Sequence[DiagnosticReport]) -> Callable[[DiagnosticReport], str]:
    """How a BP gradient was proven, with the largest error among all."""
    worst = max((report.reference_error for report in reports if report.reference_error is not None), default=0.0)

    def line(report: DiagnosticReport) -> str:
        error, text = report.reference_error, reference_line(report)
        return text if error is None else text.replace(f"to {figure(error)}", f"to {figure(worst)} or better", 1)

    return line


def _thresholds(reports: Sequence[DiagnosticReport]) -> str:
    defaults = {name: value for report in reports for name, value in report.available.thresholds().by_name().items()}
    said = []
    for name, default in defaults.items():
        used = sorted({_number(report.thresholds.by_name().get(name, default)) for report in reports})
        changed = "" if used == [_number(default)] else f" (default {_number(default)})"
        said.append(f"{name} {' or '.join(used)}{changed}")
    return ", ".join(said)


def _results(audit: Audit, groups: Sequence[MethodGroup]) -> list[str]:
    """A row a method and seed, and what the letters ask."""
    titles = [f"{labelled(diagnostic.key)} {escaped(diagnostic.columns[-1].title)}" for diagnostic in audit.diagnostics]
    rows = [
        (_text(group.label), _seed(row), _shown(row), *(_outcome(audit, row, d) for d in audit.diagnostics), _verdict(row))
        for group in groups
        for row in group.rows
    ]
    asked = [f"- {escaped(diagnostic.label)}: {escaped(diagnostic.question)}" for diagnostic in audit.diagnostics]
    return [*cells(("method", "seed", "acc", *titles, "verdict"), rows), "", *asked] if rows else []


def _shown(row: AuditRow) -> str:
    return "–" if row.report is None or row.report.headline_acc is None else fraction(row.report.headline_acc)


def _verdict(row: AuditRow) -> str:
    words = _text(in_words(row.status, mark=""))
    return f"**{words}**" if row.status.fired else words


def _outcome(audit: Audit, row: AuditRow, diagnostic: Diagnostic) -> str:
    """What a diagnostic says of a row, with its number, or without one the reason."""
    if row.report is None:
        return "–"
    key, status, finding = diagnostic.key, row.status, row.report.finding(diagnostic.key)
    if diagnostic in row.report.shown:
        return " ".join(
            filter(None, ["shown, not judged:", _text(diagnostic.columns[-1].written(row.report) or "not measured")])
        )
    column = deciding(audit.columns, row.report, finding)
    number = None if column is None else column.written(row.report)
    outcome, said = _text(finding.outcome), f": {_text(finding.headline)}" if number is None else f" {_text(number)}"
    if key in status.fired:
        return f"**{outcome}**{said}"
    if key in status.broken:
        return f"error{said}"
    return f"{outcome}{said}" if key in status.judged else "not run"


def _methods(audit: Audit, groups: Sequence[MethodGroup]) -> list[str]:
    """The means over seeds, the control and what a method was trained with that others were not."""
    everyone = [report for group in groups for report in group.reports]
    caveats = {group.margin.margin.caveat for group in groups if group.margin is not None and group.margin.margin is not None}
    shared = len(caveats) == 1 and caveats != {""}
    shares = [share_of_bp(audit, group) for group in groups]
    rows = []
    for group, share in zip(groups, shares, strict=True):
        reports = group.reports
        rows.append(
            (
                _text(group.label),
                str(len(group.rows)),
                _spread([report.headline_acc for report in reports], fraction),
                _control(group),
                _spread([margin(report) for report in reports], points),
                _over_seeds(group.margin, caveat=not shared),
                *(["–" if share is None else f"{share:.2f}"] if any(s is not None for s in shares) else []),
                _text(own(reports, everyone)) or "–",
            )
        )
    given = [TITLE] if any(share is not None for share in shares) else []
    head = ("method", "n", "accuracy", "control", "margin, pp", "margin over seeds", *given, "its own settings")
    shown = [group.margin for group in groups]
    alone = [margin for margin in audit.margins if not any(margin is other for other in shown)]
    over_seeds = cells(("method", "margin over seeds"), [(_text(margin.name), _over_seeds(margin)) for margin in alone])
    lines = cells(head, rows)
    lines += ["", f"Margins over seeds: {_text(caveats.pop())}."] if shared else []
    lines += ["", f"{TITLE}: {MEANS}."] if given else []
    if any(report.frozen_baseline_acc is not None for report in everyone):
        lines += ["", *_fairness(groups)]
    return [*lines, *([""] if lines and over_seeds else []), *over_seeds]


def _control(group: MethodGroup) -> str:
    """The control's accuracy, its kind and whose it is."""
    reports = [report for report in group.reports if report.frozen_baseline_acc is not None]
    if not reports:
        return f"none supplied: {AUTHOR}" if group.reports else "–"
    whose = _text(whose_control(reports, group.method))
    return f"{_spread([report.frozen_baseline_acc for report in group.reports], fraction)}; {whose}"


def _fairness(groups: Sequence[MethodGroup]) -> Iterator[str]:
    """Whether the controls were trained as their networks were, by what both say of it."""
    same = "each control was trained by the same method, optimiser, epochs and data as its network"
    compared = [
        (group.label, unlike_its_control(report))
        for group in groups
        for report in group.reports
        if report.frozen_baseline_acc is not None
    ]
    differences = {label: unlike for label, unlike in compared if unlike}
    unknown = list(dict.fromkeys(label for label, unlike in compared if unlike is None))
    if not differences and not unknown:
        yield f"- [x] {same}: their configs are the same"
    for label, unlike in differences.items():
        yield f"- [ ] ✗ {_text(label)} and its control: {_text('; '.join(unlike))}"
    if unknown:
        whose = "" if len(unknown) == len(groups) else f" of {_text(listed(unknown))}, which no two configs tell"
        yield f"- [ ] {same}{whose}: {AUTHOR}"


def _over_seeds(row: MarginRow | None, *, caveat: bool = True) -> str:
    if row is None or row.margin is None:
        reason = f": {_text(row.reason)}" if row is not None and row.reason else ""
        return f"not tested{reason}"
    over = row.margin
    bounds = f"95 % interval {points(over.interval.low)} to {points(over.interval.high)} ({_text(over.interval.kind)})"
    text = f"**{over.verdict.value}**: {points(over.margin)}, {bounds}, minimum {limit(over.minimum)}"
    return f"{text}; {_text(over.caveat)}" if caveat and over.caveat else text


def _spread(values: Sequence[float | None], show: Callable[[float], str]) -> str:
    """The mean and the sample standard deviation, and of how many seeds where not of all."""
    numbers = [value for value in values if value is not None]
    if not numbers:
        return "–"
    spread = f" ± {statistics.stdev(numbers):.2g}" if len(numbers) > 1 else ""
    return f"{show(statistics.fmean(numbers))}{spread}" + (f" (n = {len(numbers)})" if len(numbers) < len(values) else "")


def _first_fired(audit: Audit, groups: Sequence[MethodGroup]) -> list[str]:
    rows = []
    for group in groups:
        for row in group.rows:
            trajectory = None if row.report is None else row.report.trajectory
            if trajectory is not None:
                epochs = [_epoch(row.status, trajectory, diagnostic.key) for diagnostic in audit.diagnostics]
                rows.append((_text(group.label), _seed(row), *epochs, f"{trajectory.epochs[0]} to {trajectory.epochs[-1]}"))
    return cells(("method", "seed", *(labelled(diagnostic.key) for diagnostic in audit.diagnostics), "epochs logged"), rows)


def _epoch(status: RowStatus, trajectory: Trajectory, key: str) -> str:
    epoch = trajectory.first_fired.get(key)
    if key not in status.judged:
        return "not run"
    if epoch is None and key not in trajectory.known:
        return "not measured" if key in status.unmeasured else "not logged by epoch"
    if epoch is None:
        return "only in the final numbers" if key in status.fired else "never"
    return str(epoch) if key in status.fired else f"{epoch} (not at the end)"


def _remarks(audit: Audit, groups: Sequence[MethodGroup]) -> list[str]:
    """The notes below the table, what was noted of a row, and seeds that occur twice."""
    said = [*notes_of(audit.rows)]
    for group in groups:
        for row in group.rows:
            if row.report is not None:
                said += [f"{group.label} {_name(row)}: {note}" for note in _own_notes(row.report)]
        repeated = sorted(
            seed for seed, runs in Counter(row.seed for row in group.rows).items() if runs > 1 and seed is not None
        )
        said += [f"{group.label}: {_repeated(repeated)}"] if repeated else []
    return [f"- {escaped(one_line(remark), start=True)}" for remark in said]


def _own_notes(report: DiagnosticReport) -> list[str]:
    """The notes of a report without the name of its file, which the form gives elsewhere."""
    parts = [part for line in report.notes.splitlines() for part in line.split("; ")]
    return [part for part in parts if part and not (report.checkpoint and part.startswith(report.checkpoint))]


def _repeated(seeds: Sequence[int]) -> str:
    """Runs of one seed differ by something else than their seed, or are the same run twice."""
    which = f"seed {seeds[0]} occurs" if len(seeds) == 1 else f"seeds {listed(map(str, seeds))} occur"
    return f"{which} more than once, so n counts runs and not seeds, and the spread above is not one over seeds"


def _layers(audit: Audit, groups: Sequence[MethodGroup]) -> list[str]:
    """Every number of every seed, and which file and which control it is of."""
    rows = []
    for group in groups:
        for row in group.rows:
            if row.report is not None:
                values = [row.report.lacks(d) or d.values(row.report) for d in audit.diagnostics]
                numbers = ["–" if value is True else "; ".join(map(_text, value or ())) for value in values]
                rows.append((_text(group.label), _seed(row), _file(row, row.report), *numbers, _provenance(row, row.report)))
    titles = [labelled(diagnostic.key) for diagnostic in audit.diagnostics]
    return cells(("method", "seed", "file, SHA-256", *titles, "control"), rows)


def _file(row: AuditRow, report: DiagnosticReport) -> str:
    digest = str(report.environment.get("checkpoint_sha256", ""))
    return _text(f"{row.checkpoint}, {digest[:12]}…" if digest else row.checkpoint)


def _provenance(row: AuditRow, report: DiagnosticReport) -> str:
    if report.control is None:
        return "–" if report.frozen_baseline_acc is None else AUTHOR
    images = f", {report.control.accuracy.images:,} images" if report.control.accuracy.images else ""
    return _text(f"{report.control.describe(row.method, row.seed)}{images}")


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else limit(value)


def _seed(row: AuditRow) -> str:
    return escaped(_name(row))


def _name(row: AuditRow) -> str:
    """The seed of a row, or where it has none its file."""
    return one_line(row.checkpoint) if row.seed is None else str(row.seed)


def _text(text: str) -> str:
    return escaped(one_line(text))
