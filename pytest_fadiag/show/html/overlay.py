"""The methods of an audit over depth, in one frame a quantity: they are there to be compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ...judge.report import DiagnosticReport
from ...judge.wording import limit
from ..audit import Audit
from ..groups import seed_groups
from .axes import log_axis, whole_axis
from .chart import Chart, Limit
from .plots import gradient_norms, residual_norms

STROKES = 8
"""How many methods one frame holds: more lines than that cannot be told apart."""


class Layer(NamedTuple):
    """The curve of one seed, in its method's stroke."""

    name: str
    stroke: int
    chart: Chart


@dataclass(frozen=True)
class Overlay:
    """Curves on the same axes."""

    layers: Sequence[Layer]

    @property
    def frame(self) -> Chart:
        """Whose axes, title and limits all have."""
        return self.layers[0].chart

    @property
    def words(self) -> str:
        """The plot for those who cannot see it."""
        return " ".join(f"{layer.name}: {layer.chart.words}" for layer in self.layers)


class Comparison(NamedTuple):
    """Up to eight methods, by the number of their stroke, and the plots that show them together."""

    methods: Sequence[str]
    plots: Sequence[Overlay]

    @property
    def crossed(self) -> bool:
        """Whether a point lies beyond its threshold."""
        return any(layer.chart.fired for plot in self.plots for layer in plot.layers)


def comparisons(audit: Audit) -> list[Comparison]:
    """Norms of states and gradients over depth; one network alone has them in its own report."""
    groups = [(group.label, group.rows) for group in seed_groups(audit)]
    found = []
    for start in range(0, len(groups), STROKES):
        methods = groups[start : start + STROKES]
        plots = []
        for quantity in (_states, gradient_norms):
            layers = [
                Layer(label if row.seed is None else f"{label}, seed {row.seed}", stroke, chart)
                for stroke, (label, rows) in enumerate(methods)
                for row in rows
                if row.report is not None and row.report.depth_known and (chart := quantity(row.report)).ys
            ]
            plots += [Overlay(_on_one_scale(layers))] if len(layers) > 1 else []
        found += [Comparison([label for label, _ in methods], plots)] if plots else []
    return found


def _states(report: DiagnosticReport) -> Chart:
    """Without limits: each curve has its own."""
    return replace(residual_norms(report), limits=())


def _on_one_scale(layers: Sequence[Layer]) -> list[Layer]:
    """The layers on axes that hold them all; the limits are said once, by the first."""
    charts = [layer.chart for layer in layers]
    deepest = max(x for chart in charts for x in chart.xs)
    floors = sorted({line.value for chart in charts for line in chart.limits})
    y_axis = log_axis((y for chart in charts for y in chart.ys), floors)
    shared = [replace(chart, y_axis=y_axis, x_axis=whole_axis([0, deepest]), limits=(), legend="") for chart in charts]
    if floors:
        limits = [Limit(floor, 0, deepest) for floor in floors]
        shared[0] = replace(shared[0], limits=limits, legend=f"(b) floor {' or '.join(map(limit, floors))}")
    return [layer._replace(chart=chart) for layer, chart in zip(layers, shared, strict=True)]
