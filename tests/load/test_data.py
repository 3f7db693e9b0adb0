"""Evaluation data: whole splits decoded into tensors, in order, normalised as in training."""

from __future__ import annotations

import gzip
import pickle
import struct
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from pytest_fadiag.judge.errors import AuditError
from pytest_fadiag.judge.records import NormalisedBy
from pytest_fadiag.load.data import USUAL, DataSet, as_data_set, load_data

Module = Callable[[str], str]
X, Y = torch.arange(40, dtype=torch.float32).view(10, 4), torch.arange(10) % 3
GENERATOR = np.random.default_rng(0)
IMAGES, LABELS = GENERATOR.integers(0, 256, (12, 28, 28), np.uint8), np.arange(12, dtype=np.uint8)
CIFAR = GENERATOR.integers(0, 256, (9, 3072), np.uint8)


def first(data: DataSet, **options: Any) -> Any:
    return next(iter(replace(data, **options)))[0]


# --- Fashion-MNIST ----------------------------------------------------------------------------


def idx(array: np.ndarray) -> bytes:
    head = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return head + array.tobytes()


def write_fashion(root: Path, zipped: bool = False, images: bytes | None = None) -> None:
    root.mkdir(parents=True, exist_ok=True)
    parts = {"images-idx3": images or idx(IMAGES), "labels-idx1": idx(LABELS)}
    for name, content in ((f"t10k-{part}-ubyte", held) for part, held in parts.items()):
        held = gzip.compress(content) if zipped else content
        (root / f"{name}{'.gz' if zipped else ''}").write_bytes(held)


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("below", ["", "FashionMNIST/raw", "raw"])
def test_fashion_mnist(below: str, zipped: bool, tmp_path: Path) -> None:
    write_fashion(tmp_path / below, zipped)
    data = load_data(f"fashion-mnist:{tmp_path}")
    assert torch.equal(data.x, torch.from_numpy(IMAGES).unsqueeze(1))
    assert data.y.tolist() == LABELS.tolist() and data.y.dtype == torch.int64
    expected = (IMAGES[:, None] / 255 - 0.2860) / 0.3530
    assert np.allclose(first(data).numpy(), expected, 0, 1e-6)


@pytest.mark.parametrize(
    "content",
    [
        *(idx(IMAGES)[:-1], idx(IMAGES) + b"\0", idx(IMAGES)[:9], b"images!", b"\0\0\x08"),
        *(bytes([0, 0, 13, 3]) + idx(IMAGES)[4:], b"\0\0\x08\x03" + b"\xff" * 12),
    ],
)
def test_a_damaged_idx_file_is_an_error(content: bytes, tmp_path: Path) -> None:
    write_fashion(tmp_path, images=content)
    with pytest.raises(AuditError, match="t10k-images-idx3-ubyte: not an idx file"):
        load_data(f"fashion-mnist:{tmp_path}")


def test_a_gzip_file_that_declares_gigabytes_is_read_up_to_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_fadiag.load.readers.SMALL", 1 << 20)
    write_fashion(tmp_path, zipped=True)
    path = tmp_path / "t10k-images-idx3-ubyte.gz"
    whole = b"\0\0\x08\x01" + struct.pack(">I", 64 << 20) + bytes(64 << 20)
    path.write_bytes(gzip.compress(whole))
    with pytest.raises(AuditError, match="not an idx file"):
        load_data(f"fashion-mnist:{tmp_path}")


# --- CIFAR-10 ---------------------------------------------------------------------------------


def old_pickle(data: np.ndarray, labels: list[int]) -> bytes:
    """A batch as Python 2 wrote it, opcode by opcode: byte strings, numpy.core by its old name."""

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value

    def number(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n"
        + number(0) + b"\x85" + text(b"b") + b"tR"
        + b"(" + number(1) + number(data.shape[0]) + number(data.shape[1]) + b"\x86"
        + b"cnumpy\ndtype\n(" + text(b"u1") + number(0) + number(1) + b"tR"
        + b"(" + number(3) + text(b"|") + b"NNN" + number(-1) + number(-1) + number(0) + b"tb"
        + b"\x89T" + struct.pack("<I", data.size) + data.tobytes() + b"tb"
    )  # fmt: skip
    listed = b"](" + b"".join(map(number, labels)) + b"e"
    return b"\x80\x02}(" + text(b"data") + array + text(b"labels") + listed + b"u."


def write_cifar(root: Path, content: bytes, name: str = "test_batch") -> Path:
    path = root / "cifar-10-batches-py" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return path


