"""One run's audit: every checkpoint measured once, whichever test asks first."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..protocol.control import Control
from ..protocol.errors import AuditError
from ..protocol.measurement import PROTOCOL_VERSION, Accuracy, Measurement
from ..protocol.report import DiagnosticReport
from ..protocol.thresholds import DiagnosticThresholds
from ..sources.controls import ControlFile, Controls, parse_controls
from ..sources.digests import data_digest, file_digest, network_digest
from .cache import Record, ResultCache, key_of
from .collection import Targets
from .expect import Expectations
from .handle import CheckpointUnderTest
from .progress import Progress
from .settings import Settings, base_folder
from .targets import Target, expand

if TYPE_CHECKING:
    from ..sources.audit import Bench
    from ..sources.data import DataSet

AUDITOR: pytest.StashKey[Auditor] = pytest.StashKey()
MEASURED_BY = ("fa_model", "fa_eval_batches", "fa_test_data", "fa_device")
"""Fixtures whose override changes what is measured."""


class Auditor:
    """The state of an audit within one process."""

    def __init__(self, config: pytest.Config, settings: Settings, targets: Targets) -> None:
        self.config, self.settings, self.targets = config, settings, targets
        self.cache = ResultCache.of(config, disabled=settings.no_cache)
        self.handles: dict[str, CheckpointUnderTest] = {}
        self.measured: dict[tuple[str, ...], Record] = {}
        self.control_problems: dict[str, str] = {}

    def handle(self, target: Target) -> CheckpointUnderTest:
        """The checkpoint of a target, shared by all its tests."""
        if target.path not in self.handles:
            self.handles[target.path] = CheckpointUnderTest(target, unsafe=self.settings.unsafe_load)
        return self.handles[target.path]

    @cached_property
    def data_spec(self) -> str:
        """The data SPEC with its path made absolute."""
        spec: str | None = self.settings.data
        if spec is None:
            raise AuditError(
                "no test data: add --fa-data=SPEC (or fa_data in the ini file), or override the fixture fa_test_data"
            )
        return absolute_spec(spec, base_folder(self.config, "data", self.settings))

    @cached_property
    def data(self) -> DataSet:
        """The test split, decoded once per process."""
        from ..sources.data import load_data

        return load_data(self.data_spec)

    @cached_property
    def controls(self) -> Controls:
        """Every control that was supplied."""
        return find_controls(self.config, self.settings)

    @cached_property
    def expectations(self) -> Expectations | None:
        """The recorded verdicts, if the run has some."""
        if self.settings.expect is None:
            return None
        return Expectations.read(base_folder(self.config, "expect", self.settings) / self.settings.expect)

    def report(
        self, request: pytest.FixtureRequest, handle: CheckpointUnderTest, thresholds: DiagnosticThresholds
    ) -> DiagnosticReport:
        """The report of a checkpoint: measured now, earlier in this run, or in an earlier run."""
        record = self._measured(request, handle)
        handle.known = (record["method"], record["seed"])
        control: Any = None
        try:
            control = request.getfixturevalue("fa_frozen_baseline")
            if control is not None and not isinstance(control, Control):
                control = Control(Accuracy(control), "given by the fixture fa_frozen_baseline")
            self.control_problems.pop(handle.id, None)
        except AuditError as error:
            self.control_problems[handle.id] = str(error)
        return DiagnosticReport.from_measurement(
            Measurement.from_dict(record["measurement"]),
            method_name=record["method"],
            seed=record["seed"],
            claimed_acc=record["claimed"],
            control=control,
            thresholds=thresholds,
            notes=record["notes"],
        )

    def control_for(self, request: pytest.FixtureRequest, handle: CheckpointUnderTest) -> Control | None:
        """The control that belongs to a checkpoint; a control checkpoint is evaluated once on the same images."""
        chosen = self.controls.choose(handle.method, handle.seed)
        if not isinstance(chosen, ControlFile):
            return chosen
        by = overrides(request)
        if not by:
            return self._evaluated(chosen)
        memo = ("control", str(chosen.path), *by)
        if memo not in self.measured:
            self.measured[memo] = self._evaluated_like(request, chosen).to_dict()
        return Control.from_dict(self.measured[memo])

    def _evaluated_like(self, request: pytest.FixtureRequest, file: ControlFile) -> Control:
        """A control whose network a fixture of the user's builds: a copy of that network with the control's tensors."""
        import copy

        from ..protocol.measure import evaluate
        from ..sources.audit import control_of
        from ..sources.checkpoints import load_checkpoint
        from ..sources.networks import load_into

        checkpoint = load_checkpoint(file.path, unsafe=self.settings.unsafe_load)
        network = copy.deepcopy(request.getfixturevalue("fa_model"))
        load_into(network, checkpoint)
        accuracy = evaluate(network, request.getfixturevalue("fa_eval_batches"), batch_size=self.settings.batch_size)
        return control_of(file, checkpoint.config, accuracy)

    def _evaluated(self, file: ControlFile) -> Control:
        def make() -> Record:
            with self._progress(file.path.name) as progress:
                return self._bench(progress).evaluate(file).to_dict()

        try:
            digest = file_digest(file.path)
        except OSError as error:
            raise AuditError(f"control {file.path}: cannot be read: {error.strerror or error}") from error
        return Control.from_dict(self.cache.get_or_make(self._key("control", digest, file.path.name), make))

    def _measured(self, request: pytest.FixtureRequest, handle: CheckpointUnderTest) -> Record:
        by = overrides(request)
        memo = (handle.target.path, *by)
        if memo not in self.measured:
            # What a fixture of the user's computes has no digest, so such a measurement lasts for this run only.
            key = None if by else self._key("measurement", handle.digest, handle.path.name)
            self.measured[memo] = self.cache.get_or_make(key, lambda: self._measure(request, handle))
        return self.measured[memo]

    def _measure(self, request: pytest.FixtureRequest, handle: CheckpointUnderTest) -> Record:
        from ..protocol.measure import measure

        with self._progress(handle.path.name) as progress:
            model = request.getfixturevalue("fa_model")
            batches = request.getfixturevalue("fa_eval_batches")
            total = getattr(batches, "samples", 0)
            measurement = measure(
                model,
                batches,
                stream=self.settings.stream,
                batches=self.settings.batches,
                batch_size=self.settings.batch_size,
                progress=lambda done: progress(done, total),
            )
        name = getattr(batches, "name", "")
        notes = [f"{handle.path.name} on {name}" if name else handle.path.name, getattr(batches, "note", "")]
        return {
            "method": handle.contents.method,
            "seed": handle.contents.seed,
            "claimed": handle.contents.test_acc,
            "notes": "; ".join(filter(None, notes)),
            "measurement": measurement.to_dict(),
        }

    def _bench(self, progress: Callable[[int, int], None]) -> Bench:
        from ..sources.audit import Bench

        settings = self.settings
        return Bench(
            self.data,
            settings.model,
            settings.stream,
            settings.batches,
            settings.batch_size,
            settings.device,
            settings.unsafe_load,
            progress,
        )

    def _key(self, kind: str, digest: str, name: str) -> str | None:
        """The key of everything that a measurement depends on, thresholds not among it; none where something has no digest."""
        data, network = data_digest(self.data_spec), network_digest(self.settings.model)
        if data is None or network is None:
            return None
        parts = {
            "kind": kind,
            "protocol": PROTOCOL_VERSION,
            "file": digest,
            "name": name,
            "data": data,
            "data_spec": self.data_spec.partition(":")[0],
            "network": network,
            "stream": self.settings.stream,
            "batches": self.settings.batches,
            "batch_size": self.settings.batch_size,
            "device": self.settings.device,
        }
        return key_of(parts)

    def _progress(self, name: str) -> Progress:
        return Progress(self.config.pluginmanager.get_plugin("terminalreporter"), name)


def find_controls(config: pytest.Config, settings: Settings) -> Controls:
    """The controls of --fa-frozen, with their globs expanded."""
    base = base_folder(config, "frozen", settings)

    def files(value: str) -> list[Path]:
        return [Path(target.path) for target in expand([value], base, config.rootpath, what="--fa-frozen")]

    values = [str(base / value) if value.endswith(".json") else value for value in settings.frozen]
    try:
        return parse_controls(values, files)
    except AuditError as error:
        raise pytest.UsageError(f"--fa-frozen: {error}") from None


def overrides(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """What tells apart the measurements by fixtures that somebody overrides for this test; empty where nobody does."""
    return tuple(str(id(_definition(request, name))) for name in MEASURED_BY if is_overridden(request, name))


def is_overridden(request: pytest.FixtureRequest, name: str) -> bool:
    """Whether somebody's conftest, class or module replaces a fixture of the plugin for this test."""
    definition = _definition(request, name)
    return definition is not None and not definition.func.__module__.startswith("pytest_fadiag.")


def _definition(request: pytest.FixtureRequest, name: str) -> Any:
    definitions = request.session._fixturemanager.getfixturedefs(name, request.node)
    return definitions[-1] if definitions else None


def absolute_spec(spec: str, base: Path) -> str:
    """A data SPEC whose path does not depend on the working folder any more."""
    kind, colon, rest = spec.partition(":")
    if colon and kind in ("fashion-mnist", "cifar10", "folder"):
        return f"{kind}:{base / Path(rest).expanduser()}" if rest else spec
    path = Path(spec).expanduser()
    return str(base / path) if path.suffix in (".npz", ".pt", ".pth", ".safetensors") else spec
