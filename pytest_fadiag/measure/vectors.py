"""Norms, medians and cosines of the rows of a tensor, in float64 and without an epsilon."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def wide_dtype(tensor: Tensor) -> torch.dtype:
    """float64, or float32 on devices that have no float64."""
    return torch.float32 if tensor.device.type == "mps" else torch.float64


def row_norms(rows: Tensor) -> Tensor:
    """The L2 norm along the last dimension, accumulated in float64; float64 rows are scaled by their largest entry first."""
    if rows.dtype != torch.float64:
        norms: Tensor = torch.linalg.vector_norm(rows, dim=-1, dtype=wide_dtype(rows))
        return norms
    scale = rows.abs().amax(-1, keepdim=True)
    safe = torch.where((scale > 0) & torch.isfinite(scale), scale, 1.0)
    scaled: Tensor = torch.linalg.vector_norm(rows / safe, dim=-1)
    return scaled * safe.squeeze(-1)


def median(values: Tensor) -> float:
    """The median of the values, the mean of the middle two for an even number; NaN for none."""
    if not values.numel():
        return math.nan
    ordered = values.flatten().sort().values
    low, high = ordered[(len(ordered) - 1) // 2].item(), ordered[len(ordered) // 2].item()
    return low if low == high else (low + high) / 2


def pairwise_cosine(vectors: Tensor) -> float:
    """The mean cosine over all pairs of rows; NaN if a row is zero or not finite, since it has no direction."""
    scale = vectors.abs().amax(1, keepdim=True)
    if not bool((torch.isfinite(scale) & (scale > 0)).all()):
        return math.nan
    units = vectors / scale
    units = units / torch.linalg.vector_norm(units, dim=1, keepdim=True)
    n = len(units)
    cosines = units @ units.T
    return float((cosines.sum() - cosines.diagonal().sum()) / (n * (n - 1)))
