"""Blocks at a new random initialisation: the null of (e), and whether a block is still at one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy
import torch
from torch import Tensor, nn

from ..judge.errors import AuditError
from ..judge.words import and_more
from .copies import copy_of, is_source, named_modules, named_parameters, quiet
from .types import ModelInput

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .stream.sites import Stream

SEEDS = (7_919_561, 7_919_562)
"""No training begins with these: weights that come out the same would look as if nothing drew."""
MOST = 20_000
"""So many entries of a tensor are compared as a sample of it; the range is that of all."""
KOLMOGOROV = 2.4
"""Times the two-sample bound: samples of one distribution exceed it once in 50,000 tensors."""
BEYOND = 8.0
"""By how many gaps between the entries of a uniform sample another one may reach beyond it."""
ROUNDING = 1e-3
"""What half precision may add to an entry."""
FEW = 32
UNIFORM = 3.7
"""A uniform sample spans 3.46 standard deviations, a normal one more than 4."""


def modules_of_blocks(network: nn.Module, own: frozenset[str]) -> list[tuple[nn.Module, set[str]]]:
    """The modules that belong to blocks alone and the parameters they hold, inner modules first.

    ``own`` are the names of the parameters that blocks read and nothing else does. A module
    without parameters goes with the module around it.
    """
    names = {parameter: name for name, parameter in named_parameters(network).items()}
    modules, held, inside = named_modules(network), dict[str, set[str]](), set[nn.Module]()
    for name, module in modules.items():
        held[name] = {names[parameter] for parameter in named_parameters(module).values()}
        if held[name] and held[name] <= own:
            inside.update(named_modules(module).values())
    inner_first = sorted(modules, key=lambda name: name.count(".") + bool(name), reverse=True)
    return [(modules[name], held[name]) for name in inner_first if modules[name] in inside]


def reinitialise(
    network: nn.Module,
    blocks: Sequence[tuple[str, frozenset[str]]],
    outside: frozenset[str],
    seed: int,
) -> None:
    """Draw the weights of blocks again, in place; an error where those of one cannot be.

    ``blocks`` are their names and the parameters that each reads. ``reset_parameters`` of their
    modules decides, inner modules first, so a block has the last word on its layers. Other
    parameters are drawn with their own mean and spread. What is read ``outside`` too stays, and
    so does what weights are computed from.
    """
    parameters, own = (
        named_parameters(network),
        frozenset().union(*(held for _, held in blocks)) - outside,
    )
    with quiet(network):
        torch.manual_seed(seed)
        drawn = _reset(network, own)
        for name in sorted(own - drawn):
            tensor = parameters[name]
            finite = tensor[torch.isfinite(tensor)].cpu().double()
            if tensor.is_floating_point() and len(finite) and not is_source(name):
                noise = torch.randn(tensor.shape, dtype=torch.float64)
                tensor.copy_(finite.mean() + noise * finite.std(correction=0))
                drawn.add(name)
    if failed := [name for name, held in blocks if not held or not held <= drawn]:
        raise AuditError(
            f"{and_more(failed)} cannot be re-initialised: some parameters are read elsewhere too, "
            "are not finite, or have a weight norm or another parametrisation"
        )


def _reset(network: nn.Module, own: frozenset[str]) -> set[str]:
    """Let the modules of blocks draw their parameters; returns the names of what they drew."""
    parameters, drawn = named_parameters(network), set[str]()
    for module, held in modules_of_blocks(network, own):
        reset: Any = getattr(module, "reset_parameters", None)
        if not callable(reset):
            continue
        before = {name: parameters[name].clone() for name in held}
        try:
            reset()
        except Exception:  # the user's code, which may want arguments; what it has begun is undone
            for name, values in before.items():
                parameters[name].copy_(values)
            continue
        for name, values in before.items():
            now = parameters[name]
            changed = not torch.equal(now.nan_to_num(), values.nan_to_num())
            constant = now.ndim < 2 or bool((now == now.flatten()[:1]).all())
            # Weights that are still the same were drawn in vain, but constants of a new module.
            if changed or (constant and now in set(module._parameters.values())):
                drawn.add(name)
    return drawn


def redrawn_blocks(network: nn.Module, stream: Stream, seed: int) -> nn.Module:
    """A copy with every block re-initialised."""
    copy = copy_of(network)
    # A trace has blocks and no parameters.
    blocks = list(zip(stream.blocks, stream.parameters, strict=False))
    reinitialise(copy, blocks, stream.outside, seed)
    return copy


@torch.no_grad()
def retake_statistics(network: nn.Module, stream: Stream, batches: Iterable[ModelInput]) -> None:
    """Take the batch statistics of what runs after h_0 from these batches: the mean over them."""
    averaging = [
        module
        for module in named_modules(network).values()
        if isinstance(module._buffers.get("running_mean"), Tensor)
    ]
    states: list[int] = []

    def enter(module: nn.Module, _args: Any) -> None:
        if states and not module.training:
            module.training = True
            if isinstance(module, nn.modules.batchnorm._NormBase):
                module.reset_running_stats()
                module.momentum = None

    hooks = [module.register_forward_pre_hook(enter) for module in averaging]
    for x in batches if averaging else ():
        states.clear()
        stream.run(network, x, lambda layer, _: states.append(layer))
    for module, hook in zip(averaging, hooks, strict=True):
        module.training = False
        hook.remove()


def as_initialised(network: nn.Module, stream: Stream) -> tuple[int, ...]:
    """The blocks, counted from 0, whose weights a new initialisation could have drawn.

    Only what ``reset_parameters`` draws can be compared. Constants such as those of a norm must
    be what they begin as, weights must have the distribution of new ones and, where it is
    bounded, their range. An unbounded distribution hardly changes where weights move by a third,
    so a block in which nothing else is drawn is never among these, nor one with a weight norm.
    """
    copy, own = copy_of(network), frozenset().union(*stream.own)
    draws = [_values(copy)]
    with quiet(copy):
        for seed in SEEDS:
            torch.manual_seed(seed)
            drawn = _reset(copy, own)
            draws.append(_values(copy))
    found = []
    for block, names in enumerate(stream.parameters):
        if any(map(is_source, names)):
            continue
        fresh = {
            name: numpy.concatenate([own[name] for own in draws[1:]]) for name in names & drawn
        }
        varying = [values for values in fresh.values() if numpy.ptp(values)]
        telling = any(len(values) >= 2 * FEW and _bounded(values) for values in varying)
        told = varying and (telling or len(varying) < len(fresh))
        if told and all(_alike(draws[0][name], values) for name, values in fresh.items()):
            found.append(block)
    return tuple(found)


def _values(network: nn.Module) -> dict[str, NDArray[Any]]:
    """The entries of every parameter, for numpy: it sorts ten times as fast."""
    return {
        name: own.detach().flatten().cpu().numpy().copy()
        for name, own in named_parameters(network).items()
    }


def _bounded(fresh: NDArray[Any]) -> bool:
    return bool(numpy.ptp(fresh) <= UNIFORM * fresh.std(dtype=numpy.float64))


def _alike(values: NDArray[Any], fresh: NDArray[Any]) -> bool:
    """Whether values could be drawn as fresh ones were: by range, and by Kolmogorov–Smirnov."""
    low, high = float(fresh.min()), float(fresh.max())
    if low == high:
        return bool((values == low).all())
    slack = (high - low) * (BEYOND / len(values) + ROUNDING)
    inside = bool(values.min() >= low - slack and values.max() <= high + slack)
    if not numpy.isfinite(values).all() or (len(values) >= FEW and _bounded(fresh) and not inside):
        return False
    one, other = (numpy.sort(own[:: max(1, len(own) // MOST)]) for own in (values, fresh))
    both = numpy.concatenate([one, other])
    shares = [numpy.searchsorted(own, both, side="right") / len(own) for own in (one, other)]
    bound = KOLMOGOROV * (1 / len(one) + 1 / len(other)) ** 0.5
    return bool(abs(shares[0] - shares[1]).max() <= bound)
