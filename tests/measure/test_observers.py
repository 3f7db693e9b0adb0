"""Observers: each stands alone, sees what it watches, and what none of them watches is not computed."""

from __future__ import annotations

import gc
import itertools
import json
import math
import weakref
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from support import clustered, in_batches, network
from torch import Tensor, nn

from pytest_fadiag import AuditError, Measurement, bp_grad_norms, measure, residual_norms
from pytest_fadiag.judge.codec import to_plain
from pytest_fadiag.judge.diagnostics import DIAGNOSTICS
from pytest_fadiag.judge.late import named
from pytest_fadiag.judge.observers import FIELD_OBSERVERS, ObserverSpec
from pytest_fadiag.judge.records import AuxiliaryStatistics
from pytest_fadiag.measure import forward
from pytest_fadiag.measure import observers as home
from pytest_fadiag.measure.observe import observe
from pytest_fadiag.measure.observers import Gradient, Observer, Output, OutputError, PassInfo, State

X, Y = clustered(1500)
ALL = tuple(DIAGNOSTICS.by_default.observers)
FIELDS = tuple(spec.name for spec in FIELD_OBSERVERS)


class Block(nn.Module):
    """A residual block that mixes tokens, written out: torch's own encoder layer computes differently without gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mix, self.fc = nn.LayerNorm(8), nn.Linear(5, 5), nn.Linear(8, 8)

    def forward(self, h: Tensor) -> Tensor:
        return h + self.fc(torch.relu(self.mix(self.norm(h).transpose(1, 2)).transpose(1, 2)))


class Tokens(nn.Module):
    """Five tokens of four numbers, of which the head reads the first; a stream that is found by its hooks."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.blocks, self.norm = nn.Linear(4, 8), nn.ModuleList(Block() for _ in range(3)), nn.LayerNorm(8)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x.view(len(x), 5, 4))
        for block in self.blocks:
            h = block(h)
        logits: Tensor = self.head(self.norm(h)[:, 0])
        return logits


def convolutions() -> nn.Module:
    blocks = (nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True)) for _ in range(3))
    return nn.Sequential(nn.Unflatten(1, (1, 4, 5)), nn.Conv2d(1, 4, 1), *blocks, nn.Flatten(), nn.Linear(80, 5))


def broken() -> nn.Module:
    model = network()
    with torch.no_grad():
        model.blocks[2].fc1.weight[0, 0] = math.nan
    return model


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "returned states": network,
    "tokens": Tokens,
    "feature maps": convolutions,
    "half precision": lambda: network().half(),
    "not finite": broken,
}


def made(name: str) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return NETWORKS[name]()


# --- each stands alone -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETWORKS)
def test_each_observer_alone_computes_what_it_does_among_all_to_the_last_bit(name: str) -> None:
    model, data, options = made(name), in_batches(X, Y, 77), {"batch_size": 50, "data_digest": "digest"}
    together = observe(model, data, ALL, **options).results
    assert list(together) == list(ALL)
    for observer in ALL:
        alone = observe(model, data, [observer], **options).results
        assert json.dumps(to_plain(alone)) == json.dumps(to_plain({observer: together[observer]}))


