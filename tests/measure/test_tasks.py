"""Other losses, regression, tokens, adapters: against numpy and float64 autograd by hand."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from depth_oracle import dealt, layer_norm
from own_backwards import Feedback
from support import seeded
from torch import Tensor, nn
from torch.nn import functional as F

from pytest_fadiag.judge.errors import AuditError
from pytest_fadiag.judge.records import Measurement
from pytest_fadiag.measure.credit import CreditSource
from pytest_fadiag.measure.folds import Folds
from pytest_fadiag.measure.metrics import effective_rank
from pytest_fadiag.measure.run import NetworkSource, measure
from pytest_fadiag.measure.task import Task

DRAW = torch.Generator().manual_seed(3)
X = torch.randn(1200, 6, generator=DRAW)
CLASSES = (X[:, 0] > 0).long() + (X[:, 1] > 0.5).long()
VALUES = torch.stack([300 * torch.tanh(X[:, 0] * X[:, 1]), 900 * X[:, 2] + 7], 1)
IDS = torch.randint(0, 12, (260, 9), generator=DRAW)
NOISE = np.random.default_rng(0)
NEXT = torch.cat([(IDS[:, 1:] + IDS[:, :-1]) % 12, torch.full((260, 1), -100)], 1)


class Block(nn.Module):
    def __init__(self, mixes: bool = False) -> None:
        super().__init__()
        self.norm, self.wide, self.back = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)
        self.mix = nn.Linear(9, 9) if mixes else None

    def forward(self, h: Tensor) -> Tensor:
        z = self.norm(h)
        if self.mix is not None:
            z = z + self.mix(z.transpose(1, 2)).transpose(1, 2)
        return h + self.back(torch.tanh(self.wide(z)))  # type: ignore[no-any-return]


class Net(nn.Module):
    def __init__(self, outputs: int, words: int = 0, squeezed: bool = False) -> None:
        super().__init__()
        self.embed: nn.Module = nn.Embedding(words, 8) if words else nn.Linear(6, 8)
        self.blocks = nn.ModuleList(Block(bool(words)) for _ in range(2))
        self.norm, self.head, self.squeezed = nn.LayerNorm(8), nn.Linear(8, outputs), squeezed

    def states(self, x: Tensor) -> list[Tensor]:
        states = [self.embed(x)]
        for block in self.blocks:
            states.append(block(states[-1]))
        return states

    def read(self, h: Tensor) -> Tensor:
        outputs = self.head(self.norm(h))
        return outputs.squeeze(1) if self.squeezed else outputs  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        return self.read(self.states(x)[-1])


def hinge(outputs: Tensor, y: Tensor) -> Tensor:
    return F.multi_margin_loss(outputs, y, reduction="none", p=2)


def absolute(outputs: Tensor, y: Tensor) -> Tensor:
    return (outputs - y).abs().sum(1)


def one_hot(y: Tensor) -> Tensor:
    return F.one_hot(y, 3).double()


V = VALUES.double().var(0, correction=0).sum()
BITS = (X[:, 0] > 0).float()
WEIGHTS = torch.tensor([1.0, 4.0, 0.5])
Hand = Callable[[Tensor, Tensor], Tensor]
CASES: dict[str, tuple[Any, Tensor, Any, Hand]] = {
    "cross-entropy": (3, CLASSES, None, lambda o, y: F.cross_entropy(o, y, reduction="none")),
    "squared error": (3, CLASSES, "mse", lambda o, y: (o - one_hot(y)).square().sum(1)),
    "binary cross-entropy": (
        3,
        CLASSES,
        "bce",
        lambda o, y: F.softplus(o).sum(1) - (o * one_hot(y)).sum(1),
    ),
    "hinge": (3, CLASSES, hinge, hinge),
    "class weights": (
        3,
        CLASSES,
        nn.CrossEntropyLoss(WEIGHTS, reduction="none"),  # of float32 alone
        lambda o, y: F.cross_entropy(o, y, WEIGHTS.to(o), reduction="none"),
    ),
    "regression": (2, VALUES, None, lambda o, y: (o - y).square().sum(1) / V),
    "own regression": (2, VALUES, absolute, absolute),
    "one value": (
        1,
        VALUES[:, 1],
        "mse",
        lambda o, y: (o - y).square() / VALUES[:, 1].double().var(correction=0),
    ),
    "one logit": (1, BITS, None, lambda o, y: F.softplus(o) - o * y),
    "one value of a class": (1, BITS.long(), "mse", lambda o, y: (o - y).square()),
    "tokens": (12, NEXT, None, lambda o, y: F.cross_entropy(o.mT, y, reduction="none").sum(1)),
}
ALL = ("states", "gradients", "directions", "output-error", "accuracy", "precision", "credit")


def made(name: str) -> tuple[Net, Tensor]:
    size = CASES[name][0]
    words = 12 if name == "tokens" else 0
    return seeded(lambda: Net(size, words, size == 1)).eval(), IDS if words else X


def taken(name: str, *metrics: str, **options: Any) -> Measurement:
    net, x = made(name)
    _, y, loss, by_hand = CASES[name]

    def credit(model: Any, x: Tensor, y: Tensor) -> list[Tensor]:
        states = model.states(x)
        losses = by_hand(model.read(states[-1]), y).sum()
        return list(torch.autograd.grad(losses, states[1:]))

    task, given = Task(loss=loss), CreditSource(credit, "bp")
    return measure(NetworkSource(net, [(x, y)], task=task, credit=given, **options), metrics or ALL)


@pytest.mark.parametrize("name", CASES)
def test_the_gradient_is_that_of_the_loss_and_its_own_credit_is_aligned(name: str) -> None:
    """Norms by float64 autograd; Γ and nudge of the network's own gradient are 1."""
    found, (net, x) = taken(name), made(name)
    _, y, _, by_hand = CASES[name]
    n = 128 * (found.batches or 0)
    wide = copy.deepcopy(net).double()
    states = wide.states(x[:n].double() if x.is_floating_point() else x[:n])
    outputs = wide.read(states[-1])
    grads = torch.autograd.grad(by_hand(outputs, y[:n]).sum(), [*states, outputs])
    expected = [float(np.median(g.norm(dim=-1).numpy())) / 128 for g in grads[:-1]]
    if name == "tokens":  # the last token is read by no target; states without gradients count not
        norms = [g.norm(dim=-1).flatten() for g in grads[:-1]]
        expected = [float(np.median(own[own > 0].numpy())) / 128 for own in norms]
    assert found.bp_grad_norms == pytest.approx(expected, rel=1e-5)
    credit = found.credit
    assert credit is not None and not credit.problem and found.reference is not None
    assert credit.gamma == pytest.approx([1.0] * 2, abs=1e-6)
    assert credit.nudge == pytest.approx([1.0] * 2, abs=1e-6)
    assert credit.magnitude == pytest.approx([1.0] * 2, rel=1e-4)
    assert found.reference.error is not None and found.reference.error < 1e-6
    # Per unit of error: of (0, o) the error is √2 of that of o, of regression it is in √V.
    e, g = grads[-1].reshape(n, -1).norm(dim=1), grads[-2].reshape(n, -1).norm(dim=1)
    unit = {"one logit": 2**0.5, "regression": float(V) ** 0.5, "own regression": float(V) ** 0.5}
    unit["one value"] = float(VALUES[:, 1].double().std(correction=0))
    per_unit = float(np.nanmedian((g / (e * unit.get(name, 1.0))).detach().numpy())) / 128
    assert found.gradient_per_unit_error == pytest.approx(per_unit, rel=1e-5)
    assert found.loss_assumed == (CASES[name][2] is None)
    with torch.no_grad():
        given, size = net(x), 0.5 if name == "one value of a class" else 0.0
        told = Task(loss=CASES[name][2]).inferred(y, given)
        losses = told.losses(told.read(given.double()), y)
    expected = by_hand(given.double(), y)
    torch.testing.assert_close(losses.double(), expected, rtol=1e-6, atol=1e-6)
    if net.squeezed and found.task == "classes":
        right = ((given > size) == (y == 1))[y.argsort(stable=True)]  # class by class
        assert found.score is not None and [*(found.score.outcomes or ())] == right.int().tolist()


