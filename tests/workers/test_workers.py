"""Real workers: the same audit with any number of them, one that dies, and the word to stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from repo import Repo
from xdist.plugin import pytest_cmdline_main
from xdist.remote import Producer

from pytest_fadiag.session.dist import CheckpointScheduling, Workers

FILES = [
    "bp_s123.pt",
    "bp_s42.pt",
    "dfa_s42.pt",
    "frozen_bp_s42.pt",
    "frozen_dfa_s42.pt",
]
GREEN = dict.fromkeys("abcd", "passed")
ENDED = {
    "runs/bp_s42.pt": GREEN,
    "runs/bp_s123.pt": GREEN,
    "runs/dfa_s42.pt": {"a": "failed", "b": "failed", "c": "passed", "d": "failed"},
}


@pytest.fixture
def watched(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> Repo:
    """The repo with all of it named in the ini file, and a plugin outside of it, so that what is
    kept stays.
    """
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    named = {"fa_checkpoint": "runs", "fa_frozen": "controls/*.pt", "fa_diagnostics": "abcd"}
    repo.ini(addopts="-p watching", fa_data="data.npz", **named)
    return repo


def outcomes(document: dict[str, Any]) -> dict[str, dict[str, str]]:
    return {row["checkpoint"]: row["outcomes"] for row in document["rows"]}


@pytest.mark.parametrize(
    "options",
    ["", "--fa-no-cache -p randomly -p rerunfailures --reruns 1"],
    ids=["cache", "no cache, shuffled and rerun"],
)
def test_each_checkpoint_is_measured_once_by_all_workers_and_the_audit_is_the_same(
    watched: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("COUNTED", "1")
    (watched.path / "code.py").touch()  # what was kept before depends on the code of the repo
    words = ("-p", "no:hypothesispytest", "-v", "-n", "2", *options.split())
    document = watched.audit(*words, run=watched.pytester.runpytest_subprocess)
    assert outcomes(document) == ENDED
    assert document["margins"][0]["outcome"] == "passed"
    counts = [path.read_text().split() for path in watched.path.glob("measured-*.txt")]
    assert sorted(name for names in counts for name in names) == FILES
    watched.result.stdout.fnmatch_lines(["scheduling tests via CheckpointScheduling"])
    assert list(tmp_path.glob("fadiag-*")) == [], "nothing is left that workers shared"


def test_a_name_that_workers_cannot_be_sent_is_refused(repo: Repo) -> None:
    (repo.path / "runs/bp_s42.pt").rename(repo.path / "runs/\udcff_s42.pt")
    repo.ini(fa_data="data.npz", fa_checkpoint="runs")
    result = repo.pytester.runpytest_subprocess("-n", "2")
    result.stderr.fnmatch_lines(["ERROR: */runs/?udcff_s42.pt: its name is not UTF-8; *"])
    assert result.ret == 4


def test_a_worker_that_dies_costs_the_test_that_killed_it(
    watched: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KILLED", "runs/bp_s42.pt::gradient-floor")
    document = watched.audit("-n", "2", run=watched.spawn)
    assert outcomes(document) == {**ENDED, "runs/bp_s42.pt": {**GREEN, "b": "error"}}
    assert document["margins"][0]["outcome"] == "passed"
    watched.result.stdout.fnmatch_lines(["*bp 42 *b error"])
    assert watched.result.ret == pytest.ExitCode.TESTS_FAILED


def test_tests_that_only_workers_know_have_a_table_too(repo: Repo) -> None:
    repo.write(
        "test_own.py",
        "@pytest.mark.fa_protocol(checkpoint='runs/dfa_s42.pt', diagnostics='a')\n"
        "def test_own(fa_diagnostic): fa_diagnostic.check()\n",
    )
    result = repo.spawn("-n", "1")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*= FA audit =*", "? WALK BACK  dfa, seed 42*"])


def test_one_worker_per_gpu(watched: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-8f6e")
    monkeypatch.delenv("PYTEST_XDIST_AUTO_NUM_WORKERS", raising=False)
    watched.spawn("-n", "auto", "-k", "nothing")
    seen = {path.stem: path.read_text() for path in watched.path.glob("seen-*.txt")}
    assert seen == {"seen-controller": "3,GPU-8f6e", "seen-gw0": "3", "seen-gw1": "GPU-8f6e"}


@pytest.mark.parametrize(
    ("arguments", "addopts", "ours"),
    [
        ("-n 2", "", True),
        ("-d --tx 2*popen", "", True),
        ("-n 2 --dist=worksteal", "", False),
        ("-n 2", "--dist=loadfile", False),
    ],
)
def test_another_distribution_that_the_user_chose_is_kept(
    pytester: pytest.Pytester, arguments: str, addopts: str, ours: bool
) -> None:
    pytester.makeini(f"[pytest]\naddopts = {addopts}\n")
    config = pytester.parseconfig("-p", "no:randomly", *arguments.split())
    pytest_cmdline_main(config)  # where xdist turns -n and -d into a distribution
    workers = Workers.__new__(Workers)
    workers.config = config
    made = workers.pytest_xdist_make_scheduler(Producer("test"))
    assert isinstance(made, CheckpointScheduling) if ours else made is None


@pytest.mark.parametrize(
    ("number", "workers"), [(signal.SIGTERM, "1"), (signal.SIGINT, "0")], ids=["SIGTERM", "SIGINT"]
)
def test_a_run_that_is_told_to_stop_shows_and_writes_what_there_is(
    watched: Repo, number: signal.Signals, workers: str
) -> None:
    root = watched.path
    plugins = ["-p", "no:hypothesispytest", "-p", "no:randomly"]
    reports = ["--fa-report=json:out.json", "--fa-report=html:out.html"]
    with (root / "out.txt").open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *plugins, "-v", "-n", workers, *reports],
            cwd=root,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "SLOW": "2"},
            stdout=output,
            stderr=subprocess.STDOUT,
            # What a shell starts in the background ignores SIGINT, and so would this process.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        )
    deadline = time.monotonic() + 120
    while "PASSED" not in (root / "out.txt").read_text() and time.monotonic() < deadline:
        time.sleep(0.1)
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    assert process.wait(60) == pytest.ExitCode.INTERRUPTED
    shown = (root / "out.txt").read_text()
    assert "\ninterrupted: 3 checkpoints" in shown, shown
    document = json.loads((root / "out.json").read_text())
    found = {outcome for row in document["rows"] for outcome in row["outcomes"].values()}
    assert document["interrupted"] is True and {"passed", "not run"} <= found
    assert len(document["rows"]) == 3
    assert (root / "out.html").read_text().rstrip().endswith("</html>")
    psutil.wait_procs(children, timeout=15)
    alive = [child for child in children if child.is_running()]
    assert all(child.status() == psutil.STATUS_ZOMBIE for child in alive)
