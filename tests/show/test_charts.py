"""Charts as values, as SVG and as figures; in a browser the page as a whole."""

from __future__ import annotations

import itertools
import math
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import builders
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from show.samples import of

from pytest_fadiag.judge.diagnostics import DIAGNOSTICS
from pytest_fadiag.judge.records import Epoch, Log, Step
from pytest_fadiag.show import charts
from pytest_fadiag.show.audit import Audit
from pytest_fadiag.show.charts import Chart, Series
from pytest_fadiag.show.figures import figures, write_figures
from pytest_fadiag.show.page import page
from pytest_fadiag.show.svg import svg

GROWTH, GRADIENT, MARGIN, DEPTH, CREDIT = (DIAGNOSTICS[number] for number in (0, 1, 3, 4, 5))
ROWS = [builders.row(builders.exploded()), builders.row(builders.healthy())]


def test_what_fires_is_marked_where_it_fires() -> None:
    dfa, bp = charts.curves(ROWS, GROWTH).series
    assert dfa.fired == (1,) and bp.fired == ()  # the first block explodes
    assert [one.fired for one in charts.curves(ROWS, GRADIENT).series] == [(4,), ()]
    assert (dfa.colour, bp.colour) == (0, 1)


def test_what_a_log_does_not_hold_is_left_out() -> None:
    logged = builders.PENALISED.replace(bp_grad_norms=(None, None, 1e-9, None, None))
    (one,) = charts.curves([builders.row(logged)], GRADIENT).series
    assert (one.xs, one.ys, one.fired) == ((2,), (1e-9,), (0,))


def test_one_network_is_shown_with_what_it_may_not_exceed() -> None:
    (most,) = charts.curves(ROWS[:1], GROWTH).limits
    assert most.ys == (3e5, 2e8, 4.5e8, 5e8)
    (floor,) = charts.curves(ROWS, GRADIENT).limits
    assert floor.ys == (1e-7,) and floor.name == "floor 1e-7"


def by_step(method: str, parts: tuple[str, ...], contrast: tuple[float, ...]) -> Any:
    """A row of which the head's step is BP's own."""
    some = tuple([0.5] * (len(parts) - 1))
    step = Step(
        source="rule:update",
        parts=parts,
        plain=contrast,
        least_plain=(*some, 1.0),
        contrast=contrast,
        low=tuple(value - 0.1 for value in contrast),
        high=tuple(value + 0.1 for value in contrast),
        change=(0.1,) * len(parts),
        label_share=(1.0,) * len(parts),
        batches=10,
    )
    asked = ("credit-alignment",)
    return builders.row(
        builders.healthy().replace(method_name=method, step=step, diagnostics=asked)
    )


def test_parts_of_a_step_have_intervals_and_what_is_bps_own_is_marked() -> None:
    deep = by_step("deep", ("embedding", "b.0", "b.1", "b.2", "head"), (0.3, 0.4, 0.0, -0.5, 1.0))
    flat = by_step("flat", ("embedding", "b.0", "head"), (0.2, 0.6, 1.0))
    chart = charts.curves([flat, deep], CREDIT)
    assert chart.ticks == ("embedding", "b.0", "b.1", "b.2", "head") and chart.x == "part"
    (first, second) = chart.series
    assert (first.xs, second.xs) == ((0, 1, 4), (0, 1, 2, 3, 4))
    assert (first.bp, second.bp) == ((2,), (4,)) and (first.fired, second.fired) == ((), (2, 3))
    assert second.low[1] == pytest.approx(0.3) and second.high[1] == pytest.approx(0.5)
    drawn = ElementTree.fromstring(svg(chart))
    titles = [element.text for element in drawn.iter("title")]
    assert titles.count("BP's own") == 2 and "deep, seed 42: −0.500" in titles
    (_, axes) = figures(Audit((flat, deep)))["credit"].axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == list(chart.ticks)
    (bars,) = axes.collections
    assert [tuple(segment[:, 1]) for segment in bars.get_segments()][3] == pytest.approx(
        (-0.6, -0.4)
    )
    marked = [
        line for line in axes.lines if line.get_marker() == "D" and line.get_label() == "BP's own"
    ]
    assert [tuple(line.get_data()) for line in marked] == [([4], [1.0])]


def test_the_step_of_logs_is_drawn_at_its_lowest_block() -> None:
    parts = ("embedding", "b.0", "b.1", "head")
    epochs = []
    for epoch, plain in enumerate([(-1.0, 0.9, 0.8, 1.0), (-1.0, math.nan, 0.7, 1.0)], 1):
        epochs.append(Epoch(epoch=epoch, step=Step(parts=parts, plain=plain)))
    logged = builders.row(builders.PENALISED.replace(log=Log(epochs=tuple(epochs))))
    chart = charts.training([logged])[-1]
    assert chart.title == "cos(step, BP's), lowest block"
    assert chart.series[0].xs == (1, 2) and chart.series[0].ys == (0.8, 0.7)


