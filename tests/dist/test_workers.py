"""The same audit with any number of workers and any distribution: the same numbers, each checkpoint measured once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dist.small_repo import WorkerRepo
from dist.small_repo import SEEDS, TESTS, forget, measurements


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


@pytest.mark.parametrize("workers", ["0", "1", "2"])
def test_each_checkpoint_is_measured_once_with_any_number_of_workers(repo: WorkerRepo, alone: dict[str, Any], workers: str) -> None:
    audit, measured = repo.counted("-n", workers)
    assert measured == len(SEEDS), "the margin over seeds takes what the other tests measured"
    agree(alone, audit)


def test_a_margin_that_comes_first_measures_what_the_others_then_take(repo: WorkerRepo, alone: dict[str, Any]) -> None:
    with (repo.path / "conftest.py").open("a") as file:
        file.write("\ndef pytest_collection_modifyitems(items):\n    items.reverse()\n")
    audit, measured = repo.counted("-n", "2", "--no-loadscope-reorder")
    assert measured == len(SEEDS)
    agree(alone, audit)


def test_a_margin_alone_measures_its_seeds(repo: WorkerRepo) -> None:
    forget(repo.path)
    result = repo.run("net::seed-margin", "-n", "1", COUNT="1")
    assert result.returncode == pytest.ExitCode.OK
    assert "1 passed" in result.stdout
    assert measurements(repo.path) == len(SEEDS)


@pytest.mark.parametrize(
    ("arguments", "scheduler"),
    [
        (("-n", "2"), "CheckpointScheduling"),
        (("-d", "--tx", "2*popen"), "CheckpointScheduling"),
        (("-n", "2", "--dist=loadscope"), "LoadScopeScheduling"),
        (("-n", "2", "--dist", "worksteal"), "WorkStealingScheduling"),
        (("-n", "2", "--dist=load"), "LoadScheduling"),
        (("-p", "no:xdist"), None),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_distribution_that_the_user_chose_is_left_alone(
    repo: WorkerRepo, alone: dict[str, Any], arguments: tuple[str, ...], scheduler: str | None
) -> None:
    result = repo.run(*arguments, "-v", "--fa-report=json:audit.json")
    assert result.returncode == pytest.ExitCode.OK
    assert f"{TESTS} passed" in result.stdout
    assert [line.split()[-1] for line in result.stdout.splitlines() if line.startswith("scheduling tests via")] == (
        [scheduler] if scheduler else []
    )
    assert json.loads((repo.path / "audit.json").read_text("utf-8")).items() <= alone.items()


def test_a_part_of_the_checkpoints_is_distributed_as_the_whole_is(repo: WorkerRepo, alone: dict[str, Any]) -> None:
    parts = []
    for part in (1, 2):
        parts.append(repo.audit("-n", "2", f"--fa-shard={part}/2")["reports"].keys())
        (repo.path / "audit.json").rename(repo.path / f"part{part}.json")
    assert sorted([*parts[0], *parts[1]]) == sorted(alone["reports"])
    assert [len(part) for part in parts] == [3, 3]
    assert repo.audit("-n", "2", "--fa-merge=part1.json", "--fa-merge=part2.json") == alone
