"""Files of a run: reports of every kind, JUnit and other plugins' files, and what is refused before
a run.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
from repo import ROOT, Repo, plan, settings

from pytest_fadiag.judge.errors import AuditError
from pytest_fadiag.session.files import check_destinations, destination
from pytest_fadiag.show.outputs import OUTPUTS

BP, DFA = "--fa-checkpoint=runs/bp_s42.pt", "--fa-checkpoint=runs/dfa_s42.pt"
CONTROLS = "--fa-frozen=controls/*.pt"


@pytest.mark.parametrize(
    ("reports", "message"),
    [
        ("pdf", "unknown kind; expected .*json.*html"),
        ("json:runs/bp_s42.pt", "named like a checkpoint"),
        ("json:new.ckpt", "named like a checkpoint"),
        ("json:log.json", "a file that this run reads"),
        ("json:control.json", "a file that this run reads"),
        ("json:record.json", "a file that this run reads"),
        ("json:a.out html:a.out", "that of --fa-report=json:a.out"),
    ],
)
def test_a_report_that_would_overwrite_something_is_refused_at_the_start(
    reports: str, message: str
) -> None:
    words = [f"--fa-report={text}" for text in reports.split()]
    asked = settings(*words, "--fa-expect=record.json", "--fa-frozen=0.3")
    found = plan("--fa-log=log.json", BP, files="log.json runs/bp_s42.pt")
    controls: Any = SimpleNamespace(paths=[ROOT / "control.json"])
    with pytest.raises(AuditError, match=message):
        check_destinations(asked, found, controls, OUTPUTS)


def test_variables_and_the_home_folder_are_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHERE", "out")
    assert destination(OUTPUTS, "json:$WHERE/a.json", ROOT) == ("json", ROOT / "out/a.json")
    assert destination(OUTPUTS, "json", ROOT) == ("json", ROOT / "audit.json")
    assert destination(OUTPUTS, "markdown:$GITHUB_STEP_SUMMARY", ROOT) == ("markdown", None)
    assert destination(OUTPUTS, "json:~/a.json", ROOT) == ("json", Path.home() / "a.json")


def test_every_kind_of_report_is_written_and_said(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repo.path / "summary.md").write_text("an earlier step\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(repo.path / "summary.md"))
    kinds = {
        "json": "a.json",
        "html": "a.html",
        "form": "form.md",
        "certificate": "cert",
        "markdown": "$GITHUB_STEP_SUMMARY",
    }
    words = [f"--fa-report={kind}:{place}" for kind, place in kinds.items()]
    result = repo.run(DFA, CONTROLS, *words, "--fa-report=markdown:$UNSET")
    result.stdout.fnmatch_lines(
        [f"FA audit: {kind} written to *" for kind in kinds], consecutive=False
    )
    result.stdout.fnmatch_lines(
        ["FA audit: markdown:$UNSET is not written: the variable is not set"]
    )
    assert (repo.path / "a.html").read_text().rstrip().endswith("</html>")
    assert (repo.path / "cert" / "audit.json").exists()
    assert (repo.path / "summary.md").read_text().startswith("an earlier step\n")


def test_the_json_says_where_it_comes_from_and_that_numbers_were_kept(repo: Repo) -> None:
    document = repo.audit(DFA, CONTROLS, "--fa-threshold=margin_pp=3")
    origin, (row,) = document["origin"], document["rows"]
    assert set(origin["files"]) == {
        "runs/dfa_s42.pt",
        "controls/frozen_bp_s42.pt",
        "controls/frozen_dfa_s42.pt",
    }
    assert origin["files"]["runs/dfa_s42.pt"] == row["report"]["environment"]["checkpoint_sha256"]
    assert origin["options"]["frozen"] == ["controls/*.pt"] and "report" not in origin["options"]
    assert "--fa-threshold=margin_pp=3" in origin["command"] and row["cached"] is True
    repo.result.stdout.fnmatch_lines(["  ! non-default thresholds: *", "*1 of 1 from the cache"])
    assert repo.audit(DFA, CONTROLS, "--fa-no-cache")["rows"][0]["cached"] is False


def test_data_of_another_working_folder_are_recorded_so_that_they_are_found(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repo.path / "runs")
    words = (
        "--fa-checkpoint=dfa_s42.pt",
        "--fa-data=../data.npz",
        "--fa-frozen=../controls/frozen_dfa_s42.pt",
    )
    result = repo.run(
        *words,
        "--fa-report=json:../out/audit.json",
        f"--rootdir={repo.path}",
        "-c",
        "../pytest.ini",
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    origin = json.loads((repo.path / "out" / "audit.json").read_text())["origin"]
    assert origin["options"]["data"] == ["data.npz"]


def test_a_report_that_cannot_be_written_costs_the_exit_code_and_not_the_results(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pytest_fadiag.show.outputs.write_atomically", full)
    result = repo.run(BP, CONTROLS, "--fa-report=json:a.json")
    result.assert_outcomes(passed=4)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines(
        ["✓ TRUSTWORTHY  bp, *", "ERROR: FA audit: json:a.json is not written: *No space left*"]
    )


def test_nothing_is_written_by_a_run_of_nothing(repo: Repo) -> None:
    for words in (["-k", "nothing"], ["--collect-only"]):
        repo.run(BP, *words, "--fa-report=json:a.json")
        assert not (repo.path / "a.json").exists()


def test_junit_has_numbers_as_properties_and_the_text_as_the_failure(repo: Repo) -> None:
    repo.run(DFA, "--junitxml=out.xml")
    cases = {
        case.attrib["name"]: case
        for case in ElementTree.parse(repo.path / "out.xml").iter("testcase")
    }
    found = {
        entry.attrib["name"]: entry.attrib["value"]
        for entry in cases["residual-growth"].iter("property")
    }
    assert float(found.pop("fa_value")) > 1e5
    assert found == {
        "fa_method": "dfa",
        "fa_seed": "42",
        "fa_status": "fail",
        "fa_threshold": "50.0",
    }
    failure, skipped = (
        cases["residual-growth"].find("failure"),
        cases["frozen-margin"].find("skipped"),
    )
    assert failure is not None and failure.text is not None and skipped is not None
    assert failure.attrib["message"].endswith(" > 50: residual stream exploded")
    assert failure.text.startswith("(a) fail: residual stream exploded: per-block growth ")
    assert "--fa-frozen" in skipped.attrib["message"]


OTHER_PLUGIN = """
def pytest_runtest_logreport(report):
    if report.failed:  # as pytest-json-report reads it
        crash, traceback = report.longrepr.reprcrash, report.longrepr.reprtraceback
        assert [type(v) for v in (crash.path, crash.lineno, crash.message)] == [str, int, str]
        for entry in traceback.reprentries:
            assert getattr(entry, "reprfileloc", None) is None
        assert str(report.longrepr)
    assert not hasattr(report, "fa_row")
"""


def test_other_plugins_meet_a_failure_as_pytest_makes_them(repo: Repo) -> None:
    repo.write("conftest.py", OTHER_PLUGIN)
    result = repo.run(DFA, "--fa-diagnostics=ac")
    result.assert_outcomes(passed=1, failed=1)
    assert "INTERNALERROR" not in result.stdout.str()


def test_names_in_files_cannot_forge_lines(repo: Repo) -> None:
    import torch

    path = repo.path / "runs" / "dfa_s42.pt"
    content = torch.load(path, weights_only=True)
    content["config"]["method"] = "x\n\x1b[32m===== 8 passed =====\u202e<script>"
    torch.save(content, path)
    result = repo.run(DFA, "--fa-diagnostics=a", "--fa-report=markdown:a.md")
    shown = result.stdout.str() + (repo.path / "a.md").read_text()
    assert "\x1b[32m===" not in shown and "\n===== 8 passed" not in shown and "\u202e" not in shown
