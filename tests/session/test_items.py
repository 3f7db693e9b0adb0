"""Generated tests: ids, outcomes, texts, and everything a pytest user selects them by."""

from __future__ import annotations

import json
import os
import re
import shutil

import pytest
from repo import Repo

BP, DFA = "--fa-checkpoint=runs/bp_s42.pt", "--fa-checkpoint=runs/dfa_s42.pt"
CONTROLS = "--fa-frozen=controls/*.pt"
NAMES = ["residual-growth", "gradient-floor", "direction-drift", "frozen-margin"]


def ids(result: pytest.RunResult) -> list[str]:
    """What --collect-only -q lists."""
    return [line for line in result.outlines if "::" in line and " " not in line]


def test_one_test_per_checkpoint_and_diagnostic_and_no_file_is_opened(repo: Repo) -> None:
    (repo.path / "runs" / "dfa_s42.pt").write_bytes(b"not a checkpoint")
    result = repo.run("--collect-only", "-q", BP, DFA)
    assert ids(result) == [
        f"runs/{file}::{name}" for file in ("bp_s42.pt", "dfa_s42.pt") for name in NAMES
    ]
    assert result.ret == pytest.ExitCode.OK
    result.stdout.no_fnmatch_line("*FA audit*")


def test_a_network_that_stands_passes_and_one_that_does_not_fails(repo: Repo) -> None:
    assert repo.outcomes(BP, DFA, CONTROLS) == {"bp_s42": "a. b. c. d.", "dfa_s42": "aF bF c. dF"}
    assert repo.result.ret == pytest.ExitCode.TESTS_FAILED
    repo.result.stdout.fnmatch_lines(
        ["✓ TRUSTWORTHY", "  bp 42 *", "✗ WALK BACK", "  dfa 42 *✗*✗*✗*"]
    )


def test_a_failure_shows_its_own_diagnostic_and_no_traceback(repo: Repo) -> None:
    result = repo.run(DFA, CONTROLS, "--fa-diagnostics=ab")
    lines = result.outlines
    start = next(i for i, line in enumerate(lines) if line.startswith("(a) fail: "))
    shown = lines[start - 1 : next(i for i, line in enumerate(lines) if "FA audit" in line)]
    assert shown[0].strip("_ ") == "runs/dfa_s42.pt residual-growth"
    assert sum(" fail: " in line for line in shown) == 2, "one of each failing test"
    assert sum("h_0" in line for line in shown) == 1, "numbers by state with the first alone"
    assert "(b): fail" in shown, "how the others came out, once"
    assert not [
        line for line in shown if "Error" in line or ".py" in line or line.startswith((">", "E  "))
    ]
    assert all(len(line) <= 120 for line in shown), "wrapped at the terminal"
    result.stdout.re_match_lines(
        [
            r"FAILED runs/dfa_s42\.pt::residual-growth - .*growth \S+ > 50",
            r"FAILED .*gradient-floor - .* < 1e-7",
        ]
    )


