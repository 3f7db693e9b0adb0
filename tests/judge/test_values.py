"""The small parts of the judge: how numbers and names are written and read, at their boundaries."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from builders import BP, CREDIT, ENVIRONMENT, audited, report
from msgspec import Meta

from pytest_fadiag import DiagnosticReport
from pytest_fadiag.judge.codec import read, to_plain
from pytest_fadiag.judge.config import plain_config
from pytest_fadiag.judge.control import Control, ControlKind
from pytest_fadiag.judge.credit import Credit
from pytest_fadiag.judge.depth import Depth
from pytest_fadiag.judge.errors import AuditError
from pytest_fadiag.judge.files import write_atomically
from pytest_fadiag.judge.inputs import NormalisedBy, StatedInputs
from pytest_fadiag.judge.keys import Keys, labelled
from pytest_fadiag.judge.limits import read_bytes
from pytest_fadiag.judge.names import as_name, as_text, one_line, printable
from pytest_fadiag.judge.observers import Precision
from pytest_fadiag.judge.records import Accuracy, AuxiliaryStatistics, Measurement, check_accuracy, check_norms
from pytest_fadiag.judge.remarks import on_tensors_aside
from pytest_fadiag.judge.seed_report import TWO_SEEDS, SeedReport
from pytest_fadiag.judge.trajectory import Point, Trajectory
from pytest_fadiag.judge.unite import united
from pytest_fadiag.judge.wire import SeedMarginValues, TrajectoryValues
from pytest_fadiag.judge.wording import beside, cosine, figure, folded, per_site, signed_cosine, site, spans


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (1.0, "1"),
        (0.01, "0.01"),
        (0.0105, "0.0105"),
        (0.0099, "9.9e-03"),
        (999.0, "999"),
        (1000.0, "1.0e+03"),
        (1000.5, "1.0e+03"),
        (-0.5, "-0.5"),
        (-2000.0, "-2.0e+03"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (math.nan, "undefined"),
    ],
)
def test_a_figure(value: float, text: str) -> None:
    assert figure(value) == text


def test_numbers_as_they_are_written() -> None:
    assert (cosine(0.06), cosine(-0.0584), cosine(math.nan)) == ("0.060", "-0.058", "undefined")
    assert (signed_cosine(0.4371), signed_cosine(-1.0), signed_cosine(math.nan)) == ("+0.437", "-1.000", "undefined")
    assert (beside(figure, 50.0, 50.0), beside(figure, 50.0001, 50.0), beside(figure, 51.0, 50.0)) == ("50", "50.0001", "51")
    assert beside(figure, math.inf, 50.0) == "inf"
    assert beside(figure, 50.00000000000001, 50.0) == "50.00000000000001"
    assert [site(index, (1.0, 2.0), depth_known=False) for index in (0, 1)] == ["0", "L"] and site(1, (1.0, 2.0)) == "1"
    assert per_site("h", (None, None)) == "none logged" and per_site("h", (None, 2.0), depth_known=False) == "h_L 2"
    assert [spans(numbers) for numbers in ([], [3], [0, 2, 3, 4], [1, 2, 4, 5])] == ["", "3", "0, 2–4", "1–2, 4–5"]


def test_lines_are_folded_at_118_characters_with_two_more_of_indent() -> None:
    assert folded("  ", ["a" * 115 + " b"]) == ["  " + "a" * 115, "    b"]
    assert folded("  ", ["a" * 114 + " b"]) == ["  " + "a" * 114 + " b"]
    assert folded("  note: ", ["a" * 109 + " b"]) == ["  note: " + "a" * 109, "    b"]
    whole = "a" * 70 + "-" + "b" * 70
    assert folded("", [whole]) == [whole] and folded("  note: ", [""]) == ["  note:"]


def test_keys_are_letters_then_names() -> None:
    assert Keys.of(["my-own", "d", "a-first", "a", "d"]) == "ad,a-first,my-own"
    assert list(Keys("ad,a-first,my-own")) == ["a", "d", "a-first", "my-own"] and list(Keys("")) == []
    kept = Keys("ba")
    assert Keys.parse(kept) is kept and Keys.parse("da, my-own") == "ad,my-own" and Keys.parse(["d,a", "my-own"]) == "ad,my-own"
    assert "a" in kept and "ba" not in kept and "my-own" in Keys("a,my-own") and "own" not in Keys("a,my-own")
    assert (labelled("a"), labelled("my-own")) == ("(a)", "my-own")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (1.05, "did you pass a percentage"),
        (100.0, "did you pass a percentage"),
        (105.0, "must be a number in .0, 1., not 105"),
        (-0.01, "must be a number in"),
        (math.nan, "must be a number in"),
        ("many", "must be a number in .0, 1., not 'many'"),
        (10**400, "must be a number in .0, 1., not int"),
    ],
)
def test_an_accuracy_is_a_fraction(value: Any, said: str) -> None:
    assert (check_accuracy(0, "acc"), check_accuracy(1, "acc")) == (0.0, 1.0)
    with pytest.raises(AuditError, match=f"accuracy.*{said}"):
        Accuracy(value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"images": -1}, "the number of test images is -1"),
        ({"images": 5, "correct": "f"}, "correct must be 2 hexadecimal digits, a bit for each of 5 images, not 1"),
        ({"images": 4, "correct": "g"}, "correct must be 1 hexadecimal digits"),
        ({"correct": "f"}, "correct must be 0 hexadecimal digits, a bit for each of 0 images"),
    ],
)
def test_outcomes_are_a_bit_an_image(given: dict[str, Any], said: str) -> None:
    with pytest.raises(AuditError, match=said):
        Accuracy(0.5, **given)


def test_outcomes_are_packed_from_the_left() -> None:
    packed = Accuracy.of([True, False, True, True, True])
    assert (packed.value, packed.images, packed.correct, packed.bits()) == (0.8, 5, "b8", 0b10111000)
    assert Accuracy(0.5, 0).bits() is Accuracy(0.5, 4).bits() is None and Accuracy(0.5, 0, "").bits() is None
    assert isinstance(Accuracy(1).value, float)
    with pytest.raises(AuditError, match="no test image was classified"):
        Accuracy.of([])


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([], "n is empty"),
        ([1.0, -2.0], "n holds -2"),
        (["x"], "n must be a list of numbers"),
        (3, "n must be a list"),
        ([1.0] * 10_001, "n has 10,001 entries"),
    ],
)
def test_norms_are_numbers_that_are_not_negative(values: Any, said: str) -> None:
    with pytest.raises(AuditError, match=said):
        check_norms(values, "n")


def test_norms_may_be_missing_and_not_finite() -> None:
    assert check_norms([], "n", empty=True) == () and len(check_norms([0] * 10_000, "n")) == 10_000
    assert check_norms([None, 0, math.inf], "n") == (None, 0.0, math.inf) and math.isnan(check_norms([math.nan], "n")[0] or 0)


def test_a_measurement_of_results_and_of_its_version() -> None:
    results = {"states": {"residual_norms": [1.0, 2.0]}, "depth": {"probes": [0.5]}, "credit": {}}
    made = Measurement.of(results, {"device": "cpu"})
    assert (made.residual_norms, made.extra, made.environment) == ((1.0, 2.0), {"depth": {"probes": [0.5]}}, {"device": "cpu"})
    assert made.to_dict()["protocol_version"] == 1 and Measurement.from_dict(made.to_dict()) == made
    with pytest.raises(AuditError, match="protocol version 2 cannot be read by version 1"):
        Measurement.from_dict({**made.to_dict(), "protocol_version": 2})
    with pytest.raises(AuditError, match=r"companions: Expected `object`, got `array`"):
        Measurement.from_dict({**made.to_dict(), "companions": [1]})


def test_names_and_texts_are_escaped_and_have_an_end() -> None:
    assert (printable("a\x1b[b\n"), one_line("a\nb"), printable("plain")) == ("a\\x1b[b\n", "a\\nb", "plain")
    assert as_name("m" * 500, "a name") == "m" * 500 and len(as_text("t" * 100_000, "a text")) == 100_000
    with pytest.raises(AuditError, match=r"^a name has 501 characters, and at most 500 make a name: m{40}…$"):
        as_name("m" * 501, "a name")
    with pytest.raises(AuditError, match=r"^a text has 100,001 characters, and at most 100,000 are read: t{40}…$"):
        as_text("t" * 100_001, "a text")


def test_a_config_is_kept_as_far_as_it_is_plain() -> None:
    assert len(plain_config({f"setting {number}": number for number in range(101)})) == 100
    ordered = plain_config({**{f"setting {number}": number for number in range(101)}, "seed": 3})
    assert next(iter(ordered)) == "seed"
    fine = {"n" * 500: "v" * 500, "most": 2**63 - 1, "least": -(2**63) + 1, "half": 0.5, "yes": True}
    assert plain_config(fine) == fine
    assert plain_config({"n" * 501: 1, "long": "v" * 501, "large": 2**63, "nan": math.nan, 3: 4, "list": []}) == {}


@dataclass
class Read:
    """A value with a number of each kind."""

    whole: int = 0
    broken: float = 0.0
    either: float | str = 0.0
    lists: tuple[float, ...] = ()
    named: dict[str, float] | None = None
    kind: ControlKind = ControlKind.FROZEN
    maybe: float | None = None
    bounded: Annotated[float, Meta(description="as wire.py has them")] = 0.0
    number: int | float = 0
    form: Literal["three", "four"] = "three"


def test_plain_values_are_built_in_ones() -> None:
    plain = to_plain([np.float64(0.5), math.inf, -math.inf, math.nan, True, ControlKind.SHALLOW, (1,), Keys("ab"), Read()])
    assert plain[:4] == [0.5, "Infinity", "-Infinity", "NaN"] and type(plain[0]) is float and plain[4] is True
    assert plain[5:8] == ["shallow", [1], "ab"] and type(plain[7]) is str and plain[8]["kind"] == "frozen"


def test_values_are_read_by_their_types() -> None:
    values = {"broken": "-Infinity", "either": "NaN", "lists": [1, "Infinity"], "named": {"a": "Infinity"}, "whole": 2**63 - 1}
    assert read(Read, {**values, "more": 1}, "it") == Read(2**63 - 1, -math.inf, "NaN", (1.0, math.inf), {"a": math.inf})
    assert read(Read, {"named": None, "either": 2}, "it") == Read(either=2.0)
    infinite = dict.fromkeys(("maybe", "bounded", "number"), "Infinity")
    assert read(Read, infinite, "it") == Read(maybe=math.inf, bounded=math.inf, number=math.inf)
    for wrong, said in (
        ({"whole": 2**63}, "it.whole: Expected `int` of 64 bits at most"),
        ({"kind": "molten"}, "it.kind: Expected 'frozen', 'shallow', 'unmarked', got 'molten'"),
        ({"form": "five"}, "it.form: Expected 'four', 'three', got 'five'"),
        ({"number": 2**63}, "it.number: Expected `int` of 64 bits at most"),
        ({"broken": [1]}, "it.broken: Expected `float`, got `array`"),
        ({"broken": "x"}, "it.broken: Expected `float`, got `str`"),
        ({"lists": 3}, "it.lists: Expected `array`, got `int`"),
        ({"lists": [0.5, "x"]}, r"it.lists\[1\]: Expected `float`"),
        ({"named": [1]}, "it.named: Expected `object | null`, got `array`"),
        ([1], "^it: Expected `object`, got `array`"),
    ):
        with pytest.raises(AuditError, match=said):
            read(Read, wrong, "it")


def test_a_file_is_read_up_to_its_limit_and_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    before = os.umask(0o022)
    try:
        write_atomically(path, "äb", durable=True)
    finally:
        assert os.umask(before) == 0o022
    assert read_bytes(path, 3) == "äb".encode() and path.stat().st_mode & 0o777 == 0o644
    with pytest.raises(AuditError, match=r"^has more than 0 MB, and no more is read\n.*file$"):
        read_bytes(path, 2)
    write_atomically(path, b"bytes")
    assert path.read_bytes() == b"bytes"
    with pytest.raises(TypeError):
        write_atomically(path, 3)  # type: ignore[arg-type]
    with pytest.raises(OSError, match="irectory"):
        write_atomically(tmp_path, "x")
    assert path.read_bytes() == b"bytes" and os.listdir(tmp_path) == ["file"]


# --- two reports, and several seeds ----------------------------------------------------------------------------------


def test_what_either_of_two_reports_knows_both_know() -> None:
    states = report(
        bp_grad_norms=[],
        headline_acc=0.0,
        frozen_baseline_acc=None,
        diagnostics=("residual-growth",),
        companions=AuxiliaryStatistics(batches=10),
        environment={"device": "cpu"},
    )
    rest = report(
        residual_norms=[1.0, 1.0],
        companions=AuxiliaryStatistics(batches=3, classes=10),
        environment={"device": "cuda", "torch": "2"},
        diagnostics=("gradient-floor", "residual-growth"),
    )
    both = united(states, rest)
    assert both.diagnostics == ("residual-growth", "gradient-floor")
    assert (both.residual_norms, both.bp_grad_norms) == (BP.residual_norms, BP.bp_grad_norms)
    assert (both.headline_acc, both.frozen_baseline_acc) == (0.0, 0.349)
    assert both.companions == AuxiliaryStatistics(batches=10, classes=10)
    assert both.environment == {"device": "cpu", "torch": "2"}
    assert united(rest, states) is rest


def seeded(seed: int | None, own: float, theirs: float, **changes: Any) -> DiagnosticReport:
    numbers = {
        "accuracy": Accuracy(own, 1000),
        "headline_acc": own,
        "control": Control(Accuracy(theirs, 1000), f"frozen_s{seed}.pt", "bp", seed),
        "frozen_baseline_acc": theirs,
        "environment": {**ENVIRONMENT, "checkpoint_sha256": f"digest of {seed}", "weights_digest": f"{seed}"},
    }
    return audited(BP, "bp", seed, **{**numbers, **changes})


def test_the_text_of_a_margin_over_seeds() -> None:
    """Margins of 10, 12 and 14 pp: mean 12, sample sd 2; the images' noise is 1e4 (0.24 + 0.2496)/1000 = 4.9."""
    both = [seeded(seed, 0.6, control) for seed, control in ((7, 0.50), (3, 0.48), (5, 0.46))]
    lines = str(SeedReport.of(both, 2.0)).splitlines()
    assert lines[0] == "FA seed margin: bp, 3 seeds"
    assert lines[1] == "    seed 3: accuracy 0.6000, control 0.4800 (frozen_s3.pt, seed 3), margin +12.00 pp"
    assert [line[:11] for line in lines[1:4]] == ["    seed 3:", "    seed 5:", "    seed 7:"]
    assert lines[4] == "    mean margin +12.00 pp, sample sd over seeds 2.00 pp" and lines[6] == "    minimum 2 pp"
    assert lines[5].endswith(" pp (over 3 seeds and 1,000 images, unpaired)")
    assert lines[7].startswith("    note: which images each network has right is not known") and lines[8:] == ["VERDICT: PASS"]


