"""Blocks at a new random initialisation: the null of (e)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..judge.errors import AuditError
from ..judge.words import and_more
from .copies import copy_of, is_source, named_modules, named_parameters, quiet
from .types import ModelInput

if TYPE_CHECKING:
    from .stream.sites import Stream


def modules_of_blocks(
    network: nn.Module, exclusive: frozenset[str]
) -> list[tuple[nn.Module, set[str]]]:
    """The modules that belong to blocks alone and the parameters they hold, inner modules first.

    ``exclusive`` are the names of the parameters that blocks read and nothing else does. A module
    without parameters goes with the module around it.
    """
    names = {parameter: name for name, parameter in named_parameters(network).items()}
    modules = named_modules(network)
    parameters: dict[str, set[str]] = {}
    inside: set[nn.Module] = set()
    for name, module in modules.items():
        parameters[name] = {names[parameter] for parameter in named_parameters(module).values()}
        if parameters[name] and parameters[name] <= exclusive:
            inside.update(named_modules(module).values())
    inner_first = sorted(modules, key=lambda name: (name != "", name.count(".")), reverse=True)
    return [(modules[name], parameters[name]) for name in inner_first if modules[name] in inside]


def reinitialise_blocks(
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
    parameters = named_parameters(network)
    exclusive = frozenset().union(*(names for _, names in blocks)) - outside
    with quiet(network):
        torch.manual_seed(seed)
        fresh = reset_modules(network, exclusive)
        for name in sorted(exclusive - fresh):
            tensor = parameters[name]
            finite = tensor[torch.isfinite(tensor)].cpu().double()
            if tensor.is_floating_point() and len(finite) and not is_source(name):
                noise = torch.randn(tensor.shape, dtype=torch.float64)
                tensor.copy_(finite.mean() + noise * finite.std(correction=0))
                fresh.add(name)
    failed = [block for block, names in blocks if not names or not names <= fresh]
    if failed:
        raise AuditError(
            f"{and_more(failed)} cannot be re-initialised: some parameters are read elsewhere too, "
            "are not finite, or have a weight norm or another parametrisation"
        )


def reset_modules(network: nn.Module, exclusive: frozenset[str]) -> set[str]:
    """Let the modules of blocks draw their parameters; returns the names of what they drew."""
    parameters = named_parameters(network)
    fresh: set[str] = set()
    for module, names in modules_of_blocks(network, exclusive):
        reset: Any = getattr(module, "reset_parameters", None)
        if not callable(reset):
            continue
        before = {name: parameters[name].clone() for name in names}
        try:
            reset()
        except Exception:  # the user's code, which may want arguments; what it has begun is undone
            for name, values in before.items():
                parameters[name].copy_(values)
            continue
        for name, values in before.items():
            if _is_fresh(parameters[name], values, module):
                fresh.add(name)
    return fresh


def _is_fresh(parameter: Tensor, before: Tensor, module: nn.Module) -> bool:
    """Whether a module has drawn a parameter: constants of its own stay the same when it does."""
    if not torch.equal(parameter.nan_to_num(), before.nan_to_num()):
        return True
    if not any(parameter is member for member in module._parameters.values()):
        return False
    return parameter.ndim < 2 or bool((parameter == parameter.flatten()[:1]).all())


def with_reinitialised_blocks(network: nn.Module, stream: Stream, seed: int) -> nn.Module:
    """A copy with every block re-initialised."""
    copy = copy_of(network)
    # A trace has blocks and no parameters.
    blocks = list(zip(stream.blocks, stream.parameters, strict=False))
    reinitialise_blocks(copy, blocks, stream.outside, seed)
    return copy


class _Retaking:
    """Makes modules that average over batches begin anew, if they run after h_0."""

    def __init__(self) -> None:
        self.is_after_h_0 = False

    def on_state(self, _layer: int, _state: Tensor) -> None:
        self.is_after_h_0 = True

    def enter(self, module: nn.Module, _args: Any) -> None:
        if not self.is_after_h_0 or module.training:
            return
        module.training = True
        if isinstance(module, nn.modules.batchnorm._NormBase):
            module.reset_running_stats()
            module.momentum = None


@torch.no_grad()
def retake_statistics(network: nn.Module, stream: Stream, batches: Iterable[ModelInput]) -> None:
    """Take the batch statistics of what runs after h_0 from these batches: the mean over them."""
    averaging = [
        module
        for module in named_modules(network).values()
        if isinstance(module._buffers.get("running_mean"), Tensor)
    ]
    if not averaging:
        return
    retaking = _Retaking()
    hooks = [module.register_forward_pre_hook(retaking.enter) for module in averaging]
    for x in batches:
        retaking.is_after_h_0 = False
        stream.run(network, x, retaking.on_state)
    for module, hook in zip(averaging, hooks, strict=True):
        module.training = False
        hook.remove()
