"""A method over its seeds: a test of its own, three-valued, that waits for no other."""

from __future__ import annotations

import json
import shutil
from typing import Any

import numpy as np
import pytest
import torch
from repo import Repo

from pytest_fadiag.judge.student_t import t95

BP = "--fa-checkpoint=runs/bp_*.pt"
CONTROL = "--fa-frozen=controls/frozen_bp_s42.pt"
TEST = "bp::seed-margin"


def margin(repo: Repo, *args: str) -> dict[str, Any]:
    (row,) = repo.audit(BP, CONTROL, *args)["seed_margins"]
    assert isinstance(row, dict)
    return row


def weaker_seed(repo: Repo) -> None:
    """Two seeds that are not of one accuracy, so that their margins differ."""
    path = repo.path / "runs" / "bp_s123.pt"
    content = torch.load(path, weights_only=True)
    content["state_dict"]["out_head.weight"] += 0.15 * torch.randn(
        content["state_dict"]["out_head.weight"].shape, generator=torch.Generator().manual_seed(1)
    )
    torch.save(content, path)


def test_a_method_with_two_seeds_gets_a_test_that_one_with_one_seed_does_not(repo: Repo) -> None:
    listed = repo.run("--fa-checkpoint=runs", CONTROL, "--collect-only", "-q").outlines
    assert [line for line in listed if "seed-margin" in line] == [TEST]
    repo.run("--fa-checkpoint=runs", CONTROL, "--fa-diagnostics=abc").assert_outcomes(passed=7, failed=2)


def test_the_margin_clears_the_minimum_and_the_table_says_so_with_the_number_of_seeds(repo: Repo) -> None:
    result = repo.run(BP, CONTROL)
    result.assert_outcomes(passed=9)
    result.stdout.re_match_lines([r"bp +n=2 .* seeds PASS \[\+\d+\.\d, \+\d+\.\d\]"])


def test_the_numbers_are_those_of_the_formula_written_apart_from_it(repo: Repo) -> None:
    weaker_seed(repo)
    document = repo.audit(BP, CONTROL)
    over_seeds = document["seed_margins"][0]["margin"]

    def outcomes(accuracy: dict[str, Any]) -> np.ndarray:
        bits = np.array([int(b) for digit in accuracy["correct"] for b in f"{int(digit, 16):04b}"])
        return bits[: accuracy["images"]].astype(float)

    d = 100 * np.stack([outcomes(r["accuracy"]) - outcomes(r["control"]["accuracy"]) for r in document["reports"].values()])
    n, images = d.shape
    v_s, v_i = d.mean(1).var(ddof=1) / n, d.mean(0).var(ddof=1) / images
    rest = d - d.mean(1, keepdims=True) - d.mean(0) + d.mean()
    v_e = (rest**2).sum() / ((n - 1) * (images - 1)) / (n * images)
    v = max(v_s + v_i - v_e, v_i)
    df = v**2 / (v_s**2 / (n - 1) + v_i**2 / (images - 1))
    half = t95(df) * v**0.5
    low, high = max(d.mean() - half, -100), min(d.mean() + half, 100)
    assert over_seeds["margin"] == pytest.approx(d.mean())
    assert over_seeds["seed_sd"] == pytest.approx(d.mean(1).std(ddof=1))
    assert over_seeds["variance"] == pytest.approx({"over_seeds": v_s, "over_images": v_i, "residual": v_e})
    assert over_seeds["degrees_of_freedom"] == pytest.approx(df)
    assert (over_seeds["interval"]["low"], over_seeds["interval"]["high"]) == (pytest.approx(low), pytest.approx(high))


