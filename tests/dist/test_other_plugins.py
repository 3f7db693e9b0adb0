"""Beside pytest-randomly, pytest-rerunfailures and pytest-timeout: each checkpoint measured once, the same verdicts."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest
from dist.small_repo import WorkerRepo
from dist.small_repo import SEEDS, TESTS

MISSING = [name for name in ("pytest_randomly", "pytest_rerunfailures", "pytest_timeout") if find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")

BESIDE = ("-p", "randomly", "--randomly-seed=1", "-p", "rerunfailures", "--reruns", "2", "-p", "timeout", "--timeout=60")


@pytest.mark.parametrize("workers", ["0", "2"])
def test_checkpoints_are_measured_once_with_the_same_verdicts(repo: WorkerRepo, workers: str) -> None:
    alone = repo.audit("-n", "0", "--fa-threshold=margin_pp=20")
    assert alone["exit code"] == pytest.ExitCode.TESTS_FAILED, "net_s5 is short of 20 points"
    audit, measured = repo.counted("-n", workers, "--fa-threshold=margin_pp=20", *BESIDE)
    assert measured == len(SEEDS)
    assert audit == alone


def test_a_test_that_fails_is_run_again_and_a_shuffled_order_is_the_same_in_all_workers(repo: WorkerRepo) -> None:
    result = repo.run("-n", "2", "--fa-threshold=margin_pp=20", *BESIDE)
    shuffled = [line for line in result.stdout.splitlines() if "--randomly-seed=1" in line]
    assert shuffled and " rerun" in result.stdout.splitlines()[-1]
    assert f"[{TESTS} items]" in result.stdout


def test_a_failure_that_a_rerun_mends_is_not_in_the_table(repo: WorkerRepo) -> None:
    with (repo.path / "conftest.py").open("a") as file:
        file.write(
            "\nFIRST = []\n@pytest.fixture(autouse=True)\ndef flaky(request):\n"
            "    if 'net_s2.pt::gradient-floor' in request.node.nodeid and not FIRST:\n"
            "        FIRST.append(1)\n        raise OSError('the disk was away for a moment')\n"
        )
    audit = repo.audit("-n", "2", *BESIDE)
    assert audit["exit code"] == pytest.ExitCode.OK
    assert {outcome for row in audit["summary"] for outcome in row["outcomes"].values()} == {"passed"}


def test_a_worker_that_dies_is_a_failure_that_no_rerun_hides(repo: WorkerRepo) -> None:
    audit = repo.audit("-n", "2", *BESIDE, KILL_WHERE="call", KILL_ID="net_s2.pt::gradient-floor")
    assert audit["exit code"] == pytest.ExitCode.TESTS_FAILED
    outcomes = [outcome for row in audit["summary"] for outcome in row["outcomes"].values()]
    assert sorted(outcomes) == ["error", *["passed"] * 23]


def test_a_test_that_takes_too_long_costs_itself(repo: WorkerRepo) -> None:
    with (repo.path / "conftest.py").open("a") as file:
        file.write(
            "\nimport threading\n@pytest.fixture(autouse=True)\ndef stuck(request):\n"
            "    if 'net_s2.pt::gradient-floor' in request.node.nodeid:\n        threading.Event().wait(600)\n"
        )
    audit = repo.audit("-n", "2", "-p", "timeout", "--timeout=3", "--timeout-method=thread")
    assert audit["exit code"] == pytest.ExitCode.TESTS_FAILED
    outcomes = [outcome for row in audit["summary"] for outcome in row["outcomes"].values()]
    assert sorted(outcomes) == ["error", *["passed"] * 23]
