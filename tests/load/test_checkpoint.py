"""Checkpoints: every usual shape is unpacked, nothing in a file is run, small files stay small."""

from __future__ import annotations

import argparse
import json
import pickle
import resource
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from support import network
from torch import Tensor, nn

from pytest_fadiag.judge.errors import AuditError
from pytest_fadiag.load.checkpoint import load_checkpoint
from pytest_fadiag.load.names import plain_config
from pytest_fadiag.load.network import build_network

Save = Callable[..., Path]
TENSORS: dict[str, Tensor] = network().state_dict()


def same(one: dict[str, Tensor], other: dict[str, Tensor] = TENSORS) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


# --- what a file may look like ----------------------------------------------------------------


@pytest.mark.parametrize("key", [None, "state_dict", "model_state_dict", "model", "net"])
@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.module."])
def test_a_state_dict_is_found_bare_or_under_the_usual_keys(
    key: str | None, prefix: str, save: Save
) -> None:
    state = {prefix + name: value for name, value in TENSORS.items()}
    content = state if key is None else {"epoch": 3, "state_dict": {}, key: state}
    assert same(load_checkpoint(save("net.pth.tar", content)).state_dict)


def test_other_containers(tmp_path: Path) -> None:
    torch.save(TENSORS, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    assert same(load_checkpoint(tmp_path / "old.pth").state_dict)
    save_file(TENSORS, tmp_path / "dfa_s7.safetensors")
    assert same(load_checkpoint(tmp_path / "dfa_s7.safetensors").state_dict)


def test_everything_that_the_protocol_stores_is_read(save: Save) -> None:
    config = {"method": "dfa-lam", "seed": 123, "lam": 1e-2}
    path = save(Bs=[torch.ones(2)], config=config, test_acc=torch.tensor(0.5))
    checkpoint = load_checkpoint(path)
    assert (checkpoint.method, checkpoint.seed, checkpoint.test_acc) == ("dfa-lam", 123, 0.5)
    assert plain_config(checkpoint.config) == config
    assert torch.equal(checkpoint.content["Bs"][0], torch.ones(2))
    with pytest.raises(AuditError, match=r"dfa_s42.pt: test_acc .*34.9.*percentage"):
        load_checkpoint(save(test_acc=34.9))


@pytest.mark.parametrize(
    "extras",
    [
        {"hyper_parameters": {"method": "fa", "width": 9}, "pytorch-lightning_version": "2.5"},
        {"hparams": {"method": "fa", "width": 9}},
        {"hyper_parameters": {"lr": 0.1, "config": {"method": "fa", "width": 9}}},
        {"args": argparse.Namespace(method="fa", width=9, out=Path("runs/fa"))},
        {"config": {"method": "fa", "width": 9}, "args": {"method": "bp"}},
    ],
    ids=["Lightning", "hparams", "a config among them", "Namespace", "config first"],
)
def test_what_is_known_of_a_training_run_has_several_names(
    extras: dict[str, Any], save: Save
) -> None:
    checkpoint = load_checkpoint(save(**extras))
    assert (checkpoint.method, checkpoint.config["width"]) == ("fa", 9)


def test_a_hugging_face_folder_is_one_network_also_in_several_files(tmp_path: Path) -> None:
    there = tmp_path / "dfa_s3"
    there.mkdir()
    places = {name: f"part-{number % 2}.safetensors" for number, name in enumerate(TENSORS)}
    for part in set(places.values()):
        save_file({name: TENSORS[name] for name in places if places[name] == part}, there / part)
    index = there / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": places}))
    (there / "config.json").write_text('{"activation": "relu"}')
    checkpoint = load_checkpoint(index)
    assert same(checkpoint.state_dict)
    assert (checkpoint.method, checkpoint.seed) == ("dfa", 3)
    assert checkpoint.config == {"activation": "relu"}
    for content in ("", "[]", "{}", '{"weight_map": {"a": 3}}', '{"a": 1, "a": 2}'):
        index.write_text(content)
        with pytest.raises(AuditError, match=r"model.safetensors.index.json: "):
            load_checkpoint(index)


# --- nothing is run ---------------------------------------------------------------------------


WRITERS: dict[str, Callable[[Any, Path], Any]] = {
    "archive": torch.save,
    "old": lambda content, path: torch.save(content, path, _use_new_zipfile_serialization=False),
    "pickle": lambda content, path: path.write_bytes(pickle.dumps(content, protocol=4)),
}


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("how", WRITERS)
def test_a_pickle_that_runs_code_leaves_no_trace(
    how: str, inside: bool, trace: Any, tmp_path: Path
) -> None:
    path = tmp_path / "dfa_s42.pt"
    WRITERS[how]({"state_dict": TENSORS, "config": {"notes": trace}} if inside else trace, path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch may warn of a foreign pickle, the error is ours
        with pytest.raises(AuditError) as raised:
            load_checkpoint(path)
    assert not trace.path.exists()
    refused = "refused to load posix.mkdir" in str(raised.value)
    assert refused == ("--fa-unsafe-load" in str(raised.value)) == (how != "pickle")


def test_only_a_trusted_file_runs_code_and_gives_a_whole_network(trace: Any, save: Save) -> None:
    load_checkpoint(save(notes=trace), unsafe=True)
    assert trace.path.exists()
    for content in (network(), {"model": network(), "test_acc": 0.5}):
        path = save(content=content)
        with pytest.raises(AuditError, match=r"refused to load .*ResidualMLP"):
            load_checkpoint(path)
        checkpoint = load_checkpoint(path, unsafe=True)
        assert same(checkpoint.state_dict) and isinstance(checkpoint.network, nn.Module)


# --- what is not a checkpoint -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([1, 2, 3], "expected a state_dict, got list"),
        ({}, "found nothing"),
        ({"epoch": 3, "weights": {"a": torch.zeros(3)}}, "found 'epoch', 'weights'"),
        ({**TENSORS, "module.embed.bias": torch.zeros(16)}, "expected the tensors of one network"),
    ],
)
def test_a_file_without_one_network_says_what_it_holds(content: Any, said: str, save: Save) -> None:
    with pytest.raises(AuditError, match=said):
        load_checkpoint(save(content=content))


