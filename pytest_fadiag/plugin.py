"""The pytest plugin: hooks, and the declaration of options and fixtures; the work is done in ``session``."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from .session.fixtures import (  # noqa: F401 (pytest finds fixtures in the plugin's module)
    fa_checkpoint,
    fa_device,
    fa_diagnostic,
    fa_eval_batches,
    fa_frozen_baseline,
    fa_model,
    fa_report,
    fa_test_data,
    fa_thresholds,
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options and their ini twins."""
    from .session.options import declare

    declare(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker, resolve the settings, and find the checkpoints; no checkpoint is opened."""
    from .session.start import start

    config.addinivalue_line(
        "markers",
        "fa_protocol(margin_pp=2.0, growth='per_block', …, checkpoint=PATH, seeds=[…], diagnostics='abcd', expect='a'): "
        "thresholds and checkpoints of an FA audit test; also on every generated one",
    )
    start(config)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Add the generated tests to what the session collects."""
    report = yield
    if isinstance(collector, pytest.Session) and report.passed:
        from .session.auditor import AUDITOR

        auditor = collector.config.stash[AUDITOR]
        if auditor.targets.generated:
            from .session.collection import generated

            report.result = [*(report.result or ()), *generated(collector, auditor)]
    return report


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests that ask for a checkpoint or a diagnostic over all of them."""
    if "fa_checkpoint" in metafunc.fixturenames or "fa_diagnostic" in metafunc.fixturenames:
        from .session.auditor import AUDITOR
        from .session.collection import parametrize

        parametrize(metafunc, metafunc.config.stash[AUDITOR])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Check the markers before anything runs."""
    from .session.settings import MARKER, marker_keywords

    for item in items:
        for marker in item.iter_markers(MARKER):
            marker_keywords(marker)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Give the report of an audit's test its text and its row."""
    report = yield
    if "fa_checkpoint" in getattr(item, "fixturenames", ()):
        from .session.outcome import annotate

        annotate(item, call, report)
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell an xdist worker what the controller found, so that all collect the same."""
    from .session.start import for_worker

    node.workerinput["fadiag"] = for_worker(node.config)