def fraction(values: Any, y: Any) -> Any:
    """1 − squared error over the variance of these targets, sample by sample."""
    return 1 - np.square(values - y).sum(1) / np.square(y - y.mean(0)).sum(1).mean()


def ridge(z: Any, goals: Any, fit: Any, read: Any) -> Any:
    """λ = 1e-3·n, the bias free of charge."""
    design = np.hstack([z, np.ones((len(z), 1))])
    penalty = np.diag([1e-3 * len(fit)] * z.shape[1] + [0.0])
    gram = design[fit].T @ design[fit] + penalty
    return design[read] @ np.linalg.solve(gram, design[fit].T @ goals[fit])


def both_ways(z: Any, goals: Any, fold: Any) -> Any:
    """Fitted to each fold, read on the other."""
    predicted = np.zeros(goals.shape)
    for number in (0, 1):
        fit, read = np.flatnonzero(fold == number), np.flatnonzero(fold == 1 - number)
        predicted[read] = ridge(z, goals, fit, read)
    return predicted


def test_regression_is_scored_grouped_and_probed_by_shares_of_the_variance() -> None:
    found = taken("regression", *ALL[:5], "depth", "floor")
    net, _ = made("regression")
    y = VALUES.double().numpy()
    with torch.no_grad():
        states = [own.double().numpy() for own in net.states(X)]
        outputs = net(X).double().numpy()
    assert found.task == "regression"
    parts, score = fraction(outputs, y), found.score
    assert score is not None and score.parts == pytest.approx(parts, abs=1e-5)
    assert score.value == pytest.approx(parts.mean(), abs=1e-6)
    depth, floor = found.depth, found.floor
    assert depth is not None and floor is not None
    for h, probe in zip(states, depth.probes, strict=True):
        predicted = both_ways(layer_norm(h), y, dealt(np.zeros(1200, int))[0])
        assert probe == pytest.approx(fraction(predicted, y).mean(), abs=1e-6)
    network = fraction(outputs, y)
    assert depth.network == floor.network == pytest.approx(network.mean(), abs=1e-6)
    assert floor.readout is not None and floor.readout > 0.5 and (floor.interval or (0, 0))[1] < 0
    # Groups: deciles along the first principal component, which is nearly the second target.
    g = gradients_of(net, 1)
    units = g / np.linalg.norm(g, axis=1, keepdims=True)
    axis = np.linalg.svd(y - y.mean(0), full_matrices=False)[2][0]
    edges = np.quantile(y @ axis, np.arange(1, 10) / 10)
    groups, told = (np.searchsorted(edges, own[:1152] @ axis) for own in (y, outputs))
    left = [own for own in range(10) if own != np.bincount(told).argmax()]
    means = [units[groups == own].mean(0) for own in left]
    pairs = [a @ b for a, b in itertools.combinations(means, 2)]
    assert found.sample_invariance == pytest.approx(np.mean(pairs), abs=1e-6)
    assert found.eval_classes == 10


