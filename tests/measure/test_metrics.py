"""Directions by closed forms, precision by gradients taken in each dtype, and odd predictions."""

from __future__ import annotations

import copy
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from own_backwards import Net, made
from support import between_classes, changed, clustered, in_batches, measured, network
from torch import Tensor, nn
from torch.nn import functional as F

from pytest_fadiag.judge.errors import AuditError
from pytest_fadiag.judge.records import Reference
from pytest_fadiag.measure import metrics
from pytest_fadiag.measure.precision import GradientPrecision
from pytest_fadiag.measure.task import OutputError, Task
from pytest_fadiag.measure.types import Batch

X, Y = clustered(300)


def directions(
    gradients: Tensor, labels: Tensor, predicted: Tensor | None = None
) -> dict[str, Any]:
    """What is computed of these gradients at layer 1 of 2, of samples with errors of norm 1."""
    metric = metrics.Directions(SimpleNamespace(task=Task()))  # type: ignore[arg-type]
    outputs = F.one_hot(labels if predicted is None else predicted, int(labels.max()) + 1)
    parts = zip(*(own.split(128) for own in (gradients, labels, outputs)), strict=True)
    for number, (part, y, own) in enumerate(parts):
        error = OutputError(torch.ones(len(y), 1), torch.ones(len(y), dtype=torch.float64))
        broken = torch.full_like(part, math.nan)
        metric.update(Batch(part, y, 128 * number, True, own, error, None, [broken, part, broken]))
    return metric.compute()


def test_sample_invariance_leaves_out_the_class_predicted_most_often_and_absent_ones() -> None:
    draw = torch.Generator().manual_seed(1)
    vectors = torch.randn(200, 7, generator=draw, dtype=torch.float64) + 0.3
    labels = torch.randint(0, 6, (200,), generator=draw)
    labels[labels == 4] = 5
    vectors[17] = 0
    found = directions(vectors, labels, torch.where(torch.arange(200) % 3 == 0, 2, labels))
    kept = np.arange(200) != 17
    units = F.normalize(vectors, dim=1).numpy()[kept]
    expected = between_classes(units, labels.numpy()[kept], left_out=2)
    assert found["sample_invariance"] == pytest.approx(expected, rel=1e-9)
    assert (found["zero_gradient_samples"], found["eval_classes"]) == (1, 5)
    assert found["stability_layer"] == 1


@pytest.mark.parametrize("rho", [0.0034, 0.1, 0.5])
def test_the_cross_batch_cosine_of_samples_with_a_common_part_follows_its_closed_form(
    rho: float,
) -> None:
    """With mean pairwise cosine ρ it reads Nρ/(1 − ρ + Nρ) at batch size N."""
    d, n, groups = 4000, 128, 12
    draw = torch.Generator().manual_seed(0)
    common = F.normalize(torch.randn(d, generator=draw, dtype=torch.float64), dim=0)
    own = F.normalize(torch.randn(groups * n, d, generator=draw, dtype=torch.float64), dim=1)
    samples = math.sqrt(rho) * common + math.sqrt(1 - rho) * own
    found = directions(samples, torch.arange(groups * n) % 10)
    assert found["cross_batch_stability"] == pytest.approx(n * rho / (1 - rho + n * rho), abs=0.02)
    assert found["sample_invariance"] == pytest.approx(rho, abs=0.002)


def test_two_classes_leave_no_pair_to_compare() -> None:
    found = directions(torch.randn(256, 7), torch.arange(256) % 2)
    assert math.isnan(found["sample_invariance"])


