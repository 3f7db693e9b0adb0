"""A paper repo in miniature and pytest called in it; and settings and files without either."""

from __future__ import annotations

import fnmatch
import json
import os
import shutil
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from pytest_fadiag.options import OPTIONS
from pytest_fadiag.session.plan import Plan, make_plan
from pytest_fadiag.session.settings import Settings

ROOT = Path("/repo")
ALONE = ("--disable-plugin-autoload", "-p", "fadiag")
"""Nothing else that is installed is read: that would cost every run."""
UNUSED = ("logging", "doctest", "pastebin", "stepwise", "faulthandler", "legacypath", "subtests")
OFTEN = ("--tb=native", *(word for name in UNUSED for word in ("-p", f"no:{name}")))


def settings(*words: str, ini: dict[str, Any] | None = None, cwd: Path = ROOT) -> Settings:
    """The settings of a command line and an ini file, as :meth:`Settings.read` takes them from
    pytest.
    """
    line: dict[str, Any] = {}
    for word in words:
        name, _, text = word.removeprefix("--fa-").partition("=")
        option = next(option for option in OPTIONS if option.name == name)
        value = True if option.flag else option.check(text)
        line[option.key] = [*line.get(option.key, []), value] if option.many else value
    config: Any = SimpleNamespace(
        getoption=line.get,
        getini=(ini or {}).get,
        rootpath=ROOT,
        invocation_params=SimpleNamespace(dir=cwd),
        hook=SimpleNamespace(pytest_fadiag_load_data=SimpleNamespace(get_hookimpls=list)),
    )
    return Settings.read(config)


def plan(
    *words: str,
    files: str,
    args: str = "",
    controls: str = "",
    ini: dict[str, Any] | None = None,
    cwd: Path = ROOT,
) -> Plan:
    """The plan of a command line in a repo with these files."""
    paths = [str(ROOT / file) for file in files.split()]

    def expand(pattern: Path, kind: str) -> list[str]:
        inside = (
            f"{pattern}/*"
            if any(PurePosixPath(path).parent == pattern for path in paths)
            else str(pattern)
        )
        return [
            path
            for path in paths
            if fnmatch.fnmatch(path, inside) and (kind == "log") == path.endswith(".json")
        ]

    taken = {str(ROOT / file) for file in controls.split()}
    with patch("pytest_fadiag.session.plan.real_files", expand):
        return make_plan(settings(*words, ini=ini, cwd=cwd), args.split(), taken)


class Repo:
    """A folder with runs/, controls/ and data.npz, and pytest called in it."""

    def __init__(self, pytester: pytest.Pytester, zoo: Path) -> None:
        self.pytester, self.path = pytester, pytester.path
        shutil.copytree(zoo, self.path, dirs_exist_ok=True)
        self.ini(fa_data="data.npz", fa_diagnostics="abcd")

    def ini(self, **values: str) -> None:
        """Write pytest.ini in place of the one before."""
        lines = [f"{name} = " + "\n    ".join(value.splitlines()) for name, value in values.items()]
        (self.path / "pytest.ini").write_text("\n".join(["[pytest]", *lines]) + "\n", "utf-8")

    def write(self, name: str, text: str) -> Path:
        """Write a file of Python."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"import pytest\n{text}", "utf-8")
        return path

    def run(self, *args: str | os.PathLike[str]) -> pytest.RunResult:
        """Pytest in this process, where torch is loaded already."""
        return self.pytester.runpytest_inprocess(*ALONE, *OFTEN, *args)

    def spawn(self, *args: str | os.PathLike[str]) -> pytest.RunResult:
        """Pytest in a process of its own."""
        return self.pytester.runpytest_subprocess(
            "-p", "no:hypothesispytest", "-p", "no:randomly", *args
        )

    def audit(self, *args: str, run: Any = None) -> dict[str, Any]:
        """What a run writes with --fa-report=json."""
        (self.path / "audit.json").unlink(missing_ok=True)
        self.result = (run or self.run)("--fa-report=json:audit.json", *args)
        document: dict[str, Any] = json.loads((self.path / "audit.json").read_text("utf-8"))
        return document

    def outcomes(self, *args: str, run: Any = None) -> dict[str, str]:
        """What became of each test of the audit: ``bp_s42: a passed, b failed``."""
        rows = {
            PurePosixPath(row["checkpoint"]).stem: row["outcomes"]
            for row in self.audit(*args, run=run)["rows"]
        }
        said = {
            "passed": ".",
            "failed": "F",
            "skipped": "s",
            "xfailed": "x",
            "error": "E",
            "not run": "-",
        }
        return {
            name: " ".join(f"{key}{said[end]}" for key, end in ends.items())
            for name, ends in rows.items()
        }


def warm(pytester: pytest.Pytester, folder: Path, *words: str) -> Repo:
    """A copy of a repo that was measured once, by a run with these words."""
    if not (folder / ".pytest_cache").exists():
        first = Repo(pytester, folder)
        first.run(*words)
        shutil.copytree(first.path / ".pytest_cache" / "d", folder / ".pytest_cache" / "d")
        shutil.rmtree(first.path / ".pytest_cache")
    return Repo(pytester, folder)


def fit(model: Any, x: Any, y: Any, steps: int) -> Any:
    """A network trained by backpropagation."""
    import torch

    optimiser = torch.optim.Adam((p for p in model.parameters() if p.requires_grad), lr=3e-3)
    for step in range(steps):
        start = 128 * step % (len(y) - 128)
        optimiser.zero_grad()
        part = slice(start, start + 128)
        torch.nn.functional.cross_entropy(model(x[part]), y[part]).backward()
        optimiser.step()
    return model


def network(*shape: int, seed: int = 0, frozen: bool = False) -> Any:
    """A ResidualMLP of its own random stream; of a frozen one the blocks are not trained."""
    import torch

    from pytest_fadiag import ResidualMLP

    torch.manual_seed(seed)
    model = ResidualMLP(*shape)
    model.blocks.requires_grad_(not frozen)
    return model


def save(path: Path, model: Any, **config: Any) -> None:
    """A checkpoint, method and seed by its name."""
    import torch

    path.parent.mkdir(parents=True, exist_ok=True)
    method, _, seed = path.stem.removeprefix("frozen_").partition("_s")
    torch.save(
        {
            "state_dict": model.state_dict(),
            "config": {"method": method, "seed": int(seed), **config},
        },
        path,
    )


def write_data(path: Path, x: Any, y: Any) -> None:
    """Inputs and labels as a file that --fa-data takes."""
    import numpy as np

    np.savez(path, x=x.numpy(), y=y.numpy())
