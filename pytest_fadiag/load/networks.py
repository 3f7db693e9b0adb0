"""Networks to load a checkpoint into: the reference ResidualMLP, a factory of the user's, or one of torchvision's."""

from __future__ import annotations

import copy
import difflib
import itertools
import re
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..judge.errors import AuditError
from .checkpoints import Checkpoint
from .huggingface import MODELS, advice, config_of
from .names import WRAPPERS, fit, unprefixed
from .residual_mlp import ACTIVATIONS, ResidualMLP
from .specs import call_factory, is_factory
from .vision import import_torchvision

ASSUMED_ACTIVATION = "gelu"
KINDS = "package.module:factory, torchvision:NAME, or nothing for the reference ResidualMLP"


def build_network(checkpoint: Checkpoint, spec: str | nn.Module | None = None) -> nn.Module:
    """The network of a checkpoint with its tensors loaded, in the precision in which they were saved."""
    if checkpoint.network is not None and spec is None:
        return copy.deepcopy(checkpoint.network)
    with torch.random.fork_rng(devices=[]):  # the initialisation is overwritten, and the user's random state is not ours
        network = _bare(checkpoint, spec)
    load_into(network, checkpoint)
    return network


def choose_device(name: str) -> torch.device:
    """The device of a name; ``auto`` is the first GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise AuditError(f"unknown device {name!r}; accepted: auto, cpu, cuda, cuda:N, mps") from error
    if device.type not in ("cpu", "cuda", "mps"):
        raise AuditError(f"device {name!r} is not supported; accepted: auto, cpu, cuda, cuda:N, mps")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise AuditError(f"device {name!r} was asked for, but {torch.cuda.device_count()} CUDA devices are visible")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise AuditError("device 'mps' was asked for, but this build of torch has none")
    return device


def wants_flat(network: nn.Module, sample: Tensor) -> bool:
    """Whether the network's first layer with weights is a Linear as wide as a whole sample."""
    first = next((m for m in network.modules() if isinstance(m, (nn.Linear, nn.modules.conv._ConvNd, nn.Embedding))), None)
    return isinstance(first, nn.Linear) and sample.ndim > 1 and first.in_features == sample.numel()


def _bare(checkpoint: Checkpoint, spec: str | nn.Module | None) -> nn.Module:
    if spec is None:
        return residual_mlp_for(checkpoint)
    if isinstance(spec, nn.Module):
        return copy.deepcopy(spec)  # the caller's network keeps its own weights
    if not isinstance(spec, str):
        raise AuditError(f"the network is {spec!r}; accepted: a torch.nn.Module, {KINDS}")
    if spec.startswith("torchvision:"):
        return _torchvision(spec, _unwrapped(checkpoint.state_dict))
    if not is_factory(spec):
        raise AuditError(f"unknown network {spec!r}; accepted: {KINDS}")
    network = call_factory(spec, "network factory", checkpoint.config)
    if not isinstance(network, nn.Module):
        raise AuditError(f"network factory {spec!r} returned {type(network).__name__}, not a torch.nn.Module")
    return network


def assumed_activation(checkpoint: Checkpoint, spec: str | nn.Module | None) -> str | None:
    """The activation that the reference network has because nothing names another; nothing where that is known."""
    rebuilt = spec is None and checkpoint.network is None
    return ASSUMED_ACTIVATION if rebuilt and "activation" not in checkpoint.config else None


