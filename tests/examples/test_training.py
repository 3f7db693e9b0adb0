"""The training loop: bits, streams, frozen blocks, checkpoints, logs, resumption, and what stops it."""

from __future__ import annotations

import itertools
import json
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import train
from methods import METHODS
from methods.ep import NotAtEquilibrium
from methods.loop import Training
from methods.samples import augmented
from methods.streams import streams

from pytest_fadiag.load.checkpoints import load_checkpoint
from pytest_fadiag.load.networks import build_network

SMALL = ["--d", "8", "--blocks", "2", "--epochs", "3", "--lr", "0.01"]


@pytest.fixture
def run(fashion, tmp_path, capsys):
    """Train by the command line; the checkpoint's path is returned."""

    def ran(method, *options, name="net", code=0):
        out = tmp_path / f"{name}.pt"
        assert train.main(["--method", method, "--data", fashion, "--out", str(out), *SMALL, *options]) == code
        return out

    return ran


def training(fashion, tmp_path, *options):
    settings, _ = train.settings_from(["--data", fashion, "--out", str(tmp_path / "net.pt"), *SMALL, *options])
    return Training(settings)


def log_of(out):
    header, *entries = [json.loads(line) for line in Path(f"{out}.log.jsonl").read_text().splitlines()]
    assert header["recorder"] == "pytest-fadiag"
    return entries


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns_and_its_checkpoint_loads(run, method):
    checkpoint = load_checkpoint(run(method, "--epochs", "20"))
    build_network(checkpoint)
    assert checkpoint.test_acc > 0.7
    assert (checkpoint.method, checkpoint.seed) == (method, 42)


@pytest.mark.parametrize("method", METHODS)
def test_same_seed_same_bits_whatever_the_global_generator(run, method):
    torch.manual_seed(1)
    first = run(method, name="first").read_bytes()
    torch.manual_seed(2)
    state = torch.get_rng_state()
    assert run(method, name="second").read_bytes() == first
    assert torch.equal(torch.get_rng_state(), state)
    assert run(method, "--seed", "43", name="third").read_bytes() != first


@pytest.mark.parametrize("method", METHODS)
def test_an_interrupted_training_ends_in_the_same_bits(run, tmp_path, monkeypatch, capsys, method):
    whole = run(method, name="whole")
    real, calls = Training._train_epoch, []

    def interrupted(self, progress):
        calls.append(1)
        result = real(self, progress)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return result

    with monkeypatch.context() as patch:
        patch.setattr(Training, "_train_epoch", interrupted)
        out = run(method, name="resumed", code=130)
    assert "the same command goes on" in capsys.readouterr().err
    assert not out.exists()
    assert out.with_name("resumed.pt.partial").exists()
    with monkeypatch.context() as patch:
        seen = []
        patch.setattr(Training, "_train_epoch", lambda self, progress: seen.append(self.epoch) or real(self, progress))
        run(method, name="resumed")
    assert seen == [1, 2], "the first epoch is not trained again"
    assert out.read_bytes() == whole.read_bytes()
    assert Path(f"{out}.log.jsonl").read_bytes() == Path(f"{whole}.log.jsonl").read_bytes()
    assert sorted(path.name for path in tmp_path.glob("*resumed*")) == ["resumed.pt", "resumed.pt.log.jsonl"]


def test_a_killed_process_is_resumed_to_the_same_bits(run, fashion, tmp_path):
    more = ["--augment", "--epochs", "40"]
    whole = run("dfa", *more, name="whole")
    out = tmp_path / "killed.pt"
    script = Path(train.__file__)
    command = [sys.executable, str(script), "--method", "dfa", "--data", fashion, "--out", str(out), *SMALL, *more]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    log = Path(f"{out}.log.jsonl")
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None and (not log.exists() or log.read_text().count("\n") < 5):
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "the process was still training"
    assert not out.exists()
    run("dfa", *more, name="killed")
    assert out.read_bytes() == whole.read_bytes()
    assert log.read_bytes() == Path(f"{whole}.log.jsonl").read_bytes()


