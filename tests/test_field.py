"""The files of examples/field: each names the commit of its code, trains it and audits it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples" / "field"
OTHERS = ("__init__", "__main__", "certificates", "common", "figure")
FILES = sorted(path for path in FOLDER.glob("*.py") if path.stem not in OTHERS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_file_names_its_commit_and_trains_and_audits(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    (record,) = [
        one.value
        for one in tree.body
        if isinstance(one, ast.Assign) and one.targets[0].id == "HERE"
    ]
    named = {word.arg: word.value for word in record.keywords}
    functions = {one.name for one in tree.body if isinstance(one, ast.FunctionDef)}
    assert re.fullmatch(r"[0-9a-f]{40}", named["commit"].value)
    assert {"train", "audit"} <= functions


def test_a_trace_of_a_network_has_its_numbers(tmp_path: Path) -> None:
    from support import clustered, in_batches, network

    from examples.field.certificates import SAMPLES, write
    from pytest_fadiag import audit, diagnose

    model, control = network(), network(seed=1)
    batches = in_batches(*clustered(SAMPLES + 200))
    write(tmp_path / "t.npz", [(model, batches, {}), (control, batches, {})], "dfa", 3)
    report = audit(tmp_path / "t.npz")
    expected = diagnose(model, batches, control=control)
    assert report.method_name == "dfa"
    assert report.residual_norms == pytest.approx(expected.residual_norms, rel=1e-5)
    assert report.bp_grad_norms == pytest.approx(expected.bp_grad_norms, rel=1e-5)
    assert report.frozen_baseline_acc == pytest.approx(
        diagnose(control, in_batches(*clustered(SAMPLES + 200))[:10]).headline_acc
    )
