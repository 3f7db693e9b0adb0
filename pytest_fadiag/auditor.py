"""From a path to a report: load, measure, keep; the one way, for everyone."""

from __future__ import annotations

import copy
import hashlib
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from . import __version__
from .cache import Cache, key_of
from .files import write_atomically
from .hooks import Registry, installed
from .judge.control import Control, ControlKind, Fingerprint
from .judge.diagnostics import get, select
from .judge.diagnostics.base import Diagnostic
from .judge.errors import AuditError
from .judge.records import Inputs, Measurement, Score, Twin, plain
from .judge.remarks import activation_assumed, tensors_aside
from .judge.report import Report
from .judge.thresholds import DiagnosticThresholds
from .load.controls import ControlFile, Controls
from .load.names import code_digest, file_digest, identify, plain_config
from .load.setup import Setup, loss_of
from .load.sources import KINDS, data_digest
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


class Overrides(NamedTuple):
    """What fixtures give instead of what the setup would load; its numbers are never stored.

    The same objects give the same numbers.
    """

    network: nn.Module | None = None
    batches: Iterable[Any] | None = None
    data: Any = None
    device: str | None = None
    credit: Callable[..., Any] | None = None

    def __bool__(self) -> bool:
        return any(value is not None for value in self)


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What a checkpoint says of itself, and what loading it brought to light."""

    method: str
    seed: int | None
    claimed_acc: float | None = None
    notes: str
    caveats: tuple[str, ...] = ()
    config: dict[str, Any] = {}
    untrained: bool = False
    fingerprint: Fingerprint
    control: Score | None = None
    """What a trace's own control scores on the same samples."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What no threshold and no control changes about a checkpoint: what the cache keeps."""

    facts: Facts
    metrics: tuple[str, ...]
    """The metrics that were computed."""
    measurement: Measurement


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
        progress: Callable[[str], Progress | None] | None = None,
    ) -> None:
        self.setup, self.cache, self.registry = setup, cache or Cache(), registry or installed()
        self.progress = progress or (lambda name: None)
        self.kept: set[Path] = set()
        """The files whose numbers came from the cache."""
        self._records: dict[tuple[Path, str], Record | AuditError] = {}
        self._overridden: tuple[object, Overrides, Record] | None = None

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
        twins: Sequence[Path] | None = (),
    ) -> Report:
        """The report of a checkpoint; (e) is added where the supplied control is questioned.

        Not where the diagnostics were listed, and are taken literally. ``twins`` are BP networks
        to compare with; ``None`` compares with none.
        """
        record = self.record(path, needed(diagnostics), overrides)
        facts = record.facts
        seed = facts.seed if facts.seed is not None else seed
        twin: Twin | None = None
        # A network of a fixture has no twin on disk.
        compares = protocol is None and twins is not None and not overrides
        if compares and twins and {"d", "e"} & {one.key for one in diagnostics}:
            twin = self._twin(twins, facts, diagnostics, control, thresholds, literal)
        chosen, problem = None, ""
        try:
            if facts.control is not None:
                chosen = Control(facts.control, "control_outputs of the trace")
            elif {one.key for one in diagnostics} - {*"abcefg"}:  # (d), or another package's
                print_ = None if record.measurement.trace else facts.fingerprint
                chosen = self.control(control, facts.method, seed, print_, overrides)
        except AuditError as error:
            problem = str(error)

        def judged(record: Record, asked: Sequence[Diagnostic]) -> Report:
            # What an earlier audit asked for, or what is read of a control, is not shown.
            names, metrics = ("depth", "credit", "floor", "precision"), needed(asked)
            unasked = {name: None for name in names if name not in metrics}
            numbers = msgspec.structs.replace(record.measurement, **unasked)
            return Report.of(
                numbers,
                method_name=facts.method,
                seed=seed,
                claimed_acc=facts.claimed_acc,
                notes=facts.notes,
                caveats=facts.caveats,
                config=facts.config,
                checkpoint=path.name,
                control=chosen,
                control_problem=problem,
                thresholds=thresholds or DiagnosticThresholds(),
                diagnostics=tuple(one.name for one in asked),
                protocol=protocol,
                twin=twin,
            )

        report = judged(record, diagnostics)
        depth = None if report.stream_problem or literal else get("e")
        if depth is not None and depth not in diagnostics and report.questions_control:
            diagnostics = [*diagnostics, depth]
            record = self.record(path, needed(diagnostics), overrides)
            report = judged(record, diagnostics)
        if compares and not twins and facts.method == "bp" and {"d", "e"} & {*report.fired}:
            twin = self._twin([path], facts, diagnostics, control, thresholds, literal)  # its own
            report = judged(record, diagnostics)
        return report

    def _twin(
        self,
        paths: Sequence[Path],
        facts: Facts,
        diagnostics: Sequence[Diagnostic],
        control: Controls | Control | float | None,
        thresholds: DiagnosticThresholds | None,
        literal: bool,
    ) -> Twin | None:
        """The BP networks of the same shapes, each asked for all that tells whether it is healthy.

        (e) is asked of them where it is asked here, or where there is no control.
        """
        depth = "" if control is not None and "e" not in {one.key for one in diagnostics} else "e"
        asked, reports = select(f"abcd{depth}g"), []
        for path in paths:
            try:
                held = self.record(path, needed(asked)).facts.fingerprint
                if held.shapes == facts.fingerprint.shapes:
                    reports.append(
                        self.report(
                            path,
                            diagnostics=asked,
                            control=control,
                            thresholds=thresholds,
                            literal=literal,
                            twins=None,
                        )
                    )
            except AuditError:  # its own tests say what is wrong with it
                continue
        return Twin.of(reports) if reports else None

    def control(
        self,
        control: Controls | Control | float | None,
        method: str,
        seed: int | None,
        network: Fingerprint | None = None,
        overrides: Overrides | None = None,
    ) -> Control | None:
        """The control that fits a method and seed; a file is evaluated and questioned."""
        if isinstance(control, Controls):
            chosen = control.choose_for(method, seed)
        else:
            chosen = (
                control
                if control is None or isinstance(control, Control)
                else Control(Score(control))
            )
        if not isinstance(chosen, ControlFile):
            return chosen
        file = chosen.path
        assert file is not None  # else its accuracy is known, and it is a Control
        if overrides and overrides.network is not None:  # a copy, with the control's tensors
            from .load.network import load_into

            filled = copy.deepcopy(overrides.network)
            load_into(filled, self.checkpoint(file))
            overrides = overrides._replace(network=filled)
        with _named(f"control {file.name}"):
            record = self.record(file, CONTROL_METRICS, overrides)
        facts, score = record.facts, finite_score(record.measurement, f"control {file.name}")
        made = chosen.measured(score, facts.config, untrained=facts.untrained)
        return questioned(made, record.measurement, facts.fingerprint, network)

    def record(
        self, path: Path, metrics: Sequence[str], overrides: Overrides | None = None
    ) -> Record:
        """The numbers of a file, from memory or the cache; what is missing is measured."""
        if overrides:
            last, asked = self._overridden, (path, *metrics)
            same = last is not None and all(map(operator.is_, last[1], overrides))
            if last is None or not same or last[0] != asked:
                made = self._measure(path, file_digest(path), metrics, overrides)
                self._overridden = last = asked, overrides, made
            return last[2]
        digest = file_digest(path)
        known = self._records.get((path, digest))
        if isinstance(known, AuditError):
            raise AuditError(str(known)) from known
        if known is not None and not _lacking(known, metrics):
            return known
        key = self._key(digest)
        with self.cache.locked(key) if key else nullcontext():
            held = (self._kept(key) if key else None) or known  # another worker may know more
            lacking = _lacking(held, metrics)
            if lacking:
                try:
                    held = _joined(held, self._measure(path, digest, lacking, None))
                except AuditError as error:
                    if held is None:
                        self._records[path, digest] = error
                    raise
                if key:
                    self.cache.put(key, plain(held))
            elif known is None:
                self.kept.add(path)
        assert held is not None
        self._records[path, digest] = held
        return held

    def _key(self, digest: str) -> str:
        """What a kept result depends on; empty where an object was given."""
        identity = self.setup.identity
        if identity is None or self.cache.folder is None:
            return ""
        return key_of(
            {"file": digest, "data": self._data_digest, "code": self._code_digest, **identity}
        )

    @cached_property
    def _data_digest(self) -> str | None:
        if not isinstance(self.setup.data, str):
            return None
        try:
            known = data_digest(self.setup.data, self.setup.base)
        except AuditError:  # unless another package knows it, loading it says what is wrong
            known = None
        return known if known is not None else self.data.digest

    @cached_property
    def _code_digest(self) -> str:
        """Versions, this package, and the user's code below the root or named by options."""
        named = {**self.setup.factories, "data": self.setup.data}
        builtin = {"model": ("torchvision",), "data": KINDS}
        pairs = [(name, str(spec)) for name, spec in named.items() if is_factory(str(spec))]
        found = [(name, spec.partition(":")[0]) for name, spec in pairs]
        modules = [module for name, module in found if module not in builtin.get(name, ())]
        own = code_digest(Path(__file__).parent, ())
        user = code_digest(self.setup.base, modules)
        return " ".join([__version__, version("torch"), own, user])

    def _kept(self, key: str) -> Record | None:
        held = self.cache.get(key)
        try:
            return None if held is None else msgspec.convert(held, Record, strict=False)
        except msgspec.ValidationError:
            return None

    def _measure(
        self, path: Path, digest: str, metrics: Sequence[str], overrides: Overrides | None
    ) -> Record:
        """Load a file and measure its network, in one pass."""
        from .load.data import as_data_set
        from .load.fingerprint import fingerprint
        from .load.network import assumed_activation, left_aside, other_shape
        from .measure.copies import threads
        from .measure.inputs import NetworkError
        from .measure.run import NetworkSource, measure
        from .measure.task import Task

        if is_trace(path):
            return self._measure_trace(path, digest, metrics)
        given, before, caveats = overrides or Overrides(), path.stat().st_mtime_ns, list[str]()
        with _named(str(path)):
            checkpoint = self.checkpoint(path)
            network = self.network(checkpoint) if given.network is None else given.network
            network = network.to(self.device if given.device is None else given.device)
            data = (
                None if given.data is None else as_data_set(given.data, "the fixture fa_test_data")
            )
            batches: Any = (
                self.batches(checkpoint, network, data) if given.batches is None else given.batches
            )
            own_data = given.batches is not None or given.data is not None
            n_train = checkpoint.config.get("n_train")
            loss, said = loss_of(self.setup.loss, checkpoint.config.get("loss"))
            caveats += [said] if said else []
            loss = self.function("loss") if is_factory(str(loss)) else loss
            source = NetworkSource(
                network,
                batches,
                task=Task(kind=self.setup.task, loss=loss, assumed=loss is None),
                forward=self.function("forward"),
                stream=self.setup.stream,
                credit=self._credit(checkpoint, given) if "credit" in metrics else None,
                batch_size=self.setup.batch_size,
                data_digest=None if own_data else self._data_digest,
                n_train=n_train if isinstance(n_train, int) and n_train > 0 else None,
            )
            told, extra = self.progress(path.name), self.registry.metrics()
            try:
                with threads(self.setup.threads):
                    numbers = measure(source, metrics, progress=told, extra=extra)
            except NetworkError as error:
                raise AuditError(f"{other_shape(network, source.data)}{error}") from error
        if path.stat().st_mtime_ns != before:
            raise AuditError(
                f"{path}: the file changed while it was measured; run again when it is whole"
            )
        tensors = fingerprint(network, source.blocks)
        name = getattr(batches, "name", "")
        if given.network is None:
            if aside := left_aside(network, checkpoint):
                caveats.append(tensors_aside(aside))
            if activation := assumed_activation(checkpoint, self.setup.model):
                caveats.append(activation_assumed(activation))
        environment = {
            **numbers.environment,
            "feedback_saved": checkpoint.feedback is not None,
            "checkpoint_sha256": digest,
            "weights_digest": tensors.digest,
            **({} if own_data or self._data_digest is None else {"data_sha256": self._data_digest}),
        }
        facts = Facts(
            method=checkpoint.method,
            seed=checkpoint.seed,
            claimed_acc=checkpoint.test_acc,
            notes="; ".join(
                filter(
                    None,
                    [f"{path.name} on {name}" if name else path.name, getattr(batches, "note", "")],
                )
            ),
            caveats=tuple(caveats),
            config=plain_config(checkpoint.config),
            untrained=checkpoint.content.get("untrained") is True,
            fingerprint=tensors,
        )
        inputs = getattr(batches, "inputs", None) or Inputs(data=name)
        named = {"loss": self.setup.loss} if is_factory(str(self.setup.loss)) else {}
        changes = {"environment": environment, "inputs": inputs, **named}
        numbers = msgspec.structs.replace(numbers, **changes)
        return Record(facts=facts, metrics=tuple(metrics), measurement=numbers)

    def _measure_trace(self, path: Path, digest: str, metrics: Sequence[str]) -> Record:
        """Read a trace, check it, and measure what it holds."""
        from .load.traces import read_trace
        from .measure.copies import threads
        from .measure.traces import measure_trace

        told, extra = self.progress(path.name), self.registry.metrics()
        with _named(str(path)), threads(self.setup.threads):
            arrays = read_trace(path)
            numbers, control = measure_trace(arrays, metrics, told, extra)
        shapes = {name: own.shape[1:] for name, own in arrays.items() if name.startswith("h_")}
        held = hashlib.sha256(arrays["outputs"].tobytes()).hexdigest()
        print_ = Fingerprint(shapes, {"outputs": held})
        method, seed = identify(path, arrays)
        facts = Facts(
            method=method, seed=seed, notes=path.name, fingerprint=print_, control=control
        )
        environment = {
            **numbers.environment,
            "checkpoint_sha256": digest,
            "weights_digest": print_.digest,
        }
        numbers = msgspec.structs.replace(numbers, environment=environment)
        return Record(facts=facts, metrics=tuple(metrics), measurement=numbers)

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
        made = self.registry.load_data(spec, self.setup.base)
        return load_data(spec, base=self.setup.base) if made is None else as_data_set(made, spec)

    @cached_property
    def device(self) -> str:
        """Where networks are measured."""
        from .load.network import choose_device

        return str(choose_device(self.setup.device))

    def function(self, name: str) -> Any:
        """The function that the setup names as credit, loss or forward, where there is one."""
        spec: Any = getattr(self.setup, name)
        return import_object(spec, f"{name} function") if isinstance(spec, str) else spec

    def checkpoint(self, path: Path) -> Checkpoint:
        """The file, read without running code from it unless that was allowed."""
        from .load.checkpoint import checkpoint_of, load_checkpoint

        unsafe = self.setup.unsafe
        content = self.registry.load_checkpoint(path, unsafe=unsafe)
        if content is None:
            return load_checkpoint(path, unsafe=unsafe)
        return checkpoint_of(content, path)

    def network(self, checkpoint: Checkpoint) -> nn.Module:
        """The network of a checkpoint, its tensors loaded."""
        from .load.network import build_network

        return build_network(checkpoint, self.setup.model)

    def batches(
        self, checkpoint: Checkpoint, network: nn.Module, data: DataSet | None = None
    ) -> Iterable[Any]:
        """The test split as a network takes it."""
        from .load.data import EvalBatches
        from .load.network import wants_flat

        data = (self.data if data is None else data).for_checkpoint(
            checkpoint.config, self.setup.normalize
        )
        flatten = not isinstance(data.x, Mapping) and wants_flat(network, data.x[0])
        return EvalBatches(data, self.setup.batch_size, flatten=flatten)

    def _credit(self, checkpoint: Checkpoint, given: Overrides) -> Any:
        from .measure.credit import CreditSource, function_name

        content = checkpoint.content or {
            "state_dict": checkpoint.state_dict,
            "config": checkpoint.config,
        }
        if given.credit is not None:
            return CreditSource(given.credit, "the fixture fa_credit", content)
        try:
            function = self.function("credit")
        except AuditError as error:  # it concerns (f) alone
            return CreditSource(checkpoint=content, problem=str(error))
        factory = isinstance(self.setup.model, str) and given.network is None
        rebuild = (lambda: self.network(checkpoint)) if factory else None
        named = (
            self.setup.credit
            if isinstance(self.setup.credit, str)
            else function and function_name(function)
        )
        return CreditSource(function, named or "", content, rebuild=rebuild)

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
        total = sum(parameter.numel() for parameter in control.parameters())
        held = sum(
            parameter.numel() for parameter in control.parameters() if not parameter.requires_grad
        )
        return (
            f"{out}: all weights re-initialised with seed {seed or 0}. "
            f"Do not train {held:,} of its {total:,} parameters, those of the blocks: "
            "frozen_parameters names them"
        )


