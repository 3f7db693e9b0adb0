"""Networks: the reference ResidualMLP is rebuilt from tensor shapes alone, others come from a factory or from torchvision."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from support import network
from torch import Tensor, nn

from pytest_fadiag import AuditError, ResidualMLP
from pytest_fadiag.load.checkpoints import Checkpoint, load_checkpoint
from pytest_fadiag.load.networks import build_network, wants_flat
from pytest_fadiag.load.residual_mlp import ACTIVATIONS
from pytest_fadiag.load.specs import absent
from pytest_fadiag.load.vision import import_torchvision

Save = Callable[..., Path]


def checkpoint(model: nn.Module, **config: Any) -> Checkpoint:
    return Checkpoint(Path("dfa_s42.pt"), dict(model.state_dict()), "dfa", 42, config)


def altered(model: nn.Module, without: str = "", **tensors: Tensor) -> Checkpoint:
    state = {name: value for name, value in model.state_dict().items() if name != without}
    return Checkpoint(Path("dfa_s42.pt"), {**state, **tensors}, "dfa", 42)


# --- the reference network -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"d_in": 784, "d": 12, "blocks": 7, "classes": 3},
        {"mlp_ratio": 1},
        {"mlp_ratio": 0.5},
        {"mlp_ratio": 2.6875, "d": 24},
        {"out_ln": False},
        {"blocks": 0},
        {"blocks": 12},
        {"d": 1},
    ],
    ids=str,
)
def test_the_reference_network_is_rebuilt_from_shapes_alone(shape: dict[str, Any]) -> None:
    model = network(**shape)
    x = torch.randn(6, model.embed.in_features)
    rebuilt = build_network(checkpoint(model))
    assert isinstance(rebuilt, ResidualMLP)
    assert isinstance(rebuilt.out_ln, nn.LayerNorm) == shape.get("out_ln", True)
    assert torch.equal(rebuilt(x), model(x))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_activation_is_what_config_says(activation: str) -> None:
    model, x = network(activation=activation), torch.randn(6, 20)
    assert torch.equal(build_network(checkpoint(model, activation=activation))(x), model(x))


def test_without_config_the_activation_is_gelu() -> None:
    model, x = network(activation="relu"), torch.randn(6, 20)
    assert not torch.equal(build_network(checkpoint(model))(x), model(x))
    assert torch.equal(build_network(checkpoint(network()))(x), network()(x))


def test_an_unknown_activation_is_an_error_that_lists_the_known() -> None:
    with pytest.raises(AuditError, match="activation 'swish'; known: gelu, relu, tanh, silu, identity"):
        build_network(checkpoint(network(), activation="swish"))


def test_building_draws_nothing_from_the_callers_random_stream() -> None:
    reference, vision, own = network(), import_torchvision().models.squeezenet1_1(num_classes=3), drawing_factory()
    before = torch.get_rng_state()
    build_network(checkpoint(reference))
    build_network(checkpoint(vision), "torchvision:squeezenet1_1")
    build_network(checkpoint(own), f"{__name__}:drawing_factory")
    assert torch.equal(torch.get_rng_state(), before)


def drawing_factory() -> nn.Module:
    return nn.Bilinear(2, 3, 4)


# --- tensors that do not fit -----------------------------------------------------------------------------------------


def test_a_missing_tensor_is_named_with_the_shape_that_was_expected() -> None:
    with pytest.raises(AuditError, match=r"dfa_s42.pt: does not fit ResidualMLP: missing: blocks.1.fc1.bias \[64\]\."):
        build_network(altered(network(), without="blocks.1.fc1.bias"))


def test_an_extra_tensor_is_named() -> None:
    with pytest.raises(AuditError, match=r"not in the network: pos_embed \[1, 197, 16\]"):
        build_network(altered(network(), pos_embed=torch.zeros(1, 197, 16)))


def test_a_misshaped_tensor_is_named_with_both_shapes() -> None:
    with pytest.raises(AuditError, match=r"misshaped: blocks.2.ln.bias is \[17\], expected \[16\]"):
        build_network(altered(network(), **{"blocks.2.ln.bias": torch.zeros(17)}))


def test_a_tensor_of_whole_numbers_in_the_place_of_weights_is_an_error() -> None:
    with pytest.raises(AuditError, match=r"embed.bias is \[16\] int8, expected \[16\]"):
        build_network(altered(network(), **{"embed.bias": torch.zeros(16, dtype=torch.int8)}))


def test_everything_wrong_is_said_at_once_and_shortened() -> None:
    state = {f"extra.{index}": torch.zeros(2) for index in range(7)}
    with pytest.raises(
        AuditError, match=r"missing: embed.bias \[16\]; not in the network: extra.0 \[2\], .* and 3 more\. Name "
    ):
        build_network(altered(network(), without="embed.bias", **state))


def test_a_missing_block_is_named() -> None:
    state = {name: value for name, value in network().state_dict().items() if not name.startswith("blocks.1.")}
    with pytest.raises(AuditError, match=r"block 1 is missing: the file has tensors of blocks 0, 2, 3$"):
        build_network(Checkpoint(Path("net.pt"), state, "dfa", None))


def test_the_tensors_of_another_network_are_told_from_a_damaged_reference_network() -> None:
    with pytest.raises(
        AuditError, match=r"not the reference ResidualMLP \(embed.weight, out_head.weight missing; it has 0.weight"
    ):
        build_network(checkpoint(nn.Sequential(nn.Linear(2, 2))))
    with pytest.raises(AuditError, match=r"embed.weight has shape \(16, 3, 4, 4\), expected a matrix"):
        build_network(altered(network(), **{"embed.weight": torch.zeros(16, 3, 4, 4)}))


# --- precision -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_the_network_has_the_precision_of_its_checkpoint(dtype: torch.dtype) -> None:
    rebuilt = build_network(checkpoint(network().to(dtype)))
    assert {parameter.dtype for parameter in rebuilt.parameters()} == {dtype}


def test_a_checkpoint_of_mixed_precision_keeps_each_tensors_own() -> None:
    model = network().half()
    model.out_ln.float()
    rebuilt = build_network(checkpoint(model))
    assert isinstance(rebuilt, ResidualMLP)
    assert (rebuilt.embed.weight.dtype, rebuilt.out_ln.weight.dtype) == (torch.float16, torch.float32)


# --- factories -------------------------------------------------------------------------------------------------------


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Write a module into the working directory, where a paper's own package usually is; gives its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def written(source: str) -> str:
        name = f"paper_{abs(hash((source, tmp_path)))}"
        (tmp_path / f"{name}.py").write_text("from torch import nn\n" + textwrap.dedent(source))
        return name

    return written


def test_a_factory_is_called_with_config_if_it_takes_one(package: Callable[[str], str]) -> None:
    module = package("""
        def make(config):
            return nn.Sequential(nn.Linear(config["width"], 2))
    """)
    model = nn.Sequential(nn.Linear(9, 2))
    built = build_network(checkpoint(model, width=9), f"{module}:make")
    assert torch.equal(built(torch.ones(1, 9)), model(torch.ones(1, 9)))


@pytest.mark.parametrize(
    "signature", ["", "width=9", "*, width=9", "*layers", "**options", "width=9, classes=2"], ids=lambda text: f"({text})"
)
def test_a_factory_that_needs_no_argument_is_called_without(signature: str, package: Callable[[str], str]) -> None:
    module = package(f"""
        def make({signature}):
            return nn.Linear({"width" if "width" in signature else 9}, 2)
    """)
    assert isinstance(build_network(checkpoint(nn.Linear(9, 2), lr=0.1), f"{module}:make"), nn.Linear)


def test_an_optional_config_is_given_too(package: Callable[[str], str]) -> None:
    module = package("""
        def make(config=None):
            return nn.Linear(config["width"], 2)
    """)
    build_network(checkpoint(nn.Linear(9, 2), width=9), f"{module}:make")


def test_a_class_is_a_factory_too(package: Callable[[str], str]) -> None:
    module = package("""
        class Net(nn.Sequential):
            def __init__(self, width=9):
                super().__init__(nn.Linear(width, 2))
    """)
    built = build_network(checkpoint(nn.Sequential(nn.Linear(9, 2))), f"{module}:Net")
    assert type(built).__name__ == "Net"


@pytest.mark.parametrize("signature", ["width", "width=4", "*, width", "width=4, lr=1.0, method=None", "depth=1, width=4"])
def test_a_class_takes_by_name_what_the_hyperparameters_have(signature: str, package: Callable[[str], str]) -> None:
    module = package(f"""
        class Net(nn.Sequential):
            def __init__(self, {signature}):
                super().__init__(nn.Linear(width, 2))
    """)
    built = build_network(checkpoint(nn.Sequential(nn.Linear(9, 2)), width=9, lr=0.1), f"{module}:Net")
    assert isinstance(built, nn.Sequential) and isinstance(built[0], nn.Linear) and built[0].in_features == 9


def test_a_factory_may_wrap_its_network_or_name_a_part_module(package: Callable[[str], str], save: Save) -> None:
    module = package("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.module = nn.Linear(9, 2)
    """)
    path = save(content={"module.weight": torch.ones(2, 9), "module.bias": torch.ones(2)})
    assert build_network(load_checkpoint(path), f"{module}:Net").state_dict()["module.weight"].sum() == 18


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("{}:absent", "has no 'absent'$"),
        ("{}:brokne", r"has no 'brokne'; did you mean 'broken'\?"),
        ("{}:number", "is int, not a function or class"),
        ("{}:broken", "network factory .* raised ZeroDivisionError: division by zero"),
        ("{}:text", "returned str, not a torch.nn.Module"),
        (
            "no_such_package.nets:make",
            r"cannot import 'no_such_package.nets' \(No module .*\); .*PYTHONPATH",
        ),
        ("resnet18", "unknown network 'resnet18'; accepted: package.module:factory, torchvision:NAME, or nothing"),
    ],
)
def test_a_factory_that_cannot_be_used_is_an_error_that_says_why(
    spec: str, message: str, package: Callable[[str], str]
) -> None:
    module = package("""
        number = 3
        def broken():
            return 1 / 0
        def text():
            return "no network"
    """)
    with pytest.raises(AuditError, match=message):
        build_network(checkpoint(nn.Linear(9, 2)), spec.format(module))


