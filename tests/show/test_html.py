"""The HTML page as a file: what it holds, that it needs nothing else, and that no name becomes markup."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from typing import Any

import builders
import pytest
from builders import exploded, healthy, probed
from html_tree import Node, Tree

from pytest_fadiag import Accuracy, Control
from pytest_fadiag.judge.diagnostics import DIAGNOSTICS, Column, ColumnKind
from pytest_fadiag.judge.diagnostics.frozen_margin import FrozenMargin
from pytest_fadiag.judge.records import AuxiliaryStatistics
from pytest_fadiag.show.audit import Audit, AuditRow, Checklist, MarginRow, Origin
from pytest_fadiag.show.document import audit_of, document
from pytest_fadiag.show.html import html, page, sections
from pytest_fadiag.show.html.axes import linear_axis, log_axis, whole_axis
from pytest_fadiag.show.html.overlay import comparisons
from pytest_fadiag.show.status import Standing

COLUMNS = Audit(()).columns

Audits = dict[str, Callable[[], Audit]]
EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\" ' onclick=alert(1) &amp; \x1b[31m\u202e\u2066]]>-->"


@pytest.fixture(scope="session")
def content(audit: Audit) -> str:
    """The page of each audit, written once."""
    return html(audit, "1.0")


@pytest.fixture(scope="session")
def tree(content: str) -> Node:
    """That page as a tree."""
    return Tree(content).root


def parsed(audit: Audit, version: str = "1.0") -> Node:
    return Tree(html(audit, version)).root


def table(root: Node, ident: str = "audit") -> list[dict[str, Node]]:
    """The rows of a table, each by the words of its headers."""
    node = root.one("table", id=ident)
    titles = [header.text for header in node.one("thead").all("th")]
    rows = [[cell for cell in row.children if isinstance(cell, Node)] for row in node.one("tbody").all("tr")]
    return [dict(zip(titles, cells, strict=True)) for cells in rows]


def headed(column: Column) -> str:
    """A column's header: the letter of its diagnostic, and its title."""
    return column.key + column.title


def hostile(audits: Audits) -> Audit:
    """Every text that a stranger can write says something that wants to be markup."""
    usual, rows = audits["usual"](), []
    for made in usual.rows[::4]:
        assert made.report is not None and made.report.control is not None
        report = replace(
            made.report,
            method_name=EVIL,
            notes=f"{EVIL}\n{EVIL}",
            control=replace(made.report.control, source=EVIL, method=EVIL),
            environment={EVIL: EVIL},
            caveats=[EVIL],
        )
        rows.append(replace(made, method=EVIL, checkpoint=EVIL + str(made.seed), report=report, reason=EVIL))
    rows.append(AuditRow(EVIL, EVIL, None, None, {"a": "error"}, EVIL))
    interval = replace(usual.margins[0].margin.interval, kind=EVIL)  # type: ignore[union-attr]
    margin = replace(usual.margins[0].margin, interval=interval, caveat=EVIL)  # type: ignore[type-var]
    margins = [MarginRow(EVIL, EVIL, margin=margin), MarginRow(EVIL, EVIL, outcome="error", reason=EVIL)]
    names = ("number", "title", "file", "line", "code", "message", "fix", "silenced")
    return Audit(rows, margins, Checklist(1, [dict.fromkeys(names, EVIL)]))


def test_the_page_is_well_formed_and_needs_nothing_else(content: str, tree: Node) -> None:
    identifiers = [node.attributes["id"] for node in tree.walk() if "id" in node.attributes]
    assert len(identifiers) == len(set(identifiers))
    assert "http:" not in content and "https:" not in content and "url(" not in content and "@import" not in content
    for node in tree.walk():
        assert not {"src", "style", "action"} & set(node.attributes)
        assert not [name for name in node.attributes if name.startswith("on")]
        target = node.attributes.get("href", "#")
        assert target == "data:," if node.tag == "link" else target == "#" or target[1:] in identifiers
        for name in ("aria-labelledby", "aria-describedby"):
            assert node.attributes.get(name, identifiers[0]) in identifiers
    assert [node.text for node in tree.all("script")] == [files(page.__package__).joinpath("page.js").read_text("utf-8")]


