"""What a reader of a report must know apart from the diagnostics."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from .control import guesses
from .diagnostics.base import Report
from .records import Score
from .words import and_more, fraction, limit, one_line, plural, sig

CLAIM_SLACK_PP = 0.5
"""How far a checkpoint's own accuracy may lie from the measured one before the report says so.

On few images it may lie two standard errors off: those of the claim may be others.
"""
FAR_BELOW_PP = 10.0
"""How far accuracy may lie below a linear probe of h_L before the inputs are a likely cause."""
UNBIASED = 0.10
"""Below this ‖mean e‖/mean‖e‖ under another loss, a network was probably trained by it."""
BIASED = 0.3
"""Unless it is below this under the assumed one too: a confident network has little of either."""

LOOSE = 0.5
"""Below this rank correlation of secants, gradients of a trace fit its states loosely."""
AUDIT_ITSELF = "audit the network itself: a checkpoint, or pytest_fadiag.jax.module(layers)"


def is_loose(report: Report) -> bool:
    """Whether the gradients of a trace fit its states no more than loosely."""
    return report.secants is not None and report.secants < LOOSE


def remarks_on(report: Report) -> Iterator[str]:
    """Sentences on log, accuracy, loss, weights, inputs and twin, then those of the diagnostics."""
    yield from report.caveats
    yield from _on_accuracy(report)
    yield from _on_loss(report)
    if is_loose(report):
        yield (
            f"gradients fit their states loosely (rank correlation of secants "
            f"{report.secants:.2f} < {limit(LOOSE)}): the network is saturated, or states and "
            "gradients are not of the same place"
        )
    yield from _on_weights(report)
    yield from _on_inputs(report)
    if report.twin and report.twin.is_itself:
        yield "its own BP twin: its config or --fa-bp says that BP trained it"
    for diagnostic in report.asked:
        yield from diagnostic.remarks(report)


def tensors_aside(names: Sequence[str]) -> str:
    """On the tensors of a checkpoint that the network lacks."""
    return f"ignored tensors of feedback or loss that the network lacks: {and_more(names)}"


def tensors_not_loaded(names: Sequence[str]) -> str:
    """On the tensors of a network that the checkpoint lacks."""
    return f"tensors of feedback or loss are not in the checkpoint: {and_more(names)}"


def inputs_flattened() -> str:
    """On inputs that reach the network in another shape than the data has."""
    return "inputs are flattened, since the first layer takes a whole sample; --fa-forward says how"


def activation_assumed(name: str) -> str:
    """On the activation of a network that was rebuilt from shapes alone."""
    return (
        f"activation not recorded; assumed {name}. Name it as `activation` in the config, or give "
        "--fa-model"
    )


def loss_differs(named: str, used: str) -> str:
    """On a loss that is not the one of the checkpoint's config."""
    named = one_line(named[:80])
    return f"the checkpoint's config names the loss {named!r}; {used} was used (see --fa-loss)"


def _on_accuracy(report: Report) -> Iterator[str]:
    """Name outputs that are not finite, else an accuracy at chance."""
    broken = report.nonfinite_outputs
    if broken:
        yield f"outputs are not finite for {plural(broken, report.unit)}, which count as errors"
        return
    if guess := _chance_reached(report):
        yield (
            f"{report.score_name} is at chance ({guess}); an untrained network passes (a) to (c)"
        )


def _chance_reached(report: Report) -> str:
    """The way of guessing that is as good as the network; empty where there is none."""
    if report.headline_acc is None:
        return ""
    score = report.score or Score(report.headline_acc)
    for guess in guesses(report, score, score.images):
        above = guess.above
        if report.task != "regression":
            above = abs(above)
        if above <= guess.slack:
            return guess.how
    return ""


def likely_loss(report: Report) -> str:
    """The loss under which outputs are not biased, where they are under the assumed one."""
    if not report.loss_assumed or report.loss_bias.get(report.loss, 0.0) <= BIASED:
        return ""
    loss, bias = min(report.loss_bias.items(), key=lambda item: item[1])
    return loss if bias < UNBIASED else ""


def _on_loss(report: Report) -> Iterator[str]:
    """Name the loss that the network was probably trained by."""
    if loss := likely_loss(report):
        yield (
            f"looks trained by {loss}: under it the output error has a bias of "
            f"{sig(report.loss_bias[loss])} < {limit(UNBIASED)}; name the loss with --fa-loss"
        )


def _on_weights(report: Report) -> Iterator[str]:
    """Name half precision, broken weights, and named blocks that hold few of the weights."""
    dtype = report.environment.get("dtype")
    if dtype in ("float16", "bfloat16"):
        yield f"the checkpoint is half precision ({dtype}); it was audited in float32"
    if report.nonfinite_weights:
        yield f"weights with NaN or inf: {and_more(report.nonfinite_weights)}"
    stream = report.stream
    if stream and stream.covered is not None:
        yield (
            f"the named blocks hold {100 * stream.covered:.2g} % of the weights between embedding "
            "and head; check that --fa-stream names all of them"
        )


def _on_inputs(report: Report) -> Iterator[str]:
    """Name assumed inputs, an accuracy that is not the claimed one, and a control with others."""
    inputs = report.inputs
    if inputs:
        yield from inputs.remarks
    if targets := report.environment.get("targets"):
        yield str(targets)
    yield from _on_claim(report)
    network = report.depth.network if report.depth else None
    probes = report.probe_accuracies
    if network is not None and probes and 100 * (probes[-1] - network) >= FAR_BELOW_PP:
        yield (
            f"{report.probe_score} {fraction(network)} is far below a linear probe of h_L "
            f"({fraction(probes[-1])}): inputs or targets are not as in training (units, "
            "--fa-normalize), or the head is undertrained"
        )
    control = report.control.inputs if report.control else None
    if inputs and control and control.normalisation != inputs.normalisation:
        yield (
            f"the control was evaluated on other inputs: {control} (normalisation: "
            f"{control.normalisation}, here {inputs.normalisation})"
        )


def _on_claim(report: Report) -> Iterator[str]:
    """Name a claimed accuracy that the measured one is far from."""
    claimed = report.claimed_acc
    accuracy = report.headline_acc
    if claimed is None or accuracy is None:
        return
    images = report.score.images if report.score else None
    variance = accuracy * (1 - accuracy) / images if images else 0.0  # R² may be negative
    slack = max(CLAIM_SLACK_PP / 100, 2 * math.sqrt(max(variance, 0.0)))
    if abs(claimed - accuracy) > slack:
        inputs = report.inputs
        on = f" on {inputs} (normalisation: {inputs.normalisation})" if inputs else ""
        yield (
            f"{report.score_name} {fraction(claimed)} is claimed, but {fraction(accuracy)} was "
            f"measured{on}; check the data and its normalisation (--fa-normalize)"
        )
