"""Where the files of --fa-report go, checked before the run, and where the audit in them comes from."""

from __future__ import annotations

import os
import platform
import re
import shlex
import subprocess
from collections.abc import Iterator
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ..judge.errors import AuditError
from ..load.controls import Controls
from ..load.digests import file_digest
from ..load.huggingface import files_of
from ..load.sources import DataSpec
from ..show.audit import Origin
from ..show.outputs import OUTPUTS
from .merge import merged_files
from .options import CHECKPOINTS, OPTIONS, Option
from .settings import Settings
from .targets import Kind, Targets

if TYPE_CHECKING:
    from .run import Run

PACKAGES = ("pytest-fadiag", "torch", "numpy", "pytest", "pytest-xdist")
PATHS = ("checkpoint", "log", "frozen", "expect")
"""The options whose values are files or globs."""
NOT_OF_THE_AUDIT = ("report", "merge", "update_expect", "update_expect_on_ci", "no_cache")
_VARIABLE = re.compile(r"\$\{?(\w+)")


def check_destinations(settings: Settings, targets: Targets, controls: Controls, data: Path | None) -> None:
    """Refuse reports that cannot be written, or would overwrite each other or what is read, before the run."""
    if not settings.report:
        return
    read = {os.path.realpath(path) for path in _inputs(settings, targets, controls, data)}
    written: dict[str, str] = {}
    for kind, name in settings.report:
        path = destination(settings, kind, name)
        if path is None:
            continue
        real = os.path.realpath(path)
        if real in read or (path.suffix in CHECKPOINTS and kind != "figures"):
            what = "is read by this run" if real in read else f"is named like a checkpoint ({path.suffix})"
            raise AuditError(f"--fa-report={kind}: {what}, and would be overwritten; name another file\n  {path}")
        if written.setdefault(real, kind) != kind:
            raise AuditError(f"--fa-report: {written[real]} and {kind} would be written to one file\n  {path}")


def _inputs(settings: Settings, targets: Targets, controls: Controls, data: Path | None) -> Iterator[Path]:
    """Everything that a run reads."""
    yield from (Path(target.path) for target in (*targets.named, *targets.generated, *targets.written))
    yield from controls.paths
    yield from merged_files(settings)
    yield from () if data is None else (data,)
    for name in ("frozen", "log", "checklist"):
        yield from (settings.path(name, text) for text in getattr(settings, name))
    if settings.expect is not None:
        yield settings.path("expect", settings.expect)


def destination(settings: Settings, kind: str, name: str) -> Path | None:
    """The file of a report, or ``None`` where a variable in its name is not set, as $GITHUB_STEP_SUMMARY outside of CI."""
    if unset_variable(name):
        return None
    path, own = settings.path("report", os.path.expandvars(name)), OUTPUTS.get(kind)
    try:
        path.resolve()
        folder = path.is_dir() if own is None else own.folder  # whether another package writes a folder, only it knows
        nearest = next(place for place in (path, *path.parents) if place.exists() and (folder or place != path))
    except (OSError, RuntimeError, ValueError) as error:  # a name that is too long, a link to itself
        raise AuditError(f"--fa-report={kind}: cannot be written: {error}") from None
    if folder and path.is_file():
        raise AuditError(f"--fa-report={kind}: is a file; name a folder\n  {path}")
    if not folder and path.is_dir():
        raise AuditError(f"--fa-report={kind}: is a folder; name the file to write in it\n  {path}")
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise AuditError(f"--fa-report={kind}: cannot be written: {nearest} is no folder that you may write to\n  {path}")
    return path


def unset_variable(name: str) -> str | None:
    """The first variable in a file's name that the environment does not have."""
    left = _VARIABLE.search(os.path.expandvars(name))
    return left[1] if left else None


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
    if option.field == "credit" and settings.ignores_credit:
        return ()  # typed, it would start its diagnostic
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
        typed = DataSpec.parse(text, others=True).path
        if data.path is None or typed is None:
            return text
        if typed.is_absolute() and not data.path.is_relative_to(root):
            return data.text  # «../../..» would lead elsewhere from every other folder
        return data.text.replace(str(data.path), os.path.relpath(data.path, root))
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
