"""The files that an audit can be written to: ``--fa-report=KIND:DESTINATION``."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ..files import write_atomically
from ..judge.errors import AuditError
from .audit import Audit
from .figures import write_figures
from .json import json_text
from .markdown import form, markdown, readme
from .page import page
from .table import table

Write = Callable[[Audit, Path], None]


class Output(NamedTuple):
    """One kind of file: where it goes by default, and what writes it."""

    destination: str
    write: Write


def text_file(render: Callable[[Audit], str]) -> Write:
    """Write a text whole or not at all; append to a pipe, or where a job's steps share a file."""

    def write(audit: Audit, path: Path) -> None:
        text = render(audit)
        is_shared = str(path) == os.environ.get("GITHUB_STEP_SUMMARY")
        is_pipe = path.exists() and not path.is_file()
        if is_shared or is_pipe:
            with path.open("a", encoding="utf-8") as file:
                file.write(text)
        else:
            write_atomically(path.resolve(), text)

    return write


def certificate(audit: Audit, folder: Path) -> None:
    """A folder for reviewers: the numbers, the page, and what to type to measure them again."""
    if audit.origin is None or not audit.origin.files:
        raise AuditError("certificate: no file was measured, so there is nothing to measure again")
    text_file(json_text)(audit, folder / "audit.json")
    text_file(page)(audit, folder / "audit.html")
    text_file(readme)(audit, folder / "README.md")


OUTPUTS = {
    "table": Output("audit.txt", text_file(table)),
    "json": Output("audit.json", text_file(json_text)),
    "html": Output("audit.html", text_file(page)),
    "markdown": Output("audit.md", text_file(markdown)),
    "figures": Output("figures", write_figures),
    "figures-5.5": Output("figures-5.5", partial(write_figures, width=5.5)),
    "form": Output("form.md", text_file(form)),
    "certificate": Output("certificate", certificate),
}
"""By the name that --fa-report knows."""