def test_a_partial_run_with_other_settings_is_not_taken_over(run, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        patch.setattr("methods.progress.Progress.epoch", _interrupt_second())
        out = run("bp", code=130)
    run("bp", "--wd", "0.5", code=2)
    assert "wd 0.01, now 0.5" in capsys.readouterr().err
    assert not out.exists()


def _interrupt_second():
    calls = []

    def epoch(self, number, status):
        calls.append(number)
        if len(calls) == 2:
            raise KeyboardInterrupt

    return epoch


def test_initialisation_feedback_and_data_are_separate_streams(fashion, tmp_path):
    made = {method: training(fashion, tmp_path, "--method", method) for method in METHODS}
    reference = made["bp"]
    for other in made.values():
        for name, value in reference.net.state_dict().items():
            assert torch.equal(value, other.net.state_dict()[name]), name
        assert torch.equal(reference.streams["data"].get_state(), other.streams["data"].get_state())
    wider = training(fashion, tmp_path, "--method", "dfa", "--blocks", "3")
    for ours, theirs in zip(made["dfa"].rule.feedback, wider.rule.feedback, strict=False):
        assert torch.equal(ours, theirs), "more blocks draw more weights, and the same first matrices"


def test_no_two_streams_and_no_two_seeds_draw_the_same():
    drawn = {torch.rand(1, generator=generator).item() for seed in range(20) for generator in streams(seed).values()}
    assert len(drawn) == 20 * len(streams(0))


def test_data_order_depends_on_neither_method_nor_size(fashion, tmp_path, monkeypatch):
    variants = [["--method", method] for method in METHODS]
    variants += [["--method", "bp", "--blocks", "3"], ["--method", "dfa", "--d", "9"], ["--method", "bp", "--augment"]]
    orders = []
    for variant in variants:
        run = training(fashion, tmp_path, *variant)
        orders.append([])
        backward, seen = run.rule.backward, orders[-1]
        monkeypatch.setattr(run.rule, "backward", lambda x, y, b=backward, s=seen: s.append(y.tolist()) or b(x, y))
        run.run()
    assert all(order == orders[0] for order in orders)
    assert len(orders[0]) == 9
    assert orders[0][0] != orders[0][3], "another order in each epoch"


@pytest.mark.parametrize("method", METHODS)
def test_a_frozen_control_trains_all_but_its_blocks(run, fashion, tmp_path, method):
    start = training(fashion, tmp_path, "--method", method).net.state_dict()
    checkpoint = load_checkpoint(run(method, "--frozen", name="frozen"))
    assert checkpoint.config["frozen"] is True
    assert checkpoint.config["method"] == method
    for name, value in checkpoint.state_dict.items():
        assert torch.equal(value, start[name]) == name.startswith("blocks."), name


@pytest.mark.parametrize(("method", "count"), [("bp", 0), ("ep", 0), ("state-bridge", 0), ("dfa", 2), ("fa", 5)])
def test_the_matrices_in_the_checkpoint_are_those_that_were_used(fashion, tmp_path, method, count):
    run = training(fashion, tmp_path, "--method", method)
    used = [B.clone() for B in run.rule.feedback]
    run.run()
    saved = load_checkpoint(tmp_path / "net.pt").feedback
    assert len(saved) == count
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(used, saved, strict=True))
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(run.rule.feedback, saved, strict=True))


def test_one_step_of_the_loop_is_adamw_on_the_rule_s_gradient_at_the_cosine_s_rate(fashion, tmp_path):
    run = training(fashion, tmp_path, "--method", "dfa", "--batch", "300", "--wd", "0.1", "--epochs", "2")
    before = {name: p.detach().clone() for name, p in run.net.named_parameters()}
    run.run()
    again = training(fashion, tmp_path, "--method", "dfa", "--batch", "300", "--wd", "0.1", "--epochs", "2")
    momenta = {name: (torch.zeros_like(p), torch.zeros_like(p)) for name, p in before.items()}
    for step, rate in ((1, 0.01), (2, 0.005)):
        order = torch.randperm(300, generator=again.streams["data"])
        again.net.zero_grad()
        again.rule.backward(again.samples.x[order], again.samples.y[order])
        with torch.no_grad():
            for name, p in again.net.named_parameters():
                m, v = momenta[name]
                m.mul_(0.9).add_(p.grad, alpha=0.1)
                v.mul_(0.999).add_(p.grad**2, alpha=0.001)
                p.mul_(1 - rate * 0.1)
                p.sub_(rate * (m / (1 - 0.9**step)) / ((v / (1 - 0.999**step)).sqrt() + 1e-8))
    for name, p in run.net.named_parameters():
        torch.testing.assert_close(p, dict(again.net.named_parameters())[name], rtol=1e-4, atol=1e-5)


