"""What is wrong with the command ends it with exit code 4; what is wrong with one checkpoint is an error of its tests."""

from __future__ import annotations

import json
import shutil
from xml.etree import ElementTree

import pytest
from repo import Repo

BP = "--fa-checkpoint=runs/bp_s42.pt"


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--fa-checkpoint=runs/none.pt", "--fa-checkpoint: no such file"),
        ("--fa-checkpoint=runs/none_*.pt", "--fa-checkpoint: the glob matches no file"),
        ("--fa-checkpoint=empty", "--fa-checkpoint: no checkpoint (.pt, .pth, .ckpt, .safetensors) in the folder"),
        ("--fa-checkpoint=runs/bp_s{seed}.pt", "--fa-checkpoint 'runs/bp_s{seed}.pt' contains {seed}, *add --fa-seeds=*"),
        ("--fa-seeds=42", "seeds are given, but --fa-checkpoint 'runs/bp_s42.pt' does not contain {seed}"),
        ("--fa-seeds=a,b", "*--fa-seeds: seeds are whole numbers separated by commas, not 'a,b'"),
        ("--fa-seeds=42,42", "*--fa-seeds: a seed is named twice in '42,42'"),
        ("--fa-seeds=,", "*--fa-seeds: no seed given"),
        ("--fa-missing=maybe", "*--fa-missing: expected error or skip, not 'maybe'"),
        ("--fa-batches=1", "*--fa-batches: expected a whole number of at least 2, not '1'"),
        ("--fa-batches=1.5", "*--fa-batches: expected a whole number of at least 2, not '1.5'"),
        ("--fa-batch-size=²", "*--fa-batch-size: expected a whole number of at least 1, not '²'"),
        ("--fa-threshold=margin_pp", "*--fa-threshold: expected NAME=VALUE, not 'margin_pp'; names: g_norm_floor, *margin_pp"),
        ("--fa-threshold=margin=2", "*--fa-threshold: unknown threshold 'margin'; known: *margin_pp"),
        ("--fa-threshold=margin_pp=2pp", "*threshold frozen_acc_margin_pp must be a number from -100 to 100, not '2pp'"),
        ("--fa-threshold=stability_drift_ceiling=30", "*stability_drift_ceiling must be a number from -1 to 1, not 30.0"),
        ("--fa-threshold=g_norm_floor=nan", "*g_norm_floor must be a number from 0 on, and finite, not nan"),
        (
            "--fa-threshold=h_norm_explosion_ratio=inf",
            "*h_norm_explosion_ratio must be a number from 0 on, and finite, not inf",
        ),
        ("--fa-threshold=growth=cumulative", "*--fa-threshold: growth has its own option: --fa-growth=cumulative"),
        ("--fa-growth=total", "*--fa-growth: expected per_block or cumulative, not 'total'"),
        ("--fa-confounds=no", "*--fa-confounds: expected excuse or flag, not 'no'"),
        ("--fa-diagnostics=abx", "*--fa-diagnostics: diagnostics 'abx': unknown key 'x'; known: a (residual-growth), *"),
        ("--fa-device=gpu", "*--fa-device: expected auto, cpu, cuda, cuda:N or mps, not 'gpu'"),
        ("--fa-report=pdf", "*--fa-report: unknown report type 'pdf' (known: *json*"),
        ("--fa-report=htlm:audit.html", "*--fa-report: unknown report type 'htlm'; did you mean 'html'? (known: *"),
        ("--fa-report=json:empty", "--fa-report=json: is a folder; name the file to write in it"),
        ("--fa-report=json:data.npz/x.json", "--fa-report=json: cannot be written: *data.npz is no folder*"),
        ("--fa-frozen=34.9", "--fa-frozen: control '34.9' is 34.9, *did you pass a percentage?"),
        ("--fa-frozen=dfa=34.9", "--fa-frozen: control 'dfa=34.9' is 34.9, *did you pass a percentage?"),
        ("--fa-frozen=none.pt", "--fa-frozen: no such file"),
        ("--fa-frozen=0.76 --fa-frozen=0.1", "--fa-frozen: two controls for all networks, 0.76 and 0.1, *"),
        ("--fa-frozen=nothing.json", "--fa-frozen: no control in *nothing.json: give an accuracy*"),
        ("--fa-frozen=none.json", "--fa-frozen: control *none.json: cannot be read as JSON: *"),
        ("--fa-data=none.npz", "--fa-data: no such file or folder"),
        ("--fa-data=cifar10:none", "--fa-data: no such file or folder"),
        ("--fa-data=cifar10:", "--fa-data: data 'cifar10:' names no place; write cifar10:ROOT"),
        ("--fa-data=mnist", "--fa-data: unknown data 'mnist'; accepted: fashion-mnist:ROOT, *package.module:factory"),
        ("--fa-model=resnet18", "--fa-model: unknown network 'resnet18'; accepted: package.module:factory, torchvision:NAME"),
        ("--fa-model=data.npz", "--fa-model: unknown network *did you mean --fa-checkpoint=data.npz?"),
        *(
            (f"--fa-{name}=", f"*--fa-{name}: the value is empty*")
            for name in ("checkpoint", "data", "frozen", "model", "expect")
        ),
    ],
)
def test_a_wrong_command_ends_with_exit_code_4_and_says_what_is_wrong(repo: Repo, option: str, message: str) -> None:
    (repo.path / "empty").mkdir()
    (repo.path / "nothing.json").write_text("{}", "utf-8")
    others = [] if option.startswith("--fa-checkpoint") else [BP]
    result = repo.run(*others, *option.split())
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{message}" if message.startswith("*") else f"ERROR: {message}"])
    assert "Traceback" not in result.stderr.str() + result.stdout.str()


