"""A report: built by hand or read back, its verdict, its text, and what a log tells."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import msgspec
import pytest
from builders import BP, PENALISED, credited, exploded, floored, healthy, probed, report, traced
from hypothesis import given
from hypothesis import strategies as st

from pytest_fadiag.judge.control import Control, Doubt, Severity
from pytest_fadiag.judge.diagnostics import Open, OpenKind
from pytest_fadiag.judge.errors import AuditError, AuditFailure
from pytest_fadiag.judge.protocol import PROTOCOLS, published
from pytest_fadiag.judge.records import (
    Depth,
    Inputs,
    LinearReadout,
    Log,
    Measurement,
    NormalisedBy,
    Reference,
    Score,
    StreamInfo,
    plain,
)
from pytest_fadiag.judge.report import Report
from pytest_fadiag.judge.twin import Twin
from pytest_fadiag.judge.verdict import Verdict, Word, what_lacks

ABC = ("residual-growth", "gradient-floor", "direction-drift")


def warned(made: Report) -> Report:
    assert made.control is not None
    doubt = Doubt(Severity.WARNING, "control of a different architecture", mismatched=True)
    return made.replace(control=msgspec.structs.replace(made.control, doubts=(doubt,)))


def measured_as(network: float, *probes: float) -> Report:
    """Without a control, with (e) and the network's own class-balanced accuracy."""
    made = probed(BP.replace(control=None), *probes, null=probes[0])
    return made.replace(depth=msgspec.structs.replace(made.depth, network=network))  # type: ignore[type-var]


def audited_beside(margin: float, *probes: float, **depth: Any) -> Report:
    """A network of another rule with (d) and (e), as audited on a task that BP was trained on."""
    control = Control(Score(round(0.9 - margin / 100, 6), 10_000))
    made = probed(healthy(method="dfa", control=control), *probes, null=probes[0])
    return made.replace(depth=msgspec.structs.replace(made.depth, **depth))  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("made", "verdict"),
    [
        (BP, "trustworthy"),
        (
            exploded(),
            "needs walk-back: residual stream exploded; BP grad at numerical floor; "
            "deep blocks fail to beat frozen-random baseline",
        ),
        (probed(exploded(), 0.7, 0.7), "…; gain with depth below the minimum"),
        (credited(healthy(), 0.0), "needs walk-back: credit is not aligned"),
        (
            report(bp_grad_norms=[None, 1e-9, None]),
            "needs walk-back: BP grad at numerical floor (likely)",
        ),
        (BP.replace(control=None), "incomplete: frozen-margin not measured"),
        (report(diagnostics=("d",)), "incomplete: residual-growth not measured; gradient-floor …"),
        (
            PENALISED.replace(headline_acc=0.5),
            "incomplete: residual-growth likely; gradient-floor likely; direction-drift …measured",
        ),
        (
            warned(healthy()),
            "incomplete: frozen-margin measured against a questioned control",
        ),
        (probed(warned(healthy())), "trustworthy"),
        (probed(warned(healthy()), 0.7, 0.76, null=0.7), "trustworthy"),
        (
            probed(warned(healthy()), 0.7, 0.738, null=0.7),
            "incomplete: frozen-margin measured against a questioned control; depth-utility "
            "alone is not enough: the lower bound is +2.80 pp, below 3 pp",
        ),
        (
            probed(warned(healthy()), 0.96, 0.98),
            "incomplete: …; depth-utility not resolved",
        ),
        (probed(healthy(), 0.7, 0.725, null=0.7), "trustworthy"),
        (probed(healthy(), 0.7, 0.75), "trustworthy"),
        (
            probed(BP.replace(control=None, headline_acc=0.8), 0.7, 0.735, null=0.7),
            "incomplete: frozen-margin not measured; depth-utility alone is not enough: …",
        ),
        (
            probed(BP.replace(control=None, control_problem="none fits")),
            "incomplete: frozen-margin error",
        ),
        (
            credited(floored(exploded(), -9, -6), 0.0),
            "…baseline; credit is not aligned; a linear readout of the inputs beats the network",
        ),
        (floored(healthy(), floor=None), "trustworthy"),
        (probed(BP, diagnostics=(*ABC, "depth-utility")), "trustworthy"),
        (
            probed(BP, diagnostics=(*ABC, "depth-utility")).replace(task="regression"),
            "incomplete: …; depth-utility alone is not enough in regression",
        ),
        (
            probed(healthy(headline_acc=0.77, label_classes=10, label_class_share=0.1), 0.8, 0.9),
            "needs walk-back: deep blocks fail to beat frozen-random baseline",
        ),
        (
            probed(
                BP.replace(headline_acc=0.5, control=None),
                0.7,
                0.9,
                label_classes=10,
                label_class_share=0.1,
            ),
            "incomplete: frozen-margin not measured; depth-utility contradicted: …",
        ),
        (
            probed(BP.replace(control=None), null=None),
            "incomplete: frozen-margin not measured; depth-utility not resolved",
        ),
    ],
)
def test_the_verdict_says_no_more_than_was_measured(made: Report, verdict: str) -> None:
    start, _, end = verdict.partition("…")
    assert made.verdict == verdict or (
        "…" in verdict and made.verdict.startswith(start) and made.verdict.endswith(end)
    )
    assert bool(made.next) == (made.verdict != "trustworthy")
    assert all(finding.claim in made.headline for finding in made.findings if finding.fired)


