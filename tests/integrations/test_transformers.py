"""The Transformers callback in a real ``Trainer.train`` on the shipped images, as pixels that a small ViT reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_fadiag import Guard, Recorder, load_data, read_log

transformers = pytest.importorskip("transformers")

from pytest_fadiag.integrations.transformers import FadiagCallback  # noqa: E402

SHIPPED = Path(__file__).parents[2] / "fixtures" / "fashion-mnist"


class Images(torch.utils.data.Dataset[dict[str, Any]]):
    def __init__(self, samples: int) -> None:
        data = load_data(f"fashion-mnist:{SHIPPED}")
        self.x, self.y = data.normalised(data.x[:samples]).reshape(-1, 1, 28, 28), data.y[:samples]

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"pixel_values": self.x[index], "labels": self.y[index]}

    def batches(self) -> list[dict[str, torch.Tensor]]:
        return [{"pixel_values": self.x[i : i + 100], "labels": self.y[i : i + 100]} for i in range(0, len(self), 100)]


def network(explode: bool = False) -> Any:
    config = transformers.ViTConfig(
        image_size=28,
        patch_size=7,
        num_channels=1,
        hidden_size=16,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=32,
        num_labels=10,
    )
    torch.manual_seed(0)
    model = transformers.ViTForImageClassification(config)
    if explode:
        with torch.no_grad():
            next(p for p in model.parameters() if p.shape == (16, 32)).mul_(1e6)  # the last layer of the first block's MLP
    return model


def train(model: Any, callback: FadiagCallback, images: Images, epochs: int, folder: Path) -> Any:
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=epochs,
        per_device_train_batch_size=128,
        learning_rate=1e-4,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=images, callbacks=[callback])
    trainer.train()
    return trainer


@pytest.mark.filterwarnings("ignore")
def test_every_epoch_is_recorded(tmp_path: Path) -> None:
    images, path = Images(640), tmp_path / "bp_s1.jsonl"
    train(network(), FadiagCallback(Recorder(path, images.batches())), images, 2, tmp_path)
    log = read_log(path)
    assert log.epochs == (1, 2)
    assert log.depth == 3


@pytest.mark.filterwarnings("ignore")
def test_a_guard_ends_a_hollow_run(tmp_path: Path) -> None:
    images = Images(640)
    recorder = Recorder(tmp_path / "dfa_s1.jsonl", images.batches())
    with pytest.warns(UserWarning, match=r"training stopped at epoch 2"):
        train(network(explode=True), FadiagCallback(Guard(recorder, after=2)), images, 9, tmp_path)
    assert read_log(recorder.path).epochs == (1, 2)
