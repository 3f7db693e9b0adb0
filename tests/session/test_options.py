"""Options and their ini twins: values, precedence, and where relative paths start."""

from __future__ import annotations

import importlib
import re
from typing import Any

import pytest
import torch
from repo import Repo

from pytest_fadiag.judge.diagnostics import DIAGNOSTICS
from pytest_fadiag.judge.thresholds import DiagnosticThresholds
from pytest_fadiag.session.options import OPTIONS

DFA = "--fa-checkpoint=runs/dfa_s42.pt"
BP = "--fa-checkpoint=runs/bp_s42.pt"


def thresholds(repo: Repo, *args: str) -> dict[str, Any]:
    return repo.audit(*args)["reports"]["runs/dfa_s42.pt"]["thresholds"]


def test_every_option_of_the_design_is_there_in_one_group(repo: Repo) -> None:
    names = "checkpoint seeds missing model stream data batches batch-size frozen threshold growth confounds diagnostics device"
    assert {option.name for option in OPTIONS} >= {*names.split(), "report", "expect", "no-cache", "unsafe-load"}
    text = repo.run("--help").stdout.str()
    group = text[text.index("audit of networks trained") :].partition("\n\n")[0]
    assert all(f"--fa-{option.name}" in group for option in OPTIONS)


def test_help_names_the_default_of_what_has_one(repo: Repo) -> None:
    text = re.sub(r"\s+", " ", repo.run("--help").stdout.str()).replace("- ", "-")  # pytest folds lines behind a hyphen
    for option in OPTIONS:
        if option.default is not None or option.name == "diagnostics":
            shown = "abcd, e without a control;" if option.name == "diagnostics" else str(option.default)
            about = re.search(rf"--fa-{option.name}=.*?(?= --fa-[\w-]+=|\[pytest\])", text)
            assert about and f"(default: {shown}" in about[0], option.name
    for name, value in DiagnosticThresholds().by_name().items():
        assert f"{name} (default: {value})" in text or f"(default: {value})" in text
    assert all(f"{diagnostic.key} {diagnostic.name}" in text for diagnostic in DIAGNOSTICS)


def test_every_option_that_describes_the_repo_rather_than_one_run_has_an_ini_twin(repo: Repo) -> None:
    text = repo.run("--help").stdout.str()
    assert all((f"  {option.key} (" in text) == option.ini for option in OPTIONS)
    once = {"merge", "shard", "update-expect", "update-expect-on-ci", "unsafe-load"}
    assert {option.name for option in OPTIONS if not option.ini} == once, "a cloned repo must not switch unsafe loading on"


def test_a_checkpoint_may_be_a_file_a_glob_or_a_folder_and_the_option_repeats(repo: Repo) -> None:
    everything = ["runs/bp_s123.pt", "runs/bp_s42.pt", "runs/dfa_s42.pt"]
    assert sorted(repo.summary("--fa-checkpoint=runs")) == everything
    assert sorted(repo.summary("--fa-checkpoint=runs/*.pt")) == everything
    assert sorted(repo.summary(BP, DFA)) == everything[1:]
    (repo.path / "runs" / "log.json").write_text("{}")
    assert sorted(repo.summary("--fa-checkpoint=runs")) == everything


def test_seeds_stand_for_seed(repo: Repo) -> None:
    assert sorted(repo.summary("--fa-checkpoint=runs/bp_s{seed}.pt", "--fa-seeds=42,123")) == [
        "runs/bp_s123.pt",
        "runs/bp_s42.pt",
    ]


def test_missing_may_be_skipped(repo: Repo) -> None:
    option = "--fa-checkpoint=runs/bp_s{seed}.pt", "--fa-seeds=42,7"
    assert repo.run(*option).ret == pytest.ExitCode.USAGE_ERROR
    repo.run(*option, "--fa-missing=skip").assert_outcomes(passed=3, skipped=5)
    row = repo.summary(*option, "--fa-missing=skip")["runs/bp_s7.pt"]
    assert (row["verdict"], row["method"], row["seed"]) == ("skipped", "bp", 7)


