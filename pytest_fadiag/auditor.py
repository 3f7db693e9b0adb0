"""From a path to a report: load, measure, keep; the one way, for everyone."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from .cache import Cache, key_of
from .files import write_atomically
from .hooks import Registry, installed
from .judge.control import Control, ControlKind, Fingerprint
from .judge.diagnostics import select
from .judge.diagnostics.base import Diagnostic
from .judge.errors import AuditError
from .judge.records import Inputs, Measurement, Score, plain
from .judge.remarks import activation_assumed, tensors_aside
from .judge.report import Report
from .judge.thresholds import DiagnosticThresholds
from .judge.twin import Twin
from .load.controls import ControlFile, Controls
from .load.logs import check_judged, parse_columns, read_log
from .load.names import code_digest, file_digest, identify, plain_config
from .load.setup import Setup, loss_of
from .load.sources import data_digest
from .load.specs import import_object, is_factory
from .load.traces import is_trace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

    from .load.checkpoint import Checkpoint
    from .load.data import DataSet
    from .measure.types import Progress

CONTROL_METRICS = ("accuracy", "control-readout")
"""What is measured of a control."""
DEPTH = "depth-utility"
R = TypeVar("R", bound=Report)


class Overrides(NamedTuple):
    """What fixtures give instead of what the setup would load; its numbers are never stored."""

    network: nn.Module | None = None
    batches: Iterable[Any] | None = None
    data: Any = None
    device: str | None = None
    credit: Callable[..., Any] | None = None

    def __bool__(self) -> bool:
        return any(value is not None for value in self)


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What no threshold and no control changes about a checkpoint: what the cache keeps."""

    report: Report
    """What it says about itself and what was measured; no diagnostic is asked for yet."""
    metrics: tuple[str, ...]
    """The metrics that were computed."""
    fingerprint: Fingerprint
    untrained: bool = False
    control: Score | None = None
    """What a trace's own control scores on the same samples."""


def needed(diagnostics: Iterable[Diagnostic]) -> tuple[str, ...]:
    """The metrics that some diagnostics judge by; the accuracy is always among them.

    With (d) the readout of the inputs is, below which a control is questioned.
    """
    asked = list(diagnostics)
    floor = ("floor",) if any(one.key == "d" for one in asked) else ()
    needs = (need for one in asked for need in one.needs)
    return tuple(dict.fromkeys(("accuracy", *needs, *floor)))


