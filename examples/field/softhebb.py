"""SoftHebb: three convolutional layers by a soft winner-take-all Hebbian rule, a linear readout by cross-entropy."""

from __future__ import annotations

from pathlib import Path

import torch

from pytest_fadiag import DiagnosticReport, diagnose

from .common import Data, Repository, freeze, load

HERE = Repository(
    name="NeuromorphicComputing/SoftHebb",
    commit="f4252307633ba38a26ab52504f5fd40352f5a6fd",
    rules=("SoftHebb",),
    blocks="conv2 and conv3",
    seeds=1,
    network="demo.py's three convolutions with 24, 96, 384 of its 96, 384, 1536 channels",
    data="padded to 32 × 32, three equal channels; 1,500 test images; 2 of 50 epochs of the readout",
    images=1_500,
    pairs=False,
    changes="learning rate schedules: the argument verbose, a rate per channel set as a tensor",
)

STEP = """
    def step(self):
        for group, lr in zip(self.optimizer.param_groups, self.get_lr()):
            group["lr"] = lr

    def get_lr(self):
        if False:"""
STILL = {
    "-0.005": "0",
    "-0.01,": "0,",
    "model.to(device)\n": "model.to(device)\n    freeze(model, 'bn[23]')\n",
}


def setup(source: Path, *, frozen: bool = False) -> None:
    """Its classes, so that a saved network can be loaded."""
    load(
        source / "demo.py",
        {
            'if __name__ == "__main__":': "def main(trainset, testset):\n    global model",
            "cuda:0": "cpu",
            "super().__init__(optimizer, last_epoch, verbose)": "super().__init__(optimizer, last_epoch)",
            "super().__init__(optimizer, -1, False)": "super().__init__(optimizer, -1)",
            "    def get_lr(self):\n        if not self._get_lr_called_within_step:": STEP,
            "trainset = FastCIFAR10('./data', train=True, download=True)": "",
            "testset = FastCIFAR10('./data', train=False)": "",
            "out_channels=96,": "out_channels=24,",
            "BatchNorm2d(96,": "BatchNorm2d(24,",
            "in_channels=96, out_channels=384": "in_channels=24, out_channels=96",
            "BatchNorm2d(384,": "BatchNorm2d(96,",
            "in_channels=384, out_channels=1536": "in_channels=96, out_channels=384",
            "24576": "6144",
            "range(50)": "range(2)",
            "nb_epochs=50": "nb_epochs=2",
            "epoch == 49": "epoch == 1",
            **(STILL if frozen else {}),
        },
        name="softhebb_demo",
        freeze=freeze,
    )


def images(data: Data, *, train: bool) -> torch.utils.data.TensorDataset:
    """The first 1,500 images [N, 3, 32, 32] from 0 to 1."""
    x, y = (one[:1_500] for one in data.arrays(train=train).tensors)
    return torch.utils.data.TensorDataset(
        torch.nn.functional.pad(x, (2, 2, 2, 2)).repeat(1, 3, 1, 1), y
    )


def train(rule: str, source: Path, data: Data, *, frozen: bool) -> torch.nn.Module:
    """``demo.py``'s main block: one unsupervised epoch, then the readout."""
    setup(source, frozen=frozen)
    import softhebb_demo as demo

    demo.main(images(data, train=True), images(data, train=False))
    model: torch.nn.Module = demo.model.eval()
    return model


def audit(rule: str, model: torch.nn.Module, data: Data) -> DiagnosticReport:
    """The network as it is."""
    return diagnose(
        model, batches(data, train=False), train=batches(data, train=True), method_name="SoftHebb"
    )


def batches(data: Data, *, train: bool) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The same images in batches of 250."""
    x, y = images(data, train=train).tensors
    return list(zip(x.split(250), y.split(250), strict=True))
