"""The Lightning callback in a real ``Trainer.fit``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support import clustered, in_batches, measured
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from pytest_fadiag.load.logs import read_log
from pytest_fadiag.load.network import ResidualMLP
from pytest_fadiag.recorder import Guard, Recorder

lightning = pytest.importorskip("lightning.pytorch")

from pytest_fadiag.integrations.lightning import FadiagCallback  # noqa: E402

X, Y = clustered(640)
BATCHES = in_batches(X, Y, 100)


class Classifier(lightning.LightningModule):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.net = ResidualMLP(20, 16, 3, 5)
        self.net.blocks[0].fc2.weight.data.mul_(1e4)

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch: Any, index: int) -> None:
        self.log("val_acc", (self.net(batch[0]).argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1e-3)


@pytest.mark.filterwarnings("ignore")
def test_every_epoch_is_recorded_and_a_guard_ends_the_run(tmp_path: Path) -> None:
    path, module = tmp_path / "dfa_s1.jsonl", Classifier()
    guard = Guard(Recorder(path, BATCHES, step_every=5), after=2)
    quiet = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    trainer = lightning.Trainer(
        max_epochs=9,
        callbacks=[FadiagCallback(guard, network="net", steps=True)],
        accelerator="cpu",
        default_root_dir=tmp_path,
        **dict.fromkeys(quiet, False),
    )
    loader = DataLoader(TensorDataset(X, Y), 128)
    with pytest.warns(UserWarning, match=r"stopped at epoch 2: dfa failed 2 records in a row"):
        trainer.fit(module, loader, loader)
    base, numbers = read_log(path).base, measured(module.net, BATCHES)
    assert base.log is not None and [epoch.epoch for epoch in base.log.epochs] == [1, 2]
    assert base.step is not None and base.step.batches == 1
    assert base.step.plain[0] == pytest.approx(1), "the others are below what float32 resolves"
    assert base.residual_norms == pytest.approx(numbers.residual_norms, rel=1e-6)
    assert numbers.score is not None and base.headline_acc == pytest.approx(numbers.score.value)
