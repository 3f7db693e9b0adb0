"""Partial audits by --fa-log: one test per log and diagnostic, rows in the same table, marked as partial."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from repo import Repo

PUBLISHED = {
    "config": {"method": "dfa-lam", "seed": 42, "n_blocks": 4, "grad_batch_size": 128},
    "final_test_acc": 0.363,
    "log": [{"epoch": 100, "h_0_norm": 9.0, "h_L_norm": 4e4, "g_2_norm": 1e-6, "acc_eval": 0.363}],
}


def log(repo: Repo, name: str, *epochs: dict[str, Any], **config: Any) -> Path:
    """A log with lists of all layers, of a network that stands unless an epoch says otherwise."""
    healthy = {"hidden_norms": [10.0, 11.0, 12.0], "bp_grad_norms_per_sample_med": [1e-4, 1e-4, 1e-4], "acc_eval": 0.9}
    entries = [{**healthy, "epoch": number, **changes} for number, changes in enumerate(epochs or ({},), 1)]
    path: Path = repo.path / "results" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"config": {"grad_batch_size": 128, **config}, "log": entries}))
    return path


def test_the_published_penalised_run_is_audited_as_far_as_its_numbers_go(repo: Repo) -> None:
    path = log(repo, "dfa-lam_s42.json")
    path.write_text(json.dumps(PUBLISHED))
    result = repo.run("--fa-log=results/*.json", "--fa-frozen=0.349", "-rsf")
    result.assert_outcomes(passed=2, skipped=1, failed=1)
    result.stdout.re_match_lines(
        [
            r"\(a\) residual-growth: likely pass .*",
            r" +up to 2 of 4 blocks could still exceed 50 if none shrinks the stream",
            r"\(b\) gradient-floor: likely pass .*",
            r"\(c\) direction-drift: not measured",
            r"\(d\) frozen-margin: fire",
            r"dfa-lam \(log\) +42 .* \+1\.40 .*walk-back d no c",
            r"FA audit of 1 log: .*",
            r"SKIPPED \[1\] results/dfa-lam_s42.json: the log has no cross-batch cosine.*",
            r"FAILED results/dfa-lam_s42.json::frozen-margin - margin \+1\.40 pp < 2",
        ]
    )
    (row,) = repo.audit("--fa-log=results", "--fa-frozen=0.349")["summary"]
    assert (row["partial"], row["fired"]) == (True, "d")
    findings = repo.audit("--fa-log=results", "--fa-frozen=0.349")["reports"]["results/dfa-lam_s42.json"]["findings"]
    assert [finding["status"] for finding in findings] == ["likely pass", "likely pass", "not measured", "fire"]


def test_what_is_only_likely_to_fire_fails_and_says_so(repo: Repo) -> None:
    path = log(repo, "dfa_s1.json")
    path.write_text(json.dumps({**PUBLISHED, "log": [{**PUBLISHED["log"][0], "g_2_norm": 1e-9}]}))  # type: ignore[index]
    result = repo.run("--fa-log=results", "--fa-diagnostics=b")
    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines([r"\(b\) gradient-floor: likely fire .*", r"dfa-lam \(log\) .*walk-back b\?.*"])


def test_the_table_says_in_which_epoch_each_diagnostic_first_fired(repo: Repo) -> None:
    exploding = {"hidden_norms": [10.0, 11.0, 12e4]}
    log(repo, "dfa_s1.json", {}, {"acc_eval": 0.2}, exploding, {**exploding, "acc_eval": 0.1})
    result = repo.run("--fa-log=results", "--fa-frozen=0.5")
    result.stdout.re_match_lines(
        [r"  first fired: \(d\) epoch 2, \(a\) epoch 3 of 4", r"method .* first fired .*", r"dfa \(log\) +1 .* d2 a3 .*"]
    )
    result.stdout.no_fnmatch_line("*not at the end*")
    trajectory = repo.audit("--fa-log=results", "--fa-frozen=0.5")["reports"]["results/dfa_s1.json"]["trajectory"]
    assert trajectory["first_fired"] == {"d": 2, "a": 3}


def test_what_fired_early_and_not_at_the_end_contradicts_no_verdict(repo: Repo) -> None:
    log(repo, "dfa_s1.json", {"acc_eval": 0.2}, {"hidden_norms": [10.0, 11.0, 12e4]}, {"hidden_norms": [10.0, 11.0, 12e4]})
    result = repo.run("--fa-log=results", "--fa-frozen=0.5", "--fa-report=markdown:audit.md")
    result.stdout.re_match_lines(
        [r"dfa \(log\) +1 .* \(d1\) a2 .*walk-back a.*", r".*first fired in brackets: not at the end.*"]
    )
    assert "first fired in brackets: not at the end" in (repo.path / "audit.md").read_text("utf-8")


def test_several_seeds_give_a_mean_and_a_margin_of_their_own(repo: Repo) -> None:
    for seed in (1, 2, 3):
        log(repo, f"dfa_s{seed}.json", {"acc_eval": 0.9 + seed / 1000})
    document = repo.audit("--fa-log=results", "--fa-checkpoint=runs/bp_*.pt", "--fa-frozen=0.5")
    assert [(mean["method"], mean["partial"], mean["seeds"]) for mean in document["means"]] == [
        ("bp", False, 2),
        ("dfa", True, 3),
    ]
    assert [row["name"] for row in document["seed_margins"]] == ["bp", "dfa (log)"]
    found = document["seed_margins"][1]["margin"]
    assert found["margin"] == pytest.approx(40.2) and found["verdict"] == "PASS" and "images" in found["caveat"]


def test_a_log_and_its_checkpoint_stand_side_by_side(repo: Repo) -> None:
    log(repo, "bp_s42.json")
    rows = repo.audit("--fa-log=results", "--fa-checkpoint=runs/bp_s42.pt", "--fa-frozen=0.5")["summary"]
    assert [(row["method"], row["seed"], row["partial"]) for row in rows] == [("bp", 42, False), ("bp", 42, True)]


def test_the_control_may_be_a_log_which_is_then_not_audited(repo: Repo) -> None:
    log(repo, "dfa_s1.json")
    log(repo, "frozen_dfa_s1.json", {"acc_eval": 0.85})
    document = repo.audit("--fa-log=results/*.json", "--fa-frozen=results/frozen_*.json")
    (row,) = document["summary"]
    assert (row["checkpoint"], row["frozen_baseline_acc"]) == ("results/dfa_s1.json", 0.85)


def test_the_batch_size_of_the_gradients_may_be_said(repo: Repo) -> None:
    small = {"bp_grad_norms_per_sample_med": [2e-8, 2e-8, 2e-8]}
    path = log(repo, "dfa_s1.json", small)
    path.write_text(path.read_text().replace('"grad_batch_size": 128', '"note": 0'))
    repo.run("--fa-log=results", "--fa-diagnostics=b").assert_outcomes(failed=1)
    repo.run("--fa-log=results", "--fa-diagnostics=b", "--fa-log-batch=1024").assert_outcomes(passed=1)


def test_an_audit_of_logs_needs_neither_data_nor_torch(repo: Repo) -> None:
    repo.ini()
    log(repo, "dfa_s1.json")
    repo.write(
        "conftest.py",
        "import sys\ndef pytest_sessionfinish(session):\n"
        "    with open('torch.txt', 'w') as file:\n        file.write(str('torch' in sys.modules))\n",
    )
    repo.spawn("--fa-log=results", "--fa-frozen=0.5").assert_outcomes(passed=3, skipped=1)
    assert (repo.path / "torch.txt").read_text() == "False"


def test_a_pasted_id_and_workers_do_what_they_do_with_checkpoints(repo: Repo) -> None:
    log(repo, "dfa_s1.json")
    repo.run("--fa-log=results", "results/dfa_s1.json::residual-growth").assert_outcomes(passed=1)
    repo.spawn("--fa-log=results", "--fa-frozen=0.5", "-n2").assert_outcomes(passed=3, skipped=1)


def test_logs_of_the_ini_file_belong_to_a_run_of_everything(repo: Repo) -> None:
    log(repo, "dfa_s1.json")
    repo.ini(fa_log="results", fa_data="data.npz")
    repo.write("test_own.py", "def test_own(): pass\n")
    repo.run().assert_outcomes(passed=3, skipped=2)
    repo.run("test_own.py").assert_outcomes(passed=1)
    repo.run("--fa-checkpoint=runs/bp_s42.pt").assert_outcomes(passed=4, skipped=1)


def test_a_broken_log_is_an_error_that_leaves_the_others(repo: Repo) -> None:
    log(repo, "dfa_s1.json")
    (repo.path / "results" / "dfa_s2.json").write_text("{")
    result = repo.run("--fa-log=results", "--fa-frozen=0.5", "--deselect=dfa (log)::seed-margin")
    result.assert_outcomes(passed=3, skipped=1, errors=4, deselected=1)
    result.stdout.fnmatch_lines(["*dfa_s2.json*", "dfa * 2 *error: *"])


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("nowhere.json", "no such file"),
        ("*.nothing", "the glob matches no file"),
        ("runs", "no log (.json, .jsonl, .csv) in the folder"),
    ],
)
def test_a_log_that_is_not_there_is_refused(repo: Repo, value: str, said: str) -> None:
    result = repo.run(f"--fa-log={value}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert said in result.stderr.str()


def test_a_record_and_a_merge_know_logs(repo: Repo) -> None:
    log(repo, "dfa_s1.json", {}, {"acc_eval": 0.3})
    options = ("--fa-log=results", "--fa-frozen=0.5")
    repo.run(*options, "--fa-report=json:record.json")
    repo.run(*options, "--fa-expect=record.json").assert_outcomes(passed=2, skipped=1, xfailed=1)
    before = json.loads((repo.path / "record.json").read_text())
    repo.run("--fa-merge=record.json", "--fa-report=json:again.json").assert_outcomes(passed=2, skipped=1, failed=1)
    assert json.loads((repo.path / "again.json").read_text()) == before


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({}, "its only epoch, 1, has no number that a diagnostic needs"),
        ({"acc_eval": 0.3}, "*that a diagnostic needs but an accuracy, for which there is no control (--fa-frozen)"),
    ],
    ids=["no-number", "an-accuracy-alone"],
)
def test_a_log_of_which_nothing_can_be_judged_is_an_error(repo: Repo, entry: dict[str, Any], said: str) -> None:
    (repo.path / "empty_s1.json").write_text(json.dumps({"log": [{"epoch": 1, **entry}]}))
    result = repo.run("--fa-log=empty_s1.json")
    result.assert_outcomes(errors=4)
    result.stdout.fnmatch_lines([f"training log: nothing to judge: {said}"])
    if entry:
        repo.run("--fa-log=empty_s1.json", "--fa-frozen=0.1").assert_outcomes(passed=1, skipped=3)
