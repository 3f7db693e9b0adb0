"""Γ by depth: against numpy written out by hand, at every scale, and with credit that is wrong, random, small or missing."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from pytest_fadiag import AuditError, ResidualMLP, diagnose
from pytest_fadiag.judge.credit import Credit, SiteState
from pytest_fadiag.measure.credit import CreditSource
from pytest_fadiag.measure.measure import measure
from pytest_fadiag.measure.observe import observe

D, BLOCKS, CLASSES, SAMPLES = 12, 3, 5, 256


def network(seed=0, *, embed=1.0, head=1.0):
    torch.manual_seed(seed)
    net = ResidualMLP(8, D, BLOCKS, CLASSES, mlp_ratio=2)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
        for layer in (net.embed, *(block.fc2 for block in net.blocks)):
            layer.weight.mul_(embed)
            layer.bias.mul_(embed)
        net.out_head.weight.mul_(head)
    return net


def data(seed=1, n=SAMPLES):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 8, generator=generator), torch.randint(0, CLASSES, (n,), generator=generator)


X, Y = data()


def credit_of(net, credit=None, **options):
    """What the audit measures."""
    source = credit if credit is None or isinstance(credit, CreditSource) else CreditSource(credit, "the test's function")
    result = observe(net, [(X, Y)], ["reference", "credit"], batches=2, credit=source, **options).results["credit"]
    return Credit(**result)


# By hand: forward, backward and nudge of the network in numpy, float64.


def erf(z):
    return np.vectorize(math.erf)(z)


def layer_norm(module, h):
    centred = h - h.mean(1, keepdims=True)
    sigma = np.sqrt((centred**2).mean(1, keepdims=True) + module.eps)
    return centred / sigma, sigma


class ByHand:
    def __init__(self, net):
        self.p = {name: value.detach().double().numpy() for name, value in net.state_dict().items()}
        self.eps = net.out_ln

    def norm(self, name, h):
        unit, sigma = layer_norm(self.eps, h)
        return unit * self.p[f"{name}.weight"] + self.p[f"{name}.bias"], unit, sigma

    def norm_back(self, name, unit, sigma, delta):
        delta = delta * self.p[f"{name}.weight"]
        return (delta - delta.mean(1, keepdims=True) - unit * (delta * unit).mean(1, keepdims=True)) / sigma

    def embed(self, x):
        return x @ self.p["embed.weight"].T + self.p["embed.bias"]

    def block(self, number, h):
        normed, unit, sigma = self.norm(f"blocks.{number}.ln", h)
        z = normed @ self.p[f"blocks.{number}.fc1.weight"].T + self.p[f"blocks.{number}.fc1.bias"]
        gelu = z * (1 + erf(z / math.sqrt(2))) / 2
        return gelu @ self.p[f"blocks.{number}.fc2.weight"].T + self.p[f"blocks.{number}.fc2.bias"], (unit, sigma, z)

    def block_back(self, number, kept, delta):
        unit, sigma, z = kept
        slope = (1 + erf(z / math.sqrt(2))) / 2 + z * np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
        delta = (delta @ self.p[f"blocks.{number}.fc2.weight"]) * slope
        return self.norm_back(f"blocks.{number}.ln", unit, sigma, delta @ self.p[f"blocks.{number}.fc1.weight"])

    def losses(self, h, start, y):
        for number in range(start, BLOCKS):
            h = h + self.block(number, h)[0]
        logits = self.norm("out_ln", h)[0] @ self.p["out_head.weight"].T + self.p["out_head.bias"]
        largest = logits.max(1, keepdims=True)
        log_sum = largest[:, 0] + np.log(np.exp(logits - largest).sum(1))
        return log_sum - logits[np.arange(len(y)), y], logits

    def gradients(self, x, y):
        h, kept = [self.embed(x)], []
        for number in range(BLOCKS):
            f, own = self.block(number, h[-1])
            h.append(h[-1] + f)
            kept.append(own)
        logits = self.losses(h[-1], BLOCKS, y)[1]
        e = np.exp(logits - logits.max(1, keepdims=True))
        e /= e.sum(1, keepdims=True)
        e[np.arange(len(y)), y] = 0
        e[np.arange(len(y)), y] = -e.sum(1)  # p_y - 1, without cancelling digits
        _, unit, sigma = self.norm("out_ln", h[-1])
        g = [self.norm_back("out_ln", unit, sigma, e @ self.p["out_head.weight"])]
        for number in reversed(range(BLOCKS)):
            g.insert(0, g[0] + self.block_back(number, kept[number], g[0]))
        return h, g, e


def cosines(a, g):
    return (a * g).sum(1) / np.sqrt((a**2).sum(1) * (g**2).sum(1))


def nudge(hand, h, layer, y, a, g):
    before = hand.losses(h, layer, y)[0]

    def change(v):
        v = v / np.sqrt((v**2).sum(1, keepdims=True))
        return (hand.losses(h - 1e-3 * np.sqrt((h**2).sum(1, keepdims=True)) * v, layer, y)[0] - before).sum()

    return change(a) / change(g)


@pytest.mark.parametrize(("embed", "head"), [(1.0, 1.0), (1e3, 1.0), (1e9, 1.0), (1.0, 1e-6), (1.0, 1e-11), (1e4, 30.0)])
def test_gamma_magnitude_and_nudge_are_those_computed_by_hand_at_every_scale(embed, head):
    net = network(embed=embed, head=head)
    hand = ByHand(net)
    h, g, _ = hand.gradients(X.double().numpy(), Y.numpy())
    torch.manual_seed(5)
    mix = torch.randn(8, D, dtype=torch.float64)
    own = [torch.from_numpy(gradient) / np.abs(gradient).max() + 0.3 * X.double() @ mix for gradient in g]
    rows = {tuple(x.tolist()): row for row, x in enumerate(X)}

    def credit(model, x, y):
        return [a[[rows[tuple(sample.tolist())] for sample in x]] for a in own]

    ours = credit_of(net, credit)
    assert ours.sites == ("h_0", "h_1", "h_2", "h_3")
    for layer in range(BLOCKS + 1):
        a = own[layer].numpy()
        assert ours.gamma[layer] == pytest.approx(np.median(cosines(a, g[layer])), abs=1e-6)
        sizes = np.sqrt((a**2).sum(1) / (g[layer] ** 2).sum(1))
        assert ours.magnitude[layer] == pytest.approx(np.median(sizes), rel=1e-6)
        expected = nudge(hand, h[layer], layer, Y.numpy(), a, g[layer])
        if math.isnan(ours.nudge[layer]):
            assert head == 1e-11  # no double holds the change of such a loss
        else:
            assert ours.nudge[layer] == pytest.approx(expected, abs=1e-6 if head > 1e-7 else 1e-2)


def test_the_null_is_as_wide_as_credit_with_features_permuted_by_hand():
    net = network()
    _, g, e = ByHand(net).gradients(X.double().numpy(), Y.numpy())
    B = np.random.default_rng(0).normal(size=(D, CLASSES))
    ours = credit_of(net, lambda model, x, y: [torch.from_numpy(_error(model, x, y) @ B.T)] * BLOCKS)
    generator = np.random.default_rng(1)
    draws = []
    for _ in range(400):
        order, signs = generator.permutation(D), generator.choice([-1, 1], D)
        draws.append(np.median(cosines((e @ B.T)[:, order] * signs, g[2])))
    assert ours.null_sd[1] == pytest.approx(np.std(draws), rel=0.2)
    assert ours.null_low[1] == pytest.approx(np.quantile(draws, 0.025), abs=0.15 * np.std(draws) + 0.05)
    assert ours.null_high[1] == pytest.approx(np.quantile(draws, 0.975), abs=0.15 * np.std(draws) + 0.05)
    assert ours.null_mean[1] == pytest.approx(0, abs=4 * np.std(draws) / math.sqrt(200))


def _error(model, x, y):
    e = model(x).detach().double().softmax(1)
    e[torch.arange(len(y)), y] -= 1
    return e.numpy()


def gradient(model, x, y):
    logits, states = model(x, return_hidden=True)
    return torch.autograd.grad(nn.functional.cross_entropy(logits, y, reduction="sum"), states)


def test_the_gradient_itself_reads_one_everywhere_and_is_told():
    ours = credit_of(network(), gradient)
    assert ours.gamma == pytest.approx([1.0] * 4, abs=1e-6)
    assert ours.nudge == pytest.approx([1.0] * 4, abs=1e-3)
    assert ours.magnitude == pytest.approx([1.0] * 4, rel=1e-4)
    assert ours.is_gradient
    assert ours.aligned == 3
    assert not credit_of(network(), lambda *given: [a + 0.1 * a.abs().mean() for a in gradient(*given[:3])]).is_gradient


def test_its_opposite_reads_minus_one_and_against_everywhere():
    ours = credit_of(network(), lambda model, x, y: [-g for g in gradient(model, x, y)])
    assert ours.gamma == pytest.approx([-1.0] * 4, abs=1e-6)
    assert all(value < 0 for value in ours.nudge)
    assert ours.state == (SiteState.AGAINST,) * 4
    assert ours.against == ("h_1", "h_2", "h_3")


def test_random_credit_is_null_at_most_sites_and_fires_and_random_directions_save_nothing():
    """A fresh feedback matrix each time: 95 % of them lie within the null, whatever the network."""
    torch.manual_seed(0)
    net = ResidualMLP(8, 40, 8, CLASSES, mlp_ratio=1)
    states, random = [], []
    for draw in range(5):
        torch.manual_seed(100 + draw)
        ours = credit_of(net, CreditSource(checkpoint={"Bs": [torch.randn(40, CLASSES) for _ in range(8)]}))
        states += ours.state
        assert ours.aligned <= 4  # so that (f) fires
        random += [value for draws in ours.random_nudge for value in draws]
    assert sum(state is SiteState.NULL for state in states) >= 34
    assert abs(np.mean(random)) < 0.05
    assert max(map(abs, random)) < 0.2


def test_a_nudge_cut_short_keeps_its_direction_and_is_told_by_its_size():
    sizes = (1.0, 4e-5, 8e-4, 0.17)
    report = diagnose(
        model=network(),
        eval_batches=[(X, Y)],
        batches=2,
        credit=lambda model, x, y: [size * g for size, g in zip(sizes, gradient(model, x, y), strict=True)],
    )
    assert report.credit is not None
    assert report.credit.aligned == 3
    assert report.credit.magnitude == pytest.approx(sizes, rel=1e-3)
    assert "‖a‖/‖g‖ goes from 4.0e-05 to 0.17" in str(report).replace("\n      ", " ")


def test_saved_feedback_is_dfa_at_the_block_outputs():
    net = network()
    _, g, e = ByHand(net).gradients(X.double().numpy(), Y.numpy())
    torch.manual_seed(2)
    feedback = [torch.randn(D, CLASSES) for _ in range(BLOCKS)]
    ours = credit_of(net, CreditSource(checkpoint={"Bs": feedback}))
    assert ours.sites == ("h_1", "h_2", "h_3")
    for index, B in enumerate(feedback):
        expected = np.median(cosines(e @ B.double().numpy().T, g[index + 1]))
        assert ours.gamma[index] == pytest.approx(expected, abs=1e-6)


class Feedback(torch.autograd.Function):
    """A linear map that is differentiated as if its weight were another."""

    @staticmethod
    def forward(ctx, a, weight, feedback):
        ctx.save_for_backward(feedback)
        return a @ weight.T

    @staticmethod
    def backward(ctx, delta):
        return delta @ ctx.saved_tensors[0], None, None


class Carries(nn.Module):
    """A residual network whose blocks carry their own backward."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(8, D)
        self.blocks = nn.ModuleList(CarriesBlock() for _ in range(BLOCKS))
        self.norm = nn.LayerNorm(D)
        self.head = nn.Linear(D, CLASSES)

    def forward(self, x):
        h = self.embed(x)
        for block in self.blocks:
            h = h + block(h)
        return self.head(self.norm(h))


class CarriesBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.feedback = (nn.Parameter(torch.randn(D, D) / 3) for _ in range(2))
        self.own_backward = True

    def forward(self, h):
        if self.own_backward:
            return torch.tanh(Feedback.apply(h, self.weight, self.feedback))
        return torch.tanh(h @ self.weight.T)


def test_the_networks_own_backward_is_its_credit():
    torch.manual_seed(3)
    net = Carries()
    ours = credit_of(net)
    assert ours.source == "the network's own backward"
    wide = Carries().double()
    wide.load_state_dict(net.state_dict())

    def gradients(own_backward):
        h = [wide.embed(X.double())]
        for block in wide.blocks:
            block.own_backward = own_backward
            h.append(h[-1] + block(h[-1]))
        loss = nn.functional.cross_entropy(wide.head(wide.norm(h[-1])), Y, reduction="sum")
        return [g.detach().numpy() for g in torch.autograd.grad(loss, h)]

    a, g = gradients(True), gradients(False)
    expected = [np.median(cosines(*pair)) for pair in zip(a, g, strict=True)]
    assert ours.gamma == pytest.approx(expected, abs=1e-9)
    assert ours.gamma[-1] == pytest.approx(1)
    assert ours.gamma[0] < 0.9


class Projected(torch.autograd.Function):
    """Direct random target projection, as people write it: with a cast that knows nothing of float64."""

    @staticmethod
    def forward(ctx, h, B, y, cast):
        ctx.save_for_backward(B, y)
        ctx.cast = cast
        return h.clone()

    @staticmethod
    def backward(ctx, error):
        B, y = ctx.saved_tensors
        target = nn.functional.one_hot(y, CLASSES)
        return (target.float() if ctx.cast else target.to(B)) @ B / len(y), None, None, None


