"""The torch side of the bench: a checkpoint becomes a network, its data batches, and both are observed."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .judge.credit import CreditFunction
from .judge.doubts import Fingerprint
from .judge.errors import AuditError
from .judge.files import write_atomically
from .judge.late import named
from .judge.observers import ObserverSpec
from .judge.records import AT_ONCE
from .load.checkpoints import Checkpoint, checkpoint_of
from .load.closure import Code
from .load.data import DataSet, EvalBatches, as_data_set
from .load.digests import checkpoint_digest
from .load.fingerprints import fingerprint
from .load.networks import assumed_activation, build_network, choose_device, left_aside, load_into, wants_flat
from .load.setup import NOTHING_GIVEN, Given, Setup
from .load.sources import UnknownData
from .load.specs import is_factory, named_function
from .load.supplied import supplied_digest
from .measure.batches import Batch
from .measure.control import frozen_parameters, make_control
from .measure.credit import CreditSource, function_name
from .measure.observe import Observations, observe
from .registry import Registry, installed

Progress = Callable[[int, int], None]
KEPT = 2**27
"""Images that take up to so many bytes once they are normalised are kept so; of larger ones a batch at a time is."""


def load_data(spec: str, split: str = "test", *, registry: Registry | None = None, base: Path | None = None) -> DataSet:
    """The data behind a SPEC such as ``cifar10:ROOT``, decoded; another package's gives the test split."""
    registry = registry or installed()
    data = registry.data_spec(spec)
    if data.kind is None:
        made = registry.load_data(spec, base or Path.cwd())
        if made is not None:
            return as_data_set(made, spec)
        if not is_factory(spec):
            raise UnknownData(spec)
    return data.load(split)


class Workshop:
    """Builds and measures with one setup; the test data is decoded once."""

    def __init__(self, setup: Setup, registry: Registry) -> None:
        self.setup, self.registry = setup, registry
        self._checkpoints: dict[Path, tuple[str, Checkpoint]] = {}
        self._images: dict[object, Tensor] = {}
        model, credit = (spec if isinstance(spec, str) and is_factory(spec) else "" for spec in (setup.model, setup.credit))
        self.code = Code(model, registry.manager.get_plugins)
        self.credit_code = Code(credit, registry.manager.get_plugins)
        self._calls = [code for code in (self.code, self.credit_code) if code.spec or (setup.unsafe and code is self.code)]

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Note what the user's code asks for, where any is called; results are kept with it."""
        with ExitStack() as stack:
            for code in self._calls:
                stack.enter_context(code.watched())
            yield

    @cached_property
    def data(self) -> DataSet:
        """The test split."""
        if self.setup.data is None:
            raise AuditError(
                "no test data: add --fa-data=SPEC (or fa_data in the ini file), or override the fixture fa_test_data"
            )
        if not isinstance(self.setup.data, str):
            return self.setup.data
        return load_data(self.setup.data, registry=self.registry, base=self.setup.base)

    def checkpoint(self, path: Path) -> Checkpoint:
        """The file, read without running code from it unless that was allowed."""
        digest = checkpoint_digest(path)
        known, checkpoint = self._checkpoints.get(path, ("", None))
        if checkpoint is None or known != digest:  # a file may be replaced by another during a run
            with self._watched() if self.setup.unsafe else nullcontext():
                checkpoint = checkpoint_of(self.registry.load_checkpoint(path, unsafe=self.setup.unsafe), path)
            if checkpoint_digest(path) != digest:
                raise AuditError(f"{path}: this file changed while it was read; run again when it is whole")
            self._checkpoints[path] = digest, checkpoint
        return checkpoint

    def release(self, path: Path) -> None:
        """Let the tensors of a file go; whoever asks for them reads it again."""
        self._checkpoints.pop(path, None)
        if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch.cuda.empty_cache()

    def device(self, given: Given) -> str:
        """Where networks are measured."""
        return str(choose_device(self.setup.device)) if given.device is None else given.device()

    def network(self, checkpoint: Checkpoint, given: Given) -> nn.Module:
        """The network of a checkpoint, its tensors loaded."""
        if given.network is not None:
            return given.network()
        with self._watched():
            return build_network(checkpoint, self.setup.model).to(self.device(given))

    def control_network(self, checkpoint: Checkpoint, given: Given) -> nn.Module:
        """The network of a control; one that only the caller can build is copied and given the control's tensors."""
        if given.network is None:
            return self.network(checkpoint, given)
        network = copy.deepcopy(given.network())
        load_into(network, checkpoint)
        return network

    def supplied(self, given: Given, *, credit: bool) -> str:
        """What tells the values that a caller supplies for a measurement from others: their content, else the test."""
        network = given.device if given.network is None else given.network
        data = given.data if given.batches is None else given.batches
        makers = (network, data, given.credit if credit else None)
        digest = supplied_digest([None if maker is None else maker() for maker in makers])
        return given.test if digest is None or given.patched() else digest

    def fingerprint(self, network: nn.Module) -> Fingerprint:
        """What tells the tensors of a network from another's."""
        return fingerprint(network)

    def left_aside(self, checkpoint: Checkpoint, network: nn.Module) -> tuple[str, ...]:
        """The tensors of a checkpoint that its network lacks and no forward pass uses."""
        return () if self.setup.model is None and checkpoint.network else left_aside(network, checkpoint)

    def assumed_activation(self, checkpoint: Checkpoint) -> str | None:
        """The activation of a network that was rebuilt, where the checkpoint does not name it."""
        return assumed_activation(checkpoint, self.setup.model)

    def batches(self, checkpoint: Checkpoint, network: nn.Module, given: Given, usual: int = AT_ONCE) -> Iterable[Batch]:
        """The test split as a network wants it, in batches of the usual size unless the setup gives another."""
        if given.batches is not None:
            return given.batches()
        if given.data is None:
            data = self._normalised(self.data.for_checkpoint(checkpoint.config, self.setup.normalisation))
        else:
            data = as_data_set(given.data(), "the fixture fa_test_data")
            data = data.for_checkpoint(checkpoint.config, self.setup.normalisation)
        flatten = isinstance(data.x, Tensor) and wants_flat(network, data.x[0])
        return EvalBatches(data, self.setup.batch_size or usual, flatten=flatten)

    def _normalised(self, data: DataSet) -> DataSet:
        """The test split with its images normalised, which the next network mostly takes as this one does."""
        if not isinstance(data.x, Tensor) or 4 * data.x.numel() > KEPT:
            return data
        how = (data.mean, data.std)
        if how not in self._images:
            self._images = {how: data.normalised(data.x)}
        return replace(data, x=self._images[how], mean=None, std=None)

    @cached_property
    def credit_function(self) -> CreditFunction | None:
        """The function that gives the method's credit, where the setup names one."""
        credit = self.setup.credit
        with self._watched():
            return named_function(credit, "credit function") if isinstance(credit, str) else credit

    def credit(self, checkpoint: Checkpoint, given: Given) -> CreditSource:
        """What the credit of a checkpoint's method can be had from: what a conftest or the setup gives, else the file."""
        own = {"state_dict": checkpoint.state_dict, "config": checkpoint.config, "Bs": checkpoint.feedback}
        content = checkpoint.content or own
        credit = self.setup.credit
        try:
            function = self.credit_function if given.credit is None else _called(given.credit(), "the fixture fa_credit gave")
        except AuditError as error:
            return CreditSource(checkpoint=content, problem=str(error))
        if given.credit is not None:
            return CreditSource(function, "the fixture fa_credit", content)
        name = credit if isinstance(credit, str) else "" if function is None else function_name(function)
        return CreditSource(function, name, content)

    def observe(
        self,
        network: nn.Module,
        batches: Iterable[Batch],
        observers: Sequence[ObserverSpec[object]],
        progress: Progress,
        data_digest: str | None,
        credit: CreditSource | None = None,
    ) -> Observations:
        """One pass of a network over its batches, seen by these observers."""
        total = getattr(batches, "samples", 0)
        seeing = [named(observer.place) for observer in observers]
        with self._watched():  # forward may read files too, and so may a credit function
            return observe(
                network,
                batches,
                seeing,
                stream=self.setup.stream,
                batches=self.setup.batches,
                batch_size=self.setup.batch_size or AT_ONCE,
                threads=self.setup.threads,
                data_digest=data_digest,
                progress=lambda done: progress(done, total),
                credit=credit,
            )


