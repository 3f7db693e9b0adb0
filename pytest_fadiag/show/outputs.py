"""The files that an audit can be written to: what each kind is called, where it goes, and who makes it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..judge.files import write_atomically
from ..judge.late import named

if TYPE_CHECKING:
    from .audit import Audit


class Output(NamedTuple):
    """One kind of file."""

    destination: str
    """Where it goes if nobody says."""
    maker: str
    """``package.module:function``, imported when it is written: an audit to a text or, of a folder, to what there is to say."""
    folder: bool = False
    """Whether the destination is a folder, which the maker gets beside the audit and fills itself."""


OUTPUTS = {
    "json": Output("audit.json", "pytest_fadiag.show.document:json_text"),
    "markdown": Output("audit.md", "pytest_fadiag.show.markdown:markdown"),
    "html": Output("audit.html", "pytest_fadiag.show.html:html"),
    "figures": Output("figures", "pytest_fadiag.show.figures:draw_all", folder=True),
    "certificate": Output("certificate", "pytest_fadiag.show.certificate:certify", folder=True),
    "form": Output("form.md", "pytest_fadiag.show.form:form"),
}
"""By the name that --fa-report knows."""


def write(kind: str, audit: Audit, path: Path) -> list[str]:
    """Write the audit to a file: whole or not at all, or behind what is there where a job's steps share the file.

    What could not be shown, such as a figure for which there are no numbers, comes back in words.
    """
    output = OUTPUTS[kind]
    if output.folder:
        return list(named(output.maker)(audit, path))
    text: str = named(output.maker)(audit)
    shared = kind == "markdown" and str(path) == os.environ.get("GITHUB_STEP_SUMMARY")
    if shared or (path.exists() and not path.is_file()) or path.is_relative_to("/dev"):
        with path.open("a", encoding="utf-8") as file:  # a pipe or a device is not replaced by a file
            file.write(text)
        return []
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path.resolve(), text)
    return []
