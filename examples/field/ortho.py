"""A transformer with kernel attention whose trainer registers hooks for direct feedback alignment; a language model."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy
from torch.optim import SGD

from pytest_fadiag import DiagnosticReport, diagnose

from .common import Data, Repository, freeze

HERE = Repository(
    name="codenlighten/ortho-ai",
    commit="86044a3e95700196326840b5984b6e285f780414",
    rules=("DFA by name",),
    blocks=r"layers\.",
    seeds=1,
    images=0,
    paper={"": "other · other · BP"},
    network="pre-LayerNorm transformer, 4 blocks, d 64 (its default has 256), 4 heads, characters",
    data="next character of its own Markdown files for WikiText, sequences of 32; 400 of 5,000 steps at ten times its learning rate",
    changes="none; its trainers never call set_global_error, so the hooks leave BP's gradients as they are",
)


def batches(source: Path, *, train: bool) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Sequences of 33 characters, nine tenths of them for training: inputs and the next characters."""
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(source.rglob("*.md")))
    ids = torch.tensor([min(ord(one), 127) for one in text])
    rows = ids[: len(ids) // 33 * 33].view(-1, 33)
    rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(1))]
    end = len(rows) * 8 // 10
    return [
        (one[:, :-1].contiguous(), one[:, 1:].contiguous())
        for one in (rows[:end] if train else rows[end:]).split(32)
    ]


def train(rule: str, source: Path, data: Data, *, frozen: bool) -> torch.nn.Module:
    """``OKADFATrainer`` of ``scripts/train_okadfa.py`` with its default settings."""
    from scripts.train_okadfa import OKADFAModel, OKADFATrainer

    model = OKADFAModel(
        vocab_size=128, d_model=64, num_heads=4, num_layers=4, d_ff=256, max_seq_len=32
    )
    if frozen:
        freeze(model, HERE.blocks)
    loader = batches(source, train=True)
    trainer = OKADFATrainer(
        model,
        loader,
        learning_rate=3e-3,
        warmup_steps=40,
        max_steps=400,
        ortho_warmup_steps=80,
        eval_interval=10**9,
        save_interval=10**9,
        checkpoint_dir=str(source / "checkpoints"),
    )
    with contextlib.redirect_stdout(io.StringIO()):
        trainer.train()
    trainer.dfa_hook.remove_hooks()
    return model


def audit(rule: str, model: torch.nn.Module, data: Data) -> DiagnosticReport:
    """Token targets tell the task; the hooks that were removed changed nothing."""
    return diagnose(
        model,
        batches(Path.cwd(), train=False),
        train=batches(Path.cwd(), train=True),
        step=lambda model, x, y: SGD(model.parameters(), 0.01).step(
            lambda: cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
        ),
        method_name="DFA by name",
    )
