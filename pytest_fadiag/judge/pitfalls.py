"""The checklist of pitfalls in its words, one number each: of the checks that read code, and of the reporting form."""

from __future__ import annotations

from typing import NamedTuple


class ChecklistItem(NamedTuple):
    """One pitfall, and why the audit's own numbers do not commit it."""

    title: str
    avoided: str
    """Empty where this is nothing that the audit does."""


PITFALLS = {
    1: ChecklistItem("norm(-1) is an order, not a dimension", "every norm is the L2 norm over a sample's features"),
    2: ChecklistItem(
        "cosine_similarity clamps small gradients",
        "cosines are taken in float64 of vectors scaled by their largest entry, with no epsilon; of a zero vector: undefined",
    ),
    3: ChecklistItem("gradient statistics in float16", "states and gradients were computed in float32 or wider"),
    4: ChecklistItem("feedback matrices not saved, missing credit read as 1.0", ""),
    5: ChecklistItem(
        "a cosine of concatenated layers",
        "norms are per sample, then the median; the drift is of batch-mean gradients at one layer and called so",
    ),
    6: ChecklistItem("cosines averaged over layers", "every layer is given by itself, the embedding (layer 0) apart"),
}
