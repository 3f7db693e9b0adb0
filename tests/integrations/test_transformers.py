"""The Transformers callback in a real ``Trainer.train``, and a folder that the Trainer wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_fadiag.load.checkpoint import load_checkpoint
from pytest_fadiag.load.logs import read_log
from pytest_fadiag.load.names import model_file
from pytest_fadiag.load.network import build_network
from pytest_fadiag.recorder import Guard, Recorder

transformers = pytest.importorskip("transformers")

from pytest_fadiag.integrations.transformers import FadiagCallback  # noqa: E402

X = torch.randn(640, 1, 28, 28, generator=torch.Generator().manual_seed(0))
Y = torch.arange(640) % 10
BATCHES = [
    {"pixel_values": x, "labels": y} for x, y in zip(X.split(100), Y.split(100), strict=True)
]


def network() -> Any:
    sizes = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2}
    images = {"image_size": 28, "patch_size": 7, "num_channels": 1, "intermediate_size": 32}
    config = transformers.ViTConfig(num_labels=10, **sizes, **images)
    return transformers.ViTForImageClassification(config)


@pytest.mark.filterwarnings("ignore")
def test_every_epoch_is_recorded_a_guard_ends_the_run_and_its_folder_is_the_network(
    tmp_path: Path,
) -> None:
    path, model = tmp_path / "dfa_s1.jsonl", network()
    next(p for p in model.parameters() if p.shape == (16, 32)).data.mul_(1e6)
    guard = Guard(Recorder(path, BATCHES, step_every=5), after=2)
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        num_train_epochs=9,
        per_device_train_batch_size=128,
        learning_rate=1e-4,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
    )
    samples = [{"pixel_values": x, "labels": y} for x, y in zip(X, Y, strict=True)]
    callbacks = [FadiagCallback(guard, steps=True)]
    trainer = transformers.Trainer(model, arguments, train_dataset=samples, callbacks=callbacks)
    with pytest.warns(UserWarning, match="stopped at epoch 2"):
        trainer.train()
    base = read_log(path).base
    assert base.log is not None and [epoch.epoch for epoch in base.log.epochs] == [1, 2]
    assert len(base.residual_norms) == 4
    step = base.log.epochs[0].step
    assert step is not None and step.batches == 1, "AdamW turns the step, not its sign"
    assert 0.1 < step.plain[-1] < 0.999, step
    trainer.save_model(str(tmp_path / "bp_s1"))
    saved = model_file(tmp_path / "bp_s1")
    built = build_network(load_checkpoint(saved), network()).eval()
    assert torch.equal(built(X[:4]).logits, model.eval()(X[:4]).logits)
