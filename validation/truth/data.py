"""Fashion-MNIST whole and in part: ten, five, three and two classes, and test data in which the classes are not equal."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from pytest_fadiag import DataSet, load_data

TEST = Path(__file__).resolve().parents[2] / "fixtures" / "fashion-mnist"
TASKS = {
    "ten": tuple(range(10)),
    "five": (0, 2, 3, 4, 6),  # tops, which look alike
    "three": (2, 4, 6),
    "two": (2, 6),
    "easy": (1, 8),  # trousers and bags: one linear layer tells them apart
}
MIXES = ("balanced", "skewed", "mostly one", "sorted")
"""As shipped; class 0 nine times as frequent as any other; nine images in ten of class 0; class after class."""
SIZES = (1_000, 2_000, 5_000)
"""How many images there are in smaller test sets: the first ones of the split."""
SKEW = 9


def evaluations(task: str) -> list[str]:
    """The class mixes, and the sizes that are smaller than the test split of a task."""
    images = 1_000 * len(TASKS[task])
    return [*MIXES, *(str(size) for size in SIZES if size < images)]


@dataclass(frozen=True)
class Split:
    """Inputs as the network takes them, labels, and how they were normalised."""

    x: Tensor
    y: Tensor
    mean: tuple[float, ...]
    std: tuple[float, ...]


@cache
def training(root: Path, task: str) -> Split:
    """What a task's networks learn from: the training split, or with ``TEST`` for a root the first half of the test split."""
    data = load_data(f"fashion-mnist:{root}", split="test" if root == TEST else "train")
    data = _task(_part(data, torch.arange(len(data) // 2)) if root == TEST else data, task)
    assert data.mean is not None and data.std is not None
    return Split(data.normalised(data.x), data.y, tuple(data.mean), tuple(data.std))


@cache
def evaluation(root: Path, task: str, mix: str = "balanced") -> DataSet:
    """The shipped test split of a task in one of the class mixes, or so many images of it.

    The second half of it where networks learn from the first.
    """
    data = load_data(f"fashion-mnist:{TEST}")
    data = _task(
        _part(data, torch.arange(len(data) // 2, len(data))) if root == TEST else data, task
    )
    if mix.isdigit():
        data = _part(data, torch.arange(min(int(mix), len(data))))
    if mix == "sorted":
        data = _part(data, data.y.argsort(stable=True))
    if mix in ("skewed", "mostly one"):
        classes = len(TASKS[task])
        data = _part(data, _skewed(data.y, 1 if mix == "skewed" else classes - 1))
    return replace(data, name=f"fashion-mnist, {task} classes, {mix}")


def _task(data: DataSet, task: str) -> DataSet:
    """The images of the classes of a task, numbered from 0."""
    classes = torch.tensor(TASKS[task])
    data = _part(data, torch.isin(data.y, classes).nonzero()[:, 0])
    return replace(data, y=torch.searchsorted(classes, data.y))


def _skewed(y: Tensor, share: int) -> Tensor:
    """All images of class 0 and of each other a ninth as many, divided by ``share``; in the order of the split."""
    kept = [(y == label).nonzero()[:, 0] for label in range(int(y.max()) + 1)]
    few = len(kept[0]) // (SKEW * share)
    return torch.cat([kept[0], *(other[:few] for other in kept[1:])]).sort().values


def _part(data: DataSet, index: Tensor) -> DataSet:
    return replace(data, x=data.x[index], y=data.y[index])
