"""Training logs: every accepted format, what each allows to say, the shipped logs beside their checkpoints, bad input."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_fadiag import AuditError, Control, DiagnosticReport, audit, read_log, read_logs
from pytest_fadiag.judge.diagnostics import Status
from pytest_fadiag.judge.seed_report import SeedReport
from pytest_fadiag.load.controls import parse_controls
from pytest_fadiag.load.identity import identify

FIXTURES = Path(__file__).parents[2] / "fixtures"
CHECKPOINTS = FIXTURES / "checkpoints"
EXPECTED: dict[str, str] = json.loads((FIXTURES / "expected.json").read_text("utf-8"))

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a log: text as it is, a list as JSON lines, anything else as JSON."""

    def written(content: Any, name: str = "dfa_s42.json") -> Path:
        path = tmp_path / name
        if isinstance(content, bytes):
            path.write_bytes(content)
            return path
        if isinstance(content, list):
            content = "".join(json.dumps(line) + "\n" for line in content)
        path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
        return path

    return written


def penalised(**changes: Any) -> dict[str, Any]:
    """The published format with the published numbers."""
    entry = {"epoch": 100, "h_L_norm": 4e4, "g_2_norm": 1e-6, "acc_eval": 0.363}
    config = {"method": "dfa-lam", "seed": 42, "n_blocks": 4, "h_0_norm": 9.0}
    return {"config": config, "final_test_acc": 0.363, "log": [entry], **changes}


def statuses(report: DiagnosticReport) -> list[str]:
    return [finding.status.value for finding in report.findings]


# --- the published numbers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [{}, {"batch_size": 128}, {"grad_batch_size": 1024, "batch_size": 128}])
def test_the_penalised_run_from_its_published_log(batch: dict[str, int], write: Write) -> None:
    content = penalised()
    content["config"] |= batch
    path = write(content)
    report = read_log(path).report(0.349)
    assert report.checkpoint == path.name
    assert statuses(report) == ["likely pass", "likely pass", "not measured", "fire"]
    assert "up to 2 of 4 blocks could still exceed 50" in report.finding("a").headline
    assert report.finding("b").value == pytest.approx(1e-6 * batch.get("grad_batch_size", 128) / 128)
    assert report.gradient_batch == batch.get("grad_batch_size")
    assert "‖g_2‖ stands in for ‖g_L‖" in report.finding("b").outcome
    assert ("batch size 128 assumed" in report.finding("b").outcome) == ("grad_batch_size" not in batch)
    assert report.finding("d").headline == "margin +1.40 pp < 2"
    assert (report.method_name, report.seed, report.headline_acc) == ("dfa-lam", 42, 0.363)


@pytest.mark.parametrize("place", ["config", "top", "entry"])
def test_the_first_norm_may_stand_in_three_places(place: str, write: Write) -> None:
    content = penalised()
    del content["config"]["h_0_norm"]
    assert read_log(write(content)).report(0.349).finding("a").status is Status.NOT_MEASURED
    {"config": content["config"], "top": content, "entry": content["log"][0]}[place]["h_0_norm"] = 9.0
    assert read_log(write(content)).report(0.349).finding("a").status is Status.LIKELY_PASS


def test_the_batch_size_of_the_caller_comes_before_that_of_the_config(write: Write) -> None:
    content = penalised()
    content["config"]["grad_batch_size"] = 128
    log = read_log(write(content), batch=256)
    assert (log.batch, log.points[-1].bp_grad_norms[2]) == (256, 2e-6)


@pytest.mark.parametrize("key", ["batch_size", "batch"])
def test_the_batch_size_of_the_training_is_assumed_and_not_taken_for_that_of_the_gradients(key: str, write: Write) -> None:
    log = read_log(write({"config": {key: 1024}, "log": [LISTS]}))
    assert (log.batch, log.assumed_batch, log.points[-1].bp_grad_norms[-1]) == (None, 1024, pytest.approx(8e-8))
    found = log.report().finding("b")
    assert found.outcome == "likely fire (batch size 1,024 assumed, that of the training)"
    assert read_log(log.path, batch=1024).report().finding("b").status is Status.FIRE
    stated = read_log(write({"config": {key: 1024, "eval_batch_size": 256}, "log": [LISTS]}))
    assert (stated.batch, stated.assumed_batch) == (256, None)


