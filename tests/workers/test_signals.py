"""The word to stop: Ctrl-C and SIGTERM end the workers, show and write what there is, and leave nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from workers.small_repo import WorkerRepo, hear_interrupts

SLOW_MEASUREMENTS = """
import time
from pytest_fadiag.workshop import Workshop
original = Workshop.observe
def observe(self, *args):
    time.sleep(1.5)
    return original(self, *args)
Workshop.observe = observe
"""
SLOW_TESTS = """
import time
def pytest_runtest_teardown():
    time.sleep(0.5)
"""


def children(process: subprocess.Popen[str]) -> list[psutil.Process]:
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


@pytest.mark.parametrize(
    ("number", "workers", "slow"),
    [
        (signal.SIGTERM, "0", SLOW_TESTS),
        (signal.SIGTERM, "1", SLOW_MEASUREMENTS),
        (signal.SIGINT, "0", SLOW_MEASUREMENTS),
        (signal.SIGINT, "2", SLOW_TESTS),
    ],
    ids=[
        "SIGTERM, one process",
        "SIGTERM, a worker that measures",
        "SIGINT, one process that measures",
        "SIGINT, two workers",
    ],
)
def test_a_run_that_is_told_to_stop_shows_and_writes_what_there_is(
    repo: WorkerRepo, number: signal.Signals, workers: str, slow: str, tmp_path: Path
) -> None:
    root = repo.path
    (root / "conftest.py").write_text((root / "conftest.py").read_text() + slow)
    cache = ["--fa-no-cache"] if slow is SLOW_MEASUREMENTS else []
    command = [sys.executable, "-m", "pytest", "--color=no", "-n", workers, *cache, "-v"]
    reports = [f"--fa-report={kind}:{root / 'out'}.{kind}" for kind in ("json", "markdown", "html", "form")]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    with (root / "out.txt").open("w") as output:
        process = subprocess.Popen(
            [*command, *reports],
            cwd=root,
            env=environment,
            text=True,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=hear_interrupts,  # noqa: PLW1509
        )
    deadline = time.monotonic() + 120
    while "PASSED" not in (root / "out.txt").read_text() and time.monotonic() < deadline:
        time.sleep(0.1)
    workers_seen = children(process)
    process.send_signal(number)
    told = time.monotonic()
    assert process.wait(60) == pytest.ExitCode.INTERRUPTED
    assert time.monotonic() - told < 30
    shown = (root / "out.txt").read_text()
    assert "FA audit, interrupted before its end, of 6 checkpoints: " in shown
    audit = json.loads((root / "out.json").read_text())
    assert audit["interrupted"] is True and len(audit["summary"]) == 6
    outcomes = {outcome for row in audit["summary"] for outcome in row["outcomes"].values()}
    assert "not run" in outcomes and "passed" in outcomes
    for kind in ("markdown", "html", "form"):
        assert "interrupted before its end" in (root / f"out.{kind}").read_text().lower()
    psutil.wait_procs(workers_seen, timeout=10)
    assert not [worker for worker in workers_seen if worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE]
    assert list(tmp_path.glob("fadiag-*")) == [], "no temporary folder is left"


BETWEEN_LINES = """
def strike():
    raise KeyboardInterrupt("SIGTERM")
strike.__code__ = strike.__code__.replace(co_linetable=b"")  # as where a signal comes before the first line of a function

def pytest_runtest_setup(item):
    if item.nodeid.endswith("net_s3.pt::residual-growth"):
        strike()
"""


def test_a_signal_between_two_lines_is_an_interrupt_like_any_other(repo: WorkerRepo) -> None:
    conftest = repo.path / "conftest.py"
    conftest.write_text(conftest.read_text() + BETWEEN_LINES)
    audit = repo.audit("-p", "no:xdist")
    assert audit["interrupted"] is True and audit["exit code"] == pytest.ExitCode.INTERRUPTED
