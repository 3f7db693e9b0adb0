"""The pytest plugin: hooks, and the declaration of options and fixtures; the work is done in ``session``."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, Any

import pytest

from . import hookspecs
from .session import HOOKS, audit_of, workers_of
from .session.options import declare, is_asked_for, is_command, refuse_unknown, spoken

if TYPE_CHECKING:
    from torch import nn

    from .judge.control import Control
    from .judge.credit import CreditFunction
    from .judge.report import DiagnosticReport
    from .judge.thresholds import DiagnosticThresholds
    from .load.data import DataSet
    from .measure.batches import Batch
    from .session.fixtures import CheckpointUnderTest, DiagnosticUnderTest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options and their ini twins."""
    declare(parser)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Declare the hooks by which other packages add to an audit."""
    pluginmanager.add_hookspecs(hookspecs)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker and, where something is to be audited, find it; no checkpoint is opened."""
    config.addinivalue_line(
        "markers",
        "fa_protocol(margin_pp=2.0, growth='per_block', …, checkpoint=PATH, seeds=[…], diagnostics='abcd', expect='a'): "
        "thresholds and checkpoints of an FA audit test; also on every generated one",
    )
    refuse_unknown(config)
    if is_asked_for(config) or config.getoption("help", False):
        audit_of(config)


@pytest.hookimpl(wrapper=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, Any, Any]:
    """Let a usage error name the options as they were typed."""
    try:
        return (yield)
    except pytest.UsageError as error:
        if not is_command(config):
            raise
        raise pytest.UsageError(*(spoken(str(text)) for text in error.args)) from None


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Let everything that the terminal shows of «fadiag …» name the options as they were typed."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and is_command(session.config):
        writer = reporter._tw
        write = writer.write
        writer.write = lambda text, **markup: write(spoken(text), **markup)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests that ask for a checkpoint or a diagnostic over all of them."""
    if "fa_checkpoint" in metafunc.fixturenames or metafunc.definition.get_closest_marker("fa_protocol"):
        audit_of(metafunc.config).parametrize(metafunc)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Check markers on unittest's classes too, of which pytest generates no tests, where nothing else began an audit."""
    if HOOKS not in config.stash and any(
        type(item).__name__ == "TestCaseFunction" and item.get_closest_marker("fa_protocol") for item in items
    ):
        audit_of(config).pytest_collection_modifyitems(config, items)


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """As many workers as GPUs; xdist asks before the plugin is configured, so this stands in the module."""
    return workers_of(config)


# Fixtures; each can be overridden in a conftest, and the others then work with what it gives.


@pytest.fixture
def fa_checkpoint(request: pytest.FixtureRequest) -> CheckpointUnderTest:
    """The checkpoint under test: path, method, seed, and on demand state_dict, config, test_acc.

    A test that asks for it, or for a fixture that needs it, runs once for every checkpoint of --fa-checkpoint or of the
    marker's checkpoint=.
    """
    return audit_of(request.config).fixtures.checkpoint(request)


@pytest.fixture
def fa_device(request: pytest.FixtureRequest) -> str:
    """The device that networks are measured on: --fa-device, resolved to a GPU where there is one."""
    return audit_of(request.config).fixtures.device(request)


@pytest.fixture
def fa_model(request: pytest.FixtureRequest, fa_checkpoint: CheckpointUnderTest) -> nn.Module:
    """The network of the checkpoint with its weights loaded; override it for a network that --fa-model cannot name."""
    return audit_of(request.config).fixtures.network(request, fa_checkpoint)


@pytest.fixture
def fa_test_data(request: pytest.FixtureRequest) -> DataSet:
    """The test split of --fa-data, decoded once: x, y, mean, std; override it with a pair of tensors (x, y)."""
    return audit_of(request.config).fixtures.data()


@pytest.fixture
def fa_eval_batches(request: pytest.FixtureRequest, fa_checkpoint: CheckpointUnderTest, fa_model: nn.Module) -> Iterable[Batch]:
    """The (x, y) batches that the network is measured on; override it with any list of batches."""
    return audit_of(request.config).fixtures.batches(request, fa_checkpoint, fa_model)


@pytest.fixture
def fa_frozen_baseline(request: pytest.FixtureRequest, fa_checkpoint: CheckpointUnderTest) -> Control | float | None:
    """The frozen-random control of the checkpoint by --fa-frozen; override it with an accuracy, a Control or None."""
    return audit_of(request.config).fixtures.control(request, fa_checkpoint)


@pytest.fixture
def fa_credit(request: pytest.FixtureRequest) -> CreditFunction | None:
    """The method's credit, a function of (model, x, y, checkpoint) by --fa-credit; override it and credit-alignment is run."""
    return audit_of(request.config).fixtures.credit()


@pytest.fixture
def fa_thresholds(request: pytest.FixtureRequest) -> DiagnosticThresholds:
    """The thresholds of this test: its fa_protocol markers over the command line over the ini file."""
    return audit_of(request.config).fixtures.thresholds(request)


@pytest.fixture
def fa_report(
    request: pytest.FixtureRequest, fa_checkpoint: CheckpointUnderTest, fa_thresholds: DiagnosticThresholds
) -> DiagnosticReport:
    """The report of the checkpoint: assert on its verdict or numbers, or call fa_report.check()."""
    return audit_of(request.config).fixtures.report(request, fa_checkpoint, fa_thresholds)


@pytest.fixture
def fa_diagnostic(request: pytest.FixtureRequest, fa_report: DiagnosticReport) -> DiagnosticUnderTest:
    """One diagnostic of the report: status, value, threshold, headline; call fa_diagnostic.check().

    A test that asks for it runs once for every diagnostic of --fa-diagnostics or of the marker's diagnostics=.
    """
    return audit_of(request.config).fixtures.diagnostic(request, fa_report)
