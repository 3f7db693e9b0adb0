"""One pass: what no metric needs is not computed, and each computes alone what it does here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy
import pytest
import torch
from own_backwards import Net, made
from support import PASS, changed, clustered, in_batches, measured, network, seeded
from torch import Tensor, nn
from torch.nn import functional as F

from pytest_fadiag.judge.errors import AuditError
from pytest_fadiag.judge.records import Measurement, plain
from pytest_fadiag.measure import run
from pytest_fadiag.measure.run import METRICS, NetworkSource, measure
from pytest_fadiag.measure.types import Batch

X, Y = clustered(1500)
ALL = (*PASS, "precision")


class Mixing(nn.Module):
    """A residual block over tokens, written out: torch's own rounds otherwise without gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mix, self.fc = nn.LayerNorm(8), nn.Linear(5, 5), nn.Linear(8, 8)

    def forward(self, h: Tensor) -> Tensor:
        mixed = self.mix(self.norm(h).transpose(1, 2)).transpose(1, 2)
        return h + self.fc(torch.relu(mixed))  # type: ignore[no-any-return]


class Tokens(nn.Module):
    """Five tokens of four numbers, of which the head reads the first."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm = nn.Linear(4, 8), nn.LayerNorm(8)
        self.blocks, self.head = nn.ModuleList(Mixing() for _ in range(3)), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x.view(len(x), 5, 4))
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h)[:, 0])  # type: ignore[no-any-return]


class SequenceFirst(Tokens):
    """Tokens first, then samples, as recurrent networks have it."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x.view(len(x), 5, 4)).transpose(0, 1)
        for block in self.blocks:
            h = h + block.fc(torch.relu(block.norm(h)))
        return self.head(self.norm(h)[0])  # type: ignore[no-any-return]


def convolutions() -> nn.Module:
    def block() -> nn.Module:
        layers = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True)
        return nn.Sequential(*layers)

    first = nn.Unflatten(1, (1, 4, 5)), nn.Conv2d(1, 4, 1)
    return nn.Sequential(*first, block(), block(), block(), nn.Flatten(), nn.Linear(80, 5))


def broken() -> nn.Module:
    return changed(network(), lambda net: net.blocks[2].fc1.weight[0, 0].fill_(math.nan))  # type: ignore[no-any-return]


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "vectors": network,
    "tokens": Tokens,
    "samples second": SequenceFirst,
    "feature maps": convolutions,
    "half precision": lambda: network().half(),
    "float64": lambda: network().double(),
    "not finite": broken,
}


def fields_of(measurement: Measurement) -> dict[str, Any]:
    """What is there, as JSON has it: NaN is a NaN's equal."""
    empty = plain(msgspec.to_builtins(Measurement()))
    values = plain(msgspec.to_builtins(measurement))
    return {name: value for name, value in values.items() if value != empty[name]}


@pytest.mark.parametrize("name", NETWORKS)
def test_each_metric_alone_computes_what_it_does_among_all_to_the_last_bit(name: str) -> None:
    net = seeded(NETWORKS[name])
    together = fields_of(measured(net, in_batches(X, Y, 77), ALL, batch_size=200))
    for metric in ALL:
        alone = fields_of(measured(net, in_batches(X, Y, 77), [metric], batch_size=200))
        assert alone == {name: together[name] for name in alone}
        assert set(alone) > {"batches", "samples", "environment"}


def test_every_number_is_somebodys_and_a_measurement_goes_to_json_and_back() -> None:
    found = measured(Tokens(), in_batches(X, Y), ALL)
    measurements = (plain(found), plain(measured(broken(), in_batches(X, Y), ALL)))
    for values in measurements:
        assert plain(msgspec.convert(values, Measurement, strict=False)) == values
    others = {"depth", "floor", "credit", "step", "inputs", "extra", "effective_rank"}
    others |= {"secants"}
    assert {name for name, value in measurements[0].items() if value is None} <= others


# --- what nobody needs is not computed ------------------------------------------------------------