def test_checkpoint_says_how_it_was_trained(run):
    content = torch.load(run("dfa", "--lam", "0.01", "--no-out-ln", "--no-normalize-credit"), weights_only=True)
    expected = {
        "method": "dfa-lam", "seed": 42, "frozen": False, "shallow": False, "d_in": 16, "d": 8, "blocks": 2, "classes": 3,
        "mlp_ratio": 4.0, "activation": "gelu", "out_ln": False, "data": "fashion-mnist", "mean": [0.2860], "std": [0.3530],
        "augment": False, "epochs": 3, "optimiser": "adamw", "schedule": "cosine", "lr": 0.01, "wd": 0.01, "batch": 128,
        "lam": 0.01, "normalize_credit": False, "beta": None,
    }  # fmt: skip
    assert content["config"] == expected
    assert "out_ln.weight" not in content["state_dict"]


def test_checkpoint_accuracy_is_that_of_its_network_on_the_test_split(run, fashion):
    from pytest_fadiag import load_data

    checkpoint = load_checkpoint(run("bp"))
    data = load_data(fashion)
    predicted = build_network(checkpoint)(data.normalised(data.x)).argmax(1)
    assert checkpoint.test_acc == pytest.approx((predicted == data.y).float().mean().item(), abs=1e-6)


def test_log_has_every_layer_of_every_epoch(run):
    log = log_of(run("dfa"))
    assert [entry["epoch"] for entry in log] == [1, 2, 3]
    for entry in log:
        assert len(entry["hidden_norms"]) == len(entry["bp_grad_norms"]) == 3
        assert 0 <= entry["acc_eval"] <= 1
        assert entry["train_loss"] > 0
        assert {"drift", "train_acc", "stability_layer", "companions"} <= set(entry)
        assert entry["companions"]["gradient_per_unit_error"] > 0


def test_the_log_is_audited_in_part_as_its_checkpoint_is_in_whole(run, fashion):
    from pytest_fadiag import audit, read_log

    out = run("dfa", name="dfa_s42")
    log, whole = read_log(f"{out}.log.jsonl"), audit(out, data=fashion, frozen=0.5)
    partial = log.report(0.5)
    assert (log.method, log.seed, log.batch, log.depth) == ("dfa", 42, 128, 2)
    assert [finding.status for finding in partial.findings] == [finding.status for finding in whole.findings]
    assert partial.residual_norms == pytest.approx(whole.residual_norms, rel=1e-4)
    assert partial.bp_grad_norms == pytest.approx(whole.bp_grad_norms, rel=1e-4)
    assert partial.accuracy.images == 256


def test_the_log_of_a_shallow_control_serves_as_a_control(run):
    from pytest_fadiag.load.controls import parse_controls

    out = run("dfa", "--shallow", name="shallow_dfa_s42")
    control = parse_controls([f"{out}.log.jsonl"]).choose("dfa", 42)
    assert (control.method, control.seed, control.kind) == ("dfa", 42, "shallow")
    assert control.accuracy.value == log_of(out)[-1]["acc_eval"]


def test_log_every_thins_the_log_and_keeps_the_last_epoch(run):
    assert [entry["epoch"] for entry in log_of(run("bp", "--log-every", "2"))] == [2, 3]


def test_a_new_training_replaces_the_log_of_the_old(run):
    run("bp")
    assert len(log_of(run("bp", "--seed", "7"))) == 3


def test_a_shallow_control_has_no_blocks(run):
    for method in METHODS:
        content = torch.load(run(method, "--shallow", "--epochs", "20"), weights_only=True)
        assert content["config"]["shallow"] is True
        assert content["config"]["blocks"] == 0
        assert not [name for name in content["state_dict"] if name.startswith("blocks")]
        assert content["test_acc"] > 0.7


def test_a_loss_that_is_not_finite_stops_the_training(run, capsys):
    out = run("bp", "--lr", "1e30", code=1)
    assert "the loss is nan in epoch" in capsys.readouterr().err
    assert not out.exists()


