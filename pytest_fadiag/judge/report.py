"""The report of one audited network: a measurement with a name, a control and thresholds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from .control import Control, Doubt, Severity, doubts_about, void
from .diagnostics import (
    DIAGNOSTICS,
    Diagnostic,
    Finding,
    Status,
    available,
    parse_keys,
    select,
)
from .diagnostics.base import REFERENCE, STREAMLESS
from .diagnostics.depth_utility import ALONE_PP, below_embedding
from .errors import AuditError, AuditFailure
from .margins import Interval, margin_interval
from .protocol import published
from .records import Epoch, Log, Measurement, Score, check_accuracy, check_norms, plain
from .remarks import remarks_on
from .thresholds import DiagnosticThresholds
from .twin import Twin
from .verdict import AS_GIVEN, QUESTIONED, TRUSTWORTHY, left_open, sentence
from .words import WIDTH, fold, limit, one_line, plural, pp, printable

if TYPE_CHECKING:
    from typing_extensions import Self

DERIVED = (
    "findings",
    "verdict",
    "published",
    "remarks",
    "fired",
    "first_fired",
    "partial",
    "margin_pp",
    "margin_interval",
    "margin_share",
    "utility_share",
    "questions_control",
    "probe_accuracies",
    "depth_null_pp",
    "depth_utility_pp",
    "depth_interval_pp",
    "reference_error",
)
"""What :meth:`Report.to_dict` adds to the fields for readers of the file."""
FLAGS = {
    "residual_stream_exploded": "a",
    "bp_grad_at_floor": "b",
    "reference_drift_dominated": "c",
    "frozen_baseline_undercut": "d",
}
"""The published properties, each whether one diagnostic fired."""
CERTAIN = {"non-finite", "blocks at initialisation"}
"""Causes of a fire for which it does not matter what BP gains."""
UNPROVEN = (
    "as given, not proven; e and the secants of every state fit. States taken one layer off and "
    "the sign of credit cannot be checked"
)
"""What a report says about the reference of a trace."""
_NORMS = {"residual_norms": "residual-growth", "bp_grad_norms": "gradient-floor"}


class Report(Measurement, frozen=True, kw_only=True, dict=True):
    """What the diagnostics say about one network; can be built by hand from plain lists.

    >>> report = Report(
    ...     method_name="dfa", residual_norms=[9, 4e6, 5e6], bp_grad_norms=[1e-6, 4e-9, 4e-9],
    ...     cross_batch_stability=0.1, headline_acc=0.3, frozen_baseline_acc=0.35,
    ... )
    >>> report.fired
    ('a', 'b', 'd')
    """

    method_name: str = "unnamed"
    headline_acc: float | None = None
    frozen_baseline_acc: float | None = None
    seed: int | None = None
    notes: str = ""
    checkpoint: str | None = None
    """The name of the file that was audited."""
    claimed_acc: float | None = None
    control: Control | None = None
    control_problem: str = ""
    """Why no control could be compared although one was supplied."""
    thresholds: DiagnosticThresholds = msgspec.field(default_factory=DiagnosticThresholds)
    twin: Twin | None = None
    """BP networks of the same shapes and data, to compare with."""
    diagnostics: tuple[str, ...] = tuple(diagnostic.name for diagnostic in select("abcd"))
    """Those that were asked for, by name; without any word the published four."""
    protocol: str | None = None
    """The published form by which it is judged, three or four."""
    caveats: tuple[str, ...] = ()
    """What reading the checkpoint or the log brought to light."""
    config: dict[str, Any] = msgspec.field(default_factory=dict)
    """What the checkpoint or the log says about its training."""
    log: Log | None = None
    """The training log that it was made from."""

    def __post_init__(self) -> None:
        put = msgspec.structs.force_setattr
        put(self, "diagnostics", tuple(diagnostic.name for diagnostic in self.asked))
        for name, asked in _NORMS.items():
            put(self, name, norms := check_norms(getattr(self, name), name))
            unmeasured = not (norms or self.log or self.unproven or self.stream_problem)
            few = name == "residual_norms" and len(norms) == 1
            if few or (unmeasured and asked in self.diagnostics):
                many = plural(len(norms), "entry", "entries")
                raise AuditError(f"{name} has {many}: there is nothing to judge")
        for name in ("headline_acc", "frozen_baseline_acc", "claimed_acc"):
            if getattr(self, name) is not None:
                put(self, name, check_accuracy(getattr(self, name), name, self.task))
        score, headline, frozen = self.score, self.headline_acc, self.frozen_baseline_acc
        if score is not None:
            images = score.images or math.inf
            if headline is not None and abs(headline - score.value) * images >= 0.5:
                put(self, "score", score := Score(headline))  # of other images
            put(self, "headline_acc", check_accuracy(score.value, "headline_acc", self.task))
        if self.control is None and frozen is not None:
            put(self, "control", Control(Score(frozen)))
        if self.control is not None:
            theirs = check_accuracy(self.control.score.value, "frozen_baseline_acc", self.task)
            put(self, "frozen_baseline_acc", theirs)
        if frozen not in (None, self.frozen_baseline_acc):
            raise AuditError(f"the control's accuracy is {self.frozen_baseline_acc}, not {frozen}")
        put(self, "caveats", tuple(self.caveats))
        scalars = {key: v for key, v in self.config.items() if isinstance(v, (str, int, float))}
        put(self, "config", scalars)

    @classmethod
    def of(cls, measurement: Measurement, **rest: Any) -> Self:
        """The report of a measurement, or of another report with some fields changed.

        >>> Report.of(Measurement(), method_name="bp", diagnostics=()).verdict[:10]
        'incomplete'
        """
        own = {name: getattr(measurement, name) for name in measurement.__struct_fields__}
        for one, other in (("control", "frozen_baseline_acc"), ("score", "headline_acc")):
            if other in own and (one in rest) != (other in rest):  # the other one is stale
                rest = {one: None, other: None, **rest}
        return cls(**{**own, **rest})

    def replace(self, **changes: Any) -> Self:
        """The report with some fields changed; a new control or score brings its accuracy."""
        return self.of(self, **changes)

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """One finding per diagnostic that was asked for, in their order."""
        return tuple(map(self._judged, self.asked))

    def _judged(self, diagnostic: Diagnostic) -> Finding:
        why = ""
        if self.unproven and not REFERENCE.isdisjoint(diagnostic.needs):
            why = f"the reference is not proven: {self.unproven}"
        if self.stream_problem and not STREAMLESS.issuperset(diagnostic.needs):
            why = f"no stream: {self.stream_problem}"
        if why:
            return diagnostic.unmeasured(self, why, why)
        finding, twin = diagnostic.judge(self), self.twin
        if twin is None or not twin.healthy or twin.needs_depth or not finding.fired:
            return finding
        high = finding.interval[1] if finding.interval else finding.value or 0.0
        if finding.key not in ("d", "e") or high < 0 or CERTAIN & {*finding.causes}:
            return finding
        gain = twin.margin_pp if finding.key == "d" else twin.utility_pp
        other = "(e)" if finding.key == "d" else "(d)"
        said = f"does not pass {other}" if gain is None else f"gains {pp(gain)} pp here"
        if finding.key == "d" and gain is not None and gain >= diagnostic.limit(self):
            said += ", over a control in doubt"
        return msgspec.structs.replace(
            finding,
            status=Status.NOT_RESOLVED,
            headline=f"BP {said}: this task cannot tell ({finding.headline})",
            claim="",
            explanation="",
        )

    @cached_property
    def doubts(self) -> tuple[Doubt, ...]:
        """What makes the control doubtful."""
        return doubts_about(self)

    @cached_property
    def verdict(self) -> str:
        """«needs walk-back: …» with what fired, «incomplete: …» or «trustworthy»."""
        undecided = left_open({f.key: self.state(f) for f in self.findings})
        fired = [f for f in self.findings if f.fired]
        return sentence(fired, undecided, AS_GIVEN if self.trace else TRUSTWORTHY)

    @cached_property
    def remarks(self) -> tuple[str, ...]:
        """What a reader must know apart from the diagnostics, such as an accuracy at chance."""
        return tuple(remarks_on(self))

    def at(self, epoch: Epoch) -> Self:
        """The report with the numbers of one epoch in place of its own."""
        kept = (
            *("method_name", "seed", "control", "twin", "thresholds", "diagnostics", "stream"),
            *("reference", "stability_layer", "environment"),
        )
        own = {name: getattr(self, name) for name in kept}
        own |= {name: getattr(epoch, name) for name in epoch.__struct_fields__ if name != "epoch"}
        return type(self)(**own, log=msgspec.structs.replace(self.log or Log(), epochs=()))

    @cached_property
    def first_fired(self) -> dict[str, int]:
        """The first epoch of the log at which each diagnostic fired, by key."""
        first: dict[str, int] = {}
        for epoch in self.log.epochs if self.log else ():
            first = {**dict.fromkeys(self.at(epoch).fired, epoch.epoch), **first}
        return dict(sorted(first.items(), key=lambda item: (item[1], item[0])))

    @cached_property
    def at_floor(self) -> bool:
        """Whether (b) fires, asked for or not: Γ is then relative to a gradient below the floor."""
        return bool(self.bp_grad_norms) and self._judged(DIAGNOSTICS[1]).fired

    @property
    def asked(self) -> tuple[Diagnostic, ...]:
        """The diagnostics that were asked for; an error where the package of one is missing."""
        return select(self.diagnostics) if self.diagnostics else ()

    @property
    def fired(self) -> tuple[str, ...]:
        """The keys of the diagnostics that fired."""
        return tuple(finding.key for finding in self.findings if finding.fired)

    def finding(self, key: str) -> Finding:
        """The finding of a diagnostic, by key or name; not measured if it was not asked for."""
        diagnostic = select([key])[0]
        asked = [finding for finding in self.findings if finding.key == diagnostic.key]
        return asked[0] if asked else diagnostic.unmeasured(self, "was not asked for")

    def state(self, finding: Finding) -> str:
        """What keeps a finding that did not fire from deciding; empty where it decides."""
        if finding.error:
            return "error"
        if not finding.exact:
            return "likely" if finding.measured else finding.status.value
        if finding.key == "d" and self.questions_control:
            return QUESTIONED
        if finding.key != "e" or finding.fired:
            return ""
        if below_embedding(self):
            return "contradicted: the network scores below a linear probe of its own embedding"
        gain = finding.value or 0.0
        low = f"{pp(gain)} pp, below the {limit(ALONE_PP)} pp needed without a reliable control"
        if self.task == "regression":  # there random blocks under a trained embedding gain 14 pp
            low = "alone is not enough in regression"
        return low if gain < ALONE_PP or self.task == "regression" else ""

    @property
    def published(self) -> str:
        """What the published form says: «PASS», «FAIL(D1+D2)»; empty where none was named."""
        return published(
            self.protocol, self.fired, [f.key for f in self.findings if not self.state(f)]
        )

    def check(self, expected: str | Sequence[str] = "") -> None:
        """Raise an ``AssertionError`` with this report unless exactly the expected ones fired."""
        __tracebackhide__ = True
        errors = [f"{finding.name}: {finding.error}" for finding in self.findings if finding.error]
        if errors:
            raise AuditError("; ".join(errors))
        changed = [
            f.headline if f.fired else f"{f.name} was expected to fire: {f.outcome}, {f.headline}"
            for f in self.findings
            if f.fired != (f.key in parse_keys(expected))
        ]
        if changed:
            raise AuditFailure("\n".join([str(self), *changed]), "; ".join(changed))

    @property
    def residual_stream_exploded(self) -> bool:
        """Whether (a) fired; an error where it was not judged."""
        return self._fired("a")

    @property
    def bp_grad_at_floor(self) -> bool:
        """Whether (b) fired; an error where it was not judged."""
        return self._fired("b")

    @property
    def reference_drift_dominated(self) -> bool:
        """Whether (c) fired; an error where it was not judged."""
        return self._fired("c")

    @property
    def frozen_baseline_undercut(self) -> bool | None:
        """Whether (d) fired; ``None`` without a control or an accuracy, or where not resolved."""
        unresolved = self.finding("d").status is Status.NOT_RESOLVED
        return None if self.margin_pp is None or unresolved else self._fired("d")

    def _fired(self, key: str) -> bool:
        finding = self.finding(key)
        if finding.error or finding.name not in self.diagnostics:
            raise AuditError(f"({key}) is undetermined: {finding.headline}")
        return finding.fired

    @property
    def margin_pp(self) -> float | None:
        """Headline accuracy minus the control's, in pp; 0.369 − 0.349 is 2, not a hair below."""
        if self.control is None or self.headline_acc is None or void(self.doubts):
            return None
        return round(100 * (self.headline_acc - self.control.score.value), 9)

    @cached_property
    def margin_interval(self) -> Interval | None:
        """The 95 % interval of the margin, where the number of test images is known."""
        if self.control is None or self.score is None or void(self.doubts):
            return None
        return margin_interval(self.score, self.control.score)

    @property
    def questions_control(self) -> bool:
        """Whether a control was supplied on which no pass rests alone: (e) must pass too."""
        return any(doubt.severity is not Severity.REMARK for doubt in self.doubts)

    @property
    def margin_share(self) -> float | None:
        """Which share of BP's margin this network reaches."""
        return _share(self.margin_pp, self.twin.margin_pp if self.twin else None)

    @property
    def utility_share(self) -> float | None:
        """Which share of BP's depth utility this network reaches."""
        return _share(self.depth_utility_pp, self.twin.utility_pp if self.twin else None)

    @property
    def probe_accuracies(self) -> tuple[float, ...] | None:
        """Linear probes of h_0 … h_L, as fractions."""
        return (self.depth.probes or None) if self.depth else None

    @property
    def depth_null_pp(self) -> float | None:
        """The gain of a probe from h_0 to h_L with re-initialised blocks."""
        return self.depth.null_pp if self.depth else None

    @property
    def depth_utility_pp(self) -> float | None:
        """The gain of a probe from h_0 to h_L beyond that."""
        return self.depth.utility_pp if self.depth else None

    @property
    def depth_interval_pp(self) -> tuple[float, float] | None:
        """The 95 % interval of the depth utility; without a null that of the gain."""
        return self.depth.interval if self.depth else None

    @property
    def reference_error(self) -> float | None:
        """How far autograd lies from finite differences, relative."""
        return self.reference.error if self.reference else None

    @property
    def unproven(self) -> str:
        """Why the BP gradient is not proven; empty where it is, or was not checked."""
        return self.reference.problem if self.reference else ""

    @property
    def partial(self) -> bool:
        """Whether it was made from a log, or norms are missing."""
        return self.log is not None or None in (*self.residual_norms, *self.bp_grad_norms)

    @property
    def depth_known(self) -> bool:
        """Whether the number of blocks is known."""
        return self.log is None or self.log.depth_known

    @property
    def score_name(self) -> str:
        """What the score of its task is called."""
        return {"regression": "R²", "tokens": "token accuracy"}.get(self.task, "accuracy")

    @property
    def unit(self) -> str:
        """What its test set is counted in."""
        image = "image" if self.inputs and self.inputs.pixels else "sample"
        return "sequence" if self.task == "tokens" else image

    @property
    def probe_score(self) -> str:
        """What the score of linear probes, and of the network where these read, is called."""
        return "class-balanced accuracy" if self.task == "classes" else self.score_name

    @property
    def probe_unit(self) -> str:
        """What linear probes are fitted to."""
        return "token" if self.task == "tokens" else self.unit

    def layer(self, index: int) -> str:
        """The number of a layer, or L for the last one where the number of blocks is not known."""
        return str(index) if self.depth_known or index + 1 < len(self.residual_norms) else "L"

    def blocks(self, *indices: int) -> str:
        """Blocks by the names of their modules, where the stream is known."""
        return ", ".join(
            self.stream.blocks[index] if self.stream else f"block {index}" for index in indices
        )

    def site(self, name: str) -> str:
        """A state by its tensor, where the stream is known: «h_1: the input of 'blocks.1'»."""
        states = self.stream.states if self.stream else ()
        return f"{name}: {states[int(name.removeprefix('h_'))]}" if states else name

    def lines(self, key: str, width: int = WIDTH) -> str:
        """The text of one diagnostic alone: outcome, numbers, FLAG, what to write in the paper."""
        diagnostic, finding = select([key])[0], self.finding(key)
        shown = finding.outcome if finding.name in self.diagnostics else "shown, not judged"
        lines = [f"{diagnostic.label}: {one_line(shown)}"]
        said = [] if finding.fired or finding.name not in self.diagnostics else [finding.headline]
        numbers = [*diagnostic.table(self), *filter(None, diagnostic.lines(self))]
        lines += fold("    ", [finding.error] if finding.error else [*said, *numbers], width)
        if finding.fired:  # one line, however long: grep shows number, threshold and meaning
            lines.append(f"    FLAG: {one_line(f'{finding.headline}. {finding.explanation}')}")
        return printable("\n".join(lines))

    def __repr__(self) -> str:
        return f"<report: {self.title}: {one_line(self.verdict)}>"

    @property
    def title(self) -> str:
        """Method and seed."""
        seed = "" if self.seed is None else f", seed {self.seed}"
        return f"{one_line(self.method_name)}{seed}"

    def __str__(self) -> str:
        return self.text()

    def text(self, width: int = WIDTH) -> str:
        """The whole report, wrapped at a width."""
        refused = f"refused: {self.stream_problem}" if self.stream_problem else None
        task = "" if self.task == "classes" else f", task: {self.task}"
        measured = task or self.loss_assumed or self.reference or self.trace
        about = {
            "stream": "as given" if self.trace else refused or self.stream,
            "inputs": self.inputs,
            "loss": f"{self.loss}{' (assumed)' * self.loss_assumed}{task}" if measured else "",
            "reference": UNPROVEN if self.trace else self.reference,
        }
        first = [f"({key}) epoch {epoch}" for key, epoch in self.first_fired.items()]
        epochs = self.log.epochs if self.log else ()
        trained = f"{', '.join(first) or 'nothing'}; log ends at epoch "
        shown = [*self.diagnostics, *(["credit-alignment"] if self.credit else [])]
        lines = [
            f"FA diagnostic report: {self.title}",
            *fold("  ", self.notes.splitlines(), width),
            *fold("  ", [f"{what}: {value}" for what, value in about.items() if value], width),
            *fold("  note: ", self.remarks, width),
            *fold("  first fired: ", [f"{trained}{epochs[-1].epoch}"] if epochs[1:] else [], width),
            *(self.lines(one.key, width) for one in available() if one.name in shown),
            f"VERDICT: {self.verdict}{f' [{self.published}]' if self.published else ''}",
        ]
        return printable("\n".join(lines))

    def to_dict(self) -> dict[str, Any]:
        """The fields, then what follows from them, as plain JSON values."""
        values = {name: getattr(self, name) for name in (*self.__struct_fields__, *DERIVED)}
        judged = {finding.key: finding.fired for finding in self.findings if finding.measured}
        values |= {name: judged.get(key) for name, key in FLAGS.items()}
        if self.credit is not None:
            derived = {"state": self.credit.state, "z": self.credit.z}
            values["credit"] = plain(self.credit) | derived
        return dict(plain(values))


def _share(ours: float | None, theirs: float | None) -> float | None:
    """Where BP gains less than 2 pp, a share of it says nothing."""
    return None if ours is None or theirs is None or theirs < 2 else round(ours / theirs, 9)