def gradients_of(net: Net, layer: int) -> Any:
    """∂se_i/∂h_l of the evaluation batches."""
    wide = copy.deepcopy(net).double()
    states = wide.states(X[:1152].double())
    loss = (wide.read(states[-1]) - VALUES[:1152]).square().sum()
    return torch.autograd.grad(loss, states[layer])[0].numpy()


def test_tokens_are_scored_probed_and_clustered_by_sequence_or_document() -> None:
    class Data(list[Any]):
        groups = torch.arange(260) // 20

    (net, _), documents = made("tokens"), Data([(IDS, NEXT)])
    found = taken("tokens", "accuracy", "depth", "floor")
    with torch.no_grad():
        states, outputs = [h.double().numpy() for h in net.states(IDS)], net(IDS)
    counted = (NEXT >= 0).numpy()
    right = (outputs.argmax(2) == NEXT).numpy() & counted
    score, depth, floor = found.score, found.depth, found.floor
    assert score is not None and score.images == 260 and depth is not None and floor is not None
    assert score.parts == pytest.approx(right.sum(1) * 260 / counted.sum(), abs=1e-6)
    assert score.value == pytest.approx(right.sum() / counted.sum())
    by_document = measure(NetworkSource(net, documents), ["accuracy"]).score
    assert by_document is not None and by_document.images == 13
    assert by_document.value == pytest.approx(score.value)
    assert by_document.parts[0] == pytest.approx(right[:20].sum() * 13 / counted.sum(), abs=1e-6)
    flat, y = counted.flatten(), NEXT.flatten().numpy()
    fold = np.where(flat, dealt(np.zeros(260, int))[0].repeat(9), -1)
    goals = np.eye(12)[NEXT.flatten().clamp_min(0)]
    for h, probe in zip(states, depth.probes, strict=True):
        predicted = both_ways(layer_norm(h.reshape(-1, 8)), goals, fold).argmax(1)
        assert probe == pytest.approx((predicted == y)[flat].mean())
    assert depth.network == floor.network == pytest.approx(right.flatten()[flat].mean())
    assert (depth.fitted, depth.read, floor.features) == (1040, 2080, 8 * 12)
    # Sequences of one document are in one fold.
    parts = Folds(NetworkSource(net, documents)).read.parts.reshape(13, -1)
    for document in parts:
        assert len(torch.unique(document[document >= 0])) == 1
    # The target is the sum of the last two tokens, of which no linear readout knows more.
    assert found.label_class_share == pytest.approx(np.bincount(y[flat]).max() / flat.sum())


