"""The recorder and the guard: exact numbers, whole lines, resumption, an undisturbed run."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from support import clustered, in_batches, measured, network
from torch import Tensor, nn
from torch.utils import data as loading
from torch.utils.data import DataLoader, TensorDataset

from pytest_fadiag.judge.errors import AuditError
from pytest_fadiag.judge.thresholds import DiagnosticThresholds
from pytest_fadiag.load.logs import read_log
from pytest_fadiag.load.network import ResidualMLP
from pytest_fadiag.recorder import Guard, GuardStopped, Recorder

X, Y = clustered(1300)
BATCHES = in_batches(X, Y, 100)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "bp_s1.jsonl"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def exploded() -> ResidualMLP:
    """A network whose first block grows the stream by more than the ratio."""
    model = network()
    model.blocks[0].fc2.weight.data.mul_(1e3)
    return model


# --- what is recorded -------------------------------------------------------------------------


def test_every_nth_update_is_compared_with_bp_at_one_pass_more(path: Path) -> None:
    model = network().train()
    recorder = Recorder(path, BATCHES, model=model, step_every=2)
    optimiser = torch.optim.SGD(model.parameters(), 0.1)
    seen: list[float] = []

    def update(x: Tensor, y: Tensor, decay: float) -> None:
        """BP, with a decay that turns the step; its cosine with the gradient by hand."""
        nn.functional.cross_entropy(model(x), y).backward()
        moved = [0.1 * (p.grad + decay * p.detach()) for p in model.blocks[0].parameters()]
        gradient = [p.grad.clone() for p in model.blocks[0].parameters()]
        a, b = (torch.cat([t.flatten() for t in ts]).double() for ts in (moved, gradient))
        seen.append(float(a @ b / (a.norm() * b.norm())))
        for parameter in model.parameters():
            parameter.grad += decay * parameter.detach()
        optimiser.step()
        optimiser.zero_grad()

    for number in range(4):
        drawn = torch.get_rng_state()
        with recorder.step(X[:128], Y[:128]):
            update(X[:128], Y[:128], 0.1 * number)
        assert torch.equal(drawn, torch.get_rng_state())
    recorder.record(1, model, 0.5)
    with recorder.step((X[:128], Y[:128])):
        update(X[:128], Y[:128], 0.0)
    recorder.record(2, model, 0.5)
    first, second = (epoch.step for epoch in read_log(path).base.log.epochs)  # type: ignore[union-attr]
    assert first is not None and second is not None
    assert first.batches == 2 and second.batches == 1
    place = first.parts.index("blocks.0")
    assert first.plain[place] == pytest.approx((seen[0] + seen[2]) / 2, abs=1e-5)
    assert first.least_plain[place] == pytest.approx(seen[2], abs=1e-5)
    assert second.is_bp and not first.is_bp
    report = read_log(path).report()
    assert report.step == second and "credit-alignment" not in report.diagnostics


def test_a_report_of_logged_updates_has_their_cosines_and_no_contrast(path: Path) -> None:
    model = network()
    recorder = Recorder(path, BATCHES, model=model)
    with recorder.step(X[:128], Y[:128]):
        model.zero_grad()
        nn.functional.cross_entropy(model(X[:128]), Y[:128]).backward()
        torch.optim.SGD(model.parameters(), 0.1).step()
    recorder.record(0, model, acc=0.5)
    text = str(read_log(path).report())
    (embedding,) = [line.split() for line in text.splitlines() if "embedding  " in line]
    assert embedding[:4] == ["embedding", "–", "–", "+1.000"]
    assert "1 update in training, without contrast" in text


def test_updates_with_dropout_and_parts_that_stay(path: Path) -> None:
    model = nn.Sequential(nn.Dropout(0.5), network()).train()
    model[1].embed.requires_grad_(False)
    recorder = Recorder(path, BATCHES, stream="1.blocks.*", step_every=1)
    with recorder.step(X[:128], Y[:128], model):
        nn.functional.cross_entropy(model(X[:128]), Y[:128]).backward()
        torch.optim.SGD(model[1].blocks.parameters(), 0.1).step()
    recorder.record(1, model, 0.5)
    step = read_log(path).base.step
    assert step is not None and step.is_bp  # under the mask that the update draws
    assert step.change[0] == 0 and math.isnan(step.plain[0])
    with pytest.raises(AuditError, match="which network"), recorder.step(X, Y):
        pass


def test_a_recorded_network_is_audited_exactly(path: Path) -> None:
    recorder, model = Recorder(path, iter(BATCHES)), network()
    for epoch in (1, 2):  # an iterator serves every epoch, and the stream is looked for once
        recorder.record(epoch, model)
    whole, base = measured(model, BATCHES), read_log(path).base
    left_out = {"score", "reference", "environment"}
    for name in set(msgspec.structs.asdict(whole)) - left_out:
        assert getattr(base, name) == getattr(whole, name), name
    assert base.score is not None and whole.score is not None
    assert (base.score.value, base.score.images) == (whole.score.value, 1300)
    one, two = ({**entry, "epoch": 0} for entry in lines(path)[1:])
    assert one == two


def test_another_task_is_logged_with_its_loss_through_a_forward_of_ones_own(path: Path) -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = network()

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            outputs = self.net(x)
            return outputs, 2 * outputs

    targets = torch.nn.functional.one_hot(Y).float() + X[:, :5]
    recorder = Recorder(
        path, [(X, targets)], loss="mse", forward=lambda model, x, y: model(x)[0], batch_size=512
    )
    model = Pair()
    for epoch in (1, 2):
        recorder.record(epoch, model)
    with torch.no_grad():
        residual = (model(X)[0] - targets).double().square().sum(1)
    spread = (targets - targets.mean(0)).double().square().sum(1).mean()
    base = read_log(path).base
    assert (base.task, base.loss, base.loss_assumed) == ("regression", "squared error", False)
    assert base.score is not None
    assert base.score.value == pytest.approx(1 - float(residual.mean() / spread), rel=1e-5)
    one, two = ({**entry, "epoch": 0} for entry in lines(path)[1:])
    assert one == two


def test_with_an_accuracy_only_the_first_1280_samples_are_looked_at(path: Path) -> None:
    recorder = Recorder(path, [*BATCHES, (torch.full((1, 20), math.nan), torch.tensor([0]))])
    recorder.record(1, network(), acc=0.5, images=10_000)
    assert lines(path)[1]["images"] == 10_000
    with pytest.raises(AuditError, match="NaN"):
        recorder.record(2, network())


def test_the_header_and_numbers_of_ones_own(path: Path) -> None:
    options = argparse.Namespace(lr=0.123456789, out=Path("x"), method="fa", blocks=4)
    recorder = Recorder(path, BATCHES, config=options, method="dfa", seed=7, digits=4)
    model = network()
    model.blocks[1].fc1.weight.data.fill_(math.nan)
    own = {"loss": math.nan, "best": torch.tensor(0.25), "rates": [math.inf]}
    recorder.record(1, model, acc=0.123456789, **own)
    recorder.record(2, None, acc=0.2)
    header, entry, last = lines(path)
    assert header["config"] == {"lr": 0.123456789, "out": "x", "method": "fa", "blocks": 4}
    assert (header["recorder"], header["method"], header["seed"]) == ("pytest-fadiag", "dfa", 7)
    assert (entry["loss"], entry["best"], entry["rates"]) == ("NaN", 0.25, ["Infinity"])
    assert entry["acc_eval"] == 0.1235 and last == {"epoch": 2, "acc_eval": 0.2}
    report = read_log(path, batch=4096).report(0.1)
    assert (report.method_name, report.seed) == ("dfa", 7)
    assert report.log is not None and report.log.gradient_batch == 128
    assert report.at(report.log.epochs[0]).fired == ("a", "b", "c", "d"), "it is not finite"


def test_a_training_run_does_not_notice_the_recorder(path: Path) -> None:
    """The same weights to the last bit, with dropout, a forward that counts, a shuffling loader."""

    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.drop, self.seen = network(), nn.Dropout(0.3), torch.zeros(())

        def forward(self, x: Tensor) -> Tensor:
            self.seen = self.seen + 1
            return self.net(self.drop(x))

    def train(record: bool) -> tuple[Any, ...]:
        torch.manual_seed(3)
        model = Counting()
        loader = DataLoader(TensorDataset(X, Y), 64, shuffle=True)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        recorder = Recorder(path, DataLoader(TensorDataset(X, Y), 100)) if record else None
        for epoch in range(2):
            for x, y in loader:
                optimiser.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimiser.step()
            if recorder is not None:
                wrapped = model if epoch else nn.DataParallel(model)
                recorder.record(epoch, wrapped, acc=0.5 if epoch else None)
                assert model.training and all(p.requires_grad for p in model.parameters())
        return (
            torch.cat([p.flatten() for p in model.parameters()]),
            torch.get_rng_state(),
            model.seen,
        )

    for plain, recorded in zip(train(False), train(True), strict=True):
        assert torch.equal(plain, recorded)


def test_credit_is_logged_and_judged_and_where_it_cannot_be_had_that_is_told_once(
    path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    def gradient(model: Any, x: Tensor, y: Tensor) -> Any:
        logits, states = model(x, return_hidden=True)
        loss = nn.functional.cross_entropy(logits, y, reduction="sum")
        return [] if recorder.last_epoch < 2 else torch.autograd.grad(loss, states[1:])

    recorder = Recorder(path, BATCHES, credit=gradient)
    for epoch in (1, 2, 3):
        recorder.record(epoch, network(), acc=0.5)
    told = [str(warning.message) for warning in recwarn if "Γ not logged" in str(warning.message)]
    assert len(told) == 1 and told[0].startswith("bp_s1.jsonl: Γ not logged: ")
    assert ["credit" in line for line in lines(path)] == [False, False, False, True]
    report = read_log(path).report(0.3)
    assert report.credit is not None and min(report.credit.gamma) > 0.999
    assert "credit-alignment" in report.diagnostics and not report.finding("f").fired


# --- the file ---------------------------------------------------------------------------------


def test_a_resumed_run_replaces_what_it_records_again(path: Path) -> None:
    first = Recorder(path, BATCHES, seed=1)
    for epoch in (1, 2, 3):
        first.record(epoch, None, acc=epoch / 10)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"epoch":4,"acc_ev')
    resumed = Recorder(path, BATCHES, seed=1)
    resumed.record(4, None, acc=0.4)
    resumed.record(4, None, acc=0.5)
    assert [entry["epoch"] for entry in lines(path)[1:]] == [1, 2, 3, 4]
    with pytest.raises(AuditError, match="expected epochs that rise from 0 on, got 3 after 4"):
        resumed.record(3, None, acc=0.9)
    again = Recorder(path, BATCHES, seed=1, config={"epochs": 9})
    with pytest.warns(UserWarning, match="epochs 3 to 4 of an earlier run were dropped"):
        again.record(2, None, acc=0.9)
    assert [(entry["epoch"], entry["acc_eval"]) for entry in lines(path)[1:]] == [
        (1, 0.1),
        (2, 0.9),
    ]
    assert lines(path)[0]["config"] == {"epochs": 9}
    with pytest.raises(AuditError, match="the log is of bp, seed 1; this is bp, seed 2"):
        Recorder(path, BATCHES, seed=2).record(3, None, acc=0.1)
    assert [entry["epoch"] for entry in lines(path)[1:]] == [1, 2]


@pytest.mark.parametrize(
    "content",
    [b'{"method": "x"}\n', b"my notes\n", b'{"recorder": "pytest-fadiag"}\nnotes\n', b"\xff"],
)
def test_a_file_of_another_kind_is_refused_and_left_alone(content: bytes, path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(AuditError, match=r"name another(.|\n)*bp_s1.jsonl"):
        Recorder(path, BATCHES)
    assert path.read_bytes() == content


# --- bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"epoch": 1.5}, "got 1.5"),
        ({"epoch": True}, "got True"),
        ({"epoch": -1}, "got -1"),
        ({"acc": 36.3}, "percentage"),
        ({"model": None}, "neither a model nor an accuracy"),
        ({"drift": 0.3}, "'drift' is a key of the log's own"),
    ],
)
def test_a_record_that_means_nothing_is_refused(
    arguments: dict[str, Any], said: str, path: Path
) -> None:
    recorder = Recorder(path, BATCHES)
    with pytest.raises(AuditError, match=said):
        recorder.record(**{"epoch": 1, "model": network(), **arguments})
    assert not path.exists()


@pytest.mark.parametrize(
    "sampler",
    [
        loading.RandomSampler(range(1300)),
        loading.SubsetRandomSampler(range(1300)),
        loading.WeightedRandomSampler([1.0] * 1300, 1300),
        loading.DistributedSampler(range(1300), 1, 0, shuffle=True),
    ],
    ids=lambda sampler: type(sampler).__name__,
)
def test_evaluation_data_that_shuffles_or_is_too_little_is_refused(
    sampler: Any, path: Path
) -> None:
    with pytest.raises(AuditError, match="shuffles; expected shuffle=False"):
        Recorder(path, DataLoader(TensorDataset(X, Y), 100, sampler=sampler))
    with pytest.raises(AuditError, match="at least 2 batches of 128"):
        Recorder(path, BATCHES[:2])
    kept = loading.DistributedSampler(range(1300), 1, 0, shuffle=False)
    Recorder(path, DataLoader(TensorDataset(X, Y), 100, sampler=kept))


# --- the guard --------------------------------------------------------------------------------


def test_a_guard_stops_at_the_last_of_so_many_records_in_a_row(path: Path) -> None:
    guard = Guard(Recorder(path, BATCHES[:3]), stop="ab", after=2)
    for epoch, model in enumerate([network(), exploded(), network(), exploded()], 1):
        guard.record(epoch, model, acc=0.5)
    with pytest.raises(
        GuardStopped, match=r"stopped at epoch 5: bp failed 2 records in a row"
    ) as stopped:
        guard.record(5, exploded(), acc=0.5)
    assert "(a) residual-growth, epochs 4 to 5: " in str(stopped.value)
    assert (stopped.value.epoch, stopped.value.keys) == (5, ("a",))
    assert len(lines(path)) == 6, "what stopped it is in the log"


def test_a_guard_needs_what_it_stops_by(path: Path) -> None:
    recorder = Recorder(path, BATCHES[:3])
    with pytest.raises(AuditError, match=r"cannot stop by \(d\) frozen-margin"):
        Guard(recorder, stop="d").record(1, network(), acc=0.5)
    with pytest.raises(GuardStopped, match=r"\(d\) frozen-margin"):
        Guard(recorder, stop="d", after=1, control=0.7).record(2, network(), acc=0.5)
    strict = DiagnosticThresholds(h_norm_explosion_ratio=0.5)
    with pytest.raises(GuardStopped):
        Guard(recorder, stop="a", after=1, thresholds=strict).record(3, network(), acc=0.5)
