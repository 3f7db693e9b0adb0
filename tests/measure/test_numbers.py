"""Every measured number against an independent float64 computation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from support import between_classes, clustered, in_batches, network, reference, trained
from torch import Tensor, nn

from pytest_fadiag import Measurement, ResidualMLP, measure
from pytest_fadiag.judge.margins import margin_interval
from pytest_fadiag.measure.observers.base import Gradient, Output, OutputError, PassInfo, Samples
from pytest_fadiag.measure.observers.directions import GradientDirections
from pytest_fadiag.measure.vectors import median, pairwise_cosine, row_norms


def assert_close(measured: Measurement, model: ResidualMLP, x: Tensor, y: Tensor) -> None:
    """Norms within 1e-5 relative, cosines within 1e-5 absolute, of the reference."""
    expected = reference(model, x, y)
    assert measured.residual_norms == pytest.approx(expected.residual_norms, rel=1e-5, abs=0)
    assert measured.bp_grad_norms == pytest.approx(expected.bp_grad_norms, rel=1e-5, abs=0)
    companions = measured.companions
    assert companions.gradient_per_unit_error == pytest.approx(expected.gradient_per_unit_error, rel=1e-5, abs=0)
    assert companions.output_error_norm == pytest.approx(expected.output_error_norm, rel=1e-5, abs=0)
    assert measured.cross_batch_stability == pytest.approx(expected.cross_batch_stability, rel=1e-5, abs=1e-6)
    assert companions.sample_invariance == pytest.approx(expected.sample_invariance, rel=1e-5, abs=1e-6)
    assert companions.output_error_drift == pytest.approx(expected.output_error_drift, rel=1e-5, abs=1e-6)
    assert measured.accuracy is not None
    assert measured.accuracy.value == expected.accuracy


@pytest.mark.parametrize("size", [1.0, 1e3, 1e6, 1e9])
def test_a_stream_of_any_size_is_measured_to_1e_5(size: float, data: tuple[Tensor, Tensor]) -> None:
    x, y = data
    model = network()
    with torch.no_grad():
        model.blocks[1].fc2.weight.mul_(size)
    measured = measure(model, in_batches(x, y))
    assert_close(measured, model, x, y)
    assert size == 1.0 or measured.residual_norms[-1] > 0.1 * size


@pytest.mark.parametrize("size", [1e-2, 1e-5, 1e-8, 1e-12])
def test_a_gradient_of_any_size_is_measured_to_1e_5(size: float, data: tuple[Tensor, Tensor]) -> None:
    x, y = data
    model = network(out_ln=False)
    with torch.no_grad():
        model.out_head.weight.mul_(100 * size)
    measured = measure(model, in_batches(x, y))
    assert_close(measured, model, x, y)
    assert size / 10 < measured.bp_grad_norms[-1] < size * 10


def test_the_classes_of_all_labels_are_counted_and_not_the_outputs(data: tuple[Tensor, Tensor]) -> None:
    x, y = data
    skewed = torch.where(torch.arange(len(y)) % 10 < 7, 3, y)
    companions = measure(network(classes=50), in_batches(x, skewed)).companions
    counts = np.unique(skewed.numpy(), return_counts=True)[1]
    assert (companions.classes, companions.label_classes) == (50, len(counts))
    assert companions.largest_label_share == counts.max() / len(y)


def test_confident_samples_keep_their_output_error_exact() -> None:
    """Of p - 1 float32 keeps no digit at 1e-8; the float64 step at the logits does."""
    x, y = clustered(1300)
    model = trained(300)
    with torch.no_grad():
        model.out_head.weight.mul_(2.5)
        model.out_head.bias.mul_(2.5)
    measured = measure(model, in_batches(x, y))
    assert measured.companions.output_error_norm is not None
    assert measured.companions.output_error_norm < 1e-6
    expected = reference(model, x, y)
    assert measured.bp_grad_norms == pytest.approx(expected.bp_grad_norms, rel=1e-5, abs=0)
    assert measured.companions.output_error_norm == pytest.approx(expected.output_error_norm, rel=1e-5, abs=0)


@pytest.fixture(scope="module")
def whole(trained_network: Callable[[], ResidualMLP]) -> Measurement:
    """What is measured of the trained network where the data come as one batch."""
    return measure(trained_network(), [clustered(1300)])


@pytest.mark.parametrize(("size", "at_once"), [(16, 128), (100, 50), (128, 50), (512, 128), (512, 50)])
def test_the_batch_size_changes_no_number(
    size: int, at_once: int, whole: Measurement, data: tuple[Tensor, Tensor], trained_network: Callable[[], ResidualMLP]
) -> None:
    parts = measure(trained_network(), in_batches(*data, size), batch_size=at_once)
    assert parts.residual_norms == pytest.approx(whole.residual_norms, rel=1e-6, abs=0)
    assert parts.bp_grad_norms == pytest.approx(whole.bp_grad_norms, rel=1e-6, abs=0)
    assert parts.cross_batch_stability == pytest.approx(whole.cross_batch_stability, rel=1e-6, abs=0)
    for name in ("gradient_per_unit_error", "output_error_norm", "sample_invariance", "output_error_drift"):
        assert getattr(parts.companions, name) == pytest.approx(getattr(whole.companions, name), rel=1e-6, abs=0), name
    assert parts.accuracy == whole.accuracy


def test_only_ten_full_batches_are_probed_and_every_sample_counts_for_the_accuracy() -> None:
    x, y = clustered(1500)
    model = trained(50)
    measured = measure(model, in_batches(x, y, 77))
    assert measured.companions.samples == 1280
    assert measured.accuracy.images == 1500
    assert_close(measured, model, x, y)


@pytest.mark.parametrize(("blocks", "layer"), [(1, 0), (2, 1), (3, 1), (5, 2)])
def test_directions_are_those_at_half_depth(blocks: int, layer: int, data: tuple[Tensor, Tensor]) -> None:
    model = network(blocks=blocks)
    measured = measure(model, in_batches(*data))
    assert measured.stability_layer == layer
    assert_close(measured, model, *data)


def test_a_rest_below_128_is_dropped_from_the_probe(trained_network: Callable[[], ResidualMLP]) -> None:
    x, y = clustered(128 * 3 + 127)
    measured = measure(trained_network(), in_batches(x, y))
    assert measured.companions.batches == 3
    assert_close(measured, trained_network(), x, y)


def test_an_error_of_one_sample_changes_nothing_for_the_others(data: tuple[Tensor, Tensor]) -> None:
    """g is per sample: it is the gradient of the summed loss over 128, not of a mean over whatever was in the batch."""
    x, y = data
    model = network()
    whole = measure(model, in_batches(x, y))
    twice = measure(model, in_batches(torch.cat([x, x]), torch.cat([y, y])), batches=20)
    assert twice.residual_norms[0] == pytest.approx(whole.residual_norms[0], rel=0.05)
    assert twice.bp_grad_norms[-1] == pytest.approx(whole.bp_grad_norms[-1], rel=0.05)


def test_the_gradient_agrees_with_finite_differences() -> None:
    """One sample's ∂ℓ/∂h_L by central differences through the head, in float64."""
    x, y = clustered(256)
    model = network().double()
    state = model.hidden(x.double())[-1]
    step, norms = 1e-6, []
    for h, label in zip(state[:64], y[:64], strict=True):
        moved = torch.cat([h + step * torch.eye(16), h - step * torch.eye(16)])
        losses = nn.functional.cross_entropy(model.out_head(model.out_ln(moved)), label.expand(32), reduction="none")
        norms.append(((losses[:16] - losses[16:]) / (2 * step)).norm().item() / 128)
    # The median needs all probe samples; the per-sample norms of the first 64 are compared by themselves.
    h_leaf = state[:64].detach().requires_grad_()
    loss = nn.functional.cross_entropy(model.out_head(model.out_ln(h_leaf)), y[:64], reduction="sum")
    (gradient,) = torch.autograd.grad(loss, h_leaf)
    assert (row_norms(gradient) / 128).tolist() == pytest.approx(norms, rel=1e-6, abs=0)


