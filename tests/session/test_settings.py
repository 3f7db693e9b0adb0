"""Options: what a good value is, which source wins, and what the help says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from repo import ROOT, settings

from pytest_fadiag.judge.diagnostics import DIAGNOSTICS
from pytest_fadiag.judge.errors import AuditError
from pytest_fadiag.judge.thresholds import DiagnosticThresholds
from pytest_fadiag.options import OPTIONS

NAMED = {option.name: option for option in OPTIONS}


def test_the_options_are_those_of_the_design() -> None:
    kept = (
        "checkpoint log seeds missing shard only model stream data normalize batch-size frozen bp"
    )
    kept += (
        " credit loss task forward device threads memory log-batch log-columns unsafe-load no-cache"
    )
    kept += " state-key step train trace diagnostics protocol threshold expect update-expect report"
    assert set(NAMED) == set(kept.split())
    assert {option.role for option in OPTIONS} == {"names", "measures", "judges", "shows"}
    once = {name for name, option in NAMED.items() if not option.ini}
    assert once == {"shard", "update-expect", "unsafe-load"}, (
        "a cloned repo must not switch unsafe loading on"
    )


def test_the_help_names_defaults() -> None:
    for option in OPTIONS:
        assert option.default is None or f"default: {option.default}" in option.help, option.name


def test_an_unknown_diagnostic_or_threshold_lists_them_all() -> None:
    with pytest.raises(AuditError) as of_diagnostic:
        settings("--fa-diagnostics=ax")
    for diagnostic in DIAGNOSTICS:
        assert f"{diagnostic.key} ({diagnostic.name})" in str(of_diagnostic.value)
    with pytest.raises(AuditError) as of_threshold:
        settings("--fa-threshold=margin=2")
    for name in DiagnosticThresholds().by_name():
        assert name in str(of_threshold.value)


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("seeds", ["42", "42,123", "42, 7"], ["a,b", ",", "4.5", "-1", ""]),
        ("missing", ["error", "skip"], ["maybe", "Skip"]),
        ("shard", ["1/4"], ["1", "0/4", "1/0", "a/b", "1/4/2"]),
        ("batch-size", ["1", "64"], ["0", "1.5", "²", "-3", ""]),
        ("memory", ["8", "0.5", ".5"], ["0.5.1", "8GB", "-1", ""]),
        ("device", ["auto", "cpu", "cuda", "cuda:3"], ["mps", "gpu", "cuda:", "cuda:x"]),
        ("protocol", ["three", "four"], ["five"]),
        ("credit", ["pkg.mod:function"], ["pkg.mod", "pkg:mod:f", "a b:c"]),
        ("loss", ["ce", "mse", "bce", "pkg.mod:function"], ["l1", "MSE", "pkg.mod", ""]),
        ("task", ["classes", "regression", "tokens"], ["class", "lm"]),
        ("forward", ["pkg.mod:function"], ["pkg.mod", "model"]),
        ("log-columns", ["epoch=step", "epoch=step,acc_eval=val/acc"], ["epoch", "=a", "a=b,,c=d"]),
        ("threshold", ["margin_pp=2", "growth=cumulative", "a = 1"], ["margin_pp", "=2", "a="]),
        ("data", ["cifar10:data"], ["", "  "]),
    ],
)
def test_a_bad_value_is_refused_when_it_is_parsed(
    name: str, good: list[str], bad: list[str]
) -> None:
    for text in good:
        assert NAMED[name].check(text) == text
    for text in bad:
        with pytest.raises(
            Exception, match=re.escape(f"expected {NAMED[name].metavar}, not {text!r}")
        ):
            NAMED[name].check(text)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--fa-threshold=margin=2", "unknown threshold 'margin'; known: .*margin_pp"),
        ("--fa-threshold=margin_pp=200", "frozen_acc_margin_pp must be a finite number"),
        ("--fa-threshold=growth=total", "growth must be per_block or cumulative"),
        ("--fa-diagnostics=ax", "--fa-diagnostics: unknown diagnostic 'x'; known: a"),
        ("--fa-diagnostics=a --fa-protocol=three", "leave out --fa-diagnostics"),
        ("--fa-shard=5/4", "expected a part of at most 4"),
        ("--fa-normalize=1/0", "--fa-normalize: '1/0': expected finite means"),
        ("--fa-data=mnist", "--fa-data: unknown data 'mnist'; accepted: fashion-mnist:ROOT"),
        ("--fa-data=none.npz", "no such file or folder"),
    ],
)
def test_what_is_wrong_with_a_setting_is_known_at_the_start(words: str, message: str) -> None:
    with pytest.raises(AuditError, match=message):
        settings(*words.split())


@pytest.mark.parametrize(
    ("words", "ini", "field", "value"),
    [
        ("", {}, "missing", "error"),
        ("", {"fa_missing": "skip"}, "missing", "skip"),
        ("--fa-missing=error", {"fa_missing": "skip"}, "missing", "error"),
        ("", {"fa_seeds": [42, 123]}, "seeds", (42, 123)),
        ("", {"fa_no_cache": True}, "no_cache", True),
        ("--fa-no-cache", {"fa_no_cache": False}, "no_cache", True),
        ("--fa-expect=e.json", {}, "expect", ROOT / "sub/e.json"),
        ("", {"fa_expect": "e.json"}, "expect", ROOT / "e.json"),
        ("--fa-diagnostics=ab", {"fa_protocol": "three"}, "protocol", None),
        ("--fa-protocol=three", {"fa_diagnostics": "ab"}, "diagnostics", None),
        ("--fa-shard=2/3", {}, "shard", (2, 3)),
    ],
)
def test_the_command_line_wins_over_the_ini_file_and_that_over_the_default(
    words: str, ini: dict[str, Any], field: str, value: object
) -> None:
    assert getattr(settings(*words.split(), ini=ini, cwd=ROOT / "sub"), field) == value


def test_thresholds_of_both_sources_hold_and_a_published_form_brings_its_own() -> None:
    ini = {"fa_threshold": ["margin_pp=7", "g_norm_floor=1e-12"]}
    found = settings(
        "--fa-threshold=frozen_acc_margin_pp=3", "--fa-threshold=growth=cumulative", ini=ini
    ).thresholds
    assert (found.frozen_acc_margin_pp, found.g_norm_floor, found.growth) == (
        3.0,
        1e-12,
        "cumulative",
    )
    assert settings("--fa-protocol=three").thresholds.confounds == "flag"
    assert (
        settings("--fa-protocol=three", "--fa-threshold=confounds=excuse").thresholds.confounds
        == "excuse"
    )


def test_what_is_typed_replaces_all_that_the_ini_file_names() -> None:
    ini = {"fa_checkpoint": ["runs"], "fa_log": ["logs"], "fa_data": "pkg:make"}
    texts = settings("--fa-log=other.json", ini={**ini, "fa_data": None}).texts
    assert "checkpoint" not in texts and texts["log"] == ("other.json",)


def test_a_bad_value_of_the_ini_file_is_named_as_such() -> None:
    with pytest.raises(
        AuditError, match=r"ini option fa_missing: expected error\|skip, not 'maybe'"
    ):
        settings(ini={"fa_missing": "maybe"})
    with pytest.raises(AuditError, match="ini option fa_threshold: unknown threshold 'margin'"):
        settings(ini={"fa_threshold": ["margin=2"]})


@pytest.mark.parametrize(("words", "ini"), [("--fa-data=d.npz", {}), ("", {"fa_data": "../d.npz"})])
def test_the_setup_names_data_wherever_the_run_was_started(
    tmp_path: Path, words: str, ini: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "d.npz").touch()
    (tmp_path / "root").mkdir()
    monkeypatch.setattr("repo.ROOT", tmp_path / "root")
    assert settings(*words.split(), ini=ini, cwd=tmp_path).setup.data == str(tmp_path / "d.npz")