def test_what_a_margin_over_two_seeds_adds() -> None:
    two = [seeded(None, 0.5, 0.48), seeded(0, 0.5, 0.48)]
    made = SeedReport.of([two[1], two[0]], 2.0)
    assert [one.seed for one in made.reports] == [None, 0]
    lines = str(made).splitlines()
    assert lines[6] == f"    {TWO_SEEDS}" and lines[-2].startswith("    to decide: ") and lines[-1] == "VERDICT: INCONCLUSIVE"
    assert lines[-3].startswith("    FLAG: INCONCLUSIVE: margin +2.00 pp [") and lines[-3].endswith(
        "the margin reaches the minimum."
    )
    assert not any("share one control" in line or "weaker" in line for line in lines)
    shared = [seeded(seed, 0.5, 0.6, control=Control(Accuracy(0.6, 1000), kind=ControlKind.SHALLOW)) for seed in (1, 2)]
    text = str(SeedReport.of(shared, 2.0))
    assert "note: several seeds share one control" in text and "The same network with no blocks is better by 10.00 pp" in text
    assert "to decide" not in text and text.endswith("VERDICT: FIRE")
    mixed = [shared[0], seeded(3, 0.5, 0.6)]
    assert "The same network with random blocks is better by 10.00 pp" in str(SeedReport.of(mixed, 2.0))
    alone = [report(one, control=None) for one in shared]
    assert "The same network with random blocks is better by 10.00 pp" in str(SeedReport.of(alone, 2.0))