class TargetNet(nn.Module):
    """A residual network that projects the labels to its states, where it is given them."""

    def __init__(self, *, cast=False, leaks=0.0, breaks=False):
        super().__init__()
        self.cast, self.leaks, self.breaks = cast, leaks, breaks
        self.embed, self.head = nn.Linear(8, D), nn.Linear(D, CLASSES)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(D), nn.Linear(D, D), nn.Tanh()) for _ in range(BLOCKS))
        for number in range(BLOCKS + 1):
            self.register_buffer(f"B{number}", torch.randn(CLASSES, D))

    def run(self, x, y=None):
        h = self.embed(x)
        for number, block in enumerate([*self.blocks, None]):
            if y is not None:
                h = Projected.apply(h, getattr(self, f"B{number}"), y, self.cast)
            if block is not None:
                h = h + block(h)
        if self.breaks and y is not None:
            raise ValueError("one-hot vectors, please")
        logits = self.head(h)
        return logits if y is None else logits + self.leaks * nn.functional.one_hot(y, CLASSES)


def target_net(name, **options):
    torch.manual_seed(8)
    namespace = {"Net": TargetNet}
    exec(f"class Named(Net):\n    def forward(self, x, {name}): return self.run(x, {name.partition('=')[0]})", namespace)
    return namespace["Named"](**options)


