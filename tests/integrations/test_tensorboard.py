"""TensorBoard's event files, as ``torch.utils.tensorboard`` writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_fadiag.load.logs import read_log

pytest.importorskip("tensorboard")


@pytest.mark.filterwarnings("ignore")
def test_the_scalars_of_an_event_file_are_a_log(tmp_path: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        for epoch, norm in enumerate([9.0, 90.0, 9000.0], 1):
            writer.add_scalar("stream/h_L_norm", norm, epoch)
            writer.add_scalar("val/acc", 0.25, epoch)
            writer.add_scalar("train/loss", 1.0, 10 * epoch)
    (path,) = tmp_path.glob("*tfevents*")
    log = read_log(path).base.log
    assert log is not None
    held = [(epoch.epoch, epoch.residual_norms[-1], epoch.headline_acc) for epoch in log.epochs]
    assert held == [(1, 9.0, 0.25), (2, 90.0, 0.25), (3, 9000.0, 0.25)]