def test_an_interval_that_clusters_covers_the_mean_as_often_as_it_says() -> None:
    """Tokens of a sequence agree with each other; over 60 of 10 to 30 tokens, 1,000 times."""
    rng, covered, naive = np.random.default_rng(0), 0, 0
    folds, lengths = object.__new__(Folds), np.tile([10, 20, 30], 20)
    folds.task, folds.clusters = Task("tokens"), torch.from_numpy(np.arange(60).repeat(lengths))
    for _ in range(1000):
        rates = rng.beta(2, 2, 60).repeat(lengths)
        values = (rng.random(1200) < rates) * 1.0 - 0.5 * (rng.random(1200) < rates)
        low, high = folds.interval(torch.from_numpy(values))
        half = 196 * values.std() / 1200**0.5
        covered += low <= 25 <= high
        naive += abs(100 * values.mean() - 25) <= half
    assert 0.93 <= covered / 1000 <= 0.97 and naive / 1000 < 0.9


ROWS = F.one_hot(CLASSES, 3)
TOLD: dict[str, tuple[Tensor, Tensor, Task, str]] = {
    "indices": (CLASSES, torch.zeros(1200, 3), Task(), "classes"),
    "one-hot": (ROWS.float(), torch.zeros(1200, 3), Task(), "classes"),
    "one-hot integers": (ROWS, torch.zeros(1200, 3), Task(), "classes"),
    "bits": (BITS[:, None], torch.zeros(1200, 1), Task(), "classes"),
    "bits as values": (BITS, torch.zeros(1200), Task("regression"), "regression"),
    "bits of two": (BITS.long(), torch.zeros(1200, 2), Task(), "classes"),
    "values": (VALUES, torch.zeros(1200, 2), Task(), "regression"),
    "counts": (CLASSES, torch.zeros(1200, 1), Task("regression"), "regression"),
    "tokens": (NEXT, torch.zeros(260, 9, 12), Task(), "tokens"),
    "several labels": (1 - ROWS.float(), torch.zeros(1200, 3), Task(), "! several labels"),
    "constant": (0 * VALUES + 3, torch.zeros(1200, 2), Task(), "! all targets are the same"),
    "ce of values": (
        VALUES,
        torch.zeros(1200, 2),
        Task(loss="ce"),
        "! loss is ce for the task reg",
    ),
    "mse of tokens": (NEXT, torch.zeros(260, 9, 12), Task(loss="mse"), "! expected ce or a func"),
    "few words": (NEXT, torch.zeros(260, 9, 5), Task(), "! below the 5 outputs"),
    "fractions": (
        VALUES.abs(),
        torch.zeros(1200, 2),
        Task("classes"),
        "! expected one class index",
    ),
    "differences": (CLASSES - 1, torch.zeros(1200, 1), Task("regression"), "regression"),
    "one row": (CLASSES, torch.zeros(1200, 3), Task("tokens"), "! tokens are whole numbers"),
}


@pytest.mark.parametrize("name", TOLD)
def test_targets_and_outputs_tell_the_task_or_it_is_refused(name: str) -> None:
    y, outputs, task, expected = TOLD[name]
    if expected.startswith("!"):
        with pytest.raises(AuditError, match=expected[2:]):
            task.inferred(y, outputs)
        return
    told = task.inferred(y, outputs)
    told.check(told.read(outputs), y)
    assert told.kind == expected and ("one-hot" in name) == bool(told.remark)


