"""Evaluation data: whole splits decoded once into tensors, in their own order, normalised as the network was trained."""

from __future__ import annotations

import gzip
import pickle
import struct
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from support import network
from torch import Tensor

from pytest_fadiag import AuditError
from pytest_fadiag.judge.inputs import Normalisation
from pytest_fadiag.load import folder
from pytest_fadiag.load.data import DataSet, as_data_set
from pytest_fadiag.load.networks import wants_flat
from pytest_fadiag.load.readers import CIFAR10, FASHION_MNIST, IMAGENET
from pytest_fadiag.load.sources import DataSpec
from pytest_fadiag.load.vision import import_torchvision
from pytest_fadiag.workshop import load_data


@pytest.fixture
def generator() -> np.random.Generator:
    return np.random.default_rng(0)


def first_batch(data: DataSet, **options: Any) -> Tensor:
    return next(data.batches(**options))[0]


# --- Fashion-MNIST ---------------------------------------------------------------------------------------------------


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_fashion_mnist(root: Path, images: np.ndarray, labels: np.ndarray, *, zipped: bool = False) -> None:
    root.mkdir(parents=True, exist_ok=True)
    for name, array in (("t10k-images-idx3-ubyte", images), ("t10k-labels-idx1-ubyte", labels)):
        (root / (f"{name}.gz" if zipped else name)).write_bytes(gzip.compress(idx(array)) if zipped else idx(array))


@pytest.fixture
def fashion(generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    return generator.integers(0, 256, (12, 28, 28), np.uint8), np.arange(12, dtype=np.uint8) % 10


@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "gzipped"])
@pytest.mark.parametrize("below", ["", "FashionMNIST/raw", "raw"])
def test_fashion_mnist(below: str, zipped: bool, tmp_path: Path, fashion: tuple[np.ndarray, np.ndarray]) -> None:
    write_fashion_mnist(tmp_path / below, *fashion, zipped=zipped)
    data = load_data(f"fashion-mnist:{tmp_path}")
    assert torch.equal(data.x, torch.from_numpy(fashion[0]).unsqueeze(1))
    assert data.y.tolist() == fashion[1].tolist()
    assert (data.x.dtype, data.y.dtype) == (torch.uint8, torch.int64)


def test_fashion_mnist_is_normalised_by_its_usual_constants(tmp_path: Path, fashion: tuple[np.ndarray, np.ndarray]) -> None:
    write_fashion_mnist(tmp_path, *fashion)
    data = load_data(f"fashion-mnist:{tmp_path}")
    assert (data.mean, data.std) == FASHION_MNIST
    expected = (fashion[0][:, None] / 255 - 0.2860) / 0.3530
    assert first_batch(data).numpy() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: content[:-1], r"truncated or damaged: 9,407 bytes of data, but its header says 12 × 28 × 28 = 9,408"),
        (lambda content: content + b"\0", "truncated or damaged: 9,409 bytes"),
        (lambda content: content[:9], "truncated or damaged: 0 bytes"),
        (lambda content: b"", "not an idx file"),
        (lambda content: b"images!" + content, "not an idx file of unsigned bytes"),
        (lambda content: bytes([0, 0, 13]) + content[3:], "not an idx file of unsigned bytes"),
    ],
)
def test_a_damaged_idx_file_is_an_error_that_names_it(
    damage: Callable[[bytes], bytes], message: str, tmp_path: Path, fashion: tuple[np.ndarray, np.ndarray]
) -> None:
    write_fashion_mnist(tmp_path, *fashion)
    path = tmp_path / "t10k-images-idx3-ubyte"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(AuditError, match=f"t10k-images-idx3-ubyte: {message}"):
        load_data(f"fashion-mnist:{tmp_path}")


def test_a_damaged_gzip_file_is_an_error_that_names_it(tmp_path: Path, fashion: tuple[np.ndarray, np.ndarray]) -> None:
    write_fashion_mnist(tmp_path, *fashion, zipped=True)
    path = tmp_path / "t10k-labels-idx1-ubyte.gz"
    whole = path.read_bytes()
    for content in (whole[:-9], whole[:15] + bytes([whole[15] ^ 1]) + whole[16:], b"no gzip"):
        path.write_bytes(content)
        with pytest.raises(AuditError, match=r"t10k-labels-idx1-ubyte.gz: "):
            load_data(f"fashion-mnist:{tmp_path}")