@pytest.mark.parametrize(
    ("ini", "message"),
    [
        ({"fa_batches": "many"}, "ini option fa_batches: expected a whole number of at least 2, not 'many'"),
        ({"fa_threshold": "x=1"}, "ini option fa_threshold: unknown threshold 'x'; known: *"),
        ({"fa_checkpoint": "none.pt"}, "fa_checkpoint in the ini file: no such file"),
        ({"fa_frozen": "none.pt"}, "fa_frozen in the ini file: no such file"),
        ({"fa_no_cache": "perhaps"}, "*perhaps*"),
        ({"fa_expect": "none.json"}, "--fa-expect: cannot be read: No such file or directory"),
    ],
)
def test_a_wrong_ini_file_is_named_as_the_place(repo: Repo, ini: dict[str, str], message: str) -> None:
    repo.ini(**{"fa_checkpoint": "runs/bp_s42.pt", **ini})
    result = repo.run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {message}"])


def test_a_wrong_ini_file_is_an_error_also_where_only_markers_name_checkpoints(repo: Repo) -> None:
    repo.ini(fa_data="none.npz")
    repo.write("test_own.py", "def test_own(): pass\n")
    assert repo.run().ret == pytest.ExitCode.USAGE_ERROR


def test_the_way_out_is_named_where_a_checkpoint_may_be_absent(repo: Repo) -> None:
    repo.run("--fa-checkpoint=runs/none.pt").stderr.fnmatch_lines(
        ["  */runs/none.pt", "If it may be absent, add --fa-missing=skip"]
    )
    repo.run(BP, "--fa-frozen=none.pt").stderr.no_fnmatch_line("*--fa-missing*")


def test_a_checkpoint_named_twice_is_audited_once(repo: Repo) -> None:
    repo.run(BP, BP, "--fa-checkpoint=runs/../runs/bp_s42.pt", "--fa-checkpoint=runs/bp_s4*.pt").assert_outcomes(
        passed=3, skipped=1
    )
    repo.run("runs/bp_s42.pt", "./runs/bp_s42.pt").assert_outcomes(passed=3, skipped=1)


def test_where_every_checkpoint_is_a_control_nothing_would_be_audited(repo: Repo) -> None:
    result = repo.run("--fa-checkpoint=controls", "--fa-frozen=controls/*.pt")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: everything to audit also serves as a control (--fa-frozen)*", "  */frozen_bp_s42.pt"])


def test_two_checkpoints_of_one_name_in_two_folders(repo: Repo) -> None:
    shutil.copytree(repo.path / "runs", repo.path / "more")
    rows = repo.summary("--fa-checkpoint=runs/dfa_s42.pt", "--fa-checkpoint=more/dfa_s42.pt")
    assert sorted(rows) == ["more/dfa_s42.pt", "runs/dfa_s42.pt"]


