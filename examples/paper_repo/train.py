"""Train the paper's network, or with --frozen its control, and save what an audit needs.

python train.py --seed 1 --data fashion-mnist:/path/to/fashion-mnist
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from paper.network import PaperNet
from torch import nn

from pytest_fadiag import load_data


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--frozen", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--data", required=True)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    train, test = load_data(options.data, "train"), load_data(options.data, "test")
    net = PaperNet()
    net.layers.requires_grad_(not options.frozen)
    optimiser = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], 3e-3)
    for epoch in range(options.epochs):
        for rows in torch.randperm(len(train)).split(128):
            loss = nn.functional.cross_entropy(net(train.normalised(train.x[rows])), train.y[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        with torch.no_grad():
            hits = sum(int((net(x).argmax(1) == y).sum()) for x, y in test)
        print(f"epoch {epoch + 1}: accuracy {hits / len(test):.4f}", flush=True)
    config = {"method": "ours", "seed": options.seed, "frozen": options.frozen, "d": 32, "depth": 3}
    name = f"{'frozen_' if options.frozen else ''}ours_s{options.seed}.pt"
    Path("runs").mkdir(exist_ok=True)
    torch.save(
        {"state_dict": net.state_dict(), "config": config, "test_acc": hits / len(test)},
        Path("runs") / name,
    )


if __name__ == "__main__":
    main()