SKEWED = Score.of([True] * 900 + [False] * 100, labels=[0] * 900 + [1] * 100)
CONTROL = "train a control (fadiag control bp_s42.pt, then --fa-frozen)"
TRAIN = "fit probes to the training data (--fa-train, train=)"


@pytest.mark.parametrize(
    ("made", "step"),
    [
        (healthy(control=None), CONTROL),
        (
            healthy(control=None, checkpoint=None),
            "train a control (make_control(model), then control=)",
        ),
        # ±1 pp around 3.5 on 10,000 samples: four times as many make it ±0.5
        (
            probed(healthy(control=None), 0.7, 0.735, null=0.7),
            f"{TRAIN} or test on about 40,000 samples or {CONTROL}",
        ),
        (
            audited_beside(5.0, 0.7, 0.735, training="cifar10", null=()).replace(control=None),
            CONTROL.replace("bp", "dfa"),
        ),
        (probed(healthy(control=None), 0.7, 0.735, null=0.7, task="regression"), "…" + CONTROL),
        (probed(healthy(control=None), 0.96, 0.98, headline_acc=0.99), CONTROL),  # no room
        (measured_as(0.5, 0.7, 0.9), "check the normalisation of the inputs (--fa-normalize) …"),
        (warned(healthy()), CONTROL),
        # ±0.86 pp on 10,000 samples, 0.6 pp from the minimum
        (
            healthy(control=Control(Score(0.886, 10_000))),
            "give the control itself in place of a number or test on about 21,000 samples",
        ),
        (
            healthy(control=Control(Score(0.886, 10_000)), log=Log(gradient_batch=128)),
            "test on about 21,000 samples or audit several seeds",
        ),
        (report(cross_batch_stability=None), "measure direction-drift"),
        (
            healthy(control=None, diagnostics="abce"),
            "run frozen-margin too, with a control",
        ),
        (
            healthy(score=Score(0.8, 10_000), control=Control(Score(0.5), seed=1)),
            "train a control of each seed",
        ),
        (report(eval_classes=1), "shuffle data that is sorted by class"),
        (report(stream_problem="no cut"), "no stream: no cut"),
        (report(reference=Reference(problem="no_grad")), "the reference is not proven: no_grad"),
        (PENALISED.replace(headline_acc=0.5), "audit a checkpoint of this run, or log the …"),
        (report(diagnostics=("a", "d")), "run gradient-floor and direction-drift too"),
        (exploded(), "report no Γ; claim no gain from the blocks"),
        (
            exploded(loss_assumed=True, loss_bias={"cross-entropy": 0.5, "squared error": 0.01}),
            "report no Γ; name the loss (--fa-loss, loss=); claim no gain from the blocks",
        ),
        (
            probed(healthy(control=None, score=SKEWED), 0.7, 0.735, null=0.7),
            f"{TRAIN} or test on more samples of the rare classes or {CONTROL}",
        ),
        (
            audited_beside(0.5, 0.7, 0.71),
            "claim no gain from the blocks; compare with BP networks (--fa-bp): the task may …",
        ),
        (audited_beside(-5.0, 0.7, 0.6), "claim no gain from the blocks"),
        (
            audited_beside(0.5, 0.7, 0.71).replace(
                twin=Twin(source="bp", healthy=True, needs_depth=False)
            ),
            "choose a task on which BP gains from depth",
        ),
    ],
)
def test_the_next_step_is_what_decides_or_what_to_write(made: Report, step: str) -> None:
    start, _, end = step.partition("…")
    assert made.next == step or (
        "…" in step and made.next.startswith(start) and made.next.endswith(end)
    )
    assert made.to_dict()["next"] == made.next
    assert made.next in " ".join(str(made).split())


