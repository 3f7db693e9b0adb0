"""Controls: each audited network gets the frozen-random control closest to it, and the report says which one that is."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders import report

from pytest_fadiag import Accuracy, AuditError, Control
from pytest_fadiag.load.controls import ControlFile, Controls, parse_controls

Write = Callable[[Any], str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write JSON; gives the path as the command line does."""

    def written(content: Any, name: str = "controls.json") -> str:
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
        return str(path)

    return written


DFA = report(method_name="dfa", seed=42, headline_acc=0.6, frozen_baseline_acc=None)


def chosen_file(names: list[str], method: str, seed: int | None) -> str | None:
    choice = parse_controls(names).choose(method, seed)
    assert choice is None or isinstance(choice, ControlFile)
    return None if choice is None else choice.path.name


def chosen(controls: Controls, method: str, seed: int | None = 42) -> Control:
    choice = controls.choose(method, seed)
    assert isinstance(choice, Control)
    return choice


# --- numbers ---------------------------------------------------------------------------------------------------------


def test_a_number_is_the_control_of_every_network() -> None:
    for controls in (Controls.of(0.349), parse_controls(["0.349"])):
        assert chosen(controls, "dfa").accuracy == Accuracy(0.349)
        assert chosen(controls, "bp", None).accuracy.value == 0.349
        assert chosen(controls, "bp").describe("bp", 42) == "given as a number"


def test_numbers_by_method_come_before_the_number() -> None:
    controls = parse_controls(["0.349", "dfa=0.31", " ep = 0.36"])
    assert chosen(controls, "dfa").accuracy.value == 0.31
    assert chosen(controls, "ep").accuracy.value == 0.36
    assert chosen(controls, "bp").accuracy.value == 0.349


@pytest.mark.parametrize("variant", ["dfa", "dfa-lam", "dfa_lam", "dfa+lam"])
def test_a_variant_has_the_control_of_the_method_it_varies(variant: str) -> None:
    assert chosen(Controls.of({"dfa": 0.31, "fa": 0.4}), variant).accuracy.value == 0.31
    assert chosen(Controls.of({"dfa": 0.31, variant: 0.32}), variant).accuracy.value == 0.32


def test_a_name_that_only_begins_alike_is_no_variant() -> None:
    assert Controls.of({"fa": 0.4}).choose("fast", 42) is None
    assert Controls.of({"dfa-lam": 0.4}).choose("dfa", 42) is None


def test_no_control_is_none() -> None:
    assert not Controls.of(None)
    assert Controls.of(None).choose("dfa", 42) is None
    assert Controls.of(None).choose_for("dfa", 42) is None
    assert Controls.of(0.0)


@pytest.mark.parametrize("values", [["DFA=0.76"], ["dfalam=0.76"], ["frozen_ep_s1.pt", "bp=0.3", "frozen_fa_s1.pt"]])
def test_controls_of_which_none_fits_are_an_error_that_names_whose_they_are(values: list[str]) -> None:
    controls = parse_controls(values)
    whose = "bp, ep, fa" if len(values) > 1 else values[0].partition("=")[0]
    with pytest.raises(AuditError, match=f"none of the controls supplied is for dfa-lam: they are for {whose}; name its own"):
        controls.choose_for("dfa-lam", 42)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["0.76", "0.1"], "two controls for all networks, 0.76 and 0.1, and a network has one: say whose each is"),
        (["dfa=0.76", "dfa=0.1"], "two controls for dfa, 0.76 and 0.1"),
    ],
)
def test_two_numbers_for_one_network_are_an_error(values: list[str], message: str) -> None:
    with pytest.raises(AuditError, match=message):
        parse_controls(values)


def test_a_number_that_is_said_twice_is_said_once() -> None:
    assert parse_controls(["0.76", "0.760", "dfa=0.1", "dfa=0.1"]) == Controls(0.76, {"dfa": 0.1}, [], [])