@pytest.mark.parametrize("name", ["y=None", "targets=None", "labels=None", "target=None", "y"])
@pytest.mark.parametrize("cast", [False, True])
def test_a_forward_that_takes_the_labels_gets_them_for_its_own_backward(name, cast):
    net = target_net(name, cast=cast)
    ours = credit_of(net)
    given = f"given the labels as '{name.partition('=')[0]}'" if "=" in name else ""
    narrow = "in float32, since it fails in float64" if cast else ""
    ways = "; ".join(filter(None, [given, narrow]))
    assert ours.source == "the network's own backward" + (f" ({ways})" if ways else "")
    wide = target_net("y=None").double()
    wide.load_state_dict(net.state_dict())
    h = [wide.embed(X.double())]
    for block in wide.blocks:
        h.append(h[-1] + block(h[-1]))
    loss = nn.functional.cross_entropy(wide.head(h[-1]), Y, reduction="sum")
    g = [gradient.numpy() for gradient in torch.autograd.grad(loss, h)]
    a = [getattr(wide, f"B{number}")[Y].numpy() for number in range(BLOCKS + 1)]  # one-hot times B is a row of B
    assert ours.sites == tuple(f"h_{number}" for number in range(BLOCKS + 1))
    assert ours.gamma == pytest.approx([np.median(cosines(*pair)) for pair in zip(a, g, strict=True)], abs=1e-6)


