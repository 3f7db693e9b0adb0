"""From a path to a record: load, measure, keep; the one way, for ``audit()`` and for the plugin."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from .cache import Parts, ResultCache, key_of
from .judge.codec import read, to_plain
from .judge.config import Plain, plain_config
from .judge.control import Control, ControlKind
from .judge.credit import Credit, CreditFunction
from .judge.depth import Depth
from .judge.diagnostics import DIAGNOSTICS, CreditAlignment, DepthUtility, Diagnostic, Diagnostics, unasked
from .judge.doubts import Fingerprint
from .judge.errors import AuditError
from .judge.inputs import NormalisedBy, StatedInputs
from .judge.observers import ACCURACY, CONTROL_PROBES, CREDIT, REFERENCE, STATES, ObserverSpec
from .judge.records import BATCH, BATCHES, Measurement
from .judge.reference import UNPROVEN
from .judge.remarks import on_tensors_aside
from .judge.report import DiagnosticReport
from .judge.thresholds import DiagnosticThresholds, ThresholdChanges
from .judge.wording import count
from .load.closure import is_current, sources_of
from .load.controls import ControlFile, Controls, control_of
from .load.digests import code_digest, file_digest, installed_version, joined
from .load.huggingface import files_of
from .load.identity import identify
from .load.setup import NOTHING_GIVEN, Given, Setup
from .load.sources import DataSpec
from .load.specs import is_factory, network_identity
from .registry import Registry, installed

if TYPE_CHECKING:
    from torch import nn

    from .load.checkpoints import Checkpoint
    from .load.data import DataSet
    from .workshop import Progress, Workshop

T = TypeVar("T")
FACTS = "checkpoint"
"""The part of a record that the checkpoint itself tells: method, seed, what it claims."""
RECORD_VERSION = 7
"""Raised when a kept record gains something that a run relies on."""
ProgressOf = Callable[[str], AbstractContextManager["Progress"]]
"""What shows how far the measurement of a file is."""


@dataclass(frozen=True)
class Record:
    """Everything about a checkpoint that no threshold and no control changes."""

    checkpoint: str
    """The name of the file."""
    method: str
    seed: int | None
    claimed_acc: float | None
    notes: str
    measurement: Measurement
    inputs: StatedInputs | None = None
    available: Diagnostics = DIAGNOSTICS
    """All diagnostics that there are."""
    caveats: tuple[str, ...] = ()
    """What loading the file brought to light."""
    config: Mapping[str, Plain] = field(default_factory=dict)
    """What the file says of its training."""
    fingerprint: Fingerprint | None = None
    """Its tensors, for a control to be compared with."""

    @property
    def credit(self) -> Credit | None:
        """What was seen of the method's credit, where somebody looked at it."""
        seen = self.measurement.extra.get(CREDIT.name)
        return read(Credit, seen, CREDIT.name) if seen else None

    @property
    def problems(self) -> dict[str, AuditError]:
        """By key what keeps a diagnostic from being judged."""
        reference = self.measurement.reference
        if reference is None or not reference.problem:
            said = "" if self.credit is None else self.credit.problem
            return {CreditAlignment.key: AuditError(f"{CreditAlignment.name} cannot be judged: {said}")} if said else {}
        resting = [diagnostic for diagnostic in self.available if diagnostic.rests_on_reference]
        return {d.key: AuditError(f"{d.name} cannot be judged, since {UNPROVEN}: {reference.problem}") for d in resting}

    def judge(
        self,
        control: Control | None,
        thresholds: DiagnosticThresholds | ThresholdChanges | None,
        diagnostics: Sequence[Diagnostic] | None = None,
    ) -> DiagnosticReport:
        """The report of the diagnostics that were asked for, else of those that run by default."""
        asked = self.available.by_default if diagnostics is None else diagnostics
        return DiagnosticReport.from_measurement(
            self.measurement,
            method_name=self.method,
            seed=self.seed,
            claimed_acc=self.claimed_acc,
            control=control,
            thresholds=thresholds,
            notes=self.notes,
            checkpoint=self.checkpoint,
            inputs=self.inputs,
            diagnostics=tuple(diagnostic.name for diagnostic in asked),
            available=self.available,
            caveats=self.caveats,
            config=self.config,
        )


