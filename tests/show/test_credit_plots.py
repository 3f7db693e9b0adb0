"""Γ by depth where people look: the figure, the page's plots, the table, the form and Markdown."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import pytest
from builders import healthy, row
from matplotlib.axes import Axes
from matplotlib.colors import to_hex

from pytest_fadiag.judge.credit import Credit
from pytest_fadiag.judge.report import DiagnosticReport
from pytest_fadiag.show.audit import Audit
from pytest_fadiag.show.figures import draw_all, figures, missing
from pytest_fadiag.show.figures.credit import AGAINST, NULL
from pytest_fadiag.show.form import form
from pytest_fadiag.show.html import html
from pytest_fadiag.show.html.credit import charts, credit_comparisons
from pytest_fadiag.show.markdown import markdown
from pytest_fadiag.show.table import render

ASKED = ("residual-growth", "gradient-floor", "direction-drift", "frozen-margin", "credit-alignment")
GAMMA = (0.42, 0.44, 0.07, -0.17, 0.0)


def credited(method: str, seed: int | None, gamma: tuple[float, ...] = GAMMA, **changes: Any) -> DiagnosticReport:
    n = len(gamma)
    values: dict[str, Any] = {
        "source": "lab.rules:credit",
        "sites": tuple(f"h_{layer}" for layer in range(5 - n, 5)),
        "gamma": gamma,
        "null_mean": (0.0,) * n,
        "null_sd": (0.05,) * n,
        "null_low": tuple(-0.1 - 0.01 * layer for layer in range(n)),
        "null_high": tuple(0.1 + 0.01 * layer for layer in range(n)),
        "nudge": gamma,
        "random_nudge": ((0.0,) * 5,) * n,
        "magnitude": (2e5,) * n,
        "undefined": (0,) * n,
        "samples": 1280,
    }
    credit = Credit(**{**values, **changes})
    return healthy(method, seed, diagnostics=ASKED, observations={"credit": asdict(credit)})


@pytest.fixture
def audit() -> Audit:
    aligned = (0.9, 0.8, 0.7, 0.6)
    return Audit([*(row(credited("dfa", seed)) for seed in (1, 2)), row(credited("fa", 1, aligned))])


def panels(audit: Audit) -> tuple[Axes, Axes]:
    first, second = figures(audit)["credit"].axes
    return first, second


def test_the_figure_shows_gamma_in_its_null_and_the_nudge_below(audit: Audit) -> None:
    gamma, nudge = panels(audit)
    bars = [(bar.get_x() + bar.get_width() / 2, bar.get_y(), bar.get_height()) for bar in gamma.patches]
    assert len(bars) == 5 + 5 + 4
    assert all(to_hex(bar.get_facecolor()) == NULL for bar in gamma.patches)
    layer, low, height = bars[1]
    assert (round(layer), low, height) == (1, pytest.approx(-0.11), pytest.approx(0.22))
    lines = [line for line in gamma.lines if len(line.get_xdata()) > 2]
    assert [list(line.get_ydata()) for line in lines] == [list(GAMMA[1:])] * 2 + [[0.9, 0.8, 0.7, 0.6]]
    assert nudge.get_position().y1 < gamma.get_position().y0
    assert {len(line.get_xdata()) for line in nudge.lines} >= {4}


def test_symbols_are_filled_where_aligned_and_crossed_where_against(audit: Audit) -> None:
    gamma, _ = panels(audit)
    single = [line for line in gamma.lines if len(line.get_xdata()) == 1]
    crosses = [line for line in single if line.get_marker() == AGAINST["marker"]]
    assert [round(float(line.get_ydata()[0]), 2) for line in crosses] == [-0.17, -0.17]
    filled = {round(float(line.get_ydata()[0]), 2) for line in single if line.get_markerfacecolor() == line.get_color()}
    assert filled - {-0.17} == {0.42, 0.44, 0.9, 0.8, 0.7, 0.6}


def test_what_is_undefined_or_not_resolved_has_a_place(audit: Audit) -> None:
    odd = credited("odd", 1, (math.nan, 0.2, -1.0, 1.0), nudge=(math.nan, math.nan, -3.0, 1.0), null_low=(math.nan, -1, -1, -1))
    gamma, nudge = panels(Audit([row(odd)]))
    for axes in (gamma, nudge):
        assert "NaN" in [label.get_text() for label in axes.get_yticklabels()]
    assert "credit" in html(Audit([row(odd), *audit.rows]))


def test_without_credit_there_is_no_figure_and_a_word_only_where_it_was_asked_for(tmp_path: Any) -> None:
    plain = Audit([row(healthy("bp", 1))])
    assert "credit" not in figures(plain)
    assert "credit" not in missing(plain)
    absent = Audit([row(credited("dfa", 1, problem="no credit to compare"))])
    assert "--fa-credit" in missing(absent)["credit"]
    assert any("no figure «credit»" in line for line in draw_all(absent, tmp_path))


def test_more_methods_than_strokes_take_several_pages() -> None:
    many = Audit([row(credited(f"method-{index}", seed)) for index in range(9) for seed in range(3)])
    assert {"credit", "credit-2"} <= set(figures(many))


def test_the_page_has_the_plots_of_each_report_and_the_methods_together(audit: Audit) -> None:
    gamma, nudge = charts(audit.rows[0].report)  # type: ignore[arg-type]
    assert list(gamma.ys) == list(GAMMA)
    assert {line.value for line in gamma.limits if round((line.first + line.last) / 2) == 1} == {-0.11, 0.11}
    assert [line.value for line in nudge.limits] == [0.0]
    (comparison,) = credit_comparisons(audit)
    assert list(comparison.methods) == ["dfa", "fa"]
    assert all(len(plot.layers) == 3 for plot in comparison.plots)
    page = html(audit)
    assert "Credit, layer by layer" in page
    assert "95 % of the null, the widest of these" in page
    assert "Credit, layer by layer" not in html(Audit([row(healthy("bp", seed)) for seed in (1, 2)]))


def test_table_markdown_and_form_say_how_many_sites_are_aligned(audit: Audit) -> None:
    for width in (80, 120):
        lines = ["".join(cell.text for cell in line) for line in render(audit, width)]
        assert "credit" in lines[0]
        assert all(len(line.rstrip()) <= width for line in lines)
        assert "1/4" in lines[1]
    red = [cell for line in render(audit, 120)[1:] for cell in line if cell.text.strip() in ("1/4", "4/4")]
    assert [(cell.text.strip(), cell.fired) for cell in red] == [("1/4", True), ("1/4", True), ("4/4", False)]
    assert "**1/4**" in markdown(audit)
    assert "h\\_1 Γ +0.440 (aligned)" in form(audit) or "h_1 Γ +0.440 (aligned)" in form(audit)
