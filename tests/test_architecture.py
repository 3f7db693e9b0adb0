"""Imports point one way, heavy packages stay where they belong, words are those of the field."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import pytest_fadiag

PACKAGE = Path(pytest_fadiag.__file__).parent
ROOT = PACKAGE.parent


def table_of_imports() -> dict[str, set[str]]:
    """What each part may import besides itself, as CONTRIBUTING.md says it."""
    rows = re.findall(
        r"(?m)^\| (`.*?) \|.*\|(.*)\|$", (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    )
    allowed = {}
    for parts, imported in rows:
        for part in re.findall(r"`(\w+)(?:\.py|/)`", parts):
            allowed[part] = set(re.findall(r"`(\w+)`", imported))
    return allowed


MAY_IMPORT = table_of_imports()
HOMES = {"torch": {"load", "measure", "recorder", "jax"}, "pytest": {"session", "plugin", "cli"}}
BANNED = re.compile(r"(?i)\b(drawn anew|nobody|somebody|whoever)\b")


def imports() -> Iterator[tuple[str, str]]:
    """Module and imported module, by statements and by strings, in functions too; types aside."""
    files = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in PACKAGE.rglob("*.py")
    }
    for name, path in files.items():
        tree = ast.parse(path.read_text("utf-8"))
        checks = [node for node in ast.walk(tree) if isinstance(node, ast.If)]
        types = [check for check in checks if "TYPE_CHECKING" in ast.dump(check.test)]
        aside = {node for check in types for part in check.body for node in ast.walk(part)}
        package = name.split(".") if path.stem == "__init__" else name.split(".")[:-1]
        for node in set(ast.walk(tree)) - aside:
            targets: list[str] = []
            if isinstance(node, ast.Import):
                targets = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = package[: len(package) - node.level + 1] if node.level else []
                module = ".".join([*base, *filter(None, [node.module])])
                targets = [f"{module}.{alias.name}" for alias in node.names]
                targets = [each if each in files else module for each in targets]
            elif isinstance(node, ast.Constant) and str(node.value).partition(":")[0] in files:
                targets = [str(node.value).partition(":")[0]]
            yield from ((name, target) for target in targets if target != name)


def part(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


IMPORTS = sorted(set(imports()))


def test_no_module_imports_itself_in_a_circle() -> None:
    graph: dict[str, set[str]] = {}
    for module, target in IMPORTS:
        if "pytest_fadiag" not in (module, target):  # the table of public names
            graph.setdefault(module, set()).add(target)
    TopologicalSorter(graph).prepare()


def test_imports_point_one_way() -> None:
    wrong = [
        f"{module} imports {target}"
        for module, target in IMPORTS
        if part(module) and target.startswith("pytest_fadiag.") and part(target) != part(module)
        if part(target) not in MAY_IMPORT.get(part(module), set())
    ]
    assert wrong == []


@pytest.mark.parametrize("package", HOMES)
def test_heavy_packages_are_imported_where_they_belong(package: str) -> None:
    found = {part(module) for module, target in IMPORTS if target.split(".")[0] == package}
    assert found <= HOMES[package]


def test_judging_and_showing_need_neither_torch_nor_pytest() -> None:
    names = "auditor cache hooks judge.report show.json show.outputs load.controls load.logs verify"
    code = (
        "import sys, importlib\n"
        f"for name in {names.split()!r}: importlib.import_module('pytest_fadiag.' + name)\n"
        "heavy = ('torch', 'numpy', 'pytest', 'matplotlib')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_what_users_read_names_its_subject() -> None:
    """No sentence about nobody; blocks are re-initialised."""
    places = [
        ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "action.yml")
    ]
    for folder in (PACKAGE, ROOT / "docs", ROOT / "examples"):
        places += [
            path for path in folder.rglob("*") if path.suffix in (".py", ".md", ".html", ".sh")
        ]
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in places
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if BANNED.search(line)
    ]
    assert found == []