def observers_of(diagnostics: Iterable[Diagnostic]) -> list[ObserverSpec[object]]:
    """What must be observed for some diagnostics; the accuracy always is, for it is what a result claims."""
    needed = {observer: None for diagnostic in diagnostics for observer in diagnostic.observers}
    return list({**needed, ACCURACY: None})


class Bench:
    """Measures checkpoints with one setup, each number once: in this process, and with a cache on disk in all of them.

    ``registry`` says which diagnostics, loaders and outputs there are: by default those of the installed packages.
    """

    def __init__(
        self,
        setup: Setup,
        *,
        registry: Registry | None = None,
        cache: ResultCache | None = None,
        progress: ProgressOf | None = None,
    ) -> None:
        self.setup = setup
        self.registry = registry or installed()
        self.cache = cache or ResultCache()
        self.progress = progress or (lambda name: nullcontext(lambda done, total: None))
        self._errors: dict[tuple[str, ...], AuditError] = {}
        self._supplied_parts: dict[str, list[Parts]] = {}
        self._made: dict[object, Any] = {}
        self._probe = key_of({"stream": setup.stream, "batches": setup.batches})[:8]

    @cached_property
    def workshop(self) -> Workshop:
        """What loads and measures; made when something is not known yet, for it imports torch."""
        from .workshop import Workshop

        return Workshop(self.setup, self.registry)

    def record(
        self,
        path: Path,
        diagnostics: Sequence[Diagnostic] | None = None,
        given: Given = NOTHING_GIVEN,
        *,
        seed: int | None = None,
    ) -> Record:
        """What is known of a checkpoint, measured now or earlier; ``seed`` is its seed where neither config nor name tells."""
        available = self.registry.diagnostics
        observers = observers_of(available.by_default if diagnostics is None else diagnostics)
        return self._once((path, *observers, seed), path, given, lambda: self._record(path, observers, given, seed))

    def _once(self, key: object, path: Path, given: Given, make: Callable[[], T]) -> T:
        """What is made from a file, once as long as it is the same; what a caller supplies may give two different things."""
        if given.identity:
            return make()
        key = (key, _digest(path))
        if key not in self._made:
            self._made[key] = make()
        made: T = self._made[key]
        return made

    def _record(self, path: Path, observers: Sequence[ObserverSpec[object]], given: Given, seed: int | None) -> Record:
        parts = self._parts(path, observers, given, control=False)
        facts = parts[FACTS]
        results = {observer.name: parts[self._part(observer)] for observer in observers}
        environment = {name: value for result in results.values() for name, value in result["environment"].items()}
        # That of an observer that looked at it: another one may have been in a pass with another stream.
        streams = (results[observer.name]["stream"] for observer in observers if observer.probe)
        measured = {name: result["result"] for name, result in results.items()}
        measurement = Measurement.of(measured, environment, next(filter(None, streams), None))
        return Record(
            checkpoint=path.name,
            method=str(facts["method"]),
            seed=seed if facts["seed"] is None else facts["seed"],
            claimed_acc=facts["claimed"],
            notes="; ".join(filter(None, [facts["title"], facts["note"]])),
            measurement=replace(measurement, environment={**environment, **facts["environment"]}),
            inputs=read(StatedInputs, facts["inputs"], "inputs"),
            available=self.registry.diagnostics,
            caveats=tuple(on_tensors_aside(facts["left_aside"])),
            config=facts["config"],
            fingerprint=_fingerprint(facts, parts.get(self._part(STATES), {}).get("blocks", ())),
        )

    def control(
        self,
        chosen: Control | ControlFile | None,
        given: Given = NOTHING_GIVEN,
        network: Fingerprint | None = None,
    ) -> Control | None:
        """A control with its accuracy, and what linear probes read of it, by which one that was hardly trained is told.

        A control checkpoint is evaluated once, on the images of the audited network.
        With the fingerprint of that network it is questioned: whether it is of the same shape, and was left as it was drawn.
        """
        if not isinstance(chosen, ControlFile):
            return chosen
        control, own = self._once(chosen, chosen.path, given, lambda: self._control(chosen, given))
        doubts = () if network is None else network.doubts(own, shallow=control.kind is ControlKind.SHALLOW)
        known = {doubt.kind for doubt in control.doubts}
        return replace(control, doubts=(*control.doubts, *(doubt for doubt in doubts if doubt.kind not in known)))

    def _control(self, chosen: ControlFile, given: Given) -> tuple[Control, Fingerprint]:
        """A control checkpoint with its accuracy, and its tensors."""
        probes = self._probes_of(chosen.path, given)
        parts = self._parts(chosen.path, [ACCURACY], given, control=True)
        measurement = Measurement.of({ACCURACY.name: parts[self._part(ACCURACY)]["result"]}, {})
        broken = measurement.companions.nonfinite_logits
        if broken or measurement.accuracy is None:
            raise AuditError(
                f"control {chosen.path.name}: the logits are not finite for {count(broken, 'image')}, so this network has no "
                "accuracy"
            )
        facts = parts[FACTS]
        control = control_of(chosen, {**facts["config"], "untrained": facts["untrained"]}, measurement.accuracy)
        inputs = read(StatedInputs, facts["inputs"], "inputs")
        return replace(control, inputs=inputs, probes=probes), _fingerprint(facts)

    def _probes_of(self, path: Path, given: Given) -> tuple[float, ...]:
        """What linear probes read of a control, from the pass that gives its accuracy; nothing where it has no stream."""
        try:
            parts = self._parts(path, [ACCURACY, CONTROL_PROBES], given, control=True)
        except AuditError:
            return ()
        return read(Depth, parts[self._part(CONTROL_PROBES)]["result"], "control-probes").probes

    def _parts(self, path: Path, observers: Sequence[ObserverSpec[object]], given: Given, *, control: bool) -> Parts:
        """The parts of a file's record; an input error is remembered too, and costs each of its tests no time."""
        memory = key_of({"path": str(path), "file": _digest(path), "given": given.identity, "control": control})
        wanted = [FACTS, *map(self._part, observers)]

        def make(absent: Sequence[str]) -> Parts:
            failing = (memory, *absent)
            if failing not in self._errors:
                try:
                    return self._measure(path, [o for o in observers if self._part(o) in absent], given, control)
                except AuditError as error:
                    named = not control or str(error).startswith("control ")
                    self._errors[failing] = error if named else AuditError(f"control {error}")
            raise AuditError(str(self._errors[failing])) from self._errors[failing]

        if given.identity:
            return self._supplied(memory, wanted, make)
        unnamed = self.setup.credit is not None and self._credit is None
        key = None if unnamed and CREDIT in observers else self._key(path)
        return self.cache.parts(key or memory, wanted, make, keep=key is not None, usable=_usable)

    def _supplied(self, memory: str, wanted: Sequence[str], make: Callable[[Sequence[str]], Parts]) -> Parts:
        """What was measured with what a caller supplies: for this process only, since that has no digest.

        A record of it is never extended: two values of a fixture may be two networks, and a report has the numbers of one.
        """
        records = self._supplied_parts.setdefault(memory, [])
        for record in records:
            if all(name in record for name in wanted):
                return record
        records.append(make(wanted))
        return records[-1]

    def _measure(self, path: Path, observers: Sequence[ObserverSpec[object]], given: Given, control: bool) -> Parts:
        """What these observers see of a file, from one pass, and what the file itself tells."""
        if not given.at_hand:
            raise NotAtHand
        with self.cache.attempt(path, _digest(path)), self._said_of(path, given), self.progress(path.name) as progress:
            checkpoint = self.workshop.checkpoint(path)
            network = (self.workshop.control_network if control else self.workshop.network)(checkpoint, given)
            batches = self.workshop.batches(checkpoint, network, given)
            with _readable():
                digest = None if given.own_data else self._identified(self._data.digest())
            credit = self.workshop.credit(checkpoint, given) if CREDIT in observers else None
            observations = self.workshop.observe(network, batches, observers, progress, digest, credit)
            self.workshop.release(path)
        name = getattr(batches, "name", "")
        facts = {
            "method": checkpoint.method,
            "seed": checkpoint.seed,
            "claimed": checkpoint.test_acc,
            "title": f"{path.name} on {name}" if name else path.name,
            "note": getattr(batches, "note", ""),
            "inputs": getattr(batches, "inputs", None) or StatedInputs(name, NormalisedBy.CALLER),
            "left_aside": () if given.network is not None else self.workshop.left_aside(checkpoint, network),
            "config": plain_config(checkpoint.config),
            "untrained": checkpoint.content.get("untrained") is True,
            "tensors": self.workshop.fingerprint(network),
            "environment": {
                "feedback_saved": checkpoint.feedback is not None,
                "checkpoint_sha256": _digest(path),
                **({} if digest is None else {"data_sha256": digest}),
                **({"not_cached": unkept} if (unkept := self._unkept(given)) else {}),
            },
        }
        sources = self._sources(checkpoint, network, given)
        made: Parts = {FACTS: {**facts, **sources}}
        for observer in observers:
            result = observations.results[observer.name]
            made[self._part(observer)] = {
                "result": result,
                "environment": observations.environment,
                "stream": observations.stream,
                **({} if result else {"unproven_by": REFERENCE.version}),
                **sources,
                **({"blocks": observations.blocks} if observer == STATES else {}),
                **(self._credit_sources if observer == CREDIT else {}),
            }
        plain: Parts = to_plain(made)
        return plain

    @contextmanager
    def _said_of(self, path: Path, given: Given) -> Iterator[None]:
        """What goes wrong in a network that nobody wrote for this repo is the file's: an error that names it, no traceback."""
        try:
            yield
        except AuditError as error:
            if not str(error).startswith(("the checkpoint's config", "the network failed")):
                raise
            raise AuditError(f"{path}: {error}") from error
        except (ArithmeticError, LookupError, MemoryError, RuntimeError, TypeError, ValueError) as error:
            model = self.setup.model
            if given.identity or not (model is None or str(model).startswith("torchvision:")):
                raise  # the user's own code, whose traceback tells more
            raise AuditError(f"{path}: cannot be measured: {type(error).__name__}: {str(error)[:500]}") from error

    def _part(self, observer: ObserverSpec[object]) -> str:
        """The name of an observer's result within a record: by its version, its share of the setup, and foreign code."""
        code = "" if observer.is_own else f"-{(code_digest(observer.place.partition(':')[0]) or '')[:8]}"
        credit = f"-{key_of({'credit': self._credit})[:8]}" if observer == CREDIT else ""
        return f"{observer.name}-{observer.version}{f'-{self._probe}' if observer.probe else ''}{code}{credit}"

    @property
    def _credit(self) -> str | None:
        """What tells one credit function from another; nothing where none is given, or one that has no name."""
        credit = self.setup.credit
        return network_identity(credit) if isinstance(credit, str) else None

    @cached_property
    def _credit_sources(self) -> dict[str, Any]:
        """The code that a credit function came from, with which its result is kept."""
        credit = self.setup.credit
        return {"credit_sources": sources_of(credit)} if isinstance(credit, str) else {}

    def _sources(self, checkpoint: Checkpoint, network: Any, given: Given) -> dict[str, Any]:
        """The code that a factory's network, or a pickled one, came from, with which a result is kept."""
        model = self.setup.model
        pickled = model is None and checkpoint.network is not None
        factory = isinstance(model, str) and is_factory(model) and not model.startswith("torchvision:")
        if given.network is not None or not (pickled or factory):
            return {}
        return {"sources": sources_of(str(model or ""), {type(module).__module__ for module in network.modules()})}

    def _key(self, path: Path) -> str | None:
        """The key of what every number of a file depends on, thresholds not among it; none where something has no digest."""
        with _readable():
            data, network, readers = self._data_stamp, self._network, self.registry.readers_digest
        if data is None or network is None or readers is None:
            return None
        return key_of(
            {
                "record": RECORD_VERSION,
                "file": _digest(path),
                "name": path.name,
                "identity": identify(path),
                "data": data,
                "data_name": self._data.name,
                "network": network,
                "readers": readers,
                "device": self.setup.device,
                "threads": self.setup.threads,
                "normalize": None if self.setup.normalisation is None else self.setup.normalisation.text,
                "torch": installed_version("torch"),
            }
        )

    def _unkept(self, given: Given) -> str:
        """Why a result is not kept for the next run, where it is not."""
        if given.identity:
            return "a conftest replaces what networks are measured with"
        if self._data_stamp is not None and self._network is not None:
            return ""
        if self._data.kind is None:
            factory = f"the data come from the factory {self._data.text}, which has no digest"
            return factory if self._data.text else "the data have no digest"
        return "the network or the data have no digest"

    @cached_property
    def _data(self) -> DataSpec:
        if not isinstance(self.setup.data, str):
            return DataSpec("")
        return self.registry.data_spec(self.setup.data)

    @cached_property
    def _data_stamp(self) -> str | None:
        """What identifies the data, which is decoded once."""
        return self._identified(self._data.stamp())

    @property
    def _network(self) -> str | None:
        model = self.setup.model
        return network_identity(model) if model is None or isinstance(model, str) else None

    def _identified(self, told: str | None) -> str | None:
        """What identifies the data: what its SPEC tells, else the digest that the data of a factory or a caller bring."""
        return self._own_digest if told is None and self._data.kind is None else told

    @cached_property
    def _own_digest(self) -> str | None:
        """The digest that the data itself brings; data that cannot be made has none, and whoever measures says why."""
        try:
            return None if self.setup.data is None else self.workshop.data.digest
        except AuditError:
            return None