def test_a_number_and_a_file_of_one_method_are_an_error(write: Write) -> None:
    with pytest.raises(AuditError, match=r"two controls for dfa, 0\.4 and 0\.31"):
        parse_controls(["dfa=0.4", write({"dfa": 0.31})])


def test_two_files_of_one_method_and_seed_are_an_error_that_names_both() -> None:
    controls = parse_controls(["a/frozen_dfa_s42.pt", "b/frozen_dfa_s42.pt", "b/frozen_dfa_s1.pt"])
    with pytest.raises(
        AuditError, match=r"two controls fit dfa, .*a/frozen_dfa_s42\.pt and b/frozen_dfa_s42\.pt, both of dfa, "
    ):
        controls.choose("dfa", 42)
    assert chosen_file(["a/frozen_dfa_s42.pt", "b/frozen_dfa_s42.pt", "b/frozen_dfa_s1.pt"], "dfa", 1) == "frozen_dfa_s1.pt"
    assert chosen_file(["frozen_dfa_s42.pt", "frozen_dfa_s42.pt"], "dfa", 42) == "frozen_dfa_s42.pt"


def test_random_blocks_come_before_none() -> None:
    assert chosen_file(["frozen-shallow/shallow_dfa_s42.pt", "z/frozen_dfa_s42.pt"], "dfa", 42) == "frozen_dfa_s42.pt"
    assert chosen_file(["shallow_dfa_s42.pt", "frozen_dfa_s1.pt"], "dfa", 42) == "shallow_dfa_s42.pt"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (34.9, "control accuracy is 34.9.*did you pass a percentage"),
        (-0.1, r"must be a number in \[0, 1\]"),
        ({"dfa": 34.9}, "control of dfa is 34.9.*percentage"),
        ({"dfa": "high"}, "control of dfa must be a number"),
        ({}, "no control in an empty mapping"),
        ("34.9", "control '34.9' is 34.9.*percentage"),
        ("dfa=34.9", "control 'dfa=34.9' is 34.9.*percentage"),
        ("nan", r"must be a number in \[0, 1\], not nan"),
    ],
)
def test_an_accuracy_that_is_none_is_an_error(value: Any, message: str) -> None:
    with pytest.raises(AuditError, match=message):
        Controls.of(value)


# --- checkpoints -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "method", "seed", "kind"),
    [
        ("frozen_dfa_s42.pt", "dfa", 42, "frozen"),
        ("dfa-frozen_s42.pt", "dfa", 42, "frozen"),
        ("dfa_frozen_s7.pt", "dfa", 7, "frozen"),
        ("shallow_dfa-lam_s1.pt", "dfa-lam", 1, "shallow"),
        ("frozen_s42.pt", None, 42, "frozen"),
        ("frozen.pt", None, None, "frozen"),
        ("baseline.pt", "baseline", None, "unmarked"),
        ("unfrozen_s1.pt", "unfrozen", 1, "unmarked"),
    ],
)
def test_the_name_of_a_control_tells_method_seed_and_kind(name: str, method: str, seed: int, kind: str) -> None:
    file = ControlFile.named(Path("runs") / name)
    assert (file.method, file.seed, file.kind) == (method, seed, kind)


@pytest.mark.parametrize(
    ("method", "seed", "expected"),
    [
        ("dfa", 42, "frozen_dfa_s42.pt"),
        ("dfa", 123, "frozen_dfa_s123.pt"),
        ("bp", 42, "frozen_bp_s42.pt"),
        ("dfa-lam", 123, "frozen_dfa_s123.pt"),
        ("bp", 7, "frozen_bp_s42.pt"),
        ("ep", 42, None),
    ],
)
def test_control_checkpoints_are_matched_by_method_and_seed(method: str, seed: int, expected: str | None) -> None:
    files = ["frozen_bp_s42.pt", "frozen_dfa_s123.pt", "frozen_dfa_s42.pt"]
    assert chosen_file(files, method, seed) == expected