def test_what_is_no_loss_and_no_task_is_refused() -> None:
    with pytest.raises(AuditError, match="expected ce, mse, bce or"):
        Task(loss="l1")
    with pytest.raises(AuditError, match="loss 5; expected ce, mse, bce or"):
        Task(loss=5)  # type: ignore[arg-type]
    with pytest.raises(AuditError, match="task 'rl'; expected one of classes, "):
        Task("rl")
    with pytest.raises(AuditError, match="tokens are whole numbers"):
        measure(NetworkSource(Net(3), [(X, CLASSES)], task=Task("tokens")), ["accuracy"])


@pytest.mark.parametrize("loss", [None, "bce"])
def test_probabilities_are_refused_where_logits_are_expected(loss: Any) -> None:
    class Squashed(Net):
        def forward(self, x: Tensor) -> Tensor:
            return torch.sigmoid(super().forward(x))

    net = Squashed(3).eval()
    with pytest.raises(AuditError, match=r"these are probabilities.*--fa-loss"):
        measure(NetworkSource(net, [(X, CLASSES)], task=Task(loss=loss)), ["accuracy"])
    taken = measure(NetworkSource(net, [(X, CLASSES)], task=Task(loss="mse")), ["accuracy"])
    assert taken.score is not None
    dead = Net(3).eval()
    with torch.no_grad():
        for parameter in dead.parameters():
            parameter.zero_()
    assert measure(NetworkSource(dead, [(X, CLASSES)], task=Task(loss=loss)), ["accuracy"]).score


def test_the_bias_of_the_errors_is_near_0_under_the_loss_of_training() -> None:
    """Fitted by hand: a head in least squares, whose mean error is 0."""
    net = seeded(lambda: Net(3)).eval()
    with torch.no_grad():
        z = torch.cat([net.norm(net.states(X)[-1]), torch.ones(1200, 1)], 1)[:1152].double()
        solved = torch.linalg.pinv(z, rtol=1e-6) @ ROWS[:1152].double()  # its rows add up to 0
        net.head.weight.copy_(solved[:-1].T)
        net.head.bias.copy_(solved[-1])
    bias = measure(NetworkSource(net, [(X, CLASSES)]), ["output-error"]).loss_bias
    assert bias["squared error"] < 1e-4 and bias["binary cross-entropy"] > 0.2
    outputs = net(X[:1152]).detach()
    for loss, shares in (("cross-entropy", outputs.softmax(1)), ("squared error", outputs)):
        e = shares - ROWS[:1152]
        assert bias[loss] == pytest.approx(float(e.mean(0).norm() / e.norm(dim=1).mean()), abs=1e-5)
    given = measure(NetworkSource(net, [(X, CLASSES)], task=Task(loss="ce")), ["output-error"])
    assert given.loss_bias == {}


def test_a_rank_counts_directions_that_weigh_the_same() -> None:
    turned = torch.linalg.qr(torch.randn(40, 40, generator=DRAW))[0]
    sizes = torch.logspace(-9, 9, 300).unsqueeze(1)
    for rank in (1, 5, 40):
        assert effective_rank(turned[torch.arange(300) % rank] * sizes) == pytest.approx(
            rank, rel=0.02
        )
    assert effective_rank(torch.zeros(9, 4)) == 0


# --- the function that calls the network ----------------------------------------------------------


