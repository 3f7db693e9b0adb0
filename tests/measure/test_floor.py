"""(g): the linear readout of the inputs, against plain numpy with every sample left out once."""

from __future__ import annotations

import numpy
import pytest
import torch
from support import network
from torch import Tensor, nn

from pytest_fadiag import diagnose
from pytest_fadiag.load.data import DataSet
from pytest_fadiag.measure.floor import RIDGES, Readout, SmallInputs
from pytest_fadiag.measure.folds import Folds, Units, balanced
from pytest_fadiag.measure.run import NetworkSource, measure
from pytest_fadiag.measure.task import Task


def skewed(samples: int = 1200, width: int = 5, seed: int = 1) -> tuple[Tensor, Tensor]:
    """Three classes, the first one most of them, told by a noisy linear teacher."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, width, generator=generator) * torch.tensor([1.0, 3, 0.2, 1, 1])[:width]
    noise = torch.randn(samples, generator=generator)
    return x, (x[:, 0] + 0.5 * noise > 1).long() + (x[:, 1] + noise > 4).long()


def by_hand(x: Tensor, y: Tensor, fit: Tensor, read: Tensor) -> tuple[numpy.ndarray, float]:
    """Weighted ridge regression; λ by really leaving each sample out."""
    inputs, labels = x.double().numpy(), y.numpy()
    z, own = inputs[fit], labels[fit]
    classes = int(labels.max()) + 1
    w = len(own) / (len(set(own)) * numpy.bincount(own, minlength=classes)[own])
    scale = numpy.sqrt(numpy.square(z - (w[:, None] * z).sum(0) / w.sum()).mean())
    mean, target = (w[:, None] * z).sum(0) / w.sum(), numpy.eye(classes)[own]

    def solved(keep: numpy.ndarray, ridge: float) -> tuple[numpy.ndarray, numpy.ndarray]:
        weights, rows, goal = w[keep], (z[keep] - mean) / scale, target[keep]
        design = numpy.hstack([rows, numpy.ones((len(rows), 1))])
        penalty = numpy.diag([ridge * len(own)] * rows.shape[1] + [0.0])
        both = numpy.linalg.solve(
            design.T @ (weights[:, None] * design) + penalty, design.T @ (weights[:, None] * goal)
        )
        return both[:-1], both[-1]

    errors = []
    for ridge in RIDGES:
        total = 0.0
        for left in range(len(own)):
            keep = numpy.arange(len(own)) != left
            slope, bias = solved(keep, ridge)
            total += (
                w[left]
                * numpy.square(target[left] - ((z[left] - mean) / scale) @ slope - bias).sum()
            )
        errors.append(total)
    best = RIDGES[int(numpy.argmin(errors))]
    slope, bias = solved(numpy.ones(len(own), dtype=bool), best)
    return (((inputs[read] - mean) / scale) @ slope + bias).argmax(1) == labels[read], best


@pytest.mark.parametrize("features", [5, 200])
def test_the_readout_is_weighted_ridge_regression_with_lambda_by_leave_one_out(
    features: int,
) -> None:
    """Also where there are more features than samples, some of them constant."""
    x, y = skewed(260)
    noise = torch.randn(260, features - 5, generator=torch.Generator().manual_seed(2))
    x = torch.cat([x, noise, torch.full((260, 3), 7.0)], 1)
    fit = torch.arange(260) < 130
    y_fit = y[fit]
    weights = 130 / (3 * torch.bincount(y_fit)[y_fit]).double()
    goals = torch.nn.functional.one_hot(y_fit, 3).double()
    parts = list(zip(x[fit].split(50), goals.split(50), weights.split(50), strict=True))
    readout = Readout(weights)
    for part in parts:
        readout.take(*part)
    readout.decompose()
    for part in parts:
        readout.leave_out(*part)
    readout.solve()
    right = readout(x[~fit]).argmax(1) == y[~fit]
    varying = x[:, :features]
    indices = torch.arange(260)
    truth, chosen = by_hand(varying, y, indices[fit], indices[~fit])
    assert readout.ridge == chosen and right.tolist() == truth.tolist()


def test_classes_count_equally_and_rare_ones_are_left_out() -> None:
    labels = torch.tensor([0] * 90 + [1] * 10 + [2])
    right = torch.cat([torch.ones(90), torch.zeros(10), torch.ones(1)])
    assert balanced(right, labels) == pytest.approx(2 / 3)
    units = Units(Task("classes"), labels, 2 * (torch.arange(101) % 2))
    units.keep(torch.tensor([True, True, False]))
    assert len(units) == 100 and int(units.parts[100]) == -1
    for fold, label in ((0, 0), (0, 1), (1, 0), (1, 1)):
        chosen = units.fold(fold) & (labels == label)
        assert float(units.weights[chosen].sum()) == pytest.approx(25)


@pytest.mark.parametrize(("gain", "fires"), [(3.0, False), (-3.0, True)])
def test_a_network_is_compared_with_the_readout_on_the_same_samples(
    gain: float, fires: bool
) -> None:
    """One network is the teacher itself, the other turned round."""
    x, y = skewed(seed=2)

    class Teacher(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(gain))

        def forward(self, x: Tensor) -> Tensor:
            score = (x[:, 0] > 1).float() + (x[:, 1] > 4).float()
            return -self.scale * (score.unsqueeze(1) - torch.arange(3.0)).square()

    floor = measure(NetworkSource(Teacher(), [(x, y)]), ["floor"]).floor
    assert floor is not None and floor.interval is not None and floor.read == 1200
    assert (floor.interval[1] < 0) == fires
    assert floor.interval[0] < (floor.difference_pp or 0) < floor.interval[1]


def test_it_is_given_where_the_stream_is_refused() -> None:
    x, y = skewed()

    class Towers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU())
            self.b = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU())
            self.head = nn.Linear(16, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(torch.cat([self.a(x), self.b(x)], 1))

    report = diagnose(Towers(), [(x, y)])
    assert report.stream_problem and report.finding("g").measured
    assert report.finding("a").error and report.verdict != "trustworthy"


def test_a_readout_is_of_the_training_data_and_not_of_their_name() -> None:
    x, y = skewed()
    readouts = []
    for turn in (1.0, -1.0):
        training = DataSet(turn * x, y, "train.npz")
        source = NetworkSource(nn.Linear(5, 3), [(x, y)], training=training, data_digest="ab")
        floor = measure(source, ["floor"]).floor
        assert floor is not None and floor.readout is not None
        readouts.append(floor.readout)
    assert readouts[0] > 0.6 > readouts[1]


def test_of_classes_that_are_all_rare_nothing_is_read() -> None:
    x, y = torch.randn(1500, 20), torch.arange(1500) % 400
    report = diagnose(network(classes=400), [(x, y)])
    for key in "eg":
        finding = report.finding(key)
        assert not finding.measured
        assert finding.headline == "fewer than two classes have 5 test images in each half"


def test_large_inputs_are_pooled_projected_or_counted() -> None:
    source = NetworkSource(nn.Linear(2, 2), [(torch.zeros(4, 2), torch.tensor([0, 1, 0, 1]))])
    inputs = SmallInputs(source, Folds(source).read)
    assert inputs.small(torch.rand(2, 3, 64, 64)).shape == (2, 3 * 26 * 26)
    assert inputs.small(torch.rand(2, 5000)).shape == (2, 1024)
    bags = inputs.small(torch.tensor([[1, 1, 7], [2049, 0, 0]]))
    assert bags[0, 1] == 2 and bags[0, 7] == 1 and bags[1, 1] == -1
