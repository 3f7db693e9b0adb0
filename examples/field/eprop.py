"""e-prop: a recurrent network of spiking neurons, trained online with eligibility traces."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np

from pytest_fadiag import DiagnosticReport, diagnose

from .common import Data, Repository, load, missing

HERE = Repository(
    name="ChFrenkel/eprop-PyTorch",
    commit="0f32a8f20cdc07c1c21873ae740024be78c6a88a",
    rules=("e-prop",),
    seeds=1,
    images=0,
    network="40-30-2 recurrent LIF neurons (its default has 100), 250 time steps",
    data="its own cue accumulation with cues of 30 steps and a pause of 40 (of 150 and 1,200); 3 of 10 epochs of 200 sequences",
    changes="np.int, which numpy dropped, is int",
)


def setup(source: Path) -> tuple[Any, Any, Any]:
    """Its modules; the task with shorter cues and pause."""
    missing("matplotlib.pyplot")
    words = {
        "np.int)": "int)",
        "= 1200": "= 40",
        "t_cue      = 100": "t_cue = 20",
        "t_interval = 150": "t_interval = 30",
    }
    return (
        load(source / "models.py"),
        load(source / "setup.py", words),
        load(
            source / "train.py",
            {"model = models.SRNN(": "global model\n        model = models.SRNN("},
        ),
    )


def train(rule: str, source: Path, data: Data) -> Any:
    """``train.py`` with the defaults of ``main.py``."""
    _, task, training = setup(source)
    np.random.seed(1)
    args = Namespace(
        cpu=True, dataset="cue_accumulation", shuffle=True, trials=1, epochs=3, optimizer="Adam", loss="BCE", lr=1e-4, lr_layer_norm=(0.05, 0.05, 1.0),
        batch_size=5, test_batch_size=256, train_len=200, test_len=1280, visualize=False, visualize_light=True, n_rec=30, model="LIF", threshold=0.6,
        tau_mem=2.0, tau_out=0.02, bias_out=0.0, gamma=0.3, w_init_gain=(0.5, 0.1, 0.5),
    )  # fmt: skip
    device, *loaders = task.setup(args)
    training.train(args, device, *loaders)
    return training.model, [(x, y[:, 0]) for x, y in loaders[2]]


def audit(rule: str, trained: Any, data: Data) -> DiagnosticReport:
    """Probabilities averaged over the last cue, as its own score does, and their logarithm."""
    return diagnose(
        *trained,
        forward=lambda model, x, y: model(x.transpose(0, 1), None, False)[-30:].mean(0).log(),
        method_name="e-prop",
    )
