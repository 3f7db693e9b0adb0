"""Checkpoints as other people's tools leave them: Lightning, Hugging Face, BioTorch, whole pickled networks."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from safetensors.torch import load_file, save_file
from support import clustered, network
from torch import Tensor, nn

from pytest_fadiag import AuditError, Bench, ResidualMLP, Setup, audit
from pytest_fadiag.load.checkpoints import load_checkpoint
from pytest_fadiag.load.networks import build_network

Save = Callable[..., Path]
X, _ = clustered(8)


def same(built: nn.Module, model: nn.Module) -> bool:
    return torch.equal(built(X), model(X))


# --- Lightning -------------------------------------------------------------------------------------------------------


class Wrapped(nn.Module):
    """As a LightningModule holds its network, with a loss that has weights."""

    def __init__(self, name: str) -> None:
        super().__init__()
        setattr(self, name, network())
        self.criterion = nn.CrossEntropyLoss(weight=torch.ones(5))


@pytest.mark.parametrize("name", ["model", "net", "network"])
def test_a_lightning_checkpoint_needs_no_more_than_its_file(name: str, save: Save, archive: str) -> None:
    path = save(
        "dfa_s1/last.ckpt",
        content={
            "state_dict": Wrapped(name).state_dict(),
            "hyper_parameters": {"seed": 3, "mean": 0.5, "std": 0.25},
            "pytorch-lightning_version": "2.5.0",
            "optimizer_states": [],
            "loops": {},
        },
    )
    assert same(build_network(load_checkpoint(path)), network())
    report = audit(path, data=archive)
    assert (report.method_name, report.seed) == ("dfa", 3)
    assert any("1 tensor of feedback or loss that the network lacks, left aside: criterion.weight" in r for r in report.remarks)
    assert any("config has mean 0.5 and std 0.25" in remark for remark in report.remarks)


@pytest.mark.parametrize(
    "extras",
    [
        {"hyper_parameters": {"method": "fa", "width": 9}},
        {"hparams": {"method": "fa", "width": 9}},
        {"hyper_parameters": {"lr": 0.1, "config": {"method": "fa", "width": 9}}},
        {"args": {"method": "fa", "width": 9}},
    ],
    ids=["Lightning", "hparams", "a config among them", "args"],
)
def test_what_is_known_of_a_training_has_several_names(extras: dict[str, Any], save: Save) -> None:
    checkpoint = load_checkpoint(save(**extras))
    assert (checkpoint.method, checkpoint.config["width"]) == ("fa", 9)


def test_arguments_of_a_command_are_read_where_a_pickle_may_run(save: Save) -> None:
    path = save(args=argparse.Namespace(method="fa"))
    with pytest.raises(AuditError, match=r"argparse.Namespace.*--fa-unsafe-load"):
        load_checkpoint(path)
    assert load_checkpoint(path, unsafe=True).method == "fa"


# --- feedback --------------------------------------------------------------------------------------------------------


def with_feedback() -> dict[str, Tensor]:
    """The tensors of a network whose every Linear has a matrix for the way back, as BioTorch names it."""
    state = dict(network().state_dict())
    layers = [name for name in state if name.endswith(".weight") and state[name].ndim == 2]
    return {**state, **{f"{name}_backward": torch.randn(state[name].shape) for name in layers}}


def test_feedback_that_a_plain_network_lacks_is_left_aside_and_named(save: Save, archive: str) -> None:
    plain, told = audit(save("dfa_s1.pt"), data=archive), audit(save("dfa_s1.pt", content=with_feedback()), data=archive)
    assert told.bp_grad_norms == plain.bp_grad_norms
    (remark,) = [remark for remark in told.remarks if "left aside" in remark]
    assert "10 tensors of feedback or loss that the network lacks, left aside: embed.weight_backward, " in remark
    assert "and 7 more" in remark
    assert remark in " ".join(str(told).split())


def test_a_missing_tensor_is_an_error_though_feedback_is_left_aside(save: Save) -> None:
    state = with_feedback()
    del state["blocks.1.fc2.bias"]
    with pytest.raises(AuditError, match=r"missing: blocks.1.fc2.bias \[16\]\. Name the network") as raised:
        build_network(load_checkpoint(save(content=state)))
    assert "weight_backward" not in str(raised.value)


def test_a_block_that_the_network_lacks_is_never_left_aside(save: Save) -> None:
    path = save(content=network(blocks=5).state_dict())
    with pytest.raises(AuditError, match=r"not in the network: blocks.4.ln.weight .*save the state_dict without it"):
        build_network(load_checkpoint(path), network(blocks=4))


# --- what a file does not tell, and what else it holds ----------------------------------------------------------------


def test_an_activation_that_nothing_names_is_said_to_be_taken(save: Save, archive: str) -> None:
    said = "no config names the activation of the network, and tensors do not tell it: gelu was taken"
    assert any(said in remark for remark in audit(save(), data=archive).remarks)
    for known in (audit(save(config={"activation": "relu"}), data=archive), audit(save(), data=archive, model=network())):
        assert not any("activation" in remark for remark in known.remarks)


def test_other_weights_of_the_network_in_its_file_are_named(save: Save, archive: str) -> None:
    state = network().state_dict()
    average = {f"module.{name}": value * 0.9 for name, value in state.items()}
    path = save(content={"model": state, "ema": {**average, "n_averaged": torch.tensor(3)}, "copy": dict(state), "config": {}})
    (remark,) = [remark for remark in audit(path, data=archive).remarks if "other weights" in remark]
    assert remark.endswith("which were not audited: ema")
    assert not any("other weights" in remark for remark in audit(save(), data=archive).remarks)


# --- whole networks --------------------------------------------------------------------------------------------------


class Own(ResidualMLP):
    """A network that the shapes of its tensors do not tell: it computes something else."""

    def forward(self, x: Tensor, return_hidden: bool = False) -> Any:
        return super().forward(-x, return_hidden)


@pytest.mark.parametrize("held", ["alone", "model", "net"])
@pytest.mark.parametrize("wrap", [lambda net: net, nn.DataParallel], ids=["bare", "DataParallel"])
def test_a_whole_pickled_network_is_the_network(held: str, wrap: Callable[[nn.Module], nn.Module], save: Save) -> None:
    model = Own(20, 16, 4, 5)
    path = save("fa_s1.pt", content=wrap(model) if held == "alone" else {held: wrap(model), "test_acc": 0.5})
    with pytest.raises(AuditError, match=r"refused to load .*--fa-unsafe-load"):
        load_checkpoint(path)
    checkpoint = load_checkpoint(path, unsafe=True)
    built = build_network(checkpoint)
    assert type(built) is Own
    assert same(built, model)
    assert same(build_network(checkpoint, network()), model) is False  # a network that is named gets its tensors
    assert checkpoint.test_acc == (None if held == "alone" else 0.5)


def test_a_whole_network_is_measured_as_it_computes(save: Save, archive: str) -> None:
    model = Own(20, 16, 4, 5)
    report = audit(save(content=model), data=archive, unsafe=True)
    x, y = clustered(300)
    assert report.headline_acc == pytest.approx(float((model(x).argmax(1) == y).float().mean()))
    assert report.headline_acc != audit(save(content=model.state_dict()), data=archive).headline_acc


# --- Hugging Face ----------------------------------------------------------------------------------------------------


def folder(path: Path, state: dict[str, Tensor] | None = None, config: dict[str, Any] | None = None) -> Path:
    """A folder as a Trainer leaves it."""
    path.mkdir(parents=True)
    state = dict(network().state_dict()) if state is None else state
    save_file(state, path / "model.safetensors")
    torch.save({"state": {}, "param_groups": []}, path / "optimizer.pt")
    torch.save({"last_epoch": 3}, path / "scheduler.pt")
    torch.save({"python": (3, (1, 2), None)}, path / "rng_state.pth")
    torch.save(argparse.Namespace(lr=1), path / "training_args.bin")
    (path / "trainer_state.json").write_text("{}")
    if config is not None:
        (path / "config.json").write_text(json.dumps(config))
    return path


def test_the_config_beside_a_network_is_its_config(tmp_path: Path) -> None:
    there = folder(tmp_path / "dfa_s3" / "checkpoint-500", config={"activation": "relu", "model_type": "mlp"})
    checkpoint = load_checkpoint(there / "model.safetensors")
    assert (checkpoint.method, checkpoint.seed, checkpoint.config["activation"]) == ("dfa", 3, "relu")
    assert same(build_network(checkpoint), build_network(checkpoint, filled(network(activation="relu"), checkpoint.state_dict)))


def filled(model: nn.Module, state: dict[str, Tensor]) -> nn.Module:
    model.load_state_dict(state)
    return model


def test_another_network_needs_a_factory_and_the_error_shows_one(tmp_path: Path) -> None:
    there = folder(tmp_path / "checkpoint-500", {"bert.weight": torch.zeros(2)}, {"model_type": "bert"})
    with pytest.raises(AuditError, match=r"--fa-model=package.module:factory. .* def make\(config\): return transformers\."):
        build_network(load_checkpoint(there / "model.safetensors"))


@pytest.mark.parametrize(
    ("architectures", "made"),
    [
        (["ViTForImageClassification"], "ViTForImageClassification(transformers.AutoConfig"),
        (["x(); import os"], "AutoModelForSequenceClassification.from_config(transformers.AutoConfig"),
        ([], "AutoModelForSequenceClassification.from_config(transformers.AutoConfig"),
    ],
)
def test_the_factory_that_is_shown_has_the_class_that_the_config_names(
    architectures: list[str], made: str, tmp_path: Path
) -> None:
    config = {"model_type": "vit", "architectures": architectures}
    there = folder(tmp_path / "checkpoint-500", {"vit.weight": torch.zeros(2)}, config)
    with pytest.raises(AuditError) as caught:
        build_network(load_checkpoint(there / "model.safetensors"))
    assert f"def make(config): return transformers.{made}" in str(caught.value)


class Renaming(ResidualMLP):
    """A network of Transformers', which has other names in its file than live, and draws what it does not find there."""

    calls: ClassVar[list[dict[str, Any]]] = []

    @classmethod
    def from_pretrained(cls, path: str, **options: Any) -> tuple[Renaming, dict[str, Any]]:
        cls.calls.append(options)
        saved = load_file(Path(path) / "model.safetensors")
        made = cls(X.shape[1], 16, 4, 5)
        live = {name.replace("encoder.layer.", "blocks."): value.float() for name, value in saved.items()}
        told = made.load_state_dict(live, strict=False)
        return made, {"missing_keys": set(told.missing_keys), "unexpected_keys": set(told.unexpected_keys)}