def test_what_is_noted_of_the_controls_and_of_the_images() -> None:
    others = [seeded(seed, 0.6, 0.5, control=Control(Accuracy(0.5, 500), f"{seed}.pt", "ep", seed)) for seed in (1, 2)]
    assert "note: seed" not in str(SeedReport.of(others, 2.0)), "whose they are is said beside each"
    counted = [report(one, accuracy=Accuracy(0.6)) for one in others]
    assert "2 seeds and 500 images, unpaired" in str(SeedReport.of(counted, 2.0))
    ours, theirs = (Accuracy.of([hit, True, False, False], "order") for hit in (True, False))
    paired = [seeded(seed, 0.5, 0.25, accuracy=ours, control=Control(theirs, f"{seed}.pt", "bp", seed)) for seed in (1, 2)]
    text = str(SeedReport.of(paired, 2.0))
    assert "2 seeds and 4 images, paired" in text and "note:" not in text


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"method_name": "ep"}, "not seeds of one method: by their config they are of bp, ep"),
        ({"headline_acc": None, "accuracy": None}, "seed 2 of bp has no accuracy"),
        ({"frozen_baseline_acc": None, "control": None}, "seed 2 of bp has no frozen-random control"),
        ({"seed": 1}, "are both of seed 1"),
        ({"environment": {"checkpoint_sha256": "digest of 1"}}, "are the same file under two names"),
        ({"environment": {"weights_digest": "1"}}, "hold the same weights, and one training is no two seeds"),
    ],
)
def test_seeds_that_make_no_margin(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(AuditError, match=said):
        SeedReport.of([seeded(1, 0.6, 0.5), report(seeded(2, 0.6, 0.5), **changes)], 2.0)
    plain = report(headline_acc=0.6, frozen_baseline_acc=0.5)
    assert SeedReport.of([plain, report(plain, seed=2)], 2.0).margin.margin == 10.0


# --- remarks ---------------------------------------------------------------------------------------------------------


def test_tensors_that_were_left_aside() -> None:
    assert on_tensors_aside([]) == [] and on_tensors_aside(["a"])[0].startswith("1 tensor of")
    assert on_tensors_aside(["a", "b", "c"])[0].endswith("left aside: a, b, c")
    assert on_tensors_aside([*"abcde"])[0].endswith("left aside: a, b, c and 2 more")


def test_a_control_on_other_inputs_is_remarked() -> None:
    plain, other = (StatedInputs("cifar10", NormalisedBy.OPTION, (mean,), (0.25,), option="x") for mean in (0.5, 0.4))
    for of_control, said in ((plain, False), (other, True), (None, False)):
        control = Control(Accuracy(0.349), "c.pt", inputs=of_control)
        remarks = " ".join(report(inputs=plain, control=control).remarks)
        assert ("its control c.pt was evaluated on other inputs: cifar10" in remarks) is said
    assert report(control=Control(Accuracy(0.349), "c.pt", inputs=other)).remarks == ()
    claimed = report(inputs=plain, claimed_acc=0.9).remarks
    assert any(" was measured on cifar10" in remark and "(normalisation: " in remark for remark in claimed)


def test_an_accuracy_at_chance_by_the_number_of_its_images() -> None:
    two, own = AuxiliaryStatistics(classes=2), {"headline_acc": 0.6, "frozen_baseline_acc": 0.9}
    known = report(**own, companions=two, accuracy=Accuracy(0.6, 64))  # two standard errors are 0.125
    assert any("accuracy is at chance (1/2)" in remark for remark in known.remarks)
    assert not any("accuracy is at chance" in remark for remark in report(**own, companions=two).remarks)


# --- trajectories in files -------------------------------------------------------------------------------------------


def course(**changes: Any) -> Trajectory:
    return Trajectory((Point(1, (1.0, 2.0), (1e-3, 1e-4)), Point(2, (1.0, 3.0), (1e-3, 1e-5), **changes)))


def test_a_trajectory_is_written_by_columns_and_read_back() -> None:
    plain = TrajectoryValues.of(course())
    assert (plain.epochs, plain.residual_norm, plain.companions, plain.credit) == ((1, 2), (2.0, 3.0), {}, ())
    seen = course(credit=CREDIT, companions=AuxiliaryStatistics(sample_invariance=0.0, probe_classes=4))
    columns = TrajectoryValues.of(seen)
    assert columns.companions == {"sample_invariance": (None, 0.0), "probe_classes": (None, 4)}
    assert [one and one["sites"] for one in columns.credit] == [None, ("h_1",)]
    for one in (course(), seen):
        assert read(TrajectoryValues, to_plain(TrajectoryValues.of(one)), "it").trajectory("it").points == one.points
    lone = TrajectoryValues.of(course(companions=AuxiliaryStatistics(sample_invariance=0.0)))
    assert (
        lone.companions["probe_classes"] == (None, None) and lone.trajectory("it").points[1].companions.sample_invariance == 0.0
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"accuracy": [0.5]}, "accuracy must have an entry for each of 2 epochs, not 1"),
        ({"residual_norms": [[1.0, 2.0]]}, "residual_norms must have an entry for each of 2"),
        ({"credit": [None]}, "credit must have an entry for each of 2"),
        ({"companions": {"sample_invariance": [0.1]}}, "companions.sample_invariance must have an entry for each of 2"),
        ({"residual_norms": [[1.0, 2.0], [1.0]]}, "residual_norms must have the same layers in every epoch"),
        ({"bp_grad_norms": [[1.0, 2.0], [1.0]]}, "bp_grad_norms must have the same layers in every epoch"),
    ],
)
def test_columns_of_other_lengths_are_refused(changes: dict[str, Any], said: str) -> None:
    plain = to_plain(TrajectoryValues.of(course()))
    with pytest.raises(AuditError, match=said):
        read(TrajectoryValues, {**plain, **changes}, "it")