class Auditor:
    """Measures checkpoints with one setup, each number once in all processes with one cache.

    >>> auditor = Auditor(Setup(data="fashion-mnist:data"))
    >>> auditor.report(Path("runs/dfa_s42.pt"), diagnostics=select("abcd"), control=0.76).verdict
    """

    def __init__(
        self,
        setup: Setup,
        *,
        cache: Cache | None = None,
        registry: Registry | None = None,
        progress: Callable[[str], Progress | None] = lambda name: None,
    ) -> None:
        self.setup, self.registry, self.progress = setup, registry or installed(), progress
        # What depends on an object of the caller has no key.
        self.cache = Cache() if cache is None or setup.identity is None else cache
        self.kept: set[Path] = set()
        """The files whose numbers came from the cache."""
        self._records: dict[tuple[Path, str], Record | AuditError] = {}

    def report(
        self,
        path: Path,
        *,
        diagnostics: Sequence[Diagnostic],
        control: Controls | Control | float | None = None,
        thresholds: DiagnosticThresholds | None = None,
        overrides: Overrides | None = None,
        seed: int | None = None,
        protocol: str | None = None,
        literal: bool = False,
        log: bool = False,
        twins: Sequence[Path] | None = (),
    ) -> Report:
        """The report of a checkpoint or log; (e) is added where the control is questioned.

        Not where the diagnostics were listed, and are taken literally. ``twins`` are BP networks
        to compare with; ``None`` compares with none.
        """
        metrics, keys = needed(diagnostics), {one.key for one in diagnostics}
        record = self._log(path) if log else self.record(path, metrics, overrides)
        known, chosen, problem = record.report, None, ""
        seed = seed if known.seed is None else known.seed
        try:
            if record.control is not None:
                chosen = Control(record.control, "control_outputs of the trace")
            elif keys - {*"abcefg"}:  # (d), or another package's
                tensors = None if known.trace or log else record.fingerprint
                chosen = self.control(control, known.method_name, seed, tensors, overrides)
        except AuditError as error:
            problem = str(error)
        # What an earlier audit asked for, or what is read of a control, is not shown.
        unasked = {"depth", "credit", "floor", "precision"}.difference(metrics)
        report = known.replace(
            **dict.fromkeys(unasked),
            seed=seed,
            checkpoint=path.name,
            control=chosen,
            control_problem=problem,
            thresholds=thresholds or DiagnosticThresholds(),
            diagnostics=tuple(one.name for one in diagnostics),
            protocol=protocol,
        )
        if log:
            check_judged(report, path)
            return report
        if not literal:
            report = with_depth(report, lambda: self.record(path, ["depth"], overrides).report)
        if protocol is not None or twins is None or overrides:
            return report  # a network of a fixture has no twin on disk
        if known.method_name == "bp" and not twins and {"d", "e"} & {*report.fired}:
            twins, keys = [path], {one.key for one in report.asked}  # its own
        if twins and {"d", "e"} & keys:
            # (e) is asked of them where it is asked here, or where there is no control.
            asked = select("abcdg" if control is not None and "e" not in keys else "abcdeg")
            theirs = []
            for other in twins:
                with suppress(AuditError):  # its own tests say what is wrong with it
                    held = self.record(other, needed(asked)).fingerprint
                    if held.shapes == record.fingerprint.shapes:
                        theirs.append(
                            self.report(
                                other,
                                diagnostics=asked,
                                control=control,
                                thresholds=thresholds,
                                literal=literal,
                                twins=None,
                            )
                        )
            report = report.replace(twin=Twin.of(theirs) if theirs else None)
        return report

    def control(
        self,
        control: Controls | Control | float | None,
        method: str,
        seed: int | None,
        network: Fingerprint | None = None,
        overrides: Overrides | None = None,
    ) -> Control | None:
        """The control that fits a method and seed; a file is evaluated and questioned."""
        chosen = control.choose_for(method, seed) if isinstance(control, Controls) else control
        if chosen is None or isinstance(chosen, Control):
            return chosen
        if not isinstance(chosen, ControlFile):
            return Control(Score(chosen))
        file = chosen.path
        assert file is not None  # else its accuracy is known, and it is a Control
        if overrides and overrides.network is not None:  # a copy, with the control's tensors
            from .load.network import load_into

            filled = copy.deepcopy(overrides.network)
            load_into(filled, self.checkpoint(file))
            overrides = overrides._replace(network=filled)
        what = f"control {file.name}"
        with _named(what):
            record = self.record(file, CONTROL_METRICS, overrides)
        score, config = finite_score(record.report, what), record.report.config
        made = chosen.measured(score, config, untrained=record.untrained)
        return questioned(made, record.report, record.fingerprint, network)

    def record(
        self, path: Path, metrics: Sequence[str], overrides: Overrides | None = None
    ) -> Record:
        """The numbers of a file, from memory or the cache; what is missing is measured."""
        digest = file_digest(path)
        if overrides:
            return self._measure(path, digest, metrics, overrides)
        known = self._records.get((path, digest))
        if isinstance(known, AuditError):
            raise AuditError(str(known)) from known
        if known is not None and not _lacking(known, metrics):
            return known
        key = "" if self.cache.folder is None else self._key(path, digest)
        with self.cache.locked(key):
            held = self._kept(key) or known  # another worker may know more
            lacking = _lacking(held, metrics)
            if lacking:
                try:
                    held = _joined(held, self._measure(path, digest, lacking, Overrides()))
                except AuditError as error:
                    if held is None:
                        self._records[path, digest] = error
                    raise
                self.cache.put(key, plain(held))
            elif known is None:
                self.kept.add(path)
        assert held is not None
        self._records[path, digest] = held
        return held

    def _log(self, path: Path) -> Record:
        columns = self.setup.log_columns and parse_columns(self.setup.log_columns)
        held = read_log(path, batch=self.setup.log_batch, columns=columns or None)
        return Record(report=held.base, metrics=(), fingerprint=Fingerprint())

    def _key(self, path: Path, digest: str) -> str:
        """What a kept result depends on; the name tells method and seed."""
        versions = {"torch": version("torch"), "code": self._code_digest}
        file = {"file": digest, "name": path.parts[-2:], "data": self._data_digest}
        return key_of({**file, **versions, **(self.setup.identity or {})})

    @cached_property
    def _data_digest(self) -> str | None:
        if not isinstance(self.setup.data, str):
            return None
        try:
            known = data_digest(self.setup.data, self.setup.base)
        except AuditError:  # unless another package knows it, loading it says what is wrong
            known = None
        return known or self.data.digest

    @cached_property
    def _code_digest(self) -> str:
        """This package, and the user's code below the root or named by options."""
        named = map(str, (*self.setup.factories.values(), self.setup.data))
        return code_digest(self.setup.base, [__name__, *filter(is_factory, named)])

    def _kept(self, key: str) -> Record | None:
        try:
            return msgspec.convert(self.cache.get(key), Record, strict=False)
        except msgspec.ValidationError:
            return None

    def _measure(self, path: Path, digest: str, metrics: Sequence[str], given: Overrides) -> Record:
        """Load a file and measure its network, in one pass."""
        from .measure.copies import threads

        with _named(str(path)), threads(self.setup.threads):
            if is_trace(path):
                made = self._measure_trace(path, metrics)
            else:
                made = self._measure_network(path, metrics, given)
            if file_digest(path) != digest:
                raise AuditError(
                    "the file changed while it was measured; run again when it is whole"
                )
        environment = {
            **made.report.environment,
            "checkpoint_sha256": digest,
            "weights_digest": made.fingerprint.digest,
        }
        return msgspec.structs.replace(made, report=made.report.replace(environment=environment))

    def _measure_network(self, path: Path, metrics: Sequence[str], given: Overrides) -> Record:
        """What a checkpoint says, and the numbers of its network on the test data."""
        from .load.fingerprint import fingerprint
        from .load.network import assumed_activation, left_aside, other_shape
        from .measure.inputs import NetworkError
        from .measure.run import NetworkSource, measure
        from .measure.task import Task

        checkpoint = self.checkpoint(path)
        network = self.network(checkpoint) if given.network is None else given.network
        network = network.to(self.device if given.device is None else given.device)
        batches = given.batches
        if batches is None:
            batches = self.batches(checkpoint, network, given.data)
        own_data = given.batches is not None or given.data is not None
        digest = None if own_data else self._data_digest
        n_train = checkpoint.config.get("n_train")
        loss, said = loss_of(self.setup.loss, checkpoint.config.get("loss"))
        function = is_factory(str(loss))
        loss = self.function("loss") if function else loss
        source = NetworkSource(
            network,
            batches,
            task=Task(kind=self.setup.task, loss=loss),
            forward=self.function("forward"),
            stream=self.setup.stream,
            credit=self._credit(checkpoint, given) if "credit" in metrics else None,
            batch_size=self.setup.batch_size,
            data_digest=digest,
            n_train=n_train if isinstance(n_train, int) and n_train > 0 else None,
        )
        told, extra = self.progress(path.name), self.registry.metrics()
        try:
            numbers = measure(source, metrics, progress=told, extra=extra)
        except NetworkError as error:
            raise AuditError(f"{other_shape(network, source.data)}{error}") from error
        caveats = [said] if said else []
        if given.network is None:
            if aside := left_aside(network, checkpoint):
                caveats.append(tensors_aside(aside))
            if activation := assumed_activation(checkpoint, self.setup.model):
                caveats.append(activation_assumed(activation))
        name, note = getattr(batches, "name", ""), getattr(batches, "note", "")
        report = Report.of(
            numbers,
            method_name=checkpoint.method,
            seed=checkpoint.seed,
            claimed_acc=checkpoint.test_acc,
            notes="; ".join(filter(None, [f"{path.name} on {name}" if name else path.name, note])),
            caveats=tuple(caveats),
            config=plain_config(checkpoint.config),
            loss=self.setup.loss if function else numbers.loss,
            inputs=getattr(batches, "inputs", None) or Inputs(data=name),
            environment={
                **numbers.environment,
                **({} if digest is None else {"data_sha256": digest}),
            },
            diagnostics=(),
        )
        return Record(
            report=report,
            metrics=tuple(metrics),
            fingerprint=fingerprint(network, source.blocks),
            untrained=checkpoint.content.get("untrained") is True,
        )

    def _measure_trace(self, path: Path, metrics: Sequence[str]) -> Record:
        """Read a trace, check it, and measure what it holds."""
        from .load.traces import read_trace
        from .measure.traces import measure_trace

        arrays = read_trace(path)
        told, extra = self.progress(path.name), self.registry.metrics()
        numbers, control = measure_trace(arrays, metrics, told, extra)
        shapes = {name: own.shape[1:] for name, own in arrays.items() if name.startswith("h_")}
        outputs = hashlib.sha256(arrays["outputs"].tobytes()).hexdigest()
        method, seed = identify(path, arrays)
        return Record(
            report=Report.of(
                numbers, method_name=method, seed=seed, notes=path.name, diagnostics=()
            ),
            metrics=tuple(metrics),
            fingerprint=Fingerprint(shapes, {"outputs": outputs}),
            control=control,
        )

    @cached_property
    def data(self) -> DataSet:
        """The test split, decoded once."""
        from .load.data import DataSet, as_data_set, load_data

        spec = self.setup.data
        if spec is None:
            raise AuditError(
                "no test data: add --fa-data=SPEC, or override the fixture fa_test_data"
            )
        if isinstance(spec, DataSet):
            return spec
        base = self.setup.base
        made = self.registry.hook.pytest_fadiag_load_data(spec=spec, base=base)
        return load_data(spec, base=base) if made is None else as_data_set(made, spec)

    @cached_property
    def device(self) -> str:
        """Where networks are measured."""
        from .load.network import choose_device

        return choose_device(self.setup.device)

    def function(self, name: str) -> Any:
        """The function that the setup names as credit, loss or forward, where there is one."""
        spec: Any = getattr(self.setup, name)
        return import_object(spec, f"{name} function") if isinstance(spec, str) else spec

    def checkpoint(self, path: Path) -> Checkpoint:
        """The file, read without running code from it unless that was allowed."""
        from .load.checkpoint import checkpoint_of, load_checkpoint

        unsafe = self.setup.unsafe
        content = self.registry.hook.pytest_fadiag_load_checkpoint(path=path, unsafe=unsafe)
        if content is None:
            return load_checkpoint(path, unsafe=unsafe)
        return checkpoint_of(content, path)

    def network(self, checkpoint: Checkpoint) -> nn.Module:
        """The network of a checkpoint, its tensors loaded."""
        from .load.network import build_network

        return build_network(checkpoint, self.setup.model)

    def batches(self, checkpoint: Checkpoint, network: nn.Module, data: Any = None) -> DataSet:
        """The test split, or what the fixture fa_test_data gives, as a network takes it."""
        from .load.data import as_data_set
        from .load.network import wants_flat

        split = self.data if data is None else as_data_set(data, "the fixture fa_test_data")
        split = split.for_checkpoint(checkpoint.config, self.setup.normalize)
        flat = not isinstance(split.x, Mapping) and wants_flat(network, split.x[0])
        return dataclasses.replace(split, size=self.setup.batch_size, flat=flat)

    def _credit(self, checkpoint: Checkpoint, given: Overrides) -> Any:
        from .measure.credit import CreditSource

        content, spec = checkpoint.content, self.setup.credit
        if given.credit is not None:
            return CreditSource(given.credit, "the fixture fa_credit", content)
        name = spec if isinstance(spec, str) else ""
        factory = isinstance(self.setup.model, str) and given.network is None
        rebuild = (lambda: self.network(checkpoint)) if factory else None
        return CreditSource(self.function("credit"), name, content, rebuild=rebuild)

    def write_control(self, path: Path, out: Path, seed: int | None = None) -> str:
        """Write the network to train as the control of a checkpoint; replaces no file."""
        from .measure.control import make_control, saved_control
        from .measure.inputs import FORWARD, labelled

        if out.exists():
            raise AuditError(f"{out}: exists already; name another file with --out, or remove it")
        checkpoint = self.checkpoint(path)
        network = self.network(checkpoint)
        inputs, forward = None, self.function("forward")
        if self.setup.data is not None:
            inputs, y = next(iter(self.batches(checkpoint, network)))
            if forward is not None:
                vars(network)[FORWARD], inputs = forward, labelled(inputs, y)
        seed = checkpoint.seed if seed is None else seed
        control = make_control(
            network, self.setup.stream, inputs=inputs, seed=seed or 0, from_scratch=True
        ).cpu()
        config = {**checkpoint.config, "frozen": True, **({} if seed is None else {"seed": seed})}
        write_atomically(out, saved_control(control, config))
        return (
            f"{out}: all weights re-initialised with seed {seed or 0}. Do not train the parameters "
            "of its blocks: frozen_parameters names them"
        )