BATCHES = [
    old_pickle(CIFAR, list(range(9))),
    *(pickle.dumps({"data": CIFAR, "labels": list(range(9))}, protocol) for protocol in (2, 4)),
]


@pytest.mark.parametrize("content", BATCHES, ids=["Python 2", "2", "4"])
@pytest.mark.parametrize("below", ["", "cifar-10-batches-py"])
def test_cifar10(content: bytes, below: str, tmp_path: Path) -> None:
    assert np.array_equal(pickle.loads(content, encoding="latin1")["data"], CIFAR)
    write_cifar(tmp_path, content)
    data = load_data(f"cifar10:{tmp_path / below}")
    assert torch.equal(data.x, torch.from_numpy(CIFAR).view(9, 3, 32, 32))
    assert data.y.tolist() == list(range(9))
    mean, std = (np.array(values)[:, None, None] for values in USUAL["cifar10"])
    expected = (CIFAR.reshape(9, 3, 32, 32) / 255 - mean) / std
    assert np.allclose(first(data).numpy(), expected, 0, 1e-5)


def test_the_training_split_is_all_five_batches(tmp_path: Path) -> None:
    for number in range(1, 6):
        content = pickle.dumps({"data": CIFAR, "labels": [number] * 9})
        write_cifar(tmp_path, content, f"data_batch_{number}")
    data = load_data(f"cifar10:{tmp_path}", "train")
    assert data.y.tolist() == [number for number in range(1, 6) for _ in range(9)]


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_batch_that_runs_code_leaves_no_trace(protocol: int, trace: Any, tmp_path: Path) -> None:
    content = {"data": CIFAR, "labels": [1], "meta": trace}
    write_cifar(tmp_path, pickle.dumps(content, protocol))
    with pytest.raises(AuditError, match=r"refuses to load \w+.mkdir"):
        load_data(f"cifar10:{tmp_path}")
    assert not trace.path.exists()


def test_other_batches_are_errors_also_where_they_declare_much(tmp_path: Path) -> None:
    huge = b"\x80\x02cnumpy\nndarray\n(J\x00\x00\x00\x40J\x00\x00\x00\x40\x86tR."  # 2^60 numbers
    for content in (huge, pickle.dumps({"data": CIFAR, "fine_labels": [1]}), BATCHES[0][:-9], b""):
        write_cifar(tmp_path, content)
        with pytest.raises(AuditError, match="not a batch of CIFAR-10"):
            load_data(f"cifar10:{tmp_path}")


# --- folders of images ------------------------------------------------------------------------


def write_images(root: Path, mode: str = "RGB", each: int = 4) -> None:
    """Images whose first pixel tells class and number."""
    for label in range(3):
        place = root / f"class{label}"
        place.mkdir(parents=True, exist_ok=True)
        for number in range(each):
            value = 40 * label + number
            colour = (value, 0, 255) if mode == "RGB" else value
            Image.new(mode, (6, 5), colour).save(place / f"{number}.png")


@pytest.mark.parametrize(("mode", "channels"), [("RGB", 3), ("L", 1)])
def test_a_tree_of_images_in_a_fixed_mixed_order(mode: str, channels: int, tmp_path: Path) -> None:
    write_images(tmp_path / "train", mode, each=9)
    write_images(tmp_path / "test", mode)
    state = torch.get_rng_state()
    data, again = load_data(f"folder:{tmp_path}"), load_data(f"folder:{tmp_path}")
    assert torch.equal(torch.get_rng_state(), state) and torch.equal(data.x, again.x)
    assert data.x.shape == (12, channels, 5, 6) and data.x.dtype == torch.uint8
    assert [int(x[0, 0, 0]) // 40 for x in data.x] == data.y.tolist() != sorted(data.y.tolist())
    assert "shuffled" in data.note
    assert (data.mean, data.std) == (USUAL["folder"] if channels == 3 else (None, None))
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0)).tolist()
    assert data.y.tolist() == [index // 4 for index in order]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"no image", "2.png: not a readable image"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 6 5\nshowpage\n", "cannot identify"),
        (Image.new("RGB", (7, 5)), r"expected images of one size, got .*\(7, 5\)"),
    ],
    ids=["text", "EPS, which would reach Ghostscript", "another size"],
)
def test_an_image_that_does_not_fit_is_named(content: Any, said: str, tmp_path: Path) -> None:
    write_images(tmp_path)
    path = tmp_path / "class1" / "2.png"
    content.save(path) if isinstance(content, Image.Image) else path.write_bytes(content)
    with pytest.raises(AuditError, match=said):
        load_data(f"folder:{tmp_path}")


