"""Which files a scan reads, and their text."""

from __future__ import annotations

import ast
import os
import tokenize
import warnings
from pathlib import Path
from typing import NamedTuple

from ..judge.errors import AuditError


class Unreadable(Exception):
    """Why a file has no syntax tree; the text follows the file's name."""


_NOT_SOURCES = {"__pycache__", "site-packages", "build", "dist", "node_modules"}


class Sources(NamedTuple):
    """What lies at or below a path."""

    files: list[Path]
    """The Python files, sorted."""
    problems: list[str]
    """The folders that could not be listed."""
    notebooks: int = 0
    """How many notebooks there are, which are not read."""


def python_files(root: Path) -> Sources:
    """The Python files at or below a path; a folder behind links is read once, so that a circle of them ends."""
    if not _exists(root):
        raise AuditError(
            f"the checklist was given a path that does not exist:\n  {root}\ngive a Python file or a folder of them"
        )
    if not root.is_dir():
        if root.suffix != ".py" or not root.is_file():
            raise AuditError(
                f"the checklist reads Python files, and this is none:\n  {root}\ngive a .py file or a folder of them"
            )
        return Sources([root], [])
    files: list[Path] = []
    problems: list[str] = []
    notebooks, seen = 0, {os.path.realpath(root)}
    walk = os.walk(root, onerror=lambda error: problems.append(_unlisted(root, error)), followlinks=True)
    for folder, below, names in walk:
        # Those that are no links first: a folder and a link to it beside each other are named by the folder.
        sources = [path for name in sorted(below) if _is_source(path := Path(folder, name))]
        below[:] = [path.name for path in sorted(sources, key=Path.is_symlink) if _is_new(os.path.realpath(path), seen)]
        notebooks += sum(name.endswith(".ipynb") for name in names)
        files += [path for name in names if name.endswith(".py") and _is_file(path := Path(folder, name))]
    if not files and not problems:
        raise AuditError(
            f"the checklist found no Python file in this folder:\n  {root}\n"
            "give the folder of the evaluation code; hidden folders, virtual environments, site-packages, build and dist "
            "below it are passed over"
        )
    return Sources(sorted(files), problems, notebooks)


def parsed(path: Path) -> tuple[str, ast.Module]:
    """A file's text and syntax tree; raises Unreadable with the reason if there is none."""
    try:
        with tokenize.open(path) as file:
            text = file.read()
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror or error}") from error
    except (SyntaxError, UnicodeDecodeError) as error:
        raise Unreadable(f"is in no encoding it declares, nor in UTF-8: {error}") from error
    if "\0" in text:
        raise Unreadable("holds a null byte: it is no Python source")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the scanned code's escapes and comparisons: not this scan's subject
            return text, ast.parse(text)
    except SyntaxError as error:
        raise Unreadable(f"is not valid Python on line {error.lineno}: {error.msg}") from error
    except (RecursionError, MemoryError) as error:
        raise Unreadable("is nested too deeply to parse") from error


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:  # a folder on the way that may not be entered
        raise AuditError(
            f"the checklist cannot look at this path:\n  {path}\n{error.strerror or error}; give one that can be read"
        ) from error


def _is_file(path: Path) -> bool:
    """Whether to open a path: a pipe would block; a link to nothing is tried, so that it is told."""
    return path.is_file() or (path.is_symlink() and not path.exists())


def _is_source(folder: Path) -> bool:
    name = folder.name
    return not (name.startswith(".") or name in _NOT_SOURCES or name.endswith(".egg-info") or (folder / "pyvenv.cfg").exists())


def _is_new(folder: str, seen: set[str]) -> bool:
    new = folder not in seen
    seen.add(folder)
    return new


def _unlisted(root: Path, error: OSError) -> str:
    folder = Path(error.filename or root)
    shown = folder.relative_to(root) if folder.is_relative_to(root) else folder
    return f"{shown.as_posix()}: this folder cannot be listed: {error.strerror or error}"
