"""What the paper claims, as tests."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_fadiag import DiagnosticReport

pytestmark = pytest.mark.fa_protocol(margin_pp=2.0)


@pytest.mark.fa_protocol(checkpoint="runs/ours_s{seed}.pt", seeds=[1, 2])
class TestOurs:
    """Table 1, our method."""

    def test_every_diagnostic_passes(self, fa_diagnostic: Any) -> None:
        fa_diagnostic.check()

    def test_accuracy_is_the_one_in_the_table(self, fa_report: DiagnosticReport) -> None:
        assert fa_report.headline_acc == pytest.approx(0.86, abs=0.015)

    def test_the_stream_keeps_its_size(self, fa_report: DiagnosticReport) -> None:
        assert max(fa_report.residual_norms) < 20 * min(fa_report.residual_norms)


@pytest.mark.fa_protocol(checkpoint="runs/frozen_ours_s1.pt", expect="deg")
def test_random_blocks_are_known_to_add_nothing(fa_report: DiagnosticReport) -> None:
    """Section 5 reports the control as what it is; this turns red if it ever starts to pass."""
    fa_report.check()
