"""Bad input, from a file or from memory: a clear error that says what, where and what to do; or a diagnostic that fires.

What is wrong with the *input* (files, tensors, labels, data, accuracies) is an ``AuditError``. What is wrong with the *network*
(NaN, inf, zero) is a finding: it fires the diagnostic it belongs to and says so, and never passes.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support import clustered, network
from torch import Tensor, nn
from torch.nn import functional as F

from pytest_fadiag import AuditError, DiagnosticReport, ResidualMLP, audit, diagnose, measure
from pytest_fadiag.judge.diagnostics import Cause, CauseKind

X, Y = clustered(300)
DATA = [(X, Y)]


@pytest.fixture
def data(tmp_path: Path) -> str:
    torch.save({"x": X, "y": Y}, tmp_path / "data.pt")
    return str(tmp_path / "data.pt")


@pytest.fixture
def refused(tmp_path: Path, data: str) -> Callable[..., str]:
    """Audit a file with these bytes or this content; gives the text of the error, which names the file."""

    def text(content: Any, name: str = "dfa_s42.pt") -> str:
        path = tmp_path / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        elif content is not None:
            torch.save(content, path)
        with pytest.raises(AuditError) as raised:
            audit(path, data=data)
        assert str(path) in str(raised.value)
        return str(raised.value)

    return text


@pytest.fixture
def saved(tmp_path: Path) -> bytes:
    torch.save({"state_dict": network().state_dict()}, tmp_path / "whole.pt")
    return (tmp_path / "whole.pt").read_bytes()


def changed(change: Callable[[ResidualMLP], object], **shape: Any) -> ResidualMLP:
    model = network(**shape)
    with torch.no_grad():
        change(model)
    return model


def report_on(model: nn.Module, x: Tensor = X, **options: Any) -> DiagnosticReport:
    return diagnose(model=model, eval_batches=[(x, Y)], **options)


def fired(report: DiagnosticReport) -> str:
    return "".join(finding.key for finding in report.findings if finding.fired)


# --- files -----------------------------------------------------------------------------------------------------------


def test_a_missing_file(refused: Callable[..., str]) -> None:
    assert "no such file" in refused(None)


def test_an_empty_file(refused: Callable[..., str]) -> None:
    assert "the file is empty" in refused(b"")


@pytest.mark.parametrize("part", [0.02, 0.3, 0.7, 0.999])
def test_a_truncated_file(part: float, refused: Callable[..., str], saved: bytes) -> None:
    assert "truncated or damaged; copy it again" in refused(saved[: int(len(saved) * part)])


def test_a_flipped_bit(refused: Callable[..., str], saved: bytes) -> None:
    at = saved.index(network().embed.weight.detach().numpy().tobytes()) + 7
    text = refused(saved[:at] + bytes([saved[at] ^ 64]) + saved[at + 1 :])
    assert "damaged: the checksum of whole/data/0 is wrong" in text


def test_a_text_file(refused: Callable[..., str]) -> None:
    assert "this is a text file" in refused(b"method: dfa\nseed: 42\n")


def test_a_directory(tmp_path: Path, data: str) -> None:
    with pytest.raises(AuditError, match="is a directory, not a file"):
        audit(tmp_path, data=data)


class Runs:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.path),)


def test_a_pickle_that_runs_code_on_load(refused: Callable[..., str], tmp_path: Path) -> None:
    trace = Runs(tmp_path / "it-ran")
    text = refused({"state_dict": network().state_dict(), "config": trace})
    assert re.search(r"refused to load \w+\.mkdir: .*a pickle can run code.*--fa-unsafe-load", text)
    assert not trace.path.exists()


def test_a_control_and_data_that_run_code_on_load(tmp_path: Path, data: str) -> None:
    trace, path = Runs(tmp_path / "it-ran"), tmp_path / "dfa_s42.pt"
    torch.save({"state_dict": network().state_dict()}, path)
    torch.save(trace, tmp_path / "trap.pt")
    with pytest.raises(AuditError, match=r"trap.pt: refused to load \w+\.mkdir"):
        audit(path, data=data, frozen=tmp_path / "trap.pt")
    with pytest.raises(AuditError, match=r"trap.pt: refused to load \w+\.mkdir"):
        audit(path, data=str(tmp_path / "trap.pt"))
    assert not trace.path.exists()


# --- tensors ---------------------------------------------------------------------------------------------------------


def test_a_missing_tensor(refused: Callable[..., str]) -> None:
    state = {name: value for name, value in network().state_dict().items() if name != "blocks.2.fc1.weight"}
    assert "missing: blocks.2.fc1.weight [64, 16]" in refused(state)


def test_an_extra_tensor(refused: Callable[..., str]) -> None:
    assert "not in the network: extra [3]" in refused({**network().state_dict(), "extra": torch.zeros(3)})


def test_a_misshaped_tensor(refused: Callable[..., str]) -> None:
    text = refused({**network().state_dict(), "out_head.bias": torch.zeros(6)})
    assert "misshaped: out_head.bias is [6], expected [5]" in text
    assert "--fa-model" in text


def test_a_file_without_tensors(refused: Callable[..., str]) -> None:
    assert "no tensors found; expected a state_dict" in refused({"config": {"method": "dfa"}})


# --- labels and inputs -----------------------------------------------------------------------------------------------


def test_labels_below_0() -> None:
    with pytest.raises(AuditError, match="label -1 is out of range: labels are class indices, from 0 on"):
        diagnose(model=network(), eval_batches=[(X.repeat(4, 1), Y.repeat(4) - 1)])  # enough images for (e)


@pytest.mark.parametrize("label", [5, 2**40])
@pytest.mark.parametrize("at", [3, 299], ids=["in the probe", "behind it"])
def test_a_label_out_of_range(label: int, at: int) -> None:
    y = Y.clone()
    y[at] = label
    with pytest.raises(AuditError, match=f"label {label} is out of range: the network has 5 outputs.*from 0 to 4"):
        measure(network(), [(X, y)])


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (F.one_hot(Y), r"labels have shape \(300, 5\) .*; expected one class index per sample"),
        (Y.float(), r"dtype torch.float32; expected one class index per sample"),
        (Y[:-1], r"inputs of shape \(300, 20\) for 299 labels"),
    ],
)
def test_labels_that_are_no_class_indices(labels: Tensor, message: str) -> None:
    with pytest.raises(AuditError, match=f"evaluation batch 0.*{message}"):
        measure(network(), [(X, labels)])


def test_one_class_only() -> None:
    with pytest.raises(AuditError, match=r"all 300 labels are 2: one class only.*shuffle data that is sorted by class"):
        measure(network(), [(X, torch.full_like(Y, 2))])


@pytest.mark.parametrize("samples", [0, 1, 128, 255])
def test_fewer_than_two_batches(samples: int) -> None:
    with pytest.raises(AuditError, match=f"at least 2 batches of 128 samples; the evaluation data has {samples} samples"):
        measure(network(), [(X[:samples], Y[:samples])])


def test_fewer_than_two_batches_asked_for() -> None:
    with pytest.raises(AuditError, match="at least 2 batches of 128 samples, not 1"):
        measure(network(), DATA, batches=1)


@pytest.mark.parametrize("shape", [(300, 21), (300, 3, 20), (300,)], ids=str)
def test_inputs_of_the_wrong_shape(shape: tuple[int, ...]) -> None:
    sixteen = re.escape(str((16, *shape[1:])))
    with pytest.raises(AuditError, match=rf"the network failed on inputs of shape {sixteen} \(torch.float32\): \w+Error: "):
        measure(network(), [(torch.zeros(shape), Y)])


def test_samples_of_different_shapes() -> None:
    batches = [(X[:100], Y[:100]), (X[100:, :19], Y[100:])]
    with pytest.raises(AuditError, match=r"samples of different shapes, \(20,\) and \(19,\).*one shape"):
        measure(network(), batches)


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        (
            DATA[0],
            r"batch 0 is a Tensor, not a pair \(inputs, labels\) or a dictionary .* pass a list of such: \[\(x, y\), …\]",
        ),
        ([(X, Y, Y)], "batch 0 is a tuple of 3, not a pair"),
        ([(X[:100], Y[:100]), {"x": X, "y": Y}], "batches differ: some hold one tensor, others tensors by name"),
        ([{"x": X[:100], "y": Y[:100]}, (X, Y)], "batches differ: one holds x, another one tensor without a name"),
        ([{"x": X[:100], "y": Y[:100]}, {"x": X, "mask": X, "y": Y}], "batches differ: one holds x, another x, mask"),
        ([{"x": X}], r"batch 0 holds x; expected the inputs .* and the labels as 'labels', 'label', .* or 'y'"),
        ([{"labels": Y}], "batch 0 holds labels; expected the inputs by the names of forward's parameters"),
        ([{"x": X, "mask": X[:1], "y": Y}], r"batch 0: mask has inputs of shape \(1, 20\) for 300 labels"),
        ([{"x": X, "idx": Y, "y": Y}], r"hold 'idx', which the network's forward does not take \(x, return_hidden\)"),
        ([("x", "y")], "batch 0 holds str and str; expected tensors"),
        (X, "evaluation batches are Tensor; expected a list of pairs"),
        (None, "evaluation batches are NoneType"),
        ([], "the evaluation data has 0 samples"),
    ],
)
def test_batches_that_are_none(batches: Any, message: str) -> None:
    with pytest.raises(AuditError, match=message):
        measure(network(), batches)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("at", [3, 299], ids=["in the probe", "behind it"])
def test_nan_or_inf_in_the_inputs_is_the_fault_of_the_data(value: float, at: int) -> None:
    x = X.clone()
    x[at, :2] = value
    with pytest.raises(AuditError, match=r"2 input values NaN or inf; the evaluation data is broken, not the network"):
        measure(network(), [(x, Y)])


# --- networks that are broken fire -----------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("embed.weight", "abcd"),
        ("blocks.1.fc1.weight", "abcd"),
        ("blocks.3.fc2.bias", "abcd"),
        ("out_ln.weight", "bcd"),
        ("out_head.weight", "bcd"),
    ],
)
def test_nan_or_inf_in_the_weights(name: str, keys: str, value: float) -> None:
    model = changed(lambda net: net.get_parameter(name).view(-1).narrow(0, 0, 1).fill_(value))
    report = report_on(model)
    assert fired(report) == keys
    assert all(Cause(CauseKind.NON_FINITE) in finding.causes for finding in report.findings if finding.fired)
    assert f"1 weight tensor with NaN or inf: {name}" in str(report)


def test_a_stream_that_overflows() -> None:
    report = report_on(changed(lambda net: net.blocks[1].fc2.weight.fill_(1e38)))
    assert "residual stream is not finite (first at layer 2, 256 samples)" in str(report)
    assert report.residual_stream_exploded
    assert not report.companions.nonfinite_weights


def test_one_sample_in_which_the_stream_overflows_is_not_hidden_by_the_median() -> None:
    x = X.clone()
    x[17] = 1e38
    report = report_on(changed(lambda net: net.embed.weight.mul_(10)), x)
    assert math.isfinite(report.residual_norms[-1])
    assert "residual stream is not finite (first at layer 0, 1 sample)" in str(report)
    assert report.residual_stream_exploded


def test_a_gradient_that_is_not_finite_although_the_stream_is() -> None:
    class Rooted(ResidualMLP):
        """Adds a square root, which is finite at 0 while its derivative is not."""

        def forward(self, x: Tensor, return_hidden: bool = False) -> Tensor | tuple[Tensor, list[Tensor]]:
            h = F.relu(self.embed(x))
            hidden = [h, h + torch.sqrt(h)]
            logits: Tensor = self.out_head(hidden[-1])
            return (logits, hidden) if return_hidden else logits

    report = report_on(Rooted(20, 16, 0, 5))
    assert fired(report) == "bc"
    assert "BP gradient is not finite (first at layer 0" in str(report)


def test_logits_that_are_not_finite() -> None:
    report = report_on(changed(lambda net: net.out_head.weight.fill_(3e38), out_ln=False))
    assert report.finding("d").fired
    assert re.search(r"logits are not finite \(\d+ images\)", str(report))
    assert not report.residual_stream_exploded


def test_all_zero_weights() -> None:
    report = report_on(changed(lambda net: [parameter.zero_() for parameter in net.parameters()]))
    assert fired(report) == "abc"
    text = str(report)
    assert "residual stream is all zero" in text
    assert "‖g_L‖ is exactly 0" in text
    assert "cross-batch cosine is undefined" in text


def test_a_head_of_zeros_gives_no_gradient() -> None:
    report = report_on(changed(lambda net: net.out_head.weight.zero_()))
    assert fired(report) == "bc"


# --- not bad, only unusual -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_measured_in_float32_and_said(dtype: torch.dtype) -> None:
    report = report_on(network().to(dtype))
    rounded = report_on(network().to(dtype).float())
    assert report.bp_grad_norms == rounded.bp_grad_norms
    assert f"half precision ({str(dtype).removeprefix('torch.')}); it was audited in float32" in str(report)


def test_a_model_in_train_mode_is_measured_in_eval_mode_and_given_back() -> None:
    layers = (nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16), nn.Dropout(0.5)) for _ in range(2))
    model = nn.Sequential(nn.Linear(20, 16), *layers, nn.Linear(16, 5))
    training = measure(model.train(), DATA)
    assert model.training
    assert training == measure(model.eval(), DATA)


def test_parameters_that_do_not_require_grad() -> None:
    frozen = network().requires_grad_(False)
    assert measure(frozen, DATA) == measure(network(), DATA)
    assert not any(parameter.requires_grad for parameter in frozen.parameters())


@pytest.mark.parametrize("value", [34.9, 100, 1.5])
@pytest.mark.parametrize("field", ["headline_acc", "frozen_baseline_acc"])
def test_an_accuracy_of_34_9(field: str, value: float) -> None:
    with pytest.raises(AuditError, match=f"accuracy is {value:g}, but accuracies are fractions.*did you pass a percentage"):
        diagnose(model=network(), eval_batches=DATA, **{field: value})


@pytest.mark.parametrize("value", [-0.1, 101, math.nan, "high"])
def test_an_accuracy_that_is_no_fraction(value: Any) -> None:
    with pytest.raises(AuditError, match=r"accuracy must be a number in \[0, 1\], not "):
        diagnose(model=network(), eval_batches=DATA, headline_acc=value)


# --- losses ----------------------------------------------------------------------------------------------------------


def test_a_loss_that_is_not_cross_entropy_is_differentiated_as_it_is() -> None:
    def squared(logits: Tensor, y: Tensor) -> Tensor:
        return (logits - F.one_hot(y, 5)).square().sum(1)

    model = network().double()
    measured = measure(model, DATA, loss=squared)
    h = model.embed(X[:256].double()).detach().requires_grad_()
    logits = model.out_head(model.out_ln(_blocks(model, h)))
    (gradient,) = torch.autograd.grad(squared(logits, Y[:256]).sum(), h)
    assert measured.bp_grad_norms[0] == pytest.approx(gradient.norm(dim=1).quantile(0.5).item() / 128, rel=1e-9)


def _blocks(model: ResidualMLP, h: Tensor) -> Tensor:
    for block in model.blocks:
        h = h + block(h)
    return h


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (
            F.cross_entropy,
            r"the loss returned shape \(\) for 128 samples; it must return one number per sample \(reduction='none'",
        ),
        (lambda logits, y: logits - y[:, None], r"shape \(128, 5\) for 128 samples"),
        (lambda logits, y: torch.zeros(len(y), requires_grad=True), "no gradient of the loss reaches"),
    ],
    ids=["mean", "per output", "constant"],
)
def test_a_loss_that_cannot_be_used(loss: Callable[[Tensor, Tensor], Tensor], message: str) -> None:
    with pytest.raises(AuditError, match=message):
        measure(network(), DATA, loss=loss)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda logits, y: 1 / 0, r"the loss failed on logits \(128, 5\): ZeroDivisionError: division by zero"),
        (lambda logits, y: F.cross_entropy(logits[:, :2], y, reduction="none"), "the loss failed on logits .*IndexError"),
        (lambda logits, y: None, "the loss returned NoneType for 128 samples; it must return one number per sample"),
        (lambda logits, y: logits.detach().sum(1), "the loss cannot be differentiated"),
        (lambda logits, y: y, "the loss cannot be differentiated"),
    ],
    ids=["raises", "of fewer classes", "nothing", "detached", "labels"],
)
def test_a_loss_that_fails(loss: Callable[[Tensor, Tensor], Tensor], message: str) -> None:
    with pytest.raises(AuditError, match=message):
        measure(network(), DATA, loss=loss)


# --- networks --------------------------------------------------------------------------------------------------------


def test_something_that_is_no_network() -> None:
    with pytest.raises(AuditError, match=r"the model is dict, not a torch.nn.Module"):
        measure(dict(network().state_dict()), DATA)  # type: ignore[arg-type]


def test_a_block_that_the_logits_do_not_depend_on_is_none_of_the_stream() -> None:
    class Forgets(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = network(blocks=3)

        def forward(self, x: Tensor) -> Tensor:
            first, second, third = self.net.blocks
            h = self.net.embed(x)
            f = first(h)
            second(h + 0)
            h = h + f
            logits: Tensor = self.net.out_head(h + third(h))
            return logits

    assert len(measure(Forgets(), DATA).residual_norms) == 3  # h, h + f and the sum behind it


def test_a_network_that_writes_to_its_input_leaves_the_callers_data_as_they_were() -> None:
    class Centres(Answers):
        def forward(self, x: Tensor) -> Any:
            return super().forward(x.sub_(1))

    x = X.clone()
    measure(Centres(lambda logits: logits), [(x, Y)])
    assert torch.equal(x, X)


def test_a_network_without_blocks() -> None:
    with pytest.raises(AuditError, match="the network has no blocks"):
        measure(network(blocks=0), DATA)


def test_a_network_of_one_block_is_measured() -> None:
    assert len(measure(network(blocks=1), DATA).residual_norms) == 2


class Answers(nn.Module):
    """A network that answers with something made of its logits."""

    def __init__(self, answer: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.net, self.answer = network(), answer

    def forward(self, x: Tensor) -> Any:
        return self.answer(self.net(x))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda logits: logits.argmax(1), r"returned logits of shape \(3,\) for 3 samples; expected \[3, classes\]"),
        (lambda logits: logits[:1], r"returned logits of shape \(1, 5\) for 3 samples"),
        (lambda logits: {"loss": logits.mean()}, "returned dict, which holds no logits; let it return a tensor"),
        (lambda logits: None, "returned NoneType, which holds no logits"),
    ],
    ids=["classes", "one row", "a dictionary", "nothing"],
)
def test_a_network_that_returns_no_logits(answer: Callable[[Tensor], Any], message: str) -> None:
    with pytest.raises(AuditError, match=message):
        measure(Answers(answer), DATA)


@pytest.mark.parametrize("answer", [lambda logits: {"logits": logits}, lambda logits: (logits, None)], ids=["dict", "tuple"])
def test_logits_beside_other_things_are_found(answer: Callable[[Tensor], Any]) -> None:
    assert measure(Answers(answer), DATA).accuracy == measure(network(), DATA).accuracy


def test_a_network_that_raises() -> None:
    def fail(logits: Tensor) -> Tensor:
        raise ValueError("no attention mask")

    with pytest.raises(AuditError, match=r"the network failed on inputs of shape .*ValueError: no attention mask"):
        measure(Answers(fail), DATA)


def test_a_network_that_computes_without_gradients() -> None:
    class Inert(ResidualMLP):
        @torch.no_grad()
        def forward(self, x: Tensor, return_hidden: bool = False) -> Tensor | tuple[Tensor, list[Tensor]]:
            return super().forward(x, return_hidden)

    reference = measure(Inert(20, 16, 3, 5), DATA).reference
    assert reference is not None
    assert "no_grad in the network (Inert) cannot be undone" in reference.problem
