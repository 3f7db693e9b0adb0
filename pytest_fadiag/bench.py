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
from .judge.diagnostics import DIAGNOSTICS, CreditAlignment, DepthUtility, Diagnostic, Diagnostics, unasked
from .judge.doubts import Fingerprint
from .judge.errors import AuditError
from .judge.inputs import NormalisedBy, StatedInputs
from .judge.observers import ACCURACY, CONTROL_PROBES, CONTROL_READOUT, CREDIT, REFERENCE, STATES, ControlReads, ObserverSpec
from .judge.records import BATCHES, Measurement
from .judge.reference import UNPROVEN
from .judge.remarks import on_activation, on_other_weights, on_tensors_aside
from .judge.report import DiagnosticReport
from .judge.thresholds import DiagnosticThresholds, ThresholdChanges
from .judge.wording import count
from .keys import Keys
from .load.closure import is_current
from .load.controls import ControlFile, Controls, control_of
from .load.digests import checkpoint_digest
from .load.setup import NOTHING_GIVEN, Given, Setup
from .registry import Registry, installed

if TYPE_CHECKING:
    from torch import nn

    from .load.data import DataSet
    from .workshop import Progress, Workshop

T = TypeVar("T")
FACTS = "checkpoint"
"""The part of a record that the checkpoint itself tells: method, seed, what it claims."""
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
        self.keys = Keys(setup, self.registry, lambda: self.workshop.data.digest)
        self.cache = cache or ResultCache()
        self.progress = progress or (lambda name: nullcontext(lambda done, total: None))
        self._errors: dict[tuple[str, ...], AuditError] = {}
        self._supplied_parts: dict[str, dict[str, list[Parts]]] = {}
        self._made: dict[object, Any] = {}

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
        key = (key, checkpoint_digest(path))
        if key not in self._made:
            self._made[key] = make()
        made: T = self._made[key]
        return made

    def _record(self, path: Path, observers: Sequence[ObserverSpec[object]], given: Given, seed: int | None) -> Record:
        parts = self._parts(path, observers, given, control=False)
        facts = parts[FACTS]
        results = {observer.name: parts[self.keys.part(observer)] for observer in observers}
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
            caveats=(
                *on_tensors_aside(facts["left_aside"]),
                *on_activation(facts["activation"]),
                *on_other_weights(facts["other_weights"]),
            ),
            config=facts["config"],
            fingerprint=_fingerprint(facts, parts.get(self.keys.part(STATES), {}).get("blocks", ())),
        )

    def control(
        self,
        chosen: Control | ControlFile | None,
        given: Given = NOTHING_GIVEN,
        network: Fingerprint | None = None,
        *,
        beside: Iterable[Diagnostic] = (),
    ) -> Control | None:
        """A control with its accuracy, and what a linear probe reads of its h_0: one that was hardly trained is told by it.

        Beside (e), of which it is a null, probes read all its states. A control checkpoint is evaluated once, on the images of
        the audited network. With the fingerprint of that network it is questioned: whether it is of the same shape, and was
        left as it was drawn.
        """
        if not isinstance(chosen, ControlFile):
            return chosen
        probes = CONTROL_PROBES if DepthUtility.key in {diagnostic.key for diagnostic in beside} else CONTROL_READOUT
        control, own = self._once((chosen, probes), chosen.path, given, lambda: self._control(chosen, given, probes))
        doubts = () if network is None else network.doubts(own, shallow=control.kind is ControlKind.SHALLOW)
        known = {doubt.kind for doubt in control.doubts}
        return replace(control, doubts=(*control.doubts, *(doubt for doubt in doubts if doubt.kind not in known)))

    def _control(self, chosen: ControlFile, given: Given, spec: ObserverSpec[ControlReads]) -> tuple[Control, Fingerprint]:
        """A control checkpoint with its accuracy, and its tensors."""
        probes = self._probes_of(chosen.path, given, spec)
        parts = self._parts(chosen.path, [ACCURACY], given, control=True)
        measurement = Measurement.of({ACCURACY.name: parts[self.keys.part(ACCURACY)]["result"]}, {})
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

    def _probes_of(self, path: Path, given: Given, spec: ObserverSpec[ControlReads]) -> tuple[float, ...]:
        """What linear probes read of a control, from the pass that gives its accuracy; nothing where it has no stream."""
        try:
            parts = self._parts(path, [ACCURACY, spec], given, control=True)
        except AuditError:
            return ()
        return read(ControlReads, parts[self.keys.part(spec)]["result"], spec.name).probes

    def _parts(self, path: Path, observers: Sequence[ObserverSpec[object]], given: Given, *, control: bool) -> Parts:
        """The parts of a file's record; an input error is remembered too, and costs each of its tests no time."""
        file = checkpoint_digest(path)
        memory = key_of({"path": str(path), "file": file, "given": given.identity, "control": control})
        wanted = [FACTS, *map(self.keys.part, observers)]
        supplied = self._supplied(path, file, observers, given) if given.identity and given.at_hand else ""

        def make(absent: Sequence[str]) -> Parts:
            failing = (memory, supplied, *absent)
            if failing not in self._errors:
                try:
                    return self._measure(path, file, [o for o in observers if self.keys.part(o) in absent], given, control)
                except AuditError as error:
                    named = not control or str(error).startswith("control ")
                    self._errors[failing] = error if named else AuditError(f"control {error}")
            raise AuditError(str(self._errors[failing])) from self._errors[failing]

        if given.identity:
            return self._of_supplied(self._supplied_parts.setdefault(memory, {}), supplied, wanted, make)
        key = self.keys.record(path, file, observers)
        return self.cache.parts(key or memory, wanted, make, keep=key is not None, usable=_usable)

    def _supplied(self, path: Path, file: str, observers: Sequence[ObserverSpec[object]], given: Given) -> str:
        """What tells the values that are supplied for a file from others; they are made for it."""
        with self.cache.attempt(path, file), self._said_of(path, given):
            return self.workshop.supplied(given, credit=CREDIT in observers)

    def _of_supplied(
        self, known: dict[str, list[Parts]], supplied: str, wanted: Sequence[str], make: Callable[[Sequence[str]], Parts]
    ) -> Parts:
        """What was measured with what a caller supplies: for this process only, since nothing tells what else it depends on.

        A record of it is never extended: a report has the numbers of one network. Where the values are not at hand, the
        numbers of all that were measured must be the same.
        """
        records = known.setdefault(supplied, []) if supplied else [record for some in known.values() for record in some]
        whole = [record for record in records if all(name in record for name in wanted)]
        if not supplied and any(record[name]["result"] != whole[0][name]["result"] for record in whole for name in wanted[1:]):
            raise NotAtHand
        if not whole:
            whole = [make(wanted)]
            records += whole
        return whole[0]

    def _measure(self, path: Path, file: str, observers: Sequence[ObserverSpec[object]], given: Given, control: bool) -> Parts:
        """What these observers see of a file of this digest, from one pass, and what the file itself tells."""
        if not given.at_hand:
            raise NotAtHand
        with self.cache.attempt(path, file), self._said_of(path, given), self.progress(path.name) as progress:
            checkpoint = self.workshop.checkpoint(path)
            network = (self.workshop.control_network if control else self.workshop.network)(checkpoint, given)
            batches = self.workshop.batches(checkpoint, network, given)
            digest = None if given.own_data else self.keys.data_digest
            credit = self.workshop.credit(checkpoint, given) if CREDIT in observers else None
            observations = self.workshop.observe(network, batches, observers, progress, digest, credit)
            self.workshop.release(path)
            if checkpoint_digest(path) != file:
                # These numbers may be another content's, and would be kept under this one's digest.
                raise AuditError(f"{path}: this file changed while it was measured; run again when it is whole")
        name, tensors = getattr(batches, "name", ""), self.workshop.fingerprint(network)
        facts = {
            "method": checkpoint.method,
            "seed": checkpoint.seed,
            "claimed": checkpoint.test_acc,
            "title": f"{path.name} on {name}" if name else path.name,
            "note": getattr(batches, "note", ""),
            "inputs": getattr(batches, "inputs", None) or StatedInputs(name, NormalisedBy.CALLER),
            "left_aside": () if given.network is not None else self.workshop.left_aside(checkpoint, network),
            "activation": None if given.network is not None else self.workshop.assumed_activation(checkpoint),
            "other_weights": () if given.network is not None else checkpoint.other_weights,
            "config": plain_config(checkpoint.config),
            "untrained": checkpoint.content.get("untrained") is True,
            "tensors": tensors,
            "environment": {
                "feedback_saved": checkpoint.feedback is not None,
                "checkpoint_sha256": file,
                **({"weights_digest": tensors.digest} if tensors.weights else {}),
                **({} if digest is None else {"data_sha256": digest}),
                **({"not_cached": unkept} if (unkept := self.keys.unkept(given)) else {}),
            },
        }
        sources = self.keys.code_of(self.workshop.code, checkpoint, network, given)
        made: Parts = {FACTS: {**facts, **sources}}
        for observer in observers:
            result = observations.results[observer.name]
            made[self.keys.part(observer)] = {
                "result": result,
                "environment": observations.environment,
                "stream": observations.stream,
                **({} if result else {"unproven_by": REFERENCE.version}),
                **sources,
                **({"blocks": observations.blocks} if observer == STATES else {}),
                **(self.keys.credit_code(self.workshop.credit_code) if observer == CREDIT else {}),
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
    batch_size: int | None = None,
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
    control = bench.control(chosen, network=record.fingerprint, beside=asked)
    report = record.judge(control, thresholds, asked)
    if not report.lacks_usable_control or report.asks_for(DepthUtility.key):
        return report
    more = [*asked, *available.select(DepthUtility.key)]
    return bench.record(Path(path), more).judge(control, thresholds, more)


def _usable(name: str, part: Any) -> bool:
    """Whether a kept part has what a record is made from, and its code is what it was; another one is measured anew."""
    needed = (
        (
            *("method", "seed", "claimed", "title", "note", "config", "environment", "inputs", "left_aside", "untrained"),
            *("tensors", "activation", "other_weights"),
        )
        if name == FACTS
        else ("result", "environment", "stream")
    )
    whole = isinstance(part, dict) and all(key in part for key in needed) and isinstance(part["environment"], dict)
    if whole and part.get("unproven_by", REFERENCE.version) != REFERENCE.version:
        return False  # nothing was measured, for want of a proof that may succeed now
    return whole and all(is_current(part[code]) for code in ("sources", "credit_sources") if code in part)


def _fingerprint(facts: Mapping[str, Any], blocks: Sequence[Sequence[str]] = ()) -> Fingerprint:
    return read(Fingerprint, {**facts["tensors"], "blocks": blocks}, "tensors")
