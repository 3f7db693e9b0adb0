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

_TENSOR: Any = Tensor
"""For its descriptors, of which the types do not know."""
_KINDS: dict[Any, str] = {
    **dict.fromkeys((torch.detach, torch.detach_, Tensor.detach, Tensor.detach_), "detach"),
    **dict.fromkeys((Tensor.register_hook, Tensor.register_post_accumulate_grad_hook), "hook"),
    **dict.fromkeys((Tensor.requires_grad_, _TENSOR.requires_grad.__set__), "leaf"),
    **dict.fromkeys((Tensor.numpy, Tensor.__array__, Tensor.__deepcopy__), "numpy()"),
    **dict.fromkeys((Tensor.item, Tensor.tolist, Tensor.__float__), "item()"),
    _TENSOR.data.__get__: ".data",
    torch._C._set_grad_enabled: "no_grad",
}


class Undo(TorchFunctionMode):
    """Sees every call of torch that a forward makes, also by names that were bound before.

    It undoes what departs from plain autograd, and notes what cannot be undone.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.modules_by_name = named_modules(network)
        self.thread = threading.get_ident()
        self.depth = 0
        """How many forwards of own functions run: no_grad and .data say nothing in them."""
        self.own_backwards: dict[str, None] = {}
        """The modules with a backward of their own, by name and class, in the order of notes."""
        self.not_undone: dict[str, None] = {}
        """The kinds of calls that cannot be undone."""

    def note(self, name: str, module: Any) -> None:
        """Note a module with a backward of its own."""
        self.own_backwards.setdefault(f"{name or 'the network'} ({type(module).__name__})")

    def note_running(self) -> None:
        """Note the innermost module that runs, by the frames: a forward may be called alone."""
        names = {id(module): name for name, module in self.modules_by_name.items()}
        frame = sys._getframe(1)
        while frame.f_back and id(frame.f_locals.get("self")) not in names:
            frame = frame.f_back
        module = frame.f_locals.get("self")
        self.note(names.get(id(module), ""), module)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        kind = _KINDS.get(func)
        if kind is None:
            return func(*args, **kwargs)
        subject = args[0] if args else kwargs["input"]
        if not _departs(kind, subject):
            return func(*args, **kwargs)
        if kind == "detach":
            self.note_running()
            return subject
        if kind == "hook":
            self.note_running()
            return RemovableHandle(OrderedDict())
        if kind == "leaf" or (self.depth and kind in (".data", "no_grad")):
            return subject
        self.not_undone.setdefault(kind)
        if kind == "numpy()":  # which refuses tensors with a graph
            subject = subject.detach()
        return func(subject, *args[1:], **kwargs)

    def apply(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """What a function returns, differentiated through its forward, else by its own backward."""
        autograd_apply = super(_SingleLevelFunction, function).apply  # type: ignore[misc]
        is_watched = threading.get_ident() == self.thread and torch.is_grad_enabled()
        if not is_watched or function.__module__ == "torch.nn.modules._functions":
            return autograd_apply(*args, **kwargs)
        inputs = args
        context: Any = FunctionCtx()  # its backward is not called
        context.needs_input_grad = tuple(
            isinstance(arg, Tensor) and arg.requires_grad for arg in args
        )
        if function.setup_context is _SingleLevelFunction.setup_context:
            inputs = (context, *args)
        self.depth += 1
        try:
            outputs = function.forward(*inputs, **kwargs)
        finally:
            self.depth -= 1
        if any(tensor.requires_grad for tensor in tensors_in(outputs)):
            if not _is_torchs(function):
                self.note_running()
            return outputs
        if not any(context.needs_input_grad):
            return outputs
        if not _is_torchs(function):
            self.not_undone.setdefault("a function whose forward autograd cannot see")
        return autograd_apply(*args, **kwargs)


def _departs(kind: str, subject: Any) -> bool:
    """Whether a call departs from plain autograd: most do where a tensor has a gradient."""
    if kind == "no_grad":
        return subject is False and torch.is_grad_enabled()
    if kind == "leaf" and subject.grad_fn is None:
        return False  # h.detach().requires_grad_() begins no graph where detach is the identity
    return bool(subject.requires_grad)


def _is_torchs(function: Any) -> bool:
    """Whether a function of autograd comes with torch."""
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
        for name, module in undo.modules_by_name.items():
            for hooks in ("_backward_hooks", "_backward_pre_hooks"):
                if getattr(module, hooks):
                    undo.note(name, module)
                    stack.enter_context(patch.object(module, hooks, OrderedDict()))
        stack.enter_context(undo)
        yield


@contextmanager
def recording_handed_on(origins: dict[Tensor, Tensor]) -> Iterator[None]:
    """Record each output that equals its input: ``origins`` gets the input by the output.

    A function counts if it has a backward of its own and one input to differentiate at most.
    """

    def apply(function: Any, *args: Any, **kwargs: Any) -> Any:
        output: Any = super(_SingleLevelFunction, function).apply(*args, **kwargs)
        tensors = [arg for arg in args if isinstance(arg, Tensor)]
        has_one_path = sum(tensor.requires_grad for tensor in tensors) <= 1
        if has_one_path and isinstance(output, Tensor) and not _is_torchs(function):
            for tensor in tensors:
                if tensor.dtype == output.dtype and torch.equal(tensor, output):
                    origins[output] = tensor
        return output

    with _applying(apply):
        yield


@contextmanager
def _applying(apply: Callable[..., Any]) -> Iterator[None]:
    """Call this where a function of autograd is applied, also by a name that was bound before."""
    replacement = classmethod(lambda function, *args, **kwargs: apply(function, *args, **kwargs))  # noqa: PLW0108
    with (
        patch.object(_SingleLevelFunction, "apply", replacement),
        patch.object(torch.autograd.Function, "apply", replacement),
    ):
        yield
