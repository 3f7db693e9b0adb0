"""The start of a run: settings resolved and checked, checkpoints found, roles registered."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ..judge.errors import AuditError
from ..show.printable import printable
from .auditor import AUDITOR, Auditor
from .dataspec import FILE_DATA, NAMED_DATA
from .selection import Targets, find_targets
from .settings import Settings, resolved
from .targets import Target

INFORMATION = ("help", "version", "markers", "cacheshow", "showfixtures")
"""Options of pytest that print something and end: they work whatever the ini file says of checkpoints."""


def start(config: pytest.Config) -> None:
    """Prepare this process's auditor; the controller, or the only process, also keeps the summary."""
    if only_informs(config):
        config.stash[AUDITOR] = Auditor(config, Settings.defaults(), Targets())
        return
    received = getattr(config, "workerinput", {}).get("fadiag")
    try:
        settings = Settings.of(config)
        if received is None:
            targets = _found(config, settings)
        else:
            targets = Targets.from_dict(received["targets"])
            config.args = list(received["args"])
        config.stash[AUDITOR] = auditor = Auditor(config, settings, targets)
        _make_importable(config, settings)
        if received is None:
            _check(config, auditor)
    except AuditError as error:
        raise pytest.UsageError(printable(str(error))) from None
    if received is None:
        from .summary import Summary

        config.pluginmanager.register(Summary(auditor), "fadiag-summary")


def only_informs(config: pytest.Config) -> bool:
    """Whether this call of pytest runs no tests by its nature, such as ``pytest --fixtures``."""
    return any(config.getoption(name, None) for name in INFORMATION)


def for_worker(config: pytest.Config) -> dict[str, Any]:
    """What a worker needs of the controller's: plain values."""
    targets = config.stash[AUDITOR].targets
    for target in (*targets.all, *targets.generated):
        if not _is_text(target.path):
            raise pytest.UsageError(f"xdist cannot send a file name that is not UTF-8 to its workers; rename\n  {target.id}")
    sent: dict[str, Any] = {"targets": targets.to_dict(), "args": [str(argument) for argument in config.args]}
    if config.stash[AUDITOR].in_play and (config.stash[AUDITOR].settings.no_cache or not hasattr(config, "cache")):
        from .cache import folder_of_the_run

        sent["shared"] = folder_of_the_run(config)
    return sent


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _found(config: pytest.Config, settings: Settings) -> Targets:
    recorded: Sequence[Target] = ()
    if settings.merge:
        from .merge import merge

        recorded = merge(config, settings).targets
    found = find_targets(config, settings, recorded)
    if found.generated and settings.frozen:
        from .controls import find_controls

        found = found.without_controls(find_controls(config, settings))
    return found if settings.shard is None else found.shard(*settings.shard)


def _make_importable(config: pytest.Config, settings: Settings) -> None:
    """Let package.module:factory mean the repo's own package also when pytest is started in a sub-folder of it."""
    from ..load.specs import is_factory

    factories = [spec for spec in (settings.model, settings.data) if spec is not None and is_factory(spec)]
    if factories and str(config.rootpath) not in sys.path:
        sys.path.append(str(config.rootpath))


def _check(config: pytest.Config, auditor: Auditor) -> None:
    """What is wrong with the command ends the run before a test does."""
    settings = auditor.settings
    if not (settings.given or auditor.targets.all):
        return
    _check_update(config, settings)
    settings.thresholds()
    if settings.frozen:
        _ = auditor.controls
    _ = auditor.expectations
    _ = auditor.readings
    if settings.data is not None:
        _check_data(auditor.data_spec)
    if settings.model is not None:
        _check_model(settings.model)
    if settings.report:
        from .files import destination

        written: dict[Path, str] = {}
        for kind, name in settings.report:
            path = destination(config, settings, kind, name)
            if path is not None and written.setdefault(path.resolve(), kind) != kind:
                raise AuditError(f"--fa-report: {written[path.resolve()]} and {kind} would be written to one file\n  {path}")
    if "--fa-checkpoint" in [str(argument) for argument in config.invocation_params.args]:
        config.issue_config_time_warning(
            pytest.PytestConfigWarning(
                "write --fa-checkpoint=PATH with '=': behind a space pytest also takes PATH for a test path when it looks for "
                "its root folder, and may miss your ini file"
            ),
            stacklevel=2,
        )


def _check_update(config: pytest.Config, settings: Settings) -> None:
    """Recording what is found needs a file, and must be meant: on CI it would turn every change green."""
    if not settings.updates_expect:
        return
    if settings.expect is None:
        raise AuditError("--fa-update-expect: name the file to write with --fa-expect=FILE")
    if os.environ.get("CI", "").lower() not in ("", "0", "false") and not settings.update_expect_on_ci:
        raise AuditError(
            "--fa-update-expect: refused, since CI is set and a record renewed there would hide every change; renew it on your "
            "machine, or say --fa-update-expect-on-ci"
        )
    from .renew import check_record

    try:
        check_record(resolved(config, "expect", settings, settings.expect))
    except AuditError as error:
        raise AuditError(f"--fa-update-expect: {error}") from None


def _check_data(spec: str) -> None:
    from ..load.specs import is_factory

    kind, colon, rest = spec.partition(":")
    named = bool(colon) and kind in NAMED_DATA
    path = Path(rest if named else spec)
    if named and not rest:
        raise AuditError(f"--fa-data={spec}: names no folder; write {kind}:ROOT")
    if (named or path.suffix in FILE_DATA) and not path.exists():
        raise AuditError(f"--fa-data: no such file or folder\n  {path}")
    if not named and path.suffix not in FILE_DATA and not is_factory(spec):
        kinds = ", ".join([*(f"{name}:PATH" for name in NAMED_DATA), f"a file with x and y ({', '.join(FILE_DATA)})"])
        raise AuditError(f"--fa-data: unknown data {spec!r}; accepted: {kinds}, package.module:factory")


def _check_model(spec: str) -> None:
    from ..load.specs import is_factory

    if not spec.startswith("torchvision:") and not is_factory(spec):
        where = f"; it is a file, so did you mean --fa-checkpoint={spec}?" if os.path.exists(spec) else ""
        raise AuditError(f"--fa-model: unknown network {spec!r}; accepted: package.module:factory, torchvision:NAME{where}")
