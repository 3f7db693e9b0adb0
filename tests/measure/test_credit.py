"""(f): Γ by depth against float64 by hand, at every scale, and with credit that is not right."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from own_backwards import made, plain_copy
from support import Chain, Mean, Residual, changed, measured, seeded, states_and_head
from torch import Tensor, nn
from torch.nn import functional as F

from pytest_fadiag.judge.records import Credit, SiteState
from pytest_fadiag.load.network import ResidualMLP
from pytest_fadiag.measure.credit import CreditSource, SignedPermutations
from pytest_fadiag.measure.task import Task

D, BLOCKS, CLASSES, SAMPLES = 12, 3, 5, 256
GENERATOR = torch.Generator().manual_seed(1)
X = torch.randn(SAMPLES, 20, generator=GENERATOR)
Y = torch.randint(0, CLASSES, (SAMPLES,), generator=GENERATOR)


def network(*, embed: float = 1.0, head: float = 1.0) -> ResidualMLP:
    def scale(net: Any) -> None:
        for parameter in net.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
        for layer in (net.embed, *(block.fc2 for block in net.blocks)):
            layer.weight.mul_(embed)
            layer.bias.mul_(embed)
        net.out_head.weight.mul_(head)

    return seeded(lambda: changed(ResidualMLP(20, D, BLOCKS, CLASSES, mlp_ratio=2), scale))


def credit_of(model: nn.Module, given: Any = None, **options: Any) -> Credit:
    """What the audit measures."""
    source = given if isinstance(given, CreditSource | None) else CreditSource(given, "the test's")
    seen = measured(model, [(X, Y)], ["credit"], credit=source, **options).credit
    assert seen is not None
    return seen


def by_hand(model: nn.Module) -> tuple[Any, list[Tensor], list[Tensor], Tensor]:
    """The float64 network, its states, their gradients and e, without cancelling digits."""
    wide = copy.deepcopy(model).double()
    states, logits = states_and_head(wide, X.double())
    e = logits.detach().softmax(1).scatter(1, Y.unsqueeze(1), 0.0)
    e.scatter_(1, Y.unsqueeze(1), -e.sum(1, keepdim=True))
    gradients = torch.autograd.grad((logits * e).sum(), states)
    return wide, [state.detach() for state in states], list(gradients), e


def gamma(a: Tensor, g: Tensor) -> float:
    """The median cosine by numpy, over all entries of a sample."""
    one, other = a.flatten(1).numpy(), g.flatten(1).numpy()
    norms = np.sqrt((one**2).sum(1)) * np.sqrt((other**2).sum(1))
    return float(np.median((one * other).sum(1) / norms))


def rows_of(values: Sequence[Tensor]) -> Any:
    """A credit function that knows the credit of every sample."""
    numbers = {tuple(x.tolist()): row for row, x in enumerate(X)}
    return lambda model, x, y: [a[[numbers[tuple(own.tolist())] for own in x]] for a in values]


def gradient(model: Any, x: Tensor, y: Tensor) -> Sequence[Tensor]:
    states, logits = states_and_head(model, x)
    return torch.autograd.grad(F.cross_entropy(logits, y, reduction="sum"), states)


SCALES = [(1.0, 1.0), (1e3, 1.0), (1e9, 1.0), (1.0, 1e-6), (1.0, 1e-11), (1e4, 30.0)]


@pytest.mark.parametrize(("embed", "head"), SCALES)
def test_gamma_magnitude_and_nudge_are_those_by_hand_at_every_scale(
    embed: float, head: float
) -> None:
    model = network(embed=embed, head=head)
    wide, h, g, _ = by_hand(model)
    mix = torch.randn(20, D, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    own = [gradient / gradient.abs().max() + 0.3 * X.double() @ mix for gradient in g]

    def losses(state: Tensor, layer: int) -> Tensor:
        for block in wide.blocks[layer:]:
            state = state + block(state)
        return F.cross_entropy(wide.out_head(wide.out_ln(state)), Y, reduction="none").detach()

    def change(layer: int, v: Tensor) -> float:
        step = 1e-3 * h[layer].norm(dim=1, keepdim=True) * v / v.norm(dim=1, keepdim=True)
        return float((losses(h[layer] - step, layer) - losses(h[layer], layer)).sum())

    ours = credit_of(model, rows_of(own))
    assert ours.sites == ("h_0", "h_1", "h_2", "h_3") and ours.samples == SAMPLES
    for layer, (a, true) in enumerate(zip(own, g, strict=True)):
        assert ours.gamma[layer] == pytest.approx(gamma(a, true), abs=1e-6)
        sizes = np.median((a.norm(dim=1) / true.norm(dim=1)).numpy())
        assert ours.magnitude[layer] == pytest.approx(sizes, rel=1e-6)
        expected = change(layer, a) / change(layer, true)
        if math.isnan(ours.nudge[layer]):
            assert head == 1e-11  # no double holds the change of such a loss
        else:
            assert ours.nudge[layer] == pytest.approx(expected, abs=1e-6 if head > 1e-7 else 1e-2)


def test_the_null_is_the_median_cosine_of_each_permuted_credit() -> None:
    model = network()
    g, a = by_hand(model)[2][2], torch.randn(SAMPLES, D, dtype=torch.float64)
    ours, draws = credit_of(model, rows_of([a] * BLOCKS)), SignedPermutations(D, 2, a.device)
    signed = zip(draws.order, draws.signs, strict=True)
    null = [gamma(a[:, order] * signs, g) for order, signs in signed]
    found = (ours.null_mean, ours.null_sd, ours.null_low, ours.null_high)
    expected = (np.mean(null), np.std(null, ddof=1), *np.quantile(null, [0.025, 0.975]))
    assert [values[1] for values in found] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_gradient_reads_one_everywhere_and_its_opposite_against(sign: int) -> None:
    sizes = (1.0, 4e-5, 8e-4, 0.17)

    def scaled(*given: Any) -> list[Tensor]:
        return [sign * size * g for size, g in zip(sizes, gradient(*given[:3]), strict=True)]

    ours = credit_of(network(), scaled)
    assert ours.gamma == pytest.approx([sign] * 4, abs=1e-6)
    assert ours.nudge == pytest.approx([sign] * 4, abs=2e-2)
    assert ours.magnitude == pytest.approx(sizes, rel=1e-4)
    assert set(ours.state) == {SiteState.ALIGNED if sign > 0 else SiteState.AGAINST}
    assert ours.is_gradient is (sign > 0)


def test_random_feedback_is_null_at_most_sites_and_random_directions_save_nothing() -> None:
    """A fresh matrix each time: 95 % of them lie within the null, whatever the network."""
    model = seeded(lambda: ResidualMLP(20, 40, 8, CLASSES, mlp_ratio=1))
    states: list[SiteState] = []
    random: list[float] = []
    for draw in range(5):
        Bs = seeded(lambda: [torch.randn(40, CLASSES) for _ in range(8)], 100 + draw)
        ours = credit_of(model, CreditSource(checkpoint={"Bs": Bs}))
        states += ours.state
        random += [value for draws in ours.random_nudge for value in draws]
        assert ours.aligned <= 4, "(f) fires"
    assert states.count(SiteState.NULL) >= 34
    assert abs(np.mean(random)) < 0.05 and max(map(abs, random)) < 0.2


def test_saved_feedback_is_dfa_at_the_block_outputs() -> None:
    model = network()
    _, _, g, e = by_hand(model)
    Bs = seeded(lambda: [torch.randn(D, CLASSES) for _ in range(BLOCKS)], 2)
    ours = credit_of(model, CreditSource(checkpoint={"Bs": Bs}))
    assert ours.sites == ("h_1", "h_2", "h_3") and ours.source.startswith("the checkpoint's Bs")
    expected = [gamma(e @ B.double().T, true) for B, true in zip(Bs, g[1:], strict=True)]
    assert ours.gamma == pytest.approx(expected, abs=1e-6)
    named = {str(number): B for number, B in enumerate(Bs)}  # of which block each is, is unknown
    assert "no credit" in credit_of(model, CreditSource(checkpoint={"Bs": named})).problem


def chain(*blocks: nn.Module) -> Any:
    return Chain(nn.Linear(20, D), blocks, nn.Linear(D, CLASSES))


def test_the_networks_own_backward_is_its_credit() -> None:
    model = made("feedback alignment")
    ours, a, g = credit_of(model), by_hand(model)[2], by_hand(plain_copy(model))[2]
    assert ours.source == "the network's own backward" and ours.sites[0] == "h_0"
    expected = [gamma(*pair) for pair in zip(a, g, strict=True)]
    assert ours.gamma == pytest.approx(expected, abs=1e-6)
    assert ours.gamma[-1] == pytest.approx(1) and ours.gamma[0] < 0.9
    broken = credit_of(made("direct feedback"))  # whose trainer is not at hand
    assert "the network's own backward fails" in broken.problem
    assert "NoneType" in broken.problem and "--fa-credit" in broken.problem


class Handed(torch.autograd.Function):
    """Hands a state on, and sends a projection of the output error down instead of its gradient."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, B: Tensor) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(B)
        return h.clone()

    @staticmethod
    def backward(ctx: Any, delta: Tensor) -> Any:  # type: ignore[override]
        return delta @ ctx.saved_tensors[0], None


