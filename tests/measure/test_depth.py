"""(e): probes along the stream and their null, against numpy that shares nothing with them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from depth_oracle import (
    answers,
    around,
    beyond,
    dealt,
    interval,
    layer_norm,
    probes,
    utility,
    weights_of,
)
from support import (
    Chain,
    Mean,
    Residual,
    changed,
    in_batches,
    measured,
    network,
    rings,
    seeded,
    states_and_head,
    trained_on_rings,
)
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from pytest_fadiag.judge.margins import balanced_interval
from pytest_fadiag.judge.records import Depth
from pytest_fadiag.load.data import DataSet
from pytest_fadiag.measure import folds
from pytest_fadiag.measure.folds import by_class

IMAGES = 1_300


def depth_of(model: nn.Module, batches: Any, metric: str = "depth", **options: Any) -> Depth:
    depth = measured(model, batches, [metric], **options).depth
    assert depth is not None
    return depth


def states_of(model: Any, x: Tensor) -> list[Tensor]:
    return states_and_head(model, x)[0]


def reset(model: Any, seed: int, *layers: nn.Module) -> Any:
    """The network after these layers drew themselves, in this order."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        for layer in layers:
            layer.reset_parameters()  # type: ignore[operator]
    return model


def redrawn(model: Any, seed: int) -> Any:
    other = copy.deepcopy(model)
    return reset(other, seed, *(part for b in other.blocks for part in (b.ln, b.fc1, b.fc2)))


@pytest.fixture(scope="module")
def learnt() -> tuple[nn.Module, Tensor, Tensor]:
    """A network whose depth helps, and its data."""
    x, y = rings(IMAGES)
    return trained_on_rings().double().eval(), x.double(), y


def assert_is(
    seen: Depth,
    states: Sequence[Any],
    null: Sequence[Sequence[Any]],
    y: Tensor,
    half: tuple[Any, Any] | None = None,
) -> None:
    """Every number of a measurement is that of the oracle."""

    def means(curve: Sequence[Any]) -> list[float]:
        return [right.mean() for right in curve]

    assert seen.probes == pytest.approx(means(states), abs=1e-6)
    for draw, expected in zip(seen.null, null, strict=True):
        assert draw == pytest.approx(means(expected), abs=1e-6)
    assert seen.utility_pp == pytest.approx(utility(states, null), abs=1e-6)
    if half is not None:
        higher = around(beyond(*half) - beyond(states, null), y.numpy())
        assert seen.half_interval == pytest.approx(higher, abs=0.05)
        assert sum(seen.half_interval) / 2 == pytest.approx(
            utility(*half) - seen.utility_pp, abs=0.02
        )
        assert seen.allowance_pp == max(seen.half_interval[0], 0.0)
    # One image is added to each side of 1,300.
    expected = interval(states, null, 0, len(states) - 1, y.numpy(), seen.allowance_pp)
    assert seen.interval == pytest.approx(expected, abs=0.15)
    for block, bounds in enumerate(seen.step_intervals):
        assert bounds == pytest.approx(interval(states, null, block, block + 1, y.numpy()), abs=0.3)


def test_probes_null_utility_and_intervals_are_what_the_definition_gives(learnt: Any) -> None:
    model, x, y = learnt
    seen = depth_of(model, in_batches(x, y))
    networks = [model, *(redrawn(model, seed) for seed in (0, 1))]
    states, *null = (probes(states_of(other, x), y) for other in networks)
    half, *half_null = (probes(states_of(other, x), y, half=True) for other in networks)
    assert_is(seen, states, null, y, (half, half_null))
    assert seen.gain_pp > 20 and seen.null[0] != seen.null[1]  # numbers that differ are compared
    assert abs(sum(seen.half_interval)) > 0.2
    assert (seen.fitted, seen.read, seen.training, seen.nonfinite) == (650, 1_300, "", (0,) * 4)
    assert (seen.problem, seen.null_problem) == ("", "")


