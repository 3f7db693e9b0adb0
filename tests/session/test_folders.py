"""Folders as Hugging Face's Trainer writes them, and runs that have a folder each."""

from __future__ import annotations

import json
import shutil
import sys

import pytest
import torch
from repo import Repo
from safetensors.torch import load_file, save_file

from pytest_fadiag.command import main

OPTIMIZER = ("optimizer.pt", "scheduler.pt", "rng_state.pth", "rng_state_0.pth", "scaler.pt")


@pytest.fixture
def trainer(repo: Repo) -> Repo:
    """Two seeds, each in a folder of its own with what a Trainer leaves beside the network."""
    for seed in (42, 123):
        there = repo.path / "out" / f"bp_s{seed}" / "checkpoint-500"
        there.mkdir(parents=True)
        state = torch.load(repo.path / "runs" / f"bp_s{seed}.pt")["state_dict"]
        if seed == 42:
            save_file(state, there / "model.safetensors")
        else:
            torch.save(state, there / "pytorch_model.bin")
        for name in OPTIMIZER:
            torch.save({"state": {}}, there / name)
        (there / "config.json").write_text("{}")
    return repo


def audited(repo: Repo, *patterns: str) -> dict[str, tuple[str, int | None]]:
    rows = repo.summary(*(f"--fa-checkpoint={pattern}" for pattern in patterns))
    return {name: (row["method"], row["seed"]) for name, row in rows.items()}


FIRST, SECOND = "out/bp_s42/checkpoint-500/model.safetensors", "out/bp_s123/checkpoint-500/pytorch_model.bin"


@pytest.mark.parametrize("patterns", [("out/*/checkpoint-500",), ("out/bp_s42/checkpoint-500", "out/bp_s123/checkpoint-500")])
def test_a_folder_is_one_network(trainer: Repo, patterns: tuple[str, ...]) -> None:
    assert audited(trainer, *patterns) == {FIRST: ("bp", 42), SECOND: ("bp", 123)}


def test_its_numbers_are_those_of_the_same_tensors_elsewhere(trainer: Repo) -> None:
    reports = trainer.audit("--fa-checkpoint=out/*/checkpoint-500", "--fa-checkpoint=runs/bp_s*.pt")["reports"]
    for here, there in ((FIRST, "runs/bp_s42.pt"), (SECOND, "runs/bp_s123.pt")):
        assert reports[here]["bp_grad_norms"] == reports[there]["bp_grad_norms"]


def test_two_seeds_in_folders_are_a_method_over_its_seeds(trainer: Repo) -> None:
    margins = trainer.audit("--fa-checkpoint=out/*/checkpoint-500", "--fa-frozen=0.4")["seed_margins"]
    assert [(row["name"], row["outcome"]) for row in margins] == [("bp", "passed")]


def test_a_glob_takes_no_optimizer_for_a_network(trainer: Repo) -> None:
    assert audited(trainer, "out/**/*.[ps]*") == {FIRST: ("bp", 42)}
    shutil.rmtree(trainer.path / "out" / "bp_s42")
    result = trainer.run("--fa-checkpoint=out/**/*.pt")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*the glob matches no file*"])


@pytest.mark.parametrize("pattern", ["runs/*.pt", "runs"])
def test_what_is_left_out_by_its_name_is_said_once(pattern: str, repo: Repo) -> None:
    state = torch.load(repo.path / "runs" / "bp_s42.pt")
    for name in ("optimizer_s1.pt", "scheduler.pt", "rng_state_0.pth", "scaler.pt"):
        torch.save(state, repo.path / "runs" / name)  # networks, in spite of their names
    left = "runs/optimizer_s1.pt, runs/scaler.pt, runs/scheduler.pt"
    left = left if pattern == "runs/*.pt" else "runs/optimizer_s1.pt, runs/rng_state_0.pth, runs/scaler.pt and 1 more"
    note = f"note: left out by their names: {left}; name a file to audit it"
    for verbosity in ((), ("-q",)):
        output = " ".join(repo.run(f"--fa-checkpoint={pattern}", "--fa-diagnostics=a", *verbosity).stdout.str().split())
        assert output.count(note) == 1 and output.count("left out by") == 1
    named = repo.run("--fa-checkpoint=runs/optimizer_s1.pt", "--fa-diagnostics=a").stdout.str()
    assert "left out by" not in named and "FA audit of 1 checkpoint" in named


def test_what_a_folder_holds_under_other_endings_or_in_folders_below_is_said(repo: Repo) -> None:
    runs = repo.path / "runs"
    (runs / "below" / ".hidden").mkdir(parents=True)
    content = (runs / "dfa_s42.pt").read_bytes()
    for name in (
        "dfa_s42.pth.tar",
        "x_s1.bin",
        "y_s1.PT",
        "below/dfa_s43.pt",
        "below/.hidden/z.pt",
        "below/optimizer.pt",
        "a.txt",
    ):
        (runs / name).write_bytes(content)
    (runs / "controls").mkdir()
    (repo.path / "controls" / "frozen_bp_s42.pt").rename(runs / "controls" / "frozen_s42.pt")  # serves as a control
    options = ("--fa-frozen=runs/controls/*.pt", "--fa-diagnostics=d")
    output = " ".join(repo.run("--fa-checkpoint=runs", *options).stdout.str().split())
    left = "runs/below/dfa_s43.pt, runs/dfa_s42.pth.tar, runs/x_s1.bin and 1 more"
    assert f"note: left out by their endings or in folders below: {left}; name a file to audit it" in output
    assert "left out" not in repo.run("--fa-checkpoint=runs/*.pt", *options).stdout.str()