class InBlocks(TargetNet):
    """The same where each block adds to the stream itself, and shows the states before anything is done to them."""

    class Block(nn.Sequential):
        def forward(self, h):
            return h + super().forward(h)

    def __init__(self, **options):
        super().__init__(**options)
        self.blocks = nn.ModuleList(self.Block(*block) for block in self.blocks)

    def forward(self, x, y=None):
        h = self.embed(x)
        for number, block in enumerate([*self.blocks, nn.Identity()]):
            h = block(h if y is None else Projected.apply(h, getattr(self, f"B{number}"), y, self.cast))
        return self.head(h)


def test_the_credit_is_the_same_whoever_adds_to_the_stream():
    net = target_net("y=None")
    other = InBlocks()
    other.load_state_dict(net.state_dict())
    assert credit_of(other).gamma == pytest.approx(credit_of(net).gamma, abs=1e-9)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"leaks": 0.1}, "its forward takes 'y', and with the labels its logits are others than without"),
        ({"breaks": True}, "a backward of the network's own was not seen: ValueError: one-hot vectors, please"),
    ],
)
def test_labels_that_change_the_logits_or_break_the_forward_give_no_credit(options, said):
    ours = credit_of(target_net("y=None", **options))
    assert said in ours.problem and ours.absent and not ours.sites


class LabelledLoss(Carries):
    """As Hugging Face's networks take labels: for a loss, which no audit needs."""

    def __init__(self, block=None):
        super().__init__()
        if block is not None:
            self.blocks = nn.ModuleList(block() for _ in range(BLOCKS))

    def forward(self, x, labels=None):
        logits = super().forward(x)
        return {"loss": None if labels is None else nn.functional.cross_entropy(logits, labels), "logits": logits}


def test_labels_for_a_loss_alone_make_no_backward_of_its_own():
    torch.manual_seed(9)
    plain = credit_of(LabelledLoss(lambda: nn.Sequential(nn.Linear(D, D), nn.Tanh())))
    assert plain.absent and "the network has no backward of its own (one that reads targets which" in plain.problem
    torch.manual_seed(9)
    own = LabelledLoss()
    without = Carries()
    without.load_state_dict(own.state_dict())
    assert credit_of(own).source == "the network's own backward (given the labels as 'labels')"
    assert credit_of(own).gamma == credit_of(without).gamma


def test_an_own_backward_that_fails_is_an_error_that_says_how_and_blames_no_mode():
    class Failing(Carries):
        def forward(self, x):
            h = super().forward(x)
            return Broken.apply(h)

    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx, h):
            return h.clone()

        @staticmethod
        def backward(ctx, error):
            raise RuntimeError("no trainer is at hand")

    torch.manual_seed(3)
    problem = credit_of(Failing()).problem
    assert "the network's own backward fails (RuntimeError: no trainer is at hand" in problem and "eval" not in problem


class Direct(nn.Linear):
    """As BioTorch's layers of direct feedback alignment: a hook that sends the output error down by a matrix of its own."""

    def __init__(self, d_in, d_out):
        super().__init__(d_in, d_out)
        self.back = nn.Parameter(torch.randn(CLASSES, d_in), requires_grad=False)
        self.loss_gradient = None
        self.register_full_backward_hook(self.direct)

    @staticmethod
    def direct(module, grad_input, grad_output):
        return (module.loss_gradient @ module.back,)


class DirectNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Linear(8, D), nn.Linear(D, CLASSES)
        self.blocks = nn.ModuleList(Direct(D, D) for _ in range(BLOCKS))

    def forward(self, x):
        h = self.embed(x)
        for block in self.blocks:
            h = h + torch.tanh(block(h))
        return self.head(h)


