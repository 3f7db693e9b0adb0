"""The copy of a network on which its stream is found: float64, and with weights that switch no path off."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ...judge.errors import AuditError
from ..modules import named_modules, named_parameters

NARROW = (torch.float32, torch.float16, torch.bfloat16)
SEED = 20260
POOL = 65_537
"""How many random numbers are drawn; weights take them in turn, and no row of a matrix is like another, as this is a prime."""
NORMS = nn.modules.batchnorm._NormBase


def perturbed(model: nn.Module, gain: float) -> nn.Module:
    """A float64 copy in eval mode with weights drawn anew: no branch is off, none drowns another, nothing is NaN.

    The stream belongs to the architecture, not to the weights: a dead, exploded or constant network has the same one.
    """
    network = _copy(model)
    pool = torch.randn(POOL, generator=torch.Generator().manual_seed(SEED), dtype=torch.float64)
    for parameter in named_parameters(network).values():
        if parameter.is_floating_point():
            parameter.data = _drawn(parameter, gain, pool)
            parameter.requires_grad_(False)
    for module in named_modules(network).values():
        module.training = False
        _widen_tensors(module)
        if isinstance(module, NORMS) and module.running_var is not None and module.running_mean is not None:
            module.running_mean.zero_()
            module.running_var.fill_(1.0)
    return network


def _copy(model: nn.Module) -> nn.Module:
    # A tensor that a forward pass left behind may belong to a graph, and deepcopy refuses those.
    held = (value for module in named_modules(model).values() for value in vars(module).values())
    memo: dict[int, Any] = {id(t): t.detach().clone() for t in held if isinstance(t, Tensor) and not t.is_leaf}
    try:
        network: nn.Module = copy.deepcopy(model, memo)
    except Exception as error:
        raise AuditError(
            f"the network cannot be copied ({type(error).__name__}: {error}), so its stream cannot be tested; let its modules "
            "hold nothing that copy.deepcopy refuses"
        ) from error
    return network


def _drawn(parameter: Tensor, gain: float, pool: Tensor) -> Tensor:
    """Weights of the size that keeps a signal: matrices by their fan-in, vectors around 1, since many of them scale."""
    number = parameter.numel()
    values = pool.repeat(-(-number // POOL))[:number].reshape(parameter.shape).to(parameter.device)
    if parameter.ndim < 2:
        return 1 + 0.3 * values
    scale: float = gain / parameter[0].numel() ** 0.5
    return values * scale


def _widen_tensors(module: nn.Module) -> None:
    """Buffers and plain tensors in float64; NaN among them is no mask."""
    for name, buffer in module._buffers.items():
        if buffer is not None and buffer.is_floating_point():
            module._buffers[name] = torch.where(torch.isnan(buffer), 0.0, buffer.double())
    for name, value in vars(module).items():
        if isinstance(value, Tensor) and value.is_floating_point():
            vars(module)[name] = value.detach().double()


@contextmanager
def wide() -> Iterator[None]:
    """Compute in float64 throughout, also where a network's code asks for less."""
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        with _Wide():
            yield
    finally:
        torch.set_default_dtype(before)


class _Wide(TorchFunctionMode):
    """Every narrower float type that a call asks for is float64."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (Tensor.float, Tensor.half, Tensor.bfloat16):
            func = Tensor.double
        kwargs = {name: torch.float64 if _narrow(value) else value for name, value in (kwargs or {}).items()}
        return func(*(torch.float64 if _narrow(value) else value for value in args), **kwargs)


def _narrow(value: Any) -> bool:
    return isinstance(value, torch.dtype) and value in NARROW
