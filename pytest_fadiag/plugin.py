"""The pytest plugin: hooks and fixtures.

The work is done in ``session``, imported when something is audited.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pytest

from . import hookspecs
from .options import declare, is_asked_for

if TYPE_CHECKING:
    from torch import nn

    from .judge.control import Control
    from .judge.thresholds import DiagnosticThresholds
    from .load.data import DataSet
    from .session.fixtures import CheckpointUnderTest, DiagnosticUnderTest, ReportUnderTest
    from .session.hooks import AuditHooks
    from .session.run import Run


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options and their ini twins."""
    declare(parser)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Declare the hooks by which other packages add to an audit."""
    pluginmanager.add_hookspecs(hookspecs)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker and, where something is to be audited, find it.

    No checkpoint is opened.
    """
    config.addinivalue_line(
        "markers",
        "fa_protocol(margin_pp=2.0, growth='per_block', …, checkpoint=PATH, seeds=[…], "
        "diagnostics='abcd', expect='a'): thresholds and checkpoints of a test that asks for "
        "fa_report or another fa_ fixture; also on generated tests",
    )
    if is_asked_for(config):
        _audit(config)
    elif config.getoption("dist", "no") != "no" and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Late(config), "fadiag-late")


def _audit(config: pytest.Config) -> AuditHooks:
    from .session.hooks import audit_of

    return audit_of(config)


class _Late:
    """Begins the audit of a controller when the first row arrives: only its workers know the tests
    with a marker.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if hasattr(report, "fa_row"):
            self.config.pluginmanager.unregister(self)
            _audit(self.config).summary.pytest_runtest_logreport(report)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests that ask for a checkpoint or a diagnostic over all of them."""
    marked = metafunc.definition.get_closest_marker("fa_protocol")
    if marked or not {"fa_checkpoint", "fa_diagnostic"}.isdisjoint(metafunc.fixturenames):
        _audit(metafunc.config).parametrize(metafunc)


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """As many workers as GPUs for an audit; xdist asks before the plugin is configured."""
    if os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS") or not is_asked_for(config):
        return None
    from .session.dist import visible_gpus

    return len(visible_gpus()) or None


def _run(request: pytest.FixtureRequest) -> Run:
    return _audit(request.config).run


# Fixtures; each can be overridden in a conftest, and the others then work with what it gives.


@pytest.fixture
def fa_checkpoint(request: pytest.FixtureRequest) -> CheckpointUnderTest:
    """The checkpoint under test: path, id, and on demand method, seed, state_dict, config,
    test_acc.

    A test that asks for it, or for a fixture that needs it, runs once for every checkpoint of
    --fa-checkpoint or of the marker's checkpoint=. An override returns a path.
    """
    from .session.fixtures import checkpoint

    return checkpoint(_run(request), request)


@pytest.fixture
def fa_device(request: pytest.FixtureRequest) -> str:
    """The device that networks are measured on: --fa-device, a GPU where there is one."""
    return _run(request).auditor.device


@pytest.fixture
def fa_model(
    request: pytest.FixtureRequest, fa_checkpoint: CheckpointUnderTest, fa_device: str
) -> nn.Module:
    """The network of the checkpoint with its weights loaded.

    Override it for a network that --fa-model cannot name.
    """
    from .session.fixtures import network

    return network(_run(request), request, fa_checkpoint, fa_device)


@pytest.fixture
def fa_test_data(request: pytest.FixtureRequest) -> DataSet:
    """The test split of --fa-data, decoded once: x, y, mean, std.

    Override it with a pair of tensors (x, y).
    """
    return _run(request).auditor.data


@pytest.fixture
def fa_eval_batches(
    request: pytest.FixtureRequest,
    fa_checkpoint: CheckpointUnderTest,
    fa_model: nn.Module,
    fa_test_data: Any,
) -> Iterable[Any]:
    """The (x, y) batches that the network is measured on; override it with any list of batches."""
    from .session.fixtures import batches

    return batches(_run(request), request, fa_checkpoint, fa_model, fa_test_data)


@pytest.fixture
def fa_frozen_baseline(
    request: pytest.FixtureRequest, fa_checkpoint: CheckpointUnderTest
) -> Control | float | None:
    """The frozen-random control of the checkpoint by --fa-frozen.

    Override it with an accuracy, a Control or None.
    """
    from .session.fixtures import control

    return control(_run(request), request, fa_checkpoint)


@pytest.fixture
def fa_credit(request: pytest.FixtureRequest) -> Any:
    """The method's credit, a function of (model, x, y, checkpoint) by --fa-credit.

    Override it and credit-alignment runs.
    """
    return _run(request).auditor.function("credit")


@pytest.fixture
def fa_step(request: pytest.FixtureRequest) -> Any:
    """One update of the rule, a function of (model, x, y) by --fa-step.

    Override it and credit-alignment runs.
    """
    return _run(request).auditor.function("step")


@pytest.fixture
def fa_thresholds(request: pytest.FixtureRequest) -> DiagnosticThresholds:
    """The thresholds of this test: its markers over the command line over the ini file."""
    from .session.fixtures import thresholds

    return thresholds(_run(request), request)


@pytest.fixture
def fa_report(
    request: pytest.FixtureRequest,
    fa_checkpoint: CheckpointUnderTest,
    fa_thresholds: DiagnosticThresholds,
) -> ReportUnderTest:
    """The report of the checkpoint: assert on its verdict or numbers, or call fa_report.check()."""
    from .session.fixtures import report

    return report(_run(request), request, fa_checkpoint, fa_thresholds)


@pytest.fixture
def fa_diagnostic(
    request: pytest.FixtureRequest, fa_report: ReportUnderTest
) -> DiagnosticUnderTest:
    """One diagnostic of the report: status, value, threshold, headline; call fa_diagnostic.check().

    A test that asks for it runs once for every diagnostic of --fa-diagnostics or of the marker's
    diagnostics=.
    """
    from .session.fixtures import diagnostic

    return diagnostic(_run(request), request, fa_report)
