"""Six seeds of one small method, and a conftest that can kill a worker, count measurements and note what a process saw."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SEEDS = range(6)
TESTS = 4 * len(SEEDS) + 1
"""Four diagnostics of each checkpoint, and the margin of the method over its seeds."""

# Without hypothesis, whose import costs each process more than everything else here; the others are switched on where a test
# is about them, for a suite has them installed beside it or not.
INI = """[pytest]
addopts = -p no:hypothesispytest -p no:randomly -p no:rerunfailures -p no:timeout
fa_data = data.npz
fa_checkpoint = runs
fa_frozen = 0.5
fa_threshold = margin_pp=-100
fa_device = cpu
"""

CONFTEST = """
import os, pathlib, sys, pytest
KILLS = [kill.split(" ", 1) for kill in os.environ.get("KILLS", "").split(",") if kill]
MOMENTS = [moment for moment, _ in KILLS]
WORKER = os.environ.get("PYTEST_XDIST_WORKER")
CURRENT = ""

def die(moment, name):
    if WORKER and any(when == moment and who in name for when, who in KILLS):
        if moment == "exit":
            os._exit(0)
        os.kill(os.getpid(), 9)

def pytest_configure(config):
    if WORKER and ("measure" in MOMENTS or os.environ.get("COUNT")):
        watch()
    elif os.environ.get("COUNT") and not config.getoption("numprocesses", None) and not config.getoption("tx", None):
        watch()
    if "judge" in MOMENTS:
        import pytest_fadiag.session.seeds as module
        original = module.check
        module.check = lambda *args: (die("judge", CURRENT), original(*args))

def watch():
    from pytest_fadiag.workshop import Workshop
    original = Workshop.observe
    def observe(self, network, batches, observers, progress, *others):
        if any(observer.name == "accuracy" for observer in observers):
            with open(f"measured-{os.getpid()}.txt", "a") as file:
                file.write(CURRENT + "\\n")
        told = lambda done, total: (die("measure", CURRENT), progress(done, total))
        return original(self, network, batches, observers, told, *others)
    Workshop.observe = observe

def pytest_collection_modifyitems():
    die("collection", WORKER or "")

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    global CURRENT
    CURRENT = item.nodeid
    die("setup", item.nodeid)

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item):
    die("call", item.nodeid)
    die("exit", item.nodeid)

def pytest_runtest_logfinish(nodeid):
    die("finish", nodeid)  # all its reports are sent

@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session):
    for plugin in session.config.pluginmanager.get_plugins() if "between" in MOMENTS else ():
        if hasattr(plugin, "run_one_test"):
            def sendevent(name, plugin=plugin, send=plugin.sendevent, **values):
                send(name, **values)
                if name == "runtest_protocol_complete":
                    die("between", session.items[values["item_index"]].nodeid)  # the controller knows that it is done
            plugin.sendevent = sendevent

def pytest_sessionfinish(session):
    seen = os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("OMP_NUM_THREADS"), "torch" in sys.modules
    folder = pathlib.Path(session.config.rootpath, "seen")
    folder.mkdir(exist_ok=True)
    (folder / (WORKER or "controller")).write_text(repr(seen))
"""


def make_repo(root: Path) -> Path:
    """Write the repo and measure everything once: with a warm cache workers need no torch, and a run takes a second.

    That run leaves its audit.json, and the count of what it measured.
    """
    import numpy as np
    import torch
    from support import clustered, network

    x, y = clustered(300)
    np.savez(root / "data.npz", x=x.numpy(), y=y.numpy())
    (root / "runs").mkdir()
    for seed in SEEDS:
        saved = {"state_dict": network(seed=seed).state_dict(), "config": {"method": "net", "seed": seed}}
        torch.save(saved, root / "runs" / f"net_s{seed}.pt")
    (root / "pytest.ini").write_text(INI)
    (root / "conftest.py").write_text(CONFTEST)
    run(root, "-q", "-p", "no:xdist", "--fa-report=json:audit.json", env={"COUNT": "1"}).check_returncode()
    return root


def forget(root: Path) -> None:
    """Start without anything measured before."""
    shutil.rmtree(root / ".pytest_cache", ignore_errors=True)
    for file in root.glob("measured-*.txt"):
        file.unlink()


def measurements(root: Path) -> int:
    """How many times something was measured since :func:`forget`, in all processes."""
    return sum(len(file.read_text().splitlines()) for file in root.glob("measured-*.txt"))


def run(root: Path, *args: str, env: Mapping[str, str] | None = None, timeout: float = 240) -> subprocess.CompletedProcess[str]:
    """Pytest in a process of its own, in an environment that says nothing of GPUs and workers but what is given."""
    silent = ("CUDA_VISIBLE_DEVICES", "PYTEST_XDIST_AUTO_NUM_WORKERS", "PYTEST_XDIST_WORKER", "PYTEST_ADDOPTS", "CI", "KILLS")
    environment = {name: value for name, value in os.environ.items() if name not in silent}
    command = [sys.executable, "-m", "pytest", "--color=no", *args]
    return subprocess.run(
        command,
        cwd=root,
        env={**environment, "COLUMNS": "120", **(env or {})},
        timeout=timeout,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )


class WorkerRepo:
    """A copy of the repo, and pytest called in it; what the last run showed is kept."""

    def __init__(self, path: Path) -> None:
        self.path, self.shown = path, ""

    def run(self, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Pytest in a process of its own; keywords are its environment."""
        shutil.rmtree(self.path / "seen", ignore_errors=True)
        completed = run(self.path, *args, env=env)
        self.shown = completed.stdout
        return completed

    def audit(self, *args: str, **env: str) -> dict[str, Any]:
        """What a run writes with --fa-report=json, and its exit code."""
        written = self.path / "audit.json"
        written.unlink(missing_ok=True)
        completed = self.run(*args, "--fa-report=json:audit.json", **env)
        assert written.exists(), completed.stdout
        return {**self.written(), "exit code": completed.returncode}

    def written(self) -> dict[str, Any]:
        """What the last run wrote, but for when and by which command: what two runs of one audit differ in."""
        document: dict[str, Any] = json.loads((self.path / "audit.json").read_text("utf-8"))
        document.pop("origin", None)
        return document

    def counted(self, *args: str, **env: str) -> tuple[dict[str, Any], int]:
        """An audit from nothing, and how many measurements it took in all processes."""
        forget(self.path)
        return self.audit(*args, COUNT="1", **env), measurements(self.path)

    @property
    def seen(self) -> dict[str, tuple[str | None, str | None, bool]]:
        """By process: the GPUs and the threads that its environment gave it, and whether it imported torch."""
        return {path.name: eval(path.read_text()) for path in (self.path / "seen").iterdir()}

    def gpus(self) -> dict[str, str | None]:
        """The GPUs that each worker saw."""
        return {name: gpu for name, (gpu, _, _) in sorted(self.seen.items()) if name != "controller"}


def hear_interrupts() -> None:
    """What a shell starts in the background ignores SIGINT, and so would whatever this suite starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
