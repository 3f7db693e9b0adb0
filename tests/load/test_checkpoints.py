"""Checkpoints: every shape that people save is unpacked, nothing in a file is run, and damage is never loaded as weights."""

from __future__ import annotations

import argparse
import pickle
import random
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from support import network
from torch import Tensor, nn

from pytest_fadiag import AuditError
from pytest_fadiag.load.checkpoints import load_checkpoint

Save = Callable[..., Path]


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture
def tensors() -> dict[str, Tensor]:
    return network().state_dict()


# --- what a file may look like ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".ckpt"])
@pytest.mark.parametrize("key", [None, "state_dict", "model_state_dict", "model"])
def test_a_state_dict_is_found_bare_or_under_the_usual_keys(
    key: str | None, suffix: str, save: Save, tensors: dict[str, Tensor]
) -> None:
    path = save(f"net{suffix}", tensors if key is None else {"epoch": 3, key: tensors, "optimizer": {"state": {}}})
    assert same(load_checkpoint(path).state_dict, tensors)


def test_safetensors(tmp_path: Path, tensors: dict[str, Tensor]) -> None:
    save_file(tensors, tmp_path / "dfa_s7.safetensors")
    checkpoint = load_checkpoint(tmp_path / "dfa_s7.safetensors")
    assert same(checkpoint.state_dict, tensors)
    assert (checkpoint.method, checkpoint.seed, checkpoint.config, checkpoint.test_acc) == ("dfa", 7, {}, None)


def test_the_format_before_zip_archives(tmp_path: Path, tensors: dict[str, Tensor]) -> None:
    torch.save(tensors, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    assert same(load_checkpoint(tmp_path / "old.pth").state_dict, tensors)


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module.", "module.module."])
def test_wrappers_leave_no_prefix(prefix: str, save: Save, tensors: dict[str, Tensor]) -> None:
    path = save(content={"model": {prefix + name: value for name, value in tensors.items()}})
    assert same(load_checkpoint(path).state_dict, tensors)


def test_a_name_that_only_contains_a_prefix_is_kept(save: Save) -> None:
    path = save(content={"submodule.weight": torch.ones(2), "net.module.weight": torch.ones(2)})
    assert list(load_checkpoint(path).state_dict) == ["submodule.weight", "net.module.weight"]


def test_two_tensors_for_one_name_are_an_error(save: Save, tensors: dict[str, Tensor]) -> None:
    path = save(content={**tensors, "module.embed.bias": torch.zeros(16)})
    with pytest.raises(AuditError, match=r"both embed.bias and module.embed.bias.*one network per file"):
        load_checkpoint(path)


def test_an_empty_state_dict_beside_a_full_one_is_passed_over(save: Save, tensors: dict[str, Tensor]) -> None:
    assert same(load_checkpoint(save(content={"state_dict": {}, "model": tensors})).state_dict, tensors)


def test_everything_that_the_protocol_stores_is_read(save: Save, tensors: dict[str, Tensor]) -> None:
    feedback = [torch.randn(16, 5) for _ in range(5)]
    config = {"method": "dfa-lam", "seed": 123, "lam": 1e-2}
    path = save("run.pt", {"state_dict": tensors, "Bs": feedback, "config": config, "test_acc": 0.567})
    checkpoint = load_checkpoint(path)
    assert (checkpoint.method, checkpoint.seed, checkpoint.test_acc) == ("dfa-lam", 123, 0.567)
    assert checkpoint.config == config
    assert all(torch.equal(read, saved) for read, saved in zip(checkpoint.feedback, feedback, strict=True))
    assert load_checkpoint(save()).feedback is None


@pytest.mark.parametrize(
    ("name", "config", "method", "seed"),
    [
        ("dfa_s42.pt", {}, "dfa", 42),
        ("dfa-lam_seed456.pt", {}, "dfa-lam", 456),
        ("my_net.pt", {}, "my_net", None),
        ("dfa_s42.pt", {"method": "fa", "seed": 1}, "fa", 1),
        ("dfa_s42.pt", {"method": "fa"}, "fa", 42),
        ("runs/best.pt", {"seed": 0}, "best", 0),
        ("runs/best.pt", {"seed": "unknown"}, "best", None),
    ],
)
def test_method_and_seed_come_from_config_else_from_the_name(
    name: str, config: dict[str, Any], method: str, seed: int | None, save: Save
) -> None:
    checkpoint = load_checkpoint(save(name, config=config))
    assert (checkpoint.method, checkpoint.seed) == (method, seed)


@pytest.mark.parametrize("claimed", [0.5, 1, torch.tensor(0.5)])
def test_an_accuracy_may_be_a_number_or_a_scalar_tensor(claimed: Any, save: Save) -> None:
    assert load_checkpoint(save(test_acc=claimed)).test_acc == float(claimed)


@pytest.mark.parametrize(
    ("claimed", "message"), [(34.9, "percentage"), (-0.1, r"\[0, 1\]"), ("high", "'high'"), (float("nan"), "nan")]
)
def test_an_accuracy_that_is_none_is_an_error_that_names_the_file(claimed: Any, message: str, save: Save) -> None:
    with pytest.raises(AuditError, match=rf"dfa_s42.pt: test_acc.*{message}"):
        load_checkpoint(save(test_acc=claimed))


def test_everything_is_loaded_on_the_cpu(save: Save) -> None:
    assert {value.device.type for value in load_checkpoint(save()).state_dict.values()} == {"cpu"}


# --- nothing is run --------------------------------------------------------------------------------------------------


def as_archive(content: Any, path: Path) -> None:
    torch.save(content, path)


def as_old_archive(content: Any, path: Path) -> None:
    torch.save(content, path, _use_new_zipfile_serialization=False)


def as_pickle(content: Any, path: Path) -> None:
    path.write_bytes(pickle.dumps(content, protocol=4))


def as_old_pickle(content: Any, path: Path) -> None:
    path.write_bytes(pickle.dumps(content, protocol=2))


WRITERS = [as_archive, as_old_archive, as_pickle, as_old_pickle]


@pytest.mark.parametrize("inside", [False, True], ids=["instead of a checkpoint", "inside a checkpoint"])
@pytest.mark.parametrize("write", WRITERS)
def test_a_pickle_that_runs_code_leaves_no_trace(
    write: Callable[[Any, Path], None], inside: bool, trace: Any, tmp_path: Path, tensors: dict[str, Tensor]
) -> None:
    path = tmp_path / "dfa_s42.pt"
    write({"state_dict": tensors, "config": {"notes": trace}} if inside else trace, path)
    with pytest.raises(AuditError) as raised:
        load_checkpoint(path)
    assert not trace.path.exists()
    text = str(raised.value)
    assert text.startswith(f"{path}: refused to load ")
    assert "posix.mkdir" in text or "nt.mkdir" in text
    assert "--fa-unsafe-load" in text


def test_the_trap_of_these_tests_works(trace: Any, save: Save) -> None:
    """With the file trusted the code does run: else the tests above would prove nothing."""
    load_checkpoint(save(notes=trace), unsafe=True)
    assert trace.path.exists()


class Config:
    """A class of the user's own in a checkpoint."""


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (argparse.Namespace(lr=0.1), "argparse.Namespace"),
        (Path("runs"), "pathlib"),
        (np.float64(0.5), r"numpy\._?core\.multiarray\.scalar"),
        (Config(), r"test_checkpoints\.Config"),
        (nn.Linear(2, 2), r"torch\.nn\.modules\.linear\.Linear"),
    ],
)
def test_the_refused_class_is_named(value: Any, named: str, save: Save) -> None:
    path = save(config=value)
    with pytest.raises(AuditError, match=rf"refused to load [^:]*{named}[^:]*: only tensors and plain .*--fa-unsafe-load"):
        load_checkpoint(path)


