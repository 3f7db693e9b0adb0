"""How each pitfall of the checklist is found in code: a new one is a file of its own and a line here."""

from __future__ import annotations

from . import concatenation, cosine_guard, feedback, half_precision, layer_average, norm_order
from .finding import Find

CHECKS: dict[int, Find] = {
    1: norm_order.find,
    2: cosine_guard.find,
    3: half_precision.find,
    4: feedback.find,
    5: concatenation.find,
    6: layer_average.find,
}