@pytest.mark.parametrize("name", ["net.pt", "net.safetensors"])
def test_damaged_files_are_errors_that_name_them(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    save_file(TENSORS, path) if "safe" in name else torch.save(TENSORS, path)
    whole = path.read_bytes()
    lengths = [0, 1, 9, *range(10, len(whole), len(whole) // 20), len(whole) - 1]
    others = [b"method,acc\ndfa,0.31\n", bytes(range(256)), b"PK\x03\x04" * 20]
    for content in [*(whole[:length] for length in lengths), *others]:
        path.write_bytes(content)
        with pytest.raises(AuditError, match=f"{name}: not a readable file of tensors"):
            load_checkpoint(path)
    with pytest.raises(AuditError, match="cannot be read: No such file"):
        load_checkpoint(tmp_path / "nowhere.pt")


# --- small files that would eat the machine ---------------------------------------------------


@pytest.mark.parametrize(
    ("name", "tensor", "said"),
    [
        ("blocks.50000000.fc1.weight", torch.zeros(2, 2), "missing: blocks.4"),
        (f"blocks.{'9' * 5000}.fc1.weight", torch.zeros(2, 2), "missing: blocks.4"),
        ("embed.weight", torch.zeros(1).expand(30_000, 30_000), "declares 3,600,000,000 bytes"),
        ("embed.weight", torch.zeros(1).expand(10**6, 10**6), "declares"),
        ("embed.weight", torch.zeros(0, 0), "not the reference ResidualMLP"),
        ("embed.weight", torch.tensor(1.0), "not the reference ResidualMLP"),
        ("blocks.0.fc1.weight", torch.zeros(10**6, 1), "misshaped: blocks.0.fc1.weight"),
        ("blocks.0.fc1.bias", torch.zeros(10**6), "misshaped: blocks.0"),
        ("embed.weight", torch.empty(16, 20, device="meta"), "expected a dense tensor .*meta"),
        ("embed.weight", torch.eye(16).to_sparse(), "expected a dense tensor .*sparse_coo"),
        ("embed.weight", torch.zeros(16, 20).to(torch.float8_e4m3fn), "float8_e4m3fn"),
    ],
    ids=lambda value: None if isinstance(value, Tensor) else str(value)[:30],
)
def test_a_tensor_that_no_network_is_built_from_is_named(
    save: Save, name: str, tensor: Tensor, said: str
) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    path = save(content={**TENSORS, name: tensor})
    with pytest.raises(AuditError, match=said):
        build_network(load_checkpoint(path))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000, "kB"


def test_a_compressed_archive_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_fadiag.load.checkpoint.SMALL", 1 << 20)
    with zipfile.ZipFile(tmp_path / "net.pt", "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("net/data.pkl", pickle.dumps({}, protocol=2))
        made.writestr("net/data/0", bytes(8 << 20))
    with pytest.raises(AuditError, match="declares 8,388,6"):
        load_checkpoint(tmp_path / "net.pt")
