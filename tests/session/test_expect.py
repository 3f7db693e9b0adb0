"""Recorded verdicts: green while every one is as recorded, red when one changes in either direction."""

from __future__ import annotations

import json
from typing import Any

import pytest
from repo import Repo

BP = "--fa-checkpoint=runs/bp_s42.pt"
DFA = "--fa-checkpoint=runs/dfa_s42.pt"
CONTROLS = "--fa-frozen=controls/*.pt"


def expect(repo: Repo, content: Any) -> str:
    (repo.path / "expected.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return "--fa-expect=expected.json"


def test_what_is_expected_to_fire_is_an_xfail_and_the_run_is_green(repo: Repo) -> None:
    result = repo.run(BP, DFA, CONTROLS, expect(repo, {"dfa": "abd", "bp": ""}), "-rx")
    result.assert_outcomes(passed=5, xfailed=3)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["XFAIL runs/dfa_s42.pt::residual-growth - expected to fire: per-block growth *"])
    result.stdout.fnmatch_lines(["bp *trustworthy[*]", "dfa *walk-back a b d[*]", "[*] as expected"])


def test_an_audit_recorded_by_a_run_is_what_the_next_run_expects(repo: Repo) -> None:
    options = ("--fa-checkpoint=runs", CONTROLS)
    recorded = repo.audit(*options)
    assert recorded["summary"][2]["fired"] == "abd"
    repo.run(*options, "--fa-expect=audit.json").assert_outcomes(passed=10, xfailed=3)


def test_a_record_knows_checkpoints_that_moved_by_method_and_seed(repo: Repo) -> None:
    repo.audit("--fa-checkpoint=runs", CONTROLS)
    (repo.path / "runs").rename(repo.path / "elsewhere")
    repo.run("--fa-checkpoint=elsewhere", CONTROLS, "--fa-expect=audit.json").assert_outcomes(passed=10, xfailed=3)


def test_a_mapping_may_name_a_checkpoint_which_wins_over_its_method(repo: Repo) -> None:
    option = expect(repo, {"dfa": "", "runs/dfa_s42.pt": "ab", "bp": ""})
    repo.run(DFA, option).assert_outcomes(passed=1, xfailed=2, skipped=1)


def test_a_diagnostic_that_fires_unexpectedly_is_red_and_says_what_changed(repo: Repo) -> None:
    result = repo.run(DFA, CONTROLS, expect(repo, {"dfa": "ad"}))
    result.assert_outcomes(passed=1, failed=1, xfailed=2)
    result.stdout.re_match_lines(
        [
            r"VERDICT: needs walk-back: .*",
            r"CHANGED: gradient-floor changed from pass to fire: ‖g_L‖ \S+ < 1e-07",
            r"  renew the record .* if that is right",
            r"dfa .*walk-back a b d \(expected a d\)",
            r"FAILED runs/dfa_s42.pt::gradient-floor - changed from pass to fire: ‖g_L‖ \S+ < 1e-07",
        ]
    )


def test_a_diagnostic_that_passes_unexpectedly_is_red_and_says_what_changed(repo: Repo) -> None:
    result = repo.run(BP, expect(repo, {"bp": "c"}))
    result.assert_outcomes(passed=2, failed=1, skipped=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.re_match_lines(
        [
            r"CHANGED: direction-drift changed from fire to pass: cross-batch cosine \S+ <= 0.3",
            r"bp .*incomplete \(expected c\) no d",
            r"FAILED runs/bp_s42.pt::direction-drift - changed from fire to pass: .*",
        ]
    )
    result.stdout.no_fnmatch_line("*XPASS*")


def test_a_finding_that_is_not_measured_any_more_has_changed_too(repo: Repo) -> None:
    result = repo.run(DFA, expect(repo, {"dfa": "abd"}))
    result.assert_outcomes(passed=1, failed=1, xfailed=2)
    result.stdout.fnmatch_lines(["CHANGED: frozen-margin changed from fire to not measured: no frozen-random control*"])


def test_a_recorded_pass_that_is_not_measured_any_more_has_changed_too(repo: Repo) -> None:
    repo.run(BP, CONTROLS, "--fa-report=json:record.json")
    result = repo.run(BP, "--fa-expect=record.json")
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["CHANGED: frozen-margin changed from pass to not measured: no frozen-random control*"])
    repo.write("test_own.py", "def test_own(fa_diagnostic): pass\ndef test_report(fa_report): pass\n")
    repo.run("test_own.py", BP, "--fa-expect=record.json", "-k", "test_").assert_outcomes(
        passed=3, failed=1, errors=1, deselected=4
    )


