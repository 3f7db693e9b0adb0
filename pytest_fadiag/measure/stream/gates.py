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
    inner: list[str] = []
    for block in blocks:
        inner.append(f"{block.name}.")
        inner += (f"{call.name}." for call in graph.parts(block))
    network = copy_of(network).eval()
    samples = like(samples, network)
    runs = [[call.name for call in graph.tape.calls], _modules_run(network, samples)]
    runs.append(_modules_run(reinitialised(network, TINY), samples))
    expected, *others = [_outside(names, tuple(inner)) for names in runs]
    for names in others:
        if names != expected:
            differing = sorted(set(names) ^ set(expected)) or names
            raise AuditError(
                "which modules run depends on the weights, as with gates and early exits: "
                f"{and_more(differing, 4)} do not always run so; audit a variant that runs all"
            )


def _outside(names: list[str], inner: tuple[str, ...]) -> list[str]:
    return [name for name in names if not name.startswith(inner)]


def _modules_run(network: nn.Module, samples: ModelInput) -> list[str]:
    """The names of the modules that a pass runs, in their order."""
    names: list[str] = []
    with ExitStack() as stack:
        for name, module in named_modules(network).items():
            hook = module.register_forward_pre_hook(lambda *_, name=name: names.append(name))
            stack.callback(hook.remove)
        call_network(network, copied(samples))
    return names
