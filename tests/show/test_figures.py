"""The figures: which there are, what they show, and that nobody has to guess what a label says."""

from __future__ import annotations

import hashlib
import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import matplotlib
import matplotlib.pyplot
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from pytest_fadiag import Accuracy, Control
from pytest_fadiag.judge.records import AuxiliaryStatistics
from pytest_fadiag.show import figures as package
from pytest_fadiag.show.audit import Audit
from pytest_fadiag.show.figures import draw, figures, missing, style
from pytest_fadiag.show.figures.rescue import _apart
from pytest_fadiag.show.figures.scales import linear_scale, log_scale, margin_scale, whole_scale
from pytest_fadiag.show.figures.timeline import EXCUSED, FIRED
from pytest_fadiag.show.groups import method_groups, seed_groups

Audits = dict[str, Callable[[], Audit]]
Drawn = Callable[[str], dict[str, Figure]]
Placed = tuple[Text, tuple[float, float, float, float]]


@pytest.fixture(scope="session")
def drawn(audits: Audits) -> Drawn:
    """The figures of an audit by its name, drawn once; nobody may change them."""
    return cache(lambda name: figures(audits[name]()))


@pytest.fixture(scope="session")
def texts(drawn: Drawn) -> Callable[[str], dict[str, list[Placed]]]:
    """Every text that is really drawn in the figures of an audit, with its extent in pixels."""
    return cache(lambda name: {page: _texts(figure) for page, figure in drawn(name).items()})


def _texts(figure: Figure) -> list[Placed]:
    seen: list[Text] = []
    original = Text.draw

    def recorded(self: Text, renderer: object) -> None:
        if self.get_visible() and self.get_text().strip():
            seen.append(self)
        original(self, renderer)

    canvas = FigureCanvasAgg(figure)
    figure.set_dpi(200)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Text, "draw", recorded)
        canvas.draw()
    return [(text, text.get_window_extent(canvas.get_renderer()).extents) for text in seen]


def words(figure: Figure) -> str:
    return "\n".join(text.get_text() for text in figure.findobj(Text))


def test_every_figure_that_has_data_is_made_and_the_rest_say_why(audits: Audits, drawn: Drawn) -> None:
    assert list(drawn("usual")) == ["audit", "rescue", "timeline"]
    assert list(drawn("one")) == ["audit"]
    assert list(drawn("empty")) == []
    assert set(missing(audits["one"]())) == {"rescue", "timeline"}
    assert set(missing(audits["empty"]())) == {"audit", "rescue", "timeline"}
    asked = [replace(row, report=row.report and replace(row.report, observations={})) for row in audits["probed"]().rows]
    assert "its report says why" in missing(Audit(asked))["depth"]
    assert "--fa-log" in missing(audits["one"]())["rescue"]
    only = Audit([found for found in audits["usual"]().rows if found.partial][:1])
    assert "two or more" in missing(only)["rescue"] and "timeline" in figures(only)


def test_many_methods_go_on_in_further_figures_no_taller_than_a_page(drawn: Drawn) -> None:
    pages = drawn("large")
    assert [name for name in pages if name.startswith("audit")] == ["audit", "audit-2", "audit-3"]
    assert all(figure.get_figheight() <= 9.01 for figure in pages.values())
    shown = "\n".join(words(figure) for name, figure in pages.items() if name.startswith("audit"))
    assert all(f"method-with-a-name-{index} (log)" in shown for index in range(8))


@pytest.mark.parametrize("audit_name", ["usual", "large", "odd", "one", "probed"])
def test_texts_neither_touch_nor_leave_the_canvas_and_are_large_enough(
    drawn: Drawn, texts: Callable[[str], dict[str, list[Placed]]], audit_name: str
) -> None:
    for name, placed in texts(audit_name).items():
        figure = drawn(audit_name)[name]
        width, height = figure.get_size_inches() * figure.dpi
        assert placed and figure.get_figwidth() == 7
        for text, (left, low, right, high) in placed:
            assert left >= 0 and low >= 0 and right <= width and high <= height, (
                f"{name}: {text.get_text()!r} leaves the canvas"
            )
            assert text.get_fontsize() >= 6
        for (one, a), (other, b) in itertools.combinations(placed, 2):
            apart = a[2] <= b[0] + 0.5 or b[2] <= a[0] + 0.5 or a[3] <= b[1] + 0.5 or b[3] <= a[1] + 0.5
            assert apart, f"{name}: {one.get_text()!r} touches {other.get_text()!r}"


