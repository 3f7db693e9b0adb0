"""The fixtures; each can be overridden in a conftest, and the others then work with what it gives."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pytest

from . import audit_of

if TYPE_CHECKING:
    from torch import nn

    from ..judge.control import Control
    from ..judge.credit import CreditFunction
    from ..judge.report import DiagnosticReport
    from ..judge.thresholds import DiagnosticThresholds
    from ..load.data import DataSet
    from ..measure.batches import Batch
    from .undertest import CheckpointUnderTest, DiagnosticUnderTest


@pytest.fixture
def fa_checkpoint(request: pytest.FixtureRequest) -> CheckpointUnderTest:
    """The checkpoint under test: path, method, seed, and on demand state_dict, config, test_acc.

    A test that asks for it, or for a fixture that needs it, runs once for every checkpoint of --fa-checkpoint or of the
    marker's checkpoint=.
    """
    return audit_of(request.config).checkpoint(request)


@pytest.fixture
def fa_device(request: pytest.FixtureRequest) -> str:
    """The device that networks are measured on: --fa-device, resolved to a GPU where there is one."""
    return audit_of(request.config).device(request)


@pytest.fixture
def fa_model(request: pytest.FixtureRequest, fa_checkpoint: CheckpointUnderTest) -> nn.Module:
    """The network of the checkpoint with its weights loaded; override it for a network that --fa-model cannot name."""
    return audit_of(request.config).network(request, fa_checkpoint)


@pytest.fixture
def fa_test_data(request: pytest.FixtureRequest) -> DataSet:
    """The test split of --fa-data, decoded once: x, y, mean, std; override it with a pair of tensors (x, y)."""
    return audit_of(request.config).data()


@pytest.fixture
def fa_eval_batches(request: pytest.FixtureRequest, fa_checkpoint: CheckpointUnderTest, fa_model: nn.Module) -> Iterable[Batch]:
    """The (x, y) batches that the network is measured on; override it with any list of batches."""
    return audit_of(request.config).batches(request, fa_checkpoint, fa_model)


@pytest.fixture
def fa_frozen_baseline(request: pytest.FixtureRequest, fa_checkpoint: CheckpointUnderTest) -> Control | float | None:
    """The frozen-random control of the checkpoint by --fa-frozen; override it with an accuracy, a Control or None."""
    return audit_of(request.config).control(request, fa_checkpoint)


@pytest.fixture
def fa_credit(request: pytest.FixtureRequest) -> CreditFunction | None:
    """The method's credit, a function of (model, x, y, checkpoint) by --fa-credit; override it and credit-alignment is run."""
    return audit_of(request.config).credit()


@pytest.fixture
def fa_thresholds(request: pytest.FixtureRequest) -> DiagnosticThresholds:
    """The thresholds of this test: its fa_protocol markers over the command line over the ini file."""
    return audit_of(request.config).thresholds(request)


@pytest.fixture
def fa_report(
    request: pytest.FixtureRequest, fa_checkpoint: CheckpointUnderTest, fa_thresholds: DiagnosticThresholds
) -> DiagnosticReport:
    """The report of the checkpoint: assert on its verdict or numbers, or call fa_report.check()."""
    return audit_of(request.config).report(request, fa_checkpoint, fa_thresholds)


@pytest.fixture
def fa_diagnostic(request: pytest.FixtureRequest, fa_report: DiagnosticReport) -> DiagnosticUnderTest:
    """One diagnostic of the report: status, value, threshold, headline; call fa_diagnostic.check().

    A test that asks for it runs once for every diagnostic of --fa-diagnostics or of the marker's diagnostics=.
    """
    return audit_of(request.config).diagnostic(request, fa_report)