NETWORKS: tuple[dict[str, Any], ...] = (
    {},
    {"checkpoint": None},
    {"score": Score(0.9, 1_000)},
    {"score": SKEWED},
    {"score": None, "headline_acc": None},
    {"residual_norms": (35.0, None, 45.0, None, 66.0)},
    {"residual_norms": (35.0, None, None, None, 66.0)},
    {"bp_grad_norms": (None,) * 5},
    {"bp_grad_norms": (*[1e-5] * 4, None)},
    {"cross_batch_stability": None},
    {"eval_classes": 1},
    {"task": "regression", "gradient_per_unit_error": 1e-3},
    {"task": "regression", "cross_batch_stability": 0.9, "sample_invariance": math.nan},
    {"loss": "squared error"},
    {"trace": True, "secants": 0.4},
    {"reference": Reference(problem="no_grad")},
    {"stream_problem": "no cut"},
    {"log": Log()},
    {"log": Log(), "residual_norms": (), "bp_grad_norms": (), "cross_batch_stability": None},
    {"floor": LinearReadout(problem="too few images")},
    {"twin": Twin(source="bp", healthy=True, needs_depth=False)},
)
"""What of a network may be missing, or keep a diagnostic open."""
CONTROLS: tuple[dict[str, Any], ...] = (
    {"control": None},
    {"control": None, "control_problem": "none fits"},
    {"control": Control(Score(0.7))},
    {"control": Control(Score(0.89))},
    {"control": Control(Score(0.1)), "label_classes": 10},
    {"control": Control(Score(0.7, data="cd" * 32))},
    {"control": Control(Score(0.7), method="dfa", seed=7, config={"epochs": 1})},
    {"control": Control(Score.of([True] * 890 + [False] * 110, labels=[0] * 900 + [1] * 100))},
)
DEPTHS: tuple[dict[str, Any] | None, ...] = (
    None,
    {"problem": "999 test images; a linear readout needs 1,000"},
    {},
    {"probes": (0.97, 0.98, 0.99)},
    {"null": (), "null_problem": "a block cannot be re-initialised"},
    {"probes": (0.5, 0.52, 0.53), "interval": (-1.0, 7.0)},
    {"probes": (0.5, 0.52, 0.53), "interval": (-1.0, 7.0), "training": "cifar10"},
    {"probes": (0.5, 0.52, 0.54), "interval": (1.0, 7.0), "training": "cifar10"},
    {"probes": (0.5, 0.52, 0.54), "interval": (1.0, 7.0), "half_interval": (1.0, 3.0)},
    {"probes": (0.5, 0.505, 0.51), "interval": (0.5, 1.5)},
    {"trained": ()},
    {"network": 0.3},
)


@pytest.mark.parametrize("asked", ["abcd", "abce", "abcdeg"])
def test_every_incomplete_verdict_ends_in_a_next_step(asked: str) -> None:
    met = set()
    for network, control, depth in itertools.product(NETWORKS, CONTROLS, DEPTHS):
        probes = None
        if depth is not None:
            base = Depth(
                probes=(0.5, 0.6, 0.7),
                null=((0.5, 0.5, 0.5),) * 2,
                interval=(18.0, 22.0),
                step_intervals=((8.0, 12.0),) * 2,
                read=2_000,
                trained=(0, 1),
            )
            probes = msgspec.structs.replace(base, **depth)
        made = healthy(diagnostics=asked, depth=probes, **{**control, **network})
        verdict = made.conclusion
        if verdict.word is Word.INCOMPLETE:
            assert verdict.next, (made.verdict, network, control, depth)
            met.update(state.kind for state in verdict.lacking.values())
        for key in asked:  # a test that was an error for another reason, or did not run
            for halted in ({"errors": (key,)}, {"not_run": (key,)}):
                cut = Verdict.of(made.findings, **halted)  # type: ignore[arg-type]
                assert cut.next or cut.word is not Word.INCOMPLETE, (cut, network, control, depth)
    if asked == "abcdeg":
        assert met == {*OpenKind} - {OpenKind.NOT_RUN, OpenKind.NOT_NEEDED}


