"""xdist: one checkpoint a worker, one GPU a worker, and a worker that dies costs one test."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Collection
from typing import Any

import msgspec
import pytest
from xdist.scheduler import LoadScopeScheduling

from ..judge.diagnostics import available
from ..judge.errors import AuditError
from .plan import SEED_MARGIN, names_of
from .run import Run


class CheckpointScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Keeps the tests of a checkpoint together, every other test by itself.

    xdist's own scope scheduler runs the test that killed a worker again, and then hangs
    (pytest-xdist issues 1323, 1327, 1378). Here that test is done, and failed; the rest of its
    checkpoint goes on elsewhere.
    """

    def __init__(self, config: pytest.Config, log: Any, names: Collection[str]) -> None:
        super().__init__(config, log)
        self.names = names

    def _split_scope(self, nodeid: str) -> str:
        scope, _, name = nodeid.rpartition("::")
        return scope if scope and name in self.names else nodeid

    def remove_node(self, node: Any) -> str | None:
        """Take a worker out; the test that it was running is not run again."""
        workload = self.assigned_work.pop(node)
        if self.collection is None:
            self.registered_collections.pop(
                node, None
            )  # work is given out when its replacement has collected too
        crashed: str | None = None
        for scope, unit in workload.items():
            for nodeid, is_done in unit.items():
                if not is_done and crashed is None:
                    crashed = nodeid
                    unit[nodeid] = True
            if not all(unit.values()):
                self.workqueue[scope] = unit
        for remaining_node in list(self.assigned_work):
            self._reschedule(remaining_node)
        return crashed

    def schedule(self) -> None:
        """Give work to every worker, then again: one with a single test waits for a second, or for
        the word to stop.
        """
        super().schedule()
        for node in self.nodes:
            self._reschedule(node)

    def _reschedule(self, node: Any) -> None:
        """Give a worker more to do, or the word to stop.

        One that has not collected yet is asked when it has.
        """
        if self.collection is not None and node in self.registered_collections:
            super()._reschedule(node)

    def _assign_work_unit(self, node: Any) -> None:
        """Send a unit; a worker that is gone already gives it back."""
        scope = next(iter(self.workqueue))
        unit = self.workqueue[scope]
        try:
            super()._assign_work_unit(node)
        except OSError:
            self.assigned_work[node].pop(scope, None)
            self.workqueue[scope] = unit


def visible_gpus() -> list[str]:
    """The entries of ``CUDA_VISIBLE_DEVICES`` as they stand (ordinals, UUIDs, MIG names), else what
    nvidia-smi lists.
    """
    variable = os.environ.get("CUDA_VISIBLE_DEVICES")
    if variable is not None:
        visible, *_ = f",{variable}".split(",-1")  # which hides all that follows
        entries = [entry.strip() for entry in visible.split(",")]
        return [entry for entry in entries if entry]
    command = ["nvidia-smi", "-L"]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    count = len(re.findall("^GPU ", process.stdout, re.MULTILINE))
    return [str(number) for number in range(count)]


class Workers:
    """What the controller of an xdist run does for its workers."""

    def __init__(self, config: pytest.Config, run: Run) -> None:
        self.config = config
        for job in run.plan.all_jobs:
            if "\\udc" in ascii(job.path):
                raise AuditError(f"{job.path}: its name is not UTF-8; rename it, or leave out -n")
        self.sent: dict[str, Any] = {"plan": msgspec.to_builtins(run.plan)}
        if run.settings.no_cache or not hasattr(config, "cache"):
            self.sent["shared"] = folder = tempfile.mkdtemp(prefix="fadiag-")
            config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker what the controller found, so that all collect the same."""
        node.workerinput["fadiag"] = self.sent

    @staticmethod
    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_setupnodes(specs: list[Any]) -> None:
        """Give each worker its GPU and its share of the cores before it starts.

        A replaced worker inherits both.
        """
        gpus = visible_gpus()
        threads = str(max(1, (os.cpu_count() or 1) // len(specs)))
        for number, spec in enumerate(specs):
            if not spec.popen:
                continue  # a worker elsewhere has other GPUs and cores
            if gpus:
                spec.env.setdefault("CUDA_VISIBLE_DEVICES", gpus[number % len(gpus)])
            if "OMP_NUM_THREADS" not in os.environ:
                spec.env.setdefault("OMP_NUM_THREADS", threads)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, log: Any) -> Any:
        """Keep the tests of a checkpoint on one worker, unless another distribution was chosen."""
        if self.config.getoption("dist") != "load":
            return None
        names = {SEED_MARGIN, *names_of(available())}
        return CheckpointScheduling(self.config, log, names)
