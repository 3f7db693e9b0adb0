"""The methods of an audit over depth, in one frame a quantity: they are there to be compared."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ...judge.report import DiagnosticReport
from ...judge.wording import limit
from ..audit import Audit
from ..groups import seed_groups
from .axes import linear_axis, log_axis, whole_axis
from .chart import Chart, Limit
from .plots import gradient_norms, probes, residual_norms

STROKES = 8
"""How many methods one frame holds: more lines than that cannot be told apart."""


class Drawn(str, enum.Enum):
    """Of what a curve is; the value is its class on the page."""

    CONTROL = "control"
    NULL = "null"
    NETWORK = "network"

    @property
    def words(self) -> str:
        """What the legend calls it; a network is known by its stroke."""
        return {"control": "the control", "null": "the same with blocks drawn anew"}.get(self.value, "")


class Layer(NamedTuple):
    """The curve of one seed, in its method's stroke."""

    name: str
    stroke: int | None
    """Nothing where there is but one method, whose curves look as in its other plots."""
    chart: Chart
    of: Drawn = Drawn.NETWORK


@dataclass(frozen=True)
class Overlay:
    """Curves on the same axes."""

    layers: Sequence[Layer]

    @property
    def frame(self) -> Chart:
        """Whose axes, title and limits all have."""
        return self.layers[0].chart

    @property
    def beside(self) -> list[Drawn]:
        """What is drawn beside the networks."""
        return [kind for kind in Drawn if kind.words and any(layer.of is kind for layer in self.layers)]

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
    """Norms of states and gradients and what probes read, over depth; one network alone has them in its own report."""
    groups = [(group.label, group.rows) for group in seed_groups(audit)]
    found = []
    for start in range(0, len(groups), STROKES):
        methods = groups[start : start + STROKES]
        networks = [
            (label if row.seed is None else f"{label}, seed {row.seed}", stroke, row.report)
            for stroke, (label, rows) in enumerate(methods)
            for row in rows
            if row.report is not None and row.report.depth_known
        ]
        plots = []
        for quantity in (_states, _gradients, _probes):
            layers = [layer for name, stroke, report in networks for layer in quantity(name, stroke, report)]
            several = len({layer.name for layer in layers if layer.of is Drawn.NETWORK}) > 1
            plots += [Overlay(_on_one_scale(_each_control_once(layers)))] if several else []
        found += [Comparison([label for label, _ in methods], plots)] if plots else []
    return found


def of_probes(report: DiagnosticReport) -> list[Overlay]:
    """What probes read of one network, over what they read of its blocks drawn anew and of its control."""
    layers = list(_probes("the network", None, report))
    return [Overlay(_on_one_scale(layers))] if layers else []


def _states(name: str, stroke: int | None, report: DiagnosticReport) -> Iterator[Layer]:
    """Without limits: each curve has its own."""
    if report.residual_norms:
        yield Layer(name, stroke, replace(residual_norms(report), limits=()))


def _gradients(name: str, stroke: int | None, report: DiagnosticReport) -> Iterator[Layer]:
    if report.bp_grad_norms:
        yield Layer(name, stroke, gradient_norms(report))


def _probes(name: str, stroke: int | None, report: DiagnosticReport) -> Iterator[Layer]:
    """Control and null below the curve that they are compared with."""
    if report.probe_accuracies and report.control is not None and report.control.probes:
        yield Layer(f"control {report.control.source}", None, probes(report.control.probes), Drawn.CONTROL)
    if report.null_probe_accuracies:
        yield Layer(f"{name}, blocks drawn anew", stroke, probes(report.null_probe_accuracies), Drawn.NULL)
    if report.probe_accuracies:
        yield Layer(name, stroke, probes(report.probe_accuracies, fires=report.finding("e").fired))


def _each_control_once(layers: Sequence[Layer]) -> list[Layer]:
    """Networks may share a control."""
    controls = {(layer.name, tuple(layer.chart.ys)): layer for layer in layers if layer.of is Drawn.CONTROL}
    return [*controls.values(), *(layer for layer in layers if layer.of is not Drawn.CONTROL)]


def _on_one_scale(layers: Sequence[Layer]) -> list[Layer]:
    """The layers on axes that hold them all, networks last; the limits are said once, by the first."""
    layers = sorted(layers, key=lambda layer: list(Drawn).index(layer.of))
    charts = [layer.chart for layer in layers]
    deepest = max(x for chart in charts for x in chart.xs)
    floors = sorted({line.value for chart in charts for line in chart.limits})
    values = [y for chart in charts for y in chart.ys]
    y_axis = log_axis(values, floors) if charts[0].y_axis.log else linear_axis(values, (0, 1))
    shared = [replace(chart, y_axis=y_axis, x_axis=whole_axis([0, deepest]), limits=(), legend="") for chart in charts]
    if floors:
        limits = [Limit(floor, 0, deepest) for floor in floors]
        shared[0] = replace(shared[0], limits=limits, legend=f"(b) floor {' or '.join(map(limit, floors))}")
    return [layer._replace(chart=chart) for layer, chart in zip(layers, shared, strict=True)]
