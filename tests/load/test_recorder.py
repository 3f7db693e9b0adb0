"""The recorder: exact numbers, whole lines, resumption, and a training that it leaves as it was."""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support import clustered, in_batches, network
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from pytest_fadiag import AuditError, Recorder, ResidualMLP, diagnose, read_log
from pytest_fadiag.measure.batches import Batch

Trained = Callable[[], ResidualMLP]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "bp_s1.jsonl"


@pytest.fixture
def batches(data: tuple[Tensor, Tensor]) -> list[Batch]:
    return in_batches(*data)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_a_recorded_network_is_audited_exactly(path: Path, batches: list[Batch], trained_network: Trained) -> None:
    model = trained_network()
    Recorder(path, batches).record(1, model)
    partial = read_log(path).report(0.3)
    whole = diagnose(model=model, eval_batches=batches, frozen_baseline_acc=0.3, method_name="bp", seed=1)
    assert partial.residual_norms == whole.residual_norms
    assert partial.bp_grad_norms == whole.bp_grad_norms
    assert partial.cross_batch_stability == whole.cross_batch_stability
    counts = {"nonfinite_states": (), "nonfinite_gradients": ()}  # of what did not happen, the log says nothing
    assert partial.companions == replace(whole.companions, **counts)
    assert [(f.status, f.value, f.headline) for f in partial.findings[:3]] == [
        (f.status, f.value, f.headline) for f in whole.findings[:3]
    ]
    assert partial.headline_acc == whole.headline_acc
    assert partial.accuracy is not None
    assert partial.accuracy.images == 1300
    assert partial.verdict == whole.verdict


def test_the_header_says_what_is_trained(path: Path, batches: list[Batch]) -> None:
    options = argparse.Namespace(lr=1e-3, out=Path("x"), method="fa", blocks=4)
    Recorder(path, batches, config=options, method="dfa", seed=7).record(1, network(), acc=0.5)
    header, entry = lines(path)
    assert header == {
        "recorder": "pytest-fadiag",
        "format_version": 1,
        "config": {"lr": 1e-3, "out": "x", "method": "fa", "blocks": 4},
        "method": "dfa",
        "seed": 7,
        "batch": 128,
    }
    assert (entry["epoch"], entry["acc_eval"]) == (1, 0.5)
    log = read_log(path, batch=4096)
    assert (log.method, log.seed, log.batch, log.config["lr"]) == ("dfa", 7, 128, 1e-3)


def test_with_an_accuracy_the_data_is_read_once_and_only_as_far_as_the_probe(path: Path) -> None:
    x, y = clustered(3000)
    reads = []

    class Watched:
        def __iter__(self) -> Any:
            for batch in in_batches(x, y, 100):
                reads.append(len(batch[1]))
                yield batch

    recorder = Recorder(path, Watched())
    for epoch in (1, 2):
        recorder.record(epoch, network(), acc=0.5)
    assert sum(reads) == 1300
    recorder.record(3, network())
    assert sum(reads) == 1300 + 3000
    assert [entry.get("images") for entry in lines(path)[1:]] == [None, None, 3000]
    norms = [entry["hidden_norms"] for entry in lines(path)[1:]]
    assert norms[0] == norms[1] == norms[2]


@pytest.mark.parametrize(
    ("acc", "options", "images"),
    [
        (1043 / 1300, {}, 1300),
        (float(torch.tensor(1043 / 1300)), {}, 1300),  # as .item() of a float32 gives it
        (0.80239, {}, None),  # no share of 1,300: it was measured on others
        (1043 / 1300, {"drop_last": True}, None),
    ],
)
def test_a_loader_tells_how_many_images_an_accuracy_is_of(
    acc: float, options: dict[str, Any], images: int | None, path: Path, data: tuple[Tensor, Tensor]
) -> None:
    loader = DataLoader(TensorDataset(*data), 100, **options)
    Recorder(path, loader).record(1, network(), acc=acc)
    assert lines(path)[1].get("images") == images
    given = path.with_name("dfa_s2.jsonl")
    Recorder(given, loader).record(1, network(), acc=acc, images=10_000)
    assert lines(given)[1]["images"] == 10_000


def test_batches_that_can_be_read_only_once_serve_every_epoch(path: Path, batches: list[Batch]) -> None:
    recorder = Recorder(path, iter(batches))
    recorder.record(1, network())
    recorder.record(2, network())
    one, two = ({k: v for k, v in entry.items() if k != "epoch"} for entry in lines(path)[1:])
    assert one == two


