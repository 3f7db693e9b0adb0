"""What the numbers of a file depend on: the keys under which they are kept, and why some are not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .cache import key_of
from .judge.errors import AuditError
from .judge.observers import CREDIT, ObserverSpec
from .load.closure import Code, conftests_digest
from .load.digests import code_digest, installed_version
from .load.identity import identify
from .load.installed import look_again
from .load.setup import Given, Setup
from .load.sources import DataSpec
from .load.specs import is_factory, network_identity
from .registry import Registry

if TYPE_CHECKING:
    from torch import nn

    from .load.checkpoints import Checkpoint

RECORD_VERSION = 8
"""Raised when a kept record gains something that a run relies on."""


class Keys:
    """The keys of one setup; ``own_digest`` gives the digest that data of a factory or a caller brings with it."""

    def __init__(self, setup: Setup, registry: Registry, own_digest: Callable[[], str | None]) -> None:
        self.setup = setup
        self.registry = registry
        self._ask_data = own_digest
        look_again()
        self._probe = key_of({"stream": setup.stream, "batches": setup.batches})[:8]

    def record(self, path: Path, file: str, observers: Sequence[ObserverSpec[object]]) -> str | None:
        """The key of what every number of a file depends on, thresholds not among it; none where something has no digest."""
        if CREDIT in observers and self.setup.credit is not None and self._credit is None:
            return None
        with _readable():
            data, network, readers = self._data_stamp, self._network, self.registry.readers_digest
        if data is None or network is None or readers is None:
            return None
        return key_of(
            {
                "record": RECORD_VERSION,
                "file": file,
                "name": path.name,
                "identity": identify(path),
                "data": data,
                "data_name": self._data.name,
                "network": network,
                "conftests": self._conftests,
                "readers": readers,
                "device": self.setup.device,
                "threads": self.setup.threads,
                "normalize": None if self.setup.normalisation is None else self.setup.normalisation.text,
                "torch": installed_version("torch"),
            }
        )

    def part(self, observer: ObserverSpec[object]) -> str:
        """The name of an observer's result within a record: by its version, its share of the setup, and foreign code."""
        code = "" if observer.is_own else f"-{(code_digest(observer.place.partition(':')[0]) or '')[:8]}"
        credit = f"-{key_of({'credit': self._credit})[:8]}" if observer == CREDIT else ""
        return f"{observer.name}-{observer.version}{f'-{self._probe}' if observer.probe else ''}{code}{credit}"

    def unkept(self, given: Given) -> str:
        """Why a result is not kept for the next run, where it is not."""
        if given.identity:
            return "a conftest replaces what networks are measured with"
        if self._data_stamp is not None and self._network is not None:
            return ""
        if self._data.kind is None:
            factory = f"the data come from the factory {self._data.text}, which has no digest"
            return factory if self._data.text else "the data have no digest"
        return "the network or the data have no digest"

    def code_of(self, code: Code, checkpoint: Checkpoint, network: nn.Module, given: Given) -> dict[str, Any]:
        """The code that a factory's network, or a pickled one, came from, with which a result is kept."""
        model = self.setup.model
        pickled = model is None and checkpoint.network is not None
        factory = isinstance(model, str) and is_factory(model) and not model.startswith("torchvision:")
        if given.network is not None or not (pickled or factory):
            return {}
        return {"sources": code.sources({type(module).__module__ for module in network.modules()})}

    def credit_code(self, code: Code) -> dict[str, Any]:
        """The code that a credit function came from, with which its result is kept."""
        return {"credit_sources": code.sources()} if isinstance(self.setup.credit, str) else {}

    @cached_property
    def data_digest(self) -> str | None:
        """The digest of the images and labels, if they have one; asked for when they were decoded, which is once."""
        with _readable():
            digest = self._identified(self._data.digest())
            if self._data.kind is not None and self._data.stamp() != self._data_stamp:
                # The results would be kept under what identified the data before.
                raise AuditError(f"{self._data.text}: these data changed while they were read; run again when they are whole")
        return digest

    @cached_property
    def _data(self) -> DataSpec:
        if not isinstance(self.setup.data, str):
            return DataSpec("")
        return self.registry.data_spec(self.setup.data)

    @cached_property
    def _data_stamp(self) -> str | None:
        """What identifies the data, which is decoded once."""
        return self._identified(self._data.stamp())

    def _identified(self, told: str | None) -> str | None:
        """What identifies the data: what its SPEC tells, else the digest that the data of a factory or a caller bring."""
        return self._own_digest if told is None and self._data.kind is None else told

    @cached_property
    def _own_digest(self) -> str | None:
        """The digest that the data itself brings; data that cannot be made has none, and whoever measures says why."""
        try:
            return None if self.setup.data is None else self._ask_data()
        except AuditError:
            return None

    @property
    def _conftests(self) -> str:
        """What identifies the conftests that are loaded, where the user's code is called: they may change what it does."""
        called = [spec for spec in (self.setup.model, self.setup.credit) if isinstance(spec, str) and is_factory(spec)]
        return conftests_digest(self.registry.manager.get_plugins()) if called or self.setup.unsafe else ""

    @property
    def _network(self) -> str | None:
        model = self.setup.model
        return network_identity(model) if model is None or isinstance(model, str) else None

    @property
    def _credit(self) -> str | None:
        """What tells one credit function from another; nothing where none is given, or one that has no name."""
        credit = self.setup.credit
        return network_identity(credit) if isinstance(credit, str) else None


@contextmanager
def _readable() -> Iterator[None]:
    """Say of a file that cannot be read which one it is."""
    try:
        yield
    except OSError as error:
        raise AuditError(f"{error.filename}: cannot be read: {error.strerror or error}") from error
