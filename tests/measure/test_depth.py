"""Probes along the stream and their null, against a computation in numpy that shares nothing with them."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from depth_oracle import interval, pooled_layer_norm, probes, right_answers, utility
from support import clustered, in_batches, network, rings, trained_on_rings
from torch import Tensor, nn

from pytest_fadiag.judge.codec import read
from pytest_fadiag.judge.depth import Depth
from pytest_fadiag.measure.features import Layout
from pytest_fadiag.measure.observe import observe
from pytest_fadiag.measure.probes import Features
from pytest_fadiag.measure.stream.find import find_stream

IMAGES = 1_300


def depth_of(model: nn.Module, batches: Iterable[Any], **options: Any) -> Depth:
    """What is observed of a network's depth."""
    return read_depth(observe(model, batches, ["depth"], **options).results)


def read_depth(results: Any) -> Depth:
    """What is observed of depth among other things."""
    return read(Depth, results["depth"], "depth")


def states_of(model: Any, x: Tensor) -> list[Tensor]:
    """h_0 … h_L of a ResidualMLP, spelled out."""
    states = [model.embed(x)]
    for block in model.blocks:
        states.append(states[-1] + block(states[-1]))
    return states


def drawn(model: Any, seed: int) -> nn.Module:
    """A copy whose blocks are drawn as their layers draw themselves, from one seed, in the order of their names."""
    other = copy.deepcopy(model)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        for block in other.blocks:
            for layer in (block.ln, block.fc1, block.fc2):
                layer.reset_parameters()
    return other


@pytest.fixture(scope="module")
def learnt() -> tuple[nn.Module, Tensor, Tensor]:
    """A network whose depth helps, and its data."""
    x, y = rings(IMAGES)
    return trained_on_rings().double().eval(), x.double(), y


def assert_is(seen: Depth, own: Sequence[np.ndarray], null: Sequence[Sequence[np.ndarray]]) -> None:
    """Every number of a measurement is that of the oracle."""
    gain, by_chance, useful = utility(own, null)
    assert seen.probes == pytest.approx([right.mean() for right in own], abs=1e-6)
    for draw, expected in zip(seen.null, null, strict=True):
        assert draw == pytest.approx([right.mean() for right in expected], abs=1e-6)
    assert seen.gain_pp == pytest.approx(gain, abs=1e-6)
    assert seen.null_pp == pytest.approx(by_chance, abs=1e-6)
    assert seen.utility_pp == pytest.approx(useful, abs=1e-6)
    differences = own[-1] - own[0] - (np.mean([draw[-1] - draw[0] for draw in null], 0) if by_chance > 0 else 0)
    assert seen.interval == pytest.approx(interval(differences), abs=0.3)  # an image is added to each side of 650
    for block, bounds in enumerate(seen.step_intervals):
        step = own[block + 1] - own[block]
        of_null = np.mean([draw[block + 1] - draw[block] for draw in null], 0)
        assert bounds == pytest.approx(interval(step - of_null if of_null.mean() > 0 else step), abs=0.3)


