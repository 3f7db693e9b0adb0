"""What the outcomes amount to: a confusion table a diagnostic, the margins of the thresholds, and every disagreement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from pytest_fadiag import DiagnosticThresholds
from pytest_fadiag.judge.diagnostics import DIAGNOSTICS

from .auditing import Outcome, said
from .catalogue import Case, Truth

Judged = Sequence[tuple[Case, Outcome]]
KINDS = ("healthy", "shallow task", "bad control", "small gradient", "in part", "broken")
VERDICTS = ("trustworthy", "incomplete", "walk-back", "error")
EXPECTED = {"healthy": "deg"}
"""What a kind of network is expected to pass, though nothing in how it was made guarantees it."""


@dataclass(frozen=True)
class Disagreement:
    """Where truth and audit differ."""

    case: str
    mix: str
    what: str
    numbers: str
    serious: bool
    """Whether it is one that must not be: a healthy network that fires (a), (b) or (c), a broken one that passes."""


def disagreements(judged: Judged) -> list[Disagreement]:
    """Every difference between what was written down and what was said, the serious ones first."""
    found = [
        Disagreement(case.name, outcome.mix, what, shown(outcome), serious)
        for case, outcome in judged
        for what, serious in _differences(case, outcome)
    ]
    return sorted(found, key=lambda one: not one.serious)


def _differences(case: Case, outcome: Outcome) -> Iterable[tuple[str, bool]]:
    truth = case.truth
    if said(outcome.verdict) == "error":
        yield outcome.verdict, True
        return
    for key in truth.fires:
        if key not in outcome.fired:
            passes = said(outcome.verdict) != "walk-back" and key in outcome.measured
            yield f"({key}) must fire and does not", passes
    for key in truth.silent:
        if key in outcome.fired:
            yield f"({key}) must not fire and does", True
    for key in EXPECTED.get(truth.kind, ""):
        if key in outcome.fired:
            yield f"({key}) fires on a network that was trained as a whole", False
    if truth.kind == "broken" and outcome.verdict == "trustworthy":
        yield "called trustworthy, and broken as a whole", True
    if truth.kind == "broken" and outcome.unasked == "trustworthy":
        yield "called trustworthy where only (d) decides, and broken as a whole", False
    if truth.kind == "healthy" and said(outcome.verdict) == "incomplete":
        yield outcome.verdict, False
    named = outcome.numbers.get("idle", [])
    if truth.idle and outcome.verdict == "trustworthy" and set(truth.idle) - set(named):
        yield (
            f"blocks {_listed(truth.idle)} learnt nothing; named: {_listed(named) or 'none'}",
            True,
        )
    questioned = truth.questions in outcome.text or "control rejected" in outcome.text
    if truth.questions and not questioned:
        yield f"nothing is said of a control that should be questioned ({truth.questions})", True


def confusion(judged: Judged) -> list[str]:
    """One row a diagnostic: what must fire, what must not, and what is expected not to, against what did."""
    lines = [
        "| diagnostic | must fire: fires | is silent | must not: is silent | fires | expected to pass: passes | fires |"
    ]
    lines += ["| --- " * 7 + "|"]
    for diagnostic in DIAGNOSTICS:
        key = diagnostic.key
        rows = [
            (case.truth, key in outcome.fired)
            for case, outcome in judged
            if key in outcome.measured
        ]
        columns: list[Callable[[Truth], bool]] = [
            lambda truth, key=key: key in truth.fires,  # type: ignore[misc]
            lambda truth, key=key: key in truth.silent,  # type: ignore[misc]
            lambda truth, key=key: key in EXPECTED.get(truth.kind, ""),  # type: ignore[misc]
        ]
        counts = [[fired for truth, fired in rows if belongs(truth)] for belongs in columns]
        cells = [sum(counts[0]), len(counts[0]) - sum(counts[0])]
        cells += [
            number for fired in counts[1:] for number in (len(fired) - sum(fired), sum(fired))
        ]
        lines.append(f"| ({key}) `{diagnostic.name}` | " + " | ".join(map(str, cells)) + " |")
    return lines


def verdicts(judged: Judged) -> list[str]:
    """One row a kind of network: how often each verdict was given, by (d) alone, and with a BP twin."""
    lines = [
        f"| networks | {' | '.join(VERDICTS)} | trustworthy by (d) alone |"
        " with a BP twin: trustworthy | incomplete | walk-back |",
        "| --- " * (len(VERDICTS) + 5) + "|",
    ]
    for kind in KINDS:
        there = [outcome for case, outcome in judged if case.truth.kind == kind]
        cells = [sum(said(outcome.verdict) == verdict for outcome in there) for verdict in VERDICTS]
        cells.append(sum(outcome.unasked == "trustworthy" for outcome in there))
        twinned = [said(outcome.twinned) for outcome in there]
        cells += [twinned.count(verdict) for verdict in VERDICTS[:3]]
        lines.append(f"| {kind} ({len(there)}) | {' | '.join(map(str, cells))} |")
    return lines


def margins(judged: Judged) -> list[str]:
    """For each threshold the nearest number on either side of it, and whose it is."""
    at = DiagnosticThresholds()
    lines = [
        "| number | threshold | nearest that must not fire | nearest that must fire |",
        "| --- " * 4 + "|",
    ]
    for key, name, threshold, sign in (
        ("a", "growth", at.h_norm_explosion_ratio, 1),
        ("b", "gradient", at.g_norm_floor, -1),
        ("b", "per unit error", at.g_norm_floor, -1),
        ("c", "drift", at.stability_drift_ceiling, 1),
        ("c", "invariance", at.sample_invariance_minimum, 1),
        ("d", "margin", at.frozen_acc_margin_pp, -1),
        ("e", "utility", getattr(at, "depth_utility_minimum_pp", None), -1),
    ):
        numbers = [(case, outcome, outcome.numbers.get(name)) for case, outcome in judged]
        there = [
            (sign * value, case, outcome)
            for case, outcome, value in numbers
            if value is not None and isfinite(value)
        ]
        passing = [
            one for one in there if key in one[1].truth.silent + EXPECTED.get(one[1].truth.kind, "")
        ]
        firing = [one for one in there if key in one[1].truth.fires]
        cells = [
            _whose(max(passing, key=_first, default=None), sign),
            _whose(min(firing, key=_first, default=None), sign),
        ]
        lines.append(
            f"| ({key}) {name} | {threshold:g} | {' | '.join(cells)} |"
            if threshold is not None
            else ""
        )
    return list(filter(None, lines))


def shown(outcome: Outcome) -> str:
    """The numbers of an outcome in one line."""
    parts = []
    for name, value in outcome.numbers.items():
        if isinstance(value, list | tuple):
            parts.append(f"{name} {' '.join(f'{number:.3g}' for number in value)}")
        elif value is not None:
            parts.append(f"{name} {value:.3g}")
    return ", ".join(parts)


def _whose(one: tuple[float, Case, Outcome] | None, sign: int) -> str:
    return "none" if one is None else f"{sign * one[0]:.3g} ({one[1].name}, {one[2].mix})"


def _first(one: tuple[Any, ...]) -> Any:
    return one[0]


def _listed(blocks: Iterable[int]) -> str:
    return ", ".join(map(str, blocks))