def test_images_in_the_place_of_labels_are_an_error(tmp_path: Path, fashion: tuple[np.ndarray, np.ndarray]) -> None:
    write_fashion_mnist(tmp_path, fashion[1], fashion[0])
    with pytest.raises(AuditError, match="images have 3 and labels 1"):
        load_data(f"fashion-mnist:{tmp_path}")


def test_more_images_than_labels_are_an_error(tmp_path: Path, fashion: tuple[np.ndarray, np.ndarray]) -> None:
    write_fashion_mnist(tmp_path, fashion[0], fashion[1][:7])
    with pytest.raises(AuditError, match=r"fashion-mnist: inputs of shape \(12, 1, 28, 28\) for 7 labels"):
        load_data(f"fashion-mnist:{tmp_path}")


# --- CIFAR-10 --------------------------------------------------------------------------------------------------------


def old_pickle(data: np.ndarray, labels: list[int]) -> bytes:
    """A batch as Python 2 wrote it, opcode by opcode: byte strings for keys and data, numpy.core by its old name."""

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
    listed = b"](" + b"".join(number(label) for label in labels) + b"e"
    entries = [text(b"batch_label") + text(b"testing batch 1 of 1"), text(b"data") + array, text(b"labels") + listed]
    return b"\x80\x02}(" + b"".join(entries) + b"u."


def new_pickle(data: np.ndarray, labels: list[int]) -> bytes:
    return pickle.dumps({"data": data, "labels": labels, "filenames": ["a.png"] * len(labels)}, protocol=4)


@pytest.fixture
def cifar(generator: np.random.Generator) -> tuple[np.ndarray, list[int]]:
    return generator.integers(0, 256, (9, 3072), np.uint8), [index % 10 for index in range(9)]


def write_cifar(root: Path, content: bytes, name: str = "test_batch") -> Path:
    path = root / "cifar-10-batches-py" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("spell", ["", "cifar-10-batches-py"], ids=["its parent", "the folder itself"])
@pytest.mark.parametrize("write", [old_pickle, new_pickle])
def test_cifar10(
    write: Callable[[np.ndarray, list[int]], bytes], spell: str, tmp_path: Path, cifar: tuple[np.ndarray, list[int]]
) -> None:
    write_cifar(tmp_path, write(*cifar))
    data = load_data(f"cifar10:{tmp_path / spell}")
    assert torch.equal(data.x, torch.from_numpy(cifar[0]).view(9, 3, 32, 32))
    assert data.y.tolist() == cifar[1]
    assert (data.mean, data.std) == CIFAR10


def test_the_pickle_of_these_tests_is_as_the_original(cifar: tuple[np.ndarray, list[int]]) -> None:
    batch = pickle.loads(old_pickle(*cifar), encoding="bytes")
    assert np.array_equal(batch[b"data"], cifar[0])
    assert batch[b"batch_label"] == b"testing batch 1 of 1"


def test_cifar10_is_normalised_by_channel(tmp_path: Path, cifar: tuple[np.ndarray, list[int]]) -> None:
    write_cifar(tmp_path, old_pickle(*cifar))
    mean, std = (np.array(values)[:, None, None] for values in CIFAR10)
    expected = (cifar[0].reshape(9, 3, 32, 32) / 255 - mean) / std
    assert first_batch(load_data(f"cifar10:{tmp_path}")).numpy() == pytest.approx(expected, abs=1e-5)


def test_the_training_split_is_all_five_batches(tmp_path: Path, cifar: tuple[np.ndarray, list[int]]) -> None:
    for number in range(1, 6):
        write_cifar(tmp_path, new_pickle(cifar[0], [number] * 9), f"data_batch_{number}")
    data = load_data(f"cifar10:{tmp_path}", "train")
    assert data.y.tolist() == [number for number in range(1, 6) for _ in range(9)]
    (tmp_path / "cifar-10-batches-py" / "data_batch_4").unlink()
    with pytest.raises(AuditError, match="expected cifar-10-batches-py/data_batch_4"):
        load_data(f"cifar10:{tmp_path}", "train")


@pytest.mark.parametrize("inside", [False, True], ids=["instead of a batch", "inside a batch"])
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_batch_that_runs_code_leaves_no_trace(
    protocol: int, inside: bool, trace: Any, tmp_path: Path, cifar: tuple[np.ndarray, list[int]]
) -> None:
    content = {"data": cifar[0], "labels": cifar[1], "meta": trace} if inside else trace
    write_cifar(tmp_path, pickle.dumps(content, protocol))
    with pytest.raises(AuditError, match=r"test_batch: not a batch of CIFAR-10's Python version: refuses to load \w+.mkdir"):
        load_data(f"cifar10:{tmp_path}")
    assert not trace.path.exists()


