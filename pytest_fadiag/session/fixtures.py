"""What the fixtures give to one test: its checkpoint, its report, its diagnostic; and what a conftest puts in their place."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..judge.codec import to_plain
from ..judge.diagnostics import CONTROLLED, DepthUtility, Diagnostic, Finding, Status
from ..judge.errors import AuditChange, AuditError, AuditFailure
from ..judge.keys import Keys
from ..judge.records import BATCH
from ..judge.report import DiagnosticReport
from ..judge.thresholds import DiagnosticThresholds
from ..load.digests import checkpoint_digest
from ..load.setup import Given
from .outcome import CHANGE, FINDING, KEY, REPORT, TARGET, Decision, changed, decide
from .run import NO_OVERRIDES, Overrides, Run
from .selection import CONTROL_FIXTURE, CREDIT_FIXTURE, asked_keys, is_named, override_of, unasked_keys
from .settings import MARKER, marked
from .targets import Kind, Target, expand

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ..judge.control import Control
    from ..judge.credit import CreditFunction
    from ..load.checkpoints import Checkpoint
    from ..load.data import DataSet
    from ..measure.batches import Batch

ASKED: pytest.StashKey[Keys] = pytest.StashKey()
"""The keys of the diagnostics that a test's report was asked for, and that have tests of their own."""
PROBLEMS: pytest.StashKey[Mapping[str, BaseException]] = pytest.StashKey()
"""What keeps a diagnostic of a test's report from being judged, such as a control that cannot be read, by key."""
GIVEN_BY = {
    "network": "fa_model",
    "batches": "fa_eval_batches",
    "data": "fa_test_data",
    "device": "fa_device",
    "credit": CREDIT_FIXTURE,
}
"""The fixtures whose override changes what is measured, or on what."""
PATCHING = {"monkeypatch", "mocker"}
"""The fixtures by which a test changes code for itself alone."""


class CheckpointUnderTest:
    """What the fixture ``fa_checkpoint`` gives: ``path``, ``id``, ``method``, ``seed``, and the loaded contents on demand."""

    def __init__(self, run: Run, target: Target) -> None:
        self._run, self.target = run, target
        self.path, self.id = Path(target.path), target.id

    def __repr__(self) -> str:
        return f"<checkpoint {self.id}>"

    @property
    def contents(self) -> Checkpoint:
        """The file, read without running code from it."""
        return self._run.bench.workshop.checkpoint(self.path)

    @property
    def method(self) -> str:
        """The method that the network was trained by: by the file's ``config``, else its name."""
        return self.contents.method

    @property
    def seed(self) -> int | None:
        """The seed of the training run, if it is known."""
        return self.target.seed if self.contents.seed is None else self.contents.seed

    @property
    def state_dict(self) -> dict[str, Tensor]:
        """The tensors, by their names without wrappers' prefixes."""
        return self.contents.state_dict

    @property
    def config(self) -> dict[str, Any]:
        """What the checkpoint says about its training."""
        return dict(self.contents.config)

    @property
    def test_acc(self) -> float | None:
        """The accuracy that the checkpoint claims."""
        return self.contents.test_acc