@pytest.mark.parametrize(
    ("gains", "spread", "images"),
    [
        ((3.5, 3.5), 1.0, 40_000),
        ((3.1, 3.1), 1.0, 1_000_000),  # (1/0.1)² times 10,000
        ((3.09, 3.09), 1.0, 0),  # more than a hundred times as many
        ((2.0, 2.0), 1.6, 26_000),  # to fail for certain
        ((3.5, 3.5 + 2), 1.0, 0),  # the noise of the draws alone is wider
    ],
)
def test_how_many_images_decide_is_a_matter_of_the_square(
    gains: tuple[float, float], spread: float, images: int
) -> None:
    made = audited_beside(5.0, 0.7, 0.7).replace(control=None)
    first, second = gains
    utility = (first + second) / 2
    assert made.depth is not None
    draws = (0.02, 0.02 + (second - first) / 100)
    depth = msgspec.structs.replace(
        made.depth,
        probes=(0.7, 0.7 + utility / 100 + sum(draws) / 2),
        null=tuple((0.7, 0.7 + draw) for draw in draws),
        interval=(utility - spread, utility + spread),
        training="cifar10",
    )
    number = f"test on about {images:,} samples"
    assert (number in made.replace(depth=depth).next) == (images > 0)


@pytest.mark.parametrize(("network", "decides"), [(0.69, True), (0.685, False)])
def test_a_pass_of_e_decides_nothing_below_the_embedding(network: float, decides: bool) -> None:
    """Two standard errors of 0.7 against 0.687 on 10,000 images each are 1.3 pp."""
    made = measured_as(network, 0.7, 0.8)
    assert made.finding("e").outcome == "pass"
    assert (made.finding("e").open is None) == decides
    assert (made.verdict == "trustworthy") == decides


# --- the BP twin ---


def bp_twin(margin: float, *probes: float, **changes: Any) -> Twin:
    """A BP network of a task, with (d), (e) and (g)."""
    control = Control(Score(round(0.9 - margin / 100, 6), 10_000))
    null = probes[0] if probes else 0.6
    return Twin.of([floored(probed(healthy(control=control), *probes, null=null), **changes)])


def test_a_twin_says_what_bp_gains_and_whether_the_task_needs_depth() -> None:
    flat = bp_twin(1.5, 0.7, 0.715)
    assert (flat.margin_pp, flat.utility_pp, flat.source) == (1.5, 1.5, "bp_s42.pt")
    assert flat.healthy and not flat.needs_depth
    assert bp_twin(2.5, 0.7, 0.715).needs_depth and bp_twin(1.5, 0.7, 0.8).needs_depth
    assert not bp_twin(1.5, 0.97, 0.98).needs_depth  # (e) is not resolved, (d) does not pass
    assert bp_twin(1.5, 0.97, 0.98, control=None).needs_depth  # nothing is measured
    control = Control(Score(0.875, 10_000))
    margin = floored(probed(healthy(control=control), 0.7, 0.715, null=0.7))
    assert Twin.of([margin]).needs_depth and not Twin.of([warned(margin)]).needs_depth
    without = warned(margin).replace(
        diagnostics=(*ABC, "frozen-margin", "linear-floor"), depth=None
    )
    assert Twin.of([without]).needs_depth  # nothing but the doubted margin is known
    for ill in (
        {"cross_batch_stability": 0.9},
        {"floor": None},
        {"residual_norms": [1, 99, 99]},
        {"bp_grad_norms": [0, 0]},
    ):
        assert not bp_twin(1.5, 0.7, 0.715, **ill).healthy
    two = Twin.of([floored(probed(healthy(seed=s), 0.7, p)) for s, p in ((1, 0.8), (2, 0.9))])
    assert two.utility_pp == 15 and two.source == "bp_s1.pt, bp_s2.pt"


