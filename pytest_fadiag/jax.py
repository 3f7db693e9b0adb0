"""Networks of JAX callables as torch modules, so that an audit takes them like any other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import Tensor, nn

from .judge.errors import AuditError


def module(layers: Sequence[Any], *, batched: bool = True) -> JaxModule:
    """A torch module that applies JAX layers in their order: embedding, blocks, head.

    >>> network = module([*mlp.layers])  # Equinox layers, or functions of one argument
    >>> network = module([(layer, params[layer.name]) for layer in flax_layers])
    >>> report = diagnose(network, batches)

    A layer is a callable that takes and returns one array; a pair of a Flax module, or of a
    function, and its parameters is one too. Arrays in it become torch parameters. ``batched=False``
    is for layers that take one sample. The stream is as given: the first layer is the embedding,
    the last one the head, and a skip connection belongs inside a layer.
    """
    if len(layers) < 3:
        raise AuditError(
            f"expected embedding, blocks and head as layers, got {len(layers)}: "
            "split the network into a list of callables"
        )
    return JaxModule([JaxLayer(layer, batched=batched) for layer in layers])


class JaxModule(nn.Module):
    """JAX layers applied one after another, the stream between the first and the last one."""

    def __init__(self, layers: Sequence[JaxLayer]) -> None:
        super().__init__()
        self.embed = layers[0]
        self.blocks = nn.ModuleList(layers[1:-1])
        self.head = layers[-1]

    def forward(self, x: Tensor) -> Tensor:
        """The outputs of the last layer."""
        h = self.embed(x)
        for block in self.blocks:
            h = block(h)
        return self.head(h)  # type: ignore[no-any-return]

    @property
    def layers(self) -> list[Any]:
        """The JAX layers with the parameters as they are now, in the form in which they came."""
        return [layer.layer for layer in (self.embed, *self.blocks, self.head)]

    def update(self, layers: Sequence[Any]) -> None:
        """Take the parameters of these layers over, as after a training step in JAX.

        >>> def step(network, x, y):
        ...     network.update(my_update(network.layers, x.numpy(), y.numpy()))
        """
        parts = [self.embed, *self.blocks, self.head]
        if len(layers) != len(parts):
            raise AuditError(f"expected {len(parts)} layers, got {len(layers)}")
        for part, layer in zip(parts, layers, strict=True):
            part.update(layer)


class _Program:
    """What a layer computes of its arrays; the same for all copies of a layer."""

    def __init__(self, layer: Any, *, batched: bool) -> None:
        leaves, self.structure = jax.tree_util.tree_flatten(layer, is_leaf=_is_statistic)
        if any(map(_is_statistic, leaves)):
            raise AuditError(
                "a layer holds batch statistics, which no re-initialised block could keep: "
                "use another norm, or save a trace"
            )
        self.is_parameter = [_is_parameter(leaf) for leaf in leaves]
        self.constants = [leaf for leaf in leaves if not _is_parameter(leaf)]
        self.batched = batched
        self.run = jax.jit(self._outputs)
        self.pull_back = jax.jit(self._gradients)

    def __deepcopy__(self, memo: dict[int, Any]) -> _Program:
        return self

    def layer(self, parameters: Sequence[Any]) -> Any:
        """The layer with these arrays as its parameters."""
        arrays = iter(parameters)
        constants = iter(self.constants)
        leaves = [next(arrays if is_array else constants) for is_array in self.is_parameter]
        return jax.tree_util.tree_unflatten(self.structure, leaves)

    def _outputs(self, h: Any, *parameters: Any) -> Any:
        layer = self.layer(parameters)
        if isinstance(layer, tuple):
            function, variables = layer
            apply: Any = getattr(function, "apply", function)
            layer = partial(apply, variables)
        if not self.batched:
            layer = jax.vmap(layer)
        return layer(h)

    def _gradients(self, gradient: Any, h: Any, *parameters: Any) -> Any:
        _, pull_back = jax.vjp(self._outputs, h, *parameters)
        return pull_back(gradient)


class JaxLayer(nn.Module):
    """One JAX layer; its floating-point arrays are parameters of torch."""

    def __init__(self, layer: Any, *, batched: bool) -> None:
        super().__init__()
        self.program = _Program(layer, batched=batched)
        self.arrays = nn.ParameterList(_parameters(layer))

    def forward(self, h: Tensor) -> Tensor:
        """The layer of a batch."""
        return _Apply.apply(self.program, h, *self.arrays)  # type: ignore[no-any-return, no-untyped-call]

    @property
    def layer(self) -> Any:
        """The JAX layer with the parameters as they are now."""
        return self.program.layer([jnp.array(_to_numpy(array)) for array in self.arrays])

    @torch.no_grad()
    def update(self, layer: Any) -> None:
        """Take the parameters of a layer of the same form over."""
        parameters = _parameters(layer)
        if [array.shape for array in parameters] != [array.shape for array in self.arrays]:
            raise AuditError("the layer has arrays of other shapes than the one that it replaces")
        for array, parameter in zip(self.arrays, parameters, strict=True):
            array.copy_(parameter)


class _Apply(torch.autograd.Function):
    """A layer computed and differentiated by JAX, in the precision of its input."""

    @staticmethod
    def forward(ctx: Any, program: _Program, h: Tensor, *parameters: Tensor) -> Tensor:
        ctx.program = program
        ctx.save_for_backward(h, *parameters)
        return _to_torch(_in_jax(program.run, h, *parameters), h)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        gradients = _in_jax(ctx.program.pull_back, gradient, *ctx.saved_tensors)
        examples = ctx.saved_tensors
        pairs = zip(gradients, examples, strict=True)
        return None, *(_to_torch(array, example) for array, example in pairs)


def _in_jax(function: Callable[..., Any], *tensors: Tensor) -> Any:
    """What a function of JAX returns for tensors, in float64 where the first one is."""
    arrays = [_to_numpy(tensor) for tensor in tensors]
    with jax.enable_x64(arrays[0].dtype == np.float64):
        return function(*map(jnp.array, arrays))


def _is_statistic(value: Any) -> bool:
    """Whether a part of a layer is, or holds, the batch statistics of a Flax norm."""
    if isinstance(value, Mapping):
        return "batch_stats" in value
    return type(value).__name__ == "BatchStat"


def _is_parameter(leaf: Any) -> bool:
    if not isinstance(leaf, jax.Array | np.ndarray):
        return False
    if jnp.issubdtype(leaf.dtype, jnp.complexfloating):
        raise AuditError("a layer holds complex arrays, which no torch parameter stands for here")
    return bool(jnp.issubdtype(leaf.dtype, jnp.floating))


def _parameters(layer: Any) -> list[nn.Parameter]:
    leaves = jax.tree_util.tree_leaves(layer)
    example = torch.empty(0)
    return [nn.Parameter(_to_torch(leaf, example)) for leaf in leaves if _is_parameter(leaf)]


def _to_numpy(tensor: Tensor) -> Any:
    """A tensor as numpy holds it; float64 copies of a network say that they are not."""
    wide = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
    array = wide.numpy(force=True)
    if wide is tensor or array.dtype == np.float64:
        return array
    return array.astype(jnp.bfloat16)


def _to_torch(array: Any, example: Tensor) -> Tensor:
    """A copy of an array, in the precision and on the device of a tensor."""
    wide = np.asarray(array)
    if array.dtype == jnp.bfloat16:
        wide = wide.astype(np.float32)
    return torch.tensor(wide, dtype=example.dtype, device=example.device)