@pytest.mark.parametrize("write", [old_pickle, new_pickle])
def test_a_damaged_batch_is_an_error_or_the_same_shape(
    write: Callable[[np.ndarray, list[int]], bytes], tmp_path: Path, cifar: tuple[np.ndarray, list[int]]
) -> None:
    whole = write(cifar[0][:1], cifar[1][:1])
    small = [at for at in range(len(whole)) if at < 300 or at > len(whole) - 100]
    for at in small:
        write_cifar(tmp_path, whole[:at] + bytes([whole[at] ^ 0x11]) + whole[at + 1 :])
        try:
            data = load_data(f"cifar10:{tmp_path}")
        except AuditError as error:
            assert "test_batch: " in str(error) or "cifar10: " in str(error)
        else:
            assert data.x.shape == (1, 3, 32, 32)
        write_cifar(tmp_path, whole[:at])
        with pytest.raises(AuditError, match="test_batch: not a batch"):
            load_data(f"cifar10:{tmp_path}")


def test_cifar100_is_told_from_cifar10(tmp_path: Path, cifar: tuple[np.ndarray, list[int]]) -> None:
    write_cifar(tmp_path, pickle.dumps({"data": cifar[0], "fine_labels": cifar[1]}))
    with pytest.raises(AuditError, match="no entry labels; it has data, fine_labels"):
        load_data(f"cifar10:{tmp_path}")


# --- folders of images -----------------------------------------------------------------------------------------------


def write_images(root: Path, mode: str, classes: int = 3, each: int = 4, size: tuple[int, int] = (6, 5)) -> None:
    """Images whose first pixel tells class and number."""
    for label in range(classes):
        place = root / f"class{label}"
        place.mkdir(parents=True, exist_ok=True)
        for number in range(each):
            value = 40 * label + number
            Image.new(mode, size, (value, 0, 255) if mode == "RGB" else value).save(place / f"{number}.png")


