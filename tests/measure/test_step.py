"""(f) by one step: cosines against numpy in float64, the states, and what is refused."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from support import measured
from torch import Tensor, nn
from torch.nn import functional as F

from pytest_fadiag import AuditError, diagnose
from pytest_fadiag.judge.records import PartState, Step
from pytest_fadiag.load.data import DataSet
from pytest_fadiag.measure.step import StepSource

INPUTS, D, BLOCKS, CLASSES, SAMPLES = 12, 8, 3, 4, 384
GENERATOR = torch.Generator().manual_seed(3)
X = torch.randn(SAMPLES, INPUTS, generator=GENERATOR)
Y = torch.randint(0, CLASSES, (SAMPLES,), generator=GENERATOR)
BS = [torch.randn(D, CLASSES, generator=GENERATOR) for _ in range(BLOCKS)]
PARTS = ("embedding", *(f"blocks.{block}" for block in range(BLOCKS)), "head")
Rule = Callable[..., Any]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(D, D)

    def forward(self, h: Tensor) -> Tensor:
        return h + torch.tanh(self.fc(h))


class Net(nn.Module):
    """h_{l+1} = h_l + tanh(W_l h_l + b_l)."""

    def __init__(self, norm: type[nn.Module] = nn.Identity) -> None:
        super().__init__()
        self.embed = nn.Linear(INPUTS, D)
        self.norm = norm(D)  # type: ignore[call-arg]
        self.blocks = nn.Sequential(*(Block() for _ in range(BLOCKS)))
        self.head = nn.Linear(D, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.blocks(self.norm(self.embed(x))))
        return logits


def network(norm: type[nn.Module] = nn.Identity) -> Net:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Net(norm)


def step_of(rule: Rule, net: nn.Module | None = None, data: Any = None, **options: Any) -> Step:
    """What the audit measures of a rule."""
    source = StepSource(rule, options.pop("name", "the rule"), options.pop("checkpoint", {}))
    batches = [(X, Y)] if data is None else data
    step = measured(net or network(), batches, ["step"], step=source, **options).step
    assert step is not None
    return step


def states_of(rule: Rule, net: nn.Module | None = None, **options: Any) -> list[str]:
    step = step_of(rule, net, **options)
    assert not step.problem
    return [state.value for state in step.state]


# The rules, in torch.


def bp(model: Any, x: Tensor, y: Tensor) -> None:
    """Plain SGD on the mean cross-entropy."""
    F.cross_entropy(model(x), y).backward()
    torch.optim.SGD(model.parameters(), 1.0).step()


def dfa(model: Any, x: Tensor, y: Tensor) -> None:
    """Each block descends ⟨f_l(h_l), B_l e⟩ on a detached input; the embedding ⟨h_0, B_0 e⟩."""
    h = model.embed(x)
    states = [h.detach()]
    losses = []
    for block in model.blocks:
        out = block(states[-1])
        losses.append(out)
        states.append(out.detach())
    logits = model.head(states[-1])
    e = (logits.softmax(1) - F.one_hot(y, CLASSES)).detach()
    loss = F.cross_entropy(logits, y) + ((e @ BS[0].T) * h).sum(1).mean()
    for out, B in zip(losses, BS, strict=True):
        loss = loss + ((e @ B.T) * out).sum(1).mean()
    loss.backward()
    torch.optim.SGD(model.parameters(), 1.0).step()


@torch.no_grad()
def hebb(model: Any, x: Tensor, y: Tensor) -> None:
    """Supervised Hebb: what a block gives out is drawn towards B_l one-hot(y), with decay."""
    h = model.embed(x)
    for block, B in zip(model.blocks, BS, strict=True):
        target = F.one_hot(y, CLASSES).to(x) @ B.T
        out = block(h)
        block.fc.weight += 0.1 * target.T @ h / len(x) - 0.05 * block.fc.weight
        h = out


def uphill(model: Any, x: Tensor, y: Tensor) -> None:
    """Blocks that climb the loss."""
    (-F.cross_entropy(model(x), y)).backward()
    torch.optim.SGD(model.blocks.parameters(), 1.0).step()


RULES: dict[str, Rule] = {"bp": bp, "dfa": dfa, "hebb": hebb}


# The same by hand, in numpy and float64.


def by_hand(rule: str, x: Any, y: Any, weights: Mapping[str, Any]) -> tuple[Any, Any]:
    """Δ and g by name."""
    n = len(x)
    w = weights
    h = [x @ w["embed.weight"].T + w["embed.bias"]]
    slopes = []
    for block in range(BLOCKS):
        t = np.tanh(h[-1] @ w[f"blocks.{block}.fc.weight"].T + w[f"blocks.{block}.fc.bias"])
        slopes.append(1 - t**2)
        h.append(h[-1] + t)
    logits = h[-1] @ w["head.weight"].T + w["head.bias"]
    shares = np.exp(logits - logits.max(1, keepdims=True))
    onehot = np.eye(CLASSES)[y]
    e = shares / shares.sum(1, keepdims=True) - onehot

    def updates(credits: list[Any]) -> dict[str, Any]:
        """What credits at h_1 … h_L, then the one at h_0, make of the parameters."""
        made = {"head.weight": e.T @ h[-1] / n, "head.bias": e.mean(0)}
        for block, credit in enumerate(credits[:-1]):
            delta = credit * slopes[block]
            made[f"blocks.{block}.fc.weight"] = delta.T @ h[block] / n
            made[f"blocks.{block}.fc.bias"] = delta.mean(0)
        made["embed.weight"] = credits[-1].T @ x / n
        made["embed.bias"] = credits[-1].mean(0)
        return made

    g = e @ w["head.weight"]
    gradients = []
    for block in reversed(range(BLOCKS)):
        gradients.insert(0, g)
        g = g + (g * slopes[block]) @ w[f"blocks.{block}.fc.weight"]
    truth = updates([*gradients, g])
    if rule == "bp":
        return truth, truth
    Bs = [B.double().numpy() for B in BS]
    if rule == "dfa":
        return updates([*(e @ B.T for B in Bs), e @ Bs[0].T]), truth
    step = {name: np.zeros_like(value) for name, value in w.items()}
    for block, B in enumerate(Bs):
        name = f"blocks.{block}.fc.weight"
        step[name] = 0.05 * w[name] - 0.1 * (onehot @ B.T).T @ h[block] / n
    return step, truth


def part_of(name: str) -> str:
    if name.startswith("blocks"):
        return name[: len("blocks.0")]
    return {"embed": "embedding", "head": "head"}[name.partition(".")[0]]


def cosine(a: Any, b: Any, part: str) -> float:
    pairs = [(a[name].ravel(), b[name].ravel()) for name in a if part_of(name) == part]
    u, v = (np.concatenate(column) for column in zip(*pairs, strict=True))
    return float(u @ v / np.sqrt((u @ u) * (v @ v)))


@pytest.mark.parametrize("rule", RULES)
def test_cosines_are_those_of_float64_by_hand(rule: str) -> None:
    net = network()
    seen = step_of(RULES[rule], net)
    weights = {name: value.double().numpy() for name, value in net.state_dict().items()}
    plain: dict[str, list[float]] = {}
    contrast: dict[str, list[float]] = {}
    for start in range(0, SAMPLES, 128):
        x = X[start : start + 128].double().numpy()
        y = Y[start : start + 128]
        other = y[torch.randperm(128, generator=torch.Generator().manual_seed(start))]
        step, g = by_hand(rule, x, y.numpy(), weights)
        step_of_other, g_of_other = by_hand(rule, x, other.numpy(), weights)
        for part in PARTS if rule != "hebb" else PARTS[1:-1]:
            plain.setdefault(part, []).append(cosine(step, g, part))
            of_labels = {name: step[name] - step_of_other[name] for name in step}
            of_bp = {name: g[name] - g_of_other[name] for name in g}
            contrast.setdefault(part, []).append(cosine(of_labels, of_bp, part))
    assert seen.parts == PARTS and seen.batches == SAMPLES // 128
    for part, values in contrast.items():
        place = PARTS.index(part)
        assert seen.plain[place] == pytest.approx(np.mean(plain[part]), abs=1e-6)
        assert seen.least_plain[place] == pytest.approx(min(plain[part]), abs=1e-6)
        assert seen.contrast[place] == pytest.approx(np.mean(values), abs=1e-6)
        margin = 4.302652729911275 * np.std(values, ddof=1) / np.sqrt(3)  # t at 2 degrees
        assert seen.high[place] - seen.contrast[place] == pytest.approx(margin, abs=2e-6)
        assert seen.contrast[place] - seen.low[place] == pytest.approx(margin, abs=2e-6)


def test_decay_and_penalties_cancel_in_the_contrast() -> None:
    def penalised(model: Any, x: Tensor, y: Tensor) -> None:
        h = model.embed(x).detach()
        penalty = sum(block(h).square().sum(1).mean() for block in model.blocks)
        penalty.backward()
        dfa(model, x, y)

    def decayed(model: Any, x: Tensor, y: Tensor) -> None:
        before = copy.deepcopy(model)
        dfa(model, x, y)
        for parameter, old in zip(model.parameters(), before.parameters(), strict=True):
            parameter.data -= 0.5 * old.data

    without = step_of(dfa)
    for rule in (penalised, decayed):
        step = step_of(rule)
        assert max(np.abs(np.subtract(step.plain, without.plain))) > 0.1
        assert step.contrast == pytest.approx(without.contrast, abs=1e-5)


def test_a_partial_function_has_the_name_of_its_function() -> None:
    def rule(rate: float, model: Any, x: Tensor, y: Tensor) -> None:
        bp(model, x, y)

    assert step_of(partial(rule, 0.1), name="").source.endswith("rule")


class Trainer:
    """Holds its network, and an optimiser with momentum."""

    def __init__(self, net: nn.Module) -> None:
        self.net = net
        self.optimiser = torch.optim.SGD(net.parameters(), 1.0, momentum=0.5)

    def train_step(self, x: Tensor, y: Tensor) -> Tensor:
        self.optimiser.zero_grad()
        loss = F.cross_entropy(self.net(x), y)
        loss.backward()
        self.optimiser.step()
        return loss


def test_a_rule_that_holds_the_network_holds_each_copy_instead() -> None:
    net = network()
    trainer = Trainer(net)
    trainer.train_step(X, Y)  # its momentum goes along
    before = copy.deepcopy(net.state_dict())
    step = step_of(trainer.train_step, net)
    assert [state.value for state in step.state] == ["aligned"] * 5
    assert max(step.least_plain) < 0.999, "momentum turns it"
    trainer.optimiser.state.clear()
    assert states_of(trainer.train_step, net) == ["BP's own"] * 5
    rule = partial(lambda trainer, model, x, y: trainer.train_step(x, y), trainer)
    assert states_of(rule, net) == ["BP's own"] * 5
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())


def test_a_step_may_return_its_loss() -> None:
    """Of which plain SGD makes a step, however small the gradient is."""

    def local(model: Any, x: Tensor, y: Tensor) -> Tensor:
        return 1e-9 * F.cross_entropy(model.head(model.blocks(model.embed(x).detach())), y)

    assert states_of(local) == ["frozen", *["BP's own"] * 4]
    assert step_of(local).source == "the rule, a step of SGD on the loss that it returns"


def test_each_state_has_its_rule() -> None:
    def hooked(model: Any, x: Tensor, y: Tensor) -> None:
        """BP by mistake: its hooks return nothing."""
        for block in model.blocks:
            block.register_full_backward_hook(lambda module, into, out: None)
        bp(model, x, y)

    @torch.no_grad()
    def oja(model: Any, x: Tensor, y: Tensor) -> None:
        h = model.embed(x)
        for block in model.blocks:
            out = torch.tanh(block.fc(h))
            block.fc.weight += 0.1 * out.T @ (h - out @ block.fc.weight) / len(x)
            h = block(h)

    def noise(model: Any, x: Tensor, y: Tensor) -> None:
        generator = torch.Generator().manual_seed(int((y * torch.arange(len(y))).sum()))
        for parameter in model.parameters():
            parameter.data += torch.randn(parameter.shape, generator=generator)

    def head_alone(model: Any, x: Tensor, y: Tensor) -> None:
        model.blocks.requires_grad_(False)
        bp(model, x, y)

    def local_below(model: Any, x: Tensor, y: Tensor) -> None:
        bp(model, x, y)
        model.embed.weight.data += 0.1 * torch.sign(model.embed.weight.data)

    own, frozen, blind = "BP's own", "frozen", "label-free"
    assert states_of(hooked) == [own] * 5 and step_of(hooked).is_bp
    assert states_of(local_below)[1:] == [own] * 4 and not step_of(local_below).is_bp
    assert states_of(oja) == [frozen, *[blind] * 3, frozen]
    assert states_of(uphill) == [frozen, *["against"] * 3, frozen]
    assert states_of(noise) == ["null"] * 5
    assert states_of(head_alone) == [own, *[frozen] * 3, own]
    assert step_of(head_alone).blocks == ()
    assert states_of(dfa)[-1] == own


def target_propagation(model: Any, x: Tensor, y: Tensor) -> None:
    """Each block is drawn to a target, that of the next one through the block's inverse."""
    with torch.no_grad():
        states = [model.embed(x)]
        for block in model.blocks:
            states.append(block(states[-1]))
    top = states[-1].requires_grad_()
    F.cross_entropy(model.head(top), y, reduction="sum").backward()
    target = (top - 0.01 * top.grad).detach()
    for block, h in reversed(list(zip(model.blocks, states, strict=False))):
        (block(h) - target).square().sum().backward()
        with torch.no_grad():
            inverse = h.clone()
            for _ in range(50):
                inverse = target - torch.tanh(block.fc(inverse))
            target = inverse
    torch.optim.SGD(model.parameters(), 0.1).step()