def test_a_module_that_fails_on_import_is_an_error_that_says_how(package: Callable[[str], str]) -> None:
    module = package("raise RuntimeError('no licence')")
    with pytest.raises(AuditError, match=f"importing '{module}' raised RuntimeError: no licence"):
        build_network(checkpoint(nn.Linear(9, 2)), f"{module}:make")


# --- torchvision -----------------------------------------------------------------------------------------------------

HEADS = {
    "resnet18": "fc",
    "vit_b_16": "heads.head",
    "vgg11": "classifier.6",
    "densenet121": "classifier",
    "mobilenet_v3_small": "classifier.3",
    "convnext_tiny": "classifier.2",
    "squeezenet1_1": "classifier.1",
    "swin_t": "head",
    "mnasnet0_5": "classifier.1",
    "regnet_y_400mf": "fc",
}


@pytest.mark.parametrize("name", HEADS)
def test_the_number_of_classes_is_that_of_the_checkpoint(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the order of the tensors: a safetensors file has them in that of the alphabet."""
    for draw in ("normal_", "uniform_"):  # a hundred million weights, which those of the checkpoint then replace
        monkeypatch.setattr(torch.Tensor, draw, lambda tensor, *_, **__: tensor.zero_())
    models = import_torchvision().models
    with torch.device("cpu" if name.startswith("regnet") else "meta"):
        shapes = models.get_model(name, weights=None, num_classes=7).state_dict()
    state = {key: torch.zeros(value.shape, dtype=value.dtype) for key, value in sorted(shapes.items())}
    built = build_network(Checkpoint(Path("net.safetensors"), state, "bp", None), f"torchvision:{name}")
    assert len(built.get_submodule(HEADS[name]).weight) == 7  # type: ignore[arg-type]


def test_a_torchvision_checkpoint_gives_the_network_back(tmp_path: Path) -> None:
    model = import_torchvision().models.resnet18(weights=None, num_classes=10).eval()
    save_file(model.state_dict(), tmp_path / "bp_s1.safetensors")
    built = build_network(load_checkpoint(tmp_path / "bp_s1.safetensors"), "torchvision:resnet18").eval()
    x = torch.randn(2, 3, 32, 32)
    assert torch.equal(built(x), model(x))


def test_without_torchvision_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(AuditError, match=r"torchvision cannot be imported .*pip install 'pytest-fadiag\[vision\]'"):
        build_network(checkpoint(nn.Linear(2, 2)), "torchvision:resnet18")


def test_an_unknown_torchvision_network_is_an_error_that_gives_close_names() -> None:
    with pytest.raises(AuditError, match=r"no classification network 'resnet81'; close: .*resnet18"):
        build_network(checkpoint(nn.Linear(2, 2)), "torchvision:resnet81")
    with pytest.raises(AuditError, match="no classification network 'fasterrcnn_resnet50_fpn'"):
        build_network(checkpoint(nn.Linear(2, 2)), "torchvision:fasterrcnn_resnet50_fpn")


def test_the_tensors_of_another_torchvision_network_are_named() -> None:
    with pytest.raises(
        AuditError, match=r"does not fit ResNet: missing: conv1.weight \[64, 3, 7, 7\], .*; not in the network: "
    ):
        build_network(checkpoint(import_torchvision().models.squeezenet1_1()), "torchvision:resnet18")


# --- flattening ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "shape", "flat"),
    [
        (nn.Sequential(nn.Linear(48, 4)), (3, 4, 4), True),
        (nn.Sequential(nn.Flatten(), nn.Linear(48, 4)), (3, 4, 4), True),
        (nn.Sequential(nn.Linear(48, 4)), (48,), False),
        (nn.Sequential(nn.Linear(4, 4)), (3, 4, 4), False),
        (nn.Sequential(nn.Conv2d(3, 48, 3), nn.Linear(48, 4)), (3, 4, 4), False),
        (nn.Sequential(nn.Embedding(10, 4), nn.Linear(48, 4)), (48,), False),
    ],
)
def test_samples_are_flattened_if_the_first_layer_is_as_wide_as_one(
    model: nn.Module, shape: tuple[int, ...], flat: bool
) -> None:
    assert wants_flat(model, torch.zeros(shape)) is flat


@pytest.mark.parametrize(
    "text",
    [
        "def make(): pass",
        "class make: pass",
        "make = lambda: 0",
        "from os import getcwd as make",
        "if True:\n    import make",
        "from os.path import *",
        "globals()['ma' + 'ke'] = print",
        "def __getattr__(name): return print",
        "no python at all",
    ],
)
def test_a_name_that_a_module_may_have_is_not_called_absent(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "may_have.py").write_text(text)
    assert absent("may_have:make") == ""
    (tmp_path / "may_have.py").write_text("other = 1")
    assert absent("may_have:make") == "module 'may_have' has no 'make'"
    assert absent("os.path:join") == absent("math:sin") == absent("xml.dom.minidom:parse") == ""