def test_an_error_where_a_finding_was_expected_is_an_error(repo: Repo) -> None:
    (repo.path / "controls" / "frozen_dfa_s42.pt").write_bytes(b"")
    result = repo.run(DFA, CONTROLS, expect(repo, {"dfa": "abd"}))
    result.assert_outcomes(passed=1, xfailed=2, errors=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_runxfail_shows_the_findings_as_failures(repo: Repo) -> None:
    repo.run(DFA, expect(repo, {"dfa": "ab"}), "--runxfail").assert_outcomes(passed=1, failed=2, skipped=1)


def test_a_checkpoint_that_the_file_does_not_know_is_an_error(repo: Repo) -> None:
    result = repo.run(BP, DFA, expect(repo, {"dfa": "ab"}))
    result.assert_outcomes(passed=1, xfailed=2, skipped=1, errors=4)
    result.stdout.fnmatch_lines(["runs/bp_s42.pt (method bp, seed 42) is not recorded in expected.json, *record it there*"])
    result.stdout.fnmatch_lines(["bp *error: runs/bp_s42.pt (method bp, *"])


def test_two_records_of_one_method_and_seed_that_differ_do_not_stand_for_a_third(repo: Repo) -> None:
    document = repo.audit(DFA, BP)
    report = document["reports"].pop("runs/dfa_s42.pt")
    other = {**document["reports"].pop("runs/bp_s42.pt"), "method_name": "dfa"}
    document["reports"] = {"a/dfa_s42.pt": report, "b/dfa_s42.pt": other}
    repo.run(DFA, expect(repo, document)).assert_outcomes(errors=4)


def test_a_report_of_a_written_test_is_checked_against_the_record(repo: Repo) -> None:
    repo.write("test_own.py", "def test_own(fa_report): fa_report.check()\n")
    repo.run(DFA, expect(repo, {"dfa": "ab"}), "-k", "own").assert_outcomes(passed=1, deselected=4)
    result = repo.run(DFA, expect(repo, {"dfa": "a"}), "-k", "own")
    result.assert_outcomes(failed=1, deselected=4)
    result.stdout.fnmatch_lines(["CHANGED: gradient-floor *"])


def test_the_marker_wins_over_the_file(repo: Repo) -> None:
    repo.write(
        "test_own.py",
        "import pytest\n@pytest.mark.fa_protocol(expect='ab')\ndef test_own(fa_diagnostic): fa_diagnostic.check()\n",
    )
    repo.run(DFA, expect(repo, {"dfa": ""}), "-k", "own").assert_outcomes(passed=1, xfailed=2, skipped=1, deselected=4)


def test_an_xfail_of_the_users_own_keeps_its_own_text(repo: Repo) -> None:
    repo.write(
        "test_own.py",
        "import pytest\n@pytest.mark.xfail(strict=True, reason='a reason of mine')\n"
        "def test_own(fa_diagnostic): fa_diagnostic.check()\n",
    )
    result = repo.run(BP, "--fa-diagnostics=a", "-k", "own")
    result.assert_outcomes(failed=1, deselected=1)
    result.stdout.fnmatch_lines(["[[]XPASS(strict)] a reason of mine"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "--fa-expect: not JSON: *"),
        ('{"dfa": "", "dfa": "abcd"}', "--fa-expect: the key 'dfa' is there twice in one object, *"),
        ("[]", "--fa-expect: expected a JSON object, found list"),
        ('{"dfa": "xyz"}', "--fa-expect: diagnostics 'xyz': unknown key 'x', 'y', 'z'; known: a (residual-growth), *"),
        (
            '{"dfa": 3}',
            '--fa-expect: \'dfa\' is 3; expected the keys that fire, such as "abd" or ["a", "my-name"], or "" for none',
        ),
        ('{"dfa": null}', "--fa-expect: 'dfa' is null; expected the keys that fire*"),
        (
            '{"reports": {"a.pt": {"method_name": "a"}}}',
            "--fa-expect: audit.reports?'a.pt'?: Object missing required field `residual_norms`",
        ),
        ('{"reports": 3}', "--fa-expect: audit.reports: Expected `object`, got `int`"),
    ],
)
def test_a_file_that_records_no_verdicts_ends_the_run(repo: Repo, content: str, message: str) -> None:
    result = repo.run(BP, expect(repo, content))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {message}", "  */expected.json"])


def test_a_file_that_does_not_exist_ends_the_run(repo: Repo) -> None:
    result = repo.run(BP, "--fa-expect=none.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --fa-expect: cannot be read: No such file or directory", "  */none.json"])