class HandsOn(Residual):
    """Each block turns the credit that reaches its input, also that of h_0."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(D, D), nn.Tanh())
        self.register_buffer("B", torch.randn(D, D))

    def forward(self, h: Tensor) -> Tensor:
        return super().forward(Handed.apply(h, self.B))  # type: ignore[arg-type]


def test_credit_that_is_changed_where_a_state_is_handed_on_belongs_to_that_state() -> None:
    model = seeded(lambda: chain(HandsOn(), HandsOn()), 4)
    wide, states, _, e = by_hand(model)
    head = torch.autograd.functional.vjp(wide.head, states[-1], e)[1]
    plain, own = [head], [head]
    for block, state in zip(reversed(wide.blocks), reversed(states[:-1]), strict=True):
        f = lambda h, block=block: h + block.f(h)  # noqa: E731
        plain.insert(0, torch.autograd.functional.vjp(f, state, plain[0])[1])
        own.insert(0, torch.autograd.functional.vjp(f, state, own[0])[1] @ block.B)
    ours = credit_of(model)
    expected = [gamma(*pair) for pair in zip(own, plain, strict=True)]
    assert ours.gamma == pytest.approx(expected, abs=1e-6) and abs(ours.gamma[0]) < 0.9


class Direct(nn.Linear):
    """As BioTorch's direct feedback alignment: a hook that sends the output error down."""

    def __init__(self) -> None:
        super().__init__(D, D)
        self.back = nn.Parameter(torch.randn(CLASSES, D), requires_grad=False)
        self.loss_gradient: Tensor | None = None
        self.register_full_backward_hook(self.direct)

    @staticmethod
    def direct(module: Any, grad_input: Any, grad_output: Any) -> Any:
        return (module.loss_gradient @ module.back,)


