"""The audit of the shipped checkpoints, and every command of a page that is about them, run as it stands there."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from test_docs import PASTED, ROOT

FIXTURES = ROOT / "fixtures"
SEEDS = (42, 123, 456)
METHODS = ("bp", "fa", "dfa", "dfa-lam", "ep", "state-bridge", "credit-bridge")
CREDIT = "--fa-credit=examples.methods:credit"
OF_ONE = "--fa-checkpoint=checkpoints/dfa_s42.pt"
"""The credit of one checkpoint, for that of all takes longer than the rest."""
LINES = list(dict.fromkeys(line for _, line in PASTED if "checkpoints/" in line or "logs/dfa-lam" in line or CREDIT in line))


def test_every_shipped_verdict_is_as_recorded_and_as_the_pages_show_it(
    pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One test, so that the checkpoints are measured once, whichever worker runs it."""
    kept = f"cache_dir={tmp_path / 'kept'}"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "--color=no", "-o", kept, f"--fa-report=json:{tmp_path / 'audit.json'}"]
    done = subprocess.run(command, cwd=FIXTURES, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    check_verdicts(done.stdout, json.loads((tmp_path / "audit.json").read_text("utf-8")))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("CI", raising=False)
    shown = {line: printed(pytester, monkeypatch, line, "-o", kept, figures=tmp_path / "figures") for line in LINES}
    assert (tmp_path / "figures" / "rescue.png").is_file()
    assert len(LINES) == 7
    assert any("h_1 aligned  Γ" in text for line in LINES if CREDIT in line for text in shown[line])
    check_readme(shown)


def printed(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, line: str, *more: str, figures: Path) -> list[str]:
    """What a command prints in the folder that its page speaks of, its words as a shell reads them, in this process."""
    monkeypatch.chdir(ROOT if "fixtures/" in line else FIXTURES)
    shell = ["bash", "-c", f"printf '%s\\n' {line.replace(':figures', f':{figures}')}"]
    words = subprocess.run(shell, capture_output=True, text=True, check=True).stdout.splitlines()[1:]
    words += [OF_ONE] if CREDIT in line else []
    result = pytester.runpytest_inprocess("-p", "no:randomly", "-p", "no:xdist", *more, *words)
    assert result.ret in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED), line
    return result.outlines


def check_verdicts(output: str, document: dict[str, Any]) -> None:
    rows = {(row["method"], row["seed"]): row for row in document["summary"]}
    assert set(rows) == {(method, seed) for method in METHODS for seed in SEEDS}
    assert len(document["means"]) == len(METHODS)
    assert output.count(" n=3 ") == len(METHODS)
    verdicts = {row["method"]: row["margin"]["verdict"] for row in document["seed_margins"]}
    passing = ("bp", "ep", "fa")
    assert verdicts == {method: "PASS" if method in passing else "FIRE" for method in METHODS}
    for seed in SEEDS:
        assert rows["bp", seed]["fired"] == ""
        assert rows["dfa", seed]["fired"] == "abde"
        assert rows["dfa-lam", seed]["fired"] == "de"


def check_readme(shown: dict[str, list[str]]) -> None:
    """What the README prints below a command is what the command prints."""
    spec = importlib.util.spec_from_file_location("readme", ROOT / ".ci" / "readme.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    blocks = re.findall(r"^```\n\$ (.*?)\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 2
    for line, block in blocks:
        begins = shown[line].index(block.splitlines()[0])
        printed = "\n".join(shown[line][begins : begins + len(block.splitlines())])
        assert module.agrees(block, printed), f"run: make readme\n{printed}"


def test_the_table_of_credits_can_be_printed() -> None:
    (line,) = {line for _, line in PASTED if line.startswith("python benchmarks/")}
    words = [*line.split()[1:], "--checkpoint", "bp_s42"]
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "| bp_s42 | h_4 | aligned | +1.000 |" in done.stdout
