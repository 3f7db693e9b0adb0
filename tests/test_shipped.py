"""What the repo ships: the audit of its checkpoints, the example paper repo, and a README that tells the truth."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FIXTURES = ROOT / "fixtures"
SEEDS = (42, 123, 456)
METHODS = ("bp", "fa", "dfa", "dfa-lam", "ep", "state-bridge", "credit-bridge")


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["COLUMNS"] = "140"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--color=no", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, dict[str, str]]]:
    """The main job, run once: its output and its JSON."""
    destination = tmp_path_factory.mktemp("audit") / "audit.json"
    done = run_pytest(FIXTURES, f"--fa-report=json:{destination}")
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout, json.loads(destination.read_text("utf-8"))


def test_every_shipped_verdict_is_as_recorded(audit: tuple[str, dict[str, dict[str, str]]]) -> None:
    output, document = audit
    rows = {(row["method"], row["seed"]): row for row in document["summary"]}  # type: ignore[index]
    assert set(rows) == {(method, seed) for method in METHODS for seed in SEEDS}
    assert len(document["means"]) == len(METHODS)
    assert output.count(" n=3 ") == len(METHODS)
    verdicts = {row["method"]: row["margin"]["verdict"] for row in document["seed_margins"]}
    passing = ("bp", "ep", "fa")
    assert verdicts == {method: "PASS" if method in passing else "FIRE" for method in METHODS}
    for seed in SEEDS:
        assert rows["bp", seed]["fired"] == ""  # type: ignore[index]
        assert rows["dfa", seed]["fired"] == "abde"  # type: ignore[index]
        assert rows["dfa-lam", seed]["fired"] == "de"  # type: ignore[index]


def test_the_manifest_names_every_file_with_its_digest() -> None:
    manifest = json.loads((FIXTURES / "MANIFEST.json").read_text("utf-8"))["files"]
    shipped = {path.name for path in (FIXTURES / "checkpoints").iterdir() if path.suffix == ".pt"}
    assert {Path(name).name for name in manifest if name.endswith(".pt")} == shipped
    assert len(shipped) == 39
    for name, entry in manifest.items():
        content = (FIXTURES / name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == entry["sha256"], name


def test_the_fixtures_stay_small() -> None:
    files = [path for path in FIXTURES.rglob("*") if path.is_file() and ".pytest_cache" not in path.parts]
    assert sum(path.stat().st_size for path in files) <= 20_000_000


def test_the_example_paper_repo_passes_as_it_stands() -> None:
    done = run_pytest(ROOT / "examples" / "paper_repo")
    assert done.returncode == 0, done.stdout[-4000:]
    assert "13 passed" in done.stdout
    assert "FA audit of 3 checkpoints: 2 trustworthy, 1 walk-back (d:1)" in done.stdout


def test_the_readmes_options_are_those_that_exist() -> None:
    spec = importlib.util.spec_from_file_location("readme", ROOT / ".ci" / "readme.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = (ROOT / "docs" / "options.md").read_text("utf-8")
    found = re.search(r"<!-- options -->\n(.*?)\n<!-- /options -->", text, re.DOTALL)
    assert found is not None
    assert found[1] == module.options(), "run: make readme"