@pytest.mark.parametrize("wrap", [lambda net: net, lambda net: {"model": net}], ids=["bare", "under a key"])
def test_a_whole_network_is_read_if_it_is_trusted(wrap: Callable[[nn.Module], Any], save: Save) -> None:
    path = save(content=wrap(network()))
    with pytest.raises(AuditError, match=r"refused to load .*ResidualMLP"):
        load_checkpoint(path)
    assert same(load_checkpoint(path, unsafe=True).state_dict, network().state_dict())


def test_every_refused_class_is_named(save: Save) -> None:
    path = save(config=Config(), args=argparse.Namespace())
    with pytest.raises(AuditError, match=rf"refused to load argparse.Namespace, {__name__}.Config: only tensors"):
        load_checkpoint(path)


def test_trusted_code_that_is_not_here_is_named(save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(config=Config())
    monkeypatch.delattr(f"{__name__}.Config")
    with pytest.raises(AuditError, match=r"needs code that is not here.*Config.*PYTHONPATH"):
        load_checkpoint(path, unsafe=True)


def test_a_plain_pickle_says_what_it_would_import(tmp_path: Path) -> None:
    """Also where the name of a module stands in the pickle once and is used twice."""
    as_pickle([argparse.Namespace(), argparse.ArgumentParser], tmp_path / "net.pt")
    with pytest.raises(AuditError, match=r"a plain pickle that imports argparse.Namespace, argparse.ArgumentParser: only"):
        load_checkpoint(tmp_path / "net.pt")


def test_torch_may_warn_of_a_foreign_pickle_but_the_error_is_ours(tmp_path: Path) -> None:
    path = tmp_path / "net.pt"
    as_pickle({"weights": [1, 2]}, path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(AuditError, match=r"refused to load a plain pickle: "):
            load_checkpoint(path)


# --- what is no checkpoint -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"method,acc\ndfa,0.31\n", "this is a text file"),
        ("Γ = 0.1, λ = 1e-2 – notes".encode() * 40, "this is a text file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n", "Git LFS pointer; .*git lfs pull"),
        (bytes(range(256)), "truncated, damaged, or of another format"),
    ],
)
def test_another_file_is_an_error_that_says_what_it_is(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "net.pt"
    path.write_bytes(content)
    with pytest.raises(AuditError, match=rf"net\.pt: .*{message}"):
        load_checkpoint(path)


def test_a_missing_file_and_a_directory_are_errors_that_say_so(tmp_path: Path) -> None:
    with pytest.raises(AuditError, match=r"nowhere\.pt: no such file"):
        load_checkpoint(tmp_path / "nowhere.pt")
    with pytest.raises(AuditError, match="is a directory"):
        load_checkpoint(tmp_path)


def test_other_archives_are_told_apart(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", x=np.zeros(3))
    (tmp_path / "data.npz").rename(tmp_path / "data.pt")
    with pytest.raises(AuditError, match=r"not one that torch.save wrote; it holds x.npy"):
        load_checkpoint(tmp_path / "data.pt")
    with zipfile.ZipFile(tmp_path / "scripted.pt", "w") as archive:
        archive.writestr("scripted/data.pkl", b"")
        archive.writestr("scripted/constants.pkl", b"")
    with pytest.raises(AuditError, match="TorchScript archive; save the state_dict"):
        load_checkpoint(tmp_path / "scripted.pt")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1, 2, 3], "holds a list, not a state_dict"),
        (torch.zeros(3), "holds a Tensor, not a state_dict"),
        ({}, "no tensors found; expected a state_dict, or one under state_dict, model_state_dict, model, net, .*found nothing"),
        ({"epoch": 3, "weights": {"a": torch.zeros(3)}}, "no tensors found.*found 'epoch', 'weights'"),
        (OrderedDict(model=OrderedDict()), "no tensors found.*found 'model'"),
    ],
)
def test_a_file_without_a_state_dict_is_an_error_that_says_what_it_holds(content: Any, message: str, save: Save) -> None:
    with pytest.raises(AuditError, match=message):
        load_checkpoint(save(content=content))


