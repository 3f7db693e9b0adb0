"""Numbers and names as reports write them; thresholds, normalisation and the registry by name."""

from __future__ import annotations

import ast
import math
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders import BP, report
from hypothesis import given
from hypothesis import strategies as st

from pytest_fadiag.judge import diagnostics, words
from pytest_fadiag.judge.diagnostics import Column, Diagnostic, Finding, Status
from pytest_fadiag.judge.errors import AuditError
from pytest_fadiag.judge.records import (
    Inputs,
    Normalisation,
    NormalisedBy,
    Reference,
    Score,
    StreamInfo,
)
from pytest_fadiag.judge.report import Report
from pytest_fadiag.judge.thresholds import DiagnosticThresholds


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.4, "1.40"),
        (14, "14.0"),
        (255, "255"),
        (2_800, "2.8e3"),
        (1.3e-8, "1.3e-8"),
        (-3.5, "−3.50"),
        (0, "0"),
        (999.6, "1.0e3"),
        (0.0099, "9.9e-3"),
        (math.nan, "undefined"),
        (-math.inf, "−inf"),
    ],
)
def test_three_significant_digits(value: float, text: str) -> None:
    assert words.sig(value) == text


@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9))
def test_a_value_never_reads_as_its_threshold_unless_it_is(value: float, threshold: float) -> None:
    for show in (words.sig, words.pp, words.cosine):
        same = float(words.distinct(show, value, threshold).replace("−", "-")) == threshold
        assert not same or value == threshold


def test_formats() -> None:
    assert words.distinct(words.sig, 50.001, 50) == "50.001"
    assert words.interval(-0.001, 2) == "95 % CI [−0.001, +2.00]"
    assert (words.limit(1e-7), words.limit(0.3)) == ("1e-7", "0.3")
    assert words.signed_cosine(-0.05) == "−0.050" and words.cosine(math.nan) == "undefined"
    assert words.and_more(list("abcde")) == "a, b, c and 2 more" and words.and_more(["a"]) == "a"
    assert (
        words.plural(1_280, "sample") == "1,280 samples"
        and words.plural(1, "box", "boxes") == "1 box"
    )
    assert words.table([["", "b"], ["aa", "1"]]) == ["    b", "aa  1"]
    assert words.fold("  ", ["a " * 60], 40)[1].startswith("    a")
    assert words.one_line("a\nb\x07") == "a\\nb\\x07" == words.one_line(words.one_line("a\nb\x07"))


@pytest.mark.parametrize(
    ("value", "phrase"),
    [
        (
            str(StreamInfo(blocks=("a", "a"), residual=False)),
            "a, 2 blocks, no residual connections",
        ),
        (str(StreamInfo(blocks=("a",), residual=True, spec="a")), "named by --fa-stream='a'"),
        (str(Reference(problem="why")), "not proven: why"),
        (
            str(Reference(error=1e-3, dtype="float32", remark="no copy")),
            "to 1.0e-3; in float32: no copy",
        ),
        (str(Reference(remark="nothing to compare")), "BP gradient; nothing to compare"),
        (str(Reference(reinitialised=True)), "checked at re-initialised weights"),
        (str(Reference(own_backward=True, modules=("m",))), "custom backward of m bypassed"),
        (
            str(Inputs(data="d", by=NormalisedBy.OPTION, option="1/2")),
            "normalised (--fa-normalize=1/2)",
        ),
        (
            str(Inputs(data="d", by=NormalisedBy.CHECKPOINT)),
            "d, not normalised, as the checkpoint says",
        ),
        (str(Inputs()), "batches as given"),
    ],
)
def test_provenance_in_words(value: str, phrase: str) -> None:
    assert phrase in value


@pytest.mark.parametrize(
    ("text", "mean"),
    [("data", None), ("none", None), (" 0.286 / 0.353", (0.286,)), ("1,2,3/1", (1.0, 2.0, 3.0))],
)
def test_a_normalisation_is_parsed(text: str, mean: Any) -> None:
    assert Normalisation.parse(text).mean == mean


@pytest.mark.parametrize("text", ["", "0.3", "1/0", "1/-1", "nan/1", "1,2/1,2,3", "a/b", "1/2/3"])
def test_a_bad_normalisation_is_refused(text: str) -> None:
    with pytest.raises(AuditError, match="expected"):
        Normalisation.parse(text)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stability_drift_ceiling": 30}, "must be a finite number, −1 to 1, not 30"),
        ({"g_norm_floor": "nan"}, "must be a finite number"),
        ({"h_norm_explosion_ratio": math.inf}, "must be a finite number"),
        ({"margin_pp": True}, "must be a finite number"),
        ({"growth": "total"}, "growth must be per_block or cumulative, not 'total'"),
        ({"floor": 1}, "unknown threshold 'floor'; known: g_norm_floor, .*, margin_pp"),
    ],
)
def test_a_threshold_that_would_switch_a_check_off_is_refused(changes: Any, message: str) -> None:
    with pytest.raises(AuditError, match=message):
        DiagnosticThresholds().replace(**changes)


def test_thresholds_are_set_by_name() -> None:
    thresholds = DiagnosticThresholds().replace(margin_pp="1.5", confounds="flag")
    assert thresholds.by_name()["frozen_acc_margin_pp"] == 1.5 and thresholds.confounds == "flag"
    assert not report(frozen_baseline_acc=0.594, thresholds=thresholds).finding("d").fired


