"""Networks trained in JAX: dumped, checked and audited by the example."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pytest_fadiag import audit

ROOT = Path(__file__).parents[2]


def test_traces_of_jax_are_audited(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    options = ["--data", ROOT / "fixtures/fashion-mnist", "--out", tmp_path]
    done = subprocess.run(
        [sys.executable, ROOT / "examples/jax_trace.py", *options],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    assert "dfa_s1.npz: needs walk-back" in done.stdout
    bp, dfa = (audit(tmp_path / f"{name}_s1.npz") for name in ("bp", "dfa"))
    assert {"d", "g"} <= {*dfa.fired} and not bp.fired
    assert bp.credit is not None and bp.credit.is_gradient
    assert dfa.credit is not None and max(dfa.credit.gamma) < 0.9


def test_without_jax_the_example_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "jax.py").write_text("raise ImportError", "utf-8")
    command = "import runpy, sys; sys.path[:0] = sys.argv[1:2]; runpy.run_path(sys.argv[2])"
    done = subprocess.run(
        [sys.executable, "-c", command, tmp_path, ROOT / "examples/jax_trace.py"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1 and "pip install jax" in done.stderr
