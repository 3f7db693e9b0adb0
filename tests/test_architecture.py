"""The folders are the pipeline: imports point one way, in function bodies too, and heavy packages stay where they belong."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest_fadiag

PACKAGE = Path(pytest_fadiag.__file__).parent
MAY_IMPORT = {
    "__main__": {"command"},
    "command": {"verify", "session", "load", "judge"},
    "verify": {"registry", "load", "judge", "show"},
    "plugin": {"session", "hookspecs"},
    "session": {"bench", "registry", "cache", "load", "judge", "show", "lint"},
    "bench": {"keys", "registry", "cache", "workshop", "load", "judge"},
    "keys": {"registry", "cache", "load", "judge"},
    "registry": {"builtin", "hookspecs", "load", "judge"},
    "builtin": {"show", "judge"},
    "hookspecs": {"judge"},
    "integrations": {"guard", "recorder"},
    "guard": {"recorder", "load", "judge"},
    "recorder": {"load", "measure", "judge"},
    "workshop": {"registry", "load", "measure", "judge"},
    "cache": {"judge"},
    "show": {"judge"},
    "measure": {"judge"},
    "load": {"judge"},
    "lint": {"judge"},
    "judge": set(),
}
"""Which parts of the package a part may import beside itself."""


class Import(NamedTuple):
    """One imported module, and where it is imported."""

    module: str
    target: str
    line: int
    function: str
    """The function in which it is imported, or nothing."""


@cache
def imports() -> tuple[Import, ...]:
    """Every import of a module of the package or of another, type checking aside."""
    return tuple(_imports())


def _imports() -> Iterator[Import]:
    files = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path for path in PACKAGE.rglob("*.py")}
    names = {name.removesuffix(".__init__") for name in files}
    for name, path in files.items():
        tree = ast.parse(path.read_text("utf-8"))
        package = name.rpartition(".")[0].split(".")
        for_types = {
            id(node)
            for check in ast.walk(tree)
            if isinstance(check, ast.If) and "TYPE_CHECKING" in ast.dump(check.test)
            for statement in check.body
            for node in ast.walk(statement)
        }
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        inside = {id(node): function.name for function in functions for node in ast.walk(function)}
        for node in ast.walk(tree):
            if id(node) in for_types:
                continue
            targets: list[str] = []
            if isinstance(node, ast.Import):
                targets = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = package[: len(package) - node.level + 1] if node.level else []
                module = ".".join([*base, *([node.module] if node.module else [])])
                whole = [f"{module}.{alias.name}" for alias in node.names]
                targets = [name if name in names else module for name in whole]
            for target in dict.fromkeys(targets):
                yield Import(name.removesuffix(".__init__"), target, node.lineno, inside.get(id(node), ""))


def part(module: str) -> str:
    """The folder or module of the package that a module belongs to."""
    return module.split(".")[1] if "." in module else ""


def test_imports_point_one_way() -> None:
    wrong = [
        f"{found.module}:{found.line} imports {found.target}"
        for found in imports()
        if found.target.startswith("pytest_fadiag.")
        and part(found.module) in MAY_IMPORT
        and part(found.target) in MAY_IMPORT
        and part(found.target) not in {part(found.module), *MAY_IMPORT[part(found.module)]}
    ]
    assert wrong == []


def test_every_part_of_the_package_has_its_place() -> None:
    parts = {path.stem for path in PACKAGE.iterdir() if path.name not in ("__init__.py", "__pycache__", "py.typed")}
    assert parts == set(MAY_IMPORT)


def test_no_module_imports_itself_in_a_circle() -> None:
    """Function bodies included: what is imported late is still a dependency."""
    graph: dict[str, set[str]] = {}
    for found in imports():
        if found.target.startswith("pytest_fadiag") and found.target != found.module:
            graph.setdefault(found.module, set()).add(found.target)
    graph.pop("pytest_fadiag", None)  # public names, resolved on first use
    TopologicalSorter(graph).prepare()  # raises CycleError


LATE = {
    "pytest_fadiag.bench": "torch, where something is not in the cache",
    "pytest_fadiag.measure": "torch: the folder can be called",
    "pytest_fadiag.session": "the parts of an audit, where there is one",
    "pytest_fadiag.show.figures": "matplotlib, where a figure is drawn",
    "pytest_fadiag.show.html": "Jinja2, where a page is written",
}
"""The modules that import others of the package when a function runs, and what they keep out of a start by it."""


def test_imports_inside_functions_keep_something_heavy_out_of_start_up() -> None:
    late = {(found.module, found.function) for found in imports() if found.function and part(found.target) in MAY_IMPORT}
    assert {module for module, _ in late} == set(LATE)
    assert len(late) <= 8, "each module has about one place for it"