BANNED = re.compile(
    r"drawn anew|\bnobody|\bsomebody|\bwhoever|\bof another\b| behind | beside "
    r"|(?<!there )\bis no (?!longer)",
    re.IGNORECASE,
)
"""What no user reads; «there is no X» is English."""
ROOT = Path(words.__file__).parents[2]


def read_by_users(path: Path) -> list[str]:
    """The text of a page, or the strings of a module that are not docstrings."""
    text = path.read_text("utf-8")
    if path.suffix != ".py":
        return text.splitlines()
    nodes = [*ast.walk(ast.parse(text))]
    free = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    return [
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in free
    ]


def test_what_users_read_is_plain() -> None:
    sources = [*(ROOT / "pytest_fadiag").rglob("*.*"), ROOT / "README.md", *ROOT.glob("docs/*.md")]
    pages = [path for path in sources if path.suffix in (".py", ".html", ".md", ".j2", ".js")]
    assert len(pages) > 100
    banned_lines = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in pages
        for line in read_by_users(path)
        if BANNED.search(line)
    ]
    assert not banned_lines


@pytest.mark.parametrize(
    ("line", "bad"),
    [("there is no null", False), ("it is no control", True), ("drawn anew", True), ("", False)],
)
def test_the_banned_words_are_found(line: str, bad: bool) -> None:
    assert bool(BANNED.search(line)) == bad


class Rank(Diagnostic):
    name, question = "effective-rank", "does the last state use more than a few directions?"
    threshold, default = "effective_rank_minimum", 2.0
    needs, walk_back = ("rank",), "the stream has collapsed"
    columns = (
        Column("rank", lambda report: report.extra.get("rank", {}).get("last"), words.sig, 7),
    )

    def judge(self, report: Report) -> Finding:
        value, minimum = report.extra["rank"]["last"], self.limit(report)
        status = Status.FIRE if value < minimum else Status.PASS
        return self.finding(report, status, value, f"rank {value:.2f}", "It is low.")

    def lines(self, report: Report) -> list[str]:
        return [f"effective rank: {report.extra['rank']['last']}"]


@pytest.fixture
def rank() -> Iterator[None]:
    diagnostics.register(Rank())
    yield
    diagnostics.unregister("effective-rank")


@pytest.mark.usefixtures("rank")
def test_a_diagnostic_of_another_package_is_judged_like_the_others() -> None:
    names = (*BP.diagnostics, "effective-rank")
    collapsed = report(extra={"rank": {"last": 1.5}}, diagnostics=names)
    assert collapsed.verdict == "needs walk-back: the stream has collapsed"
    assert (
        "effective-rank: fail\n    effective rank: 1.5\n    fails: the stream has collapsed: rank"
        in str(collapsed)
    )
    lower = DiagnosticThresholds().replace(effective_rank_minimum=1)
    assert collapsed.replace(thresholds=lower).verdict == "trustworthy"
    assert msgspec.convert(collapsed.to_dict(), Report).fired == ("effective-rank",)
    assert [d.key for d in diagnostics.select("d,effective-rank")] == ["d", "effective-rank"]
    assert diagnostics.letters(["effective-rank", "b", "a"]) == "ab,effective-rank"
    assert diagnostics.columns()[-1].key == "effective-rank"
    for credit, expected in ((False, "abcdeg"), (True, "abcdefg")):
        keys = [d.key for d in diagnostics.default_diagnostics(credit)]
        assert keys == [*expected, "effective-rank"]
    with pytest.raises(AuditError, match="'effective-rank' exists already"):
        diagnostics.register(Rank())


def test_one_that_is_gone_or_wrong_is_refused() -> None:
    assert [d.key for d in diagnostics.default_diagnostics(True, partial=True)] == [*"abcdf"]
    assert diagnostics.select("all") == diagnostics.DIAGNOSTICS and diagnostics.get("nope") is None
    for keys in ("", "ax", "effective-rank", []):
        with pytest.raises(AuditError, match=r"known: a \(residual-growth\), b"):
            diagnostics.select(keys)
    for changes in ({"name": "rank"}, {"default": None}, {"key": "z"}, {"threshold": "growth"}):
        with pytest.raises(AuditError, match="diagnostic"):
            diagnostics.register(type("Wrong", (Rank,), changes)())
    with pytest.raises(AuditError, match="an instance"):
        diagnostics.register(Rank)  # type: ignore[arg-type]


def test_a_score_packs_one_bit_an_image() -> None:
    score = Score.of([True, False, True, True, True])
    assert (score.value, score.images, score.correct) == (0.8, 5, "b8")
    assert bytes([1, 0, 1, 1, 1]) == score.outcomes and Score(0.5).outcomes is None
    with pytest.raises(AuditError, match="no test image"):
        Score.of([])


def test_a_score_knows_its_classes_by_their_counts_alone() -> None:
    score = Score.of([True, False, True, True, False], labels=[7, 3, 7, 3, 7])
    assert score.class_counts == (2, 3) and score.value == 0.6
    assert [list(hits) for hits in score.by_class] == [[0, 1], [1, 1, 0]]
    assert msgspec.convert(msgspec.to_builtins(score), Score) == score
    for counts in ((2, 2), (0, 5), (6, -1)):
        with pytest.raises(AuditError, match="class_counts"):
            msgspec.structs.replace(score, class_counts=counts)
    with pytest.raises(AuditError, match="class_counts"):
        Score(0.5, 5, class_counts=(2, 3))


def test_judging_imports_neither_torch_nor_numpy() -> None:
    code = "import sys, pytest_fadiag.judge.seeds; print({'torch', 'numpy'} & {*sys.modules})"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "set()\n"
