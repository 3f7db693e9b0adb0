"""The whole command on the shipped checkpoints beside the least that it could cost, in one run, turn by turn.

cold      `pytest --fa-diagnostics=abcd` in fixtures/, nothing measured before, one process, one thread
whole     the same with (e) and (g): probes of every network and of two re-initialised copies of it
bare      one process that imports torch, then runs the same networks over the same images in memory: forward over all test
          images for the 21 checkpoints and their controls, forward and backward over ten batches of 128 for the 21; no files,
          no statistics, no pytest
warm      the same command again, answered from the cache, without torch
version   `pytest --version`

The ratios cold/bare, whole/bare and warm/version are taken round by round.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
BATCH, PROBE = 128, 1280

BARE = """
import sys, torch
from torch.nn import functional as F
from pytest_fadiag import ResidualMLP
torch.set_num_threads(1)
audited, controls, width, blocks = map(int, sys.argv[1:])
x, y = torch.randn(10_000, 784), torch.randint(0, 10, (10_000,))
for number in range(audited + controls):
    model = ResidualMLP(784, width, blocks).eval().requires_grad_(False)
    with torch.no_grad():
        hits = sum(int((model(a).argmax(1) == b).sum()) for a, b in zip(x.split(128), y.split(128)))
    for a, b in zip(x[:1280].split(128), y[:1280].split(128)) if number < audited else ():
        h = model.embed(a).requires_grad_()
        states = [h]
        for block in model.blocks:
            states.append(states[-1] + block(states[-1]))
        torch.autograd.grad(F.cross_entropy(model.out_head(model.out_ln(states[-1])), b), states)
"""


def seconds(command: list[str], folder: Path) -> float:
    """The CPU time of one command, which what else the machine does does not change."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTEST_ADDOPTS": ""}
    environment.pop(
        "PYTHONDONTWRITEBYTECODE", None
    )  # as for a user, modules are compiled once and not in every run
    start = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(
            f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        )
    return end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime


def shapes() -> tuple[int, int, int, int]:
    """How many checkpoints are audited, how many controls evaluated, and the shape of their networks."""
    import torch

    files = sorted((FIXTURES / "checkpoints").glob("*.pt"))
    audited = [file for file in files if not file.name.startswith("frozen_")]
    state = torch.load(audited[0])["state_dict"]
    blocks = len({name.split(".")[1] for name in state if name.startswith("blocks.")})
    return len(audited), len(files) - len(audited), len(state["embed.weight"]), blocks


def main() -> None:
    """Print the median seconds and ratios of CPU time, one thread each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    numbers = shapes()
    others = [
        f"-pno:{plugin}"
        for plugin in ("xdist", "randomly", "hypothesispytest", "rerunfailures", "timeout")
    ]
    pytest = [sys.executable, "-m", "pytest", "-q", *others]
    times: dict[str, list[float]] = {
        way: [] for way in ("whole", "cold", "bare", "warm", "version")
    }
    with tempfile.TemporaryDirectory() as name:
        cache = Path(name) / "cache"
        audit = [*pytest, "-o", f"cache_dir={cache}", "--fa-diagnostics=abcd"]
        for _ in range(options.rounds):
            shutil.rmtree(cache, ignore_errors=True)
            times["whole"].append(seconds([*audit, "--fa-diagnostics=abcdeg"], FIXTURES))
            shutil.rmtree(cache)
            times["cold"].append(seconds(audit, FIXTURES))
            times["bare"].append(
                seconds([sys.executable, "-c", BARE, *map(str, numbers)], FIXTURES)
            )
            times["warm"].append(seconds(audit, FIXTURES))
            times["version"].append(seconds([*pytest, "--version"], FIXTURES))
    audited, controls, width, blocks = numbers
    print(
        f"{audited} checkpoints and {controls} controls, d={width}, {blocks} blocks; median of {options.rounds} rounds"
    )
    for way, taken in times.items():
        print(f"  {way:8}{statistics.median(taken):8.2f} s")
    for above, below in (("cold", "bare"), ("whole", "bare"), ("warm", "version")):
        ratio = statistics.median(a / b for a, b in zip(times[above], times[below], strict=True))
        print(f"  {above} / {below}: {ratio:.2f}")


if __name__ == "__main__":
    main()
