"""Where the files of --fa-report go, checked before the run, and where the audit in them comes
from.
"""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from .. import __version__
from ..judge.errors import AuditError
from ..load.controls import Controls
from ..load.names import file_digest, is_checkpoint
from ..options import OPTIONS
from ..show.audit import Audit, Origin
from ..show.outputs import Output
from .plan import Plan
from .settings import Settings

if TYPE_CHECKING:
    import pytest

    from .run import Run

PACKAGES = ("torch", "numpy", "pytest", "pytest-xdist")


def destination(outputs: Mapping[str, Output], text: str, base: Path) -> tuple[str, Path | None]:
    """The kind and file of KIND[:DEST].

    No file where a variable is not set, as $GITHUB_STEP_SUMMARY.
    """
    kind, _, place = text.partition(":")
    if kind not in outputs:
        raise AuditError(f"--fa-report={text}: unknown kind; expected {', '.join(outputs)}")
    name = os.path.expandvars(place or outputs[kind].destination)
    return kind, None if "$" in name else base / os.path.expanduser(name)


def write(outputs: Mapping[str, Output], text: str, base: Path, audit: Audit) -> str:
    """Write the file of KIND[:DEST], and say so."""
    kind, path = destination(outputs, text, base)
    if path is None:
        return f"{text} is not written: the variable is not set"
    outputs[kind].write(audit, path)
    return f"{kind} written to {path}"


def check_destinations(
    settings: Settings, plan: Plan, controls: Controls, outputs: Mapping[str, Output]
) -> None:
    """Refuse reports that would overwrite each other or what is read."""
    paths_read = [
        *(job.path for job in plan.all_jobs),
        *controls.paths,
        settings.expect,
        settings.setup.data,
    ]
    uses = {os.path.realpath(str(path)): "a file that this run reads" for path in paths_read}
    for text in settings.texts.get("report", ()):
        kind, path = destination(outputs, text, settings.path("report", ""))
        if path is None:
            continue
        place = os.path.realpath(path)
        problem = uses.get(place)
        if is_checkpoint(path):
            problem = "named like a checkpoint"
        if path.is_dir() and Path(outputs[kind].destination).suffix:
            problem = "a folder"
        if problem:
            raise AuditError(f"--fa-report={text}: the destination is {problem}\n  {path}")
        uses[place] = f"that of --fa-report={text}"


def origin_of(config: pytest.Config, run: Run) -> Origin:
    """Where the audit of a run comes from; digests of files only where it is written to one."""
    settings = run.settings
    commit = None
    files: dict[str, str] = {}
    if "report" in settings.texts:
        commit = _commit(settings.root)
        files = _digests(run)
    measures_or_judges = {option.name for option in OPTIONS if option.role != "shows"}
    options = {name: texts for name, texts in settings.texts.items() if name in measures_or_judges}
    if "data" in settings.typed:
        options["data"] = (str(settings.setup.data).replace(f"{settings.root}{os.sep}", ""),)
    versions = {"python": platform.python_version(), "pytest-fadiag": __version__}
    for name in PACKAGES:
        versions[name] = version(name)
    return Origin(
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        command=shlex.join(["pytest", *map(str, config.invocation_params.args)]),
        commit=commit,
        versions=versions,
        options=options,
        files=files,
    )


def _digests(run: Run) -> dict[str, str]:
    """The SHA-256 of every file that a run reads, by its path from the root folder."""
    paths = [Path(job.path) for job in run.plan.jobs if not job.skip]
    paths += run.controls.paths
    paths += [Path(twin.path) for twin in run.twins]
    digests = {}
    for path in paths:
        if path.is_file():
            name = Path(os.path.relpath(path, run.settings.root)).as_posix()
            with suppress(AuditError):  # its own tests say what is wrong with it
                digests[name] = file_digest(path)
    return digests


def _commit(root: Path) -> str | None:
    """The commit of the repository around a folder, with a + where files were changed since."""
    words = ("describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+")
    command = ["git", "-C", str(root), *words]
    try:
        process = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return process.stdout.strip()
