"""A worker that dies costs the test that it died in, and nothing else; the session ends by itself."""

from __future__ import annotations

from typing import Any

import pytest
from dist.small_repo import WorkerRepo
from dist.crash_table import POSITIONS, Position, problems


@pytest.mark.parametrize("position", [p for p in POSITIONS if p.suite], ids=lambda position: position.name)
def test_a_worker_that_dies_costs_the_test_that_killed_it(repo: WorkerRepo, position: Position) -> None:
    assert problems(position, repo.path) == []


def test_the_table_names_what_died_and_what_never_ran(repo: WorkerRepo) -> None:
    options = ("-n", "2", "--max-worker-restart=0")
    lines = repo.run(*options, KILL_WHERE="call", KILL_ID="net_s0.pt::residual-growth").stdout.splitlines()
    start = next(number for number, line in enumerate(lines) if " FA audit " in line)
    table = lines[start : next(number for number, line in enumerate(lines) if line.startswith("FA audit of"))]
    assert [line.split()[:2] for line in table if line.startswith("net ")][:6] == [["net", str(seed)] for seed in range(6)]
    assert any("error" in line for line in table)
    assert any("not run" in line for line in table)
