"""The pytest plugin: hooks, and the declaration of options and fixtures; the work is done in ``session``."""

from __future__ import annotations

from typing import Any

import pytest

from . import hookspecs
from .session import audit_of
from .session.fixtures import (  # noqa: F401 (pytest finds fixtures in the plugin's module)
    fa_checkpoint,
    fa_credit,
    fa_device,
    fa_diagnostic,
    fa_eval_batches,
    fa_frozen_baseline,
    fa_model,
    fa_report,
    fa_test_data,
    fa_thresholds,
)
from .session.gpus import auto_workers
from .session.options import declare, is_asked_for


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
    if is_asked_for(config) or config.getoption("help", False):
        audit_of(config)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests that ask for a checkpoint or a diagnostic over all of them."""
    if "fa_checkpoint" in metafunc.fixturenames or metafunc.definition.get_closest_marker("fa_protocol"):
        audit_of(metafunc.config).parametrize(metafunc)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell an xdist worker what the controller found, so that all collect the same."""
    node.workerinput["fadiag"] = audit_of(node.config).for_worker()


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """As many workers as GPUs; xdist asks before the plugin is configured, so this stands in the module."""
    return auto_workers(config)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: list[Any]) -> None:
    """One GPU and a share of the cores for each worker."""
    audit_of(config).prepare_workers(specs)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep the tests of a checkpoint on one worker, unless the user chose a distribution."""
    return audit_of(config).make_scheduler(log)
