"""Three hundred small checkpoints in one run against thirty: seconds a checkpoint, and the memory of each process.

Memory is the resident size of every process of a run, sampled while it runs; how far the run is, is told by the measurements in
its cache. «at 10 %» is the median from a tenth to a fifth of the checkpoints, «at the end» that of the last tenth: when a
tenth is done, torch and the data are loaded and each process has measured. pytest itself keeps the reports of all tests to the
end; «pytest alone» is what as many empty tests cost it, by the peaks of two runs, and so is «kB a checkpoint» of the audit.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
import torch

from pytest_fadiag import ResidualMLP

SEEDS = 10
CLASSES, INPUTS, SAMPLES = 5, 20, 400
FLAT = 0.05
"""Growth of the resident size, relative, up to which it is called flat."""


@dataclass
class Process:
    """One process of a run: its resident size in MB by the share of the checkpoints that were measured."""

    name: str
    samples: list[tuple[float, float]] = field(default_factory=list)

    @property
    def peak(self) -> float:
        """The largest size seen."""
        return max(size for _, size in self.samples)

    def size(self, low: float, high: float) -> float:
        """The median size while the run was between these shares; where none was taken, the nearest before."""
        there = [size for share, size in self.samples if low <= share <= high]
        return statistics.median(
            there
            or [size for share, size in self.samples if share <= high][-1:]
            or [self.samples[0][1]]
        )


@dataclass
class Run:
    """One audit: how long it took, and its processes."""

    checkpoints: int
    workers: int
    seconds: float
    processes: list[Process]


def write(root: Path, checkpoints: int) -> None:
    """Small networks of random weights, ten seeds a method, and test data for them."""
    random = np.random.default_rng(0)
    x, y = (
        random.standard_normal((SAMPLES, INPUTS), np.float32),
        random.integers(0, CLASSES, SAMPLES),
    )
    np.savez(root / "data.npz", x=x, y=y)
    (root / "pytest.ini").write_text(
        "[pytest]\nfa_data = data.npz\nfa_checkpoint = runs\nfa_frozen = 0.5\n"
    )
    (root / "runs").mkdir()
    for number in range(checkpoints):
        torch.manual_seed(number)
        method, seed = f"method{number // SEEDS}", number % SEEDS
        state = ResidualMLP(INPUTS, 16, 4, CLASSES).state_dict()
        torch.save(
            {"state_dict": state, "config": {"method": method, "seed": seed}},
            root / "runs" / f"{method}_s{seed}.pt",
        )


def write_empty(root: Path, checkpoints: int) -> None:
    """As many tests as an audit of these checkpoints has, and nothing in them."""
    tests = f"@pytest.mark.parametrize('number', range({4 * checkpoints}))\ndef test_empty(number):\n    pass\n"
    (root / "pytest.ini").write_text("[pytest]\n")
    (root / "test_empty.py").write_text(f"import pytest\n{tests}")


def audit(checkpoints: int, workers: int, prepare: Callable[[Path, int], None] = write) -> Run:
    """One audit from nothing, watched."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        prepare(root, checkpoints)
        env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        env["OMP_NUM_THREADS"] = "1"
        allowed = [
            f"--fa-threshold={name}"
            for name in ("margin_pp=-100", "stability_drift_ceiling=1", "g_norm_floor=0")
        ]
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:hypothesispytest",
            "-n",
            str(workers),
            *allowed,
        ]
        began = time.perf_counter()
        with (root / "output.txt").open("w") as output:
            running = subprocess.Popen(
                command, cwd=root, env=env, stdout=output, stderr=subprocess.STDOUT
            )
            processes = watch(running, root / ".pytest_cache" / "d" / "fadiag", checkpoints)
        seconds = time.perf_counter() - began
        if running.returncode:
            sys.exit(f"exit code {running.returncode}\n{(root / 'output.txt').read_text()}")
    return Run(checkpoints, workers, seconds, processes)


def watch(running: subprocess.Popen[bytes], cache: Path, checkpoints: int) -> list[Process]:
    """Sample every process until the run ends."""
    controller = psutil.Process(running.pid)
    seen: dict[int, Process] = {}
    while running.poll() is None:
        share = len(list(cache.glob("*.json"))) / checkpoints
        try:
            alive = [controller, *controller.children(recursive=True)]
        except psutil.NoSuchProcess:
            break
        for process in alive:
            name = "controller" if process is controller else f"worker {len(seen)}"
            try:
                size = process.memory_info().rss / 1e6
            except psutil.NoSuchProcess:
                continue
            if size:  # a process that is ending has none
                seen.setdefault(process.pid, Process(name)).samples.append((share, size))
        time.sleep(0.05)
    running.wait()
    return list(seen.values())


def main() -> None:
    """Print one row a process, and the seconds a checkpoint."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--few", type=int, default=30)
    parser.add_argument("--many", type=int, default=300)
    parser.add_argument(
        "--rounds",
        type=int,
        default=3,
        help="rounds of the seconds; memory is that of the last one",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="one round of 10 and 40 checkpoints, to see that it runs",
    )
    options = parser.parse_args()
    if options.quick:
        options.few, options.many, options.rounds = 10, 40, 1
    rows: list[str] = []
    growth: list[str] = []
    print(f"{'':6}{'checkpoints':>12}{'seconds':>10}{'ms a checkpoint':>17}")
    for workers in (0, 2):
        runs: dict[int, list[Run]] = {options.few: [], options.many: []}
        for turn in range(options.rounds):
            for count in list(runs)[:: 1 if turn % 2 else -1]:
                runs[count].append(audit(count, workers))
        seconds = {
            count: statistics.median(run.seconds for run in there) for count, there in runs.items()
        }
        for count, taken in seconds.items():
            print(f"-n {workers:<3}{count:12}{taken:10.2f}{1000 * taken / count:17.0f}")
        each = (seconds[options.many] - seconds[options.few]) / (options.many - options.few)
        print(f"-n {workers:<3}{'each more':>12}{'':10}{1000 * each:17.0f}", flush=True)
        rows += [
            _row(run, process)
            for there in runs.values()
            for run in there[-1:]
            for process in run.processes
        ]
        empty = [audit(count, workers, write_empty) for count in runs]
        for name, (few, many) in {
            "audit": [there[-1] for there in runs.values()],
            "pytest alone": empty,
        }.items():
            for one, other in zip(few.processes, many.processes, strict=True):
                more = 1000 * (other.peak - one.peak) / (options.many - options.few)
                growth.append(
                    f"-n {workers:<3}  {name:14}{one.name:12}{one.peak:8.0f}{other.peak:8.0f}{more:17.0f}"
                )
    print(
        f"\n{'MB':6}{'checkpoints':>12}  {'process':12}{'at 10 %':>9}{'at the end':>12}{'peak':>8}{'growth':>9}"
    )
    print("\n".join(rows))
    print(f"\n{'peak MB with':34}{options.few:8}{options.many:8}{'kB a checkpoint':>17}")
    print("\n".join(growth))


def _row(run: Run, process: Process) -> str:
    early, late = process.size(0.1, 0.2), process.size(0.9, 1.0)
    growth = late / early - 1
    verdict = "flat" if growth <= FLAT else f"grows by {late - early:.0f} MB"
    sizes = f"{early:9.0f}{late:12.0f}{process.peak:8.0f}{100 * growth:+8.1f}%"
    return f"-n {run.workers:<3}{run.checkpoints:12}  {process.name:12}{sizes}  {verdict}"


if __name__ == "__main__":
    main()
