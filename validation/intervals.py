"""How often the 95 % intervals of (d) and of (e) hold the truth, by simulation.

    python validation/intervals.py

(d): a network and its control are right by chances that depend on class and image; the truth is the margin of the chances.
(e): a small network is audited on new test sets, with the same re-initialised blocks or with others each time; the truth is the mean
utility.
Ten classes, of equal size or with nine in ten images of one class.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from pytest_fadiag import ResidualMLP
from pytest_fadiag.judge.margins import margin_over
from pytest_fadiag.judge.records import Score
from pytest_fadiag.measure import probes
from pytest_fadiag.measure.run import NetworkSource, measure

CLASSES = 10
MIXES = {"equal": [0.1] * CLASSES, "90 %": [0.9] + [0.1 / 9] * 9}
SIZES = (2_000, 10_000)
RADII = torch.tensor([1.6488, 2.7528, 4.0446, 5.9886])
"""Squared radii in four dimensions that divide normal numbers into fifths."""


def labels_of(mix: str, size: int) -> list[int]:
    """The labels of a test set, in order."""
    shares = np.cumsum(MIXES[mix])
    return np.searchsorted(shares, (np.arange(size) + 0.5) / size).tolist()


def coverage_of_margins(mix: str, size: int, runs: int, *, paired: bool) -> tuple[float, float]:
    """The share of intervals of (d) that hold the truth, and their mean half-width in pp."""
    random = np.random.default_rng(0)
    labels = labels_of(mix, size)
    of_class = np.array(labels)
    easy = np.linspace(0.9, 0.6, CLASSES)[of_class]
    gain = np.linspace(-0.02, 0.08, CLASSES)[of_class]
    truth = 100 * np.linspace(-0.02, 0.08, CLASSES).mean()
    covered = 0
    widths = []
    for _ in range(runs):
        luck = random.random(size)
        other_luck = random.random(size)
        if paired:  # most images are as hard for the control
            other_luck = np.where(random.random(size) < 0.3, other_luck, luck)
        network = Score.of((luck < easy + gain).tolist(), "order", labels=labels)
        order = "order" if paired else "other order"
        control = Score.of((other_luck < easy).tolist(), order, labels=labels)
        interval = margin_over(network, control).interval
        assert interval is not None
        covered += truth in interval
        widths.append((interval.high - interval.low) / 2)
    return covered / runs, statistics.fmean(widths)


def images(size: int, seed: int) -> tuple[Tensor, Tensor]:
    """Normal numbers; the class is the fifth of one radius, and the half of another."""
    x = torch.randn(size, 20, generator=torch.Generator().manual_seed(seed))
    fifth = torch.bucketize(x[:, :4].square().sum(1), RADII)
    half = (x[:, 4:8].square().sum(1) > 3.3567).long()
    return x, 2 * fifth + half


def test_set(mix: str, size: int, seed: int) -> list[tuple[Tensor, Tensor]]:
    """Images of which each class has its share."""
    largest = max(MIXES[mix])
    x, y = images(int(1.3 * CLASSES * largest * size), seed)
    chosen = []
    for label, number in enumerate(np.bincount(labels_of(mix, size), minlength=CLASSES)):
        chosen.append((y == label).nonzero().flatten()[:number])
    order = torch.cat(chosen)
    assert len(order) == size
    order = order[torch.randperm(size, generator=torch.Generator().manual_seed(seed))]
    return [(x[order], y[order])]


def trained_network(steps: int = 600) -> nn.Module:
    """A residual MLP that has learnt a part of the classes."""
    torch.manual_seed(0)
    network = ResidualMLP(20, 32, 2, CLASSES)
    optimiser = torch.optim.Adam(network.parameters(), 3e-3)
    for step in range(steps):
        x, y = images(256, 1_000_000 + step)
        optimiser.zero_grad()
        functional.cross_entropy(network(x), y).backward()
        optimiser.step()
    return network.eval()


def coverage_of_utility(
    network: nn.Module, mix: str, size: int, runs: int, *, redrawn: bool
) -> tuple[float, float]:
    """The share of intervals of (e) that hold the mean utility, and their mean half-width in pp."""
    utilities = []
    intervals = []
    for run in range(runs):
        probes.SEEDS = (0, 1)
        if redrawn:
            probes.SEEDS = (2 * run, 2 * run + 1)
        depth = measure(NetworkSource(network, test_set(mix, size, run)), ["depth"]).depth
        assert depth is not None and depth.utility_pp is not None and depth.interval is not None
        utilities.append(depth.utility_pp)
        intervals.append(depth.interval)
    truth = statistics.fmean(utilities)
    covered = [low <= truth <= high for low, high in intervals]
    return statistics.fmean(covered), statistics.fmean((h - low) / 2 for low, h in intervals)


def row(name: str, mix: str, size: int, runs: int, result: Sequence[float]) -> str:
    """One line of the table."""
    share, width = result
    return f"| {name} | {mix} | {size:,} | {runs:,} | {share:.3f} | ± {width:.2f} pp |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2_000, help="of (d); (e) has a tenth of them")
    runs = parser.parse_args().runs
    network = trained_network()
    print("| interval | classes | images | runs | holds the truth | half-width |")
    print("| --- | --- | --- | --- | --- | --- |")
    for mix in MIXES:
        for size in SIZES:
            for name, paired in (("(d), paired", True), ("(d), unpaired", False)):
                result = coverage_of_margins(mix, size, runs, paired=paired)
                print(row(name, mix, size, runs, result), flush=True)
    for mix in MIXES:
        for size in SIZES:
            for name, redrawn in (("(e)", False), ("(e), other null each time", True)):
                result = coverage_of_utility(network, mix, size, runs // 10, redrawn=redrawn)
                print(row(name, mix, size, runs // 10, result), flush=True)


if __name__ == "__main__":
    main()