def write_control(path: Path, out: Path, setup: Setup, seed: int | None) -> str:
    """Write the network to train for the control of a checkpoint, and say what it is; an existing file is never replaced."""
    if out.exists():
        raise AuditError(f"{out}: exists already; name another file with --out, or remove it")
    workshop = Workshop(setup, installed())
    checkpoint = workshop.checkpoint(path)
    network = workshop.network(checkpoint, NOTHING_GIVEN)
    inputs = None if setup.data is None else next(iter(workshop.batches(checkpoint, network, NOTHING_GIVEN)))[0]
    drawn_by = checkpoint.seed if seed is None else seed
    control = make_control(network, setup.stream, inputs=inputs, seed=drawn_by or 0, from_scratch=True).cpu()
    config = {**checkpoint.config, "frozen": True, **({} if drawn_by is None else {"seed": drawn_by})}
    frozen = frozen_parameters(control)
    content = io.BytesIO()
    saved = {"state_dict": control.state_dict(), "config": config, "frozen_parameters": frozen, "untrained": True}
    torch.save(saved, content)
    try:
        write_atomically(out, content.getvalue())
    except OSError as error:
        raise AuditError(f"{out}: cannot be written: {error.strerror or error}") from error
    total = sum(parameter.numel() for parameter in control.parameters())
    held = sum(parameter.numel() for parameter in control.parameters() if not parameter.requires_grad)
    return (
        f"{out}: all weights drawn anew by seed {drawn_by or 0}; {held:,} of {total:,} parameters, those of the blocks, must "
        "not be trained: their names are under frozen_parameters"
    )


def _called(function: Any, what: str) -> Any:
    if function is not None and not callable(function):
        raise AuditError(f"{what} {type(function).__name__}; expected a function of (model, x, y, checkpoint), or None")
    return function
