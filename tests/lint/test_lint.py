"""``fadiag lint``: what it finds in code that makes a mistake, what it leaves alone, bad input.

Lines of the samples that must be found end in ``# ← number``; no other line may be. The mistakes in
``missed.py`` need more than local evidence, and are not found.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_fadiag import lint
from pytest_fadiag.judge.errors import AuditError

SAMPLES = Path(__file__).with_name("samples")
TORCH = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n"
SLIP = "x = hidden.norm(-1)"


def codes(code: str) -> list[str]:
    return [text[:3] for _, _, text in lint.check(ast.parse(code), code)]


@pytest.mark.parametrize("sample", sorted(SAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_a_sample_has_exactly_the_findings_it_marks(sample: Path) -> None:
    lines = enumerate(sample.read_text("utf-8").splitlines(), 1)
    marked = [
        (line, f"FA{number}") for line, text in lines for number in text.partition("# ←")[2].split()
    ]
    assert [(line, text[:3]) for line, _, text in lint.check_file(sample)] == marked


@pytest.mark.parametrize("number", "123456")
def test_each_mistake_has_a_sample_and_a_lookalike(number: str) -> None:
    commits, looks = (
        list(SAMPLES.glob(f"{kind}_{number}_*.py")) for kind in ("commits", "looks_like")
    )
    found = {text[2] for sample in commits for *_, text in lint.check_file(sample)}
    assert looks and found == {number}


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import torch as t\nt.linalg.vector_norm(x, -1)", ["FA1"]),
        ("import torch.linalg as LA\nLA.norm(x, -1)", ["FA1"]),
        ("from torch.nn.functional import normalize\nnormalize(x, p=-1)", ["FA1"]),
        ("from numpy import linalg\nlinalg.norm(x, ord=-1)", ["FA1"]),
        ("def f(x):\n    import torch as local\n    return local.norm(x, -1)", ["FA1"]),
        ("from mine import norm\nnorm(x, -1)", []),
        ("import quaternions\nquaternions.norm(-1)", []),
        ("def norm(x, p): ...\nnorm(x, -1)", []),
        ("import torch\ntorch = mine\ntorch.norm(x, -1)", []),
        ("x.norm(*args)\nx.norm(**options)\nnorm()", []),
        (f"{TORCH}v = p.grad\nv = embed(x)\nF.cosine_similarity(v, w)", []),
        (f"{TORCH}v = embed(x)\nv = p.grad\nF.cosine_similarity(v, w)", ["FA2"]),
        (f"{TORCH}F.cosine_similarity(p.grad, w, eps=None)", []),
        (f"{TORCH}a = b\nb = a\nfor c in c:\n    c.append(c)\nF.cosine_similarity(b, c)", []),
    ],
)
def test_names_are_followed_within_a_function(code: str, found: list[str]) -> None:
    assert codes(code) == found


@pytest.mark.parametrize(
    ("code", "silenced"),
    [
        (f"{SLIP}  # noqa", True),
        (f"{SLIP}  # noqa: FA1", True),
        (f"{SLIP}  # noqa: E501, FA1", True),
        (f"{SLIP}  # noqa: FA2", False),
        (f"# noqa: FA1\n{SLIP}", False),
        ("x = hidden.norm(\n    -1,  # noqa: FA1\n)", True),
        ("if hidden.norm(-1) > 0:\n    pass  # noqa: FA1", False),
        (f"def f():  # noqa: FA1\n    {SLIP}", False),
    ],
)
def test_a_comment_on_the_expression_silences(code: str, silenced: bool) -> None:
    assert codes(code) == ([] if silenced else ["FA1"])


def test_main_prints_path_line_column_and_fix(capsys: pytest.CaptureFixture[str]) -> None:
    path = SAMPLES / "commits_1_norm_order.py"
    assert lint.main([str(path)]) == 1
    out, err = capsys.readouterr()
    place = r"commits_1_norm_order.py:\d+:13: FA1 -1 is the order .*; write dim=-1"
    assert re.search(place, out.splitlines()[0])
    assert err.endswith("findings in 1 Python files\n")


def test_clean_code_exits_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "__init__.py").touch()
    (tmp_path / "warns.py").write_text('x = "\\d"\ny = x is 1\n')
    assert lint.main([str(tmp_path)]) == 0
    assert capsys.readouterr() == ("", "0 findings in 2 Python files\n")


@pytest.mark.parametrize(
    "content",
    [
        b"x = (1,\n",
        b"print 'x'\n",
        "# naïve\n".encode("latin-1"),
        b"# coding: klingon\n",
        b"# coding: base64_codec\nx = 1\n",
        b"# coding: rot13\nx = 1\n",
        b"x = 1\0\n",
        b"x = " + b"(" * 5000 + b")" * 5000,
        b"x = " + b"-" * 20000 + b"1\n",
        b"import torch.nn.functional as F\nF.cosine_similarity("
        + b" + ".join([b"p.grad"] * 3000)
        + b", x)",
        None,
    ],
)
def test_a_file_that_cannot_be_read_is_one_line_and_the_others_are_read(
    content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = tmp_path / "odd.py"
    if content is None:
        odd.symlink_to(tmp_path / "nowhere.py")
    else:
        odd.write_bytes(content)
    (tmp_path / "z.py").write_text(SLIP)
    assert lint.main([str(tmp_path)]) == 1
    first, *_, last = capsys.readouterr().out.splitlines()
    assert re.search(r"odd\.py:\d+:\d+: FA[02] ", first)
    assert "z.py:1:5: FA1" in last


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_a_pipe_or_a_device_in_a_folder_is_not_opened(
    make: Callable[[Path], Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path / "odd.py")
    assert lint.main([str(tmp_path)]) == 1
    assert "odd.py:1:1: FA0 cannot be read as Python" in capsys.readouterr().out


def test_a_latin_1_file_that_says_so_is_read(tmp_path: Path) -> None:
    text = '# coding: latin-1\n"""Ö\x0cÖ"""\n"ü", h.norm(-1)\n'
    (tmp_path / "a.py").write_bytes(text.encode("latin-1"))
    assert [found[:2] for found in lint.check_file(tmp_path / "a.py")] == [(3, 7)]


def test_only_the_authors_code_is_read(tmp_path: Path) -> None:
    for name in (
        *(
            "own.py",
            "builder/kept.py",
            ".git/a.py",
            "__pycache__/b.py",
            "env/lib/c.py",
            "build/d.py",
        ),
        *(
            "lib/site-packages/e.py",
            "dist/f.py",
            "node_modules/g.py",
            "notes.txt",
        ),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(SLIP)
    (tmp_path / "env/pyvenv.cfg").touch()
    (tmp_path / "linked").symlink_to(tmp_path)
    found = [path.relative_to(tmp_path).as_posix() for path in lint.python_files(tmp_path)]
    assert found == ["own.py", "builder/kept.py"]


@pytest.mark.parametrize("name", ["missing", "empty", "empty\x1b[31m"])
def test_a_path_without_python_is_an_error(name: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        AuditError, match="expected a Python file, or a folder of them, but got"
    ) as raised:
        lint.main([str(tmp_path / name)])
    assert "\x1b" not in str(raised.value)


def test_flake8_gets_the_same_findings() -> None:
    code = f"{TORCH}{SLIP}\n"
    (found,) = lint.Flake8(ast.parse(code), code.splitlines(keepends=True)).run()
    assert found[:2] == (4, 4) and found[2].startswith("FA1 ")


def test_it_needs_neither_torch_nor_numpy() -> None:
    code = (
        "import sys; from pytest_fadiag.lint import main; main(sys.argv[1:]); "
        "print([name for name in ('torch', 'numpy', 'pytest') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(SAMPLES)], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_this_package_makes_none_of_these_mistakes(capsys: pytest.CaptureFixture[str]) -> None:
    package = Path(lint.__file__).parent
    assert lint.main([str(package)]) == 0, capsys.readouterr().out
