"""What the weights of a block tell: that an initialisation left them so, or that it did not."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy
import torch
from torch import nn

from .copies import copy_of, is_source, named_modules, named_parameters, quiet
from .redraw import reset_modules

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Array = NDArray[Any]

    from .stream.sites import Stream

SEEDS = (7_919_561, 7_919_562)
"""No training begins with these: weights that come out the same would look as if nothing drew."""
SAMPLE = 20_000
"""Of a larger tensor, a sample of this many entries is compared, and the range of all of them."""
KOLMOGOROV = 2.4
"""Times the two-sample bound: samples of one distribution exceed it once in 50,000 tensors."""
GAPS = 8.0
"""How far a uniform sample may reach beyond another one, in gaps between entries."""
ROUNDING = 1e-3
"""What half precision may add to an entry."""
FEWEST = 32
"""The range of fewer entries tells nothing."""
UNIFORM = 3.7
"""A uniform sample spans 3.46 standard deviations, a normal one more than 4."""
LAYERS = (
    nn.Linear,
    nn.Bilinear,
    nn.modules.conv._ConvNd,
    nn.RNNBase,
    nn.RNNCellBase,
    nn.MultiheadAttention,
)
"""Whose matrices may show order; tables such as those of positions are drawn with some."""
SIZES = ((128, 512), (256, 1_024))
"""Rows and columns of a matrix that are looked at: a few first, then as many as time allows."""
LEAST_SIDE = 16
"""A matrix with fewer rows or columns shows no order."""
DRAWS = 40
"""Of each null of order."""
LIMIT = 5.0
"""Standard deviations of a null: no initialisation of 135 architectures exceeds 3.3."""
SIGNS_LIMIT = 4.0
"""Standard deviations of random signs of the units."""
ORDERS_LIMIT = 3.0
"""The same of permutations and of turns, which guard against one order of units in both."""
FEWEST_PAIRS = 2
"""One pair of blocks alone tells too little."""
SMALLEST_SD = 1e-5
"""Relative to the null's mean: less is rounding."""
Values = dict[str, "Array"]


class BlockWeights:
    """The weights of blocks beside what a new initialisation of them gives."""

    def __init__(self, network: nn.Module, stream: Stream) -> None:
        self.network = network
        self.stream = stream
        self.values = _values(network)
        copy = copy_of(network)
        exclusive = frozenset().union(*stream.exclusive_parameters)
        draws = []
        drawable: set[str] = set()
        with quiet(copy):
            for seed in SEEDS:
                torch.manual_seed(seed)
                drawable = reset_modules(copy, exclusive)
                draws.append(_values(copy))
        self.reset = draws[0]
        """What a new initialisation leaves of every parameter, drawn or not."""
        self.fresh: Values = {}
        """Two draws of each parameter that ``reset_parameters`` draws."""
        for name in drawable:
            self.fresh[name] = numpy.concatenate([draw[name] for draw in draws])

    def as_initialised(self) -> tuple[int, ...]:
        """The blocks, counted from 0, whose weights a new initialisation could have drawn.

        Only what ``reset_parameters`` draws can be compared. Constants such as those of a norm must
        be what they begin as, weights must have the distribution of new ones and, where it is
        bounded, their range. An unbounded distribution hardly changes where weights move by a
        third, so a block in which nothing else is drawn is never among these, nor one with a weight
        norm.
        """
        blocks = []
        for block, names in enumerate(self.stream.parameters):
            if any(map(is_source, names)):
                continue
            comparable = sorted(names & self.fresh.keys())
            if not _tells_training([self.fresh[name] for name in comparable]):
                continue
            if all(_alike(self.values[name], self.fresh[name]) for name in comparable):
                blocks.append(block)
        return tuple(blocks)

    def trained(self) -> tuple[int, ...]:
        """Blocks, counted from 0, that were trained for certain, until half of all are found.

        What an initialisation leaves constant, as the scales of a norm, is constant no more; or a
        matrix shows order that no independent drawing has. Of two neighbours whose matrices fit
        each other one was trained, and the second counts. «Not told» never means untrained, and
        trained never means useful.
        """
        blocks: list[int] = []
        for block, names in enumerate(self.stream.parameters):
            if 2 * len(blocks) >= len(self.stream.parameters):
                return tuple(blocks)
            if self._constants_vary(names) or self._shows_order(names):
                blocks.append(block)
        pairs: list[int] = []
        for block in range(1, len(self.stream.parameters)):
            is_apart = {block - 1, block}.isdisjoint([*blocks, *pairs])
            if is_apart and self._fit(block - 1, block):
                pairs.append(block)
        if len(pairs) >= FEWEST_PAIRS:
            blocks += pairs
        return tuple(sorted(blocks))

    def _constants_vary(self, names: frozenset[str]) -> bool:
        """Whether one of several equal numbers, such as the scales of a norm, is another now."""
        for name in names & self.fresh.keys():
            value = self.values[name]
            was_constant = numpy.ptp(self.fresh[name]) == 0
            if was_constant and numpy.ptp(value) > ROUNDING * abs(value).max():
                return True
        return False

    def _shows_order(self, names: frozenset[str]) -> bool:
        """Whether one of the matrices of a block shows order."""
        for name in self._weights_of_layers(names):
            tensor = named_parameters(self.network)[name]
            if shows_order(self.values[name].reshape(len(tensor), -1)):
                return True
        return False

    def _fit(self, block: int, following: int) -> bool:
        """Whether what one block writes last and the next one reads first fit each other."""
        writing = self._weights_of_layers(self.stream.parameters[block])[-1:]
        reading = self._weights_of_layers(self.stream.parameters[following])[:1]
        if not writing or not reading:
            return False
        if numpy.array_equal(self.values[writing[0]], self.values[reading[0]]):
            return False  # two copies of one drawing
        parameters = named_parameters(self.network)
        written, read = (parameters[name].detach().double().cpu() for name in (*writing, *reading))
        bias = self.values.get(
            f"{writing[0].removesuffix('weight')}bias", numpy.zeros(len(written))
        )
        return fit_each_other(
            numpy.column_stack([written.flatten(1).numpy(), bias]),
            read.transpose(0, 1).flatten(1).contiguous().numpy(),
        )

    def _weights_of_layers(self, names: frozenset[str]) -> list[str]:
        """The matrices of layers that were drawn, not made without chance."""
        of_layers: set[Any] = set()
        for module in named_modules(self.network).values():
            if isinstance(module, LAYERS):
                of_layers.update(module._parameters.values())
        matrices = []
        for name, parameter in named_parameters(self.network).items():
            is_matrix = name in names and parameter in of_layers and parameter.ndim > 1
            if is_matrix and not numpy.array_equal(self.values[name], self.reset[name]):
                matrices.append(name)
        return matrices