def test_a_training_does_not_notice_the_recorder(path: Path, data: tuple[Tensor, Tensor]) -> None:
    """The same weights to the last bit, with dropout and a shuffling loader that draw from the global generator."""

    def train(record: bool) -> tuple[dict[str, Tensor], Tensor]:
        torch.manual_seed(3)
        model = network()
        model.out_ln = nn.Sequential(nn.LayerNorm(16), nn.Dropout(0.3))
        loader = DataLoader(TensorDataset(*data), 64, shuffle=True)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        recorder = Recorder(path, DataLoader(TensorDataset(*data), 100)) if record else None
        for epoch in range(2):
            for x, y in loader:
                optimiser.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimiser.step()
            if recorder is not None:
                gradients = [p.grad for p in model.parameters()]
                recorder.record(epoch, model, acc=0.5 if epoch else None)
                assert model.training
                assert all(p.requires_grad and p.grad is g for p, g in zip(model.parameters(), gradients, strict=True))
        return model.state_dict(), torch.get_rng_state()

    (plain, state), (recorded, state_after) = train(False), train(True)
    assert all(torch.equal(value, recorded[name]) for name, value in plain.items())
    assert torch.equal(state, state_after)


def test_what_is_not_finite_is_recorded_and_fires(path: Path, batches: list[Batch]) -> None:
    model = network()
    model.blocks[1].fc1.weight.data.fill_(math.nan)
    Recorder(path, batches).record(1, model, acc=0.2, train_loss=math.nan, best=torch.tensor(0.25), rates=[0.1, math.inf])
    entry = lines(path)[1]
    assert (entry["train_loss"], entry["best"], entry["rates"]) == ("NaN", 0.25, [0.1, "Infinity"])
    assert read_log(path).report(0.1).fired == "abcd"


# --- the file --------------------------------------------------------------------------------------------------------


def test_a_resumed_training_replaces_what_it_records_again(path: Path, batches: list[Batch]) -> None:
    first = Recorder(path, batches, seed=1)
    for epoch in (1, 2, 3):
        first.record(epoch, network(), acc=epoch / 10)
    whole = path.read_bytes()
    with path.open("ab") as file:
        file.write(b'{"epoch":4,"acc_ev')
    resumed = Recorder(path, batches, seed=1)
    assert path.read_bytes().startswith(whole), "opening a log changes nothing"
    resumed.record(4, network(), acc=0.4)
    assert [entry["epoch"] for entry in lines(path)[1:]] == [1, 2, 3, 4]
    assert path.read_bytes().startswith(whole)
    again = Recorder(path, batches, seed=1)
    with pytest.warns(UserWarning, match=r"goes on with epoch 2: epochs 3 to 4 \(2\) are dropped(.|\n)*bp_s1.jsonl") as warned:
        again.record(2, network(), acc=0.9)
    assert [Path(warning.filename).name for warning in warned] == [Path(__file__).name], "once, where it was called"
    assert [(entry["epoch"], entry["acc_eval"]) for entry in lines(path)[1:]] == [(1, 0.1), (2, 0.9)]
    assert os.listdir(path.parent) == [path.name]


def test_one_recorder_goes_forward_and_loses_nothing(path: Path, batches: list[Batch]) -> None:
    recorder = Recorder(path, batches)
    for epoch in (1, 2, 3):
        recorder.record(epoch, network(), acc=epoch / 10)
    before = path.read_bytes()
    with pytest.raises(AuditError, match=r"epoch 2 comes after epoch 3, which this recorder has recorded(.|\n)*bp_s1.jsonl"):
        recorder.record(2, network(), acc=0.9)
    assert path.read_bytes() == before
    recorder.record(3, network(), acc=0.9)
    recorder.record(4, network(), acc=0.9)
    assert [entry["epoch"] for entry in lines(path)[1:]] == [1, 2, 3, 4]


def test_a_gap_where_a_training_went_on_is_noted(path: Path, batches: list[Batch]) -> None:
    first = Recorder(path, batches)
    for epoch in (1, 2, 3, 4, 5):
        first.record(epoch, network(), acc=0.5)
    assert not read_log(path).caveats
    Recorder(path, batches).record(8, network(), acc=0.5)
    (caveat,) = read_log(path).report().caveats
    assert caveat.startswith("epoch 8 follows on epoch 5: ")


def test_a_config_may_change_on_the_way_and_a_run_may_not(path: Path, batches: list[Batch]) -> None:
    Recorder(path, batches, seed=1, config={"epochs": 1}).record(1, network(), acc=0.1)
    Recorder(path, batches, seed=1, config={"epochs": 2}).record(2, network(), acc=0.2)
    assert lines(path)[0]["config"] == {"epochs": 2}
    other = Recorder(path, batches, seed=2)
    before = path.read_bytes()
    with pytest.raises(AuditError, match="the log is of no named method, seed 1, and this is no named method, seed 2"):
        other.record(3, network(), acc=0.1)
    assert path.read_bytes() == before
    with pytest.warns(UserWarning, match="goes on with epoch 1: epoch 2 is dropped"):
        other.record(1, network(), acc=0.3)
    assert [line.get("seed", line.get("acc_eval")) for line in lines(path)] == [2, 0.3]


