"""A forward pass that autograd differentiates through what it computes, whatever its backward."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, _SingleLevelFunction
from torch.overrides import TorchFunctionMode
from torch.utils import checkpoint as checkpointing
from torch.utils.hooks import RemovableHandle

from .copies import named_modules
from .inputs import tensors_in

_GET: Any = Tensor
_KINDS: dict[Any, str] = {
    **dict.fromkeys((torch.detach, torch.detach_, Tensor.detach, Tensor.detach_), "detach"),
    **dict.fromkeys((Tensor.register_hook, Tensor.register_post_accumulate_grad_hook), "hook"),
    **dict.fromkeys((Tensor.requires_grad_, _GET.requires_grad.__set__), "leaf"),
    **dict.fromkeys((Tensor.numpy, Tensor.__array__, Tensor.__deepcopy__), "numpy()"),
    **dict.fromkeys((Tensor.item, Tensor.tolist, Tensor.__float__), "item()"),
    _GET.data.__get__: ".data",
    _GET.grad_fn.__get__: "grad_fn",
    torch._C._set_grad_enabled: "no_grad",
}


class Departures:
    """Where a forward departs from plain autograd: what is undone, and what cannot be."""

    def __init__(self, network: nn.Module) -> None:
        self.network = named_modules(network)
        self.modules: dict[str, None] = {}
        """Those with a backward of their own, by name and class."""
        self.kinds: dict[str, None] = {}
        """What cannot be undone."""

    def note_module(self) -> None:
        """Note the innermost module that runs, by the frames: a forward may be called alone."""
        names, frame = {id(own): name for name, own in self.network.items()}, sys._getframe(1)
        while frame.f_back and id(frame.f_locals.get("self")) not in names:
            frame = frame.f_back
        module = frame.f_locals.get("self")
        self.modules.setdefault(
            f"{names.get(id(module)) or 'the network'} ({type(module).__name__})"
        )


class _Undo(TorchFunctionMode):
    """Sees every call of torch that the forward makes, also by names that were bound before."""

    def __init__(self, departures: Departures) -> None:
        super().__init__()
        self.departures, self.thread, self.inside = departures, threading.get_ident(), 0
        """Inside an own function's forward no_grad and .data say no more than torch does."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, kind = kwargs or {}, _KINDS.get(func)
        if kind is None:
            return func(*args, **kwargs)
        subject = args[0] if args else kwargs["input"]
        if kind == "no_grad":
            departs = subject is False and torch.is_grad_enabled()
        else:  # h.detach().requires_grad_() begins no graph where detach is the identity
            departs = subject.requires_grad and not (kind == "leaf" and subject.grad_fn is None)
        if departs and kind in ("detach", "hook"):
            self.departures.note_module()
            return subject if kind == "detach" else RemovableHandle(OrderedDict())
        if departs and (kind == "leaf" or (self.inside and kind in (".data", "no_grad"))):
            return None if kind == "no_grad" else subject
        if departs:
            self.departures.kinds.setdefault(kind)
        if departs and kind == "numpy()":  # which refuses tensors with a graph
            return func(subject.detach(), *args[1:], **kwargs)
        return func(*args, **kwargs)

    def apply(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """What a function returns, differentiated through its forward, else by its own backward."""
        own = super(_SingleLevelFunction, function).apply  # type: ignore[misc]
        here = threading.get_ident() == self.thread and torch.is_grad_enabled()
        if not here or function.__module__ == "torch.nn.modules._functions":
            return own(*args, **kwargs)
        needed = tuple(isinstance(arg, Tensor) and arg.requires_grad for arg in args)
        context: Any = FunctionCtx()  # its backward is not called
        context.needs_input_grad = needed
        with_context = function.setup_context is _SingleLevelFunction.setup_context
        self.inside += 1
        try:
            outputs = function.forward(*([context] if with_context else []), *args, **kwargs)
        finally:
            self.inside -= 1
        seen = any(tensor.requires_grad for tensor in tensors_in(outputs))
        if seen and not _is_torchs(function):
            self.departures.note_module()
        if seen or not any(needed):
            return outputs
        if not _is_torchs(function):
            self.departures.kinds.setdefault("a function whose forward autograd cannot see")
        return own(*args, **kwargs)


def _is_torchs(function: Any) -> bool:
    return str(function.__module__).partition(".")[0] == "torch"


@contextmanager
def undone(network: nn.Module, departures: Departures | None = None) -> Iterator[None]:
    """Within it a forward can be differentiated by plain autograd; the backward goes outside.

    Python functions with a backward of their own run as the operations of their forward, ``detach``
    is the identity, hooks on gradients are not set, checkpoints keep what they would recompute.
    """
    departures = departures or Departures(network)
    mode, recompute = _Undo(departures), "_checkpoint_without_reentrant_generator"
    with ExitStack() as stack:
        stack.enter_context(_applying(mode.apply))
        stack.enter_context(_attribute(checkpointing, recompute, lambda *_, **__: iter((None,))))
        for name, module in departures.network.items():
            for hooks in ("_backward_hooks", "_backward_pre_hooks"):
                if getattr(module, hooks):
                    departures.modules.setdefault(
                        f"{name or 'the network'} ({type(module).__name__})"
                    )
                    stack.enter_context(_attribute(module, hooks, OrderedDict()))
        stack.enter_context(mode)
        yield


@contextmanager
def passing_on() -> Iterator[list[Any]]:
    """Within it, the nodes of own functions that return an input as it was."""
    handed: list[Any] = []

    def apply(function: Any, *args: Any, **kwargs: Any) -> Any:
        output: Any = super(_SingleLevelFunction, function).apply(*args, **kwargs)
        given = [arg for arg in args if isinstance(arg, Tensor)]
        alone = sum(arg.requires_grad for arg in given) <= 1 and not _is_torchs(function)
        if alone and isinstance(output, Tensor):
            same = (own for own in given if (own.shape, own.dtype) == (output.shape, output.dtype))
            if any(torch.equal(own, output) for own in same):
                handed.append(output.grad_fn)
        return output

    with _applying(apply):
        yield handed


@contextmanager
def _applying(apply: Callable[..., Any]) -> Iterator[None]:
    """Call this where a function of autograd is applied, also by a name that was bound before."""
    own = classmethod(lambda function, *args, **kwargs: apply(function, *args, **kwargs))  # noqa: PLW0108
    function = torch.autograd.Function
    with _attribute(_SingleLevelFunction, "apply", own), _attribute(function, "apply", own):
        yield


@contextmanager
def _attribute(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Another value under a name, and afterwards the own one, or again none."""
    before = vars(owner).get(name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        delattr(owner, name) if before is None else setattr(owner, name, before)
