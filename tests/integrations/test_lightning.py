"""The Lightning callback in a real ``Trainer.fit`` on the shipped images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from pytest_fadiag import Guard, Recorder, ResidualMLP, diagnose, load_data, read_log

lightning = pytest.importorskip("lightning.pytorch")

from pytest_fadiag.integrations.lightning import FadiagCallback  # noqa: E402

SHIPPED = Path(__file__).parents[2] / "fixtures" / "fashion-mnist"


@pytest.fixture(scope="module")
def images() -> tuple[torch.Tensor, torch.Tensor]:
    data = load_data(f"fashion-mnist:{SHIPPED}")
    return data.normalised(data.x[:1500]).flatten(1), data.y[:1500]


class Classifier(lightning.LightningModule):  # type: ignore[misc]
    def __init__(self, explode: bool = False) -> None:
        super().__init__()
        self.net = ResidualMLP(784, 16, 3, 10)
        if explode:
            with torch.no_grad():
                self.net.blocks[0].fc2.weight.mul_(1e4)
        self.loss = nn.CrossEntropyLoss()

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        x, y = batch
        return self.loss(self.net(x), y)  # type: ignore[no-any-return]

    def validation_step(self, batch: Any, index: int) -> None:
        x, y = batch
        self.log("val_acc", (self.net(x).argmax(1) == y).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1e-3)


def fit(
    module: Classifier, callback: FadiagCallback, images: tuple[torch.Tensor, torch.Tensor], epochs: int, folder: Path
) -> Any:
    loader = DataLoader(TensorDataset(*images), 128)
    trainer = lightning.Trainer(
        max_epochs=epochs,
        callbacks=[callback],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        default_root_dir=folder,
    )
    trainer.fit(module, loader, loader)
    return trainer


@pytest.mark.filterwarnings("ignore")
def test_every_epoch_is_recorded_with_the_numbers_of_an_audit(
    tmp_path: Path, images: tuple[torch.Tensor, torch.Tensor]
) -> None:
    path, batches = tmp_path / "bp_s1.jsonl", list(DataLoader(TensorDataset(*images), 100))
    module = Classifier()
    fit(module, FadiagCallback(Recorder(path, batches), network="net", accuracy="val_acc"), images, 2, tmp_path)
    log = read_log(path)
    report = diagnose(model=module.net, eval_batches=batches)
    assert log.epochs == (1, 2)
    assert log.points[-1].residual_norms == pytest.approx(report.residual_norms, rel=1e-6)
    assert log.points[-1].accuracy == pytest.approx(report.headline_acc, abs=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_a_guard_ends_a_hollow_run_as_early_stopping_would(tmp_path: Path, images: tuple[torch.Tensor, torch.Tensor]) -> None:
    recorder = Recorder(tmp_path / "dfa_s1.jsonl", list(DataLoader(TensorDataset(*images), 100)))
    with pytest.warns(UserWarning, match=r"training stopped at epoch 2: .*\n  \(a\) residual-growth has fired in 2 records"):
        trainer = fit(Classifier(explode=True), FadiagCallback(Guard(recorder, after=2), network="net"), images, 9, tmp_path)
    assert trainer.current_epoch == 2
    assert read_log(recorder.path).epochs == (1, 2)
