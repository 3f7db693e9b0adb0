"""Feedback alignment and Kolen-Pollack as Flax layers with a backward of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pytest_fadiag import DiagnosticReport, save_trace
from pytest_fadiag import audit as audit_trace

from .common import Data, Repository, missing

HERE = Repository(
    name="yschimpf/bioflax",
    commit="9ab0ce39f9263ac495322b190fc06908c07cb1b9",
    rules=("fa", "kp"),
    network="Flax MLP 784-500-500-10, ReLU",
    data="Fashion-MNIST for MNIST, 10,000 images; its default of 5 epochs",
    changes="none; its layers for dfa return shapes that JAX 0.10 refuses, so dfa is not trained",
)


def train(rule: str, source: Path, data: Data) -> Any:
    """``train_epoch`` of ``bioflax/train_helpers.py``."""
    missing("wandb", "tqdm")
    import jax
    from bioflax import train_helpers
    from bioflax.model import BatchBioNeuralNetwork

    train_helpers.tqdm = iter
    model = BatchBioNeuralNetwork(
        hidden_layers=[500, 500], activations=["relu", "relu"], features=10, mode=rule
    )
    state = train_helpers.create_train_state(
        model, jax.random.PRNGKey(0), 0.02, 0.0, 0.0, 1, 32, 784, "sgd"
    )
    for _ in range(5):
        state, *_ = train_helpers.train_epoch(
            state, model, data.loader(32, shape=(1, 784)), "CE", 0, rule, False
        )
    return jax.tree.map(np.asarray, state.params)


def audit(rule: str, params: Any, data: Data) -> DiagnosticReport:
    """Forward and backward by hand: once with the kernels for g, once with the feedback matrices for a."""
    layers = [params[name] for name in sorted(params)]
    kernels, biases = zip(
        *((one["Dense_0"]["kernel"], one["Dense_0"]["bias"]) for one in layers), strict=True
    )
    x, y = (one.numpy() for one in data.arrays(train=False, shape=(784,)).tensors)
    h = [x]
    for kernel, bias in zip(kernels[:-1], biases, strict=False):
        h.append(np.maximum(h[-1] @ kernel + bias, 0))
    outputs = h[-1] @ kernels[-1] + biases[-1]
    p = np.exp(outputs - outputs.max(1, keepdims=True))
    e = p / p.sum(1, keepdims=True) - np.eye(10, dtype=np.float32)[y]

    def back(matrices: Any) -> list[Any]:
        found = [e @ matrices[-1].T]
        for matrix, after in zip(reversed(matrices[:-1]), reversed(h), strict=False):
            found.insert(0, (found[0] * (after > 0)) @ matrix.T)
        return found

    a = back([one["B"] for one in layers])[1:]
    save_trace(
        "trace.npz",
        outputs=outputs,
        y=y,
        e=e,
        h=h,
        g=back(kernels),
        a=a,
        x=x,
        loss="ce",
        method=rule,
    )
    return audit_trace("trace.npz")
