"""How checkpoints are measured, and what a caller may put in the place of what would be loaded; free of torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..judge.credit import CreditFunction
from ..judge.inputs import Normalisation
from ..judge.records import BATCHES

if TYPE_CHECKING:
    from torch import Tensor, nn

    from .data import DataSet


@dataclass(frozen=True)
class Setup:
    """What every checkpoint of an audit is measured with; thresholds are no part of it."""

    data: str | DataSet | None = None
    """A SPEC such as ``cifar10:ROOT``, or the data itself."""
    model: str | nn.Module | None = None
    """``package.module:factory``, ``torchvision:NAME``, a network to fill; else the reference ResidualMLP."""
    stream: str | None = None
    batches: int = BATCHES
    """How many batches of 128 are probed."""
    batch_size: int | None = None
    """How many samples are forwarded at once at most, by default 512, of the probe 128; changes no number."""
    device: str = "auto"
    threads: int | None = 1
    """CPU threads; another number may change last digits, so it does not follow the machine."""
    unsafe: bool = False
    """Whether a checkpoint's pickle may run code."""
    normalize: str | None = None
    """How inputs are normalised: ``data``, ``none`` or ``MEAN/STD``; else as each checkpoint says."""
    base: Path | None = None
    """Where relative paths start in a SPEC of data that another package reads; else at the working folder."""
    credit: str | CreditFunction | None = None
    """The method's credit at the block outputs: ``package.module:function`` or the function, of (model, x, y, checkpoint)."""

    def __post_init__(self) -> None:
        if self.normalize is not None:
            Normalisation.parse(self.normalize)

    @property
    def normalisation(self) -> Normalisation | None:
        """What ``normalize`` says."""
        return None if self.normalize is None else Normalisation.parse(self.normalize)


@dataclass(frozen=True)
class Given:
    """What a caller supplies instead of what the setup would load, each made when it is needed."""

    network: Callable[[], nn.Module] | None = None
    batches: Callable[[], Iterable[tuple[Tensor | dict[str, Tensor], Tensor]]] | None = None
    data: Callable[[], Any] | None = None
    device: Callable[[], str] | None = None
    credit: Callable[[], CreditFunction | None] | None = None
    identity: tuple[str, ...] = ()
    """Who supplies these, within one process; empty where nothing is supplied. Two values of one fixture have one."""
    test: str = ""
    """The test that they are for, where nothing but that tells its values from another's."""
    patched: Callable[[], bool] = lambda: False
    """Whether the test may change what their code does, as ``monkeypatch`` can: then no value tells what is measured.

    Asked when they were made, for only then it is known which fixtures took part.
    """
    at_hand: bool = True
    """Whether these can be made now; a test over several checkpoints has a fixture's value for none of them."""

    def without(self, part: str) -> Given:
        """These but for one, which is then loaded as the setup says."""
        changes: dict[str, Any] = {part: None}
        return replace(self, **changes)

    @property
    def own_data(self) -> bool:
        """Whether what is measured on is supplied."""
        return self.batches is not None or self.data is not None


NOTHING_GIVEN = Given()
