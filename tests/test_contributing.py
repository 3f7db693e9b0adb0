"""The changes that CONTRIBUTING.md walks through, made in a copy of the package."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
STEP = re.compile(
    r"(?:new file is|In) `([\w/]+\.py)`(?:, after `([^`]+)`)?:\n\n```python\n(.*?)```", re.DOTALL
)


@pytest.fixture
def changed(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A folder with the package, changed as the section that the test names says."""
    package = tmp_path / "pytest_fadiag"
    shutil.copytree(ROOT / "pytest_fadiag", package, ignore=shutil.ignore_patterns("__pycache__"))
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    section = text.partition(f"\n### {request.param}")[2].partition("\n#")[0]
    steps = STEP.findall(section)
    assert len(steps) > 1
    for name, line, code in steps:
        file = package / name
        if not line:
            assert not file.exists()
            file.write_text(code, "utf-8")
            continue
        before = file.read_text("utf-8")
        assert before.count(f"{line}\n") == 1, line
        file.write_text(before.replace(f"{line}\n", f"{line}\n{code}"), "utf-8")
    return tmp_path


def audit(folder: Path, *arguments: str) -> str:
    """What an audit of one shipped checkpoint prints, by the changed package."""
    options = ["-p", "no:cacheprovider", "-o", "fa_expect=", "-o", "pythonpath=", "-v"]
    options += ["--fa-checkpoint=checkpoints/dfa_s42.pt", "--fa-only", "--fa-no-cache"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *arguments],
        cwd=ROOT / "fixtures",
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("changed", ["A diagnostic"], indirect=True)
def test_a_diagnostic_is_added(changed: Path) -> None:
    page, figures = changed / "audit.html", changed / "figures"
    outputs = [f"--fa-report=html:{page}", f"--fa-report=figures:{figures}"]
    text = audit(
        changed, "--fa-diagnostics=ah", "--fa-threshold=total_growth_maximum=1000", *outputs
    )
    assert "dfa_s42.pt::total-growth FAILED" in text
    assert re.search(r"^ .*\btotal\b", text, re.MULTILINE), "its column"
    assert "residual stream grows over all blocks" in text
    assert "total-growth" in page.read_text("utf-8") and any(figures.iterdir())


@pytest.mark.parametrize("changed", ["A data source"], indirect=True)
def test_a_data_source_is_added(changed: Path) -> None:
    folder = changed / "data" / "MNIST" / "raw"
    folder.mkdir(parents=True)
    for file in (ROOT / "fixtures" / "fashion-mnist").glob("t10k-*"):
        (folder / file.name).symlink_to(file)
    text = audit(changed, "--fa-diagnostics=a", f"--fa-data=mnist:{changed / 'data'}")
    assert "inputs: mnist, normalised by the checkpoint's mean and std" in text


@pytest.mark.parametrize("changed", ["An output"], indirect=True)
def test_an_output_is_added(changed: Path) -> None:
    audit(changed, "--fa-diagnostics=ab", f"--fa-report=counts:{changed / 'counts.txt'}")
    assert (changed / "counts.txt").read_text("utf-8") == "1 needs walk-back\n"
