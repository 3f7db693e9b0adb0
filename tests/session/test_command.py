"""``fadiag``: the arguments that reach pytest, and the exit codes that come back."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from repo import Repo

from pytest_fadiag.command import COMMANDS, main, translate
from pytest_fadiag.judge.errors import AuditError
from pytest_fadiag.session.options import spoken


@pytest.fixture
def repo(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> Repo:
    """The repo without plugins of the suite's own, in the processes that the command starts too."""
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:hypothesispytest -p no:randomly -p no:xdist")
    return repo


def as_checkpoint(path: str) -> str:
    return "checkpoint"


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        (["runs/a.pt"], ["--fa-checkpoint=runs/a.pt"]),
        (["a.pt", "--data", "cifar10:data"], ["--fa-checkpoint=a.pt", "--fa-data=cifar10:data"]),
        (["--frozen=0.3", "a.pt", "--no-cache"], ["--fa-frozen=0.3", "--fa-checkpoint=a.pt", "--fa-no-cache"]),
        (["-n", "2", "a.pt", "-k", "dfa", "-q"], ["-n", "2", "--fa-checkpoint=a.pt", "-k", "dfa", "-q"]),
        (["--junitxml=x.xml", "--report", "html:a b.html"], ["--junitxml=x.xml", "--fa-report=html:a b.html"]),
        (["--frozen", "-0.5"], ["--fa-frozen=-0.5"]),
        (["a.pt", "--fa-data", "x.npz", "--fa-no-cache"], ["--fa-checkpoint=a.pt", "--fa-data=x.npz", "--fa-no-cache"]),
    ],
)
def test_files_and_options_become_those_of_the_plugin(words: list[str], arguments: list[str]) -> None:
    assert translate(words, as_checkpoint) == arguments


