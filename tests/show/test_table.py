"""The audit table: what it shows, how it narrows, and that nothing from a checkpoint steers the terminal."""

from __future__ import annotations

import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any

import builders
import pytest
from builders import report

from pytest_fadiag.judge.margins import Interval, SeedMargin
from pytest_fadiag.judge.names import one_line
from pytest_fadiag.judge.records import AuxiliaryStatistics
from pytest_fadiag.show.audit import Audit, AuditRow, MarginRow
from pytest_fadiag.show.document import document
from pytest_fadiag.show.groups import method_groups
from pytest_fadiag.show.markdown import markdown
from pytest_fadiag.show.notes import legend
from pytest_fadiag.show.status import Outcome, in_words
from pytest_fadiag.show.table import render

COLUMNS = Audit(()).columns

GOLDEN = Path(__file__).with_name("golden")
KEYS = "abcd"


def row(
    method: str,
    seed: int | None = 42,
    outcome: str = "",
    reason: str = "",
    *,
    growth: float = 1.4,
    g: float = 4e-6,
    drift: float | None = 0.06,
    **more: Any,
) -> AuditRow:
    """A row of three layers; with an outcome, that of all its tests, it has no report."""
    name = f"runs/{method}_s{seed}.pt"
    if outcome:
        return AuditRow(name, method, seed, None, dict.fromkeys(KEYS, Outcome(outcome)), reason)
    expected = more.pop("expected", None)
    found = report(
        method_name=method,
        seed=seed,
        residual_norms=[35.0, 35.0 * growth, 66.0 * growth],
        bp_grad_norms=[g, g, g],
        stability_layer=1,
        cross_batch_stability=drift,
        **{"headline_acc": 0.9022, "frozen_baseline_acc": 0.8701, **more},
    )
    without = {"outcomes": {**dict.fromkeys("abc", "passed"), "d": "skipped"}} if found.frozen_baseline_acc is None else {}
    return builders.row(found, checkpoint=name, expected=expected, **without)


def collapsed(**more: Any) -> dict[str, Any]:
    return {"growth": 2.8e3, "g": 1.3e-8, "headline_acc": 0.637, "frozen_baseline_acc": 0.764, **more}


@pytest.fixture
def rows() -> list[AuditRow]:
    """One of everything that a table can say."""
    partly = replace(row("stopped", 1), outcomes={"a": "passed", "b": "not run", "c": "not run", "d": "not run"})
    lacking = replace(row("half", 1), outcomes={"a": "passed", "b": "passed", "c": "passed", "d": "error"})
    return [
        row("bp", 42),
        row("bp", 123, headline_acc=0.8984, drift=0.041),
        row("bp", 456, headline_acc=0.9001, drift=-0.02),
        row("corrupt", 42, outcome="error", reason="runs/corrupt_s42.pt: not a checkpoint: PytorchStreamReader failed"),
        row("dfa", 42, **collapsed()),
        row("dfa", 123, **collapsed(headline_acc=0.641, growth=1.1e3)),
        row("dfa-expected", 42, expected="abd", **collapsed()),
        row("dfa-changed", 42, expected="a", **collapsed()),
        lacking,
        row("missing", 7, outcome="skipped"),
        row("no-control", None, frozen_baseline_acc=None),
        row("not-finite", 1, growth=float("nan")),
        partly,
        row("saturated", 1, g=3.1e-9, companions=AuxiliaryStatistics(gradient_per_unit_error=2e-5, output_error_norm=1e-4)),
        row("varied", 1, drift=0.41, companions=AuxiliaryStatistics(sample_invariance=0.02)),
        row("waiting", 1, outcome="not run"),
        row("early", 1, partial=True, drift=None),
        row("later", 1, partial=True, drift=None, g=1.3e-8),
    ]


def text(rows: list[AuditRow], width: int, *, ascii_only: bool = False) -> str:
    table = render(Audit(rows), width, ascii_only=ascii_only)
    lines = ["".join(cell.text for cell in line).rstrip() for line in table]
    return "\n".join(lines) + "\n"


def keyed(rows: list[AuditRow], width: int) -> list[str]:
    """The legend as a run of that width shows it."""
    return legend(Audit(rows), render(Audit(rows), width), width)


def cells(line: str) -> int:
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in line)


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_as_it_was_looked_at(rows: list[AuditRow], width: int) -> None:
    golden = GOLDEN / f"table_{width}.txt"
    shown = text(rows, width) + "".join(f"{line}\n" for line in keyed(rows, width))
    assert shown == golden.read_text("utf-8"), f"if the change is right, renew {golden}"