def test_only_the_pages_own_style_and_script_may_run(audits: Audits) -> None:
    root = parsed(audits["usual"]())
    policy = root.one("meta", **{"http-equiv": "Content-Security-Policy"}).attributes["content"]
    for tag in ("style", "script"):
        digest = base64.b64encode(hashlib.sha256(root.one(tag).text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; ") and "unsafe" not in policy


def test_style_and_script_are_small() -> None:
    assert sum(len(files(page.__package__).joinpath(name).read_bytes()) for name in ("page.css", "page.js")) < 40_000


def test_no_name_becomes_markup(audits: Audits) -> None:
    content = html(hostile(audits), EVIL)
    root = Tree(content).root
    assert len(root.all("script")) == 1 and root.all("img") == []
    assert not [node for node in root.walk() for name in node.attributes if name.startswith("on")]
    assert [char for char in set(content) if not char.isprintable()] == ["\n"]
    shown = EVIL.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e").replace("\u2066", "\\u2066")
    assert table(root)[0]["method"].all("a")[0].text == shown
    assert root.one("table", id="audit").all("a")[-1].attributes["title"] == shown
    assert shown in root.all("pre")[0].text and shown in root.one("footer").text


def test_whatever_a_template_is_given_is_escaped_in_text_and_in_attributes() -> None:
    made = page._environment().from_string('<td title="{{ name }}">\n  {{ name }}\n</td>').render(name='"><b>\n\u202e')
    assert made == r'<td title="&#34;&gt;&lt;b&gt;\n\u202e">&#34;&gt;&lt;b&gt;\n\u202e</td>'


def test_templates_are_imported_only_when_a_page_is_written() -> None:
    program = f"import sys, {page.__package__}; print('jinja2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout == "False\n"


def test_the_same_audit_gives_the_same_page_again_from_its_document(audit: Audit, content: str) -> None:
    assert html(audit, "1.0") == content
    plain = json.loads(json.dumps(document(audit, "1.0")))
    assert html(audit_of(plain), "1.0") == content


def test_the_headline_counts_where_the_rows_stand(audits: Audits) -> None:
    root = parsed(audits["usual"]())
    assert root.one("h1").text == root.all("title")[0].text.removeprefix("FA audit: ")
    counted = {item.all("span")[1].text: int(item.one("b").text) for item in root.one("ul", **{"class": "counts"}).all("li")}
    words = [row.attributes["data-standing"] for row in root.one("table", id="audit").one("tbody").all("tr")]
    assert counted == {standing.word: words.count(standing.word) for standing in Standing if standing.word in words}
    assert len(counted) < len(Standing), "no tile for what there is none of"
    assert root.one("h1").text == f"{counted['walk-back']} of 12 results need a walk-back"


def test_the_page_begins_with_when_and_from_what_it_was_made(audits: Audits) -> None:
    made = Origin("2026-01-02T03:04:05+00:00", "pytest --fa-only", "0123456789abcdef+", {"torch": "2.13.0"}, {}, {})
    root = parsed(replace(audits["one"](), origin=made))
    first = root.one("header").all("p")[0]
    assert first.text == "FA audit · 2026-01-02 03:04 UTC · commit 0123456+ · how this was made"
    assert first.one("a").attributes["href"] == "#origin"
    facts = {line.one("dt").text: line.one("dd").text for line in root.one("dl", **{"class": "origin"}).all("div")}
    assert (
        facts["commit"] == "0123456789abcdef+"
        and facts["command"] == "pytest --fa-only"
        and facts["versions"] == "torch 2.13.0"
    )


def test_methods_are_overlaid_on_one_scale(audits: Audits) -> None:
    audit = audits["usual"]()
    (comparison,) = comparisons(audit)
    assert comparison.methods == ["bp", "dfa", "dfa (log)", "dfa-lam (log)"]
    states, gradients = comparison.plots
    for plot in (states, gradients):
        assert [layer.stroke for layer in plot.layers] == [number for number in range(4) for _ in range(3)]
        assert len({layer.chart.y_axis for layer in plot.layers}) == len({layer.chart.x_axis for layer in plot.layers}) == 1
    for layer, row in zip(states.layers, audit.rows, strict=True):
        assert row.report is not None
        assert list(layer.chart.ys) == list(row.report.residual_norms) and layer.name.endswith(f"seed {row.seed}")
    assert not states.frame.limits and [line.value for line in gradients.frame.limits] == [1e-7]
    figures = parsed(audit).all("figure", **{"class": "overlaid"})
    assert [len(figure.all("g")) for figure in figures] == [12, 12]
    assert "bp, seed 42: layer 0: 35" in figures[0].one("desc").text
    assert parsed(audits["one"]()).all("figure", **{"class": "overlaid"}) == [], "one network has its plots in its report"


def test_what_probes_read_is_overlaid_over_its_null(audits: Audits) -> None:
    deep, flat = probed(healthy("bp")), probed(exploded("dfa"), 0.6, 0.5, 0.5, 0.5, 0.5, null=0.55)
    control = Control(Accuracy(0.6), "frozen_s42.pt", probes=(0.5, 0.51, 0.52, 0.53, 0.54))
    deep, flat = replace(deep, control=control), replace(flat, control=control)
    made = [deep, flat, probed(healthy("no-null"), null=None), healthy("unasked")]
    audit = Audit([builders.row(report) for report in made])
    (comparison,) = comparisons(audit)
    probes = comparison.plots[2]
    assert [(layer.name, layer.stroke, layer.of.value) for layer in probes.layers] == [
        ("control frozen_s42.pt", None, "control"),
        ("bp, seed 42, blocks drawn anew", 0, "null"),
        ("dfa, seed 42, blocks drawn anew", 1, "null"),
        ("bp, seed 42", 0, "network"),
        ("dfa, seed 42", 1, "network"),
        ("no-null, seed 42", 2, "network"),
    ]
    assert list(probes.layers[1].chart.ys) == pytest.approx([0.6, 0.6, 0.6, 0.6, 0.62])
    assert list(probes.layers[4].chart.ys) == [0.6, 0.5, 0.5, 0.5, 0.5]
    assert [sorted(layer.chart.fired) for layer in probes.layers] == [[], [], [], [], [4], []], "depth adds nothing to dfa"
    root = parsed(audit)
    titles = [figure.all("text")[0].text for figure in root.all("figure", **{"class": "overlaid"})]
    assert titles.count("what a linear probe reads, by depth") == 4, "together, and in three reports"
    assert [figure.text.count("the control") for figure in root.all("figure", **{"class": "overlaid"})][2] == 1
    cells = {line["method"].all("a")[0].text: line["edepth"].text for line in table(root)}
    assert cells["bp"] == "+18.00" and "e-10.00 (fired)" in cells["dfa"] and "not measured" in cells["unasked"]


def test_more_methods_than_strokes_need_another_comparison(audits: Audits) -> None:
    names = [len(comparison.methods) for comparison in comparisons(audits["large"]())]
    assert names == [8, 8]


def test_zero_rows_say_that_nothing_was_audited() -> None:
    root = parsed(Audit([]))
    assert root.one("h1").text == "nothing was audited"
    assert root.all("table") == [] and root.all("form") == [] and root.all("details") == []
    assert all(d.name in root.one("main").text for d in DIAGNOSTICS.by_default)


def test_the_diagnostics_say_what_they_ask_and_by_which_thresholds(audits: Audits) -> None:
    rows = audits["usual"]().rows
    first = rows[0].report
    assert first is not None
    stricter = replace(rows[0], report=replace(first, thresholds=first.thresholds.replace(h_norm_explosion_ratio=30)))
    asked = parsed(Audit([stricter, *rows[1:]])).one("ul", **{"class": "asked"}).all("li")
    for diagnostic, item in zip(DIAGNOSTICS.by_default, asked, strict=True):
        assert item.text.startswith(f"{diagnostic.key}{diagnostic.name}{diagnostic.question}{diagnostic.threshold}")
    assert "30 (1 row), 50 (11 rows)" in asked[0].text and "2fired in" in asked[3].text


def test_every_column_is_in_the_table_with_a_key_to_sort_by(audits: Audits) -> None:
    audit = audits["usual"]()
    for row, cells in zip(audit.rows, table(parsed(audit)), strict=True):
        assert row.report is not None
        for column in COLUMNS:
            value, cell = column.value(row.report), cells[headed(column)]
            assert ("not measured" if value is None else column.show(value)) in cell.text
            assert cell.attributes.get("data-sort") == (None if value is None else repr(float(value)))
    headers = parsed(audit).one("table", id="audit").one("thead").all("th")
    assert {header.attributes["scope"] for header in headers} == {"col"}


def test_what_is_missing_or_undefined_has_no_sort_key(audits: Audits) -> None:
    by_name = {cells["method"].all("a")[0].text: cells for cells in table(parsed(audits["odd"]()))}
    assert "data-sort" not in by_name["later"]["acc"].attributes and "not measured" in by_name["later"]["acc"].text
    assert "data-sort" not in by_name["holes"]["agrowth"].attributes
    assert by_name["not-finite"]["agrowth"].attributes["data-sort"] == "Infinity"


def test_fired_cells_are_marked_without_colour(audits: Audits) -> None:
    audit = audits["usual"]()
    for row, cells in zip(audit.rows, table(parsed(audit)), strict=True):
        for diagnostic in DIAGNOSTICS.by_default:
            marked = [cells[headed(column)] for column in diagnostic.columns if cells[headed(column)].all("strong")]
            assert len(marked) == (diagnostic.key in row.fired)
            for cell in marked:
                assert cell.all("b", **{"class": "key fired"})[0].text == diagnostic.key and "(fired)" in cell.text
                assert "fire" in cell.attributes["title"]


def test_a_diagnostic_of_another_package_appears_by_its_name(audits: Audits) -> None:
    class Other(FrozenMargin):
        name, question, threshold, default = "my-own", "is there another?", "my_own_minimum", 2.0
        columns = (Column(name, "others", lambda _: -1.0, ColumnKind.SCALE, 9),)

    available = DIAGNOSTICS.with_others([Other()])
    rows = []
    for row in audits["usual"]().rows:
        report = row.report and replace(
            row.report, diagnostics=(*row.report.diagnostics, "my-own"), available=available, trajectory=None
        )
        rows.append(replace(row, outcomes={}, report=report))
    root = parsed(Audit(rows))
    assert {cells["my-ownothers"].attributes["data-sort"] for cells in table(root)} == {"-1.0"}
    assert "is there another?" in root.one("ul", **{"class": "asked"}).text
    assert "my-own" in [option.text for option in root.one("select", id="fired").all("option")]


def test_rows_from_logs_are_marked_and_tell_when_they_first_fired(audits: Audits) -> None:
    audit = audits["usual"]()
    for row, cells in zip(audit.rows, table(parsed(audit)), strict=True):
        assert ("log" in cells["method"].text) == row.partial
        first = row.report.trajectory.first_fired if row.report and row.report.trajectory else {}
        assert cells["first fired"].text == "".join(f"{key} {epoch}" for key, epoch in first.items())
    assert "first fired" not in table(parsed(Audit(audit.rows[:6])))[0]


def test_a_likely_outcome_is_said_to_be_only_likely(audits: Audits) -> None:
    cells = next(cells for cells in table(parsed(audits["odd"]())) if cells["method"].text.startswith("holes"))
    assert "likely" in cells["agrowth"].text and "likely" in cells["b‖g_L‖"].text
    assert "stands in for" in cells["b‖g_L‖"].attributes["title"]


def test_expected_verdicts_and_numbers_that_moved_are_marked(audits: Audits) -> None:
    row = audits["usual"]().rows[3]
    assert row.report is not None
    before = replace(row.report, headline_acc=0.5, accuracy=None)
    outcomes = {key: "xfailed" if key in row.fired else outcome for key, outcome in row.outcomes.items()}
    expected = replace(row, expected=row.fired, recorded=before, outcomes=outcomes)
    root = parsed(Audit([expected, replace(row, expected="c")]))
    same, other = table(root)
    assert same["verdict"].text == f"✗walk-back {' '.join(row.fired)}expected"
    assert other["verdict"].text.endswith("(expected c)not as expected")
    assert "was 0.5000" in same["acc"].text and "was" not in other["acc"].text
    assert "acc 0.5000 → 0.6530 (+31%)" in root.all("details")[0].text


def test_twins_are_told_apart_by_their_files(audits: Audits) -> None:
    row = audits["usual"]().rows[0]
    shown = [cells["method"].text for cells in table(parsed(Audit([row, replace(row, checkpoint="other/bp.pt")])))]
    assert shown == ["bpruns/bp_s42.pt", "bpother/bp.pt"]


def test_means_stand_apart_with_their_number_of_seeds(audits: Audits) -> None:
    means = table(parsed(audits["usual"]()), "means")
    assert [(cells["method"].text, cells["seeds"].text) for cells in means] == [
        ("bp", "n=3"),
        ("dfa", "n=3"),
        ("dfalog", "n=3"),
        ("dfa-lamlog", "n=3"),
    ]
    assert means[0]["acc"].text == "0.9000± 0"
    assert parsed(audits["one"]()).all("table", id="means") == []


def test_means_say_how_far_a_method_gets_towards_bp(audits: Audits) -> None:
    audit = audits["usual"]()
    means = table(parsed(audit), "means")
    assert [cells["towards BP"].text for cells in means[:2]] == ["–", f"{(0.653 - 0.76) / (0.9 - 0.76):.2f}"]
    assert "(method − control)/(BP − control), means over seeds" in parsed(audit).text
    assert "towards BP" not in table(parsed(Audit([row for row in audit.rows if row.method != "bp"])), "means")[0]


def test_margins_over_seeds_say_what_would_decide(audits: Audits) -> None:
    (row,) = audits["usual"]().margins
    assert row.margin is not None
    open_one = replace(row.margin, interval=replace(row.margin.interval, low=-11.0, high=3.0), caveat="unpaired")
    none = MarginRow("bp", "bp", partial=True, outcome="skipped", reason="no control")
    root = parsed(Audit((), [row, MarginRow("ep", "ep", margin=open_one, outcome="xfailed"), none]))
    fired, undecided, skipped = (line.text for line in root.one("table", id="margins").one("tbody").all("tr"))
    assert fired == "dfan=3-10.70-11.50 to -9.902◂✗FIRE"
    assert undecided.startswith("epn=3-10.70-11.00 to +3.002?INCONCLUSIVEexpected")
    assert open_one.needed() and open_one.needed() in undecided and undecided.endswith("unpaired")
    assert skipped == "bplogskipped: no control"


def test_a_caveat_that_all_margins_share_is_said_once(audits: Audits) -> None:
    (row,) = audits["usual"]().margins
    assert row.margin is not None
    alike = replace(row, margin=replace(row.margin, caveat="unpaired, all of them"))
    shown = parsed(Audit((), [alike, replace(alike, name="ep", method="ep")])).text
    assert shown.count("unpaired, all of them") == 1


def test_a_margin_from_logs_says_so_once(audits: Audits) -> None:
    (row,) = audits["usual"]().margins
    logged = replace(row, name="dfa (log)", partial=True)
    (line,) = parsed(Audit((), [logged])).one("table", id="margins").one("tbody").all("tr")
    assert line.text.startswith("dfalogn=3")
    named = replace(row, name="dfa (log)")
    assert "dfa (log)n=3" in parsed(Audit((), [named])).text, "a method may be called so"


@pytest.mark.parametrize(("at", "arrow"), [(2.0, ""), (3.0, ""), (-1.0, ""), (7.0, "▸"), (90.0, "▸"), (-60.0, "◂")])
def test_an_interval_without_width_is_an_arrow_only_where_it_is_off_the_scale(audits: Audits, at: float, arrow: str) -> None:
    (row,) = audits["usual"]().margins
    assert row.margin is not None
    narrow = replace(row.margin, margin=at, interval=replace(row.margin.interval, low=at, high=at))
    drawn = parsed(Audit((), [replace(row, margin=narrow)])).one("svg")
    assert "".join(mark.text for mark in drawn.all("text")) == arrow and len(drawn.all("circle")) == (arrow == "")


def test_margins_over_seeds_are_counted_beside_the_results(audits: Audits) -> None:
    audit = audits["usual"]()
    (fired,) = audit.margins
    assert fired.margin is not None
    open_one = replace(fired, margin=replace(fired.margin, interval=replace(fired.margin.interval, high=3.0)))
    none = MarginRow("bp", "bp", outcome="skipped", reason="no control")
    root = parsed(Audit(audit.rows[:3], [fired, open_one, none]))
    assert root.one("h1").text == "3 of 3 results trustworthy, but not every margin over seeds"
    tally = root.one("header").one("p", **{"class": "over-seeds"})
    assert [part.text for part in tally.all("span") if "tally" in part.attributes["class"]] == [
        "?1 inconclusive",
        "✗1 fire",
        "–1 no control",
    ]
    alone = parsed(Audit([], [fired]))
    assert alone.one("h1").text == "margins over seeds: 1 fire" and alone.one("table", id="margins")
    assert parsed(Audit(audit.rows[:3])).one("h1").text == "3 of 3 results trustworthy"


def test_a_number_that_is_excused_says_so(audits: Audits) -> None:
    row = audits["usual"]().rows[0]
    assert row.report is not None
    saturated = AuxiliaryStatistics(gradient_per_unit_error=1e-5, output_error_norm=1e-4)
    excused = replace(row.report, bp_grad_norms=[1e-9] * 5, companions=saturated)
    (cells,) = table(parsed(Audit([replace(row, report=excused)])))
    assert cells["b‖g_L‖"].text == "1.0e-09excused" and "excused" not in cells["acc"].text


def test_what_no_epoch_tells_is_not_said_to_be_nothing(audits: Audits) -> None:
    log = next(row for row in audits["usual"]().rows if row.method == "dfa-lam")
    assert log.report is not None and log.report.trajectory is not None

    def first_fired(**holes: Any) -> str:
        assert log.report is not None and log.report.trajectory is not None
        points = tuple(replace(point, **holes) for point in log.report.trajectory.points)
        report = replace(log.report, trajectory=replace(log.report.trajectory, points=points))
        facts = parsed(Audit([replace(log, report=report)])).one("details").one("dl").all("div")
        return next(fact.one("dd").text for fact in facts if fact.one("dt").text == "first fired")

    assert first_fired() == "(d) epoch 1 of 30; (c) not logged by epoch"
    assert first_fired(accuracy=0.9) == "(d) only in the final numbers; (c) not logged by epoch"
    unknown = first_fired(accuracy=None, residual_norms=(None,) * 5, bp_grad_norms=(None,) * 5)
    assert unknown == "(d) not logged by epoch; (a), (b) and (c) not logged by epoch" and "nothing" not in unknown


def test_the_checklist_gives_place_fix_and_reason(audits: Audits) -> None:
    first, second = parsed(audits["usual"]()).one("ul", **{"class": "findings"}).all("li")
    assert first.text == "1the L₋₁ normeval.py:12g.norm(-1)takes the L₋₁ normFix: g.norm(dim=-1)"
    assert second.text.endswith("Silenced: norms are checked above")
    assert "4 files read, nothing found." in parsed(Audit([], checklist=Checklist(4))).text


def test_a_checklist_alone_is_what_the_page_is_about(audits: Audits) -> None:
    root = parsed(Audit([], checklist=audits["usual"]().checklist))
    assert root.one("h1").text == "evaluation code: 4 files read, 2 findings, 1 silenced"
    assert [heading.attributes["id"] for heading in root.all("h2")] == ["checklist", "asked"]


def test_notes_are_listed(audits: Audits) -> None:
    row = audits["usual"]().rows[0]
    assert row.report is not None and row.report.control is not None
    foreign = replace(row, report=replace(row.report, control=replace(row.report.control, method="dfa")))
    root = parsed(Audit([foreign]))
    assert [item.text for item in root.one("ul", **{"class": "notes"}).all("li")] == ["bp: control of another method: dfa"]


def test_each_report_has_its_text_its_control_and_its_environment(audits: Audits) -> None:
    audit = audits["usual"]()
    root = parsed(audit)
    for number, row in enumerate(audit.rows):
        report = root.one("details", id=f"report-{number}")
        assert row.report is not None
        assert report.one("pre").text == str(row.report)
        assert row.report.verdict in report.one("summary").text
        facts = {line.one("dt").text: line.one("dd").text for line in report.one("dl").all("div")}
        assert f"frozen_{row.method}_s{row.seed}.pt" in facts["control"] and "torch 2.13.0" in facts["environment"]
        assert root.one("table", id="audit").one("a", href=f"#report-{number}").text == row.method


def test_a_row_without_a_report_says_why(audits: Audits) -> None:
    reports = parsed(audits["odd"]()).all("details")
    broken = next(report for report in reports if "broken" in report.one("summary").text)
    assert "cannot be read" in broken.one("dl").text and "(a) error" in broken.one("dl").text and broken.all("svg") == []


def test_every_plot_is_described_and_has_its_threshold(audits: Audits) -> None:
    for report in parsed(audits["usual"]()).all("details"):
        plots = report.all("figure")
        assert len(plots) > 4 if "(log)" in report.one("summary").text else len(plots) == 2
        for plot in plots:
            svg = plot.one("svg")
            assert svg.attributes["role"] == "img" and svg.all("title") and svg.one("desc").text
        assert plots[0].all("line", **{"class": "limit"}) and "50 × ‖h_l‖" in plots[0].text
        assert len(plots[1].all("line", **{"class": "limit"})) == 1 and "floor 1e-07" in plots[1].text


def test_holes_zeros_infinities_and_nan_are_seen(audits: Audits) -> None:
    row = audits["usual"]().rows[0]
    assert row.report is not None
    norms = [3.0, None, 0.0, math.inf, math.nan, None, None, 5.0]
    drawn = parsed(Audit([replace(row, report=replace(row.report, residual_norms=norms))])).all("figure")[0]
    marks = [mark.text for mark in drawn.all("text", **{"class": "odd"})]
    assert [mark[-1] for mark in marks] == ["○", "▽", "△", "✕", "○", "○"]
    for said in ("not recorded: layers 1, 5–6", "exactly 0: layer 2", "infinite: layer 3", "undefined (NaN): layer 4"):
        assert said in drawn.one("figcaption").text
    assert len(drawn.all("circle")) == 2 and len(drawn.all("line", **{"class": "hole"})) == 1


def test_no_coordinate_lies_outside_of_its_plot(tree: Node) -> None:
    for svg in tree.all("svg"):
        width, height = map(float, svg.attributes["viewbox"].split()[2:])
        for node in svg.walk():
            for name, value in node.attributes.items():
                if name in ("x", "x1", "x2", "cx"):
                    assert 0 <= float(value) <= width
                if name in ("y", "y1", "y2", "cy"):
                    assert 0 <= float(value) <= height


def test_a_depth_that_nobody_knows_ends_in_l(audits: Audits) -> None:
    reports = parsed(audits["odd"]()).all("details")
    bare = next(report for report in reports if "bare" in report.one("summary").text)
    labels = [label.text for label in bare.all("figure")[0].all("text", **{"class": "tick"})]
    assert "L" in labels and "layer L: 3" in bare.all("desc")[0].text


def test_the_first_epochs_are_marked_in_the_course(audits: Audits) -> None:
    log = next(row for row in audits["usual"]().rows if row.partial)
    assert log.report is not None and log.report.trajectory is not None
    course = parsed(Audit([log])).all("figure")[2]
    keys = "".join(mark.text for mark in course.all("text", **{"class": "mark"}))
    assert sorted(keys) == sorted(log.report.trajectory.first_fired) and "first fired" in course.text


@pytest.mark.parametrize(
    ("axis", "labels"),
    [
        (log_axis([3e-9, 2.0]), ["10⁻⁸", "10⁻⁶", "10⁻⁴", "10⁻²", "1"]),
        (log_axis([5.0]), ["1", "10"]),
        (log_axis([None, 0.0, math.inf]), ["1", "10"]),
        (log_axis([1.0], [1e-300]), ["1", "10"]),
        (linear_axis([0.84, 0.9], (0, 1)), ["0.84", "0.86", "0.88", "0.9"]),
        (linear_axis([0.5]), ["0.46", "0.48", "0.5", "0.52", "0.54"]),
        (whole_axis([1, 30]), ["10", "20", "30"]),
    ],
)
def test_axes_have_few_round_ticks(axis: Any, labels: list[str]) -> None:
    assert [label for _, label in axis.ticks(5)] == labels
    assert all(-1e-9 <= place <= 1 + 1e-9 for place, _ in axis.ticks(5))


def luminance(colour: str) -> float:
    colour = colour.lstrip("#")
    colour = colour if len(colour) == 6 else "".join(2 * digit for digit in colour)
    parts = [int(colour[index : index + 2], 16) / 255 for index in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_text_has_the_contrast_of_wcag_aa_in_every_scheme() -> None:
    style = files(page.__package__).joinpath("page.css").read_text("utf-8")
    schemes = [dict(re.findall(r"--([a-z-]+): (#[0-9a-f]+)", block)) for block in re.findall(r":root \{(.*?)\}", style, re.S)]
    assert len(schemes) == 3  # light, dark, print
    for colours in schemes:
        pairs = [(text, ground) for text in ("ink", "quiet", "link", "fire", "pass", "open") for ground in ("ground", "panel")]
        for text, ground in [*pairs, ("fire", "fire-ground"), ("quiet", "fire-ground"), ("on-fire", "fire")]:
            light, dark = sorted((luminance(colours[text]), luminance(colours[ground])), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (text, ground, colours)


def test_a_table_scrolls_in_its_own_box(audits: Audits) -> None:
    boxes = parsed(audits["usual"]()).all("div", **{"class": "scroll"})
    assert [box.one("table").attributes["id"] for box in boxes] == ["audit", "means", "margins"]
    assert all(box.attributes["tabindex"] == "0" and box.attributes["aria-label"] for box in boxes)
    assert sections.SYMBOLS.keys() == set(type(next(iter(sections.SYMBOLS))))