@pytest.mark.parametrize(("mode", "channels"), [("RGB", 3), ("L", 1)])
def test_a_tree_of_images(mode: str, channels: int, tmp_path: Path) -> None:
    write_images(tmp_path, mode)
    data = load_data(f"folder:{tmp_path}")
    assert data.x.shape == (12, channels, 5, 6)
    assert data.x.dtype == torch.uint8
    assert [int(x[0, 0, 0]) // 40 for x in data.x] == data.y.tolist()
    assert sorted(int(x[0, 0, 0]) for x in data.x) == [40 * label + number for label in range(3) for number in range(4)]


def test_the_test_split_of_a_tree_is_preferred(tmp_path: Path) -> None:
    write_images(tmp_path / "train", "RGB", each=9)
    write_images(tmp_path / "test", "RGB")
    assert len(load_data(f"folder:{tmp_path}")) == 12


def test_classes_are_mixed_in_an_order_that_is_always_the_same(tmp_path: Path) -> None:
    """ImageFolder lists class after class, and the probe is the first 1,280 samples."""
    write_images(tmp_path, "RGB")
    state = torch.get_rng_state()
    data, again = load_data(f"folder:{tmp_path}"), load_data(f"folder:{tmp_path}")
    assert data.y.tolist() == again.y.tolist() != sorted(data.y.tolist())
    assert torch.equal(torch.get_rng_state(), state)
    assert "shuffled" in data.note


def test_colour_images_are_normalised_by_the_constants_of_imagenet_and_grey_ones_by_none(tmp_path: Path) -> None:
    write_images(tmp_path / "colour", "RGB")
    write_images(tmp_path / "grey", "L")
    colour, grey = (load_data(f"folder:{tmp_path / name}") for name in ("colour", "grey"))
    assert (colour.mean, colour.std) == IMAGENET
    assert first_batch(grey).shape == (12, 1, 5, 6)
    assert torch.equal(first_batch(grey), grey.x / 255)
    assert str(grey.for_checkpoint({}).inputs) == "folder grey, pixels in [0, 1], not normalised"


def test_a_grey_image_among_colour_ones_becomes_a_colour_image(tmp_path: Path) -> None:
    write_images(tmp_path, "RGB")
    Image.new("L", (6, 5), 200).save(tmp_path / "class0" / "0.png")
    data = load_data(f"folder:{tmp_path}")
    assert data.x.shape == (12, 3, 5, 6)
    assert any(bool((x == 200).all()) for x in data.x)


def test_images_of_different_sizes_are_an_error_that_says_which(tmp_path: Path) -> None:
    write_images(tmp_path, "RGB")
    Image.new("RGB", (7, 5)).save(tmp_path / "class0" / "0.png")
    with pytest.raises(AuditError, match=r"different sizes \(5 × 6, 5 × 7\); resize them"):
        load_data(f"folder:{tmp_path}")


@pytest.mark.parametrize("content", [b"no image", b""])
def test_a_damaged_image_is_named(content: bytes, tmp_path: Path) -> None:
    write_images(tmp_path, "RGB")
    (tmp_path / "class1" / "2.png").write_bytes(content)
    with pytest.raises(AuditError, match=r"2.png: not a readable image"):
        load_data(f"folder:{tmp_path}")


def test_a_folder_without_classes_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(AuditError, match="no such folder; expected one sub-folder of images per class"):
        load_data(f"folder:{tmp_path / 'nowhere'}")
    with pytest.raises(AuditError, match="expected one sub-folder of images per class"):
        load_data(f"folder:{tmp_path}")


def test_images_are_listed_as_torchvision_lists_them(tmp_path: Path) -> None:
    write_images(tmp_path, "RGB")
    for name in ("class0/nested/a.JPEG", "class0/b.Jpg", "class2/deep/er/c.webp", "class10/d.png", "class1/notes.txt", "e.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    theirs = import_torchvision().datasets.ImageFolder(str(tmp_path)).samples
    assert folder._listed(tmp_path) == [(Path(path), label) for path, label in theirs] and len(theirs) == 16


def test_every_image_is_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_images(tmp_path, "RGB")
    decoded: list[Path] = []

    def counted(path: Path) -> Tensor:
        decoded.append(path)
        return torch.zeros(3, 5, 6, dtype=torch.uint8)

    monkeypatch.setattr(folder, "_decoded", counted)
    data = load_data(f"folder:{tmp_path}")
    for _ in range(3):
        assert sum(len(y) for _, y in data.batches(5)) == 12
    assert len(decoded) == len(set(decoded)) == 12


# --- files of arrays -------------------------------------------------------------------------------------------------

X, Y = torch.arange(40, dtype=torch.float32).view(10, 4), torch.arange(10) % 3


def write_npz(path: Path, **arrays: Any) -> None:
    np.savez(path, **{name: np.asarray(value) for name, value in arrays.items()})


def write_pt(path: Path, **arrays: Any) -> None:
    torch.save(arrays, path)


def write_safetensors(path: Path, **arrays: Any) -> None:
    save_file(arrays, path)


FILES = {"data.npz": write_npz, "data.pt": write_pt, "data.pth": write_pt, "data.safetensors": write_safetensors}


@pytest.mark.parametrize("name", FILES)
def test_a_file_with_x_and_y(name: str, tmp_path: Path) -> None:
    FILES[name](tmp_path / name, x=X, y=Y)
    data = load_data(str(tmp_path / name))
    assert torch.equal(data.x, X)
    assert data.y.tolist() == Y.tolist()
    assert torch.equal(first_batch(data), X)
    assert data.name == name


@pytest.mark.parametrize("name", FILES)
def test_a_file_with_tensors_by_the_names_of_hugging_face(name: str, tmp_path: Path) -> None:
    ids = X.long()
    FILES[name](tmp_path / name, input_ids=ids, attention_mask=ids % 2, labels=Y)
    data = load_data(str(tmp_path / name))
    ((x, y),) = data.batches(10)
    assert isinstance(x, dict)
    assert set(x) == {"input_ids", "attention_mask"}
    assert torch.equal(x["attention_mask"], ids % 2)
    assert y.tolist() == Y.tolist()


@pytest.mark.parametrize("name", FILES)
def test_a_file_without_x_or_y_is_an_error_that_says_what_it_has(name: str, tmp_path: Path) -> None:
    FILES[name](tmp_path / name, images=X, y=Y)
    with pytest.raises(AuditError, match=rf"{name}: expected the entries x and y, found: (images, y|y, images)"):
        load_data(str(tmp_path / name))


def test_bytes_become_fractions(tmp_path: Path) -> None:
    write_npz(tmp_path / "d.npz", x=np.full((10, 1, 2, 2), 51, np.uint8), y=np.arange(10))
    assert first_batch(load_data(str(tmp_path / "d.npz"))).unique().tolist() == pytest.approx([0.2])


def test_labels_may_stand_in_a_column(tmp_path: Path) -> None:
    write_npz(tmp_path / "d.npz", x=X, y=Y[:, None])
    assert load_data(str(tmp_path / "d.npz")).y.tolist() == Y.tolist()


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (X, Y.float(), r"labels have shape \(10,\) and dtype torch.float32; expected class indices"),
        (X, torch.eye(10, dtype=torch.long), r"labels have shape \(10, 10\)"),
        (X, Y[:7], r"inputs of shape \(10, 4\) for 7 labels"),
        (X[:0], Y[:0], "the split is empty"),
        (X[0], Y[:4], r"inputs of shape \(4,\)"),
        (np.array(["cat"] * 10), Y, "which is no tensor of numbers"),
        (X, np.array(["cat"] * 10), "which is no tensor of numbers"),
    ],
)
def test_arrays_that_are_no_data_are_an_error_that_says_why(x: Any, y: Any, message: str, tmp_path: Path) -> None:
    write_npz(tmp_path / "d.npz", x=x, y=y)
    with pytest.raises(AuditError, match=rf"data .*d\.npz.*{message}"):
        load_data(str(tmp_path / "d.npz"))


