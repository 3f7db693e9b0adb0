"""Generated tests: their ids, their outcomes, and everything a pytest user selects them by."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest
import torch
from repo import Repo

NAMES = ["residual-growth", "gradient-floor", "direction-drift", "frozen-margin"]
BOTH = ("--fa-checkpoint=runs/bp_s42.pt", "--fa-checkpoint=runs/dfa_s42.pt")


def ids(result: pytest.RunResult) -> list[str]:
    return [line for line in result.outlines if "::" in line and " " not in line]


def test_one_test_per_checkpoint_and_diagnostic(repo: Repo) -> None:
    result = repo.run("--collect-only", "-q", *BOTH)
    assert ids(result) == [f"runs/{file}::{name}" for file in ("bp_s42.pt", "dfa_s42.pt") for name in NAMES]
    assert result.ret == pytest.ExitCode.OK
    result.stdout.no_fnmatch_line("*FA audit*")


def test_the_tree_shows_a_collector_per_checkpoint(repo: Repo) -> None:
    repo.run("--collect-only", "--fa-checkpoint=runs/bp_s42.pt").stdout.fnmatch_lines(
        ["<CheckpointCollector runs/bp_s42.pt>", "  <DiagnosticItem residual-growth>", "  <DiagnosticItem frozen-margin>"]
    )


def test_collection_opens_no_checkpoint(repo: Repo) -> None:
    (repo.path / "runs" / "broken.pt").write_bytes(b"no checkpoint")
    assert repo.run("--collect-only", "-q", "--fa-checkpoint=runs/broken.pt").ret == pytest.ExitCode.OK


def test_outcomes_of_a_network_that_stands_and_of_one_that_does_not(repo: Repo) -> None:
    result = repo.run(*BOTH, "--fa-frozen=controls/*.pt")
    result.assert_outcomes(passed=5, failed=3)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert repo.run("--fa-checkpoint=runs/bp_s42.pt", "--fa-frozen=0.3").ret == pytest.ExitCode.OK


def test_a_failure_shows_the_report_and_nothing_else(repo: Repo) -> None:
    result = repo.run("--fa-checkpoint=runs/dfa_s42.pt", "--fa-diagnostics=a")
    lines = result.outlines
    shown = lines[
        lines.index("FA diagnostic report: dfa, seed 42") - 1 : next(i for i, t in enumerate(lines) if "FA audit" in t)
    ]
    assert shown[0].strip("_ ") == "runs/dfa_s42.pt residual-growth"
    assert shown[2] == "  dfa_s42.pt on data.npz"
    assert shown[-1] == "VERDICT: needs walk-back: residual stream exploded"
    assert not [line for line in shown if line.startswith("(b)")], "what nobody asked for is not measured"
    assert not [line for line in shown if "Error" in line or ".py" in line or line.startswith((">", "E  "))]


def test_the_report_of_a_passing_test_is_shown_where_somebody_asks_for_it(repo: Repo) -> None:
    command = ("--fa-checkpoint=runs/bp_s42.pt", "--fa-diagnostics=a")
    assert "FA diagnostic report: bp, seed 42" not in repo.run(*command).outlines
    repo.run(*command, "-rP").stdout.fnmatch_lines(
        ["*FA report*", "FA diagnostic report: bp, seed 42", "(a) residual-growth: pass"]
    )


def test_the_short_summary_line_carries_the_number(repo: Repo) -> None:
    repo.run("--fa-checkpoint=runs/dfa_s42.pt", "--fa-frozen=1.0").stdout.re_match_lines(
        [
            r"FAILED runs/dfa_s42\.pt::residual-growth - per-block growth \d\.\de\+0\d > 50$",
            r"FAILED runs/dfa_s42\.pt::gradient-floor - ‖g_L‖ \d\.\de-\d\d < 1e-07$",
            r"FAILED runs/dfa_s42\.pt::frozen-margin - margin [-+]\d+\.\d\d pp < 2$",
        ]
    )


def test_tb_line_gives_one_line_a_failure(repo: Repo) -> None:
    result = repo.run("--tb=line", "--fa-checkpoint=runs/dfa_s42.pt", "--fa-diagnostics=a")
    result.stdout.re_match_lines([r"runs/dfa_s42\.pt::residual-growth: per-block growth \S+ > 50"])
    result.stdout.no_fnmatch_line("*FA diagnostic report*")


def test_what_fired_is_red_on_a_colour_terminal(repo: Repo) -> None:
    result = repo.run("--color=yes", "--fa-checkpoint=runs/dfa_s42.pt", "--fa-diagnostics=a")
    flag = next(line for line in result.outlines if "FLAG: residual" in line)
    assert flag.startswith("\x1b[31m") and flag.endswith("\x1b[0m")
    assert not next(line for line in result.outlines if "median ‖h_l‖" in line).startswith("\x1b")
    assert "\x1b[31m" in next(line for line in result.outlines if "walk-back a" in line)


def test_a_flag_that_is_folded_keeps_its_colour_to_its_end() -> None:
    from pytest_fadiag.session.outcome import ReportText

    colours: dict[str, list[str]] = {}
    lines = [
        "FA diagnostic report: x",
        "    FLAG: it exploded:",
        "      in block 0",
        "(b) next: pass",
        "VERDICT: needs walk-back",
    ]

    def line(text: str, bold: bool, **markup: bool) -> None:
        colours.setdefault("".join(colour for colour, there in markup.items() if there), []).append(text)

    writer = SimpleNamespace(line=line)
    ReportText("\n".join(lines), "it exploded", "x").toterminal(writer)
    assert colours["red"] == ["    FLAG: it exploded:", "      in block 0", "VERDICT: needs walk-back"]
    ReportText("VERDICT: trustworthy\nVERDICT: incomplete: frozen-margin not measured", "", "x").toterminal(writer)
    assert colours["green"] == ["VERDICT: trustworthy"] and len(colours["yellow"]) == 1


def test_without_a_control_the_margin_is_skipped_and_the_reason_names_the_option(repo: Repo) -> None:
    result = repo.run("-rs", "--fa-checkpoint=runs/bp_s42.pt")
    result.assert_outcomes(passed=3, skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED * runs/bp_s42.pt: *no frozen-random control was supplied*--fa-frozen=*"])


def test_a_broken_control_is_an_error_of_the_margin_alone(repo: Repo) -> None:
    (repo.path / "controls" / "frozen_dfa_s42.pt").write_bytes(b"no checkpoint")
    result = repo.run("--fa-checkpoint=runs/dfa_s42.pt", "--fa-frozen=controls/frozen_dfa_s42.pt")
    result.assert_outcomes(passed=1, failed=2, errors=1)
    result.stdout.fnmatch_lines(
        ["dfa *walk-back a b*error d*", "ERROR runs/dfa_s42.pt::frozen-margin - control controls/frozen_*"]
    )


@pytest.mark.parametrize("control", ["DFA=0.76", "dfalam=0.76", "others.json"])
def test_a_control_that_fits_no_network_is_an_error_of_the_margin_alone(repo: Repo, control: str) -> None:
    (repo.path / "others.json").write_text('{"ep": 0.3}', "utf-8")
    result = repo.run("--fa-checkpoint=runs/bp_s42.pt", f"--fa-frozen={control}")
    assert result.ret == 1
    result.assert_outcomes(passed=3, errors=1)
    result.stdout.fnmatch_lines(
        ["bp *incomplete error d*", "ERROR runs/bp_s42.pt::frozen-margin - none of the controls supplied is for bp: they *"]
    )


def test_the_margin_over_seeds_is_an_error_too_where_no_control_fits(repo: Repo) -> None:
    result = repo.run("--fa-checkpoint=runs/bp_*.pt", "--fa-frozen=ep=0.1", "--fa-diagnostics=d")
    result.assert_outcomes(errors=2, failed=1)


def test_a_broken_checkpoint_is_an_error_of_its_own_tests(repo: Repo) -> None:
    (repo.path / "runs" / "dfa_s42.pt").write_bytes(b"no checkpoint")
    result = repo.run(*BOTH)
    result.assert_outcomes(passed=3, skipped=1, errors=4)
    result.stdout.fnmatch_lines(["ERROR runs/dfa_s42.pt::residual-growth - runs/dfa_s42.pt: *"])
    assert "Traceback" not in result.stdout.str() and ".py:" not in result.stdout.str()


def test_a_checkpoint_that_disappears_after_collection_is_an_error(repo: Repo) -> None:
    repo.write(
        "conftest.py",
        "from pathlib import Path\ndef pytest_collection_finish(session):\n    Path('runs/dfa_s42.pt').unlink()\n",
    )
    result = repo.run(*BOTH)
    result.assert_outcomes(passed=3, skipped=1, errors=4)
    result.stdout.fnmatch_lines(["*dfa_s42.pt: no such file, or it was moved or deleted since the run began"])


def test_k_selects_by_checkpoint_and_by_diagnostic(repo: Repo) -> None:
    assert ids(repo.run("--collect-only", "-q", *BOTH, "-k", "dfa_s42 and growth")) == ["runs/dfa_s42.pt::residual-growth"]
    assert len(ids(repo.run("--collect-only", "-q", *BOTH, "-k", "gradient-floor"))) == 2


def test_m_fa_protocol_runs_the_audit_alone(repo: Repo) -> None:
    repo.write("test_own.py", "def test_own(): pass\n")
    repo.run(*BOTH[:1]).assert_outcomes(passed=4, skipped=1)
    repo.run(*BOTH[:1], "-m", "fa_protocol").assert_outcomes(passed=3, skipped=1, deselected=1)
    repo.run(*BOTH[:1], "-m", "not fa_protocol").assert_outcomes(passed=1, deselected=4)


def test_deselect(repo: Repo) -> None:
    shown = ids(
        repo.run("--collect-only", "-q", *BOTH, "--deselect=runs/dfa_s42.pt", "--deselect=runs/bp_s42.pt::frozen-margin")
    )
    assert shown == [f"runs/bp_s42.pt::{name}" for name in NAMES[:3]]


def test_x_stops_and_the_rest_is_shown_as_not_run(repo: Repo) -> None:
    rows = repo.summary(*BOTH, "-x", "-k", "dfa or bp_s42", "--deselect=runs/bp_s42.pt::gradient-floor")
    assert rows["runs/dfa_s42.pt"]["outcomes"] == {"a": "failed", "b": "not run", "c": "not run", "d": "not run"}
    assert rows["runs/bp_s42.pt"]["outcomes"] == {"a": "passed", "c": "passed", "d": "skipped"}
    result = repo.run("--fa-checkpoint=runs/dfa_s42.pt", "-x")
    result.stdout.fnmatch_lines(["dfa *walk-back a not run b c d"])


def test_lf_reruns_what_failed(repo: Repo) -> None:
    repo.run(*BOTH).assert_outcomes(passed=4, failed=2, skipped=2)
    again = repo.run(*BOTH, "--lf")
    again.assert_outcomes(failed=2)
    again.stdout.fnmatch_lines(["run-last-failure: rerun previous 2 failures*"])


def test_nf_puts_the_newest_checkpoint_first(repo: Repo) -> None:
    repo.run("--fa-checkpoint=runs/bp_s42.pt")
    os.utime(repo.path / "runs" / "bp_s123.pt", (1, 1))
    shown = ids(repo.run("--collect-only", "-q", "--nf", "--fa-checkpoint=runs/*.pt"))
    assert shown[0] == "runs/dfa_s42.pt::residual-growth" and shown[-1] == "runs/bp_s42.pt::frozen-margin"


def test_nf_with_a_checkpoint_that_does_not_exist(repo: Repo) -> None:
    options = ("--fa-missing=skip", "--fa-checkpoint=runs/none.pt")
    result = repo.run("--nf", *options, "--fa-checkpoint=runs/bp_s42.pt", "-rs")
    result.assert_outcomes(passed=3, skipped=5)
    result.stdout.fnmatch_lines(["SKIPPED [[]4] runs/none.pt: checkpoint does not exist: *none.pt"])


@pytest.mark.parametrize("place", ["command line", "ini file"])
def test_where_every_file_is_absent_nothing_is_green(repo: Repo, place: str) -> None:
    options = ["--fa-missing=skip", "--fa-checkpoint=runs/none.pt", "--fa-log=runs/none.json"]
    if place == "ini file":
        repo.ini(fa_data="data.npz", fa_missing="skip", fa_checkpoint="runs/none.pt")
    result = repo.run(*options if place == "command line" else [])
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: none of what is to be audited exists; --fa-missing=skip lets some *", "  */none.pt"])


def test_exit_codes(repo: Repo) -> None:
    checkpoint = "--fa-checkpoint=runs/bp_s42.pt"
    assert repo.run(checkpoint).ret == pytest.ExitCode.OK
    assert repo.run("--fa-checkpoint=runs/dfa_s42.pt").ret == pytest.ExitCode.TESTS_FAILED
    assert repo.run(checkpoint, "-k", "nothing-of-this-name").ret == pytest.ExitCode.NO_TESTS_COLLECTED
    assert repo.run("--fa-checkpoint=runs/none.pt").ret == pytest.ExitCode.USAGE_ERROR
    repo.write("test_broken.py", "import no_such_module\n")
    assert repo.run(checkpoint).ret == pytest.ExitCode.INTERRUPTED
    repo.write("conftest.py", "def pytest_collection_modifyitems(): raise RuntimeError\n")
    assert repo.run(checkpoint).ret == pytest.ExitCode.INTERNAL_ERROR


@pytest.mark.parametrize(
    "options",
    [
        ["-p", "no:cacheprovider"],
        ["--strict-markers", "--strict-config"],
        ["--import-mode=importlib"],
        ["-W", "error"],
        ["-s"],
        ["--setup-show"],
        ["-vv"],
    ],
    ids=" ".join,
)
def test_other_options_of_pytest_change_no_outcome(repo: Repo, options: list[str]) -> None:
    repo.run(*BOTH, "--fa-frozen=0.3", *options).assert_outcomes(passed=6, failed=2)


def test_without_a_terminal_the_exit_code_and_the_files_are_the_same(repo: Repo) -> None:
    (repo.path / "out.json").unlink(missing_ok=True)
    result = repo.pytester.runpytest_inprocess(*BOTH, "-p", "no:terminal", "--fa-report=json:out.json")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert result.outlines == []
    assert (repo.path / "out.json").is_file()


def test_switched_off_the_plugin_is_not_there(repo: Repo) -> None:
    repo.ini()
    repo.write("test_own.py", "def test_own(): pass\n")
    run = repo.pytester.runpytest_inprocess
    run("-p", "no:fadiag").assert_outcomes(passed=1)
    result = run("-p", "no:fadiag", "--fa-checkpoint=runs/bp_s42.pt")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*unrecognized arguments: --fa-checkpoint=*"])


def test_ids_do_not_change_with_the_working_folder(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    repo.ini(fa_data="data.npz", fa_checkpoint="runs/dfa_s42.pt")
    expected = ids(repo.run("--collect-only", "-q"))
    (repo.path / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(repo.path / "deep" / "er")
    result = repo.run("--collect-only", "-q", "--rootdir", repo.path)
    assert [line.removeprefix("../../") for line in ids(result)] == expected
    repo.run("--lf").assert_outcomes(passed=1, failed=2, skipped=1)
    monkeypatch.chdir(repo.path)
    repo.run("--lf").assert_outcomes(failed=2)


PASTED = "runs/dfa_s42.pt::frozen-margin"


def test_a_pasted_id_runs_that_one_test(repo: Repo) -> None:
    repo.write("test_own.py", "def test_own(): pass\n")
    result = repo.run(PASTED, "--fa-frozen=0.3")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["dfa *incomplete no a b c"])


def test_a_checkpoint_named_like_a_test_file_runs_all_its_diagnostics(repo: Repo) -> None:
    repo.run("runs/bp_s42.pt").assert_outcomes(passed=3, skipped=1)
    repo.run("runs/bp_s42.pt", PASTED, "runs/dfa_s42.pt::residual-growth").assert_outcomes(passed=3, skipped=2, failed=1)


def test_a_checkpoint_beside_those_of_the_option_is_audited_with_them(repo: Repo) -> None:
    repo.run("--fa-checkpoint=runs/dfa_s42.pt", "runs/bp_s42.pt").assert_outcomes(passed=4, failed=2, skipped=2)
    # As a shell expands «--fa-checkpoint runs/*.pt»; the two seeds of bp are tested together.
    spread = ("runs/bp_s123.pt", "runs/bp_s42.pt", "runs/dfa_s42.pt")
    repo.run("--fa-checkpoint", *spread, "--fa-frozen=0.3").assert_outcomes(passed=11, failed=2)
    alone = repo.run("--fa-checkpoint=runs/dfa_s42.pt", "runs/bp_s42.pt::residual-growth", "--fa-diagnostics=ac")
    alone.assert_outcomes(passed=2, failed=1)
    repo.run("--fa-checkpoint=runs", "runs/bp_s42.pt::residual-growth").assert_outcomes(passed=1)
    repo.ini(fa_data="data.npz", fa_checkpoint="runs/dfa_s42.pt")  # that of a run of everything
    repo.run("runs/bp_s42.pt").assert_outcomes(passed=3, skipped=1)


def test_a_pasted_id_with_an_unknown_diagnostic_names_the_known_ones(repo: Repo) -> None:
    result = repo.run("runs/dfa_s42.pt::growth")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: runs/dfa_s42.pt::growth: no diagnostic 'growth'; there are residual-growth, *"])


def test_pasted_ids_go_along_with_test_files(repo: Repo) -> None:
    repo.write("test_own.py", "def test_own(): pass\ndef test_other(): pass\n")
    repo.run(PASTED, "test_own.py::test_own", "--fa-frozen=0.3").assert_outcomes(passed=2)


@pytest.fixture
def outside(repo: Repo, tmp_path_factory: pytest.TempPathFactory) -> Repo:
    """Two checkpoints of one name, in two folders that are not in the repo."""
    folder = tmp_path_factory.mktemp("outside")
    for name in ("first", "second"):
        (folder / name).mkdir()
        (folder / name / "dfa_s42.pt").write_bytes((repo.path / "runs" / "dfa_s42.pt").read_bytes())
    return folder


def test_outside_the_root_folder_ids_are_the_shortest_suffix_that_is_unique(repo: Repo, outside: Repo) -> None:
    shown = ids(repo.run("--collect-only", "-q", f"--fa-checkpoint={outside}/*/*.pt", "--fa-diagnostics=a"))
    assert shown == ["first/dfa_s42.pt::residual-growth", "second/dfa_s42.pt::residual-growth"]
    assert ids(repo.run("--collect-only", "-q", f"--fa-checkpoint={outside}/first", "--fa-diagnostics=a")) == [
        "dfa_s42.pt::residual-growth"
    ]


def test_a_pasted_id_from_outside_works_with_the_option_repeated(
    repo: Repo, outside: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    option = f"--fa-checkpoint={outside}/*/*.pt"
    failed = [line.split()[1] for line in repo.run(option).outlines if line.startswith("FAILED")]
    assert failed[0] == "first/dfa_s42.pt::residual-growth"
    repo.run(option, failed[0]).assert_outcomes(failed=1)
    (repo.path / "sub").mkdir()
    monkeypatch.chdir(repo.path / "sub")
    from_below = [line.split()[1] for line in repo.run(option, f"--rootdir={repo.path}").outlines if line.startswith("FAILED")]
    repo.run(option, f"--rootdir={repo.path}", from_below[0]).assert_outcomes(failed=1)


def test_lf_works_outside_the_root_folder(repo: Repo, outside: Repo) -> None:
    option = f"--fa-checkpoint={outside}/*/*.pt"
    repo.run(option, "--fa-diagnostics=ac").assert_outcomes(failed=2, passed=2)
    repo.run(option, "--fa-diagnostics=ac", "--lf").assert_outcomes(failed=2)


def test_folders_among_the_arguments_select_what_lies_below(repo: Repo) -> None:
    repo.ini(fa_data="data.npz", fa_checkpoint="runs/bp_s42.pt")
    repo.write("tests/test_own.py", "def test_own(): pass\n")
    repo.run().assert_outcomes(passed=4, skipped=1)
    repo.run(".").assert_outcomes(passed=4, skipped=1)
    repo.run("runs").assert_outcomes(passed=3, skipped=1)
    repo.run("tests").assert_outcomes(passed=1)


def test_a_test_file_of_the_repo_and_checkpoints_of_the_command_line_run_together(repo: Repo) -> None:
    repo.write("tests/test_own.py", "def test_own(): pass\n")
    repo.run("tests", "--fa-checkpoint=runs/bp_s42.pt").assert_outcomes(passed=4, skipped=1)


def test_help_markers_and_fixtures_tell_of_the_plugin(repo: Repo) -> None:
    help_text = repo.run("--help").stdout.str()
    assert "audit of networks trained without backpropagation" in help_text
    repo.run("--markers").stdout.fnmatch_lines(["@pytest.mark.fa_protocol(*checkpoint=PATH*expect=*"])
    fixtures = repo.run("--fixtures", "--fa-checkpoint=runs/bp_s42.pt")
    for name in ("checkpoint", "model", "eval_batches", "test_data", "frozen_baseline", "thresholds", "device", "report"):
        fixtures.stdout.fnmatch_lines([f"fa_{name} -- *"])
    fixtures.stdout.fnmatch_lines(["fa_diagnostic -- *"])
    fixtures.stdout.no_fnmatch_line("*FA audit*")
    fixtures.stdout.no_fnmatch_line("*no docstring available*fa_*")


@pytest.mark.parametrize("option", ["--help", "--version", "--markers", "--fixtures", "--cache-show"])
def test_what_only_informs_works_whatever_the_ini_file_says(repo: Repo, option: str) -> None:
    repo.ini(fa_checkpoint="runs/none.pt", fa_batches="many", fa_expect="none.json")
    assert repo.run(option).ret == pytest.ExitCode.OK


@pytest.mark.parametrize("option", ["--fixtures-per-test", "--setup-plan", "--collect-only"])
def test_what_only_lists_tests_prints_no_table_and_writes_no_file(repo: Repo, option: str) -> None:
    result = repo.run("--fa-checkpoint=runs/bp_s42.pt", option, "--fa-report=json:listed.json")
    result.stdout.no_fnmatch_line("*FA audit*")
    assert not (repo.path / "listed.json").exists()


def test_a_diagnostic_that_cannot_be_judged_leaves_the_others(repo: Repo) -> None:
    content = torch.load(repo.path / "runs" / "bp_s42.pt")
    content["state_dict"]["out_head.weight"].fill_(float("nan"))
    torch.save(content, repo.path / "runs" / "nan_s1.pt")
    result = repo.run("--fa-checkpoint=runs/nan_s1.pt", "--fa-frozen=0.3", "--tb=no")
    result.stdout.fnmatch_lines(["FAILED runs/nan_s1.pt::gradient-floor - BP gradient is not finite*"])
    result.stdout.fnmatch_lines(["*pt *F*"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_only_the_audit_is_collected_where_the_repos_own_tests_cannot_be_imported(repo: Repo) -> None:
    repo.write("test_own.py", "import nothing_of_this_name\n")
    repo.run("--fa-checkpoint=runs/bp_s42.pt", "--fa-only").assert_outcomes(passed=3, skipped=1)
    assert repo.run("--fa-checkpoint=runs/bp_s42.pt").ret == pytest.ExitCode.INTERRUPTED


def test_only_an_audit_of_nothing_is_a_usage_error(repo: Repo) -> None:
    result = repo.run("--fa-only", "test_own.py")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--fa-only: nothing to audit is named*"])
