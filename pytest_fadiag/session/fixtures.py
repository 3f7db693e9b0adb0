"""The fixtures; each can be overridden in a conftest, and the others then work with what it gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from ..judge.errors import AuditError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ..judge.control import Control
    from ..judge.report import DiagnosticReport
    from ..judge.thresholds import DiagnosticThresholds
    from ..load.data import DataSet
    from .auditor import Auditor
    from .handle import CheckpointUnderTest
    from .outcome import DiagnosticUnderTest


@pytest.fixture
def fa_checkpoint(request: pytest.FixtureRequest) -> CheckpointUnderTest:
    """The checkpoint under test: path, method, seed, and on demand state_dict, config, test_acc.

    A test that asks for it, or for a fixture that needs it, runs once for every checkpoint of --fa-checkpoint or of the
    marker's checkpoint=.
    """
    from .handle import checkpoint_for

    return checkpoint_for(request)


@pytest.fixture
def fa_device(request: pytest.FixtureRequest) -> str:
    """The device that networks are measured on: --fa-device, resolved to a GPU where there is one."""
    from ..bench import choose_device
    from .auditor import AUDITOR

    return str(choose_device(request.config.stash[AUDITOR].settings.device))


@pytest.fixture
def fa_model(request: pytest.FixtureRequest, fa_checkpoint: CheckpointUnderTest, fa_device: str) -> nn.Module:
    """The network of the checkpoint with its weights loaded; override it for a network that --fa-model cannot name."""
    from .auditor import AUDITOR
    from .handle import as_checkpoint

    return network_for(request.config.stash[AUDITOR], as_checkpoint(request, fa_checkpoint), fa_device)


def network_for(auditor: Auditor, handle: CheckpointUnderTest, device: str) -> nn.Module:
    """The network of a checkpoint, as --fa-model names it."""
    from ..load.networks import build_network

    return build_network(handle.contents, auditor.settings.model).to(device)


def batches_for(auditor: Auditor, handle: CheckpointUnderTest, network: nn.Module, data: DataSet) -> EvalBatches:
    """The test split as a checkpoint's network wants it."""
    from ..load.networks import wants_flat

    data = data.for_checkpoint(handle.config)
    return EvalBatches(data, auditor.settings.batch_size, flatten=wants_flat(network, data.x[0]))


@pytest.fixture
def fa_test_data(request: pytest.FixtureRequest) -> DataSet:
    """The test split of --fa-data, decoded once: x, y, mean, std; override it with a pair of tensors (x, y)."""
    from .auditor import AUDITOR

    return request.config.stash[AUDITOR].data


def as_data(given: Any) -> DataSet:
    """What the fixture ``fa_test_data`` gives, also where a conftest overrides it with a plain pair."""
    from ..load.data import DataSet

    if isinstance(given, DataSet):
        return given
    if isinstance(given, (tuple, list)) and len(given) == 2:
        import torch

        return DataSet(torch.as_tensor(given[0]), torch.as_tensor(given[1]).long(), "the fixture fa_test_data")
    raise AuditError(f"the fixture fa_test_data gave {type(given).__name__}; expected a pair of tensors (x, y)")


class EvalBatches:
    """The test split as (x, y) batches, normalised as the checkpoint says and flattened if the network wants it."""

    def __init__(self, data: DataSet, size: int, *, flatten: bool) -> None:
        self.data, self.size, self.flatten = data, size, flatten
        self.name, self.note, self.samples = data.name, data.note, len(data)

    def __len__(self) -> int:
        return (self.samples + self.size - 1) // self.size

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return self.data.batches(self.size, flatten=self.flatten)


@pytest.fixture
def fa_eval_batches(
    request: pytest.FixtureRequest, fa_checkpoint: CheckpointUnderTest, fa_model: nn.Module, fa_test_data: DataSet
) -> Any:
    """The (x, y) batches that the network is measured on; override it with any list of batches."""
    from .auditor import AUDITOR
    from .handle import as_checkpoint

    handle = as_checkpoint(request, fa_checkpoint)
    return batches_for(request.config.stash[AUDITOR], handle, fa_model, as_data(fa_test_data))


@pytest.fixture
def fa_frozen_baseline(request: pytest.FixtureRequest, fa_checkpoint: CheckpointUnderTest) -> Control | float | None:
    """The frozen-random control of the checkpoint by --fa-frozen; override it with an accuracy, a Control or None."""
    from .auditor import AUDITOR
    from .handle import as_checkpoint

    return request.config.stash[AUDITOR].control_for(request, as_checkpoint(request, fa_checkpoint))


@pytest.fixture
def fa_thresholds(request: pytest.FixtureRequest) -> DiagnosticThresholds:
    """The thresholds of this test: its fa_protocol markers over the command line over the ini file."""
    from .auditor import AUDITOR
    from .settings import marked

    return request.config.stash[AUDITOR].settings.thresholds(marked(request.node))


@pytest.fixture
def fa_report(
    request: pytest.FixtureRequest, fa_checkpoint: CheckpointUnderTest, fa_thresholds: DiagnosticThresholds
) -> DiagnosticReport:
    """The report of the checkpoint: assert on its verdict or numbers, or call fa_report.check()."""
    from .handle import as_checkpoint
    from .outcome import report_for

    return report_for(request, as_checkpoint(request, fa_checkpoint), fa_thresholds)


@pytest.fixture
def fa_diagnostic(request: pytest.FixtureRequest, fa_report: DiagnosticReport) -> DiagnosticUnderTest:
    """One diagnostic of the report: status, value, threshold, headline; call fa_diagnostic.check().

    A test that asks for it runs once for every diagnostic of --fa-diagnostics or of the marker's diagnostics=.
    """
    from .outcome import diagnostic_for

    return diagnostic_for(request, fa_report)
