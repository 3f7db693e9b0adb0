"""The published forms: which tests there are, what their rows say in every output, and what decides the exit code."""

from __future__ import annotations

import pytest
import torch
from repo import Repo

BP = "--fa-checkpoint=runs/bp_s42.pt"
THREE = "--fa-protocol=three"
CREDIT = """
import torch

def opposite(model, x, y, checkpoint):
    logits, states = model(x, return_hidden=True)
    return [-g for g in torch.autograd.grad(torch.nn.functional.cross_entropy(logits, y, reduction="sum"), states)]

def broken(model, x, y, checkpoint):
    raise RuntimeError("no feedback")
"""


def changed(repo: Repo, **scales: float) -> None:
    """The network with some of its layers scaled."""
    path = repo.path / "runs" / "bp_s42.pt"
    content = torch.load(path, weights_only=True)
    for name, scale in scales.items():
        content["state_dict"][name.replace("__", ".")] *= scale
    torch.save(content, path)


def test_three_diagnostics_pass_and_every_output_says_so_beside_the_verdict(repo: Repo) -> None:
    files = [f"--fa-report={kind}" for kind in ("html:page.html", "markdown:audit.md", "form:form.md")]
    document = repo.audit(BP, THREE, "--fa-frozen=0.5", *files)
    (row,) = document["summary"]
    (report,) = document["reports"].values()
    assert set(row["outcomes"]) == {"a", "b", "d"}
    assert (row["published"], report["published"], report["protocol"]) == ("PASS", "PASS", "three")
    assert row["verdict"].startswith("incomplete: direction-drift")
    assert report["verdict"] == "incomplete: direction-drift not asked for"
    assert row["status"].endswith("[PASS]")
    assert report["thresholds"]["confounds"] == "flag"
    for name in ("page.html", "form.md"):
        assert "[PASS]" in (repo.path / name).read_text("utf-8").replace("\\", "")
    assert "D1 to D3: 1 PASS" in (repo.path / "audit.md").read_text("utf-8")
    result = repo.run(BP, THREE, "--fa-frozen=0.5")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*[[]PASS[]]", "FA audit of 1 checkpoint:*D1 to D3: 1 PASS"])
    assert "drift" not in result.stdout.str().split("method", 1)[1]


def test_what_fails_is_named_by_its_number_and_the_exit_code_is_that_of_the_three(repo: Repo) -> None:
    changed(repo, out_head__weight=1e-8, blocks__1__fc2__weight=1e5)
    result = repo.run(BP, THREE, "--fa-frozen=0.5", "--fa-threshold=margin_pp=-100")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["VERDICT: needs walk-back: residual stream exploded; * [[]FAIL(D1+D2)[]]", "*walk-back a b *FAIL(D1+D2)*"]
    )
    assert repo.summary(BP, THREE, "--fa-frozen=1.0")["runs/bp_s42.pt"]["published"] == "FAIL(D1+D2+D3)"


def test_without_a_control_it_is_no_pass(repo: Repo) -> None:
    (row,) = repo.audit(BP, THREE)["summary"]
    assert row["published"] == "INCOMPLETE(D3)"


def test_confounds_are_flagged_unless_somebody_says_otherwise(repo: Repo) -> None:
    changed(repo, out_head__weight=300.0)  # so confident that the gradient is small, and sound per unit error
    floor = "--fa-threshold=g_norm_floor=2e-3"
    by_three, excused, by_four = (
        repo.summary(BP, floor, "--fa-frozen=0.5", *more)["runs/bp_s42.pt"]
        for more in ([THREE], [THREE, "--fa-confounds=excuse"], ["--fa-protocol=four"])
    )
    assert by_three["published"] == "FAIL(D2)"
    assert excused["published"] == "PASS"
    assert set(by_four["outcomes"]) == set("abcd")
    assert "b" not in by_four["fired"]
    assert by_four["published"] == ""


@pytest.mark.parametrize("protocol", ["three", "four"])
def test_credit_is_shown_and_never_judged(repo: Repo, protocol: str) -> None:
    repo.write("rules.py", CREDIT)
    command = (BP, f"--fa-protocol={protocol}", "--fa-frozen=0.5", "--fa-credit=rules:opposite")
    document = repo.audit(*command, "--fa-report=form:form.md")
    (row,) = document["summary"]
    (report,) = document["reports"].values()
    assert "f" not in row["outcomes"]
    assert row["fired"] == ""
    assert report["credit"]["state"] == ["against"] * 5
    assert "shown, not judged: 0/4" in (repo.path / "form.md").read_text("utf-8")
    result = repo.run(*command)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*method*credit*", "*0/4*"])


