"""What the outcomes amount to: tables of error rates, the margins of the thresholds, and every disagreement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from operator import itemgetter
from typing import Any

from pytest_fadiag import DiagnosticThresholds
from pytest_fadiag.judge.diagnostics import DIAGNOSTICS

from .auditing import Outcome, word
from .catalogue import Case
from .data import SIZES

Judged = Sequence[tuple[Case, Outcome]]
KINDS = (
    "healthy",
    "shallow task",
    "bad control",
    "small gradient",
    "in part",
    "broken",
    "initialised otherwise",
    "hardly trained",
    "shipped, healthy",
    "shipped, hollow",
)
UNLABELLED = ("initialised otherwise", "hardly trained")
"""Networks that tell what the weights show, audited on two sets of images: nothing says what must be said of them."""
HOLLOW = ("broken", "shipped, hollow")
VERDICTS = ("trustworthy", "incomplete", "walk-back", "error")
EXPECTED = {"healthy": "deg"}
"""What a kind of network is expected to pass, though nothing in how it was made guarantees it."""
WAYS = {
    "verdict": "the catalogue's control",
    "verdict_alone": "no control",
    "verdict_by_number": "its accuracy as control",
    "verdict_with_twin": "control and BP twin",
}
"""What a network is audited with, by the field of an outcome."""


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
    """Every difference between the truth and the audit, the serious ones first."""
    differences = []
    for case, outcome in judged:
        for what, serious in _differences(case, outcome):
            difference = Disagreement(case.name, outcome.mix, what, in_a_line(outcome), serious)
            differences.append(difference)
    for name, what, serious in _flips(judged):
        differences.append(Disagreement(name, "sizes", what, "", serious))
    return sorted(differences, key=lambda difference: not difference.serious)


def _differences(case: Case, outcome: Outcome) -> Iterator[tuple[str, bool]]:
    truth = case.truth
    if word(outcome.verdict) == "error":
        yield outcome.verdict, True
        return
    for key in truth.fires:
        if key not in outcome.fired and outcome.mix not in map(str, SIZES):
            passes = word(outcome.verdict) != "walk-back" and key in outcome.passed
            yield f"({key}) must fire and does not", passes
    for key in truth.silent:
        if key in outcome.fired:
            yield f"({key}) must not fire and does", True
    for key in EXPECTED.get(truth.kind, ""):
        if key in outcome.fired:
            yield f"({key}) fires on a network that was trained as a whole", False
    for way, name in WAYS.items():
        verdict = getattr(outcome, way)
        if truth.kind in HOLLOW and word(verdict) == "trustworthy":
            yield f"called trustworthy with {name}, and broken as a whole", True
        if truth.kind == "healthy" and word(verdict) not in ("trustworthy", ""):
            yield f"with {name}: {verdict}; next: {outcome.next}", False
    idle = outcome.numbers.get("idle", [])
    if truth.idle and outcome.verdict == "trustworthy" and set(truth.idle) - set(idle):
        unnamed = f"blocks {_listed(truth.idle)} learnt nothing; named: {_listed(idle) or 'none'}"
        yield unnamed, True
    is_questioned = truth.questions in outcome.text or "control rejected" in outcome.text
    if truth.questions and not is_questioned:
        what = f"nothing is said of a control that should be questioned ({truth.questions})"
        yield what, outcome.mix != "mostly one"  # a dozen images of a class do not tell it


def _by_size(judged: Judged) -> dict[str, dict[int, tuple[Case, Outcome]]]:
    """The outcomes of each case on its smaller test sets and on the whole one, by their size."""
    sized: dict[str, dict[int, tuple[Case, Outcome]]] = {}
    for case, outcome in judged:
        size = int(outcome.mix) if outcome.mix.isdigit() else 0
        if outcome.mix == "balanced":
            size = 10_000  # or all that the task has
        if size:
            sized.setdefault(case.name, {})[size] = (case, outcome)
    return sized


def _flips(judged: Judged) -> Iterator[tuple[str, str, bool]]:
    """What passes on one size of the test set and fires on another, with whether that must not be.

    A linear readout rises with the images that it is fitted to, so (g) may fire on more of them; a verdict may not turn.
    """
    for name, by_size in _by_size(judged).items():
        trusted = [size for size, (_, o) in by_size.items() if o.verdict_alone == "trustworthy"]
        walked = [size for size, (_, o) in by_size.items() if word(o.verdict_alone) == "walk-back"]
        is_labelled = all(case.truth.kind not in UNLABELLED for case, _ in by_size.values())
        if trusted and walked:
            what = f"trustworthy on {_listed(trusted)}, walked back on {_listed(walked)}"
            yield name, what, is_labelled
        for diagnostic in DIAGNOSTICS:
            passing = [size for size, (_, o) in by_size.items() if diagnostic.key in o.passed]
            firing = [size for size, (_, o) in by_size.items() if diagnostic.key in o.fired]
            if passing and firing:
                what = f"({diagnostic.key}) passes on {_listed(passing)} and fires on {_listed(firing)}"
                yield name, what, is_labelled and diagnostic.key != "g"


def confusion(judged: Judged) -> list[str]:
    """One row a diagnostic: what must fire, what must not, and what is expected not to, against what did."""
    lines = [
        "| diagnostic | must fire: fires | is silent | must not: is silent | fires |"
        " expected to pass: passes | fires |",
        "| --- " * 7 + "|",
    ]
    for diagnostic in DIAGNOSTICS:
        key = diagnostic.key
        counts: Counter[tuple[str, bool]] = Counter()
        for case, outcome in judged:
            if key in outcome.measured:
                fires = key in outcome.fired
                counts["must", fires] += key in case.truth.fires
                counts["must not", fires] += key in case.truth.silent
                counts["expected", fires] += key in EXPECTED.get(case.truth.kind, "")
        cells = [counts["must", True], counts["must", False]]
        for column in ("must not", "expected"):
            cells += [counts[column, False], counts[column, True]]
        lines.append(f"| ({key}) `{diagnostic.name}` | {' | '.join(map(str, cells))} |")
    return lines


def verdicts(judged: Judged) -> list[str]:
    """How often each verdict is given, for each kind of network and each way to audit it."""
    lines = [f"| networks | audited with | {' | '.join(VERDICTS)} |", "| --- " * 6 + "|"]
    for kind in KINDS:
        outcomes = [outcome for case, outcome in judged if case.truth.kind == kind]
        for way, name in WAYS.items():
            words = Counter(word(getattr(outcome, way)) for outcome in outcomes)
            del words[""]
            if words:
                cells = " | ".join(str(words[verdict]) for verdict in VERDICTS)
                lines.append(f"| {kind} ({words.total()}) | {name} | {cells} |")
    return lines


def sizes(judged: Judged) -> list[str]:
    """How often each verdict is given on the first images of the test split, without a control."""
    by_size = _by_size(judged)
    columns = [*SIZES, 10_000]
    lines = [
        f"| networks, no control | {' | '.join(f'{size:,}' for size in columns)} |",
        "| --- " * (len(columns) + 1) + "|",
    ]
    for kind in KINDS:
        cells = []
        for size in columns:
            words = Counter(
                word(sized[size][1].verdict_alone)
                for sized in by_size.values()
                if size in sized and sized[size][0].truth.kind == kind
            )
            cells.append(" / ".join(str(words[verdict]) for verdict in VERDICTS[:3]))
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return lines


def margins(judged: Judged) -> list[str]:
    """For each threshold the nearest number on either side of it, and whose it is."""
    thresholds = DiagnosticThresholds()
    lines = [
        "| number | threshold | nearest that must not fire | nearest that must fire |",
        "| --- " * 4 + "|",
    ]
    for key, name, threshold, sign in (
        ("a", "growth", thresholds.h_norm_explosion_ratio, 1),
        ("b", "gradient", thresholds.g_norm_floor, -1),
        ("b", "per unit error", thresholds.g_norm_floor, -1),
        ("c", "drift", thresholds.stability_drift_ceiling, 1),
        ("c", "invariance", thresholds.sample_invariance_minimum, 1),
        ("d", "margin", thresholds.frozen_acc_margin_pp, -1),
        ("e", "utility", thresholds.depth_utility_minimum_pp, -1),
    ):
        passing, firing = [], []
        for case, outcome in judged:
            value = outcome.numbers.get(name)
            if value is None or not isfinite(value):
                continue
            owner = f"{case.name}, {outcome.mix}"
            if key in case.truth.silent + EXPECTED.get(case.truth.kind, ""):
                passing.append((sign * value, owner))
            if key in case.truth.fires:
                firing.append((sign * value, owner))
        nearest = [max(passing, key=itemgetter(0), default=None)]
        nearest.append(min(firing, key=itemgetter(0), default=None))
        cells = []
        for number in nearest:
            cells.append("none" if number is None else f"{sign * number[0]:.3g} ({number[1]})")
        lines.append(f"| ({key}) {name} | {threshold:g} | {' | '.join(cells)} |")
    return lines


def in_a_line(outcome: Outcome) -> str:
    """The numbers of an outcome in one line."""
    parts: list[str] = []
    for name, value in outcome.numbers.items():
        if isinstance(value, list | tuple):
            parts.append(f"{name} {' '.join(f'{number:.3g}' for number in value)}")
        elif value is not None:
            parts.append(f"{name} {value:.3g}")
    return ", ".join(parts)


def _listed(numbers: Iterable[Any]) -> str:
    return ", ".join(map(str, numbers))