def test_a_margin_below_the_minimum_fires_with_its_report(repo: Repo) -> None:
    result = repo.run(BP, CONTROL, "--fa-threshold=margin_pp=99", TEST)
    result.assert_outcomes(failed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.re_match_lines(
        [
            r"FA seed margin: bp, 2 seeds",
            r"    seed 42: accuracy \S+, control \S+ \(frozen_bp_s42.pt, .*\), margin \S+ pp",
            r"    note: several seeds share one control, .*",
            r"    mean margin \S+ pp, sample sd over seeds \S+ pp",
            r"    95 % interval \S+ to \S+ pp \(.*\)",
            r"    minimum 99 pp",
            r"    two seeds rarely decide; .*",
            r"    FLAG: FIRE: margin .*",
            r"VERDICT: FIRE",
            r"bp +n=2 .* seeds FIRE .*",
            r"FAILED bp::seed-margin - FIRE: margin \S+ pp \[\S+, \S+\] < 99, n=2",
        ]
    )


def test_what_these_seeds_cannot_tell_fails_and_says_what_would_decide_or_is_skipped_if_asked(repo: Repo) -> None:
    weaker_seed(repo)
    value = margin(repo)["margin"]["margin"]
    around = f"--fa-threshold=margin_pp={value - 0.3}"
    result = repo.run(BP, CONTROL, around, TEST)
    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines(
        [
            r"    FLAG: INCONCLUSIVE: .*Neither a pass nor a failure.*",
            r"    to decide: .*(seeds|images).*",
            r"VERDICT: INCONCLUSIVE",
            r"bp +n=2 .* seeds INCONCLUSIVE .*",
        ]
    )
    skipped = repo.run(BP, CONTROL, around, TEST, "--fa-inconclusive=skip", "-rs")
    skipped.assert_outcomes(skipped=1)
    assert skipped.ret == pytest.ExitCode.OK
    skipped.stdout.re_match_lines([r"SKIPPED \[1\] bp: INCONCLUSIVE: margin .*(seeds|images).*"])


def test_without_a_control_it_is_skipped(repo: Repo) -> None:
    result = repo.run(BP, "-rs")
    result.assert_outcomes(passed=6, skipped=3)
    result.stdout.re_match_lines([r"bp +n=2 .* seeds no control"])


def test_it_measures_what_is_not_measured_yet_and_waits_for_nothing(repo: Repo, measured: list[str]) -> None:
    repo.forget()
    repo.run(BP, CONTROL, TEST).assert_outcomes(passed=1)
    assert sorted(measured) == ["accuracy"] * 2 + ["accuracy control-readout"], "two checkpoints and their control"
    repo.run(BP, CONTROL).assert_outcomes(passed=9)
    assert measured[3:] == ["states gradients output-error reference precision directions"] * 2, "the rest, on the probe alone"


def test_a_pasted_id_runs_it_alone(repo: Repo) -> None:
    result = repo.run(BP, CONTROL, TEST)
    result.assert_outcomes(passed=1)
    result.stdout.re_match_lines([r"bp +n=2 .* seeds PASS .*"])


def test_an_id_pasted_in_another_folder_runs_too(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    repo.ini(fa_data="data.npz", fa_checkpoint="runs", fa_frozen="controls/*.pt")
    monkeypatch.chdir(repo.path / "runs")
    repo.run(f"--rootdir={repo.path}", "-c", repo.path / "pytest.ini", f"../{TEST}").assert_outcomes(passed=1)


def test_copies_of_one_network_are_no_seeds(repo: Repo) -> None:
    for seed in (1, 2):
        shutil.copy(repo.path / "runs" / "bp_s42.pt", repo.path / "runs" / f"copy_s{seed}.pt")
    result = repo.run("--fa-checkpoint=runs/copy_*.pt", "--fa-frozen=0.5", "copy::seed-margin")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*seed*"])


def test_named_whole_the_seeds_of_a_method_are_tested_together(repo: Repo) -> None:
    repo.run("runs/bp_s42.pt", "runs/bp_s123.pt", CONTROL).assert_outcomes(passed=9)
    repo.run("runs/bp_s42.pt", "runs/bp_s123.pt::frozen-margin", CONTROL).assert_outcomes(passed=5)


def test_seeds_may_stand_in_the_path(repo: Repo) -> None:
    for seed in (42, 123):
        folder = repo.path / "ours" / f"seed{seed}"
        folder.mkdir(parents=True)
        content = torch.load(repo.path / "runs" / f"bp_s{seed}.pt", weights_only=True)
        torch.save({"state_dict": content["state_dict"], "config": {}}, folder / "net.pt")
    options = ("--fa-checkpoint=ours/seed{seed}/net.pt", "--fa-seeds=42,123", CONTROL)
    document = repo.audit(*options)
    assert [row["seed"] for row in document["summary"]] == [42, 123]
    assert [row["name"] for row in document["seed_margins"]] == ["ours"]


def test_the_same_seeds_in_two_folders_are_two_groups(repo: Repo) -> None:
    shutil.copytree(repo.path / "runs", repo.path / "more")
    names = [row["name"] for row in repo.audit(BP, "--fa-checkpoint=more/bp_*.pt", CONTROL)["seed_margins"]]
    assert names == ["more/bp", "runs/bp"]


def test_files_of_one_name_and_two_methods_are_refused(repo: Repo) -> None:
    path = repo.path / "runs" / "bp_s123.pt"
    content = torch.load(path, weights_only=True)
    content["config"]["method"] = "other"
    torch.save(content, path)
    result = repo.run(BP, CONTROL, TEST)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["these checkpoints are not seeds of one method: by their config they are of bp, other; *"])


def test_a_seed_that_cannot_be_measured_is_an_error_that_names_it(repo: Repo) -> None:
    (repo.path / "runs" / "bp_s123.pt").write_bytes(b"no checkpoint")
    result = repo.run(BP, CONTROL, TEST)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*runs/bp_s123.pt: not a*", "bp *seeds error: runs/bp_s123.pt: not a*"])


@pytest.mark.parametrize(
    ("recorded", "outcome"),
    [
        ({"bp": "d"}, {"xfailed": 1}),
        ({"bp": "d", "bp::seed-margin": "FIRE"}, {"xfailed": 1}),
        ({"bp": "d", "bp::seed-margin": "PASS"}, {"failed": 1}),
        ({"bp": "d", "bp::seed-margin": "INCONCLUSIVE"}, {"failed": 1}),
        ({"bp": ""}, {"failed": 1}),
    ],
)
def test_a_recorded_margin_is_an_xfail_and_another_one_is_red(
    repo: Repo, recorded: dict[str, str], outcome: dict[str, int]
) -> None:
    (repo.path / "expected.json").write_text(json.dumps(recorded))
    result = repo.run(BP, CONTROL, "--fa-threshold=margin_pp=99", "--fa-expect=expected.json", TEST)
    result.assert_outcomes(**outcome)


def test_a_margin_that_recovers_is_red_too(repo: Repo) -> None:
    (repo.path / "expected.json").write_text('{"bp": "", "bp::seed-margin": "FIRE"}')
    result = repo.run(BP, CONTROL, "--fa-expect=expected.json", TEST)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["CHANGED: seed-margin changed from FIRE to PASS: margin *"])


