"""Networks to load a checkpoint into: the reference ResidualMLP, a factory's, or torchvision's."""

from __future__ import annotations

import copy
import re
import sys
import warnings
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..judge.errors import AuditError
from ..judge.words import and_more
from .checkpoint import PREFIXES, Checkpoint, unprefixed
from .specs import call_factory
from .vision import import_torchvision

ASSUMED_ACTIVATION = "gelu"
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "gelu": nn.GELU,
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "silu": nn.SiLU,
    "identity": nn.Identity,
}
WRAPPERS = (*PREFIXES, "model.", "net.", "network.")
"""What a LightningModule puts before names too; a network may also call a part of it so."""
NAME_IT = "name the network with --fa-model=package.module:factory or torchvision:NAME"

_PARAMETER = r"(?:weights?|bias(?:es)?|matri(?:x|ces)|params?|layers?|kernels?)"
_FEEDBACK_OR_LOSS = re.compile(
    rf"(?:^|\.)(?:Bs|B_?(?:fb|fa|dfa|\d+)|(?:fixed_|random_)?(?:fb|feedbacks?)(?:_?{_PARAMETER})*(?:_?\d+)?"
    rf"|{_PARAMETER}_(?:backward|feedback|fb|fa|dfa)|(?:backward|fa|dfa)_{_PARAMETER})(?:\.|$)"
    r"|(?:^|\.)(?:criterion|loss|loss_fn|loss_func|loss_function)\."
)
"""Names that say feedback (Bs, B0, weight_backward, fixed_fb_weights), or weights of a loss."""


class ResidualMLP(nn.Module):
    """h_0 = embed(x), h_{l+1} = h_l + f_l(h_l), logits = out_head(out_ln(h_L)); flattens images.

    f_l(h) = fc2(act(fc1(ln(h)))).

    >>> ResidualMLP(784, 64, blocks=4, classes=10)(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        d_in: int = 3072,
        d: int = 256,
        blocks: int = 4,
        classes: int = 10,
        *,
        mlp_ratio: float = 4.0,
        activation: str = "gelu",
        out_ln: bool = True,
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise AuditError(
                f"activation {activation!r:.80} is unknown; known: {', '.join(ACTIVATIONS)}"
            )
        self.embed = nn.Linear(d_in, d)
        self.blocks = nn.ModuleList()
        for _ in range(blocks):
            fc1 = nn.Linear(d, round(mlp_ratio * d))
            fc2 = nn.Linear(fc1.out_features, d)
            parts = {
                "ln": nn.LayerNorm(d),
                "fc1": fc1,
                "act": ACTIVATIONS[activation](),
                "fc2": fc2,
            }
            self.blocks.append(nn.Sequential(OrderedDict(parts)))
        self.out_ln = nn.LayerNorm(d) if out_ln else nn.Identity()
        self.out_head = nn.Linear(d, classes)

    def forward(
        self, x: Tensor, return_hidden: bool = False
    ) -> Tensor | tuple[Tensor, list[Tensor]]:
        h = self.embed(x.flatten(1))
        states = [h]
        for block in self.blocks:
            h = h + block(h)
            states.append(h)
        logits: Tensor = self.out_head(self.out_ln(h))
        return (logits, states) if return_hidden else logits


def build_network(checkpoint: Checkpoint, model: str | nn.Module | None = None) -> nn.Module:
    """The network of a checkpoint with its tensors, in the precision in which they were saved.

    >>> build_network(load_checkpoint("bp_s1.pt"), "torchvision:resnet18")
    """
    if checkpoint.network is not None and model is None:
        return copy.deepcopy(checkpoint.network)
    with torch.random.fork_rng(devices=[]):  # the caller's random state is not ours
        if model is None:
            network: Any = _residual_mlp(checkpoint)
        elif isinstance(model, nn.Module):
            network = copy.deepcopy(model)
        elif not isinstance(model, str):
            raise AuditError(f"model: expected a network or a factory's name, got {model!r}")
        elif model.startswith("torchvision:"):
            network = _torchvision(model.partition(":")[2], checkpoint.state_dict)
        else:
            state = checkpoint.state_dict
            network = call_factory(model, "network factory", checkpoint.config, state_dict=state)
    if not isinstance(network, nn.Module):
        raise AuditError(
            f"network factory {model!r}: expected a torch.nn.Module, got {type(network).__name__}"
        )
    load_into(network, checkpoint)
    return network


def with_tensors_of(network: nn.Module, checkpoint: Checkpoint) -> nn.Module:
    """A copy of a network with the tensors of a checkpoint, such as its control's."""
    duplicate = copy.deepcopy(network)
    load_into(duplicate, checkpoint)
    return duplicate