def test_features_beyond_the_room_for_them_are_read_again(
    learnt: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x, y = learnt
    seen = depth_of(model, in_batches(x, y))
    for states in (0, 2, 3):  # of four, 24 features of 4 bytes each
        monkeypatch.setattr("pytest_fadiag.measure.probes.KEPT_BYTES", states * 1_300 * 24 * 4)
        assert depth_of(model, in_batches(x, y)) == seen


def test_of_a_control_the_readout_of_h_0_is_measured(learnt: Any) -> None:
    model, x, y = learnt
    whole = depth_of(model, in_batches(x, y))
    control = depth_of(model, in_batches(x, y), "control-readout")
    assert control.probes == whole.probes[:1] and control.null == () and control.read == 1_300
    assert control.network == whole.network


@pytest.mark.parametrize("size", [16, 100, 1_000])
def test_batch_sizes_change_nothing(learnt: Any, size: int) -> None:
    model, x, y = learnt
    usual = depth_of(model, in_batches(x, y))
    seen = depth_of(model, in_batches(x, y, size), batch_size=size)
    assert (seen.probes, seen.null) == (usual.probes, usual.null)


def test_sorted_data_is_dealt_alike_however_it_is_given(learnt: Any) -> None:
    model, x, y = learnt
    order = y.argsort(stable=True)
    x, y = x[order], y[order]
    seen = depth_of(model, in_batches(x, y))
    null = [probes(states_of(redrawn(model, seed), x), y) for seed in (0, 1)]
    assert_is(seen, probes(states_of(model, x), y), null, y)
    loader = DataLoader(TensorDataset(x, y), 100)
    assert depth_of(model, loader) == depth_of(model, iter(in_batches(x, y))) == seen


def test_with_few_images_nothing_is_measured(learnt: Any) -> None:
    model, x, y = learnt
    few = measured(model, in_batches(x[:999], y[:999]), ["states", "depth"])
    assert few.depth is not None and few.depth.problem.startswith(
        "999 test images; a linear readout"
    )
    assert few.depth.probes == () and len(few.residual_norms) == 4
    assert not depth_of(model, in_batches(x[:1_000], y[:1_000])).problem


class Tokens(nn.Module):
    """Tokens that mix and learn; the head reads some, and the stream is [B, T, d] or [T, B, d]."""

    def __init__(self, read: list[int] | None, *, tokens_first: bool = False, d: int = 12) -> None:
        super().__init__()
        self.read, self.tokens_first = read, tokens_first
        self.embed = nn.Linear(20, 5 * d)
        self.mix = nn.ModuleList(nn.Linear(5, 5) for _ in range(2))
        self.fc = nn.ModuleList(nn.Linear(d, d) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, 4)

    def states(self, x: Tensor) -> list[Tensor]:
        states = [self.embed(x).unflatten(1, (5, -1))]
        for mix, fc in zip(self.mix, self.fc, strict=True):
            states.append(states[-1] + fc(torch.relu(mix(states[-1].mT).mT)))
        return states

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x).unflatten(1, (5, -1))
        h = h.transpose(0, 1).contiguous() if self.tokens_first else h
        for mix, fc in zip(self.mix, self.fc, strict=True):
            where = 0 if self.tokens_first else 1
            h = h + fc(torch.relu(mix(h.movedim(where, -1)).movedim(-1, where)))
        h = self.norm(h.transpose(0, 1) if self.tokens_first else h)
        logits: Tensor = self.head((h if self.read is None else h[:, self.read]).mean(1))
        return logits


@pytest.mark.parametrize(
    ("read", "tokens_first", "words"),
    [
        (None, False, ""),
        ([0], False, "the 1 token that the head reads"),
        ([1, 3], False, "the 2 tokens that the head reads"),
        ([0], True, "the 1 token that the head reads"),
        (None, True, ""),
    ],
)
def test_tokens_are_pooled_as_the_head_reads_them(
    read: list[int] | None, tokens_first: bool, words: str
) -> None:
    model = seeded(lambda: Tokens(read, tokens_first=tokens_first)).double().eval()
    x, y = rings(IMAGES)
    seen, states = depth_of(model, in_batches(x.double(), y)), model.states(x.double())
    expected, others = (
        [right.mean() for right in probes(states, y, tokens)]
        for tokens in (read, [2] if read is None else None)
    )
    assert seen.probes == pytest.approx(expected, abs=1e-6) and seen.tokens == words
    assert expected != pytest.approx(others, abs=1e-6), "another pooling would be seen"
    few, norm = [state.detach()[:1_280].numpy() for state in states], np.linalg.norm
    change = [np.median(norm(b - a, axis=2) / norm(a, axis=2)) for a, b in pairwise(few)]
    assert seen.change == pytest.approx(change, rel=1e-6), "over samples and tokens"


class LastOnes(Tokens):
    """The head reads the last token before the padding, or the largest value of each feature."""

    def forward(self, x: Tensor, last: Tensor) -> Tensor:  # type: ignore[override]
        h = self.norm(self.states(x)[-1])
        return self.head(h.amax(1) if self.read else h[torch.arange(len(h)), last])  # type: ignore[no-any-return]


