"""One way from a path to a report: library, generated test, written test and workers give the same, to the last field."""

from __future__ import annotations

import json
from typing import Any

import pytest
from repo import Repo

from pytest_fadiag import audit
from pytest_fadiag.judge.diagnostics import DIAGNOSTICS, Finding, Status
from pytest_fadiag.judge.margins import SeedVerdict
from pytest_fadiag.session import seeds
from pytest_fadiag.session.outcome import Decision, decide

OPTIONS = ("--fa-checkpoint=runs", "--fa-frozen=controls/*.pt")
WRITTEN = """
import json, pytest
@pytest.mark.fa_protocol(checkpoint="runs/*.pt")
def test_written(fa_report, fa_checkpoint):
    with open(f"written_{fa_checkpoint.path.stem}.json", "w") as file:
        json.dump(fa_report.to_dict(), file)
"""


@pytest.fixture
def reports(repo: Repo) -> dict[str, Any]:
    """The reports of a run in one process that measures everything itself."""
    repo.forget()
    found: dict[str, Any] = repo.audit(*OPTIONS)["reports"]
    assert len(found) == 3
    return found


def test_the_library_gives_the_report_of_a_generated_test(repo: Repo, reports: dict[str, Any]) -> None:
    for name, report in reports.items():
        again = audit(
            repo.path / name,
            data=str(repo.path / "data.npz"),
            frozen=repo.path / "controls" / ("frozen_dfa_s42.pt" if "dfa" in name else "frozen_bp_s42.pt"),
        )
        assert json.loads(json.dumps(again.to_dict())) == report


def test_a_written_test_gives_the_report_of_a_generated_one(repo: Repo, reports: dict[str, Any]) -> None:
    repo.forget()
    repo.write("test_own.py", WRITTEN)
    repo.run("--fa-frozen=controls/*.pt", "test_own.py").assert_outcomes(passed=3)
    for name, report in reports.items():
        stem = name.rpartition("/")[2].removesuffix(".pt")
        assert json.loads((repo.path / f"written_{stem}.json").read_text()) == report


def test_two_workers_give_the_reports_of_one_process(repo: Repo, reports: dict[str, Any]) -> None:
    repo.forget()
    assert repo.audit(*OPTIONS, "-n", "2", run=repo.spawn)["reports"] == reports


def test_what_is_measured_in_two_runs_gives_the_report_of_one(repo: Repo, reports: dict[str, Any]) -> None:
    repo.forget()
    repo.run(*OPTIONS, "--fa-diagnostics=c")
    repo.run(*OPTIONS, "--fa-diagnostics=ad")
    assert repo.audit(*OPTIONS)["reports"] == reports


def finding(status: Status) -> Finding:
    return Finding("a", DIAGNOSTICS[0].name, status, 1.0, 50.0, "")


@pytest.mark.parametrize(
    ("status", "expected", "decision"),
    [
        (Status.PASS, None, Decision.PASS),
        (Status.LIKELY_PASS, None, Decision.PASS),
        (Status.FIRE, None, Decision.FAIL),
        (Status.LIKELY_FIRE, None, Decision.FAIL),
        (Status.NOT_MEASURED, None, Decision.SKIP),
        (Status.PASS, "bd", Decision.PASS),
        (Status.FIRE, "bd", Decision.CHANGED),
        (Status.NOT_MEASURED, "bd", Decision.SKIP),
        (Status.PASS, "ad", Decision.CHANGED),
        (Status.LIKELY_PASS, "a", Decision.CHANGED),
        (Status.FIRE, "ad", Decision.EXPECTED),
        (Status.LIKELY_FIRE, "a", Decision.EXPECTED),
        (Status.NOT_MEASURED, "a", Decision.CHANGED),
    ],
)
def test_one_function_decides_what_becomes_of_a_test(status: Status, expected: str | None, decision: Decision) -> None:
    assert decide(finding(status), expected) is decision


@pytest.mark.parametrize(
    ("verdict", "expected", "decision"),
    [
        ("PASS", None, Decision.PASS),
        ("FIRE", None, Decision.FAIL),
        ("INCONCLUSIVE", None, Decision.FAIL),
        ("PASS", "PASS", Decision.PASS),
        ("PASS", "SHORT", Decision.CHANGED),
        ("PASS", "FIRE", Decision.CHANGED),
        ("FIRE", "FIRE", Decision.EXPECTED),
        ("FIRE", "SHORT", Decision.EXPECTED),
        ("INCONCLUSIVE", "SHORT", Decision.EXPECTED),
        ("INCONCLUSIVE", "FIRE", Decision.CHANGED),
        ("FIRE", "PASS", Decision.CHANGED),
    ],
)
def test_the_same_of_a_margin_over_seeds(verdict: str, expected: str | None, decision: Decision) -> None:
    assert seeds.decide(SeedVerdict(verdict), expected) is decision


def test_a_recorded_fire_that_passes_is_red_also_where_xfails_are_run(repo: Repo) -> None:
    (repo.path / "expected.json").write_text(json.dumps({"bp": "a"}))
    for options in ((), ("--runxfail",)):
        result = repo.run("--fa-checkpoint=runs/bp_s42.pt", "--fa-expect=expected.json", *options)
        result.assert_outcomes(failed=1, passed=2, skipped=1)
        result.stdout.fnmatch_lines(["FAILED runs/bp_s42.pt::residual-growth - changed from fire to pass*"])


def test_tests_that_ask_for_different_diagnostics_make_one_row(repo: Repo) -> None:
    marker = "@pytest.mark.fa_protocol(checkpoint='runs/dfa_s42.pt', diagnostics='{}')\ndef test_{}(fa_diagnostic): pass\n"
    repo.write("test_own.py", "import pytest\n" + marker.format("a", "one") + marker.format("cd", "two"))
    document = repo.audit("--fa-frozen=controls/*.pt", "test_own.py")
    (row,) = document["summary"]
    assert row["outcomes"] == {"a": "passed", "c": "passed", "d": "passed"}
    assert row["fired"] == "ad"
    report = document["reports"]["runs/dfa_s42.pt"]
    assert sorted(finding["key"] for finding in report["findings"]) == ["a", "c", "d"]


def test_audits_that_asked_for_different_diagnostics_are_merged(repo: Repo) -> None:
    for keys in ("ab", "cd"):
        repo.run(*OPTIONS, f"--fa-diagnostics={keys}", f"--fa-report=json:{keys}.json")
    whole = repo.audit(*OPTIONS)
    merged = repo.audit("--fa-merge=ab.json", "--fa-merge=cd.json")
    assert [row["fired"] for row in merged["summary"]] == [row["fired"] for row in whole["summary"]]
    assert [row["outcomes"] for row in merged["summary"]] == [row["outcomes"] for row in whole["summary"]]
    for name, report in whole["reports"].items():
        assert {**merged["reports"][name], "environment": 0} == {**report, "environment": 0}