def test_layers_that_wait_for_the_gradient_of_the_loss_are_given_it() -> None:
    model = seeded(lambda: chain(*(Residual(Direct(), nn.Tanh()) for _ in range(BLOCKS))), 6)
    plain = chain(*(Residual(nn.Linear(D, D), nn.Tanh()) for _ in range(BLOCKS)))
    plain.load_state_dict({n: v for n, v in model.state_dict().items() if "back" not in n})
    _, _, g, e = by_hand(plain)
    a = [g[-1]]
    for block in reversed(model.blocks):
        a.insert(0, a[0] + e @ block.f[0].back.double())
    ours = credit_of(model)
    expected = [gamma(*pair) for pair in zip(a, g, strict=True)]
    assert ours.gamma == pytest.approx(expected, abs=1e-6) and ours.gamma[0] < 0.9


def test_without_any_credit_nothing_is_measured_and_the_ways_are_named() -> None:
    ours = credit_of(network())
    assert ours.sites == () and "the checkpoint holds no Bs" in ours.problem
    assert "--fa-credit=package.module:function" in ours.problem
    wrong = credit_of(network(), CreditSource(checkpoint={"Bs": [torch.zeros(D, CLASSES)] * 2}))
    assert "Bs of the shapes [(12, 5), (12, 5)], not [(12, 5), (12, 5), (12, 5)]" in wrong.problem


def constant(value: float = 1.0, blocks: int = BLOCKS, shape: tuple[int, ...] = (128, D)) -> Any:
    return lambda model, x, y: [torch.full(shape, value)] * blocks


