"""The checks in the order of the checklist: a new pitfall is a file of its own and a line here."""

from __future__ import annotations

from . import concatenation, cosine_guard, feedback, half_precision, layer_average, norm_order

CHECKS = (
    norm_order.CHECK,
    cosine_guard.CHECK,
    half_precision.CHECK,
    feedback.CHECK,
    concatenation.CHECK,
    layer_average.CHECK,
)


PITFALLS = {check.number: check for check in CHECKS}
