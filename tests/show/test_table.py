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
    text = table(of(*rows), width)
    assert text.count("✓ TRUSTWORTHY\n") == 1 and text.count("MEAN OVER SEEDS\n") == 1
    assert all(
        "".join(piece for piece, _ in line).isprintable() for line in lines(of(*rows), width)
    )


@pytest.mark.parametrize("width", [30, 60, 80, 200])
def test_what_fails_is_shown_at_any_width(audit: Audit, width: int) -> None:
    (failed,) = [line for line in table(audit, width).splitlines() if line.startswith("  dfa 1")]
    assert failed.count("✗") == 5  # a b d e f
    (log,) = [line for line in table(audit, width).splitlines() if line.startswith("  dfa-")]
    assert log.count("✗") == 3


def test_what_decides_nothing_is_hidden_first(audit: Audit) -> None:
    assert "\nhidden at 80 columns: ‖h_L‖, frozen, first failed\n" in table(audit, 80)
    assert "hidden" not in table(audit, 200)


def test_a_narrow_terminal_gets_the_marks_alone(audit: Audit) -> None:
    text = table(audit, 46).splitlines()
    assert text[1].split() == list("abcdef")
    (healthy,) = [line for line in text if line.startswith("  bp 1")]
    assert healthy.split()[2:] == ["0.9000", *"✓✓✓✓✓✓"]


def test_the_table_reads_without_colour(audit: Audit) -> None:
    _, letters, titles, limits, *rows = table(audit, 200).splitlines()
    assert letters.split() == list("abcdef")
    assert "growth" in titles and "floor" in titles and "utility" in titles
    assert limits.split()[2:] == [">50×", "<1e-7", ">0.3", "<2", "pp", "<3", "pp", "≤0.5"]
    (failed,) = [row for row in rows if row.split()[:2] == ["dfa", "1"]]
    for key, title, number in (("a", "growth", "667✗"), ("d", "margin", "−10.70✗")):
        end = titles.index(title) + len(title)
        assert failed[: end + 1].endswith(number) and letters[end - 1] == key
    (healthy,) = [row for row in rows if row.split()[:2] == ["bp", "1"]]
    assert "✗" not in healthy and healthy.rindex("1.27") + 4 == failed.rindex("667") + 3


def test_results_are_grouped_by_verdict_and_what_fails_is_nearest_to_the_prompt(
    audit: Audit,
) -> None:
    text = table(audit, 120).splitlines()
    titles = [line for line in text if line[:1] in tuple("✓~✗!M") and line[2:].isupper()]
    assert titles == [
        "✓ TRUSTWORTHY", "~ INCOMPLETE", "✗ WALK BACK", "! NO VERDICT", "MEAN OVER SEEDS",
    ]  # fmt: skip
    under = text[text.index("~ INCOMPLETE") + 1]
    assert under.startswith("  fa 7") and under.endswith("d not measured")
    assert "! runs/broken.pt: no stream found: see the docs" in text
    means = text[text.index("MEAN OVER SEEDS") + 1 :][:3]
    assert [line.split()[:2] for line in means] == [["bp", "n=2"], ["fa", "n=1"], ["dfa", "n=2"]]


def test_an_undecided_number_has_a_mark_and_a_legend() -> None:
    report = builders.probed(builders.healthy(), 0.6, 0.62, 0.63, 0.64, 0.645)
    assert report.finding("e").status.value == "not resolved"
    (row,) = [line for line in table(of(builders.row(report))).splitlines() if "utility" in line]
    assert row.startswith("  ~ e depth-utility")
    assert "\n~ undecided: threshold inside the 95 % CI\n" in table(of(builders.row(report)))


def test_a_gain_that_fails_without_a_null_is_in_its_column() -> None:
    reports = [builders.probed(builders.healthy(), 0.7, 0.71, null=None), builders.exploded()]
    (line,) = [
        part for part in table(of(*map(builders.row, reports))).splitlines() if "+1.00✗" in part
    ]
    assert line.startswith("  bp")


def test_one_network_is_a_line_for_each_diagnostic() -> None:
    row = builders.row(builders.exploded(seed=1))
    title, header, *rows = table(of(row), 100).splitlines()
    assert title.startswith("✗ WALK BACK  dfa, seed 1, accuracy 0.6530")
    rows = rows if header.split() == ["value", "fails", "if"] else rows[1:]
    shown = {line.split()[1]: line for line in rows if line[2:3] in tuple("✗✓–")}
    assert [*shown] == list("abcdf")
    assert shown["a"].split()[:6] == ["✗", "a", "residual-growth", "667", ">", "50×"]
    assert shown["c"].split()[0] == "✓" and shown["f"].split()[0] == "–"
    assert "95 % CI [" in shown["d"] and "worse than frozen" in " ".join(rows)


