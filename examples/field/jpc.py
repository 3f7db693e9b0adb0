"""Predictive coding in JAX: activities relax towards the target."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from pytest_fadiag import DiagnosticReport, diagnose

from .common import Data, Repository

HERE = Repository(
    name="thebuckleylab/jpc",
    commit="7d6cc05742d28b543311e6c4d4ca140ba996f8b5",
    rules=("BP", "predictive coding"),
    bp="BP",
    blocks="the layer 1",
    paper={"": "other · other · other"},
    network="equinox MLP 784-300-300-10, ReLU before each layer",
    data="1,500 steps of 64 (its notebook: 300)",
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
    import jax
    import optax

    start = model = jpc.make_mlp(jax.random.PRNGKey(data.seed), **SIZES)
    update, steps = updates(rule, model, optax.adam(1e-3)), 0
    while steps < 1_500:
        for x, y in data.loader(64, **NORMAL):
            model = update(model, x, y)
            model = [model[0], start[1], model[2]] if frozen else model
            steps += 1
            if steps == 1_500:
                break
    return model


def updates(rule: str, model: Any, optim: Any) -> Any:
    """Their training step, or BP over the same layers, as a function that keeps the optimiser's state."""
    import equinox as eqx
    import jax
    import jpc

    state = optim.init((eqx.filter(model, eqx.is_array), None))

    @eqx.filter_jit
    def backward(model: Any, state: Any, x: Any, t: Any) -> tuple[Any, Any]:
        def loss(model: Any) -> Any:
            h = x
            for layer in model:
                h = jax.vmap(layer)(h)
            return ((h - t) ** 2).sum()

        changes, state = optim.update((eqx.filter_grad(loss)(model), None), state)
        return eqx.apply_updates(model, changes[0]), state

    def update(model: Any, images: Any, y: Any) -> Any:
        nonlocal state
        x, t = images.numpy(), np.eye(10, dtype=np.float32)[y]
        if rule == "BP":
            model, state = backward(model, state, x, t)
            return model
        found = jpc.make_pc_step(model=model, optim=optim, opt_state=state, output=t, input=x)
        state = found["opt_state"]
        return found["model"]

    return update


def audit(rule: str, trained: Any, data: Data) -> DiagnosticReport:
    """Their layers as one module; the step is one batch of their training."""
    import optax

    from pytest_fadiag.jax import module

    return diagnose(
        module(trained, batched=False),
        data.test(**NORMAL),
        train=data.training(**NORMAL),
        loss="mse",
        step=lambda network, x, y: network.update(
            updates(rule, network.layers, optax.sgd(0.3))(network.layers, x, y)
        ),
        method_name=rule,
    )