def test_no_line_is_wider_than_the_terminal(rows: list[AuditRow]) -> None:
    rows.append(row("a-method-with-a-very-long-name-that-somebody-chose", 123456789, **collapsed()))
    rows.append(row("反向传播反向传播反向传播反向传播反向传播", 1))
    for width in range(40, 201):
        assert max(map(cells, text(rows, width, ascii_only=width % 20 == 0).splitlines())) <= width


def test_letters_that_take_two_columns_keep_the_table_in_line(rows: list[AuditRow]) -> None:
    rows.append(row("反向传播反向传播反向", 1))
    starts = {sum(cells(cell.text) for cell in line[:-1]) for line in render(Audit(rows), 120)}
    assert len(starts) == 1, "the verdicts begin in one column"


def test_at_140_columns_nothing_is_dropped(rows: list[AuditRow]) -> None:
    head, *body = text(rows, 140).splitlines()
    assert head.split() == ["method", "seed", *(column.title for column in COLUMNS), "verdict"]
    assert "±" in next(line for line in body if "n=3" in line).split()[3], "the deviation of a norm is there too"
    assert "…" not in "".join(line for line in body if not line.startswith("corrupt"))


def test_at_80_columns_columns_go_by_priority_and_the_verdict_stays(rows: list[AuditRow]) -> None:
    head, *body = text(rows, 80).splitlines()
    assert head.split()[2:] == ["growth", "‖g_L‖", "drift", "margin", "verdict"], "in each something fired or is excused"
    assert "walk-back a b d" in "".join(body)


def test_columns_of_the_issue_are_there_in_order() -> None:
    titles = text([row("bp")], 200).splitlines()[0].split()
    assert titles == ["method", "seed", "acc", "‖h_L‖", "growth", "‖g_L‖", "drift", "frozen", "margin", "verdict"]


def test_what_fired_is_marked_and_nothing_else(rows: list[AuditRow]) -> None:
    table = render(Audit(rows), 200)
    by_method = {line[0].text.strip(): [cell.text.strip() for cell in line if cell.fired] for line in table}
    assert by_method["bp"] == []
    assert by_method["dfa-expected"] == ["2.8e+03", "1.3e-08", "-12.70", "walk-back a b d*"], "what decides, not its neighbours"
    assert by_method["corrupt"][0].startswith("error") and by_method["waiting"] == ["not run"]


@pytest.mark.parametrize(
    ("method", "verdict"),
    [
        ("dfa", "walk-back a b d"),
        ("dfa-expected", "walk-back a b d*"),
        ("dfa-changed", "walk-back a b d (expected a)"),
        ("half", "incomplete error d"),
        ("missing", "skipped"),
        ("no-control", "incomplete no d"),
        ("stopped", "incomplete not run b c d"),
        ("waiting", "not run"),
        ("saturated", "trustworthy"),
        ("early", "incomplete likely b no c"),
        ("later", "walk-back b? no c"),
        ("corrupt", "error: runs/corrupt_s42.pt: not a checkpoint: PytorchStreamReader failed"),
    ],
)
def test_the_verdict_of_each_kind_of_row(rows: list[AuditRow], method: str, verdict: str) -> None:
    assert next(in_words(row.status) for row in rows if row.method == method) == verdict


def test_a_report_without_a_control_says_so_also_where_a_test_asked_for_the_whole_report() -> None:
    whole = AuditRow("runs/x.pt", "x", None, report(frozen_baseline_acc=None))
    assert in_words(whole.status) == "incomplete no d"


def test_shorthand_has_a_legend_where_it_occurs_and_nowhere_else(rows: list[AuditRow]) -> None:
    by_method = {row.method: row for row in rows}
    assert keyed([by_method["bp"], by_method["dfa-changed"], by_method["corrupt"]], 120) == []
    assert keyed([by_method["no-control"]], 120) == ["no: not measured"]
    assert keyed([by_method["early"]], 120) == ["likely: passes as far as is known; no: not measured"]
    assert keyed([by_method["later"]], 120) == ["? likely fires; no: not measured"]
    assert keyed([by_method["saturated"]], 120) == ["^ crosses its threshold, but is excused"]
    odd = [row("x", 1, outcome="error", reason="no such file? likely ^")]
    assert keyed(odd, 120) == [], "the words of an error are no shorthand"
    for width in (40, 60, 80, 120, 200):
        lines = keyed(rows, width)
        assert max(map(len, lines)) <= width and "".join(lines).isascii()