def test_names_are_text_and_never_mathematics_or_control_characters(
    drawn: Drawn, texts: Callable[[str], dict[str, list[Placed]]]
) -> None:
    for text, _ in itertools.chain(*texts("odd").values()):
        assert not text.get_parse_math() or "$" not in text.get_text()
        assert text.get_text().isprintable()
    assert r"$\frac{1}{0}$ _a_" in words(drawn("odd")["audit"])


def test_a_method_named_with_an_underscore_is_in_the_key(audits: Audits) -> None:
    rows = [replace(row, method=f"_{row.method}") for row in audits["usual"]().rows if row.partial]
    assert {"_dfa", "_dfa-lam"} <= {text.get_text().strip() for text in figures(Audit(rows))["rescue"].legends[0].texts}


def test_symbols_tell_what_fired_without_their_colour(drawn: Drawn) -> None:
    audit = drawn("usual")["audit"]
    by_marker = {line.get_marker() for axes in audit.axes for line in axes.lines if line.get_color() == "#D55E00"}
    assert "^" in by_marker and "o" not in by_marker
    assert "fires" in words(audit) and "‖h_l‖; growth > 50: 3/3" in words(audit) and "margin over 3 seeds: FIRE" in words(audit)


def test_what_did_not_run_is_not_said_to_pass(audits: Audits) -> None:
    (one,) = audits["one"]().rows
    shown = words(figures(Audit([replace(one, outcomes={"a": "passed", "d": "passed", "b": "not run"})]))["audit"])
    assert "‖g_L‖ < 1e-07: not run" in shown and "drift > 0.3: not run" in shown and "growth > 50: 0/1" in shown


def test_thresholds_are_drawn_where_they_are(drawn: Drawn) -> None:
    audit = drawn("usual")["audit"]
    states, gradients, drift, margins = audit.axes[4:8]
    assert any(list(line.get_ydata()) == [-7, -7] for line in gradients.lines)
    assert any(list(line.get_xdata()) == [0.3, 0.3] for line in drift.lines)
    scale = margin_scale([-12, 15], 0.2)
    assert any(list(line.get_xdata()) == pytest.approx([scale.place(2.0)] * 2) for line in margins.lines)
    glowing = [line for line in states.lines if line.get_linewidth() == 4]
    assert [list(line.get_xdata()) for line in glowing] == [[0, 1]] * 3


def test_the_rescue_shows_control_and_bp_beside_the_runs(audits: Audits, drawn: Drawn) -> None:
    rescue = drawn("usual")["rescue"]
    shown = words(rescue)
    assert "control of dfa, dfa-lam 0.7600" in shown and "BP 0.9000" in shown and "floor 1e-07" in shown
    assert [len(axes.lines) >= 2 * (3 + 1) for axes in rescue.axes] == [True] * 3, "three seeds and their mean, twice"
    only_logs = Audit([found for found in audits["usual"]().rows if found.partial])
    assert "BP" not in words(figures(only_logs)["rescue"])


def test_a_figure_says_whose_control_it_draws(audits: Audits, drawn: Drawn) -> None:
    assert "its frozen control 0.7600" in words(drawn("usual")["audit"])
    rows = []
    for found in audits["usual"]().rows:
        assert found.report is not None and found.report.control is not None
        rows.append(replace(found, report=replace(found.report, control=replace(found.report.control, method="bp"))))
    of_bp = figures(Audit(rows))
    assert words(of_bp["audit"]).count("frozen control of bp 0.7600") == 3 and "its frozen control" in words(of_bp["audit"])
    assert "control of bp 0.7600" in words(of_bp["rescue"]), "that of another method, though dfa is compared with it"


