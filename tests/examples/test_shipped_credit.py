"""Γ of the shipped checkpoints by the credit of their own rules, beside numbers that were measured with other code."""

from __future__ import annotations

from pathlib import Path

import pytest
from methods import credit

from pytest_fadiag import audit

FIXTURES = Path(__file__).parent.parent.parent / "fixtures"
MEASURED = {
    "dfa_s123": (0.49, 0.11, -0.17, -0.01),
    "dfa-lam_s456": (0.38, 0.24, 0.04, 0.04),
    "ep_s42": (1.0, 1.0, 1.0, 1.0),
    "bp_s42": (1.0, 1.0, 1.0, 1.0),
}
"""At h_1 … h_4, with the saved feedback and float64 gradients."""
STATES = {
    "dfa_s123": "aligned null against null",
    "dfa-lam_s456": "aligned aligned null null",
    "ep_s42": "aligned aligned aligned aligned",
    "bp_s42": "aligned aligned aligned aligned",
}


@pytest.mark.parametrize("name", MEASURED)
def test_gamma_of_a_shipped_checkpoint_is_what_was_measured_by_others(name):
    report = audit(
        FIXTURES / "checkpoints" / f"{name}.pt", data=f"fashion-mnist:{FIXTURES / 'fashion-mnist'}", frozen=0.5, credit=credit
    )
    seen = report.credit
    assert seen.sites[0] == "h_0"
    assert seen.gamma[1:] == pytest.approx(MEASURED[name], abs=0.01)
    assert " ".join(state.value for state in seen.state[1:]) == STATES[name]
    assert report.finding("f").fired == (name not in ("ep_s42", "bp_s42"))
    itself = name in ("ep_s42", "bp_s42")  # at equilibrium the error of EP is the gradient
    assert ("the credit is the BP gradient itself" in str(report)) == itself
    assert ("against a reference at the floor" in report.finding("f").outcome) == (name == "dfa_s123")
