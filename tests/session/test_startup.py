"""Installed and unused the plugin imports next to nothing.

Torch is imported where something is measured.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
from repo import Repo

LISTED = """
import os, sys
HEAVY = ("torch", "numpy", "msgspec", "matplotlib", "jinja2")
def pytest_sessionfinish(session):
    names = sorted(name for name in sys.modules if name.startswith("pytest_fadiag"))
    names += [name for name in HEAVY if name in sys.modules]
    worker = os.environ.get("PYTEST_XDIST_WORKER", "controller")
    (session.config.rootpath / f"{worker}.txt").write_text(" ".join(names))
"""
UNUSED = "pytest_fadiag pytest_fadiag.hookspecs pytest_fadiag.options pytest_fadiag.plugin"


@pytest.mark.parametrize("options", [[], ["-n", "1"]], ids=["plain", "xdist"])
def test_a_suite_that_audits_nothing_imports_four_modules(
    pytester: pytest.Pytester, options: list[str]
) -> None:
    pytester.makeconftest(LISTED)
    pytester.makeini("[pytest]\nfa_data = data.npz\n")
    pytester.makepyfile("def test_own(): pass")
    result = pytester.runpytest_subprocess(
        "-p", "no:hypothesispytest", "-p", "no:randomly", *options
    )
    assert result.ret == pytest.ExitCode.OK
    seen = {path.stem: path.read_text() for path in pytester.path.glob("*.txt")}
    assert seen == dict.fromkeys(["controller", *(["gw0"] if options else [])], UNUSED)


@pytest.mark.parametrize(
    ("options", "heavy"),
    [
        (["--collect-only", "-q", "-p", "no:xdist"], {"controller": False}),
        (["-p", "no:xdist"], {"controller": True}),
        (["-p", "no:xdist", "-q"], {"controller": False}),
        (["-n", "1", "--fa-no-cache"], {"controller": False, "gw0": True}),
    ],
    ids=["collected", "measured", "from the cache", "controller of xdist"],
)
def test_torch_is_imported_where_something_is_measured(
    repo: Repo, options: list[str], heavy: dict[str, bool]
) -> None:
    repo.write("conftest.py", LISTED)
    if "-q" in options and "--collect-only" not in options:
        repo.spawn(
            "--fa-checkpoint=runs/bp_s42.pt",
            "-p",
            "no:xdist",
            "--fa-diagnostics=ad",
            "--fa-frozen=controls/*.pt",
        )
    result = repo.spawn(
        "--fa-checkpoint=runs/bp_s42.pt",
        "--fa-diagnostics=ad",
        "--fa-frozen=controls/*.pt",
        *options,
    )
    assert result.ret == pytest.ExitCode.OK, result.stdout.str()
    seen = {path.stem: "torch" in path.read_text().split() for path in repo.path.glob("*.txt")}
    assert seen == heavy


def test_show_and_diff_import_neither_pytest_nor_torch() -> None:
    code = (
        "import sys, pytest_fadiag.cli as cli\n"
        "import pytest_fadiag.session.expect, pytest_fadiag.session.files\n"
        "import pytest_fadiag.show.combine, pytest_fadiag.show.compare\n"
        "print({'pytest', 'torch'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
