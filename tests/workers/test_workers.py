"""The same audit with any number of workers and any distribution: the same numbers, each checkpoint measured once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from workers.small_repo import SEEDS, TESTS, WorkerRepo, forget, measurements
from xdist.plugin import pytest_cmdline_main
from xdist.remote import Producer

from pytest_fadiag.judge.diagnostics import DIAGNOSTICS
from pytest_fadiag.session.dist import CheckpointScheduling, make_scheduler


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """Every number, text and flag of a document, by where it stands."""
    if isinstance(value, (dict, list)):
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        return {key: leaf for name, part in parts for key, leaf in leaves(part, f"{path}/{name}").items()}
    return {path: value}


def agree(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Two audits say the same, in numbers that differ by a millionth at most."""
    left, right = leaves(one), leaves(other)
    assert right.keys() == left.keys()
    assert sum(isinstance(value, float) for value in left.values()) > 20 * len(SEEDS)
    for path, value in left.items():
        assert right[path] == (pytest.approx(value, rel=1e-6, abs=0) if isinstance(value, float) else value), path


def test_each_checkpoint_is_measured_once_without_workers(measured_repo: Path, alone: dict[str, Any]) -> None:
    assert measurements(measured_repo) == len(SEEDS), "the margin over seeds takes what the other tests measured"
    assert len(alone["reports"]) == len(SEEDS)


def test_each_checkpoint_is_measured_once_by_all_workers_also_where_its_margin_comes_first(
    repo: WorkerRepo, alone: dict[str, Any]
) -> None:
    with (repo.path / "conftest.py").open("a") as file:
        file.write("\ndef pytest_collection_modifyitems(items):\n    items.reverse()\n")
    audit, measured = repo.counted("-n", "2", "-v", "--no-loadscope-reorder")
    assert measured == len(SEEDS)
    agree(alone, audit)
    assert scheduler_of(repo.shown) == "CheckpointScheduling"


def test_a_margin_alone_measures_its_seeds(repo: WorkerRepo) -> None:
    forget(repo.path)
    result = repo.run("net::seed-margin", "-n", "0", COUNT="1")
    assert result.returncode == pytest.ExitCode.OK
    assert "1 passed" in result.stdout
    assert measurements(repo.path) == len(SEEDS)


def scheduler_of(shown: str) -> str | None:
    """The class that distributed the tests of a run, as xdist names it."""
    return next((line.split()[-1] for line in shown.splitlines() if line.startswith("scheduling tests via")), None)


@pytest.mark.parametrize(
    ("arguments", "addopts", "ours"),
    [
        (("-n", "2"), "", True),
        (("-d", "--tx", "2*popen"), "", True),
        (("-n", "2", "--dist=loadscope"), "", False),
        (("-n", "2", "--dist", "worksteal"), "", False),
        (("-n", "2", "--dist=load"), "", False),
        (("-n", "2"), "--dist=load", False),
        (("-n", "2"), "--dist=loadfile", False),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_tests_are_distributed_by_checkpoint_unless_the_user_chose(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], addopts: str, ours: bool
) -> None:
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makeini(f"[pytest]\naddopts = {addopts}\n")
    config = pytester.parseconfig("-p", "no:randomly", *arguments)
    pytest_cmdline_main(config)  # where xdist turns -n and -d into a distribution
    made = make_scheduler(config, Producer("test"), DIAGNOSTICS)
    assert isinstance(made, CheckpointScheduling) if ours else made is None


@pytest.mark.parametrize(
    ("arguments", "scheduler"),
    [
        (("-n", "2", "--dist", "worksteal"), "WorkStealingScheduling"),
        (("-n", "2", "--dist=load"), "LoadScheduling"),
        (("-p", "no:xdist"), None),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_the_audit_is_the_same_however_tests_are_distributed(
    repo: WorkerRepo, alone: dict[str, Any], arguments: tuple[str, ...], scheduler: str | None
) -> None:
    assert repo.audit(*arguments, "-v") == alone
    assert f"{TESTS} passed" in repo.shown
    assert scheduler_of(repo.shown) == scheduler


def test_a_part_of_the_checkpoints_is_distributed_as_the_whole_is(repo: WorkerRepo, alone: dict[str, Any]) -> None:
    parts = []
    for part, workers in ((1, "2"), (2, "0")):
        parts.append(repo.audit("-n", workers, f"--fa-shard={part}/2")["reports"].keys())
        (repo.path / "audit.json").rename(repo.path / f"part{part}.json")
    assert sorted([*parts[0], *parts[1]]) == sorted(alone["reports"])
    assert [len(part) for part in parts] == [3, 3]
    assert repo.audit("-n", "1", "--fa-merge=part1.json", "--fa-merge=part2.json") == alone