def test_probes_null_utility_and_intervals_are_what_the_definition_gives(learnt: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = learnt
    own = probes(states_of(model, x), y)
    null = [probes(states_of(drawn(model, seed), x), y) for seed in (0, 1)]
    seen = depth_of(model, in_batches(x, y))
    assert_is(seen, own, null)
    assert seen.gain_pp > 20  # the comparison is one of numbers that differ
    assert seen.null[0] != seen.null[1]
    assert (seen.fitted, seen.read, seen.dealt, seen.problem, seen.undrawn) == (650, 650, False, "", ())
    states = [state.detach().numpy() for state in states_of(model, x[:1_280])]
    change = [np.median(np.linalg.norm(b - a, axis=1) / np.linalg.norm(a, axis=1)) for a, b in pairwise(states)]
    assert seen.change == pytest.approx(change, rel=1e-6)


@pytest.mark.parametrize("size", [16, 100, 512])
def test_batch_sizes_change_nothing(learnt: tuple[nn.Module, Tensor, Tensor], size: int) -> None:
    model, x, y = learnt
    single, x = copy.deepcopy(model).float(), x.float()
    usual, seen = depth_of(single, in_batches(x, y)), depth_of(single, in_batches(x, y, size), batch_size=size)
    one_image = 1 / usual.read + 1e-9
    assert seen.probes == pytest.approx(usual.probes, abs=one_image)
    for draw, other in zip(seen.null, usual.null, strict=True):
        assert draw == pytest.approx(other, abs=one_image)


class Tokens(nn.Module):
    """Tokens that mix and learn; the head reads those it is told, and the stream is [B, T, d] or [T, B, d]."""

    def __init__(self, read: list[int] | None, *, tokens_first: bool = False, d: int = 12) -> None:
        super().__init__()
        self.read, self.tokens_first, self.count = read, tokens_first, 5
        self.embed = nn.Linear(20, 5 * d)
        self.mix = nn.ModuleList(nn.Linear(5, 5) for _ in range(2))
        self.fc = nn.ModuleList(nn.Linear(d, d) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, 4)

    def states(self, x: Tensor) -> list[Tensor]:
        h = self.embed(x).unflatten(1, (5, -1))
        states = [h]
        for mix, fc in zip(self.mix, self.fc, strict=True):
            h = h + fc(torch.relu(mix(h.transpose(1, 2)).transpose(1, 2)))
            states.append(h)
        return states

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x).unflatten(1, (5, -1))
        if self.tokens_first:
            h = h.transpose(0, 1).contiguous()
        for mix, fc in zip(self.mix, self.fc, strict=True):
            mixed = mix(h.movedim(0, -1)).movedim(-1, 0) if self.tokens_first else mix(h.transpose(1, 2)).transpose(1, 2)
            h = h + fc(torch.relu(mixed))
        h = self.norm(h.transpose(0, 1) if self.tokens_first else h)
        logits: Tensor = self.head((h if self.read is None else h[:, self.read]).mean(1))
        return logits


@pytest.mark.parametrize(("read", "tokens_first"), [(None, False), ([0], False), ([1, 3], False), ([0], True), (None, True)])
def test_tokens_are_pooled_as_the_head_reads_them(read: list[int] | None, tokens_first: bool) -> None:
    torch.manual_seed(0)
    model = Tokens(read, tokens_first=tokens_first).double().eval()
    x, y = rings(IMAGES)
    seen = depth_of(model, in_batches(x.double(), y))
    pooled = list(range(5)) if read is None else read
    expected = [right.mean() for right in probes(model.states(x.double()), y, pooled)]
    others = [right.mean() for right in probes(model.states(x.double()), y, [2] if read is None else None)]
    assert seen.probes == pytest.approx(expected, abs=1e-6)
    assert expected != pytest.approx(others, abs=1e-6)  # another pooling would be seen
    probe = [state.detach()[:1280].numpy() for state in model.states(x.double())]
    change = [np.median(np.linalg.norm(b - a, axis=2) / np.linalg.norm(a, axis=2)) for a, b in pairwise(probe)]
    assert seen.change == pytest.approx(change, rel=1e-6)  # over samples and tokens
    assert seen.tokens == {5: "", 1: "the class token", 2: "the 2 tokens that the head reads"}[len(pooled)]


class LastOnes(Tokens):
    """The head reads the last token of each sequence, behind which it is padded, or the largest of each feature."""

    def forward(self, x: Tensor, last: Tensor) -> Tensor:  # type: ignore[override]
        h = self.norm(self.states(x)[-1])
        logits: Tensor = self.head(h.amax(1) if self.read else h[torch.arange(len(h)), last])
        return logits


def test_tokens_that_only_some_samples_read_are_no_zero_gradient_of_the_others() -> None:
    torch.manual_seed(0)
    model, (x, y) = LastOnes(None).eval(), rings(IMAGES)
    last = torch.arange(IMAGES) % 4
    data = [({"x": x[i : i + 100], "last": last[i : i + 100]}, y[i : i + 100]) for i in range(0, IMAGES, 100)]
    seen = observe(model, data, ["gradients", "depth"]).results
    wide = copy.deepcopy(model).double()
    states = wide.states(x[:1280].double())
    read = wide.norm(states[-1])[torch.arange(1280), last[:1280]]
    losses = nn.functional.cross_entropy(wide.head(read), y[:1280], reduction="sum") / 128
    norms = [gradient.norm(dim=2) for gradient in torch.autograd.grad(losses, states)]
    assert int((norms[-1] != 0).sum()) == 1280
    expected = [float(own[own != 0].quantile(0.5)) for own in norms]
    assert seen["gradients"]["bp_grad_norms"] == pytest.approx(expected, rel=1e-5)
    assert seen["gradients"]["tokens_without_gradient"] == [int((own == 0).sum(1).median()) for own in norms]
    assert "reads other tokens of one sample than of another" in read_depth(seen).problem
    maxima = read_depth(observe(LastOnes([0]).eval(), data, ["depth"]).results)
    assert not maxima.problem and maxima.tokens == ""


