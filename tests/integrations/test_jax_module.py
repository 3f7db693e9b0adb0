"""Networks of JAX callables as torch modules: each kind of layer, every diagnostic, a file."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pytest_fadiag import AuditError, DiagnosticReport, audit, diagnose

jax = pytest.importorskip("jax")
eqx = pytest.importorskip("equinox")
linen = pytest.importorskip("flax.linen")
nnx = pytest.importorskip("flax.nnx")

from pytest_fadiag.jax import module  # noqa: E402 (needs JAX)

WIDTH = 16


class Block(eqx.Module):  # type: ignore[misc, name-defined]
    up: Any
    down: Any

    def __init__(self, key: Any) -> None:
        first, second = jax.random.split(key)
        self.up = eqx.nn.Linear(WIDTH, 2 * WIDTH, key=first)
        self.down = eqx.nn.Linear(2 * WIDTH, WIDTH, key=second)

    def __call__(self, h: Any) -> Any:
        return h + self.down(jax.nn.tanh(self.up(h)))


class TorchBlock(nn.Module):
    """As the arrays in JAX, its parameters have no initialiser of their own."""

    def __init__(self) -> None:
        super().__init__()
        layers = [nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)]
        self.arrays = nn.ParameterList(p for layer in layers for p in layer.parameters())

    def forward(self, h: Tensor) -> Tensor:
        up, up_bias, down, down_bias = self.arrays
        inner = nn.functional.linear(h, up, up_bias).tanh()
        return h + nn.functional.linear(inner, down, down_bias)


def equinox_layers() -> list[Any]:
    keys = jax.random.split(jax.random.PRNGKey(0), 4)
    embedding = eqx.nn.Linear(20, WIDTH, key=keys[0])
    head = eqx.nn.Linear(WIDTH, 5, key=keys[1])
    return [embedding, Block(keys[2]), Block(keys[3]), head]


def torch_network(weights: nn.Module) -> nn.Module:
    """The same network in torch."""
    network = nn.Sequential(nn.Linear(20, WIDTH), TorchBlock(), TorchBlock(), nn.Linear(WIDTH, 5))
    pairs = zip(network.parameters(), weights.parameters(), strict=True)
    with torch.no_grad():
        for parameter, array in pairs:
            parameter.copy_(array)
    return network


def flax_layers() -> list[Any]:
    key = jax.random.PRNGKey(0)
    layers = []
    for width, inputs in ((WIDTH, 20), (WIDTH, WIDTH), (WIDTH, WIDTH), (5, WIDTH)):
        layer = linen.Dense(width)
        layers.append((layer, layer.init(key, jax.numpy.zeros((1, inputs)))))
    return layers


def nnx_layers() -> list[Any]:
    sizes = ((20, WIDTH), (WIDTH, WIDTH), (WIDTH, WIDTH), (WIDTH, 5))
    return [nnx.Linear(*size, rngs=nnx.Rngs(number)) for number, size in enumerate(sizes)]


def function_layers() -> list[Any]:
    def dense(parameters: Any, h: Any) -> Any:
        return jax.nn.relu(h @ parameters["w"])

    keys = jax.random.split(jax.random.PRNGKey(0), 4)
    sizes = ((20, WIDTH), (WIDTH, WIDTH), (WIDTH, WIDTH), (WIDTH, 5))
    return [
        (dense, {"w": jax.random.normal(key, size) / size[0] ** 0.5})
        for key, size in zip(keys, sizes, strict=True)
    ]


@pytest.fixture(scope="module")
def data() -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    x = torch.randn(2_000, 20)
    return x, (x[:, :5] + x[:, 5:10].sin()).argmax(1)


def report_of(network: nn.Module, data: tuple[Tensor, Tensor], **options: Any) -> DiagnosticReport:
    return diagnose(network, *data, progress=False, **options)


@pytest.mark.parametrize("layers", [flax_layers, nnx_layers, function_layers])
def test_each_kind_of_layer_is_audited_and_its_reference_is_proven(
    layers: Any, data: tuple[Tensor, Tensor]
) -> None:
    report = report_of(module(layers()), data)
    assert report.reference_error is not None and report.reference_error < 1e-6
    assert report.stream is not None and len(report.stream.blocks) == 2
    assert report.depth_null_pp is not None and len(report.findings) >= 5


def test_a_network_is_audited_as_the_same_weights_in_torch(data: tuple[Tensor, Tensor]) -> None:
    network = module(equinox_layers(), batched=False)
    of_jax, of_torch = report_of(network, data), report_of(torch_network(network), data)
    names = ("residual_norms", "bp_grad_norms", "probe_accuracies", "headline_acc")
    for name in (*names, "depth_null_pp", "depth_utility_pp"):
        assert getattr(of_jax, name) == pytest.approx(getattr(of_torch, name), rel=1e-5)
    assert of_jax.cross_batch_stability == pytest.approx(of_torch.cross_batch_stability, abs=1e-5)
    assert of_jax.reference_error is not None and of_jax.reference_error < 1e-6


def test_credit_and_control_are_given_as_for_torch(data: tuple[Tensor, Tensor]) -> None:
    def credit(model: Any, x: Tensor, y: Tensor) -> list[Tensor]:
        states = [model.embed(x)]
        for block in model.blocks:
            states.append(block(states[-1]))
        loss = nn.functional.cross_entropy(model.head(states[-1]), y, reduction="sum")
        return list(torch.autograd.grad(loss, states[1:]))

    network = module(equinox_layers(), batched=False)
    control = module(equinox_layers(), batched=False)
    report = report_of(network, data, credit=credit, control=control)
    assert report.margin_pp == 0.0
    assert report.credit is not None and min(report.credit.gamma) > 0.999
    with pytest.raises(AuditError, match="no backward of its own"):
        report_of(network, data, credit="own")


def test_a_step_in_jax_is_compared_as_one_in_torch(data: tuple[Tensor, Tensor]) -> None:
    def loss(layers: Any, x: Any, y: Any) -> Any:
        h = x
        for layer in layers:
            h = jax.vmap(layer)(h)
        return -jax.nn.log_softmax(h)[jax.numpy.arange(len(y)), y].mean()

    def step(network: Any, x: Tensor, y: Tensor) -> None:
        gradient = eqx.filter_grad(loss)(network.layers, x.numpy(), y.numpy())
        down = jax.tree_util.tree_map(lambda leaf: -0.5 * leaf, gradient)
        network.update(eqx.apply_updates(network.layers, down))

    report = report_of(module(equinox_layers(), batched=False), data, step=step, control=0.2)
    assert report.step is not None and report.step.is_bp
    assert [state.value for state in report.step.state] == ["BP's own"] * 4


def test_an_update_of_the_layers_reaches_the_network(data: tuple[Tensor, Tensor]) -> None:
    network = module(equinox_layers(), batched=False)
    before = copy.deepcopy(network)
    larger = jax.tree_util.tree_map(
        lambda leaf: 2 * leaf if eqx.is_array(leaf) else leaf, network.layers
    )
    network.update(larger)
    for old, new in zip(before.parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(new, 2 * old)
    with pytest.raises(AuditError, match="expected 4 layers, got 3"):
        network.update(larger[1:])


def test_a_file_is_audited_with_a_factory_that_makes_the_layers(
    data: tuple[Tensor, Tensor], tmp_path: Path
) -> None:
    network = module(equinox_layers(), batched=False)
    torch.save({"state_dict": network.state_dict()}, tmp_path / "pc_s1.pt")
    torch.save({"x": data[0], "y": data[1]}, tmp_path / "test.pt")
    blank = module(equinox_layers(), batched=False)
    with torch.no_grad():
        for parameter in blank.parameters():
            parameter.zero_()
    report = audit(
        tmp_path / "pc_s1.pt", data=str(tmp_path / "test.pt"), model=blank, progress=False
    )
    assert report.residual_norms == pytest.approx(report_of(network, data).residual_norms)


def test_what_cannot_be_a_stream_of_jax_is_refused() -> None:
    with pytest.raises(AuditError, match="expected embedding, blocks and head as layers, got 2"):
        module(equinox_layers()[:2])
    norm = nnx.BatchNorm(WIDTH, rngs=nnx.Rngs(0))
    with pytest.raises(AuditError, match="batch statistics"):
        module([*nnx_layers()[:2], norm, *nnx_layers()[3:]])
    layer = linen.BatchNorm(use_running_average=True)
    variables = layer.init(jax.random.PRNGKey(0), jax.numpy.zeros((2, WIDTH)))
    with pytest.raises(AuditError, match="batch statistics"):
        module([*flax_layers()[:2], (layer, variables), *flax_layers()[3:]])


def test_half_precision_is_computed_in_jax(data: tuple[Tensor, Tensor]) -> None:
    network = module(equinox_layers(), batched=False)
    exact = network(data[0][:8])
    for dtype in (torch.bfloat16, torch.float16):
        half = copy.deepcopy(network).to(dtype)
        outputs = half(data[0][:8].to(dtype))
        assert outputs.dtype == dtype
        torch.testing.assert_close(outputs.float(), exact, atol=0.05, rtol=0.05)