@pytest.mark.parametrize(
    ("made", "keys"),
    [
        (audited_beside(0.5, 0.7, 0.71), ""),  # intervals include 0, or lie above it
        (audited_beside(-5.0, 0.7, 0.71), "d"),
        (audited_beside(0.5, 0.7, 0.6), "e"),
        (audited_beside(0.5, 0.7, 0.71).replace(nonfinite_outputs=3), "d"),
        (audited_beside(0.5, 0.7, 0.71, as_initialised=(0,)), "e"),
    ],
)
def test_where_bp_gains_as_little_the_task_cannot_tell(made: Report, keys: str) -> None:
    assert made.fired == ("d", "e")
    for other in ({"healthy": False}, {"needs_depth": True}):
        twin = msgspec.structs.replace(bp_twin(1.5, 0.7, 0.715), **other)
        assert made.replace(twin=twin).fired == ("d", "e")
    beside = made.replace(twin=bp_twin(1.5, 0.7, 0.715))
    assert beside.fired == tuple(keys)
    open_ = [finding for finding in beside.findings if finding.key in "de" and not finding.fired]
    for finding in open_:
        assert finding.outcome.startswith("not resolved")
        assert finding.headline.startswith("BP gains +1.50 pp here: this task cannot tell (")
    if not keys:
        both = "frozen-margin not resolved; depth-utility not resolved"
        assert beside.verdict == f"incomplete: {both}"
        assert beside.frozen_baseline_undercut is None
        assert str(beside).count("BP gains +1.50 pp here: this task cannot tell") == 2
        unprobed = msgspec.structs.replace(bp_twin(1.5, 0.7, 0.715), utility_pp=None)
        assert made.replace(twin=unprobed).finding("e").headline.startswith("BP does not pass (d):")
    assert msgspec.convert(beside.to_dict(), Report).fired == beside.fired


def test_a_report_gives_the_share_of_what_bp_gains() -> None:
    made = probed(healthy(headline_acc=0.8), 0.7, 0.75, null=0.7, twin=bp_twin(16, 0.7, 0.8))
    assert (made.margin_share, made.utility_share) == (0.25, 0.5)
    assert "BP (bp_s42.pt): margin +16.00 pp; this network reaches 25 % of it" in made.lines("d")
    assert "BP (bp_s42.pt): depth utility +10.00 pp; this network reaches 50 %" in made.lines("e")
    assert made.replace(twin=bp_twin(-1.0)).margin_share is BP.margin_share is None


def test_a_row_has_the_verdict_of_its_tests() -> None:
    error, unmeasured = Open(OpenKind.ERROR), Open(OpenKind.NOT_MEASURED)
    unresolved = Open(OpenKind.NOT_RESOLVED)
    passed: dict[str, Open | None] = dict.fromkeys("abcd")
    assert what_lacks(passed) == {}
    assert what_lacks({**passed, "f": error}) == {"f": error}
    assert what_lacks({**passed, "f": unmeasured}) == {}
    assert what_lacks({**passed, "d": unmeasured, "e": None}) == {}
    assert what_lacks({**passed, "d": unresolved, "e": None}) == {"d": unresolved}
    assert what_lacks({**passed, "e": unresolved}) == {}
    assert what_lacks({**dict.fromkeys("abce"), "g": unmeasured}) == {}
    assert what_lacks({**dict.fromkeys("abc"), "e": unresolved}) == {"e": unresolved}
    assert what_lacks({}) == dict.fromkeys("abcd", unmeasured)


def test_the_verdict_names_what_is_not_finite() -> None:
    made = report(nonfinite_outputs=3, frozen_baseline_acc=None)
    assert made.verdict == "needs walk-back: outputs are not finite"
    made = report(residual_norms=[1, math.inf], bp_grad_norms=[1, math.nan])
    assert made.verdict == ("needs walk-back: residual stream exploded; BP grad at numerical floor")


@pytest.mark.parametrize(
    ("fired", "decided", "said"),
    [("", "abd", "PASS"), ("ab", "abd", "FAIL(D1+D2)"), ("", "ab", "INCOMPLETE(D3)")],
)
def test_the_later_published_form_has_words_of_its_own(fired: str, decided: str, said: str) -> None:
    assert published("three", fired, decided) == said
    assert published("four", fired, decided) == published(None, fired, decided) == ""
    assert PROTOCOLS["three"].rules == {"confounds": "flag"}
    made = healthy(protocol="three", diagnostics=("a", "b", "d"))
    assert str(made).startswith("bp, seed 42: incomplete: direction-drift not measured [PASS]\n")


# --- built by hand, read back ---


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"headline_acc": 34.9}, "did you pass a percentage"),
        ({"frozen_baseline_acc": -0.1}, "must be a fraction"),
        ({"claimed_acc": "good"}, "must be a number, not a str"),
        ({"headline_acc": math.nan}, "must be a fraction"),
        ({"residual_norms": [1.0]}, "residual_norms has 1 entry: there is nothing to judge"),
        ({"residual_norms": []}, "residual_norms has 0 entries"),
        ({"bp_grad_norms": []}, "bp_grad_norms has 0 entries"),
        ({"residual_norms": [1.0, -2.0]}, "never negative"),
        ({"residual_norms": "norms"}, "must be a list of numbers"),
        ({"diagnostics": ("my-name",)}, "unknown diagnostic 'my-name'; known: a"),
        (
            {"frozen_baseline_acc": 0.3, "control": Control(Score(0.4))},
            "the control's accuracy is 0.4, not 0.3",
        ),
    ],
)
def test_numbers_that_cannot_be_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(AuditError, match=said):
        report(**changes)