def test_an_encoder_layer_of_torch_is_the_same_but_for_last_digits() -> None:
    """Without gradients and hooks torch runs it as one fused kernel, which rounds otherwise."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(20, 2, 40, 0.0, batch_first=True, norm_first=True)
        encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        model = nn.Sequential(nn.Unflatten(1, (1, 20)), encoder, nn.Flatten(), nn.Linear(20, 5))
    together = observe(model, in_batches(X, Y), ALL).results
    for name in ALL:
        alone = observe(model, in_batches(X, Y), [name]).results[name]
        for key, value in alone.items():
            if key in ("accuracy", "reference", "dtypes"):
                assert value == together[name][key]
            elif key != "nonfinite_weights":
                assert value == pytest.approx(together[name][key], rel=1e-5), key


def test_the_accuracy_of_a_control_is_that_of_a_measurement_whatever_the_sizes_of_the_batches() -> None:
    for size in (77, 128, 1500):
        alone, among_others = (measure(network(), in_batches(X, Y, size), observers=kinds) for kinds in (["accuracy"], None))
        assert alone.accuracy == among_others.accuracy


def test_the_error_of_another_loss_needs_no_gradient_of_the_network() -> None:
    def squared(logits: Tensor, y: Tensor) -> Tensor:
        return (logits - nn.functional.one_hot(y, 5)).square().sum(1)

    model = network()
    result = observe(model, in_batches(X, Y), ["output-error"], loss=squared).results["output-error"]
    with torch.no_grad():
        errors = 2 * (model(X[:1280]).double() - nn.functional.one_hot(Y[:1280], 5))
    assert result["output_error_norm"] == pytest.approx(errors.norm(dim=1).quantile(0.5).item(), rel=1e-5)
    assert result == observe(model, in_batches(X, Y), ALL, loss=squared).results["output-error"]


def test_data_in_a_buffer_that_is_filled_again_and_again() -> None:
    def refilled() -> Iterator[tuple[Tensor, Tensor]]:
        x, y = torch.empty(128, 20), torch.empty(128, dtype=torch.long)
        for images, labels in in_batches(X[:1408], Y[:1408]):
            yield x.copy_(images), y.copy_(labels)

    assert measure(network(), refilled()) == measure(network(), in_batches(X[:1408], Y[:1408]))


def test_the_quantities_by_themselves_are_those_of_the_measurement() -> None:
    measured = measure(network(), in_batches(X, Y))
    assert tuple(residual_norms(network(), in_batches(X, Y))) == measured.residual_norms
    assert tuple(bp_grad_norms(network(), in_batches(X, Y))) == measured.bp_grad_norms


def test_the_stream_is_told_only_where_it_was_looked_for() -> None:
    alone, together = (observe(network(), in_batches(X, Y), names) for names in (["accuracy"], ALL))
    assert alone.environment == together.environment
    assert together.stream is not None and together.stream.blocks == tuple(f"blocks.{block}" for block in range(4))
    assert alone.stream is None


# --- what nobody watches is not computed -----------------------------------------------------------------------------


class Costs:
    """Counts backward passes, output errors, searches for a stream, samples run (but for those searches), batches loaded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.backwards = self.errors = self.searches = self.samples = self.loads = 0
        self.with_graph: set[bool] = set()
        grad, error, find = torch.autograd.grad, forward.output_error, forward.find_stream

        def counted_grad(*args: Any, **options: Any) -> Any:
            self.backwards += 1
            return grad(*args, **options)

        def counted_error(*args: Any) -> Any:
            self.errors += 1
            return error(*args)

        def counted_find(*args: Any) -> Any:
            before = self.samples
            stream = find(*args)
            self.searches, self.samples = self.searches + 1, before
            return stream

        monkeypatch.setattr(torch.autograd, "grad", counted_grad)
        monkeypatch.setattr(forward, "output_error", counted_error)
        monkeypatch.setattr(forward, "find_stream", counted_find)

    def of(self, observers: tuple[str, ...], samples: int = 1500) -> tuple[int, ...]:
        model = made("tokens")
        model.get_submodule("head").register_forward_hook(self._count)
        measure(model, self._loaded(samples), observers=observers)
        return self.backwards, self.errors, self.searches, self.samples, self.loads

    def _count(self, _module: nn.Module, _args: Any, logits: Tensor) -> None:
        self.samples += len(logits)
        self.with_graph.add(torch.is_grad_enabled())

    def _loaded(self, samples: int) -> Iterator[tuple[Tensor, Tensor]]:
        for batch in in_batches(X[:samples], Y[:samples]):
            self.loads += 1
            yield batch


