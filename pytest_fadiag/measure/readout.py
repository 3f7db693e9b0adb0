"""What the head reads of the last state: which of its tokens, and whether it tells places apart."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..judge.errors import AuditError
from .features import Layout
from .inputs import ModelInput, copied
from .outputs import largest_difference
from .reference import passed
from .shifts import Shifts, drawn_like
from .stream.sites import Stream
from .wide import copy_of, redrawn

UNCHANGED = 1e-6
"""How far logits may differ that do not depend on what was changed, by the largest difference of two samples."""
REORDERED = 1e-3
"""The same where sums are taken in another order."""


def tokens_read(network: nn.Module, stream: Stream, x: ModelInput) -> Tensor | None:
    """A mask of the tokens of h_L that reach the logits, or nothing where h_L is no list of tokens; ``x`` is a few samples.

    It belongs to the architecture, so it is taken from a copy with weights drawn anew: by the gradient, and then by moving all
    other tokens, which must change no logit.
    """
    if not stream.tokens[-1]:
        return None
    copy = redrawn(copy_of(network))
    taken = passed(copy, stream, x, lambda logits: (logits * drawn_like(logits, seed=0)).sum())
    last, gradient = taken.states[-1], taken.gradients[-1]
    of_each = (gradient != 0).any(2)
    read = of_each.any(0)

    def matter(tokens: Tensor) -> bool:
        """Whether some logit changes when these tokens are moved, ``[samples, tokens]``."""
        moved = last.abs().amax() * drawn_like(last, seed=1) * tokens.unsqueeze(2)
        logits = Shifts(copy, stream, x, taken.logits).moved(x, lambda *_: None, taken.depth, moved)
        return float((logits - taken.logits).abs().max()) > UNCHANGED * largest_difference(taken.logits)

    if bool((of_each != read).any()) and not matter(~of_each):  # where they do matter, it is a maximum that is read
        raise AuditError(
            "the head reads other tokens of one sample than of another, as of padded sequences: no mean over the same tokens "
            "of all samples is what it reads"
        )
    if matter((~read).expand_as(of_each)) or not bool(read.any()):
        raise AuditError("which tokens of h_L the head reads cannot be told: a gradient does not reach all that it depends on")
    return read


@torch.no_grad()
def tells_places(network: nn.Module, stream: Stream, x: ModelInput, layout: Layout, tokens: Tensor | None) -> bool:
    """Whether logits change where the positions of h_L that the head reads are dealt anew: it reads no mean over them then."""
    copy, states = redrawn(copy_of(network)), dict[int, Tensor]()
    logits = stream.run(copy, copied(x), lambda layer, state: states.update({layer: state.clone()}))
    depth = len(stream.sites) - 1
    last = states[depth].movedim(stream.batch_dims[depth], 0)
    if last.ndim < 3:
        return False
    by_place = layout.by_feature(last)
    read = torch.arange(by_place.shape[1]) if tokens is None else tokens.nonzero().flatten().cpu()
    dealt = by_place.clone()
    dealt[:, read] = by_place[:, read[torch.randperm(len(read), generator=torch.Generator().manual_seed(0))]]
    moved = Shifts(copy, stream, x, logits).moved(x, lambda *_: None, depth, layout.shaped(dealt, last) - last)
    return float((moved - logits).abs().max()) > REORDERED * largest_difference(logits)