# --- formats ---------------------------------------------------------------------------------------------------------

LISTS = {
    "epoch": 7,
    "hidden_norms": [9.0, 10.0, 600.0],
    "bp_grad_norms_per_sample_med": [1e-3, 1e-8, 1e-8],
    "acc_eval": 0.3,
}


@pytest.mark.parametrize(
    "content",
    [
        {"config": {"grad_batch_size": 128}, "log": [LISTS]},
        {"config": {"eval_batch_size": 128}, "dfa_log": [LISTS]},
        [{"config": {"diagnostic_batch_size": 128}}, LISTS],
        [{**LISTS, "stability_layer": 1, "drift": 0.1, "companions": {}}],
    ],
    ids=["log", "method_log", "lines", "recorder's older lines"],
)
def test_full_lists_are_exact(content: Any, write: Write) -> None:
    report = read_log(write(content)).report(0.2)
    assert statuses(report)[:2] == ["fire", "fire"]
    assert report.finding("d").status is Status.PASS
    assert (report.method_name, report.seed) == ("dfa", 42)
    assert report.partial


def test_other_spellings_of_lists_and_depths(write: Write) -> None:
    entry = {"epoch": 0, "residual_norms": [1.0, 2.0], "bp_grad_norms": [1e-3, None], "test_acc": 0.5}
    log = read_log(write({"log": [entry]}))
    assert log.points[0].residual_norms == (1.0, 2.0)
    assert (log.points[0].bp_grad_norms, log.depth) == ((1e-3, None), 1)
    for key in ("n_blocks", "num_blocks", "blocks", "L", "depth", "n_layers", "num_layers"):
        content = penalised()
        content["config"][key] = content["config"].pop("n_blocks")
        assert read_log(write(content)).depth == 4


def test_a_layer_by_its_number_is_the_last_one_if_the_depth_says_so(write: Write) -> None:
    content = penalised(log=[{"epoch": 1, "h_4_norm": 4e4, "g_4_norm": 1e-6, "g_L_norm": None}])
    content["config"]["grad_batch_size"] = 128
    report = read_log(write(content)).report()
    assert report.residual_norms == (9.0, None, None, None, 4e4)
    assert report.finding("b").status is Status.PASS


def test_without_a_depth_the_layers_are_numbered_and_the_last_is_l(write: Write) -> None:
    content = penalised(config={"h_0_norm": 9.0})
    report = read_log(write(content)).report(0.349)
    assert statuses(report) == ["not measured", "likely pass", "not measured", "fire"]
    assert (report.residual_norms[0], report.residual_norms[-1]) == (9.0, 4e4)
    assert "n_blocks" in report.finding("a").headline


def test_several_methods_in_one_file(write: Write) -> None:
    path = write({"dfa_log": [LISTS], "bp_log": [LISTS], "config": {"seed": 3}, "final_test_acc": {"bp": 0.6}})
    logs = read_logs(path)
    assert [(log.method, log.seed) for log in logs] == [("dfa", 3), ("bp", 3)]
    assert [log.accuracy.value for log in logs if log.accuracy] == [0.3, 0.6]
    with pytest.raises(AuditError, match="several methods, dfa and bp; split it into one file a method"):
        read_log(path)
    assert [read_log(path, method=method).accuracy.value for method in ("dfa", "bp")] == [0.3, 0.6]  # type: ignore[union-attr]
    with pytest.raises(AuditError, match="holds the logs of dfa and bp, and none of ep"):
        read_log(path, method="ep")