def test_a_hand_built_stream_has_the_norms_that_were_built_in() -> None:
    """Blocks whose fc2 is zero add nothing; the second adds a constant of norm 300 to states of norm 1."""
    x, y = clustered(300)
    x = nn.functional.normalize(x, dim=1)
    model = network(d_in=20, d=20)
    with torch.no_grad():
        model.embed.weight.copy_(torch.eye(20))
        model.embed.bias.zero_()
        for block in model.blocks:
            block.fc2.weight.zero_()
            block.fc2.bias.zero_()
        model.blocks[1].fc2.bias.fill_(300 / math.sqrt(20))
    measured = measure(model, in_batches(x, y))
    assert measured.residual_norms[:2] == pytest.approx([1.0, 1.0])
    assert measured.residual_norms[2] == pytest.approx(300, rel=0.01)
    assert measured.residual_norms[2:] == pytest.approx([measured.residual_norms[2]] * 3)


def directions(gradients: Tensor, labels: Tensor, predictions: Tensor | None = None) -> dict[str, Any]:
    """What is observed of the directions of these gradients at layer 1 of 2, each sample with an error of norm 1."""
    observer = GradientDirections(PassInfo(nn.Identity(), batches=-(-len(gradients) // 128)))
    classes = int(labels.max()) + 1
    logits = nn.functional.one_hot(labels if predictions is None else predictions, classes).double()
    parts = zip(gradients.split(128), labels.split(128), logits.split(128), strict=True)
    for batch, (part, own, output) in enumerate(parts):
        samples = Samples(own, 128 * batch, in_probe=True)
        error = OutputError(samples, torch.ones(len(part), 1), torch.ones(len(part), dtype=torch.float64))
        observer.update(Output(samples, output))
        for layer in (2, 1, 0):
            observer.update(
                Gradient(samples, layer, 2, part if layer == 1 else torch.full_like(part, math.nan), error, tokens=False)
            )
    return observer.compute()


def test_sample_invariance_is_the_mean_over_all_pairs_of_classes_but_the_one_predicted_most_often() -> None:
    generator = torch.Generator().manual_seed(1)
    vectors, labels = torch.randn(200, 7, generator=generator) + 0.3, torch.randint(0, 6, (200,), generator=generator)
    labels[labels == 4] = 5  # a class that is not there is none
    predictions = torch.where(torch.arange(200) % 3 == 0, 2, labels)
    vectors[17] = 0
    units = nn.functional.normalize(vectors.double(), dim=1).numpy()
    measured = directions(vectors, labels, predictions)
    kept = np.arange(200) != 17
    assert measured["sample_invariance"] == pytest.approx(between_classes(units[kept], labels.numpy()[kept], 2), rel=1e-9)
    assert (measured["zero_gradient_samples"], measured["probe_classes"]) == (1, 5)
    assert measured["largest_class_share"] == pytest.approx(float((labels == 5).double().mean()))


def test_two_classes_leave_no_pair_to_compare() -> None:
    vectors, labels = torch.randn(200, 7), torch.arange(200) % 2
    assert math.isnan(directions(vectors, labels)["sample_invariance"])


def test_classes_by_the_thousand_are_compared_by_a_sketch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 100 classes and gradients of 4,000 entries, in a hundredth of the room."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(1280) % 100
    own = torch.randn(100, 4000, generator=generator, dtype=torch.float64)[labels]
    vectors = own + 0.5 * torch.randn(4000, generator=generator, dtype=torch.float64)
    exact = directions(vectors, labels)["sample_invariance"]
    monkeypatch.setattr("pytest_fadiag.measure.observers.directions.MOST_ENTRIES", 100 * 2000)
    sketched = directions(vectors, labels)["sample_invariance"]
    assert sketched != exact and sketched == pytest.approx(exact, abs=0.01) and exact == pytest.approx(0.2, abs=0.01)


@pytest.mark.parametrize("rho", [0.0034, 0.1, 0.5])
def test_the_cross_batch_cosine_of_samples_with_a_common_part_follows_its_closed_form(rho: float) -> None:
    """With mean pairwise cosine ρ it reads Nρ/(1 - ρ + Nρ) at batch size N."""
    d, n, groups = 4000, 128, 12
    generator = torch.Generator().manual_seed(0)
    common = nn.functional.normalize(torch.randn(d, generator=generator, dtype=torch.float64), dim=0)
    own = nn.functional.normalize(torch.randn(groups * n, d, generator=generator, dtype=torch.float64), dim=1)
    samples = math.sqrt(rho) * common + math.sqrt(1 - rho) * own
    measured = directions(samples, torch.arange(groups * n) % 10)
    assert measured["cross_batch_stability"] == pytest.approx(n * rho / (1 - rho + n * rho), abs=0.02)
    assert measured["sample_invariance"] == pytest.approx(rho, abs=0.002)


def test_cosines_are_not_clamped_by_an_epsilon() -> None:
    """The vectors of pytorch issue 115786: torch's own cosine reads 0.83993 where 0.91036 is right."""
    tiny = torch.tensor([[3e-9, 4e-9], [4e-9, 3e-9]], dtype=torch.float64)
    assert pairwise_cosine(tiny) == pytest.approx(0.96)
    assert torch.nn.functional.cosine_similarity(tiny[0], tiny[1], dim=0) < 0.5
    assert pairwise_cosine(tiny * 1e-200) == pytest.approx(0.96)


def test_a_zero_vector_has_no_direction() -> None:
    assert math.isnan(pairwise_cosine(torch.tensor([[1.0, 0.0], [0.0, 0.0]], dtype=torch.float64)))


def test_medians_average_the_middle_two() -> None:
    assert median(torch.tensor([4.0, 1.0, 3.0, 2.0])) == 2.5
    assert median(torch.tensor([3.0, 1.0, 2.0])) == 2.0
    assert math.isnan(median(torch.tensor([])))


def test_norms_of_float64_rows_neither_overflow_nor_underflow() -> None:
    rows = torch.tensor([[3e200, 4e200], [3e-200, 4e-200], [0.0, 0.0]], dtype=torch.float64)
    assert row_norms(rows).tolist() == pytest.approx([5e200, 5e-200, 0.0])


def test_the_norm_is_the_l2_norm_along_the_last_dimension() -> None:
    """Pitfall 1: ``tensor.norm(-1)`` would be the L₋₁ norm of everything."""
    assert row_norms(torch.tensor([[3.0, 4.0], [6.0, 8.0]])).tolist() == [5.0, 10.0]


def test_other_images_with_the_same_labels_are_told_apart_by_the_digest_of_their_data() -> None:
    """Images that are permuted within their classes have the same labels in the same order."""
    x, y = clustered(600)
    other = x.clone()
    for label in y.unique():
        other[y == label] = x[y == label].flip(0)
    model, control = network(), network(blocks=2)
    ours = measure(model, in_batches(x, y), data_digest="x").accuracy
    assert ours.data == "x"
    theirs, elsewhere = (
        measure(control, in_batches(images, y), data_digest=digest, observers=["accuracy"]).accuracy
        for images, digest in ((x, "x"), (other, "other"))
    )
    assert theirs.order == elsewhere.order
    kinds = [margin_interval(ours, accuracy) for accuracy in (theirs, elsewhere)]
    assert [kind is not None and kind.kind.startswith("paired") for kind in kinds] == [True, False]
    assert Measurement.from_dict(measure(model, in_batches(x, y), data_digest="x").to_dict()).accuracy == ours
    older = measure(model, in_batches(x, y)).to_dict()
    del older["accuracy"]["data"]
    assert Measurement.from_dict(older).accuracy.data is None