@pytest.mark.parametrize(
    ("observers", "expected"),
    [
        (("accuracy",), (0, 0, 0, 1500, 12)),
        (("states", "accuracy"), (0, 0, 1, 1500, 12)),
        (("states",), (0, 0, 1, 1280, 10)),
        (("output-error",), (0, 10, 0, 1280, 10)),
        (("output-error", "accuracy"), (0, 10, 0, 1500, 12)),
        (("gradients",), (10, 10, 1, 1280, 10)),
        (("directions",), (10, 10, 1, 1280, 10)),
        (("gradients", "reference"), (10, 10, 1, 1280, 10)),
        (("reference",), (0, 0, 1, 0, 10)),
        (ALL, (14, 10, 1, 1500, 12)),
    ],
    ids=str,
)
def test_what_no_observer_asks_for_is_not_computed(
    observers: tuple[str, ...], expected: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = Costs(monkeypatch)
    assert costs.of(observers) == expected
    assert (True in costs.with_graph) == (costs.backwards > 0)


def test_samples_that_fill_no_batch_are_not_run_for_the_probe_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Costs(monkeypatch).of(("states",), samples=300) == (0, 0, 1, 256, 3)


def test_a_network_without_a_stream_is_measured_as_far_as_nobody_needs_it() -> None:
    plain = nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 5))
    with pytest.raises(AuditError, match="the network has no blocks"):
        measure(plain, in_batches(X, Y))
    assert measure(plain, in_batches(X, Y), observers=["accuracy", "output-error"]).accuracy is not None
    assert len(measure(plain, in_batches(X, Y), observers=["accuracy"]).residual_norms) == 0


def test_a_probe_alone_needs_two_batches_and_the_accuracy_alone_needs_one_sample() -> None:
    for names in (["states"], ["output-error"], ["gradients"]):
        with pytest.raises(AuditError, match="at least 2 batches of 128 samples; the evaluation data has 255 samples in all"):
            measure(network(), in_batches(X[:255], Y[:255], 16), observers=names)
    assert observe(network(), in_batches(X[:3], Y[:3]), ["accuracy"]).results["accuracy"]["accuracy"]["images"] == 3


def test_a_probe_of_one_class_is_measured_where_the_rest_is_not_looked_at() -> None:
    order = Y.argsort(stable=True)
    data = in_batches(X[order], Y[order])
    assert len(Y[order][:256].unique()) == 1
    together = measure(network(), data, batches=2)
    assert measure(network(), data, batches=2, observers=["states"]).residual_norms == together.residual_norms


# --- an observer of one's own ----------------------------------------------------------------------------------------


class Everything(Observer[Output | State | OutputError | Gradient]):
    """Keeps all that it sees, which a real one must not."""

    spec = ObserverSpec("everything", 1, "")
    watches = (Output, State, OutputError, Gradient)
    every_batch = True

    def __init__(self, info: PassInfo) -> None:
        self.info = info
        self.kinds: list[str] = []
        self.seen: dict[Any, list[Tensor]] = {}
        self.starts: list[tuple[int, int, bool]] = []

    def update(self, seen: Output | State | OutputError | Gradient) -> None:
        name = type(seen).__name__
        match seen:
            case Output():
                self._keep(name, seen.logits)
                self._keep("labels", seen.samples.labels)
                self.starts.append((seen.samples.start, seen.samples.batch, seen.samples.in_probe))
            case State():
                self._keep((name, seen.layer), seen.value)
            case OutputError():
                self._keep(name, seen.units * seen.norms.unsqueeze(1))
            case Gradient():
                assert seen.depth == 3
                self._keep((name, seen.layer), seen.value.flatten(1) * seen.error.norms.unsqueeze(1))
        self.kinds.append(name)

    def _keep(self, key: Any, value: Tensor) -> None:
        assert not value.requires_grad
        self.seen.setdefault(key, []).append(value.clone())

    def compute(self) -> dict[str, Any]:
        return {
            "seen": {key: torch.cat(values) for key, values in self.seen.items()},
            "kinds": self.kinds,
            "starts": self.starts,
        }


