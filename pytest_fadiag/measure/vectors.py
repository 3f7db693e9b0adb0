"""Norms, medians and cosines of the rows of a tensor, in float64 and without an epsilon."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def column(values: Tensor, like: Tensor) -> Tensor:
    """One value per sample, with as many dimensions as another tensor has."""
    return values.view(-1, *[1] * (like.ndim - 1))


def directed(norms: Tensor) -> Tensor:
    """Which rows of these norms have a direction."""
    return torch.isfinite(norms) & (norms > 0)


def row_norms(rows: Tensor) -> Tensor:
    """The L2 norm along the last dimension in float64; float64 rows are scaled first."""
    if rows.dtype != torch.float64:
        norms: Tensor = torch.linalg.vector_norm(rows, dim=-1, dtype=torch.float64)
        return norms
    scale = rows.abs().amax(-1, keepdim=True)
    safe = torch.where((scale > 0) & torch.isfinite(scale), scale, 1.0)
    scaled: Tensor = torch.linalg.vector_norm(rows / safe, dim=-1)
    return scaled * safe.squeeze(-1)


def unit_rows(rows: Tensor) -> Tensor:
    """Each row along the last dimension divided by its norm, in float64; NaN for a zero row."""
    wide = rows.double()
    scaled = wide / wide.abs().amax(-1, keepdim=True)
    units: Tensor = scaled / torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)
    return units


def row_cosines(a: Tensor, b: Tensor) -> Tensor:
    """The cosine of each pair of rows in float64, within [-1, 1]; NaN where one of them is zero."""
    return (unit_rows(a) * unit_rows(b)).sum(-1).clamp(-1, 1)


def pairwise_cosine(vectors: Tensor) -> float:
    """The mean cosine over all pairs of rows; NaN if a row has no direction."""
    n = len(vectors)
    units = unit_rows(vectors)
    cosines = units @ units.T
    return float((cosines.sum() - cosines.diagonal().sum()) / (n * (n - 1)))


def sketch(width: int, buckets: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Random bucket and sign per entry (count sketch): on average, products are kept."""
    generator = torch.Generator().manual_seed(0)
    numbers = torch.randint(2 * buckets, (width,), generator=generator)
    signs = 1 - 2 * (numbers // buckets)
    return (numbers % buckets).to(device), signs.to(device)


def sketched(rows: Tensor, buckets: int) -> Tensor:
    """The rows as a count sketch of so many entries."""
    places, signs = sketch(rows.shape[1], buckets, rows.device)
    return rows.new_zeros(len(rows), buckets).index_add_(1, places, rows * signs)


def median(values: Tensor) -> float:
    """The median of the values, the mean of the middle two for an even number; NaN for none."""
    if not values.numel():
        return math.nan
    ordered = values.flatten().sort().values
    low = ordered[(len(ordered) - 1) // 2].item()
    high = ordered[len(ordered) // 2].item()
    return low if low == high else (low + high) / 2
