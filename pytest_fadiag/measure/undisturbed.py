"""A network prepared for a measurement, and everything as it was found afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from .eager import eager
from .modules import named_modules, named_parameters
from .wide import copy_of


@contextmanager
def computing_threads(number: int | None) -> Iterator[None]:
    """Compute with this many threads, and afterwards with as many as before."""
    before = torch.get_num_threads()
    try:
        if number is not None and number != before:
            torch.set_num_threads(number)
        yield
    finally:
        if torch.get_num_threads() != before:
            torch.set_num_threads(before)


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[tuple[nn.Module, torch.dtype]]:
    """The network to measure and its own dtype: in eval mode with frozen parameters, and afterwards as it was found."""
    with eager(model) as network, _same_attributes(network), _prepared(network) as prepared:
        yield prepared


@contextmanager
def _same_attributes(network: nn.Module) -> Iterator[None]:
    """What a forward pass leaves on its modules, such as states kept for a local rule, is gone, and what was there is back."""
    lazy = nn.modules.lazy.LazyModuleMixin  # becomes another module in its first pass
    before = [(module, dict(vars(module))) for module in named_modules(network).values() if not isinstance(module, lazy)]
    try:
        yield
    finally:
        for module, attributes in before:
            for name in set(vars(module)) - set(attributes):
                del vars(module)[name]
            vars(module).update(attributes)


@contextmanager
def _prepared(model: nn.Module) -> Iterator[tuple[nn.Module, torch.dtype]]:
    dtypes = {parameter.dtype for parameter in named_parameters(model).values() if parameter.is_floating_point()}
    half = next((dtype for dtype in dtypes if dtype in (torch.float16, torch.bfloat16)), None)
    compute = torch.float64 if torch.float64 in dtypes else torch.float32
    network = copy_of(model, compute) if half is not None or len(dtypes) > 1 else model
    modes = [(module, module.training) for module in named_modules(network).values()]
    requirements = [(parameter, parameter.requires_grad) for parameter in named_parameters(network).values()]
    devices = {parameter.device for parameter, _ in requirements if parameter.device.type == "cuda"}
    try:
        with (
            torch.inference_mode(False),
            torch.autocast("cpu", enabled=False),
            torch.autocast("cuda", enabled=False),
            torch.random.fork_rng(devices=[device.index or 0 for device in devices]),
        ):
            network.eval()
            for module, _ in modes:
                module.training = False  # also where torch knows nothing of it
            for parameter, _ in requirements:
                parameter.requires_grad_(False)
            yield network, half or next(iter(dtypes), torch.get_default_dtype())
    finally:
        for module, training in modes:
            module.training = training
        for parameter, requires_grad in requirements:
            parameter.requires_grad_(requires_grad)
