"""What a run tells while it measures."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from repo import Repo

from pytest_fadiag.session import summary


def test_a_measurement_of_more_than_5_s_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    @contextmanager
    def disabled() -> Any:
        said.append("(")
        yield
        said.append(")")

    plugins = {
        "terminalreporter": SimpleNamespace(write_line=said.append),
        "capturemanager": SimpleNamespace(global_and_fixture_disabled=disabled),
    }
    config: Any = SimpleNamespace(pluginmanager=SimpleNamespace(getplugin=plugins.get))
    times = iter([100.0, 104.9, 105.1, 109.0, 110.3, 120.0])
    monkeypatch.setattr("time.monotonic", lambda: next(times))
    tell = summary.progress(config, "dfa\x1b.pt")
    for done in range(1, 6):
        tell(1_000 * done, 5_000)
    assert said == [
        *("(", "measuring dfa\\x1b.pt: 2,000 of 5,000 samples, 5 s", ")"),
        *("(", "measuring dfa\\x1b.pt: 4,000 of 5,000 samples, 10 s", ")"),
    ]


def test_without_a_terminal_nothing_is_told() -> None:
    config: Any = SimpleNamespace(pluginmanager=SimpleNamespace(getplugin=lambda name: None))
    tell = summary.progress(config, "dfa.pt")
    tell(1, 2)


@pytest.mark.parametrize("hook", ["sessionstart(session)", "collection(session)"])
def test_a_run_that_ends_before_its_first_test_shows_and_writes_what_was_planned(
    repo: Repo, hook: str
) -> None:
    kill = "import os, signal\n    os.kill(os.getpid(), signal.SIGTERM)"
    (repo.path / "conftest.py").write_text(f"def pytest_{hook}:\n    {kill}\n")
    document = repo.audit("--fa-checkpoint=runs", run=repo.spawn)
    assert repo.result.ret == pytest.ExitCode.INTERRUPTED
    repo.result.stdout.fnmatch_lines(["FA audit: interrupted: 3 checkpoints*"])
    outcomes = {outcome for row in document["rows"] for outcome in row["outcomes"].values()}
    assert document["interrupted"] and outcomes == {"not run"} and len(document["rows"]) == 3