def test_the_depth_figure_draws_each_method_over_its_null_and_what_depth_adds(drawn: Drawn) -> None:
    depth = drawn("probed")["depth"]
    curves, utilities = depth.axes
    bold = [line for line in curves.lines if line.get_linewidth() == 1.2]
    assert [list(line.get_ydata()) for line in bold] == [
        pytest.approx([0.6, 0.7, 0.74, 0.78, 0.8]),
        pytest.approx([0.6, 0.5, 0.5, 0.5, 0.45]),
    ], "the mean over seeds"
    nulls = [line for line in curves.lines if line.get_linewidth() == 0.9]
    assert [list(line.get_ydata()) for line in nulls] == [pytest.approx([0.6, 0.6, 0.6, 0.6, 0.62])] * 2
    assert [line.get_color() for line in nulls] == [line.get_color() for line in bold]
    assert "what a linear probe reads, by depth" in words(depth) and "(e) depth utility < 3 pp: 2/4" in words(depth)
    scale = margin_scale([0, 3, -12, 18, 21], 0.22)
    places = [float(line.get_xdata()[0]) for line in utilities.lines if line.get_marker() in ("o", "^")]
    expected = [18.0, 18.0, -12.0, -22.0]
    assert places == pytest.approx([scale.place(value) for value in expected])
    assert any(list(line.get_xdata()) == pytest.approx([scale.place(3.0)] * 2) for line in utilities.lines)


def test_the_depth_figure_draws_the_mean_of_the_controls_once(audits: Audits) -> None:
    rows = []
    for found, read in zip(audits["probed"]().rows, (0.5, 0.5, 0.7, 0.7), strict=False):
        assert found.report is not None
        control = Control(Accuracy(0.6), f"frozen {read}", probes=(read,) * 5)
        rows.append(replace(found, report=replace(found.report, control=control)))
    depth = figures(Audit(rows))["depth"]
    dashed = [line for line in depth.axes[0].lines if line.get_color() == style.GREY and line.get_linewidth() == 0.9]
    assert [list(line.get_ydata()) for line in dashed] == [pytest.approx([0.6] * 5)] and "control" in words(depth)


def test_levels_and_lines_of_the_rescue_are_means_as_in_the_table(audits: Audits) -> None:
    rows = []
    for number, found in enumerate(audits["usual"]().rows):
        assert found.report is not None
        report = replace(found.report, frozen_baseline_acc=(0.86, 0.8606, 0.8636)[number % 3], control=None)
        course = report.trajectory
        if course is not None:
            points = [replace(p, accuracy=(0.1, 0.2, 0.6)[number % 3]) for p in course.points]
            report = replace(report, trajectory=replace(course, points=tuple(points)))
        elif found.method == "bp":
            report = replace(report, headline_acc=(0.9, 0.9006, 0.9048)[number % 3], accuracy=None)
        rows.append(replace(found, report=report))
    rescue = figures(Audit(rows))["rescue"]
    assert (
        "control, mean 0.8614" in words(rescue) and "BP, mean 0.9018" in words(rescue) and "bold: their mean" in words(rescue)
    )
    bold = [line for line in rescue.axes[2].lines if line.get_linewidth() == 1.2]
    assert [list(line.get_ydata()) for line in bold] == [pytest.approx([0.3] * 30)] * 2


def test_norms_whose_sum_overflows_have_a_mean(audits: Audits) -> None:
    rows = [found for found in audits["usual"]().rows if found.partial and found.method == "dfa"]
    huge = []
    for found in rows:
        assert found.report is not None and found.report.trajectory is not None
        points = tuple(replace(p, residual_norms=(1e308,) * 5) for p in found.report.trajectory.points)
        report = replace(found.report, residual_norms=[1e308] * 5, trajectory=replace(found.report.trajectory, points=points))
        huge.append(replace(found, report=report))
    mean = method_groups(Audit(huge))[0].mean
    assert mean is not None and mean.values[1] == pytest.approx(1e308)
    assert "rescue" in figures(Audit(huge))


