"""A certificate measured again: what reproduces, what was changed, and what is only elsewhere."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from repo import Repo

from pytest_fadiag import AuditError
from pytest_fadiag.verify import _differences, verify


def fadiag(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest_fadiag", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def certified(repo: Repo) -> Path:
    """A repo with the certificate of its audit."""
    done = repo.run("--fa-checkpoint=runs/*_s42.pt", "--fa-frozen=0.3", "--fa-only", "--fa-report=certificate:certificate")
    assert (repo.path / "certificate" / "audit.html").is_file(), done.outlines
    return repo.path


def test_what_nobody_touched_reproduces_wherever_the_files_lie(
    certified: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("reviewer")
    shutil.move(certified / "runs", elsewhere / "unpacked")
    shutil.move(certified / "data.npz", elsewhere / "data.npz")
    shutil.move(certified / "certificate", elsewhere / "certificate")
    done = fadiag(elsewhere, "verify", "certificate", "--root", "unpacked")
    assert "2 of 2 results reproduce; largest relative difference 0e+00" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0


def test_a_changed_weight_and_changed_data_are_told(certified: Path) -> None:
    path = certified / "runs" / "dfa_s42.pt"
    content = torch.load(path, weights_only=True)
    next(iter(content.get("state_dict", content).values())).view(-1)[0] += 1
    torch.save(content, path)
    data = dict(np.load(certified / "data.npz"))
    data["x"] = data["x"].copy()
    data["x"].reshape(-1)[0] += 1
    np.savez(certified / "data.npz", **data)
    done = fadiag(certified, "verify", "certificate")
    assert "✗ runs/dfa_s42.pt: changed: SHA-256" in done.stdout
    assert "✗ runs/bp_s42.pt: the test data is not what was measured on" in done.stdout
    assert "0 of 2 results reproduce" in done.stdout and done.returncode == 1


def test_an_audit_that_does_not_say_what_it_was_measured_from_is_refused(certified: Path) -> None:
    document = certified / "certificate" / "audit.json"
    document.write_text(document.read_text("utf-8").replace('"origin": {', '"nothing": {'), "utf-8")
    with pytest.raises(AuditError, match="does not say what it was measured from"):
        verify(document, [])


def test_norms_are_compared_by_their_share_and_cosines_absolutely() -> None:
    one = {"bp_grad_norms": [1e-9, 2.0], "cross_batch_stability": 0.001, "companions": {"sample_invariance": 0.0}}
    other = {"bp_grad_norms": [1.1e-9, 2.0], "cross_batch_stability": 0.002, "companions": {"sample_invariance": 1e-4}}
    found = {name: difference for difference, name in _differences(one, other)}
    assert found["bp_grad_norms[0]"] == pytest.approx(0.1 / 1.1)
    assert found["cross_batch_stability"] == pytest.approx(1e-3)
    assert found["companions.sample_invariance"] == pytest.approx(1e-4)
    assert {name: far for far, name in _differences({"h": 1.0}, {"h": None})} == {"h": float("inf")}