@pytest.mark.parametrize(
    ("norms", "words"),
    [
        ({"h_L_norm": 9e9}, "epoch 7: h_L_norm is 9e+09 and hidden_norms[2] is 600, but both are ‖h_2‖"),
        ({"h_1_norm": 12.0}, "h_1_norm is 12 and hidden_norms[1] is 10, but both are ‖h_1‖"),
        ({"g_L_norm": 2e-8}, "g_L_norm is 2e-08 and bp_grad_norms_per_sample_med[2] is 1e-08, but both are ‖g_2‖"),
        ({"h_0_norm": 1.0}, "h_0_norm is 1 and hidden_norms[0] is 9, but both are ‖h_0‖"),
        ({"hidden_norms": None, "h_2_norm": 5.0, "h_L_norm": 6.0}, "h_2_norm is 5 and h_L_norm is 6"),
        ({"h_L_norm": "nan"}, "h_L_norm is nan and hidden_norms[2] is 600"),
    ],
)
def test_a_log_that_contradicts_itself_is_refused(norms: dict[str, Any], words: str, write: Write) -> None:
    with pytest.raises(AuditError, match=re.escape(words)):
        read_log(write({"config": {}, "log": [{**LISTS, **norms}]}))


def test_a_number_that_fills_a_hole_or_says_the_same_rounded_is_used(write: Write) -> None:
    entry = {**LISTS, "hidden_norms": [9.0, 10.0, None], "h_L_norm": 600.0, "h_1_norm": 10.04}
    log = read_log(write({"config": {"h_0_norm": 1.0}, "log": [entry]}))
    assert log.points[0].residual_norms == (9.0, 10.0, 600.0), "what stands beside the epochs is for those without"


def test_the_images_are_those_of_the_accuracy_that_is_taken(write: Write) -> None:
    def images(final: float | None, **where: Any) -> int | None:
        entry = {**LISTS, "images": 1280} if where.get("entry") else LISTS
        content = {"config": {"n_test": 10_000} if where.get("config") else {}, "log": [entry], "final_test_acc": final}
        accuracy = read_log(write(content)).accuracy
        assert accuracy is not None
        return accuracy.images

    assert images(0.4, config=True, entry=True) == 10_000
    assert images(0.4, entry=True) is None, "the final accuracy is not that of the last epoch's images"
    assert images(0.3, entry=True) == 1280
    assert images(None, config=True, entry=True) == 1280
    assert images(None, config=True) == 10_000


@pytest.mark.parametrize(
    ("epochs", "noted"),
    [
        ((1, 2, 3, 4, 5, 8), ["epoch 8 follows on epoch 5"]),
        ((0, 5, 10, 15, 30), ["epoch 30 follows on epoch 15"]),
        ((0, 5, 10, 15), []),
        ((1, 3, 10, 30), []),
        ((5, 8), []),
        ((5,), []),
    ],
)
def test_epochs_that_are_left_out_are_noted(epochs: tuple[int, ...], noted: list[str], write: Write) -> None:
    caveats = read_log(write([{"epoch": epoch, "acc_eval": 0.3} for epoch in epochs])).caveats
    assert [caveat.partition(":")[0] for caveat in caveats] == noted


@pytest.mark.parametrize(
    "name", ["dfa_s42.pt.log.jsonl", "dfa_s42.log.jsonl", "dfa_s42.jsonl", "dfa_s42.json", "dfa_seed42.json"]
)
def test_the_name_of_a_log_tells_method_and_seed(name: str) -> None:
    assert identify(Path("runs") / name) == ("dfa", 42)


def test_a_name_that_is_all_suffix_and_one_that_says_nothing() -> None:
    assert identify(Path("results.json")) == ("results", None)
    assert identify(Path("a/.json")) == (".json", None)


def test_an_accuracy_is_not_needed(write: Write) -> None:
    content = penalised(final_test_acc=None, log=[{"epoch": 1, "h_L_norm": 4e4, "g_2_norm": 1e-6}])
    report = read_log(write(content)).report(0.349)
    assert report.finding("d").status is Status.NOT_MEASURED
    assert "the log has no accuracy" in report.finding("d").headline


def test_what_is_not_finite_is_read_and_fires(write: Write) -> None:
    for value in ("NaN", "Infinity", '"nan"', '"inf"', '"Infinity"'):
        text = (
            f'{{"config": {{"n_blocks": 2, "h_0_norm": 1}}, "log": [{{"epoch": 1, "h_L_norm": {value}, "g_1_norm": {value}}}]}}'
        )
        assert statuses(read_log(write(text)).report())[:2] == ["fire", "fire"]
    entry = {**LISTS, "drift": "nan", "stability_layer": 1, "companions": {"nonfinite_logits": 3, "sample_invariance": "nan"}}
    report = read_log(write([entry])).report()
    assert report.fired == "abcd"
    assert report.companions.nonfinite_logits == 3


