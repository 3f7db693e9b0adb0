"""A forward pass that autograd differentiates through what it computes, whatever backward the network's authors wrote."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import _SingleLevelFunction
from torch.nn.modules import module as module_hooks
from torch.overrides import TorchFunctionMode
from torch.utils import checkpoint as checkpointing
from torch.utils.hooks import RemovableHandle

from .modules import named_modules

OWN_FUNCTION, OWN_HOOK, DETACH = "own backward", "backward hook", "detach"
DATA, NO_GRAD, ITEM, GRAD_FN, OPAQUE = ".data", "no_grad", "item()", "grad_fn", "a forward that autograd cannot see"
UNDONE = (OWN_FUNCTION, OWN_HOOK, DETACH)
"""What keeps autograd from the derivative of a forward, and is undone here; the others cannot be."""


class Departures:
    """Where a forward departs from plain autograd: what it does, and the modules that do it, by name and class."""

    def __init__(self, network: nn.Module) -> None:
        self.names = {
            module: f"{name or 'the network'} ({type(module).__name__})" for name, module in named_modules(network).items()
        }
        self.found: dict[str, dict[str, None]] = {}

    def note(self, what: str, where: str | None = None) -> None:
        """Remember what the innermost module that is running does."""
        self.found.setdefault(what, {}).setdefault(where or self._running())

    def of(self, *kinds: str) -> list[str]:
        """The modules that do one of these."""
        return list(dict.fromkeys(name for kind in kinds for name in self.found.get(kind, ())))

    def _running(self) -> str:
        """By the frames: hooks would miss modules that are called by their forward."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            owner = frame.f_locals.get("self")
            if isinstance(owner, nn.Module) and owner in self.names:
                return self.names[owner]
            frame = frame.f_back
        return "the network"


