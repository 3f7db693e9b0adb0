"""The audit figure: per method the norms over depth, the drift and the margin, each against its threshold."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ...judge.bounds import segments
from ...judge.diagnostics.frozen_margin import interval, margin
from ...judge.diagnostics.residual_growth import allowed_norm, compared
from ...judge.report import DiagnosticReport
from ...judge.wording import fraction, limit
from ..audit import Audit, AuditRow
from ..groups import MethodGroup, seed_groups, whose_control
from ..headline import fired_counts
from . import style
from .scales import Scale
from .shared import Scales, shared_scales
from .style import FAINT, GREY, INK, LABEL, RULE, TICK, TITLE, Key, Mark, fitted, head, mark_of, panel, ruled, say

# Inches. Drift and margin stand beside each other and share the labels of the seeds.
PANELS = {"a": (0.42, 1.62), "b": (2.48, 1.62), "c": (4.66, 0.9), "d": (5.68, 1.22)}
HEAD, FOOT = 0.37, 0.31
"""Above a method's panels, its name and its results; below the last ones, ticks and what the axes show."""
LOWEST, HIGHEST, SEED = 0.62, 1.3, 0.105
"""A panel's height grows with the seeds, each of which has its line in drift and margin."""
FEW_LAYERS = 12
"""Up to so many layers each has its symbol."""
LONGEST_CONTROL = 1.6
"""Inches for whose control it is."""
RULES = {"a": "‖h_l‖; growth > {}", "b": "‖g_l‖; ‖g_L‖ < {}", "c": "drift > {}", "d": "margin < {} pp"}
"""What a panel shows and when its diagnostic fires, in the space above it."""


def audit_pages(audit: Audit) -> list[Figure]:
    """One figure, or as many as the methods need to stay readable."""
    groups = [group for group in seed_groups(audit) if group.reports]
    scales = shared_scales(groups)
    key = _key(groups)
    pages: list[list[MethodGroup]] = [[]]
    height = start = key.height + FOOT
    for group in groups:
        needed = HEAD + _height(group)
        if pages[-1] and height + needed > style.TALLEST:
            pages.append([])
            height = start
        pages[-1].append(group)
        height += needed
    return [_page(page, scales, key) for page in pages]


def _page(groups: Sequence[MethodGroup], scales: Scales, key: Key) -> Figure:
    figure = style.new_figure(key.height + FOOT + sum(HEAD + _height(group) for group in groups))
    key.draw(figure)
    top = key.height
    points = "pp" if math.isinf(scales.margin.knee) else "pp (asinh scale)"
    for group in groups:
        _name(figure, group, top)
        top, height = top + HEAD, _height(group)
        for (symbol, (left, width)), what in zip(PANELS.items(), ("layer l", "layer l", "cosine", points), strict=True):
            axes = panel(figure, left, top, width, height)
            text, fires = _heading(group, symbol)
            head(axes, text, width + 0.08, bold=fires)
            _PAINTERS[symbol](axes, group, scales)
            if group is groups[-1]:
                axes.set_xlabel(what)
            else:
                axes.tick_params(axis="x", labelbottom=False)
        top += height
    return figure


def _key(groups: Sequence[MethodGroup]) -> Key:
    """What the symbols mean, as far as they occur."""
    measured = [pair for group in groups for pair in _measured(group)]
    marks = {mark_of(row, key) for row, report in measured for key in RULES if report.finding(key).measured}
    samples = [mark.sample() for mark in style.OUTCOMES if mark in marks]
    samples.append(Line2D([], [], label="threshold", **RULE))
    if any(_steep(report) for _, report in measured):
        samples.append(Line2D([], [], label="growth above the ratio", color=style.GLOW, lw=4, solid_capstyle="butt"))
    if any(None in report.residual_norms[1:-1] for _, report in measured):
        samples.append(Line2D([], [], label="not logged between", color=GREY, linestyle=":"))
    if any(group.seed_margin is not None for group in groups):
        samples.append(Line2D([], [], label="all seeds", color=INK, lw=1.6, marker="d", markersize=4))
    return Key(samples, "a line or symbol is a seed, a bar its 95 % interval; 2/3: fires in two of three seeds")


