"""``fadiag``: the arguments that reach pytest, and the exit codes that come back."""

from __future__ import annotations

import subprocess
import sys

import pytest
from repo import Repo

from pytest_fadiag.command import COMMANDS, main, translate
from pytest_fadiag.judge.errors import AuditError


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
        command = [sys.executable, "-m", "pytest_fadiag", *words, "-p", "no:cacheprovider"]
        return subprocess.run(command, cwd=repo.path, capture_output=True, text=True, check=False)

    healthy = fadiag("audit", "runs/bp_s42.pt", "-q")
    assert healthy.returncode == 0, healthy.stdout
    hollow = fadiag("audit", "runs/*.pt", "--report", "json:audit.json")
    assert hollow.returncode == 1
    assert "FA audit" in hollow.stdout
    assert fadiag("merge", "audit.json").returncode == 1
    assert fadiag("audit", "runs/none.pt").returncode == 4
