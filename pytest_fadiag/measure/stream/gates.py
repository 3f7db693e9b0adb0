"""Whether the same modules run with a network's own weights as with others."""

from __future__ import annotations

from contextlib import ExitStack

from torch import nn

from ...judge.errors import AuditError
from ...judge.words import and_more
from ..copies import copy_of, named_modules, reinitialised
from ..inputs import call_network, copied, like
from ..types import ModelInput
from .graph import Block, Graph

TINY = 1e-3
"""A gain at which early exits are not sure of themselves."""


def refuse_gates(
    graph: Graph, blocks: list[Block], network: nn.Module, samples: ModelInput
) -> None:
    """Refuse a network that runs other modules with its own weights, or with tiny ones.

    Within a block they may differ, as experts do.
    """
    inner: tuple[str, ...] = ()
    for block in blocks:
        inner += (f"{block.name}.", *(f"{call.name}." for call in graph.parts(block)))
    network = copy_of(network)
    samples = like(samples, network)
    expected = [call.name for call in graph.tape.calls if not call.name.startswith(inner)]
    runs = [_modules_run(network, samples, inner)]
    runs.append(_modules_run(reinitialised(network, TINY), samples, inner))
    for names in runs:
        if names != expected:
            differing = sorted(set(names) ^ set(expected)) or names
            raise AuditError(
                "which modules run depends on the weights, as with gates and early exits: "
                f"{and_more(differing, 4)} do not always run so; audit a variant that runs all"
            )


def _modules_run(network: nn.Module, samples: ModelInput, inner: tuple[str, ...]) -> list[str]:
    """The names of the modules that a pass runs, in their order, without those of inner parts."""
    names: list[str] = []
    with ExitStack() as stack:
        for name, module in named_modules(network).items():
            if not name.startswith(inner):
                hook = module.register_forward_pre_hook(lambda *_, name=name: names.append(name))
                stack.callback(hook.remove)
        call_network(network, copied(samples))
    return names
