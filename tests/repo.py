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
UNUSED = ("logging", "doctest", "pastebin", "stepwise", "faulthandler", "legacypath", "subtests", "setupplan")
ALONE = ("--disable-plugin-autoload", "-p", "fadiag")
"""Nothing else that is installed, not even its metadata, is read: that would cost every one of some hundred runs."""
OFTEN = ("--tb=native", *(word for name in UNUSED for word in ("-p", f"no:{name}")))
"""As for plugins that no test of an audit is about; and before the audit says an error in its own words, pytest would parse
the source of every frame of it."""


class Repo:
    """A folder with runs/, controls/ and data.npz, and pytest called in it."""

    plugins: tuple[str, ...] = ALONE

    def __init__(self, pytester: pytest.Pytester, zoo: Path) -> None:
        self.pytester, self.zoo, self.path = pytester, zoo, pytester.path
        shutil.copytree(zoo, self.path, dirs_exist_ok=True)
        self.ini(fa_data="data.npz")

    def measure_once(self, *args: str, files: int) -> None:
        """Leave a warm cache beside the files that repos are copied from, for tests that are not about measuring."""
        self.run(*args)
        kept = self.path / ".pytest_cache" / "d" / "fadiag"
        assert len(list(kept.glob("*.json"))) == files, "checkpoints and controls"
        shutil.copytree(kept, self.zoo / ".pytest_cache" / "d" / "fadiag")
        shutil.rmtree(self.path / ".pytest_cache")  # what failed there is no test's business

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
        return self.pytester.runpytest_inprocess(*self.plugins, *OFTEN, *args)

    def load_what_is_installed(self) -> None:
        """Let runs in this process find other packages by their entry points, but for plugins of the suite's own."""
        self.plugins = tuple(word for name in BESIDE for word in ("-p", f"no:{name}"))

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
