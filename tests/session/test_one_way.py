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
    """The reports of generated tests, as a process of its own measured them that used no workers."""
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


def test_so_is_one_in_a_written_test_that_never_checks(repo: Repo) -> None:
    repo.write("test_own.py", "def test_own(fa_diagnostic): pass\n")
    (repo.path / "expected.json").write_text(json.dumps({"bp": "a"}))
    for options in ((), ("--runxfail",)):
        result = repo.run("test_own.py", "--fa-checkpoint=runs/bp_s42.pt", "--fa-expect=expected.json", "-k", "own", *options)
        result.assert_outcomes(failed=1, passed=3)
        result.stdout.fnmatch_lines(["FAILED test_own.py::test_own*residual-growth* - changed from fire to pass*"])


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


SUBSETS = ("a", "b", "c", "d", "bd", "acd")


@pytest.mark.parametrize("keys", SUBSETS)
def test_every_output_takes_an_audit_of_some_diagnostics(repo: Repo, keys: str) -> None:
    kinds = {"json": "s.json", "markdown": "s.md", "html": "s.html", "form": "s_form.md", "figures": "s_figures"}
    reports = [f"--fa-report={kind}:{name}" for kind, name in kinds.items()]
    result = repo.run("--fa-checkpoint=runs/bp_s42.pt", "--fa-frozen=controls/*.pt", f"--fa-diagnostics={keys}", *reports)
    result.assert_outcomes(passed=len(keys))
    document = json.loads((repo.path / "s.json").read_text())
    assert [finding["key"] for finding in document["reports"]["runs/bp_s42.pt"]["findings"]] == list(keys)
    assert document["summary"][0]["standing"] == "incomplete"


def test_a_property_of_what_was_not_asked_for_is_refused(repo: Repo) -> None:
    repo.write(
        "test_own.py",
        "import pytest\n@pytest.mark.fa_protocol(checkpoint='runs/dfa_s42.pt', diagnostics='bd')\n"
        "def test_it(fa_report):\n    assert not fa_report.residual_stream_exploded\n",
    )
    result = repo.run("test_own.py")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["FAILED *(a) was not asked for*"])


def test_a_record_of_some_diagnostics_is_no_record_of_the_others(repo: Repo) -> None:
    dfa = "--fa-checkpoint=runs/dfa_s42.pt"
    repo.run(dfa, "--fa-frozen=controls/*.pt", "--fa-diagnostics=d", "--fa-report=json:d.json")
    result = repo.run(dfa, "--fa-frozen=controls/*.pt", "--fa-expect=d.json")
    result.assert_outcomes(errors=3, xfailed=1)
    result.stdout.fnmatch_lines(["ERROR *(a) of runs/dfa_s42.pt is not recorded in d.json*"])


def test_a_record_renewed_for_some_diagnostics_keeps_the_others(repo: Repo) -> None:
    dfa = ("--fa-checkpoint=runs/dfa_s42.pt", "--fa-frozen=controls/*.pt", "--fa-expect=record.json")
    repo.run(*dfa, "--fa-update-expect")
    repo.run(*dfa, "--fa-update-expect", "--fa-diagnostics=d")
    repo.run(*dfa).assert_outcomes(passed=1, xfailed=3)


def test_an_error_of_one_diagnostic_is_not_another_ones(repo: Repo) -> None:
    import torch

    repo.write("plain_net.py", "import torch\ndef make(): return torch.nn.Sequential(torch.nn.Linear(20, 5))\n")
    torch.save({"0.weight": torch.zeros(5, 20), "0.bias": torch.arange(5.0)}, repo.path / "plain.pt")
    repo.write(
        "test_own.py",
        "import pytest\nmark = pytest.mark.fa_protocol\n"
        "@mark(checkpoint='plain.pt', diagnostics='a')\ndef test_a(fa_report): pass\n"
        "@mark(checkpoint='plain.pt', diagnostics='d')\ndef test_d(fa_report): pass\n",
    )
    options = ("--fa-model=plain_net:make", "--fa-frozen=0.5", "--fa-threshold=margin_pp=-100")
    repo.run("test_own.py", *options).assert_outcomes(errors=1, passed=1)


def test_numbers_of_two_networks_never_make_one_report(repo: Repo) -> None:
    repo.write(
        "conftest.py",
        "import pytest, torch\nfrom pytest_fadiag import ResidualMLP\n@pytest.fixture\ndef fa_model(fa_checkpoint, request):\n"
        "    net = ResidualMLP(20, 16, 4, 5)\n    net.load_state_dict(fa_checkpoint.state_dict)\n"
        "    with torch.no_grad():\n        net.embed.weight.mul_(request.node.get_closest_marker('times').args[0])\n"
        "    return net\n"
        "def pytest_configure(config):\n    config.addinivalue_line('markers', 'times(n)')\n",
    )
    repo.write(
        "test_own.py",
        "import pytest\nmark = pytest.mark.fa_protocol\n"
        "@pytest.mark.times(1.0)\n@mark(checkpoint='runs/bp_s42.pt', diagnostics='a')\n"
        "def test_one(fa_report): assert fa_report.residual_norms[0] < 100\n"
        "@pytest.mark.times(1e6)\n@mark(checkpoint='runs/bp_s42.pt')\n"
        "def test_two(fa_report): assert fa_report.residual_norms[0] > 1e5 and fa_report.bp_grad_norms[0] < 1e-6\n",
    )
    repo.run("test_own.py").assert_outcomes(passed=2)