def test_images_larger_than_their_files_explain_are_not_decoded(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for number in range(3):
        Image.new("1", (8_000, 8_000)).save(tmp_path / "a" / f"{number}.png")
    with pytest.raises(AuditError, match="the folder declares 576,000,000 bytes"):
        load_data(f"folder:{tmp_path}")


# --- files of arrays --------------------------------------------------------------------------


FILES: dict[str, Callable[..., Any]] = {
    "d.npz": np.savez,
    "d.pt": lambda path, **held: torch.save(held, path),
    "d.pth": lambda path, **held: torch.save(held, path),
    "d.safetensors": lambda path, **held: save_file(held, path),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_with_x_and_y_or_tensors_by_name(name: str, tmp_path: Path) -> None:
    FILES[name](tmp_path / name, x=X, y=Y[:, None])
    data = load_data(name, base=tmp_path)
    assert torch.equal(data.x, X) and torch.equal(data.y, Y) and data.name == name
    ids = X.long()
    FILES[name](tmp_path / name, input_ids=ids, attention_mask=ids % 2, labels=Y)
    ((x, y),) = load_data(name, base=tmp_path)
    assert set(x) == {"input_ids", "attention_mask"} and torch.equal(y, Y)
    FILES[name](tmp_path / name, images=X, z=Y)
    with pytest.raises(AuditError, match=rf"{name}: expected a pair \(x, y\), or tensors by name"):
        load_data(name, base=tmp_path)
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:99])
    with pytest.raises(AuditError, match=name):
        load_data(name, base=tmp_path)


@pytest.mark.parametrize(
    ("x", "y", "said"),
    [
        (X, torch.zeros(10, 3, 3), r"labels': '\(10, 3, 3\) float32"),
        (X, Y[:7], r"row of tokens per sample.*'labels': '\(7,\)"),
        (X[:0], Y[:0], "expected one class index, real target or row of tokens per sample"),
        (np.array(["cat"] * 10), Y, "expected tensors of numbers"),
        (X, np.array(["cat"] * 10), "expected tensors of numbers"),
    ],
)
def test_arrays_that_are_not_data_are_an_error(x: Any, y: Any, said: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=x, y=y)
    with pytest.raises(AuditError, match=rf"d\.npz.*{said}"):
        load_data(str(tmp_path / "d.npz"))