def _name(figure: Figure, group: MethodGroup, top: float) -> None:
    left, said = PANELS["a"][0], _said(group)
    name = fitted(group.label, style.WIDTH - left - 0.2 - style.measured(said, LABEL), TITLE, "bold")
    say(figure, left, top + 0.18, name, size=TITLE, weight="bold")
    say(figure, style.WIDTH - 0.08, top + 0.18, said, color=GREY, horizontalalignment="right")
    say(figure, PANELS["c"][0] - 0.05, top + HEAD - 0.05, "seed", size=TICK, color=GREY, horizontalalignment="right")


def _said(group: MethodGroup) -> str:
    """Accuracy, control and the verdict on the seeds together, as far as they are known."""
    parts = []
    accuracies = [report.headline_acc for report in group.reports if report.headline_acc is not None]
    controlled = [report for report in group.reports if report.frozen_baseline_acc is not None]
    controls = [report.frozen_baseline_acc for report in controlled if report.frozen_baseline_acc is not None]
    whose = fitted(whose_control(controlled, group.method), LONGEST_CONTROL)
    for name, values in (("accuracy", accuracies), (whose, controls)):
        if values:
            spread = f" ± {statistics.stdev(values):.4f}" if len(set(values)) > 1 else ""
            parts.append(f"{name} {fraction(statistics.fmean(values))}{spread}")
    if group.seed_margin is not None:
        parts.append(f"margin over {group.seed_margin.seeds} seeds: {group.seed_margin.verdict.value}")
    if not all(report.depth_known for report in group.reports):
        parts.append("depth not known")
    failed = len(group.rows) - len(group.reports)
    return "; ".join([*parts, f"{failed} not measured"] if failed else parts)


def _heading(group: MethodGroup, key: str) -> tuple[str, bool]:
    """When a diagnostic fires and how often it did, and whether at all."""
    measured = [(row, report.finding(key)) for row, report in _measured(group) if report.finding(key).measured]
    if not measured:
        return f"({key}) not measured", False
    rule = RULES[key].format(" or ".join(map(limit, sorted({finding.threshold for _, finding in measured}))))
    rows = [row for row, _ in measured]
    fired, answered = fired_counts(rows, key)
    none = "error" if any(key in row.status.broken for row in rows) else "not run"
    return f"({key}) {rule}: {f'{fired}/{answered}' if answered else none}", bool(fired)


def _measured(group: MethodGroup) -> list[tuple[AuditRow, DiagnosticReport]]:
    """The rows that have a report, with it."""
    return [(row, row.report) for row in group.rows if row.report is not None]


def _states(axes: Axes, group: MethodGroup, scales: Scales) -> None:
    scale = scales.states
    ruled(axes, scales.layer, "x", grid=False)
    ruled(axes, scale, "y")
    for row, report in _worst_last(group, "a"):
        for start, end, before, after in _steep(report):
            ends = [scale.place(before), scale.place(after)]
            axes.plot([start, end], ends, color=style.GLOW, lw=4, solid_capstyle="butt", zorder=1)
        _norms(axes, report.residual_norms, scale, mark_of(row, "a"))
    for first, most, growth in {_guide(report) for report in group.reports}:
        if first is None or most is None or not 0 < first < math.inf or not 0 < most < math.inf:
            continue
        ends = [first, most] if growth == "per_block" else [most] * 2
        across = [0, 1] if growth == "per_block" else list(scales.layer.limits)
        axes.plot(across, [scale.place(end) for end in ends], **RULE)


def _guide(report: DiagnosticReport) -> tuple[float | None, float | None, str]:
    """The first norm, and what the one behind the first block is held against."""
    return report.residual_norms[0], allowed_norm(report, 0, min(1, len(report.residual_norms) - 1)), report.thresholds.growth


def _steep(report: DiagnosticReport) -> list[tuple[int, int, float, float]]:
    """The blocks, or the stretches of blocks, that grow by more than the ratio."""
    if report.thresholds.growth != "per_block":
        return []
    ratio = report.thresholds.h_norm_explosion_ratio
    sizes, norms = compared(report), report.residual_norms
    parts = segments(sizes if report.depth_known else sizes[:-1])
    return [(part.start, part.end, norms[part.start] or 0.0, norms[part.end] or 0.0) for part in parts if part.exceeds(ratio)]


