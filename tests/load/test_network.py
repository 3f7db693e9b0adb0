"""Networks: the reference is rebuilt from shapes, others come from factories or torchvision."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support import network
from torch import Tensor, nn

from pytest_fadiag.judge.errors import AuditError
from pytest_fadiag.load.checkpoint import Checkpoint, load_checkpoint
from pytest_fadiag.load.fingerprint import fingerprint
from pytest_fadiag.load.network import (
    ACTIVATIONS,
    assumed_activation,
    build_network,
    choose_device,
    left_aside,
    other_shape,
    wants_flat,
)
from pytest_fadiag.load.vision import import_torchvision

Module = Callable[[str], str]


def checkpoint(model: nn.Module, without: str = "", **tensors: Tensor) -> Checkpoint:
    state = {name: value for name, value in model.state_dict().items() if name != without}
    return Checkpoint(Path("dfa_s42.pt"), {**state, **tensors}, "dfa", 42)


def configured(model: nn.Module, **config: Any) -> Checkpoint:
    return Checkpoint(Path("dfa_s42.pt"), dict(model.state_dict()), "dfa", 42, config)


# --- the reference network --------------------------------------------------------------------


@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"d_in": 784, "d": 12, "blocks": 7, "classes": 3},
        {"mlp_ratio": 0.5},
        {"mlp_ratio": 2.6875, "d": 24},
        {"out_ln": False},
        {"blocks": 0},
        {"blocks": 12, "d": 1},
    ],
    ids=str,
)
def test_the_reference_network_is_rebuilt_from_shapes_alone(shape: dict[str, Any]) -> None:
    model = network(**shape)
    x = torch.randn(6, model.embed.in_features)
    assert torch.equal(build_network(checkpoint(model))(x), model(x))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_activation_is_what_the_config_says_else_gelu(activation: str) -> None:
    model, x = network(activation=activation), torch.randn(6, 20)
    known, assumed = configured(model, activation=activation), configured(model)
    assert torch.equal(build_network(known)(x), model(x))
    assert torch.equal(build_network(assumed)(x), model(x)) == (activation == "gelu")
    assert (assumed_activation(known, None), assumed_activation(assumed, None)) == (None, "gelu")
    assert assumed_activation(assumed, "a:b") is None
    with pytest.raises(AuditError, match="'swish' is unknown; known: gelu, relu"):
        build_network(configured(model, activation="swish"))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_each_tensor_keeps_its_precision_and_the_random_stream_its_state(
    dtype: torch.dtype,
) -> None:
    model = network().to(dtype)
    model.out_ln.float()
    before = torch.get_rng_state()
    rebuilt = build_network(checkpoint(model), network(seed=1))
    assert torch.equal(torch.get_rng_state(), before)
    assert [p.dtype for p in rebuilt.parameters()] == [p.dtype for p in model.parameters()]


# --- tensors that do not fit ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            checkpoint(network(), "blocks.1.fc1.bias"),
            r"missing: blocks.1.fc1.bias \[64\]\. If it was trained",
        ),
        (checkpoint(network(), extra=torch.zeros(1, 3)), r"not in the network: extra \[1, 3\]"),
        (
            checkpoint(network(), **{"embed.bias": torch.zeros(17)}),
            r"misshaped: embed.bias is \[17\], expected \[16\]",
        ),
        (
            checkpoint(network(), **{"embed.bias": torch.zeros(16, dtype=torch.int8)}),
            r"embed.bias is \[16\] int8, expected \[16\]",
        ),
        (
            checkpoint(network(), "embed.bias", **{f"extra.{i}": torch.zeros(2) for i in range(7)}),
            r"missing: embed.bias \[16\]; not in the network: extra.0 \[2\], .* and 4 more",
        ),
        (checkpoint(nn.Linear(2, 2)), r"not the reference ResidualMLP: .* got weight \[2, 2\]"),
    ],
)
def test_everything_that_does_not_fit_is_named(given: Checkpoint, said: str) -> None:
    with pytest.raises(AuditError, match=said):
        build_network(given)


@pytest.mark.parametrize("prefix", ["model.", "net.", "network.", "model._orig_mod.", "module."])
def test_the_prefixes_of_wrappers_are_taken_off_on_either_side(prefix: str) -> None:
    model, x = network(), torch.randn(6, 20)
    state = {f"{prefix}{name}": value for name, value in model.state_dict().items()}
    wrapped = Checkpoint(Path("a.ckpt"), {**state, "criterion.weight": torch.ones(5)}, "dfa", 1)
    built = build_network(wrapped)
    assert torch.equal(built(x), model(x))
    assert left_aside(built, wrapped) == ("criterion.weight",)
    outer = nn.Module()
    outer.net = network(seed=1)
    build_network(checkpoint(model), outer)


@pytest.mark.parametrize(
    ("name", "aside"),
    [
        *[
            (name, True)
            for name in ("Bs.0", "feedback.0.weight", "fixed_fb_weights", "B0", "embed.B1")
        ],
        *[
            (f"blocks.0.fc1.{name}", True)
            for name in ("weight_backward", "feedback_matrix", "weight_fa")
        ],
        *[
            (name, True)
            for name in ("random_feedback.weight", "loss_fn.weight", "net.criterion.pos")
        ],
        *[
            (name, False)
            for name in ("pos_embed", "blocks.0.fc1.lora_B", "B", "fbnet.weight", "dfa")
        ],
        *[(name, False) for name in ("blocks.9.fc1.weight", "lossless.weight", "weight_decay")],
    ],
)
def test_feedback_and_losses_are_left_aside_and_nothing_else(name: str, aside: bool) -> None:
    given = checkpoint(network(), **{name: torch.zeros(2)})
    if aside:
        assert left_aside(build_network(given, network()), given) == (name,)
    else:
        with pytest.raises(AuditError, match="not in the network: "):
            build_network(given, network())


# --- other networks ---------------------------------------------------------------------------


def test_a_factory_makes_the_network_from_the_config(module: Module) -> None:
    name = module("""
        from torch import nn
        def make(config): return nn.Sequential(nn.Linear(config["width"], 2))
        def text(): return "no network"
    """)
    model, x = nn.Sequential(nn.Linear(9, 2)), torch.randn(3, 9)
    assert torch.equal(build_network(configured(model, width=9), f"{name}:make")(x), model(x))
    with pytest.raises(AuditError, match=r"expected a torch.nn.Module, got str"):
        build_network(configured(model), f"{name}:text")


def test_a_whole_pickled_network_is_the_network(tmp_path: Path) -> None:
    model, x = nn.DataParallel(nn.Sequential(nn.Linear(3, 2), nn.Tanh())), torch.randn(4, 3)
    torch.save(model, tmp_path / "fa_s1.pt")
    whole = load_checkpoint(tmp_path / "fa_s1.pt", unsafe=True)
    assert torch.equal(build_network(whole)(x), model(x))
    plain = build_network(
        whole, nn.Sequential(nn.Linear(3, 2))
    )  # one that is named gets its tensors
    assert not torch.equal(plain(x), model(x))
    assert torch.equal(plain(x), model.module[0](x))


@pytest.mark.parametrize("name", ["resnet18", "squeezenet1_1", "mobilenet_v3_small"])
def test_a_torchvision_network_has_the_classes_of_its_checkpoint(name: str) -> None:
    model = import_torchvision().models.get_model(name, weights=None, num_classes=7).eval()
    built = build_network(checkpoint(model), f"torchvision:{name}").eval()
    x = torch.randn(2, 3, 64, 64)
    assert torch.equal(built(x), model(x))


def test_an_unknown_torchvision_network() -> None:
    with pytest.raises(AuditError, match="no classification network 'resnet81'"):
        build_network(checkpoint(nn.Linear(2, 2)), "torchvision:resnet81")


def test_devices() -> None:
    assert choose_device("cpu") == "cpu"
    assert choose_device("auto").partition(":")[0] == (
        "cuda" if torch.cuda.is_available() else "cpu"
    )
    with pytest.raises(AuditError, match="device 'nonsense' is not available"):
        choose_device("nonsense")


@pytest.mark.parametrize(
    ("model", "shape", "flat"),
    [
        (nn.Sequential(nn.Linear(48, 4)), (3, 4, 4), True),
        (nn.Sequential(nn.Linear(48, 4)), (48,), False),
        (nn.Sequential(nn.Linear(4, 4)), (3, 4, 4), False),
        (nn.Sequential(nn.Conv2d(3, 48, 3), nn.Linear(48, 4)), (3, 4, 4), False),
        (nn.Sequential(nn.Embedding(10, 4), nn.Linear(48, 4)), (3, 16), False),
    ],
)
def test_samples_are_flattened_if_the_first_layer_is_as_wide_as_one(
    model: nn.Module, shape: tuple[int, ...], flat: bool
) -> None:
    assert wants_flat(model, torch.zeros(shape)) is flat


@pytest.mark.parametrize(
    ("model", "shape", "said"),
    [
        (nn.Sequential(nn.Linear(784, 4)), (3, 32, 32), "784 values, the data has 3×32×32: "),
        (nn.Sequential(nn.Conv2d(3, 4, 3)), (1, 28, 28), ""),  # torch says it itself
        (nn.Sequential(nn.Linear(32, 4)), (3, 32, 32), ""),
        (nn.Sequential(nn.Linear(48, 4)), (3, 4, 4), ""),
        (nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 4)), (3, 4, 5), ""),
    ],
)
def test_data_of_another_shape_is_named(model: nn.Module, shape: Any, said: str) -> None:
    batches = [(torch.zeros(2, *shape), torch.zeros(2))]
    assert other_shape(model, batches) == (f"the network takes {said}" if said else "")
    assert other_shape(model, [({"x": torch.zeros(2, *shape)}, torch.zeros(2))]) == ""


def test_a_fingerprint_tells_weights_and_what_was_trained() -> None:
    one, other = network(), network()
    with torch.no_grad():
        other.blocks[0].ln.bias[3] += 1
        other.blocks[1].fc1.weight[0, 0] += 1
        other.out_head.bias[0] += 1
    before, after = fingerprint(one), fingerprint(other, [["blocks.0.ln.bias"]])
    assert before.shapes == after.shapes and before.shapes["embed.weight"] == (16, 20)
    assert {name for name, _ in after.weights.items() ^ before.weights.items()} == {
        "blocks.1.fc1.weight"
    }
    assert (before.moved, after.moved) == ((), ("blocks.0.ln.bias",)) == ((), after.blocks[0])
