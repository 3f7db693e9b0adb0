"""A slice of the labelled networks (``make truth``): the audit says of each what was written down before it was measured."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.truth.auditing import Outcome, audited
from benchmarks.truth.catalogue import Case
from benchmarks.truth.data import TEST
from benchmarks.truth.files import is_made, make
from benchmarks.truth.slice import cases, networks
from benchmarks.truth.tables import disagreements, shown

CASES = {case.name: case for case in cases()}
SOUND = [name for name, case in CASES.items() if case.truth.kind != "hollow"]
Audit = Callable[[Case, str], Outcome]


@pytest.fixture(scope="session")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    """Trains what a case needs, once, and says what the audit says of it."""
    folder, known = tmp_path_factory.mktemp("truth"), networks()

    def made(name: str) -> None:
        if known[name].parent:
            made(known[name].parent)
        if not is_made(known[name], folder):
            make(known[name], folder, TEST)

    def outcome(case: Case, mix: str) -> Outcome:
        for name in filter(None, (case.network, case.control)):
            made(name)
        return audited(case, mix, folder, TEST)

    return outcome


@pytest.mark.parametrize("name", CASES)
def test_a_network_is_judged_as_it_was_made(name: str, audit: Audit) -> None:
    case = CASES[name]
    outcome = audit(case, "balanced")
    assert not [one.what for one in disagreements([(case, outcome)])], f"{outcome.verdict}\n{shown(outcome)}"
    if case.truth.verdict == "trustworthy":
        assert outcome.verdict == "trustworthy"
    if case.truth.verdict == "not trustworthy":
        assert outcome.said == "walk-back"


@pytest.mark.parametrize("name", SOUND)
def test_a_class_nine_times_as_frequent_makes_no_sound_network_fire(name: str, audit: Audit) -> None:
    outcome = audit(CASES[name], "skewed")
    assert not set(outcome.fired) & set("abc"), f"{outcome.verdict}\n{shown(outcome)}"
    assert set("abc") <= set(outcome.measured)
