"""One run's audit: every checkpoint measured once, whichever test asks first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pytest

from ..judge.errors import AuditError
from ..judge.records import PROTOCOL_VERSION
from ..show.printable import printable
from .dataspec import absolute_spec, data_name
from .overrides import is_overridden, overrides
from .settings import Settings, base_folder, resolved

if TYPE_CHECKING:
    from ..judge.control import Control
    from ..judge.report import DiagnosticReport
    from ..judge.thresholds import DiagnosticThresholds
    from ..load.controls import ControlFile, Controls
    from ..load.data import DataSet
    from .cache import Record, ResultCache
    from .checklist import Readings
    from .expect import Expectations
    from .handle import CheckpointUnderTest
    from .merge import Merged
    from .progress import Progress
    from .reportsources import Source
    from .selection import Targets
    from .targets import Target

AUDITOR: pytest.StashKey[Auditor] = pytest.StashKey()
MEASURED_BY = ("fa_model", "fa_eval_batches", "fa_test_data", "fa_device")
"""Fixtures whose override changes what is measured."""
DATA_BY = ("fa_eval_batches", "fa_test_data")
"""Fixtures whose override changes what it is measured on."""
RECORD_VERSION = 3
"""Raised when a kept record gains something that a run relies on; 2 brought digests, 3 that of an accuracy's images."""