def test_findings_have_intervals_and_thresholds() -> None:
    chart = charts.findings(ROWS, MARGIN)
    assert [one.ys for one in chart.series] == [(-10.7,), (14.0,)]
    assert chart.series[0].low[0] < -10.7 < chart.series[0].high[0] and chart.series[0].fired == (
        0,
    )
    assert chart.ticks == ("dfa", "bp") and chart.limits[0].ys == (2.0,)


def test_credit_and_probes_have_their_nulls() -> None:
    row = builders.row(builders.credited(builders.probed(builders.healthy()), 0.9, 0.0, 0.0, 0.0))
    (gamma,) = charts.curves([row], CREDIT).series
    assert (gamma.xs, gamma.fired) == ((1, 2, 3, 4), (1, 2, 3))
    assert gamma.high == (0.1,) * 4
    assert [one.role for one in charts.curves([row], DEPTH).series] == ["network", "null"]
    report = builders.credited(builders.healthy(), 0.0, 0.9, 0.0, 0.0)
    assert report.credit is not None
    credit = msgspec.structs.replace(report.credit, sites=("h_0", "h_1", "h_2", "h_3"))
    (shifted,) = charts.curves([builders.row(report.replace(credit=credit))], CREDIT).series
    assert (shifted.xs, shifted.fired) == ((0, 1, 2, 3), (2, 3))  # h_0 is not judged


def test_training_curves_need_several_epochs(audit: Audit) -> None:
    assert [chart.title for chart in charts.training(audit.rows)] == [
        "‖h_L‖",
        "‖g‖, deepest layer",
        "accuracy",
    ]
    assert charts.training([*ROWS, builders.row(builders.traced("dfa", 1, epochs=1))]) == []


numbers = st.floats(allow_subnormal=False) | st.sampled_from([0.0, -1.0, 1e300, 1e-300, math.nan])


@given(st.lists(numbers, min_size=1, max_size=6), st.booleans(), st.text(max_size=5))
def test_any_numbers_can_be_drawn(ys: list[float], log: bool, name: str) -> None:
    xs = tuple(map(float, range(len(ys))))
    drawn = svg(Chart(name, (Series(name=name, xs=xs, ys=tuple(ys), fired=(0,)),), log=log))
    root = ElementTree.fromstring(drawn)
    marks = [element for element in root.iter() if element.find("title") is not None]
    assert len(marks) == len(ys)
    places = [float(mark.attrib["d"].partition("m")[0].split()[1]) for mark in marks]
    assert all(0 <= place <= 200 for place in places)