def test_classes_by_the_thousand_are_compared_by_a_sketch(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = torch.Generator().manual_seed(1)
    labels = torch.arange(1280) % 100
    own = torch.randn(100, 4000, generator=draw, dtype=torch.float64)[labels]
    vectors = own + 0.5 * torch.randn(4000, generator=draw, dtype=torch.float64)
    exact = directions(vectors, labels)
    monkeypatch.setattr(metrics, "MOST_ENTRIES", 100 * 2000)
    sketched = directions(vectors, labels)
    assert exact["sample_invariance"] == pytest.approx(0.2, abs=0.01)
    assert sketched["sample_invariance"] != exact["sample_invariance"]
    assert sketched["sample_invariance"] == pytest.approx(exact["sample_invariance"], abs=0.01)
    assert sketched["cross_batch_stability"] == exact["cross_batch_stability"]


# --- precision ------------------------------------------------------------------------------------

MANY_X, MANY_Y = clustered(9_000)


def in_dtype(net: Net, dtype: torch.dtype) -> Any:
    """The gradient at h_L of the mean loss of 128 samples, for the first 64, in one dtype."""
    narrow = copy.deepcopy(net).to(dtype)
    h = narrow.states(MANY_X[:64].to(dtype))[-1].detach().requires_grad_()
    losses = F.cross_entropy(narrow.read(h), MANY_Y[:64], reduction="sum")
    return torch.autograd.grad(losses / 128, h)[0].double().numpy()


@pytest.mark.parametrize("scale", [1.0, 3e-5, 1e-7, 0.0])
@pytest.mark.parametrize("name", ["plain", "feedback alignment"])
def test_cosines_and_lost_samples_are_those_of_gradients_in_each_dtype(
    name: str, scale: float
) -> None:
    net = changed(made(name), lambda net: net.head.weight.mul_(scale))
    precision = measured(net, in_batches(MANY_X, MANY_Y), ["precision"]).precision
    assert precision is not None
    assert [own.dtype for own in precision.dtypes] == ["float32", "bfloat16", "float16"]
    assert precision.samples == (64 if scale else 0)
    wide = in_dtype(net, torch.float64)
    for own in precision.dtypes:
        narrow = in_dtype(net, getattr(torch, own.dtype))
        kept = (narrow != 0).any(1)
        pairs = zip(narrow[kept], wide[kept], strict=True)
        cosines = [a @ b / np.sqrt((a @ a) * (b @ b)) for a, b in pairs]
        assert own.lost == (64 - kept.sum() if scale else 0)
        expected = np.median(cosines) if cosines else math.nan
        assert own.cosine == pytest.approx(expected, abs=2e-3, nan_ok=True)
    assert scale == 0 or precision.dtypes[0].cosine == pytest.approx(1, abs=1e-9)
    assert scale == 0 or (precision.dtypes[2].lost == 64) == (scale < 1e-6)


@pytest.mark.parametrize(("samples", "compared"), [(256, 4), (8_960, 64), (12_000, 64)])
def test_samples_are_compared_that_cost_a_twentieth_and_no_more_than_64(
    samples: int, compared: int
) -> None:
    x, y = torch.randn(samples, 20), torch.arange(samples) % 5
    precision = measured(network(), in_batches(x, y), ["precision"]).precision
    assert precision is not None and precision.samples == compared
    assert 9 * compared <= (samples + 2 * min(samples, 1280)) / 20  # backward counts as 2


def test_of_samples_with_more_than_512_tokens_none_is_compared() -> None:
    source = SimpleNamespace(
        task=Task("tokens"), labels=range(10_000), proof=Reference(dtype="float64")
    )
    metric = GradientPrecision(source)  # type: ignore[arg-type]
    for tokens, compared in ((64, 8), (512, 1), (513, 0)):
        batch = Batch(torch.zeros(128, tokens), torch.zeros(128, tokens), 0, True)
        assert metric.affordable(batch) == compared
    metric.update(batch)
    assert metric.result and metric.result.problem == "skipped: one sample has more than 512 tokens"


def test_a_dtype_that_does_not_run_is_said() -> None:
    def act(block: nn.Module, z: Tensor) -> Tensor:
        if z.dtype is torch.float16:
            raise RuntimeError('"gelu" not implemented for Half')
        return F.gelu(z)

    precision = measured(made(Net, act=act), in_batches(X, Y), ["precision"]).precision
    assert precision is not None
    assert (precision.dtypes[2].cosine, precision.dtypes[2].lost) == (None, 0)
    assert precision.dtypes[2].problem.startswith("does not run: the network failed on inputs of")
    assert precision.dtypes[2].problem.endswith('RuntimeError: "gelu" not implemented for Half')


# --- accuracy and what is not finite --------------------------------------------------------------


def test_the_classes_of_all_labels_are_counted_and_not_the_outputs() -> None:
    skewed = torch.where(torch.arange(300) % 10 < 7, 3, Y)
    found = measured(network(classes=50), in_batches(X, skewed), ["accuracy"], data_digest="abc")
    _, counts = np.unique(skewed.numpy(), return_counts=True)
    assert (found.classes, found.label_classes) == (50, len(counts))
    assert found.label_class_share == counts.max() / 300
    assert found.score is not None and found.score.data == "abc"
    with torch.no_grad():
        logits = network(classes=50)(X)
    predicted = logits.argmax(1).bincount()
    assert found.predicted_class_share == pytest.approx(float(predicted.max()) / 300)


def test_images_are_scored_one_by_one_class_by_class() -> None:
    score = measured(network(), in_batches(X, Y, 77), ["accuracy"]).score
    assert score is not None
    with torch.no_grad():
        hits = network()(X).argmax(1) == Y
    classes = sorted(set(Y.tolist()))
    assert [list(outcomes) for outcomes in score.by_class] == [
        hits[label == Y].int().tolist() for label in classes
    ]
    assert score.class_counts == tuple(int((label == Y).sum()) for label in classes)
    reordered = measured(network(), in_batches(X.flip(0), Y.flip(0)), ["accuracy"]).score
    assert reordered is not None
    assert (reordered.value, reordered.order == score.order) == (score.value, False)


def test_one_class_is_refused() -> None:
    with pytest.raises(AuditError, match="all 300 labels are 2: one class measures neither"):
        measured(network(), [(X, torch.full_like(Y, 2))])


def test_what_is_not_finite_is_counted_and_named() -> None:
    net = changed(network(), lambda net: net.blocks[2].fc1.weight[0, 0].fill_(math.nan))
    found = measured(net, in_batches(X, Y))
    assert found.nonfinite_states == (0, 0, 0, 256, 256)
    assert found.nonfinite_gradients == (256,) * 5
    assert (found.nonfinite_outputs, found.score.value) == (300, 0)  # type: ignore[union-attr]
    assert found.nonfinite_weights == ("blocks.2.fc1.weight",)
    assert all(map(math.isnan, (found.residual_norms[-1], found.cross_batch_stability)))  # type: ignore[arg-type]
    assert found.zero_gradient_samples == 256