def test_layers_that_wait_for_the_gradient_of_the_loss_are_given_it():
    torch.manual_seed(6)
    net = DirectNet()
    ours = credit_of(net)
    assert ours.source == "the network's own backward"
    p = {name: value.detach().double().numpy() for name, value in net.state_dict().items()}
    h, slopes = [X.double().numpy() @ p["embed.weight"].T + p["embed.bias"]], []
    for number in range(BLOCKS):
        t = np.tanh(h[-1] @ p[f"blocks.{number}.weight"].T + p[f"blocks.{number}.bias"])
        h.append(h[-1] + t)
        slopes.append(1 - t**2)
    logits = h[-1] @ p["head.weight"].T + p["head.bias"]
    e = np.exp(logits - logits.max(1, keepdims=True))
    e /= e.sum(1, keepdims=True)
    e[np.arange(len(Y)), Y.numpy()] -= 1
    a, g = [e @ p["head.weight"]], [e @ p["head.weight"]]
    for number in reversed(range(BLOCKS)):
        a.insert(0, a[0] + e @ p[f"blocks.{number}.back"])
        g.insert(0, g[0] + (g[0] * slopes[number]) @ p[f"blocks.{number}.weight"])
    assert ours.gamma == pytest.approx([np.median(cosines(*pair)) for pair in zip(a, g, strict=True)], abs=1e-9)
    assert ours.gamma[0] < 0.9


def test_without_any_credit_nothing_is_measured_and_the_ways_are_named():
    ours = credit_of(network())
    assert ours.problem.startswith(
        "no credit to compare: no credit function is given, the checkpoint holds no Bs, and the network"
    )
    assert "--fa-credit=package.module:function" in ours.problem
    assert ours.absent
    wrong = credit_of(network(), CreditSource(checkpoint={"Bs": [torch.zeros(D, CLASSES)] * 2}))
    assert "the checkpoint's Bs are 2 matrices (the first 12×5), not one 12×5 for each of 3 blocks" in wrong.problem


def constant(value=1.0, blocks=BLOCKS, shape=(128, D)):
    return lambda model, x, y: [torch.full(shape, value)] * blocks


@pytest.mark.parametrize(
    ("credit", "said"),
    [
        (
            constant(blocks=2),
            "returned 2 tensors, but the stream has 3 blocks: expected a tensor for each block output, h_1 … h_3",
        ),
        (constant(shape=(128, D - 1)), r"returned shape (128, 11) for h_1, whose shape is (128, 12)"),
        (constant(shape=(D, 128)), r"returned shape (12, 128) for h_1"),
        (constant(math.nan), "is NaN or inf at h_1 for 128 of 128 samples"),
        (lambda model, x, y: None, "returned NoneType; expected a list"),
        (lambda model, x, y: [None] * BLOCKS, "returned NoneType for h_1"),
        (lambda model, x, y: [torch.ones(128, D).long()] * BLOCKS, "returned a tensor of torch.int64 for h_1"),
        (lambda model, x, y: 1 / 0, "raised ZeroDivisionError: division by zero"),
    ],
)
def test_what_is_wrong_with_credit_is_said(credit, said):
    ours = credit_of(network(), credit)
    assert said in ours.problem
    assert "the test's function" in ours.problem
    assert not ours.absent
    with pytest.raises(AuditError):
        diagnose(model=network(), eval_batches=[(X, Y)], batches=2, credit=credit)


def test_zero_credit_is_undefined_and_fires():
    report = diagnose(model=network(), eval_batches=[(X, Y)], batches=2, credit=constant(0.0))
    assert report.credit is not None
    assert report.credit.state == (SiteState.UNDEFINED,) * BLOCKS
    assert all(math.isnan(gamma) for gamma in report.credit.gamma)
    assert report.finding("f").fired
    assert "h_1 undefined: credit or gradient is zero" in str(report)


