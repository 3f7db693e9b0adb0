"""Blocks that nothing tells from a new initialisation: what they add was not learnt in them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .modules import named_parameters
from .reinitialise import initial_values
from .stream.sites import Stream

SEEDS = (7_919_561, 7_919_562)
"""Such as nobody begins a training with: weights that come out the same would look as if nothing drew them."""
MOST = 20_000
"""So many entries of a tensor are compared as a sample of it; the range is that of all."""
KOLMOGOROV = 2.4
"""In units of the two-sample bound: two samples of one distribution exceed it once in 50,000 tensors."""
BEYOND = 8.0
"""By how many gaps between the entries of a uniform sample another one may reach beyond it."""
ROUNDING = 1e-3
"""What half precision may add to an entry."""
FEW = 32
UNIFORM = 3.7
"""A sample of a uniform distribution spans 3.46 standard deviations, one of a normal distribution more than 4."""


def as_initialised(network: nn.Module, stream: Stream) -> tuple[int, ...]:
    """The blocks, counted from 0, whose weights a new initialisation could have drawn.

    Only what ``reset_parameters`` of their modules draws can be compared: constants such as those of a norm must be what they
    begin as, weights must have the distribution and, where it is bounded, the range of new ones. Training moves them all. A
    block that its authors initialise in their own way is never among these.
    """
    own = named_parameters(network)
    draws = [initial_values(network, stream, seed) for seed in SEEDS]
    found = []
    for block, names in enumerate(stream.parameters):
        drawn = sorted(names.intersection(*draws))
        fresh = [torch.cat([draw[name].double().flatten() for draw in draws]) for name in drawn]
        if any(not _constant(values) for values in fresh) and all(map(_alike, (own[name] for name in drawn), fresh)):
            found.append(block)
    return tuple(found)


def _alike(parameter: Tensor, fresh: Tensor) -> bool:
    values = parameter.detach().double().flatten()
    if _constant(fresh):
        return bool((values == fresh[0]).all())
    return bool(torch.isfinite(values).all()) and _in_range(values, fresh) and _same_distribution(values, fresh)


def _in_range(values: Tensor, fresh: Tensor) -> bool:
    """Whether values lie within the bounds of a uniform distribution; one that has no bounds holds everything."""
    low, high = fresh.aminmax()
    span = high - low
    if len(values) < FEW or span > UNIFORM * fresh.std():
        return True
    slack = span * (BEYOND / len(values) + ROUNDING)
    return bool(values.min() >= low - slack and values.max() <= high + slack)


def _same_distribution(values: Tensor, fresh: Tensor) -> bool:
    """Kolmogorov and Smirnov's test of two samples."""
    one, other = (sample[:: max(1, len(sample) // MOST)].sort().values for sample in (values, fresh))
    both = torch.cat([one, other])
    shares = [torch.searchsorted(sample, both, right=True).double() / len(sample) for sample in (one, other)]
    bound = KOLMOGOROV * (1 / len(one) + 1 / len(other)) ** 0.5
    return bool((shares[0] - shares[1]).abs().max() <= bound)


def _constant(values: Tensor) -> bool:
    return bool((values == values[0]).all())
