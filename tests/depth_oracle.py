"""What the definition of depth utility gives, from all states at once, in numpy and float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

Array = np.ndarray[Any, Any]


def layer_norm(rows: Array) -> Array:
    """Each row with mean 0 and variance 1, without an epsilon; a constant row gives zeros."""
    normed = []
    for row in rows:
        scaled = row / np.abs(row).max() if np.abs(row).max() > 0 else row
        centred = scaled - scaled.mean()
        spread = np.sqrt((centred * centred).mean())
        normed.append(centred / spread if spread > 0 else centred)
    return np.stack(normed)


def weights_of(labels: Array) -> Array:
    """One weight an image, so that every class counts as much; they add up to their number."""
    counts = np.bincount(labels)
    return len(labels) / ((counts > 0).sum() * counts[labels])


def right_answers(z: Array, labels: Array, fitted: Array, ridge: float = 1e-3) -> Array:
    """Which of the other images a ridge regression has right, times their weights.

    The mean is the mean over classes. The bias is a column without cost.
    """
    design = np.hstack([z, np.ones((len(z), 1))])
    penalty = np.diag([ridge * fitted.sum()] * z.shape[1] + [0.0])
    targets = np.eye(labels.max() + 1)[labels[fitted]]
    weighted = weights_of(labels[fitted])[:, None] * design[fitted]
    weights = np.linalg.solve(weighted.T @ design[fitted] + penalty, weighted.T @ targets)
    right = (design[~fitted] @ weights).argmax(1) == labels[~fitted]
    return right * weights_of(labels[~fitted])


def probes(
    states: Sequence[Tensor],
    labels: Tensor,
    tokens: Sequence[int] | None = None,
    fitted: Array | None = None,
) -> list[Array]:
    """The weighted right answers at every state, fitted to the first half unless others are named.

    Sequences are averaged over ``tokens``, maps over their places.
    """
    y, answers = labels.numpy(), []
    fitted = np.arange(len(y)) < len(y) // 2 if fitted is None else fitted
    for state in states:
        rows = state.detach().double().numpy()
        if rows.ndim == 3:
            rows = rows[:, list(tokens) if tokens is not None else slice(None)].mean(1)
        rows = rows.mean((2, 3)) if rows.ndim == 4 else rows
        answers.append(right_answers(layer_norm(rows), y, fitted))
    return answers


def interval(
    own: Sequence[Array], null: Sequence[Sequence[Array]], start: int, end: int, labels: Array
) -> Any:
    """The normal 95 % interval of a gain beyond the null's where that is positive, in pp.

    Its variance is that of a mean of class means; ``labels`` are those of the images read.
    """
    chance = np.mean([draw[end] - draw[start] for draw in null], 0)
    gain = own[end] - own[start] - (chance if chance.mean() > 0 else 0)
    plain, classes = gain / weights_of(labels), np.unique(labels)
    parts = [plain[labels == one] for one in classes]
    half = 1.959964 * np.sqrt(sum(part.var() / len(part) for part in parts)) / len(classes)
    return 100 * (gain.mean() - half), 100 * (gain.mean() + half)
