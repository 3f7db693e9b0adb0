"""The start of a run: everything that it names is found once and checked, before a test runs; no checkpoint is opened."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import pytest

from ..bench import Bench
from ..cache import ResultCache
from ..judge.errors import AuditError
from ..load.controls import Controls, parse_controls
from ..load.setup import Setup
from ..load.sources import DataSpec
from ..load.specs import is_factory
from ..registry import Registry, load_packages
from ..show.progress import Progress
from .checklist import Readings
from .expect import Expectations, check_record
from .files import check_destinations
from .merge import merge, merged_files
from .run import Run
from .selection import Targets, find_targets
from .settings import Settings
from .targets import expand

SHARED: pytest.StashKey[str] = pytest.StashKey()


def registry_of(config: pytest.Config) -> Registry:
    """What this call of pytest knows: by its own plugins and conftests, and by the packages that add to an audit."""
    if not (os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD") or config.getoption("disable_plugin_autoload", False)):
        load_packages(config.pluginmanager)
    return Registry(config.pluginmanager)


def make_run(config: pytest.Config, registry: Registry) -> Run:
    """Everything that the command and the ini file ask for, found once and checked; no checkpoint is opened."""
    settings = Settings.of(config)
    received = getattr(config, "workerinput", {}).get("fadiag")
    merged = merge(settings) if settings.merge else None
    controls = _controls(settings) if settings.frozen else Controls()
    if received is None:
        targets = find_targets(config, settings, merged.targets if merged else ()).without(controls.paths)
        targets.check_some()
        targets = targets if settings.shard is None else targets.shard(*settings.shard)
        _check(config, settings, registry)
        _check_destinations(settings, registry, targets, controls)
    else:
        targets = Targets.from_dict(received["targets"])
        config.args = list(received["args"])
    run = Run(
        settings,
        targets,
        _bench(config, settings, registry),
        controls,
        _expectations(settings),
        merged,
        Readings(settings) if _reads_code(config, settings) else None,
    )
    if settings.only and not run.in_play:
        raise AuditError("--fa-only: nothing to audit is named; add a checkpoint, --fa-log, --fa-merge or --fa-checklist")
    if settings.unsafe_load or any(
        spec is not None and is_factory(spec) for spec in (settings.model, settings.data, settings.credit)
    ):
        # package.module:factory means the repo's own package also when pytest is started in a sub-folder of it.
        sys.path += [str(settings.root)] * (str(settings.root) not in sys.path)
    return run


def _expectations(settings: Settings) -> Expectations | None:
    if settings.expect is None or settings.updates_expect:
        return None
    return Expectations.read(settings.path("expect", settings.expect), settings.available)


def idle_run(config: pytest.Config, registry: Registry) -> Run:
    """The run of a call of pytest that runs no tests."""
    settings = Settings.defaults(config)
    return Run(settings, Targets(), Bench(Setup(), registry=registry))


def _bench(config: pytest.Config, settings: Settings, registry: Registry) -> Bench:
    data = None if settings.data is None else _data_spec(settings, registry).text
    setup = Setup(
        data,
        settings.model,
        settings.stream,
        settings.batches,
        settings.batch_size,
        settings.device,
        settings.threads,
        settings.unsafe_load,
        settings.normalize,
        settings.base("data"),
        settings.credit,
    )
    plugin = config.pluginmanager.get_plugin  # asked later: the reporter is not there yet when a run is configured
    return Bench(
        setup,
        registry=registry,
        cache=_cache(config, settings),
        progress=lambda name: Progress(plugin("terminalreporter"), plugin("capturemanager"), name),
    )


def _cache(config: pytest.Config, settings: Settings) -> ResultCache:
    """In pytest's cache folder; where there is none or it is not wanted, what the workers of the run share while it lasts."""
    provider = getattr(config, "cache", None)
    worker = getattr(config, "workerinput", {})
    run = worker.get("testrunuid")
    if not settings.no_cache and provider is not None:
        return ResultCache(lambda: provider.mkdir("fadiag"), _warn, run)
    shared = worker.get("fadiag", {}).get("shared")
    return ResultCache(None if shared is None else lambda: _made(Path(shared)), _warn, run)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)  # a worker on another host has none yet
    return folder