def _tells_training(samples: list[Array]) -> bool:
    """Whether training would show in a block with these initialisations of its parameters."""
    varying = [sample for sample in samples if numpy.ptp(sample)]
    if not varying:
        return False
    has_constants = len(varying) < len(samples)
    return has_constants or any(
        len(sample) >= 2 * FEWEST and _bounded(sample) for sample in varying
    )


def _bounded(fresh: Array) -> bool:
    """Whether a sample comes from a distribution with bounds, as a uniform one does."""
    return bool(numpy.ptp(fresh) <= UNIFORM * fresh.std(dtype=numpy.float64))


def _alike(values: Array, fresh: Array) -> bool:
    """Whether values could be drawn as fresh ones were: by range, and by Kolmogorov–Smirnov."""
    low = float(fresh.min())
    high = float(fresh.max())
    if low == high:
        return bool((values == low).all())
    if not numpy.isfinite(values).all():
        return False
    if len(values) >= FEWEST and _bounded(fresh):
        slack = (high - low) * (GAPS / len(values) + ROUNDING)
        if values.min() < low - slack or values.max() > high + slack:
            return False
    sample = _sorted_sample(values)
    fresh_sample = _sorted_sample(fresh)
    points = numpy.concatenate([sample, fresh_sample])
    distance = abs(_shares_up_to(points, sample) - _shares_up_to(points, fresh_sample)).max()
    return bool(distance <= KOLMOGOROV * (1 / len(sample) + 1 / len(fresh_sample)) ** 0.5)


