"""The one comparison of two reports, and audits put together."""

from __future__ import annotations

from typing import Any

import builders
import msgspec
import pytest
from show.samples import of

from pytest_fadiag.judge.errors import AuditError
from pytest_fadiag.judge.twin import Twin
from pytest_fadiag.show.audit import Audit, Origin, Outcome, Row
from pytest_fadiag.show.combine import combine
from pytest_fadiag.show.compare import compare, diff
from pytest_fadiag.show.words import words

ONE = builders.credited(builders.probed(builders.healthy()))
ELSEWHERE = {**ONE.environment, "torch": "2.12.0"}


def test_a_report_is_like_itself() -> None:
    result = compare(ONE, ONE)
    assert result.problems == []


@pytest.mark.parametrize(
    ("field", "small", "large"),
    [
        ("residual_norms", (35.0001, 40.0, 45.0, 52.0, 66.0), (35.01, 40.0, 45.0, 52.0, 66.0)),
        ("cross_batch_stability", 0.060005, 0.0602),
        ("headline_acc", 0.900004, 0.9001),
        ("gradient_per_unit_error", None, 1e-3),
    ],
)
def test_numbers_move_by_their_own_tolerance(field: str, small: Any, large: Any) -> None:
    plain = builders.healthy().replace(score=None, headline_acc=0.9)
    near, far = (plain.replace(**{field: value}) for value in (small, large))
    assert compare(plain, near).moved == []
    assert [difference.field.partition("[")[0] for difference in compare(plain, far).moved] == [
        field
    ]
    assert compare(far, plain).moved[0].size == compare(plain, far).moved[0].size


def test_another_machine_may_differ_more() -> None:
    moved = ONE.replace(residual_norms=(35.1, 40.0, 45.0, 52.0, 66.0))
    assert compare(ONE, moved).moved
    result = compare(ONE, moved.replace(environment=ELSEWHERE))
    assert result.moved == [] and result.elsewhere == ["torch 2.13.0 → 2.12.0"]


def test_what_is_judged_differently_is_said() -> None:
    fired = ONE.replace(residual_norms=(35.0, 4e6, 5e6, 5e6, 5e6))
    changed = compare(ONE, fired).changed
    assert "(a) residual-growth: pass → fail" in changed
    assert "verdict: trustworthy → walk back: residual stream exploded" in changed
    low = ONE.replace(thresholds=ONE.thresholds.replace(margin_pp=1))
    assert compare(ONE, low).changed == ["frozen_acc_margin_pp: 2.0 → 1.0"]
    assert compare(ONE, builders.healthy("fa")).changed[0] == "method: bp → fa"


def test_diff_names_rows_that_came_went_and_changed() -> None:
    old = of(
        builders.row(builders.healthy(seed=1)),
        builders.row(builders.healthy(seed=2)),
        margins=(builders.margin("bp"),),
    )
    now = builders.healthy(
        seed=2, cross_batch_stability=0.9, sample_invariance=0.5, environment=ELSEWHERE
    )
    passed = builders.margin("bp", margin=builders.seed_margin(9.0))
    lines = diff(
        old, of(builders.row(now), builders.row(builders.exploded(seed=3)), margins=(passed,))
    )
    assert "runs/dfa_s3.pt: new, walk back (a b d)" in lines
    assert "runs/bp_s1.pt: gone, was trustworthy" in lines
    assert "runs/bp_s2.pt: trustworthy → walk back (c)" in lines
    assert "runs/bp_s2.pt: cross_batch_stability 0.06 → 0.9" in lines
    assert "bp::seed-margin: FIRE → PASS" in lines
    assert diff(old, old) == []


def parts(**changes: Any) -> list[Audit]:
    """A divided audit: each part has one seed."""
    origin = Origin(created="now", options={"checkpoint": ("runs",)}, files={"a": "1"})
    rows = [builders.row(builders.exploded(seed=seed), group="dfa") for seed in (1, 2)]
    made = [Audit((row,), shard=(number, 2), origin=origin) for number, row in enumerate(rows, 1)]
    return [made[0], msgspec.structs.replace(made[1], **changes)]


def changed(**changes: Any) -> tuple[Row, ...]:
    return (builders.row(builders.exploded(seed=2, **changes), group="dfa"),)


