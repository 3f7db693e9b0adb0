"""Copies of a network: the one that is measured, wide and re-initialised ones, and their quiet."""

from __future__ import annotations

import copy
import math
import sys
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ..judge.errors import AuditError

WIDE = "_fadiag_float64"
"""Where a float64 copy holds the mode in which it runs."""
NARROW = frozenset({torch.float32, torch.float16, torch.bfloat16})
_DTYPE = Tensor.dtype.__get__  # type: ignore[attr-defined]


def named_modules(network: nn.Module) -> dict[str, nn.Module]:
    """Every module once, by its first name; also those in plain lists and dictionaries."""
    found: dict[nn.Module, str] = {}
    waiting: list[tuple[str, Any]] = [("", network)]
    for name, value in waiting:
        held: Mapping[Any, Any] = {}
        if isinstance(value, (list, tuple)):
            held = dict(enumerate(value))
        elif isinstance(value, dict):
            held = value
        elif isinstance(value, nn.Module) and value not in found:
            found[value] = name
            own = {key: other for key, other in vars(value).items() if key[:1] != "_"}
            held = {**value._modules, **own}
        waiting += [
            (f"{name}.{key}".lstrip("."), other)
            for key, other in held.items()
            if isinstance(other, (nn.Module, list, tuple, dict))
        ]
    return {name: module for module, name in found.items()}


def named_parameters(network: nn.Module) -> dict[str, Tensor]:
    """Every parameter once, by its first name."""
    names: dict[Tensor, str] = {}
    for name, module in named_modules(network).items():
        for own, parameter in module._parameters.items():
            if parameter is not None:
                names.setdefault(parameter, f"{name}.{own}".lstrip("."))
    return {name: parameter for parameter, name in names.items()}


def precisions(network: nn.Module) -> list[torch.dtype]:
    """The dtypes of its real parameters, the narrowest first; float32 where it has none."""
    parameters = named_parameters(network).values()
    dtypes = {own.dtype for own in parameters if own.is_floating_point()} or {torch.float32}
    return sorted(dtypes, key=lambda dtype: torch.finfo(dtype).bits)


def is_source(name: str) -> bool:
    """Whether weights are computed from this parameter, as by a weight norm or spectral norm."""
    return "parametrizations" in name or name.endswith(("_orig", "weight_g", "weight_v"))


def unwrapped(module: nn.Module) -> nn.Module:
    """What ``torch.compile`` or a data-parallel wrapper was given; any other module as it is."""
    parallel = isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel))
    inner = dict(module.named_children()).get("module" if parallel else "_orig_mod")
    return module if inner is None else unwrapped(inner)


class _Copying(TorchFunctionMode):
    """Lets deepcopy take tensors that hold a graph, and make them of another precision."""

    dtype: torch.dtype | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in (Tensor.__deepcopy__, Tensor.clone):
            return func(*args, **(kwargs or {}))
        tensor = args[0].detach()
        dtype = self.dtype if self.dtype and tensor.is_floating_point() else tensor.dtype
        # Apple's GPUs have no float64: what is measured is measured on the CPU.
        device = "cpu" if self.dtype and tensor.device.type == "mps" else tensor.device
        return tensor.to(device, dtype, copy=True)


def copy_of(network: nn.Module, dtype: torch.dtype | None = None) -> nn.Module:
    """A copy, in another precision if one is named; compiled parts are as their authors wrote them.

    A float64 copy runs in float64 whatever its forward asks for: ``call_network`` sees to that.
    """
    memo: dict[int, Any] = {}
    try:
        with _Copying() as mode:
            mode.dtype = dtype
            for part in reversed(named_modules(network).values()):
                hooks = (own for own in vars(part).values() if type(own) is OrderedDict)
                memo |= {id(own): OrderedDict() for own in hooks if not own}  # half of the time
                if (inner := unwrapped(part)) is not part:
                    memo[id(part)] = copy.deepcopy(inner, memo)
            made: nn.Module = copy.deepcopy(network, memo)
    except Exception as error:
        raise AuditError(
            f"the network cannot be copied ({type(error).__name__}: {error}); let its modules hold "
            "nothing that copy.deepcopy refuses"
        ) from error
    if dtype == torch.float64:
        vars(made)[WIDE] = InFloat64()
        vars(made)[WIDE].own = next(network.parameters(), torch.empty(0)).dtype
    return made