@pytest.mark.parametrize("name", FILES)
def test_damaged_missing_and_empty_files_are_errors_that_name_them(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    with pytest.raises(AuditError, match=f"{name}: no such file"):
        load_data(str(path))
    FILES[name](path, x=X, y=Y)
    whole = path.read_bytes()
    for content in (b"", b"x, y", whole[: len(whole) // 2]):
        path.write_bytes(content)
        with pytest.raises(AuditError, match=name):
            load_data(str(path))


@pytest.mark.parametrize("name", ["data.npz", "data.pt"])
def test_a_flipped_bit_in_an_archive_is_never_read_as_data(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    FILES[name](path, x=X, y=Y)
    whole = path.read_bytes()
    for at in range(0, len(whole), 11):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        try:
            data = load_data(str(path))
        except AuditError:
            continue
        assert torch.equal(data.x, X)
        assert torch.equal(data.y, Y)


def test_objects_in_an_archive_of_numpy_are_not_unpickled(trace: Any, tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.array([trace], dtype=object), y=np.arange(1))
    with pytest.raises(AuditError, match=r"d.npz: not a readable .npz file: Object arrays cannot be loaded"):
        load_data(str(tmp_path / "d.npz"))
    assert not trace.path.exists()


def test_data_that_runs_code_leaves_no_trace_and_is_not_told_of_an_option_that_would_not_help(
    trace: Any, tmp_path: Path
) -> None:
    torch.save({"x": trace, "y": Y}, tmp_path / "d.pt")
    with pytest.raises(AuditError, match=r"refused to load \w+.mkdir.*dictionary of the tensors x and y") as raised:
        load_data(str(tmp_path / "d.pt"))
    assert "--fa-unsafe-load" not in str(raised.value)
    assert not trace.path.exists()


def test_a_single_array_under_the_name_of_an_archive_is_an_error(tmp_path: Path) -> None:
    np.save(tmp_path / "d.npy", np.zeros(3))
    (tmp_path / "d.npy").rename(tmp_path / "d.npz")
    with pytest.raises(AuditError, match=r"holds one array; save two with numpy.savez"):
        load_data(str(tmp_path / "d.npz"))


# --- factories -------------------------------------------------------------------------------------------------------

PREAMBLE = """
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset
from pytest_fadiag.load.data import DataSet
X, Y = torch.arange(40, dtype=torch.float32).view(10, 4), torch.arange(10) % 3
"""


@pytest.fixture
def factory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Write ``def make()`` with a body into a module in the working directory; gives its SPEC."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def written(body: str, signature: str = "") -> str:
        name = f"paper_{abs(hash((body, signature, tmp_path)))}"
        indented = textwrap.indent(textwrap.dedent(body), "    ")
        (tmp_path / f"{name}.py").write_text(f"{PREAMBLE}\ndef make({signature}):\n{indented}\n")
        return f"{name}:make"

    return written


@pytest.mark.parametrize(
    "body",
    [
        "return X, Y",
        "return [X.numpy(), Y.numpy()]",
        "return DataSet(X, Y, 'mine')",
        "return TensorDataset(X, Y)",
        "return DataLoader(TensorDataset(X, Y), batch_size=3)",
        "return [(X[:3], Y[:3]), (X[3:], Y[3:])]",
        "return ((X[i:i + 3].numpy(), Y[i:i + 3].numpy()) for i in range(0, 10, 3))",
        """
        class Pairs(Dataset):
            def __len__(self): return 10
            def __getitem__(self, index): return X[index].numpy(), int(Y[index])
        return Pairs()
        """,
    ],
)
def test_a_factory_may_return_tensors_a_dataset_or_batches(body: str, factory: Callable[[str], str]) -> None:
    data = load_data(factory(body))
    assert torch.equal(data.x, X)
    assert data.y.tolist() == Y.tolist()


@pytest.mark.parametrize(
    "body",
    [
        "return {'input_ids': X, 'mask': -X, 'labels': Y}",
        "return {'input_ids': X, 'mask': -X}, Y",
        "return [{'input_ids': X[i:i + 3], 'mask': -X[i:i + 3], 'label': Y[i:i + 3]} for i in (0, 3, 6, 9)]",
        """
        class Named(Dataset):
            def __len__(self): return 10
            def __getitem__(self, index): return {'input_ids': X[index].numpy(), 'mask': -X[index], 'label': int(Y[index])}
        return Named()
        """,
    ],
)
def test_a_factory_may_return_tensors_by_name(body: str, factory: Callable[[str], str]) -> None:
    data = load_data(factory(body))
    (x, y), *rest = data.batches(4)
    assert isinstance(x, dict)
    assert list(x) == ["input_ids", "mask"]
    assert torch.equal(x["input_ids"], X[:4])
    assert torch.equal(x["mask"], -X[:4])
    assert y.tolist() == Y[:4].tolist()
    assert [len(labels) for _, labels in rest] == [4, 2]


def test_a_factory_says_by_an_attribute_what_identifies_its_data(factory: Callable[[str], str], tmp_path: Path) -> None:
    spec = factory("return X, Y")
    assert DataSpec.parse(spec).digest() is None
    module = tmp_path / f"{spec.partition(':')[0]}.py"
    code = module.read_text()
    digests = set()
    for name, digest in (("text", "'v1'"), ("other", "'v2'"), ("function", "lambda: 'v' + '1'")):
        (tmp_path / f"{module.stem}_{name}.py").write_text(f"{code}\nmake.digest = {digest}\n")
        digests.add(DataSpec.parse(f"{module.stem}_{name}:make").digest())
    assert None not in digests
    assert len(digests) == 3
    (tmp_path / f"{module.stem}_number.py").write_text(f"{code}\nmake.digest = 3\n")
    with pytest.raises(AuditError, match="its digest is 3; expected a text, or a function that returns one"):
        DataSpec.parse(f"{module.stem}_number:make").digest()


def test_a_data_factory_with_optional_parameters_gets_none(factory: Callable[..., str]) -> None:
    assert len(load_data(factory("return X[:size], Y[:size]", "size=6, config=None"))) == 6


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return 3", "returned int; expected .*x, y.*, a Dataset of such samples, or batches"),
        ("return {'input_ids': X}", "returned dict; .* no labels among input_ids"),
        ("return [{'input_ids': X}]", "no labels among input_ids"),
        ("return [{'a': X, 'y': Y}, {'b': X, 'y': Y}]", "samples of different shapes or names: 'a'"),
        ("return {'input_ids': X, 'mask': X[:3], 'labels': Y}", r"mask of shape \(3, 4\) for 10 labels"),
        ("return None", "returned NoneType; expected"),
        ("return X", "returned Tensor; expected"),
        ("return []", "yielded no samples"),
        ("return [(X, Y, Y)]", "returned list; expected"),
        ("return [(X, Y), (X[:, :2], Y)]", "yields samples of different shapes"),
        ("return (1 / 0 for _ in range(3))", "returned generator; .*ZeroDivisionError"),
        ("raise OSError('disk is gone')", "raised OSError: disk is gone"),
        ("return X, Y.float()", "expected class indices"),
        ("return [('cat', 1)]", "holds str, which is no tensor of numbers"),
    ],
)
def test_a_factory_that_gives_no_data_is_an_error_that_says_why(body: str, message: str, factory: Callable[[str], str]) -> None:
    with pytest.raises(AuditError, match=message):
        load_data(factory(body))


def test_a_data_factory_that_needs_an_argument_is_an_error(factory: Callable[..., str]) -> None:
    with pytest.raises(AuditError, match=r"raised TypeError: make\(\) missing 1 required positional argument: 'root'"):
        load_data(factory("return X, Y", "root"))


@pytest.mark.parametrize("given", [(X.numpy(), Y.numpy()), {"input_ids": X, "labels": Y}, ({"input_ids": X}, Y)])
def test_what_a_fixture_gives_is_data(given: Any) -> None:
    data = as_data_set(given, "the fixture fa_test_data")
    x = data.x["input_ids"] if isinstance(data.x, dict) else data.x
    assert torch.equal(x, X)
    assert torch.equal(data.y, Y)


@pytest.mark.parametrize("given", [X, None, {"input_ids": X}, [X, Y, Y]], ids=["tensor", "nothing", "no labels", "three"])
def test_what_is_no_data_is_an_error_that_names_the_fixture(given: Any) -> None:
    with pytest.raises(AuditError, match=r"the fixture fa_test_data gave .*; expected a pair of tensors"):
        as_data_set(given, "the fixture fa_test_data")


# --- specs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("cifar10", "unknown data 'cifar10'; accepted: fashion-mnist:ROOT, cifar10:ROOT, folder:PATH, a file with x and y"),
        ("cifar10:", "names no place; write cifar10:ROOT"),
        ("cifar100:data", "unknown data 'cifar100:data', and no module 'cifar100' to import; accepted: fashion-mnist:ROOT"),
        ("data.csv", "unknown data 'data.csv'"),
        ("", "unknown data ''"),
        ("no.such.package:make", "cannot import 'no.such.package'"),
        ("fashion-mnist:/nowhere", "/nowhere: no Fashion-MNIST there: expected t10k-images-idx3-ubyte or .*FashionMNIST/raw"),
        ("cifar10:/nowhere", "/nowhere: no CIFAR-10 there: expected cifar-10-batches-py/test_batch"),
    ],
)
def test_a_spec_that_names_no_data_is_an_error_that_lists_what_does(spec: str, message: str) -> None:
    with pytest.raises(AuditError, match=message):
        load_data(spec)


