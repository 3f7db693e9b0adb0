"""Predictive coding in JAX: activities relax towards the target."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from pytest_fadiag import DiagnosticReport, diagnose

from .common import Data, Repository, by_backward

HERE = Repository(
    name="thebuckleylab/jpc",
    commit="7d6cc05742d28b543311e6c4d4ca140ba996f8b5",
    rules=("BP", "predictive coding"),
    bp="BP",
    blocks="the layer 1",
    network="equinox MLP 784-300-300-10, ReLU before each layer",
    data="Fashion-MNIST for MNIST, 10,000 images; 300 steps of 64, as in its notebook",
    changes="the version that an installed package has; a type that JAX 0.10 dropped",
)
SIZES = {"input_dim": 784, "width": 300, "depth": 3, "output_dim": 10}
SIZES |= {"act_fn": "relu", "use_bias": True}
NORMAL = {"mean": 0.1307, "std": 0.3081, "shape": (784,)}


def setup(source: Path) -> Any:
    """The package from its clone, not installed."""
    sys.modules.setdefault("jaxlib.xla_extension", SimpleNamespace(PjitFunction=object))
    found = importlib.metadata.version
    importlib.metadata.version = lambda name: "1.0.0" if name == "jpc" else found(name)
    import jpc

    importlib.metadata.version = found
    return jpc


def train(rule: str, source: Path, data: Data, *, frozen: bool) -> Any:
    """``examples/discriminative_pc.ipynb``."""
    jpc = setup(source)
    import equinox as eqx
    import jax
    import optax

    start = model = jpc.make_mlp(jax.random.PRNGKey(data.seed), **SIZES)
    optim = optax.adam(1e-3)
    state, step = optim.init((eqx.filter(model, eqx.is_array), None)), 0

    @eqx.filter_jit
    def bp_step(model: Any, state: Any, x: Any, t: Any) -> tuple[Any, Any]:
        def loss(model: Any) -> Any:
            h = x
            for layer in model:
                h = jax.vmap(layer)(h)
            return ((h - t) ** 2).sum()

        updates, state = optim.update((eqx.filter_grad(loss)(model), None), state)
        return eqx.apply_updates(model, updates[0]), state

    while step < 300:
        for images, y in data.loader(64, **NORMAL):
            x, t = images.numpy(), np.eye(10, dtype=np.float32)[y]
            if rule == "BP":
                model, state = bp_step(model, state, x, t)
            else:
                found = jpc.make_pc_step(
                    model=model, optim=optim, opt_state=state, output=t, input=x
                )
                model, state = found["model"], found["opt_state"]
            model = [model[0], start[1], model[2]] if frozen else model
            step += 1
            if step == 300:
                break
    return [[np.asarray(one[1].weight), np.asarray(one[1].bias)] for one in model]


def step(network: Any, x: Any, y: Any) -> None:
    """Their inference and one step of plain SGD."""
    import equinox as eqx
    import jpc
    import optax

    layers, t = network.layers, np.eye(10, dtype=np.float32)[y]
    optim = optax.sgd(0.3)
    state = optim.init((eqx.filter(layers, eqx.is_array), None))
    found = jpc.make_pc_step(model=layers, optim=optim, opt_state=state, output=t, input=x.numpy())
    network.update(found["model"])


def squared(outputs: Any, y: Any) -> Any:
    """The squared error of the notebook."""
    return (outputs - torch.nn.functional.one_hot(y, 10)).square().sum()


def audit(rule: str, trained: Any, data: Data) -> DiagnosticReport:
    """Their layers as one module."""
    import equinox as eqx
    import jax
    import jpc

    from pytest_fadiag.jax import module

    blank = jpc.make_mlp(jax.random.PRNGKey(0), **SIZES)
    layers = eqx.tree_at(
        lambda m: [p for one in m for p in (one[1].weight, one[1].bias)],
        blank,
        [jax.numpy.asarray(p) for one in trained for p in one],
    )
    test, training = data.test(**NORMAL), data.training(**NORMAL)
    chosen = by_backward(squared, 1e-3) if rule == "BP" else step
    network = module(layers, batched=False)
    return diagnose(network, test, train=training, loss="mse", step=chosen, method_name=rule)
