"""Controls: each audited network gets the frozen-random control closest to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders import report

from pytest_fadiag.judge.control import Control, ControlKind, Severity
from pytest_fadiag.judge.errors import AuditError
from pytest_fadiag.judge.records import Score
from pytest_fadiag.load.controls import ControlFile, Controls, method_and_kind, parse_controls

Write = Callable[..., Path]


def chosen(values: list[Any], method: str, seed: int | None = 42) -> Any:
    """The name of the file, or the accuracy, that is chosen; ``None`` where none fits."""
    controls = parse_controls(list(map(str, values)))
    try:
        choice = controls.choose_for(method, seed)
    except AuditError as error:
        assert "no control for" in str(error)
        return None
    return choice.score.value if isinstance(choice, Control) else str(choice.path)


# --- which one is taken -----------------------------------------------------------------------

FILES = ["frozen_bp_s42.pt", "frozen_dfa_s123.pt", "frozen_dfa_s42.pt"]


@pytest.mark.parametrize(
    ("values", "method", "seed", "expected"),
    [
        (["0.349"], "dfa", 42, 0.349),
        (["0.349", "dfa=0.31", " ep = 0.36"], "ep", 42, 0.36),
        (["0.349", "dfa=0.31"], "bp", None, 0.349),
        (["dfa=-0.2"], "dfa", 42, -0.2),
        (["0.76", "0.760", "dfa=0.1", "dfa=0.1"], "dfa", 42, 0.1),
        (["dfa=0.31", "fa=0.4"], "dfa-lam", 42, 0.31),
        (["dfa=0.31", "dfa_lam=0.32"], "dfa_lam", 42, 0.32),
        (["fa=0.4"], "fast", 42, None),
        (["dfa-lam=0.4"], "dfa", 42, None),
        (["DFA=0.76"], "dfa", 42, None),
        (FILES, "dfa", 123, "frozen_dfa_s123.pt"),
        (FILES, "dfa-lam", 42, "frozen_dfa_s42.pt"),
        (FILES, "bp", 7, "frozen_bp_s42.pt"),
        (FILES, "ep", 42, None),
        (
            ["frozen_dfa_s42.pt", "frozen_dfa-lam_s42.pt"],
            "dfa-lam-big",
            42,
            "frozen_dfa-lam_s42.pt",
        ),
        (["frozen_s42.pt", "frozen_s1.pt"], "ep", 42, "frozen_s42.pt"),
        (["frozen_dfa_s42.pt", "frozen_dfa_s1.pt"], "ep", 1, "frozen_dfa_s1.pt"),
        (["frozen_dfa_s1.pt", "frozen_dfa.pt"], "dfa", 42, "frozen_dfa.pt"),
        (["shallow_dfa_s42.pt", "frozen_dfa_s42.pt"], "dfa", 42, "frozen_dfa_s42.pt"),
        (["shallow_dfa_s42.pt", "frozen_dfa_s1.pt"], "dfa", 42, "shallow_dfa_s42.pt"),
        (["0.5", "dfa=0.4", "frozen_dfa_s42.pt"], "dfa", 42, "frozen_dfa_s42.pt"),
        (["dfa=0.4", "frozen_bp_s42.pt", "frozen_ep_s42.pt"], "dfa", 42, 0.4),
        (["a/frozen_dfa_s1.pt", "a/frozen_dfa_s1.pt"], "dfa", 1, "a/frozen_dfa_s1.pt"),
    ],
)
def test_the_closest_control_is_taken(
    values: list[str], method: str, seed: int | None, expected: Any
) -> None:
    assert chosen(values, method, seed) == expected


def test_none_supplied_is_none_and_supplied_that_fit_nothing_say_whose_they_are() -> None:
    assert Controls().choose_for("dfa", 42) is None and not Controls()
    controls = parse_controls(["frozen_ep_s1.pt", "bp=0.3", "frozen_fa_s1.pt"])
    with pytest.raises(AuditError, match="no control for dfa: those supplied are for bp, ep, fa"):
        controls.choose_for("dfa", 42)


@pytest.mark.parametrize(
    "values",
    [["0.76", "0.1"], ["dfa=0.76", "dfa=0.1"], ["a/frozen_dfa_s42.pt", "b/frozen_dfa_s42.pt"]],
)
def test_two_that_fit_equally_are_an_error_that_names_both(values: list[str]) -> None:
    one, other = (value.rpartition("=")[2] for value in values)
    with pytest.raises(
        AuditError, match=f"ambiguous control for dfa: {one} and {other} both match"
    ):
        parse_controls(values).choose_for("dfa", 42)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("frozen_dfa", ("dfa", ControlKind.FROZEN)),
        ("dfa-frozen", ("dfa", ControlKind.FROZEN)),
        ("shallow_dfa-lam", ("dfa-lam", ControlKind.SHALLOW)),
        ("frozen", (None, ControlKind.FROZEN)),
        ("unfrozen", ("unfrozen", ControlKind.UNMARKED)),
    ],
)
def test_a_name_tells_method_and_kind(name: str, expected: tuple[Any, ...]) -> None:
    assert method_and_kind(name) == expected


@pytest.mark.parametrize("value", ["34.9", "-inf", "dfa=34.9", "nan"])
def test_an_accuracy_outside_its_range_is_an_error(value: str) -> None:
    with pytest.raises(AuditError, match=r"in \[0, 1\]"):
        parse_controls([value])


def test_a_glob_is_expanded_by_the_caller() -> None:
    files = [Path("runs/frozen_dfa_s1.pt"), Path("runs/model.safetensors.index.json")]
    controls = parse_controls(["runs/frozen_*.pt", "0.3"], lambda pattern: files)
    assert controls.paths == files


# --- what a measured control is called --------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "config", "method", "seed", "kind"),
    [
        ("frozen_dfa_s7.pt", {}, "dfa", 7, "frozen"),
        ("base_s7.pt", {}, "base", 7, "unmarked"),
        ("base_s7.pt", {"method": "dfa", "seed": 3, "frozen": True}, "dfa", 3, "frozen"),
        ("base.pt", {"method": "dfa", "shallow": True}, "dfa", None, "shallow"),
        ("base.pt", {"method": "dfa-frozen"}, "dfa", None, "frozen"),
        ("shallow_dfa.pt", {"frozen": False}, "dfa", None, "shallow"),
    ],
)
def test_a_config_tells_more_than_a_name(
    name: str, config: dict[str, Any], method: str, seed: int | None, kind: str
) -> None:
    (entry,) = parse_controls([name])
    control = entry.measured(Score(0.3), config)
    assert (control.method, control.seed, control.kind.value) == (method, seed, kind)
    assert (control.source, control.doubts, control.config) == (name, (), config)


def test_a_trained_or_untrained_network_is_not_a_control() -> None:
    entry = ControlFile("dfa", path=Path("frozen_dfa.pt"))
    (trained,) = entry.measured(Score(0.3), {"frozen": False}).doubts
    assert trained.severity is Severity.WARNING and "frozen: False" in trained.text
    (untrained,) = entry.measured(Score(0.3), {}, untrained=True).doubts
    assert untrained.severity is Severity.INVALID
    (unmarked,) = parse_controls(["dfa.pt"])
    (invalid,) = unmarked.measured(Score(0.3), {"frozen": False}).doubts
    assert invalid.severity is Severity.INVALID


# --- files of controls ------------------------------------------------------------------------


def from_file(path: Path, method: str = "dfa", seed: int | None = 42) -> Control:
    choice = parse_controls([str(path)]).choose_for(method, seed)
    assert isinstance(choice, Control)
    return choice


@pytest.mark.parametrize(
    ("content", "name", "expected"),
    [
        ([{"epoch": 3, "acc_eval": 0.3}], "frozen_dfa_s42.jsonl", ("dfa", 42, "frozen")),
        (
            {"config": {"method": "dfa", "seed": 7, "shallow": True}, "log": [{"epoch": 1}]}
            | {"final_test_acc": 0.3},
            "x.json",
            ("dfa", 7, "shallow"),
        ),
        ({"frozen_ep_log": [{"epoch": 3, "acc_eval": 0.3}]}, "a_s5.json", ("ep", 5, "frozen")),
        ("epoch,acc\n3,0.3\n", "frozen_s1.csv", (None, 1, "frozen")),
        ([{"epoch": 3, "acc_eval": 0.3}], "baseline.jsonl", ("baseline", None, "unmarked")),
        (
            {"config": {"blocks": 0}, "log": [{"epoch": 1, "acc_eval": 0.3}]},
            "shallow_dfa_s1.json",
            ("dfa", 1, "shallow"),
        ),
    ],
)
def test_a_log_is_a_control(
    content: Any, name: str, expected: tuple[Any, ...], write: Write
) -> None:
    path = write(content, name)
    control = from_file(path)
    assert (control.method, control.seed, control.kind.value) == expected
    assert (control.score.value, control.source) == (0.3, name)
    assert parse_controls([str(path)]).paths == [path]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([0.3], "line 1: "),
        ("{", "line 1: Expecting"),
        ({"dfa": 0.31}, "expected one log"),
        (report(method_name="dfa").to_dict(), "training log: log: Expected `array`, got `null`"),
        ({"rows": []}, "expected one log in the file, found 'rows'"),
        ([{"epoch": 1, "h_L_norm": 2.0}], "the log has no accuracy"),
    ],
)
def test_a_file_that_holds_no_controls_says_why(content: Any, said: str, write: Write) -> None:
    name = "c.jsonl" if isinstance(content, list) else "c.json"
    with pytest.raises(AuditError, match=said):
        parse_controls([str(write(content, name))])
