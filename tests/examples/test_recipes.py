"""The recipe for Slurm, as its tasks run it: a part each, a part that was cancelled, and the merge."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from support import clustered, network

RECIPES = Path(__file__).parents[2] / "examples" / "recipes"
ARRAY = RECIPES / "slurm_array.sh"
SLOW = "import time\nfrom pytest_fadiag.workshop import Workshop\noriginal = Workshop.observe\n\n"
SLOW += "def observe(self, *args):\n    time.sleep(1.5)\n    return original(self, *args)\n\nWorkshop.observe = observe\n"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with four checkpoints, what sbatch hands to a task, and this python under the name that the recipe calls."""
    x, y = clustered(300)
    np.savez(tmp_path / "data.npz", x=x.numpy(), y=y.numpy())
    for seed in range(4):
        torch.save({"state_dict": network(seed=seed).state_dict()}, tmp_path / f"net_s{seed}.pt")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (tmp_path / "bin" / "python").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    options = "-v --fa-only --fa-checkpoint='net_s*.pt' --fa-data=data.npz --fa-frozen=0.5 --fa-threshold=margin_pp=-100"
    monkeypatch.setenv("OPTIONS", f"{options} --fa-device=cpu -o addopts=")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:hypothesispytest -p no:randomly")
    monkeypatch.setenv("SLURM_ARRAY_TASK_COUNT", "2")
    return tmp_path


def task(folder: Path, number: int) -> subprocess.Popen[str]:
    environment = {**os.environ, "SLURM_ARRAY_TASK_ID": str(number), "PYTHONUNBUFFERED": "1"}
    with (folder / f"task-{number}.txt").open("w") as output:
        return subprocess.Popen(
            [ARRAY], cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )


def merge(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ARRAY, "merge"], cwd=folder, capture_output=True, text=True, check=False)


def test_a_task_that_is_cancelled_is_waited_for_and_run_again(cluster: Path) -> None:
    assert task(cluster, 1).wait(240) == 0
    (cluster / "conftest.py").write_text(SLOW)
    cancelled = task(cluster, 2)
    deadline = time.monotonic() + 120
    while "PASSED" not in (cluster / "task-2.txt").read_text() and time.monotonic() < deadline:
        time.sleep(0.1)
    os.killpg(cancelled.pid, signal.SIGTERM)  # as scancel does: the shell, too, is told
    assert cancelled.wait(60) == pytest.ExitCode.INTERRUPTED
    part = cluster / "audit-parts" / "part-2.json"
    assert json.loads(part.read_text())["interrupted"] is True
    assert merge(cluster).returncode == pytest.ExitCode.TESTS_FAILED, "what was not run is no part of a verdict"
    (cluster / "conftest.py").unlink()
    assert task(cluster, 2).wait(240) == 0
    merged = merge(cluster)
    assert merged.returncode == 0, merged.stdout
    assert len(json.loads((cluster / "audit.json").read_text())["summary"]) == 4


@pytest.mark.parametrize("script", sorted(RECIPES.glob("*.sh")), ids=lambda path: path.name)
def test_a_recipe_is_a_script_that_can_be_run(script: Path) -> None:
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", script], check=True)