def test_the_longest_method_that_fits_is_taken() -> None:
    files = ["frozen_dfa_s42.pt", "frozen_dfa-lam_s42.pt"]
    assert chosen_file(files, "dfa-lam-big", 42) == "frozen_dfa-lam_s42.pt"
    assert chosen_file(files, "dfa", 42) == "frozen_dfa_s42.pt"


def test_a_control_of_no_method_serves_all_and_a_control_of_the_only_method_too() -> None:
    assert chosen_file(["frozen_s42.pt", "frozen_s1.pt"], "ep", 42) == "frozen_s42.pt"
    assert chosen_file(["frozen_dfa_s42.pt", "frozen_dfa_s1.pt"], "ep", 1) == "frozen_dfa_s1.pt"


def test_a_control_without_a_seed_is_taken_before_one_of_another_seed() -> None:
    assert chosen_file(["frozen_dfa_s1.pt", "frozen_dfa.pt"], "dfa", 42) == "frozen_dfa.pt"
    assert chosen_file(["frozen_dfa.pt", "frozen_dfa_s42.pt"], "dfa", 42) == "frozen_dfa_s42.pt"


def test_a_checkpoint_comes_before_a_number() -> None:
    assert chosen_file(["0.5", "dfa=0.4", "frozen_dfa_s42.pt"], "dfa", 42) == "frozen_dfa_s42.pt"
    assert chosen(parse_controls(["dfa=0.4", "frozen_bp_s42.pt", "frozen_ep_s42.pt"]), "dfa").accuracy.value == 0.4


def test_a_glob_is_expanded_by_whoever_knows_the_folder() -> None:
    controls = parse_controls(
        ["runs/frozen_*.pt"], lambda pattern: [Path("runs/frozen_dfa_s1.pt"), Path("runs/frozen_dfa_s2.pt")]
    )
    assert [file.path.name for file in controls.files] == ["frozen_dfa_s1.pt", "frozen_dfa_s2.pt"]


# --- earlier reports -------------------------------------------------------------------------------------------------


def test_a_mapping_in_a_file(write: Write) -> None:
    controls = parse_controls([write({"dfa": 0.31, "bp": 0.34})])
    assert chosen(controls, "dfa-lam").accuracy.value == 0.31


def test_an_earlier_report_gives_its_own_control_image_by_image(write: Write) -> None:
    control = Control(Accuracy.of([True, False, True]), "frozen_dfa_s42.pt", "dfa", 42)
    earlier = report(DFA, control=control, frozen_baseline_acc=control.accuracy.value)
    assert chosen(parse_controls([write(earlier.to_dict())]), "dfa") == control


def test_an_earlier_report_on_a_control_network_gives_its_accuracy(write: Write) -> None:
    path = write(report(DFA, method_name="frozen_dfa", accuracy=Accuracy(0.6, 1000)).to_dict())
    control = chosen(parse_controls([path]), "dfa")
    assert (control.accuracy, control.method, control.seed, control.kind) == (Accuracy(0.6, 1000), "dfa", 42, "frozen")
    assert control.describe("dfa", 42) == "earlier report controls.json, seed 42"


@pytest.mark.parametrize(
    "changes",
    [
        {"control": Control(Accuracy(0.5, 1000), "frozen_dfa_s42.pt", "dfa", 42), "frozen_baseline_acc": 0.5},
        {"frozen_baseline_acc": 0.5},
        {"method_name": "frozen_dfa"},
    ],
    ids=["its control", "a number", "of a control"],
)
def test_a_control_of_a_report_on_other_data_is_none(changes: dict[str, Any], write: Write) -> None:
    path = write(report(DFA, environment={"data_sha256": "a" * 64}, **changes).to_dict())
    control = chosen(parse_controls([path]), "dfa")
    for data, measured in (("a", True), ("b", False)):
        judged = report(DFA, control=control, frozen_baseline_acc=0.5, environment={"data_sha256": data * 64})
        assert judged.finding("d").measured is measured
        assert (
            any("measured on other test data, SHA-256 aaaaaaaaaaaa… there" in text for text in judged.remarks) is not measured
        )
    unknown = report(DFA, control=control, frozen_baseline_acc=0.5, environment={})
    assert unknown.finding("d").measured


