"""The diagnostics that a run knows: their order, their names, and which of another package are refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from builders import BP, report

from pytest_fadiag import AuditError, Diagnostic, DiagnosticReport, Finding, Status
from pytest_fadiag.judge.diagnostics import DIAGNOSTICS, Diagnostics, unasked
from pytest_fadiag.judge.diagnostics.base import label
from pytest_fadiag.judge.observers import ObserverSpec
from pytest_fadiag.judge.thresholds import DiagnosticThresholds
from pytest_fadiag.judge.verdict import left_open


class Same(Diagnostic):
    """A diagnostic that another package could have."""

    name, question, threshold, default = "my-own", "is it?", "my_own_minimum", 1.0
    observers, walk_back = (), "it is not"

    def judge(self, report: DiagnosticReport) -> Finding:
        return self.finding(report, Status.PASS, 1.0, "1 >= 1")

    def lines(self, report: DiagnosticReport) -> list[str]:
        return ["1"]


def derived(**attributes: object) -> Diagnostic:
    made: Callable[[], Diagnostic] = type("Derived", (Same,), {"name": "my-other", "threshold": "my_other", **attributes})
    return made()


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ([Same(), Same()], "the diagnostic 'my-own' is given twice"),
        ([derived(name="frozen-margin")], "the diagnostic 'frozen-margin' is given twice"),
        ([derived(name="mine")], "needs a name of lower-case words joined by hyphens"),
        ([derived(key="e")], "letters belong to the built-in diagnostics"),
        ([Same(), derived(threshold="my_own_minimum")], "the threshold 'my_own_minimum' is given twice"),
        ([derived(default=None)], "has no default for its threshold"),
        ([derived(columns=DIAGNOSTICS[0].columns)], "the column '‖h_L‖' is given twice"),
        ([3], "3 is no diagnostic"),
    ],
)
def test_what_cannot_be_told_apart_is_refused(others: list[Diagnostic], said: str) -> None:
    with pytest.raises(AuditError, match=said):
        DIAGNOSTICS.with_others(others)


def keys(diagnostics: tuple[Diagnostic, ...]) -> list[str]:
    return [diagnostic.key for diagnostic in diagnostics]


def test_letters_come_first_and_names_behind_them_whoever_was_added_first() -> None:
    both = Diagnostics([derived(), Same(), *reversed(DIAGNOSTICS), derived(name="a-first", threshold="first")])
    assert keys(both) == ["a", "b", "c", "d", "e", "f", "a-first", "my-other", "my-own"]
    assert keys(DIAGNOSTICS.with_others(iter([Same()]))) == [*"abcdef", "my-own"]
    assert DIAGNOSTICS.with_others([]) is DIAGNOSTICS
    assert keys(both.select("all")) == keys(both) and keys(both.select("my-own,b")) == ["b", "my-own"]
    assert both.listed.endswith("f (credit-alignment), a-first, my-other, my-own")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("axz", "diagnostics 'axz': unknown key 'x', 'z'; known: a .residual-growth., b"),
        (["a", "no-such"], "diagnostics 'a,no-such': unknown key 'no-such'; known"),
        ("", "diagnostics '': no key given; known"),
    ],
)
def test_keys_that_nobody_has_are_named(asked: str | list[str], said: str) -> None:
    with pytest.raises(AuditError, match=said):
        DIAGNOSTICS.select(asked)


def test_what_runs_where_nobody_says_which() -> None:
    known = DIAGNOSTICS.with_others([Same(), derived(by_default=False)])
    assert keys(unasked(known, control=True, credit=False)) == [*"abcd", "my-own"]
    assert keys(unasked(known, control=False, credit=False)) == [*"abcde", "my-own"]
    assert keys(unasked(known, control=True, credit=True)) == [*"abcdf", "my-own"]
    assert keys(known.by_default) == [*"abcd", "my-own"]


def test_one_observer_may_serve_several_and_two_of_one_name_may_not() -> None:
    one, two = (ObserverSpec[object]("seen", version, "lab.rules:Seen") for version in (1, 2))
    known = DIAGNOSTICS.with_others([derived(observers=(one,)), derived(name="a-third", threshold="third", observers=(one,))])
    assert known.observers["seen"] is one and known.observers["states"] in known[0].observers
    assert known.observers["states"].is_own and not one.is_own
    with pytest.raises(AuditError, match="the observer 'seen' is given twice"):
        DIAGNOSTICS.with_others([derived(observers=(one,)), derived(name="a-third", threshold="third", observers=(two,))])


def test_one_of_another_package_is_known_by_its_name_and_judged_by_its_own_threshold() -> None:
    assert (Same.key, Same().label, DIAGNOSTICS[0].label) == ("my-own", "my-own", "(a) residual-growth")
    assert (label("a", "residual-growth"), label("my-own", "my-own")) == ("(a) residual-growth", "my-own")
    known = DIAGNOSTICS.with_others([Same()])
    assert known.thresholds().others == {"my_own_minimum": 1.0}
    judged = report(diagnostics=(*BP.diagnostics, "my-own"), available=known, thresholds=known.thresholds())
    assert (judged.finding("my-own").threshold, judged.finding("my-own").label) == (1.0, "my-own")
    assert judged.finding("a").threshold == 50.0 and judged.finding("a").label == "(a) residual-growth"
    stricter = report(judged, thresholds=known.thresholds().replace(my_own_minimum=2.0))
    assert stricter.finding("my-own").threshold == 2.0
    assert report(judged, thresholds=DiagnosticThresholds()).finding("my-own").threshold == 1.0
    assert Same().values(judged) == ["1"]
    assert derived(threshold="g_norm_floor", default=None).limit(judged) == 1e-7


def test_what_rests_on_the_gradient_is_known() -> None:
    assert [diagnostic.key for diagnostic in DIAGNOSTICS if diagnostic.rests_on_reference] == ["b", "c", "f"]


def test_a_class_may_have_a_key_of_its_own_or_no_name_yet() -> None:
    assert derived(key="e").key == "e" and derived(name="a-third").key == "a-third"
    assert not hasattr(type("Half", (Diagnostic,), {}), "key")


@pytest.mark.parametrize("state", ["", "likely", "not measured", "error"])
def test_one_of_another_package_leaves_a_verdict_open_where_it_was_asked_for(state: str) -> None:
    states = {**dict.fromkeys("abcd", ""), "my-own": state}
    assert left_open(DIAGNOSTICS.with_others([Same()]), states, "not asked for") == ({"my-own": state} if state else {})