# --- normalisation, flattening, batches ------------------------------------------------------------------------------


def images(channels: int = 3) -> DataSet:
    x = torch.randint(0, 256, (10, channels, 4, 4), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    return DataSet(x, Y, "images", *(CIFAR10 if channels == 3 else FASHION_MNIST))


@pytest.mark.parametrize(
    "config",
    [
        {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.3, 0.4]},
        {"mean": (0.5, 0.4, 0.3), "std": (0.2, 0.3, 0.4)},
        {"mean": torch.tensor([0.5, 0.4, 0.3]), "std": torch.tensor([0.2, 0.3, 0.4])},
        {"normalize": {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.3, 0.4]}},
    ],
    ids=["lists", "tuples", "tensors", "under normalize"],
)
def test_a_checkpoint_says_how_its_data_were_normalised(config: dict[str, Any]) -> None:
    data = images()
    mean, std = (torch.tensor(values)[:, None, None] for values in ([0.5, 0.4, 0.3], [0.2, 0.3, 0.4]))
    assert torch.allclose(first_batch(data.for_checkpoint(config)), (data.x / 255 - mean) / std, atol=1e-6)


def test_one_number_serves_all_channels_and_what_is_not_said_changes_nothing() -> None:
    data = images()
    assert torch.allclose(first_batch(data.for_checkpoint({"mean": 0.5, "std": 0.5})), data.x / 127.5 - 1, atol=1e-6)
    assert torch.allclose(first_batch(data.for_checkpoint({"mean": 0, "std": 1})), data.x / 255)
    assert torch.allclose(first_batch(data.for_checkpoint({"std": 0.5})), data.x / 127.5)


