"""What (e) costs: an audit with it, with its probes alone and without it, in turns.

CPU time and peak memory are given as ratios. The networks are those of ``measure.py``, and memory
is taken in the same way. With probes alone there is no null; with (e) two copies with
re-initialised blocks go over the same images.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import subprocess
import sys
import time

import psutil
import torch
from measure import BATCH, METRICS, Peak, networks
from torch import Tensor, nn

from pytest_fadiag.measure.run import NetworkSource, measure

WAYS = {"without": [], "probes": ["control-probes"], "with": ["depth"]}
GOALS = {"probes": 1.2, "with": 3.3}
MEMORY_GOAL = 1.1


def run(how: str, model: nn.Module, x: Tensor, y: Tensor) -> None:
    """One audit."""
    batches = list(zip(x.split(BATCH), y.split(BATCH), strict=True))
    measure(NetworkSource(model, batches), [*METRICS, *WAYS[how]])


def one(name: str, images: int, how: str) -> None:
    """Run one way once in this fresh process and print its peak memory."""
    model, _, x = networks(images)[name]
    y = torch.randint(0, 10, (len(x),))
    run(how, model, x[: 2 * BATCH], y[: 2 * BATCH])
    gc.collect()
    peak = Peak(psutil.Process())
    with peak:
        run(how, model, x, y)
    print(json.dumps(peak.value))


def peak_of(name: str, images: int, how: str) -> float:
    """The median peak of three fresh processes."""
    command = [sys.executable, __file__, "--images", str(images), "--one", name, "--how", how]
    seen = [
        json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        for _ in range(3)
    ]
    return statistics.median(seen)


def main() -> None:
    """Print one row a network and way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--images", type=int, default=None, help="default: 10,000 for the MLP, 2,560 for the ViT"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--how", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        return one(options.one, options.images, options.how)
    print(
        f"{torch.get_num_threads()} threads, median of {options.rounds} rounds taken in turns, CPU time"
    )
    titles = f"{'(e)':>10}{'seconds':>10}{'time ratio':>12}{'goal':>6}"
    print(f"{'network':24}{'images':>8}{titles}{'MB':>7}{'memory ratio':>14}{'goal':>6}")
    for name, (model, _, x) in networks(options.images).items():
        y = torch.randint(0, 10, (len(x),))
        times: dict[str, list[float]] = {how: [] for how in WAYS}
        for turn in range(options.rounds + 1):
            for how in WAYS if turn % 2 else reversed(WAYS):
                start = time.process_time()
                run(how, model, x, y)
                if turn:  # the first round warms up
                    times[how].append(time.process_time() - start)
        bare = peak_of(name, len(x), "without")
        for how, seen in times.items():
            pairs = zip(seen, times["without"], strict=True)
            ratio = statistics.median(own / without for own, without in pairs)
            peak = bare if how == "without" else peak_of(name, len(x), how)
            goals = [f"{GOALS[how]:6.1f}", f"{MEMORY_GOAL:6.1f}"] if how in GOALS else ["", ""]
            print(
                f"{name:24}{len(x):8,}{how:>10}{statistics.median(seen):10.2f}{ratio:12.2f}"
                f"{goals[0]:>6}{peak / 1e6:7.0f}{peak / bare:14.3f}{goals[1]:>6}",
                flush=True,
            )


if __name__ == "__main__":
    main()