def assumed_activation(checkpoint: Checkpoint, model: str | nn.Module | None) -> str | None:
    """The activation of a rebuilt reference network, where the config does not name one."""
    if model or checkpoint.network or "activation" in checkpoint.config:
        return None
    return ASSUMED_ACTIVATION


def _residual_mlp(checkpoint: Checkpoint) -> ResidualMLP:
    """The reference network whose tensors have these shapes; they do not tell the activation."""
    saved = checkpoint.state_dict
    state = {}
    for bare_name, name in _bare(saved).items():
        state[bare_name] = saved[name]
    embed = state.get("embed.weight")
    head = state.get("out_head.weight")
    if embed is None or head is None or {embed.ndim, head.ndim} != {2} or not embed.numel():
        tensors = and_more([f"{name} {_kind(tensor)}" for name, tensor in state.items()])
        raise AuditError(
            f"{checkpoint.path}: not the reference ResidualMLP: expected matrices embed.weight and "
            f"out_head.weight, got {tensors}; {NAME_IT}"
        )
    d, d_in = embed.shape
    blocks = {name.split(".")[1] for name in state if name.startswith("blocks.")}
    hidden = 4 * d
    if "blocks.0.fc1.bias" in state:
        hidden = state["blocks.0.fc1.bias"].numel()
    activation = str(checkpoint.config.get("activation", ASSUMED_ACTIVATION))
    with torch.device("meta"):  # shapes alone: the file's own tensors take their place
        return ResidualMLP(
            d_in,
            d,
            len(blocks),
            len(head),
            mlp_ratio=hidden / d,
            activation=activation,
            out_ln="out_ln.weight" in state,
        )


