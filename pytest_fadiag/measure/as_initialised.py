"""Blocks that nothing tells from a new initialisation: what they add was not learnt in them."""

from __future__ import annotations

from typing import Any

import numpy
import numpy.typing
from torch import Tensor, nn

from .modules import named_parameters
from .reinitialise import initial_values
from .stream.sites import Stream

Numbers = numpy.typing.NDArray[Any]

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
    begin as, weights must have the distribution and, where it is bounded, the range of new ones. Training moves them all, but
    a distribution without bounds, such as a normal one, stays what it is where weights move by a third: a block in which
    nothing else is drawn is never among these, nor is one that its authors initialise in their own way.
    """
    own = named_parameters(network)
    draws = list(initial_values(network, stream, SEEDS))
    found = []
    for block, names in enumerate(stream.parameters):
        drawn = sorted(names.intersection(*draws))
        fresh = [numpy.concatenate([_numbers(draw[name]) for draw in draws]) for name in drawn]
        told = any(map(_telling, fresh)) and not all(map(_constant, fresh))
        if told and all(map(_alike, (_numbers(own[name]) for name in drawn), fresh)):
            found.append(block)
    return tuple(found)


def _numbers(parameter: Tensor) -> Numbers:
    """All entries, for numpy: it sorts ten times as fast."""
    return numpy.asarray(parameter.detach().flatten().cpu())


def _alike(values: Numbers, fresh: Numbers) -> bool:
    if _constant(fresh):
        return bool((values == fresh[0]).all())
    return bool(numpy.isfinite(values).all()) and _in_range(values, fresh) and _same_distribution(values, fresh)


def _in_range(values: Numbers, fresh: Numbers) -> bool:
    """Whether values lie within the bounds of a uniform distribution; one that has no bounds holds everything."""
    if len(values) < FEW or not _bounded(fresh):
        return True
    low, high = float(fresh.min()), float(fresh.max())
    slack = (high - low) * (BEYOND / len(values) + ROUNDING)
    return bool(values.min() >= low - slack and values.max() <= high + slack)


def _bounded(fresh: Numbers) -> bool:
    return float(fresh.max()) - float(fresh.min()) <= UNIFORM * float(fresh.std(dtype=numpy.float64))


def _telling(fresh: Numbers) -> bool:
    """Whether a small step of every entry shows: away from a constant, or beyond the bounds of many entries."""
    return _constant(fresh) or (len(fresh) >= FEW * len(SEEDS) and _bounded(fresh))


def _same_distribution(values: Numbers, fresh: Numbers) -> bool:
    """Kolmogorov and Smirnov's test of two samples."""
    one, other = (numpy.sort(sample[:: max(1, len(sample) // MOST)]) for sample in (values, fresh))
    bound = KOLMOGOROV * (1 / len(one) + 1 / len(other)) ** 0.5
    return all(float(abs(_share(one, at) - _share(other, at)).max()) <= bound for at in (one, other))


def _share(ordered: Numbers, at: Numbers) -> Numbers:
    """Of a sample, how much is no larger than each of some values."""
    share: Numbers = numpy.searchsorted(ordered, at, side="right") / len(ordered)
    return share


def _constant(values: Numbers) -> bool:
    return bool((values == values[0]).all())
