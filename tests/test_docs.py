"""The pages say what is there: options, links, names, code; the action runs no shell."""

from __future__ import annotations

import ast
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import pytest_fadiag
from pytest_fadiag.cli import make_parser
from pytest_fadiag.options import OPTIONS

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = [*sorted(DOCS.glob("*.md")), ROOT / "README.md", ROOT / "examples/README.md"]
PYTEST = (
    "junitxml rootdir config-file lf deselect runxfail collect-only dist tx help root out select"
    " folder mirror again page slurm traces"
)
"""Options of pytest, and of single commands, that the pages name."""
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```|^ {4}\S.*$", re.DOTALL | re.MULTILINE)


def slug(heading: str) -> str:
    return re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip())


def test_the_page_of_options_is_the_option_table() -> None:
    page = runpy.run_path(str(ROOT / ".ci/options.py"))["page"]()
    assert (DOCS / "options.md").read_text("utf-8") == page, "run: make options"


def test_the_pages_of_diagnostics_are_those_of_the_package() -> None:
    pages = runpy.run_path(str(ROOT / ".ci/pages.py"))["pages"]()
    for name, text in pages.items():
        assert (DOCS / name).read_text("utf-8") == text, "run: make options"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", page.read_text("utf-8")):
        name, _, anchor = target.partition("#")
        place = page.parent / name if name else page
        assert place.exists(), target
        if anchor and place.suffix == ".md":
            headings = re.findall(r"^#+ (.*)$", place.read_text("utf-8"), re.MULTILINE)
            assert anchor in map(slug, headings), target


def test_every_page_is_in_the_navigation() -> None:
    named = re.findall(r"- (\S+\.md)", (ROOT / "mkdocs.yml").read_text("utf-8"))
    assert sorted(named) == [page.name for page in sorted(DOCS.glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_options_and_commands_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    known = {option.name for option in OPTIONS}
    assert set(re.findall(r"--fa-([a-z-]*[a-z])", text)) <= known
    assert set(re.findall(r"\b(fa_[a-z_]+) =", text)) <= {option.key for option in OPTIONS}
    plain = set(re.findall(r"(?<![\w-])--(?!fa-)([a-z][a-z-]+)", text))
    if page.parent == DOCS:
        assert plain <= known | set(PYTEST.split())
    commands = set(re.findall(r"(?m)(?:`|^ {4})fadiag ([a-z]+)", text))
    assert commands <= {*make_parser()._subparsers._group_actions[0].choices}  # type: ignore[union-attr,arg-type]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_is_valid_and_imports_what_is_public(page: Path) -> None:
    blocks = BLOCK.findall(page.read_text("utf-8"))
    for tree in (ast.parse(code) for language, code in blocks if language == "python"):
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module == "pytest_fadiag":
                assert {alias.name for alias in node.names} <= set(pytest_fadiag.__all__)


def test_every_name_of_the_reference_exists() -> None:
    page = (DOCS / "api.md").read_text("utf-8")
    named = re.findall(r"^::: pytest_fadiag\.(.*)$", page, re.MULTILINE)
    code = "\n".join(f"pkgutil.resolve_name('pytest_fadiag.{name}')" for name in named)
    done = subprocess.run([sys.executable, "-c", f"import pkgutil\n{code}"], check=False)
    assert named and done.returncode == 0
    public = set(pytest_fadiag.__all__) - {"__version__"}
    assert public <= {name.rpartition(".")[2] for name in named}


def test_the_action_passes_words_and_runs_no_shell(tmp_path: Path) -> None:
    """What a branch name could hold arrives as a word."""
    text = (ROOT / "action.yml").read_text("utf-8")
    runs = re.findall(r"run: >-\n((?: {8}.*\n)+)", text)
    assert len(runs) == 2 and not any("${{" in run or "eval" in run for run in runs)
    (tmp_path / "fadiag").write_text('#!/bin/sh\nfor word; do echo "<$word>"; done\n')
    (tmp_path / "fadiag").chmod(0o755)
    environment = {
        **os.environ,
        "PATH": os.pathsep.join(
            [str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"]]
        ),
        "FADIAG_ARGUMENTS": "runs/*.pt --frozen 'a b.pt' $(touch ran); touch ran `touch ran`",
        "GITHUB_STEP_SUMMARY": "summary $x",
    }
    folded = " ".join(line.strip() for line in runs[1].splitlines())
    done = subprocess.run(
        ["bash", "-c", folded],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "<audit>\n<runs/*.pt>\n<--frozen>\n<a b.pt>\n<$(touch>\n<ran);>\n" in done.stdout
    assert "<--report=markdown:summary $x>" in done.stdout
    assert not (tmp_path / "ran").exists()
