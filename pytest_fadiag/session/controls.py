"""The controls of a run: found at its start, evaluated when a checkpoint is compared with one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..judge.errors import AuditError
from ..load.controls import ControlFile, Controls, parse_controls
from .overrides import is_overridden
from .settings import Settings, base_folder, resolved
from .targets import expand

if TYPE_CHECKING:
    from ..judge.control import Control
    from ..load.checkpoints import Checkpoint

EVALUATED_BY = ("fa_model", "fa_eval_batches", "fa_test_data", "fa_device")
"""Fixtures whose override changes how a control checkpoint is evaluated."""


def find_controls(config: pytest.Config, settings: Settings) -> Controls:
    """The controls of --fa-frozen, with their globs expanded."""
    base = base_folder(config, "frozen", settings)
    what = "--fa-frozen" if "frozen" in settings.from_command_line else "fa_frozen in the ini file"

    def files(value: str) -> list[Path]:
        return [Path(target.path) for target in expand([value], base, config.rootpath, what=what)]

    def absolute(value: str) -> str:
        return str(resolved(config, "frozen", settings, value)) if value.endswith(".json") else value

    try:
        return parse_controls([absolute(value) for value in settings.frozen], files)
    except AuditError as error:
        raise AuditError(str(error) if str(error).startswith(what) else f"{what}: {error}") from None


def evaluate_control(
    request: pytest.FixtureRequest,
    file: ControlFile,
    settings: Settings,
    progress: Callable[[int, int], None],
    digest: str | None,
) -> Control:
    """A control checkpoint on the images of a test, by the test's own fixtures where they are overridden."""
    from ..bench import control_of
    from ..load.checkpoints import load_checkpoint
    from ..measure.measure import evaluate

    try:
        checkpoint = load_checkpoint(file.path, unsafe=settings.unsafe_load)
        network = _network(request, checkpoint, settings)
    except AuditError as error:
        raise AuditError(f"control {error}") from error
    batches = _batches(request, checkpoint, network, settings)
    total = getattr(batches, "samples", 0)
    accuracy = evaluate(
        network,
        batches,
        batch_size=settings.batch_size,
        threads=settings.threads,
        data_digest=digest,
        progress=lambda done: progress(done, total),
    )
    return control_of(file, checkpoint.config, accuracy)


def _network(request: pytest.FixtureRequest, checkpoint: Checkpoint, settings: Settings) -> Any:
    """The network of a control; one that only a fixture of the user's builds is copied and given the control's tensors."""
    from ..load.networks import build_network, load_into

    if not is_overridden(request, "fa_model"):
        return build_network(checkpoint, settings.model).to(request.getfixturevalue("fa_device"))
    network = copy.deepcopy(request.getfixturevalue("fa_model"))
    load_into(network, checkpoint)
    return network


def _batches(request: pytest.FixtureRequest, checkpoint: Checkpoint, network: Any, settings: Settings) -> Any:
    from ..load.networks import wants_flat
    from .fixtures import EvalBatches, as_data

    if is_overridden(request, "fa_eval_batches"):
        return request.getfixturevalue("fa_eval_batches")
    data = as_data(request.getfixturevalue("fa_test_data")).for_checkpoint(checkpoint.config)
    return EvalBatches(data, settings.batch_size, flatten=wants_flat(network, data.x[0]))