@pytest.mark.parametrize(
    ("credit", "said"),
    [
        (constant(blocks=2), "returned [(128, 12), (128, 12)]; expected a list of real numbers"),
        (constant(shape=(128, 11)), "returned [(128, 11), (128, 11), (128, 11)]; expected"),
        (constant(shape=(D, 128)), "of the shapes [(128, 12), (128, 12), (128, 12)], those of the"),
        (constant(math.nan), "is NaN or inf at h_1 for samples whose gradient is finite"),
        (lambda model, x, y: None, "returned ['NoneType']; expected a list"),
        (lambda model, x, y: [None] * BLOCKS, "returned ['NoneType', 'NoneType', "),
        (lambda model, x, y: [torch.ones(128, D).long()] * BLOCKS, "returned ['torch.int64', "),
        (lambda model, x, y: 1 / 0, "raised ZeroDivisionError: division by zero"),
    ],
)
def test_what_is_wrong_with_credit_is_told(credit: Any, said: str) -> None:
    ours = credit_of(network(), credit)
    assert said in ours.problem and "the test's" in ours.problem
    assert ours.sites == ()


def test_zero_credit_is_undefined_and_samples_without_credit_are_left_out() -> None:
    zero = credit_of(network(), constant(0.0))
    assert set(zero.state) == {SiteState.UNDEFINED} and zero.undefined == (SAMPLES,) * BLOCKS
    assert all(map(math.isnan, (*zero.gamma, *zero.null_high, *zero.nudge, *zero.magnitude)))

    def half(model: Any, x: Tensor, y: Tensor) -> list[Tensor]:
        return [g * (torch.arange(len(y)) % 2)[:, None] for g in gradient(model, x, y)]

    ours = credit_of(network(), half)
    assert ours.undefined == (SAMPLES // 2,) * 4
    assert ours.gamma == pytest.approx([1.0] * 4, abs=1e-6)
    assert ours.nudge == pytest.approx([1.0] * 4, abs=1e-3)


def test_the_batch_size_changes_no_number_though_credit_depends_on_the_batch() -> None:
    def centred(model: Any, x: Tensor, y: Tensor) -> list[Tensor]:
        return [g - g.mean(0) for g in gradient(model, x, y)]

    whole, parts = (credit_of(network(), centred, batch_size=size) for size in (512, 50))
    assert len(whole.gamma) == 4 and max(whole.gamma) < 0.9999
    for name in ("gamma", "nudge", "magnitude", "null_high", "null_mean"):
        assert getattr(parts, name) == pytest.approx(getattr(whole, name), abs=1e-6), name
    assert np.array(parts.random_nudge) == pytest.approx(np.array(whole.random_nudge), abs=1e-9)


def test_a_credit_function_may_do_what_it_likes_to_its_network() -> None:
    model = network()
    before = copy.deepcopy(model.state_dict())

    def rough(net: Any, x: Tensor, y: Tensor) -> Sequence[Tensor]:
        assert not net.training and all(p.requires_grad for p in net.parameters())
        a = gradient(net, x, y)
        x.zero_()
        net.train().embed.bias.data.zero_()
        return a

    assert credit_of(model, rough).gamma == pytest.approx([1.0] * 4, abs=1e-6)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_function_of_four_arguments_gets_the_checkpoint() -> None:
    def scaled(model: Any, x: Tensor, y: Tensor, checkpoint: Any) -> list[Tensor]:
        return [checkpoint["factor"] * g for g in gradient(model, x, y)]

    ours = credit_of(network(), CreditSource(scaled, "scaled", {"factor": 3.0}))
    assert ours.magnitude == pytest.approx([3.0] * 4, rel=1e-4)


def test_a_loss_whose_nudge_is_not_resolved_leaves_the_state_to_gamma() -> None:
    def flat(logits: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(logits, y, reduction="none") * 1e-300 + 1

    ours = credit_of(network(), gradient, task=Task(loss=flat))
    assert all(map(math.isnan, (*ours.nudge, *(v for draws in ours.random_nudge for v in draws))))
    assert set(ours.state) == {SiteState.ALIGNED}


def test_all_tokens_of_a_sample_are_one_vector() -> None:
    embed = nn.Sequential(nn.Unflatten(1, (4, 5)), nn.Linear(5, 6))
    blocks = [Residual(nn.LayerNorm(6), nn.Linear(6, 6), nn.Tanh()) for _ in range(2)]
    model = seeded(lambda: Chain(embed, blocks, nn.Sequential(Mean(1), nn.Linear(6, CLASSES))), 4)
    own = [torch.randn(SAMPLES, 4, 6, dtype=torch.float64) for _ in range(2)]
    expected = [gamma(*pair) for pair in zip(own, by_hand(model)[2][1:], strict=True)]
    assert credit_of(model, rows_of(own)).gamma == pytest.approx(expected, abs=1e-6)
