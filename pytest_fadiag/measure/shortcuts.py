"""Forward passes that differ only behind one state: what comes before it is computed once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from .modules import named_modules


@dataclass(eq=False)
class _Call:
    """A call of a module: those that it made while it runs, what it returned when it has ended."""

    module: nn.Module
    inner: list[_Call] = field(default_factory=list)
    output: Any = None


class Shortcuts:
    """What modules returned in one forward pass before each state appeared, so that other passes need not run them again."""

    def __init__(self) -> None:
        self._running: list[_Call] = []
        self._before: list[list[_Call]] = []

    @contextmanager
    def recorded(self, network: nn.Module) -> Iterator[None]:
        """Take note of a forward pass of a network; :meth:`at_state` says that the next state is there."""

        def enter(module: nn.Module, _args: Any) -> None:
            call = _Call(module)
            if self._running:
                self._running[-1].inner.append(call)
            self._running.append(call)

        def leave(_module: nn.Module, _args: Any, output: Any) -> None:
            call = self._running.pop()
            # A copy now: what comes after may write to it in place. Nobody needs what its inner calls returned.
            call.output, call.inner = _cloned(output), []

        with ExitStack() as stack:
            for module in named_modules(network).values():
                stack.callback(module.register_forward_pre_hook(enter).remove)
                stack.callback(module.register_forward_hook(leave).remove)
            yield

    def at_state(self) -> None:
        """A state is there: none of the calls that have ended need be made again to get to it."""
        ended = [call for running in self._running for call in running.inner if call not in self._running]
        self._before.append([call for call in ended if call.output is not None])

    @property
    def held(self) -> list[Tensor]:
        """What is kept, each tensor once."""
        calls = {id(call): call.output for ended in self._before for call in ended}
        outputs = [output if isinstance(output, (tuple, list)) else (output,) for output in calls.values()]
        return [tensor for output in outputs for tensor in output]

    @contextmanager
    def taken(self, layer: int) -> Iterator[None]:
        """Let what ended before a state return what it returned."""
        outputs: dict[nn.Module, list[Any]] = {}
        for call in self._before[layer]:
            outputs.setdefault(call.module, []).append(call.output)
        with ExitStack() as stack:
            for module, returned in outputs.items():
                stack.enter_context(_returning(module, returned))
            yield


@contextmanager
def _returning(module: nn.Module, outputs: Sequence[Any]) -> Iterator[None]:
    """Let the first calls of a module return these, and later ones what they compute."""
    waiting, own, before = list(outputs), module.forward, module.__dict__.get("forward")

    def forward(*args: Any, **kwargs: Any) -> Any:
        return _cloned(waiting.pop(0)) if waiting else own(*args, **kwargs)

    module.__dict__["forward"] = forward
    try:
        yield
    finally:
        del module.__dict__["forward"]
        if before is not None:
            module.__dict__["forward"] = before


def _cloned(output: Any) -> Any:
    """A copy of tensors in tuples and lists; nothing of anything else, which is then computed each time."""
    if isinstance(output, Tensor):
        return output.detach().clone()
    if type(output) in (tuple, list) and all(isinstance(item, Tensor) for item in output):
        return type(output)(item.detach().clone() for item in output)
    return None