def test_a_recorded_log_with_the_names_before_is_read(write: Write) -> None:
    before = {"directionless_samples": 7, "unread_tokens": [0, 16], "tokens": 17}
    companions = read_log(write([{**LISTS, "stability_layer": 1, "drift": 0.1, "companions": before}])).report().companions
    assert (companions.zero_gradient_samples, companions.tokens_without_gradient, companions.tokens) == (7, (0, 16), 17)


def test_the_number_of_images_gives_the_margin_an_interval(write: Write) -> None:
    report = read_log(write(penalised(images=10_000))).report(0.349)
    assert "binomial, 10,000 images" in str(report)
    unknown = " ".join(str(read_log(write(penalised())).report(0.349)).split())
    assert "(no interval: the number of test images is not known; state it as n_test in the log's config)" in unknown


def test_a_final_accuracy_that_is_not_the_last_epochs_is_noted(write: Write) -> None:
    report = read_log(write(penalised(final_test_acc=0.40))).report(0.349)
    assert report.headline_acc == 0.40
    assert "note: the log's final accuracy is 0.4000, that of its last epoch 0.3630" in str(report)


def test_what_only_earlier_epochs_have_is_noted_and_not_judged(write: Write) -> None:
    content = penalised()
    content["log"].append({"epoch": 101, "acc_eval": 0.363})
    report = read_log(write(content)).report(0.349)
    assert statuses(report) == ["not measured", "not measured", "not measured", "fire"]
    assert "epoch 101, the last, has no ‖h_l‖; epoch 100 has, but is not judged" in report.remarks


# --- the shipped logs ------------------------------------------------------------------------------------------------


def shipped(name: str) -> DiagnosticReport:
    """The partial audit of a shipped log against the log of its control."""
    log = read_log(CHECKPOINTS / f"{name}.pt.log.jsonl")
    control = parse_controls([str(path) for path in CHECKPOINTS.glob("frozen_*.log.jsonl")]).choose(log.method, log.seed)
    assert isinstance(control, Control)
    assert control.seed == log.seed
    return log.report(control)


@pytest.mark.parametrize("checkpoint", EXPECTED)
def test_a_shipped_log_fires_what_its_checkpoint_is_recorded_to_fire(checkpoint: str) -> None:
    report = shipped(Path(checkpoint).stem)
    assert report.fired == EXPECTED[checkpoint].replace("e", ""), "no log tells what a probe reads"
    assert all(finding.exact for finding in report.findings)


@pytest.mark.parametrize("name", ["dfa_s42", "dfa-lam_s42"])
def test_a_shipped_log_is_as_its_checkpoint_is_measured(name: str) -> None:
    whole = audit(
        CHECKPOINTS / f"{name}.pt", data=f"fashion-mnist:{FIXTURES / 'fashion-mnist'}", frozen=CHECKPOINTS / "frozen_dfa_s42.pt"
    )
    report = shipped(name)
    assert statuses(report) == statuses(whole)
    assert report.residual_norms == pytest.approx(whole.residual_norms, rel=1e-3)
    assert report.bp_grad_norms == pytest.approx(whole.bp_grad_norms, rel=1e-2)
    assert report.headline_acc == whole.headline_acc
    assert report.frozen_baseline_acc == whole.frozen_baseline_acc


@pytest.mark.parametrize(("seed", "a", "b"), [(42, 6, 15), (123, 7, 18), (456, 6, 16)])
def test_when_the_shipped_dfa_runs_first_fired(seed: int, a: int, b: int) -> None:
    report = shipped(f"dfa_s{seed}")
    assert report.trajectory is not None
    assert report.trajectory.first_fired == {"d": 1, "a": a, "b": b}
    assert f"first fired: (d) epoch 1, (a) epoch {a}, (b) epoch {b} of 30" in str(report)


