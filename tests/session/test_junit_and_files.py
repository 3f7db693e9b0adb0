"""What a CI job keeps: JUnit properties, the audit as JSON, and a Markdown table for the job's summary."""

from __future__ import annotations

import json
import os
from typing import Any
from xml.etree import ElementTree

import pytest
from repo import Repo

from pytest_fadiag import DiagnosticReport

BP = "--fa-checkpoint=runs/bp_s42.pt"
DFA = "--fa-checkpoint=runs/dfa_s42.pt"
CONTROLS = "--fa-frozen=controls/*.pt"


def cases(repo: Repo, *args: str) -> dict[str, ElementTree.Element]:
    repo.run("--junitxml=junit.xml", *args)
    found = ElementTree.parse(repo.path / "junit.xml").getroot().iter("testcase")
    return {case.attrib["name"]: case for case in found}


def properties(case: ElementTree.Element) -> dict[str, str]:
    return {entry.attrib["name"]: entry.attrib["value"] for entry in case.iter("property")}


def test_junit_has_method_seed_status_value_and_threshold_of_each_test(repo: Repo) -> None:
    found = {name: properties(case) for name, case in cases(repo, DFA, CONTROLS).items()}
    assert set(found) == {"residual-growth", "gradient-floor", "direction-drift", "frozen-margin"}
    growth = found["residual-growth"]
    assert float(growth.pop("fa_value")) > 1e5
    assert growth == {"fa_method": "dfa", "fa_seed": "42", "fa_status": "fire", "fa_threshold": "50.0"}
    assert found["direction-drift"]["fa_status"].startswith("pass (not sample-invariant")


def test_junit_has_the_report_as_the_failures_body_and_the_number_as_its_message(repo: Repo) -> None:
    failure = cases(repo, DFA)["residual-growth"].find("failure")
    assert failure is not None and failure.text is not None
    assert failure.attrib["message"].startswith("per-block growth ")
    assert failure.text.startswith("FA diagnostic report: dfa, seed 42\n")
    assert failure.text.rstrip().splitlines()[-1].startswith("VERDICT: needs walk-back")


def test_junit_of_what_was_skipped_or_could_not_be_read(repo: Repo) -> None:
    skipped = cases(repo, BP)["frozen-margin"].find("skipped")
    assert skipped is not None and "--fa-frozen" in skipped.attrib["message"]
    (repo.path / "runs" / "bp_s42.pt").write_bytes(b"")
    first, other = (cases(repo, BP)[name].find("error") for name in ("residual-growth", "frozen-margin"))
    assert first is not None and "the file is empty" in first.attrib["message"]
    assert other is not None and "the same error as that of runs/bp_s42.pt::residual-growth" in other.attrib["message"]


def test_json_holds_reports_that_can_be_read_back(repo: Repo) -> None:
    document = repo.audit("--fa-checkpoint=runs", CONTROLS)
    assert (document["format"], document["format_version"]) == ("pytest-fadiag audit", 3)
    assert sorted(document["reports"]) == ["runs/bp_s123.pt", "runs/bp_s42.pt", "runs/dfa_s42.pt"]
    report = DiagnosticReport.from_dict(document["reports"]["runs/dfa_s42.pt"])
    assert report.checkpoint == "dfa_s42.pt"
    assert report.fired == "abd" and report.verdict.startswith("needs walk-back: residual stream exploded; ")


def test_json_has_a_row_for_each_checkpoint_also_without_a_report(repo: Repo) -> None:
    (repo.path / "runs" / "x_s1.pt").write_bytes(b"")
    rows = repo.summary("--fa-checkpoint=runs", CONTROLS)
    assert rows["runs/x_s1.pt"]["outcomes"] == dict.fromkeys("abcd", "error")
    assert rows["runs/x_s1.pt"]["reason"] == "runs/x_s1.pt: the file is empty"
    assert (rows["runs/x_s1.pt"]["method"], rows["runs/x_s1.pt"]["seed"]) == ("x", 1)
    dfa = rows["runs/dfa_s42.pt"]
    assert (dfa["fired"], dfa["frozen_baseline_acc"], dfa["expected"]) == ("abd", 1.0, None)


def test_json_has_the_mean_over_seeds(repo: Repo) -> None:
    means = repo.audit("--fa-checkpoint=runs")["means"]
    assert [(mean["method"], mean["seeds"]) for mean in means] == [("bp", 2)]
    assert means[0]["mean"]["acc"] == pytest.approx(1.0, abs=0.02)


