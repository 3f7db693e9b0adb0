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
        if auditor.in_play:
            from .session.collection import everything

            report.result = [*(report.result or ()), *everything(collector, auditor)]
    return report


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests that ask for a checkpoint or a diagnostic over all of them."""
    if "fa_checkpoint" in metafunc.fixturenames or metafunc.definition.get_closest_marker("fa_protocol"):
        from .session.auditor import AUDITOR
        from .session.collection import prepare

        prepare(metafunc, metafunc.config.stash[AUDITOR])


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Check the markers before anything runs."""
    from .session.auditor import AUDITOR

    auditor = config.stash[AUDITOR]
    marked = [item for item in items if item.get_closest_marker("fa_protocol")]
    if marked or auditor.settings.given:
        from .session.collection import check_tests

        check_tests(config, marked, auditor)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Give the report of an audit's test its text and its row."""
    report = yield
    if "fa_checkpoint" in getattr(item, "fixturenames", ()):
        from .session.outcome import annotate

        annotate(item, call, report)
    elif item.name == "seed-margin":
        from .session.outcome import annotate_seeds

        annotate_seeds(item, call, report)
    elif report.failed and hasattr(item, "fa_headline"):
        report.fa_headline = item.fa_headline  # type: ignore[attr-defined]
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell an xdist worker what the controller found, so that all collect the same."""
    from .session.start import for_worker

    node.workerinput["fadiag"] = for_worker(node.config)


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """As many workers as GPUs; xdist asks before the plugin is configured, so this stands in the module."""
    from .session.dist import auto_workers

    return auto_workers(config)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: list[Any]) -> None:
    """One GPU and a share of the cores for each worker."""
    from .session.dist import prepare_workers

    prepare_workers(config, specs)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep the tests of a checkpoint on one worker, unless the user chose a distribution."""
    from .session.dist import make_scheduler

    return make_scheduler(config, log)