def test_accuracy_and_control_stay_in_step() -> None:
    measured = Measurement(residual_norms=(1, 2), bp_grad_norms=(1, 2), score=Score(0.9, 1_000))
    made = Report.of(measured, frozen_baseline_acc=0.5)
    assert (made.headline_acc, made.margin_pp) == (0.9, 40)
    assert made.control == Control(Score(0.5))
    assert Report.of(measured, headline_acc=0.9004).score == measured.score
    assert Report.of(measured, headline_acc=0.8).score == Score(0.8)
    score = Score(0.87864, 100_000)
    assert healthy(score=score, headline_acc=0.879).margin == healthy(score=score).margin
    assert made.replace(control=Control(Score(0.6))).frozen_baseline_acc == 0.6
    assert made.replace(frozen_baseline_acc=0.7).control == Control(Score(0.7))
    assert made.replace(headline_acc=None).score is None
    assert Report.of(made, method_name="bp").score == measured.score


numbers = st.one_of(st.none(), st.floats(0, 1e12), st.sampled_from([math.nan, math.inf]))


@given(
    st.lists(numbers, min_size=2, max_size=6), st.sampled_from([BP, exploded(), traced("a", 1, 3)])
)
def test_what_json_keeps_is_read_back_and_judged_the_same(norms: list[Any], base: Report) -> None:
    made = probed(credited(base, 0.5, math.nan), residual_norms=norms)
    text = json.dumps(made.to_dict(), allow_nan=False)
    again = msgspec.convert(json.loads(text), Report, strict=False)
    assert plain(again) == plain(made) and str(again) == str(made)
    assert json.dumps(again.to_dict()) == text


def test_the_json_has_the_published_names() -> None:
    values = probed(credited(exploded())).to_dict()
    flags = ("residual_stream_exploded", "bp_grad_at_floor", "reference_drift_dominated")
    assert [values[flag] for flag in flags] == [True, True, False]
    assert values["frozen_baseline_undercut"] is True and values["margin_pp"] == -10.7
    assert values["probe_accuracies"][0] == 0.6 and values["depth_utility_pp"] == 18
    assert values["credit"]["state"] == ["aligned"] * 4 and values["fired"] == ["a", "b", "d"]
    assert BP.replace(control=None).to_dict()["frozen_baseline_undercut"] is None
    assert BP.frozen_baseline_undercut is False and not BP.residual_stream_exploded


@pytest.mark.parametrize(
    ("key", "value", "place"),
    [
        ("residual_norms", [1.0, "x"], r"Expected .* `\$.residual_norms\[1\]`"),
        ("score", {"value": 34.9}, r"percentage.*`\$.score"),
        ("thresholds", {"g_norm_floor": -1}, r"Expected .* `\$.thresholds.g_norm_floor`"),
        ("method_name", 5, r"Expected `str`.*`\$.method_name"),
    ],
)
def test_what_cannot_be_read_is_named_by_its_place(key: str, value: Any, place: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=place):
        msgspec.convert({**BP.to_dict(), key: value}, Report, strict=False)


def test_check_raises_unless_exactly_the_expected_fired() -> None:
    exploded().check("abd")
    BP.check()
    with pytest.raises(AuditFailure, match="fails: worse than frozen random blocks") as failed:
        exploded().check("ab")
    assert failed.value.headline.startswith("worse than frozen random blocks: margin −10.70 pp < 2")
    with pytest.raises(AuditFailure, match="direction-drift was expected to fail: pass"):
        exploded().check(["a", "b", "c", "d"])
    with pytest.raises(AuditError, match=r"\(c\) is undetermined: was not asked for"):
        report(diagnostics=("a",)).reference_drift_dominated  # noqa: B018 (it raises)


# --- the text ---


