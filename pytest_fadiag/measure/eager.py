"""A network as its authors wrote it, where they have it compiled: hooks and modes reach what runs as Python alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import nn

from ..judge.errors import AuditError
from .modules import named_modules


def original(module: nn.Module) -> nn.Module:
    """What ``torch.compile`` was given; any other module as it is."""
    while (inner := dict(module.named_children()).get("_orig_mod")) is not None:
        module = inner
    return module


@contextmanager
def eager(network: nn.Module) -> Iterator[nn.Module]:
    """The original of a network, its compiled parts replaced by theirs; compiled functions run as they are written."""
    network = original(network)
    compiled = [
        (parent, name, child)
        for parent in named_modules(network).values()
        for name, child in parent._modules.items()
        if child is not None and original(child) is not child
    ]
    called = [module for module in named_modules(network).values() if vars(module).get("_compiled_call_impl") is not None]
    calls = [module._compiled_call_impl for module in called]
    # Without the package that compiles nothing is compiled, and importing it takes seconds.
    stance = torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()
    try:
        for parent, name, child in compiled:
            parent._modules[name] = original(child)
        for module in called:
            module._compiled_call_impl = None
        with stance:
            yield network
    finally:
        for parent, name, child in compiled:
            parent._modules[name] = child
        for module, call in zip(called, calls, strict=True):
            module._compiled_call_impl = call


def refuse_scripted(network: nn.Module) -> None:
    """An error where a part of a network is no Python any more."""
    scripted = next((name for name, part in named_modules(network).items() if isinstance(part, torch.jit.ScriptModule)), None)
    if scripted is not None:
        what = f"its module {scripted!r} is" if scripted else "the network is"
        raise AuditError(
            f"{what} TorchScript, of which neither states nor gradients can be watched; audit the Python module that was "
            "scripted or traced, with the same weights (--fa-model=package.module:factory)"
        )