def test_nothing_in_a_file_of_arrays_is_run_or_blown_up(
    trace: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_fadiag.load.checkpoint.SMALL", 1 << 20)
    path = tmp_path / "d.npz"
    np.savez(path, x=np.array([trace], dtype=object), y=np.arange(1))
    with pytest.raises(AuditError, match="Object arrays cannot be loaded"):
        load_data(str(path))
    torch.save({"x": trace, "y": Y}, tmp_path / "d.pt")
    with pytest.raises(AuditError, match="refused to load"):
        load_data(str(tmp_path / "d.pt"))
    assert not trace.path.exists()
    torch.save({"x": torch.zeros(1).expand(10**5, 10**5), "y": Y}, tmp_path / "d.pt")
    with pytest.raises(AuditError, match="x declares 40,000,000,000 bytes"):
        load_data(str(tmp_path / "d.pt"))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", bytes(8 << 20))
    with pytest.raises(AuditError, match="declares 8,388,608 bytes"):
        load_data(str(path))


@pytest.mark.parametrize("name", FILES)
def test_real_targets_tokens_and_groups(name: str, tmp_path: Path) -> None:
    for y in (X[:, 0].clone(), X[:, :2].clone()):
        FILES[name](tmp_path / name, x=X, y=y)
        assert torch.equal(load_data(name, base=tmp_path).y, y)
    ids, tokens = (X * 3).to(torch.uint8), torch.where(X > 5, X, -100).to(torch.int32)
    FILES[name](tmp_path / name, x=ids, y=tokens, groups=Y)
    data = load_data(name, base=tmp_path).for_checkpoint({"mean": 0.5, "std": 0.5})
    (x, y), _ = replace(data, size=6)
    assert torch.equal(x, 3 * X[:6].long()), "bytes are ids where the targets are tokens"
    assert y.dtype == torch.long and torch.equal(y, tokens[:6].long())
    assert torch.equal(data.groups, Y)
    plain = DataSet(ids, tokens.long(), name)
    assert data.digest != plain.digest != DataSet(ids, tokens.long() + 1, name).digest
    with pytest.raises(AuditError, match="one mean and std per channel"):
        plain.for_checkpoint({}, "0.5/0.5")
    FILES[name](tmp_path / name, input_ids=ids, labels=tokens, groups=Y)
    named = load_data(name, base=tmp_path)
    assert set(named.x) == {"input_ids"} and torch.equal(named.groups, Y)


# --- factories --------------------------------------------------------------------------------

PREAMBLE = """
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset
from pytest_fadiag.load.data import DataSet
X, Y = torch.arange(40, dtype=torch.float32).view(10, 4), torch.arange(10) % 3
class Pairs(Dataset):
    def __len__(self): return 10
    def __getitem__(self, index): return X[index].numpy(), int(Y[index])
class Named(Pairs):
    def __getitem__(self, index):
        return {'ids': X[index].numpy(), 'mask': -X[index], 'label': int(Y[index])}
"""


@pytest.mark.parametrize(
    "made",
    [
        *(
            "X, Y",
            "[X.numpy(), Y.numpy()]",
            "DataSet(X, Y, 'mine')",
            "TensorDataset(X, Y)",
            "Pairs()",
        ),
        *("DataLoader(TensorDataset(X, Y), 3)", "[(X[:3], Y[:3]), (X[3:], Y[3:])]"),
        "((X[i:i + 3].numpy(), Y[i:i + 3].numpy()) for i in range(0, 10, 3))",
    ],
)
def test_a_factory_may_return_tensors_a_dataset_or_batches(made: str, module: Module) -> None:
    name = module(f"{PREAMBLE}\ndef make(size=3, config=None): return {made}")
    state = torch.get_rng_state()
    data = load_data(f"{name}:make")
    assert torch.equal(data.x, X) and torch.equal(data.y, Y)
    assert data.name == ("mine" if "DataSet(" in made and "Tensor" not in made else f"{name}:make")
    assert torch.equal(torch.get_rng_state(), state) or "DataLoader" in made


@pytest.mark.parametrize(
    "made",
    [
        *("{'ids': X, 'mask': -X, 'labels': Y}", "({'ids': X, 'mask': -X}, Y)", "Named()"),
        "[{'ids': X[i:i + 3], 'mask': -X[i:i + 3], 'label': Y[i:i + 3]} for i in (0, 3, 6, 9)]",
    ],
)
def test_a_factory_may_return_tensors_by_name(made: str, module: Module) -> None:
    data = load_data(f"{module(PREAMBLE + 'def make(): return ' + made)}:make")
    (x, y), *rest = replace(data, size=4)
    assert list(x) == ["ids", "mask"]
    assert torch.equal(x["ids"], X[:4]) and torch.equal(x["mask"], -X[:4]) and torch.equal(y, Y[:4])
    assert [len(labels) for _, labels in rest] == [4, 2]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return 3", "got int"),
        ("return None", "got NoneType"),
        ("return X", "got Tensor|got DataLoader"),
        ("return []", "got list"),
        ("return {'ids': X}", "tensors by name with labels; got ids"),
        ("return [(X, Y, Y)]", "expected a pair"),
        ("return [(X, Y), (X[:, :2], Y)]", "Sizes of tensors must match"),
        ("return [{'a': X, 'y': Y}, {'b': X, 'y': Y}]", "KeyError"),
        ("return (1 / 0 for _ in range(3))", "ZeroDivisionError"),
        ("raise OSError('disk is gone')", "raised OSError: disk is gone"),
        ("return X, Y.view(5, 2)", "one class index.* per sample"),
        ("return {'x': X, 'y': Y, 'groups': Y[:4]}", "one whole number as its group"),
        (
            "return {'x': X, 'y': Y, 'groups': X[:, 0]}",
            "one whole number as its group",
        ),
        ("return [('cat', 1)]", "expected tensors of numbers"),
    ],
)
def test_a_factory_that_gives_no_data_says_why(body: str, said: str, module: Module) -> None:
    with pytest.raises(AuditError, match=said):
        load_data(f"{module(f'{PREAMBLE}def make(): {body}')}:make")


def test_what_a_fixture_gives_is_data_and_is_told_by_its_content() -> None:
    given = [(X.numpy(), Y.numpy()), (X, Y), {"ids": X, "labels": Y}, ({"ids": X}, Y)]
    digests = [as_data_set(value, "the fixture").digest for value in given]
    assert digests[0] == digests[1] != digests[2] == digests[3]
    assert as_data_set((X + 1, Y), "the fixture").digest not in digests
    with pytest.raises(AuditError, match="the fixture: expected a pair"):
        as_data_set([X, Y, Y], "the fixture")


# --- normalisation ----------------------------------------------------------------------------