def _gradients(axes: Axes, group: MethodGroup, scales: Scales) -> None:
    ruled(axes, scales.layer, "x", grid=False)
    ruled(axes, scales.gradients, "y")
    for floor in {report.thresholds.g_norm_floor for report in group.reports}:
        if 0 < floor < math.inf:
            axes.axhline(scales.gradients.place(floor), **RULE)
    for row, report in _worst_last(group, "b"):
        _norms(axes, report.bp_grad_norms, scales.gradients, mark_of(row, "b"))


def _worst_last(group: MethodGroup, key: str) -> list[tuple[AuditRow, DiagnosticReport]]:
    """What fired is drawn over what passed."""
    return sorted(_measured(group), key=lambda pair: -style.OUTCOMES.index(mark_of(pair[0], key)))


def _norms(axes: Axes, norms: Sequence[float | None], scale: Scale, mark: Mark) -> None:
    """One seed's norms: solid between neighbours, dotted over layers that were not logged."""
    logged = [index for index, norm in enumerate(norms) if norm is not None]
    places = [scale.place(norm) for norm in norms]
    if len(logged) < len(norms):
        axes.plot(logged, [places[index] for index in logged], color=mark.colour, linestyle=":", lw=0.7, zorder=3)
    every = 1 if len(norms) <= FEW_LAYERS or len(logged) < len(norms) else len(norms) // 8
    axes.plot(range(len(norms)), places, markevery=every, **mark.look(0.85))


def _lines(group: MethodGroup) -> int:
    return len(group.reports) + (group.seed_margin is not None)


def _height(group: MethodGroup) -> float:
    return min(max(LOWEST, SEED * _lines(group)), HIGHEST)


def _seed_axis(axes: Axes, group: MethodGroup, *, labelled: bool) -> None:
    """A line for each seed from the top, and one for all of them at the bottom."""
    lines = _lines(group)
    axes.set_ylim(lines - 0.5, -0.5)
    if not labelled:
        axes.set_yticks([])
        return
    names = ["–" if row.seed is None else fitted(str(row.seed), 0.5, TICK) for row, _ in _measured(group)] + ["all"]
    every = math.ceil(lines * SEED / HIGHEST)
    shown = [index for index in range(lines) if index % every == 0]
    axes.set_yticks(shown, [names[index] for index in shown])
    axes.tick_params(axis="y", length=0)


def _drift(axes: Axes, group: MethodGroup, scales: Scales) -> None:
    ruled(axes, scales.drift, "x")
    _seed_axis(axes, group, labelled=True)
    for ceiling in {report.thresholds.stability_drift_ceiling for report in group.reports}:
        axes.axvline(ceiling, **RULE)
    for index, (row, report) in enumerate(_measured(group)):
        axes.plot([scales.drift.place(report.cross_batch_stability)], [index], **mark_of(row, "c").look())


def _margins(axes: Axes, group: MethodGroup, scales: Scales) -> None:
    ruled(axes, scales.margin, "x")
    _seed_axis(axes, group, labelled=False)
    axes.axvline(0, color=FAINT, lw=0.8, zorder=1)
    for minimum in {report.thresholds.frozen_acc_margin_pp for report in group.reports}:
        axes.axvline(scales.margin.place(minimum), **RULE)
    for index, (row, report) in enumerate(_measured(group)):
        mark, bounds = mark_of(row, "d"), interval(report)
        if bounds is not None:
            axes.plot([scales.margin.place(end) for end in (bounds.low, bounds.high)], [index] * 2, color=mark.colour, lw=0.9)
        axes.plot([scales.margin.place(margin(report))], [index], **mark.look(0.8))
    together, last = group.seed_margin, len(group.reports)
    if together is not None:
        ends = [scales.margin.place(end) for end in (together.interval.low, together.interval.high)]
        axes.plot(ends, [last] * 2, color=INK, lw=1.6)
        axes.plot([scales.margin.place(together.margin)], [last], color=INK, marker="d", markersize=3.4, clip_on=False)


_PAINTERS = {"a": _states, "b": _gradients, "c": _drift, "d": _margins}