def test_a_margin_over_seeds_is_written_with_what_follows_from_it() -> None:
    made = SeedReport.of([seeded(1, 0.6, 0.5), seeded(2, 0.6, 0.48)], 2.0).margin
    written = SeedMarginValues.of(made)
    assert (written.verdict, written.needed, written.seed_sd) == (made.verdict, made.needed(), pytest.approx(math.sqrt(2)))
    assert written.margin_over_seeds() == made


@pytest.mark.parametrize(
    ("kind", "values", "said"),
    [
        (AuxiliaryStatistics, {"largest_label_share": -1}, r"largest_label_share must be a number in \[0, 1\], not -1"),
        (AuxiliaryStatistics, {"predicted_class_share": "NaN"}, r"predicted_class_share must be a number in \[0, 1\], not nan"),
        (AuxiliaryStatistics, {"label_classes": -2}, "label_classes must be a number from 0 on, not -2"),
        (AuxiliaryStatistics, {"nonfinite_states": [0, -1]}, r"nonfinite_states\[1\] must be a number from 0 on"),
        (AuxiliaryStatistics, {"output_error_norm": -0.5}, "output_error_norm must be a number from 0 on"),
        (AuxiliaryStatistics, {"sample_invariance": -5}, r"sample_invariance must be a cosine in \[-1, 1\], not -5"),
        (Control, {"accuracy": {"value": 0.5}, "probes": [1e30]}, r"probes\[0\] must be a number in \[0, 1\], not 1e\+30"),
        (Control, {"accuracy": {"value": 0.5}, "probes": [0.5, -5]}, r"probes\[1\] must be a number in \[0, 1\], not -5"),
        (Depth, {"read": -5, "problem": "none"}, "read must be a number from 0 on, not -5"),
        (Depth, {"interval": [2.0, 1.0], "problem": "none"}, "an interval ends at 1, before it begins, at 2"),
        (Credit, {**to_plain(CREDIT), "gamma": [7.0]}, r"gamma\[0\] must be a cosine in \[-1, 1\], not 7"),
        (Credit, {**to_plain(CREDIT), "null_low": []}, "null_low must have an entry for each of 1 sites, not 0"),
        (
            Precision,
            {"samples": 3, "dtypes": [{"dtype": "float16", "cosine": 1.0, "lost": -1}]},
            "lost must be a number from 0",
        ),
    ],
)
def test_a_number_outside_of_its_range_is_refused_by_its_name(kind: type, values: dict[str, Any], said: str) -> None:
    with pytest.raises(AuditError, match=said):
        read(kind, values, "it")


