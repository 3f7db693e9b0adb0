"""Evaluation code read by --fa-checklist: a test for each finding, and one for each pitfall that was not found."""

from __future__ import annotations

import json

import pytest
from repo import Repo

from pytest_fadiag.judge.pitfalls import PITFALLS

OTHERS = len(PITFALLS) - 1
"""The tests of the pitfalls that a file with one of them does not commit."""

NORM = "def size(h):\n    return h.norm(-1)\n"
FINE = "def size(h):\n    return h.norm(dim=-1)\n"


def test_a_finding_fails_with_place_reason_and_fix(repo: Repo) -> None:
    repo.write("evaluate/norms.py", NORM)
    repo.write("evaluate/fine.py", FINE)
    result = repo.run("--fa-checklist=evaluate")
    result.assert_outcomes(passed=OTHERS, failed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.re_match_lines(
        [
            r"evaluate/norms.py:3: pitfall 1, .*",
            r"    return h.norm\(-1\)",
            r"  .*L2 norm.*",
            r"  fix: write `h.norm\(dim=-1\)`",
            r"  or, .* # fadiag: ok REASON",
            r"FA checklist of 2 files: 1 pitfall",
            r"FAILED evaluate/norms.py:3::pitfall-1 - .*h.norm\(-1\)",
        ]
    )


def test_code_without_a_pitfall_is_green(repo: Repo) -> None:
    repo.write("fine.py", FINE)
    result = repo.run("--fa-checklist=fine.py")
    result.assert_outcomes(passed=OTHERS + 1)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["FA checklist of 1 file: 0 pitfalls"])


def test_a_reason_lets_a_finding_stand_and_is_shown(repo: Repo) -> None:
    repo.write("norms.py", NORM.replace("(-1)", "(-1)  # fadiag: ok the L₋₁ norm is meant"))
    result = repo.run("--fa-checklist=norms.py", "-rs")
    result.assert_outcomes(passed=OTHERS, skipped=1)
    result.stdout.fnmatch_lines(["FA checklist of 1 file: 0 pitfalls, 1 let stand", "SKIPPED*let stand: the L₋₁ norm is meant"])


def test_a_file_that_cannot_be_parsed_fails_and_the_others_are_read(repo: Repo) -> None:
    repo.write("code/broken.py", "def f(:\n")
    repo.write("code/norms.py", NORM)
    result = repo.run("--fa-checklist=code")
    result.assert_outcomes(passed=OTHERS, failed=2)
    result.stdout.fnmatch_lines(["*broken.py*"])


def test_findings_are_in_the_files_beside_an_audit(repo: Repo) -> None:
    repo.write("norms.py", NORM)
    document = repo.audit("--fa-checklist=norms.py", "--fa-checkpoint=runs/bp_s42.pt")
    assert len(document["reports"]) == 1
    assert document["checklist"]["files"] == 1
    (found,) = document["checklist"]["findings"]
    assert (found["number"], found["file"], found["line"], found["silenced"]) == (1, "norms.py", 3, None)


def test_a_checklist_alone_writes_files_too(repo: Repo) -> None:
    repo.write("norms.py", NORM)
    repo.run("--fa-checklist=norms.py", "--fa-report=json:out.json", "--fa-report=html:out.html", "--fa-report=form:out.md")
    assert json.loads((repo.path / "out.json").read_text())["reports"] == {}
    assert "norms.py" in (repo.path / "out.html").read_text("utf-8")
    assert (repo.path / "out.md").exists()


def test_selection_works_as_for_any_test(repo: Repo) -> None:
    repo.write("norms.py", NORM)
    repo.run("--fa-checklist=norms.py", "-k", "pitfall-2").assert_outcomes(passed=1, deselected=OTHERS)
    repo.run("--fa-checklist=norms.py", "-m", "fa_protocol").assert_outcomes(passed=OTHERS, failed=1)
    repo.run("--fa-checklist=norms.py", "--deselect=norms.py:3::pitfall-1").assert_outcomes(passed=OTHERS, deselected=1)
    repo.run("--fa-checklist=norms.py")
    repo.run("--fa-checklist=norms.py", "--lf").assert_outcomes(failed=1)


def test_workers_find_the_same(repo: Repo) -> None:
    repo.write("norms.py", NORM)
    result = repo.spawn("--fa-checklist=norms.py", "-n2")
    result.assert_outcomes(passed=OTHERS, failed=1)
    result.stdout.fnmatch_lines(["norms.py:3: pitfall 1, *", "FA checklist of 1 file: 1 pitfall"])


