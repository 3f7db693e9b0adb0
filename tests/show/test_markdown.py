"""The audit as Markdown: what it says, and that only what Markdown would interpret is escaped."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from pytest_fadiag.show.audit import Audit, Checklist, MarginRow
from pytest_fadiag.show.headline import margin_counts, margins_line
from pytest_fadiag.show.markdown import escaped, markdown

Audits = dict[str, Callable[[], Audit]]


@pytest.mark.parametrize(
    "plain", ["0.8954", "-0.006", "+1.40", "0.1.0", "runs/dfa_s42.pt", "h_0 6.0e+03, h_1", "growth 2 <= 50", "a > b!",
              "g.norm(-1)", "1.5e+07 (×14)", "AT&T: R & D", "walk-back a b d", "‖g_L‖", "x=1; 95 % to -9.90", "a-b.c (log)"]
)  # fmt: skip
def test_what_is_no_markup_stays_as_it_is(plain: str) -> None:
    assert escaped(plain) == plain and escaped(plain, start=True) == plain


@pytest.mark.parametrize(
    ("hostile", "safe"),
    [
        ("<script>x</script>", r"\<script\>x\</script\>"),
        ("a|b", r"a\|b"),
        ("`x`", r"\`x\`"),
        ("[c](d)", r"\[c\](d)"),
        ("![c](d)", r"!\[c\](d)"),
        ("**b** _i_ __b__ ~~s~~", r"\*\*b\*\* \_i\_ \_\_b\_\_ \~\~s\~\~"),
        ("# h", r"\# h"),
        ("$m$", r"\$m\$"),
        ("&lt; &#64;", r"\&lt; \&#64;".replace("&#", "&\\#")),
        ("a\\", "a\\\\"),
        ("@user", r"\@<!-- -->user"),
        ("me@host.org", r"me\@<!-- -->host.org"),
        ("https://e.org www.e.org", r"https\://e.org www\.e.org"),
    ],
)
def test_what_would_be_markup_is_escaped(hostile: str, safe: str) -> None:
    assert escaped(hostile) == safe


@pytest.mark.parametrize(
    ("hostile", "safe"),
    [("- x", r"\- x"), ("+", r"\+"), ("---", r"\---"), ("1. x", r"1\. x"), ("12) x", r"12\) x"), (">x", r"\>x")],
)
def test_what_opens_a_list_or_a_quotation_is_escaped_only_where_a_line_begins(hostile: str, safe: str) -> None:
    assert escaped(hostile) == hostile and escaped(hostile, start=True) == safe


def test_numbers_are_readable_in_the_file_itself(audits: Audits) -> None:
    text = markdown(audits["usual"]())
    assert "| dfa | 42 | 0.6530 | 1.5e+07 | **667** | **4.0e-08** | -0.020 | 0.7600 | **-10.70** |" in text
    assert "| **walk-back a b d** |" in text


def test_a_name_calls_nobody(audits: Audits) -> None:
    (row,) = audits["one"]().rows
    assert row.report is not None
    exploded = replace(
        row, report=replace(row.report, residual_norms=[1, 1e9]), method="@octocat", checkpoint="runs/@octocat.pt"
    )
    text = markdown(Audit([exploded]))
    assert "octocat" in text.split("<pre>")[0] and "@octocat" not in text.split("<pre>")[0]


def test_the_headline_counts_results_and_margins_over_seeds(audits: Audits) -> None:
    audit = audits["usual"]()
    assert markdown(audit).splitlines()[2] == "9 of 12 results need a walk-back; margins over seeds: 1 fire"
    (fired,) = audit.margins
    assert fired.margin is not None
    passed = replace(fired, margin=replace(fired.margin, interval=replace(fired.margin.interval, low=3.0, high=5.0)))
    open_one = replace(fired, margin=replace(fired.margin, interval=replace(fired.margin.interval, low=1.0, high=5.0)))
    several = Audit(audit.rows[:3], [fired, passed, open_one, passed, MarginRow("x", "x", outcome="skipped")])
    assert dict(margin_counts(several)) == {"pass": 2, "inconclusive": 1, "fire": 1, "no control": 1}
    assert margins_line(several) == "margins over seeds: 2 pass, 1 inconclusive, 1 fire, 1 no control"
    first = markdown(several).splitlines()[2]
    assert first == f"3 of 3 results trustworthy, but not every margin over seeds; {margins_line(several)}"
    assert markdown(Audit(audit.rows[:3], [passed])).splitlines()[2] == "3 of 3 results trustworthy; margins over seeds: 1 pass"
    assert markdown(Audit([], [passed])).splitlines()[2] == "margins over seeds: 1 pass"


def test_the_checklist_is_there_beside_rows_and_alone(audits: Audits) -> None:
    audit = audits["usual"]()
    for shown in (markdown(audit), alone := markdown(Audit([], checklist=audit.checklist))):
        _, _, section = shown.partition("### Checklist\n\n")
        assert section.startswith("4 files read, 2 findings, 1 silenced.\n\n| place | pitfall | code |")
        assert "| eval.py:12 | 1. the L₋₁ norm | g.norm(-1) | g.norm(dim=-1) |" in section
        assert "| eval.py:20 | 2. the L₋₁ norm | F.cosine_similarity(a, b) | let stand: norms are checked above |" in section
    assert "| method |" not in alone and alone.splitlines()[2] == "evaluation code: 4 files read, 2 findings, 1 silenced"
    assert "### Checklist\n\n4 files read, nothing found.\n" in markdown(Audit([], checklist=Checklist(4)))
    assert "Checklist" not in markdown(replace(audit, checklist=None))


def test_a_hostile_finding_opens_no_cell() -> None:
    finding = {"number": 1, "title": "t", "file": "a|b.py", "line": 1, "code": "x | `y`\n# z", "fix": "<b>", "silenced": None}
    lines = [line for line in markdown(Audit([], checklist=Checklist(1, [finding]))).splitlines() if line.startswith("|")]
    assert [len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) for line in lines] == [5, 5, 5]


def test_marks_have_their_legend(audits: Audits) -> None:
    row = audits["usual"]().rows[0]
    assert "\n\\* as expected\n" in markdown(Audit([replace(row, expected="")]))
    assert "as expected" not in markdown(Audit([row])) and "not measured" not in markdown(Audit([row]))
    assert "\nno: not measured\n" in markdown(audits["usual"]())