def test_the_report_shows_the_credit_that_is_not_judged(repo: Repo) -> None:
    repo.write("rules.py", CREDIT)
    repo.write(
        "test_own.py", "def test_own(fa_report):\n    print(fa_report)\n    assert not fa_report.asks_for('f')\n    assert 0\n"
    )
    result = repo.run(BP, THREE, "--fa-frozen=0.5", "--fa-credit=rules:opposite", "-k", "test_own")
    result.stdout.fnmatch_lines(["(f) credit-alignment: shown, not judged", "*h_1 against  Γ -1.000*", "VERDICT: * [[]PASS[]]"])


def test_credit_that_cannot_be_had_changes_nothing(repo: Repo) -> None:
    repo.write("rules.py", CREDIT)
    result = repo.run(BP, THREE, "--fa-frozen=0.5", "--fa-credit=rules:broken")
    assert result.ret == 0
    result.assert_outcomes(passed=3)


def test_a_fixture_gives_the_credit_that_is_shown(repo: Repo) -> None:
    repo.write("rules.py", CREDIT)
    repo.write("conftest.py", "import pytest, rules\n@pytest.fixture\ndef fa_credit():\n    return rules.opposite\n")
    (report,) = repo.audit(BP, THREE, "--fa-frozen=0.5")["reports"].values()
    assert report["credit"]["state"] == ["against"] * 5
    assert "credit-alignment" not in report["diagnostics"]


def test_names_beside_a_form_are_a_usage_error_and_what_is_typed_wins_over_the_ini_file(repo: Repo) -> None:
    result = repo.run(BP, THREE, "--fa-diagnostics=ab")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--fa-protocol and --fa-diagnostics exclude each other*"])
    repo.ini(fa_data="data.npz", fa_protocol="three")
    assert set(repo.summary(BP)["runs/bp_s42.pt"]["outcomes"]) == {"a", "b", "d"}
    typed = repo.summary(BP, "--fa-diagnostics=ac")["runs/bp_s42.pt"]
    assert (set(typed["outcomes"]), typed["published"]) == ({"a", "c"}, "")
    repo.ini(fa_data="data.npz", fa_diagnostics="c")
    assert set(repo.summary(BP, THREE)["runs/bp_s42.pt"]["outcomes"]) == {"a", "b", "d"}
    both = "[pytest]\nfa_data = data.npz\nfa_diagnostics = c\nfa_protocol = three\n"
    (repo.path / "pytest.ini").write_text(both, "utf-8")
    assert repo.run(BP).ret == pytest.ExitCode.USAGE_ERROR
    assert repo.run(BP, "--fa-protocol=five").ret == pytest.ExitCode.USAGE_ERROR


def test_the_later_form_knows_no_margin_over_seeds(repo: Repo) -> None:
    runs = "--fa-checkpoint=runs/bp_s*.pt"
    assert repo.audit(runs, "--fa-frozen=0.5", "--fa-protocol=four")["seed_margins"]
    assert not repo.audit(runs, "--fa-frozen=0.5", THREE)["seed_margins"]


def test_a_marker_that_asks_for_something_else_is_judged_by_no_form(repo: Repo) -> None:
    repo.write(
        "test_own.py",
        "import pytest\n"
        "@pytest.mark.fa_protocol(diagnostics='c')\n"
        "def test_own(fa_report):\n    assert fa_report.published == '' and fa_report.asks_for('c')\n",
    )
    repo.run(BP, THREE, "-k", "test_own").assert_outcomes(passed=1, deselected=3)


def test_a_merge_keeps_the_form_and_can_be_judged_by_one(repo: Repo) -> None:
    repo.audit(BP, "--fa-frozen=0.5")
    (repo.path / "audit.json").rename(repo.path / "whole.json")
    (row,) = repo.audit("--fa-merge=whole.json", THREE)["summary"]
    assert (row["published"], set(row["outcomes"])) == ("PASS", {"a", "b", "d"})
    (repo.path / "audit.json").rename(repo.path / "three.json")
    (again,) = repo.audit("--fa-merge=three.json")["summary"]
    assert again["published"] == "PASS"