def test_the_text_has_its_parts_in_order() -> None:
    made = exploded(
        notes="trained\nfor 30 epochs",
        stream=StreamInfo(
            blocks=("b.0", "b.1", "b.2", "b.3"), residual=True, head="ln", outside=0.38
        ),
        inputs=Inputs(data="cifar10", by=NormalisedBy.CHECKPOINT, mean=(0.5,), std=(0.2,)),
        reference=Reference(error=2e-8),
        caveats=("the last line was cut",),
    )
    lines = str(made).splitlines()
    assert lines[:9] == [
        "dfa, seed 42: walk back: residual stream exploded; BP gradient below the protocol floor; "
        "worse than frozen random blocks",
        "  next: report no Γ; claim no gain from the blocks",
        "  trained",
        "  for 30 epochs",
        "  note: the last line was cut",
        "  stream: b.0 … b.3 → ln, 4 blocks, residual, 38 % of parameters outside the blocks",
        "  inputs: cifar10, normalised by the checkpoint's mean and std",
        "  loss: cross-entropy",
        "  reference: BP gradient, agrees with finite differences to 2.0e-8",
    ]
    heads = [line.partition(":")[0] for line in lines if line.startswith("(")]
    assert heads == [
        "(a) residual-growth",
        "(b) gradient-floor",
        "(c) direction-drift",
        "(d) frozen-margin",
    ]
    assert made.verdict.startswith("needs walk-back: residual stream exploded; BP grad at ")
    assert max(len(line) for line in lines[1:] if "fails:" not in line) <= 100


def test_each_task_has_its_own_words() -> None:
    made = floored(probed(healthy(task="regression", loss="squared error", headline_acc=0.63)))
    text = str(made.replace(effective_rank=0.43))
    assert "loss: squared error, task: regression" in text and "R² 0.6300, frozen control" in text
    assert "R²: linear readout" in text and "accuracy" not in text and "image" not in text
    assert "effective rank, gradients over output error: 0.430 (not judged)" in text
    drift = report(made, cross_batch_stability=0.5, sample_invariance=0.02)
    assert "agreement between deciles of the targets 0.020 < 0.1" in drift.finding("c").headline
    words = str(floored(probed(healthy(task="tokens", gradient_per_unit_error=1.0))))
    assert "token accuracy 0.9000" in words and "fitted to 5,000 of 10,000 test tokens" in words
    assumed = str(healthy(loss_assumed=True, inputs=Inputs(pixels=True)))
    assert "  loss: cross-entropy (assumed)\n" in assumed and "loss:" not in str(healthy())
    given = healthy(trace=True)
    assert given.verdict == "trustworthy (reference as given)"
    assert "  reference: as given, not proven" in str(given)


def test_an_r2_may_be_negative_and_no_accuracy_may() -> None:
    made = report(task="regression", headline_acc=-0.1, frozen_baseline_acc=-0.2)
    assert made.headline_acc == -0.1 and "R² is at chance (R² ≤ 0)" in made.remarks[0]
    assert not report(task="regression", headline_acc=0.02).remarks
    for wrong in ({"headline_acc": -0.1}, {"control": Control(Score(-0.2))}):
        with pytest.raises(AuditError, match="must be a fraction in"):
            report(**wrong)
    with pytest.raises(AuditError, match="did you pass a percentage"):
        report(task="regression", headline_acc=34.9)


def test_the_representation_is_one_line() -> None:
    assert repr(healthy("a\nb")) == "<report: a\\nb, seed 42: trustworthy>"


def test_names_from_files_cannot_forge_a_line() -> None:
    made = report(
        method_name="x\nbp: trustworthy", notes="\x1b[2J\nbp: b", caveats=("a\nbp: trustworthy",)
    )
    verdicts = [line for line in str(made).splitlines() if line[0] not in " ("]
    assert verdicts == [r"x\nbp: trustworthy: trustworthy"] and "\x1b" not in str(made)


@pytest.mark.parametrize("depth", [2, 60])
def test_many_blocks_are_wrapped(depth: int) -> None:
    made = report(residual_norms=[1.0] * (depth + 1), bp_grad_norms=[1.0] * (depth + 1))
    assert f"h_{depth}" in made.lines("a")
    assert max(map(len, made.lines("a").splitlines())) <= 100


# --- logs ---


def test_a_log_tells_when_each_diagnostic_first_fired() -> None:
    made = traced("dfa", 1)
    assert made.first_fired == {"d": 1, "a": 10, "b": 18}
    assert "first failed: (d) epoch 1, (a) epoch 10, (b) epoch 18; log ends at epoch 30" in str(
        made
    )
    assert made.partial
    assert BP.first_fired == {} and not BP.partial and PENALISED.partial


