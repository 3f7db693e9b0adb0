"""The pitfalls linter: what it finds in code that commits a pitfall, what it leaves alone, what it says of bad input.

Lines of the samples that must be found end in ``# ← number``; no other line may be.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_fadiag import AuditError
from pytest_fadiag.judge.pitfalls import PITFALLS
from pytest_fadiag.lint import Pitfall, scan
from pytest_fadiag.lint.registry import CHECKS

SAMPLES = Path(__file__).with_name("samples")
ARROW = "# ←"
TORCH = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n"
SLIP = "x = hidden.norm(-1)"


def found(code: str, tmp_path: Path) -> list[Pitfall]:
    path = tmp_path / "sample.py"
    path.write_text(code, "utf-8")
    result = scan(path)
    assert result.problems == []
    return result.findings


def numbers(code: str, tmp_path: Path) -> list[int]:
    return [finding.number for finding in found(TORCH + code, tmp_path)]


def marked(path: Path) -> list[tuple[int, int]]:
    """The (number, line) pairs that a sample says are in it."""
    lines = enumerate(path.read_text("utf-8").splitlines(), 1)
    return [(int(text.partition(ARROW)[2]), line) for line, text in lines if ARROW in text]


# --- the samples -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sample", sorted(SAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_a_sample_has_exactly_the_findings_it_marks(sample: Path) -> None:
    assert [(finding.number, finding.line) for finding in scan(sample).findings] == marked(sample)


@pytest.mark.parametrize("number", PITFALLS)
def test_each_pitfall_has_a_sample_that_commits_it_and_one_that_only_looks_like_it(number: int) -> None:
    commits = list(SAMPLES.glob(f"commits_{number}_*.py"))
    looks_like = list(SAMPLES.glob(f"looks_like_{number}_*.py"))
    assert commits and looks_like
    assert {found for sample in commits for found, _ in marked(sample)} == {number}
    assert [mark for sample in looks_like for mark in marked(sample)] == []


def test_a_finding_says_where_what_and_what_instead() -> None:
    first = scan(SAMPLES).findings[0]
    assert (first.file, first.number, first.title) == ("commits_1_norm_order.py", 1, PITFALLS[1].title)
    assert first.code.startswith("resid = hidden.norm(-1).mean()")
    assert first.code[first.column - 5 :].startswith("hidden.norm(-1)")
    assert "L₋₁ norm of the whole tensor" in first.message
    assert first.fix == "write `hidden.norm(dim=-1)`"
    assert first.silenced is None


def test_every_pitfall_of_the_checklist_has_a_check() -> None:
    assert list(PITFALLS) == list(CHECKS) == list(range(1, len(CHECKS) + 1))


def test_every_fix_that_shows_code_shows_valid_code() -> None:
    fixes = [finding.fix for finding in scan(SAMPLES).findings if finding.number == 1 and "`" in finding.fix]
    assert fixes
    for fix in fixes:
        ast.parse(fix.split("`")[1])


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        "import torch as t\nt.linalg.vector_norm(x, -1)",
        "import torch.linalg\ntorch.linalg.norm(x, ord=-1)",
        "import torch.linalg as LA\nLA.norm(x, -1)",
        "from torch import norm as size\nsize(x, -1)",
        "from torch.nn.functional import normalize\nnormalize(x, -1)",
        "from torch.nn import functional\nfunctional.normalize(x, p=-1)",
        "import numpy\nnumpy.linalg.norm(x, -1)",
        "from numpy import linalg\nlinalg.norm(x, ord=-1)",
        "from numpy.linalg import norm\nnorm(x, -1)",
        "from everything import *\ntorch.norm(x, -1) + F.normalize(x)",
        "def f(x):\n    import torch as local\n    return local.norm(x, -1)",
        "try:\n    from torch.linalg import norm\nexcept ImportError:\n    from torch import norm\nnorm(x, -1)",
    ],
)
def test_an_import_under_another_name_is_followed(code: str, tmp_path: Path) -> None:
    assert [finding.number for finding in found(code, tmp_path)] == [1]


@pytest.mark.parametrize(
    "code",
    [
        "from mine import norm\nnorm(x, -1)",
        "import quaternions\nquaternions.norm(-1)",
        "from torch import norm\ndef f(norm):\n    return norm(x, -1)",
        "import torch\ndef f(torch):\n    return torch.norm(x, -1)",
        "def norm(x, p): ...\nnorm(x, -1)",
        "x.norm(*args)\nx.norm(**options)",
    ],
)
def test_another_norm_is_left_alone(code: str, tmp_path: Path) -> None:
    assert found(code, tmp_path) == []


def test_a_name_has_the_value_it_had_last(tmp_path: Path) -> None:
    code = (
        "v = p.grad\nv = embed(x)\nF.cosine_similarity(v, w)\nv = p.grad\nif x:\n    v = embed(x)\nF.cosine_similarity(v, w)\n"
    )
    assert [finding.line for finding in found(TORCH + code, tmp_path)] == [10]


def test_a_name_that_stands_for_itself_ends(tmp_path: Path) -> None:
    code = (
        "a = b\nb = a\nfor c in c:\n    c.append(c)\nd = [d for d in d]\nF.cosine_similarity(b, c + d)\ntorch.stack(c).mean()\n"
    )
    assert numbers(code, tmp_path) == []


# --- silencing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        f"{SLIP}  # fadiag: ok the L₋₁ norm is meant",
        f"{SLIP}  # noqa: E501  # fadiag: ok the L₋₁ norm is meant",
        f"{SLIP}  # fadiag: ok: the L₋₁ norm is meant  # noqa: E501",
        f"{SLIP}  #fadiag:ok - the L₋₁ norm is meant",
        "x = f(  # fadiag: ok the L₋₁ norm is meant\n    hidden.norm(-1),\n)",
        "x = f(\n    hidden.norm(-1),\n    y,  # fadiag: ok the L₋₁ norm is meant\n)",
        "if hidden.norm(-1) > 0:  # fadiag: ok the L₋₁ norm is meant\n    pass",
        "while (  # fadiag: ok the L₋₁ norm is meant\n    hidden.norm(-1) > 0\n):\n    pass",
    ],
)
def test_a_reason_on_any_line_of_the_statement_silences(code: str, tmp_path: Path) -> None:
    (finding,) = found(code, tmp_path)
    assert finding.silenced == "the L₋₁ norm is meant"
    assert "reason" not in finding.message


@pytest.mark.parametrize("comment", ["# fadiag: ok", "# fadiag: ok.", "# fadiag: ok  # noqa"])
def test_without_a_reason_nothing_is_silenced_and_the_message_asks_for_one(comment: str, tmp_path: Path) -> None:
    (finding,) = found(f"{SLIP}  {comment}", tmp_path)
    assert finding.silenced is None
    assert "only with a reason" in finding.message


@pytest.mark.parametrize(
    "code",
    [
        f"# fadiag: ok said too early\n{SLIP}",
        f"{SLIP}  # fadiag: okay then",
        f'{SLIP}, "# fadiag: ok in a string"',
        f"def f():  # fadiag: ok a whole function\n    {SLIP}",
        "if hidden.norm(-1) > 0:\n    pass  # fadiag: ok in the body",
    ],
)
def test_a_comment_elsewhere_does_not_silence(code: str, tmp_path: Path) -> None:
    (finding,) = found(code, tmp_path)
    assert finding.silenced is None
    assert "reason" not in finding.message


def test_a_reason_silences_every_finding_of_its_statement(tmp_path: Path) -> None:
    code = "flat = torch.cat([p.grad.flatten() for p in params])\nF.cosine_similarity(flat, flat2)  # fadiag: ok a loss\n"
    findings = found(TORCH + code, tmp_path)
    assert [(finding.number, finding.silenced) for finding in findings] == [(2, "a loss"), (5, "a loss")]


def test_an_autocast_is_silenced_at_its_head(tmp_path: Path) -> None:
    code = "with torch.autocast('cuda'):  # fadiag: ok {}\n    n = p.grad.norm()  # fadiag: ok\n"
    assert [finding.silenced for finding in found(TORCH + code.format("no CUDA here"), tmp_path)] == ["no CUDA here"]
    assert [finding.silenced for finding in found(TORCH + code.format(""), tmp_path)] == [None]


# --- folders and files -----------------------------------------------------------------------------------------------


def put(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SLIP + "\n", "utf-8")


def test_a_folder_is_read_with_all_below_it_in_order(tmp_path: Path) -> None:
    put(tmp_path, "z.py", "a/b/c.py", "a/a.py", "notes.txt", "a/data.ipynb")
    result = scan(tmp_path)
    assert sorted(result.files) == result.files == ["a/a.py", "a/b/c.py", "z.py"]
    assert [finding.file for finding in result.findings] == result.files


def test_a_linked_folder_is_read_once_and_a_circle_of_links_ends(tmp_path: Path) -> None:
    put(tmp_path, "elsewhere/evaluate.py", "src/own.py", "src/real/a.py")
    (tmp_path / "src" / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "src" / "again").symlink_to(tmp_path / "src" / "real")
    (tmp_path / "elsewhere" / "back").symlink_to(tmp_path / "src")
    assert scan(tmp_path / "src").files == ["linked/evaluate.py", "own.py", "real/a.py"]


def test_notebooks_are_counted_and_not_read(tmp_path: Path) -> None:
    put(tmp_path, "own.py", "a.ipynb", "more/b.ipynb")
    result = scan(tmp_path)
    assert (result.files, result.notebooks) == (["own.py"], 2)


def test_what_is_not_the_authors_code_is_passed_over(tmp_path: Path) -> None:
    put(
        tmp_path, "own.py", ".git/a.py", "__pycache__/b.py", "env/lib/c.py", "lib/site-packages/d.py", "build/e.py", "dist/f.py"
    )
    put(tmp_path, "node_modules/g.py", "x.egg-info/h.py", "builder/kept.py")
    (tmp_path / "env" / "pyvenv.cfg").touch()
    assert scan(tmp_path).files == ["builder/kept.py", "own.py"]


def test_a_folder_given_by_name_is_read_wherever_it_lies(tmp_path: Path) -> None:
    put(tmp_path, "lib/site-packages/torchlike/a.py", ".hidden/b.py")
    assert scan(tmp_path / "lib" / "site-packages" / "torchlike").files == ["a.py"]
    assert scan(tmp_path / ".hidden").files == ["b.py"]


def test_a_file_is_named_as_it_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "eval/a.py")
    monkeypatch.chdir(tmp_path)
    assert scan(Path("eval/a.py")).files == ["eval/a.py"]


def test_columns_count_characters_and_lines_count_as_editors_do(tmp_path: Path) -> None:
    (finding,) = found('"""Ö\x0cÖ"""\n"‖h‖", h.norm(-1)\n', tmp_path)
    assert (finding.line, finding.column, finding.code) == (2, 8, '"‖h‖", h.norm(-1)')


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("syntax.py", b"x = (1,\n", "is not valid Python on line 1"),
        ("python2.py", b"print 'x'\n", "is not valid Python on line 1"),
        ("latin.py", "# naïve\nx = 1\n".encode("latin-1"), "is in no encoding"),
        ("cookie.py", b"# coding: klingon\n", "is in no encoding"),
        ("null.py", b"x = 1\0\n", "holds a null byte"),
        ("deep.py", b"x = " + b"(" * 5000 + b")" * 5000 + b"\n", ""),
        ("unary.py", b"x = " + b"-" * 20000 + b"1\n", ""),
    ],
)
def test_a_file_that_cannot_be_read_is_a_problem_and_the_others_are_still_read(
    name: str, content: bytes, reason: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    put(tmp_path, "a.py", "z.py")
    result = scan(tmp_path)
    assert result.files == ["a.py", "z.py"]
    assert [finding.file for finding in result.findings] == ["a.py", "z.py"]
    (problem,) = result.problems
    assert problem.startswith(f"{name}: ")
    assert reason in problem


def test_a_chain_deeper_than_the_stack_is_read_or_told(tmp_path: Path) -> None:
    total = " + ".join(["p.grad"] * 3000)
    (tmp_path / "long.py").write_text(f"{TORCH}F.cosine_similarity({total}, x)\n")
    put(tmp_path, "a.py")
    result = scan(tmp_path)
    assert "a.py" in result.files
    assert "long.py" in result.files or result.problems[0].startswith("long.py: is nested too deeply")


def test_a_latin_1_file_that_says_so_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"# -*- coding: latin-1 -*-\n" + f"{SLIP}  # fadiag: ok naïve\n".encode("latin-1"))
    (tmp_path / "bom.py").write_bytes(b"\xef\xbb\xbf" + SLIP.encode())
    result = scan(tmp_path)
    assert [finding.silenced for finding in result.findings] == ["naïve", None]


def test_a_link_to_nothing_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere.py")
    put(tmp_path, "a.py")
    result = scan(tmp_path)
    assert result.files == ["a.py"]
    assert result.problems == ["gone.py: cannot be read: No such file or directory"]


def test_a_file_that_may_not_be_read_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    put(tmp_path, "a.py")
    monkeypatch.setattr("tokenize.open", refuse)
    assert scan(tmp_path).problems == ["a.py: cannot be read: Permission denied"]


def test_warnings_of_the_scanned_code_stay_silent(tmp_path: Path) -> None:
    assert found('x = "\\d"\ny = x is 1\n', tmp_path) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("missing", "does not exist"),
        ("empty", "no Python file"),
        ("notes.txt", "reads Python files"),
        ("only/hidden", "no Python file"),
    ],
)
def test_a_path_without_python_is_an_error_that_says_what_to_do(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("x.norm(-1)")
    put(tmp_path, "only/hidden/.secret/a.py")
    with pytest.raises(AuditError, match=text) as raised:
        scan(tmp_path / name)
    lines = str(raised.value).splitlines()
    assert lines[1].strip() == str(tmp_path / name)
    assert "give" in lines[2]


def test_an_empty_file_has_no_findings(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").touch()
    result = scan(tmp_path)
    assert (result.findings, result.files, result.problems) == ([], ["__init__.py"], [])


# --- the package -----------------------------------------------------------------------------------------------------


def test_importing_and_scanning_needs_neither_torch_nor_numpy() -> None:
    code = (
        "import sys; from pathlib import Path; from pytest_fadiag.lint import scan; "
        "assert scan(Path(sys.argv[1])).findings; print([name for name in ('torch', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(SAMPLES)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_this_package_commits_none_of_them() -> None:
    package = Path(__file__).parents[2] / "pytest_fadiag"
    result = scan(package)
    assert (result.findings, result.problems) == ([], [])
    assert len(result.files) > 50
