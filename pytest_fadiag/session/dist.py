"""xdist: one checkpoint a worker, one GPU a worker, and a worker that dies costs one test."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from ..judge.diagnostics import Diagnostic
from .run import Run
from .targets import SEED_MARGIN

SHARED: pytest.StashKey[str] = pytest.StashKey()
"""The folder that the workers of a run share, where they have no cache."""

STARTS = 4
"""How often a worker is started before its death is the machine's and not bad luck."""


class CheckpointScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Keeps the tests of a checkpoint together, every other test by itself.

    The released scope scheduler runs the test that killed a worker again on its replacement, and then hangs (pytest-xdist
    issues 1323, 1327, 1378). Here that test is done, and failed; the rest of its checkpoint goes on elsewhere.
    """

    def __init__(self, config: pytest.Config, log: Any, diagnostics: Iterable[Diagnostic]) -> None:
        super().__init__(config, log)
        self.names = {*(diagnostic.name for diagnostic in diagnostics), SEED_MARGIN}

    def _split_scope(self, nodeid: str) -> str:
        scope, _, name = nodeid.rpartition("::")
        return scope if scope and name in self.names else nodeid

    def remove_node(self, node: Any) -> str | None:
        """Take a worker out; what it was running when it died is not run again."""
        workload = self.assigned_work.pop(node)
        if self.collection is None:
            self.registered_collections.pop(node, None)  # tests are given out when its replacement has collected too
        crashed: str | None = None
        for unit in workload.values():
            for nodeid, done in unit.items():
                if not done and crashed is None:
                    crashed, unit[nodeid] = nodeid, True
        self.workqueue.update({scope: unit for scope, unit in workload.items() if not all(unit.values())})
        for other in list(self.assigned_work):
            self._reschedule(other)
        return crashed

    def schedule(self) -> None:
        """Give work to every worker, then again: one with a single test waits for a second one or for the word to stop."""
        super().schedule()
        for node in self.nodes:
            self._reschedule(node)

    def _reschedule(self, node: Any) -> None:
        """Give a worker more to do, or the word to stop; one that has not collected yet is asked again when it has."""
        if self.collection is not None and node in self.registered_collections:
            super()._reschedule(node)

    def _assign_work_unit(self, node: Any) -> None:
        """Send a unit; a worker that is gone already gives it back, and its end is reported by xdist itself."""
        scope = next(iter(self.workqueue))
        unit = self.workqueue[scope]
        try:
            super()._assign_work_unit(node)
        except OSError:
            self.assigned_work[node].pop(scope, None)
            self.workqueue[scope] = unit


def make_scheduler(config: pytest.Config, log: Any, diagnostics: Iterable[Diagnostic]) -> CheckpointScheduling | None:
    """A scheduler for an audit, unless the user chose how tests are distributed."""
    # -d chooses nothing: it is how --tx is switched on.
    given = [*config.getini("addopts"), *os.environ.get("PYTEST_ADDOPTS", "").split(), *config.invocation_params.args]
    chosen = any(str(argument).startswith("--dist") for argument in given)
    return None if chosen or config.getoption("dist") != "load" else CheckpointScheduling(config, log, diagnostics)


def start_again(config: pytest.Config) -> None:
    """Let a worker that dies while it starts be replaced by another: xdist would end the run with an internal error."""
    dsession = config.pluginmanager.getplugin("dsession")
    manager = getattr(dsession, "nodemanager", None)
    if manager is None:
        return
    original = manager.setup_node

    def setup_node(spec: Any, putevent: Any) -> Any:
        for _ in range(STARTS - 1):
            try:
                return original(spec, putevent)
            except (OSError, EOFError):
                spec.id = None
                manager.group.allocate_id(spec)
        return original(spec, putevent)

    manager.setup_node = setup_node


def prepare_workers(specs: Sequence[Any]) -> None:
    """Give each worker its GPU and its share of the cores, before it starts; a replaced worker inherits both."""
    gpus = visible_gpus()
    threads = str(max(1, (os.cpu_count() or 1) // max(1, len(specs))))
    for number, spec in enumerate(specs):
        if not spec.popen:
            continue  # a worker elsewhere has other GPUs and cores than those counted here
        if gpus:
            spec.env.setdefault("CUDA_VISIBLE_DEVICES", gpus[number % len(gpus)])
        if "OMP_NUM_THREADS" not in os.environ:
            spec.env.setdefault("OMP_NUM_THREADS", threads)


def visible_gpus() -> list[str]:
    """The entries of ``CUDA_VISIBLE_DEVICES`` as they stand (ordinals, UUIDs, MIG names), else what nvidia-smi lists."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        entries = [entry.strip() for entry in given.split(",") if entry.strip()]
        # As CUDA reads the list: -1 hides itself and everything behind it.
        return entries[: entries.index("-1")] if "-1" in entries else entries
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    try:
        listed = subprocess.run([program, "-L"], capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [str(number) for number, _ in enumerate(line for line in listed.splitlines() if line.startswith("GPU "))]


def auto_workers(config: pytest.Config) -> int | None:
    """As many workers as GPUs for an audit; otherwise xdist's own answer."""
    if os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS"):
        return None
    asked = config.getoption("fa_checkpoint", None) or config.getini("fa_checkpoint")  # logs and merged audits need no GPU
    return (len(visible_gpus()) or None) if asked else None


def _folder_of_the_run(config: pytest.Config) -> str:
    """A folder for what the workers of one run share and nobody keeps; made by the controller, which removes it."""
    if SHARED not in config.stash:
        config.stash[SHARED] = tempfile.mkdtemp(prefix="fadiag-")
        config.add_cleanup(lambda: shutil.rmtree(config.stash[SHARED], ignore_errors=True))
    return config.stash[SHARED]


class Workers:
    """What the controller of an xdist run does for its workers."""

    def __init__(self, config: pytest.Config, run: Run) -> None:
        self.config, self.run = config, run

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell an xdist worker what the controller found, so that all collect the same."""
        run, config = self.run, self.config
        for target in (*run.targets.written, *run.targets.generated):
            try:
                target.path.encode()
            except UnicodeEncodeError:
                problem = "xdist cannot send a file name that is not UTF-8 to its workers; rename"
                raise pytest.UsageError(f"{problem}\n  {target.id}") from None
        sent: dict[str, Any] = {"targets": run.targets.to_dict(), "args": [str(argument) for argument in config.args]}
        if run.in_play and (run.settings.no_cache or not hasattr(config, "cache")):
            sent["shared"] = _folder_of_the_run(config)
        node.workerinput["fadiag"] = sent

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_setupnodes(self, specs: list[Any]) -> None:
        """One GPU and a share of the cores for each worker of an audit."""
        if self.run.in_play:
            prepare_workers(specs)
            start_again(self.config)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, log: Any) -> Any:
        """Keep the tests of a checkpoint on one worker, unless the user chose a distribution; other runs keep xdist's."""
        return make_scheduler(self.config, log, self.run.settings.available) if self.run.in_play else None