def with_depth(report: R, measured: Callable[[], Measurement]) -> R:
    """The report with (e), where no pass may rest on the supplied control alone."""
    if not report.questions_control or report.stream_problem or DEPTH in report.diagnostics:
        return report
    return report.replace(depth=measured().depth, diagnostics=(*report.diagnostics, DEPTH))


def finite_score(measured: Measurement, what: str) -> Score:
    """The accuracy of a control, which one whose outputs are not finite does not have."""
    if measured.score is None or measured.nonfinite_outputs:
        raise AuditError(f"{what}: its outputs are not finite, so it has no accuracy")
    return measured.score


def questioned(
    made: Control, measured: Measurement, own: Fingerprint, network: Fingerprint | None
) -> Control:
    """A control with what is read of it, and what its tensors tell against it for a network."""
    depth, doubts = measured.depth, made.doubts
    if network is not None:
        doubts += network.doubts(own, shallow=made.kind is ControlKind.SHALLOW)
    read = {} if depth is None else {"probes": depth.probes, "balanced": depth.network}
    return msgspec.structs.replace(made, inputs=measured.inputs, doubts=doubts, **read)


def _lacking(held: Record | None, metrics: Sequence[str]) -> list[str]:
    known = set() if held is None else set(held.metrics)
    known |= {"control-readout"} if "depth" in known else set()  # a part of (e)
    return [name for name in metrics if name not in known]


def _joined(held: Record | None, new: Record) -> Record:
    """One record of both: what was not measured before is taken from the new one."""
    if held is None:
        return new
    unset = msgspec.structs.asdict(Measurement())
    fields = {name: getattr(new.report, name) for name in unset}
    fields = {name: value for name, value in fields.items() if value != unset[name]}
    return msgspec.structs.replace(
        held,
        report=held.report.replace(**fields),
        metrics=(*held.metrics, *new.metrics),
        fingerprint=(new if new.fingerprint.blocks else held).fingerprint,
    )


@contextmanager
def _named(what: str) -> Iterator[None]:
    """Let an error name the file that it is about."""
    try:
        yield
    except AuditError as error:
        raise AuditError(
            str(error) if str(error).startswith(what) else f"{what}: {error}"
        ) from error
