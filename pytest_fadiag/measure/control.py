"""The network to train for a frozen-random control: its blocks drawn anew and frozen, the rest left to the training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ..judge.errors import AuditError
from ..judge.wording import listed
from .eager import original, refuse_scripted
from .inputs import ModelInput, call_network, copied, each
from .modules import named_modules, named_parameters
from .reinitialise import modules_of_blocks, reinitialise
from .stream.find import find_stream
from .stream.sites import Stream
from .undisturbed import undisturbed
from .wide import copy_of

SAMPLES = 8
SIDES = (32, 28, 64, 224)
"""Of images, where only the channels of the first layer are known."""
TOKENS = 16


def make_control(
    model: nn.Module,
    stream: str | None = None,
    *,
    inputs: ModelInput | None = None,
    seed: int | None = None,
    from_scratch: bool = False,
) -> nn.Module:
    """A copy of a network to train as its frozen-random control: blocks drawn anew and frozen, the rest trainable.

    Weights and batch statistics of the blocks stay what they are, also after ``train()``. Embedding, last normalisation and
    head are the model's: give the network as it is before its training, or draw them anew too (``from_scratch``). ``stream``
    says where the blocks are, as ``--fa-stream`` does; ``inputs`` is a handful of samples to find them by, where those guessed
    from the first layer do not fit. Without a ``seed`` the blocks are drawn from torch's own random state, as at every
    initialisation; a control has the seed of its network.
    """
    refuse_scripted(original(model))
    control = copy_of(original(model))
    found = _stream_of(control, stream, inputs)
    drawn_by = int(torch.randint(2**62, ())) if seed is None else seed
    _draw(control, found, drawn_by)
    if from_scratch:
        inside, rest = frozenset().union(*found.parameters), ("what is outside the blocks",)
        _draw(control, replace(found, blocks=rest, parameters=(found.outside - inside,), outside=inside), _another(drawn_by))
    _freeze(control, found)
    return control


def frozen_parameters(control: nn.Module) -> list[str]:
    """The names of what stays as it was drawn."""
    return [name for name, parameter in named_parameters(control).items() if not parameter.requires_grad]


def _another(seed: int) -> int:
    """A seed that follows from one: by the same, the embedding would have the numbers of the first block."""
    return int(torch.randint(2**62, (), generator=torch.Generator().manual_seed(seed)))


def _draw(network: nn.Module, stream: Stream, seed: int) -> None:
    undrawn = reinitialise(network, stream, seed)
    if undrawn:
        raise AuditError(
            f"{listed(undrawn)} cannot be drawn anew: some of its parameters are read elsewhere too, or are no fractions. "
            "Build the network anew instead, and freeze its blocks before training"
        )


def _freeze(network: nn.Module, stream: Stream) -> None:
    """Keep parameters from being trained, and batch statistics from following the batches of a training pass."""
    parameters = named_parameters(network)
    for block in stream.own:
        for name in block:
            parameters[name].requires_grad_(False)
    for module, _ in modules_of_blocks(network, parameters, stream):
        if isinstance(module, nn.modules.batchnorm._NormBase) and module.track_running_stats:
            module.register_forward_pre_hook(_in_eval_mode)


def _in_eval_mode(module: nn.Module, _args: Any) -> None:
    module.training = False  # train() of the whole network reaches it too


def _stream_of(network: nn.Module, spec: str | None, inputs: ModelInput | None) -> Stream:
    with undisturbed(network) as (prepared, _), torch.no_grad():
        if inputs is not None:
            return find_stream(prepared, each(inputs, lambda tensor: tensor[:SAMPLES]), spec)
        for guess in _guesses(prepared):
            try:
                call_network(prepared, copied(guess))
            except Exception:  # the inputs of another network
                continue
            return find_stream(prepared, guess, spec)
    raise AuditError(
        "the network runs on no inputs that its first layer lets one guess: give a handful of samples to find its blocks by, "
        "make_control(model, inputs=x)"
    )


def _guesses(network: nn.Module) -> Iterator[Tensor]:
    """Inputs that the first layer with weights would take."""
    modules = named_modules(network).values()
    first = next((module for module in modules if any(p is not None and p.ndim > 1 for p in module._parameters.values())), None)
    weight = None if first is None else next(p for p in first._parameters.values() if p is not None and p.ndim > 1)
    if weight is None:
        return
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(SAMPLES, *shape, generator=generator).to(weight)

    if isinstance(first, nn.Embedding):
        yield torch.randint(first.num_embeddings, (SAMPLES, TOKENS), generator=generator).to(weight.device)
    elif isinstance(first, (nn.Conv1d, nn.Conv2d, nn.Conv3d)):
        dims = len(first.kernel_size)
        yield from (drawn(first.in_channels, *[side] * dims) for side in SIDES)
    else:
        width = weight.shape[-1]
        yield from (drawn(width), drawn(TOKENS, width))