def _sorted_sample(values: Array) -> Array:
    return numpy.sort(values[:: max(1, len(values) // SAMPLE)])


def _shares_up_to(points: Array, sample: Array) -> Array:
    """The share of a sorted sample that is at most each of some points."""
    return numpy.searchsorted(sample, points, side="right") / len(sample)


def _values(network: nn.Module) -> Values:
    """The entries of every parameter, for numpy: it sorts ten times as fast."""
    return {
        name: parameter.detach().flatten().cpu().numpy().copy()
        for name, parameter in named_parameters(network).items()
    }


def shows_order(weights: Array) -> bool:
    """Whether a matrix has order that no independent drawing of its entries, or of its rows, has.

    Its statistic is T = ‖WWᵀ‖²_F, which stands out from each of six nulls: random signs, all
    entries permuted, permuted within rows or columns, and each row or column turned around by any
    number of places, as if rows or columns were drawn with order of their own.
    """
    matrix = _prepared(weights)
    if min(matrix.shape) < LEAST_SIDE:
        return False
    for rows, columns in SIZES:
        if _stands_out(_sampled(matrix, rows, columns)):
            return True
        if matrix.shape[0] <= rows and matrix.shape[1] <= columns:
            break
    return False


def fit_each_other(written: Array, read: Array) -> bool:
    """Whether two matrices, of one row a unit, are related: what writes units and what reads them.

    Of matrices that were drawn apart, products of rows have nothing to do with each other. What two
    units have in common in both, summed, must stand out from random signs of the units, from
    permutations, and from turns, as if both matrices were drawn with one order of the units.
    """
    units = len(written)
    if units != len(read) or not LEAST_SIDE <= units <= SIZES[-1][0]:
        return False
    common = written @ written.T
    numpy.fill_diagonal(common, 0)
    of_readers = read @ read.T
    products = common * of_readers
    statistic = products.sum()
    if not statistic > SIGNS_LIMIT * math.sqrt(2 * numpy.square(products).sum()):
        return False
    random = numpy.random.default_rng(0)
    permutations = [random.permutation(units) for _ in range(DRAWS)]
    turns = [numpy.roll(numpy.arange(units), places) for places in range(1, units)]
    for orders in (permutations, turns):
        others = numpy.array(
            [(common[numpy.ix_(order, order)] * of_readers).sum() for order in orders]
        )
        if statistic - others.mean() <= ORDERS_LIMIT * others.std(ddof=1):
            return False
    return True


def _prepared(weights: Array) -> Array:
    """The matrix with the shorter side as rows, without rows and columns that repeat others."""
    matrix = weights.astype(numpy.float64)
    scale = numpy.sqrt(numpy.square(matrix).mean())
    if not scale > 0 or not numpy.isfinite(scale):
        return numpy.zeros((0, 0))
    if matrix.shape[0] > matrix.shape[1]:
        matrix = matrix.T
    distinct_rows = _without_repeats(matrix / scale)
    return _without_repeats(distinct_rows.T).T


def _without_repeats(matrix: Array) -> Array:
    """Rows of zeros, and rows that repeat another one up to signs, are left out."""
    probe = numpy.random.default_rng(0).random(matrix.shape[1])
    marks = (abs(matrix) * probe).sum(1)
    _, first = numpy.unique(marks, return_index=True)
    distinct: Array = matrix[numpy.sort(first[marks[first] > 0])]
    return distinct


def _sampled(matrix: Array, rows: int, columns: int) -> Array:
    """At most so many rows and columns, by a fixed draw, in single precision."""
    random = numpy.random.default_rng(0)
    for axis, limit in enumerate((rows, columns)):
        if matrix.shape[axis] > limit:
            chosen = random.choice(matrix.shape[axis], limit, replace=False)
            matrix = matrix.take(numpy.sort(chosen), axis)
    return numpy.ascontiguousarray(matrix, dtype=numpy.float32)


def _stands_out(matrix: Array) -> bool:
    """Whether T exceeds each null's mean by five standard deviations."""
    statistic = _statistic(matrix)
    random = numpy.random.default_rng(0)
    for null in NULLS:
        draws = numpy.array([_statistic(null(matrix, random)) for _ in range(DRAWS)])
        mean = draws.mean()
        if statistic - mean <= LIMIT * max(draws.std(ddof=1), SMALLEST_SD * mean):
            return False
    return True


def _statistic(matrix: Array) -> float:
    products = torch.from_numpy(matrix)
    return float((products @ products.T).double().square().sum())


def _turned(matrix: Array, random: numpy.random.Generator) -> Array:
    """Each row turned around by any number of places."""
    rows, columns = matrix.shape
    places = numpy.arange(columns) + random.integers(0, columns, (rows, 1))
    return numpy.take_along_axis(matrix, places % columns, 1)


NULLS: tuple[Callable[[Array, numpy.random.Generator], Array], ...] = (
    lambda matrix, random: matrix * (2 * random.integers(0, 2, matrix.shape, dtype=numpy.int8) - 1),
    lambda matrix, random: random.permutation(matrix.ravel()).reshape(matrix.shape),
    lambda matrix, random: random.permuted(matrix, axis=1),
    lambda matrix, random: random.permuted(matrix, axis=0),
    _turned,
    lambda matrix, random: numpy.ascontiguousarray(_turned(matrix.T, random).T),
)
"""Random signs, entries permuted among all, within rows and within columns, rows and columns
turned.
"""
