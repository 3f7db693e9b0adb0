"""`diagnose` beside bare passes, for networks and data of real size: CPU time as a ratio, and peak memory.

The bare passes are forward over all samples, then forward and backward over the first 1,280. Each round is a fresh process on
one thread that does both and counts its CPU time, which what else the machine does changes least. «peak» is the largest
resident size beyond that once network and data are there; «process» is the largest size of all.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import torch
from measure import Peak, SmallViT
from torch import Tensor, nn
from torch.nn import functional as F

from pytest_fadiag import ResidualMLP, diagnose

BATCH, EVALUATION = 128, 1280


class Gpt2(nn.Module):
    """GPT-2's shape: learned positions, pre-LN blocks, a head that shares the embedding's weights."""

    def __init__(self, words: int, length: int, d: int, blocks: int, heads: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(words, d)
        self.places = nn.Embedding(length, d)
        self.blocks = nn.ModuleList([Gpt2Block(d, heads) for _ in range(blocks)])
        self.norm = nn.LayerNorm(d)
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.places.weight, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        h = self.tokens(ids) + self.places.weight[: ids.shape[1]]
        for block in self.blocks:
            h = block(h)
        return F.linear(self.norm(h), self.tokens.weight)


class Gpt2Block(nn.Module):
    """Attention and a feed-forward layer, each after a LayerNorm."""

    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1 = nn.LayerNorm(d)
        self.attention = nn.Linear(d, 3 * d)
        self.projection = nn.Linear(d, d)
        self.norm_2 = nn.LayerNorm(d)
        self.widen = nn.Linear(d, 4 * d)
        self.narrow = nn.Linear(4 * d, d)

    def forward(self, h: Tensor) -> Tensor:
        batch, length, d = h.shape
        parts = self.attention(self.norm_1(h)).view(batch, length, 3, self.heads, -1)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        h = h + self.projection(mixed.transpose(1, 2).reshape(batch, length, d))
        return h + self.narrow(F.gelu(self.widen(self.norm_2(h)), approximate="tanh"))


class BasicBlock(nn.Module):
    """Two convolutions with batch norm beside a shortcut."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.conv_1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.bn_1 = nn.BatchNorm2d(outer)
        self.conv_2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.bn_2 = nn.BatchNorm2d(outer)
        self.shortcut = nn.Identity()
        if stride > 1:
            self.shortcut = nn.Conv2d(inner, outer, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn_2(self.conv_2(F.relu(self.bn_1(self.conv_1(x)))))
        return F.relu(y + self.shortcut(x))


def resnet20() -> nn.Module:
    """ResNet-20 for images of 32 x 32."""
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    inner = 16
    for outer in (16, 32, 64):
        for number in range(3):
            layers.append(BasicBlock(inner, outer, 2 if outer > 16 and number == 0 else 1))
            inner = outer
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


class Tower(nn.Module):
    """Many small residual blocks."""

    def __init__(self, blocks: int, d: int = 32) -> None:
        super().__init__()
        self.embed = nn.Linear(20, d)
        self.blocks = nn.ModuleList([nn.Linear(d, d) for _ in range(blocks)])
        self.head = nn.Linear(d, 10)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        for block in self.blocks:
            h = h + 0.1 * torch.tanh(block(h))
        logits: Tensor = self.head(h)
        return logits


class ManyParameters(nn.Module):
    """Blocks beside very many parameters of one number, of which the forward reads the first."""

    def __init__(self, parameters: int, blocks: int = 4, d: int = 32) -> None:
        super().__init__()
        self.embed = nn.Linear(20, d)
        self.blocks = nn.ModuleList([nn.Linear(d, d) for _ in range(blocks)])
        numbers = [nn.Parameter(torch.randn(())) for _ in range(parameters)]
        self.numbers = nn.ParameterList(numbers)
        self.head = nn.Linear(d, 10)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        for block in self.blocks:
            h = h + torch.tanh(block(h))
        logits: Tensor = self.head(h * self.numbers[0])
        return logits


class Case(NamedTuple):
    """A network and its data."""

    network: Callable[[], nn.Module]
    data: Callable[[], Iterator[tuple[Tensor, Tensor]]]
    batch_size: int = BATCH
    generated: bool = False
    """Whether the data is a generator, which can be read once."""


def vectors(number: int, *shape: int, classes: int = 10) -> Callable[[], Any]:
    """Random inputs and classes."""

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        generator = torch.Generator().manual_seed(0)
        for start in range(0, number, BATCH):
            size = min(BATCH, number - start)
            x = torch.randn(size, *shape, generator=generator)
            yield x, torch.randint(0, classes, (size,), generator=generator)

    return batches


def tokens(number: int, length: int, words: int) -> Callable[[], Any]:
    """Random tokens, each after the one before it; frequent ones more often, as in a text."""

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        generator = torch.Generator().manual_seed(0)
        for start in range(0, number, BATCH):
            size = min(BATCH, number - start)
            shares = torch.rand(size, length + 1, generator=generator)
            ids = (words**shares).long() - 1
            yield ids[:, :-1], ids[:, 1:].clone()

    return batches


CASES = {
    "mlp": Case(lambda: ResidualMLP(3072, 256, 4), vectors(10_000, 3072)),
    "mlp-784": Case(lambda: ResidualMLP(784, 256, 4), vectors(10_000, 784)),
    "resnet20": Case(resnet20, vectors(10_000, 3, 32, 32)),
    "vit": Case(SmallViT, vectors(2_560, 1, 28, 28)),
    "lm-7m": Case(lambda: Gpt2(8_192, 64, 256, 6, 8), tokens(256, 64, 8_192)),
    "lm-124m": Case(lambda: Gpt2(50_257, 128, 768, 12, 12), tokens(256, 128, 50_257)),
    "100,000": Case(lambda: ResidualMLP(784, 64, 4), vectors(100_000, 784)),
    "generator": Case(lambda: ResidualMLP(784, 64, 4), vectors(127_500, 784), generated=True),
    "blocks-100": Case(lambda: Tower(100), vectors(2_560, 20)),
    "blocks-400": Case(lambda: Tower(400), vectors(2_560, 20)),
    "parameters": Case(lambda: ManyParameters(10_000), vectors(2_560, 20)),
    "classes": Case(lambda: ResidualMLP(20, 64, 4, 50_000), vectors(2_560, 20, classes=50_000)),
}
"""By the name of each row."""


def cpu_seconds() -> float:
    """The CPU time of this process so far."""
    return time.process_time()


def bare(network: nn.Module, batches: list[tuple[Tensor, Tensor]]) -> None:
    """Forward over all samples, forward and backward over the first 1,280."""
    network.eval()
    with torch.no_grad():
        for x, _ in batches:
            network(x)
    done = 0
    for x, y in batches:
        outputs = network(x)
        F.cross_entropy(outputs.flatten(0, -2), y.flatten()).backward()
        done += len(y)
        if done >= EVALUATION:
            return


def one(name: str, way: str) -> None:
    """One round in this process: the ratio and the memory of one case, as JSON."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    case = CASES[name]
    network = case.network()
    batches: Any = case.data()
    if way != "memory" or not case.generated:
        batches = list(batches)
    seconds = {"bare": float("nan"), "audit": float("nan")}
    if way != "memory":
        bare(network, batches[:1])
        start = cpu_seconds()
        bare(network, batches)
        seconds["bare"] = cpu_seconds() - start
        network.zero_grad(set_to_none=True)
    if case.generated and way != "memory":
        batches = case.data()
    before = psutil.Process().memory_info().rss
    peak = Peak(psutil.Process())
    with peak:
        start = cpu_seconds()
        report = diagnose(network, batches, progress=False)
        seconds["audit"] = cpu_seconds() - start
    highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    memory = {"peak": max(peak.value, before) - before, "process": highest}
    verdict = str(report.verdict)
    print(json.dumps({**seconds, **memory, "verdict": verdict}))


def main() -> None:
    """Print one row a case."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=[*CASES], help=f"of {', '.join(CASES)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--way", default="both", choices=("both", "memory"))
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        return one(options.names[0], options.way)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    print(f"{'':12}{'bare s':>9}{'audit s':>9}{'ratio':>8}{'peak MB':>9}{'process MB':>12}")
    for name in options.names:
        rounds = []
        for _ in range(options.rounds):
            command = [sys.executable, __file__, "--one", "--way", options.way, name]
            done = subprocess.run(
                command,
                cwd=Path(__file__).parent,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                sys.exit(f"{name}: exit code {done.returncode}\n{done.stderr[-2000:]}")
            rounds.append(json.loads(done.stdout.splitlines()[-1]))
        median = {
            key: statistics.median(seen[key] for seen in rounds)
            for key in ("bare", "audit", "peak", "process")
        }
        ratio = statistics.median(seen["audit"] / seen["bare"] for seen in rounds)
        print(
            f"{name:12}{median['bare']:9.2f}{median['audit']:9.2f}{ratio:8.2f}"
            f"{median['peak'] / 1e6:9.0f}{median['process'] / 1e6:12.0f}  {rounds[-1]['verdict']}",
            flush=True,
        )


if __name__ == "__main__":
    main()
