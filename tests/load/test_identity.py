"""Whose network a file is, told by its name and by the folders that it lies in."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from pytest_fadiag.load.controls import ControlFile
from pytest_fadiag.load.identity import identify


@pytest.mark.parametrize(
    ("path", "method", "seed"),
    [
        ("runs/dfa_s42.pt", "dfa", 42),
        ("fa_s1/model_best_acc.pth", "fa", 1),
        ("runs/dfa_s42/checkpoint.pt", "dfa", 42),
        ("runs/dfa_seed42/checkpoints/epoch=3-step=100.ckpt", "dfa", 42),
        ("out/dfa_s42/checkpoint-500/model.safetensors", "dfa", 42),
        ("out/dfa_s42/checkpoint-500/pytorch_model.bin", "dfa", 42),
        ("out/dfa_s42/model.safetensors.index.json", "dfa", 42),
        ("runs/dfa/seed42/model.pt", "dfa", 42),
        ("runs/dfa/seed_42/last.pt", "dfa", 42),
        ("runs/dfa/best.pt", "dfa", None),
        ("runs/dfa/42/best.pt", "dfa", None),
        ("dfa_s3/log.jsonl", "dfa", 3),
    ],
)
def test_where_the_name_of_a_file_says_nothing_its_folder_tells(path: str, method: str, seed: int | None) -> None:
    assert identify(Path(path)) == (method, seed)


@pytest.mark.parametrize(
    ("path", "method"),
    [
        ("fa_s1/resnet20.pt", "resnet20"),
        ("fa_s1/dfa.pt", "dfa"),
        ("runs/modelnet.pt", "modelnet"),
        ("runs/best.pt", "best"),
        ("results/checkpoint-500.pt", "checkpoint-500"),
        ("lightning_logs/version_0/checkpoints/epoch=3-step=100.ckpt", "epoch=3-step=100"),
        ("model.pt", "model"),
    ],
)
def test_a_name_that_says_something_and_a_folder_of_many_runs_leave_the_stem(path: str, method: str) -> None:
    assert identify(Path(path)) == (method, None)


def test_what_the_config_says_comes_first() -> None:
    assert identify(Path("fa_s1/model.pt"), {"method": "dfa"}) == ("dfa", 1)
    assert identify(Path("fa_s1/model.pt"), {"seed": 7}) == ("fa", 7)


def test_a_control_is_told_by_its_folder_too() -> None:
    control = ControlFile.named(Path("controls/frozen_dfa_s1/model_best.pth"))
    assert (control.method, control.seed, control.kind) == ("dfa", 1, "frozen")


def test_no_name_takes_long() -> None:
    start = time.process_time()
    for word in ("logs", "model_", "state_dict", "net-1.", "s=_"):
        identify(Path(word * 20) / f"{word * 20}x.pt")
        identify(Path(word * 20) / f"{word * 20}.pt")
    assert time.process_time() - start < 1