def test_an_observer_sees_states_of_every_batch_and_gradients_of_the_probe() -> None:
    """Against a float64 copy that spells its states out."""
    model = network(blocks=3)
    result = observe(model, in_batches(X, Y, 100), [Everything], batches=3, batch_size=80).results["everything"]
    wide = network(blocks=3).double()
    wide.load_state_dict({name: value.double() for name, value in model.state_dict().items()})
    states = [state.detach() for state in wide.hidden(X.double())]
    seen = result["seen"]
    torch.testing.assert_close(seen["Output"].double(), wide(X.double()).detach(), rtol=1e-4, atol=1e-5)
    assert torch.equal(seen["labels"], Y)
    for layer, state in enumerate(states):
        torch.testing.assert_close(seen["State", layer].double(), state, rtol=1e-4, atol=1e-5)
    h = states[0][:384].clone().requires_grad_()
    hidden = [h]
    for block in wide.blocks:
        hidden.append(hidden[-1] + block(hidden[-1]))
    logits = wide.out_head(wide.out_ln(hidden[-1]))
    loss = nn.functional.cross_entropy(logits, Y[:384], reduction="sum")
    for layer, gradient in enumerate(torch.autograd.grad(loss, hidden, retain_graph=True)):
        torch.testing.assert_close(seen["Gradient", layer], gradient, rtol=1e-4, atol=1e-6)
    error = (wide(X.double()).softmax(1) - nn.functional.one_hot(Y, 5)).detach()
    torch.testing.assert_close(seen["OutputError"], error, rtol=1e-4, atol=1e-6)
    first = [kind for kind, _ in itertools.groupby(result["kinds"])][:4]
    assert first == ["State", "Output", "OutputError", "Gradient"]
    assert result["starts"][:6] == [(0, 0, True), (80, 0, True), (128, 1, True), (208, 1, True), (256, 2, True), (336, 2, True)]
    assert result["starts"][6] == (384, 3, False) and not any(in_probe for _, _, in_probe in result["starts"][6:])


def test_samples_come_first_in_the_states_of_a_sequence_first_network() -> None:
    class SequenceFirst(Tokens):
        def forward(self, x: Tensor) -> Tensor:
            h = self.embed(x.view(len(x), 5, 4)).transpose(0, 1)
            for block in self.blocks:
                h = h + block.fc(torch.relu(block.norm(h)))
            logits: Tensor = self.head(self.norm(h)[0])
            return logits

    class Shapes(Observer[State | Gradient]):
        spec, watches = ObserverSpec("shapes", 1, ""), (State, Gradient)

        def __init__(self, info: PassInfo) -> None:
            self.shapes: set[tuple[int, ...]] = set()

        def update(self, seen: State | Gradient) -> None:
            self.shapes.add(tuple(seen.value.shape))

        def compute(self) -> dict[str, Any]:
            return {"shapes": sorted(self.shapes)}

    model, stream = SequenceFirst(), "blocks.*.norm -> norm"
    assert observe(model, in_batches(X, Y), [Shapes], stream=stream).results == {"shapes": {"shapes": [(128, 5, 8)]}}


class Largest(Observer[Output]):
    """The largest logit of the probe."""

    spec = ObserverSpec("largest", 1, "")
    watches = (Output,)

    def __init__(self, info: PassInfo) -> None:
        self.value, self.samples = -math.inf, 0

    def update(self, seen: Output) -> None:
        self.value, self.samples = max(self.value, seen.logits.max().item()), self.samples + len(seen.logits)

    def compute(self) -> dict[str, Any]:
        return {"value": self.value, "samples": self.samples, "undefined": math.nan, "pair": (1, 2)}


def test_what_an_observer_of_ones_own_computes_stands_beside_the_fields() -> None:
    measured = measure(network(), in_batches(X, Y), observers=[*ALL, Largest])
    with torch.no_grad():
        largest = network()(X[:1280]).max().item()
    expected = {"value": pytest.approx(largest, rel=1e-5), "samples": 1280, "undefined": "NaN", "pair": [1, 2]}
    assert measured.extra["largest"] == expected
    assert measured.companions.samples == 1280 and measured.accuracy is not None and measured.accuracy.images == 1500
    assert Measurement.from_dict(json.loads(json.dumps(measured.to_dict(), allow_nan=False))) == measured


def test_the_network_is_not_blamed_for_an_observer_that_fails() -> None:
    class Fails(Largest):
        watches = (State,)  # type: ignore[assignment]

    with pytest.raises(AuditError, match="the observer 'largest' failed: AttributeError: 'State' object has no attribute"):
        observe(network(), in_batches(X, Y), [Fails])


