"""Training logs: every accepted format, what each allows to say, the shipped logs, bad input."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_fadiag.judge.control import Control
from pytest_fadiag.judge.errors import AuditError
from pytest_fadiag.judge.report import Report
from pytest_fadiag.load.controls import parse_controls
from pytest_fadiag.load.logs import parse_columns, read_log, records_credit

FIXTURES = Path(__file__).parents[2] / "fixtures"
CHECKPOINTS = FIXTURES / "checkpoints"
Write = Callable[..., Path]

LISTS: dict[str, Any] = {
    "epoch": 7,
    "hidden_norms": [9.0, 10.0, 600.0],
    "bp_grad_norms_per_sample_med": [1e-3, 1e-8, 1e-8],
    "acc_eval": 0.3,
}


def penalised(**changes: Any) -> dict[str, Any]:
    """The published format with the published numbers."""
    entry = {"epoch": 100, "h_L_norm": 4e4, "g_2_norm": 1e-6, "acc_eval": 0.363}
    config = {"method": "dfa-lam", "seed": 42, "n_blocks": 4, "h_0_norm": 9.0}
    return {"config": config, "final_test_acc": 0.363, "log": [entry], **changes}


def statuses(report: Report) -> list[str]:
    return [finding.status.value for finding in report.findings]


# --- the published numbers --------------------------------------------------------------------


@pytest.mark.parametrize(
    "batch", [{}, {"batch_size": 128}, {"grad_batch_size": 1024, "batch_size": 128}]
)
def test_the_penalised_run_from_its_published_log(batch: dict[str, int], write: Write) -> None:
    content = penalised()
    content["config"] |= batch
    report = read_log(write(content)).report(0.349)
    assert statuses(report) == ["likely pass", "likely pass", "not measured", "fail"]
    assert report.finding("b").value == pytest.approx(
        1e-6 * batch.get("grad_batch_size", 128) / 128
    )
    assert report.log is not None and report.log.gradient_batch == batch.get("grad_batch_size")
    assert report.residual_norms == (9.0, None, None, None, 4e4)
    assert (report.method_name, report.seed, report.headline_acc) == ("dfa-lam", 42, 0.363)
    assert report.margin_pp == pytest.approx(1.4) and report.partial


@pytest.mark.parametrize("place", ["config", "top", "entry"])
def test_the_first_norm_may_stand_in_three_places(place: str, write: Write) -> None:
    content = penalised()
    del content["config"]["h_0_norm"]
    assert read_log(write(content)).report(0.349).residual_norms[0] is None
    {"config": content["config"], "top": content, "entry": content["log"][0]}[place]["h_0_norm"] = (
        9.0
    )
    assert read_log(write(content)).report(0.349).residual_norms[0] == 9.0


def test_the_batch_size_of_the_gradients(write: Write) -> None:
    """The caller's comes first, then the config's; that of the training is assumed, and said."""

    def logged(config: dict[str, int], batch: int | None = None) -> tuple[Any, ...]:
        base = read_log(write({"config": config, "log": [LISTS]}), batch=batch).base
        return base.bp_grad_norms[-1], base.log.gradient_batch, base.log.assumed_batch

    assert logged({"grad_batch_size": 128}, 256) == (2e-8, 256, None)
    assert logged({"batch_size": 1024, "eval_batch_size": 256}) == (2e-8, 256, None)
    assert logged({"batch": 1024}) == (8e-8, None, 1024)
    assert logged({}) == (1e-8, None, None)


# --- formats ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        {"config": {"grad_batch_size": 128}, "log": [LISTS]},
        {"config": {"eval_batch_size": 128}, "dfa_log": [LISTS], "losses": [1.0]},
        [{"config": {"diagnostic_batch_size": 128}}, LISTS],
        [
            {"recorder": "pytest-fadiag", "method": "dfa", "seed": 42, "config": {"batch": 64}},
            LISTS,
        ],
        [{**LISTS, "stability_layer": 1, "drift": 0.1, "companions": {}}],
    ],
    ids=["log", "method_log", "lines", "recorder", "recorder without a header"],
)
def test_full_lists_are_exact(content: Any, write: Write) -> None:
    report = read_log(write(content)).report(0.2)
    assert statuses(report)[:2] == ["fail", "fail"] and report.finding("d").status.value == "pass"
    assert (report.method_name, report.seed) == ("dfa", 42)


def test_single_norms_count_from_the_last_where_the_depth_is_known(
    write: Write,
) -> None:
    content = penalised(log=[{"epoch": 1, "h_4_norm": 4e4, "g_4_norm": 1e-6, "g_L_norm": None}])
    assert read_log(write(content)).base.residual_norms == (9.0, None, None, None, 4e4)
    unknown = read_log(write(penalised(config={"h_0_norm": 9.0}))).report(0.349)
    assert unknown.log is not None and not unknown.log.depth_known
    assert (unknown.residual_norms[0], unknown.residual_norms[-1]) == (9.0, 4e4)
    assert statuses(unknown)[0] == "not measured"


def test_the_accuracy_and_its_images(write: Write) -> None:
    def score(final: float | None, n_test: int | None, images: int | None) -> tuple[Any, ...]:
        config = {} if n_test is None else {"n_test": n_test}
        entry = {**LISTS, "images": images}
        base = read_log(write({"config": config, "log": [entry], "final_test_acc": final})).base
        return base.score.value, base.score.images

    assert score(0.4, 10_000, 1280) == (0.4, 10_000)
    assert score(0.4, None, 1280) == (0.4, None)
    assert score(0.3, None, 1280) == (0.3, 1280)
    assert score(None, 10_000, None) == (0.3, 10_000)


def test_what_is_not_finite_is_read_and_fires(write: Write) -> None:
    for value in ("NaN", "Infinity", '"nan"', '"inf"', '"Infinity"'):
        entry = f'{{"epoch": 1, "h_L_norm": {value}, "g_1_norm": {value}}}'
        text = f'{{"config": {{"n_blocks": 2, "h_0_norm": 1}}, "log": [{entry}]}}'
        assert statuses(read_log(write(text)).report())[:2] == ["fail", "fail"]
    companions = {"nonfinite_outputs": 3, "sample_invariance": "nan", "eval_classes": 4}
    entry = {**LISTS, "drift": "nan", "stability_layer": 1, "companions": companions}
    report = read_log(write([entry])).report(0.29)
    assert report.fired == ("a", "b", "c", "d")
    assert (report.nonfinite_outputs, report.eval_classes) == (3, 4)


# --- tables -----------------------------------------------------------------------------------


def test_a_table_reads_as_the_same_log_in_json(write: Write) -> None:
    names = ("epoch", "h_0_norm", "h_L_norm", "g_L_norm", "acc_eval")
    rows = [dict(zip(names, (e, 9.0, 10.0**e, 10.0**-e, 0.3), strict=True)) for e in (1, 2, 3)]
    lines = [",".join(names), *(",".join(map(str, row.values())) for row in rows)]
    ours = read_log(write("\n".join(lines), "dfa_s42.csv"))
    theirs = read_log(write({"log": rows}))
    assert ours.base.log == theirs.base.log
    assert (ours.base.method_name, ours.base.seed, ours.base.score) == (
        "dfa",
        42,
        theirs.base.score,
    )


def test_rows_of_one_epoch_are_one_as_lightning_writes_them(write: Write) -> None:
    text = "epoch,step,train_loss,val_acc,fa/h_L_norm\n0,99,1.5,,\n0,99,,0.31,\n0,99,,,12.5\n"
    log = read_log(write(text + "1,199,,0.42,14\n2,250,1.0,,\n", "a.csv")).base.log
    assert [(e.epoch, e.headline_acc, e.residual_norms[-1]) for e in log.epochs] == [
        (0, 0.31, 12.5),
        (1, 0.42, 14),
    ], "rows without a known number do not count"


def test_columns_are_named_where_their_names_say_nothing(write: Write) -> None:
    path = write("it,top1,size\n1,0.4,3\n2,0.5,4\n", "a.csv")
    with pytest.raises(AuditError, match="no epoch with a known number; name its columns"):
        read_log(path)
    columns = parse_columns("epoch=it,acc_eval=top1,h_L_norm=size")
    base = read_log(path, columns=columns).base
    assert (base.headline_acc, base.residual_norms[-1]) == (0.5, 4.0)
    with pytest.raises(AuditError, match="no column 'top5'"):
        read_log(path, columns={**columns, "drift": "top5"})


@pytest.mark.filterwarnings("ignore")
def test_the_scalars_of_a_tensorboard_event_file_are_a_log(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        for epoch, norm in enumerate([9.0, 9000.0], 1):
            for tag, value in {"stream/h_L_norm": norm, "val/acc": 0.25}.items():
                writer.add_scalar(tag, value, epoch)
            writer.add_scalar("train/loss", 1.0, 10 * epoch)
    log = read_log(next(tmp_path.glob("*tfevents*"))).base.log
    held = [(epoch.epoch, epoch.residual_norms[-1], epoch.headline_acc) for epoch in log.epochs]
    assert held == [(1, 9.0, 0.25), (2, 9000.0, 0.25)]


# --- the shipped logs -------------------------------------------------------------------------


def shipped(name: str) -> Report:
    """The partial audit of a shipped log against the log of its control."""
    log = read_log(CHECKPOINTS / f"{name}.pt.log.jsonl")
    controls = parse_controls([str(path) for path in CHECKPOINTS.glob("frozen_*.log.jsonl")])
    control = controls.choose_for(log.base.method_name, log.base.seed)
    assert isinstance(control, Control) and control.seed == log.base.seed
    return log.report(control)


@pytest.mark.parametrize(
    ("name", "fired"),
    [
        *[(f"{method}_s{seed}", "") for method in ("bp", "ep", "fa") for seed in (42, 123, 456)],
        *[(f"dfa_s{seed}", "abd") for seed in (42, 123, 456)],
        *[(f"dfa-lam_s{seed}", "d") for seed in (42, 123, 456)],
    ],
)
def test_a_shipped_log_fires_what_its_checkpoint_fires(name: str, fired: str) -> None:
    report = shipped(name)
    assert "".join(report.fired) == fired
    assert all(finding.exact for finding in report.findings)


@pytest.mark.parametrize(("seed", "a", "b"), [(42, 6, 15), (123, 7, 18), (456, 6, 16)])
def test_when_the_shipped_dfa_runs_first_fired(seed: int, a: int, b: int) -> None:
    first = shipped(f"dfa_s{seed}").first_fired
    assert (first["a"], first["b"]) == (a, b)


@pytest.mark.parametrize("cut", [1, 20, 150])
def test_lines_before_one_that_is_cut_are_used(cut: int, write: Write) -> None:
    text = (CHECKPOINTS / "dfa_s42.pt.log.jsonl").read_text("utf-8")
    whole, base = (read_log(write(t, "dfa_s42.jsonl")).base for t in (text, text[:-cut]))
    assert whole.log is not None and base.log is not None
    lost = cut > 1  # one character is the line's end alone
    assert base.log.epochs == whole.log.epochs[: len(whole.log.epochs) - lost]
    assert base.caveats == (
        ("the last line is cut in the middle and was left out",) if lost else ()
    )


def test_reading_and_judging_a_log_imports_neither_torch_nor_numpy() -> None:
    code = (
        "import sys; from pytest_fadiag.load.logs import read_log;"
        "from pytest_fadiag.load.controls import parse_controls;"
        "import pytest_fadiag.load.sources;"
        f"log = read_log({str(CHECKPOINTS / 'dfa_s42.pt.log.jsonl')!r});"
        f"control = parse_controls([{str(CHECKPOINTS / 'frozen_dfa_s42.pt.log.jsonl')!r}]);"
        "assert log.report(control.choose_for('dfa', 42)).fired == ('a', 'b', 'd');"
        "print(sorted({'torch', 'numpy', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- bad input --------------------------------------------------------------------------------


def one(**entry: Any) -> dict[str, Any]:
    return {"config": {"n_blocks": 2}, "log": [{"epoch": 1, **entry}]}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("epoch 1: loss 2.3", "line 1: Expecting value"),
        ('{"config": {}, "log": [{"epoch": 1,', "line 1: "),
        ("", "no epoch with a known number"),
        ('{"log": []}', "no epoch with a known number"),
        (b"PK\x03\x04\xff\xfe", "codec can't decode byte"),
        ("[1, 2]", "line 1: entry: Expected `object`, got `array`"),
        ("{}", "expected one log in the file, found nothing; expected"),
        ({"loss": [1, 2]}, "expected one log in the file, found 'loss'"),
        ({"log": [{"epoch": 1}], "b_log": [{"epoch": 1}]}, "expected one log in the file"),
        ({"log": {"epoch": 1}}, "log: Expected `array`, got `object`"),
        ({"log": [3]}, r"log: Expected `object`, got `int` - at `\$\[0\]`"),
        ({"config": 3, "log": [{"epoch": 1}]}, "config: Expected `object`"),
        ({"log": [{"loss": 1}]}, "epoch None: Object missing required field `epoch`"),
        ({"log": [{"epoch": 1.5}]}, "epoch 1.5: Expected `int`"),
        ({"log": [{"epoch": True}]}, "epoch True: Expected `int`"),
        ([{"epoch": 1}, {"epoch": 1}], "epoch 1 follows epoch 1; keep one training run per log"),
        ([{"epoch": 1}, {"epoch": 3}, {"epoch": 2}], "epoch 2 follows epoch 3"),
        ('{"epoch": 1}\n{"epoch": 2\n{"epoch": 3}\n', "line 2: "),
        (one(hidden_norms=[1, 2]), "norms of 2, 3 layers"),
        (one(hidden_norms=7), r"epoch 1: Expected `array`.* at `\$.residual_norms`"),
        (one(hidden_norms=[1, 2, -3]), "epoch 1: norms .*negative"),
        (one(hidden_norms=[1, True, 3]), r"at `\$.residual_norms\[1\]`"),
        (one(h_L_norm="big"), r"epoch 1: Expected `float`.* at `\$.norms"),
        (one(g_L_norm=-math.inf), "negative"),
        (one(h_7_norm=3.0), "norms of 3, 8 layers"),
        (one(h_L_norm=10**400), "Number out of range"),
        (one(acc_eval=36.3), "epoch 1: accuracy .*percentage"),
        (one(companions=[1]), "companions: Expected `object`"),
        (one(credit={"gamma": "high"}), r"epoch 1: .* at `\$.credit.gamma`"),
        (one(credit={}), r"epoch 1: expected one entry a site - at `\$.credit`"),
        ({**one(), "final_test_acc": 36.3}, "percentage"),
        ({"config": {"n_blocks": "four"}, "log": [{"epoch": 1}]}, r"config: .*\$.depth"),
        (
            [{"epoch": 1, "hidden_norms": [1, 2], "bp_grad_norms": [1, 2, 3]}],
            "norms of 2, 3 layers",
        ),
        ("[" * 100_000, "recursion"),
        ('{"log": [{"epoch": 1, "acc_eval": 0.9, "acc_eval": 0.1}]}', "duplicate key 'acc_eval'"),
        ('{"epoch": 1}\n{"epoch": 2, "acc": 0.9, "acc": 0.1}', "line 2: duplicate key 'acc'"),
        ({"config": {"n_blocks": 10**12}, "log": [{"epoch": 1}]}, "1,000,000,000,001 layers"),
        ({"log": [{"epoch": 1, "h_999999999_norm": 3.0}]}, "norms of 1,000,000,000 layers"),
        (
            {"log": [{"epoch": 1, "hidden_norms": [1.0] * 10_001}]},
            "length <= 10000",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_bad_input_says_what_is_wrong(content: Any, said: str, write: Write) -> None:
    path = write(content)
    with pytest.raises(AuditError, match=said) as raised:
        read_log(path)
    assert str(raised.value).startswith("training log: ")
    assert str(raised.value).endswith(f"\n  {path}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("epoch,acc\n1,55.0\n", "percentage"),
        ("epoch,acc\n0.5,0.1\n", "epoch '0.5': Expected `int`"),
        ("epoch,acc\n1,good\n", "Expected `float"),
        ("epoch,acc,acc\n1,0.1,0.9\n", "two columns have the same name"),
        ("epoch,acc\n", "no epoch with a known number"),
        ("epoch,h_4_norm\n,1.0\n", "no epoch with a known number"),
        (f"epoch,{'h_' * 16_000}\n1,2\n", "no epoch with a known number"),
    ],
    ids=lambda text: text[:20],
)
def test_what_is_wrong_with_a_table_is_said(text: str, said: str, write: Write) -> None:
    began = time.process_time()
    with pytest.raises(AuditError, match=said):
        read_log(write(text, "a.csv"))
    assert time.process_time() - began < 1


def test_a_missing_file_a_folder_and_a_log_that_measures_nothing(
    tmp_path: Path, write: Write
) -> None:
    with pytest.raises(AuditError, match=r"training log: .*No such file"):
        read_log(tmp_path / "none.json")
    for entry in ({"epoch": 1}, {"epoch": 1, "acc_eval": 0.3}):
        log = read_log(write({"log": [entry]}))
        with pytest.raises(
            AuditError, match="the last epoch has no number that a diagnostic needs"
        ):
            log.report()
    assert read_log(write({"log": [entry]})).report(0.2).finding("d").measured


def test_a_log_of_very_many_epochs_is_refused(write: Write) -> None:
    lines = [{"epoch": n, "hidden_norms": [1.0, 2.0], "acc_eval": 0.5} for n in range(12_000)]
    with pytest.raises(AuditError, match="12,000 epochs; at most 5,000: keep every k-th"):
        read_log(write(lines, "a.jsonl"))


def test_a_log_with_credit_is_told(write: Write) -> None:
    numbers = ("gamma", "null_mean", "null_sd", "null_low", "null_high", "nudge")
    credit = {**{name: [0.5] for name in numbers}, "sites": ["h_1"], "undefined": [0]}
    assert records_credit(write([{**LISTS, "credit": credit}], "a.jsonl"))
    assert not any(records_credit(write(held, "b.jsonl")) for held in ([LISTS], "no log"))