def test_the_line_of_a_method_has_no_colour_and_no_triangle_of_an_outcome() -> None:
    assert len(style.STROKES) == len(set(style.STROKES)) == len({stroke.marker for stroke in style.STROKES})
    assert not {stroke.colour for stroke in style.STROKES} & {mark.colour for mark in (*style.OUTCOMES, FIRED)}
    assert FIRED.marker not in {stroke.marker for stroke in style.STROKES}


def test_the_timeline_shows_the_first_epoch_and_not_what_was_not_measured(audits: Audits, drawn: Drawn) -> None:
    audit = audits["usual"]()
    timeline = drawn("usual")["timeline"]
    first = next(found.report.trajectory.first_fired for found in audit.rows if found.report and found.report.trajectory)
    assert set(first) == {"a", "b", "d"}
    assert [text.get_text() for text in timeline.axes[1].texts] == [str(first["b"])] * 3
    assert [len(axes.texts) for axes in timeline.axes] == [3, 3, 0, 6]
    spans = [sum(line.get_color() == "#b5b5b5" for line in axes.lines) for axes in timeline.axes]
    assert spans == [6, 6, 3, 6], "three runs have no drift"
    blind = []
    for found in audit.rows:
        course = None if found.report is None else found.report.trajectory
        if found.method == "dfa-lam" and found.report is not None and course is not None:
            points = tuple(replace(point, bp_grad_norms=(None,) * 5) for point in course.points)
            blind.append(replace(found, report=replace(found.report, trajectory=replace(course, points=points))))
    sparse = figures(Audit(blind))["timeline"]
    assert [sum(line.get_color() == "#b5b5b5" for line in axes.lines) for axes in sparse.axes] == [3, 0, 0, 3]
    assert "no line: not logged by epoch" in words(sparse)


def test_excused_epochs_are_drawn_in_the_timeline(audits: Audits, drawn: Drawn) -> None:
    log = next(row for row in audits["usual"]().rows if row.method == "dfa-lam")
    assert log.report is not None and log.report.trajectory is not None
    saturated = AuxiliaryStatistics(gradient_per_unit_error=1e-3)
    points = tuple(
        replace(p, bp_grad_norms=(1e-9,) * 5, companions=saturated) if p.epoch in (4, 5, 6, 9) else p
        for p in log.report.trajectory.points
    )
    report = replace(log.report, trajectory=replace(log.report.trajectory, points=points))
    assert report.trajectory is not None and report.trajectory.excused == {"b": (4, 5, 6, 9)}
    assert "b" not in report.trajectory.first_fired
    timeline = figures(Audit([replace(log, report=report)]))["timeline"]
    spans = [[list(line.get_xdata()) for line in axes.lines if line.get_color() == EXCUSED["color"]] for axes in timeline.axes]
    assert spans == [[], [[3.6, 6.4], [8.6, 9.4]], [], []]
    assert "crosses its threshold, excused" in words(timeline) and "excused" not in words(drawn("usual")["timeline"])


def test_what_is_on_no_logarithmic_axis_has_a_tick_of_its_own() -> None:
    scale = log_scale([0.0, 1e-3, 1e3, float("inf"), float("nan"), None])
    labels = dict(scale.ticks)
    assert (
        labels[scale.place(0.0)] == "0"
        and labels[scale.place(float("inf"))] == "∞"
        and labels[scale.place(float("nan"))] == "NaN"
    )
    assert (
        scale.limits[0] < scale.place(0.0) < scale.place(1e-3) < scale.place(1e3) < scale.place(float("inf")) < scale.limits[1]
    )
    assert [label for _, label in log_scale([1e-8, 1e-7]).ticks] == ["10⁻⁸", "10⁻⁷"]
    assert log_scale([]).ticks and log_scale([5e-324, 1e308]).ticks
    assert [label for _, label in linear_scale([0, 1], 3).ticks] == ["0", "0.5", "1"]
    assert [label for _, label in whole_scale(30, first=1).ticks] == ["10", "20", "30"]
    assert [label for _, label in whole_scale(100_000, first=1).ticks] == ["20k", "40k", "60k", "80k", "100k"]
    assert whole_scale(0).ticks and linear_scale([0.5]).ticks and linear_scale([]).ticks


