"""The network to train for a frozen-random control."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from ..judge.errors import AuditError
from .copies import named_parameters, quiet, refuse_scripted, working_copy
from .inputs import FORWARD, labelled, like, rows
from .redraw import modules_of_blocks, reinitialise_blocks, with_reinitialised_blocks
from .stream.find import find_stream
from .types import ModelInput

SAMPLES = 8


def make_control(
    model: nn.Module,
    stream: str | None = None,
    *,
    inputs: ModelInput | tuple[ModelInput, torch.Tensor] | None = None,
    forward: Callable[..., Any] | None = None,
    seed: int = 0,
    from_scratch: bool = False,
) -> nn.Module:
    """A copy of a network to train as its control: blocks re-initialised and frozen.

    Weights and batch statistics of the blocks stay what they are, also after ``train()``.
    Embedding, last normalisation and head are the model's: give the network as it is before
    training, or re-initialise them too (``from_scratch``). ``stream`` says where the blocks are,
    as ``--fa-stream`` does. ``inputs`` are a few samples to find them by; without them the first
    layer must be linear. ``forward`` computes the outputs, as for ``diagnose``, and takes targets:
    then ``inputs`` are a pair (x, y). A control has the ``seed`` of its network.

    >>> control = make_control(build(config), inputs=x, seed=config["seed"])
    >>> train(control, data)  # as the network was trained
    """
    refuse_scripted(model)
    network = working_copy(model)
    if forward is not None:
        vars(network)[FORWARD] = forward
    with quiet(network):
        if inputs is None:
            inputs = _drawn_inputs(network)
        if isinstance(inputs, tuple):
            x, y = inputs
            inputs = x if forward is None else labelled(x, y)
        samples = like(rows(inputs, slice(SAMPLES)), network)
        blocks = find_stream(network, samples, stream)
    inside = frozenset().union(*blocks.parameters)
    control = with_reinitialised_blocks(model, blocks, seed)
    if from_scratch:
        # By the same seed the embedding would have the numbers of the first block.
        generator = torch.Generator().manual_seed(seed)
        outside_seed = int(torch.randint(2**62, (), generator=generator))
        outside = ("what is outside the blocks", blocks.outside - inside)
        reinitialise_blocks(control, [outside], inside, outside_seed)
    exclusive = inside - blocks.outside
    parameters = named_parameters(control)
    for name in exclusive:
        parameters[name].requires_grad_(False)
    for module, _ in modules_of_blocks(control, exclusive):
        if isinstance(module, nn.modules.batchnorm._NormBase) and module.track_running_stats:
            module.register_forward_pre_hook(_in_eval_mode)
    return control


def _drawn_inputs(network: nn.Module) -> torch.Tensor:
    """Random samples for a network that begins with a linear layer."""
    first = next((module for module in network.modules() if module._parameters), None)
    if not isinstance(first, nn.Linear):
        raise AuditError(
            "the blocks are found by a few samples, which the first layer does not tell; "
            "give them: make_control(model, inputs=x)"
        )
    return torch.randn(SAMPLES, first.in_features)


def _in_eval_mode(module: nn.Module, _args: Any) -> None:
    module.training = False  # train() of the whole network reaches it too


def saved_control(control: nn.Module, config: Mapping[str, Any]) -> bytes:
    """The file of a network that is to be trained as a control."""
    parameters = named_parameters(control)
    content = {
        "state_dict": control.state_dict(),
        "config": dict(config),
        "frozen_parameters": [name for name in parameters if not parameters[name].requires_grad],
        "untrained": True,
    }
    file = io.BytesIO()
    torch.save(content, file)
    return file.getvalue()
