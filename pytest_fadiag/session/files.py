"""Where the files of --fa-report go, checked before the run."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from ..judge.errors import AuditError
from ..show.outputs import OUTPUTS
from .options import CHECKPOINTS
from .settings import Settings

_VARIABLE = re.compile(r"\$\{?(\w+)")


def check_destinations(settings: Settings, inputs: Iterable[Path]) -> None:
    """Refuse reports that cannot be written, or would overwrite each other or what is read, before the run."""
    if not settings.report:
        return
    read = {os.path.realpath(path) for path in inputs}
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
