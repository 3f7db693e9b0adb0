"""Γ: whether credit points along the BP gradient, sample by sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..judge.errors import AuditError
from ..judge.wording import count, figure, signed_cosine
from .vectors import median, row_norms, wide_dtype

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


@dataclass(frozen=True, eq=False)
class Alignment:
    """The cosine between credit and gradient of every sample, with its sign, and the size of both vectors."""

    cosines: Tensor
    """One for each sample, in float64; NaN where one of its vectors is zero, which has no direction."""
    credit_norms: Tensor
    gradient_norms: Tensor

    @property
    def median(self) -> float:
        """Γ: the median over the samples whose cosine is defined; NaN where there is none."""
        return median(self._defined)

    @property
    def magnitude(self) -> float:
        """The median of ‖a‖/‖g‖ over the same samples: 1 where the credit is as large as the gradient."""
        ratios = self.credit_norms / self.gradient_norms
        return median(ratios[~self.cosines.isnan()])

    @property
    def undefined(self) -> int:
        """How many samples have no cosine."""
        return int(self.cosines.isnan().sum())

    def quantile(self, share: float) -> float:
        """The cosine that this share of the samples does not exceed, interpolated between neighbours."""
        return quantile(self._defined, share)

    @property
    def _defined(self) -> Tensor:
        return self.cosines[~self.cosines.isnan()]

    def __str__(self) -> str:
        left_out = f", {self.undefined:,} of them undefined" if self.undefined else ""
        return (
            f"Γ {signed_cosine(self.median)} (quartiles {signed_cosine(self.quantile(0.25))} and "
            f"{signed_cosine(self.quantile(0.75))}), ‖a‖/‖g‖ {figure(self.magnitude)}, "
            f"{count(len(self.cosines), 'sample')}{left_out}"
        )


def alignment(credit: Tensor | ArrayLike, gradient: Tensor | ArrayLike) -> Alignment:
    """Compare the credit of a training rule with the BP gradient at the same state.

    Both are tensors or arrays with samples first; all that belongs to a sample, its tokens or positions too, is one vector.
    The credit has the sign of a gradient: a rule that steps along −a descends where the cosine is positive. Each row is
    scaled by its largest entry and compared in float64 without an epsilon, so vectors of any size have a direction, and a
    zero vector has none.
    """
    a, g = _rows(credit, "credit"), _rows(gradient, "gradient")
    if a.shape != g.shape:
        raise AuditError(f"the credit has shape {_shape(credit)} and the gradient {_shape(gradient)}; they must be the same")
    g = g.to(a.device)
    return Alignment(row_cosines(a, g), row_norms(a), row_norms(g))


def row_cosines(a: Tensor, b: Tensor) -> Tensor:
    """The cosine of each pair of rows in float64, within [-1, 1]; NaN where one of them is zero."""
    return (unit_rows(a) * unit_rows(b)).sum(-1).clamp(-1, 1)


def unit_rows(rows: Tensor) -> Tensor:
    """Each row along the last dimension divided by its norm, in float64; NaN for a zero row."""
    wide = rows.to(wide_dtype(rows))
    scaled = wide / wide.abs().amax(-1, keepdim=True)
    units: Tensor = scaled / torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)
    return units


def quantile(values: Tensor, share: float) -> float:
    """A quantile with linear interpolation; NaN of no values."""
    return float(torch.quantile(values, share)) if values.numel() else torch.nan


def _rows(values: Any, what: str) -> Tensor:
    try:
        rows = torch.as_tensor(values).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise AuditError(f"the {what} is {type(values).__name__}; expected a tensor or an array ({error})") from error
    if not rows.is_floating_point():
        raise AuditError(f"the {what} is of dtype {rows.dtype}; expected real floating-point numbers")
    if rows.ndim < 2 or not rows.numel():
        raise AuditError(f"the {what} has shape {tuple(rows.shape)}; expected samples first, then what belongs to each: [N, …]")
    rows = rows.flatten(1)
    broken = int((~torch.isfinite(rows).all(1)).sum())
    if broken:
        raise AuditError(f"the {what} is NaN or inf for {broken:,} of {count(len(rows), 'sample')}: it has no direction there")
    return rows


def _shape(values: Any) -> tuple[int, ...]:
    return tuple(torch.as_tensor(values).shape)
