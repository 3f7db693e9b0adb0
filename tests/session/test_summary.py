"""What a run tells while it measures."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

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
