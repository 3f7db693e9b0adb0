"""Logs that other tools keep as tables: their columns guessed and said, or named; never guessed between two."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_fadiag import AuditError, read_log


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "dfa_s42.csv"


def written(path: Path, text: str) -> Path:
    path.write_text(text, "utf-8")
    return path


def test_a_table_with_canonical_names_reads_as_the_same_log_in_json(table: Path, tmp_path: Path) -> None:
    rows = [
        {"epoch": e, "h_0_norm": 9.0, "h_L_norm": 10.0**e, "g_L_norm": 10.0**-e, "acc_eval": 0.3 + e / 100} for e in (1, 2, 3)
    ]
    lines = ["epoch,h_0_norm,h_L_norm,g_L_norm,acc_eval", *(",".join(map(str, row.values())) for row in rows)]
    ours = read_log(written(table, "\n".join(lines)))
    theirs = read_log(written(tmp_path / "dfa_s42.json", json.dumps({"log": rows})))
    assert ours.points == theirs.points
    assert (ours.method, ours.seed, ours.accuracy, ours.caveats) == ("dfa", 42, theirs.accuracy, ())


def test_names_of_other_tools_are_guessed_and_said(table: Path) -> None:
    log = read_log(
        written(table, "Epoch,train/loss,val/acc,fa/h_L_norm,fa/grad_norm_2\n1,2.0,0.4,30,1e-6\n2,1.0,0.5,3000,1e-8\n")
    )
    assert [point.accuracy for point in log.points] == [0.4, 0.5]
    assert [point.residual_norms[-1] for point in log.points] == [30, 3000]
    assert log.points[-1].bp_grad_norms[2] == 1e-8
    (said,) = log.caveats
    assert "acc_eval from the column 'val/acc'" in said and "g_2_norm from the column 'fa/grad_norm_2'" in said


def test_two_columns_for_one_thing_are_an_error_that_says_how_to_choose(table: Path) -> None:
    text = "epoch,val/acc,test/acc\n1,0.4,0.5\n"
    with pytest.raises(
        AuditError, match=r"acc_eval may be 'val/acc' and 'test/acc'; say which: --fa-log-columns=acc_eval=val/acc"
    ):
        read_log(written(table, text))
    log = read_log(table, columns={"acc_eval": "test/acc"})
    assert log.points[0].accuracy == 0.5
    assert log.caveats == ()


def test_rows_of_one_epoch_become_one_entry_as_lightnings_csv_logger_writes_them(table: Path) -> None:
    text = "epoch,step,train_loss,val_acc,h_L_norm\n0,99,1.5,,\n0,99,,0.31,\n0,99,,,12.5\n1,199,1.2,,\n1,199,,0.42,14\n"
    log = read_log(written(table, text))
    assert log.epochs == (0, 1)
    assert [(point.accuracy, point.residual_norms[-1]) for point in log.points] == [(0.31, 12.5), (0.42, 14)]


def test_the_history_of_wandb_reads_as_csv_of_a_panel_and_as_json_lines(tmp_path: Path) -> None:
    panel = written(
        tmp_path / "fa_s1.csv",
        '"Step","run-7 - val/acc","run-7 - val/acc__MIN","run-7 - val/acc__MAX"\n1,0.4,0.4,0.4\n2,0.5,0.5,0.5\n',
    )
    rows = [{"_step": 1, "_runtime": 3.2, "val/acc": 0.4}, {"_step": 2, "_runtime": 6.0, "val/acc": 0.5}]
    history = written(tmp_path / "fa_s2.jsonl", "\n".join(map(json.dumps, rows)) + "\n")
    for path in (panel, history):
        assert [(point.epoch, point.accuracy) for point in read_log(path).points] == [(1, 0.4), (2, 0.5)]


@pytest.mark.parametrize(
    ("text", "columns", "problem"),
    [
        ("loss,acc\n1,0.5\n", None, "no column counts the epochs; it has 'loss', 'acc'"),
        ("epoch,loss\n1,0.5\n", None, "no column is an accuracy or a norm of the stream; it has 'epoch', 'loss'"),
        ("epoch,acc\n1,55.0\n", None, "did you pass a percentage"),
        ("epoch,acc\n0.5,0.1\n", None, "epoch is 0.5, not a whole number"),
        ("epoch,acc\n1,good\n", None, "'good', not a number"),
        ("epoch,acc\n1,0.5\n", {"acc_eval": "accuracy"}, "no column 'accuracy' for acc_eval"),
        ("epoch,acc\n1,0.5,7\n", None, "more cells than the header has columns"),
        ("epoch,acc\n", None, "the table holds no epoch"),
        ("epoch,acc,acc\n1,0.1,0.9\n", None, "two columns are named 'acc', and nobody knows which is meant"),
        ("Step,a - acc,b - acc\n1,0.1,0.9\n", None, "'a - acc' and 'b - acc' are one metric of two runs"),
    ],
)
def test_what_is_wrong_with_a_table_is_said(table: Path, text: str, columns: dict[str, str] | None, problem: str) -> None:
    with pytest.raises(AuditError, match=problem) as error:
        read_log(written(table, text), columns=columns)
    assert str(table) in str(error.value)


def test_without_tensorboard_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tensorboard.backend.event_processing.event_accumulator", None)
    with pytest.raises(AuditError, match=r"pytest-fadiag\[tensorboard\]"):
        read_log(written(tmp_path / "events.out.tfevents.1.host", ""))
