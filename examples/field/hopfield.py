"""Equilibrium propagation in a Hopfield network: states relax twice, free and nudged. No layer is a function of the one below alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from pytest_fadiag import DiagnosticReport, save_trace
from pytest_fadiag import audit as audit_trace

from .common import Data, Repository

HERE = Repository(
    name="smonsays/equilibrium-propagation",
    commit="45cfee96ebecb92af1cabef4b7533c82fdb2a263",
    rules=("equilibrium propagation",),
    blocks=r"W\.0",
    seeds=1,
    network="Hopfield network 784-100-10 (its default has 1000), sigmoid",
    data="1,280 test images; 4 of 100 epochs",
    images=1_500,
    pairs=False,
)
NORMAL = {"mean": 0.1307, "std": 0.3081, "shape": (784,)}


def parts(source: Path, batch_size: int) -> tuple[Any, dict[str, Any]]:
    """Its network and the settings of ``etc/energy_restr_hopfield.json``."""
    from lib import energy, utils

    cfg = json.loads((source / "etc/energy_restr_hopfield.json").read_text())
    cost, phi = (
        utils.create_cost(cfg["c_energy"], cfg["beta"]),
        utils.create_activations(cfg["nonlinearity"], 3),
    )
    return energy.RestrictedHopfield([784, 100, 10], cost, batch_size, phi), cfg


def train(rule: str, source: Path, data: Data, *, frozen: bool) -> Any:
    """``run_energy_model_mnist.py`` with the defaults of the Hopfield energy."""
    from lib import train as training
    from lib import utils

    model, cfg = parts(source, 100)
    optimizer = utils.create_optimizer(model, cfg["optimizer"], lr=cfg["learning_rate"])
    if frozen:
        first = list(model.W[0].parameters())
        start = [one.detach().clone() for one in first]
        optimizer.register_step_post_hook(
            lambda *_: [one.data.copy_(own) for one, own in zip(first, start, strict=True)]
        )
    loader = data.loader(cfg["batch_size"], **NORMAL)
    for _ in range(4):
        batches = [(x, torch.nn.functional.one_hot(y, 10)) for x, y in loader]
        training.train(model, batches, cfg["dynamics"], optimizer, cfg["fast_ff_init"])
    return model.state_dict(), str(source)


def audit(rule: str, trained: Any, data: Data) -> DiagnosticReport:
    """The free states; g by letting the layers above a state relax again while that state is held."""
    weights, source = trained
    x, y = (one[:1280] for one in data.arrays(train=False, **NORMAL).tensors)
    model, cfg = parts(Path(source), len(y))
    model.load_state_dict(weights)
    one_hot, dt = torch.nn.functional.one_hot(y, 10), cfg["dynamics"]["dt"]

    def relaxed(target: Any, steps: int) -> list[torch.Tensor]:
        model.clamp_layer(0, x)
        model.set_C_target(target)
        model.u_relax(dt, steps, 0, 1)
        return [u.detach().clone() for u in model.u]

    def gradient(layer: int, some: slice) -> torch.Tensor:
        model.set_C_target(None)
        u = [one[some].clone().requires_grad_() for one in free]
        held = u[layer]
        for _ in range(100):
            model.u = u
            model.update_energy()
            downhill = torch.autograd.grad(model.E.sum(), u[layer + 1 :], create_graph=True)
            u = [
                *u[: layer + 1],
                *(one - dt * step for one, step in zip(u[layer + 1 :], downhill, strict=True)),
            ]
        (found,) = torch.autograd.grad(((u[-1] - one_hot[some]) ** 2).sum(), held)
        return found

    model.reset_state()
    free, nudged = relaxed(None, 200), relaxed(one_hot, cfg["dynamics"]["n_relax"])
    parts_of = [slice(i, i + 128) for i in range(0, len(y), 128)]
    g = [torch.cat([gradient(layer, some) for some in parts_of]) for layer in (0, 1)]
    (*h, outputs), a = free, [free[1] - nudged[1]]
    e = 2 * (outputs - one_hot)
    save_trace("trace.npz", outputs=outputs, y=y, e=e, h=h, g=g, a=a, x=x, loss="mse", method="EP")
    return audit_trace("trace.npz")