@dataclass(frozen=True)
class DiagnosticUnderTest:
    """What the fixture ``fa_diagnostic`` gives: one finding, and the report that it belongs to."""

    report: DiagnosticReport
    finding: Finding
    change: AuditChange | None = None
    """In what it is unlike its record beyond what fires."""

    @property
    def key(self) -> str:
        """The letter of the diagnostic."""
        return self.finding.key

    @property
    def name(self) -> str:
        """The name of the diagnostic."""
        return self.finding.name

    @property
    def status(self) -> Status:
        """Pass, fire, likely, or not measured."""
        return self.finding.status

    @property
    def fired(self) -> bool:
        """Whether the result needs, or likely needs, a walk-back."""
        return self.finding.fired

    @property
    def value(self) -> float | None:
        """The number that was judged."""
        return self.finding.value

    @property
    def threshold(self) -> float:
        """What it was judged by."""
        return self.finding.threshold

    @property
    def headline(self) -> str:
        """The number against its threshold."""
        return self.finding.headline

    @property
    def decision(self) -> Decision:
        """What becomes of a test of this finding, by what is expected of it."""
        return decide(self.finding, self.report.expected) if self.change is None else Decision.CHANGED

    def check(self) -> None:
        """Raise an ``AssertionError`` whose text is the report if the diagnostic fired; skip if it was not measured."""
        __tracebackhide__ = True
        decision = self.decision
        if decision is Decision.SKIP:
            advice = "; supply one with --fa-frozen=ACCURACY, METHOD=ACCURACY or a control checkpoint"
            lacks_control = self.finding.key == CONTROLLED and self.report.frozen_baseline_acc is None
            pytest.skip(f"{self.finding.headline}{advice if lacks_control else ''}")
        if decision is Decision.CHANGED:
            raise self.change or changed(self.report, self.finding)
        if decision in (Decision.FAIL, Decision.EXPECTED):
            raise AuditFailure(str(self.report), self.finding.headline)


class Fixtures:
    """The plugin's own fixtures; ``checkpoint`` is what ``fa_checkpoint`` gives, which a conftest may override."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def checkpoint(self, request: pytest.FixtureRequest) -> CheckpointUnderTest:
        """The checkpoint that a test was parametrised with or generated for."""
        target = getattr(request, "param", None)
        if target is None:
            target = request.node.stash.get(TARGET, None)
        if target is None:
            raise AuditError(
                f"{request.node.name} needs a checkpoint, and none is given: add --fa-checkpoint=PATH, fa_checkpoint in the "
                f"ini file or @pytest.mark.{MARKER}(checkpoint=PATH), override the fixture fa_checkpoint, or deselect the test"
            )
        return as_checkpoint(self.run, target)

    def device(self, request: pytest.FixtureRequest) -> str:
        """Where the network of a test is measured."""
        return self.run.bench.workshop.device(given_by(request).without("device"))

    def network(self, request: pytest.FixtureRequest, checkpoint: object) -> nn.Module:
        """The network of a test's checkpoint."""
        contents = as_checkpoint(self.run, checkpoint).contents
        return self.run.bench.workshop.network(contents, given_by(request).without("network"))

    def credit(self) -> CreditFunction | None:
        """The credit function of --fa-credit."""
        return self.run.bench.workshop.credit_function

    def batches(self, request: pytest.FixtureRequest, checkpoint: object, network: nn.Module) -> Iterable[Batch]:
        """The batches that the network of a test is measured on."""
        contents = as_checkpoint(self.run, checkpoint).contents
        return self.run.bench.workshop.batches(contents, network, given_by(request).without("batches"), BATCH)

    def data(self) -> DataSet:
        """The test split of --fa-data."""
        return self.run.bench.workshop.data

    def control(self, request: pytest.FixtureRequest, checkpoint: object) -> Control | None:
        """The control of --fa-frozen that belongs to a test's checkpoint."""
        known = as_checkpoint(self.run, checkpoint)
        is_file = known.target.kind is Kind.CHECKPOINT
        source = known if is_file else self.run.evidence(known.target, (), NO_OVERRIDES)
        return self.run.control_for(source.method, source.seed, given_by(request))

    def thresholds(self, request: pytest.FixtureRequest) -> DiagnosticThresholds:
        """The thresholds of a test."""
        return self.run.settings.thresholds(marked(request.node))

    def report(self, request: pytest.FixtureRequest, value: object, thresholds: DiagnosticThresholds) -> DiagnosticReport:
        """The report of a test's checkpoint, with what is expected of it."""
        node, target = request.node, as_checkpoint(self.run, value).target
        _check_own(node, target)
        node.stash.setdefault(TARGET, target)
        if not isinstance(thresholds, DiagnosticThresholds):
            raise AuditError(f"the fixture fa_thresholds gave {type(thresholds).__name__}; expected DiagnosticThresholds(…)")
        asked = _asked(self.run, request)
        report, own_problems = self.run.report(
            target, thresholds, asked, overrides_of(self.run, request), marked(node).get("expect")
        )
        problems = {**_unmeasured(self.run, node, report, target), **own_problems}
        node.stash[ASKED] = Keys.of(diagnostic.key for diagnostic in asked)
        if "fa_diagnostic" not in request.fixturenames:
            for key, problem in problems.items():
                if not (isinstance(problem, pytest.skip.Exception) and key != CONTROLLED):
                    raise problem  # a report that silently lacks its margin would pass
            known = tuple(finding.name for finding in report.findings if finding.key not in problems)
            report = replace(report, diagnostics=known)  # what the record does not know cannot differ from it
        node.stash[PROBLEMS], node.stash[REPORT] = problems, report
        return report

    def diagnostic(self, request: pytest.FixtureRequest, report: DiagnosticReport) -> DiagnosticUnderTest:
        """One diagnostic of a report; if it is expected to fire, its test becomes a strict xfail."""
        item = request.node
        finding = report.finding(getattr(request, "param", None) or item.stash[KEY])
        problems = item.stash.get(PROBLEMS, {})
        if finding.key == CONTROLLED and DepthUtility.key not in item.stash.get(ASKED, Keys()):
            none_given = _depth_instead(self.run, item) and report.frozen_baseline_acc is None
            finding = _stand_in(report, finding, problems) if report.lacks_usable_control or none_given else finding
        item.stash[FINDING] = finding
        properties = _properties(report, finding)
        item.user_properties += [(f"fa_{name}", value) for name, value in properties.items() if value is not None]
        problem = problems.get(finding.key)
        if isinstance(problem, AuditChange):
            item.stash[CHANGE] = problem
            return DiagnosticUnderTest(report, finding, problem)
        if problem is not None:
            raise problem
        if finding.key in (report.expected or Keys()) and finding.measured:
            # A test that never calls check() is red when what was recorded to fire does not.
            reason = f"expected to fire: {finding.headline}"
            item.add_marker(pytest.mark.xfail(strict=True, raises=AuditFailure, reason=reason), append=False)
        return DiagnosticUnderTest(report, finding)