def test_a_factory_builds_the_network_with_the_checkpoints_config(repo: Repo) -> None:
    repo.write(
        "nets.py",
        "import torch\nfrom pytest_fadiag import ResidualMLP\n"
        "def make(config):\n"
        "    assert config['method'] == 'bp'\n"
        "    torch.save('called', 'called.pt')\n"
        "    return ResidualMLP(20, 16, 4, 5)\n",
    )
    repo.run(BP, "--fa-model=nets:make").assert_outcomes(passed=3, skipped=1)
    assert (repo.path / "called.pt").exists()


def test_a_factory_of_the_repo_is_found_from_a_sub_folder(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    repo.write("own_nets_of_repo.py", "from pytest_fadiag import ResidualMLP\ndef make(): return ResidualMLP(20, 16, 4, 5)\n")
    repo.ini(fa_data="data.npz", fa_model="own_nets_of_repo:make", fa_checkpoint="runs/bp_s42.pt")
    monkeypatch.chdir(repo.path / "runs")
    repo.run("--import-mode=importlib").assert_outcomes(passed=3, skipped=1)


def test_a_stream_may_be_named(repo: Repo) -> None:
    named = repo.audit(BP, "--fa-stream=blocks.* -> out_ln")["reports"]["runs/bp_s42.pt"]
    assert len(named["residual_norms"]) == 5
    part = repo.audit(BP, "--fa-stream=blocks.1 -> blocks.2")
    assert part["reports"] == {} and "blocks.*" in part["summary"][0]["reason"], "a stream is the whole stream"
    assert len(repo.audit(BP)["reports"]["runs/bp_s42.pt"]["residual_norms"]) == 5


def test_how_many_batches_are_probed(repo: Repo) -> None:
    report = repo.audit(BP, "--fa-batches=2")["reports"]["runs/bp_s42.pt"]
    assert report["companions"]["batches"] == 2


def test_the_batch_size_changes_no_number(repo: Repo) -> None:
    one, other = (repo.audit(BP, f"--fa-batch-size={size}", "--fa-no-cache")["reports"]["runs/bp_s42.pt"] for size in (128, 50))
    assert other["residual_norms"] == pytest.approx(one["residual_norms"], rel=1e-5)
    assert other["bp_grad_norms"] == pytest.approx(one["bp_grad_norms"], rel=1e-4)
    assert other["headline_acc"] == one["headline_acc"]


@pytest.mark.parametrize(
    ("value", "accuracy"),
    [
        ("0.25", 0.25),
        ("dfa=0.5", 0.5),
        ("bp=0.5", None),
        ("controls/frozen_dfa_s42.pt", 1.0),
        ("controls/*.pt", 1.0),
        ("controls.json", 0.75),
    ],
)
def test_a_control_is_a_number_a_method_and_a_number_a_checkpoint_a_glob_or_json(
    repo: Repo, value: str, accuracy: float | None
) -> None:
    (repo.path / "controls.json").write_text('{"dfa": 0.75}')
    assert repo.audit(DFA, f"--fa-frozen={value}")["reports"]["runs/dfa_s42.pt"]["frozen_baseline_acc"] == accuracy


def test_the_checkpoints_that_serve_as_controls_are_not_audited(repo: Repo) -> None:
    for file in (repo.path / "controls").iterdir():
        file.rename(repo.path / "runs" / file.name)
    assert sorted(repo.summary("--fa-checkpoint=runs", "--fa-frozen=runs/frozen_*.pt")) == [
        "runs/bp_s123.pt",
        "runs/bp_s42.pt",
        "runs/dfa_s42.pt",
    ]
    repo.run("runs/frozen_bp_s42.pt", "--fa-frozen=runs/frozen_bp_s42.pt", "-k", "growth").assert_outcomes(
        passed=1, deselected=3
    )


def test_thresholds_by_full_and_by_short_name(repo: Repo) -> None:
    found = thresholds(repo, DFA, "--fa-threshold=margin_pp=5", "--fa-threshold=h_norm_explosion_ratio=1e9")
    assert (found["frozen_acc_margin_pp"], found["h_norm_explosion_ratio"], found["g_norm_floor"]) == (5, 1e9, 1e-7)
    assert (
        thresholds(repo, DFA, "--fa-threshold=margin_pp=1", "--fa-threshold=frozen_acc_margin_pp=2")["frozen_acc_margin_pp"]
        == 2
    )


def test_growth_and_confounds_choose_the_published_forms(repo: Repo) -> None:
    found = thresholds(repo, DFA, "--fa-growth=cumulative", "--fa-confounds=flag")
    assert (found["growth"], found["confounds"]) == ("cumulative", "flag")
    assert repo.summary(DFA, "--fa-confounds=flag")["runs/dfa_s42.pt"]["fired"] == "abc"
    repo.run(DFA, "--fa-growth=cumulative").stdout.fnmatch_lines(["FAILED *residual-growth - cumulative growth *"])


def test_diagnostics_choose_the_tests(repo: Repo) -> None:
    repo.run(DFA, "--fa-diagnostics=ca").assert_outcomes(passed=1, failed=1)
    assert list(repo.summary(DFA, "--fa-diagnostics=ca")["runs/dfa_s42.pt"]["outcomes"]) == ["a", "c"]


def test_the_device_is_where_it_is_measured(repo: Repo) -> None:
    assert repo.audit(BP, "--fa-device=cpu")["reports"]["runs/bp_s42.pt"]["environment"]["device"] == "cpu"
    result = repo.run(BP, "--fa-device=cuda:99")
    result.assert_outcomes(errors=4)
    result.stdout.fnmatch_lines(["device 'cuda:99' was asked for, but * CUDA devices are visible"])


def test_a_pickle_that_runs_code_needs_the_unsafe_option(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    repo.write("pickled.py", "class Config(dict):\n    pass\n")
    monkeypatch.syspath_prepend(repo.path)
    content = torch.load(repo.path / "runs" / "bp_s42.pt")
    content["config"] = importlib.import_module("pickled").Config(method="bp", seed=42)
    torch.save(content, repo.path / "runs" / "odd_s1.pt")
    result = repo.run("--fa-checkpoint=runs/odd_s1.pt")
    result.assert_outcomes(errors=4)
    result.stdout.fnmatch_lines(["*refused to load pickled.Config*--fa-unsafe-load*"])
    repo.run("--fa-checkpoint=runs/odd_s1.pt", "--fa-unsafe-load").assert_outcomes(passed=3, skipped=1)


def test_the_command_line_wins_over_the_ini_file_and_that_over_the_default(repo: Repo) -> None:
    repo.ini(fa_data="data.npz", fa_checkpoint="runs/dfa_s42.pt", fa_growth="cumulative", fa_threshold="margin_pp=7")
    assert thresholds(repo)["growth"] == "cumulative"
    assert thresholds(repo, "--fa-growth=per_block")["growth"] == "per_block"
    assert thresholds(repo)["frozen_acc_margin_pp"] == 7
    assert thresholds(repo, "--fa-threshold=margin_pp=3")["frozen_acc_margin_pp"] == 3
    assert list(repo.summary(BP)) == ["runs/bp_s42.pt"], "checkpoints of the command line replace those of the ini file"


def test_a_threshold_of_the_command_line_leaves_the_others_of_the_ini_file(repo: Repo) -> None:
    repo.ini(fa_data="data.npz", fa_checkpoint="runs/dfa_s42.pt", fa_threshold="\nmargin_pp=7\ng_norm_floor=1e-12")
    found = thresholds(repo, "--fa-threshold=margin_pp=3")
    assert (found["frozen_acc_margin_pp"], found["g_norm_floor"]) == (3, 1e-12)


def test_a_marker_wins_over_the_command_line(repo: Repo) -> None:
    repo.write(
        "test_claim.py",
        "import pytest\n@pytest.mark.fa_protocol(margin_pp=9, growth='per_block')\n"
        "def test_claim(fa_thresholds, fa_checkpoint):\n"
        "    assert fa_thresholds.frozen_acc_margin_pp == 9\n    assert fa_thresholds.growth == 'per_block'\n"
        "    assert fa_thresholds.g_norm_floor == 1e-12\n",
    )
    options = "--fa-threshold=margin_pp=3", "--fa-threshold=g_norm_floor=1e-12", "--fa-growth=cumulative"
    repo.run("test_claim.py", BP, *options, "-k", "claim").assert_outcomes(passed=1, deselected=4)


INI_TWINS = {
    "fa_checkpoint": "runs/dfa_s{seed}.pt",
    "fa_seeds": "42",
    "fa_missing": "skip",
    "fa_model": "nets:make",
    "fa_stream": "blocks.* -> out_ln",
    "fa_data": "data.npz",
    "fa_normalize": "0/2",
    "fa_batches": "2",
    "fa_batch_size": "64",
    "fa_frozen": "0.4",
    "fa_threshold": "margin_pp=80",
    "fa_growth": "cumulative",
    "fa_confounds": "flag",
    "fa_diagnostics": "ad",
    "fa_credit": "nets:credit",
    "fa_device": "cpu",
    "fa_threads": "2",
    "fa_report": "json:audit.json",
    "fa_expect": "expected.json",
    "fa_no_cache": "true",
    "fa_log": "log.json",
    "fa_log_batch": "1024",
    "fa_log_columns": "acc_eval=val_acc",
    "fa_only": "true",
    "fa_inconclusive": "skip",
    "fa_checklist": "nets.py",
}


def test_a_paper_repo_may_keep_every_setting_in_its_ini_file(repo: Repo) -> None:
    assert {*INI_TWINS, "fa_protocol"} == {option.key for option in OPTIONS if option.ini}  # refused beside fa_diagnostics
    repo.write("nets.py", "from pytest_fadiag import ResidualMLP\ndef make(config): return ResidualMLP(20, 16, 4, 5)\n")
    (repo.path / "expected.json").write_text('{"dfa": "ad", "log": ""}')
    (repo.path / "log.json").write_text('{"log": [{"epoch": 1, "hidden_norms": [1, 1], "val_acc": 0.9}]}')
    repo.ini(**INI_TWINS)
    repo.forget()
    document = repo.audit()
    report = document["reports"]["runs/dfa_s42.pt"]
    outcomes = document["summary"][0]["outcomes"]
    assert outcomes == {"a": "xfailed", "d": "xfailed", "f": "error"}, "nets has no credit, which starts (f) where it is named"
    assert report["companions"]["batches"] == 2
    assert report["frozen_baseline_acc"] == 0.4
    assert report["environment"]["threads"] == 2
    assert (report["inputs"]["by"], report["inputs"]["std"]) == ("option", [2.0])
    assert {**report["thresholds"], "g_norm_floor": 0}.items() >= {"growth": "cumulative", "confounds": "flag"}.items()
    assert not (repo.path / ".pytest_cache" / "d").exists()


def test_toml_lists_and_numbers_are_understood(repo: Repo) -> None:
    (repo.path / "pytest.ini").unlink()
    (repo.path / "pyproject.toml").write_text(
        "[tool.pytest.ini_options]\nfa_data = 'data.npz'\nfa_checkpoint = ['runs/bp_s{seed}.pt']\nfa_seeds = '42, 123'\n"
        "fa_frozen = [0.25]\nfa_batches = 2\nfa_threshold = ['margin_pp=3']\nfa_no_cache = true\n"
    )
    document = repo.audit()
    assert sorted(document["reports"]) == ["runs/bp_s123.pt", "runs/bp_s42.pt"]
    assert document["reports"]["runs/bp_s42.pt"]["frozen_baseline_acc"] == 0.25


def test_a_list_of_seeds_in_toml_is_understood(repo: Repo) -> None:
    (repo.path / "pytest.ini").unlink()
    (repo.path / "pyproject.toml").write_text(
        "[tool.pytest.ini_options]\nfa_data = 'data.npz'\nfa_checkpoint = 'runs/bp_s{seed}.pt'\nfa_seeds = [42, 123]\n"
    )
    assert sorted(repo.summary()) == ["runs/bp_s123.pt", "runs/bp_s42.pt"]


def test_seeds_of_the_ini_file_do_not_stand_in_the_way_of_a_checkpoint_of_the_command_line(repo: Repo) -> None:
    repo.ini(fa_data="data.npz", fa_checkpoint="runs/bp_s{seed}.pt", fa_seeds="42,123")
    assert list(repo.summary(DFA)) == ["runs/dfa_s42.pt"]
    assert list(repo.summary("--fa-seeds=42")) == ["runs/bp_s42.pt"]


def test_typed_paths_start_in_the_working_folder(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    (repo.path / "expected.json").write_text('{"dfa": "abd"}')
    monkeypatch.chdir(repo.path / "runs")
    options = [
        "--fa-checkpoint=dfa_s42.pt",
        "--fa-data=../data.npz",
        "--fa-frozen=../controls/*.pt",
        "--fa-expect=../expected.json",
        "--fa-report=json:../out/audit.json",
    ]
    repo.run(*options, f"--rootdir={repo.path}").assert_outcomes(passed=1, xfailed=3)
    assert (repo.path / "out" / "audit.json").is_file()


def test_paths_of_the_ini_file_and_of_markers_start_in_the_root_folder(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    (repo.path / "expected.json").write_text('{"dfa": "abd", "bp": ""}')
    repo.ini(
        fa_data="data.npz",
        fa_checkpoint="runs/dfa_s42.pt",
        fa_frozen="controls/*.pt",
        fa_expect="expected.json",
        fa_report="json:out/audit.json",
    )
    repo.write(
        "tests/test_claim.py",
        "import pytest\n@pytest.mark.fa_protocol(checkpoint='runs/bp_s42.pt')\ndef test_claim(fa_report): fa_report.check()\n",
    )
    monkeypatch.chdir(repo.path / "tests")
    repo.run().assert_outcomes(passed=2, xfailed=3)
    assert (repo.path / "out" / "audit.json").is_file()


def test_the_home_folder_is_expanded(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(repo.path))
    (repo.path / "expected.json").write_text('{"dfa": "abd"}')
    (repo.path / "controls.json").write_text('{"dfa": 1.0}')
    options = ["--fa-checkpoint=~/runs/dfa_s42.pt", "--fa-data=~/data.npz", "--fa-frozen=~/controls.json"]
    repo.run(*options, "--fa-expect=~/expected.json").assert_outcomes(passed=1, xfailed=3)


def test_a_space_instead_of_the_equals_sign_is_warned_of(repo: Repo) -> None:
    result = repo.run("--fa-checkpoint", "runs/bp_s42.pt")
    result.stdout.fnmatch_lines(["*PytestConfigWarning: write --fa-checkpoint=PATH with '='*"])
    result.assert_outcomes(passed=3, skipped=1, warnings=1)


def test_changed_thresholds_are_said_below_the_table(repo: Repo) -> None:
    both = "h_norm_explosion_ratio 1e+09 (default 50), frozen_acc_margin_pp -1 (default 2)"
    note = f"note: judged by thresholds that were changed: {both}"
    options = ("--fa-checkpoint=runs/bp_s*.pt", "--fa-frozen=0.3")
    changes = ("--fa-threshold=h_norm_explosion_ratio=1e9", "--fa-threshold=margin_pp=-1")
    for verbosity in ((), ("-q",)):
        assert " ".join(repo.run(*options, *changes, *verbosity).stdout.str().split()).count(note) == 1
    alone = repo.run(*options, *changes, "bp::seed-margin").stdout
    alone.fnmatch_lines(["note: judged by thresholds that were changed: frozen_acc_margin_pp -1 (default 2)"])
    assert "were changed" not in repo.run(*options).stdout.str()
    repo.ini(fa_data="data.npz", fa_protocol="three")  # whose rules are its own
    assert "were changed" not in repo.run(*options).stdout.str()


def test_an_unknown_key_of_the_ini_file_is_refused_with_the_nearest_one(repo: Repo) -> None:
    repo.write("test_own.py", "def test_own(): pass\n")
    repo.ini(None, fa_checkpoints="runs/dfa_s42.pt")
    result = repo.run("-p", "no:warnings")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: ini option fa_checkpoints: unknown; did you mean fa_checkpoint?"])
    assert repo.run("--markers").ret == pytest.ExitCode.OK
    repo.ini(None, fa_xyz="1")
    repo.run().stderr.fnmatch_lines(["ERROR: ini option fa_xyz: unknown; known: fa_checkpoint, *"])
    assert repo.run("-o", "fa_dat=data.npz").ret == pytest.ExitCode.USAGE_ERROR
    repo.write("conftest.py", "def pytest_addoption(parser): parser.addini('fa_xyz', 'of another plugin')\n")
    repo.run().assert_outcomes(passed=1)
