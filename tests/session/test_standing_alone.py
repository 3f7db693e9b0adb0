"""An audit stands alone: the repo's own tests may be broken, a terminal narrow or quiet, a destination badly chosen."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from builders import audited, report, row
from repo import Repo

from pytest_fadiag.show.audit import Audit
from pytest_fadiag.show.table import render

RUNS = "--fa-checkpoint=runs"
CONTROLS = "--fa-frozen=controls/*.pt"


def test_tests_that_cannot_be_imported_are_left_alone(repo: Repo) -> None:
    repo.write("test_own.py", "import nothing_of_this_name\n")
    assert repo.run(RUNS, CONTROLS).ret == pytest.ExitCode.INTERRUPTED
    repo.run(RUNS, CONTROLS, "--fa-only", "--fa-report=json:a.json").assert_outcomes(passed=10, failed=3)
    repo.run("--fa-merge=a.json", "--fa-only").assert_outcomes(passed=10, failed=3)
    repo.write("norms.py", "def f(h): return h.norm(-1)\n")
    repo.run("--fa-checklist=norms.py", "--fa-only").stdout.fnmatch_lines(["FAILED norms.py:2::pitfall-1*"])
    repo.ini(fa_data="data.npz", fa_only="true")
    repo.run("test_own.py", RUNS, CONTROLS).assert_outcomes(passed=10, failed=3)


def test_with_only_and_nothing_to_audit_nothing_is_collected(repo: Repo) -> None:
    repo.write("test_own.py", "def test_own(): pass\n")
    assert repo.run("--fa-only").ret == pytest.ExitCode.USAGE_ERROR


def test_quiet_keeps_a_line_a_network_and_the_notes(repo: Repo) -> None:
    for path in (repo.path / "runs").iterdir():
        content = torch.load(path)
        torch.save({**content, "test_acc": 0.11}, path)
    result = repo.run(RUNS, CONTROLS, "-q")
    result.stdout.fnmatch_lines(
        [
            "runs/bp_s42.pt: trustworthy",
            "runs/bp_s123.pt: trustworthy*",
            "runs/dfa_s42.pt: walk-back a b d*",
            "bp: seeds PASS*",
            "note: runs/bp_s42.pt and 2 more: the checkpoint claims accuracy 0.1100*",
            "FA audit of 3 checkpoints: *",
        ]
    )
    quieter = repo.run(RUNS, CONTROLS, "-qq").stdout
    quieter.fnmatch_lines(["FA audit of 3 checkpoints: *"])
    quieter.no_fnmatch_line("runs/bp_s42.pt: *")


def test_at_80_columns_what_fired_or_is_excused_is_never_the_column_that_goes() -> None:
    excused = report(cross_batch_stability=0.55)
    excused = audited(excused, "a-method-with-a-long-name", 42, companions=_companions())
    fired = audited(report(residual_norms=[1.0, 9e9, 9e9, 9e9, 9e9]), "another-method-of-long-name", 123456)
    for width in (80, 100, 120):
        lines = ["".join(cell.text for cell in line) for line in render(Audit([row(excused), row(fired)]), width)]
        assert all(len(line) <= width for line in lines)
        assert any("0.550^" in line for line in lines), "its number, with the mark that it is excused"
        assert any("9.0e+09" in line for line in lines)


def _companions() -> object:
    from pytest_fadiag.judge.records import AuxiliaryStatistics

    return AuxiliaryStatistics(sample_invariance=0.01, output_error_drift=0.5, batches=10, classes=10)


@pytest.mark.parametrize(
    "destination",
    [
        "runs/dfa_s42.pt",
        "runs/new.pt",
        "data.npz",
        "controls/frozen_bp_s42.pt",
        "link.json",
        "expected.json",
        "net.safetensors",
    ],
)
def test_what_a_run_reads_is_not_written_over(repo: Repo, destination: str) -> None:
    (repo.path / "link.json").symlink_to(repo.path / "data.npz")
    (repo.path / "expected.json").write_text('{"dfa": "abd", "bp": ""}')
    before = {path: path.read_bytes() for path in repo.path.rglob("*") if path.is_file()}
    result = repo.run(RUNS, CONTROLS, "--fa-expect=expected.json", f"--fa-report=json:{destination}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--fa-report=json: is *, and would be overwritten; name another file"])
    assert all(path.read_bytes() == content for path, content in before.items())


def test_a_merged_file_is_not_written_over(repo: Repo) -> None:
    repo.run(RUNS, CONTROLS, "--fa-report=json:a.json")
    assert repo.run("--fa-merge=a.json", "--fa-report=json:./runs/../a.json").ret == pytest.ExitCode.USAGE_ERROR


@pytest.mark.parametrize("name", ["x" * 5000, "loop/audit.json"], ids=["too-long", "a-link-to-itself"])
def test_a_destination_that_is_none_is_refused(repo: Repo, name: str) -> None:
    (repo.path / "loop").symlink_to("loop")
    result = repo.run(RUNS, f"--fa-report=json:{name}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --fa-report=json: cannot be written: *"])
    assert repo.run(f"--fa-checkpoint={'x' * 5000}").ret == pytest.ExitCode.USAGE_ERROR


def test_an_error_of_a_checkpoint_is_told_once(repo: Repo) -> None:
    Path(repo.path / "runs" / "bp_s42.pt").write_bytes(b"\x00 broken \xff")
    result = repo.run("--fa-checkpoint=runs/bp_s42.pt", "--fa-report=json:a.json")
    result.assert_outcomes(errors=4)
    shown = result.stdout.str().partition("short test summary")[0].partition("FA audit")[0]
    assert shown.count("not a readable torch file") == 1
    assert shown.count("the same error as that of runs/bp_s42.pt::residual-growth") == 3
    result.stdout.fnmatch_lines(["bp * 42 *error: runs/bp_s42.pt: not a readable torch file*"])
