"""The README and the documentation name what there is: commands, options, targets, files, names of the package."""

from __future__ import annotations

import ast
import importlib.util
import re
import shlex
from pathlib import Path

import pytest

import pytest_fadiag
from pytest_fadiag.command import COMMANDS
from pytest_fadiag.session.options import OPTIONS

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "examples" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
OURS = {f"--{option.name}" for option in OPTIONS} | {"--root", "--out", "--help"}
COMMAND = re.compile(r"(?:\S+/)?(?:pytest|fadiag|make|pip|python|git|pre-commit) ")


def commands(text: str) -> list[str]:
    """The lines that a reader would paste: indented by four, in a plain fence, behind a prompt, or inline between backticks."""
    prose = FENCED.sub("", text)
    lines = [line.strip() for line in prose.splitlines() if line.startswith("    ")]
    lines += [line.removeprefix("$ ") for language, code in FENCED.findall(text) if not language for line in code.splitlines()]
    lines += re.findall(r"`([^`\n]+)`", prose)
    return [line.partition("  #")[0] for line in lines if COMMAND.match(line)]


PASTED = [(page.relative_to(ROOT).as_posix(), line) for page in PAGES for line in commands(page.read_text("utf-8"))]


def test_there_are_commands_to_look_at() -> None:
    assert len(PASTED) > 30


@pytest.mark.parametrize(("page", "line"), PASTED)
def test_a_command_names_options_and_targets_that_exist(page: str, line: str) -> None:
    words = shlex.split(line.replace("…", ""))
    if words[0] == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
        assert words[1] in targets
        return
    if words[0] == "pip":
        return
    if words[0] == "python":
        assert (ROOT / words[1]).is_file()
        return
    if words[0] == "fadiag":
        assert words[1] in {command.name for command in COMMANDS} | {"COMMAND"}
    for word in words[1:]:
        option = word.partition("=")[0]
        if option.startswith("--fa-") or (words[0] == "fadiag" and option.startswith("--") and option not in PYTESTS):
            assert f"--{option.removeprefix('--fa-').removeprefix('--')}" in OURS, word


PYTESTS = ("--junitxml", "--lf", "--deselect", "--collect-only")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_in_a_page_compiles_and_imports_names_that_exist(page: Path) -> None:
    for language, code in FENCED.findall(page.read_text("utf-8")):
        if language != "python":
            continue
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and node.module == "pytest_fadiag":
                for alias in node.names:
                    assert hasattr(pytest_fadiag, alias.name), alias.name
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pytest_fadiag."):
                assert importlib.util.find_spec(str(node.module)) is not None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_a_page_names_are_there(page: Path) -> None:
    for name in re.findall(r"`((?:examples|fixtures|benchmarks|docs|tests|pytest_fadiag)/[\w./-]+)`", page.read_text("utf-8")):
        assert (ROOT / name).exists(), name


def test_the_reference_has_every_public_name() -> None:
    listed = re.findall(r"^::: pytest_fadiag\.([\w.]+)$", (ROOT / "docs" / "api.md").read_text("utf-8"), re.MULTILINE)
    assert set(pytest_fadiag.__all__) - {"__version__"} <= {name.rpartition(".")[2] for name in listed}


def test_pages_link_to_pages_that_are_there_and_the_readme_to_their_addresses() -> None:
    pages = {page.stem for page in (ROOT / "docs").glob("*.md")}
    for page in (ROOT / "docs").glob("*.md"):
        assert set(re.findall(r"\]\(([\w-]+)\.md[)#]", page.read_text("utf-8"))) <= pages
    linked = set(re.findall(r"readthedocs\.io/([\w-]+)/\)", (ROOT / "README.md").read_text("utf-8")))
    assert linked and linked <= pages
    assert pages == set(re.findall(r"- ([\w-]+)\.md$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE))


def test_the_lowest_versions_that_are_tried_are_those_that_are_promised() -> None:
    promised = re.findall(r'"([\w-]+)>=([\d.]+)"', (ROOT / "pyproject.toml").read_text("utf-8"))
    tried = dict(re.findall(r"^([\w-]+)==([\d.]+)$", (ROOT / ".ci" / "lowest.txt").read_text("utf-8"), re.MULTILINE))
    lowest = {name: version for name, version in promised if name in tried}
    assert {name: _parts(version) for name, version in lowest.items()} == {name: _parts(tried[name]) for name in lowest}
    assert {"pytest", "pytest-xdist", "torch", "numpy", "msgspec", "matplotlib"} <= set(lowest)


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in f"{version}.0.0".split(".")[:3])


def test_the_readme_fits_on_a_few_screens() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 150