@pytest.mark.parametrize("control", [(), ("--fa-frozen=0.1",)], ids=["none", "at-chance"])
def test_a_recorded_margin_that_is_not_measured_any_more_has_changed(repo: Repo, control: tuple[str, ...]) -> None:
    repo.run(BP, CONTROL, "--fa-report=json:record.json")
    result = repo.run(BP, *control, "--fa-expect=record.json", TEST)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["CHANGED: seed-margin changed from PASS to not measured: *"])


def test_a_record_with_an_unknown_verdict_is_refused(repo: Repo) -> None:
    (repo.path / "expected.json").write_text('{"bp": "", "bp::seed-margin": "maybe"}')
    result = repo.run(BP, CONTROL, "--fa-expect=expected.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*'bp::seed-margin' is \"maybe\"; expected PASS, FIRE, INCONCLUSIVE*"])


def test_with_a_network_of_the_users_own_it_uses_what_the_process_measured(repo: Repo) -> None:
    repo.write(
        "conftest.py",
        "import pytest\nfrom pytest_fadiag.load.networks import build_network\n"
        "@pytest.fixture\ndef fa_model(fa_checkpoint):\n    return build_network(fa_checkpoint.contents, None)\n",
    )
    repo.run(BP, CONTROL).assert_outcomes(passed=9)
    alone = repo.run(BP, "--fa-frozen=0.2", TEST)
    alone.assert_outcomes(failed=1)  # never green: the control is there, and the margin was not judged
    alone.stdout.fnmatch_lines(["FAILED*a conftest replaces what networks are measured with*"])


def test_it_is_in_the_junit_file(repo: Repo) -> None:
    repo.run(BP, CONTROL, TEST, "--junitxml=out.xml")
    text = (repo.path / "out.xml").read_text("utf-8")
    assert 'name="fa_status" value="PASS"' in text and 'name="fa_seeds" value="2"' in text