PIXELS = torch.from_numpy(CIFAR).view(9, 3, 32, 32)
USUALLY = DataSet(PIXELS, torch.arange(9), "cifar10", *USUAL["cifar10"], usual=True)
BYTES = DataSet(PIXELS, torch.arange(9), "x.npz")
FRACTIONS = DataSet(PIXELS.float(), torch.arange(9), "x.npz")
OWN = DataSet(PIXELS.float(), torch.arange(9), "mine", (0.1,), (0.2,))
CONFIG = {"mean": [0.5], "std": [0.25]}
HALF = ((0.5,), (0.25,))


@pytest.mark.parametrize(
    ("data", "config", "option", "by", "constants"),
    [
        (USUALLY, {}, None, "usual", USUAL["cifar10"]),
        (USUALLY, CONFIG, None, "checkpoint", HALF),
        (USUALLY, {"mean": torch.tensor(0.5), "std": (0.25,)}, None, "checkpoint", HALF),
        (USUALLY, {"normalize": CONFIG}, None, "checkpoint", HALF),
        (USUALLY, {"std": 0.02}, None, "usual", USUAL["cifar10"]),
        (USUALLY, {"normalize": False}, None, "checkpoint", None),
        (USUALLY, {"normalize": "none"}, None, "checkpoint", None),
        (USUALLY, {"normalize": torch.ones(2)}, None, "usual", USUAL["cifar10"]),
        (USUALLY, {"normalize": True, "mean": None}, None, "usual", USUAL["cifar10"]),
        (USUALLY, CONFIG, "none", "nothing", None),
        (USUALLY, CONFIG, "data", "usual", USUAL["cifar10"]),
        (USUALLY, CONFIG, "1/2,3,4", "option", ((1.0,), (2.0, 3.0, 4.0))),
        (BYTES, {}, None, "nothing", None),
        (BYTES, CONFIG, None, "checkpoint", HALF),
        (FRACTIONS, CONFIG, None, "nothing", None),
        (FRACTIONS, {}, "0.5/0.25", "option", HALF),
        (OWN, CONFIG, None, "data", ((0.1,), (0.2,))),
        (OWN, CONFIG, "none", "nothing", None),
    ],
)
def test_the_option_decides_then_the_checkpoint_for_images_then_the_data(
    data: DataSet, config: dict[str, Any], option: str | None, by: str, constants: Any
) -> None:
    chosen = data.for_checkpoint(config, option)
    stated = chosen.inputs
    assert stated is not None and stated.by is NormalisedBy(by) and stated.option == option
    assert (chosen.mean, chosen.std) == (stated.mean, stated.std) == (constants or (None, None))
    inner = config.get("normalize")
    names = {*config, *(inner if isinstance(inner, dict) else ())} if by != "usual" else set()
    told = bool({"mean", "std"} & names) or config is CONFIG
    assert (stated.checkpoint_mean is not None) == told
    mean, std = (np.array(values)[:, None, None] for values in constants or ((0.0,), (1.0,)))
    pixels = PIXELS.double().numpy() / (255 if data.x.dtype == torch.uint8 else 1)
    assert np.allclose(first(chosen).numpy(), (pixels - mean) / std, 1e-5, 1e-5)


@pytest.mark.parametrize(
    ("data", "config", "option", "said"),
    [
        (BYTES, {}, "data", "--fa-normalize=data: x.npz has no usual constants; give MEAN/STD"),
        (BYTES, {}, "usual", "expected data, none, or MEAN/STD"),
        (BYTES, {"mean": [0.5, 0.5], "std": 0.5}, None, "one mean and std per channel"),
        (BYTES, {"mean": 0.5, "std": 0.0}, None, "positive stds"),
        (
            BYTES,
            {"mean": "high", "std": 1.0},
            None,
            "the checkpoint's mean and std: Expected `float`",
        ),
        (DataSet(X.long(), Y, "ids"), {}, "1/2", "one mean and std per channel"),
        (DataSet({"ids": X}, Y, "named"), {}, "1/2", "one mean and std per channel"),
    ],
)
def test_constants_that_cannot_be_applied_are_an_error(
    data: DataSet, config: dict[str, Any], option: str | None, said: str
) -> None:
    with pytest.raises(AuditError, match=said):
        data.for_checkpoint(config, option)


def test_batches_hold_every_sample_once_in_order_and_flat_if_asked() -> None:
    batches = replace(USUALLY.for_checkpoint({}), size=4, flat=True)
    parts = list(batches)
    assert len(parts) == 3
    assert torch.equal(torch.cat([x for x, _ in parts]), first(USUALLY, size=9).flatten(1))
    assert torch.equal(torch.cat([y for _, y in parts]), batches.y)
