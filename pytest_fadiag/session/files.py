"""The files that --fa-report asks for: where they go, checked before the run, and written at its end."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from .. import __version__
from ..judge.errors import AuditError
from ..judge.files import write_atomically
from ..show.audit import Audit
from ..show.document import json_text
from ..show.figures import NAMES, draw, missing
from ..show.form import form
from ..show.html import html
from ..show.markdown import markdown
from .settings import Settings

FOLDERS = ("figures", "certificate")
"""The reports that are several files."""
_VARIABLE = re.compile(r"\$\{?(\w+)")


def check_destinations(settings: Settings) -> None:
    """Refuse reports that cannot be written, or would overwrite each other, before the run."""
    written: dict[Path, str] = {}
    for kind, name in settings.report:
        path = destination(settings, kind, name)
        if path is not None and written.setdefault(path.resolve(), kind) != kind:
            raise AuditError(f"--fa-report: {written[path.resolve()]} and {kind} would be written to one file\n  {path}")


def destination(settings: Settings, kind: str, name: str) -> Path | None:
    """The file of a report, or ``None`` where a variable in its name is not set, as $GITHUB_STEP_SUMMARY outside of CI."""
    if unset_variable(name):
        return None
    path = settings.path("report", os.path.expandvars(name))
    nearest = next(folder for folder in (path, *path.parents) if folder.exists() and (kind in FOLDERS or folder != path))
    if kind in FOLDERS and path.is_file():
        raise AuditError(f"--fa-report={kind}: is a file; name a folder\n  {path}")
    if kind not in FOLDERS and path.is_dir():
        raise AuditError(f"--fa-report={kind}: is a folder; name the file to write in it\n  {path}")
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise AuditError(f"--fa-report={kind}: cannot be written: {nearest} is no folder that you may write to\n  {path}")
    return path


def unset_variable(name: str) -> str | None:
    """The first variable in a file's name that the environment does not have."""
    left = _VARIABLE.search(os.path.expandvars(name))
    return left[1] if left else None


def write(kind: str, path: Path, audit: Audit) -> list[str]:
    """Write the audit to a file: whole or not at all, or behind what is there where a job's steps share the file.

    What could not be shown, such as a figure for which there are no numbers, comes back in words.
    """
    if kind == "figures":
        return _draw(audit, path)
    if kind == "certificate":
        return _certify(audit, path)
    text = _text(kind, audit)
    shared = kind == "markdown" and str(path) == os.environ.get("GITHUB_STEP_SUMMARY")
    if shared or (path.exists() and not path.is_file()) or path.is_relative_to("/dev"):
        with path.open("a", encoding="utf-8") as file:  # a pipe or a device is not replaced by a file
            file.write(text)
        return []
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path.resolve(), text)
    return []


def _draw(audit: Audit, folder: Path) -> list[str]:
    """Draw the figures; what there are no numbers for is said, and so is what an earlier run left in the folder."""
    drawn = set(draw(audit, folder))
    notes = [f"FA audit: no figure «{name}»: {reason}" for name, reason in missing(audit).items()]
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():  # where nothing was drawn no folder was made
        if path.suffix in (".png", ".pdf") and path.stem.partition("-")[0] in NAMES and path not in drawn:
            notes.append(f"FA audit: {path} is of an earlier run, and not of this one")
    return notes


def _certify(audit: Audit, folder: Path) -> list[str]:
    """The audit as a reviewer gets it: the document that is measured again, and the page for whoever only reads."""
    if audit.origin is None or not audit.origin.files:
        raise AuditError(
            "--fa-report=certificate: nothing of this audit was measured from files, so nothing can be measured again"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for kind, name in (("json", "audit.json"), ("html", "audit.html")):
        write_atomically(folder / name, _text(kind, audit))
    return ["FA audit: measure the certificate again with: fadiag verify " + str(folder)]


def _text(kind: str, audit: Audit) -> str:
    writers: dict[str, Callable[[Audit], str]] = {
        "json": json_text,
        "html": lambda audit: html(audit, __version__),
        "form": lambda audit: form(audit, __version__),
        "markdown": markdown,
    }
    return writers[kind](audit)