def test_the_ini_files_checklist_belongs_to_a_run_of_everything(repo: Repo) -> None:
    repo.write("norms.py", NORM)
    repo.write("test_own.py", "def test_own(): pass\n")
    repo.ini(fa_checklist="norms.py")
    repo.run().assert_outcomes(passed=OTHERS + 1, failed=1)
    repo.run("test_own.py").assert_outcomes(passed=1)


def test_a_path_that_is_not_there_is_refused(repo: Repo) -> None:
    result = repo.run("--fa-checklist=nowhere")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --fa-checklist: *", "  *nowhere*"])


def test_findings_whose_tests_did_not_run_are_shown(repo: Repo) -> None:
    repo.write("norms.py", NORM)
    repo.write("silenced.py", NORM.replace("(-1)", "(-1)  # fadiag: ok the L₋₁ norm is meant"))
    repo.write("test_broken.py", "import nothing_of_that_name\n")
    said = ["FA checklist of 2 files: 1 pitfall, 1 let stand", "  not run: norms.py:3: pitfall 1, *"]
    checklist = ("--fa-checklist=norms.py", "--fa-checklist=silenced.py")
    broken = repo.run(*checklist)
    assert broken.ret == pytest.ExitCode.INTERRUPTED
    broken.stdout.fnmatch_lines(said, consecutive=True)
    broken.stdout.no_fnmatch_line("*not run: silenced*")
    repo.run(*checklist, "--fa-only").stdout.no_fnmatch_line("*not run: *")
    repo.run(*checklist, "--fa-only", "-k", "pitfall-2").stdout.fnmatch_lines(said, consecutive=True)


def test_findings_of_a_merged_audit_are_shown(repo: Repo) -> None:
    repo.write("norms.py", NORM)
    repo.write("more.ipynb", "{}")
    repo.audit("--fa-checklist=.", "--fa-checkpoint=runs/bp_s42.pt", "--fa-only")
    said = ["FA checklist of 1 file: 1 pitfall; 1 notebook not read", "  not run: norms.py:3: pitfall 1, *"]
    repo.run("--fa-merge=audit.json", "--fa-only").stdout.fnmatch_lines(said, consecutive=True)


def test_nothing_of_the_code_is_run(repo: Repo) -> None:
    repo.write("evil.py", "open('ran.txt', 'w').write('x')\n")
    repo.run("--fa-checklist=evil.py").assert_outcomes(passed=OTHERS + 1)
    assert not (repo.path / "ran.txt").exists()


def test_two_findings_on_one_line_are_two_tests_also_for_workers(repo: Repo) -> None:
    repo.write("norms.py", "def size(h, g):\n    return h.norm(-1), g.norm(-1)\n")
    listed = [line for line in repo.run("--fa-checklist=norms.py", "--collect-only", "-q").outlines if "pitfall-1" in line]
    assert listed == ["norms.py:3:12::pitfall-1", "norms.py:3:24::pitfall-1"]
    alone, spread = repo.run("--fa-checklist=norms.py"), repo.spawn("--fa-checklist=norms.py", "-n2")
    for result in (alone, spread):
        result.assert_outcomes(passed=OTHERS, failed=2)
        result.stdout.re_match_lines([r"FAILED norms.py:3:12::pitfall-1 - .*norm\(-1\)"])


def test_a_pasted_finding_runs_alone(repo: Repo) -> None:
    repo.write("norms.py", NORM)
    repo.run("--fa-checklist=norms.py", "norms.py:3::pitfall-1").assert_outcomes(failed=1)
    repo.run("--fa-checklist=norms.py", "norms.py::pitfall-2").assert_outcomes(passed=1)


@pytest.mark.parametrize("named", ["runs/bp_s42.pt", "runs/bp_s42.pt::residual-growth"])
def test_a_checkpoint_among_the_arguments_leaves_no_pitfall_out(repo: Repo, named: str) -> None:
    repo.write("norms.py", NORM)
    result = repo.run(named, "--fa-checklist=norms.py")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["FAILED norms.py:3::pitfall-1 - *"])


@pytest.mark.parametrize("named", ["norms.py:4::pitfall-1", "norms.py::pitfall-1"])
@pytest.mark.parametrize("options", [(), ("--fa-checklist=norms.py",)])
def test_a_pitfall_that_is_not_there_is_refused_also_beside_a_checkpoint(
    repo: Repo, named: str, options: tuple[str, ...]
) -> None:
    repo.write("norms.py", NORM)
    result = repo.run("runs/bp_s42.pt", named, *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {named}: no such test: *--fa-checklist*"])


def test_a_checklist_alone_has_no_figures_and_says_so(repo: Repo) -> None:
    repo.write("fine.py", FINE)
    result = repo.run("--fa-checklist=fine.py", "--fa-report=figures:figs")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["FA audit: no figure «audit»: nothing was measured"])
    result.stdout.no_fnmatch_line("*figures written*")
