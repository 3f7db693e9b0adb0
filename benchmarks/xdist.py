"""Two workers against none on two cores: the same audit of 24 checkpoints, nothing measured before, turn by turn.

A run pays for three things: measuring, which two workers share; importing torch, which every process that measures pays again
(`-n 0` once, `-n 2` twice at the same time); and the rest of a start: pytest, the workers, the data. Each round takes them one
after the other, and the table subtracts them from the whole:

whole          the wall-clock of the command
import torch   one fresh interpreter, or two at once, that import torch, less the same without; subtracted for «without torch»
tiny           the same command on one tiny network per method: all of a run that does not grow with its checkpoints;
               subtracted for «measuring»
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from pytest_fadiag import ResidualMLP

IMAGES = Path(__file__).resolve().parent.parent / "fixtures" / "fashion-mnist"
SEEDS = 3
GOAL = 1.6


@dataclass
class Way:
    """One way to run the audit, and its seconds by round."""

    name: str
    workers: int
    threads: int
    whole: list[float] = field(default_factory=list)
    torch: list[float] = field(default_factory=list)
    tiny: list[float] = field(default_factory=list)

    @property
    def without_torch(self) -> list[float]:
        """The whole without the import of torch, by round."""
        return [whole - cost for whole, cost in zip(self.whole, self.torch, strict=True)]

    @property
    def measuring(self) -> list[float]:
        """The whole without a run on tiny networks, by round."""
        return [whole - cost for whole, cost in zip(self.whole, self.tiny, strict=True)]


def write(folder: Path, checkpoints: int, d: int, blocks: int) -> Path:
    """Networks of random weights, three seeds a method; what they would score makes no difference to the time."""
    folder.mkdir()
    for number in range(checkpoints):
        torch.manual_seed(number)
        method, seed = f"method{number // SEEDS}", number % SEEDS
        state = ResidualMLP(784, d, blocks, 10).state_dict()
        torch.save(
            {"state_dict": state, "config": {"method": method, "seed": seed}},
            folder / f"{method}_s{seed}.pt",
        )
    return folder


def audit(root: Path, runs: Path, way: Way) -> float:
    """The seconds of one audit whose measurement cache is empty."""
    cache = root / "cache"
    shutil.rmtree(cache, ignore_errors=True)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:hypothesispytest",
        "-n",
        str(way.workers),
        f"-ocache_dir={cache}",
    ]
    # A network of random weights needs a walk-back or not; here nothing is to fail, so that pytest prints no reports.
    allowed = [
        f"--fa-threshold={name}"
        for name in ("margin_pp=-100", "stability_drift_ceiling=1", "g_norm_floor=0")
    ]
    return _seconds(
        [[*command, *allowed, f"--fa-checkpoint={runs}", f"--fa-data=fashion-mnist:{IMAGES}"]],
        way.threads,
        root,
    )


def import_torch(root: Path, way: Way) -> float:
    """What importing torch costs as many processes as measure, at the same time."""
    processes = max(1, way.workers)
    return _seconds(
        [[sys.executable, "-c", "import torch"]] * processes, way.threads, root
    ) - _seconds([[sys.executable, "-c", ""]] * processes, way.threads, root)


def _seconds(commands: Sequence[Sequence[str]], threads: int, root: Path) -> float:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env["OMP_NUM_THREADS"] = str(threads)
    began = time.perf_counter()
    running = [
        subprocess.Popen(
            command, cwd=root, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for command in commands
    ]
    outputs = [process.communicate()[0] for process in running]
    seconds = time.perf_counter() - began
    for process, output in zip(running, outputs, strict=True):
        if process.returncode:
            sys.exit(f"exit code {process.returncode}\n{output}")
    return seconds


def main() -> None:
    """Print one row a way, and the ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--checkpoints", type=int, default=24)
    parser.add_argument("--d", type=int, default=256, help="width of the networks (default: 256)")
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument(
        "--quick", action="store_true", help="one round of six narrow networks, to see that it runs"
    )
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.checkpoints, options.d = 1, 6, 64
    cores = _two_cores()
    ways = [
        Way("-n 0, 1 thread", 0, 1),
        Way("-n 0, 2 threads", 0, 2),
        Way("-n 2, 1 thread each", 2, 1),
    ]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "pytest.ini").write_text("[pytest]\nfa_frozen = 0.5\n")
        runs = write(root / "runs", options.checkpoints, options.d, options.blocks)
        tiny = write(root / "tiny", 2, 8, 1)
        for turn in range(options.rounds):
            for way in ways[:: 1 if turn % 2 else -1]:
                way.whole.append(audit(root, runs, way))
                way.torch.append(import_torch(root, way))
                way.tiny.append(audit(root, tiny, way))
    print(
        f"{options.checkpoints} networks d={options.d} L={options.blocks}, 10,000 images, {cores}, median of {options.rounds} "
        f"round{'s' * (options.rounds != 1)} taken in turns, seconds"
    )
    print(
        f"{'':22}{'whole':>8}{'import torch':>14}{'tiny':>8}{'without torch':>15}{'measuring':>11}"
    )
    for way in ways:
        columns = (way.whole, way.torch, way.tiny, way.without_torch, way.measuring)
        print(
            f"{way.name:22}"
            + "".join(
                f"{statistics.median(c):{w}.2f}"
                for c, w in zip(columns, (8, 14, 8, 15, 11), strict=True)
            )
        )
    ours = ways[-1]
    for way in ways[:-1]:
        pairs = (
            (way.whole, ours.whole),
            (way.without_torch, ours.without_torch),
            (way.measuring, ours.measuring),
        )
        ratios = [statistics.median(a / b for a, b in zip(*pair, strict=True)) for pair in pairs]
        print(
            f"{way.name} / -n 2: whole {ratios[0]:.2f}, without torch {ratios[1]:.2f}, measuring {ratios[2]:.2f}"
        )
        if way is ways[0]:
            print(
                f"  goal: without torch at least {GOAL} ({'reached' if ratios[1] >= GOAL else 'missed'})"
            )


def _two_cores() -> str:
    """Keep everything to two cores where the system can, and say which."""
    if not hasattr(os, "sched_setaffinity"):
        return f"{os.cpu_count()} cores"
    chosen = sorted(os.sched_getaffinity(0))[:2]
    os.sched_setaffinity(0, chosen)
    return f"{len(chosen)} cores"


if __name__ == "__main__":
    main()
