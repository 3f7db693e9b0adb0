"""`measure` beside a bare loop in one process: time and peak memory as ratios, for a residual MLP and a ViT-like network.

The bare loop is what anyone would write for the same numbers and no statistics: forward over the whole test set, then forward
and backward to h_0 over ten batches of 128. Both take tensors in memory, on one thread count, turn by turn. What a bare loop
has no counterpart of is given apart, in seconds: the reference is proven, and it is told in which dtypes it is resolved (the
stream is found in the first round, and known from then on). «the pass» is the ratio without these two.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import psutil
import torch
from torch import Tensor, nn

from pytest_fadiag import ResidualMLP, measure
from pytest_fadiag.measure import forward
from pytest_fadiag.measure.observers.precision import GradientPrecision

BATCH = 128
PROBE = 10 * BATCH


class SmallViT(nn.Module):
    """Twelve pre-LN encoder blocks over the 7 x 7 patches of a 28 x 28 image, and a class token."""

    def __init__(self, d: int = 96, blocks: int = 12, classes: int = 10) -> None:
        super().__init__()
        self.patch = nn.Conv2d(1, d, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, d) * 0.02)
        layer = nn.TransformerEncoderLayer(d, 4, 2 * d, 0.0, "gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, blocks, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, classes)

    def forward(self, x: Tensor) -> Tensor:
        patches = self.patch(x).flatten(2).transpose(1, 2)
        h = self.encoder(torch.cat([self.token.expand(len(x), -1, -1), patches], 1))
        logits: Tensor = self.head(self.norm(h)[:, 0])
        return logits


def bare_loop(model: nn.Module, first: nn.Module, x: Tensor, y: Tensor) -> None:
    """Accuracy over all images; gradients down to the input of the first block over the probe."""
    model.eval()
    model.requires_grad_(False)
    with torch.no_grad():
        hits = [(model(xs).argmax(1) == ys).sum() for xs, ys in zip(x.split(BATCH), y.split(BATCH), strict=True)]
    states: list[Tensor] = []
    handle = first.register_forward_pre_hook(lambda _, args: states.append(args[0].requires_grad_()))
    for xs, ys in zip(x[:PROBE].split(BATCH), y[:PROBE].split(BATCH), strict=True):
        states.clear()
        torch.autograd.grad(nn.functional.cross_entropy(model(xs), ys), states)
    handle.remove()
    torch.stack(hits).sum().item()


def networks(images: int | None) -> dict[str, tuple[nn.Module, Callable[[nn.Module], nn.Module], Tensor]]:
    """The two networks, where their stream begins, and their inputs."""
    torch.manual_seed(0)
    return {
        "ResidualMLP d=256 L=4": (
            ResidualMLP(784, 256, 4),
            lambda m: m.get_submodule("blocks.0"),
            torch.randn(images or 10_000, 784),
        ),
        "ViT-like d=96 L=12": (
            SmallViT(),
            lambda m: m.get_submodule("encoder.layers.0"),
            torch.randn(images or 2_560, 1, 28, 28),
        ),
    }


def one(name: str, images: int | None, how: str) -> None:
    """Run one way once in this fresh process and print its peak memory beyond the tensors and the network."""
    model, first, x = networks(images)[name]
    y = torch.randint(0, 10, (len(x),))
    warm = slice(0, 2 * BATCH)
    run(how, model, first, x[warm], y[warm])
    gc.collect()
    process = psutil.Process()
    before, peak = process.memory_info().rss, Peak(process)
    with peak:
        run(how, model, first, x, y)
    print(json.dumps({"peak": peak.value - before, "base": before}))


def run(how: str, model: nn.Module, first: Callable[[nn.Module], nn.Module], x: Tensor, y: Tensor) -> None:
    """One of the two ways."""
    if how == "measure":
        measure(model, zip(x.split(BATCH), y.split(BATCH), strict=True))
    else:
        bare_loop(model, first(model), x, y)


def timed(owner: Any, name: str) -> list[float]:
    """The seconds of every call of a function or method from now on."""
    original, seconds = getattr(owner, name), list[float]()

    def called(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        result = original(*args, **kwargs)
        seconds.append(time.perf_counter() - start)
        return result

    setattr(owner, name, called)
    return seconds


class Peak:
    """The largest resident size seen while it is open, sampled from a thread every millisecond."""

    def __init__(self, process: psutil.Process) -> None:
        import threading

        self.process, self.value, self.open = process, process.memory_info().rss, True
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while self.open:
            self.value = max(self.value, self.process.memory_info().rss)
            time.sleep(0.001)

    def __enter__(self) -> None:
        self.thread.start()

    def __exit__(self, *exc: object) -> None:
        self.open = False
        self.thread.join()


def peak_ratio(name: str, images: int) -> tuple[float, float, float]:
    """Peak memory of the process under each way, and their ratio; a fresh process each, since memory is not given back."""
    peaks = {}
    for how in ("bare", "measure"):
        seen = []
        for _ in range(3):
            command = [sys.executable, __file__, "--images", str(images), "--one", name, "--how", how]
            seen.append(sum(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout).values()))
        peaks[how] = statistics.median(seen)
    return peaks["bare"], peaks["measure"], peaks["measure"] / peaks["bare"]


def main() -> None:
    """Print one row a network."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=None, help="default: 10,000 for the MLP, 2,560 for the ViT")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=None, help="torch threads (default: torch's own choice)")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--how", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    if options.one:
        return one(options.one, options.images, options.how)
    print(f"{torch.get_num_threads()} threads, median of {options.rounds} rounds taken in turns")
    times_of = f"{'bare s':>9}{'measure s':>11}{'time ratio':>12}{'proof s':>9}{'precision s':>13}{'the pass':>10}"
    print(f"{'network':24}{'images':>8}{times_of}{'bare MB':>10}{'measure MB':>12}{'memory ratio':>14}")
    proof, precision = timed(forward, "prove"), timed(GradientPrecision, "update")
    for name, (model, first, x) in networks(options.images).items():
        y = torch.randint(0, 10, (len(x),))
        times: dict[str, list[float]] = {"bare": [], "measure": [], "proof": [], "precision": []}
        for turn in range(options.rounds + 1):
            for how in ("bare", "measure") if turn % 2 else ("measure", "bare"):
                proof.clear()
                precision.clear()
                start = time.perf_counter()
                run(how, model, first, x, y)
                if turn:  # the first round warms up
                    times[how].append(time.perf_counter() - start)
                if turn and how == "measure":
                    times["proof"].append(sum(proof))
                    times["precision"].append(sum(precision))
        ratio = statistics.median(m / b for m, b in zip(times["measure"], times["bare"], strict=True))
        rounds = zip(times["bare"], times["measure"], times["proof"], times["precision"], strict=True)
        plain = statistics.median((m - p - q) / b for b, m, p, q in rounds)
        bare, ours, memory = peak_ratio(name, len(x))
        print(
            f"{name:24}{len(x):8,}{statistics.median(times['bare']):9.3f}{statistics.median(times['measure']):11.3f}{ratio:12.3f}"
            f"{statistics.median(times['proof']):9.3f}{statistics.median(times['precision']):13.3f}{plain:10.3f}"
            f"{bare / 1e6:10.0f}{ours / 1e6:12.0f}{memory:14.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