def _warn(text: str) -> None:
    """Warn; where warnings are errors too, for a checkpoint is not to blame for a full disk."""
    warning = pytest.PytestWarning(f"fadiag: {text}")
    try:
        warnings.warn(warning, stacklevel=3)
    except pytest.PytestWarning:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn(warning, stacklevel=3)


def _controls(settings: Settings) -> Controls:
    """The controls of --fa-frozen, with their globs expanded."""
    base, what = settings.base("frozen"), settings.source("frozen")

    def files(value: str) -> list[Path]:
        return [Path(target.path) for target in expand([value], base, settings.root, what=what)]

    def absolute(value: str) -> str:
        return str(settings.path("frozen", value)) if value.endswith(".json") else value

    try:
        return parse_controls([absolute(value) for value in settings.frozen], files)
    except AuditError as error:
        raise AuditError(str(error) if str(error).startswith(what) else f"{what}: {error}") from None


def _reads_code(config: pytest.Config, settings: Settings) -> bool:
    """Whether this run reads evaluation code; that of the ini file belongs to a run of everything, as testpaths do."""
    whole = "checklist" in settings.typed or config.args_source is not pytest.Config.ArgsSource.ARGS
    return bool(settings.checklist) and whole


def _check(config: pytest.Config, settings: Settings, registry: Registry) -> None:
    """What is wrong with the command ends the run before a test does."""
    _check_update(settings)
    settings.thresholds()
    if settings.data is not None:
        _data_spec(settings, registry, check=True)
    if settings.model is not None:
        _check_model(settings.model)
    if "--fa-checkpoint" in [str(argument) for argument in config.invocation_params.args]:
        config.issue_config_time_warning(
            pytest.PytestConfigWarning(
                "write --fa-checkpoint=PATH with '=': behind a space pytest also takes PATH for a test path when it looks for "
                "its root folder, and may miss your ini file"
            ),
            stacklevel=2,
        )


def _check_destinations(settings: Settings, registry: Registry, targets: Targets, controls: Controls) -> None:
    """No report is written over what the run reads."""
    inputs = [Path(target.path) for target in (*targets.named, *targets.generated, *targets.written)]
    inputs += [*controls.paths, *(settings.path("frozen", text) for text in settings.frozen)]
    inputs += merged_files(settings) if settings.merge else []
    inputs += [settings.path(name, text) for name in ("log", "checklist") for text in getattr(settings, name)]
    if settings.data is not None and (data := _data_spec(settings, registry).path) is not None:
        inputs.append(data)
    if settings.expect is not None:
        inputs.append(settings.path("expect", settings.expect))
    check_destinations(settings, inputs)


def _data_spec(settings: Settings, registry: Registry, *, check: bool = False) -> DataSpec:
    try:
        spec = registry.data_spec(settings.data or "", settings.base("data"))
        if check:
            spec.check()
    except AuditError as error:
        raise AuditError(f"--fa-data: {error}") from None
    return spec


def _check_update(settings: Settings) -> None:
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
    try:
        check_record(settings.path("expect", settings.expect))
    except AuditError as error:
        raise AuditError(f"--fa-update-expect: {error}") from None


def _check_model(spec: str) -> None:
    if not spec.startswith("torchvision:") and not is_factory(spec):
        where = f"; it is a file, so did you mean --fa-checkpoint={spec}?" if os.path.exists(spec) else ""
        raise AuditError(f"--fa-model: unknown network {spec!r}; accepted: package.module:factory, torchvision:NAME{where}")


def for_worker(config: pytest.Config, run: Run) -> dict[str, Any]:
    """What a worker needs of the controller's: plain values."""
    for target in (*run.targets.written, *run.targets.generated):
        if not _is_text(target.path):
            raise pytest.UsageError(f"xdist cannot send a file name that is not UTF-8 to its workers; rename\n  {target.id}")
    sent: dict[str, Any] = {"targets": run.targets.to_dict(), "args": [str(argument) for argument in config.args]}
    if run.in_play and (run.settings.no_cache or not hasattr(config, "cache")):
        sent["shared"] = _folder_of_the_run(config)
    return sent


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _folder_of_the_run(config: pytest.Config) -> str:
    """A folder for what the workers of one run share and nobody keeps; made by the controller, which removes it."""
    if SHARED not in config.stash:
        config.stash[SHARED] = tempfile.mkdtemp(prefix="fadiag-")
        config.add_cleanup(lambda: shutil.rmtree(config.stash[SHARED], ignore_errors=True))
    return config.stash[SHARED]