def test_a_margin_and_a_course_that_nothing_measures_are_refused() -> None:
    plain = to_plain(SeedMarginValues.of(SeedReport.of([seeded(1, 0.6, 0.5), seeded(2, 0.6, 0.48)], 2.0).margin))
    with pytest.raises(AuditError, match="over_seeds must be a number in"):
        read(SeedMarginValues, {**plain, "variance": {**plain["variance"], "over_seeds": -1.0}}, "it")
    with pytest.raises(AuditError, match="interval ends at 1, before it begins, at 4"):
        read(SeedMarginValues, {**plain, "interval": {**plain["interval"], "low": 4.0, "high": 1.0}}, "it")
    with pytest.raises(AuditError, match="epochs must rise from one to the next"):
        read(TrajectoryValues, {**to_plain(TrajectoryValues.of(course())), "epochs": [2, 1]}, "it")


def test_a_block_is_as_initialised_at_most_once() -> None:
    plain = {"probes": [0.5, 0.6, 0.7], "nonfinite": [0, 0, 0], "step_intervals": [[0, 1], [0, 1]], "change": [1, 1]}
    assert read(Depth, {**plain, "as_initialised": [1]}, "it").as_initialised == (1,)
    for wrong in ([0, 0], [2], [-1]):
        with pytest.raises(AuditError, match="as_initialised must be blocks from 0 to 1, each once"):
            read(Depth, {**plain, "as_initialised": wrong}, "it")