def as_checkpoint(run: Run, value: object) -> CheckpointUnderTest:
    """What a fixture or a parametrised test calls its checkpoint: the plugin's own object, or a path."""
    if isinstance(value, CheckpointUnderTest):
        return value
    if isinstance(value, (str, os.PathLike)):
        root = run.settings.root
        targets = expand([os.fspath(value)], root, root, what="fa_checkpoint")
        if len(targets) > 1:
            raise AuditError(f"fa_checkpoint: {os.fspath(value)!r} names {len(targets)} files, and a test has one checkpoint")
        value = targets[0]
    if isinstance(value, Target):
        return CheckpointUnderTest(run, value)
    raise AuditError(
        f"the fixture fa_checkpoint gave {type(value).__name__}; expected the path of a checkpoint, or what the plugin's own "
        "fa_checkpoint gives"
    )


def _check_own(node: pytest.Item, target: Target) -> None:
    """Refuse what an overriding ``fa_checkpoint`` gives to a test whose id and row name another checkpoint."""
    own = getattr(getattr(node, "callspec", None), "params", {}).get("fa_checkpoint", node.stash.get(TARGET, None))
    if not isinstance(own, Target) or own == target or _is_same(own.path, target.path):
        return
    raise AuditError(
        f"the fixture fa_checkpoint gave {target.id} to a test of {own.id}, whose verdict would be another file's: return the "
        "plugin's own fa_checkpoint, or name the other file by --fa-checkpoint or a marker"
    )


def _is_same(one: str, other: str) -> bool:
    """Whether two paths are one file, or two of the same content."""
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    try:
        return checkpoint_digest(Path(one)) == checkpoint_digest(Path(other))
    except AuditError:
        return False


