"""Copies of a network: the one that is measured, wide and re-initialised ones, and their quiet."""

from __future__ import annotations

import copy
import math
import sys
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ..judge.errors import AuditError

WIDE = "_fadiag_float64"
"""Where a float64 copy holds the mode in which it runs."""
TRAINABLE = "_fadiag_trainable"
"""Where a working copy holds the names of the parameters that training may change."""
NARROW = frozenset({torch.float32, torch.float16, torch.bfloat16, torch.complex64})
_DTYPE = Tensor.dtype.__get__  # type: ignore[attr-defined]


def named_modules(network: nn.Module) -> dict[str, nn.Module]:
    """Every module once, by its first name; also those in plain lists and dictionaries."""
    names: dict[nn.Module, str] = {}
    queue: deque[tuple[str, Any]] = deque([("", network)])
    while queue:
        name, value = queue.popleft()
        members: Mapping[Any, Any] = {}
        if isinstance(value, (list, tuple)):
            members = dict(enumerate(value))
        elif isinstance(value, dict):
            members = value
        elif isinstance(value, nn.Module) and value not in names:
            names[value] = name
            public = {key: member for key, member in vars(value).items() if key[:1] != "_"}
            members = {**value._modules, **public}
        for key, member in members.items():
            if isinstance(member, (nn.Module, list, tuple, dict)):
                queue.append((f"{name}.{key}".lstrip("."), member))
    return {name: module for module, name in names.items()}


def named_parameters(network: nn.Module) -> dict[str, Tensor]:
    """Every parameter once, by its first name."""
    names: dict[Tensor, str] = {}
    for name, module in named_modules(network).items():
        for key, parameter in module._parameters.items():
            if parameter is not None:
                names.setdefault(parameter, f"{name}.{key}".lstrip("."))
    return {name: parameter for parameter, name in names.items()}


def differentiable_parameters(network: nn.Module) -> dict[str, Tensor]:
    """Every parameter once, by its first name, set to get a gradient where it can."""
    parameters = named_parameters(network)
    for parameter in parameters.values():
        parameter.requires_grad_(parameter.is_floating_point())
    return parameters


def precisions(network: nn.Module) -> list[torch.dtype]:
    """The dtypes of its real parameters, the narrowest first; float32 where it has none."""
    parameters = named_parameters(network).values()
    dtypes = {parameter.dtype for parameter in parameters if parameter.is_floating_point()}
    return sorted(dtypes or {torch.float32}, key=lambda dtype: torch.finfo(dtype).bits)


def is_source(name: str) -> bool:
    """Whether weights are computed from this parameter, as by a weight norm or spectral norm."""
    return "parametrizations" in name or name.endswith(("_orig", "weight_g", "weight_v"))


def unwrapped(module: nn.Module) -> nn.Module:
    """The module inside ``torch.compile`` or a data-parallel wrapper; any other module itself."""
    attribute = "_orig_mod"
    if isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        attribute = "module"
    inner = dict(module.named_children()).get(attribute)
    if inner is None:
        return module
    return unwrapped(inner)


class _Copying(TorchFunctionMode):
    """Lets deepcopy take tensors that hold a graph, and make them of another precision."""

    dtype: torch.dtype | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in (Tensor.__deepcopy__, Tensor.clone):
            return func(*args, **(kwargs or {}))
        tensor = args[0].detach()
        device = tensor.device
        dtype = tensor.dtype
        if self.dtype is not None:
            if tensor.is_floating_point():
                dtype = self.dtype
            elif tensor.is_complex():
                dtype = self.dtype.to_complex()
            if device.type == "mps":  # Apple's GPUs have no float64: the CPU takes the copy
                device = torch.device("cpu")
        leaf: Tensor = args[0]
        return tensor.to(device, dtype, copy=True).requires_grad_(
            leaf.is_leaf and leaf.requires_grad
        )


def _uncopyable(network: nn.Module) -> str:
    """The attribute that copy.deepcopy refuses, by the name of its module."""
    for name, module in named_modules(network).items():
        for attribute, value in vars(module).items():
            if attribute in ("_modules", "_parameters", "_buffers"):
                continue
            try:
                with _Copying():
                    copy.deepcopy(value)
            except Exception:
                return f"'{attribute}' of {name or type(network).__name__}"
    return f"a part of {type(network).__name__}"


def copy_of(network: nn.Module, dtype: torch.dtype | None = None) -> nn.Module:
    """A copy, in another precision if one is named; compiled parts are as their authors wrote them.

    A float64 copy runs in float64 whatever its forward asks for: ``call_network`` sees to that.
    """
    memo: dict[int, Any] = {}
    try:
        with _Copying() as copying:
            copying.dtype = dtype
            for part in reversed(named_modules(network).values()):
                for attribute in vars(part).values():
                    if type(attribute) is OrderedDict and not attribute:
                        memo[id(attribute)] = OrderedDict()  # no hooks: saves half the copying time
                inner = unwrapped(part)
                if inner is not part:
                    memo[id(part)] = copy.deepcopy(inner, memo)
            duplicate: nn.Module = copy.deepcopy(network, memo)
    except Exception as error:
        holder = _uncopyable(network)
        raise AuditError(
            f"the network cannot be copied: {holder} cannot ({type(error).__name__}: {error}); "
            "take it out of the module, or give the module a __deepcopy__"
        ) from error
    if dtype == torch.float64:
        in_float64 = InFloat64()
        in_float64.network_dtype = next(network.parameters(), torch.empty(0)).dtype
        vars(duplicate)[WIDE] = in_float64
    return duplicate


