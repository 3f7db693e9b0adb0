"""Without a proven reference exactly the tests that rest on it are errors, in every output, and the others are judged."""

from __future__ import annotations

import pytest
import torch
from own_backwards import CASES, Net, made
from repo import Repo

NETWORKS = """
from own_backwards import CASES, Net, made
from torch.nn import functional as F

def hidden(config):
    return Net(act=lambda block, z: F.gelu(z.data))

def feedback(config):
    return CASES["feedback alignment"]()
"""
CONTROL = ("--fa-frozen=0.5", "--fa-threshold=margin_pp=-100")
HIDDEN = ("--fa-checkpoint=runs/own_s1.pt", *CONTROL, "--fa-model=networks:hidden")
MESSAGE = "the reference is not proven: autograd's derivative lies"


@pytest.fixture
def own(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> Repo:
    repo.write("networks.py", NETWORKS)
    monkeypatch.syspath_prepend(str(repo.path))
    torch.save({"state_dict": made(Net).state_dict(), "config": {"method": "own", "seed": 1}}, repo.path / "runs" / "own_s1.pt")
    return repo


def test_b_and_c_are_errors_and_a_and_d_are_judged(own: Repo) -> None:
    run = own.run(*HIDDEN)
    run.assert_outcomes(passed=2, errors=2)
    run.stdout.fnmatch_lines(
        [
            f"gradient-floor cannot be judged, since {MESSAGE}*",
            "own * incomplete error b c",
            f"note: runs/own_s1.pt: {MESSAGE}*",
            f"ERROR runs/own_s1.pt::gradient-floor*{MESSAGE[:30]}*",
        ]
    )
    run.stdout.no_fnmatch_line("*trustworthy*own*")


def test_every_file_says_so_and_what_is_read_back_too(own: Repo) -> None:
    files = {"markdown": "audit.md", "html": "audit.html", "form": "form.md"}
    own.run(*HIDDEN, *(f"--fa-report={kind}:{name}" for kind, name in files.items()))
    document = own.audit(*HIDDEN)
    (row,) = document["summary"]
    assert row["outcomes"] == {"a": "passed", "b": "error", "c": "error", "d": "passed"}
    assert (row["standing"], row["status"]) == ("incomplete", "incomplete error b c")
    report = document["reports"]["runs/own_s1.pt"]
    assert report["bp_grad_norms"] == [] and report["cross_batch_stability"] is None
    assert report["bp_grad_at_floor"] is None and report["reference_drift_dominated"] is None
    assert report["reference"]["problem"].startswith("autograd's derivative lies")
    assert report["reference_error"] > 0.01
    assert len(report["residual_norms"]) == 4
    for name in files.values():
        text = (own.path / name).read_text("utf-8")
        assert "derivative lies" in text, name
        assert "error b c" in text or "gradient-floor error" in text, name
    merged = own.run("--fa-merge=audit.json")
    merged.assert_outcomes(passed=2, errors=2)


def test_the_result_is_kept_and_a_whole_report_is_an_error(own: Repo, measured: list[str]) -> None:
    own.write("test_own.py", "def test_own(fa_report): fa_report.check()\n")
    for _ in range(2):
        own.run(*HIDDEN, "--deselect=test_own.py").assert_outcomes(passed=2, errors=2, deselected=1)
    own.run(*HIDDEN, "test_own.py").assert_outcomes(passed=2, errors=3)
    assert len(measured) == 1
    own.run(*HIDDEN, "--fa-diagnostics=ad", "--deselect=test_own.py").assert_outcomes(passed=2, deselected=1)


def test_with_an_own_backward_that_is_undone_everything_is_judged(own: Repo) -> None:
    state = made(CASES["feedback alignment"]).state_dict()
    torch.save({"state_dict": state, "config": {"method": "own", "seed": 1}}, own.path / "runs" / "own_s1.pt")
    document = own.audit("--fa-checkpoint=runs/own_s1.pt", *CONTROL, "--fa-model=networks:feedback")
    report = document["reports"]["runs/own_s1.pt"]
    assert report["reference"]["own_backward"] and len(report["reference"]["modules"]) == 6
    assert set(document["summary"][0]["outcomes"].values()) == {"passed"}
