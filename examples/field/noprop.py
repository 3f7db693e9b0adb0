"""NoProp: each block learns alone to clean a noisy embedding of the label; noise goes in where it is used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from pytest_fadiag import DiagnosticReport, diagnose

from .common import Data, Repository, missing

HERE = Repository(
    "Tai225999/NoProp---Pytorch-Implementation",
    commit="4fe1e5475566e8ac84651ccc65f473bc2586f33b",
    rules=("NoProp-DT",),
    seeds=1,
    network="4 of 10 blocks, each 3 convolutions and 6 linear layers; embeddings of 32 (its default has 128)",
    data="of 1 × 28 × 28; 2 of 100 epochs of each block",
    images=2_000,
    pairs=False,
    changes="none; its evaluate() makes the state from the true label, so it is not used: here the network starts from noise, by its forward_inference",
)
BLOCKS = 4


def setup(source: Path) -> None:
    """What only draws is left out."""
    missing("torchinfo", "tqdm")


def train(rule: str, source: Path, data: Data) -> Any:
    """Its loop over blocks, with the optimiser of ``main.py``."""
    from models.NoProp_DT import NoPropNetDT
    from train import get_cosine_schedule, train_noprop_dt_epoch

    schedule = get_cosine_schedule(BLOCKS)
    model = NoPropNetDT(BLOCKS, 10, 32, img_channels=1, img_size=28)
    model.set_noise_schedule(schedule[0])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-4)
    loader = data.loader(128)
    for _ in range(2):
        train_noprop_dt_epoch(model, loader, optimizer, BLOCKS, 1.0, torch.device("cpu"), schedule)
    return model.eval()


def audit(rule: str, trained: Any, data: Data) -> DiagnosticReport:
    """Its inference from noise."""
    from train import get_cosine_schedule

    return diagnose(
        trained,
        data.test(),
        forward=lambda model, x, y: model.forward_inference(x, get_cosine_schedule(BLOCKS)[2]),
        method_name=rule,
    )