def test_figures_are_drawn_without_a_warning(audit: Audit, evil: Audit, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn = figures(audit)
        for name in "ab":
            write_figures(evil, tmp_path / name)
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()
    assert list(drawn) == ["hero", "hero-dark", "audit", "rescue", "depth", "credit"]
    titles = {
        n: [axes.get_title(loc="left") for axes in f.axes if axes.axison] for n, f in drawn.items()
    }
    assert [title[5:8] for title in titles["audit"]] == ["(a)", "(b)", "(c)", "(d)", "(e)"]
    assert titles["audit"][1] == r"$\bf{(b)}$ median $\Vert g_{\ell}\Vert$"
    assert titles["credit"] == [r"$\bf{A}$ bp", r"$\bf{B}$ dfa"]  # a panel per method
    names = [text.get_text() for text in drawn["depth"].legends[0].get_texts()]
    assert names == ["re-initialised blocks", "fails"]


@pytest.mark.parametrize("width", [5.5, 7.0])
def test_figures_have_the_width_of_a_paper_and_text_of_8_pt(audit: Audit, width: float) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.text import Text

    looks: dict[str, set[tuple[object, object]]] = {}
    for name, drawn in figures(audit, width).items():
        assert drawn.get_figwidth() == width
        drawn.draw_without_rendering()
        sizes = {text.get_fontsize() for text in drawn.findobj(Text) if text.get_text()}
        assert sizes == ({8.0, 10.0} if name.startswith("hero") else {8.0})
        for legend in drawn.legends:
            for text, line in zip(legend.get_texts(), legend.legend_handles, strict=True):
                if isinstance(line, Line2D):
                    look = (line.get_color(), line.get_marker())
                    looks.setdefault(text.get_text(), set()).add(look)
        box = drawn.get_tightbbox()
        assert box is not None and box.x0 > -0.02 and box.x1 < width + 0.02, name
    own = [looks[name] for name in ("bp", "dfa", "fa", "dfa-lam")]
    assert [len(look) for look in own] == [1] * 4 and len(set.union(*own)) == 4


def test_titles_of_a_wide_range_of_pp_leave_room_for_each_other() -> None:
    healthy = builders.floored(builders.probed(builders.healthy()))
    low = builders.healthy("fa", frozen_baseline_acc=0.7, headline_acc=0.2)
    low = builders.floored(builders.probed(low, 0.7, 0.3), -60.0, -58.0)
    drawn = figures(of(builders.row(healthy), builders.row(low)), 5.5)["audit"]
    drawn.draw_without_rendering()
    axes = [panel for panel in drawn.axes if panel.get_title(loc="left")]
    assert "log beyond ±5" in [panel.get_xlabel() for panel in axes]
    for panel, beside in itertools.pairwise(axes):
        title, after = panel._left_title.get_window_extent(), beside._left_title.get_window_extent()
        assert title.x1 < after.x0 or title.y0 > after.y1
    box = drawn.get_tightbbox()
    assert box is not None and box.x1 < 5.52


def test_the_hero_has_a_row_for_each_method_and_its_title_says_the_finding() -> None:
    rows = [builders.row(builders.healthy(seed=seed)) for seed in (1, 2)]
    rows += [
        builders.row(builders.exploded()),
        builders.row(builders.healthy("fa", frozen_baseline_acc=0.895)),
    ]
    drawn = figures(of(*rows))["hero"]
    title, _ = drawn.texts
    assert title.get_text() == "Training the blocks pays off in one of three methods"
    (axes,) = drawn.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["bp", "fa", "dfa"]
    assert [text.get_text() for text in axes.texts] == [
        *("+14.0 pp", "trustworthy", "+0.5 pp", "walk back", "−10.7 pp", "walk back"),
    ]
    points = [[*line.get_xdata()] for line in axes.lines if line.get_marker() == "o"]
    assert points[:2] == [[0.9, 0.9], [0.76]]  # trained blocks of two seeds, frozen ones
    alone = builders.healthy(control=None, frozen_baseline_acc=None)
    assert "hero" not in figures(of(builders.row(alone)))


def test_fonts_of_a_pdf_can_be_edited(audit: Audit, tmp_path: Path) -> None:
    write_figures(audit, tmp_path)
    for file in tmp_path.glob("*.pdf"):
        content = file.read_bytes()
        assert b"/Type3" not in content and b"/CIDFontType2" in content, file.name


def test_rescue_has_the_controls_and_bp() -> None:
    rows = [builders.row(builders.traced("dfa", seed)) for seed in (1, 2)]
    bp = builders.row(builders.healthy())
    *_, score = charts.training([*rows, bp])
    assert [(one.name, one.ys[0]) for one in score.limits] == [
        ("control of dfa 0.76", 0.76),
        ("BP 0.9", 0.9),
    ]
    assert [one.name for one in score.series] == ["dfa", "dfa"]


@pytest.fixture
def browser() -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("chromium or chromedriver is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    opened = webdriver.Chrome(options, webdriver.ChromeService(driver))
    yield opened
    opened.quit()


def test_the_page_works_in_a_browser(browser: Any, audit: Audit, tmp_path: Path) -> None:
    file = tmp_path / "audit.html"
    file.write_text(page(audit), "utf-8")
    browser.get(file.as_uri())
    run = browser.execute_script
    rows = "[...document.querySelectorAll('tbody tr')]"
    accuracies = f"return {rows}.map(row => parseFloat(row.cells[3].dataset.sort))"
    original = run(accuracies)
    run("document.querySelectorAll('thead button')[3].click()")
    known = [value for value in run(accuracies) if value is not None]
    assert known == sorted(known) and run(accuracies)[-1] is None
    run("for (let i = 0; i < 2; i++) document.querySelectorAll('thead button')[3].click()")
    assert run(accuracies) == original
    run("document.querySelector('tbody a').click()")
    assert run("return document.querySelectorAll('details[open]').length") in (0, 1)
    run("document.getElementById('open').click()")
    assert run("return document.querySelectorAll('details:not([open])').length") == 0
    screen = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    assert run("return document.documentElement.scrollWidth") <= 390
    file.write_text(page(of(builders.row(builders.exploded()))), "utf-8")
    browser.get(file.as_uri())  # the tests of one network are read without scrolling sideways
    assert run("return document.querySelector('.scroll').scrollWidth") <= 390
    assert browser.get_log("browser") == []


def test_a_gauge_has_its_threshold_in_the_middle_and_fails_to_the_left() -> None:
    report = builders.exploded()
    growth, gradient, drift, margin = (
        charts.gauge(report.finding(key), DIAGNOSTICS[number]) for number, key in enumerate("abcd")
    )
    assert growth and gradient and drift and margin
    assert growth.place == pytest.approx(0.5 - math.log10(666.7 / 50) / 8, abs=1e-3)
    assert gradient.place == pytest.approx(0.5 + math.log10(4e-8 / 1e-7) / 8, abs=1e-3)
    assert drift.place > 0.5 and drift.look == "green"
    assert margin.place == pytest.approx(0.5 - 12.7 / 40) and margin.look == "red"
    assert margin.low < margin.place < margin.high
    unmeasured = builders.healthy(control=None, frozen_baseline_acc=None).finding("d")
    assert charts.gauge(unmeasured, MARGIN) is None
