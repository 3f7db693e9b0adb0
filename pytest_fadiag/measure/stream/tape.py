"""One forward pass written down: every value, what it was made of, and where it can be seen."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from ..copies import named_modules, named_parameters
from ..inputs import tensors_in
from .sites import Events, Site

LEAVING = ("numpy", "tolist", "__array__", "item", "__dlpack__", "data_ptr")
"""Functions that give numbers to code that torch does not see."""
OVERWRITING = ("copy", "fill", "zero", "normal", "uniform", "set")
"""Operations in place that leave nothing of what was there."""
OUTSIDE_TORCH = "outside torch"
"""The operation that made what Python, NumPy or JAX computed."""
SHAPED = ("zeros", "ones", "empty", "full")
"""With ``new_`` before or ``_like`` after: operations that take nothing but a shape."""


@dataclass(eq=False)
class Memory:
    """One storage: while ``alive`` is held, no other one gets the same number."""

    alive: StorageWeakRef
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
    """What it was made of, without what is the same for all samples."""
    parameters: frozenset[str]
    """The parameters that were read to make it of its parents."""
    shape: tuple[int, ...]
    dtype: torch.dtype
    constant: bool
    """Whether it is the same for all samples, as a mask or positions are."""
    weighted: bool
    """Whether weights took part in making it."""
    memory: Memory
    call: int
    """The innermost module call that it was made in."""
    expanded: bool
    """Whether entries share memory."""
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
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    parts: list[Call] = field(default_factory=list)
    """The calls just below it."""


class Tape(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The record of a forward pass of ``batch`` samples; no tensor is kept."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Without importing the package that compiles, which takes seconds."""
        return False

    def __init__(self, network: nn.Module, batch: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.modules = named_modules(network)
        self.batch = batch
        self.nodes: list[Node] = []
        self.calls: list[Call] = []
        self.sizes: dict[str, int] = {}
        """How many numbers each parameter holds."""
        self._memories: dict[int, Memory] = {}
        self._path: tuple[int, ...] = ()
        self.vmapped = False
        """Whether some of it ran under vmap, which shows no module what it computes."""
        self._left_torch: list[int] = []
        """Values that Python or NumPy read, and nothing came back yet."""
        for name, parameter in named_parameters(network).items():
            self.sizes[name] = parameter.numel()
            self.node_of(parameter).parameters = frozenset([name])
        for module in self.modules.values():
            for tensor in tensors_in(list(vars(module).values())):
                self.node_of(tensor)

    def record(self, run: Callable[[], Any], inputs: list[Tensor]) -> Any:
        """What the run returns; ``inputs`` are the tensors whose rows are the samples."""
        for tensor in inputs:
            self._write(tensor, "input", [])
        with Events(self._on_event) as events, ExitStack() as stack:
            for name, module in self.modules.items():
                for end in ("input", "output"):
                    stack.callback(events.hook(name, module, end).remove)
            stack.enter_context(self)
            return run()

    def node_of(self, tensor: Tensor) -> Node:
        """The value that a tensor holds now."""
        memory = self._memory(tensor)
        view = _view(tensor)
        if memory.node is None:
            # A constant, or what Python or NumPy made of numbers that left torch before.
            sources = []
            if self.batch in tensor.shape:
                sources = self._left_torch
                self._left_torch = []
            self._write(tensor, OUTSIDE_TORCH, sources)
        elif view not in memory.views:  # another view of what was written
            memory.views[view] = self._new(tensor, "view", [memory.node])
        return self.nodes[memory.views[view]]

    def count(self, names: Iterable[str]) -> int:
        """How many numbers some parameters hold."""
        return sum(map(self.sizes.__getitem__, names))

    def _on_event(self, site: Site, values: Any, args: Any) -> Any:
        """Note what enters or leaves a module, or what a function returns."""
        name, end, _ = site.place
        if site.function:
            self._note_sights(site, values)
            if site.function in LEAVING:
                self._left_torch += self._nodes_of(args).values()
        elif end == "input":
            self._path = (*self._path, len(self.calls))
            call = Call(name, self.modules[name], self._path)
            for outer in self._path[-2:-1]:
                self.calls[outer].parts.append(call)
            self.calls.append(call)
            call.inputs = self._note_sights(site, values)
        else:
            self.calls[self._path[-1]].outputs = self._note_sights(site, values)
            self._path = self._path[:-1]
        return values

    def _note_sights(self, site: Site, values: Any) -> list[int]:
        """Note where values are seen that nothing has read yet; returns all of them."""
        indices = self._nodes_of(values)
        for position, index in indices.items():
            node = self.nodes[index]
            if not node.read:
                node.sights.append(replace(site, position=position))
        return list(indices.values())

    def _nodes_of(self, values: Any) -> dict[int, int]:
        """The values of some tensors, by their position; of those that vmap wraps none is known."""
        indices = {}
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
            for position, tensor in enumerate(tensors_in(values)):
                if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
                    self.vmapped = True
                else:
                    indices[position] = self.node_of(tensor).index
        return indices

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note one operation: what it reads, what it writes to, and what it makes."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        op = func._overloadpacket.__name__.rstrip("_")
        with torch._C.DisableTorchFunction():
            operands: list[tuple[Tensor, int]] = []
            if op.removeprefix("new_").removesuffix("_like") not in SHAPED:
                for tensor in tensors_in([args, kwargs]):
                    operands.append((tensor, self.node_of(tensor).index))
            for _, index in operands:
                self.nodes[index].read = True
            rewritten = []
            for tensor in _written(func._schema, args, kwargs):
                rewritten.append(self._memory(tensor))
                self._overwrite(tensor, op, operands)
            for tensor in tensors_in(result):
                if self._memory(tensor) not in rewritten:
                    self._make(tensor, op, [index for _, index in operands])
        return result

    def _overwrite(self, tensor: Tensor, op: str, operands: list[tuple[Tensor, int]]) -> None:
        """A write in place: the new value comes from the operands, and from what stays there."""
        memory = self._memory(tensor)
        sources = []
        for operand, index in operands:
            if operand is not tensor or op not in OVERWRITING:
                sources.append(index)
        everything = tensor.numel() * tensor.element_size() >= tensor.untyped_storage().nbytes()
        if memory.node is not None and not everything:
            sources.append(memory.node)
        self._write(tensor, op, sources, everything)

    def _make(self, tensor: Tensor, op: str, sources: list[int]) -> None:
        """A result: a view where its memory is known, else a new value."""
        memory = self._memory(tensor)
        view = _view(tensor)
        if memory.node is None:
            self._write(tensor, op, sources)
        elif view not in memory.views or (sources and memory.views[view] not in sources):
            # The latter: a view that was turned back is a later value, or what was turned would
            # seem to lead nowhere.
            memory.views[view] = self._new(tensor, "view", sources)

    def _write(self, tensor: Tensor, op: str, sources: list[int], everything: bool = True) -> None:
        memory = self._memory(tensor)
        memory.views.clear()
        memory.node = self._new(tensor, op, sources, everything)
        memory.views[_view(tensor)] = memory.node

    def _new(self, tensor: Tensor, op: str, sources: list[int], everything: bool = True) -> int:
        """A new value; ``everything`` is whether it fills its memory."""
        parents = []
        parameters: frozenset[str] = frozenset()
        for index in dict.fromkeys(sources):
            source = self.nodes[index]
            if source.constant:
                parameters |= source.parameters
            else:
                parents.append(index)
        weighted = bool(parameters) or any(self.nodes[index].weighted for index in parents)
        constant = not parents and op != "input"
        # What is written to a part may be the same for all, and what else is there not; what
        # weights make may be the same with these weights alone, as where no neuron spikes.
        if not constant and everything and not weighted and self._same_for_all(tensor):
            constant = True
        node = Node(
            index=len(self.nodes),
            op=op,
            parents=tuple(parents),
            parameters=parameters,
            shape=tuple(tensor.shape),
            dtype=tensor.dtype,
            constant=constant,
            weighted=weighted,
            memory=self._memory(tensor),
            call=self._path[-1] if self._path else 0,
            expanded=0 in tensor.stride(),
        )
        self.nodes.append(node)
        return node.index

    def _same_for_all(self, tensor: Tensor) -> bool:
        """Whether all samples have the same values, where one dimension counts the samples."""
        if tuple(tensor.shape).count(self.batch) != 1 or not tensor.numel():
            return False
        first = tensor.narrow(list(tensor.shape).index(self.batch), 0, 1)
        return bool(torch.isclose(tensor, first, rtol=0, atol=0, equal_nan=True).all())

    def _memory(self, tensor: Tensor) -> Memory:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._memories:
            self._memories[storage._cdata] = Memory(StorageWeakRef(storage))  # type: ignore[no-untyped-call]
        return self._memories[storage._cdata]


def _written(schema: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """The tensors that an operation writes to."""
    arguments = dict(kwargs)
    for argument, value in zip(schema.arguments, args, strict=False):
        arguments.setdefault(argument.name, value)
    tensors: list[Tensor] = []
    for argument in schema.arguments:
        if argument.alias_info and argument.alias_info.is_write:
            tensors += tensors_in(arguments.get(argument.name))
    return tensors


def _view(tensor: Tensor) -> tuple[Any, ...]:
    return (tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
