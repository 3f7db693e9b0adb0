"""A repo of six small checkpoints, measured once for all tests of this folder."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from dist.small_repo import forget, make_repo, measurements, run


class Repo:
    """A copy of the repo, and pytest called in it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def run(self, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Pytest in a process of its own; keywords are its environment."""
        shutil.rmtree(self.path / "seen", ignore_errors=True)
        return run(self.path, *args, env=env)

    def audit(self, *args: str, **env: str) -> dict[str, Any]:
        """What a run writes with --fa-report=json, and its exit code."""
        written = self.path / "audit.json"
        written.unlink(missing_ok=True)
        completed = self.run(*args, "--fa-report=json:audit.json", **env)
        assert written.exists(), completed.stdout
        return {**json.loads(written.read_text("utf-8")), "exit code": completed.returncode}

    def counted(self, *args: str, **env: str) -> tuple[dict[str, Any], int]:
        """An audit from nothing, and how many measurements it took in all processes."""
        forget(self.path)
        return self.audit(*args, COUNT="1", **env), measurements(self.path)

    @property
    def seen(self) -> dict[str, tuple[str | None, str | None, bool]]:
        """By process: the GPUs and the threads that its environment gave it, and whether it imported torch."""
        return {path.name: eval(path.read_text()) for path in (self.path / "seen").iterdir()}

    def gpus(self) -> dict[str, str | None]:
        """The GPUs that each worker saw."""
        return {name: gpu for name, (gpu, _, _) in sorted(self.seen.items()) if name != "controller"}


@pytest.fixture(scope="session")
def measured_repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_repo(tmp_path_factory.mktemp("repo"))


@pytest.fixture(scope="session")
def alone(measured_repo: Path) -> dict[str, Any]:
    """The audit of a run without workers, from the warm cache."""
    return Repo(measured_repo).audit("-n", "0")


@pytest.fixture
def repo(tmp_path: Path, measured_repo: Path) -> Repo:
    shutil.copytree(measured_repo, tmp_path / "repo")
    return Repo(tmp_path / "repo")