class Costs:
    """Counts searches, proofs, samples run, batches loaded, and whether a graph was kept."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.searches = self.proofs = self.samples = self.loads = 0
        self.graph = self.quiet = False
        for name, count in (("find_stream", "searches"), ("prove", "proofs")):
            monkeypatch.setattr(run, name, self._counted(getattr(run, name), count))

    def _counted(self, function: Callable[..., Any], count: str) -> Callable[..., Any]:
        def called(*args: Any) -> Any:
            setattr(self, count, getattr(self, count) + 1)
            self.quiet = True
            result = function(*args)
            self.quiet = False
            return result

        return called

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for batch in in_batches(X, Y):
            self.loads += 1
            yield batch

    def of(self, metrics: tuple[str, ...]) -> tuple[int, ...]:
        net = seeded(Tokens)

        def count(_: nn.Module, __: Any, output: Tensor) -> None:
            if not self.quiet:
                self.samples, self.graph = (
                    self.samples + len(output),
                    self.graph or output.requires_grad,
                )

        net.head.register_forward_hook(count)
        measured(net, self, metrics)
        return self.searches, self.proofs, self.samples, self.loads


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        (("accuracy",), (0, 0, 1500, 13)),
        (("states", "accuracy"), (1, 0, 1500, 13)),
        (("states",), (1, 0, 1280, 11)),
        (("output-error",), (0, 0, 1280, 11)),
        (("gradients", "directions"), (1, 1, 1280, 11)),
        (PASS, (1, 1, 1500, 13)),
    ],
    ids=str,
)
def test_what_no_metric_needs_is_not_computed(
    metrics: tuple[str, ...], expected: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = Costs(monkeypatch)
    assert costs.of(metrics) == expected
    assert costs.graph == ("gradients" in metrics)


def test_a_network_without_a_stream_is_measured_as_far_as_nothing_needs_it() -> None:
    flat = nn.Sequential(nn.Linear(20, 5))
    found = measured(flat, in_batches(X, Y), ["accuracy", "output-error"])
    assert (found.stream, found.reference) == (None, None)
    assert found.score is not None
    with pytest.raises(AuditError):
        measured(flat, in_batches(X, Y), ["states"])


def test_two_batches_are_needed_but_for_the_accuracy() -> None:
    for name in ("states", "output-error", "gradients", "precision"):
        with pytest.raises(
            AuditError, match="has 255 samples in all; the protocol needs at least 2"
        ):
            measured(network(), in_batches(X[:255], Y[:255], 16), [name, "accuracy"])
    score = measured(network(), in_batches(X[:3], Y[:3]), ["accuracy"]).score
    assert score is not None and score.images == 3
    for name in ("accuracy", "gradients"):
        with pytest.raises(AuditError, match="the evaluation data holds no samples"):
            measured(network(), [], [name])


# --- sources --------------------------------------------------------------------------------------


class Seen:
    """Keeps all that it sees, which a real metric must not."""

    needs = frozenset({"outputs", "states", "gradients", "error", "features"})

    def __init__(self, source: NetworkSource) -> None:
        self.batches: list[Batch] = []

    def update(self, batch: Batch) -> None:
        self.batches.append(batch)

    def compute(self) -> dict[str, Any]:
        return {"batches": self.batches}


@pytest.mark.parametrize("at_once", [50, 512])
def test_a_batch_holds_what_the_network_computes_with_samples_first(at_once: int) -> None:
    """Against a float64 copy that spells its states out."""
    net = made(Net)
    source = NetworkSource(net, in_batches(X, Y, 100), batch_size=at_once)
    seen = measure(source, ["seen"], extra={"seen": Seen}).extra["seen"]["batches"]
    wide = made(Net).double()
    states = wide.states(X[:1280].double())
    gradients = torch.autograd.grad(
        F.cross_entropy(wide.read(states[-1]), Y[:1280], reduction="sum"), states
    )
    logits = wide(X.double()).detach()
    evaluated = [batch for batch in seen if batch.evaluation]
    sizes = [50, 50, 28] if at_once == 50 else [128]
    assert [len(batch.y) for batch in evaluated] == sizes * 10
    assert all(len(batch.y) <= at_once for batch in seen)
    assert [batch.evaluation for batch in seen[len(evaluated) :]].count(True) == 0
    assert [batch.start for batch in seen] == numpy.cumsum(
        [0, *(len(batch.y) for batch in seen[:-1])]
    ).tolist()
    wholes = [batch.whole or batch for batch in evaluated if batch.start % 128 == 0]
    assert torch.equal(torch.cat([batch.y for batch in wholes]), Y[:1280])
    assert torch.equal(torch.cat([batch.x for batch in wholes]), X[:1280])
    assert torch.equal(torch.cat([batch.y for batch in seen]), Y)
    assert torch.equal(torch.cat([batch.x for batch in seen]), X)
    close = {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(
        torch.cat([batch.outputs for batch in seen]).double(), logits, **close
    )
    error = torch.cat([batch.error.units * batch.error.norms[:, None] for batch in evaluated])
    torch.testing.assert_close(error, (logits.softmax(1) - F.one_hot(Y, 5))[:1280], **close)
    for layer, (state, gradient) in enumerate(zip(states, gradients, strict=True)):
        found = torch.cat([batch.states[layer] for batch in evaluated])
        torch.testing.assert_close(found.double(), state.detach(), **close)
        found = torch.cat(
            [batch.gradients[layer] * batch.error.norms[:, None] for batch in evaluated]
        )
        torch.testing.assert_close(found, gradient, **close)
        features = torch.cat([batch.features[layer] for batch in seen])
        torch.testing.assert_close(
            features[:1280].double(), source.pooling(state.detach()).double(), **close
        )
    assert not any(batch.states or batch.gradients for batch in seen[len(evaluated) :])
    assert not any(
        tensor.requires_grad for batch in evaluated for tensor in (*batch.states, *batch.gradients)
    )


def test_samples_come_first_also_where_they_are_second_in_the_network() -> None:
    source = NetworkSource(seeded(SequenceFirst), in_batches(X, Y))
    batch = next(source.batches(frozenset({"gradients", "states"})))
    assert {own.shape for own in (*batch.states, *batch.gradients)} == {(128, 5, 8)}  # type: ignore[misc]


class Refilled:
    """A loader that fills the same buffers again for every batch."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        buffers = torch.empty(self.size, 20), torch.empty(self.size, dtype=torch.long)
        for batch in in_batches(X, Y, self.size):
            pairs = zip(buffers, batch, strict=True)
            x, y = (buffer[: len(own)].copy_(own) for buffer, own in pairs)
            yield x, y


