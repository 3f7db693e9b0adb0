"""Where the networks are kept, and how they come there: each is one file, so that a run that was killed goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from examples.methods.files import save
from pytest_fadiag.load.names import file_digest

from .catalogue import SHIPPED, Network
from .data import training
from .surgery import operate
from .training import train

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "checkpoints"


def path_of(folder: Path, name: str) -> Path:
    """The file of a network."""
    if name.startswith(SHIPPED):
        return FIXTURES / f"{name.removeprefix(SHIPPED)}.pt"
    return folder / "networks" / f"{name}.pt"


def make(network: Network, folder: Path, root: Path) -> None:
    """Train a network, or change its parent, and write its file in one step."""
    torch.set_num_threads(1)
    split = training(root, network.recipe.task)
    if network.parent:
        parent = torch.load(path_of(folder, network.parent), weights_only=True)
        checkpoint = operate(network.surgery, parent, network.recipe, split)
        checkpoint["config"] = {**checkpoint["config"], **_origin(network, folder)}
    else:
        checkpoint = train(network.recipe, split)
    save(checkpoint, path_of(folder, network.name))


def is_made(network: Network, folder: Path) -> bool:
    """Whether the file is there and was made by this very recipe, or from the parent as it is now."""
    path = path_of(folder, network.name)
    if not path.exists() or (network.parent and not path_of(folder, network.parent).exists()):
        return False
    wanted = _origin(network, folder) if network.parent else network.recipe.config()
    config = config_of(path)
    return all(config.get(name) == value for name, value in wanted.items())


def config_of(path: Path) -> dict[str, Any]:
    """What a checkpoint says of itself."""
    config: dict[str, Any] = torch.load(path, weights_only=True)["config"]
    return config


def _origin(network: Network, folder: Path) -> dict[str, str]:
    return {"surgery": network.surgery, "parent": file_digest(path_of(folder, network.parent))}