@pytest.mark.parametrize(
    ("name", "identifier"),
    [
        ("with space.pt", "with space.pt"),
        ("lr[1].pt", "lr[1].pt"),
        ("lr=0.1,wd=1.pt", "lr=0.1,wd=1.pt"),
        ("a::b.pt", "a:\\x3ab.pt"),
        ("größe-λ-学习.pt", "größe-λ-学习.pt"),
        ("bell\x07esc\x1b[31m.pt", "bell\\x07esc\\x1b[31m.pt"),
        ("line\nbreak.pt", "line\\nbreak.pt"),
        ("-k.pt", "-k.pt"),
        ("percent%s{seed.pt", "percent%s{seed.pt"),
        ("runs.pt", "runs.pt"),
    ],
)
def test_a_file_may_have_any_name(repo: Repo, name: str, identifier: str) -> None:
    (repo.path / "runs" / "dfa_s42.pt").rename(repo.path / "runs" / name)
    written = ("--junitxml=out.xml", "--fa-report=json:audit.json")
    result = repo.run(f"--fa-checkpoint=runs/{name}", "-rA", "-vv", *written)
    result.assert_outcomes(passed=1, failed=2, skipped=1)
    nodeid = f"runs/{identifier}::residual-growth"
    assert any(line.startswith(f"FAILED {nodeid} - per-block growth") for line in result.outlines)
    rows = json.loads((repo.path / "audit.json").read_text("utf-8"))["summary"]
    assert [row["checkpoint"] for row in rows] == [f"runs/{identifier}"]
    assert len(ElementTree.parse(repo.path / "out.xml").findall(".//testcase")) == 4
    repo.run(f"--fa-checkpoint=runs/{name}", nodeid).assert_outcomes(failed=1)
    repo.run(f"--fa-checkpoint=runs/{name}", "--lf").assert_outcomes(failed=2)
    repo.run(f"--fa-checkpoint=runs/{name}", f"--deselect={nodeid}").assert_outcomes(
        passed=1, failed=1, skipped=1, deselected=1
    )


def test_a_file_name_that_is_not_utf8(repo: Repo) -> None:
    import os

    name = os.fsdecode(b"caf\xe9.pt")
    (repo.path / "runs" / "dfa_s42.pt").rename(repo.path / "runs" / name)
    options = ("--fa-checkpoint=runs/caf*", "--fa-report=markdown:a.md", "--fa-report=json:a.json")
    repo.run(*options).assert_outcomes(passed=1, failed=2, skipped=1)
    assert "caf\\udce9.pt" in (repo.path / "a.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def make(): raise ValueError('d must be 16')", "network factory 'bad_nets:make' raised ValueError: d must be 16"),
        ("def make(): return 3", "network factory 'bad_nets:make' returned int, not a torch.nn.Module"),
        ("make = 3", "network factory 'bad_nets:make' is int, not a function or class that can be called"),
        ("def __getattr__(name): raise AttributeError", "network factory 'bad_nets:make': module 'bad_nets' has no 'make'"),
        ("make = 1/0", "network factory 'bad_nets:make': importing 'bad_nets' raised ZeroDivisionError: division by zero"),
    ],
)
def test_a_factory_that_does_not_do_its_work(repo: Repo, source: str, message: str) -> None:
    repo.write("bad_nets.py", source + "\n")
    result = repo.run(BP, "--fa-model=bad_nets:make")
    result.assert_outcomes(errors=4)
    result.stdout.fnmatch_lines([message])
    assert "Traceback" not in result.stdout.str()


def test_a_factory_that_nothing_has_is_a_usage_error_before_anything_runs(repo: Repo) -> None:
    repo.write("pack/__init__.py", "1/0  # nothing is imported to see that\n")
    repo.write("pack/nets.py", "def build(): pass\n")
    for spec, said in (
        ("pack.nets:biuld", "module 'pack.nets' has no 'biuld'; did you mean 'build'?"),
        ("pack.nests:build", "there is no module 'pack.nests'; is its folder on PYTHONPATH?"),
        ("pakc.nets:build", "there is no module 'pakc.nets'; is its folder on PYTHONPATH?"),
    ):
        result = repo.run(BP, f"--fa-model={spec}")
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines([f"ERROR: --fa-model '{spec}': {said}"])


def test_a_checkpoint_that_does_not_fit_leaves_the_others(repo: Repo) -> None:
    import torch

    torch.save({"weight": torch.zeros(3, 3)}, repo.path / "runs" / "odd.pt")
    result = repo.run("--fa-checkpoint=runs", "--fa-frozen=0.3")
    result.assert_outcomes(passed=11, failed=2, errors=4)
    result.stdout.fnmatch_lines(["*runs/odd.pt: not the reference ResidualMLP*--fa-model=package.module:factory"])


def test_without_test_data_the_error_names_the_option(repo: Repo) -> None:
    repo.ini()
    result = repo.run(BP)
    result.assert_outcomes(errors=4)
    result.stdout.fnmatch_lines(["no test data: add --fa-data=SPEC (or fa_data in the ini file), or override the fixture*"])


def test_data_of_another_shape_is_an_error_that_names_both(repo: Repo) -> None:
    import numpy as np

    np.savez(repo.path / "data.npz", x=np.zeros((300, 7), "float32"), y=np.zeros(300, "int64"))
    result = repo.run(BP)
    result.assert_outcomes(errors=4)
    assert ".py:" not in result.stdout.str(), "a message, not a traceback"