@pytest.mark.parametrize(
    ("method", "minimum", "verdict"),
    [
        ("dfa", 2.0, "FIRE"),
        ("dfa-lam", 2.0, "FIRE"),
        ("state-bridge", 2.0, "FIRE"),
        ("bp", 2.0, "PASS"),
        ("fa", 2.3, "INCONCLUSIVE"),
    ],
)
def test_the_shipped_logs_over_seeds_are_no_surer_than_their_checkpoints(method: str, minimum: float, verdict: str) -> None:
    """At 2.3 the checkpoints of fa are inconclusive image by image, so that their accuracies alone must be too."""
    found = SeedReport.of([shipped(f"{method}_s{seed}") for seed in (42, 123, 456)], minimum).margin
    assert found.verdict.value == verdict
    assert found.assumed_images == (None if method == "state-bridge" else 10_000)  # newer logs state the number of images


# --- controls --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "name", "who"),
    [
        ([{"epoch": 3, "acc_eval": 0.349}], "frozen_dfa_s42.pt.log.jsonl", ("dfa", 42, "frozen")),
        (
            penalised(config={"method": "dfa", "seed": 7, "shallow": True}, final_test_acc=0.349),
            "x.json",
            ("dfa", 7, "shallow"),
        ),
        ({"log": [{"epoch": 3, "acc_eval": 0.349}]}, "frozen_s1.json", (None, 1, "frozen")),
        ({"frozen_ep_log": [{"epoch": 3, "acc_eval": 0.349}]}, "results_s5.json", ("ep", 5, "frozen")),
        ([{"epoch": 3, "acc_eval": 0.349}], "baseline.jsonl", ("baseline", None, "unmarked")),
    ],
)
def test_a_log_is_a_control(content: Any, name: str, who: tuple[Any, ...], write: Write) -> None:
    control = parse_controls([str(write(content, name))]).choose("dfa", 42)
    assert isinstance(control, Control)
    assert (control.method, control.seed, control.kind) == who
    assert (control.accuracy.value, control.source) == (0.349, name)


def test_the_log_of_the_audited_network_is_no_control_of_it(write: Write) -> None:
    lines = [{"config": {"method": "hol", "seed": 42}}, {"epoch": 1, "acc_eval": 0.5}]
    controls = parse_controls([str(write(lines, "hol_s42.jsonl"))])
    with pytest.raises(AuditError, match=r"control hol_s42\.jsonl: by its method and seed it is the log of the audited"):
        controls.choose_for("hol", 42)
    assert controls.choose_for("hol", 7) is not None
    lines[0]["config"]["frozen"] = True
    assert parse_controls([str(write(lines, "hol_s42.jsonl"))]).choose_for("hol", 42) is not None


def test_globs_of_logs_and_of_json_are_expanded() -> None:
    seen = []

    def expand(value: str) -> list[Path]:
        seen.append(value)
        return sorted(CHECKPOINTS.glob(Path(value).name))

    controls = parse_controls([str(CHECKPOINTS / "frozen_dfa_s*.log.jsonl"), "frozen_bp_s42.pt"], expand)
    assert [reported.seed for reported in controls.reported] == [123, 42, 456]
    assert [file.path.name for file in controls.files] == ["frozen_bp_s42.pt"]
    assert [path.name for path in controls.paths][:2] == ["frozen_bp_s42.pt", "frozen_dfa_s123.pt.log.jsonl"]
    with pytest.raises(AuditError, match=r"no control in runs/\*\.json"):
        parse_controls(["runs/*.json"], expand)
    assert seen[-1] == "runs/*.json"


def test_a_log_that_cannot_be_a_control(write: Write) -> None:
    with pytest.raises(AuditError, match="control: the log has no accuracy"):
        parse_controls([str(write([{"epoch": 1}], "frozen_dfa_s1.jsonl"))])
    with pytest.raises(AuditError, match="frozen: False, so it is a trained network"):
        parse_controls([str(write(penalised(config={"method": "dfa", "frozen": False})))])
    with pytest.raises(AuditError, match="control: training log: line 2: not JSON"):
        parse_controls([str(write('{"epoch": 1}\n{oops}\n{"epoch": 3}\n', "frozen_dfa_s1.jsonl"))])


# --- bad input -------------------------------------------------------------------------------------------------------