class Maps(nn.Module):
    """Convolutions with batch normalisation; the second block halves the map and doubles its channels."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 6, 3, 1, 1), nn.BatchNorm2d(6))
        self.convs = nn.ModuleList([nn.Conv2d(6, 6, 3, 1, 1), nn.Conv2d(6, 12, 3, 2, 1)])
        self.norms = nn.ModuleList([nn.BatchNorm2d(6), nn.BatchNorm2d(12)])
        self.skips = nn.ModuleList([nn.Identity(), nn.Conv2d(6, 12, 1, 2)])
        self.head = nn.Linear(12, 4)

    def states(self, x: Tensor) -> list[Tensor]:
        states = [self.stem(x)]
        for conv, norm, skip in zip(self.convs, self.norms, self.skips, strict=True):
            states.append(skip(states[-1]) + torch.relu(norm(conv(states[-1]))))
        return states

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.states(x)[-1].mean((2, 3)))
        return logits


def images() -> tuple[Tensor, Tensor]:
    """The rings as images of 4 × 5."""
    x, y = rings(IMAGES)
    return x.view(-1, 1, 4, 5).double(), y


def drawn_maps(model: Maps, x: Tensor, seed: int) -> Maps:
    """Blocks drawn anew, and the mean over batches of 128 of the batch statistics of the first half."""
    other = copy.deepcopy(model)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        for layers in (other.convs, other.norms, other.skips):
            for layer in layers:
                if not isinstance(layer, nn.Identity):
                    layer.reset_parameters()
        taken: list[list[tuple[Tensor, Tensor]]] = [[], []]
        for part in x[: IMAGES // 2].split(128)[: IMAGES // 2 // 128]:
            h = other.stem(part)
            for number in range(2):
                own = other.convs[number](h)
                mean, var = own.mean((0, 2, 3)), own.var((0, 2, 3), unbiased=False)
                entries = own.numel() // own.shape[1]
                taken[number].append((mean, var * entries / (entries - 1)))
                own = (own - mean.view(1, -1, 1, 1)) / (var.view(1, -1, 1, 1) + 1e-5).sqrt()
                h = other.skips[number](h) + torch.relu(own)
        for number, norm in enumerate(other.norms):
            norm.running_mean.copy_(torch.stack([mean for mean, _ in taken[number]]).mean(0))
            norm.running_var.copy_(torch.stack([var for _, var in taken[number]]).mean(0))
    return other


def test_feature_maps_of_several_shapes_and_batch_statistics_of_the_fitted_half() -> None:
    torch.manual_seed(1)
    model = Maps().double()
    x, y = images()
    model.train()
    for part in x.split(100):
        model(part * 3 + 1)  # statistics that are not those of the data
    model.eval()
    seen = depth_of(model, in_batches(x, y))
    own = probes(model.states(x), y)
    null = [probes(drawn_maps(model, x, seed).eval().states(x), y) for seed in (0, 1)]
    assert_is(seen, own, null)
    assert seen.change[0] > 0 and np.isnan(seen.change[1])
    for size in (16, 512):
        again = depth_of(model, in_batches(x, y, size), batch_size=size)
        assert again.probes == seen.probes and again.null == seen.null


class Places(nn.Module):
    """One residual block of wide maps, or of tokens, and a head that reads where something is, or only what."""

    def __init__(self, kind: str, *, flat: bool, features: int = 40) -> None:
        super().__init__()
        self.kind, self.flat = kind, flat
        self.embed: nn.Module = (
            nn.Conv2d(1, features, 3, padding=1, padding_mode="circular") if kind == "map" else nn.Linear(1, features)
        )
        self.mix: nn.Module = nn.Conv2d(features, features, 1) if kind == "map" else nn.Linear(features, features)
        self.head = nn.Linear(64 * features if flat else features, 4)

    def states(self, x: Tensor) -> list[Tensor]:
        h = self.embed(x if self.kind == "map" else x.flatten(1).unsqueeze(2))
        return [h, h + torch.relu(self.mix(h))]

    def forward(self, x: Tensor) -> Tensor:
        last = self.states(x)[-1]
        logits: Tensor = self.head(last.flatten(1) if self.flat else last.mean((2, 3) if self.kind == "map" else 1))
        return logits


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("kind", ["map", "tokens"])
def test_a_head_that_tells_places_apart_is_not_measured_by_the_mean_over_them(kind: str, flat: bool) -> None:
    torch.manual_seed(0)
    y = torch.arange(IMAGES) % 4
    x = torch.randn(IMAGES, 1, 8, 8).double()
    for corner, (row, column) in enumerate([(0, 0), (0, 4), (4, 0), (4, 4)]):
        x[y == corner, :, row : row + 4, column : column + 4] += 1.0  # the class is where it is, and nothing else
    model = Places(kind, flat=flat).double().eval()
    seen = depth_of(model, in_batches(x, y))
    # 40 features in 5 x 5 cells, which overlap as 8 is no multiple of 5; or in 25 groups of 64 tokens.
    ends = [(8 * cell // 5, -(-8 * (cell + 1) // 5)) for cell in range(5)]
    groups = [(64 * cell // 25, -(-64 * (cell + 1) // 25)) for cell in range(25)]

    def averaged(state: Tensor) -> Tensor:
        if kind == "map":
            cells = [state[:, :, a:b, c:d].mean((2, 3)) for a, b in ends for c, d in ends]
        else:
            cells = [state[:, a:b].mean(1) for a, b in groups]
        return torch.stack(cells, 2).flatten(1)

    states = model.states(x)
    of_places, of_means = ([right.mean() for right in probes(own, y)] for own in (list(map(averaged, states)), states))
    assert seen.probes == pytest.approx(of_places if flat else of_means, abs=1e-6)
    assert min(of_places) > max(of_means) + 0.3, "another pooling would be seen"
    assert seen.tokens == ({"map": "the 5 × 5 cells", "tokens": "the 25 cells"}[kind] if flat else "")


def test_maps_too_wide_for_a_grid_of_places_are_not_measured_by_their_mean() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(IMAGES, 1, 8, 8), torch.arange(IMAGES) % 4
    wide = depth_of(Places("map", flat=True, features=300).eval(), in_batches(x, y))
    assert "the head tells places apart, and with 300 features at each no grid" in wide.problem and wide.probes == ()
    assert not depth_of(Places("map", flat=False, features=300).eval(), in_batches(x, y)).problem


def test_sorted_data_is_dealt_by_a_fixed_shuffle_whether_it_can_be_indexed_or_not(
    learnt: tuple[nn.Module, Tensor, Tensor],
) -> None:
    model, x, y = learnt
    order = y.argsort(stable=True)
    x, y = x[order], y[order]
    fitted = np.zeros(IMAGES, bool)
    fitted[torch.randperm(IMAGES, generator=torch.Generator().manual_seed(0))[: IMAGES // 2].numpy()] = True
    expected = probes(states_of(model, x), y, fitted=fitted)
    listed = depth_of(model, in_batches(x, y))
    assert listed.dealt and listed.probes == pytest.approx([right.mean() for right in expected], abs=1e-6)
    assert depth_of(model, Loader(x, y)) == listed
    once = depth_of(model, iter(in_batches(x, y)))
    assert "only once" in once.problem and once.probes == ()


class Loader:
    """Batches that can be read again, of which nobody knows how many there are."""

    def __init__(self, x: Tensor, y: Tensor, *, shuffled: bool = False) -> None:
        self.x, self.y, self.shuffled, self.times = x, y, shuffled, 0

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        self.times += 1
        order = torch.arange(len(self.y)).roll(self.times * self.shuffled)
        yield from in_batches(self.x[order], self.y[order], 100)


class Described(Loader):
    """The same, with a data set that says how many images it has: rightly or not."""

    def __init__(self, x: Tensor, y: Tensor, says: int) -> None:
        super().__init__(x, y)
        self.dataset = range(says)


def test_data_of_unknown_length_is_read_again_and_in_the_same_order(learnt: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = learnt
    listed = depth_of(model, in_batches(x, y))
    loader = Loader(x, y)
    assert depth_of(model, loader) == listed and loader.times == 3
    known = Described(x, y, IMAGES)
    assert depth_of(model, known) == listed and known.times == 1
    for says in (IMAGES - 100, IMAGES + 100):
        assert depth_of(model, Described(x, y, says)) == listed
    assert "another order" in depth_of(model, Loader(x, y, shuffled=True)).problem


def test_with_few_images_nothing_is_measured(learnt: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = learnt
    seen = depth_of(model, in_batches(x[:999], y[:999]))
    assert seen.problem.startswith("999 test images") and seen.probes == ()
    assert not depth_of(model, in_batches(x[:1_000], y[:1_000])).problem


def test_wide_states_are_projected_by_a_fixed_matrix_and_read_about_the_same() -> None:
    x, y = clustered(1_000)
    model = network(d=2_100, blocks=1, mlp_ratio=0.01).double().eval()
    seen = depth_of(model, in_batches(x.double(), y))
    projection = torch.randn(2_100, 2_048, generator=torch.Generator().manual_seed(0), dtype=torch.float64) / 2_048**0.5
    fitted = np.arange(1_000) < 500
    z = pooled_layer_norm(states_of(model, x.double())[-1].detach().numpy())
    projected = right_answers(z @ projection.numpy(), y.numpy(), fitted).mean()
    assert seen.probes[-1] == pytest.approx(projected, abs=1e-6)
    assert abs(projected - right_answers(z, y.numpy(), fitted).mean()) < 0.02


def test_states_that_are_not_finite_are_counted_and_read_nothing(learnt: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = learnt
    broken = copy.deepcopy(model)
    with torch.no_grad():
        broken.blocks[1].fc2.weight[0, 0] = float("nan")  # type: ignore[index,union-attr]
    seen = depth_of(broken, in_batches(x, y))
    assert seen.nonfinite == (0, 0, IMAGES, IMAGES) and seen.probes[0] == depth_of(model, in_batches(x, y)).probes[0]
    assert seen.utility_pp is not None and seen.utility_pp < 3


def test_a_block_that_cannot_be_drawn_leaves_no_null() -> None:
    model = network(d=24, blocks=3, classes=4)
    model.blocks[2].fc2.weight = model.blocks[1].fc2.weight
    model.blocks[1].fc2.weight = nn.Parameter(torch.zeros(24, 96))
    model.blocks[1].ln.weight = model.out_ln.weight  # read by the head too
    x, y = rings(IMAGES)
    seen = depth_of(model, in_batches(x, y))
    assert seen.undrawn == ("blocks.1",) and seen.null == () and seen.utility_pp is None and len(seen.probes) == 4


class Gained(nn.Module):
    """A block whose gains are exponentials: drawn with their own spread, one that is switched off makes others overflow."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.fc, self.log_gain = nn.Linear(d, d), nn.Parameter(torch.zeros(d))
        with torch.no_grad():
            self.log_gain[0] = -5_000.0

    def forward(self, h: Tensor) -> Tensor:
        return h + torch.relu(self.fc(h)) * self.log_gain.exp()