def test_padded_sequences_are_refused_and_a_maximum_over_tokens_is_not() -> None:
    x, y = rings(IMAGES)
    last = torch.arange(IMAGES) % 4
    parts = [slice(start, start + 100) for start in range(0, IMAGES, 100)]
    data = [({"x": x[part], "last": last[part]}, y[part]) for part in parts]
    padded = depth_of(seeded(lambda: LastOnes(None)).eval(), data)
    assert "the head reads different tokens of different samples" in padded.problem
    maxima = depth_of(seeded(lambda: LastOnes([0])).eval(), data)
    assert not maxima.problem and maxima.tokens == ""


class Halved(Residual):
    """A block that halves the map and doubles its channels."""

    def __init__(self) -> None:
        super().__init__(nn.Conv2d(6, 12, 3, 2, 1), nn.BatchNorm2d(12), nn.ReLU())
        self.skip = nn.Conv2d(6, 12, 1, 2)

    def forward(self, h: Tensor) -> Tensor:
        return self.skip(h) + self.f(h)  # type: ignore[no-any-return]


def maps() -> Chain:
    """Convolutions with batch statistics, in the stem too."""
    stem = nn.Sequential(nn.Conv2d(1, 6, 3, 1, 1), nn.BatchNorm2d(6))
    block = Residual(nn.Conv2d(6, 6, 3, 1, 1), nn.BatchNorm2d(6), nn.ReLU())
    return Chain(stem, [block, Halved()], nn.Sequential(Mean(3), Mean(2), nn.Linear(12, 4)))


def redrawn_maps(model: Any, x: Tensor, seed: int) -> Any:
    """Blocks re-initialised, with the mean of the batch statistics of whole batches of 128."""
    other = copy.deepcopy(model)
    (one, norm, _), (two, last, _) = (block.f for block in other.blocks)
    reset(other, seed, one, norm, two, last, other.blocks[1].skip)
    for layer in (norm, last):
        layer.train().momentum = None  # a plain mean
    for part in x.split(128):
        other(part)
    return other.eval()


def test_maps_of_several_shapes_and_batch_statistics_of_2560_samples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pytest_fadiag.measure.probes.STATISTICS", 512)
    x, y = rings(IMAGES)
    x = x.view(-1, 1, 4, 5).double()
    model = seeded(maps, 1).double().train()
    for part in x.split(100):
        model(part * 3 + 1)  # statistics that are not those of the data
    model.eval()
    seen = depth_of(model, in_batches(x, y))
    spread = x[np.linspace(0, IMAGES - 1, 512).round()]
    null = [probes(redrawn_maps(model, spread, seed).states(x), y) for seed in (0, 1)]
    assert_is(seen, probes(model.states(x), y), null, y)
    assert seen.change[0] > 0 and np.isnan(seen.change[1])
    for size in (16, 512):
        again = depth_of(model, in_batches(x, y, size), batch_size=size)
        assert (again.probes, again.null) == (seen.probes, seen.null)


