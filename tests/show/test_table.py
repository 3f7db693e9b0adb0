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

from pytest_fadiag.judge.records import Inputs, NormalisedBy, StreamInfo
from pytest_fadiag.show.audit import Audit, Margin, Outcome, Row
from pytest_fadiag.show.table import lines, table, write_table


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
    assert len(text) == 5  # thresholds, titles, two seeds and their mean
    assert all("".join(piece for piece, _ in line).isprintable() for line in text)


def test_columns_in_which_something_fired_go_last(audit: Audit) -> None:
    text = table(audit, 80)
    (narrow,) = [line.split() for line in text.splitlines() if line.startswith("method")]
    assert {"growth", "‖g_L‖", "margin"} <= set(narrow)
    assert "frozen" not in narrow
    assert "\nhidden at 80 columns: ‖h_L‖, drift, frozen, credit, first fired\n" in text


def test_the_table_reads_without_colour(audit: Audit) -> None:
    limits, titles, *rows = [line for line in table(audit, 200).splitlines() if "  " in line]
    assert limits.split() == [
        "a",
        ">50×",
        "b",
        "<1e-7",
        "c",
        ">0.3",
        "d",
        "<2pp",
        "e",
        "<3pp",
        "f",
        "≤0.5",
    ]
    (fired,) = [row for row in rows if row.split()[:2] == ["dfa", "1"]]
    for key, title, number in (("a", "growth", "667✗"), ("d", "margin", "−10.70✗")):
        end = titles.index(title) + len(title)
        assert fired[: end + 1].endswith(number) and f"{key} " in limits[end - 8 : end]
    assert fired.count("✗") == 5 and "0.6530 " in fired  # a b d e f
    healthy = next(row for row in rows if row.startswith("bp "))
    assert "✗" not in healthy and healthy.rindex("1.27") + 4 == fired.rindex("667") + 3


def test_a_mean_is_set_off_from_its_seeds(audit: Audit) -> None:
    text = table(audit, 120).splitlines()
    means = [at for at, line in enumerate(text) if line.startswith("  mean ")]
    assert [text[at - 1].split()[0] for at in means] == ["bp", "dfa"]
    assert [text[at + 1] for at in means] == ["", ""]


def test_the_first_line_says_what_was_measured_and_the_last_where_from() -> None:
    stream = StreamInfo(blocks=("blocks.0", "blocks.1"), residual=True, head="ln")
    inputs = Inputs(data="mnist", by=NormalisedBy.DATA, pixels=True)
    rest = {"stream": stream, "inputs": inputs, "loss": "squared error", "loss_assumed": True}
    rest["gradient_per_unit_error"] = 1e-3  # decides (b) outside cross-entropy
    rows = [builders.row(builders.healthy(seed=seed, **rest), cached=seed == 1) for seed in (1, 2)]
    first = table(of(*rows), 300).splitlines()[0]
    assert first == (
        "data: mnist, normalised by the data's own mean and std, 10,000 images · network: blocks.0 "
        "… blocks.1 → ln, 2 blocks, residual · loss: squared error (assumed) · numbers: 1 of 2 "
        "from the cache"
    )
    for number, said in ((0, "; 1 of 1 from the cache"), (1, "")):
        assert table(of(rows[number])).endswith(f"trustworthy{said}\n")
    given = of(builders.row(builders.healthy(environment={})))
    assert table(given).startswith("   ") and table(given).endswith("trustworthy\n")


@pytest.mark.parametrize(
    "tasks, title",
    [
        (("classes",) * 2, "acc"),
        (("regression",) * 2, "R²"),
        (("tokens",) * 2, "token acc"),
        (("classes", "tokens"), "score"),
    ],
)
def test_the_score_has_the_name_of_its_task(tasks: tuple[str, ...], title: str) -> None:
    rows = [builders.row(builders.healthy(f"m{n}", n, task=task)) for n, task in enumerate(tasks)]
    text = table(of(*rows))
    assert f" seed {title} " in " ".join(text.split())
    said = {"acc": "", "R²": "task: regression", "token acc": "task: tokens"}
    assert said.get(title, "task: classes and tokens") in text
    assert ("task: " in text) == (title != "acc")


def test_a_trace_is_counted_apart() -> None:
    rows = [builders.row(builders.healthy(f"m{given}", 1, trace=given)) for given in (True, False)]
    text = table(of(*rows))
    assert "1 checkpoint and 1 trace: 1 trustworthy, 1 trustworthy (reference as given)" in text


def test_what_is_exempted_has_a_mark_and_a_legend() -> None:
    small = (1e-8,) * 5
    report = builders.healthy(bp_grad_norms=small, gradient_per_unit_error=1e-3)
    text = table(of(builders.row(report)))
    assert " 1.0e-8^ " in text and "\n^ exceeds its threshold; exempted" in text


def test_two_runs_of_one_seed_have_no_mean() -> None:
    runs = [builders.row(builders.healthy(), checkpoint=f"{folder}/bp_s42.pt") for folder in "ab"]
    names = [line.split()[0] for line in table(of(*runs)).splitlines()]
    assert "a/bp_s42.pt" in names and "b/bp_s42.pt" in names
    assert "mean" not in table(of(*runs))


def test_a_terminal_gets_colours(audit: Audit) -> None:
    file = io.StringIO()
    writer = TerminalWriter(file)
    writer.hasmarkup = True
    write_table(writer, audit, ["one more"])
    file.seek(0)
    text = file.read()
    assert "\x1b[31mwalk back (a b d e f)\x1b[0m" in text
    assert "note: one more" in text and "‖g_L‖" in text and "margin ≥ 2 pp" in text
    assert "667✗" in text and "✗ fails its threshold" in text


def test_an_audit_in_which_nothing_was_measured_has_a_table() -> None:
    row = Row("runs/bp_s1.pt", "bp", 1, None, {"a": Outcome.ERROR}, "lost", group="bp")
    margin = Margin("bp", "bp", outcome=Outcome.ERROR, reason="lost")
    rows = [line.split() for line in table(of(row, margins=(margin,))).splitlines()]
    assert ["bp", "1", "error:", "lost"] in rows and ["seeds", "n=0", "error:", "lost"] in rows


def test_an_empty_audit_and_evil_names(evil: Audit) -> None:
    assert table(Audit(())) == "FA audit: nothing was audited\n"
    assert "\x1b" not in table(evil) and "\u202e" not in table(evil) and EVIL not in table(evil)