def one(**entry: Any) -> dict[str, Any]:
    return {"config": {"n_blocks": 2}, "log": [{"epoch": 1, **entry}]}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("epoch 1: loss 2.3", "not JSON: Expecting value (line 1, column 1)"),
        ('{"config": {}, "log": [{"epoch": 1,', "the JSON ends in the middle (line 1)"),
        ('{\n "log": [\n  {"epoch": 1, "acc_ev', "the JSON ends in the middle (line 3)"),
        ('{"epoch": 1, "acc_ev', "the JSON ends in the middle"),
        ("", "the file is empty"),
        ("\n \n", "the file is empty"),
        ('{"log": []}', "the log holds no epoch"),
        ('{"dfa_log": []}', "the log of dfa holds no epoch"),
        (b"PK\x03\x04\xff\xfe", "not text in UTF-8 (byte 4)"),
        ("[1, 2]", "unknown format: a JSON list"),
        ("{}", "unknown format: an object with nothing"),
        ({"loss": [1, 2]}, "unknown format: an object with 'loss'"),
        ({"log": {"epoch": 1}}, "'log' is dict, not a list of epochs"),
        ({"log": [3]}, "log[0]: 3 is no object"),
        ({"config": 3, "log": [{"epoch": 1}]}, "config is 3, not an object"),
        ({"log": [{"step": 1}]}, "log[0]: no epoch in this entry, which has 'step'"),
        ([{"epoch": 1}, {"step": 1}], "line 2: no epoch in this entry"),
        ({"log": [{"epoch": 1.5}]}, "log[0]: epoch is 1.5, not a whole number"),
        ({"log": [{"epoch": "1"}]}, "log[0]: epoch is '1', not a whole number"),
        ({"log": [{"epoch": True}]}, "log[0]: epoch is True, not a whole number"),
        ({"log": [{"epoch": -1}]}, "log[0]: epoch is -1, not a whole number"),
        ([{"epoch": 1}, {"epoch": 1}], "line 2: epoch 1 is there twice"),
        ([{"epoch": 1}, {"epoch": 3}, {"epoch": 2}], "line 3: epoch 2 comes after epoch 3"),
        ('{"epoch": 1}\n{"epoch": 2\n{"epoch": 3}\n', "line 2: not JSON"),
        ('{"epoch": 1}\n7\n', "line 2: 7 is no object"),
        (one(hidden_norms=[1, 2]), "epoch 1: hidden_norms has 2 entries, but n_blocks in the config is 2"),
        (one(hidden_norms=7), "epoch 1: hidden_norms is 7, not a list"),
        (one(hidden_norms=[1, 2, -3]), "epoch 1: hidden_norms[2] is -3, but a norm is never negative"),
        (one(hidden_norms=[1, True, 3]), "epoch 1: hidden_norms[1] is True, not a number"),
        (one(h_L_norm="4e4"), "epoch 1: h_L_norm is '4e4', not a number; write it without quotes"),
        (one(g_L_norm=float("-inf")), "epoch 1: g_L_norm is -inf, but a norm is never negative"),
        (one(h_7_norm=3.0), "epoch 1: h_7_norm, but there are 2 blocks"),
        (one(h_L_norm=10**400), "epoch 1: h_L_norm is larger than any float"),
        (one(acc_eval=36.3), "epoch 1: acc_eval is 36.3, but accuracies are fractions in [0, 1]; did you pass a percentage?"),
        (one(acc_eval=math.nan), "epoch 1: acc_eval must be a number in [0, 1], not nan"),
        (one(drift=1.5), "epoch 1: drift is 1.5, but a cosine lies in [-1, 1]"),
        (one(companions=[1]), "epoch 1: companions is [1], not an object"),
        (one(companions={"nonfinite_states": 3}), "epoch 1: companions.nonfinite_states is 3, not a list"),
        (one(companions={"output_error_drift": "low"}), "epoch 1: companions.output_error_drift is 'low', not a number"),
        ({**one(), "final_test_acc": 36.3}, "beside the log: final_test_acc is 36.3, but accuracies are fractions"),
        ({"config": {"n_blocks": "4"}, "log": [{"epoch": 1}]}, "config: n_blocks is '4', not a whole number from 0"),
        ({"config": {"batch_size": 0}, "log": [{"epoch": 1}]}, "config: batch_size is 0, not a whole number from 1"),
        (
            [{"epoch": 1, "hidden_norms": [1, 2]}, {"epoch": 2, "hidden_norms": [1, 2, 3]}],
            "line 2 (epoch 2): hidden_norms has 3 entries, but 2 in line 1 (epoch 1)",
        ),
        ([{"epoch": 1, "hidden_norms": [1, 2], "bp_grad_norms": [1, 2, 3]}], "hidden_norms has 2 entries and bp_grad_norms 3"),
        ([{"recorder": "other", "format_version": 1}, {"epoch": 1}], "line 1: written by 'other', format 1"),
        ([{"recorder": "pytest-fadiag", "format_version": 9}, {"epoch": 1}], "format 9; this version reads"),
        ([{"epoch": 1}, {"recorder": "pytest-fadiag", "format_version": 1}], "line 2: a second header"),
        ("[" * 100_000, "not JSON: RecursionError"),
        ('{"log": [{"epoch": 1, "acc_eval": 0.9, "acc_eval": 0.1}]}', "the key 'acc_eval' is there twice in one object"),
        ('{"epoch": 1}\n{"epoch": 2, "acc_eval": 0.9, "acc_eval": 0.1}', "line 2: the key 'acc_eval' is there twice"),
        ({"log": [{"epoch": 1}], "b_log": [{"epoch": 1}]}, "holds 'log' and 'b_log', and nobody says whose 'log' is"),
    ],
)  # fmt: skip
def test_bad_input_says_what_is_wrong_where(content: Any, words: str, write: Write) -> None:
    path = write(content)
    with pytest.raises(AuditError) as raised:
        read_log(path)
    first, *rest = str(raised.value).splitlines()
    assert first.startswith("training log: ")
    assert words in first
    assert f"  {path}" in rest, "the file stands on a line of its own"
    if "unknown format" in first:
        assert "accepted are" in str(raised.value)
        assert all(key in str(raised.value) for key in ("h_0_norm", "n_blocks", "grad_batch_size", "n_test"))


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(AuditError, match="cannot be read: No such file"):
        read_log(tmp_path / "none.json")
    with pytest.raises(AuditError, match="cannot be read: Is a directory"):
        read_log(tmp_path)