def test_a_control_in_the_folder_that_is_no_networks_control_is_named(repo: Repo) -> None:
    runs = repo.path / "runs"
    for name in ("bp_s42", "dfa_s42"):
        (repo.path / "controls" / f"frozen_{name}.pt").rename(runs / f"frozen_{name}.pt")
    folder = ("--fa-checkpoint=runs", "--fa-frozen=runs/frozen_*.pt")
    assert "control of no network" not in repo.run(*folder).stdout.str()
    shutil.copy(runs / "dfa_s42.pt", runs / "frozen_backbone_s1.pt")  # by its name a control, and by its content none
    for more in ((), ("-q",), ("--fa-diagnostics=a",)):
        output = " ".join(repo.run(*folder, *more).stdout.str().split())
        assert "and the control of no network here: runs/frozen_backbone_s1.pt" in output


@pytest.mark.parametrize("pattern", ["runs/*.pt", "runs", "runs/dfa_s42.pt"])
def test_a_link_to_a_file_that_is_not_there_is_a_missing_file(pattern: str, repo: Repo) -> None:
    link = repo.path / "runs" / "dfa_s42.pt"
    link.unlink()
    link.symlink_to("/annex/gone.pt")  # as git-annex and DVC leave what was not fetched
    result = repo.run(f"--fa-checkpoint={pattern}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*a link to a file that does not exist: /annex/gone.pt", "*runs/dfa_s42.pt", "*--fa-missing=*"]
    )
    others = repo.run("--fa-checkpoint=runs/bp_s42.pt", f"--fa-checkpoint={pattern}", "--fa-missing=skip", "-rs", "-k", "s42")
    others.assert_outcomes(passed=3, skipped=5, deselected=5 if "dfa" not in pattern else 0)
    others.stdout.fnmatch_lines(["SKIPPED *checkpoint does not exist: *runs/dfa_s42.pt"])


def test_a_folder_of_plain_checkpoints_is_as_it_was(repo: Repo) -> None:
    save_file(torch.load(repo.path / "runs" / "bp_s42.pt")["state_dict"], repo.path / "runs" / "model.safetensors")
    torch.save({}, repo.path / "runs" / "scheduler.pt")
    names = ["runs/bp_s123.pt", "runs/bp_s42.pt", "runs/dfa_s42.pt", "runs/model.safetensors"]
    assert sorted(audited(repo, "runs")) == names


@pytest.mark.usefixtures("verify_here")
def test_a_certificate_holds_every_file_of_a_folder(trainer: Repo, capsys: pytest.CaptureFixture[str]) -> None:
    there = trainer.path / "out" / "bp_s42" / "checkpoint-500"
    (there / "config.json").write_text('{"activation": "relu"}')
    state = load_file(there / "model.safetensors")
    (there / "model.safetensors").unlink()
    names = {name: f"model-0000{1 + index % 2}-of-00002.safetensors" for index, name in enumerate(state)}
    for part in set(names.values()):
        save_file({name: state[name] for name in names if names[name] == part}, there / part)
    (there / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    trainer.run("--fa-checkpoint=out/bp_s42/checkpoint-500", "--fa-only", "--fa-report=certificate:certificate")
    assert main(["verify", "certificate"]) == 0
    assert "1 of 1 results reproduce; largest relative difference 0e+00" in capsys.readouterr().out
    (there / "config.json").write_text('{"activation": "gelu"}')
    assert main(["verify", "certificate"]) == 1
    assert "config.json: changed: SHA-256" in capsys.readouterr().out


NETWORK = """
from torch import nn
from pytest_fadiag import ResidualMLP
class Net(ResidualMLP):
    def forward(self, x, return_hidden=False):
        return super().forward(SIGN * x, return_hidden)
"""


def test_a_pickled_network_is_audited_with_its_code_and_again_when_that_changes(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(repo.path)
    repo.write("mynet.py", NETWORK + "SIGN = 1\n")
    import mynet  # type: ignore[import-not-found]

    net = mynet.Net(20, 16, 4, 5)
    net.load_state_dict(torch.load(repo.path / "runs" / "bp_s42.pt")["state_dict"])
    torch.save(net, repo.path / "whole.pt")
    monkeypatch.delitem(sys.modules, "mynet")  # each run imports it anew
    arguments = ("--fa-checkpoint=whole.pt", "--fa-unsafe-load")
    refused = repo.run("--fa-checkpoint=whole.pt").stdout.str()
    assert "refused to load mynet.Net" in refused
    assert "--fa-unsafe-load" in refused

    def accuracy() -> float:
        return float(repo.audit(*arguments)["reports"]["whole.pt"]["headline_acc"])

    first = accuracy()
    assert first > 0.9
    assert accuracy() == first
    repo.write("mynet.py", NETWORK + "SIGN = -1  # and longer\n")
    assert accuracy() < 0.5