def test_the_setting_says_what_was_measured_and_where_from() -> None:
    stream = StreamInfo(blocks=("blocks.0", "blocks.1"), residual=True, head="ln")
    inputs = Inputs(data="mnist", by=NormalisedBy.DATA, pixels=True)
    rest = {"stream": stream, "inputs": inputs, "loss": "squared error", "loss_assumed": True}
    rest["gradient_per_unit_error"] = 1e-3  # decides (b) outside cross-entropy
    rows = [builders.row(builders.healthy(seed=seed, **rest), cached=seed == 1) for seed in (1, 2)]
    assert table(of(*rows), 300).splitlines()[0] == (
        "mnist, normalised by the data's own mean and std, 10,000 images · blocks.0 "
        "… blocks.1 → ln · squared error (assumed) · 1 of 2 from the cache"
    )
    assert "1 of 1 from the cache" in table(of(rows[0]))
    assert "cache" not in table(of(rows[1]))


def test_advice_names_what_not_to_claim(audit: Audit) -> None:
    assert "Do not claim dfa or dfa-lam as they stand.\n" in table(audit, 300)
    alone = of(*(builders.row(builders.exploded(seed=seed)) for seed in (1, 2)))
    assert "Do not claim dfa as it stands.\nNext: " in table(alone, 300)
    fine = of(*(builders.row(builders.healthy(seed=seed)) for seed in (1, 2)))
    assert table(fine, 300).endswith("2 checkpoints: 2 trustworthy.\n")


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
    setting, _, titles, *_ = table(of(*rows)).splitlines()
    assert titles.split("‖h_L‖")[0].strip() == title
    tasks_named = {"acc": "entropy", "R²": "regression", "token acc": "tokens"}
    assert setting.endswith(tasks_named.get(title, "classes and tokens"))


def test_a_trace_is_counted_apart() -> None:
    rows = [builders.row(builders.healthy(f"m{given}", 1, trace=given)) for given in (True, False)]
    text = table(of(*rows))
    assert "1 checkpoint and 1 trace: 1 trustworthy, 1 trustworthy (reference as given)" in text


def test_what_is_exempted_has_a_mark_and_a_legend() -> None:
    small = (1e-8,) * 5
    report = builders.healthy(bp_grad_norms=small, gradient_per_unit_error=1e-3)
    text = table(of(builders.row(report)))
    assert "\n  ^ b gradient-floor " in text and "\n^ exceeds its threshold; exempted" in text


def test_two_runs_of_one_seed_have_no_mean() -> None:
    runs = [builders.row(builders.healthy(), checkpoint=f"{folder}/bp_s42.pt") for folder in "ab"]
    names = [line.split()[0] for line in table(of(*runs)).splitlines()]
    assert "a/bp_s42.pt" in names and "b/bp_s42.pt" in names
    assert "MEAN" not in table(of(*runs))


def test_a_terminal_gets_colours(audit: Audit) -> None:
    file = io.StringIO()
    writer = TerminalWriter(file)
    writer.hasmarkup = True
    write_table(writer, audit, ["one more"])
    file.seek(0)
    text = file.read()
    assert "\x1b[31m✗ WALK BACK\x1b[0m" in text and "\x1b[32m✓ TRUSTWORTHY\x1b[0m" in text
    assert "! one more" in text
    assert "667✗" in text and "✗ fails " in text
    assert "More: -k dfa_s1.pt -v for one report · --fa-report=html for charts" in text


def test_an_audit_in_which_nothing_was_measured_has_a_table() -> None:
    row = Row("runs/bp_s1.pt", "bp", 1, None, {"a": Outcome.ERROR}, "lost", group="bp")
    margin = Margin("bp", "bp", outcome=Outcome.ERROR, reason="lost")
    rows = [line.split() for line in table(of(row, margins=(margin,))).splitlines()]
    assert ["bp", "1", "error"] in rows and ["bp", "n=0", "error:", "lost"] in rows
    assert ["!", "runs/bp_s1.pt:", "lost"] in rows


def test_an_empty_audit_and_evil_names(evil: Audit) -> None:
    assert table(Audit(())) == "nothing was audited.\n"
    assert "\x1b" not in table(evil) and "\u202e" not in table(evil) and EVIL not in table(evil)
