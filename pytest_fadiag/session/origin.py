"""Where an audit comes from: when, by which command, from which commit and files, with which versions."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
from collections.abc import Iterator
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from ..load.digests import file_digest
from ..load.huggingface import files_of
from ..load.sources import DataSpec
from ..show.audit import Origin
from .options import OPTIONS, Option
from .run import Run
from .settings import Settings
from .targets import Kind

PACKAGES = ("pytest-fadiag", "torch", "numpy", "pytest", "pytest-xdist")
PATHS = ("checkpoint", "log", "frozen", "expect")
"""The options whose values are files or globs."""
NOT_OF_THE_AUDIT = ("report", "merge", "update_expect", "update_expect_on_ci", "no_cache")


def origin_of(config: pytest.Config, run: Run) -> Origin:
    """The origin of what this run measured."""
    return Origin(
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        command=shlex.join(["pytest", *map(str, config.invocation_params.args)]),
        commit=_commit(run.settings.root),
        versions={"python": platform.python_version(), **dict(_versions())},
        options={option.name: texts for option in OPTIONS if (texts := _texts(config, run.settings, option))},
        files=dict(sorted(_files(run))),
    )


def _texts(config: pytest.Config, settings: Settings, option: Option) -> tuple[str, ...]:
    """What an option was set to, as it would be typed in the root folder."""
    if option.field not in settings.given or option.field in NOT_OF_THE_AUDIT:
        return ()
    line = config.getoption(option.key, None)
    chosen = line if line is not None else config.getini(option.key)
    texts = [str(text) for text in chosen] if isinstance(chosen, (list, tuple)) else [str(chosen)]
    if option.merged and line is not None:
        texts = [*map(str, config.getini(option.key) or ()), *texts]
    if option.listed:
        texts = [",".join(texts)]
    return tuple(_from_root(settings, option.field, text) for text in texts)


def _from_root(settings: Settings, field: str, text: str) -> str:
    base, root = settings.base(field), settings.root
    if field == "data":
        data = DataSpec.parse(text, base, others=True)
        return text if data.path is None else data.text.replace(str(data.path), os.path.relpath(data.path, root))
    head, equals, tail = text.rpartition("=")  # METHOD=PATH
    if field in PATHS and not _is_number(tail):
        return f"{head}{equals}{os.path.relpath(base / os.path.expanduser(tail), root)}"
    return text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _files(run: Run) -> Iterator[tuple[str, str]]:
    paths = [Path(target.path) for target in run.targets.generated if target.kind is not Kind.RECORDED]
    for path in dict.fromkeys([*paths, *map(Path, run.controls.paths)]):
        for file in files_of(path) if path.is_file() else ():
            yield os.path.relpath(file, run.settings.root), file_digest(file)


def _versions() -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        try:
            yield package, version(package)
        except PackageNotFoundError:
            continue


def _commit(root: Path) -> str | None:
    """The commit of the repo around a folder, if there is one and git is at hand."""
    try:
        commit = _git(root, "rev-parse", "HEAD")
        return commit + ("+" if _git(root, "status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
