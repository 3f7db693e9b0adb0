"""What the repo ships beside its code: checkpoints, the example paper repo, and the page of options."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FIXTURES = ROOT / "fixtures"


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["COLUMNS"] = "140"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--color=no", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


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
