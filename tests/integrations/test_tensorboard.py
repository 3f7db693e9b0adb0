"""TensorBoard's event files, as ``torch.utils.tensorboard`` writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_fadiag import read_log

pytest.importorskip("tensorboard")


@pytest.mark.filterwarnings("ignore")
def test_the_scalars_of_an_event_file_are_a_log(tmp_path: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        for epoch, (norm, accuracy) in enumerate([(9.0, 0.3), (90.0, 0.4), (9000.0, 0.45)], 1):
            writer.add_scalar("stream/h_L_norm", norm, epoch)
            writer.add_scalar("val/acc", accuracy, epoch)
            writer.add_scalar("train/loss", 1.0, epoch)
    (events,) = tmp_path.glob("*tfevents*")
    log = read_log(events)
    assert log.epochs == (1, 2, 3)
    assert [point.residual_norms[-1] for point in log.points] == [9.0, 90.0, 9000.0]
    assert [point.accuracy for point in log.points] == pytest.approx([0.3, 0.4, 0.45])
    assert "h_L_norm from the column 'stream/h_L_norm'" in log.caveats[0]