class Apart(nn.Module):
    """Encoder and head apart; called by itself it fails."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Net(3)

    def forward(self, x: Tensor) -> Tensor:
        raise NotImplementedError


def by_parts(model: Any, x: Tensor, y: Tensor) -> Tensor:
    assert len(x) == len(y)
    return model.net.read(model.net.states(x)[-1])  # type: ignore[no-any-return]


class Trains(nn.Module):
    """Takes the labels, and returns loss and outputs among other tensors of the same shape."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Net(3)

    def forward(self, x: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        outputs = self.net(x)
        return F.cross_entropy(outputs, labels), outputs.exp(), outputs, 2 * outputs


def called(model: Any, x: Tensor, y: Tensor) -> Tensor:
    return model(x, y)[2]  # type: ignore[no-any-return]


@pytest.mark.parametrize(("kind", "forward"), [(Apart, by_parts), (Trains, called)])
def test_a_function_calls_the_network_in_every_pass(kind: Any, forward: Any) -> None:
    net = seeded(kind).eval()

    def credit(model: Any, x: Tensor, y: Tensor) -> list[Tensor]:
        states = model.net.states(x)
        loss = F.cross_entropy(model.net.read(states[-1]), y)
        return list(torch.autograd.grad(loss, states[1:]))

    metrics = (*ALL, "depth", "floor")
    own = CreditSource(credit, "bp")
    found = measure(NetworkSource(net, [(X, CLASSES)], forward=forward, credit=own), metrics)
    plain = measure(NetworkSource(net.net, [(X, CLASSES)], credit=None), metrics)
    for name in ("residual_norms", "bp_grad_norms", "score", "depth", "floor", "sample_invariance"):
        assert getattr(found, name) == getattr(plain, name)
    assert found.stream is not None and found.credit is not None
    assert found.stream.blocks == ("net.blocks.0", "net.blocks.1")
    assert found.credit.gamma == pytest.approx([1.0] * 2, abs=1e-6)
    assert "forward" not in vars(net) and type(net).forward is kind.forward


@pytest.mark.parametrize(
    "ordered", [torch.arange(1_200), CLASSES.argsort()], ids=["mixed", "sorted by class"]
)
def test_a_function_whose_outputs_depend_on_the_labels_is_refused(ordered: Tensor) -> None:
    x, y = X[ordered], CLASSES[ordered]

    def leaks(model: Any, x: Tensor, y: Tensor) -> Tensor:
        return model(x) + 1e-3 * F.one_hot(y, 3)  # type: ignore[no-any-return]

    with pytest.raises(AuditError, match="the outputs depend on the labels: scores would be of"):
        measure(NetworkSource(Net(3).eval(), [(x, y)], forward=leaks), ["accuracy"])


@pytest.mark.parametrize("draw", [torch.rand, lambda *size: torch.from_numpy(NOISE.random(size))])
def test_a_random_function_is_not_taken_for_one_that_reads_the_labels(draw: Any) -> None:
    def noisy(model: Any, x: Tensor, y: Tensor) -> Tensor:
        return model(x) + 1e-3 * draw(len(x), 3)  # type: ignore[no-any-return]

    def broken(model: Any, x: Tensor, y: Tensor) -> Tensor:
        return model(x) * float("nan")  # type: ignore[no-any-return]

    for forward in (noisy, broken):
        assert measure(NetworkSource(Net(3).eval(), [(X, CLASSES)], forward=forward), ["accuracy"])


def test_outputs_that_cannot_be_told_name_the_option() -> None:
    class Two(Net):
        def forward(self, x: Tensor) -> Any:
            outputs = super().forward(x)
            return outputs, 2 * outputs

    with pytest.raises(AuditError, match=r"--fa-forward=package\.module:function"):
        measure(NetworkSource(Two(3).eval(), [(X, CLASSES)]), ["accuracy"])


class Fed(nn.Linear):
    """Its backward goes through a fixed random matrix."""

    def forward(self, x: Tensor) -> Tensor:
        feedback = torch.randn(self.weight.shape, generator=torch.Generator().manual_seed(1))
        return Feedback.apply(x, self.weight, self.bias, feedback.to(x))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "name", ["cross-entropy", "squared error", "binary cross-entropy", "hinge", "regression"]
)
def test_the_own_backward_of_a_live_network_is_its_credit_under_every_loss(name: str) -> None:
    """As if a function differentiated the loss through it."""
    size, y, loss, by_hand = CASES[name]
    net = seeded(lambda: Net(size)).eval()
    for block in net.blocks:
        block.wide = Fed(8, 16)

    def credit(model: Any, x: Tensor, y: Tensor) -> list[Tensor]:
        states = model.states(x)
        return list(torch.autograd.grad(by_hand(model.read(states[-1]), y).sum(), states[1:]))

    own, given = (
        measure(
            NetworkSource(net, [(X, y)], task=Task(loss=loss), credit=source), ["credit"]
        ).credit
        for source in (CreditSource(), CreditSource(credit, "function"))
    )
    assert own is not None and given is not None and own.source == "the network's own backward"
    assert own.gamma[-2:] == pytest.approx(given.gamma, abs=1e-5) and own.gamma[1] < 0.999
    assert own.nudge[-2:] == pytest.approx(given.nudge, abs=1e-4)
    assert own.magnitude[-2:] == pytest.approx(given.magnitude, rel=1e-4)