def renamed(dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    state = network().state_dict()
    return {name.replace("blocks.", "encoder.layer."): value.to(dtype) for name, value in state.items()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_folder_with_other_names_than_the_live_network_is_loaded_by_its_own_class(dtype: torch.dtype, tmp_path: Path) -> None:
    Renaming.calls.clear()
    there = folder(tmp_path / "bp_s1", renamed(dtype), {"model_type": "mlp"})
    bare = Renaming(X.shape[1], 16, 4, 5)
    before = torch.get_rng_state()
    built = build_network(load_checkpoint(there / "model.safetensors"), bare)
    assert torch.equal(built(X.to(dtype)), network().to(dtype)(X.to(dtype)))
    (options,) = Renaming.calls
    assert options["local_files_only"] and not options["trust_remote_code"] and options["use_safetensors"]
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("wrong", ["missing", "extra"])
def test_what_its_own_class_would_draw_at_random_or_drop_is_an_error(wrong: str, tmp_path: Path) -> None:
    state = renamed()
    state |= {"encoder.layer.9.weight": torch.zeros(2)}
    if wrong == "missing":
        del state["encoder.layer.9.weight"], state["encoder.layer.1.fc1.bias"]
    there = folder(tmp_path / "bp_s1", state, {"model_type": "mlp"})
    with pytest.raises(AuditError, match="does not fit Renaming: missing: blocks"):
        build_network(load_checkpoint(there / "model.safetensors"), Renaming(X.shape[1], 16, 4, 5))


def test_a_file_that_is_no_folder_of_hugging_faces_is_never_loaded_by_another_package(tmp_path: Path) -> None:
    Renaming.calls.clear()
    torch.save(renamed(), tmp_path / "bp_s1.pt")
    with pytest.raises(AuditError, match="does not fit Renaming"):
        build_network(load_checkpoint(tmp_path / "bp_s1.pt"), Renaming(X.shape[1], 16, 4, 5))
    assert not Renaming.calls


def divided(path: Path) -> Path:
    """The network of a folder in two files and an index."""
    there = folder(path)
    state = dict(network().state_dict())
    places = {name: f"model-0000{1 + index % 2}-of-00002.safetensors" for index, name in enumerate(state)}
    for part in set(places.values()):
        save_file({name: state[name] for name, place in places.items() if place == part}, there / part)
    (there / "model.safetensors").unlink()
    (there / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return there


def test_a_network_in_several_files_is_read_by_its_index(tmp_path: Path) -> None:
    there = divided(tmp_path / "dfa_s3")
    checkpoint = load_checkpoint(there / "model.safetensors.index.json")
    assert (checkpoint.method, checkpoint.seed) == ("dfa", 3)
    assert same(build_network(checkpoint), network())
    (there / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(AuditError, match=r"model-00002-of-00002.safetensors: no such file"):
        load_checkpoint(there / "model.safetensors.index.json")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"weight_map": {"a": "../b.safetensors"}}', '{"weight_map": {"a": 3}}'])
def test_an_index_that_is_none_is_an_error_that_names_it(content: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(content)
    with pytest.raises(AuditError, match=r"model.safetensors.index.json: "):
        load_checkpoint(path)


@pytest.mark.parametrize("changed", ["config.json", "model-00002-of-00002.safetensors"])
def test_every_file_of_a_network_counts_for_what_is_kept(changed: str, tmp_path: Path, archive: str) -> None:
    there = divided(tmp_path / "dfa_s3")
    (there / "config.json").write_text('{"activation": "relu"}')
    index = there / "model.safetensors.index.json"
    first = Bench(Setup(archive)).record(index).measurement.environment["checkpoint_sha256"]
    assert Bench(Setup(archive)).record(index).measurement.environment["checkpoint_sha256"] == first
    if changed == "config.json":
        (there / changed).write_text('{"activation": "gelu"}')
    else:
        state = load_checkpoint(there / changed).state_dict
        save_file({name: value + 1 for name, value in state.items()}, there / changed)
    assert Bench(Setup(archive)).record(index).measurement.environment["checkpoint_sha256"] != first
