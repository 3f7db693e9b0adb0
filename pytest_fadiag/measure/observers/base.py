"""What an observer is, and what it can watch while samples go through a network."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from torch import Tensor, nn

from ...judge.observers import ObserverSpec
from ...judge.records import BATCH
from ..credit import CreditSource
from ..evaluation import Evaluation
from ..inputs import ModelInput
from ..output_error import Loss
from ..reference import Proof
from ..stream.sites import Stream


@dataclass(frozen=True, eq=False)
class Samples:
    """Some samples of the evaluation data; those of the probe never reach over a batch of 128."""

    labels: Tensor
    start: int
    """The number of the first of them in the evaluation data."""
    in_probe: bool

    @property
    def batch(self) -> int:
        """Which of the disjoint batches of 128 they belong to."""
        return self.start // BATCH


@dataclass(frozen=True, eq=False)
class Output:
    """The logits of some samples."""

    samples: Samples
    logits: Tensor


@dataclass(frozen=True, eq=False)
class State:
    """A state h_l of the stream as it appears, samples first."""

    samples: Samples
    layer: int
    value: Tensor
    tokens: bool
    """Whether it is a list of tokens, each of which has a norm of its own, and not a vector or a feature map."""


@dataclass(frozen=True, eq=False)
class OutputError:
    """e_i = ∂ℓ_i/∂logits_i as unit vectors and their norms; of the probe it is shown before the gradients."""

    samples: Samples
    units: Tensor
    norms: Tensor


@dataclass(frozen=True, eq=False)
class Gradient:
    """The gradient at h_l as it arrives, samples first: what the unit error gives, so that ∂ℓ_i/∂h_l is ‖e_i‖ times it."""

    samples: Samples
    layer: int
    depth: int
    """The L of the deepest state, h_L."""
    value: Tensor
    error: OutputError
    tokens: bool
    """As of the state."""


@dataclass(frozen=True, eq=False)
class FirstBatch:
    """Samples of the first batch before anything is made of them, the network itself, and how its reference is taken."""

    samples: Samples
    x: ModelInput
    network: nn.Module
    stream: Stream
    loss: Loss
    proof: Proof


@dataclass(frozen=True, eq=False)
class ProbeBatch(FirstBatch):
    """The same of every batch of the probe, for whoever runs copies of the network on it; the reference is proven."""


@dataclass(frozen=True, eq=False)
class EveryBatch:
    """Samples of any batch before the network sees them, for whoever runs copies of it on copies of them."""

    samples: Samples
    x: ModelInput
    network: nn.Module
    stream: Stream


Event = FirstBatch | ProbeBatch | EveryBatch | Output | State | OutputError | Gradient
Watched = TypeVar("Watched", bound=Event)


@dataclass(frozen=True)
class PassInfo:
    """What an observer can know before the first samples."""

    network: nn.Module
    batches: int
    """How many disjoint batches of 128 the probe has, unless the data has fewer."""
    data_digest: str | None = None
    credit: CreditSource | None = None
    """What the method's credit can be had from, where the caller knows of something."""
    evaluation: Evaluation = field(default_factory=Evaluation)
    batch_size: int = BATCH
    """How many samples are forwarded at once at most."""


class Observer(ABC, Generic[Watched]):
    """Watches samples go through a network, and computes numbers from what it saw.

    States and gradients are shown while they are there and are gone afterwards: an observer keeps what it needs of them, never
    the tensors. Its numbers depend on no other observer, and whatever is watched by none is not computed.
    """

    spec: ClassVar[ObserverSpec[object]]
    watches: ClassVar[tuple[type[Event], ...]]
    every_batch: ClassVar[bool] = False
    """Whether it watches samples beyond the probe too; gradients are taken on the probe alone."""

    @abstractmethod
    def __init__(self, info: PassInfo) -> None: ...

    @abstractmethod
    def update(self, seen: Watched) -> None:
        """Take in one of the things that it watches."""

    @abstractmethod
    def compute(self) -> dict[str, Any]:
        """Its numbers as plain values, by the field of the measurement or of its auxiliary statistics that each of them is."""
