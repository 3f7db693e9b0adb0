"""Predictive coding in JAX: activities relax towards the target, the errors left are the credit."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from pytest_fadiag import DiagnosticReport, save_trace
from pytest_fadiag import audit as audit_trace

from .common import Data, Repository

HERE = Repository(
    name="thebuckleylab/jpc",
    commit="7d6cc05742d28b543311e6c4d4ca140ba996f8b5",
    rules=("BP", "predictive coding"),
    bp="BP",
    blocks="the layers 0 and 1",
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
            model = [*start[:2], model[2]] if frozen else model
            step += 1
            if step == 300:
                break
    return [[np.asarray(one[1].weight), np.asarray(one[1].bias)] for one in model]


def audit(rule: str, trained: Any, data: Data) -> DiagnosticReport:
    """Zeros added to every state give all gradients in one call; the errors after inference are the credit."""
    import equinox as eqx
    import jax
    import jpc

    blank = jpc.make_mlp(jax.random.PRNGKey(0), **SIZES)
    model = eqx.tree_at(
        lambda m: [p for one in m for p in (one[1].weight, one[1].bias)],
        blank,
        [jax.numpy.asarray(p) for one in trained for p in one],
    )
    x, y = (one.numpy() for one in data.arrays(train=False, **NORMAL).tensors)
    t = np.eye(10, dtype=np.float32)[y]

    def loss(zeros: Any) -> Any:
        h = [x + zeros[0]]
        for layer, zero in zip(model, zeros[1:], strict=True):
            h.append(jax.vmap(layer)(h[-1]) + zero)
        return ((h[-1] - t) ** 2).sum(), h

    zeros = [np.zeros((len(x), size), np.float32) for size in (784, 300, 300, 10)]
    (*g, e), (*h, outputs) = jax.grad(loss, has_aux=True)(zeros)
    parts: list[Any] = []
    for one in (
        slice(i, i + 64) for i in range(0, 0 if rule == "BP" else len(x), 64)
    ):  # as trained: the dynamics slow down with the batch's size
        z = [
            part[-1]
            for part in jpc.solve_inference(
                (model, None), [part[one] for part in (*h[1:], outputs)], t[one], input=x[one]
            )
        ]
        parts.append(
            [
                jax.vmap(layer)(below) - above
                for layer, below, above in zip(model, [x[one], *z], z[:2], strict=False)
            ]
        )
    a = [np.concatenate(part) for part in zip(*parts, strict=True)]
    save_trace(
        "trace.npz",
        outputs=outputs,
        y=y,
        e=e,
        h=h,
        g=g,
        a=a,
        x=x,
        loss="mse",
        method=rule,
    )
    return audit_trace("trace.npz")
