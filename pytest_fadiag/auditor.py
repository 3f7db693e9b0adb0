"""From a path to a report: load, measure, keep; the one way, for everyone."""

from __future__ import annotations

import dataclasses
import hashlib
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from .cache import Cache, key_of
from .files import write_atomically
from .hooks import Registry, current
from .judge.control import Control, Fingerprint
from .judge.diagnostics import Diagnostic
from .judge.errors import AuditError
from .judge.records import Inputs, Measurement, Score, plain
from .judge.remarks import (
    activation_assumed,
    inputs_flattened,
    tensors_aside,
    tensors_not_loaded,
)
from .judge.report import Report
from .judge.thresholds import DiagnosticThresholds
from .load.controls import ControlFile, Controls
from .load.logs import check_judged, parse_columns, read_log
from .load.names import (
    code_digest,
    code_files,
    file_digest,
    identify,
    loaded_files,
    plain_config,
)
from .load.setup import Setup, loss_of
from .load.sources import data_digest, training_spec
from .load.specs import import_object, is_factory
from .load.traces import is_trace
from .orchestration import (
    CONTROL_METRICS,
    Provenance,
    Question,
    Record,
    Subject,
    compared_with_bp,
    finite_score,
    judged,
    questioned_control,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

    from .load.checkpoint import Checkpoint
    from .load.data import DataSet
    from .measure.run import NetworkSource
    from .measure.types import Progress

ControlSpec = Controls | Control | float | None


class Overrides(NamedTuple):
    """What fixtures give instead of what the setup would load; its numbers are never stored."""

    network: nn.Module | None = None
    batches: Iterable[Any] | None = None
    data: Any = None
    device: str | None = None
    credit: Callable[..., Any] | None = None
    step: Callable[..., Any] | None = None

    def __bool__(self) -> bool:
        return any(value is not None for value in self)


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
        self.setup = setup
        self.registry = registry or current()
        self.progress = progress
        # What depends on an object of the caller has no key.
        self.cache = Cache() if cache is None or setup.identity is None else cache
        self.from_cache: set[Path] = set()
        """The files whose numbers came from the cache."""
        self._records: dict[tuple[Path, str], Record | AuditError] = {}

    def report(
        self,
        path: Path,
        *,
        diagnostics: Sequence[Diagnostic],
        control: ControlSpec = None,
        thresholds: DiagnosticThresholds | None = None,
        overrides: Overrides | None = None,
        seed: int | None = None,
        protocol: str | None = None,
        listed: bool = False,
        log: bool = False,
        twins: Sequence[Path] | None = (),
    ) -> Report:
        """The report of a checkpoint or log; (e) is left out where a sound control decides.

        Not so where the diagnostics were listed, and are taken literally. ``twins`` are BP networks
        to compare with; ``None`` compares with none.
        """
        subject = FileSubject(
            auditor=self, path=path, supplied=control, overrides=overrides, seed=seed, is_log=log
        )
        limits = thresholds or DiagnosticThresholds()
        question = Question(diagnostics, limits, protocol, listed=listed or log)
        report = judged(subject, question)
        if log:
            check_judged(report, path)
            return report
        if protocol is not None or twins is None:
            return report
        given = overrides or Overrides()
        if given.network is not None:
            return report  # it has no twin on disk
        same_data = given._replace(credit=None, step=None)
        twin_subjects = [
            FileSubject(auditor=self, path=twin, supplied=control, overrides=same_data)
            for twin in twins
        ]
        return compared_with_bp(report, subject, question, twin_subjects)

    def control(
        self,
        control: ControlSpec,
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
        path = chosen.path
        assert path is not None  # else its accuracy is known, and it is a Control
        if overrides and overrides.network is not None:  # a copy, with the control's tensors
            from .load.network import with_tensors_of

            network_of_control = with_tensors_of(overrides.network, self.checkpoint(path))
            overrides = overrides._replace(network=network_of_control)
        what = f"control {path.name}"
        with _named(what):
            record = self.record(path, CONTROL_METRICS, overrides)
        score = finite_score(record.measurement, what)
        measured = chosen.measured(score, record.provenance.config, untrained=record.untrained)
        return questioned_control(measured, record, network)

    def record(
        self, path: Path, metrics: Sequence[str], overrides: Overrides | None = None
    ) -> Record:
        """The numbers of a file, from memory or the cache; what is missing is measured."""
        digest = file_digest(path)
        if overrides:
            return self._measure(path, digest, metrics, overrides)
        remembered = self._records.get((path, digest))
        if isinstance(remembered, AuditError):
            raise AuditError(str(remembered)) from remembered
        if remembered is not None and not remembered.lacking(metrics):
            return remembered
        key = "" if self.cache.folder is None else self._key(path, digest)
        with self.cache.locked(key):
            record = self._read_cache(key) or remembered  # another worker may know more
            lacking = metrics if record is None else record.lacking(metrics)
            if lacking:
                record = self._add(record, path, digest, lacking)
                self._keep(key, record)
            elif remembered is None:
                self.from_cache.add(path)
        assert record is not None
        self._records[path, digest] = record
        return record

    def _keep(self, key: str, record: Record) -> None:
        """Keep a record for the next run, unless code took part that its key does not know."""
        if self.cache.folder is None:
            return
        unknown = loaded_files() - self._code_files
        if unknown:
            self.cache.give_up(f"code outside the root folder was loaded, {min(unknown)}")
        self.cache.put(key, plain(record))

    def _add(
        self, record: Record | None, path: Path, digest: str, metrics: Sequence[str]
    ) -> Record:
        """The record with these metrics measured; a file that cannot be measured is remembered."""
        try:
            later = self._measure(path, digest, metrics, Overrides())
        except AuditError as error:
            if record is None:
                self._records[path, digest] = error
            raise
        return later if record is None else record.joined(later)

    def log_record(self, path: Path) -> Record:
        """What a training log says of its last epoch."""
        columns = None
        if self.setup.log_columns:
            columns = parse_columns(self.setup.log_columns)
        base = read_log(path, batch=self.setup.log_batch, columns=columns).base
        return Record(
            provenance=msgspec.convert(base, Provenance, from_attributes=True),
            measurement=msgspec.convert(base, Measurement, from_attributes=True),
            metrics=(),
        )

    def _key(self, path: Path, digest: str) -> str:
        """What a kept result depends on; the name tells method and seed."""
        depends_on = {
            "file": digest,
            "name": path.parts[-2:],
            "data": self._data_digest,
            "training": self._training_digest,
            "code": self._code_digest,
            **(self.setup.identity or {}),
        }
        return key_of(depends_on)

    @cached_property
    def _data_digest(self) -> str | None:
        if not isinstance(self.setup.data, str):
            return None
        return self._digest_of_files or self.data.digest

    @cached_property
    def _digest_of_files(self) -> str | None:
        """That of the test data; ``None`` where only reading it tells."""
        readers = self.registry.hook.pytest_fadiag_load_data.get_hookimpls()
        if readers or not isinstance(self.setup.data, str):
            return None
        return data_digest(self.setup.data, self.setup.base)

    @cached_property
    def _training_digest(self) -> str | None:
        """What identifies the training split; ``None`` where there is none."""
        if not isinstance(self.setup.train, str):
            return None
        if self._digest_of_training is None and self.training is not None:
            return self.training.digest
        return self._digest_of_training

    @cached_property
    def _digest_of_training(self) -> str | None:
        spec = training_spec(str(self.setup.train), self.setup.data)
        return data_digest(spec, self.setup.base, "train")

    @cached_property
    def _code_files(self) -> set[str]:
        """This package, the user's code below the root or named by options, and all plugins."""
        specs = map(str, (*self.setup.factories.values(), self.setup.data, self.setup.train))
        return code_files(self.setup.base, [__name__, *filter(is_factory, specs)]) | loaded_files()

    @cached_property
    def _code_digest(self) -> str:
        return code_digest(self.setup.base, self._code_files)

    def _read_cache(self, key: str) -> Record | None:
        try:
            return msgspec.convert(self.cache.get(key), Record, strict=False)
        except msgspec.ValidationError:
            return None

    def _measure(
        self, path: Path, digest: str, metrics: Sequence[str], overrides: Overrides
    ) -> Record:
        """Load a file and measure its network, in one pass."""
        from .measure.copies import threads

        with _named(str(path)), threads(self.setup.threads):
            if is_trace(path):
                record = self._measure_trace(path, digest, metrics)
            else:
                record = self._measure_network(path, digest, metrics, overrides)
            if file_digest(path) != digest:
                raise AuditError(
                    "the file changed while it was measured; run again when it is whole"
                )
        environment = {
            **record.measurement.environment,
            "checkpoint_sha256": digest,
            "weights_digest": record.fingerprint.digest,
        }
        measurement = replace(record.measurement, environment=environment)
        return replace(record, measurement=measurement)

    def _measure_network(
        self, path: Path, digest: str, metrics: Sequence[str], overrides: Overrides
    ) -> Record:
        """What a checkpoint says, and the numbers of its network on the test data."""
        from .load.fingerprint import fingerprint
        from .load.network import other_shape
        from .measure.inputs import NetworkError
        from .measure.run import measure

        checkpoint = self.checkpoint(path, digest)
        network = overrides.network
        if network is None:
            network = self.network(checkpoint)
        network = network.to(self.device if overrides.device is None else overrides.device)
        batches = overrides.batches
        if batches is None:
            batches = self.batches(checkpoint, network, overrides.data)
        loss, loss_caveat = loss_of(self.setup.loss, checkpoint.config.get("loss"))
        has_function = is_factory(str(loss))
        if has_function:
            loss = self.function("loss")
        rule: dict[str, Any] = {}
        if "credit" in metrics:
            rule = self._rule(checkpoint, overrides)
        data_digest = None
        if overrides.batches is None and overrides.data is None:
            data_digest = self._data_digest
        source = self._source(network, batches, checkpoint, loss, rule, data_digest)
        try:
            measurement = measure(
                source,
                metrics,
                progress=self.progress(path.name),
                extra=self.registry.metrics(),
            )
        except NetworkError as error:
            raise AuditError(f"{other_shape(network, source.data)}{error}") from error
        caveats = [loss_caveat] if loss_caveat else []
        if overrides.network is None:
            caveats += self._caveats(checkpoint, network)
        if self.setup.model is not None and getattr(batches, "flat", False):
            caveats.append(inputs_flattened())
        name = getattr(batches, "name", "")
        environment = dict(measurement.environment)
        if data_digest is not None:
            environment["data_sha256"] = data_digest
        return Record(
            provenance=_provenance(path, checkpoint, batches, caveats),
            measurement=replace(
                measurement,
                loss=self.setup.loss if has_function else measurement.loss,
                inputs=getattr(batches, "inputs", None) or Inputs(data=name),
                environment=environment,
            ),
            metrics=tuple(metrics),
            fingerprint=fingerprint(network, source.blocks),
            untrained=checkpoint.content.get("untrained") is True,
        )

    def _source(
        self,
        network: nn.Module,
        batches: Iterable[Any],
        checkpoint: Checkpoint,
        loss: Any,
        rule: Mapping[str, Any],
        data_digest: str | None,
    ) -> NetworkSource:
        from .measure.run import NetworkSource
        from .measure.task import Task

        n_train = checkpoint.config.get("n_train")
        training = self._training_batches(checkpoint, network, batches)
        return NetworkSource(
            network,
            batches,
            task=Task(kind=self.setup.task, loss=loss),
            forward=self.function("forward"),
            stream=self.setup.stream,
            **rule,
            batch_size=self.setup.batch_size,
            memory=self.setup.memory,
            data_digest=data_digest,
            n_train=n_train if isinstance(n_train, int) and n_train > 0 else None,
            training=training,
            training_name="" if training is None else training.name,
        )

    def _caveats(self, checkpoint: Checkpoint, network: nn.Module) -> list[str]:
        """What building the network of a checkpoint brought to light."""
        from .load.network import assumed_activation, left_aside, not_loaded

        caveats = []
        if names := left_aside(network, checkpoint):
            caveats.append(tensors_aside(names))
        if names := not_loaded(network, checkpoint):
            caveats.append(tensors_not_loaded(names))
        if activation := assumed_activation(checkpoint, self.setup.model):
            caveats.append(activation_assumed(activation))
        return caveats

    def _measure_trace(self, path: Path, digest: str, metrics: Sequence[str]) -> Record:
        """Read a trace, check it, and measure what it holds."""
        from .load.traces import read_trace
        from .measure.traces import measure_trace

        arrays = read_trace(path, digest)
        measurement, control = measure_trace(
            arrays, metrics, self.progress(path.name), self.registry.metrics()
        )
        shapes = {name: array.shape[1:] for name, array in arrays.items() if name[:2] == "h_"}
        outputs = hashlib.sha256(arrays["outputs"].tobytes()).hexdigest()
        method, seed = identify(path, arrays)
        return Record(
            provenance=Provenance(method_name=method, seed=seed, notes=path.name),
            measurement=measurement,
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
        foreign = self.registry.hook.pytest_fadiag_load_data(spec=spec, base=base)
        if foreign is not None:
            return as_data_set(foreign, spec)
        return load_data(spec, base=base, digest=self._digest_of_files)

    @cached_property
    def training(self) -> DataSet | None:
        """The training split, decoded once; ``None`` where none was named."""
        from .load.data import DataSet, load_data

        spec = self.setup.train
        if spec is None or isinstance(spec, DataSet):
            return spec
        spec = training_spec(spec, self.setup.data)
        split = load_data(spec, "train", self.setup.base, digest=self._digest_of_training)
        return dataclasses.replace(split, name=f"{split.name} (train)")

    def _training_batches(
        self, checkpoint: Checkpoint, network: nn.Module, batches: Iterable[Any]
    ) -> DataSet | None:
        """The training split as a network takes it, normalised as the test data is."""
        from .load.data import DataSet

        split = self.training
        if split is None:
            return None
        if not isinstance(batches, DataSet):
            batches = split.for_checkpoint(checkpoint.config, self.setup.normalize)
        elif split.pixels != batches.pixels:
            raise AuditError(
                f"{split.name} and {batches.name} differ: one holds bytes, the other real numbers"
            )
        normalised = dataclasses.replace(split, mean=batches.mean, std=batches.std)
        return self._batched(normalised, network)

    def _batched(self, split: DataSet, network: nn.Module) -> DataSet:
        """A split in batches as a network takes them; flat only where no forward was named."""
        from .load.network import wants_flat

        flat = False
        if self.setup.forward is None and not isinstance(split.x, Mapping):
            flat = wants_flat(network, split.x[0])
        return dataclasses.replace(split, size=self.setup.batch_size, flat=flat)

    @cached_property
    def device(self) -> str:
        """Where networks are measured."""
        from .load.network import choose_device

        return choose_device(self.setup.device)

    def function(self, name: str) -> Any:
        """The function that the setup names as credit, step, loss or forward, if any."""
        spec: Any = getattr(self.setup, name)
        return import_object(spec, f"{name} function") if isinstance(spec, str) else spec

    def checkpoint(self, path: Path, digest: str | None = None) -> Checkpoint:
        """The file, read without running code from it unless that was allowed.

        Other bytes than those of ``digest`` are refused.
        """
        from .load.checkpoint import checkpoint_of, load_checkpoint

        unsafe = self.setup.unsafe
        state_key = self.setup.state_key
        content = self.registry.hook.pytest_fadiag_load_checkpoint(path=path, unsafe=unsafe)
        if content is None:
            return load_checkpoint(path, unsafe=unsafe, state_key=state_key, digest=digest)
        return checkpoint_of(content, path, state_key)

    def network(self, checkpoint: Checkpoint) -> nn.Module:
        """The network of a checkpoint, its tensors loaded."""
        from .load.network import build_network

        return build_network(checkpoint, self.setup.model)

    def batches(self, checkpoint: Checkpoint, network: nn.Module, data: Any = None) -> DataSet:
        """The test split, or what the fixture fa_test_data gives, as a network takes it."""
        from .load.data import as_data_set

        split = self.data if data is None else as_data_set(data, "the fixture fa_test_data")
        split = split.for_checkpoint(checkpoint.config, self.setup.normalize)
        return self._batched(split, network)

    def _rule(self, checkpoint: Checkpoint, overrides: Overrides) -> dict[str, Any]:
        """The step of the rule and its credit, where one was named or no step was."""
        from .measure.credit import CreditSource
        from .measure.step import StepSource

        functions = {}
        names = {}
        for kind in ("credit", "step"):
            spec = getattr(self.setup, kind)
            functions[kind] = getattr(overrides, kind)
            names[kind] = f"the fixture fa_{kind}"
            if functions[kind] is None:
                functions[kind] = self.function(kind)
                names[kind] = spec if isinstance(spec, str) else ""
        content = checkpoint.content
        rule: dict[str, Any] = {}
        if functions["step"] is not None:
            rule["step"] = StepSource(functions["step"], names["step"], content)
        if functions["credit"] is None and rule:
            return rule
        rebuild = None
        if isinstance(self.setup.model, str) and overrides.network is None:

            def rebuild() -> nn.Module:
                return self.network(checkpoint)

        rule["credit"] = CreditSource(
            functions["credit"], names["credit"], content, rebuild=rebuild
        )
        return rule

    def write_control(self, path: Path, out: Path, seed: int | None = None) -> str:
        """Write the network to train as the control of a checkpoint; replaces no file."""
        from .measure.control import make_control, saved_control

        if out.exists():
            raise AuditError(f"{out}: exists already; name another file with --out, or remove it")
        checkpoint = self.checkpoint(path)
        network = self.network(checkpoint)
        inputs = None
        if self.setup.data is not None:
            inputs = next(iter(self.batches(checkpoint, network)))
        config = {**checkpoint.config, "frozen": True}
        seed = checkpoint.seed if seed is None else seed
        if seed is not None:
            config["seed"] = seed
        control = make_control(
            network,
            self.setup.stream,
            inputs=inputs,
            forward=self.function("forward"),
            seed=seed or 0,
            from_scratch=True,
        ).cpu()
        write_atomically(out, saved_control(control, config))
        return (
            f"{out}: all weights re-initialised with seed {seed or 0}\nNext: freeze the parameters "
            "that frozen_parameters names, train the others, and save the file without the key "
            f"untrained; then audit with --frozen {shlex.quote(str(out))}"
        )


@dataclasses.dataclass(kw_only=True)
class FileSubject(Subject):
    """A checkpoint, a trace or a log on disk, as one auditor measures it."""

    auditor: Auditor
    path: Path
    overrides: Overrides | None = None
    seed: int | None = None
    is_log: bool = False

    def measured(self, metrics: Sequence[str]) -> Record:
        """Its numbers, with the name of the file, and the seed that this tells where no other."""
        if self.is_log:
            record = self.auditor.log_record(self.path)
        else:
            record = self.auditor.record(self.path, metrics, self.overrides)
        seed = record.provenance.seed
        provenance = replace(
            record.provenance,
            checkpoint=self.path.name,
            seed=self.seed if seed is None else seed,
        )
        return replace(record, provenance=provenance)

    def control(self, record: Record) -> Control | None:
        """The control in the trace itself, else the one that fits its method and seed."""
        if record.control is not None:
            return Control(record.control, "control_outputs of the trace")
        has_tensors = not (self.is_log or record.measurement.trace)
        return self.auditor.control(
            self.supplied,
            record.provenance.method_name,
            record.provenance.seed,
            record.fingerprint if has_tensors else None,
            self.overrides,
        )


def _provenance(
    path: Path, checkpoint: Checkpoint, batches: Iterable[Any], caveats: Iterable[str]
) -> Provenance:
    notes = [path.name]
    name = getattr(batches, "name", "")
    if name:
        notes = [f"{path.name} on {name}"]
    note = getattr(batches, "note", "")
    if note:
        notes.append(note)
    return Provenance(
        method_name=checkpoint.method,
        seed=checkpoint.seed,
        claimed_acc=checkpoint.test_acc,
        notes="; ".join(notes),
        caveats=tuple(caveats),
        config=plain_config(checkpoint.config),
    )


@contextmanager
def _named(what: str) -> Iterator[None]:
    """Let an error name the file that it is about."""
    try:
        yield
    except AuditError as error:
        if str(error).startswith(what):
            raise
        raise AuditError(f"{what}: {error}") from error
