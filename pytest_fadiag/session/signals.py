"""The word to stop: SIGTERM, as Slurm and CI runners say it, ends a run as Ctrl-C does, with its table and its files."""

from __future__ import annotations

import signal
import threading
from typing import Any

import pytest

TERMINATED = "SIGTERM"


class Signals:
    """Turns SIGTERM into an interrupt while tests run, and lets the end of a run finish what it writes."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        in_main = threading.current_thread() is threading.main_thread()
        self.armed = in_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        if self.armed:
            signal.signal(signal.SIGTERM, self.terminate)
            config.add_cleanup(_disarm)

    def terminate(self, number: int, frame: Any) -> None:
        """Interrupt once; what follows is already the end."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt(TERMINATED)

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """End the workers at once: they would first finish what they measure, and a killed job does not wait for them."""
        # Where it came between two lines, pytest would fail to show the traceback, and end as if nothing had happened.
        excinfo.traceback = excinfo.traceback.filter(_has_line)
        dsession = self.config.pluginmanager.getplugin("dsession")
        group = getattr(getattr(dsession, "nodemanager", None), "group", ())
        for gateway in list(group):
            process = getattr(getattr(gateway, "_io", None), "popen", None)
            if process is not None and process.poll() is None:
                process.terminate()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """From here on the files are written, each whole."""
        if self.armed:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _has_line(entry: Any) -> bool:
    """Whether Python knows the line of a traceback's entry: not where a signal comes before the first one of a function."""
    try:
        return isinstance(entry.lineno, int)
    except TypeError:
        return False


def _disarm() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
