"""Feedback alignment and Kolen-Pollack as Flax layers with a backward of their own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from pytest_fadiag import DiagnosticReport, save_trace
from pytest_fadiag import audit as audit_trace

from .common import Data, Repository, missing

HERE = Repository(
    name="yschimpf/bioflax",
    commit="9ab0ce39f9263ac495322b190fc06908c07cb1b9",
    rules=("bp", "fa", "kp"),
    bp="bp",
    blocks="0|1",
    network="Flax MLP 784-500-500-10, ReLU",
    data="Fashion-MNIST for MNIST, 10,000 images; its default of 5 epochs",
    changes="none; its layers for dfa return shapes that JAX 0.10 refuses, so dfa is not trained",
)


def train(rule: str, source: Path, data: Data, *, frozen: bool) -> Any:
    """``train_epoch`` of ``bioflax/train_helpers.py``."""
    missing("wandb", "tqdm")
    import jax
    import optax
    from bioflax import train_helpers
    from bioflax.model import BatchBioNeuralNetwork

    train_helpers.tqdm = iter
    model = BatchBioNeuralNetwork(
        hidden_layers=[500, 500], activations=["relu", "relu"], features=10, mode=rule
    )
    state = train_helpers.create_train_state(
        model, jax.random.PRNGKey(data.seed), 0.02, 0.0, 0.0, 1, 32, 784, "sgd"
    )
    if frozen:
        labels = {name: re.search(HERE.blocks, name) is not None for name in state.params}
        tx = optax.multi_transform({True: optax.set_to_zero(), False: state.tx}, labels)
        state = state.create(apply_fn=state.apply_fn, params=state.params, tx=tx)
    for _ in range(5):
        state, *_ = train_helpers.train_epoch(
            state, model, data.loader(32, shape=(1, 784)), "CE", 0, rule, False
        )
    params = jax.tree.map(np.asarray, state.params)
    return [{"B": None, **one.get("Dense_0", one), **one} for _, one in sorted(params.items())]


def audit(rule: str, layers: Any, data: Data) -> DiagnosticReport:
    """Forward and backward by hand: once with the kernels for g, once with the feedback matrices for a."""
    kernels, biases, feedback = ([one[key] for one in layers] for key in ("kernel", "bias", "B"))
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

    a = [] if rule == "bp" else back(feedback)[1:]
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