class NotAtHand(Exception):
    """Something would have to be measured with what the caller cannot supply now."""


def audit(
    path: str | Path,
    *,
    data: str | DataSet,
    frozen: float | Mapping[str, float] | Control | str | Path | None = None,
    thresholds: DiagnosticThresholds | ThresholdChanges | None = None,
    progress: Progress | None = None,
    model: str | nn.Module | None = None,
    stream: str | None = None,
    batches: int = BATCHES,
    batch_size: int = BATCH,
    device: str = "auto",
    threads: int | None = 1,
    unsafe: bool = False,
    normalize: str | None = None,
    base: Path | None = None,
    credit: str | CreditFunction | None = None,
) -> DiagnosticReport:
    """The report of a checkpoint on disk.

    ``data`` is a SPEC such as ``fashion-mnist:ROOT``; ``frozen`` the control: an accuracy, a mapping by method, a control
    checkpoint or a JSON file. ``progress`` is told the samples done and their number. The rest is what :class:`Setup` says of
    it; with ``credit`` (f) is measured too, and without a control, or with one that is at chance, (e) is.
    """
    controls = Controls.of(frozen)  # first: a percentage is rejected before the measurement, not after it
    setup = Setup(data, model, stream, batches, batch_size, device, threads, unsafe, normalize, base, credit)
    bench = Bench(setup, progress=None if progress is None else lambda name: nullcontext(progress))
    available = bench.registry.diagnostics
    asked = unasked(available, control=frozen is not None, credit=bench.setup.credit is not None)
    record = bench.record(Path(path), asked)
    if record.credit is not None and record.credit.problem:
        raise AuditError(f"{path}: {record.credit.problem}")
    chosen = frozen if isinstance(frozen, Control) else controls.choose_for(record.method, record.seed)
    control = bench.control(chosen, network=record.fingerprint)
    report = record.judge(control, thresholds, asked)
    if not report.lacks_usable_control or report.asks_for(DepthUtility.key):
        return report
    more = [*asked, *available.select(DepthUtility.key)]
    return bench.record(Path(path), more).judge(control, thresholds, more)


