"""What other people import: all of it from the package itself, with types that hold in their code too."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import pytest_fadiag

ROOT = Path(__file__).parents[1]
PROJECT = ROOT / "tests" / "user_project"
LEAK = """# mypy: disallow-any-expr
from pytest_fadiag import CheckpointUnderTest
def width(fa_checkpoint: CheckpointUnderTest) -> None:
    print(fa_checkpoint.config["width"])
"""
"""What a file of one's own holds has no type: the one place where ``Any`` is the truth."""
MISSPELT = "from pytest_fadiag import audti\n"


def mypy(*files: Path) -> list[str]:
    """The complaints of mypy --strict; its cache is that of ``make lint``, which has read torch already."""
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "--no-error-summary"]
    done = subprocess.run([*command, *map(str, files)], cwd=ROOT, text=True, capture_output=True, check=False)
    assert done.returncode < 2, done.stderr
    return done.stdout.splitlines()


def test_no_any_reaches_a_users_own_code(tmp_path: Path) -> None:
    leak, misspelt = tmp_path / "leak.py", tmp_path / "misspelt.py"
    leak.write_text(LEAK)
    misspelt.write_text(MISSPELT)
    complaints = mypy(*sorted(PROJECT.glob("*.py")), leak, misspelt)
    assert [line for line in complaints if "user_project" in line] == []
    assert sum("leak.py:4: error: Expression" in line for line in complaints) > 0, "mypy would not have seen one"
    assert sum("misspelt.py:1: error" in line and "audti" in line for line in complaints) == 1


def test_every_public_name_is_there_and_says_what_it_is() -> None:
    values = {name: getattr(pytest_fadiag, name) for name in pytest_fadiag.__all__ if name != "__version__"}
    silent = [name for name, value in values.items() if not (value.__doc__ or "").strip()]
    assert silent == ["CreditFunction"], "an alias has no docstring of its own"


def test_public_functions_have_full_signatures() -> None:
    functions = {name: value for name in pytest_fadiag.__all__ if inspect.isfunction(value := getattr(pytest_fadiag, name))}
    assert {"audit", "diagnose", "load_data", "alignment"} <= set(functions)
    hidden = [
        f"{name}({parameter})"
        for name, function in functions.items()
        for parameter in inspect.signature(function).parameters.values()
        if parameter.annotation in ("Any", parameter.empty)
    ]
    assert hidden == []


def test_the_names_of_type_checkers_are_those_of_a_run() -> None:
    """One list serves mypy, the other an import; a name that is in one alone is half there."""
    tree = ast.parse(Path(pytest_fadiag.__file__).read_text("utf-8"))
    checked = next(node for node in tree.body if isinstance(node, ast.If))
    names = {alias.asname for node in checked.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert names | {"__version__"} == set(pytest_fadiag.__all__)


def test_the_reference_page_has_every_public_name_at_its_place() -> None:
    lines = (ROOT / "docs" / "api.md").read_text("utf-8").splitlines()
    places = [line.removeprefix("::: ") for line in lines if line.startswith("::: ")]
    named = {place.rpartition(".")[2]: place.rpartition(".")[0] for place in places}
    assert set(pytest_fadiag.__all__) - set(named) == {"__version__"}
    wrong = [f"{module}.{name}" for name, module in named.items() if not hasattr(import_module(module), name)]
    assert wrong == []


@pytest.mark.parametrize("folder", ["paper_repo", "extension"])
def test_the_examples_import_from_the_package_alone(folder: str) -> None:
    files = sorted((ROOT / "examples" / folder).rglob("*.py"))
    imported = {
        node.module
        for path in files
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pytest_fadiag")
    }
    assert files and imported == {"pytest_fadiag"}
