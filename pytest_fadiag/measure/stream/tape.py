"""One forward pass written down: every value, what it was made of, and where it can be seen."""

from __future__ import annotations

from collections.abc import Callable
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
    floating: bool
    constant: bool
    """Whether it is the same for all samples, as a mask or positions are."""
    memory: Memory
    call: int
    """The innermost module call that it was made in."""
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
        self._path: tuple[int, ...] = ()
        self._taken_out: list[int] = []
        parameters = named_parameters(network)
        self.sizes = {name: parameter.numel() for name, parameter in parameters.items()}
        for name, parameter in parameters.items():
            self.node_of(parameter).parameters = frozenset([name])
        for tensor in tensors_in([list(vars(module).values()) for module in self.modules.values()]):
            self.node_of(tensor)

    def record(self, run: Callable[[], Any], inputs: list[Tensor]) -> Any:
        """What the run returns; ``inputs`` are the tensors whose rows are the samples."""
        for tensor in inputs:
            self._write(tensor, "input", [])
        with Events(self._take) as events, ExitStack() as stack:
            for name, module in self.modules.items():
                for end in ("input", "output"):
                    stack.callback(events.hook(name, module, end).remove)
            stack.enter_context(self)
            return run()

    def node_of(self, tensor: Tensor) -> Node:
        """The value that a tensor holds now."""
        memory, view = self._memory(tensor), _view(tensor)
        if memory.node is None:
            # A constant, or what Python or NumPy made of numbers that left torch before.
            taken = self._taken_out if self.batch in tensor.shape else []
            self._write(tensor, "outside torch", taken)
            taken.clear()
        elif view not in memory.views:  # another view of what was written
            memory.views[view] = self._new(tensor, "view", [memory.node])
        return self.nodes[memory.views[view]]

    def _take(self, site: Site, values: Any, args: Any) -> Any:
        """Take note of what enters or leaves a module, or of what a function returns."""
        name, end, _ = site.place
        if not site.function and end == "input":
            self._path = (*self._path, len(self.calls))
            self.calls.append(Call(name, self.modules[name], self._path))
            self.calls[-1].inputs = self._seen(values, site)
        elif not site.function:
            self.calls[self._path[-1]].outputs = self._seen(values, site)
            self._path = self._path[:-1]
        else:
            self._seen(values, site)
            if site.function in LEAVING:
                self._taken_out += self._seen(args)
        return values

    def _seen(self, values: Any, site: Site | None = None) -> list[int]:
        """The values of some tensors, with a note of where they are seen."""
        seen = []
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
            for position, tensor in enumerate(tensors_in(values)):
                # A tensor that vmap wraps hides what it holds.
                if not torch._C._functorch.is_functorch_wrapped_tensor(tensor):
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
        given = {**dict(zip((own.name for own in schema), args, strict=False)), **kwargs}
        writes = [own.name for own in schema if own.alias_info and own.alias_info.is_write]
        with torch._C.DisableTorchFunction():
            tensors = [] if shaped else list(tensors_in([args, kwargs]))
            read = [(tensor, self.node_of(tensor).index) for tensor in tensors]
            for _, index in read:
                self.nodes[index].read = True
            rewritten = []
            for tensor in tensors_in([given.get(name) for name in writes]):
                memory = self._memory(tensor)
                rewritten.append(memory)
                whole = tensor.numel() * tensor.element_size() >= tensor.untyped_storage().nbytes()
                kept = [] if whole or memory.node is None else [memory.node]
                sources = [
                    index for own, index in read if own is not tensor or op not in OVERWRITING
                ]
                self._write(tensor, op, [*sources, *kept], whole)
            for tensor in tensors_in(result):
                if self._memory(tensor) not in rewritten:
                    self._make(tensor, op, [index for _, index in read])
        return result

    def _make(self, tensor: Tensor, op: str, sources: list[int]) -> None:
        """A result: a view where its memory is known, else a new value."""
        memory, view = self._memory(tensor), _view(tensor)
        if memory.node is None:
            self._write(tensor, op, sources)
        elif view not in memory.views or (sources and memory.views[view] not in sources):
            # The latter: a view that was turned back is a later value, or what was turned would
            # seem to lead nowhere.
            memory.views[view] = self._new(tensor, "view", sources)

    def _write(self, tensor: Tensor, op: str, sources: list[int], whole: bool = True) -> None:
        memory = self._memory(tensor)
        memory.views.clear()
        memory.node = memory.views[_view(tensor)] = self._new(tensor, op, sources, whole)

    def _new(self, tensor: Tensor, op: str, sources: list[int], whole: bool = True) -> int:
        made_of = [self.nodes[index] for index in dict.fromkeys(sources)]
        varied = [node for node in made_of if not node.constant]
        constant = not varied and op != "input"
        dims = [dim for dim, size in enumerate(tensor.shape) if size == self.batch]
        # What is written to a part may be the same for all, and what else is there not.
        if not constant and whole and len(dims) == 1 and tensor.numel():
            first = tensor.narrow(dims[0], 0, 1)
            same = torch.isclose(tensor, first, rtol=0, atol=0, equal_nan=True)
            constant = bool(same.all())
        taken_in = [node.parameters for node in made_of if constant or node.constant]
        node = Node(
            index=len(self.nodes),
            op=op,
            parents=tuple(node.index for node in varied),
            parameters=frozenset[str]().union(*taken_in),
            shape=tuple(tensor.shape),
            floating=tensor.is_floating_point(),
            constant=constant,
            memory=self._memory(tensor),
            call=self._path[-1] if self._path else 0,
        )
        self.nodes.append(node)
        return node.index

    def _memory(self, tensor: Tensor) -> Memory:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._memories:
            self._memories[storage._cdata] = Memory(StorageWeakRef(storage))  # type: ignore[no-untyped-call]
        return self._memories[storage._cdata]


def _view(tensor: Tensor) -> tuple[Any, ...]:
    return (tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
