"""Beside pytest-randomly, pytest-rerunfailures and pytest-timeout: each checkpoint measured once, the same verdicts."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from workers.small_repo import SEEDS, TESTS, WorkerRepo

MISSING = [name for name in ("pytest_randomly", "pytest_rerunfailures", "pytest_timeout") if find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")

BESIDE = ("-p", "randomly", "--randomly-seed=1", "-p", "rerunfailures", "--reruns", "2", "-p", "timeout", "--timeout=60")


def test_checkpoints_are_measured_once_with_the_same_verdicts_in_any_order_and_what_fails_is_run_again(
    repo: WorkerRepo,
) -> None:
    alone = repo.audit("-n", "0", "--fa-threshold=margin_pp=20")
    assert alone["exit code"] == pytest.ExitCode.TESTS_FAILED, "net_s5 is short of 20 points"
    audit, measured = repo.counted("-n", "2", "--fa-threshold=margin_pp=20", *BESIDE)
    assert measured == len(SEEDS)
    assert audit == alone
    shuffled = [line for line in repo.shown.splitlines() if "--randomly-seed=1" in line]
    assert shuffled and " rerun" in repo.shown.splitlines()[-1]
    assert f"[{TESTS} items]" in repo.shown, "the order is the same in all workers"


def test_a_rerun_mends_a_failure_and_hides_no_worker_that_dies(repo: WorkerRepo) -> None:
    with (repo.path / "conftest.py").open("a") as file:
        file.write(
            "\nFIRST = []\n@pytest.fixture(autouse=True)\ndef flaky(request):\n"
            "    if 'net_s4.pt::gradient-floor' in request.node.nodeid and not FIRST:\n"
            "        FIRST.append(1)\n        raise OSError('the disk was away for a moment')\n"
        )
    audit = repo.audit("-n", "2", *BESIDE, KILLS="call net_s2.pt::gradient-floor")
    assert audit["exit code"] == pytest.ExitCode.TESTS_FAILED
    assert " 1 rerun" in repo.shown.splitlines()[-1], "that of net_s4, which is mended"
    outcomes = {row["checkpoint"]: list(row["outcomes"].values()) for row in audit["summary"]}
    assert sorted(outcomes.pop("runs/net_s2.pt")) == ["error", "passed", "passed", "passed"]
    assert list(outcomes.values()) == [["passed"] * 4] * 5


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