def predictive_coding(model: Any, x: Tensor, y: Tensor) -> None:
    """States relax the sum of squared prediction errors and the loss; then weights do."""
    with torch.no_grad():
        states = [model.embed(x)]
        for block in model.blocks:
            states.append(block(states[-1]))
    free = [state.clone().requires_grad_() for state in states[1:]]

    def energy() -> Tensor:
        below = [states[0], *free]
        errors = [z - block(h) for z, block, h in zip(free, model.blocks, below, strict=False)]
        loss = F.cross_entropy(model.head(free[-1]), y, reduction="sum")
        return loss + 0.5 * sum(error.square().sum() for error in errors)

    for _ in range(30):
        slopes = torch.autograd.grad(energy(), free)
        for z, slope in zip(free, slopes, strict=True):
            z.data -= 0.1 * slope
    energy().backward()
    torch.optim.SGD(model.parameters(), 0.01).step()


def forward_forward(model: Any, x: Tensor, y: Tensor) -> None:
    """Two passes, of the right and of a wrong label in the input; each block by its goodness."""
    right = x.clone()
    right[:, :CLASSES] = F.one_hot(y, CLASSES).float()
    wrong = x.clone()
    wrong[:, :CLASSES] = F.one_hot((y + 1) % CLASSES, CLASSES).float()
    states = [model.embed(right), model.embed(wrong)]
    for block in model.blocks:
        states = [state.detach() for state in states]
        good, bad = (torch.tanh(block.fc(state)).square().sum(1) - 2 for state in states)
        (F.softplus(-good).mean() + F.softplus(bad).mean()).backward()
        states = [block(state) for state in states]
    torch.optim.SGD(model.blocks.parameters(), 0.1).step()