def test_an_observer_that_is_named_twice_observes_once() -> None:
    observers: list[Observer[Any]] = []

    class Counted(Largest):
        def __init__(self, info: PassInfo) -> None:
            super().__init__(info)
            observers.append(self)

    assert list(observe(network(), in_batches(X, Y), [Counted, "states", Counted, "states"]).results) == ["largest", "states"]
    assert len(observers) == 1


@pytest.mark.parametrize(("names", "message"), [(["norms"], "unknown observer 'norms'; known: states, "), ([], "no observer")])
def test_an_unknown_observer_or_none_is_an_error(names: list[str], message: str) -> None:
    with pytest.raises(AuditError, match=message):
        measure(network(), in_batches(X, Y), observers=names)


def test_no_state_outlives_its_batch() -> None:
    """Not even until the garbage collector comes by, which a pass of few large tensors does not call."""
    model, alive, states = Tokens(), [], []

    def watch(_module: nn.Module, args: Any) -> None:
        alive.append(sum(state() is not None for state in states))
        states.append(weakref.ref(args[0]))

    model.blocks[0].register_forward_pre_hook(watch)
    gc.collect()
    gc.disable()
    try:
        measure(model, in_batches(X, Y), stream="blocks.* -> norm")
    finally:
        gc.enable()
    assert len(states) > 10 and not any(alive)


# --- results as fields of a measurement ------------------------------------------------------------------------------

RESULTS = {name: to_plain(result) for name, result in observe(network(), in_batches(X, Y), FIELDS).results.items()}
OWN_FIELDS = {field.name for field in fields(Measurement)} - {"companions", "environment", "extra", "stream"}


def test_every_field_has_an_observer_and_every_result_is_a_field() -> None:
    statistics = {field.name for field in fields(AuxiliaryStatistics)} - {"invariance_between_samples"}  # of audits before
    assert {key for result in RESULTS.values() for key in result} == OWN_FIELDS | statistics
    assert set(FIELDS) < set(ALL)


def test_every_observer_is_where_its_spec_says_and_belongs_to_a_diagnostic() -> None:
    assert all(diagnostic.observers for diagnostic in DIAGNOSTICS)
    modules = {spec.place.partition(":")[0]: spec for spec in DIAGNOSTICS.observers.values()}
    assert all(named(spec.place).spec is spec for spec in modules.values())
    folder = Path(home.__file__).parent
    assert {f"{home.__name__}.{path.stem}" for path in folder.glob("*.py")} - set(modules) == {
        f"{home.__name__}.{other}" for other in ("__init__", "base")
    }


@pytest.mark.parametrize("names", [names for n in range(6) for names in itertools.combinations(FIELDS, n)], ids=str)
def test_results_of_some_observers_make_a_measurement_that_round_trips(names: tuple[str, ...]) -> None:
    results = json.loads(json.dumps({name: RESULTS[name] for name in names}, allow_nan=False))
    part, whole = Measurement.of(results, {"device": "cpu"}), Measurement.of(RESULTS, {"device": "cpu"})
    assert Measurement.from_dict(json.loads(json.dumps(part.to_dict(), allow_nan=False))) == part
    keys = {key for name in names for key in RESULTS[name]}
    empty = Measurement()
    for name in OWN_FIELDS:
        assert getattr(part, name) == getattr(whole if name in keys else empty, name), name
    for field in fields(AuxiliaryStatistics):
        source = whole if field.name in keys else empty
        assert getattr(part.companions, field.name) == getattr(source.companions, field.name), field.name
    assert part.environment == {"device": "cpu"} and part.extra == {}


def test_a_measurement_of_results_is_the_one_that_was_measured() -> None:
    measured = measure(network(), in_batches(X, Y), observers=FIELDS)
    assert Measurement.of(RESULTS, measured.environment, measured.stream) == measured


def test_what_is_not_finite_round_trips_too() -> None:
    measured = measure(made("not finite"), in_batches(X, Y))
    assert math.isnan(measured.residual_norms[-1]) and measured.cross_batch_stability is not None
    again = Measurement.from_dict(json.loads(json.dumps(measured.to_dict(), allow_nan=False)))
    assert again.to_dict() == measured.to_dict()
    assert math.isnan(again.residual_norms[-1]) and math.isnan(again.cross_batch_stability or 0.0)