def residual_mlp_for(checkpoint: Checkpoint) -> ResidualMLP:
    """The reference network whose tensors have these shapes; only the activation is not in them (``config``, else GELU)."""
    state, where = _unwrapped(checkpoint.state_dict), checkpoint.path
    missing = [name for name in ("embed.weight", "out_head.weight") if name not in state]
    if missing:
        raise AuditError(
            f"{where}: not the reference ResidualMLP ({', '.join(missing)} missing; it has {_some(state)}). "
            f"Name the network that it belongs to with --fa-model=package.module:factory{advice(where, checkpoint.config)}"
        )
    for name in ("embed.weight", "out_head.weight"):
        if state[name].ndim != 2 or not state[name].numel():
            raise AuditError(f"{where}: {name} has shape {tuple(state[name].shape)}, expected a matrix")
    d, d_in = state["embed.weight"].shape
    numbers = {int(found[1]) for name in state if (found := re.match(r"blocks\.([0-9]{1,9})\.", name))}
    gap = next(number for number in itertools.count() if number not in numbers)
    if gap < len(numbers):
        some = ", ".join(map(str, sorted(numbers)[:8])) + (" …" if len(numbers) > 8 else "")
        raise AuditError(f"{where}: block {gap} is missing: the file has tensors of blocks {some}")
    widths = state.get("blocks.0.fc1.weight")
    activation = str(checkpoint.config.get("activation", ASSUMED_ACTIVATION))
    if activation not in ACTIVATIONS:
        raise AuditError(f"{where}: config names the activation {activation!r}; known: {', '.join(ACTIVATIONS)}")
    if widths is not None and not widths.ndim:
        raise AuditError(f"{where}: blocks.0.fc1.weight is a single number, expected a matrix")
    with torch.device("meta"):  # shapes alone, which are compared before the file's own tensors take their place
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
    known = models.list_models(module=models)
    if name not in known:
        close = difflib.get_close_matches(name, known, 8, 0.5)
        raise AuditError(
            f"torchvision has no classification network {name!r}" + (f"; close: {', '.join(close)}" if close else "")
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of an initialisation that the checkpoint overwrites
        try:
            with torch.device("meta"):
                classes = _classes(models.get_model(name, weights=None), state)
        except NotImplementedError:  # RegNets compute their widths with tensors
            classes = _classes(models.get_model(name, weights=None), state)
        network: nn.Module = models.get_model(name, weights=None, **({"num_classes": classes} if classes else {}))
    return network


def _classes(network: nn.Module, state: Mapping[str, Tensor]) -> int | None:
    """How many outputs the checkpoint's head has: the tensor by the name of the network's last layer tells."""
    heads = [name for name, module in network.named_modules() if isinstance(module, (nn.Linear, nn.Conv2d))]
    head = state.get(f"{heads[-1]}.weight") if heads else None
    if head is None or head.shape[1:] != network.get_submodule(heads[-1]).get_parameter("weight").shape[1:]:
        return None  # nothing is built to the measure of a tensor that fits no head
    return len(head) if head.ndim else None


def _unwrapped(state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """The tensors without the prefixes of wrappers such as a LightningModule, where these tell none of them apart."""
    bare = {unprefixed(name, WRAPPERS): value for name, value in state.items()}
    return bare if len(bare) == len(state) else state


def left_aside(network: nn.Module, checkpoint: Checkpoint) -> tuple[str, ...]:
    """The names of tensors that :func:`load_into` leaves aside."""
    return fit(checkpoint.state_dict, network.state_dict()).aside


def load_into(network: nn.Module, checkpoint: Checkpoint) -> None:
    """Load every tensor but those of feedback that the network lacks.

    What is missing, left over or misshaped is an error that names it, with the shape that was expected.
    """
    given, own = checkpoint.state_dict, network.state_dict()
    fitted = fit(given, own, _tied(network))
    problems = [
        _listed("missing", {name: own[name] for name in fitted.missing}),
        _listed("not in the network", {name: given[name] for name in fitted.extra}),
        _misshaped({name: (given[name], own[place]) for place, name in fitted.pairs.items()}),
    ]
    if any(problems):
        if _load_pretrained(network, checkpoint):
            return
        unused = ". If no forward pass uses what the network lacks, save the state_dict without it" if fitted.extra else ""
        raise AuditError(
            f"{checkpoint.path}: does not fit {type(network).__name__}: {'; '.join(filter(None, problems))}. "
            f"Name the network that it belongs to with --fa-model ({KINDS}){unused}"
        )
    own.update({place: given[name] for place, name in fitted.pairs.items()})
    # Assigned, not copied: the network takes the precision in which each tensor was saved.
    network.load_state_dict(own, assign=True)


def _load_pretrained(network: nn.Module, checkpoint: Checkpoint) -> bool:
    """Let Transformers load a folder of its own, whose names in the file may be others than those of the live network.

    Whether it did, with every tensor of the network from the file: what is missing there, Transformers would draw at random.
    """
    load = getattr(type(network), "from_pretrained", None)
    if checkpoint.path.name not in MODELS or not config_of(checkpoint.path) or not callable(load):
        return False
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False, "output_loading_info": True}
    if ".safetensors" in checkpoint.path.name:
        options["use_safetensors"] = True
    else:
        options |= {"use_safetensors": False, "weights_only": True}
    try:
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loaded, told = load(str(checkpoint.path.parent), **options)
        if any(told.get(kind) for kind in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs")):
            return False
        saved = {tensor.dtype for tensor in checkpoint.state_dict.values() if tensor.is_floating_point()}
        if len(saved) == 1:
            loaded = loaded.to(saved.pop())
        network.load_state_dict(loaded.state_dict(), assign=True)
    except Exception:  # of another package; that the names do not fit is said by whoever asked
        return False
    return True


def _tied(network: nn.Module) -> dict[str, list[str]]:
    """By name the other names of the same parameter, of which a safetensors file holds one."""
    names: dict[nn.Parameter, list[str]] = {}
    for name, parameter in network.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, []).append(name)
    return {name: [other for other in shared if other != name] for shared in names.values() if shared[1:] for name in shared}


def _listed(title: str, tensors: Mapping[str, Tensor]) -> str:
    return f"{title}: {_some(tensors)}" if tensors else ""


def _misshaped(pairs: Mapping[str, tuple[Tensor, Tensor]], most: int = 4) -> str:
    wrong = [
        f"{name} is {_kind(given)}, expected {_kind(own)}" for name, (given, own) in pairs.items() if _kind(given) != _kind(own)
    ]
    more = f" and {len(wrong) - most} more" if len(wrong) > most else ""
    return "misshaped: " + ", ".join(wrong[:most]) + more if wrong else ""


def _kind(value: Tensor) -> str:
    """The shape, and whether the numbers are whole; the precision of fractions may differ."""
    return _shape(value) + ("" if value.is_floating_point() else f" {str(value.dtype).removeprefix('torch.')}")


def _some(tensors: Mapping[str, Any], most: int = 4) -> str:
    shown = ", ".join(f"{name} {_shape(value)}" for name, value in list(tensors.items())[:most])
    return shown + (f" and {len(tensors) - most} more" if len(tensors) > most else "") if tensors else "nothing"


def _shape(value: Tensor) -> str:
    return f"[{', '.join(map(str, value.shape))}]"
