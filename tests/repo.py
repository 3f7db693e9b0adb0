"""A paper repo in miniature, and pytest called in it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

BESIDE = ("hypothesispytest", "randomly", "xdist", "timeout", "rerunfailures")
OF_PYTEST = ("logging", "doctest", "pastebin", "stepwise", "faulthandler")
WITHOUT = [word for name in (*BESIDE, *OF_PYTEST) for word in ("-p", f"no:{name}")]
"""Plugins that no test of an audit is about: each costs every one of some hundred runs."""


class Repo:
    """A folder with runs/, controls/ and data.npz, and pytest called in it."""

    def __init__(self, pytester: pytest.Pytester, zoo: Path) -> None:
        self.pytester, self.zoo, self.path = pytester, zoo, pytester.path
        shutil.copytree(zoo, self.path, dirs_exist_ok=True)
        self.ini(fa_data="data.npz")

    def forget(self) -> None:
        """Start without anything measured before."""
        shutil.rmtree(self.path / ".pytest_cache")

    def ini(self, fa_diagnostics: str | None = "abcd", **settings: str) -> None:
        """Write pytest.ini, in place of the one before; of 400 images nobody can say what depth adds."""
        if fa_diagnostics is not None and "fa_protocol" not in settings:
            settings["fa_diagnostics"] = fa_diagnostics
        lines = [f"{name} = " + "\n    ".join(str(value).splitlines()) for name, value in settings.items()]
        (self.path / "pytest.ini").write_text("\n".join(["[pytest]", *lines]) + "\n", "utf-8")

    def write(self, name: str, text: str) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("from __future__ import annotations\n" + text, "utf-8")
        return path

    def run(self, *args: str | os.PathLike[str]) -> pytest.RunResult:
        """Pytest in this process, where torch is loaded already."""
        return self.pytester.runpytest_inprocess(*WITHOUT, *args)

    def spawn(self, *args: str | os.PathLike[str]) -> pytest.RunResult:
        """Pytest in a process of its own."""
        return self.pytester.runpytest_subprocess("-p", "no:hypothesispytest", "-p", "no:randomly", *args)

    def audit(self, *args: str | os.PathLike[str], run: Callable[..., pytest.RunResult] | None = None) -> dict[str, Any]:
        """What a run writes with --fa-report=json."""
        (self.path / "audit.json").unlink(missing_ok=True)
        (run or self.run)("--fa-report=json:audit.json", *args)
        document: dict[str, Any] = json.loads((self.path / "audit.json").read_text("utf-8"))
        if document.get("origin"):
            document["origin"]["created"] = "then"  # the same audit a second later is the same
        return document

    def summary(self, *args: str | os.PathLike[str]) -> dict[str, dict[str, Any]]:
        """The rows of the audit, by checkpoint."""
        return {row["checkpoint"]: row for row in self.audit(*args)["summary"]}
