"""The shipped checkpoints: their digests, and the numbers and verdicts that were recorded for them.

The suite measures two; ``make audit`` measures seven, and audits all 21 against expected.json.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from examples.methods import credit
from pytest_fadiag.auditor import Auditor
from pytest_fadiag.judge.diagnostics import select
from pytest_fadiag.load.controls import parse_controls
from pytest_fadiag.load.setup import Setup

ROOT = Path(__file__).resolve().parent.parent
FIXTURES = ROOT / "fixtures"
GOLDEN: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("golden").joinpath("shipped.json").read_text("utf-8")
)
"""Recorded on Linux with torch 2.13, seed 42 of each method; probes by tests/depth_oracle.py."""
SHORT = ("dfa", "fa")
COSINES = ("cross_batch_stability", "sample_invariance", "gamma", "null_high", "nudge")
"""They are compared absolutely: one near 0 has no digits to spare."""
SAME = {"rel": 2e-5, "abs": 1e-9}
"""Gradients of float32 passes differ by 6e-6 between an Intel and an AMD processor."""


@pytest.mark.parametrize(
    "method",
    [pytest.param(name, marks=[] if name in SHORT else pytest.mark.slow) for name in GOLDEN],
)
def test_a_shipped_checkpoint_gives_the_recorded_numbers(method: str) -> None:
    auditor = Auditor(Setup(data=f"fashion-mnist:{FIXTURES / 'fashion-mnist'}", credit=credit))
    control = f"{FIXTURES}/checkpoints/frozen_{method.removesuffix('-lam')}_s42.pt"
    report = auditor.report(
        FIXTURES / "checkpoints" / f"{method}_s42.pt",
        diagnostics=select("abcdef"),
        control=parse_controls([control]),
        listed=True,
    )
    found, interval = report.credit, report.margin_interval
    assert found is not None and interval is not None
    measured = {
        "fired": "".join(report.fired),
        "margin_interval": (interval.low, interval.high),
    }
    for name, recorded in GOLDEN[method].items():
        held = next((each for each in (found, report) if hasattr(each, name)), None)
        value = measured[name] if name in measured else getattr(held, name)
        if isinstance(recorded, str):
            assert value == recorded
        else:
            near = pytest.approx(recorded, **({"abs": 1e-6} if name in COSINES else SAME))
            assert (list(value) if isinstance(recorded, list) else value) == near, name


def test_the_manifest_names_every_file_with_its_digest() -> None:
    manifest = json.loads((FIXTURES / "MANIFEST.json").read_text("utf-8"))["files"]
    shipped = {path.name for path in (FIXTURES / "checkpoints").glob("*.pt")}
    assert {Path(name).name for name in manifest if name.endswith(".pt")} == shipped
    assert len(shipped) == 39
    for name, entry in manifest.items():
        digest = hashlib.sha256((FIXTURES / name).read_bytes()).hexdigest()
        assert digest == entry["sha256"], name


@pytest.mark.slow
def test_the_example_paper_repo_passes() -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--color=no"]
    done = subprocess.run(
        command, cwd=ROOT / "examples" / "paper_repo", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and "17 passed" in done.stdout, done.stdout[-4000:]