def given_by(request: pytest.FixtureRequest) -> Given:
    """What the fixtures of a repo give in the place of the plugin's own, each made when it is needed."""
    definitions = {part: override_of(request.node, fixture) for part, fixture in GIVEN_BY.items()}
    makers: dict[str, Any] = {
        part: _maker(request, GIVEN_BY[part]) for part, definition in definitions.items() if definition is not None
    }
    if not makers:
        return Given()
    params = getattr(getattr(request.node, "callspec", None), "params", {})
    parameters = sorted(f"{name}={value!r}" for name, value in params.items() if name not in ("fa_checkpoint", "fa_diagnostic"))
    identity = (*(str(id(definition)) for definition in definitions.values() if definition is not None), *parameters)
    return Given(
        **makers,
        identity=identity,
        test=request.node.nodeid,
        patched=lambda: not PATCHING.isdisjoint(request.fixturenames),
    )


def overrides_of(run: Run, request: pytest.FixtureRequest) -> Overrides:
    """What the fixtures of a repo give, its control included."""
    own_control = override_of(request.node, CONTROL_FIXTURE) is not None
    control = _maker(request, CONTROL_FIXTURE) if own_control else None
    return Overrides(given_by(request), control, _depth_instead(run, request.node))


def _depth_instead(run: Run, node: pytest.Item) -> bool:
    """Whether (e) stands in where the control of a fixture is none; who says which diagnostics are run asks for it by name."""
    chosen = run.settings.chooses or "diagnostics" in marked(node)
    return not chosen and override_of(node, CONTROL_FIXTURE) is not None


def _maker(request: pytest.FixtureRequest, name: str) -> Callable[[], Any]:
    return lambda: request.getfixturevalue(name)


def _unmeasured(run: Run, node: pytest.Item, report: DiagnosticReport, target: Target) -> dict[str, BaseException]:
    """Why (e) cannot be measured, where somebody asks for it by name: then that is an error, and else a skip."""
    depth, problem = run.settings.available.select(DepthUtility.key)[0], "" if report.depth is None else report.depth.problem
    if not problem or not is_named(run, node, depth, target.path):
        return {}
    return {depth.key: AuditError(f"{depth.name} cannot be judged: {problem}")}


def _asked(run: Run, request: pytest.FixtureRequest) -> tuple[Diagnostic, ...]:
    """The diagnostics that a report is for: the marker's, for tests of single ones the run's, else all."""
    keys = marked(request.node).get("diagnostics")
    if keys is None and ("fa_diagnostic" in request.fixturenames or run.settings.protocol is not None):
        keys = asked_keys(run, request.node)
    if keys is None:
        named = [key for key in run.settings.diagnostics if key == DepthUtility.key]
        return run.settings.available.select(Keys.of([*unasked_keys(run, request.node), *named]))
    own = request.node.stash.get(KEY, None)  # an argument may name another one: runs/dfa_s42.pt::frozen-margin
    return run.settings.available.select(Keys.of([*keys, *([] if own is None else [own])]))


def _stand_in(report: DiagnosticReport, finding: Finding, problems: Mapping[str, BaseException]) -> Finding:
    """What the test of (d) is about: where the control that was supplied is none, (e), which has no test of its own then.

    A record that says nothing of (e) is compared with what it says of (d), unless (e) is not as recorded.
    """
    depth = report.finding(DepthUtility.key)
    changes = depth.fired or isinstance(problems.get(depth.key), AuditChange)
    recorded = report.expected is None or depth.key in report.expected or changes
    if not (report.asks_for(depth.key) and recorded):
        return finding
    return replace(depth, headline=f"{finding.headline}; {depth.label} in its place: {depth.headline}")


def _properties(report: DiagnosticReport, finding: Finding) -> dict[str, Any]:
    values = {
        "method": report.method_name,
        "seed": report.seed,
        "status": finding.outcome,
        "value": finding.value,
        "threshold": finding.threshold,
    }
    plain: dict[str, Any] = to_plain(values)
    return plain
