"""A method's credit at the states of the stream: from a function, from saved feedback, or from the network's own backward."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..judge.credit import CreditFunction
from ..judge.errors import AuditError
from ..judge.wording import count
from .inputs import ModelInput, copied
from .wide import copy_of

WAYS = (
    "give it by --fa-credit=package.module:function (called with model, x, y, checkpoint) or the fixture fa_credit, or save "
    "the feedback matrices of DFA in the checkpoint as Bs"
)


@dataclass(frozen=True)
class CreditSource:
    """What the credit of a network can be had from, before anybody looks at the network."""

    function: CreditFunction | None = None
    name: str = ""
    """What a report calls the function."""
    checkpoint: Mapping[str, Any] = field(default_factory=dict)
    """The content of the file; its ``Bs`` serve where no function is given."""
    problem: str = ""
    """Why there is no function though one is named; that is no reason not to measure the rest."""

    @property
    def feedback(self) -> list[Tensor]:
        """The matrices that the checkpoint holds as ``Bs``, or none."""
        Bs = self.checkpoint.get("Bs")
        return list(Bs) if isinstance(Bs, (list, tuple)) and all(isinstance(B, Tensor) for B in Bs) else []


def function_name(function: CreditFunction) -> str:
    """What a report calls a function that has no SPEC."""
    return str(getattr(function, "__qualname__", type(function).__name__))


class FunctionCredit:
    """Calls the user's function with a copy of the network, in eval mode and with parameters that require a gradient.

    A new one for each batch: what a function does to its network, such as a step of training, must not reach the next batch.
    """

    def __init__(self, source: CreditSource, network: nn.Module) -> None:
        assert source.function is not None
        self.function, self.checkpoint, self.what = source.function, source.checkpoint, f"the credit function {source.name}"
        self.network = network
        self.takes_checkpoint = _positional(self.function) != 3

    def __call__(self, x: ModelInput, y: Tensor) -> list[Any]:
        """What it returns for a batch, which must be a sequence; seeded, so that a second audit finds the same."""
        network = copy_of(self.network)
        for parameter in network.parameters():
            parameter.requires_grad_(parameter.is_floating_point())
        arguments = (network, copied(x), y.clone(), *((self.checkpoint,) if self.takes_checkpoint else ()))
        try:
            with torch.enable_grad(), torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                result: object = self.function(*arguments)
        except AuditError as error:
            raise AuditError(f"{self.what}: {error}") from error
        except Exception as error:
            raise AuditError(f"{self.what} raised {type(error).__name__}: {error}") from error
        if not isinstance(result, (Sequence, Tensor)) or isinstance(result, str):
            raise AuditError(f"{self.what} returned {type(result).__name__}; expected a list of a tensor for each block output")
        return list(result)


def _positional(function: CreditFunction) -> int | None:
    """How many positional arguments a function takes; nothing where that is open."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return None
    return sum(parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD) for parameter in parameters)


def check_credits(result: Sequence[Any], shapes: Sequence[tuple[int, ...]], what: str) -> list[Tensor | None]:
    """The credit of h_0 … h_L, ``None`` for h_0 where only block outputs were given; an error where it is not theirs."""
    depth = len(shapes) - 1
    if len(result) not in (depth, depth + 1):
        raise AuditError(
            f"{what} returned {count(len(result), 'tensor')}, but the stream has {count(depth, 'block')}: expected a tensor "
            f"for each block output, h_1 … h_{depth}, or {depth + 1} with that of h_0 first"
        )
    first = depth + 1 - len(result)
    for layer, credit in enumerate(result, first):
        if not isinstance(credit, Tensor) or not credit.is_floating_point():
            kind = f"a tensor of {credit.dtype}" if isinstance(credit, Tensor) else type(credit).__name__
            raise AuditError(f"{what} returned {kind} for h_{layer}; expected a tensor of real numbers")
        if tuple(credit.shape) != shapes[layer]:
            raise AuditError(
                f"{what} returned shape {tuple(credit.shape)} for h_{layer}, whose shape is {shapes[layer]}; the credit of a "
                "block belongs to the state that it writes, h_1 to the first block"
            )
    return [None] * first + [credit.detach() for credit in result]


def feedback_fits(Bs: Sequence[Tensor], shapes: Sequence[tuple[int, ...]], classes: int) -> bool:
    """Whether these are one matrix d×C for each block of a stream of vectors."""
    return len(Bs) == len(shapes) - 1 and all(
        tuple(B.shape) == (*shape, classes) for B, shape in zip(Bs, shapes[1:], strict=True)
    )


def feedback_credit(Bs: Sequence[Tensor], error: Tensor) -> list[Tensor]:
    """e B_lᵀ at h_{l+1}, as in direct feedback alignment."""
    return [error @ B.to(error).T for B in Bs]


class NoCredit(AuditError):
    """Nobody knows the credit of this network."""

    def __init__(self, Bs: Sequence[Tensor], shapes: Sequence[tuple[int, ...]], classes: int, problem: str = "") -> None:
        held = "the checkpoint holds no Bs"
        if Bs:
            first = "×".join(map(str, Bs[0].shape))
            blocks = count(len(shapes) - 1, "block")
            wanted = (
                f"one {shapes[-1][0]}×{classes} for each of {blocks}" if len(shapes[-1]) == 1 else "for a stream of vectors"
            )
            held = f"the checkpoint's Bs are {count(len(Bs), 'matrix', 'matrices')} (the first {first}), not {wanted}"
        own = (
            f"a backward of the network's own was not seen: {problem}"
            if problem
            else "the network has no backward of its own (one that reads targets which a training loop sets is not seen here)"
        )
        super().__init__(f"no credit to compare: no credit function is given, {held}, and {own}; {WAYS}")