def test_rules_that_have_no_credit_function() -> None:
    own, frozen = "BP's own", "frozen"
    assert states_of(target_propagation) == [frozen, "aligned", "aligned", own, own], (
        "the last target is a step down the gradient"
    )
    assert states_of(predictive_coding) == [frozen, *["aligned"] * 4]
    assert states_of(forward_forward) == [frozen, *["null"] * 3, frozen]


def test_frozen_comes_before_what_labels_do() -> None:
    step = Step(
        parts=PARTS,
        plain=(0.9,) * 5,
        least_plain=(1.0, 1.0, 0.5, 0.5, 0.5),
        contrast=(1.0, -1.0, -1.0, -0.5, 0.5),
        low=(0.9, -1.1, -1.1, -0.6, 0.1),
        high=(1.1, -0.9, -0.9, -0.4, 0.9),
        change=(0.0, 0.1, 0.1, 0.1, 0.1),
        label_share=(1.0, 1e-7, 1e-7, 1.0, 1.0),
    )
    assert [state.value for state in step.state] == [
        *("frozen", "BP's own", "label-free", "against", "aligned")
    ]


def test_a_random_step_is_averaged_over_16_states() -> None:
    calls = []

    @torch.no_grad()
    def zeroth_order(model: Any, x: Tensor, y: Tensor) -> None:
        """SPSA: a random direction, as far as the loss falls along it."""
        calls.append(torch.initial_seed())
        parameters = list(model.parameters())
        directions = [torch.randn_like(parameter) for parameter in parameters]
        losses = []
        for sign in (1, -2, 1):
            for parameter, direction in zip(parameters, directions, strict=True):
                parameter.add_(direction, alpha=sign * 1e-2)
            losses.append(F.cross_entropy(model(x), y))
        for parameter, direction in zip(parameters, directions, strict=True):
            parameter.sub_((losses[0] - losses[1]) * direction)

    step = step_of(zeroth_order)
    assert step.states == 16 and len(set(calls)) == 3 * 16 and len(calls) == 3 * 32
    assert step_of(bp).states == 1
    several = step_of(zeroth_order, data=[(X.repeat(4, 1), Y.repeat(4))])
    assert [state.value for state in several.state[1:-1]] == ["aligned"] * 3


