"""What a notebook shows of a report and of an audit: the page's own pieces, a style that stays inside, no script."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from builders import exploded, healthy
from html_tree import Tree
from PIL import Image

from pytest_fadiag import AuditError
from pytest_fadiag.show.audit import Audit


def test_a_report_shows_its_verdict_its_plots_and_its_text() -> None:
    shown = exploded("dfa", 42)._repr_html_()
    assert "needs walk-back: residual stream exploded" in shown
    assert shown.count("<svg") == 2 and "<script" not in shown
    assert "FA diagnostic report: dfa, seed 42" in shown


def test_an_audit_shows_its_table(audits: dict[str, Callable[[], Audit]]) -> None:
    shown = audits["usual"]()._repr_html_()
    assert "<script" not in shown
    Tree(shown)


def test_the_style_reaches_nothing_outside() -> None:
    style = healthy("bp", 1)._repr_html_().partition("<style>")[2].partition("</style>")[0]
    assert style.startswith("@scope (.fadiag) {") and style.count("{") == style.count("}")
    assert ":root" not in style and "\nbody" not in style and "\nhtml" not in style


def test_names_from_a_file_stay_text() -> None:
    shown = exploded("<script>alert(1)</script>", 1)._repr_html_()
    assert "<script" not in shown and "&lt;script&gt;" in shown


def test_plot_gives_a_figure_that_a_cell_shows() -> None:
    figure = exploded("dfa", 42).plot()
    assert len(figure.axes) >= 2
    shown = figure._repr_png_()  # type: ignore[attr-defined]  # what a notebook calls; pyplot, which it also asks, is not imported
    with Image.open(io.BytesIO(shown)) as image:
        assert image.format == "PNG" and image.width == 7 * 150


def test_without_norms_there_is_nothing_to_plot() -> None:
    report = healthy("bp", 1)
    narrowed = type(report)(
        method_name="bp",
        residual_norms=(),
        bp_grad_norms=(),
        stability_layer=None,
        cross_batch_stability=None,
        headline_acc=0.5,
        diagnostics=("frozen-margin",),
    )
    with pytest.raises(AuditError, match="nothing to plot"):
        narrowed.plot()
