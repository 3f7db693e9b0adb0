"""The parts of an audit as one Slurm array; what they measure meets in the shared cache."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .judge.errors import AuditError

OF_THE_WHOLE = ("--report=", "--expect=", "--update-expect", "--junitxml=")
"""What only the whole audit reads or writes."""
COMPLETE = (0, 1, 5)
"""Exit codes of a part that ran to its end: all passed, some failed, no test was selected."""
INTERRUPTED = 2


def measure(command: Sequence[str], request: str, cluster: str = "slurm") -> int:
    """Run the parts of an audit as one array, and those that were lost once more.

    With 0, the command itself finds in the cache what they measured; else it is the exit code.
    """
    if not {"--no-cache", "--fa-no-cache"}.isdisjoint(command):
        raise AuditError("--slurm collects results from the cache; leave --no-cache out")
    folder = Path("fadiag-slurm").absolute()
    executor, parts = _executor(request, folder, cluster)
    words = [word for word in command if not word.replace("--fa-", "--").startswith(OF_THE_WHOLE)]
    words += ["-o", "fa_report=", "-o", "fa_expect="]
    tasks = [[*words, f"--fa-shard={part}/{parts}"] for part in range(1, parts + 1)]
    checked = subprocess.call([*tasks[-1], "--collect-only", "-q"], stdout=subprocess.DEVNULL)
    if checked not in COMPLETE:
        return checked
    for _ in range(2):
        try:
            jobs = executor.map_array(subprocess.call, tasks)
        except RuntimeError as error:  # sbatch refused
            raise AuditError(f"--slurm={request}: {error}") from None
        try:
            _wait(jobs)
        except KeyboardInterrupt:
            _stop(jobs)
            return INTERRUPTED
        tasks = [task for task, job in zip(tasks, jobs, strict=True) if not _is_complete(job)]
        if not tasks:
            return 0
        names = ", ".join(task[-1].partition("=")[2] for task in tasks)
        print(f"slurm: lost {names}", flush=True)
    raise AuditError(f"part {names} was lost twice; its output is in\n  {folder}")


def _executor(request: str, folder: Path, cluster: str) -> tuple[Any, int]:
    """What submits with these options of sbatch, and the number of parts."""
    try:
        import submitit
    except ImportError:
        raise AuditError("--slurm needs submitit: pip install 'pytest-fadiag[slurm]'") from None
    options = {"time": "60", "job-name": "fadiag", "parts": "1"}
    for pair in request.split(","):
        name, _, value = pair.partition("=")
        options[name] = value
    parts = options.pop("parts")
    if not parts.isdecimal() or parts == "0" or "" in options.values():
        raise AuditError(f"--slurm={request}: expected KEY=VALUE,… such as partition=gpu,parts=8")
    try:
        executor = submitit.AutoExecutor(folder / "%j", cluster=cluster)
    except RuntimeError as error:  # no Slurm here
        raise AuditError(f"--slurm: {error}") from None
    additional = {**options, "no-requeue": True}
    executor.update_parameters(slurm_additional_parameters=additional, slurm_use_srun=False)
    return executor, int(parts)


def _is_complete(job: Any) -> bool:
    """Whether a part ran to its end; a node that died leaves no result."""
    return job.exception() is None and job.result() in COMPLETE


def _wait(jobs: Sequence[Any]) -> None:
    """Wait until all parts have ended, and print how many have."""
    previous = ""
    going = list(jobs)
    while going:
        going = [job for job in jobs if not job.done()]
        running = sum(job.state == "RUNNING" for job in going)
        line = f"slurm: {len(jobs) - len(going)} of {len(jobs)} parts ended, {running} running"
        if line != previous:
            print(line, flush=True)
        previous = line
        time.sleep(0.5)


def _stop(jobs: Sequence[Any]) -> None:
    """Cancel the parts, or leave them as asked at a terminal."""
    if sys.stdin.isatty() and input("\ncancel the parts? [Y/n] ").lower().startswith("n"):
        print("slurm: the parts go on; the audit without --slurm collects what they measured")
        return
    for job in jobs:
        job.cancel(check=False)
    print("slurm: the parts are cancelled")
