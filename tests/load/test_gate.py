"""What is refused before it is read, or before it is computed with: pipes, devices, and small
files that would eat the machine.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from support import network

from pytest_fadiag import Recorder, diagnose
from pytest_fadiag.judge.errors import AuditError
from pytest_fadiag.load import checkpoint, logs
from pytest_fadiag.load.checkpoint import load_checkpoint
from pytest_fadiag.load.data import load_data
from pytest_fadiag.load.logs import read_log
from pytest_fadiag.load.names import file_digest
from pytest_fadiag.load.traces import is_trace, read_trace

Read = Callable[[Path], Any]


def shared(depth: int) -> list[Any]:
    """Few lists, which are 2^depth numbers when they are written out."""
    value: list[Any] = [1]
    for _ in range(depth):
        value = [value, value]
    return value


def data(path: Path) -> Any:
    return load_data(str(path))


READERS: dict[str, Read] = {
    "net_s1.pt": load_checkpoint,
    "net_s1.safetensors": load_checkpoint,
    "log_s1.jsonl": read_log,
    "log_s1.csv": read_log,
    "events.out.tfevents.1": read_log,
    "x.npz": data,
    "trace.npz": read_trace,
    "any": file_digest,
}


@pytest.mark.parametrize("name", READERS)
def test_a_pipe_a_device_and_a_folder_are_not_opened(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    for make in (os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")):
        make(path)
        with pytest.raises(AuditError, match=f"{name}: expected a regular file"):
            READERS[name](path)
        path.rmdir() if path.is_dir() else path.unlink()


def test_a_pipe_among_images_is_not_opened_and_none_is_a_trace(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    os.mkfifo(tmp_path / "a" / "1.png")
    with pytest.raises(AuditError, match=r"1\.png: expected a regular file"):
        load_data(f"folder:{tmp_path}")
    os.mkfifo(tmp_path / "x.safetensors")
    assert not is_trace(tmp_path / "x.safetensors")


def test_a_file_larger_than_any_network_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "net.pt").open("wb") as file:
        file.truncate(17 << 30)  # no byte of it is on the disk
    for read in (load_checkpoint, file_digest):
        with pytest.raises(AuditError, match=r"net\.pt: larger than 16,384 MB"):
            read(tmp_path / "net.pt")


@pytest.mark.parametrize("is_archive", [True, False])
def test_a_pickle_of_marks_is_not_run_to_its_end(
    is_archive: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = b"\x80\x02" + b"(" * (5 << 20) + b"."
    monkeypatch.setattr(checkpoint, "MOST_ENTRIES", 1_000)
    path = tmp_path / "net.pt"
    if is_archive:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("net/data.pkl", marks)
    else:
        path.write_bytes(marks)
    expected = "its pickle is larger than 4 MB" if is_archive else "more than 1,000 entries"
    with pytest.raises(AuditError, match=expected):
        load_checkpoint(path)


def test_a_recorder_goes_on_with_no_device() -> None:
    with pytest.raises(AuditError, match=r"cannot go on with this log: .*expected a regular file"):
        Recorder("/dev/zero", [])


def test_a_header_of_very_many_names_is_not_read(tmp_path: Path) -> None:
    header = b"{" + b" " * (5 << 20) + b"}"
    (tmp_path / "net.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(AuditError, match="its header is larger than 4 MB"):
        load_checkpoint(tmp_path / "net.safetensors")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (shared(40), "more than 1,000,000 entries"),
        ([0] * 1_000_001, "more than 1,000,000 entries"),
        (torch.zeros(1).expand(10**9), "expected one number a channel, got 4,000,000,000 bytes"),
    ],
    ids=["shared", "long", "expanded"],
)
def test_values_that_unfold_are_refused(value: Any, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "net_s1.pt"
    torch.save({"state_dict": network().state_dict(), "config": {"mean": value, "std": 1}}, path)
    images = load_data_of(np.zeros((3, 1, 2, 2), np.uint8), tmp_path)
    with pytest.raises(AuditError, match=expected):
        images.for_checkpoint(load_checkpoint(path).config)


def test_lists_in_lists_are_read_to_a_depth(tmp_path: Path) -> None:
    value: list[Any] = []
    for _ in range(150):
        value = [value]
    torch.save({"state_dict": network().state_dict(), "config": {"mean": value}}, tmp_path / "a.pt")
    with pytest.raises(AuditError, match="more than 100 levels"):
        load_checkpoint(tmp_path / "a.pt")


@pytest.mark.parametrize("spec", ["folder:net.pt", "~nobody-of-this-name/x.npz"])
def test_a_place_without_data_is_refused(
    spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.pt").write_bytes(b"")
    with pytest.raises(AuditError, match=r"expected one sub-folder|no such file or folder"):
        load_data(spec)


def test_a_label_that_is_an_id_is_refused_before_classes_are_counted() -> None:
    y = torch.tensor([0, 10**12]).repeat(150)
    with pytest.raises(AuditError, match="a label is 1000000000000; there are at most"):
        diagnose(network(), torch.randn(300, 20), y)


def load_data_of(x: np.ndarray[Any, Any], folder: Path) -> Any:
    np.savez(folder / "images.npz", x=x, y=np.arange(len(x)))
    return load_data(str(folder / "images.npz"))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"x": shared(40), "y": [0, 1]}, "more than 1,000,000 entries"),
        ((torch.zeros(1).expand(10**6, 10**4), torch.zeros(10**6)), r"\[0\] declares 40,000,000"),
    ],
    ids=["lists", "a tuple of expanded tensors"],
)
def test_data_that_unfold_are_refused(content: Any, expected: str, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "d.pt")
    with pytest.raises(AuditError, match=expected):
        load_data(str(tmp_path / "d.pt"))


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.jsonl", b"\n" * 1_000_001, "1,000,001 lines; at most"),
        ("a.csv", b"\n" * 1_000_001, "1,000,001 lines; at most"),
        ("a.csv", b"epoch,acc\n" + b"1,0.5\n" * 200_001, "200,002 rows; at most"),
        ("a.json", b'{"log": [' + b"{}," * 200_001 + b"{}]}", "200,003 rows; at most"),
        ("a.json", b"[" + b"[]," * 3_000_001 + b"[]]", "entries; at most 6,000,000"),
        ("a.json", b" " * (65 << 20), "larger than 64 MB"),
    ],
)
def test_a_log_of_nothing_is_not_parsed(
    name: str, content: bytes, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "parse_json", None)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(AuditError, match=expected):
        read_log(tmp_path / name)


def test_a_flipped_bit_in_an_archive_is_found(tmp_path: Path) -> None:
    torch.save(network().state_dict(), tmp_path / "net.pt")
    np.savez(tmp_path / "x.npz", x=np.ones((50, 50)), y=np.zeros(50))
    for name, read in (("net.pt", load_checkpoint), ("x.npz", data)):
        content = bytearray((tmp_path / name).read_bytes())
        content[len(content) // 2] ^= 1
        (tmp_path / name).write_bytes(content)
        with pytest.raises(AuditError, match=r"not a readable .*(checksum|CRC-32)"):
            read(tmp_path / name)


# --- what is digested is what is read ---------------------------------------------------------


def test_other_bytes_than_those_of_the_digest_are_refused(tmp_path: Path) -> None:
    torch.save(network().state_dict(), tmp_path / "net.pt")
    np.savez(tmp_path / "x.npz", x=np.zeros((9, 2)), y=np.zeros(9))
    for label in "ab":
        (tmp_path / label).mkdir()
        Image.new("L", (2, 2), 9).save(tmp_path / label / "1.png")
    spec = f"folder:{tmp_path}"
    digest = file_digest(tmp_path / "net.pt")
    assert load_checkpoint(tmp_path / "net.pt", digest=digest).state_dict
    assert load_data(str(tmp_path / "x.npz"), digest=file_digest(tmp_path / "x.npz")).name
    for read in (
        lambda: load_checkpoint(tmp_path / "net.pt", digest="0" * 64),
        lambda: load_data(str(tmp_path / "x.npz"), digest="0" * 64),
        lambda: load_data(spec, digest="0" * 64),
        lambda: read_trace(tmp_path / "x.npz", "0" * 64),
    ):
        with pytest.raises(AuditError, match="changed while it was measured; run again"):
            read()
