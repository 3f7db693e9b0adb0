"""The guard: it stops by the rule that a log gives, and leaves healthy runs alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support import clustered, in_batches, network

from pytest_fadiag import AuditError, Guard, GuardStopped, Recorder, ResidualMLP, read_log
from pytest_fadiag.judge.trajectory import at_epoch


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(tmp_path / "dfa_s1.jsonl", in_batches(*clustered(300)))


def exploded(times: float = 1e3) -> ResidualMLP:
    """A network whose first block grows the stream by more than the ratio."""
    model = network()
    with torch.no_grad():
        model.blocks[0].fc2.weight.mul_(times)
    return model


def test_it_stops_at_the_last_of_so_many_records_in_a_row(recorder: Recorder) -> None:
    guard = Guard(recorder, stop="ab", after=3)
    for epoch, model in enumerate([network(), exploded(), exploded(), network(), exploded(), exploded()], 1):
        guard.record(epoch, model, acc=0.5)
    with pytest.raises(GuardStopped, match=r"\(a\) residual-growth has fired in 3 records in a row, epochs 5 to 7") as stopped:
        guard.record(7, exploded(), acc=0.5)
    assert (stopped.value.epoch, stopped.value.keys) == (7, "a")
    assert stopped.value.report.method_name == "dfa"
    assert read_log(recorder.path).epochs == (1, 2, 3, 4, 5, 6, 7)  # what stopped it is in the log


def test_the_log_gives_the_same_epoch_by_that_rule(recorder: Recorder) -> None:
    guard = Guard(recorder, after=2)
    models = [network(), exploded(), network(), exploded(), exploded(), exploded()]
    with pytest.raises(GuardStopped) as stopped:
        for epoch, model in enumerate(models, 1):
            guard.record(epoch, model, acc=0.5)
    report = read_log(recorder.path).report()
    assert report.trajectory is not None
    fired = ["a" in at_epoch(report, point).fired for point in report.trajectory.points]
    assert stopped.value.epoch == next(epoch for epoch in range(2, 7) if fired[epoch - 2] and fired[epoch - 1])


def test_a_healthy_run_is_left_alone(recorder: Recorder) -> None:
    guard = Guard(recorder, after=1)
    for epoch in range(1, 6):
        guard.record(epoch, network(), acc=0.5)
    assert guard.stopped is None


def test_a_callback_is_called_once_instead(recorder: Recorder) -> None:
    calls: list[GuardStopped] = []
    guard = Guard(recorder, stop="a", after=2, on_stop=calls.append)
    for epoch in range(1, 5):
        guard.record(epoch, exploded(), acc=0.5)
    assert [stop.epoch for stop in calls] == [2]


def test_a_resumed_training_goes_on_with_the_streak_of_its_log(recorder: Recorder) -> None:
    for epoch in (1, 2, 3):
        recorder.record(epoch, exploded(), acc=0.5)
    resumed = Guard(Recorder(recorder.path, recorder.eval_batches), stop="a", after=3)
    with pytest.raises(GuardStopped, match="epochs 1 to 3"):
        resumed.record(3, exploded(), acc=0.5)  # epoch 3 again: of the log, the two before it count


def test_it_stops_by_the_control_only_if_it_has_one(recorder: Recorder) -> None:
    with pytest.raises(AuditError, match=r"cannot stop by \(d\) frozen-margin: no frozen-random control was supplied"):
        Guard(recorder, stop="d").record(1, network(), acc=0.5)
    with pytest.raises(GuardStopped, match=r"\(d\) frozen-margin"):
        Guard(recorder, stop="d", after=1, control=0.7).record(2, network(), acc=0.5)


def test_thresholds_are_those_that_are_given(recorder: Recorder) -> None:
    with pytest.raises(GuardStopped):
        Guard(recorder, stop="a", after=1, thresholds={"h_norm_explosion_ratio": 0.5}).record(1, network(), acc=0.5)


@pytest.mark.parametrize(
    ("options", "problem"), [({"stop": "x"}, "unknown"), ({"stop": ""}, "no key"), ({"after": 0}, "after is 0")]
)
def test_a_rule_that_means_nothing_is_refused(recorder: Recorder, options: dict[str, object], problem: str) -> None:
    with pytest.raises(AuditError, match=problem):
        Guard(recorder, **options)  # type: ignore[arg-type]
