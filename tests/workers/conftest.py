"""A repo of six small checkpoints, measured once for all tests of this folder."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from workers.small_repo import WorkerRepo, make_repo


@pytest.fixture(scope="session")
def measured_repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_repo(tmp_path_factory.mktemp("repo"))


@pytest.fixture(scope="session")
def alone(measured_repo: Path) -> dict[str, Any]:
    """The audit of the run without workers that measured everything."""
    return {**WorkerRepo(measured_repo).written(), "exit code": 0}


@pytest.fixture
def repo(tmp_path: Path, measured_repo: Path) -> WorkerRepo:
    shutil.copytree(measured_repo, tmp_path / "repo")
    return WorkerRepo(tmp_path / "repo")
