"""Several machines: parts of one audit, each with its file, and the files as one audit again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from typing import Any

import pytest
from repo import Repo

RUNS = "--fa-checkpoint=runs"
CONTROLS = "--fa-frozen=controls/*.pt"


def written(repo: Repo, name: str, *args: str) -> dict[str, Any]:
    repo.run(f"--fa-report=json:{name}", *args)
    return found(repo, name)


def found(repo: Repo, name: str) -> dict[str, Any]:
    """What an audit found, wherever and whenever it was made."""
    content: dict[str, Any] = json.loads((repo.path / name).read_text("utf-8"))
    del content["origin"]
    return content


def changed(repo: Repo, name: str, checkpoint: str, **values: Any) -> None:
    content = json.loads((repo.path / name).read_text("utf-8"))
    report = content["reports"][checkpoint]
    for field, value in values.items():
        report[field] = {**report[field], **value} if isinstance(value, dict) else value
    (repo.path / name).write_text(json.dumps(content))


def parts(repo: Repo, count: int, *args: str) -> list[str]:
    names = [f"part{number}.json" for number in range(1, count + 1)]
    for number, name in enumerate(names, 1):
        repo.run(RUNS, CONTROLS, f"--fa-shard={number}/{count}", f"--fa-report=json:{name}", *args)
    return names


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_parts_merged_are_the_audit_of_one_run_with_its_exit_code(repo: Repo, count: int) -> None:
    names = parts(repo, count)
    whole = repo.run(RUNS, CONTROLS, "--fa-report=json:whole.json")
    for folder in ("runs", "controls", ".pytest_cache"):
        shutil.rmtree(repo.path / folder)
    (repo.path / "data.npz").unlink()
    repo.ini(fa_data="data.npz", fa_checkpoint="runs", fa_frozen="controls/*.pt")  # of the machines that measured
    merged = repo.run(*(f"--fa-merge={name}" for name in names), "--fa-report=json:merged.json")
    assert merged.ret == whole.ret == pytest.ExitCode.TESTS_FAILED
    assert merged.parseoutcomes() == whole.parseoutcomes()
    assert found(repo, "merged.json") == found(repo, "whole.json")


def test_parts_are_disjoint_complete_and_the_same_from_any_folder(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    def taken(*args: str) -> list[set[str]]:
        listed = [repo.run(*args, f"--fa-shard={number}/3", "--collect-only", "-q").outlines for number in (1, 2, 3)]
        return [{line.partition("::")[0] for line in lines if "::" in line} for lines in listed]

    sets = taken(RUNS)
    assert sorted(name for names in sets for name in names) == ["runs/bp_s123.pt", "runs/bp_s42.pt", "runs/dfa_s42.pt"]
    monkeypatch.chdir(repo.path / "runs")
    assert taken("--fa-checkpoint=../runs", "..") == sets


def test_parts_are_balanced_by_the_size_of_the_files(repo: Repo) -> None:
    folder = repo.path / "sized"
    folder.mkdir()
    for name, size in {"a": 100, "b": 60, "c": 50, "d": 10}.items():
        (folder / f"{name}.pt").write_bytes(b"x" * size)
    listed = [
        repo.run("--fa-checkpoint=sized", f"--fa-shard={n}/2", "--collect-only", "-q", "--fa-diagnostics=a").outlines
        for n in (1, 2)
    ]
    names = [{line.partition("::")[0][-4] for line in lines if "::" in line} for lines in listed]
    assert names == [{"a", "d"}, {"b", "c"}]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("4/3", "there is no part 4 of 3"),
        ("0/3", "there is no part 0 of 3"),
        ("x", "expected K/N"),
        ("1-2", "expected K/N"),
        ("4/4", "part 4 would be empty, for there are 3 checkpoints"),
    ],
)
def test_a_part_that_does_not_exist_is_refused(repo: Repo, value: str, said: str) -> None:
    result = repo.run(RUNS, f"--fa-shard={value}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert said in result.stderr.str()


def test_a_merge_is_judged_again_by_the_thresholds_of_the_command(repo: Repo) -> None:
    written(repo, "a.json", RUNS, CONTROLS)
    repo.run("--fa-merge=a.json", "--fa-threshold=margin_pp=99").assert_outcomes(passed=7, failed=6)


def test_a_merge_keeps_the_thresholds_that_the_audits_were_judged_by(repo: Repo) -> None:
    before = written(repo, "a.json", RUNS, CONTROLS, "--fa-threshold=margin_pp=99")
    after = written(repo, "b.json", "--fa-merge=a.json")
    assert after == before


def test_audits_of_different_thresholds_are_refused_unless_the_command_says_which(repo: Repo) -> None:
    written(repo, "a.json", "--fa-checkpoint=runs/bp_*.pt", CONTROLS)
    written(repo, "b.json", "--fa-checkpoint=runs/dfa_*.pt", CONTROLS, "--fa-threshold=margin_pp=1")
    both = ("--fa-merge=a.json", "--fa-merge=b.json")
    result = repo.run(*both)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*judged by different thresholds: frozen_acc_margin_pp is 2.0 in one and 1.0 in another*", "  *a.json", "  *b.json"]
    )
    repo.run(*both, "--fa-threshold=margin_pp=1").assert_outcomes(passed=10, failed=3)


def test_a_checkpoint_in_two_audits_counts_once(repo: Repo) -> None:
    one = written(repo, "a.json", RUNS, CONTROLS)
    shutil.copy(repo.path / "a.json", repo.path / "b.json")
    changed(repo, "b.json", "runs/bp_s42.pt", environment={"torch": "another", "checkpoint_sha256": ""})
    merged = written(repo, "c.json", "--fa-merge=a.json", "--fa-merge=b.json")
    assert merged == one


def test_a_checkpoint_under_another_name_counts_once_too(repo: Repo) -> None:
    written(repo, "a.json", RUNS, CONTROLS)
    (repo.path / "runs").rename(repo.path / "elsewhere")
    written(repo, "b.json", "--fa-checkpoint=elsewhere", CONTROLS)
    merged = written(repo, "c.json", "--fa-merge=a.json", "--fa-merge=b.json")
    assert sorted(merged["reports"]) == ["runs/bp_s123.pt", "runs/bp_s42.pt", "runs/dfa_s42.pt"]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"residual_norms": [1.0, 2.0, 3.0, 4.0, 9e9]}, "residual_norms[[]*] is * in one and * in the other"),
        ({"residual_norms": [1.0, 2.0]}, "residual_norms has 5 entries in one and 2 in the other"),
        ({"headline_acc": 0.5}, "headline_acc is * in one and 0.5 in the other"),
        ({"headline_acc": 0.995}, "headline_acc is 1.0 in one and 0.995 in the other"),
        ({"frozen_baseline_acc": 0.3}, "frozen_baseline_acc is * in one and 0.3 in the other"),
        ({"cross_batch_stability": 0.1}, "cross_batch_stability is * in one and 0.1 in the other"),
        ({"cross_batch_stability": "NaN"}, "cross_batch_stability is * in one and nan in the other"),
        ({"companions": {"sample_invariance": 0.9}}, "sample_invariance is * in one and 0.9 in the other"),
        ({"stability_layer": 1}, "the layer of the drift is 2 in one and 1 in the other"),
        ({"environment": {"data_sha256": "0" * 64}}, "the digest of the test data is *"),
        ({"environment": {"checkpoint_sha256": "0" * 64}}, "they are two different files of that name"),
    ],
)
def test_two_audits_that_contradict_each_other_are_refused(repo: Repo, values: dict[str, Any], said: str) -> None:
    written(repo, "a.json", RUNS, CONTROLS)
    shutil.copy(repo.path / "a.json", repo.path / "b.json")
    changed(repo, "b.json", "runs/bp_s42.pt", **values)
    result = repo.run("--fa-merge=a.json", "--fa-merge=b.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [f"*runs/bp_s42.pt is in two audits that contradict each other: {said}*", "  *a.json", "  *b.json"]
    )


def test_what_one_audit_could_not_judge_the_other_may(repo: Repo) -> None:
    whole = written(repo, "a.json", RUNS, CONTROLS)
    (repo.path / "runs" / "bp_s42.pt").write_bytes(b"broken on this machine")
    written(repo, "b.json", RUNS, CONTROLS)
    assert written(repo, "c.json", "--fa-merge=b.json", "--fa-merge=a.json") == whole


def test_an_error_of_a_part_is_an_error_of_the_whole(repo: Repo) -> None:
    (repo.path / "runs" / "bp_s42.pt").write_bytes(b"broken")
    one = repo.run(RUNS, CONTROLS, "--fa-report=json:a.json")
    merged = repo.run("--fa-merge=a.json")
    assert merged.ret == one.ret == pytest.ExitCode.TESTS_FAILED
    assert merged.parseoutcomes()["errors"] == one.parseoutcomes()["errors"] == 4
    merged.stdout.fnmatch_lines(["bp * 42 *error: runs/bp_s42.pt: not a readable torch file*"])
    first = found(repo, "a.json")
    assert written(repo, "b.json", "--fa-merge=a.json") == first


def test_what_was_expected_stays_expected(repo: Repo) -> None:
    (repo.path / "expected.json").write_text('{"dfa": "abd", "bp": ""}')
    written(repo, "a.json", RUNS, CONTROLS, "--fa-expect=expected.json")
    result = repo.run("--fa-merge=a.json")
    result.assert_outcomes(passed=10, xfailed=3)
    assert result.ret == pytest.ExitCode.OK


def test_audits_made_with_different_versions_of_torch_say_so(repo: Repo) -> None:
    written(repo, "a.json", RUNS, CONTROLS)
    changed(repo, "a.json", "runs/bp_s42.pt", environment={"torch": "1.0.0", "threads": 64})
    result = repo.run("--fa-merge=a.json")
    result.stdout.fnmatch_lines(["note: these rows differ in torch: 1.0.0, *", "note: these rows differ in threads: 1, 64"])


def test_an_audit_of_the_first_version_is_still_read(repo: Repo) -> None:
    content = written(repo, "a.json", RUNS, CONTROLS)
    for name in ("seed_margins", "checklist"):
        del content[name]
    for row in content["summary"]:
        del row["partial"], row["moved"]
    for report in content["reports"].values():
        for name in ("partial", "gradient_batch", "trajectory"):
            report.pop(name, None)
    content["format_version"] = 1
    (repo.path / "old.json").write_text(json.dumps(content))
    repo.run("--fa-merge=old.json").assert_outcomes(passed=10, failed=3)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("not json", "not JSON"),
        ('{"reports": {}, "reports": {}}', "the key 'reports' is there twice"),
        ("[]", "not an audit"),
        ('{"reports": {}, "summary": []}', "no audit has a row"),
        ('{"reports": {}, "summary": [], "format_version": 99}', "format version 99"),
        ('{"reports": {"x": {}}, "summary": []}', "audit.reports['x']: Object missing required field `method_name`"),
        ('{"reports": {}, "summary": [{"seed": 1}]}', "audit.summary[0]: Object missing required field `checkpoint`"),
    ],
)
def test_a_file_that_is_no_audit_is_refused(repo: Repo, text: str, said: str) -> None:
    (repo.path / "a.json").write_text(text)
    result = repo.run("--fa-merge=a.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert said in result.stderr.str() and "a.json" in result.stderr.str()


def test_a_file_that_is_not_there_is_refused(repo: Repo) -> None:
    result = repo.run("--fa-merge=nowhere.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --fa-merge: cannot be read: No such file or directory", "  *nowhere.json"])


def test_a_seed_that_was_skipped_does_not_take_the_margin_with_it(repo: Repo) -> None:
    options = ("--fa-checkpoint=runs/bp_s{seed}.pt", "--fa-seeds=42,123,777", "--fa-missing=skip", CONTROLS)
    minimum = "--fa-threshold=margin_pp=99"
    one = repo.run(*options, minimum, "--fa-report=json:one.json")
    for part in (1, 2):
        repo.run(*options, minimum, f"--fa-shard={part}/2", f"--fa-report=json:p{part}.json")
    merged = repo.run("--fa-merge=p1.json", "--fa-merge=p2.json", "--fa-report=json:two.json")
    assert merged.ret == one.ret == pytest.ExitCode.TESTS_FAILED
    assert merged.parseoutcomes() == one.parseoutcomes()
    assert found(repo, "two.json") == found(repo, "one.json")


def test_a_margin_that_no_run_asked_for_is_not_asked_for_by_the_merge(repo: Repo) -> None:
    before = written(repo, "a.json", "--fa-checkpoint=runs/bp_*.pt", CONTROLS, "--fa-diagnostics=abc")
    assert written(repo, "b.json", "--fa-merge=a.json") == before
    assert before["seed_margins"] == []


def test_seeds_are_grouped_as_the_run_that_measured_them_did(repo: Repo) -> None:
    for name, seed in (("first", 42), ("second", 123)):
        (repo.path / "runs" / f"bp_s{seed}.pt").rename(repo.path / "runs" / f"{name}.pt")
    before = written(repo, "a.json", RUNS, CONTROLS)
    assert before["seed_margins"] == [], "file names tell no seeds"
    assert written(repo, "b.json", "--fa-merge=a.json") == before


def test_what_is_expected_of_a_margin_survives_the_parts(repo: Repo) -> None:
    (repo.path / "expected.json").write_text('{"bp": "d", "bp::seed-margin": "FIRE"}')
    options = ("--fa-checkpoint=runs/bp_*.pt", CONTROLS, "--fa-threshold=margin_pp=99", "--fa-expect=expected.json")
    one = repo.run(*options)
    for part in (1, 2):
        shown = repo.run(*options, f"--fa-shard={part}/2", f"--fa-report=json:p{part}.json")
        shown.stdout.fnmatch_lines(["bp * seeds left to --fa-merge*"])
    merged = repo.run("--fa-merge=p*.json")
    assert merged.ret == one.ret == pytest.ExitCode.OK
    assert merged.parseoutcomes() == one.parseoutcomes()


def test_a_control_of_another_method_leaves_the_recorded_one(repo: Repo) -> None:
    written(repo, "a.json", "--fa-checkpoint=runs/dfa_s42.pt", CONTROLS)
    repo.run("--fa-merge=a.json", "--fa-frozen=other=0.1").assert_outcomes(passed=1, failed=3)
    repo.run("--fa-merge=a.json", "--fa-frozen=dfa=0.5").assert_outcomes(passed=2, failed=2)


def test_a_part_that_is_missing_is_missed(repo: Repo) -> None:
    names = parts(repo, 3)
    result = repo.run(f"--fa-merge={names[0]}", f"--fa-merge={names[2]}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*part 2 of 3 is missing; audit it with --fa-shard=2/3, or go without*", "  *part1.json"])
    without = repo.run(f"--fa-merge={names[0]}", f"--fa-merge={names[2]}", "--fa-missing=skip")
    assert without.ret != pytest.ExitCode.USAGE_ERROR
    lost = [row["checkpoint"] for row in json.loads((repo.path / names[1]).read_text("utf-8"))["summary"]]
    said = " ".join(without.stdout.str().split())
    assert "note: part 2 of 3 is absent, and with it" in said and all(name in said for name in lost[:3])
    assert "is absent" not in repo.run(*(f"--fa-merge={name}" for name in names), "--fa-missing=skip").stdout.str()
    written(repo, "other.json", RUNS, CONTROLS, "--fa-shard=1/2")
    mixed = repo.run(f"--fa-merge={names[0]}", "--fa-merge=other.json")
    mixed.stderr.fnmatch_lines(["*parts of different divisions, into 2 and 3*"])


def test_a_diagnostic_that_the_command_names_and_nothing_measured_is_refused(repo: Repo) -> None:
    written(repo, "a.json", RUNS, CONTROLS)
    result = repo.run("--fa-merge=a.json", "--fa-diagnostics=abcde")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: --fa-diagnostics: depth-utility was not measured for runs/*and a merge measures nothing*"]
    )
    assert repo.run("--fa-merge=a.json", "--fa-diagnostics=abd").ret == pytest.ExitCode.TESTS_FAILED


def test_parts_are_not_cut_from_a_merge(repo: Repo) -> None:
    written(repo, "a.json", RUNS, CONTROLS)
    result = repo.run("--fa-merge=a.json", "--fa-shard=1/2")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--fa-shard and --fa-merge exclude each other*"])


def test_what_is_measured_beside_a_merge_replaces_its_record(repo: Repo) -> None:
    whole = written(repo, "a.json", RUNS, CONTROLS)
    both = written(repo, "b.json", "--fa-merge=a.json", "--fa-checkpoint=runs/bp_s42.pt", CONTROLS)
    assert both["reports"].keys() == whole["reports"].keys() and len(both["summary"]) == 3
    assert [row["name"] for row in both["seed_margins"]] == ["bp"]


def test_thresholds_of_the_folder_that_merges_are_not_those_of_the_audits(repo: Repo) -> None:
    before = written(repo, "a.json", RUNS, CONTROLS)
    repo.ini(fa_threshold="margin_pp=-100", fa_diagnostics="a")
    assert written(repo, "b.json", "--fa-merge=a.json") == before


def test_tests_of_the_repo_whose_checkpoints_are_elsewhere_are_skipped_in_a_merge(repo: Repo) -> None:
    written(repo, "a.json", "--fa-checkpoint=runs/bp_s42.pt", CONTROLS)
    repo.write(
        "test_claim.py",
        "import pytest\n"
        "@pytest.mark.fa_protocol(checkpoint='gone/bp_s42.pt')\ndef test_claim(fa_report):\n    fa_report.check()\n",
    )
    repo.run("-m", "fa_protocol", "--fa-merge=a.json").assert_outcomes(passed=4, skipped=1)


def test_copies_within_one_audit_stay_rows_of_their_own(repo: Repo) -> None:
    shutil.copy(repo.path / "runs" / "bp_s42.pt", repo.path / "runs" / "copy.pt")
    before = written(repo, "a.json", RUNS, CONTROLS)
    assert len(before["reports"]) == 4
    assert written(repo, "b.json", "--fa-merge=a.json") == before


def edited(repo: Repo, name: str, edit: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads((repo.path / name).read_text("utf-8"))
    edit(content)
    (repo.path / name).write_text(json.dumps(content))


def refused(repo: Repo, said: str, *names: str) -> None:
    result = repo.run(*(f"--fa-merge={name}" for name in names))
    assert result.ret == pytest.ExitCode.USAGE_ERROR, result.stdout.str()
    assert said in result.stderr.str(), result.stderr.str()


def test_parts_of_two_lists_are_refused(repo: Repo) -> None:
    repo.run("--fa-checkpoint=runs/bp_*.pt", CONTROLS, "--fa-shard=1/2", "--fa-report=json:a.json")
    repo.run(RUNS, CONTROLS, "--fa-shard=2/2", "--fa-report=json:b.json")
    refused(
        repo,
        "parts of different audits: runs/dfa_s42.pt is to be audited by one and not by the other",
        *("a.json", "b.json"),
    )


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--fa-batches=2", "--fa-batches is not given in one and 2 in the other"),
        ("--fa-diagnostics=a", "--fa-diagnostics is abcd in one and a in the other"),
        ("--fa-frozen=0.1", "--fa-frozen is *.pt in one and *.pt, 0.1 in the other"),
        ("--fa-data=other.npz", "--fa-data is data.npz in one and other.npz in the other"),
    ],
)
def test_parts_of_two_settings_are_refused(repo: Repo, option: str, said: str) -> None:
    shutil.copy(repo.path / "data.npz", repo.path / "other.npz")
    names = parts(repo, 2)
    repo.run(RUNS, CONTROLS, "--fa-shard=2/2", "--fa-report=json:part2.json", option)
    refused(repo, f"parts of different audits: {said}", *names)


def test_parts_on_other_data_of_the_same_name_are_refused(repo: Repo) -> None:
    names = parts(repo, 2)
    checkpoint = next(iter(json.loads((repo.path / "part1.json").read_text())["reports"]))
    changed(repo, "part1.json", checkpoint, environment={"data_sha256": "0" * 64})
    refused(repo, "their test data differ (SHA-256 000000000000… and ", *names)


def test_a_part_that_lost_a_row_is_refused(repo: Repo) -> None:
    names = parts(repo, 2)

    def lose(content: dict[str, Any]) -> None:
        del content["reports"][content["summary"].pop()["checkpoint"]]

    edited(repo, "part2.json", lose)
    refused(repo, "no part has a row of runs/", *names)


def test_a_part_that_says_nothing_of_the_whole_is_refused(repo: Repo) -> None:
    names = parts(repo, 2)
    edited(repo, "part2.json", lambda content: content.pop("division"))
    refused(repo, "a part that does not say what it was divided from", *names)
    edited(repo, "part1.json", lambda content: content.update(shard=[1, 10**9]))
    edited(repo, "part2.json", lambda content: content.update(shard=[2, 10**9], division={"checkpoints": [], "settings": {}}))
    refused(repo, "to be audited by one and not by the other", *names)
    refused(repo, "1000000000 parts of 3 checkpoints: no such division", "part1.json")


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda c: c["summary"].pop(0), "a report of 'runs/bp_s42.pt', of which audit.summary has no row"),
        (lambda c: c["summary"].append(c["summary"][0]), "two rows of 'runs/bp_s42.pt'"),
        (lambda c: c["reports"].pop("runs/bp_s42.pt"), "(a) was judged, but audit.reports has no report of it"),
        (
            lambda c: c["summary"][0].update(outcomes={"z": "passed"}),
            "an outcome of the diagnostic 'z', and there are a, b,",
        ),
        (lambda c: c["summary"][0].update(seed=7), "its method and seed are not those of its report"),
        (
            lambda c: c["reports"]["runs/bp_s42.pt"].update(diagnostics=["residual-growth"]),
            "(b) was judged, but its report was not asked for it",
        ),
    ],
)
def test_rows_reports_and_outcomes_of_a_file_must_agree(repo: Repo, edit: Any, said: str) -> None:
    written(repo, "a.json", "--fa-checkpoint=runs/bp_s42.pt", "--fa-checkpoint=runs/dfa_s42.pt", CONTROLS)
    edited(repo, "a.json", edit)
    refused(repo, said, "a.json")
