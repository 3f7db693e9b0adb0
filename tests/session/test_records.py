"""Recorded findings, margins over seeds, training logs and (e): whole runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from repo import Repo, fit, network, save, warm, write_data

BP, DFA = "--fa-checkpoint=runs/bp_s42.pt", "--fa-checkpoint=runs/dfa_s42.pt"
SEEDS = "--fa-checkpoint=runs/bp_*.pt"
CONTROLS = "--fa-frozen=controls/*.pt"


def expect(repo: Repo, record: dict[str, str]) -> str:
    (repo.path / "expected.json").write_text(json.dumps(record))
    return "--fa-expect=expected.json"


@pytest.mark.parametrize(
    ("record", "options", "outcomes", "code"),
    [
        ({"dfa": "abd"}, "", "ax bx c. dx", 0),
        ({"runs/dfa_s42.pt": "abd", "dfa": ""}, "", "ax bx c. dx", 0),
        ({"dfa": "ab"}, "", "ax bx c. dF", 1),
        ({"dfa": "abcd"}, "", "ax bx cF dx", 1),
        ({"dfa": "abcd"}, "--runxfail", "aF bF cF dF", 1),
        ({"dfa": "abd"}, "--fa-frozen=DFA=0.5", "ax bx c. dE", 1),
        ({}, "", "aF bF c. dF", 1),
    ],
)
def test_any_change_of_a_recorded_verdict_is_red(
    repo: Repo, record: dict[str, str], options: str, outcomes: str, code: int
) -> None:
    control = [] if "frozen" in options else [CONTROLS]
    found = repo.outcomes(DFA, *control, expect(repo, record), *options.split())
    assert (found, repo.result.ret) == ({"dfa_s42": outcomes}, code)


def test_a_change_says_what_was_recorded_and_what_to_do(repo: Repo) -> None:
    result = repo.run(BP, CONTROLS, expect(repo, {"bp": "a", "gone": "b"}))
    result.stdout.fnmatch_lines(
        [
            "recorded as fail; update the record (--fa-update-expect)*",
            "  ! 1 of 2 recorded entries were not audited",
            "*differs from *: runs/bp_s42.pt",
            "FAILED runs/bp_s42.pt::residual-growth - * (recorded as fail)",
        ]
    )


def test_update_expect_records_what_is_found_and_the_next_run_is_green(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--fa-checkpoint=runs", CONTROLS, "--fa-expect=new.json")
    assert repo.run(*options).ret == pytest.ExitCode.USAGE_ERROR, "no record yet"
    assert repo.run(*options, "--fa-update-expect").ret == pytest.ExitCode.OK
    record = json.loads((repo.path / "new.json").read_text())
    assert (record["bp"], record["dfa"]) == ("", "abd")
    result = repo.run(*options)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["*3 verdicts and 1 seed", "  margin match new.json"])
    monkeypatch.setenv("CI", "true")
    assert repo.run(*options, "--fa-update-expect").ret == pytest.ExitCode.USAGE_ERROR


@pytest.mark.parametrize(
    ("options", "record", "outcome", "verdict"),
    [
        (("--fa-frozen=0.3",), None, "passed", "PASS"),
        (("--fa-frozen=0.999",), None, "failed", "FIRE"),
        (("--fa-frozen=0.999",), {"bp": "d", "bp::seed-margin": "FIRE"}, "xfailed", "FIRE"),
        (("--fa-frozen=0.999",), {"bp": "d"}, "failed", "FIRE"),
        (("--fa-frozen=0.3",), {"bp::seed-margin": "FIRE"}, "failed", "PASS"),
        (("--fa-frozen=0.3", "--fa-threshold=margin_pp=69.9"), None, "failed", "INCONCLUSIVE"),
        ((), None, "skipped", None),
        ((), {"bp::seed-margin": "FIRE"}, "failed", None),
        (("--fa-frozen=ep=0.1",), None, "failed", None),
    ],
)
def test_a_margin_over_seeds(
    repo: Repo,
    options: tuple[str, ...],
    record: dict[str, str] | None,
    outcome: str,
    verdict: str | None,
) -> None:
    words = [*options, *([expect(repo, record)] if record is not None else []), "-k", "seed-margin"]
    (margin,) = repo.audit(SEEDS, *words)["margins"]
    assert (margin["name"], margin["outcome"], margin["verdict"]) == ("bp", outcome, verdict)


LOG = {
    "config": {"grad_batch_size": 128},
    "log": [{"epoch": 1, "hidden_norms": [1, 2], "bp_grad_norms": [1e-4] * 2}],
}


@pytest.mark.parametrize(
    ("log", "options", "outcomes"),
    [
        ({**LOG, "final_test_acc": 0.9}, "--fa-frozen=0.5", "a. b. cs d."),
        ({**LOG, "final_test_acc": 0.9}, "--fa-frozen=dfa=0.5", "a. b. cs d."),
        ({**LOG, "final_test_acc": 0.9}, "--fa-frozen=ep=0.5", "a. b. cs dE"),
        ({**LOG, "final_test_acc": 0.3}, "--fa-frozen=controls/frozen_dfa_s42.pt", "a. b. cs dF"),
        ({"log": [{"epoch": 1}]}, "", "aE bE cE dE"),
    ],
)
def test_a_training_log_is_audited_in_part(
    repo: Repo, log: Any, options: str, outcomes: str
) -> None:
    (repo.path / "dfa_s7.json").write_text(json.dumps(log))
    repo.ini(fa_data="data.npz")
    assert repo.outcomes("--fa-log=dfa_s7.json", *options.split()) == {"dfa_s7": outcomes}


def rings(samples: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Four classes by two radii, which no linear probe tells apart: depth is needed."""
    x = torch.randn(samples, 20, generator=torch.Generator().manual_seed(seed))
    return x, (x[:, :4].square().sum(1) > 3.36).long() + 2 * (
        x[:, 4:8].square().sum(1) > 3.36
    ).long()


