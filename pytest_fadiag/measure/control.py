"""The network to train for a frozen-random control."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from ..judge.errors import AuditError
from .copies import named_parameters, quiet, refuse_scripted, working_copy
from .inputs import like, rows
from .redraw import modules_of_blocks, redrawn_blocks, reinitialise
from .stream.find import find_stream
from .types import ModelInput

SAMPLES = 8


def make_control(
    model: nn.Module,
    stream: str | None = None,
    *,
    inputs: ModelInput | None = None,
    seed: int = 0,
    from_scratch: bool = False,
) -> nn.Module:
    """A copy of a network to train as its control: blocks re-initialised and frozen.

    Weights and batch statistics of the blocks stay what they are, also after ``train()``.
    Embedding, last normalisation and head are the model's: give the network as it is before
    training, or re-initialise them too (``from_scratch``). ``stream`` says where the blocks are,
    as ``--fa-stream`` does. ``inputs`` are a few samples to find them by; without them the first
    layer must be linear. A control has the ``seed`` of its network.

    >>> control = make_control(build(config), inputs=x, seed=config["seed"])
    >>> train(control, data)  # as the network was trained
    """
    refuse_scripted(model)
    network = working_copy(model)
    with quiet(network):
        if inputs is None:
            first = next((own for own in network.modules() if own._parameters), None)
            if not isinstance(first, nn.Linear):
                raise AuditError(
                    "the blocks are found by a few samples, which the first layer does not tell; "
                    "give them: make_control(model, inputs=x)"
                )
            inputs = torch.randn(SAMPLES, first.in_features)
        found = find_stream(network, like(rows(inputs, slice(SAMPLES)), network), stream)
    inside = frozenset().union(*found.parameters)
    control = redrawn_blocks(model, found, seed)
    if from_scratch:
        # By the same seed the embedding would have the numbers of the first block.
        other = int(torch.randint(2**62, (), generator=torch.Generator().manual_seed(seed)))
        around = "what is outside the blocks", found.outside - inside
        reinitialise(control, [around], inside, other)
    parameters, own = named_parameters(control), inside - found.outside
    for name in own:
        parameters[name].requires_grad_(False)
    for module, _ in modules_of_blocks(control, own):
        if isinstance(module, nn.modules.batchnorm._NormBase) and module.track_running_stats:
            module.register_forward_pre_hook(_in_eval_mode)
    return control


def _in_eval_mode(module: nn.Module, _args: Any) -> None:
    module.training = False  # train() of the whole network reaches it too


def saved_control(control: nn.Module, config: Mapping[str, Any]) -> bytes:
    """The file of a network that is to be trained as a control."""
    file = io.BytesIO()
    content = {
        "state_dict": control.state_dict(),
        "config": dict(config),
        "frozen_parameters": [
            name for name, own in named_parameters(control).items() if not own.requires_grad
        ],
        "untrained": True,
    }
    torch.save(content, file)
    return file.getvalue()
