"""A network in float64: a copy, and the mode in which its forward does not fall back to less."""

from __future__ import annotations

import copy
import math
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from .modules import named_modules, named_parameters
from .parametrised import computed_weights

_DICTIONARIES = (dict, OrderedDict)
NARROW = frozenset({torch.float32, torch.float16, torch.bfloat16})


def copy_of(network: nn.Module, dtype: torch.dtype | None = None) -> nn.Module:
    """A copy of a network, in another precision if one is named; on the CPU where a device has no float64."""
    lacking = dtype == torch.float64 and any(parameter.device.type == "mps" for parameter in network.parameters())
    device = torch.device("cpu") if lacking else None
    # Each tensor once, in the place of the copy that deepcopy would make: it cannot copy tensors that have a graph.
    memo: dict[int, Any] = {id(tensor): _converted(tensor, dtype, device) for tensor in _tensors(network)}
    # A module has a dozen dictionaries of hooks, mostly empty, for which deepcopy takes longer than for all the rest.
    for module in named_modules(network).values():
        memo |= {id(value): type(value)() for value in vars(module).values() if type(value) in _DICTIONARIES and not value}
    return copy.deepcopy(network, memo)


def _converted(tensor: Tensor, dtype: torch.dtype | None, device: torch.device | None) -> Tensor:
    wanted = dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype
    made = tensor.detach().to(device or tensor.device, wanted, copy=True)
    return nn.Parameter(made, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else made


def _tensors(network: nn.Module) -> Iterator[Tensor]:
    for module in named_modules(network).values():
        for value in vars(module).values():
            held = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else (value,)
            yield from (item for item in held if isinstance(item, Tensor))


def redrawn(network: nn.Module, seed: int = 0, gain: float = 1.0) -> nn.Module:
    """The network with weights drawn as at an initialisation, in place: nothing of its architecture is off or not finite."""
    generator = torch.Generator().manual_seed(seed)

    def draw(tensor: Tensor) -> Tensor:
        fan_in = math.prod(tensor.shape[1:]) if tensor.ndim > 1 else 100
        drawn = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
        return (drawn * gain / math.sqrt(fan_in)).to(tensor)

    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        for name, tensor in (*named_parameters(network).items(), *network.named_buffers()):
            if not tensor.is_floating_point():
                continue
            last = name.rpartition(".")[2]
            drawn = draw(tensor)
            if last in ("running_mean", "running_var"):
                tensor.fill_(last == "running_var")
            elif isinstance(tensor, nn.Parameter):
                tensor.copy_(drawn + (tensor.ndim < 2 and "weight" in last))
            else:
                tensor.copy_(torch.where(torch.isfinite(tensor), tensor, drawn))
        for module in named_modules(network).values():
            for one in computed_weights(module):
                one.store(draw(one.value))
    return network


class InFloat64(TorchFunctionMode):
    """Lets a forward that asks for less precision compute in float64; remembers whether something was narrow all the same."""

    def __init__(self) -> None:
        super().__init__()
        self.narrow = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _CASTS:
            func = Tensor.double
        args = tuple(_wide(arg) for arg in args)
        result = func(*args, **{name: _wide(value) for name, value in (kwargs or {}).items()})
        if isinstance(result, Tensor) and result.dtype in NARROW:
            self.narrow = True
        return result


_CASTS = frozenset({Tensor.float, Tensor.half, Tensor.bfloat16})


def _wide(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value in NARROW else value


@contextmanager
def in_float64() -> Iterator[InFloat64]:
    """What a forward makes anew is float64 too."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with InFloat64() as mode:
            yield mode
    finally:
        torch.set_default_dtype(before)
