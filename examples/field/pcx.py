"""Predictive coding in the JAX library of its benchmark: value nodes relax, then each layer learns from its error."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch.nn.functional import cross_entropy
from torch.optim import SGD, Adam

from pytest_fadiag import DiagnosticReport, diagnose

from .common import Data, Repository

HERE = Repository(
    "liukidar/pcx",
    commit="f0f861f7026d794ca26e8793b40bb7381634bc80",
    rules=("BP", "predictive coding"),
    bp="BP",
    blocks="the layer 1",
    seeds=1,
    paper={"": "other · other · other"},
    network="MLP 784-256-256-10, leaky ReLU, cross-entropy energy",
    data="5 epochs of batches of 64, 8 steps of inference: the settings of its first notebook, Adam lr 1e-3",
)


def parts() -> Any:
    """The network and the functions of ``examples/0_two_moons.ipynb``."""
    import jax
    import optax
    import pcx as px
    import pcx.functional as pxf
    import pcx.nn as pxnn
    import pcx.predictive_coding as pxc
    import pcx.utils as pxu

    values = pxc.VodeParam | pxc.VodeParam.Cache

    class Model(pxc.EnergyModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layers = [pxnn.Linear(784, 256), pxnn.Linear(256, 256), pxnn.Linear(256, 10)]
            self.vodes = [pxc.Vode(), pxc.Vode(), pxc.Vode(pxc.ce_energy)]
            self.vodes[-1].h.frozen = True

        def __call__(self, x: Any, y: Any) -> Any:
            for vode, layer in zip(self.vodes[:-1], self.layers[:-1], strict=True):
                x = vode(jax.nn.leaky_relu(layer(x)))
            self.vodes[-1](self.layers[-1](x))
            if y is not None:
                self.vodes[-1].set("h", y)
            return self.vodes[-1].get("u")

    @pxf.vmap(pxu.M(values).to((None, 0)), in_axes=(0, 0), out_axes=0)
    def forward(x: Any, y: Any, *, model: Any) -> Any:
        return model(x, y)

    @pxf.vmap(pxu.M(values).to((None, 0)), in_axes=(0,), out_axes=(None, 0), axis_name="batch")
    def energy(x: Any, *, model: Any) -> Any:
        y = model(x, None)
        return jax.lax.psum(model.energy(), "batch"), y

    @pxf.jit()
    def step(x: Any, y: Any, *, model: Any, optim_w: Any, optim_h: Any) -> None:
        model.train()
        with pxu.step(model, pxc.STATUS.INIT, clear_params=pxc.VodeParam.Cache):
            forward(x, y, model=model)
        free = pxu.M_hasnot(pxc.VodeParam, frozen=True)
        optim_h.init(free(model))
        for _ in range(8):
            with pxu.step(model, clear_params=pxc.VodeParam.Cache):
                _, slope = pxf.value_and_grad(free.to([False, True]), has_aux=True)(energy)(
                    x, model=model
                )
            optim_h.step(model, slope["model"])
        optim_h.clear()
        with pxu.step(model, clear_params=values):
            learned = pxu.M(pxnn.LayerParam).to([False, True])
            _, slope = pxf.value_and_grad(learned, has_aux=True)(energy)(x, model=model)
        optim_w.step(model, slope["model"], scale_by=1.0 / x.shape[0])

    def optimisers(model: Any, optimiser: Any) -> dict[str, Any]:
        inference = pxu.Optim(lambda: optax.sgd(1e-2, momentum=0.5, nesterov=True))
        return {
            "optim_w": pxu.Optim(lambda: optimiser, pxu.M(pxnn.LayerParam)(model)),
            "optim_h": inference,
        }

    px.RKG.seed(0)
    return Model, step, optimisers


def arrays(layer: Any) -> Any:
    """The parameter objects of its layer."""
    return layer.nn.weight, layer.nn.bias


def train(rule: str, source: Path, data: Data, *, frozen: bool) -> Any:
    """The notebook's loop; BP is the project's own, over the same layers from the same start."""
    import jax
    import optax

    make, step, optimisers = parts()
    model = make()
    second = [one.get() for one in arrays(model.layers[1])]
    optims = optimisers(model, optax.adam(1e-3))
    if rule == "BP":
        network = modules([[np.asarray(p.get()) for p in arrays(one)] for one in model.layers])
        network.blocks[0].requires_grad_(not frozen)
        adam = Adam([p for p in network.parameters() if p.requires_grad], lr=1e-3)
        for _ in range(5):
            for x, y in data.loader(64, shape=(784,)):
                adam.zero_grad()
                cross_entropy(network(x), y).backward()
                adam.step()
        return [[np.asarray(one[key]) for key in ("weight", "bias")] for _, one in network.layers]
    for _ in range(5):
        for x, y in data.loader(64, shape=(784,)):
            step(x.numpy(), jax.nn.one_hot(y.numpy(), 10), model=model, **optims)
            for one, start in zip(arrays(model.layers[1]), second if frozen else (), strict=False):
                one.set(start)
    return [[np.asarray(p.get()) for p in arrays(one)] for one in model.layers]


def hidden(layer: Any, h: Any) -> Any:
    """A layer of its network."""
    import jax

    return jax.nn.leaky_relu(h @ layer["weight"].T + layer["bias"])


def head(layer: Any, h: Any) -> Any:
    """The last one."""
    return h @ layer["weight"].T + layer["bias"]


def modules(weights: Any) -> Any:
    """Its layers as one module."""
    from pytest_fadiag.jax import module

    named = [{"weight": weight, "bias": bias} for weight, bias in weights]
    return module([(hidden, named[0]), (hidden, named[1]), (head, named[2])])


def step(theirs: Any, network: Any, x: Any, y: Any) -> None:
    """Their inference and one step of plain SGD, with these weights."""
    import jax
    import optax

    make, one_step, optimisers = theirs
    model = make()
    for layer, (_, own) in zip(model.layers, network.layers, strict=True):
        for parameter, value in zip(arrays(layer), (own["weight"], own["bias"]), strict=True):
            parameter.set(jax.numpy.asarray(value))
    optims = optimisers(model, optax.sgd(0.01))
    one_step(x.numpy(), jax.nn.one_hot(y.numpy(), 10), model=model, **optims)
    changed = [[p.get() for p in arrays(layer)] for layer in model.layers]
    network.update(
        [
            (function, {"weight": weight, "bias": bias})
            for (function, _), (weight, bias) in zip(network.layers, changed, strict=True)
        ]
    )


def backward(model: Any, x: Any, y: Any) -> None:
    """BP over the same layers."""
    SGD(model.parameters(), 0.01).step(lambda: cross_entropy(model(x), y).backward())


def audit(rule: str, trained: Any, data: Data) -> DiagnosticReport:
    """The layers as one module."""
    return diagnose(
        modules(trained),
        data.test(shape=(784,)),
        train=data.training(shape=(784,)),
        step=backward if rule == "BP" else partial(step, parts()),
        method_name=rule,
    )
