"""What a run tells while it measures."""

from __future__ import annotations

import io
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from repo import Repo

from pytest_fadiag.progress import Line
from pytest_fadiag.session.summary import Summary


def summary(reporter: Any, *, is_command: bool, line: Any = None) -> Any:
    """A summary of a run of two networks, of which one is done."""

    @contextmanager
    def disabled() -> Any:
        yield

    plugins = {
        "terminalreporter": reporter,
        "capturemanager": SimpleNamespace(global_and_fixture_disabled=disabled),
    }
    return SimpleNamespace(
        config=SimpleNamespace(pluginmanager=SimpleNamespace(getplugin=plugins.get)),
        run=SimpleNamespace(plan=SimpleNamespace(jobs=["a", "b"])),
        rows=[SimpleNamespace(checkpoint="a")],
        is_command=is_command,
        line=line,
    )


def test_lines_between_those_of_pytest_are_ever_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    reporter = SimpleNamespace(write_line=lines.append, isatty=lambda: True)
    times = iter([100.0, 101.9, 102.1, 103.0, 104.3, 107.0])
    monkeypatch.setattr("time.monotonic", lambda: next(times))
    tell = Summary.progress(summary(reporter, is_command=False), "dfa\x1b.pt")
    for done in range(1, 6):
        tell("samples", 1_000 * done, 5_000)
    assert lines == [
        "measuring dfa\\x1b.pt: samples, 2,000 of 5,000, 2 s",
        "measuring dfa\\x1b.pt: samples, 4,000 of 5,000, 4 s",
    ]


def test_the_command_rewrites_one_line_of_a_terminal_and_clears_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = io.StringIO()
    line = Line(file)
    line.clear()
    assert file.getvalue() == "", "nothing was written"
    times = iter([99.0, 100.0, 100.2, 167.0])
    monkeypatch.setattr("time.monotonic", lambda: next(times))
    reporter = SimpleNamespace(isatty=lambda: True)
    tell = Summary.progress(summary(reporter, is_command=True, line=line), "b.pt")
    tell("samples", 50, 100)
    tell("depth", 1, 4)
    line.clear()
    assert file.getvalue().split("\r\x1b[2K") == [
        "",
        "b.pt  2/2  samples      #####-----  0:00",
        "b.pt  2/2  depth        ##--------  1:07",
        "",
    ]


def test_without_a_terminal_nothing_is_told() -> None:
    tell = Summary.progress(summary(None, is_command=True), "dfa.pt")
    tell("samples", 1, 2)


@pytest.mark.parametrize("hook", ["sessionstart(session)", "collection(session)"])
def test_a_run_that_ends_before_its_first_test_shows_and_writes_what_was_planned(
    repo: Repo, hook: str
) -> None:
    kill = "import os, signal\n    os.kill(os.getpid(), signal.SIGTERM)"
    (repo.path / "conftest.py").write_text(f"def pytest_{hook}:\n    {kill}\n")
    document = repo.audit("--fa-checkpoint=runs", run=repo.spawn)
    assert repo.result.ret == pytest.ExitCode.INTERRUPTED
    repo.result.stdout.fnmatch_lines(["interrupted: 3 checkpoints*"])
    outcomes = {outcome for row in document["rows"] for outcome in row["outcomes"].values()}
    assert document["interrupted"] and outcomes == {"not run"} and len(document["rows"]) == 3