@pytest.mark.parametrize("cut", [1, 20, 150])
def test_lines_before_one_that_is_cut_are_used(cut: int, write: Write) -> None:
    text = (CHECKPOINTS / "dfa_s42.pt.log.jsonl").read_text("utf-8")
    whole = read_log(write(text, "dfa_s42.jsonl"))
    log = read_log(write(text[:-cut], "dfa_s42.jsonl"))
    lost = cut > 1  # one character is the line's end alone
    assert log.points == whole.points[: len(whole.points) - lost]
    assert bool(log.caveats) == lost
    if lost:
        assert "note: the last line of the log is cut in the middle; 29 epochs before it are used" in str(log.report())


def test_a_line_that_is_cut_within_a_letter(write: Write) -> None:
    log = read_log(write('{"epoch": 1, "acc_eval": 0.5}\n{"epoch": 2, "note": "é'.encode()[:-1], "dfa_s1.jsonl"))
    assert log.epochs == (1,)
    assert log.caveats


def test_a_network_without_blocks_is_a_control_and_nothing_to_audit(write: Write) -> None:
    log = read_log(write({"config": {"blocks": 0}, "log": [{"epoch": 1, "acc_eval": 0.3}]}))
    with pytest.raises(AuditError, match="a network without blocks has no stream to audit"):
        log.report()


def test_reading_and_judging_a_log_imports_neither_torch_nor_numpy(write: Write) -> None:
    code = (
        "import sys; from pytest_fadiag import read_log; from pytest_fadiag.load.controls import parse_controls;"
        f"log = read_log({str(CHECKPOINTS / 'dfa_s42.pt.log.jsonl')!r});"
        f"control = parse_controls([{str(CHECKPOINTS / 'frozen_dfa_s42.pt.log.jsonl')!r}]).choose('dfa', 42);"
        "assert log.report(control).fired == 'abd';"
        "print(sorted({'torch', 'numpy', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