class ThroughForward:
    """What undoes own backwards during a forward pass; ``aside`` is for whoever watches from within that pass."""

    def __init__(self, departures: Departures | None = None) -> None:
        self.departures = departures
        self.paused = False
        self.functions = 0
        """How many own functions' forwards are running, one inside another."""

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Compute something that is no part of the network: ``detach`` detaches again, and hooks are set."""
        before, self.paused = self.paused, True
        try:
            yield
        finally:
            self.paused = before

    def note(self, what: str) -> None:
        """Remember a departure, where somebody asks for them."""
        if self.departures is not None:
            self.departures.note(what)

    def apply(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """The outputs of a function, to be differentiated through what its forward computes, or by its own backward."""
        own = super(_SingleLevelFunction, function).apply  # type: ignore[misc]
        if self.paused or not torch.is_grad_enabled() or function.__module__ == "torch.nn.modules._functions":
            return own(*args, **kwargs)
        needed = tuple(isinstance(arg, Tensor) and arg.requires_grad for arg in args)
        torchs_own = function.__module__.partition(".")[0] == "torch"
        self.functions += 1
        try:
            with_context = function.setup_context is _SingleLevelFunction.setup_context
            given = (_Context(needed), *args) if with_context else args
            outputs = function.forward(*given, **kwargs)
        except Exception:  # what it does cannot be done with a graph; where it cannot be done at all, its own apply says so
            outputs = None
        finally:
            self.functions -= 1
        if any(output.requires_grad for output in (outputs if isinstance(outputs, tuple) else (outputs,)) if _differs(output)):
            if not torchs_own:
                self.note(OWN_FUNCTION)
            return outputs
        if outputs is not None and not any(needed):
            return outputs
        if not torchs_own:
            self.note(OPAQUE)
        return own(*args, **kwargs)


def _differs(output: Any) -> bool:
    return isinstance(output, Tensor) and (output.is_floating_point() or output.is_complex())


class _Context:
    """The ``ctx`` of a function whose backward is not called: it keeps what the forward sets, and takes the rest."""

    saved_tensors: tuple[Tensor, ...] = ()

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad

    def _ignored(self, *args: Any) -> None: ...

    save_for_backward = save_for_forward = mark_dirty = mark_non_differentiable = _ignored
    mark_shared_storage = set_materialize_grads = _ignored


class _Mode(TorchFunctionMode):
    """Sees every call of torch that the forward makes, also by names that were bound before."""

    def __init__(self, through: ThroughForward) -> None:
        super().__init__()
        self.through = through

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        instead = None if self.through.paused else _INSTEAD.get(func)
        if instead is None:
            return func(*args, **(kwargs or {}))
        return instead(self.through, func, args, kwargs or {})


Instead = Callable[[ThroughForward, Any, Any, Any], Any]


def _identity(through: ThroughForward, func: Any, args: Any, kwargs: Any) -> Any:
    tensor = args[0] if args else kwargs["input"]
    if not tensor.requires_grad:
        return func(*args, **kwargs)
    through.note(DETACH)
    return tensor


def _no_hook(through: ThroughForward, func: Any, args: Any, kwargs: Any) -> Any:
    through.note(OWN_HOOK)
    return RemovableHandle(OrderedDict())


def _no_new_leaf(through: ThroughForward, func: Any, args: Any, kwargs: Any) -> Any:
    """``h.detach().requires_grad_()`` begins a graph of its own; where detach is the identity there is nothing to begin."""
    return func(*args, **kwargs) if args[0].grad_fn is None else args[0]


def _data(through: ThroughForward, func: Any, args: Any, kwargs: Any) -> Any:
    if args[0].requires_grad and through.functions:
        return args[0]  # inside a function's own forward it says no more than torch does by itself
    return _noting(DATA)(through, func, args, kwargs)


def _grad_mode(through: ThroughForward, func: Any, args: Any, kwargs: Any) -> Any:
    disables = args[0] is False and torch.is_grad_enabled()
    if disables and through.functions:
        return None  # as above
    if disables:
        through.note(NO_GRAD)
    return func(*args, **kwargs)


def _noting(what: str) -> Instead:
    def noted(through: ThroughForward, func: Any, args: Any, kwargs: Any) -> Any:
        if args[0].requires_grad:
            through.note(what)
        return func(*args, **kwargs)

    return noted


def _without_graph(through: ThroughForward, func: Any, args: Any, kwargs: Any) -> Any:
    """What refuses tensors with a graph, and gets none where detach detaches."""
    if not args[0].requires_grad:
        return func(*args, **kwargs)
    if through.functions:
        raise _CannotBeSeen
    through.note(ITEM)
    return func(args[0].detach(), *args[1:], **kwargs)


class _CannotBeSeen(Exception):
    """The forward of a function leaves torch."""


_INSTEAD: dict[Any, Instead] = {
    **dict.fromkeys((torch.detach, torch.detach_, Tensor.detach, Tensor.detach_), _identity),
    **dict.fromkeys((Tensor.register_hook, Tensor.register_post_accumulate_grad_hook), _no_hook),
    **dict.fromkeys((Tensor.requires_grad_, vars(torch._C.TensorBase)["requires_grad"].__set__), _no_new_leaf),
    vars(torch._C.TensorBase)["data"].__get__: _data,
    torch._C._set_grad_enabled: _grad_mode,
    **dict.fromkeys((Tensor.item, Tensor.tolist, Tensor.__float__), _noting(ITEM)),
    **dict.fromkeys((Tensor.numpy, Tensor.__array__, Tensor.__deepcopy__), _without_graph),
    vars(torch._C.TensorBase)["grad_fn"].__get__: _noting(GRAD_FN),
}


@contextmanager
def through_forward(network: nn.Module, departures: Departures | None = None) -> Iterator[ThroughForward]:
    """Within it every forward pass can be differentiated by plain autograd; the backward pass goes outside, all as before.

    Python functions with a backward of their own are run as the operations of their forward, ``detach`` is the identity,
    hooks on gradients are not set, checkpoints keep what they would compute anew.
    """
    through = ThroughForward(departures)

    def apply(function: Any, *args: Any, **kwargs: Any) -> Any:
        return through.apply(function, *args, **kwargs)

    with ExitStack() as stack:
        # Here every function's apply ends up, also one that was bound to a name before.
        stack.enter_context(_attribute(_SingleLevelFunction, "apply", classmethod(apply)))
        if not isinstance(vars(torch.autograd.Function).get("apply"), classmethod):
            # From torch 2.15 on it is C's own; one that was bound to a name before then goes its own way, and fails the proof.
            stack.enter_context(_attribute(torch.autograd.Function, "apply", classmethod(apply)))
        stack.enter_context(_attribute(checkpointing, "_checkpoint_without_reentrant_generator", _no_checkpoint))
        stack.enter_context(_hooks_off(network, departures))
        stack.enter_context(_Mode(through))
        yield through


@contextmanager
def passing_on() -> Iterator[list[Any]]:
    """Within it, the nodes of own functions that return an input as it was: all that they do is in the backward."""
    handed: list[Any] = []

    def apply(function: Any, *args: Any, **kwargs: Any) -> Any:
        output = super(_SingleLevelFunction, function).apply(*args, **kwargs)
        if isinstance(output, Tensor) and function.__module__.partition(".")[0] != "torch":
            given = [arg for arg in args if isinstance(arg, Tensor) and arg.shape == output.shape and arg.dtype == output.dtype]
            alone = sum(isinstance(arg, Tensor) and arg.requires_grad for arg in args) <= 1
            if alone and any(torch.equal(arg, output) for arg in given):
                handed.append(output.grad_fn)
        return output

    with ExitStack() as stack:
        stack.enter_context(_attribute(_SingleLevelFunction, "apply", classmethod(apply)))
        if not isinstance(vars(torch.autograd.Function).get("apply"), classmethod):
            stack.enter_context(_attribute(torch.autograd.Function, "apply", classmethod(apply)))
        yield handed


def _no_checkpoint(*args: Any, **kwargs: Any) -> Iterator[None]:
    yield


@contextmanager
def _attribute(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Another value under a name, and afterwards the own one, or again none."""
    before = vars(owner).get(name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if before is None:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


@contextmanager
def _hooks_off(network: nn.Module, departures: Departures | None) -> Iterator[None]:
    """No module's backward hooks, nor those for all modules."""
    places: list[tuple[Any, str, Any]] = []
    for owner, names in (
        *((vars(module), ("_backward_hooks", "_backward_pre_hooks")) for module in named_modules(network).values()),
        (vars(module_hooks), ("_global_backward_hooks", "_global_backward_pre_hooks")),
    ):
        places += [(owner, name, owner[name]) for name in names if owner.get(name)]
    if departures is not None:
        for module in departures.names:
            if module._backward_hooks or module._backward_pre_hooks:
                departures.note(OWN_HOOK, departures.names[module])
    try:
        for owner, name, _ in places:
            owner[name] = OrderedDict()
        yield
    finally:
        for owner, name, hooks in places:
            owner[name] = hooks