def finite_score(measured: Measurement, what: str) -> Score:
    """The accuracy of a control, which one whose outputs are not finite does not have."""
    if measured.score is None or measured.nonfinite_outputs:
        raise AuditError(f"{what}: its outputs are not finite, so it has no accuracy")
    return measured.score


def questioned(
    made: Control, measured: Measurement, own: Fingerprint, network: Fingerprint | None
) -> Control:
    """A control with what is read of it, and what its tensors tell against it for a network."""
    depth, shallow = measured.depth, made.kind is ControlKind.SHALLOW
    doubts = () if network is None else network.doubts(own, shallow=shallow)
    return msgspec.structs.replace(
        made,
        inputs=measured.inputs,
        probes=() if depth is None else depth.probes,
        balanced=None if depth is None else depth.network,
        doubts=(*made.doubts, *doubts),
    )


def _lacking(held: Record | None, metrics: Sequence[str]) -> list[str]:
    known = set() if held is None else set(held.metrics)
    known |= {"control-readout"} if "depth" in known else set()  # a part of (e)
    return [name for name in metrics if name not in known]


def _joined(held: Record | None, new: Record) -> Record:
    """One record of both: what was not measured before is taken from the new one."""
    if held is None:
        return new
    unset = Measurement()
    fields = {
        name: getattr(new.measurement, name)
        for name in Measurement.__struct_fields__
        if getattr(new.measurement, name) != getattr(unset, name)
    }
    numbers = msgspec.structs.replace(held.measurement, **fields)
    print_ = new.facts.fingerprint if new.facts.fingerprint.blocks else held.facts.fingerprint
    facts = msgspec.structs.replace(held.facts, fingerprint=print_)
    return Record(facts=facts, metrics=(*held.metrics, *new.metrics), measurement=numbers)


@contextmanager
def _named(what: str) -> Iterator[None]:
    """Let an error name the file that it is about."""
    try:
        yield
    except AuditError as error:
        raise AuditError(
            str(error) if str(error).startswith(what) else f"{what}: {error}"
        ) from error
