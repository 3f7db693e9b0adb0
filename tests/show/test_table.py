"""The table: golden files at 80 and 120 columns, and any width."""

from __future__ import annotations

import io
from collections.abc import Callable

import builders
import pytest
from _pytest._io import TerminalWriter
from hypothesis import given
from hypothesis import strategies as st
from show.samples import EVIL, of

from pytest_fadiag.show.audit import Audit
from pytest_fadiag.show.table import lines, table
from pytest_fadiag.show.terminal import write_table


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_is_as_it_was(
    audit: Audit, golden: Callable[[str, str], None], width: int
) -> None:
    golden(f"table_{width}.txt", table(audit, width))


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
def test_no_line_of_the_table_is_wider_than_the_terminal(audit: Audit, width: int) -> None:
    body = table(audit, width).splitlines()[:-1]
    assert max(map(len, body)) <= width


@given(st.text(max_size=60), st.integers(30, 150))
def test_whatever_a_name_is_the_table_stays_in_shape(name: str, width: int) -> None:
    rows = [builders.row(builders.healthy(name, seed)) for seed in (1, 2)]
    text = [line for line in lines(of(*rows), width) if len(line) > 1]
    assert len(text) == 4  # the titles, two seeds and their mean
    assert all("".join(piece for piece, _ in line).isprintable() for line in text)


def test_columns_in_which_something_fired_go_last(audit: Audit) -> None:
    narrow = table(audit, 80).splitlines()[0].split()
    assert {"growth", "‖g_L‖", "margin"} <= set(narrow)
    assert "frozen" not in narrow


def test_what_is_exempted_has_a_mark_and_a_legend() -> None:
    small = (1e-8,) * 5
    report = builders.healthy(bp_grad_norms=small, gradient_per_unit_error=1e-3)
    text = table(of(builders.row(report)))
    assert " 1.0e-8^ " in text and "\n^ exceeds its threshold; exempted" in text


def test_two_runs_of_one_seed_have_no_mean() -> None:
    runs = [builders.row(builders.healthy(), checkpoint=f"{folder}/bp_s42.pt") for folder in "ab"]
    assert [line.split()[0] for line in table(of(*runs)).splitlines()][1:3] == [
        "a/bp_s42.pt",
        "b/bp_s42.pt",
    ]
    assert "mean" not in table(of(*runs))


def test_a_terminal_gets_colours_ascii_and_brief_lines(audit: Audit) -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    writer = TerminalWriter(file)
    writer.hasmarkup = True
    write_table(writer, audit, ["one more"])
    write_table(writer, audit, quiet=True)
    file.seek(0)
    text = file.read()
    assert "\x1b[31mwalk back (a b d e f)\x1b[0m" in text
    assert "note: one more" in text and "|g_L|" in text and "margin >= 2 pp" in text
    assert "runs/dfa_s1.pt: walk back (a b d e f)" in text


def test_an_empty_audit_and_evil_names(evil: Audit) -> None:
    assert table(Audit(())) == "FA audit: nothing was audited\n"
    assert "\x1b" not in table(evil) and "\u202e" not in table(evil) and EVIL not in table(evil)
