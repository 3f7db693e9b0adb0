"""``fadiag audit --slurm``: parts as jobs, here by submitit's executor of this machine."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from repo import Repo

from pytest_fadiag import cli, slurm
from pytest_fadiag.judge.errors import AuditError

pytest.importorskip("submitit")
AUDIT = [sys.executable, "-m", "pytest", "-p", "pytest_fadiag.cli", "--fa-only"]
AUDIT += ["--disable-plugin-autoload", "-p", "fadiag", "--fa-checkpoint=runs"]
"""The three networks of the repo; its ini file has expectations that no part must read."""


@pytest.fixture
def cold(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> Repo:
    """The repo before anything of it was measured."""
    shutil.rmtree(repo.path / ".pytest_cache")
    monkeypatch.chdir(repo.path)
    monkeypatch.setenv("PYTHONPATH", f"{Path(slurm.__file__).parent.parent}:{repo.path}")
    repo.ini(fa_data="data.npz", fa_diagnostics="abc", fa_expect="gone.json", fa_report="html")
    return repo


KILLER = """
import os, pathlib, signal

def pytest_runtest_logstart(nodeid):
    for time in range(TIMES):
        mark = pathlib.Path(f"died-{time}")
        if "dfa" in nodeid and not mark.exists():
            mark.touch()
            os.kill(VICTIM, signal.SIGKILL)
            os._exit(9)
"""
"""Dies so many times while the DFA network is measured."""


def test_what_the_parts_measured_is_in_the_cache_of_the_whole(
    cold: Repo, capfd: pytest.CaptureFixture[str]
) -> None:
    command = [*AUDIT, "--report=json:audit.json", "--fa-expect=gone.json"]
    assert slurm.measure(command, "parts=2", "local") == 0
    assert "slurm: 2 of 2 parts ended" in capfd.readouterr().out
    assert not list(cold.path.glob("audit.*"))
    cold.ini(fa_data="data.npz", fa_diagnostics="abc")
    subprocess.run([*AUDIT, "--report=json:audit.json"], check=False)
    rows = json.loads((cold.path / "audit.json").read_text("utf-8"))["rows"]
    assert [row.get("cached") for row in rows] == [True] * 3


def test_a_part_whose_node_is_lost_runs_once_more(
    cold: Repo, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("submitit.Job._results_timeout_s", 1)
    cold.write("killer.py", KILLER.replace("TIMES", "1").replace("VICTIM", "os.getppid()"))
    assert slurm.measure([*AUDIT, "-p", "killer"], "parts=3", "local") == 0
    told = capfd.readouterr().out
    assert told.count("slurm: lost ") == 1
    assert "slurm: lost 3/3\n" in told
    assert "slurm: 1 of 1 parts ended" in told


def test_the_command_audits_the_whole_when_its_parts_are_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[tuple[Any, ...]] = []

    def measure(*call: Any) -> int:
        calls.append(call)
        return len(calls) - 1

    monkeypatch.setattr(slurm, "measure", measure)
    monkeypatch.setattr("os.execv", lambda _, command: calls.append(tuple(command)))
    words = ["audit", "runs", "--slurm", "partition=gpu,parts=16", "-q"]
    cli.main(words)
    (command, request), whole = calls
    assert request == "partition=gpu,parts=16"
    assert tuple(command) == whole
    assert whole[-2:] == ("-q", "--fa-checkpoint=runs")
    assert cli.main(words) == len(calls) - 1, "the exit code of parts that cannot be measured"
    assert len(calls) == 3


def test_a_part_that_is_lost_twice_is_an_error(cold: Repo) -> None:
    cold.write("killer.py", KILLER.replace("TIMES", "2").replace("VICTIM", "os.getpid()"))
    with pytest.raises(AuditError, match="part 3/3 was lost twice; its output is in"):
        slurm.measure([*AUDIT, "-p", "killer"], "parts=3", "local")


@pytest.mark.parametrize("answer", ["y", "n", None])
def test_an_interrupt_cancels_or_leaves_the_parts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: str | None
) -> None:
    cancelled = []

    def jobs(*_: Any) -> list[Any]:
        raise KeyboardInterrupt

    job = SimpleNamespace(done=jobs, cancel=lambda check: cancelled.append(1))
    executor = SimpleNamespace(map_array=lambda *_: [job])
    monkeypatch.setattr(slurm, "_executor", lambda *_: (executor, 1))
    monkeypatch.setattr("subprocess.call", lambda *_, **__: 0)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: answer is not None))
    monkeypatch.setattr("builtins.input", lambda _: answer)
    assert slurm.measure(AUDIT, "parts=1") == pytest.ExitCode.INTERRUPTED
    assert len(cancelled) == (answer != "n")
    assert ("go on" if answer == "n" else "cancelled") in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--slurm parts=0", "expected KEY=VALUE,… such as partition=gpu,parts=8"),
        ("--slurm=partition", "expected KEY=VALUE"),
        ("--slurm=gpus=1,parts=two", "expected KEY=VALUE"),
        ("--slurm parts=2 --no-cache", "leave --no-cache out"),
        ("--slurm parts=2", 'Could not detect "srun"'),
        ("--slurm", "unrecognized arguments: --slurm"),
    ],
)
def test_what_is_wrong_with_a_request_is_exit_code_4(
    cold: Repo, monkeypatch: pytest.MonkeyPatch, words: str, message: str
) -> None:
    monkeypatch.setenv("PATH", "")
    command = [sys.executable, "-m", "pytest_fadiag", "audit", "runs", *words.split()]
    result = cold.pytester.run(*command)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert message in result.stderr.str()


def test_more_parts_than_networks_are_refused_before_anything_is_submitted(
    cold: Repo, capfd: pytest.CaptureFixture[str]
) -> None:
    assert slurm.measure(AUDIT, "parts=4", "local") == pytest.ExitCode.USAGE_ERROR
    assert "use at most 3 parts" in capfd.readouterr().err
    assert not list(cold.path.glob("fadiag-slurm/*/*_submitted.pkl"))
