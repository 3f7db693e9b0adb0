"""The files of examples/field: each names the commit of its code, trains it and audits it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples" / "field"
FILES = sorted(
    path for path in FOLDER.glob("*.py") if path.stem not in ("__init__", "__main__", "certificates", "common")
)


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