@pytest.mark.parametrize("config", [{}, {"mean": None, "std": None}, {"normalize": True}, {"normalize": {}}], ids=str)
def test_a_config_without_constants_leaves_the_usual_ones(config: dict[str, Any]) -> None:
    assert torch.equal(first_batch(images().for_checkpoint(config)), first_batch(images()))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"mean": [0.5, 0.5]}, r"2 values of mean, but its inputs of shape \(3, 4, 4\) have 3 channels"),
        ({"std": [0.0, 1.0, 1.0]}, "a std of 0, by which nothing can be normalised"),
        ({"std": -1}, "a std of -1"),
        ({"mean": float("nan")}, "a mean of nan"),
        ({"mean": "imagenet"}, "mean 'imagenet'; expected one number per channel"),
        ({"mean": {"r": 1}}, "expected one number per channel"),
    ],
)
def test_constants_that_cannot_be_used_are_an_error(config: dict[str, Any], message: str) -> None:
    with pytest.raises(AuditError, match=message):
        images().for_checkpoint(config)


def test_constants_for_three_channels_do_not_make_three_of_one() -> None:
    with pytest.raises(AuditError, match="3 values of mean, but its inputs"):
        DataSet(torch.zeros(10, 1, 4, 4), Y, "grey", *IMAGENET)