@pytest.mark.parametrize(
    "content",
    [b'{"method": "x"}\n', b"my notes\n", b'{"epoch":1}\n{"epoch":2}\n', b'{"recorder":"pytest-fadiag"}\nnotes\n', b"\x00\xff"],
)
def test_a_file_of_another_kind_is_refused_and_left_alone(content: bytes, path: Path, batches: list[Batch]) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(AuditError, match=r"no recorder's log, and it is not overwritten; name another\n  .*bp_s1.jsonl"):
        Recorder(path, batches)
    assert path.read_bytes() == content


@pytest.mark.parametrize("left", [b"", b'{"rec', b'{"recorder":"pytest-fadiag","format_ver'])
def test_a_header_that_was_cut_is_written_again(left: bytes, path: Path, batches: list[Batch]) -> None:
    path.parent.mkdir()
    path.write_bytes(left)
    Recorder(path, batches).record(1, network(), acc=0.5)
    assert len(lines(path)) == 2


def test_two_recorders_on_one_file_do_not_drop_each_others_epochs(path: Path, batches: list[Batch]) -> None:
    one, other = (Recorder(path, batches, config={"method": "x", "seed": 1}) for _ in range(2))
    one.record(1, network())
    before = path.read_bytes()
    for _ in range(2):  # a loop that goes on after an error drops nothing either
        with pytest.raises(AuditError, match="the log was changed while this recorder was at work") as raised:
            other.record(1, network())
    assert str(path) in str(raised.value) and path.read_bytes() == before
    one.record(2, network())
    os.utime(path, (1, 1))  # as a backup may: the content is what counts
    one.record(3, network())
    path.write_bytes(path.read_bytes().replace(b'"epoch":2', b'"epoch":1'))
    with pytest.raises(AuditError, match="the log was changed"):
        one.record(4, network())


def test_a_log_that_was_removed_meanwhile_begins_anew(path: Path, batches: list[Batch]) -> None:
    recorder = Recorder(path, batches)
    recorder.record(1, network(), acc=0.5)
    path.unlink()
    recorder.record(2, network(), acc=0.5)
    assert ["recorder" in line for line in lines(path)] == [True, False]


def test_a_killed_process_leaves_whole_lines(path: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[2]); from support import *; from pytest_fadiag import Recorder\n"
        "recorder = Recorder(sys.argv[1], in_batches(*clustered(300)))\n"
        "for epoch in range(100_000): recorder.record(epoch, network(), acc=0.5)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(path), str(Path(__file__).parents[1])])
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None and (not path.exists() or path.stat().st_size < 20_000):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    log = read_log(path)
    assert log.epochs == tuple(range(len(log.epochs)))
    assert not log.caveats


def test_fewer_digits_where_they_are_asked_for(path: Path, batches: list[Batch]) -> None:
    Recorder(path, batches, digits=5, config={"lr": 0.123456789}).record(1, network(), acc=0.123456789)
    header, entry = lines(path)
    assert (header["config"]["lr"], entry["acc_eval"]) == (0.123456789, 0.12346)
    assert all(len(f"{norm:g}") <= 8 and norm == float(f"{norm:.5g}") for norm in entry["hidden_norms"])


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"epoch": 1.5}, "epoch is 1.5"),
        ({"epoch": True}, "epoch is True"),
        ({"epoch": -1}, "epoch is -1"),
        ({"acc": 36.3}, "did you pass a percentage"),
        ({"model": None}, "neither a model nor an accuracy"),
        ({"drift": 0.3}, "'drift' is a key of the log's own"),
        ({"loss": torch.ones(2)}, "loss holds several numbers"),
        ({"loss": object()}, "cannot be written to a log as JSON"),
    ],
)
def test_a_record_that_means_nothing_is_refused(
    arguments: dict[str, Any], words: str, path: Path, batches: list[Batch]
) -> None:
    recorder = Recorder(path, batches)
    with pytest.raises(AuditError, match=words):
        recorder.record(**{"epoch": 1, "model": network(), **arguments})
    assert not path.exists()


def test_evaluation_data_that_is_none(path: Path, data: tuple[Tensor, Tensor]) -> None:
    with pytest.raises(AuditError, match="shuffles; give one with shuffle=False"):
        Recorder(path, DataLoader(TensorDataset(*data), 100, shuffle=True))
    with pytest.raises(AuditError, match="at least 2 batches of 128"):
        Recorder(path, in_batches(*clustered(200)))
    with pytest.raises(AuditError, match="evaluation batch 0"):
        Recorder(path, [data[0]])  # type: ignore[list-item]
    with pytest.raises(AuditError, match="config is a int"):
        Recorder(path, in_batches(*data), config=3)


def test_a_folder_and_a_place_that_cannot_be_written(tmp_path: Path, batches: list[Batch]) -> None:
    with pytest.raises(AuditError, match="the log cannot be read: Is a directory"):
        Recorder(tmp_path, batches)
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(AuditError, match="the log cannot be "):
        Recorder(blocked / "log.jsonl", batches).record(1, network(), acc=0.5)
