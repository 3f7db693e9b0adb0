"""Over time: how far numbers moved from a recorded audit, and renewing the record."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from repo import Repo

RUNS = "--fa-checkpoint=runs"
CONTROLS = "--fa-frozen=controls/*.pt"
EXPECT = "--fa-expect=record.json"


def record(repo: Repo) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((repo.path / "record.json").read_text("utf-8"))
    return content


def recorded(repo: Repo) -> None:
    repo.run(RUNS, CONTROLS, "--fa-report=json:record.json")


def scaled(repo: Repo, factor: float) -> None:
    """Make the stream of one network larger, which terminal LayerNorm takes back: norms move, accuracy does not."""
    path = repo.path / "runs" / "bp_s42.pt"
    content = torch.load(path, weights_only=True)
    state = content["state_dict"]
    for name in ("embed.weight", "embed.bias"):
        state[name] *= factor
    for name in state:
        if "fc2" in name:
            state[name] *= factor
    torch.save(content, path)


def test_a_number_that_moved_shows_how_far_beside_it(repo: Repo) -> None:
    recorded(repo)
    scaled(repo, 1.25)
    document = repo.audit(RUNS, CONTROLS, EXPECT)
    moved = {row["checkpoint"]: row["moved"] for row in document["summary"]}
    assert moved["runs/bp_s123.pt"] == {}
    assert set(moved["runs/bp_s42.pt"]) == {"‖h_L‖", "‖g_L‖"}
    before, now = moved["runs/bp_s42.pt"]["‖h_L‖"]["from"], moved["runs/bp_s42.pt"]["‖h_L‖"]["to"]
    assert now / before == pytest.approx(1.25, rel=0.01)
    result = repo.run(RUNS, CONTROLS, EXPECT)
    result.stdout.re_match_lines([r"bp +42 .* \(\+25%\) .* \(-20%\) .*trustworthy\*"])


def test_a_number_that_moved_less_than_one_percent_shows_nothing(repo: Repo) -> None:
    recorded(repo)
    scaled(repo, 1.005)
    assert all(row["moved"] == {} for row in repo.audit(RUNS, CONTROLS, EXPECT)["summary"])


def test_a_margin_moves_by_points(repo: Repo) -> None:
    recorded(repo)
    result = repo.run(RUNS, "--fa-frozen=0.5", EXPECT)
    assert any("pp" not in line and "(-" in line and "bp" in line for line in result.outlines if line.startswith("bp"))


def test_a_comparison_across_environments_says_so(repo: Repo) -> None:
    recorded(repo)
    content = record(repo)
    for report in content["reports"].values():
        report["environment"] |= {"torch": "1.0.0", "tf32": True}
    content["reports"]["runs/bp_s42.pt"]["environment"]["checkpoint_sha256"] = "0" * 64
    (repo.path / "record.json").write_text(json.dumps(content))
    result = repo.run(RUNS, CONTROLS, EXPECT)
    result.stdout.fnmatch_lines(
        [
            "note: torch was 1.0.0 when recorded and is * now",
            "note: TF32 was True when recorded and is False now",
            "note: runs/bp_s42.pt: checkpoint was 000000000000* when recorded and is * now",
        ]
    )


def test_each_row_records_what_it_was_measured_with(repo: Repo) -> None:
    for report in repo.audit(RUNS, CONTROLS)["reports"].values():
        environment = report["environment"]
        assert {"torch", "device", "dtype", "threads", "tf32", "checkpoint_sha256", "data_sha256"} <= set(environment)
        assert len(environment["checkpoint_sha256"]) == 64


def test_a_record_is_made_renewed_and_then_expected(repo: Repo) -> None:
    first = repo.run(RUNS, CONTROLS, EXPECT, "--fa-update-expect")
    assert first.ret == pytest.ExitCode.OK, "what is found is what is expected from now on"
    first.assert_outcomes(passed=10, xfailed=3)
    first.stdout.fnmatch_lines(["FA audit: 3 rows recorded in *record.json"])
    again = repo.run(RUNS, CONTROLS, EXPECT)
    assert again.ret == pytest.ExitCode.OK
    changed = repo.run(RUNS, "--fa-frozen=0.99", EXPECT)
    assert changed.ret == pytest.ExitCode.TESTS_FAILED
    repo.run(RUNS, "--fa-frozen=0.99", EXPECT, "--fa-update-expect")
    assert repo.run(RUNS, "--fa-frozen=0.99", EXPECT).ret == pytest.ExitCode.OK


def test_a_run_of_a_part_renews_that_part(repo: Repo) -> None:
    recorded(repo)
    before = record(repo)
    repo.run("--fa-checkpoint=runs/bp_s42.pt", "--fa-frozen=0.99", EXPECT, "--fa-update-expect")
    after = record(repo)
    assert list(after["reports"]) == list(before["reports"])
    assert after["reports"]["runs/dfa_s42.pt"] == before["reports"]["runs/dfa_s42.pt"]
    assert after["reports"]["runs/bp_s42.pt"]["frozen_baseline_acc"] == 0.99


def test_a_record_of_letters_stays_one(repo: Repo) -> None:
    (repo.path / "record.json").write_text('{"dfa": "", "bp": "", "other": "d"}')
    repo.run(RUNS, CONTROLS, EXPECT, "--fa-update-expect")
    assert record(repo) == {"dfa": "", "bp": "", "other": "d", "runs/dfa_s42.pt": "abd"}, "seeds that were not run stay"
    assert repo.run(RUNS, CONTROLS, EXPECT).ret == pytest.ExitCode.OK


@pytest.mark.parametrize(
    "part", [("--fa-diagnostics=b", CONTROLS), ("-k", "floor", CONTROLS), ()], ids=["diagnostics", "-k", "no control"]
)
def test_letters_that_a_run_did_not_judge_keep_their_record(repo: Repo, part: tuple[str, ...]) -> None:
    before = {"dfa": "abd", "bp": ""}
    (repo.path / "record.json").write_text(json.dumps(before))
    repo.run(RUNS, EXPECT, "--fa-update-expect", *part)
    assert record(repo) == before


def test_letters_of_which_nothing_is_known_are_not_made_up(repo: Repo) -> None:
    (repo.path / "record.json").write_text("{}")
    result = repo.run(RUNS, CONTROLS, EXPECT, "--fa-update-expect", "-k", "floor")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines(["ERROR: --fa-update-expect: nothing is written: *residual-growth was not run*"])
    assert record(repo) == {}


def test_a_margin_that_letters_do_not_tell_is_recorded_by_name(repo: Repo) -> None:
    (repo.path / "record.json").write_text("{}")
    minimum = "--fa-threshold=margin_pp=74.2"
    repo.run("--fa-checkpoint=runs/bp_*.pt", CONTROLS, minimum, EXPECT, "--fa-update-expect")
    assert repo.run("--fa-checkpoint=runs/bp_*.pt", CONTROLS, minimum, EXPECT).ret == pytest.ExitCode.OK


def test_a_checkpoint_that_is_recorded_and_gone_is_noted(repo: Repo) -> None:
    recorded(repo)
    (repo.path / "runs" / "bp_s123.pt").unlink()
    result = repo.run(RUNS, CONTROLS, EXPECT)
    result.stdout.fnmatch_lines(["note: recorded in record.json and not in this run: runs/bp_s123.pt"])


def test_a_method_of_letters_that_no_run_has_is_noted(repo: Repo) -> None:
    (repo.path / "expected.json").write_text('{"dfa": "abd", "bp": "", "dfaa": "", "runs/bp_s7.pt": ""}')
    result = repo.run("--fa-checkpoint=runs", "--fa-frozen=controls/*.pt", "--fa-expect=expected.json")
    result.stdout.fnmatch_lines(["note: recorded in expected.json and not in this run: dfaa, runs/bp_s7.pt"])


def test_an_audit_with_an_error_is_not_recorded(repo: Repo) -> None:
    recorded(repo)
    before = (repo.path / "record.json").read_bytes()
    (repo.path / "runs" / "bp_s42.pt").write_bytes(b"broken")
    result = repo.run(RUNS, CONTROLS, EXPECT, "--fa-update-expect")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["ERROR: --fa-update-expect: nothing is written: runs/bp_s42.pt* could not be audited*"])
    assert (repo.path / "record.json").read_bytes() == before


def test_a_file_that_is_no_record_is_not_overwritten(repo: Repo) -> None:
    (repo.path / "record.json").write_text("my notes")
    result = repo.run(RUNS, CONTROLS, EXPECT, "--fa-update-expect")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --fa-update-expect: the file there is no record, so it is not overwritten: not JSON*"])
    assert (repo.path / "record.json").read_text() == "my notes"


@pytest.mark.parametrize("value", ["true", "1", "yes"])
def test_on_ci_a_record_is_renewed_only_if_told(repo: Repo, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("CI", value)
    result = repo.run(RUNS, CONTROLS, EXPECT, "--fa-update-expect")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*refused, since CI is set*--fa-update-expect-on-ci"])
    assert not (repo.path / "record.json").exists()
    repo.run(RUNS, CONTROLS, EXPECT, "--fa-update-expect-on-ci")
    assert (repo.path / "record.json").exists()


def test_renewing_needs_to_know_what(repo: Repo) -> None:
    result = repo.run(RUNS, "--fa-update-expect")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*name the file to write with --fa-expect=FILE"])


def test_workers_leave_the_record_to_the_controller(repo: Repo) -> None:
    repo.spawn(RUNS, CONTROLS, EXPECT, "--fa-update-expect", "-n2").assert_outcomes(passed=10, xfailed=3)
    assert len(record(repo)["reports"]) == 3
