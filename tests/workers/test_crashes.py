"""A worker that dies costs the test that it died in, and nothing else; the session ends by itself."""

from __future__ import annotations

import pytest
from workers.crash_table import NO_RESTARTS, SUITE, Position, problems
from workers.small_repo import WorkerRepo


@pytest.mark.parametrize("position", SUITE, ids=lambda position: position.name)
def test_a_worker_that_dies_costs_the_test_that_killed_it(repo: WorkerRepo, position: Position) -> None:
    found, shown = problems(position, repo.path)
    assert found == [], shown


def test_without_restarts_too_and_the_table_names_what_died_and_what_never_ran(repo: WorkerRepo) -> None:
    found, shown = problems(NO_RESTARTS, repo.path)
    assert found == [], shown
    lines = shown.splitlines()
    start = next(number for number, line in enumerate(lines) if " FA audit " in line)
    table = lines[start : next(number for number, line in enumerate(lines) if line.startswith("FA audit of"))]
    assert [line.split()[:2] for line in table if line.startswith("net ")][:6] == [["net", str(seed)] for seed in range(6)]
    assert any("error" in line for line in table)
    assert any("not run" in line for line in table)