@torch.inference_mode(False)
@torch.no_grad()
def working_copy(model: nn.Module) -> nn.Module:
    """The network that is measured: a copy in eval mode, frozen, in float32 or the widest dtype."""
    if not isinstance(model, nn.Module):
        raise AuditError(f"the model is {type(model).__name__}; expected a torch.nn.Module")
    network = copy_of(model, torch.promote_types(torch.float32, precisions(model)[-1]))
    vars(network).pop(WIDE, None)  # it is measured as it is
    for module in named_modules(network).values():
        module.training = False
    for parameter in named_parameters(network).values():
        parameter.requires_grad_(False)
    return network


def refuse_scripted(network: nn.Module) -> None:
    """An error where a part of a network is no Python any more."""
    for name, part in named_modules(network).items():
        if isinstance(part, torch.jit.ScriptModule):
            raise AuditError(
                f"{f'module {name!r}' if name else 'the network'} is TorchScript, in which neither "
                "states nor gradients can be watched; audit the Python module with these weights "
                "(--fa-model=package.module:factory)"
            )


def redrawn(network: nn.Module, gain: float = 1.0) -> nn.Module:
    """The network re-initialised in place: nothing of its architecture is off or not finite.

    What weights are computed from, as by a spectral norm, keeps its finite values unless all are 0.
    """
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, tensor in (*named_parameters(network).items(), *network.named_buffers()):
            if not tensor.is_floating_point():
                continue
            last = name.rpartition(".")[2]
            scale = gain / math.sqrt(math.prod(tensor.shape[1:]) if tensor.ndim > 1 else 100)
            noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
            drawn = (noise * scale).to(tensor)
            if last in ("running_mean", "running_var"):
                tensor.fill_(last == "running_var")
            elif isinstance(tensor, nn.Parameter) and not (is_source(name) and tensor.any()):
                tensor.copy_(drawn + (tensor.ndim < 2 and "weight" in last))
            else:
                tensor.copy_(torch.where(torch.isfinite(tensor), tensor, drawn))
    return network


class InFloat64(TorchFunctionMode):
    """Lets a forward that asks for less precision compute in float64.

    A forward that asks for a tensor's dtype is told the network's own: it goes its usual way.
    """

    own = torch.float32

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (Tensor.float, Tensor.half, Tensor.bfloat16):
            func = Tensor.double
        named = {name: _wide(value) for name, value in (kwargs or {}).items()}
        result = func(*map(_wide, args), **named)
        if func == _DTYPE:
            return self.own if result == torch.float64 else result
        # What torch creates, or makes of whole numbers, is float32 by default.
        narrow = isinstance(result, Tensor) and result.dtype in NARROW
        return result.double() if narrow else result


def _wide(value: Any) -> Any:
    if isinstance(value, Tensor) and _DTYPE(value) in NARROW:
        return value.double()  # what it was given, such as class weights
    return torch.float64 if isinstance(value, torch.dtype) and value in NARROW else value


@contextmanager
def quiet(network: nn.Module) -> Iterator[None]:
    """No autocast, no gradients, nothing compiled; every random state as before afterwards."""
    random = torch.random.fork_rng(devices=[])
    with torch.inference_mode(False), torch.no_grad(), random, ExitStack() as stack:
        for kind in {"cpu", *(parameter.device.type for parameter in network.parameters())}:
            stack.enter_context(torch.autocast(kind, enabled=False))
            if kind != "cpu":
                device, end = torch.get_device_module(kind), "" if kind == "mps" else "_all"
                state = getattr(device, f"get_rng_state{end}")()
                stack.callback(getattr(device, f"set_rng_state{end}"), state)
        if "torch._dynamo" in sys.modules:  # without it nothing is compiled; its import takes long
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        yield


@contextmanager
def threads(number: int | None) -> Iterator[None]:
    """Compute with this many threads, and afterwards with as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