def test_a_number_that_crosses_its_threshold_and_passes_is_marked(rows: list[AuditRow]) -> None:
    marked = {line[0].text.strip(): [c.text.strip() for c in line if "^" in c.text] for line in render(Audit(rows), 200)}
    assert {method: cells for method, cells in marked.items() if cells} == {"saturated": ["3.1e-09^"], "varied": ["0.410^"]}
    by_method = {row.method: row for row in rows}
    assert by_method["saturated"].status.excused == "b" and by_method["varied"].status.excused == "c"
    assert "^" not in "".join(keyed([by_method["varied"]], 30)), "without its column there is no mark to explain"


def margin(name: str, mean: float, low: float, high: float) -> MarginRow:
    return MarginRow(name, name, margin=SeedMargin(3, 10_000, mean, Interval(low, high, "bootstrap"), 2.0, 1.2, 50.0))


def test_a_margin_over_seeds_alone_has_its_number_and_its_interval() -> None:
    audit = Audit([], [margin("bp", 3.01, 2.5, 3.6), margin("dfa", -12.5, -13.1, -11.9), MarginRow("ep", "ep")])
    for width in (80, 120):
        table = ["".join(cell.text for cell in line).split() for line in render(audit, width)]
        column = table[0].index("margin")
        assert [line[column] for line in table[1:3]] == ["+3.01", "-12.50"]
        assert table[1][-4:] == ["seeds", "PASS", "[+2.5,", "+3.6]"] and table[1][:2] == ["bp", "n=3"]
    assert next(cell.text.strip() for cell in render(audit, 120)[2] if cell.fired) == "-12.50"


def test_several_margins_of_one_method_are_all_shown_below_its_mean(rows: list[AuditRow]) -> None:
    pair = [MarginRow(f"{folder}/bp", "bp", margin=margin("bp", 3, 2.5, 3.5).margin) for folder in "xy"]
    shown = ["".join(cell.text for cell in line).split()[0] for line in render(Audit(rows[:3], pair), 120)]
    assert shown == ["method", "bp", "bp", "bp", "bp", "x/bp", "y/bp"]


def test_a_method_with_several_seeds_has_a_mean(rows: list[AuditRow]) -> None:
    means = {group.method: group.mean for group in method_groups(Audit(rows)) if group.mean is not None}
    assert set(means) == {"bp", "dfa"}
    assert means["bp"].seeds == 3
    assert means["bp"].values[0] == pytest.approx((0.9022 + 0.8984 + 0.9001) / 3)
    assert means["bp"].deviations[0] == pytest.approx(0.0019, abs=1e-4)


def test_runs_of_one_seed_in_two_folders_are_told_apart_and_not_averaged() -> None:
    pair = [replace(row("dfa", 42), checkpoint=name) for name in ("lr1/dfa_s42.pt", "lr2/dfa_s42.pt")]
    assert [group.mean for group in method_groups(Audit(pair))] == [None]
    assert [line.split()[0] for line in text(pair, 120).splitlines()[1:]] == ["lr1/dfa_s42.pt", "lr2/dfa_s42.pt"]


def test_where_the_terminal_knows_no_unicode_the_table_is_ascii(rows: list[AuditRow]) -> None:
    shown = text(rows, 120, ascii_only=True)
    assert shown.isascii()
    assert "|h_L|" in shown and "~" in shown


HOSTILE = "x\x1b[31mred\x07\r\n| a | <script>alert(1)</script> `b` [c](d) \u202egnp"


def test_names_with_escape_sequences_are_neutral_in_table_and_markdown() -> None:
    hostile = [replace(row(HOSTILE, 42, **collapsed()), checkpoint="runs/x.pt")]
    for shown in (text(hostile, 120), text(hostile, 120, ascii_only=True), markdown(Audit(hostile))):
        assert not [char for char in shown if not char.isprintable() and char != "\n"]
    table_line = next(line for line in markdown(Audit(hostile)).splitlines() if line.startswith("| x"))
    assert "<script>" not in markdown(Audit(hostile)) and "[c](d)" not in table_line
    head = next(line for line in markdown(Audit(hostile)).splitlines() if line.startswith("| method"))
    assert table_line.count(" | ") == head.count(" | "), "a name opens no cell"
    assert document(Audit(hostile), "0")["summary"][0]["method"] == one_line(HOSTILE), "escaped where it came in"