def test_names_of_levels_keep_their_distance() -> None:
    moved = _apart([0.5, 0.5, 0.51, 0.99], 0.1, 0.0, 1.0)
    crowded = _apart([0.97, 0.98, 0.99], 0.1, 0.0, 1.0)
    for places in (moved, crowded):
        assert all(b - a >= 0.1 - 1e-9 for a, b in itertools.pairwise(places)) and places[-1] <= 1.0


def test_the_same_audit_gives_the_same_bytes_in_another_process(
    tmp_path: Path, audits: Audits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_fadiag.show.figures.files.DPI", 60)
    program = (
        "import sys; from pathlib import Path; here = Path(sys.argv[1]); sys.path[:0] = [str(here), str(here.parent)]\n"
        "import conftest; from pytest_fadiag.show.figures import draw, files; files.DPI = 60\n"
        "draw(conftest.usual(), Path(sys.argv[2]))"
    )
    command = [sys.executable, "-c", program, str(Path(__file__).parent), str(tmp_path / "one")]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": "1"})
    draw(audits["usual"](), tmp_path / "two")
    digests = [
        {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (tmp_path / name).iterdir()}
        for name in ("one", "two")
    ]
    assert digests[0] == digests[1] and len(digests[0]) == 6
    assert b"CreationDate" not in (tmp_path / "one" / "audit.pdf").read_bytes()
    assert b"Software" not in (tmp_path / "one" / "audit.png").read_bytes()


def test_files_are_whole_or_not_there(tmp_path: Path, audits: Audits, monkeypatch: pytest.MonkeyPatch) -> None:
    written = draw(audits["one"](), tmp_path / "new" / "figs")
    assert [path.name for path in written] == ["audit.png", "audit.pdf"]
    assert written[0].read_bytes().startswith(b"\x89PNG") and written[1].read_bytes().startswith(b"%PDF")
    written[0].write_bytes(b"earlier")

    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="no space"):
        draw(audits["one"](), tmp_path / "new" / "figs")
    monkeypatch.undo()
    assert sorted(path.name for path in written[0].parent.iterdir()) == ["audit.pdf", "audit.png"]
    assert written[0].read_bytes() == b"earlier"
    assert draw(audits["empty"](), tmp_path / "none") == [] and not (tmp_path / "none").exists()


def test_settings_and_open_figures_are_left_as_found(tmp_path: Path, audits: Audits) -> None:
    with matplotlib.rc_context({"font.size": 31, "text.usetex": True, "axes.grid": True, "savefig.bbox": "tight"}):
        before, numbers = dict(matplotlib.rcParams), matplotlib.pyplot.get_fignums()
        draw(audits["one"](), tmp_path)
        assert dict(matplotlib.rcParams) == before and matplotlib.pyplot.get_fignums() == numbers
    from PIL import Image

    with Image.open(tmp_path / "audit.png") as image:
        assert image.width == 2100, "a user's savefig.bbox does not change the width of the column"


def test_importing_figures_imports_no_plotting_and_no_numbers() -> None:
    program = f"import sys, {package.__name__} as f; print([m for m in ('matplotlib', 'numpy', 'torch') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_seeds_of_two_folders_are_two_groups(audits: Audits) -> None:
    rows = list(audits["usual"]().rows[3:6])
    groups = seed_groups(Audit([*rows, *(replace(found, checkpoint=f"other/{found.checkpoint}") for found in rows)]))
    assert [group.label for group in groups] == ["runs/dfa", "other/runs/dfa"]
