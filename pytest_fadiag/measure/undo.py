"""A forward pass that autograd differentiates through what it computes, whatever its backward."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch  # sets attributes, and puts them back

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
    torch._C._set_grad_enabled: "no_grad",
}


class Undo(TorchFunctionMode):
    """Sees every call of torch that a forward makes, also by names that were bound before.

    It undoes what departs from plain autograd, and notes what cannot be undone.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network, self.thread, self.inside = named_modules(network), threading.get_ident(), 0
        """Inside an own function's forward no_grad and .data say no more than torch does."""
        self.modules: dict[str, None] = {}
        """Those with a backward of their own, by name and class."""
        self.kinds: dict[str, None] = {}
        """What cannot be undone."""

    def note(self, name: str, module: Any) -> None:
        """Note a module with a backward of its own."""
        self.modules.setdefault(f"{name or 'the network'} ({type(module).__name__})")

    def note_running(self) -> None:
        """Note the innermost module that runs, by the frames: a forward may be called alone."""
        names, frame = {id(own): name for name, own in self.network.items()}, sys._getframe(1)
        while frame.f_back and id(frame.f_locals.get("self")) not in names:
            frame = frame.f_back
        module = frame.f_locals.get("self")
        self.note(names.get(id(module), ""), module)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, kind = kwargs or {}, _KINDS.get(func)
        if kind is None:
            return func(*args, **kwargs)
        subject = args[0] if args else kwargs["input"]
        if kind == "no_grad":
            departs = subject is False and torch.is_grad_enabled()
        else:  # h.detach().requires_grad_() begins no graph where detach is the identity
            departs = subject.requires_grad and not (kind == "leaf" and subject.grad_fn is None)
        if not departs:
            return func(*args, **kwargs)
        if kind in ("detach", "hook"):
            self.note_running()
            return subject if kind == "detach" else RemovableHandle(OrderedDict())
        if kind == "leaf" or (self.inside and kind in (".data", "no_grad")):
            return subject
        self.kinds.setdefault(kind)
        if kind == "numpy()":  # which refuses tensors with a graph
            subject = subject.detach()
        return func(subject, *args[1:], **kwargs)

    def apply(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """What a function returns, differentiated through its forward, else by its own backward."""
        own = super(_SingleLevelFunction, function).apply  # type: ignore[misc]
        here = threading.get_ident() == self.thread and torch.is_grad_enabled()
        if not here or function.__module__ == "torch.nn.modules._functions":
            return own(*args, **kwargs)
        context: Any = FunctionCtx()  # its backward is not called
        context.needs_input_grad = tuple(
            isinstance(arg, Tensor) and arg.requires_grad for arg in args
        )
        with_context = function.setup_context is _SingleLevelFunction.setup_context
        self.inside += 1
        try:
            outputs = function.forward(*([context] if with_context else []), *args, **kwargs)
        finally:
            self.inside -= 1
        seen = any(tensor.requires_grad for tensor in tensors_in(outputs))
        if seen and not _is_torchs(function):
            self.note_running()
        if seen or not any(context.needs_input_grad):
            return outputs
        if not _is_torchs(function):
            self.kinds.setdefault("a function whose forward autograd cannot see")
        return own(*args, **kwargs)


def _is_torchs(function: Any) -> bool:
    return str(function.__module__).partition(".")[0] == "torch"


@contextmanager
def undone(undo: Undo) -> Iterator[None]:
    """Within it a forward can be differentiated by plain autograd; the backward goes outside.

    Python functions with a backward of their own run as the operations of their forward, ``detach``
    is the identity, hooks on gradients are not set, checkpoints keep what they would recompute.
    """
    recompute = "_checkpoint_without_reentrant_generator"
    with ExitStack() as stack:
        stack.enter_context(_applying(undo.apply))
        stack.enter_context(patch.object(checkpointing, recompute, lambda *_, **__: iter((None,))))
        for name, module in undo.network.items():
            for hooks in ("_backward_hooks", "_backward_pre_hooks"):
                if getattr(module, hooks):
                    undo.note(name, module)
                    stack.enter_context(patch.object(module, hooks, OrderedDict()))
        stack.enter_context(undo)
        yield


@contextmanager
def handing_on(given: dict[Tensor, Tensor]) -> Iterator[None]:
    """Within it, what own functions return as it was, and what they were given."""

    def apply(function: Any, *args: Any, **kwargs: Any) -> Any:
        output: Any = super(_SingleLevelFunction, function).apply(*args, **kwargs)
        tensors = [arg for arg in args if isinstance(arg, Tensor)]
        alone = sum(arg.requires_grad for arg in tensors) <= 1 and not _is_torchs(function)
        if alone and isinstance(output, Tensor):
            same = (own for own in tensors if own.dtype == output.dtype)
            given.update((output, own) for own in same if torch.equal(own, output))
        return output

    with _applying(apply):
        yield


@contextmanager
def _applying(apply: Callable[..., Any]) -> Iterator[None]:
    """Call this where a function of autograd is applied, also by a name that was bound before."""
    own = classmethod(lambda function, *args, **kwargs: apply(function, *args, **kwargs))  # noqa: PLW0108
    function = torch.autograd.Function
    with patch.object(_SingleLevelFunction, "apply", own), patch.object(function, "apply", own):
        yield
