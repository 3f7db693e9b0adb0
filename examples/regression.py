"""Regression by BP, DFA and DFA with a penalty, with frozen controls, and their audit.

    python examples/regression.py runs/regression

The targets are five values that a random network of two layers computes, with a little noise.
The loss is the squared error: the checkpoints say so in their config. A minute on one core.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from rules import audit, save, train
from torch import Tensor

from pytest_fadiag import ResidualMLP

INPUTS, VALUES, TRAINING, TEST = 12, 5, 20_000, 3_000
STEPS = 1_500
RULES = {"bp": 0.0, "dfa": 0.0, "dfa-lam": 3e-3}
"""The penalty λ on what a block adds to the stream, by method."""


def teacher() -> tuple[Tensor, Tensor]:
    """Inputs, and what the random network makes of them."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(TRAINING + TEST, INPUTS, generator=generator)
    first, second = (
        torch.randn(*shape, generator=generator) for shape in ((INPUTS, 32), (32, VALUES))
    )
    y = torch.sin(1.2 * x @ first / INPUTS**0.5) @ second / 32**0.5
    return x, y + 0.1 * torch.randn(y.shape, generator=generator)


def losses(outputs: Tensor, y: Tensor) -> Tensor:
    """The squared error of every sample, summed over its values."""
    return (outputs - y).square().sum(1)


def main(folder: Path) -> int:
    """Train, save, and audit what was saved."""
    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    x, y = teacher()
    np.savez(folder / "test.npz", x=x[TRAINING:].numpy(), y=y[TRAINING:].numpy())
    for method, lam in RULES.items():
        for frozen in (False, True) if lam == 0 else (False,):  # DFA's control serves both
            torch.manual_seed(0)
            net = ResidualMLP(INPUTS, 64, 4, VALUES)
            options = {"rule": method.partition("-")[0], "lam": lam, "frozen": frozen}
            Bs = train(net, x[:TRAINING], y[:TRAINING], losses, seed=0, steps=STEPS, **options)
            config = {"method": method, "seed": 0, "loss": "mse", "steps": STEPS, **options}
            config["activation"] = "gelu"
            save(folder / f"{'frozen_' * frozen}{method}_s0.pt", net, Bs, **config)
    return audit(folder, "bp_s0.pt dfa_s0.pt dfa-lam_s0.pt")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/regression")))
