"""What the definition of depth utility gives, from all states at once, in numpy and float64; nothing is streamed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor


def pooled_layer_norm(state: np.ndarray, tokens: Sequence[int] | None = None) -> np.ndarray:
    """LayerNorm without affine and without epsilon of the pooled states, row by row; a constant row gives zeros."""
    if state.ndim == 3:
        state = state[:, list(tokens)].mean(1) if tokens is not None else state.mean(1)
    if state.ndim == 4:
        state = state.mean((2, 3))
    rows = []
    for given in state:
        scaled = given / np.abs(given).max() if np.abs(given).max() > 0 else given
        row = scaled - scaled.mean()
        rows.append(row / np.sqrt((row * row).mean()) if (row * row).mean() > 0 else row)
    return np.stack(rows)


def right_answers(z: np.ndarray, labels: np.ndarray, fitted: np.ndarray, ridge: float = 1e-3) -> np.ndarray:
    """Which of the images that it is not fitted to a ridge regression has right: the bias is a column that costs nothing."""
    classes = labels.max() + 1
    n = fitted.sum()
    design = np.hstack([z, np.ones((len(z), 1))])
    penalty = np.diag([ridge * n] * z.shape[1] + [0.0])
    targets = np.eye(classes)[labels[fitted]]
    weights = np.linalg.solve(design[fitted].T @ design[fitted] + penalty, design[fitted].T @ targets)
    scores = design[~fitted] @ weights
    return (scores.argmax(1) == labels[~fitted]).astype(float)


def probes(
    states: Sequence[Tensor], labels: Tensor, tokens: Sequence[int] | None = None, fitted: np.ndarray | None = None
) -> list[np.ndarray]:
    """The right answers at every state, fitted to the first half unless others are named."""
    y = labels.numpy()
    fitted = np.arange(len(y)) < len(y) // 2 if fitted is None else fitted
    return [right_answers(pooled_layer_norm(state.detach().double().numpy(), tokens), y, fitted) for state in states]


def utility(own: Sequence[np.ndarray], null: Sequence[Sequence[np.ndarray]]) -> tuple[float, float, float]:
    """Gain, null and utility in percentage points."""
    gain = 100 * (own[-1].mean() - own[0].mean())
    by_chance = float(np.mean([100 * (draw[-1].mean() - draw[0].mean()) for draw in null]))
    return gain, by_chance, gain - max(by_chance, 0.0)


def interval(differences: np.ndarray) -> tuple[float, float]:
    """The normal 95 % interval of a mean, in percentage points."""
    half = 1.959964 * differences.std() / np.sqrt(len(differences))
    return 100 * (differences.mean() - half), 100 * (differences.mean() + half)