@pytest.mark.parametrize("mode", [True, False])
def test_the_gradient_is_taken_in_the_mode_that_the_step_leaves(mode: bool) -> None:
    def in_mode(model: Any, x: Tensor, y: Tensor) -> None:
        bp(model.train(mode), x, y)

    def other_mode(model: Any, x: Tensor, y: Tensor) -> None:
        bp(model.train(mode), x, y)
        model.train(not mode)

    assert states_of(bp, network().bfloat16()) == ["BP's own"] * 5, "the copy is in float32"
    net = network(nn.BatchNorm1d)
    assert states_of(in_mode, net)[:4] == ["BP's own"] * 4
    assert "BP's own" not in states_of(other_mode, net)[:4]
    assert not net.norm.num_batches_tracked


class Cut(nn.Module):
    """What relaxes its output in training, apart from its input."""

    def __init__(self, width: int) -> None:
        super().__init__()

    def forward(self, h: Tensor) -> Tensor:
        return torch.ones_like(h) if self.training else h


def test_a_step_that_leaves_a_mode_in_which_no_gradient_passes_is_refused() -> None:
    def in_training(model: Any, x: Tensor, y: Tensor) -> None:
        bp(model.eval(), x, y)
        model.train()

    net = network(Cut)
    assert step_of(in_training, net).problem == (
        "in training mode, in which the rule leaves the network, no gradient reaches "
        "embedding; end the step with model.eval()"
    )
    assert not step_of(bp, net).problem


