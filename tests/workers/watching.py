"""A plugin for runs of their own: counts measurements, kills a worker, is slow, and notes what a
process saw.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

WORKER = os.environ.get("PYTEST_XDIST_WORKER")


def pytest_configure(config: pytest.Config) -> None:
    if not (WORKER and os.environ.get("COUNTED")):
        return
    from pytest_fadiag.auditor import Auditor

    original: Any = Auditor._measure

    def measure(self: Auditor, path: Path, *rest: Any) -> Any:
        with open(f"measured-{os.getpid()}.txt", "a") as file:
            file.write(f"{path.name}\n")
        return original(self, path, *rest)

    Auditor._measure = measure  # type: ignore[method-assign]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    if WORKER and item.nodeid == os.environ.get("KILLED"):
        os.kill(os.getpid(), 9)


def pytest_runtest_teardown() -> None:
    time.sleep(float(os.environ.get("SLOW", "0")))


def pytest_sessionfinish(session: pytest.Session) -> None:
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    (session.config.rootpath / f"seen-{WORKER or 'controller'}.txt").write_text(gpu)
