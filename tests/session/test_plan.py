"""What a run audits, by which tests: a function of settings, arguments and names of files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from repo import ROOT, plan

from pytest_fadiag.judge.errors import AuditError
from pytest_fadiag.session.plan import Plan, make_ids, real_files

FILES = "runs/bp_s42.pt runs/bp_s123.pt runs/dfa_s42.pt"
BP, DFA = "--fa-checkpoint=runs/bp_s42.pt", "--fa-checkpoint=runs/dfa_s42.pt"
INI = {"fa_checkpoint": ["runs"]}
G = "linear-floor"
ABCD = ["residual-growth", "gradient-floor", "direction-drift", "frozen-margin"]


def ids(found: Plan) -> list[str]:
    return [job.id for job in found.jobs]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--fa-checkpoint=runs", "runs/bp_s123.pt runs/bp_s42.pt runs/dfa_s42.pt"),
        ("--fa-checkpoint=runs/bp*.pt", "runs/bp_s123.pt runs/bp_s42.pt"),
        (f"{DFA} {BP} {DFA}", "runs/bp_s42.pt runs/dfa_s42.pt"),
        ("--fa-checkpoint=runs/bp_s{seed}.pt --fa-seeds=42,123", "runs/bp_s123.pt runs/bp_s42.pt"),
        (
            "--fa-checkpoint=runs/bp_s{seed}.pt --fa-seeds=42,7 --fa-missing=skip",
            "runs/bp_s42.pt runs/bp_s7.pt",
        ),
        ("--fa-checkpoint=runs --fa-shard=1/2", "runs/bp_s123.pt runs/dfa_s42.pt"),
        ("--fa-checkpoint=runs --fa-shard=2/2", "runs/bp_s42.pt"),
    ],
)
def test_options_name_files_globs_folders_and_seeds(words: str, expected: str) -> None:
    assert ids(plan(*words.split(), files=FILES)) == expected.split()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "--fa-checkpoint=runs/none.pt",
            "--fa-checkpoint: no checkpoint there\n  /repo/runs/none.pt\n.*--fa-missing=skip",
        ),
        ("--fa-log=none.json", "--fa-log: no log there"),
        (
            "--fa-checkpoint=runs/bp_s{seed}.pt",
            "has {seed}, but no seeds are given; add --fa-seeds",
        ),
        (
            "--fa-checkpoint=runs --fa-seeds=42",
            "neither --fa-checkpoint nor --fa-log contains {seed}",
        ),
        ("--fa-checkpoint=gone.pt --fa-missing=skip", "none of the files to audit exists"),
        ("--fa-only", "--fa-only: nothing to audit is named"),
        ("--fa-checkpoint=runs --fa-shard=4/4", "3 to audit; use at most 3 parts"),
    ],
)
def test_a_run_of_nothing_is_refused(words: str, message: str) -> None:
    with pytest.raises(AuditError, match=message):
        plan(*words.split(), files=FILES)


@pytest.mark.parametrize(
    ("words", "args", "expected", "margins", "rest"),
    [
        ("", "", "runs/bp_s123.pt runs/bp_s42.pt runs/dfa_s42.pt", "bp", None),
        ("", "runs/dfa_s42.pt", "runs/dfa_s42.pt", "", ""),
        ("", "runs/bp_s42.pt", "runs/bp_s42.pt", "", ""),
        ("", "runs/bp_s42.pt runs/bp_s123.pt", "runs/bp_s123.pt runs/bp_s42.pt", "bp", ""),
        ("", "bp::seed-margin", "", "bp", ""),
        ("", "tests/test_x.py", "", "", "tests/test_x.py"),
        ("", ".", "runs/bp_s123.pt runs/bp_s42.pt runs/dfa_s42.pt", "bp", "."),
        ("", "runs", "runs/bp_s123.pt runs/bp_s42.pt runs/dfa_s42.pt", "bp", "runs"),
        ("", "tests/test_x.py runs/dfa_s42.pt", "runs/dfa_s42.pt", "", "tests/test_x.py"),
        ("", "other/new_s1.pt", "other/new_s1.pt", "", ""),
        (DFA, "runs/bp_s42.pt", "runs/dfa_s42.pt runs/bp_s42.pt", "", ""),
        (DFA, "tests", "runs/dfa_s42.pt", "", "tests"),
        (DFA, "no::seed-margin", "runs/dfa_s42.pt", "", "no::seed-margin"),
    ],
)
def test_arguments_select_among_what_options_name_and_add_to_it(
    words: str, args: str, expected: str, margins: str, rest: str | None
) -> None:
    found = plan(*words.split(), ini=INI, args=args, files=f"{FILES} other/new_s1.pt")
    assert ids(found) == expected.split()
    assert found.margins == tuple(margins.split())
    assert found.arguments == (None if rest is None else tuple(rest.split()))


def test_a_pasted_id_is_that_one_test_from_any_folder() -> None:
    for args, cwd in (
        ("runs/bp_s42.pt::frozen-margin", ROOT),
        ("../runs/bp_s42.pt::frozen-margin", ROOT / "sub"),
    ):
        (job,) = plan(ini=INI, args=args, files=FILES, cwd=cwd).jobs
        assert (job.diagnostics, job.required) == (("frozen-margin",), ())
    (job,) = plan(args="runs/bp_s42.pt::credit-alignment", files=FILES).jobs
    assert job.required == ("f",), "what would not run by itself is asked for"
    (job,) = plan(args="runs/bp_s42.pt::depth-utility", files=FILES).jobs
    assert job.required == ("e",), "nor would this with a sound control"
    (job,) = plan(args="runs/bp_s42.pt", files=FILES).jobs
    assert "depth-utility" in job.diagnostics and job.required == ()
    with pytest.raises(AuditError, match="no diagnostic 'growth'; known: residual-growth"):
        plan(args="runs/bp_s42.pt::growth", files=FILES)


@pytest.mark.parametrize(
    ("words", "diagnostics", "required"),
    [
        ("", [*ABCD, "depth-utility", G], ""),
        ("--fa-frozen=0.3", [*ABCD, "depth-utility", G], ""),
        ("--fa-credit=m:f", [*ABCD, "depth-utility", "credit-alignment", G], ""),
        ("--fa-step=m:f", [*ABCD, "depth-utility", "credit-alignment", G], ""),
        ("--fa-diagnostics=ad", ["residual-growth", "frozen-margin"], "a"),
        ("--fa-diagnostics=ae --fa-credit=m:f", ["residual-growth", "depth-utility"], "ae"),
        ("--fa-diagnostics=all", [*ABCD, "depth-utility", "credit-alignment", G], ""),
        ("--fa-protocol=three --fa-credit=m:f", [ABCD[0], ABCD[1], ABCD[3]], ""),
        ("--fa-protocol=four", ABCD, ""),
    ],
)
def test_one_rule_says_which_diagnostics_run(
    words: str, diagnostics: list[str], required: str
) -> None:
    (job,) = plan(BP, *words.split(), files=FILES).jobs
    assert (list(job.diagnostics), "".join(job.required)) == (diagnostics, required)


def test_a_log_has_no_depth() -> None:
    (job,) = plan("--fa-log=dfa_s1.json", files="dfa_s1.json").jobs
    assert list(job.diagnostics) == ABCD and (job.kind, job.method, job.seed) == ("log", "dfa", 1)


@pytest.mark.parametrize(
    ("files", "words", "margins"),
    [
        ("bp_s1.pt bp_s2.pt dfa_s1.pt", "", "bp"),
        ("bp.pt bp_s2.pt", "", ""),
        ("a/bp_s1.pt a/bp_s2.pt b/bp_s1.pt b/bp_s2.pt", "", "a/bp b/bp"),
        ("a/bp_s1.pt b/bp_s2.pt", "", "bp"),
        ("bp_s1.pt bp_s2.pt", "--fa-diagnostics=abc", ""),
        ("bp_s1.pt bp_s2.pt", "--fa-protocol=three", ""),
        ("bp_s1.pt bp_s2.pt", "--fa-protocol=four", "bp"),
        ("bp_s1.pt bp_s2.pt", "--fa-shard=1/1", ""),
    ],
)
def test_a_method_with_several_seeds_has_a_margin_over_them(
    files: str, words: str, margins: str
) -> None:
    every = [f"--fa-checkpoint={file}" for file in files.split()]
    assert plan(*every, *words.split(), files=files).margins == tuple(margins.split())


def test_logs_and_checkpoints_of_a_method_are_two_groups() -> None:
    files = "bp_s1.pt bp_s2.pt bp_s1.json bp_s2.json"
    found = plan("--fa-checkpoint=*.pt", "--fa-log=*.json", files=files)
    assert found.margins == ("bp", "bp (log)")
    assert [job.id for job in found.seeds_of("bp (log)")] == ["bp_s1.json", "bp_s2.json"]


def test_controls_are_not_audited_unless_an_argument_names_them() -> None:
    files, controls = f"{FILES} runs/frozen_s1.pt", "runs/frozen_s1.pt"
    assert "runs/frozen_s1.pt" not in ids(
        plan("--fa-checkpoint=runs", files=files, controls=controls)
    )
    assert ids(plan(args=controls, ini=INI, files=files, controls=controls)) == [
        "runs/frozen_s1.pt"
    ]
    with pytest.raises(AuditError, match="everything to audit is a control"):
        plan("--fa-checkpoint=runs/frozen_s1.pt", files=files, controls=controls)


NAMES = st.text(st.sampled_from("ab:é\n"), min_size=1, max_size=3)
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)


@given(st.sets(PATHS, min_size=1, max_size=6), st.sets(PATHS, max_size=4))
def test_ids_are_distinct_short_and_stable(inside: set[str], outside: set[str]) -> None:
    paths = [*(f"/repo/{path}" for path in inside), *(f"/elsewhere/{path}" for path in outside)]
    found = make_ids(paths, ROOT, {})
    assert len(set(found.values())) == len(paths)
    assert found == make_ids(paths[::-1], ROOT, {}), "in any order"
    assert not any("::" in name or "\n" in name for name in found.values())
    for path in inside:
        if "::" not in path and "\n" not in path:
            assert found[f"/repo/{path}"] == path


@given(st.permutations(FILES.split()), st.integers(1, 3), st.data())
def test_shards_divide_the_whole_whatever_the_order(
    files: list[str], parts: int, data: Any
) -> None:
    words = [f"--fa-checkpoint={file}" for file in files]
    found = [plan(*words, f"--fa-shard={part + 1}/{parts}", files=FILES) for part in range(parts)]
    assert sorted(name for part in found for name in ids(part)) == sorted(FILES.split())


def test_real_files(tmp_path: Path) -> None:
    for name in (
        "a_s1.pt",
        "b[1].pth.tar",
        "optimizer.pt",
        "log.json",
        "hf/model.safetensors",
        "hf/config.json",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()

    def names(pattern: str, kind: Any = "checkpoint") -> list[str]:
        return [
            str(Path(file).relative_to(tmp_path)) for file in real_files(tmp_path / pattern, kind)
        ]

    assert names("") == ["a_s1.pt", "b[1].pth.tar"], "no optimizer"
    assert names("*") == ["a_s1.pt", "b[1].pth.tar", "hf/model.safetensors"]
    assert names("b[1].pth.tar") == ["b[1].pth.tar"], "brackets of a file that exists"
    assert names("hf") == ["hf/model.safetensors"] and names("none*") == []
    assert names("", "log") == ["log.json"]
    (tmp_path / "gone.pt").symlink_to(tmp_path / "annex")
    assert names("*.pt") == ["a_s1.pt", "gone.pt"], "its tests say that it cannot be read"
