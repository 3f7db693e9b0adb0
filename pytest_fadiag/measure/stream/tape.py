"""One forward pass written down: every tensor that depends on the samples, what it was made from, and where it can be seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from ..modules import named_modules, named_parameters

End = Literal["input", "output"]
Place = tuple[str, End, int]
"""A moment of the forward pass: the beginning or the end of one call of a module."""

LEAVING = ("numpy", "tolist", "__array__", "item", "__dlpack__", "data_ptr")
"""Functions that give numbers to code that torch does not see."""
OVERWRITING = ("copy", "fill", "zero", "normal", "uniform", "set")
"""Operations in place that leave nothing of what was there."""
SHAPED = frozenset(
    f"{before}{made}{behind}" for made in ("zeros", "ones", "empty", "full") for before, behind in (("", "_like"), ("new_", ""))
)
"""Operations that take the shape of a tensor and none of its numbers."""


@dataclass
class Node:
    """A value that depends on the samples: a tensor as it was between two writes to its memory."""

    index: int
    op: str
    parents: tuple[int, ...]
    parameters: frozenset[str]
    """The parameters that were read to make it of its parents."""
    shape: tuple[int, ...]
    floating: bool
    storage: int
    version: int
    made: int
    call: int
    """The innermost module call that it was made in."""
    read: int | None = None
    """When it was first read, if ever."""
    sights: list[Sight] = field(default_factory=list)


@dataclass(frozen=True)
class Sight:
    """Where a value can be seen: among what enters or leaves a module, or as the result of a function."""

    time: int
    place: Place
    position: int
    """Which of the tensors that enter or leave it is."""
    function: str = ""
    """The name of the function; then the place is the last module event before it."""
    occurrence: int = 0
    """How many calls of that function came between the two."""


@dataclass
class Call:
    """One module call: when it began and ended, and the values that entered and left it."""

    index: int
    name: str
    module: nn.Module
    number: int
    """How many calls of the same module came before it."""
    outer: int
    """The call in which it happened, or -1."""
    start: int
    end: int = -1
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class _Value:
    """What is known of a tensor: its node where it depends on the samples, else the parameters that it was made from."""

    node: int | None
    parameters: frozenset[str] = frozenset()


CONSTANT = _Value(None)


class Tape:
    """The record of a forward pass of ``batch`` samples; no tensor is kept."""

    def __init__(self, model: nn.Module, batch: int) -> None:
        self.model, self.batch = model, batch
        self.nodes: list[Node] = []
        self.calls: list[Call] = []
        self.clock = 0
        self._values: dict[tuple[Any, ...], _Value] = {}
        self._current: dict[int, _Value] = {}
        self._versions: Counter[int] = Counter()
        self._alive: dict[int, StorageWeakRef] = {}
        self._running: list[int] = []
        self._times: Counter[nn.Module] = Counter()
        self._place: Place = ("", "input", 0)
        self._functions: Counter[str] = Counter()
        parameters = named_parameters(model)
        self.sizes = {name: parameter.numel() for name, parameter in parameters.items()}
        self._taken_out: list[int] = []
        for tensor in _constants(model):
            self._current[self._storage(tensor)] = CONSTANT
        for name, parameter in parameters.items():
            self._current[self._storage(parameter)] = _Value(None, frozenset([name]))

    def record(self, run: Callable[[], Any], inputs: list[Tensor]) -> Any:
        """What the run returns; ``inputs`` are the tensors whose rows are the samples."""
        for tensor in inputs:
            self._write(tensor, "input", (), frozenset(), whole=True)
        with ExitStack() as stack:
            for name, module in named_modules(self.model).items():
                for handle in self._hooks(name, module):
                    stack.callback(handle.remove)
            stack.enter_context(_Functions(self))
            stack.enter_context(_Operations(self))
            return run()

    def node_of(self, tensor: Tensor) -> Node | None:
        """The value that a tensor holds now, or nothing where that does not depend on the samples, or ``vmap`` hides it."""
        if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            return None
        index = self._value(tensor).node
        return None if index is None else self.nodes[index]

    def overwritten(self, node: Node) -> bool:
        """Whether its memory was written to afterwards."""
        return self._versions[node.storage] > node.version

    def _hooks(self, name: str, module: nn.Module) -> Iterator[Any]:
        if isinstance(module, torch.jit.ScriptModule):
            return  # it takes no hooks; what it computes is seen all the same
        yield module.register_forward_pre_hook(
            lambda _, args, kwargs: self._enter(name, module, args, kwargs), with_kwargs=True
        )
        yield module.register_forward_hook(lambda _, args, output: self._leave(output), always_call=True)

    def _enter(self, name: str, module: nn.Module, args: Any, kwargs: Any) -> None:
        outer = self._running[-1] if self._running else -1
        call = Call(len(self.calls), name, module, self._times[module], outer, self._tick())
        self._times[module] += 1
        self.calls.append(call)
        self._running.append(call.index)
        self._at((name, "input", call.number), call.inputs, (args, kwargs))

    def _leave(self, output: Any) -> None:
        call = self.calls[self._running.pop()]
        call.end = self._tick()
        self._at((call.name, "output", call.number), call.outputs, output)

    def _at(self, place: Place, nodes: list[int], values: Any) -> None:
        self._place, self._functions = place, Counter()
        with torch._C.DisableTorchFunction():
            self._see(values, nodes, lambda position: Sight(self.clock, place, position))

    def _see(self, values: Any, nodes: list[int], sight: Callable[[int], Sight]) -> None:
        for position, tensor in enumerate(tensors_in(values)):
            node = self.node_of(tensor)
            if node is not None:
                node.sights.append(sight(position))
                nodes.append(node.index)

    def called(self, function: str, args: Any, result: Any) -> None:
        """Take note of what a function returned, and of numbers that leave torch with it."""
        if function in LEAVING:
            nodes = (self.node_of(tensor) for tensor in tensors_in(args))
            self._taken_out += [node.index for node in nodes if node is not None]
        occurrence, place = self._functions[function], self._place
        self._functions[function] += 1
        time = self._tick()
        self._see(result, [], lambda position: Sight(time, place, position, function, occurrence))

    def computed(self, op: str, read: list[Tensor], written: list[Tensor], results: list[Tensor]) -> None:
        """Take note of one operation, of what it read, and of what it wrote to or made anew."""
        time = self._tick()
        values = [CONSTANT if op in SHAPED else self._value(tensor) for tensor in read]
        for value in values:
            if value.node is not None and self.nodes[value.node].read is None:
                self.nodes[value.node].read = time
        parents = tuple(dict.fromkeys(value.node for value in values if value.node is not None))
        parameters = frozenset(name for value in values if value.node is None for name in value.parameters)
        for tensor in written:
            before = self._current.get(self._storage(tensor), CONSTANT)
            whole = tensor.numel() * tensor.element_size() >= tensor.untyped_storage().nbytes()
            kept = () if whole or before.node is None else (before.node,)
            sources = [value for value, own in zip(values, read, strict=True) if own is not tensor or op not in OVERWRITING]
            nodes = (value.node for value in sources if value.node is not None)
            self._write(tensor, op, tuple(dict.fromkeys((*nodes, *kept))), parameters, whole=whole)
        rewritten = {self._storage(tensor) for tensor in written}
        for tensor in results:
            if self._storage(tensor) not in rewritten:
                self._make(tensor, op, parents, parameters)

    def _make(self, tensor: Tensor, op: str, parents: tuple[int, ...], parameters: frozenset[str]) -> None:
        """A result: a view where its memory is known, else a new value."""
        storage = self._storage(tensor)
        if storage not in self._current:
            self._write(tensor, op, parents, parameters, whole=True)
        elif (seen := self._values.get(self._key(tensor))) is None or (parents and seen.node not in parents):
            # The latter: a view that was turned back is a later value, or what was turned would seem to lead nowhere.
            self._values[self._key(tensor)] = self._new(tensor, op, parents, parameters)

    def _write(self, tensor: Tensor, op: str, parents: tuple[int, ...], parameters: frozenset[str], *, whole: bool) -> None:
        storage = self._storage(tensor)
        if storage in self._current:
            self._versions[storage] += 1
        # What is written may be the same for all samples, and what else is there is not.
        source = (not whole and bool(parents)) or (op == "input" and not self._same_for_all(tensor))
        value = self._new(tensor, op, parents, parameters, source=source)
        self._current[storage] = self._values[self._key(tensor)] = value

    def _new(
        self, tensor: Tensor, op: str, parents: tuple[int, ...], parameters: frozenset[str], *, source: bool = False
    ) -> _Value:
        """A new node, unless the value is the same for all samples: a mask, positions, zeros of some shape."""
        if not source and (not parents or self._same_for_all(tensor)):
            return _Value(None, parameters.union(*(self.nodes[parent].parameters for parent in parents)))
        node = Node(
            index=len(self.nodes),
            op=op,
            parents=parents,
            parameters=parameters,
            shape=tuple(tensor.shape),
            floating=tensor.is_floating_point(),
            storage=self._storage(tensor),
            version=self._versions[self._storage(tensor)],
            made=self.clock,
            call=self._running[-1] if self._running else -1,
        )
        self.nodes.append(node)
        return _Value(node.index)

    def _value(self, tensor: Tensor) -> _Value:
        key = self._key(tensor)
        if key in self._values:
            return self._values[key]
        current = self._current.get(key[0])
        if current is None:
            current = self._current[key[0]] = self._values[key] = self._brought_in(tensor)
        elif current.node is not None:  # another view of memory that was written to
            self._values[key] = current = self._new(tensor, "alias", (current.node,), frozenset())
        return current

    def _brought_in(self, tensor: Tensor) -> _Value:
        """A tensor that no operation made: a constant, or what Python or NumPy made of numbers that left torch before."""
        if not self._taken_out or self._same_for_all(tensor) or self.batch not in tensor.shape:
            return CONSTANT
        parents, self._taken_out = tuple(dict.fromkeys(self._taken_out)), []
        return self._new(tensor, "outside torch", parents, frozenset())

    def _same_for_all(self, tensor: Tensor) -> bool:
        dims = [dim for dim, size in enumerate(tensor.shape) if size == self.batch]
        if len(dims) != 1 or tensor.numel() == 0:
            return False
        first = tensor.select(dims[0], 0).unsqueeze(dims[0])
        same = tensor == first
        if tensor.is_floating_point() or tensor.is_complex():
            same |= tensor.isnan() & first.isnan()
        return bool(same.all())

    def _key(self, tensor: Tensor) -> tuple[Any, ...]:
        storage = self._storage(tensor)
        return (storage, self._versions[storage], tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype)

    def _storage(self, tensor: Tensor) -> int:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._alive:
            # While this is held, no other storage gets the same number.
            self._alive[storage._cdata] = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
        return int(storage._cdata)

    def _tick(self) -> int:
        self.clock += 1
        return self.clock


class _Functions(TorchFunctionMode):
    """Tells a tape of the functions that Python code calls: there a value can be seen where no module sees it."""

    def __init__(self, tape: Tape) -> None:
        super().__init__()
        self.tape = tape

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.tape.called(name_of(func), args, result)
        return result


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Tells a tape of every operation, also of those inside functions, scripted code and other people's backwards."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Not by importing the package that compiles, which takes seconds: nothing is compiled while a tape records."""
        return False

    def __init__(self, tape: Tape) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tape = tape

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        schema = func._schema.arguments
        given = {**{argument.name: value for argument, value in zip(schema, args, strict=False)}, **kwargs}
        writes = [argument.name for argument in schema if argument.alias_info is not None and argument.alias_info.is_write]
        with torch._C.DisableTorchFunction():
            read = [tensor for value in given.values() for tensor in tensors_in(value)]
            written = [tensor for name in writes if name in given for tensor in tensors_in(given[name])]
            name = func._overloadpacket.__name__.rstrip("_")
            self.tape.computed(name, read, written, list(tensors_in(result)))
        return result


def _constants(model: nn.Module) -> Iterator[Tensor]:
    """Buffers and other tensors that the modules hold."""
    for module in named_modules(model).values():
        for value in vars(module).values():
            yield from tensors_in(value)


def name_of(function: Any) -> str:
    """The name of a function as a sight has it."""
    return str(getattr(function, "__name__", function))


def tensors_in(values: Any) -> Iterator[Tensor]:
    """The tensors among arguments or results, also those inside lists, dictionaries and dataclasses, in their order."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, Mapping):
        for item in values.values():
            yield from tensors_in(item)
    elif isinstance(values, (tuple, list)):
        for item in values:
            yield from tensors_in(item)
    elif is_dataclass(values) and not isinstance(values, type):
        for own in fields(values):
            yield from tensors_in(getattr(values, own.name))
