"""Fixtures shared by all tests: above all a paper repo in miniature, made and measured once."""

from __future__ import annotations

import os

# Before torch starts: networks of this size run faster on one thread, and processes do not fight
# for cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

from pathlib import Path

import pytest
from hypothesis import settings
from repo import Repo, fit, network, save, warm, write_data

pytest_plugins = ["pytester"]
settings.register_profile(
    "patient", deadline=None
)  # a busy machine is slow, and no test is about time
settings.load_profile("patient")


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs of pytest here would read of the machine that they run on."""
    outer = [name for name in os.environ if name.startswith("PYTEST_XDIST_")]
    named = ("GITHUB_STEP_SUMMARY", "PYTEST_ADDOPTS", "CI", "FORCE_COLOR", "NO_COLOR")
    for name in (*named, *outer):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "120")


@pytest.fixture(scope="session")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repo of clustered data: bp stands (42, 123), dfa fires a, b and d against its control."""
    import torch

    folder = tmp_path_factory.mktemp("zoo")
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(0, 5, (2_400,), generator=generator)
    x = torch.randn(5, 20, generator=generator)[y] * 2 + torch.randn(2_400, 20, generator=generator)
    write_data(folder / "data.npz", x[2_000:], y[2_000:])  # three full batches and a rest
    model = fit(network(20, 16, 4, 5), x[:2_000], y[:2_000], 120)
    save(folder / "runs" / "bp_s42.pt", model)
    with torch.no_grad():
        model.embed.weight.mul_(1.1)
        save(folder / "runs" / "bp_s123.pt", model)
        model.blocks[0].fc2.weight.mul_(1e6)
    save(folder / "runs" / "dfa_s42.pt", model)
    for method, steps in (("bp", 5), ("dfa", 60)):
        control = fit(network(20, 16, 4, 5, seed=steps, frozen=True), x[:2_000], y[:2_000], steps)
        save(folder / "controls" / f"frozen_{method}_s42.pt", control, frozen=True)
    return folder


@pytest.fixture
def repo(pytester: pytest.Pytester, zoo: Path) -> Repo:
    """A copy of it; where no Python file is added, a run measures nothing."""
    return warm(pytester, zoo, "--fa-checkpoint=runs", "--fa-frozen=controls/*.pt")
