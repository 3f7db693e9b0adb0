"""train.py on data in the formats of CIFAR-10 and of an image folder."""

from __future__ import annotations

import pickle

import pytest
import torch
import train
from PIL import Image


@pytest.fixture
def cifar10(tmp_path, coloured_images):
    folder = tmp_path / "data" / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    images, labels = coloured_images(756, 3)
    big = images.repeat_interleave(8, 2).repeat_interleave(8, 3).reshape(756, -1).numpy()
    parts = [(f"data_batch_{number}", slice(100 * (number - 1), 100 * number)) for number in range(1, 6)]
    for name, rows in [*parts, ("test_batch", slice(500, 756))]:
        content = {"batch_label": name, "data": big[rows], "labels": labels[rows].tolist()}
        (folder / name).write_bytes(pickle.dumps(content, protocol=2))
    return f"cifar10:{folder.parent}"


@pytest.fixture
def folder(tmp_path, coloured_images):
    root = tmp_path / "images"
    for split, n in (("train", 300), ("test", 257)):
        images, labels = coloured_images(n, 3)
        for number, (image, label) in enumerate(zip(images, labels.tolist(), strict=True)):
            path = root / split / f"class{label}" / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image.permute(1, 2, 0).numpy()).save(path)
    return f"folder:{root}"


@pytest.mark.parametrize("kind", ["cifar10", "folder"])
def test_a_network_is_trained_on_it(kind, request, tmp_path):
    out = tmp_path / "net.pt"
    spec = request.getfixturevalue(kind)
    options = ["--d", "16", "--blocks", "2", "--epochs", "20", "--lr", "0.01"]
    assert train.main(["--method", "dfa", "--data", spec, "--out", str(out), *options]) == 0
    content = torch.load(out, weights_only=True)
    assert content["config"]["d_in"] == {"cifar10": 3072, "folder": 48}[kind]
    assert content["config"]["classes"] == 3
    assert len(content["config"]["mean"]) == 3
    assert content["test_acc"] > 0.7


def test_data_without_a_test_split_of_its_own_is_refused(folder, tmp_path, capsys):
    only = folder + "/train"
    assert train.main(["--method", "bp", "--data", only, "--out", str(tmp_path / "net.pt")]) == 2
    assert "has no test split of its own" in capsys.readouterr().err