def test_samples_without_credit_are_left_out_and_counted():
    def half(model, x, y):
        return [g * (torch.arange(len(y)) % 2)[:, None] for g in gradient(model, x, y)]

    ours = credit_of(network(), half)
    assert ours.undefined == (SAMPLES // 2,) * 4
    assert ours.gamma == pytest.approx([1.0] * 4, abs=1e-6)
    assert ours.nudge == pytest.approx([1.0] * 4, abs=1e-3)


def test_the_batch_size_changes_no_number_though_credit_depends_on_the_batch():
    def centred(model, x, y):
        return [g - g.mean(0) for g in gradient(model, x, y)]

    whole, parts = credit_of(network(), centred), credit_of(network(), centred, batch_size=50)
    assert parts.gamma == pytest.approx(whole.gamma, abs=1e-9)
    assert parts.nudge == pytest.approx(whole.nudge, abs=1e-9)
    assert parts.null_high == pytest.approx(whole.null_high, abs=1e-6)
    assert np.array(parts.random_nudge) == pytest.approx(np.array(whole.random_nudge), abs=1e-9)


def test_how_many_samples_are_measured_at_once_changes_no_number(monkeypatch):
    """Small networks are measured in few passes, which is twice as fast."""
    x, y = data(n=5 * 128)
    results = []
    for room in (1, 1 << 25):
        monkeypatch.setattr("pytest_fadiag.measure.observers.credit.ROOM", room)
        source = CreditSource(lambda model, x, y: [g - g.mean(0) for g in gradient(model, x, y)], "centred")
        seen = observe(network(), [(x, y)], ["reference", "credit"], batches=5, credit=source).results["credit"]
        results.append({name: np.array(value) for name, value in seen.items() if name not in ("source", "sites", "problem")})
    apart, together = results
    assert apart["samples"] == 5 * 128
    for name, value in apart.items():
        assert value == pytest.approx(together[name], abs=1e-6), name


def test_a_credit_function_may_do_what_it_likes_to_its_network():
    net = network()
    before = {name: value.clone() for name, value in net.state_dict().items()}

    def rough(model, x, y):
        assert not model.training
        assert all(parameter.requires_grad for parameter in model.parameters())
        a = gradient(model, x, y)
        nn.functional.cross_entropy(model(x), y).backward()
        x.zero_()
        with torch.no_grad():
            model.embed.bias.zero_()
            model.out_head.weight.normal_()
        model.train()
        return a

    ours = credit_of(net, rough)
    assert ours.gamma == pytest.approx([1.0] * 4, abs=1e-6)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert all(parameter.grad is None for parameter in net.parameters())


def test_a_loss_that_no_nudge_can_be_resolved_of_leaves_the_state_to_gamma():
    def flat(logits, y):
        return nn.functional.cross_entropy(logits, y, reduction="none") * 1e-300 + 1

    ours = credit_of(network(), gradient, loss=flat)
    assert all(math.isnan(value) for value in (*ours.nudge, *(v for draws in ours.random_nudge for v in draws)))
    assert ours.state == (SiteState.ALIGNED,) * 4


def test_a_function_of_four_arguments_gets_the_checkpoint():
    def scaled(model, x, y, checkpoint):
        return [checkpoint["factor"] * g for g in gradient(model, x, y)]

    ours = credit_of(network(), CreditSource(scaled, "scaled", {"factor": 3.0}))
    assert ours.magnitude == pytest.approx([3.0] * 4, rel=1e-4)


def test_credit_is_not_looked_at_unless_somebody_asks():
    measured = measure(network(), [(X, Y)], batches=2)
    assert "credit" not in measured.extra
    report = diagnose(model=network(), eval_batches=[(X, Y)], batches=2)
    assert report.credit is None
    assert not report.asks_for("f")


class Tokens(nn.Module):
    def __init__(self, channels_first=False):
        super().__init__()
        self.embed = nn.Linear(2, 6)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 6), nn.Tanh()) for _ in range(2))
        self.norm = nn.LayerNorm(6)
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x):
        h = self.embed(x.view(-1, 4, 2))
        for block in self.blocks:
            h = h + block(h)
        return self.head(self.norm(h).mean(1))


def test_all_tokens_of_a_sample_are_one_vector_and_share_the_permutation():
    torch.manual_seed(4)
    net = Tokens()
    wide = Tokens().double()
    wide.load_state_dict(net.state_dict())
    own = torch.randn(128, 4, 6, dtype=torch.float64)
    ours = credit_of(net, lambda model, x, y: [own] * 2)
    h = [wide.embed(X.double().view(-1, 4, 2))]
    for block in wide.blocks:
        h.append(h[-1] + block(h[-1]))
    g = torch.autograd.grad(nn.functional.cross_entropy(wide.head(wide.norm(h[-1]).mean(1)), Y, reduction="sum"), h)
    for index in range(2):
        expected = cosines(own.repeat(2, 1, 1).flatten(1).numpy(), g[index + 1].flatten(1).numpy())
        assert ours.gamma[index] == pytest.approx(np.median(expected), abs=1e-9)