def test_an_option_without_its_value_is_an_error() -> None:
    with pytest.raises(AuditError, match="--data needs a value: --data SPEC"):
        translate(["a.pt", "--data"], as_checkpoint)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_explains_itself_with_an_example(command: object, capsys: pytest.CaptureFixture[str]) -> None:
    name = command.name  # type: ignore[attr-defined]
    assert main([name, "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"fadiag {name} " in shown and "example:" in shown
    assert "--fa-" not in shown


def test_no_command_and_an_unknown_one_list_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert main(["audti"]) == 4
    out, err = capsys.readouterr()
    assert "  audit " in out and "no command 'audti'" in err and "  audit " in err


def test_nothing_to_audit_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--data", "x"]) == 4
    assert "no file is named" in capsys.readouterr().err


def test_an_audit_has_pytests_exit_codes_and_leaves_the_repos_own_tests_alone(repo: Repo) -> None:
    repo.write("test_own.py", "import nothing_of_this_name\n")

    def fadiag(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pytest_fadiag", *words]
        return subprocess.run(command, cwd=repo.path, capture_output=True, text=True, check=False)

    healthy = fadiag("audit", "runs/bp_s42.pt", "-q")
    assert healthy.returncode == 0, healthy.stdout
    hollow = fadiag("audit", "runs/*.pt", "--report", "json:audit.json")
    assert hollow.returncode == 1
    assert "FA audit" in hollow.stdout
    assert fadiag("merge", "audit.json").returncode == 1
    assert fadiag("audit", "runs/none.pt").returncode == 4


def called(repo: Repo, *words: str) -> str:
    command = [sys.executable, "-m", "pytest_fadiag", *words]
    done = subprocess.run(command, cwd=repo.path, capture_output=True, text=True, check=False)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stdout
    return done.stderr


def test_an_option_that_is_nearly_one_is_named_and_any_error_speaks_of_the_command_that_was_typed(repo: Repo) -> None:
    assert called(repo, "audit", "runs/bp_s42.pt", "--normalise", "none") == (
        "fadiag audit: no option --normalise; did you mean --normalize?\n"
    )
    said = called(repo, "audit", "runs/bp_s42.pt", "--wholly-unknown")
    assert "fadiag audit: error: unrecognized arguments: --wholly-unknown" in said and "pytest [" not in said


def test_messages_name_the_options_as_they_are_typed(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of usage errors, of failures, skips and notes; another word that begins alike stays."""
    results: list[pytest.RunResult] = []
    monkeypatch.setattr(os, "execv", lambda path, command: results.append(repo.run(*command[3:])))
    main(["audit", "runs/bp_s42.pt", "--data", "none.npz"])
    results[-1].stderr.fnmatch_lines(["ERROR: --data: no such file or folder"])
    main(["audit", "runs/bp_s42.pt", "-rs"])
    results[-1].stdout.fnmatch_lines(["SKIPPED * supply one with --frozen=ACCURACY, METHOD=ACCURACY or a control checkpoint"])
    repo.ini()
    main(["audit", "runs/bp_s42.pt"])
    results[-1].stdout.fnmatch_lines(["no test data: add --data=SPEC (or fa_data in the ini file)*"])
    assert not any("--fa-" in text for result in results for text in (result.stdout.str(), result.stderr.str()))
    repo.run("--fa-checkpoint=runs/bp_s42.pt").stdout.fnmatch_lines(["no test data: add --fa-data=SPEC *"])
    assert main(["audit", "runs/bp_s42.pt", "--device", "gpu"]) == main(["control", "none.pt", "--device=x"]) == 4
    assert "fadiag audit: --device: expected auto, cpu" in capsys.readouterr().err
    assert spoken("--fa-data --fa-database --fa-log-batch=3 --fa-logs") == "--data --fa-database --log-batch=3 --fa-logs"


def test_an_option_of_a_conftest_that_is_nearly_one_of_ours_is_left_to_pytest(repo: Repo) -> None:
    repo.write("conftest.py", "def pytest_addoption(parser):\n    parser.addoption('--seed', default='0')\n")
    command = [sys.executable, "-m", "pytest_fadiag", "audit", "runs/bp_s42.pt", "--seed=3", "-q"]
    done = subprocess.run(command, cwd=repo.path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_control_writes_a_network_to_train_whose_blocks_are_named(repo: Repo, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["control", "runs/dfa_s42.pt", "--out", "new/../frozen.pt"]) == 4  # there is no such folder
    assert main(["control", "runs/dfa_s42.pt"]) == 0
    assert "runs/frozen_dfa_s42.pt: all weights drawn anew by seed 42; " in capsys.readouterr().out
    before, made = (torch.load(repo.path / "runs" / name) for name in ("dfa_s42.pt", "frozen_dfa_s42.pt"))
    assert made["config"] == {"method": "dfa", "seed": 42, "frozen": True} and "test_acc" not in made
    assert made["frozen_parameters"] == [name for name in before["state_dict"] if name.startswith("blocks.")]
    assert all(not torch.equal(value, before["state_dict"][name]) for name, value in made["state_dict"].items())


def test_control_takes_its_network_from_the_ini_file_as_an_audit_does(
    repo: Repo, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    made = "from pytest_fadiag import ResidualMLP\nclass Own(ResidualMLP):\n    pass\n"
    repo.write("own_nets.py", f"{made}def build():\n    print('built by the ini file')\n    return Own(20, 16, 4, 5)\n")
    repo.ini(fa_data="data.npz", fa_model="own_nets:build")
    (repo.path / "below").mkdir()
    monkeypatch.chdir(repo.path / "below")
    assert main(["control", "../runs/dfa_s42.pt", "--out", "frozen.pt"]) == 0
    assert "built by the ini file" in capsys.readouterr().out
    assert main(["control", "../runs/dfa_s42.pt", "--out", "other.pt", "--model", "own_nets:biuld"]) == 4
    assert "did you mean 'build'?" in capsys.readouterr().err
    repo.ini(fa_data="data.npz", fa_batches="many")
    assert main(["control", "../runs/dfa_s42.pt", "--out", "other.pt"]) == 4
    assert "fa_batches" in capsys.readouterr().err


def test_control_never_replaces_a_file(repo: Repo, capsys: pytest.CaptureFixture[str]) -> None:
    before = (repo.path / "runs" / "bp_s42.pt").read_bytes()
    assert main(["control", "runs/bp_s42.pt", "--out", "runs/bp_s42.pt"]) == 4
    assert "runs/bp_s42.pt: exists already" in capsys.readouterr().err
    assert (repo.path / "runs" / "bp_s42.pt").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["none.pt"], "none.pt"),
        ([], "required: checkpoint"),
        (["runs/bp_s42.pt", "--sed", "4", "x"], "unknown argument"),
        (["runs/bp_s42.pt", "--seed", "x"], "invalid int value"),
        (["runs/bp_s42.pt", "--stream", "layers.* -> out_ln"], "layers"),
    ],
)
def test_control_says_what_is_wrong(repo: Repo, words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["control", *words]) == 4
    assert said in capsys.readouterr().err


def test_a_control_that_is_not_trained_yet_is_taken_for_none(repo: Repo) -> None:
    assert main(["control", "runs/bp_s42.pt", "--seed", "1", "--data", "data.npz"]) == 0
    result = repo.run("--fa-checkpoint=runs/bp_s42.pt", "--fa-frozen=runs/frozen_bp_s42.pt")
    assert result.parseoutcomes().get("passed") == 3
    result.stdout.fnmatch_lines(["*the control was never trained, as fadiag control wrote it: it is no control*"])