def test_json_with_numbers_that_are_not_finite_is_json(repo: Repo) -> None:
    import torch

    content = torch.load(repo.path / "runs" / "bp_s42.pt")
    content["state_dict"]["embed.weight"].fill_(float("nan"))
    torch.save(content, repo.path / "runs" / "nan_s1.pt")
    repo.run("--fa-checkpoint=runs/nan_s1.pt", "--fa-report=json:a.json", "--junitxml=a.xml")
    found = json.loads((repo.path / "a.json").read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert found["summary"][0]["fired"].startswith("ab")


def test_several_files_and_default_names(repo: Repo) -> None:
    repo.run(BP, "--fa-report=json", "--fa-report=markdown", "--fa-report=json:deep/er/again.json")
    assert (repo.path / "audit.json").read_text() == (repo.path / "deep" / "er" / "again.json").read_text()
    assert (repo.path / "audit.md").read_text("utf-8").startswith("## FA audit\n")


def test_markdown_has_the_table_and_the_reports_of_what_fired(repo: Repo) -> None:
    repo.run("--fa-checkpoint=runs", CONTROLS, "--fa-report=markdown:a.md")
    text = (repo.path / "a.md").read_text("utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len({line.count(" | ") for line in rows}) == 1, "as many cells in each row"
    assert [line.split()[1] for line in rows] == ["method", "---", "bp", "bp", "bp", "dfa"]
    assert "**walk-back a b d**" in rows[-1]
    assert text.count("<details>") == 1 and "<summary>runs/dfa_s42.pt: needs walk-back" in text
    assert "VERDICT: needs walk-back" in text


def test_markdown_is_added_to_the_summary_of_a_github_job(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    summary = repo.path / "summary.md"
    summary.write_text("an earlier step\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    repo.ini(fa_data="data.npz", fa_report="markdown:$GITHUB_STEP_SUMMARY")
    repo.run(BP)
    repo.run(BP, f"--fa-report=markdown:{summary}")
    assert summary.read_text("utf-8").startswith("an earlier step\n## FA audit\n")
    assert summary.read_text("utf-8").count("## FA audit") == 2


def test_outside_of_ci_a_report_to_an_unset_variable_is_left_out_and_said_so(repo: Repo) -> None:
    repo.ini(fa_data="data.npz", fa_report="markdown:$GITHUB_STEP_SUMMARY")
    before = set(os.listdir(repo.path))
    result = repo.run(BP)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["FA audit: no markdown report is written, since GITHUB_STEP_SUMMARY is not set"])
    assert set(os.listdir(repo.path)) == before


def test_a_report_replaces_the_earlier_one_whole(repo: Repo) -> None:
    target = repo.path / "a.json"
    target.write_text("x" * 10_000_000)
    repo.run(BP, "--fa-report=json:a.json")
    assert json.loads(target.read_text())["summary"][0]["checkpoint"] == "runs/bp_s42.pt"
    assert not [name for name in os.listdir(repo.path) if name.startswith(".a.json")]


def test_a_link_keeps_pointing_to_its_file(repo: Repo) -> None:
    (repo.path / "kept").mkdir()
    (repo.path / "a.json").symlink_to(repo.path / "kept" / "real.json")
    repo.run(BP, "--fa-report=json:a.json")
    assert (repo.path / "a.json").is_symlink() and (repo.path / "kept" / "real.json").is_file()


def test_a_pipe_is_written_to_and_not_replaced(repo: Repo) -> None:
    os.mkfifo(repo.path / "pipe")
    reader = os.open(repo.path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    repo.run(BP, "--fa-report=json:pipe", "--fa-diagnostics=a")
    text = os.read(reader, 1 << 20)
    os.close(reader)
    assert json.loads(text)["format"] == "pytest-fadiag audit"


def test_a_report_that_cannot_be_written_costs_the_exit_code_and_not_the_results(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Any, text: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pytest_fadiag.show.outputs.write_atomically", full)
    result = repo.run(BP, "--fa-report=json:a.json")
    result.assert_outcomes(passed=3, skipped=1)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines(
        ["bp *incomplete no d*", "ERROR: --fa-report=json: cannot be written: *No space left on device"]
    )
    silent = repo.pytester.runpytest_inprocess(BP, "--fa-report=json:a.json", "-p", "no:terminal")
    assert silent.ret == pytest.ExitCode.USAGE_ERROR
    silent.stderr.fnmatch_lines(["ERROR: --fa-report=json: cannot be written: *"])
