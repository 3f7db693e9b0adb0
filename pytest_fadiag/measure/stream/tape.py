"""One forward pass written down: every value, what it was made of, and where it can be seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from ..copies import named_modules, named_parameters
from ..inputs import tensors_in
from .sites import Functions, Place, Site, hook

LEAVING = ("numpy", "tolist", "__array__", "item", "__dlpack__", "data_ptr")
"""Functions that give numbers to code that torch does not see."""
OVERWRITING = ("copy", "fill", "zero", "normal", "uniform", "set")
"""Operations in place that leave nothing of what was there."""
SHAPED = ("zeros", "ones", "empty", "full")
"""With ``new_`` before or ``_like`` after: operations that take nothing but a shape."""


@dataclass(eq=False)
class Memory:
    """One storage: while ``alive`` is held, no other one gets the same number."""

    alive: StorageWeakRef
    version: int = 0
    """How often it was written to."""
    node: int | None = None
    """What was written last."""
    views: dict[tuple[Any, ...], int] = field(default_factory=dict)


@dataclass(eq=False)
class Node:
    """A value: a tensor as it was between two writes to its memory."""

    index: int
    op: str
    """``view`` where it shows the memory of its parent."""
    parents: tuple[int, ...]
    parameters: frozenset[str]
    """The parameters that were read to make it of its parents."""
    shape: tuple[int, ...]
    floating: bool
    memory: Memory
    version: int
    call: int
    """The innermost module call that it was made in."""
    constant: bool | Tensor = True
    """Whether it is the same for all samples, as a mask or positions are.

    A tensor until the pass is over: no device is waited for at every operation.
    """
    read: bool = False
    sights: list[Site] = field(default_factory=list)
    """Where it can be seen before anything reads it."""

    @property
    def overwritten(self) -> bool:
        """Whether something was written to its memory after it."""
        return self.memory.node is not None and self.memory.node > self.index


@dataclass(eq=False)
class Call:
    """One module call, and the values that entered and left it."""

    name: str
    module: nn.Module
    path: tuple[int, ...]
    """The calls around it, from the outermost on, and itself."""
    start: int
    """How many values there were before it."""
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)


class Tape(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The record of a forward pass of ``batch`` samples; no tensor is kept."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Without importing the package that compiles, which takes seconds."""
        return False

    def __init__(self, network: nn.Module, batch: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.modules, self.batch = named_modules(network), batch
        self.nodes: list[Node] = []
        self.calls: list[Call] = []
        self._memories: dict[int, Memory] = {}
        self._running: list[int] = []
        self._place: Place = ("", "input", 0)
        self._times: Counter[tuple[str, str]] = Counter()
        self._functions: Counter[str] = Counter()
        self._taken_out: list[int] = []
        parameters = named_parameters(network)
        self.sizes = {name: parameter.numel() for name, parameter in parameters.items()}
        for name, parameter in parameters.items():
            self._make(parameter, "parameter", (), frozenset([name]))
        for tensor in tensors_in([list(vars(module).values()) for module in self.modules.values()]):
            self._make(tensor, "constant", ())

    def record(self, run: Callable[[], Any], inputs: list[Tensor]) -> Any:
        """What the run returns; ``inputs`` are the tensors whose rows are the samples."""
        for tensor in inputs:
            self._write(tensor, "input", ())
        with ExitStack() as stack:
            for name, module in self.modules.items():
                stack.callback(hook(module, "input", partial(self._enter, name, module)).remove)
                stack.callback(hook(module, "output", self._leave).remove)
            stack.enter_context(Functions(self._called))
            stack.enter_context(self)
            returned = run()
        for node in self.nodes:
            constant = [parent for parent in node.parents if self.nodes[parent].constant]
            node.constant = bool(node.constant) or 0 < len(constant) == len(node.parents)
            sources = node.parents if node.constant else constant
            node.parameters = node.parameters.union(
                *(self.nodes[parent].parameters for parent in sources)
            )
            node.parents = tuple(parent for parent in node.parents if parent not in constant)
        return returned

    def node_of(self, tensor: Tensor) -> Node:
        """The value that a tensor holds now."""
        memory, view = self._memory(tensor), _view(tensor)
        if (
            memory.node is None
        ):  # a constant, or what Python or NumPy made of numbers that left torch before
            taken = tuple(dict.fromkeys(self._taken_out)) if self.batch in tensor.shape else ()
            self._taken_out = [] if taken else self._taken_out
            self._write(tensor, "outside torch", taken)
        elif view not in memory.views:  # another view of what was written
            memory.views[view] = self._new(tensor, "view", (memory.node,))
        return self.nodes[memory.views[view]]

    def _enter(self, name: str, module: nn.Module, values: Any) -> None:
        outer = self.calls[self._running[-1]].path if self._running else ()
        call = Call(name, module, (*outer, len(self.calls)), len(self.nodes))
        self._running.append(len(self.calls))
        self.calls.append(call)
        call.inputs = self._at(name, "input", values)

    def _leave(self, values: Any) -> None:
        call = self.calls[self._running.pop()]
        call.outputs = self._at(call.name, "output", values)

    def _at(self, name: str, end: str, values: Any) -> list[int]:
        self._place, self._functions = (name, end, self._times[name, end]), Counter()
        self._times[name, end] += 1
        return self._see(values, Site(self._place))

    def _called(self, function: str, args: Any, result: Any) -> Any:
        site = Site(self._place, 0, function, self._functions[function])
        self._functions[function] += 1
        self._see(result, site)
        if function in LEAVING:
            self._taken_out += self._see(args)
        return result

    def _see(self, values: Any, site: Site | None = None) -> list[int]:
        """The values of some tensors, with a note of where they are seen."""
        seen = []
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
            for position, tensor in enumerate(tensors_in(values)):
                if not torch._C._functorch.is_functorch_wrapped_tensor(
                    tensor
                ):  # by vmap, which hides it
                    node = self.node_of(tensor)
                    seen.append(node.index)
                    if site is not None and not node.read:
                        node.sights.append(replace(site, position=position))
        return seen

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Take note of one operation: what it reads, what it writes to, and what it makes."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        op, schema = func._overloadpacket.__name__.rstrip("_"), func._schema.arguments
        shaped = op.removeprefix("new_").removesuffix("_like") in SHAPED
        with torch._C.DisableTorchFunction():
            read = (
                []
                if shaped
                else [(tensor, self.node_of(tensor)) for tensor in tensors_in([args, kwargs])]
            )
            for _, node in read:
                node.read = True
            given = {
                **dict(zip((argument.name for argument in schema), args, strict=False)),
                **kwargs,
            }
            writes = [
                own.name for own in schema if own.alias_info is not None and own.alias_info.is_write
            ]
            written = list(tensors_in([given.get(name) for name in writes]))
            for tensor in written:
                memory = self._memory(tensor)
                whole = tensor.numel() * tensor.element_size() >= tensor.untyped_storage().nbytes()
                kept = [] if whole or memory.node is None else [memory.node]
                sources = [
                    node.index for own, node in read if own is not tensor or op not in OVERWRITING
                ]
                self._write(tensor, op, tuple(dict.fromkeys([*sources, *kept])))
                if not whole:  # what is written may be the same for all, and what else is there not
                    self.nodes[-1].constant = False
            rewritten = [self._memory(tensor) for tensor in written]
            for tensor in tensors_in(result):
                if self._memory(tensor) not in rewritten:
                    self._make(tensor, op, tuple(dict.fromkeys(node.index for _, node in read)))
        return result

    def _make(
        self, tensor: Tensor, op: str, parents: tuple[int, ...], own: frozenset[str] = frozenset()
    ) -> None:
        """A result: a view where its memory is known, else a new value."""
        memory, view = self._memory(tensor), _view(tensor)
        if memory.node is None:
            self._write(tensor, op, parents, own)
        elif view not in memory.views or (parents and memory.views[view] not in parents):
            # The latter: a view that was turned back is a later value, or what was turned would
            # seem to lead nowhere.
            memory.views[view] = self._new(tensor, "view", parents, own)

    def _write(
        self, tensor: Tensor, op: str, parents: tuple[int, ...], own: frozenset[str] = frozenset()
    ) -> None:
        memory = self._memory(tensor)
        if memory.node is not None:
            memory.version += 1
            memory.views.clear()
        memory.node = memory.views[_view(tensor)] = self._new(tensor, op, parents, own)

    def _new(
        self, tensor: Tensor, op: str, parents: tuple[int, ...], own: frozenset[str] = frozenset()
    ) -> int:
        node = Node(
            index=len(self.nodes),
            op=op,
            parents=parents,
            parameters=own,
            shape=tuple(tensor.shape),
            floating=tensor.is_floating_point(),
            memory=self._memory(tensor),
            version=self._memory(tensor).version,
            call=self._running[-1] if self._running else 0,
        )
        dims = [dim for dim, size in enumerate(tensor.shape) if size == self.batch]
        if op == "input" or any(self.nodes[parent].constant is not True for parent in parents):
            node.constant = False
            if len(dims) == 1 and tensor.numel():
                first = tensor.narrow(dims[0], 0, 1)
                node.constant = torch.isclose(tensor, first, rtol=0, atol=0, equal_nan=True).all()
        self.nodes.append(node)
        return node.index

    def _memory(self, tensor: Tensor) -> Memory:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._memories:
            self._memories[storage._cdata] = Memory(StorageWeakRef(storage))  # type: ignore[no-untyped-call]
        return self._memories[storage._cdata]


def _view(tensor: Tensor) -> tuple[Any, ...]:
    return (tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