@pytest.mark.parametrize(
    ("options", "found", "absent"),
    [
        (
            ("--tb=line",),
            "runs/dfa_s42.pt:0: per-block growth * residual stream exploded",
            "*fails:*",
        ),
        (("-q",), "✗ WALK BACK  dfa, seed 42, *", "*Traceback*"),
        (("-v",), "dfa, seed 42: walk back: residual stream exploded*", "*Traceback*"),
        (("--color=yes",), "*\x1b[[]31m*WALK BACK*", "*Traceback*"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_what_the_terminal_shows(
    repo: Repo, options: tuple[str, ...], found: str, absent: str
) -> None:
    result = repo.run(DFA, "--fa-diagnostics=a", *options)
    result.stdout.fnmatch_lines([found])
    result.stdout.no_fnmatch_line(absent)


def test_verbose_shows_every_report_once(repo: Repo) -> None:
    text = repo.run(BP, DFA, CONTROLS, "-v").stdout.str()
    assert (
        text.count("\nbp, seed 42: trustworthy\n")
        == text.count("\ndfa, seed 42: walk back: residual stream exploded; ")
        == 1
    )


def test_without_a_control_the_margin_is_skipped_and_the_reason_names_the_option(
    repo: Repo,
) -> None:
    assert repo.outcomes(BP, "-rs") == {"bp_s42": "a. b. c. ds"}
    repo.result.stdout.fnmatch_lines(
        [
            "SKIPPED * runs/bp_s42.pt: no frozen-random control was supplied; train a control "
            "(fadiag control bp_s42.pt, then --fa-frozen)"
        ]
    )
    repo.result.stdout.fnmatch_lines(["~ INCOMPLETE  bp, *"])


@pytest.mark.parametrize(
    ("control", "message"),
    [
        (
            "controls/frozen_dfa_s42.pt",
            "ERROR runs/dfa_s42.pt::frozen-margin - *control frozen_dfa_s42.pt*",
        ),
        (
            "DFA=0.76",
            "ERROR runs/dfa_s42.pt::frozen-margin - *no control for dfa: those supplied are "
            "for DFA*",
        ),
    ],
)
def test_a_control_that_is_broken_or_fits_nothing_is_an_error_of_the_margin_alone(
    repo: Repo, control: str, message: str
) -> None:
    (repo.path / "controls" / "frozen_dfa_s42.pt").write_bytes(b"not a checkpoint")
    assert repo.outcomes(DFA, f"--fa-frozen={control}") == {"dfa_s42": "aF bF c. dE"}
    repo.result.stdout.fnmatch_lines([message])


def test_a_credit_that_does_not_exist_is_an_error(repo: Repo) -> None:
    result = repo.run(BP, CONTROLS, "--fa-diagnostics=af", "--fa-credit=os:no_such_rule")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*'os' has no attribute 'no_such_rule'*"])


def test_a_broken_checkpoint_is_an_error_of_its_own_tests_and_told_once(repo: Repo) -> None:
    (repo.path / "runs" / "dfa_s42.pt").write_bytes(b"not a checkpoint")
    assert repo.outcomes(BP, DFA) == {"bp_s42": "a. b. c. ds", "dfa_s42": "aE bE cE dE"}
    text = repo.result.stdout.str()
    assert "Traceback" not in text and ".py:" not in text
    repo.result.stdout.fnmatch_lines(
        ["ERROR runs/dfa_s42.pt::residual-growth - runs/dfa_s42.pt: *"]
    )
    assert text.count("\nsame error as runs/dfa_s42.pt::residual-growth") == 3


def test_an_unfinished_download_costs_no_report_of_the_others(repo: Repo) -> None:
    (repo.path / "hf").mkdir()
    index = {"weight_map": {"embed.weight": "model-00001-of-00002.safetensors"}}
    (repo.path / "hf" / "model.safetensors.index.json").write_text(json.dumps(index))
    outcomes = repo.outcomes(BP, "--fa-checkpoint=hf/model.safetensors.index.json")
    assert outcomes["bp_s42"] == "a. b. c. ds"
    assert outcomes["model.safetensors.index"] == "aE bE cE dE"


def test_the_table_names_an_error_whatever_the_order_of_the_tests(repo: Repo) -> None:
    (repo.path / "runs" / "dfa_s42.pt").write_bytes(b"not a checkpoint")
    repo.write("conftest.py", "def pytest_collection_modifyitems(items):\n    items.reverse()\n")
    (row,) = repo.audit(DFA)["rows"]
    assert "runs/dfa_s42.pt: not a readable file of tensors" in row["reason"]


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ("-k=dfa_s42 and growth", ["runs/dfa_s42.pt::residual-growth"]),
        ("-m=not fa_protocol", []),
        (
            "--deselect=runs/dfa_s42.pt --deselect=runs/bp_s42.pt::frozen-margin",
            [f"runs/bp_s42.pt::{n}" for n in NAMES[:3]],
        ),
    ],
    ids=["-k", "-m", "--deselect"],
)
def test_selection(repo: Repo, options: str, left: list[str]) -> None:
    words = options.split(" --") if "--" in options else [options]
    words = [word if word.startswith("-") else f"--{word}" for word in words]
    result = repo.run("--collect-only", "-q", BP, DFA, *words)
    assert ids(result) == left
    assert result.ret == (pytest.ExitCode.OK if left else pytest.ExitCode.NO_TESTS_COLLECTED)


def test_x_stops_and_the_rest_is_shown_as_not_run(repo: Repo) -> None:
    assert repo.outcomes(DFA, "-x") == {"dfa_s42": "aF b- c- d-"}
    repo.result.stdout.fnmatch_lines(["✗ WALK BACK  dfa, *", "  – b gradient-floor *"])


def test_lf_reruns_what_failed_from_any_folder(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    repo.ini(fa_data="data.npz", fa_checkpoint="runs/dfa_s42.pt", fa_diagnostics="abc")
    repo.run().assert_outcomes(failed=2, passed=1)
    monkeypatch.chdir(repo.path / "controls")
    repo.run("--lf").assert_outcomes(failed=2)


def test_nf_puts_the_newest_checkpoint_first(repo: Repo) -> None:
    repo.run(BP, "--fa-diagnostics=a")
    os.utime(repo.path / "runs" / "bp_s123.pt", (1, 1))
    shown = ids(
        repo.run("--collect-only", "-q", "--nf", "--fa-checkpoint=runs", "--fa-diagnostics=a")
    )
    assert shown == [
        f"runs/{name}.pt::residual-growth" for name in ("dfa_s42", "bp_s123", "bp_s42")
    ]


def test_exit_codes(repo: Repo) -> None:
    assert repo.run(BP, CONTROLS).ret == pytest.ExitCode.OK
    missing = repo.run("--fa-checkpoint=runs/none.pt")
    assert missing.ret == pytest.ExitCode.USAGE_ERROR
    missing.stderr.fnmatch_lines(
        ["ERROR: --fa-checkpoint: no checkpoint there", "  */runs/none.pt"]
    )
    assert repo.run("--fa-missing=maybe").ret == pytest.ExitCode.USAGE_ERROR
    for option in ("model", "data", "credit", "loss", "forward"):
        unknown = repo.run(BP, f"--fa-{option}=no_such_package:name")
        assert unknown.ret == pytest.ExitCode.USAGE_ERROR, "before anything is measured"
        unknown.stderr.fnmatch_lines([f"ERROR: --fa-{option} *no such module*"])
    assert repo.run(BP, "--fa-loss=l1").ret == pytest.ExitCode.USAGE_ERROR
    no_tests = repo.run(DFA, CONTROLS, "-p", "no:python")
    assert no_tests.ret == pytest.ExitCode.USAGE_ERROR, "else nothing is tested, and all is green"
    no_tests.stderr.fnmatch_lines(["ERROR: -p no:python: the tests of an audit are functions*"])
    repo.ini()
    no_data = repo.run(BP)
    assert no_data.ret == pytest.ExitCode.USAGE_ERROR
    no_data.stderr.fnmatch_lines(["ERROR: no test data: add --fa-data=SPEC*"])
    assert repo.spawn(BP, "-n", "1").ret == pytest.ExitCode.USAGE_ERROR, "before a worker starts"


def test_a_pasted_id_runs_that_test_alone_and_a_file_that_may_be_missing_is_skipped(
    repo: Repo,
) -> None:
    repo.write("test_own.py", "raise RuntimeError('not imported')\n")
    repo.run("runs/dfa_s42.pt::frozen-margin", "--fa-frozen=0.3").assert_outcomes(passed=1)
    result = repo.run(
        BP,
        "--fa-checkpoint=gone_s1.pt",
        "--fa-missing=skip",
        "--fa-only",
        "-rs",
        "--fa-diagnostics=a",
    )
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(
        ["  gone 1 * skipped", "SKIPPED * gone_s1.pt: checkpoint does not exist: *"]
    )


@pytest.mark.parametrize(
    "options",
    [
        ["-p", "no:cacheprovider"],
        ["--strict-markers", "--strict-config"],
        ["-W", "error"],
        ["-s"],
        ["--setup-show"],
    ],
    ids=" ".join,
)
def test_other_options_of_pytest_change_no_outcome(repo: Repo, options: list[str]) -> None:
    assert repo.outcomes(DFA, CONTROLS, *options) == {"dfa_s42": "aF bF c. dF"}


@pytest.mark.parametrize("options", [[], ["-n", "1"]], ids=["alone", "a worker"])
def test_a_cache_that_cannot_be_written_costs_no_outcome(repo: Repo, options: list[str]) -> None:
    shutil.rmtree(repo.path / ".pytest_cache")
    (repo.path / ".pytest_cache").touch()
    assert repo.outcomes(DFA, CONTROLS, *options, run=repo.spawn) == {"dfa_s42": "aF bF c. dF"}
    text = repo.result.stdout.str()
    assert text.count("measurements are not kept for the next run: ") == 1, text
    assert "INTERNALERROR" not in text


def test_without_a_terminal_exit_code_and_files_are_the_same(repo: Repo) -> None:
    silent = repo.pytester.runpytest_inprocess
    found = repo.outcomes(DFA, CONTROLS, "-p", "no:terminal", run=silent)
    assert found == {"dfa_s42": "aF bF c. dF"}
    assert repo.result.ret == pytest.ExitCode.TESTS_FAILED and repo.result.outlines == []


def test_markers_fixtures_and_help_tell_the_truth_whatever_the_ini_file_says(repo: Repo) -> None:
    repo.ini(fa_checkpoint="gone.pt")
    shown = {word: repo.run(word).stdout.str() for word in ("--markers", "--fixtures", "--help")}
    assert "@pytest.mark.fa_protocol(margin_pp=2.0" in shown["--markers"]
    fixtures = re.findall(r"^(fa_\w+) ", shown["--fixtures"], re.MULTILINE)
    assert len(fixtures) == 11 and {"fa_report", "fa_diagnostic", "fa_credit", "fa_step"} < set(
        fixtures
    )
    assert (
        "--fa-checkpoint=PATH|GLOB|DIR" in shown["--help"]
        and "  fa_checkpoint (linelist)" in shown["--help"]
    )


def test_switched_off_the_plugin_is_not_there(repo: Repo) -> None:
    result = repo.pytester.runpytest_inprocess("-p", "no:fadiag", BP)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*unrecognized arguments: --fa-checkpoint=*"])


def test_a_list_is_taken_literally_also_with_a_questioned_control(repo: Repo) -> None:
    repo.ini(fa_data="data.npz", fa_checkpoint="runs/bp_s123.pt", fa_frozen="controls/*.pt")
    (default,) = repo.audit()["rows"]  # its control is that of seed 42
    assert set(default["outcomes"]) == {*"abcdeg"}
    (listed,) = repo.audit("--fa-diagnostics=abcd")["rows"]
    assert listed["outcomes"] == dict.fromkeys("abcd", "passed")
    assert listed["report"]["verdict"].endswith("measured against a questioned control")