def rebound(rule: Any, network: nn.Module, duplicate: nn.Module) -> Any:
    """A copy of what holds a network, such as a method of a trainer, that holds this copy instead.

    What nothing can copy stays as it is, as functions do.
    """
    members = {**named_modules(network), **named_parameters(network)}
    twins = {**named_modules(duplicate), **named_parameters(duplicate)}
    memo = {id(member): twins[name] for name, member in members.items() if name in twins}
    try:
        with _Copying():
            return copy.deepcopy(rule, memo)
    except Exception:
        return rule


@torch.inference_mode(False)
@torch.no_grad()
def working_copy(model: nn.Module) -> nn.Module:
    """The network that is measured: a copy in eval mode, frozen, in float32 or the widest dtype."""
    if not isinstance(model, nn.Module):
        raise AuditError(f"the model is {type(model).__name__}; expected a torch.nn.Module")
    if any(hasattr(parameter, "full_tensor") for parameter in named_parameters(model).values()):
        raise AuditError(
            "the parameters are sharded over processes (DTensor, as by FSDP2); load the full "
            "state_dict into the plain module and audit that"
        )
    network = copy_of(model, torch.promote_types(torch.float32, precisions(model)[-1]))
    vars(network).pop(WIDE, None)  # it is measured as it is
    for module in named_modules(network).values():
        module.training = False
    trained = []
    for name, parameter in named_parameters(network).items():
        if parameter.requires_grad:
            trained.append(name)
        parameter.requires_grad_(False)
    vars(network)[TRAINABLE] = tuple(trained)
    return network


def trainable(network: nn.Module) -> tuple[str, ...]:
    """The parameters of a working copy that training may change, by name."""
    names: tuple[str, ...] = vars(network)[TRAINABLE]
    return names


def refuse_scripted(network: nn.Module) -> None:
    """Raise an error where a part of a network is no Python any more."""
    for name, part in named_modules(network).items():
        if isinstance(part, torch.jit.ScriptModule):
            script = f"module {name!r}" if name else "the network"
            raise AuditError(
                f"{script} is TorchScript, in which neither states nor gradients can be watched; "
                "audit the Python module with these weights (--fa-model=package.module:factory)"
            )


def reinitialised(network: nn.Module, gain: float = 1.0) -> nn.Module:
    """The network re-initialised in place: nothing of its architecture is off or not finite.

    What weights are computed from, as by a spectral norm, keeps its finite values unless all are 0.
    """
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, tensor in (*named_parameters(network).items(), *network.named_buffers()):
            if not (tensor.is_floating_point() or tensor.is_complex()) or not tensor.numel():
                continue
            fan_in = math.prod(tensor.shape[1:]) if tensor.ndim > 1 else 100
            wide = torch.promote_types(tensor.dtype, torch.float64)
            noise = torch.randn(tensor.shape, generator=generator, dtype=wide)
            fresh = (noise * (gain / math.sqrt(fan_in))).to(tensor)
            key = name.rpartition(".")[2]
            if key == "running_mean":
                tensor.fill_(0)
            elif key == "running_var":
                tensor.fill_(1)
            elif isinstance(tensor, nn.Parameter) and not (is_source(name) and tensor.any()):
                is_scale = tensor.ndim < 2 and "weight" in key  # of a norm: about 1
                tensor.copy_(fresh + 1 if is_scale else fresh)
            else:
                tensor.copy_(torch.where(torch.isfinite(tensor), tensor, fresh))
    return network


class InFloat64(TorchFunctionMode):
    """Lets a forward that asks for less precision compute in float64.

    A forward that asks for a tensor's dtype is told the network's own: it goes its usual way.
    """

    network_dtype = torch.float32

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (Tensor.float, Tensor.half, Tensor.bfloat16):
            func = Tensor.double
        keywords = {name: _widened(value) for name, value in (kwargs or {}).items()}
        result = func(*map(_widened, args), **keywords)
        if func == _DTYPE and result == torch.float64:
            return self.network_dtype
        if isinstance(result, Tensor) and result.dtype in NARROW:
            return _wide(result)  # what torch creates, or makes of whole numbers
        return result


def _widened(value: Any) -> Any:
    """An argument of a function, float64 in place of less precision."""
    if isinstance(value, Tensor) and _DTYPE(value) in NARROW:
        return _wide(value)  # a tensor that is no parameter, such as class weights
    if isinstance(value, torch.dtype) and value in NARROW:
        return torch.promote_types(value, torch.float64)
    return value


def _wide(tensor: Tensor) -> Tensor:
    return tensor.to(torch.promote_types(_DTYPE(tensor), torch.float64))


@contextmanager
def quiet(network: nn.Module) -> Iterator[None]:
    """No autocast, no gradients, nothing compiled, new tensors on the CPU; every random state as
    before afterwards.
    """
    cpu_state = torch.random.fork_rng(devices=[])
    with torch.inference_mode(False), torch.no_grad(), cpu_state, ExitStack() as stack:
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        for kind in {"cpu", *(parameter.device.type for parameter in network.parameters())}:
            stack.enter_context(torch.autocast(kind, enabled=False))
            if kind == "cpu":
                continue
            device = torch.get_device_module(kind)
            if kind == "mps":
                stack.callback(device.set_rng_state, device.get_rng_state())
            else:
                stack.callback(device.set_rng_state_all, device.get_rng_state_all())
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