def test_a_report_written_by_hand_gives_the_control_that_it_states(write: Write) -> None:
    path = write(report(DFA, frozen_baseline_acc=0.5).to_dict())
    assert chosen(parse_controls([path]), "dfa").accuracy.value == 0.5


@pytest.mark.parametrize("arrange", [lambda reports: dict(enumerate(reports)), list], ids=["by name", "in a list"])
def test_an_audit_gives_a_control_for_each_of_its_networks(arrange: Callable[[list[Any]], Any], write: Write) -> None:
    reports = [
        report(
            DFA,
            method_name=method,
            seed=seed,
            frozen_baseline_acc=acc,
            control=Control(Accuracy(acc), method=method, seed=seed),
        )
        for method, seed, acc in [("dfa", 42, 0.1), ("dfa", 1, 0.2), ("bp", 42, 0.3)]
    ]
    controls = parse_controls([write({"reports": arrange([r.to_dict() for r in reports]), "version": 1})])
    assert [chosen(controls, *who).accuracy.value for who in [("dfa", 42), ("dfa", 1), ("bp", 42)]] == [0.1, 0.2, 0.3]
    assert chosen(controls, "dfa-lam", 1).accuracy.value == 0.2
    assert controls.choose("ep", 42) is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read as JSON"),
        ('{"hol": 0.80, "hol": 0.30}', "controls.json: cannot be read as JSON: the key 'hol' is there twice"),
        ([0.3], "expected an object, found list"),
        ({"dfa": 34.9}, "controls.json: dfa is 34.9.*percentage"),
        ({"dfa": {"acc": 0.3}}, "controls.json: dfa must be a number"),
        ({"reports": {"a": {"method_name": "dfa"}}}, "controls.json: report: Object missing required field `residual_norms`"),
        ({"reports": ["dfa"]}, "controls.json: report: Expected `object`, got `str`"),
        ({"reports": 1}, "controls.json: reports: expected an object or a list, found int"),
        ({}, "in .*controls.json: give an accuracy"),
        ({"reports": {}}, "in .*controls.json: give an accuracy"),
    ],
)
def test_a_file_that_holds_no_controls_is_an_error_that_names_it(content: Any, message: str, write: Write) -> None:
    with pytest.raises(AuditError, match=rf"control .*{message}"):
        parse_controls([write(content)])


def test_a_missing_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(AuditError, match=r"none\.json: cannot be read as JSON: .*No such file"):
        parse_controls([str(tmp_path / "none.json")])


# --- what the report says of it --------------------------------------------------------------------------------------


def test_a_control_at_hand_serves_its_network_and_any_if_it_names_none() -> None:
    anonymous, named = Control(Accuracy(0.3)), Control(Accuracy(0.4), "mine", "dfa", 42)
    assert chosen(Controls.of(anonymous), "ep", 3) is anonymous
    assert chosen(Controls.of(named), "dfa") is named


@pytest.mark.parametrize(
    ("control", "text"),
    [
        (Control(Accuracy(0.3), "frozen_dfa_s42.pt", "dfa", 42), r"\(frozen_dfa_s42.pt, seed 42\)"),
        (Control(Accuracy(0.3), "frozen_bp_s42.pt", "bp", 42), "control of another method: bp, not dfa"),
        (Control(Accuracy(0.3), "shallow_dfa.pt", "dfa", None, "shallow"), r"shallow control 0.3000 \(shallow_dfa.pt\)"),
        (Control(Accuracy(0.3), "base.pt", "dfa", None, "unmarked"), "nothing in its name or config says"),
    ],
)
def test_the_report_says_where_its_control_comes_from(control: Control, text: str) -> None:
    shown = str(report(DFA, control=control, frozen_baseline_acc=0.3))
    line = next(line for line in shown.splitlines() if "control 0.3000" in line)
    assert re.search(text, line)