def test_parts_become_one_audit_with_its_margins() -> None:
    whole = combine(parts())
    assert (
        [row.seed for row in whole.rows] == [1, 2]
        and whole.shard is None
        and whole.origin is not None
    )
    (margin,) = whole.margins
    assert (
        margin.margin is not None and margin.margin.seeds == 2 and margin.outcome is Outcome.FAILED
    )
    assert whole.exit_code == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"shard": (2, 3)}, "divided by 2 and 3"),
        ({"shard": (1, 2)}, "part 2/2 is missing; audit it with --fa-shard=2/2"),
        (
            {"origin": Origin(created="now", options={"checkpoint": ("other",)})},
            "--fa-checkpoint differs",
        ),
        ({"rows": changed(environment={"data_sha256": "cd"})}, "their test data differ"),
        (
            {"rows": changed(thresholds=ONE.thresholds.replace(margin_pp=1))},
            "--threshold=frozen_acc_margin_pp=…",
        ),
    ],
)
def test_parts_of_different_audits_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(AuditError, match=said):
        combine(parts(**changes))


def test_one_checkpoint_in_two_audits_is_one_row_or_a_contradiction() -> None:
    first = of(builders.row(ONE, outcomes={"a": Outcome.PASSED}))
    second = of(builders.row(ONE, outcomes={"b": Outcome.PASSED}))
    assert combine([first, second]).rows[0].outcomes == dict.fromkeys("ab", Outcome.PASSED)
    other = ONE.replace(environment={**ONE.environment, "checkpoint_sha256": "ff"})
    with pytest.raises(AuditError, match=r"bp_s42\.pt: they are different files"):
        combine([first, of(builders.row(other))])
    with pytest.raises(AuditError, match=r"residual_norms\[0\] 35 → 36"):
        combine(
            [first, of(builders.row(ONE.replace(residual_norms=(36.0, 40.0, 45.0, 52.0, 66.0))))]
        )
    fewer = ONE.replace(diagnostics=ONE.diagnostics[:4])
    with pytest.raises(AuditError, match=r"bp_s42\.pt: diagnostics: .* → .*; leave one out"):
        combine([first, of(builders.row(fewer))])


def test_an_audit_is_judged_again_by_other_thresholds_and_records() -> None:
    audit = of(builders.row(builders.exploded()))
    assert combine([audit]) is audit
    lenient = combine([audit], {"h_norm_explosion_ratio": 1e9, "margin_pp": -20, "g_norm_floor": 0})
    assert words(lenient.rows[0]) == "trustworthy" and lenient.exit_code == 0
    met = combine([audit], expected=lambda name, method: ("a", "b", "d"))
    assert met.exit_code == 0 and met.rows[0].as_expected is True
    unmet = combine([audit], expected=lambda name, method: ("a",))
    assert unmet.exit_code == 1 and unmet.rows[0].as_expected is False


def test_a_failure_of_a_test_itself_stays() -> None:
    failed = of(builders.row(builders.healthy(), outcomes={"a": Outcome.FAILED}))
    assert combine([failed], {"margin_pp": 1}).rows[0].outcomes == {"a": Outcome.FAILED}


def test_margins_without_a_control_are_skipped() -> None:
    reports = [
        builders.healthy(seed=seed, control=None, frozen_baseline_acc=None) for seed in (1, 2)
    ]
    audits = [of(builders.row(report, group="bp")) for report in reports]
    assert [margin.outcome for margin in combine(audits).margins] == [Outcome.SKIPPED]
    recorded = combine(audits, expected=lambda *_: (), margins={"bp": "FIRE"})
    assert [margin.outcome for margin in recorded.margins] == [Outcome.FAILED]
    lost = of(builders.row(builders.healthy(seed=1, nonfinite_outputs=1), group="bp"))
    (margin,) = combine([lost, audits[1]]).margins
    assert margin.outcome is Outcome.ERROR and "not finite" in margin.reason


def test_margins_that_are_not_resolved_are_skipped_as_in_one_run() -> None:
    control = builders.Control(builders.Score(0.895, 10_000))
    twin = Twin(source="bp", margin_pp=0.5, utility_pp=0.5, healthy=True, needs_depth=False)
    reports = [builders.healthy("dfa", seed, control=control) for seed in (1, 2)]
    for twins, outcome in ((None, Outcome.FAILED), (twin, Outcome.SKIPPED)):
        rows = [builders.row(report.replace(twin=twins), group="dfa") for report in reports]
        assert [margin.outcome for margin in combine([of(*rows)], {}, lambda *_: None).margins] == [
            outcome
        ]
