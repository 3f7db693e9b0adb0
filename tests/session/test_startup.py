"""Installed and unused, the plugin says nothing, loads nothing heavy, and costs milliseconds."""

from __future__ import annotations

import subprocess
import sys

import pytest
from repo import Repo

HEAVY = ("torch", "numpy", "matplotlib", "torchvision", "safetensors", "filelock", "msgspec", "jinja2")

LIST = f"""
import sys
def pytest_sessionfinish():
    with open("loaded.txt", "w") as file:
        file.write(" ".join(name for name in {HEAVY!r} if name in sys.modules))
"""


@pytest.fixture
def plain(repo: Repo) -> Repo:
    """A repo that has nothing to do with audits."""
    repo.ini(fa_diagnostics=None)
    repo.write("test_own.py", "def test_own(): pass\n")
    return repo


def test_unused_it_loads_nothing_heavy(plain: Repo) -> None:
    plain.write("conftest.py", LIST)
    plain.spawn("-p", "no:xdist").assert_outcomes(passed=1)
    assert (plain.path / "loaded.txt").read_text() == ""


def test_unused_it_says_nothing(plain: Repo) -> None:
    with_it, without = (plain.run(*options).outlines for options in ((), ("-p", "no:fadiag")))
    told = [line for line in with_it if not line.startswith("plugins: ") and ("FA" in line or "fadiag" in line)]
    assert told == [] and len(with_it) - len(without) in (0, 1)


def test_importing_the_package_imports_neither_torch_nor_numpy() -> None:
    code = f"import pytest_fadiag, pytest_fadiag.plugin, sys; print([name for name in {HEAVY!r} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_unused_the_modules_that_do_the_work_are_not_imported(plain: Repo) -> None:
    plain.write(
        "conftest.py",
        "import sys\ndef pytest_sessionfinish():\n    with open('loaded.txt', 'w') as file:\n"
        "        file.write(' '.join(sorted(name for name in sys.modules if name.startswith('pytest_fadiag.'))))\n",
    )
    plain.spawn("-p", "no:xdist")
    loaded = (plain.path / "loaded.txt").read_text().split()
    working = [
        name for name in loaded if name.partition(".")[2].startswith(("load", "measure", "show", "lint", "bench", "cache"))
    ]
    assert working == ["pytest_fadiag.show", "pytest_fadiag.show.outputs"], "the table of outputs, for --help"
    assert {name.rpartition(".")[2] for name in loaded if ".session." in name} == {"options"}