def _torchvision(name: str, state: Mapping[str, Tensor]) -> nn.Module:
    """One of torchvision's classification networks, with the classes of the checkpoint's head."""
    models = import_torchvision().models
    if name not in models.list_models(module=models):
        raise AuditError(
            f"torchvision has no classification network {name!r}; see models.list_models()"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of an initialisation that is overwritten
        network: nn.Module = models.get_model(name, weights=None)
        for layer_name, layer in network.named_modules():
            if isinstance(layer, (nn.Linear, nn.Conv2d)):
                head_name = layer_name
                head_shape = layer.weight.shape
        head = state.get(_bare(state).get(f"{head_name}.weight", ""))
        if head is not None and head.shape[1:] == head_shape[1:]:
            network = models.get_model(name, weights=None, num_classes=len(head))
    return network


def _bare(names: Collection[str]) -> dict[str, str]:
    """Names by what they are without the prefixes of wrappers, unless these tell some apart."""
    names_by_bare = {unprefixed(name, WRAPPERS): name for name in names}
    if len(names_by_bare) < len(names):
        return {name: name for name in names}
    return names_by_bare


def _pairs(network: nn.Module, saved_names: Collection[str]) -> dict[str, str]:
    """By the names of a network's tensors those of a checkpoint."""
    state = {name: t for name, t in network.state_dict().items() if isinstance(t, Tensor)}
    saved = _bare(saved_names)
    pairs = {name: saved[bare] for name, bare in _names_in_files(network, state) if bare in saved}
    return pairs | {name: saved[bare] for bare, name in _bare(state).items() if bare in saved}


def _names_in_files(network: nn.Module, state: Mapping[str, Tensor]) -> Iterator[tuple[str, str]]:
    """The names of tensors, and what Transformers 5 calls them in files: as versions before did."""
    loading = sys.modules.get("transformers.core_model_loading")
    if loading is None or not hasattr(network, "save_pretrained"):
        return
    names = {id(tensor): name for name, tensor in state.items()}
    for name_in_file, tensor in loading.revert_weight_conversion(network, dict(state)).items():
        if id(tensor) in names:  # not one of several made into one
            yield names[id(tensor)], name_in_file


def left_aside(network: nn.Module, checkpoint: Checkpoint) -> tuple[str, ...]:
    """The names of tensors of feedback, or of a loss, that :func:`load_into` leaves aside."""
    used = set(_pairs(network, checkpoint.state_dict).values())
    return _feedback_among(name for name in checkpoint.state_dict if name not in used)


def not_loaded(network: nn.Module, checkpoint: Checkpoint) -> tuple[str, ...]:
    """The names of a network's tensors of feedback, or of a loss, that the checkpoint lacks."""
    pairs = _pairs(network, checkpoint.state_dict)
    return _feedback_among(name for name in network.state_dict() if name not in pairs)


def _feedback_among(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in names if _FEEDBACK_OR_LOSS.search(name))


def load_into(network: nn.Module, checkpoint: Checkpoint) -> None:
    """Load every tensor but feedback that the network lacks; an error names what does not fit."""
    saved = checkpoint.state_dict
    state = network.state_dict()
    pairs = _pairs(network, saved)
    problems = _misfits(network, checkpoint, pairs)
    if not any(problems.values()):
        state.update({place: saved[name] for place, name in pairs.items()})
        network.load_state_dict(state, assign=True)  # assigned: each tensor keeps its precision
    else:
        listed = [f"{what}: {and_more(names)}" for what, names in problems.items() if names]
        raise AuditError(
            f"{checkpoint.path}: does not fit {type(network).__name__}: {'; '.join(listed)}. If it "
            f"was trained as another network, {NAME_IT}"
        )


def _misfits(
    network: nn.Module, checkpoint: Checkpoint, pairs: Mapping[str, str]
) -> dict[str, list[str]]:
    """The tensors that do not fit, by what is wrong with them."""
    saved = checkpoint.state_dict
    missing = []
    misshaped = []
    for place, tensor in network.state_dict().items():
        if not isinstance(tensor, Tensor):
            continue
        if place not in pairs:
            if not _FEEDBACK_OR_LOSS.search(place):
                missing.append(f"{place} {_kind(tensor)}")
            continue
        name = pairs[place]
        kind = _kind(saved[name])
        expected = _kind(tensor)
        if kind != expected:
            misshaped.append(f"{name} is {kind}, expected {expected}")
    placed = {*pairs.values(), *left_aside(network, checkpoint)}
    unplaced = [f"{name} {_kind(tensor)}" for name, tensor in saved.items() if name not in placed]
    return {"missing": missing, "not in the network": unplaced, "misshaped": misshaped}


def _kind(value: Tensor) -> str:
    """The shape, and whether the numbers are whole; the precision of fractions may differ."""
    if value.is_floating_point():
        return f"{list(value.shape)}"
    return f"{list(value.shape)} {value.dtype}".replace("torch.", "")


def choose_device(name: str) -> str:
    """The device of a name; ``auto`` is the first GPU if there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return str(torch.empty(0, device=name).device)
    except (RuntimeError, AssertionError) as error:
        raise AuditError(
            f"device {name!r} is not available: {str(error).splitlines()[0]}"
        ) from error


def first_layer(network: nn.Module) -> nn.Module | None:
    """The first layer with weights."""
    kinds = (nn.Linear, nn.modules.conv._ConvNd, nn.Embedding)
    return next((module for module in network.modules() if isinstance(module, kinds)), None)


def wants_flat(network: nn.Module, sample: Tensor) -> bool:
    """Whether the network's first layer with weights is a Linear as wide as a whole sample."""
    first = first_layer(network)
    return isinstance(first, nn.Linear) and sample.ndim > 1 and first.in_features == sample.numel()


def other_shape(network: nn.Module, batches: Iterable[Any]) -> str:
    """Why a network fails on data of another size than its first layer takes, where that tells."""
    first = first_layer(network)
    x = next((batch[0] for batch in batches), None)
    if not isinstance(first, nn.Linear) or not isinstance(x, Tensor):
        return ""
    if first.in_features in (x[0].numel(), x.shape[-1]):
        return ""
    data = "×".join(map(str, x.shape[1:]))
    return f"the network takes {first.in_features:,} values, the data has {data}: "