@pytest.mark.parametrize("size", [50, 128, 300])
def test_data_comes_as_a_list_as_a_generator_and_as_one_that_fills_its_buffers_again(
    size: int,
) -> None:
    metrics = (*PASS, "floor")
    expected = measured(network(), in_batches(X, Y, size), metrics)
    assert measured(network(), iter(in_batches(X, Y, size)), metrics) == expected
    for data in (Refilled(size), iter(Refilled(size))):
        source = NetworkSource(network(), data)
        assert torch.equal(source.labels, Y)
        assert measure(source, metrics) == expected
        assert measure(source, metrics) == expected


def test_data_that_is_shuffled_between_two_readings_is_refused() -> None:
    class Shuffled:
        def __iter__(self) -> Iterator[Any]:
            order = torch.randperm(1500)
            return iter(in_batches(X[order], Y[order]))

    source = NetworkSource(network(), Shuffled())
    assert len(source.labels) == 1500
    with pytest.raises(AuditError, match="the data comes in another order when read again"):
        measure(source, ["accuracy"])


def test_labels_are_taken_from_data_that_knows_them() -> None:
    class Known(list[Any]):
        y, flat = Y.int(), False  # as a DataSet

    source = NetworkSource(network(), Known())
    assert torch.equal(source.labels, Y)


def test_chosen_samples_come_in_whole_batches() -> None:
    mask = torch.arange(1500) % 3 == 0
    chosen = list(NetworkSource(network(), in_batches(X, Y, 77)).chosen(mask))
    assert [len(x) for x in chosen] == [128] * 3
    assert torch.equal(torch.cat(chosen), X[mask][: 3 * 128])  # type: ignore[arg-type]


def test_another_network_is_measured_by_the_same_stream() -> None:
    source = NetworkSource(network(), in_batches(X, Y))
    other = source.redrawn(NetworkSource(network(seed=1), []).network)
    assert source.blocks == ()
    assert source.stream is source.redrawn(other.network).stream
    assert len(source.blocks) == 4 and all("blocks.0" in name for name in source.blocks[0])
    assert (
        measure(other, ["accuracy"]).score
        == measured(network(seed=1), in_batches(X, Y), ["accuracy"]).score
    )
    assert measure(source, ["accuracy"]).score != measure(other, ["accuracy"]).score


def test_a_network_that_writes_to_its_input_leaves_data_and_metrics_theirs() -> None:
    class Centres(Net):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.sub_(1))

    before = X.clone()
    source = NetworkSource(made(Centres), [(X, Y)])
    batch = next(source.batches(frozenset({"gradients"})))
    assert torch.equal(X, before)
    assert torch.equal(batch.x, X[:128])  # type: ignore[arg-type]


# --- metrics by name and of other packages --------------------------------------------------------


def test_progress_tells_every_phase_and_counts_samples() -> None:
    steps: list[tuple[str, int, int]] = []
    source = NetworkSource(network(), in_batches(X, Y))
    measure(source, ["accuracy", "states"], lambda *step: steps.append(step))
    assert steps[0] == ("stream", 0, 1)
    samples = [step for step in steps if step[0] == "samples"]
    assert samples[0] == ("samples", 128, 1500) and samples[-1] == ("samples", 1500, 1500)
    assert samples == sorted(samples)
    assert steps[-2:] == [("accuracy", 0, 2), ("states", 1, 2)]


def test_a_failing_metric_is_not_told_as_the_network() -> None:
    source = NetworkSource(network(), in_batches(X, Y))

    class Fails(Seen):
        def update(self, batch: Batch) -> None:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        measure(source, ["fails"], extra={"fails": Fails})


def test_a_metric_that_rests_on_the_reference_is_left_out_where_that_is_not_proven() -> None:
    source = NetworkSource(made(Net, act=lambda block, z: F.gelu(z.data)), in_batches(X, Y))
    found = measure(source, [*ALL, "seen"], extra={"seen": Seen})
    assert found.reference is not None and found.reference.problem
    assert (found.extra, found.precision, found.stability_layer) == ({}, None, None)
    assert len(found.residual_norms) == 4


def test_the_loss_and_the_environment_are_stated() -> None:
    found = measured(network().half(), in_batches(X, Y), ["accuracy"])
    assert found.loss == "cross-entropy"
    assert found.environment["dtype"] == "float16"
    assert found.environment["device"] == "cpu"
    assert set(METRICS) >= set(ALL)