def test_what_a_forward_stores_as_a_gradient_is_no_part_of_it() -> None:
    class Hebbian(Block):
        def forward(self, h: Tensor) -> Tensor:
            if self.training:
                self.fc.weight.grad = torch.ones_like(self.fc.weight)
            return super().forward(h)

    def trained(model: Any, x: Tensor, y: Tensor) -> None:
        loss = F.cross_entropy(model.train()(x), y)
        model.zero_grad()
        loss.backward()
        torch.optim.SGD(model.parameters(), 1.0).step()

    net = network()
    for number in range(BLOCKS):
        net.blocks[number] = Hebbian()
    assert states_of(trained, net) == ["BP's own"] * 5


def test_optimisers_one_hot_labels_and_two_passes() -> None:
    def adam(model: Any, x: Tensor, y: Tensor) -> None:
        optimiser = torch.optim.Adam(model.parameters(), 1e-3)
        schedule = torch.optim.lr_scheduler.StepLR(optimiser, 1)
        F.cross_entropy(model(x), y).backward()
        optimiser.step()
        schedule.step()

    assert states_of(adam) == ["aligned"] * 5

    def of_rows(model: Any, x: Tensor, y: Tensor) -> None:
        assert y.shape == (128, CLASSES)
        bp(model, x, y)

    rows = [(X, F.one_hot(Y, CLASSES).float())]
    assert states_of(of_rows, data=rows) == ["BP's own"] * 5


def test_the_function_gets_the_checkpoint_where_it_asks_for_it() -> None:
    def scaled(model: Any, x: Tensor, y: Tensor, *, checkpoint: Mapping[str, Any]) -> None:
        F.cross_entropy(model(x), y).backward()
        torch.optim.SGD(model.parameters(), checkpoint["rate"]).step()

    step = step_of(scaled, checkpoint={"rate": 0.5})
    twice = step_of(scaled, checkpoint={"rate": 1.0})
    assert twice.change == pytest.approx([2 * change for change in step.change], rel=1e-4)