# --- remarks ---


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (report(headline_acc=0.1, classes=10), "accuracy is at chance (1/10)"),
        (report(headline_acc=0.6, label_class_share=0.6), "the share of the most frequent class"),
        (report(nonfinite_outputs=3), "outputs are not finite for 3 samples"),
        (
            report(nonfinite_outputs=1, inputs=Inputs(pixels=True)),
            "outputs are not finite for 1 image,",
        ),
        (report(headline_acc=-0.2, task="regression"), "R² is at chance (R² ≤ 0)"),
        (
            report(
                loss_assumed=True,
                loss_bias={"cross-entropy": 0.31, "squared error": 0.05, "binary cross-entropy": 1},
            ),
            "looks trained by squared error: under it the output error has a bias of 0.0500 < 0.1",
        ),
        (report(environment={"dtype": "float16"}), "half precision (float16)"),
        (report(nonfinite_weights=("a", "b", "c", "d")), "NaN or inf: a, b, c and 1 more"),
        (report(claimed_acc=0.5), "accuracy 0.5000 is claimed, but 0.6090 was measured"),
        (report(eval_classes=2, classes=10), "hold 2 of 10 classes"),
        (report(residual_norms=[1, 39, 1521, 59319]), "grows by 5.9e4 in all, though no block"),
        (report(inputs=Inputs(data="d", by=NormalisedBy.USUAL, pixels=True)), "not recorded"),
        (
            report(inputs=Inputs(checkpoint_mean=(0.5,), checkpoint_std=(0.2,))),
            "the checkpoint's mean 0.5 and std 0.2 were not applied (batches as given)",
        ),
        (
            measured_as(0.318, 0.7, 0.807),
            "0.3180 is far below a linear probe of h_L (0.8070): inputs or targets",
        ),
        (
            healthy(
                control=Control(Score(0.5), inputs=Inputs(by=NormalisedBy.NOTHING)),
                inputs=Inputs(by=NormalisedBy.DATA, mean=(0.5,), std=(0.2,)),
            ),
            "the control was evaluated on other inputs: not normalised",
        ),
    ],
)
def test_a_remark_where_a_reader_needs_one(made: Report, said: str) -> None:
    assert any(said in remark for remark in made.remarks), made.remarks
    assert not any(said in remark for remark in BP.remarks) and "note: " in str(made)


@pytest.mark.parametrize(("images", "is_far"), [(1_000, False), (10_000, True), (None, True)])
def test_a_claim_within_the_noise_of_few_images_is_no_remark(
    images: int | None, is_far: bool
) -> None:
    made = report(score=Score(0.896, images), headline_acc=0.896, claimed_acc=0.88)
    assert any("is claimed" in remark for remark in made.remarks) is is_far


RARE = [0] * 1_000 + [1] * 12 + [2] * 12 + [3] * 12
"""Labels of which three classes have a dozen images each."""


def scored(wrong_of_each: int) -> Score:
    """All of class 0 right, and all but so many of each rare class."""
    hits = [label == 0 or index % 12 >= wrong_of_each for index, label in enumerate(RARE, -1_000)]
    return Score.of(hits, labels=RARE)


@pytest.mark.parametrize(
    ("wrong", "trained", "paired", "expected"),
    [
        (2, (0, 1), True, "trustworthy"),
        (2, (0,), True, "incomplete: frozen-margin not resolved; depth-utility alone is not"),
        (2, (0, 1), False, "incomplete: frozen-margin not resolved"),  # a number in its place
        (1, (0, 1), True, "incomplete: frozen-margin not resolved"),  # the margin is 0
    ],
)
def test_where_classes_are_too_few_for_a_margin_that_is_reached_a_pass_of_e_decides(
    wrong: int, trained: tuple[int, ...], paired: bool, expected: str
) -> None:
    control = scored(wrong)
    if not paired:
        control = Score(0.76, 1_036)
    network = scored(1)
    base = healthy(
        headline_acc=network.value, score=network, control=Control(control, "frozen.pt", "bp", 42)
    )
    made = probed(base, 0.7, 0.7, 0.7, 0.7, 0.78, null=0.7)
    made = made.replace(depth=msgspec.structs.replace(made.depth, trained=trained, network=0.8))
    assert made.verdict.startswith(expected), (made.verdict, made.margin)
    alone = made.replace(control=None)
    assert (alone.verdict == "trustworthy") == (trained == (0, 1))
