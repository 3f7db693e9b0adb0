"""The start of a run: settings resolved and checked, checkpoints found, roles registered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ..protocol.errors import AuditError
from .auditor import AUDITOR, Auditor, find_controls
from .collection import Targets, find_targets
from .settings import Settings
from .summary import Summary


def start(config: pytest.Config) -> None:
    """Prepare this process's auditor; the controller, or the only process, also keeps the summary."""
    settings = Settings.of(config)
    received = getattr(config, "workerinput", {}).get("fadiag")
    if received is None:
        targets = find_targets(config, settings).without_controls(find_controls(config, settings))
    else:
        targets = Targets.from_dict(received["targets"])
        config.args = list(received["args"])
    auditor = Auditor(config, settings, targets)
    config.stash[AUDITOR] = auditor
    if received is not None:
        return
    if targets.all or targets.generated:
        _check(config, auditor)
    config.pluginmanager.register(Summary(auditor), "fadiag-summary")


def for_worker(config: pytest.Config) -> dict[str, Any]:
    """What a worker needs of the controller's: plain values."""
    return {"targets": config.stash[AUDITOR].targets.to_dict(), "args": [str(argument) for argument in config.args]}


def _check(config: pytest.Config, auditor: Auditor) -> None:
    """What is wrong with the command ends the run before a test does."""
    try:
        auditor.settings.thresholds()
        _ = auditor.controls
        _ = auditor.expectations
        if auditor.settings.data is not None:
            _check_data(auditor.data_spec)
    except AuditError as error:
        raise pytest.UsageError(str(error)) from None
    typed = [str(argument) for argument in config.invocation_params.args]
    if "--fa-checkpoint" in typed:
        config.issue_config_time_warning(
            pytest.PytestConfigWarning(
                "write --fa-checkpoint=PATH with '=': behind a space pytest also takes PATH for a test path when it looks for "
                "its root folder, and may miss your ini file"
            ),
            stacklevel=2,
        )


def _check_data(spec: str) -> None:
    kind, colon, rest = spec.partition(":")
    path = Path(rest) if colon and kind in ("fashion-mnist", "cifar10", "folder") else Path(spec)
    if (path.suffix or kind in ("fashion-mnist", "cifar10", "folder")) and ("/" in str(path)) and not path.exists():
        raise AuditError(f"--fa-data: no such file or folder\n  {path}")