def test_batches_are_of_the_training_split_where_one_is_named() -> None:
    sizes = []

    def seen(model: Any, x: Tensor, y: Tensor) -> None:
        sizes.append(float(x.mean()))
        bp(model, x, y)

    training = DataSet(X + 100, Y, "mine (train)")
    step = step_of(seen, training=training, training_name=training.name)
    assert min(sizes) > 50 and step.training == "mine (train)" and step.batches == 3
    few = step_of(bp, training=DataSet(X[:200], Y[:200], "few"))
    assert few.problem == "a step is measured on two batches of 128 at least"


def test_what_a_step_does_wrong_is_one_sentence() -> None:
    net = network()

    def problem(rule: Rule, **options: Any) -> str:
        return step_of(rule, net, **options).problem

    assert problem(lambda model, x, y: 1 / 0) == (
        "the step function the rule raised ZeroDivisionError: division by zero"
    )
    unchanged = "the rule changed no parameter of the network that it is called with; "
    assert problem(lambda model, x, y: None) == (
        f"{unchanged}let it make its rule and its optimiser for that copy"
    )
    assert problem(lambda model, x, y: F.cross_entropy(model(x), y).backward()) == (
        f"{unchanged}it left gradients: end with torch.optim.SGD(model.parameters(), 0.1).step()"
    )

    def tiny(model: Any, x: Tensor, y: Tensor) -> None:
        F.cross_entropy(model(x), y).backward()
        torch.optim.SGD(model.parameters(), 1e-6).step()

    assert problem(tiny).endswith("by less than float32 resolves; make a larger step")

    def infinite(model: Any, x: Tensor, y: Tensor) -> None:
        model.head.weight.data *= torch.inf

    assert problem(infinite) == "the step of the rule left head.weight NaN or inf"
    alike = torch.where(torch.arange(SAMPLES) < 128, 0, Y)
    assert problem(bp, data=[(X, alike)]) == (
        "a batch has one label alone, so no contrast; shuffle the data"
    )
    assert problem(lambda model, x, y: bp(net, x, y)) == (
        "the rule changed the network itself, not the copy that it is called with; let it make "
        "its rule for that copy, and load the network again"
    )


def test_diagnose_judges_a_step_and_leaves_the_network_alone() -> None:
    net = network().train()
    net.embed.requires_grad_(False)
    before = copy.deepcopy(net.state_dict())
    x = X.repeat(4, 1)
    y = Y.repeat(4)
    report = diagnose(net, x, y, step=bp, control=0.3, progress=False)
    assert report.finding("f").status.value == "pass"
    assert "this rule is backpropagation: at every block its step is the BP gradient" in str(report)
    assert report.step is not None and report.step.state[0] is PartState.FROZEN
    after = net.state_dict()
    assert net.training and all(torch.equal(before[name], after[name]) for name in before)
    fired = diagnose(net, x, y, step=uphill, control=0.3, progress=False).finding("f")
    assert fired.claim == (
        "labels turn the step away from the gradient at blocks.0, blocks.1 and blocks.2"
    )
    with pytest.raises(AuditError, match="changed no parameter"):
        diagnose(net, x, y, step=lambda model, x, y: None, progress=False)
    name: Any = "rules:update"
    with pytest.raises(AuditError, match=r"step: expected a function of .*got 'rules:update'"):
        diagnose(net, x, y, step=name, progress=False)


def test_beside_credit_the_step_is_shown_and_does_not_decide() -> None:
    def credit(model: Any, x: Tensor, y: Tensor) -> list[Tensor]:
        """Against the gradient at every block."""
        h = model.embed(x)
        states = []
        for block in model.blocks:
            h = block(h)
            states.append(h)
        return [-g for g in torch.autograd.grad(F.cross_entropy(model.head(h), y), states)]

    x = X.repeat(4, 1)
    y = Y.repeat(4)
    report = diagnose(network(), x, y, credit=credit, step=bp, control=0.3, progress=False)
    assert report.finding("f").fired
    assert "Γ" in report.lines("f") and "BP's own" in report.lines("f")
    assert "the credit decides; the step is shown too" in report.lines("f")
