"""Traces: the numbers of the network that they were dumped from, and what a wrong dump is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support import (
    changed,
    clustered,
    fitted,
    in_batches,
    network,
    rings,
    states_and_head,
    trained,
    trained_on_rings,
)
from torch import Tensor, nn
from torch.nn import functional as F

from pytest_fadiag import AuditError, audit, load_data, save_trace
from pytest_fadiag.cli import words_for_pytest
from pytest_fadiag.load.checkpoint import load_checkpoint
from pytest_fadiag.load.network import build_network
from pytest_fadiag.load.traces import checked, fields_of, read_trace
from pytest_fadiag.measure.credit import CreditSource
from pytest_fadiag.measure.run import NetworkSource, measure
from pytest_fadiag.measure.traces import TraceSource, measure_trace
from pytest_fadiag.show.audit import Audit, Row
from pytest_fadiag.show.words import headline

FIXTURES = Path(__file__).parents[2] / "fixtures"
METRICS = ("states", "gradients", "directions", "output-error", "accuracy", "floor")
Trace = dict[str, Any]


def entropy(outputs: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(outputs, y, reduction="sum")


def dumped(
    model: nn.Module, x: Tensor, y: Tensor, loss: Callable[[Tensor, Tensor], Tensor] = entropy
) -> Trace:
    """A trace as anyone dumps it: one backward pass of the summed loss."""
    for parameter in model.parameters():
        parameter.requires_grad_(True)
    states, outputs = states_and_head(model, x)
    *g, e = torch.autograd.grad(loss(outputs, y), [*states, outputs])
    named = {f"h_{n}": own.detach() for n, own in enumerate(states)}
    named |= {f"g_{n}": own for n, own in enumerate(g)}
    tensors = {"outputs": outputs.detach(), "y": y, "e": e, **named, "x": x}
    return {name: own.numpy() for name, own in tensors.items()}


@pytest.mark.parametrize("name", ["bp_s42", "dfa_s42"])
def test_a_trace_of_a_shipped_checkpoint_gives_its_numbers(name: str) -> None:
    checkpoint = load_checkpoint(FIXTURES / "checkpoints" / f"{name}.pt")
    data, model = load_data(f"fashion-mnist:{FIXTURES}/fashion-mnist"), build_network(checkpoint)
    x, y = ((data.x[:1280].flatten(1) / 255 - 0.286) / 0.353).double(), data.y[:1280]
    model, Bs = model.double().eval(), checkpoint.content.get("Bs") or []
    credit, metrics = (
        CreditSource(checkpoint=checkpoint.content),
        [*METRICS, *["credit"] * bool(Bs)],
    )
    theirs = measure(NetworkSource(model, in_batches(x, y), credit=credit), metrics)
    trace = dumped(model, x, y)
    trace |= {f"a_{n}": trace["e"] @ B.numpy().astype(float).T for n, B in enumerate(Bs, 1)}
    ours, _ = measure_trace(checked(trace), metrics)
    for field in ("residual_norms", "bp_grad_norms", "gradient_per_unit_error"):
        assert getattr(ours, field) == pytest.approx(getattr(theirs, field), rel=1e-6)
    for field in ("cross_batch_stability", "sample_invariance", "output_error_drift"):
        assert getattr(ours, field) == pytest.approx(getattr(theirs, field), abs=1e-6)
    assert ours.score is not None and theirs.score is not None
    assert (ours.score.correct, ours.floor) == (theirs.score.correct, theirs.floor)
    assert ours.trace and ours.reference is None
    if Bs:
        assert ours.credit is not None and theirs.credit is not None
        assert ours.credit.gamma == pytest.approx(theirs.credit.gamma, abs=1e-6)
        assert ours.credit.null_high == pytest.approx(theirs.credit.null_high, abs=1e-5)
        assert all(np.isnan(ours.credit.nudge))


X, Y = clustered(640)
RIGHT = dumped(trained(60), X, Y)
ORDER = np.random.default_rng(0).permutation(640)


def each(kinds: str, change: Callable[[Any], Any]) -> Callable[[Trace], Trace]:
    return lambda d: {n: change(v) if n[:2] in kinds.split() else v for n, v in d.items()}


def without(name: str) -> Callable[[Trace], Trace]:
    return lambda d: {n: v for n, v in d.items() if n != name}


def normalised(h: Any) -> Any:
    return (h - h.mean(1, keepdims=True)) / h.std(1, keepdims=True)


WRONG: dict[str, tuple[Callable[[Trace], Trace], str]] = {
    "order": (each("h_ g_", lambda v: v[ORDER]), "g_0 does not fit h_0 .*another order"),
    "sign of g": (each("g_", lambda v: -v), "g_0 is −.* times .*: g has the other sign"),
    "1/N in g": (each("g_", lambda v: v / 128), "g_0 is .*e-3 times .*mean loss"),
    "1/N in e": (each("e", lambda v: v / 128), r"e is not .*, but 7.8e-3 times it: .* \(1/N\)"),
    "sign of e": (each("e", lambda v: -v), r"\(cosine -1.0000\)"),
    "after LayerNorm": (each("h_", lambda v: normalised(20 * v)), "as by a LayerNorm"),
    "loss": (
        lambda d: dumped(trained(60), X, Y, lambda o, y: (o - F.one_hot(y, 5)).square().sum()),
        "e is not the gradient of the cross-entropy .*the loss is another one",
    ),
    "float16": (each("h_", lambda v: v.astype(np.float16)), "h_0 is float16; dump float32"),
    "missing state": (without("h_2"), "^h_2 missing"),
    "missing gradient": (without("g_4"), "^g_4 missing"),
    "NaN": (each("h_", lambda v: np.where(v == v[5, 0], np.nan, v)), "h_0 is NaN or inf for 1 of"),
    "few rows": (each("h_ g_", lambda v: v[:200]), "200 rows"),
    "shape": (each("g_", lambda v: v[:, :3]), r"g_0 has shape \(640, 3\), expected \(640, 16\)"),
    "y shifted": (each("y", lambda v: np.roll(v, 1)), "y or e belong to other samples"),
    "e of other samples": (each("e", lambda v: np.roll(v, 128, 0)), "belong to other samples"),
    "unknown name": (lambda d: {**d, "H0": d["h_0"]}, "a trace has no array H0"),
    "part of the credit": (lambda d: {**d, "a_2": d["g_2"]}, "^a_1, a_3 and 1 more missing|a_1"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_dump_is_refused_and_told_what_is_probably_wrong(kind: str) -> None:
    change, words = WRONG[kind]
    TraceSource(checked(RIGHT)).check()
    with pytest.raises(AuditError, match=words):
        TraceSource(checked(change(RIGHT))).check()


def saturated(scale: float) -> Trace:
    """A layer of tanh whose gradients are right, and differences of neighbours far from small."""
    draw = np.random.default_rng(0)
    x = torch.tensor(draw.normal(size=(1_280, 3)))
    wide, back, out = (
        torch.tensor(draw.normal(size=size)) for size in ((3, 64), (64, 64), (64, 3))
    )
    h = (x @ wide).requires_grad_()
    after = torch.tanh(scale * h @ back)
    outputs = after @ out / 8
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0.5).long()
    *g, e = torch.autograd.grad(entropy(outputs, y), [h, after, outputs])
    tensors = {"outputs": outputs, "y": y, "e": e, "h_0": h, "h_1": after}
    tensors |= {"g_0": g[0], "g_1": g[1]}
    return {name: tensor.detach().numpy() for name, tensor in tensors.items()}


def test_a_saturated_layer_is_a_doubt_and_no_refusal(tmp_path: Path) -> None:
    trace = saturated(4.0)
    rank = TraceSource(checked(trace)).check()
    assert 0.2 < rank < 0.5
    np.savez(tmp_path / "dfa.npz", **trace)
    report = audit(tmp_path / "dfa.npz")
    assert report.finding("b").passed and report.finding("b").open is not None
    assert f"gradients fit their states loosely (rank correlation of secants {rank:.2f} < 0.5)" in (
        " ".join(report.remarks)
    )
    assert report.verdict.startswith(
        "incomplete: gradient-floor measured against a questioned reference; direction-drift mea"
    )
    assert "audit the network itself" in report.next
    assert TraceSource(checked(saturated(0.01))).check() > 0.9
    with pytest.raises(AuditError, match="does not fit h_0"):
        TraceSource(checked(each("g_", lambda v: np.roll(v, 1, 0))(trace))).check()


def test_other_losses_scale_e_as_they_like_and_change_no_ratio() -> None:
    def halved(outputs: Tensor, y: Tensor) -> Tensor:
        return (outputs - y.unsqueeze(1)).square().sum() / 2

    model, y = fitted(network(classes=1), X, Y, 0), X[:, :3].sum(1)
    trace = dumped(model, X, y, halved)
    ours, _ = measure_trace(checked(trace), ["gradients", "output-error", "accuracy"])
    theirs = measure(NetworkSource(model, in_batches(X, y)), ["gradients", "output-error"])
    assert ours.task == "regression" and ours.loss == "squared error"
    for field in ("bp_grad_norms", "gradient_per_unit_error", "output_error_norm"):
        assert getattr(ours, field) == pytest.approx(getattr(theirs, field), rel=1e-4)


def parts(trace: Trace) -> dict[str, Any]:
    depth = sum(name.startswith("h_") for name in trace)
    lists = {kind: [trace[f"{kind}_{n}"] for n in range(depth)] for kind in "hg"}
    return {name: trace[name] for name in ("outputs", "y", "e", "x")} | lists


def test_the_best_verdict_needs_a_control_and_says_that_the_reference_is_as_given(
    tmp_path: Path,
) -> None:
    x, y = rings(1_280)
    frozen = network(d=24, blocks=3, classes=4)
    frozen.blocks.requires_grad_(False)
    trace = parts(dumped(trained_on_rings(), x, y))
    outputs = fitted(frozen, *rings(3_840, seed=1), 200)(x).detach().numpy()
    save_trace(tmp_path / "ours.npz", **trace, control_outputs=outputs, method="bp", seed=3)
    report = audit(tmp_path / "ours.npz")
    assert (report.method_name, report.seed) == ("bp", 3)
    assert report.frozen_baseline_acc == pytest.approx((outputs.argmax(1) == y.numpy()).mean())
    assert report.margin_interval is not None and "paired" in report.margin_interval.kind
    said = " ".join(str(report).split())
    assert "reference: as given, not proven" in said and "one layer off" in said
    assert report.verdict == "trustworthy (reference as given)"
    rows = Row("a.npz", "bp", 3, report), Row("b.npz", "bp", 4, report)
    assert headline(Audit(rows)) == "2 traces: 2 trustworthy (reference as given)"
    save_trace(tmp_path / "alone.npz", **trace)
    alone = audit(tmp_path / "alone.npz")
    assert alone.verdict.startswith("incomplete: frozen-margin not measured; depth-utility")
    assert "no blocks to re-initialise" in alone.finding("e").headline


def test_without_a_null_a_gain_below_the_minimum_fires(tmp_path: Path) -> None:
    x, y = rings(1_280)
    idle = changed(trained_on_rings(40), lambda own: [b.fc2.weight.mul_(0.01) for b in own.blocks])
    save_trace(tmp_path / "idle.npz", **parts(dumped(idle, x, y)))
    assert audit(tmp_path / "idle.npz").finding("e").fired


def test_a_refused_trace_is_not_written(tmp_path: Path) -> None:
    wrong = parts(WRONG["sign of g"][0](RIGHT))
    with pytest.raises(AuditError, match="other sign"):
        save_trace(tmp_path / "a.npz", **wrong)
    with pytest.raises(AuditError, match=r"ends with \.npz"):
        save_trace(tmp_path / "a.pt", **parts(RIGHT))
    assert not list(tmp_path.iterdir())


def test_safetensors_hold_texts_as_metadata(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    path = tmp_path / "a.safetensors"
    save_file(RIGHT, path, {"method": "dfa", "loss": "ce"})
    assert fields_of(path)["method"] == "dfa" and "h_4" in fields_of(path)
    assert read_trace(path)["loss"] == "ce"
    assert audit(path).method_name == "dfa"


def test_the_command_takes_npz_files_as_traces_and_others_by_the_option() -> None:
    words = words_for_pytest(["a.npz", "--trace", "b.safetensors", "-q"])
    assert words == ["--fa-trace=b.safetensors", "-q", "--fa-trace=a.npz"]


def test_a_trace_is_audited_by_pytest(tmp_path: Path, pytester: pytest.Pytester) -> None:
    credit = [RIGHT[f"g_{n}"] for n in range(1, 5)]
    save_trace(pytester.path / "dfa_s1.npz", **parts(RIGHT), a=credit)
    result = pytester.runpytest("-p", "no:randomly", "-v", "--fa-only", "dfa_s1.npz")
    result.stdout.fnmatch_lines(
        [
            "dfa_s1.npz::residual-growth PASSED*",
            "dfa_s1.npz::frozen-margin SKIPPED*",
            "dfa_s1.npz::credit-alignment PASSED*",
            "*reference: as given, not proven*",
            "~ INCOMPLETE  dfa, seed 1, *",
        ]
    )
