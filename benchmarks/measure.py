"""`measure` and a bare loop in one process: time and peak memory as ratios, for an MLP and a ViT.

The bare loop is what anyone would write for the same numbers and no statistics: forward over the
whole test set, then forward and backward to h_0 over ten batches of 128. Both take tensors in
memory, on one thread count, turn by turn. What a bare loop has no counterpart of is given apart, in
seconds: the search for the stream, the proof of the reference, and the dtypes that resolve it.
"the pass" is the ratio without these three.
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

from pytest_fadiag.load.network import ResidualMLP
from pytest_fadiag.measure import run as measuring
from pytest_fadiag.measure.precision import GradientPrecision
from pytest_fadiag.measure.run import NetworkSource, measure

BATCH = 128
EVALUATION = 10 * BATCH
METRICS = ("states", "gradients", "directions", "output-error", "accuracy", "precision")


class SmallViT(nn.Module):
    """Twelve pre-LN encoder blocks over the 7 x 7 patches of a 28 x 28 image, and a class token."""

    def __init__(self, d: int = 96, blocks: int = 12, classes: int = 10) -> None:
        super().__init__()
        self.patch = nn.Conv2d(1, d, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, d) * 0.02)
        layer = nn.TransformerEncoderLayer(
            d, 4, 2 * d, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, blocks, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, classes)

    def forward(self, x: Tensor) -> Tensor:
        patches = self.patch(x).flatten(2).transpose(1, 2)
        h = self.encoder(torch.cat([self.token.expand(len(x), -1, -1), patches], 1))
        logits: Tensor = self.head(self.norm(h)[:, 0])
        return logits


def bare_loop(model: nn.Module, first: nn.Module, x: Tensor, y: Tensor) -> None:
    """Accuracy over all images; gradients down to the input of the first block over ten batches."""
    model.eval()
    model.requires_grad_(False)
    with torch.no_grad():
        hits = [
            (model(xs).argmax(1) == ys).sum()
            for xs, ys in zip(x.split(BATCH), y.split(BATCH), strict=True)
        ]
    states: list[Tensor] = []
    handle = first.register_forward_pre_hook(
        lambda _, args: states.append(args[0].requires_grad_())
    )
    for xs, ys in zip(x[:EVALUATION].split(BATCH), y[:EVALUATION].split(BATCH), strict=True):
        states.clear()
        torch.autograd.grad(nn.functional.cross_entropy(model(xs), ys), states)
    handle.remove()
    torch.stack(hits).sum().item()


def networks(
    images: int | None,
) -> dict[str, tuple[nn.Module, Callable[[nn.Module], nn.Module], Tensor]]:
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


def run(
    how: str, model: nn.Module, first: Callable[[nn.Module], nn.Module], x: Tensor, y: Tensor
) -> None:
    """One of the two ways."""
    if how == "measure":
        batches = list(zip(x.split(BATCH), y.split(BATCH), strict=True))
        measure(NetworkSource(model, batches, batch_size=BATCH), METRICS)
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
    """Peak memory of the process under each way, and their ratio; a fresh process each: memory is not given back."""
    peaks = {}
    for how in ("bare", "measure"):
        seen = []
        for _ in range(3):
            command = [
                sys.executable,
                __file__,
                "--images",
                str(images),
                "--one",
                name,
                "--how",
                how,
            ]
            seen.append(
                sum(
                    json.loads(
                        subprocess.run(command, check=True, capture_output=True, text=True).stdout
                    ).values()
                )
            )
        peaks[how] = statistics.median(seen)
    return peaks["bare"], peaks["measure"], peaks["measure"] / peaks["bare"]


def main() -> None:
    """Print one row per network."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--images", type=int, default=None, help="default: 10,000 for the MLP, 2,560 for the ViT"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--threads", type=int, default=None, help="torch threads (default: torch's own choice)"
    )
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--how", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    if options.one:
        return one(options.one, options.images, options.how)
    print(f"{torch.get_num_threads()} threads, median of {options.rounds} rounds taken in turns")
    apart = {
        "search": timed(measuring, "find_stream"),
        "proof": timed(measuring, "prove"),
        "precision": timed(GradientPrecision, "update"),
    }
    titles = ["images", "bare s", "measure s", "time ratio", *(f"{name} s" for name in apart)]
    titles += ["the pass", "bare MB", "measure MB", "memory ratio"]
    print(f"{'network':24}" + "".join(f"{title:>13}" for title in titles))
    for name, (model, first, x) in networks(options.images).items():
        y = torch.randint(0, 10, (len(x),))
        rounds: list[dict[str, float]] = []
        for turn in range(options.rounds + 1):
            seconds: dict[str, float] = {}
            for how in ("bare", "measure") if turn % 2 else ("measure", "bare"):
                for times in apart.values():
                    times.clear()
                start = time.perf_counter()
                run(how, model, first, x, y)
                seconds[how] = time.perf_counter() - start
                if how == "measure":
                    seconds |= {part: sum(times) for part, times in apart.items()}
            rounds += [seconds] if turn else []  # the first round warms up
        median = {part: statistics.median(own[part] for own in rounds) for part in rounds[0]}
        ratio = statistics.median(own["measure"] / own["bare"] for own in rounds)
        plain = statistics.median(
            (own["measure"] - sum(own[part] for part in apart)) / own["bare"] for own in rounds
        )
        bare, ours, memory = peak_ratio(name, len(x))
        numbers = [
            f"{len(x):,}",
            *(f"{own:.3f}" for own in (median["bare"], median["measure"], ratio)),
        ]
        numbers += [f"{median[part]:.3f}" for part in apart]
        numbers += [f"{plain:.3f}", f"{bare / 1e6:.0f}", f"{ours / 1e6:.0f}", f"{memory:.3f}"]
        print(f"{name:24}" + "".join(f"{number:>13}" for number in numbers), flush=True)


if __name__ == "__main__":
    main()