def test_an_unsettled_nudge_stops_the_training(run, capsys, monkeypatch):
    def unsettled(*args, **kwargs):
        raise NotAtEquilibrium("not settled; try a smaller --beta")

    monkeypatch.setattr("methods.ep.relax", unsettled)
    run("ep", code=1)
    assert "try a smaller --beta" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--method", "ff"], "invalid choice"),
        (["--method", "bp", "--lr", "0"], "'0' is not a number above 0"),
        (["--method", "bp", "--lr", "nan"], "'nan' is not a number above 0"),
        (["--method", "bp", "--epochs", "1.5"], "'1.5' is not a whole number above 0"),
        (["--method", "bp", "--lam", "0.1"], "--lam is DFA's penalty"),
        (["--method", "dfa", "--lam", "0.1", "--frozen"], "acts on trained blocks"),
        (["--method", "bp", "--no-normalize-credit"], "means nothing to bp"),
        (["--method", "bp", "--frozen", "--shallow"], "not allowed with"),
        (["--method", "bp", "--frozen", "--blocks", "0"], "needs blocks to freeze"),
        (["--method", "bp", "--device", "cuda:99"], "--device cuda:99: not available"),
    ],
)
def test_bad_arguments_are_named(fashion, tmp_path, capsys, options, message):
    with pytest.raises(SystemExit) as stopped:
        train.main(["--data", fashion, "--out", str(tmp_path / "net.pt"), *options])
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_bad_data_is_named(tmp_path, capsys):
    assert train.main(["--method", "bp", "--data", "cifar10:nowhere", "--out", str(tmp_path / "net.pt")]) == 2
    assert "nowhere: no CIFAR-10 there" in capsys.readouterr().err


def test_augmentation_shifts_and_mirrors_each_image_by_its_own_draw():
    images = torch.arange(1.0, 1 + 50 * 3 * 6 * 6).view(50, 3, 6, 6)
    made = augmented(images, torch.Generator().manual_seed(0))
    assert made.shape == images.shape
    padded = torch.nn.functional.pad(images, (4, 4, 4, 4))
    found = []
    for before, after in zip(padded, made, strict=True):
        views = {
            (dy, dx, mirrored): view.flip(-1) if mirrored else view
            for dy in range(9)
            for dx in range(9)
            for mirrored in (False, True)
            for view in [before[:, dy : dy + 6, dx : dx + 6]]
        }
        found += [key for key, view in views.items() if torch.equal(view, after)]
    assert len(found) == 50
    assert {key[2] for key in found} == {False, True}
    assert len(set(found)) > 30


def hollow(entry):
    """Whether (a) or (b) fires, from the numbers of a log's line alone."""
    norms, per_error = entry["hidden_norms"], entry["companions"]["gradient_per_unit_error"]
    growth = max(after / before for before, after in itertools.pairwise(norms))
    return growth > 50, entry["bp_grad_norms"][-1] < 1e-7 and per_error < 1e-7


def test_a_guarded_training_stops_at_the_epoch_that_its_log_gives(run, capsys):
    explodes = ["--epochs", "12", "--lr", "0.5"]
    whole = [hollow(entry) for entry in log_of(run("dfa", *explodes, name="whole"))]
    due = next(end for end in range(3, 13) if any(all(column) for column in zip(*whole[end - 3 : end], strict=True)))
    assert due < 12
    out = run("dfa", *explodes, "--guard", "ab", name="guarded", code=1)
    assert f"training stopped at epoch {due}: dfa has gone hollow" in capsys.readouterr().err
    assert [entry["epoch"] for entry in log_of(out)] == list(range(1, due + 1)) and not out.exists()


@pytest.mark.parametrize("method", ["bp", "fa"])
def test_a_guard_leaves_bp_and_fa_alone(run, method):
    assert run(method, "--epochs", "12", "--guard", "ab").exists()


def test_the_three_commands_of_the_page_train_a_network_and_its_control_and_audit_it(
    fashion, tmp_path, monkeypatch, pytester, capsys
):
    """As they stand there, with data at hand and fewer epochs."""
    page = Path(train.__file__).with_name("README.md").read_text("utf-8")
    lines = [line for line in page.splitlines() if "fashion-mnist:ROOT" in line]
    monkeypatch.chdir(tmp_path)
    trainings = [line.split()[2:] for line in lines if line.startswith("python examples/train.py ")]
    for words in trainings:
        assert train.main([fashion if word == "fashion-mnist:ROOT" else word for word in words] + ["--epochs", "3"]) == 0
    (audit,) = [line.replace("fashion-mnist:ROOT", fashion) for line in lines if line.startswith("pytest ")]
    result = pytester.runpytest_subprocess("-p", "no:randomly", f"--rootdir={tmp_path}", *shlex.split(audit)[1:])
    assert len(trainings) == 2 and "FA audit of 1 checkpoint" in result.stdout.str(), result.stdout.str()
    assert "errors" not in result.parseoutcomes()