def places(kind: str, *, flat: bool, features: int = 40) -> Any:
    """One residual block of maps, or of tokens, and a head that reads where something is or not."""
    embed = nn.Sequential(nn.Flatten(), nn.Unflatten(1, (64, 1)), nn.Linear(1, features))
    mix, pool = nn.Linear(features, features), nn.Sequential(Mean(1))
    if kind == "map":
        embed = nn.Sequential(nn.Conv2d(1, features, 3, padding=1, padding_mode="circular"))
        mix, pool = nn.Conv2d(features, features, 1), nn.Sequential(Mean(3), Mean(2))
    head = nn.Linear(64 * features if flat else features, 4)
    read = nn.Sequential(nn.Flatten() if flat else pool, head)
    return Chain(embed, [Residual(mix, nn.ReLU())], read).eval()


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("kind", ["map", "tokens"])
def test_a_head_that_tells_places_apart_is_not_measured_by_their_mean(
    kind: str, flat: bool
) -> None:
    y = torch.arange(IMAGES) % 4
    x = torch.randn(IMAGES, 1, 8, 8, generator=torch.Generator().manual_seed(0)).double()
    for corner, (row, column) in enumerate([(0, 0), (0, 4), (4, 0), (4, 4)]):
        x[y == corner, :, row : row + 4, column : column + 4] += 1.0  # the class is where it is
    model = seeded(lambda: places(kind, flat=flat)).double()
    seen = depth_of(model, in_batches(x, y))

    def ends(size: int, cells: int) -> list[tuple[int, int]]:
        """Cells overlap where their number does not divide the size."""
        return [(size * own // cells, -(-size * (own + 1) // cells)) for own in range(cells)]

    def averaged(state: Tensor) -> Tensor:
        """40 features in 5 x 5 cells of a map, or in 25 groups of 64 tokens."""
        maps = [(a, b, c, d) for a, b in ends(8, 5) for c, d in ends(8, 5)]
        if kind == "map":
            cells = [state[:, :, a:b, c:d].mean((2, 3)) for a, b, c, d in maps]
        else:
            cells = [state[:, a:b].mean(1) for a, b in ends(64, 25)]
        return torch.stack(cells, 2).flatten(1)

    states = model.states(x)
    of_places, of_means = (
        [right.mean() for right in probes(own, y)] for own in (list(map(averaged, states)), states)
    )
    assert seen.probes == pytest.approx(of_places if flat else of_means, abs=1e-6)
    assert min(of_places) > max(of_means) + 0.3, "another pooling would be seen"
    words = {"map": "the 5 × 5 cells", "tokens": "the 25 cells"}[kind]
    assert seen.tokens == (words if flat else "")


def test_maps_too_wide_for_a_grid_are_not_measured_by_their_mean() -> None:
    x, y = torch.randn(IMAGES, 1, 8, 8), torch.arange(IMAGES) % 4
    wide = depth_of(places("map", flat=True, features=300), in_batches(x, y))
    assert "300 features at each place leave no grid" in wide.problem and wide.probes == ()


def test_states_that_are_not_finite_are_counted_and_read_nothing(learnt: Any) -> None:
    model, x, y = learnt

    def broken(net: Any) -> None:
        net.blocks[1].fc2.weight[0, 0] = float("nan")

    seen = depth_of(changed(copy.deepcopy(model), broken), in_batches(x, y))
    assert seen.nonfinite == (0, 0, IMAGES, IMAGES)
    assert seen.probes[:2] == depth_of(model, in_batches(x, y)).probes[:2]
    assert seen.utility_pp is not None and seen.utility_pp < 3


def test_a_block_that_cannot_be_re_initialised_leaves_no_null() -> None:
    model = network(d=24, blocks=3, classes=4)
    model.blocks[1].ln.weight = model.out_ln.weight  # read by the head too
    seen = depth_of(model, in_batches(*rings(IMAGES)))
    assert seen.null_problem.startswith("blocks.1 cannot be re-initialised: some parameters are")
    assert seen.null == () and seen.utility_pp is None
    assert len(seen.probes) == 4 and seen.interval is not None


class Gained(Residual):
    """Gains that are exponentials: drawn with their own spread, they overflow."""

    def __init__(self, d: int) -> None:
        super().__init__(nn.Linear(d, d), nn.ReLU())
        self.log_gain = nn.Parameter(torch.zeros(d).index_fill(0, torch.tensor(0), -5_000.0))

    def forward(self, h: Tensor) -> Tensor:
        return h + self.f(h) * self.log_gain.exp()  # type: ignore[no-any-return]


def test_a_null_that_is_not_finite_or_does_not_run_is_none() -> None:
    blocks = [Gained(24), Gained(24)]
    model = seeded(lambda: Chain(nn.Linear(20, 24), blocks, nn.Linear(24, 4))).eval()
    seen = depth_of(model, in_batches(*rings(IMAGES)))
    assert seen.null_problem == (
        "with re-initialised blocks, states are NaN or inf for 1,300 images"
    )
    assert seen.null == () and seen.utility_pp is None
    assert not any(seen.nonfinite) and len(seen.probes) == 3 and not seen.problem

    def refuse(module: nn.Module, given: tuple[Tensor]) -> None:
        if bool((given[0].detach().abs() > 1e6).any()):
            raise ValueError("the stream exploded")

    blocks[1].register_forward_pre_hook(refuse)
    failed = depth_of(model, in_batches(*rings(IMAGES)))
    assert "ValueError: the stream exploded" in failed.null_problem and failed.null == ()
    assert failed.probes == seen.probes


def test_a_bug_of_our_own_is_not_told_as_a_problem_of_the_network(
    learnt: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x, y = learnt
    monkeypatch.setattr("pytest_fadiag.measure.probes.with_reinitialised_blocks", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        depth_of(model, in_batches(x, y))


def test_balanced_intervals_cover_the_mean_over_classes() -> None:
    """Of 400 images nine in ten are of class 0, with gains of 2 pp and of 20 pp: 11, not 3.8."""
    rng, covered, widths = np.random.default_rng(1), 0, []
    labels = torch.tensor([0] * 360 + [2] * 40)  # there is no class 1
    up, down = np.where(labels == 0, 0.06, 0.3), np.where(labels == 0, 0.04, 0.1)
    for _ in range(400):
        u = rng.random(400)
        gains = torch.from_numpy((u < up) * 1.0 - (u > 1 - down))
        low, high = balanced_interval(by_class(gains, labels))
        covered += low <= 11 <= high
        widths.append(high - low)
    # by hand: half the root of the sum of both classes' variances of a mean
    true = 100 * np.sqrt((0.1 - 0.02**2) / 360 + (0.4 - 0.2**2) / 40) / 2
    assert 0.92 <= covered / 400 <= 0.98
    assert np.mean(widths) == pytest.approx(2 * 1.96 * true, rel=0.05)


def test_classes_are_dealt_evenly_and_odd_leftovers_in_turn() -> None:
    labels = torch.tensor([0] * 9 + [3] * 11 + [1] * 7 + [0] * 2)[torch.randperm(29)]
    parts = folds.dealt(labels)
    fold, first = dealt(labels.numpy())
    assert parts.tolist() == (2 * fold + ~first).tolist()
    for label, number in ((0, 11), (1, 7), (3, 11)):
        counts = torch.bincount(parts[labels == label], minlength=4).tolist()
        assert sum(counts) == number and max(counts) - min(counts) <= 1
    sizes = torch.bincount(parts).tolist()
    assert max(sizes) - min(sizes) <= 1


def test_a_stratified_draw_takes_the_same_share_of_each_class() -> None:
    labels = torch.tensor([0] * 600 + [1] * 300 + [2] * 100)
    drawn = folds.stratified(labels, 50)
    assert torch.bincount(labels[drawn]).tolist() == [30, 15, 5]
    assert drawn.tolist() == sorted(set(drawn.tolist()))
    assert len(folds.stratified(labels, 5_000)) == 1_000


def fitted_to_the_first(
    states: Sequence[Tensor], y: Tensor, fitted: int, *, half: bool = False
) -> list[Any]:
    """The right answers on all later images, by probes of the first ones, times their weights."""
    labels = y.numpy()
    fit = np.arange(fitted)
    weights = weights_of(labels[fit])
    if half:
        _, first = dealt(labels[fit])
        fit, weights = fit[first], weights[first]
    read = np.arange(fitted, len(y))
    right = []
    for state in states:
        z = layer_norm(state.detach().double().numpy())
        hits = answers(z, labels, fit, weights, read) == labels[read]
        right.append(hits * weights_of(labels[read]))
    return right


def test_probes_are_fitted_to_the_training_split_where_there_is_one(
    learnt: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x, y = learnt
    more_x, more_y = rings(2_000, seed=5)
    training = in_batches(more_x.double(), more_y, 300)
    seen = depth_of(model, in_batches(x, y), training=training, training_name="rings (train)")
    both, labels = torch.cat([more_x.double(), x]), torch.cat([more_y, y])
    networks = [model, *(redrawn(model, seed) for seed in (0, 1))]
    states, *null = (
        fitted_to_the_first(states_of(other, both), labels, 2_000) for other in networks
    )
    half, *half_null = (
        fitted_to_the_first(states_of(other, both), labels, 2_000, half=True) for other in networks
    )
    assert_is(seen, states, null, y, (half, half_null))
    assert (seen.fitted, seen.read, seen.training) == (2_000, 1_300, "rings (train)")
    # At most n_train of them, of each class its share; what has no room is read again.
    monkeypatch.setattr("pytest_fadiag.measure.probes.KEPT_BYTES", 0)
    again = depth_of(model, in_batches(x, y), training=training, training_name="rings (train)")
    assert again == seen
    few = depth_of(model, in_batches(x, y), training=iter(training), n_train=400)
    assert few.fitted == 400 and few.probes != seen.probes
    dataset = DataSet(more_x.double(), more_y, "rings")
    assert depth_of(model, in_batches(x, y), training=dataset, n_train=400) == few


def test_a_class_that_either_split_lacks_is_left_out_and_named(learnt: Any) -> None:
    model, x, y = learnt
    whole = in_batches(x, y)
    without = [(x[y < 3], y[y < 3])] * 2
    for test, training in ((whole, without), (without, whole)):
        seen = depth_of(model, test, training=training)
        assert (seen.problem, seen.left_out) == ("", (3,))
