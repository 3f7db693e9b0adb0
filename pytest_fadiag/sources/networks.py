"""Networks to load a checkpoint into: the reference ResidualMLP, a factory of the user's, or one of torchvision's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..protocol.errors import AuditError
from .checkpoints import Checkpoint
from .residual_mlp import ACTIVATIONS, ResidualMLP
from .specs import call_factory, is_factory
from .vision import import_torchvision

KINDS = "package.module:factory, torchvision:NAME, or nothing for the reference ResidualMLP"


def build_network(checkpoint: Checkpoint, spec: str | None = None) -> nn.Module:
    """The network of a checkpoint with its tensors loaded, in the precision in which they were saved."""
    network = _bare(checkpoint, spec)
    _load(network, checkpoint)
    return network


def wants_flat(network: nn.Module, sample: Tensor) -> bool:
    """Whether the network's first layer with weights is a Linear as wide as a whole sample."""
    first = next((m for m in network.modules() if isinstance(m, (nn.Linear, nn.modules.conv._ConvNd, nn.Embedding))), None)
    return isinstance(first, nn.Linear) and sample.ndim > 1 and first.in_features == sample.numel()


def _bare(checkpoint: Checkpoint, spec: str | None) -> nn.Module:
    if spec is None:
        return residual_mlp_for(checkpoint)
    if spec.startswith("torchvision:"):
        return _torchvision(spec, checkpoint.state_dict)
    if not is_factory(spec):
        raise AuditError(f"unknown network {spec!r}; accepted: {KINDS}")
    network = call_factory(spec, dict(checkpoint.config), "network factory")
    if not isinstance(network, nn.Module):
        raise AuditError(f"network factory {spec!r} returned {type(network).__name__}, not a torch.nn.Module")
    return network


def residual_mlp_for(checkpoint: Checkpoint) -> ResidualMLP:
    """The reference network whose tensors have these shapes; only the activation is not in them (``config``, else GELU)."""
    state, where = checkpoint.state_dict, checkpoint.path
    missing = [name for name in ("embed.weight", "out_head.weight") if name not in state]
    if missing:
        raise AuditError(
            f"{where}: not the reference ResidualMLP ({', '.join(missing)} missing; it has {_some(state)}). "
            "Name the network that it belongs to with --fa-model=package.module:factory"
        )
    for name in ("embed.weight", "out_head.weight"):
        if state[name].ndim != 2:
            raise AuditError(f"{where}: {name} has shape {tuple(state[name].shape)}, expected a matrix")
    d, d_in = state["embed.weight"].shape
    numbers = {int(found[1]) for name in state if (found := re.match(r"blocks\.(\d+)\.", name))}
    if numbers != set(range(len(numbers))):
        gap = min(set(range(max(numbers) + 1)) - numbers)
        raise AuditError(f"{where}: block {gap} is missing: the file has tensors of blocks {sorted(numbers)}")
    widths = state.get("blocks.0.fc1.weight")
    activation = str(checkpoint.config.get("activation", "gelu"))
    if activation not in ACTIVATIONS:
        raise AuditError(f"{where}: config names the activation {activation!r}; known: {', '.join(ACTIVATIONS)}")
    with torch.random.fork_rng(devices=[]):  # the initialisation is overwritten, and the user's random state is not ours
        return ResidualMLP(
            d_in,
            d,
            len(numbers),
            len(state["out_head.weight"]),
            mlp_ratio=4.0 if widths is None else len(widths) / d,
            activation=activation,
            out_ln=any(name.startswith("out_ln.") for name in state),
        )


def _torchvision(spec: str, state: Mapping[str, Tensor]) -> nn.Module:
    models = import_torchvision().models
    name = spec.partition(":")[2]
    if name not in models.list_models(module=models):
        close = [known for known in models.list_models(module=models) if name[:4] and known.startswith(name[:4])]
        raise AuditError(
            f"torchvision has no classification network {name!r}" + (f"; close: {', '.join(close[:8])}" if close else "")
        )
    classes = _classes(state)
    network: nn.Module = models.get_model(name, weights=None, **({"num_classes": classes} if classes else {}))
    return network


def _classes(state: Mapping[str, Tensor]) -> int | None:
    """The width of the last matrix: torchvision's classifiers end in it."""
    matrices = [value for value in state.values() if value.ndim == 2]
    return len(matrices[-1]) if matrices else None


def _load(network: nn.Module, checkpoint: Checkpoint) -> None:
    """Load every tensor; what is missing, left over or misshaped is named with the shape that was expected."""
    own, given = network.state_dict(), checkpoint.state_dict
    missing = [name for name in own if name not in given]
    extra = [name for name in given if name not in own]
    misshaped = [name for name in own if name in given and own[name].shape != given[name].shape]
    problems = []
    if missing:
        problems.append("missing: " + _some({name: own[name] for name in missing}))
    if extra:
        problems.append("not in the network: " + _some({name: given[name] for name in extra}))
    if misshaped:
        shown = (f"{n} is {_shape(given[n])}, expected {_shape(own[n])}" for n in misshaped[:4])
        problems.append("misshaped: " + ", ".join(shown) + (f" and {len(misshaped) - 4} more" if len(misshaped) > 4 else ""))
    if problems:
        raise AuditError(f"{checkpoint.path}: does not fit {type(network).__name__}: {'; '.join(problems)}")
    dtypes = {value.dtype for value in given.values() if value.is_floating_point()}
    if len(dtypes) == 1:
        network.to(dtype=dtypes.pop())
    network.load_state_dict(dict(given))


def _some(tensors: Mapping[str, Any], most: int = 4) -> str:
    shown = ", ".join(f"{name} {_shape(value)}" for name, value in list(tensors.items())[:most])
    return shown + (f" and {len(tensors) - most} more" if len(tensors) > most else "") if tensors else "nothing"


def _shape(value: Tensor) -> str:
    return f"[{', '.join(map(str, value.shape))}]"
