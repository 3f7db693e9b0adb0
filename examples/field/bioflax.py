"""Feedback alignment and Kolen-Pollack as Flax layers with a backward of their own."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pytest_fadiag import DiagnosticReport, diagnose

from .common import Data, Repository, missing

HERE = Repository(
    name="yschimpf/bioflax",
    commit="9ab0ce39f9263ac495322b190fc06908c07cb1b9",
    rules=("bp", "fa", "kp"),
    bp="bp",
    blocks="1",
    paper={"": "other · other · BP"},
    network="Flax MLP 784-500-500-10, ReLU",
    data="its default of 5 epochs, batches of 32, SGD lr 0.01 with momentum 0.9",
    images=20_000,
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
        model, jax.random.PRNGKey(data.seed), 0.01, 0.9, 0.0, 1, 32, 784, "sgd"
    )
    if frozen:
        labels = {name: re.search(HERE.blocks, name) is not None for name in state.params}
        tx = optax.multi_transform({True: optax.set_to_zero(), False: state.tx}, labels)
        state = state.create(apply_fn=state.apply_fn, params=state.params, tx=tx)
    for _ in range(5):
        state, *_ = train_helpers.train_epoch(
            state, model, data.loader(32, shape=(1, 784)), "CE", 0, rule, False
        )
    layers, feedback = [], []
    for name, one in sorted(jax.tree.map(np.asarray, state.params).items()):
        own = one.get("Dense_0", one)
        layers.append({key: own[key] for key in ("kernel", "bias")})
        extra = {key: value for key, value in one.items() if key not in ("Dense_0", *layers[-1])}
        feedback.append((name, "Dense_0" in one, extra))
    return layers, feedback


def hidden(layer: Any, h: Any) -> Any:
    """One of its layers as its own forward pass computes it."""
    import jax

    return jax.nn.relu(h @ layer["kernel"] + layer["bias"])


def head(layer: Any, h: Any) -> Any:
    """The last one, without an activation."""
    return h @ layer["kernel"] + layer["bias"]


def step(rule: str, feedback: Any, network: Any, x: Any, y: Any) -> None:
    """Plain SGD by the gradients of its own network, whose backward uses the feedback matrices."""
    import jax
    import optax
    from bioflax.model import BatchBioNeuralNetwork

    model = BatchBioNeuralNetwork(
        hidden_layers=[500, 500], activations=["relu", "relu"], features=10, mode=rule
    )
    layers = [layer for _, layer in network.layers]

    def loss(layers: Any) -> Any:
        params = params_of(rule, layers, feedback)
        outputs = model.apply({"params": params}, x.numpy()[:, None])
        return optax.softmax_cross_entropy_with_integer_labels(outputs[:, 0], y.numpy()).mean()

    found = jax.grad(loss)(layers)
    changed = jax.tree.map(lambda one, slope: one - 0.01 * slope, layers, found)
    network.update([(f, layer) for (f, _), layer in zip(network.layers, changed, strict=True)])


def params_of(rule: str, layers: Any, feedback: Any) -> Any:
    """The layers under the names of its network."""
    return {
        name: {**({"Dense_0": layer} if nested else layer), **extra}
        for layer, (name, nested, extra) in zip(layers, feedback, strict=True)
    }


def audit(rule: str, trained: Any, data: Data) -> DiagnosticReport:
    """Its layers as one module, and its own backward as the step."""
    from pytest_fadiag.jax import module

    layers, feedback = trained
    return diagnose(
        module([(hidden, layers[0]), (hidden, layers[1]), (head, layers[2])]),
        data.test(shape=(784,)),
        train=data.training(shape=(784,)),
        step=partial(step, rule, feedback),
        method_name=rule,
    )