@pytest.fixture(scope="session")
def deep_and_hollow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network whose depth helps, one whose blocks are as drawn, and their data."""
    folder = tmp_path_factory.mktemp("deep")
    x, y = rings(1_300, 0)
    write_data(folder / "data.npz", x, y)
    write_data(folder / "few.npz", x[:900], y[:900])
    save(folder / "runs" / "hollow_s1.pt", network(20, 24, 3, 4))
    save(folder / "runs" / "deep_s1.pt", fit(network(20, 24, 3, 4), *rings(4_000, 1), 400))
    control = fit(network(20, 24, 3, 4, frozen=True), *rings(4_000, 1), 400)
    save(folder / "controls" / "frozen_deep_s1.pt", control)
    return folder


@pytest.fixture
def deep(pytester: pytest.Pytester, deep_and_hollow: Path) -> Repo:
    repo = warm(pytester, deep_and_hollow, "--fa-checkpoint=runs", "--fa-diagnostics=abcde")
    repo.ini(fa_data="data.npz", fa_checkpoint="runs")
    return repo


@pytest.mark.parametrize(
    ("options", "deep_outcomes", "hollow_outcomes"),
    [
        ("", "a. b. c. ds e. g.", "a. b. c. ds eF g."),
        ("--fa-frozen=0.5", "a. b. c. d. e. g.", "a. b. c. dF eF g."),
        ("--fa-frozen=0.5 --fa-diagnostics=abcde", "a. b. c. d. e.", "a. b. c. dF eF"),
        ("--fa-frozen=0.25", "a. b. c. ds e. g.", "a. b. c. ds eF g."),
        ("--fa-frozen=0.25 --fa-diagnostics=abcde", "a. b. c. ds e.", "a. b. c. ds eF"),
        ("--fa-data=few.npz", "a. b. c. ds es gs", "a. b. c. ds es gs"),
        ("--fa-data=few.npz --fa-diagnostics=ae", "a. eE", "a. eE"),
        ("--fa-data=few.npz --fa-diagnostics=all", "a. b. c. ds es fs gs", "a. b. c. ds es fs gs"),
    ],
)
def test_depth_runs_without_a_usable_control_or_where_it_is_asked_for(
    deep: Repo, options: str, deep_outcomes: str, hollow_outcomes: str
) -> None:
    assert deep.outcomes(*options.split()) == {
        "deep_s1": deep_outcomes,
        "hollow_s1": hollow_outcomes,
    }


def test_beside_an_unusable_control_depth_fails_for_itself(deep: Repo) -> None:
    deep.ini(fa_data="data.npz", fa_checkpoint="runs/hollow_s1.pt", fa_frozen="0.25")
    result = deep.run("-rfs")
    result.stdout.fnmatch_lines(["SKIPPED *control rejected: accuracy at chance*"])
    result.stdout.fnmatch_lines(["FAILED runs/hollow_s1.pt::depth-utility - *"])


def test_beside_a_sound_control_depth_is_not_needed_unless_it_is_asked_for(deep: Repo) -> None:
    deep.ini(fa_data="data.npz", fa_checkpoint="runs/deep_s1.pt", fa_frozen="controls/*.pt")
    result = deep.run("-rs")
    result.stdout.fnmatch_lines(["SKIPPED *not needed: a sound control decides"])
    result.stdout.fnmatch_lines(["✓ TRUSTWORTHY  deep, *"])
    assert deep.outcomes("runs/deep_s1.pt::depth-utility") == {"deep_s1": "e."}
