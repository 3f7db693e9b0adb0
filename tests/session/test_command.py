"""``fadiag``: what its words become, and each command once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from builders import exploded, healthy, row
from repo import Repo

from pytest_fadiag import cli
from pytest_fadiag.show.audit import Audit, Outcome
from pytest_fadiag.show.json import json_text


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("a.pt b.pt", "--fa-checkpoint=a.pt --fa-checkpoint=b.pt"),
        ("a.pt --durations 5", "--durations 5 --fa-checkpoint=a.pt"),
        ("--data d.npz a.pt -n 2 -k bp", "--data=d.npz -n 2 -k bp --fa-checkpoint=a.pt"),
        (
            "a.pt --frozen 0.3 --frozen=b=0.2 -q",
            "--frozen=0.3 --frozen=b=0.2 -q --fa-checkpoint=a.pt",
        ),
        ("log.json run.jsonl", "--fa-log=log.json --fa-log=run.jsonl"),
        (
            "--fa-data x.npz runs --rootdir here",
            "--fa-data=x.npz --rootdir here --fa-checkpoint=runs",
        ),
        ("runs/a.pt::frozen-margin", "runs/a.pt::frozen-margin"),
        ("--missing maybe a.pt", "--missing=maybe a.pt"),
    ],
)
def test_words_that_are_not_options_are_the_files(words: str, expected: str) -> None:
    assert cli.words_for_pytest(words.split()) == expected.split()


def test_an_audit_is_a_run_of_pytest_on_these_files_alone(repo: Repo) -> None:
    repo.write("test_own.py", "raise RuntimeError('not imported')\n")
    repo.ini(fa_diagnostics="a")
    words = (
        "audit",
        "runs/dfa_s42.pt",
        "--data",
        "data.npz",
        "--durations",
        "1",
        "--report",
        "json:a.json",
    )
    result = repo.pytester.run(sys.executable, "-m", "pytest_fadiag", *words)
    assert result.ret == pytest.ExitCode.TESTS_FAILED, result.stderr.str()
    result.stdout.fnmatch_lines(["✗ WALK BACK  dfa, *", "*slowest 1 durations*"])
    assert len(json.loads((repo.path / "a.json").read_text())["rows"]) == 1
    assert (
        repo.pytester.run(sys.executable, "-m", "pytest_fadiag", "audit", "gone.pt").ret
        == pytest.ExitCode.USAGE_ERROR
    )


def written(folder: Path, name: str, *rows: Any, **rest: Any) -> str:
    (folder / name).write_text(json_text(Audit(tuple(rows), **rest)))
    return str(folder / name)


def test_show_puts_audits_together_and_exits_as_the_audit_would(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    good, bad = (
        written(tmp_path, "1.json", row(healthy())),
        written(tmp_path, "2.json", row(exploded())),
    )
    assert cli.main(["show", good]) == 0
    assert (
        cli.main(["show", good, bad, "--report", "json:both.json", "--report", "markdown:$UNSET"])
        == 1
    )
    shown = capsys.readouterr().out
    assert (
        "✗ WALK BACK\n  dfa 42 " in shown
        and "json written to" in shown
        and "is not written: the variable is not set" in shown
    )
    assert len(json.loads((tmp_path / "both.json").read_text())["rows"]) == 2
    Path("expected.json").write_text('{"dfa": "abd"}')
    assert cli.main(["show", good, bad, "--expect", "expected.json"]) == 0
    assert (
        cli.main(
            [
                "show",
                good,
                bad,
                "--threshold",
                "h_norm_explosion_ratio=1e9",
                "--expect",
                "expected.json",
            ]
        )
        == 1
    )
    broken = written(tmp_path, "3.json", row(healthy("ep"), outcomes={"a": Outcome.NOT_RUN}))
    assert cli.main(["show", good, broken]) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("show gone.json", "fadiag show: gone.json: cannot be read"),
        ("show 1.json --report pdf", "unknown kind"),
        ("show 1.json --report json:1.json", "would overwrite an audit that is read"),
        ("show part.json", "part"),
        ("diff 1.json gone.json", "fadiag diff: gone.json: cannot be read"),
        ("lint gone.py", "fadiag lint: expected a Python file"),
        ("adit a.pt", "invalid choice: 'adit'"),
        ("verify 1.json --modle a:b", "unrecognized arguments: --modle a:b; did you mean --model?"),
        ("verify 1.json --model-path a:b", "did you mean --model?"),
        ("verify 1.json --threads none", "expected N, not 'none'"),
        ("verify 1.json --loss l1", "expected ce|mse|bce|package.module:function, not 'l1'"),
    ],
)
def test_what_is_wrong_with_a_command_is_exit_code_4(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "1.json", row(healthy()))
    written(tmp_path, "part.json", row(healthy()), shard=(1, 2))
    try:
        code: Any = cli.main(words.split())
    except SystemExit as end:
        code = end.code
    assert (code, message in capsys.readouterr().err) == (4, True)


def test_diff_says_what_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = (
        written(tmp_path, "1.json", row(healthy())),
        written(tmp_path, "2.json", row(exploded("bp"))),
    )
    assert cli.main(["diff", old, old]) == 0
    assert cli.main(["diff", old, new]) == 1
    assert "runs/bp_s42.pt: trustworthy → walk back (a b d)" in capsys.readouterr().out


def test_a_name_with_a_line_break_is_one_line_of_a_diff(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = written(tmp_path, "1.json", row(healthy(), checkpoint="a.pt"))
    new = written(tmp_path, "2.json", row(healthy(), checkpoint="a.pt\nnothing changed"))
    assert cli.main(["diff", old, new]) == 1
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_a_working_folder_that_is_gone_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    audit = written(tmp_path, "1.json", row(healthy()))
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert cli.main(["show", audit]) == 4
    assert capsys.readouterr().err == "fadiag show: [Errno 2] No such file or directory\n"
    command = [sys.executable, "-m", "pytest_fadiag", "demo"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == "fadiag demo: [Errno 2] No such file or directory\n"


def test_verify_and_lint_get_what_was_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(
        "pytest_fadiag.verify.verify", lambda *args, **typed: calls.append((args, typed)) or 0
    )
    monkeypatch.setattr("pytest_fadiag.lint.main", lambda paths: calls.append(paths) or 1)
    words = "verify cert --root a --root b --model m:f --loss mse --frozen 0.3 --unsafe-load"
    assert cli.main(words.split()) == 0 and cli.main(["lint", "src"]) == 1
    (args, typed), paths = calls
    assert args == (Path("cert"), [Path("a"), Path("b")]) and paths == ["src"]
    given = {name: value for name, value in typed.items() if value}
    assert given == {"model": "m:f", "loss": "mse", "frozen": ["0.3"], "unsafe_load": True}


def test_control_writes_the_network_to_train(
    zoo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch

    out = tmp_path / "frozen.pt"
    words = [
        "control",
        str(zoo / "runs" / "bp_s42.pt"),
        "--out",
        str(out),
        "--data",
        str(zoo / "data.npz"),
    ]
    assert cli.main(words) == 0
    content = torch.load(out, weights_only=True)
    assert content["untrained"] is True and all(
        name.startswith("blocks.") for name in content["frozen_parameters"]
    )
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.endswith(f"then audit with --frozen {out}")
    assert cli.main(words) == 4 and "exists already" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["", "audit", "show", "diff", "verify", "lint", "control"])
def test_help_gives_an_example(capsys: pytest.CaptureFixture[str], command: str) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main([*command.split(), "--help"])
    assert end.value.code == 0
    assert (f"example: fadiag {command} " if command else "verify") in " ".join(
        capsys.readouterr().out.split()
    )


def test_python_m_imports_nothing_from_the_working_folder(tmp_path: Path) -> None:
    for name in ("argparse", "msgspec", "torchvision", "numpy", "json"):
        (tmp_path / f"{name}.py").write_text("open('ran', 'w')")
    environment = {**os.environ, "PYTHONPATH": str(Path(cli.__file__).parent.parent)}
    for words in (["show", "gone.json"], ["verify", "gone.json"]):
        done = subprocess.run(
            [sys.executable, "-m", "pytest_fadiag", *words],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 4 and "gone.json: cannot be read" in done.stderr
    assert not (tmp_path / "ran").exists()