class Auditor:
    """The state of an audit within one process."""

    def __init__(self, config: pytest.Config, settings: Settings, targets: Targets) -> None:
        self.config, self.settings, self.targets = config, settings, targets
        self.handles: dict[str, CheckpointUnderTest] = {}
        self.made: dict[tuple[str, ...], Record | AuditError] = {}
        self.reports: dict[tuple[object, ...], DiagnosticReport] = {}
        self.logs: dict[str, Source] = {}
        self.seeds_used = bool(settings.checkpoint or settings.log)

    @cached_property
    def cache(self) -> ResultCache:
        """Where measurements are kept from run to run."""
        from .cache import ResultCache

        return ResultCache.of(self.config, disabled=self.settings.no_cache)

    def handle(self, target: Target) -> CheckpointUnderTest:
        """The checkpoint of a target, shared by all its tests."""
        from .handle import CheckpointUnderTest

        if target.path not in self.handles:
            self.handles[target.path] = CheckpointUnderTest(target, unsafe=self.settings.unsafe_load)
        return self.handles[target.path]

    @property
    def in_play(self) -> bool:
        """Whether this run audits anything that was named on the command line or in the ini file."""
        return bool(self.targets.all or self.targets.generated or self.targets.margins or self.readings)

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
        from ..load.data import load_data

        return load_data(self.data_spec)

    @cached_property
    def controls(self) -> Controls:
        """Every control that was supplied."""
        from .controls import find_controls

        return find_controls(self.config, self.settings)

    @cached_property
    def expectations(self) -> Expectations | None:
        """The recorded verdicts, if the run has some; one that records anew has none."""
        if self.settings.expect is None or self.settings.updates_expect:
            return None
        from .expect import Expectations

        return Expectations.read(resolved(self.config, "expect", self.settings, self.settings.expect))

    @cached_property
    def readings(self) -> Readings | None:
        """What was read of evaluation code; that of the ini file belongs to a run of everything, as testpaths do."""
        asked = "checklist" in self.settings.from_command_line
        if not self.settings.checklist or not (asked or self.config.args_source is not pytest.Config.ArgsSource.ARGS):
            return None
        from .checklist import Readings

        return Readings(self.config, self.settings)

    @cached_property
    def merged(self) -> Merged:
        """The rows of the audits that --fa-merge names."""
        from .merge import merge

        return merge(self.config, self.settings)

    def report(
        self,
        request: pytest.FixtureRequest,
        handle: CheckpointUnderTest,
        thresholds: DiagnosticThresholds,
        expected: str | None = None,
    ) -> tuple[DiagnosticReport, BaseException | None]:
        """The report of a checkpoint, measured now or earlier, and what kept its control from being used, if something did."""
        source = self._source(request, handle)
        handle.known = (source.method, source.seed)
        control: Control | None = None
        problem: BaseException | None = None
        try:
            control = self._control(request, handle, source)
        except (Exception, pytest.skip.Exception, pytest.fail.Exception) as error:
            problem = error  # it concerns one diagnostic; the others are judged
        if expected is None:
            expected = self._expected(handle, source)
        # The tests of a checkpoint share one report, and with it the statistics of its margin.
        key = (handle.target.path, id(source.content), thresholds, control, expected)
        if key not in self.reports:
            judged = source.judge(control, thresholds)
            self.reports[key] = replace(judged, expected=judged.fired if self.settings.updates_expect else expected)
        return self.reports[key], problem

    def _source(self, request: pytest.FixtureRequest, handle: CheckpointUnderTest) -> Source:
        """What a report of this target is made from: a measurement, a training log, or a row of an earlier audit."""
        from .reportsources import Log, Measured, Recorded

        target = handle.target
        if target.kind == "recorded":
            return Recorded(self.merged.rows[target.path], self.settings)
        if target.kind == "log":
            if target.path not in self.logs:
                self.logs[target.path] = Log.read(target, self.settings.log_batch)
            return self.logs[target.path]
        return Measured(self._measured(request, handle), target)

    def _expected(self, handle: CheckpointUnderTest, source: Source) -> str | None:
        if self.expectations is not None:
            return self.expectations.of(handle.id, source.method, source.seed)
        return source.expected

    def _control(self, request: pytest.FixtureRequest, handle: CheckpointUnderTest, source: Source) -> Control | None:
        from ..judge.control import Control
        from ..judge.records import Accuracy

        if "fa_checkpoint" in request.fixturenames or is_overridden(request, "fa_frozen_baseline"):
            given = request.getfixturevalue("fa_frozen_baseline")
        else:
            given = self.control_for(request, handle)
        if given is None:
            return source.control  # that of a recorded row; a measurement has none
        if isinstance(given, Control):
            return given
        return Control(Accuracy(given), "given by the fixture fa_frozen_baseline")

    def control_for(self, request: pytest.FixtureRequest, handle: CheckpointUnderTest) -> Control | None:
        """The control that belongs to a checkpoint; a control checkpoint is evaluated once on the same images."""
        from ..load.controls import ControlFile

        chosen = self.controls.choose(handle.method, handle.seed)
        return self._evaluated(request, chosen) if isinstance(chosen, ControlFile) else chosen

    def _evaluated(self, request: pytest.FixtureRequest, file: ControlFile) -> Control:
        from ..judge.control import Control
        from ..load.digests import file_digest
        from .controls import EVALUATED_BY, evaluate_control

        overridden = overrides(request, EVALUATED_BY)

        def evaluated() -> Record:
            with self._progress(file.path.name) as progress:
                return evaluate_control(request, file, self.settings, progress, self.data_digest(request)).to_dict()

        def make() -> Record:
            try:
                key = None if overridden else self._key("control", file_digest(file.path), file.path.name)
            except OSError as error:
                raise AuditError(f"control {file.path}: cannot be read: {error.strerror or error}") from error
            return self.cache.get_or_make(key, evaluated)

        return Control.from_dict(self._once(("control", str(file.path), *overridden), make))

    def _measured(self, request: pytest.FixtureRequest, handle: CheckpointUnderTest) -> Record:
        overridden = overrides(request, MEASURED_BY)
        what = ("measurement", handle.target.path, *overridden)
        if overridden and "fa_checkpoint" not in request.fixturenames and what not in self.made:
            # A fixture gives one value a test, and a margin over seeds would need one for each of its checkpoints.
            pytest.skip(
                "a conftest replaces what networks are measured with, so that only the tests of single checkpoints measure; "
                "run them in the same process (-n 0)"
            )

        def make() -> Record:
            # What a fixture of the user's computes has no digest, so such a measurement lasts for this run only.
            key = None if overridden else self._key("measurement", handle.digest, handle.path.name)
            return self.cache.get_or_make(key, lambda: self._measure(request, handle))

        return self._once(what, make)

    def _once(self, what: tuple[str, ...], make: Callable[[], Record]) -> Record:
        """A record made by the first test that asks; an input error is remembered too, and costs each of its tests no time."""
        if what not in self.made:
            try:
                self.made[what] = make()
            except AuditError as error:
                self.made[what] = error
        made = self.made[what]
        if isinstance(made, AuditError):
            raise AuditError(str(made)) from made
        return made

    def _measure(self, request: pytest.FixtureRequest, handle: CheckpointUnderTest) -> Record:
        from ..measure.measure import measure

        with self._progress(handle.path.name) as progress:
            model, batches = self._network_and_batches(request, handle)
            total = getattr(batches, "samples", 0)
            measurement = measure(
                model,
                batches,
                stream=self.settings.stream,
                batches=self.settings.batches,
                batch_size=self.settings.batch_size,
                threads=self.settings.threads,
                data_digest=self.data_digest(request),
                progress=lambda done: progress(done, total),
            )
        found: dict[str, str | int | bool] = {
            "feedback_saved": handle.contents.feedback is not None,
            **self._digests(request, handle),
        }
        measurement = replace(measurement, environment={**measurement.environment, **found})
        name, file = getattr(batches, "name", ""), printable(handle.path.name)
        notes = [f"{file} on {name}" if name else file, getattr(batches, "note", "")]
        record = {
            "method": handle.contents.method,
            "seed": handle.contents.seed,
            "claimed": handle.contents.test_acc,
            "notes": "; ".join(filter(None, notes)),
            "measurement": measurement.to_dict(),
        }
        handle.release()
        return record

    def _network_and_batches(self, request: pytest.FixtureRequest, handle: CheckpointUnderTest) -> tuple[Any, Any]:
        """By the fixtures of a checkpoint's test; a test over seeds has no checkpoint of its own, and builds them."""
        if "fa_checkpoint" in request.fixturenames:
            return request.getfixturevalue("fa_model"), request.getfixturevalue("fa_eval_batches")
        from .fixtures import as_data, batches_for, network_for

        network = network_for(self, handle, request.getfixturevalue("fa_device"))
        return network, batches_for(self, handle, network, as_data(request.getfixturevalue("fa_test_data")))

    def _digests(self, request: pytest.FixtureRequest, handle: CheckpointUnderTest) -> dict[str, str]:
        """What was measured and on what, by content, so that two audits can tell whether they speak of the same."""
        data = self.data_digest(request)
        return {"checkpoint_sha256": handle.digest, **({} if data is None else {"data_sha256": data})}

    def data_digest(self, request: pytest.FixtureRequest) -> str | None:
        """The digest of the test data, if it has one: what a fixture of the user's or a factory gives has none."""
        from ..load.digests import data_digest

        if overrides(request, DATA_BY):
            return None
        try:
            return data_digest(self.data_spec)
        except (AuditError, OSError):
            return None

    def _key(self, kind: str, digest: str, name: str) -> str | None:
        """The key of everything that a measurement depends on, thresholds not among it; none where something has no digest."""
        from ..load.digests import data_digest, network_digest
        from .cache import key_of

        try:
            data, network = data_digest(self.data_spec), network_digest(self.settings.model)
        except OSError as error:
            raise AuditError(f"{error.filename}: cannot be read: {error.strerror or error}") from error
        if data is None or network is None:
            return None
        parts = {
            "kind": kind,
            "record": RECORD_VERSION,
            "protocol": PROTOCOL_VERSION,
            "file": digest,
            "name": name,
            "data": data,
            "data_name": data_name(self.data_spec),
            "network": network,
            "stream": self.settings.stream,
            "batches": self.settings.batches,
            "batch_size": self.settings.batch_size,
            "device": self.settings.device,
            "threads": self.settings.threads,
        }
        return key_of(parts)

    def _progress(self, name: str) -> Progress:
        from .progress import Progress

        return Progress(self.config, name)
