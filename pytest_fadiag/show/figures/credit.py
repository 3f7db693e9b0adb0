"""The credit figure: Γ over depth against its null, and below it what a step along the credit saves, methods overlaid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ...judge.credit import EMBEDDING, Credit, SiteState
from ..audit import Audit
from ..groups import seed_groups
from . import style
from .scales import Scale, linear_scale, whole_scale
from .style import FAINT, GREY, LABEL, RULE, TICK, VERMILION, Key, Stroke, fitted, head, panel, ruled

# Inches.
LEFT, RIGHT = 0.42, 0.12
GAMMA, NUDGE = 2.1, 1.3
HEAD, FOOT = 0.22, 0.36
ASIDE, ROOM = 0.06, 0.84
"""Layers: between the symbols of two seeds at one site, and what all of them may take."""
NULL = "#dcdcdc"
AGAINST = {"marker": "x", "color": VERMILION, "markersize": 6.5, "markeredgewidth": 1.2, "linestyle": "none"}


class Curve(NamedTuple):
    """The credit of one seed, in the stroke of its method and beside the others by so much."""

    credit: Credit
    stroke: Stroke
    aside: float


def credit_pages(audit: Audit) -> list[Figure]:
    """One figure for every eight methods: more lines than that cannot be told apart."""
    found = [
        (group.label, [r.credit for r in group.reports if r.credit and not r.credit.problem]) for group in seed_groups(audit)
    ]
    methods = [(name, credits) for name, credits in found if credits]
    most = len(style.STROKES)
    return [_page(methods[start : start + most]) for start in range(0, len(methods), most)]


def _page(methods: Sequence[tuple[str, Sequence[Credit]]]) -> Figure:
    credits = [(credit, stroke) for (_, own), stroke in zip(methods, style.STROKES, strict=False) for credit in own]
    between = min(ASIDE, ROOM / len(credits))
    middle = (len(credits) - 1) / 2
    curves = [Curve(credit, stroke, between * (number - middle)) for number, (credit, stroke) in enumerate(credits)]
    key = _key(methods, curves)
    figure = style.new_figure(key.height + 2 * HEAD + GAMMA + NUDGE + FOOT)
    key.draw(figure)
    width = style.WIDTH - LEFT - RIGHT
    across = whole_scale(max(_layer(site) for curve in curves for site in curve.credit.sites))
    embedding = any(EMBEDDING in curve.credit.sites for curve in curves)

    top = key.height + HEAD
    gamma = panel(figure, LEFT, top, width, GAMMA)
    head(gamma, "Γ: cosine of credit and BP gradient, median over samples", width, LABEL)
    scale = linear_scale(
        [0.0, 1.0, *(v for c in curves for v in (*c.credit.gamma, *c.credit.null_low, *c.credit.null_high))], 6
    )
    for curve in curves:
        lows, highs = (curve.credit.null_low, curve.credit.null_high)
        gamma.bar(
            [_layer(site) + curve.aside for site in curve.credit.sites],
            [high - low for low, high in zip(lows, highs, strict=True)],
            between,
            lows,
            color=NULL,
            linewidth=0,
            zorder=1,
        )
    gamma.tick_params(axis="x", labelbottom=False)
    _draw(gamma, curves, across, scale, embedding, "gamma")

    nudge = panel(figure, LEFT, top + GAMMA + HEAD, width, NUDGE)
    head(nudge, "nudge: the loss that a small step along the credit saves, as a share of what BP's saves", width, LABEL)
    scale = linear_scale([0.0, 1.0, *(value for curve in curves for value in curve.credit.nudge)], 5)
    _draw(nudge, curves, across, scale, embedding, "nudge")
    apart = "; h_0 stands apart and is not counted" if embedding else ""
    nudge.set_xlabel(f"l of the state h_l, at which the credit of block l−1 acts{apart}")
    return figure


def _draw(axes: Axes, curves: Sequence[Curve], across: Scale, scale: Scale, embedding: bool, quantity: str) -> None:
    low, high = across.limits
    ruled(axes, across, "x", grid=False)
    axes.set_xlim(low - 0.2, high + 0.2)
    ruled(axes, scale, "y")
    axes.axhline(0, color=GREY, lw=0.5, zorder=2)
    if quantity == "nudge":
        axes.axhline(1, **RULE)
    if embedding:
        axes.axvline(0.5, color=FAINT, lw=0.8, zorder=1)
    for curve in curves:
        _draw_curve(axes, curve, [scale.place(value) for value in getattr(curve.credit, quantity)])


def _draw_curve(axes: Axes, curve: Curve, places: Sequence[float]) -> None:
    """A line through the block sites, a symbol at each that is filled where it is aligned, and h_0 by itself."""
    points = [
        (_layer(site) + curve.aside, place, state)
        for site, place, state in zip(curve.credit.sites, places, curve.credit.state, strict=True)
    ]
    blocks = [point for point, site in zip(points, curve.credit.sites, strict=True) if site != EMBEDDING]
    look = {**curve.stroke.look(), "linewidth": 0.8}
    axes.plot([x for x, _, _ in blocks], [y for _, y, _ in blocks], zorder=3, **{**look, "marker": "none"})
    for x, y, state in points:
        inside = curve.stroke.colour if state is SiteState.ALIGNED else "#ffffff"
        axes.plot([x], [y], zorder=4, clip_on=False, **{**look, "markersize": 3.6, "markerfacecolor": inside})
        if state is SiteState.AGAINST:
            axes.plot([x], [y], zorder=5, clip_on=False, **AGAINST)  # type: ignore[arg-type]


def _key(methods: Sequence[tuple[str, Sequence[Credit]]], curves: Sequence[Curve]) -> Key:
    samples = [
        Line2D([], [], label=fitted(name, 2.0, TICK), **{**stroke.look(), "markerfacecolor": stroke.colour})
        for (name, _), stroke in zip(methods, style.STROKES, strict=False)
    ]
    states = {state for curve in curves for state in curve.credit.state}
    open_symbol = {"marker": "o", "color": GREY, "markerfacecolor": "#ffffff", "linestyle": "none"}
    if states - {SiteState.ALIGNED}:
        samples.append(Line2D([], [], label="open: not aligned", **open_symbol))  # type: ignore[arg-type]
    if SiteState.AGAINST in states:
        samples.append(Line2D([], [], label="against: climbs the loss", **AGAINST))  # type: ignore[arg-type]
    samples.append(Line2D([], [], label="its null, 95 %", color=NULL, lw=5, solid_capstyle="butt"))
    samples.append(Line2D([], [], label="BP's own step", **RULE))
    return Key(samples, "a line is a seed")


def _layer(site: str) -> int:
    return int(site.removeprefix("h_"))
