"""A character-level language model by BP and by DFA, with frozen controls, and their audit.

    python examples/language_model.py runs/lm

The text ships with Python: the documentation behind ``help("topics")``. Two minutes on one core.
"""

from __future__ import annotations

import sys
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import torch
from rules import audit, save, train
from torch import Tensor, nn
from torch.nn import functional as F

CHARACTERS = 96
"""The printable ones of ASCII, and one for the rest."""
LENGTH = 32
STEPS = 300


class Embedding(nn.Module):
    """Characters and their places."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.characters = nn.Embedding(CHARACTERS, d)
        self.places = nn.Embedding(LENGTH, d)

    def forward(self, ids: Tensor) -> Tensor:
        places: Tensor = self.places(torch.arange(ids.shape[1], device=ids.device))
        return self.characters(ids) + places


class Attention(nn.Module):
    """Causal self-attention, as one residual update."""

    def __init__(self, d: int, heads: int = 4) -> None:
        super().__init__()
        self.ln, self.heads = nn.LayerNorm(d), heads
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, h: Tensor) -> Tensor:
        parts = self.qkv(self.ln(h)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        read = F.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        out: Tensor = self.out(read.transpose(1, 2).flatten(2))
        return out


class MLP(nn.Module):
    """Two layers on every character, as one residual update."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.ln, self.fc1, self.fc2 = nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, h: Tensor) -> Tensor:
        out: Tensor = self.fc2(F.gelu(self.fc1(self.ln(h))))
        return out


class LanguageModel(nn.Module):
    """A pre-LayerNorm transformer."""

    def __init__(self, d: int = 64, layers: int = 2) -> None:
        super().__init__()
        self.embed = Embedding(d)
        pairs = ((Attention(d), MLP(d)) for _ in range(layers))
        self.blocks = nn.ModuleList(block for pair in pairs for block in pair)
        self.out_ln, self.out_head = nn.LayerNorm(d), nn.Linear(d, CHARACTERS)

    def forward(self, ids: Tensor) -> Tensor:
        h = self.embed(ids)
        for block in self.blocks:
            h = h + block(h)
        logits: Tensor = self.out_head(self.out_ln(h))
        return logits


def build() -> LanguageModel:
    """What ``--fa-model`` calls."""
    return LanguageModel()


def losses(logits: Tensor, y: Tensor) -> Tensor:
    """The cross-entropy of every character."""
    return F.cross_entropy(logits.movedim(-1, 1), y, reduction="none")


def text() -> tuple[Tensor, Tensor]:
    """Rows of characters: of every document the first four fifths to train, the rest to test."""
    training, test = [], []
    for name in sorted(topics):
        codes = torch.tensor([min(max(ord(char) - 31, 0), 95) for char in topics[name]])
        rows = codes[: len(codes) // (LENGTH + 1) * (LENGTH + 1)].view(-1, LENGTH + 1)
        training.append(rows[: 4 * len(rows) // 5])
        test.append(rows[4 * len(rows) // 5 :])
    return torch.cat(training), torch.cat(test)[:2048]


def main(folder: Path) -> int:
    """Train, save, and audit what was saved."""
    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    training, test = text()
    np.savez(folder / "test.npz", x=test[:, :-1].numpy(), y=test[:, 1:].numpy())
    for rule in ("bp", "dfa"):
        for frozen in (False, True):
            torch.manual_seed(0)
            net = build()
            x, y = training[:, :-1], training[:, 1:]
            Bs = train(net, x, y, losses, rule=rule, seed=0, steps=STEPS, lr=3e-3, frozen=frozen)
            config = {"method": rule, "seed": 0, "loss": "ce", "frozen": frozen, "steps": STEPS}
            save(folder / f"{'frozen_' * frozen}{rule}_s0.pt", net, Bs, **config)
    return audit(folder, "bp_s0.pt dfa_s0.pt --model language_model:build")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/language_model")))
