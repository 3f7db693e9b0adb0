"""TensorBoard's event files, as ``torch.utils.tensorboard`` writes them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_docs import PASTED, ROOT

from pytest_fadiag import read_log

pytest.importorskip("tensorboard")


def write_events(folder: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder)) as writer:
        for epoch, (norm, accuracy) in enumerate([(9.0, 0.3), (90.0, 0.4), (9000.0, 0.45)], 1):
            writer.add_scalar("stream/h_L_norm", norm, epoch)
            writer.add_scalar("val/acc", accuracy, epoch)
            writer.add_scalar("train/loss", 1.0, epoch)


@pytest.mark.filterwarnings("ignore")
def test_the_scalars_of_an_event_file_are_a_log(tmp_path: Path) -> None:
    write_events(tmp_path)
    (events,) = tmp_path.glob("*tfevents*")
    log = read_log(events)
    assert log.epochs == (1, 2, 3)
    assert [point.residual_norms[-1] for point in log.points] == [9.0, 90.0, 9000.0]
    assert [point.accuracy for point in log.points] == pytest.approx([0.3, 0.4, 0.45])
    assert "h_L_norm from the column 'stream/h_L_norm'" in log.caveats[0]


@pytest.mark.filterwarnings("ignore")
def test_the_command_of_the_page_audits_an_event_file_beside_other_logs(tmp_path: Path) -> None:
    (line,) = (line for _, line in PASTED if "events.out.tfevents" in line)
    for folder in ("results", "logs", "runs"):
        (tmp_path / folder).mkdir()
    shutil.copy(ROOT / "examples" / "logs" / "dfa-lam_s42.json", tmp_path / "results")
    (tmp_path / "logs" / "metrics.csv").write_text("epoch,h_0_norm,h_L_norm,acc_eval\n1,9,90,0.3\n2,9,99,0.36\n")
    write_events(tmp_path / "runs")
    command = line.replace("fadiag ", f"{sys.executable} -m pytest_fadiag ")
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "FA audit of 3 logs" in done.stdout and done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout
