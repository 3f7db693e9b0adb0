"""Streams that were found in this process, by the structure of the network: the stream belongs to the architecture."""

from __future__ import annotations

import enum
import functools
import types
from collections.abc import Hashable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..inputs import ModelInput
from ..modules import named_modules
from .sites import Stream

MOST = 64
HOOKS = ("_forward_hooks", "_forward_pre_hooks")
BESIDE = (
    *("training", "_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "_is_full_backward_hook"),
    *("_backward_hooks", "_backward_pre_hooks", "_state_dict_hooks", "_state_dict_pre_hooks"),
    *("_load_state_dict_pre_hooks", "_load_state_dict_post_hooks"),
    *("_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks_with_kwargs"),
)
"""What of a module says nothing of its forward, or is looked at by itself."""
PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.layout, enum.Enum, range)
CODE = (type, types.FunctionType, types.BuiltinFunctionType)
"""Compared by what they are: another function of the same text may hold other values."""

Names = dict[nn.Module | Tensor, str]
"""By which modules and tensors are told from others of their kind: a tensor that two layers share is read outside too."""

_found: dict[Hashable, Stream] = {}


class _Unknown(Exception):
    """Something of which nobody can say whether two are alike."""


def structure_of(model: nn.Module, x: ModelInput, *asked: Hashable) -> Hashable | None:
    """What decides the stream of a network: its classes, shapes and settings, and the shapes of its inputs.

    Nothing where a module holds what cannot be compared: then the stream is looked for each time.
    """
    modules = named_modules(model)
    names: Names = {module: name for name, module in modules.items()}
    tensors = x if isinstance(x, dict) else {"": x}
    inputs = tuple((name, tuple(tensor.shape[1:]), tensor.dtype) for name, tensor in tensors.items())
    try:
        return (tuple((name, _module(module, names)) for name, module in modules.items()), inputs, asked)
    except (_Unknown, RecursionError):
        return None


def recall(structure: Hashable | None) -> Stream | None:
    """The stream of a network of the same structure, where one was found."""
    return None if structure is None else _found.get(structure)


def remember(structure: Hashable | None, stream: Stream) -> None:
    """Keep a stream that was found; of many the first ones are forgotten."""
    if structure is not None:
        if len(_found) >= MOST:
            del _found[next(iter(_found))]
        _found[structure] = stream


def _module(module: nn.Module, names: Names) -> Hashable:
    own = vars(module)
    settings = {name: value for name, value in own.items() if name not in (*BESIDE, *HOOKS)}
    return (
        type(module),
        type(module).forward,
        tuple((name, _value(own.get(name), names)) for name in ("_parameters", "_buffers", "_modules")),
        tuple(tuple(own.get(name, {}).values()) for name in HOOKS),
        _value(settings, names),
    )


def _value(value: Any, names: Names) -> Hashable:
    made: Hashable
    if isinstance(value, nn.Module) and value in names:
        made = ("module", names[value])
    elif isinstance(value, Tensor):
        made = ("tensor", names.setdefault(value, str(len(names))), tuple(value.shape), value.dtype, value.device)
    elif isinstance(value, PLAIN):
        made = (type(value), value)
    elif isinstance(value, CODE):
        made = value
    elif isinstance(value, functools.partial):
        made = ("partial", value.func, _value(value.args, names), _value(value.keywords, names))
    elif isinstance(value, Mapping) and type(value).__module__ in ("builtins", "collections"):
        made = (type(value), tuple((_value(key, names), _value(item, names)) for key, item in value.items()))
    elif type(value) in (tuple, list, torch.Size):
        made = (type(value), tuple(_value(item, names) for item in value))
    else:
        raise _Unknown
    return made
