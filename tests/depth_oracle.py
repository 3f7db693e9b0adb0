"""What the definition of depth utility gives, from all states at once, in numpy and float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
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


def dealt(labels: Array) -> tuple[Array, Array]:
    """The fold of each image, 0 or 1, and whether it is in the first half of it.

    Class by class the images of a fixed shuffle are dealt out like cards to four players.
    """
    shuffled = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0)).tolist()
    fold, first, turn = np.zeros(len(labels), int), np.zeros(len(labels), bool), 0
    for label in sorted(set(labels.tolist())):
        for image in shuffled:
            if labels[image] == label:
                fold[image], first[image] = turn % 2, turn % 4 < 2
                turn += 1
    return fold, first


def weights_of(labels: Array) -> Array:
    """One weight an image, so that every class counts as much; they add up to their number."""
    counts = np.bincount(labels)
    return len(labels) / ((counts > 0).sum() * counts[labels])


def answers(
    z: Array, labels: Array, fit: Array, weights: Array, read: Array, ridge: float = 1e-3
) -> Array:
    """What a weighted ridge regression predicts for images; the bias is a column without cost."""
    design = np.hstack([z, np.ones((len(z), 1))])
    penalty = np.diag([ridge * weights.sum()] * z.shape[1] + [0.0])
    targets = np.eye(labels.max() + 1)[labels[fit]]
    weighted = weights[:, None] * design[fit]
    solved = np.linalg.solve(weighted.T @ design[fit] + penalty, weighted.T @ targets)
    return (design[read] @ solved).argmax(1)


def right_answers(z: Array, labels: Array, *, half: bool = False) -> Array:
    """Which images are read right by what is fitted to the other fold, times their weights.

    The mean is the mean over classes. With ``half`` the fit is to half of the other fold.
    """
    fold, first = dealt(labels)
    right = np.zeros(len(labels))
    for other in (0, 1):
        fit = np.flatnonzero(fold == other)
        weights = weights_of(labels[fit])
        if half:
            fit, weights = fit[first[fit]], weights[first[fit]]
        read = np.flatnonzero(fold != other)
        right[read] = answers(z, labels, fit, weights, read) == labels[read]
    return right * weights_of(labels)


def probes(
    states: Sequence[Tensor],
    labels: Tensor,
    tokens: Sequence[int] | None = None,
    *,
    half: bool = False,
) -> list[Array]:
    """The weighted right answers at every state.

    Sequences are averaged over ``tokens``, maps over their places.
    """
    read = []
    for state in states:
        rows = state.detach().double().numpy()
        if rows.ndim == 3:
            rows = rows[:, list(tokens) if tokens is not None else slice(None)].mean(1)
        rows = rows.mean((2, 3)) if rows.ndim == 4 else rows
        read.append(right_answers(layer_norm(rows), labels.numpy(), half=half))
    return read


def utility(states: Sequence[Array], null: Sequence[Sequence[Array]]) -> float:
    """Gain − max(null, 0), in pp."""
    chance = np.mean([draw[-1].mean() - draw[0].mean() for draw in null])
    return float(100 * (states[-1].mean() - states[0].mean() - max(chance, 0.0)))


def interval(
    states: Sequence[Array],
    null: Sequence[Sequence[Array]],
    start: int,
    end: int,
    labels: Array,
    allowance: float = 0.0,
) -> tuple[float, float]:
    """The normal 95 % interval of a gain beyond the null's where that is positive, in pp.

    Its variance is that of a mean of class means, and of the mean of two draws of the null.
    """
    gain = beyond(states, null, start, end)
    kept = [max(float((draw[end] - draw[start]).mean()), 0.0) for draw in null]
    low, high = around(gain, labels, (kept[0] - kept[1]) / 2)
    return low - allowance, high


def beyond(
    states: Sequence[Array], null: Sequence[Sequence[Array]], start: int = 0, end: int = -1
) -> Array:
    """The gain of each image beyond the null's where that is positive."""
    draws = [draw[end] - draw[start] for draw in null]
    gain: Array = states[end] - states[start] - (np.mean(draws, 0) if np.mean(draws) > 0 else 0)
    return gain


def around(gain: Array, labels: Array, noise: float = 0.0) -> tuple[float, float]:
    """The normal interval of a mean of class means, with more noise of this size."""
    plain, classes = gain / weights_of(labels), np.unique(labels)
    parts = [plain[labels == label] for label in classes]
    variance = sum(part.var() / len(part) for part in parts) / len(classes) ** 2
    half = 1.959964 * np.sqrt(variance + noise**2)
    return 100 * (gain.mean() - half), 100 * (gain.mean() + half)
