"""The example of networks that are trained in JAX: trained, audited, and refused without JAX."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pytest_fadiag import read_audit

ROOT = Path(__file__).parents[2]


def test_networks_of_jax_are_trained_and_audited(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    options = ["--data", ROOT / "fixtures/fashion-mnist", "--out", tmp_path]
    subprocess.run(
        [sys.executable, ROOT / "examples/jax_network.py", *options], check=True, timeout=600
    )
    reports = []
    for name in ("bp", "dfa"):
        audit = read_audit(tmp_path / f"{name}_s1.json")
        reports.append(audit.rows[0].report)
    bp, dfa = reports
    assert bp is not None and not bp.fired
    assert bp.reference_error is not None and bp.reference_error < 1e-6
    assert dfa is not None and {"d", "g"} <= {*dfa.fired}


def test_without_jax_the_example_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "jax.py").write_text("raise ImportError", "utf-8")
    command = "import runpy, sys; sys.path[:0] = sys.argv[1:2]; runpy.run_path(sys.argv[2])"
    done = subprocess.run(
        [sys.executable, "-c", command, tmp_path, ROOT / "examples/jax_network.py"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1 and "pip install jax" in done.stderr
