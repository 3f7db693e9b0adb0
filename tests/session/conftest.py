"""A paper repo in miniature: a network that stands, one that needs a walk-back, their controls, and the test data."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fontTools.subset  # noqa: F401 (as below: matplotlib's PDF files are written with it)
import matplotlib.backends.backend_agg
import matplotlib.backends.backend_pdf  # noqa: F401
import numpy as np
import pytest
import torch
from repo import ALONE, Repo
from support import clustered, network, trained

import pytest_fadiag
from pytest_fadiag import ResidualMLP
from pytest_fadiag.workshop import Workshop

# Runs in this process drop the modules that they were the first to import; loaded here, they are not loaded again each time.
for module in pkgutil.walk_packages(pytest_fadiag.__path__, "pytest_fadiag."):
    if ".integrations." not in module.name:  # each needs a package that may not be there
        importlib.import_module(module.name)

SAMPLES = 400
"""Three full batches and a rest."""


def copied(model: ResidualMLP) -> ResidualMLP:
    fresh = network()
    fresh.load_state_dict(model.state_dict())
    return fresh


def exploded(model: ResidualMLP) -> ResidualMLP:
    """The same decisions, nearly, from a stream that the first block multiplies: (a) and (b) fire, (c) does not."""
    model = copied(model)
    with torch.no_grad():
        model.blocks[0].fc2.weight.mul_(1e6)
    return model


def save(path: Path, model: torch.nn.Module, **config: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"state_dict": model.state_dict(), "config": config}, path)
    return path


@pytest.fixture(scope="session")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the repo, made once: bp stands (42, 123), dfa fires a, b and d against its control."""
    folder = tmp_path_factory.mktemp("zoo")
    x, y = clustered(SAMPLES)
    np.savez(folder / "data.npz", x=x.numpy(), y=y.numpy())
    good = trained(120)
    other = copied(good)
    with torch.no_grad():
        other.embed.weight.mul_(1.1)
    save(folder / "runs" / "bp_s42.pt", good, method="bp", seed=42)
    save(folder / "runs" / "bp_s123.pt", other, method="bp", seed=123)
    save(folder / "runs" / "dfa_s42.pt", exploded(good), method="dfa", seed=42)
    weak, strong = trained(5, seed=3, frozen=True), trained(60, seed=4, frozen=True)
    save(folder / "controls" / "frozen_bp_s42.pt", weak, method="bp", seed=42, frozen=True)
    save(folder / "controls" / "frozen_dfa_s42.pt", strong, method="dfa", seed=42, frozen=True)
    return folder


@pytest.fixture
def repo(pytester: pytest.Pytester, zoo: Path, monkeypatch: pytest.MonkeyPatch) -> Repo:
    for name in ("GITHUB_STEP_SUMMARY", "PYTEST_ADDOPTS", "CI", "FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr("pytest_fadiag.show.figures.files.DPI", 60)  # which files there are does not hang on their dots
    if not (zoo / ".pytest_cache").exists():
        Repo(pytester, zoo).measure_once("--fa-checkpoint=runs", "--fa-frozen=controls/*.pt", files=5)
    return Repo(pytester, zoo)


@pytest.fixture
def verify_here(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``fadiag verify`` measure in this process, where torch is loaded already."""

    def run(command: list[str], *, cwd: Path, **_: object) -> subprocess.CompletedProcess[str]:
        assert command[:4] == [sys.executable, "-I", "-m", "pytest"]
        with pytest.MonkeyPatch.context() as patched:
            patched.chdir(cwd)
            done = pytester.runpytest_inprocess(*ALONE, *command[4:])
        return subprocess.CompletedProcess(command, done.ret, done.stdout.str(), done.stderr.str())

    monkeypatch.setattr("pytest_fadiag.verify.subprocess", SimpleNamespace(run=run))


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The observers of each pass over a network that is really made in this process."""
    calls: list[str] = []
    original = Workshop.observe

    def counted(self: Workshop, network: Any, batches: Any, observers: Any, *rest: Any) -> Any:
        calls.append(" ".join(observer.name for observer in observers))
        return original(self, network, batches, observers, *rest)

    monkeypatch.setattr(Workshop, "observe", counted)
    yield calls