def test_batches_keep_the_order_and_are_flattened_on_demand() -> None:
    data = images()
    batches = list(data.batches(4))
    assert [len(y) for _, y in batches] == [4, 4, 2]
    assert torch.cat([y for _, y in batches]).tolist() == Y.tolist()
    flat = torch.cat([x for x, _ in data.batches(3, flatten=True)])
    assert torch.equal(flat, torch.cat([x for x, _ in batches]).flatten(1))


def test_images_are_flattened_for_a_network_whose_first_layer_is_as_wide() -> None:
    assert wants_flat(network(d_in=48), images().x[0])
    assert not wants_flat(network(d_in=20), images().x[0])


def test_images_stay_bytes_until_a_batch_is_taken() -> None:
    data = images()
    list(data.batches(4))
    assert data.x.dtype == torch.uint8
    assert first_batch(data).dtype == torch.float32


def test_fractions_are_taken_as_they_are_whatever_the_checkpoint_says() -> None:
    data = DataSet(X, Y, "fractions").for_checkpoint({"mean": 0.5, "std": 0.5})
    assert torch.equal(first_batch(data), X)
    assert torch.allclose(first_batch(data.for_checkpoint({}, Normalisation.parse("0.5/0.5"))), 2 * X - 1)


def test_fractions_of_a_data_set_with_constants_of_its_own_are_normalised_by_these() -> None:
    data = DataSet(X, Y, "mine", (1.0,), (2.0,)).for_checkpoint({"mean": 0.5, "std": 0.5})
    assert torch.allclose(first_batch(data), (X - 1) / 2)


@pytest.mark.parametrize(
    ("option", "mean", "std"),
    [("none", 0, 1), ("data", CIFAR10[0], CIFAR10[1]), ("0.5/0.25", 0.5, 0.25), ("0.1,0.2,0.3/0.4", (0.1, 0.2, 0.3), 0.4)],
)
def test_what_the_user_says_comes_before_what_the_checkpoint_says(option: str, mean: Any, std: Any) -> None:
    data = images()
    by_hand = (data.x / 255 - torch.tensor(mean).view(-1, 1, 1)) / torch.tensor(std).view(-1, 1, 1)
    for config in ({}, {"mean": 0.7, "std": 0.9}):
        assert torch.allclose(first_batch(data.for_checkpoint(config, Normalisation.parse(option))), by_hand, atol=1e-6)


@pytest.mark.parametrize(
    ("data", "option", "message"),
    [
        (images(), "1,2/3", r"--fa-normalize has 2 values of mean, but its inputs of shape \(3, 4, 4\) have 3 channels"),
        (DataSet(X, Y, "x.npz"), "data", "--fa-normalize=data: x.npz has no usual constants; give the numbers"),
        (
            DataSet(X.long(), Y, "ids"),
            "0/2",
            r"--fa-normalize=0/2: ids holds whole numbers \(int64\), which cannot be normalised",
        ),
        (DataSet({"input_ids": X}, Y, "text"), "0/2", r"text holds tensors by name \(input_ids\), which cannot be normalised"),
    ],
    ids=["channels", "no constants", "whole numbers", "by name"],
)
def test_a_normalisation_that_does_not_fit_the_data_is_an_error(data: DataSet, option: str, message: str) -> None:
    with pytest.raises(AuditError, match=message):
        data.for_checkpoint({}, Normalisation.parse(option))


def test_token_ids_are_not_normalised() -> None:
    data = DataSet(torch.arange(40).view(10, 4), Y, "tokens").for_checkpoint({"mean": 0.5, "std": 0.5})
    assert torch.equal(first_batch(data), data.x)
