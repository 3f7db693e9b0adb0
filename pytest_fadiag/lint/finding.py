"""What the pitfalls linter speaks in: a check, what it hits, and the finding a reader gets."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .tree import Tree


@dataclass(frozen=True)
class Pitfall:
    """One place in the code that commits a pitfall; ``silenced`` is the reason its author gave, None while it stands."""

    number: int
    title: str
    file: str
    line: int
    column: int  # from 1, as editors count
    code: str
    message: str
    fix: str
    silenced: str | None = None


@dataclass(frozen=True)
class Scan:
    """What a scan found, every file it read, and the files it could not."""

    findings: list[Pitfall]
    files: list[str]
    problems: list[str]
    notebooks: int = 0
    """How many lie there too, and are not read."""


@dataclass(frozen=True)
class Hit:
    """The node of a syntax tree that commits a pitfall, what is wrong there and what to write instead."""

    node: ast.expr | ast.stmt
    message: str
    fix: str


Find = Callable[["Tree"], Iterator[Hit]]
"""How one pitfall of the checklist is found."""