def _usable(name: str, part: Any) -> bool:
    """Whether a kept part has what a record is made from, and its code is what it was; another one is measured anew."""
    needed = (
        ("method", "seed", "claimed", "title", "note", "config", "environment", "inputs", "left_aside", "untrained", "tensors")
        if name == FACTS
        else ("result", "environment", "stream")
    )
    whole = isinstance(part, dict) and all(key in part for key in needed) and isinstance(part["environment"], dict)
    if whole and part.get("unproven_by", REFERENCE.version) != REFERENCE.version:
        return False  # nothing was measured, for want of a proof that may succeed now
    return whole and all(is_current(part[code]) for code in ("sources", "credit_sources") if code in part)


@contextmanager
def _readable() -> Iterator[None]:
    """Say of a file that cannot be read which one it is."""
    try:
        yield
    except OSError as error:
        raise AuditError(f"{error.filename}: cannot be read: {error.strerror or error}") from error


def _fingerprint(facts: Mapping[str, Any], blocks: Sequence[Sequence[str]] = ()) -> Fingerprint:
    return read(Fingerprint, {**facts["tensors"], "blocks": blocks}, "tensors")


def _digest(path: Path) -> str:
    try:
        files = files_of(path)
        return file_digest(path) if files == [path] else joined(f"{file.name} {file_digest(file)}" for file in files)
    except FileNotFoundError as error:
        raise AuditError(f"{path}: no such file; was it moved or deleted since the run began?") from error
    except IsADirectoryError as error:
        raise AuditError(f"{path}: is a directory, not a file") from error
    except OSError as error:
        raise AuditError(f"{path}: cannot be read: {error.strerror or error}") from error