# --- damage ----------------------------------------------------------------------------------------------------------


def damaged_copies(whole: bytes) -> list[bytes]:
    """The file with one bit flipped, at 400 places spread over it."""
    generator = random.Random(0)
    places = sorted(generator.sample(range(len(whole)), min(400, len(whole))))
    return [whole[:at] + bytes([whole[at] ^ (1 << generator.randrange(8))]) + whole[at + 1 :] for at in places]


def test_a_flipped_bit_is_never_loaded_as_another_weight(tmp_path: Path) -> None:
    """torch itself does not compare the checksums in its own archives: most of these files it loads without a word."""
    tensors = {"embed.weight": torch.randn(12, 20), "embed.bias": torch.randn(12)}
    path = tmp_path / "net.pt"
    torch.save({"state_dict": tensors, "config": {"method": "dfa"}}, path)
    whole, refused = path.read_bytes(), 0
    for copy in damaged_copies(whole):
        path.write_bytes(copy)
        try:
            checkpoint = load_checkpoint(path)
        except AuditError as error:
            refused += 1
            assert str(path) in str(error)
        else:  # the bit was in a field that neither torch nor a zip reader looks at
            assert same(checkpoint.state_dict, tensors)
            assert checkpoint.config == {"method": "dfa"}
    assert refused > 200


def test_the_damaged_tensor_is_named(tmp_path: Path) -> None:
    path = tmp_path / "net.pt"
    torch.save({"weight": torch.ones(1000)}, path)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(torch.ones(1000).numpy().tobytes(), torch.ones(999).numpy().tobytes() + b"\0\0\0\0"))
    assert torch.load(path)["weight"][-1] == 0  # torch does not see it
    with pytest.raises(AuditError, match=r"damaged: the checksum of net/data/0 is wrong; copy the file again"):
        load_checkpoint(path)


def test_archives_without_checksums_are_read(tmp_path: Path) -> None:
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"weight": torch.ones(3)}, tmp_path / "net.pt")
    finally:
        torch.serialization.set_crc32_options(True)
    assert torch.equal(load_checkpoint(tmp_path / "net.pt").state_dict["weight"], torch.ones(3))


@pytest.mark.parametrize("write", [as_archive, as_old_archive])
def test_a_truncated_file_is_an_error_wherever_it_ends(write: Callable[[Any, Path], None], tmp_path: Path) -> None:
    path = tmp_path / "net.pt"
    write({"weight": torch.randn(40)}, path)
    whole = path.read_bytes()
    for length in [*range(1, len(whole), 37), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(AuditError, match=r"truncated|text file"):
            load_checkpoint(path)


def test_a_damaged_safetensors_header_and_a_truncated_one_are_errors(tmp_path: Path, tensors: dict[str, Tensor]) -> None:
    path = tmp_path / "net.safetensors"
    save_file(tensors, path)
    whole = path.read_bytes()
    for content in (whole[:-1], whole[:5], b"\xff" * 8 + whole[8:], whole[:9] + b"!" + whole[10:]):
        path.write_bytes(content)
        with pytest.raises(AuditError, match=r"net.safetensors: not a readable safetensors file: "):
            load_checkpoint(path)
    path.write_text("just notes, no tensors at all")
    with pytest.raises(AuditError, match="this is a text file"):
        load_checkpoint(path)
