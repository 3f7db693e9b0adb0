"""What scale alone explains is said beside (a) and (b), and excuses neither."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from builders import report, row
from support import clustered, in_batches

from pytest_fadiag import DiagnosticReport, DiagnosticThresholds, ResidualMLP, diagnose
from pytest_fadiag.judge.records import AuxiliaryStatistics
from pytest_fadiag.show.notes import notes_of


def grown(*factors: float, **changes: object) -> DiagnosticReport:
    norms = [5.0]
    for factor in factors:
        norms.append(norms[-1] * factor)
    return report(residual_norms=norms, bp_grad_norms=[4e-4] * len(norms), **changes)


def said_of_growth(judged: DiagnosticReport) -> list[str]:
    return [remark for remark in judged.remarks if "the stream grows by" in remark]


def test_growth_that_is_spread_over_the_blocks_is_said_and_does_not_fire() -> None:
    judged = grown(39, 39, 39, 39)
    said = "the stream grows by 2.3e+06 in all, though no block exceeds 50: every block grows the stream by 39"
    assert said_of_growth(judged) == [said] and "a" not in judged.fired
    assert f"note: {said}" in str(judged) and any(said in note for note in notes_of([row(judged)]))


def test_blocks_that_differ_are_listed() -> None:
    assert said_of_growth(grown(45, 1.5, 49, 2))[0].endswith("no block exceeds 50: its blocks multiply it by 45, 1.5, 49, 2")
    assert "by 30 to 49" in said_of_growth(grown(30, 49, 40))[0]
    assert said_of_growth(grown(20, 40, 40))[0].endswith("every block grows the stream by 20 to 40"), "just alike"
    assert said_of_growth(grown(*[3.0, 9.0] * 7))[0].endswith("3, 9, 3, 9, 3, 9, 3, 9, 3, 9, 3, 9 …")


def test_blocks_behind_the_largest_state_are_no_part_of_its_growth() -> None:
    assert said_of_growth(grown(49, 49, 49, 0.1))[0].endswith("every block grows the stream by 49")


@pytest.mark.parametrize("factors", [(50, 50), (2, 3, 2), (51, 51, 51), (49,)])
def test_up_to_the_square_of_the_ratio_and_where_it_fires_nothing_is_said(factors: tuple[float, ...]) -> None:
    assert said_of_growth(grown(*factors)) == []


def test_the_ratio_is_the_reports_own_and_the_cumulative_form_fires_instead() -> None:
    assert said_of_growth(grown(9, 9, 9, thresholds=DiagnosticThresholds(h_norm_explosion_ratio=10.0)))
    assert said_of_growth(grown(39, 39, 39, thresholds=DiagnosticThresholds(growth="cumulative"))) == []
    assert said_of_growth(grown(39, 39, 39, diagnostics=("gradient-floor",))) == []


def test_a_stream_that_shrinks_does_not_grow_whatever_the_ratio() -> None:
    judged = grown(0.25, 0.4, thresholds=DiagnosticThresholds(h_norm_explosion_ratio=0.5))
    assert said_of_growth(judged) == [] and "a" not in judged.fired


def test_a_stream_with_holes_is_left_to_its_bounds() -> None:
    assert said_of_growth(report(residual_norms=[1.0, None, 40.0, 1600.0, 64_000.0])) == []


# --- (b) -------------------------------------------------------------------------------------------------------------


def floored(per_error: float, size: float, **changes: object) -> DiagnosticReport:
    return report(
        residual_norms=[size] * 3,
        bp_grad_norms=[per_error / 2] * 3,
        companions=AuxiliaryStatistics(gradient_per_unit_error=per_error, output_error_norm=0.5),
        **changes,
    )


def is_scaled(judged: DiagnosticReport) -> bool:
    return any("‖g_L‖ is small beside a large stream" in remark for remark in judged.remarks)


def test_a_gradient_that_is_small_by_scale_is_said_to_be_and_fires() -> None:
    judged = floored(1e-8, 1e7)
    assert is_scaled(judged) and judged.fired == "b"
    (said,) = [remark for remark in judged.remarks if "‖g_L‖" in remark]
    assert "‖h_L‖ is 1.0e+07, and ‖g_L‖·‖h_L‖ per unit error 0.1, as in a healthy network" in said
    assert "because" not in said and "or of the inputs" in said, "nobody measured what the scale is of"


def test_where_the_product_is_small_too_the_gradient_is_gone() -> None:
    assert not is_scaled(floored(1e-8, 9.9e5)) and is_scaled(floored(1e-8, 1.01e6))


def test_nothing_is_said_where_b_passes_where_a_fires_or_where_it_was_not_asked_for() -> None:
    assert not is_scaled(floored(1e-3, 1e7))
    exploded = floored(1e-8, 1e7)
    assert not is_scaled(report(exploded, residual_norms=[1.0, 1e7, 1e7]))
    assert not is_scaled(report(exploded, residual_norms=[1e4, 3e5, 1e7])), (
        "it is small because the stream grew, block by block"
    )
    assert not is_scaled(report(exploded, diagnostics=("gradient-floor",)))
    assert is_scaled(report(exploded, diagnostics=("residual-growth", "gradient-floor")))
    assert not is_scaled(report(exploded, companions=AuxiliaryStatistics()))


def test_the_same_function_with_parameters_scaled_up(trained_network: Callable[[], ResidualMLP]) -> None:
    """Embedding and blocks × 1e6 leave the logits as they are, since layer normalisation divides by the scale."""
    model, (x, y) = trained_network(), clustered(1300)
    plain = diagnose(model=model, eval_batches=in_batches(x, y))
    with torch.no_grad():
        for layer in (model.embed, *(block.fc2 for block in model.blocks)):
            layer.weight.mul_(1e6)
            layer.bias.mul_(1e6)
    scaled = diagnose(model=model, eval_batches=in_batches(x, y), thresholds={"confounds": "flag"})
    assert scaled.headline_acc == plain.headline_acc
    assert scaled.bp_grad_at_floor and not scaled.residual_stream_exploded
    assert is_scaled(scaled) and not is_scaled(plain)
