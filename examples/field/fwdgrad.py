"""Forward gradients: one random direction a step, and the loss's derivative along it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from torch.optim import SGD

from pytest_fadiag import DiagnosticReport, diagnose

from .common import Data, Repository, freeze, load, missing

HERE = Repository(
    name="orobix/fwdgrad",
    commit="300af55420592916637a3e131a12a2a685ae8433",
    rules=("BP", "forward gradient"),
    bp="BP",
    blocks="fc1",
    seeds=1,
    paper={"": "other · other · other"},
    network="MLP 784-1024-1024-10, ReLU",
    data="5 of 200 epochs, lr 2e-4 (0.1 for BP, whose default of 2e-4 is for 200)",
    changes="its configuration is given as values instead of by hydra",
)
RATES = {"forward gradient": 2e-4, "BP": 0.1}
NORMAL = {"mean": 0.1307, "std": 0.3081, "shape": (784,)}


def train(rule: str, source: Path, data: Data, *, frozen: bool) -> torch.nn.Module:
    """``mnist_fwdgrad.py`` with its default configuration."""
    missing("hydra", "omegaconf", "tensorboard")
    import torch.utils
    from fwdgrad.model import NeuralNet
    from fwdgrad.utils import exponential_lr_decay

    torch.utils.tensorboard = SimpleNamespace(
        writer=SimpleNamespace(SummaryWriter=lambda _: SimpleNamespace(add_scalar=lambda *_: None))
    )

    def network(**sizes: Any) -> torch.nn.Module:
        model: torch.nn.Module = NeuralNet(hidden_sizes=[1024, 1024], **sizes)
        if frozen:
            freeze(model, HERE.blocks)
        return model

    def instantiate(make: Any, **values: Any) -> Any:
        return make(**values)

    module = load(
        source / ("mnist_backprop.py" if rule == "BP" else "mnist_fwdgrad.py"),
        {
            "import hydra\n": "",
            "from omegaconf import DictConfig, OmegaConf\n": "",
            'OmegaConf.register_new_resolver("get_method", hydra.utils.get_method)': "",
            '@hydra.main(config_path="./configs/", config_name="config.yaml")': "",
            "(cfg: DictConfig)": "(cfg)",
            "hydra.utils.instantiate": "instantiate",
            '"NeuralNet" in cfg.model._target_': "True",
            **(
                {} if rule == "BP" else {"randn_like(p) for": "randn_like(p) * p.requires_grad for"}
            ),
            'writer.add_scalar("Test/accuracy", acc / len(mnist_test), steps)': "return model",
        },
    )
    vars(module)["instantiate"] = instantiate
    training: torch.nn.Module = module.train_model(
        SimpleNamespace(
            epochs=5,
            device_id=0,
            grad_clipping=0.0,
            dataset=Batches,
            model=network,
            optimizer=lambda params: SGD(params, lr=RATES[rule]),
            scheduler=lambda optimizer: torch.optim.lr_scheduler.LambdaLR(
                optimizer, lambda step: exponential_lr_decay(step, k=1e-4)
            ),
        )
    )
    return training


class Batches:
    """Shuffled batches of 64, read from memory."""

    def __init__(self, dataset: Any) -> None:
        self.x, self.y = (dataset.data.float().flatten(1) / 255 - 0.1307) / 0.3081, dataset.targets

    def __iter__(self) -> Any:
        return ((self.x[one], self.y[one]) for one in torch.randperm(len(self.y)).split(64))


def gradients(rule: str, model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    """BP's gradient, or along one direction for all parameters, as in ``mnist_fwdgrad.py``."""
    if rule == "BP":
        cross_entropy(model(x), y).backward()
        return
    weights = {name: one.detach() for name, one in model.named_parameters()}
    along = {name: torch.randn_like(one) for name, one in weights.items()}

    def loss(values: Any) -> torch.Tensor:
        return cross_entropy(torch.func.functional_call(model, values, x), y)

    _, slope = torch.func.jvp(loss, (weights,), (along,))
    for name, weight in model.named_parameters():
        weight.grad = slope * along[name]


def audit(rule: str, model: torch.nn.Module, data: Data) -> DiagnosticReport:
    """The network as it is; the step is along one random direction."""
    return diagnose(
        model,
        data.test(**NORMAL),
        train=data.training(**NORMAL),
        step=lambda model, x, y: SGD(model.parameters(), 1e-4).step(
            lambda: gradients(rule, model, x, y)
        ),
        method_name=rule,
    )