def test_a_null_that_is_not_finite_is_none() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 24), Gained(24), Gained(24), nn.Linear(24, 4)).eval()
    x, y = rings(IMAGES)
    seen = depth_of(model, in_batches(x, y))
    assert not any(seen.nonfinite) and not seen.undrawn
    assert seen.null == () and seen.utility_pp is None
    assert seen.null_problem == "with blocks drawn anew, states are not finite for 1,300 images"


def test_the_network_and_the_random_state_are_left_as_found(learnt: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = learnt
    before, state = copy.deepcopy(model.state_dict()), torch.random.get_rng_state()
    depth_of(model, in_batches(x, y))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.random.get_rng_state(), state)


def test_what_is_nearly_or_wholly_constant_in_float32_is_read_as_in_float64() -> None:
    flat = torch.full((8, 33), 0.1)
    flat[1, 4] = torch.nextafter(flat[1, 4], torch.tensor(1.0))  # one entry is the next number
    flat[2:] = torch.randn(6, 33, generator=torch.Generator().manual_seed(0))
    flat[2] = flat[2] * 1e30
    flat[3] = flat[3] * 1e-30 + 0
    model = network()
    features = Features(Layout(model, find_stream(model.eval(), clustered(16)[0])))
    for rows in (flat, flat[1:]):  # with a constant vector in the batch and without
        z, broken = features(rows)
        assert torch.allclose(z, torch.from_numpy(pooled_layer_norm(rows.double().numpy())), atol=1e-6)
        assert not broken
    flat[5, 3] = torch.inf
    z, broken = features(flat)
    assert broken == 1 and not z[5].any() and not z[0].any()
