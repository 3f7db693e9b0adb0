"""What a reader of a report must know apart from the diagnostics."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .control import guesses, slack
from .diagnostics.base import Report
from .diagnostics.direction_drift import class_mix
from .diagnostics.residual_growth import compared, growth, largest_growth, steps
from .words import and_more, fraction, limit, one_line, plural, sig

CLAIM_SLACK_PP = 0.5
"""How far a checkpoint's own accuracy may lie from the measured one before the report says so."""
FAR_BELOW_PP = 10.0
"""How far accuracy may lie below a linear probe of h_L before the inputs are a likely cause."""
UNBIASED = 0.10
"""Below this ‖mean e‖/mean‖e‖ under another loss, a network was probably trained by it."""


def remarks_on(report: Report) -> list[str]:
    """Sentences on log, accuracy, classes, scale, precision, weights, inputs and control."""
    broken, weights, stream = report.nonfinite_outputs, report.nonfinite_weights, report.stream
    dtype, asked = report.environment.get("dtype"), report.diagnostics
    accuracy, images = report.headline_acc, report.score.images if report.score else None
    name = report.score_name
    chance = [
        how
        for guess, how in guesses(report)
        if accuracy is not None
        and (accuracy - guess if report.task == "regression" else abs(accuracy - guess))
        <= slack(guess, images)
    ]
    loss, bias = min(report.loss_bias.items(), key=lambda item: item[1], default=("", 1.0))
    remarks = (
        *report.caveats,
        f"outputs are not finite for {plural(broken, report.unit)}, which count as errors"
        if broken
        else "",
        f"{name} is at chance ({chance[0]}); an untrained network passes (a) to (c)"
        if chance and not broken
        else "",
        f"looks trained by {loss}: under it the output error has a bias of {sig(bias)} < "
        f"{limit(UNBIASED)}; name the loss with --fa-loss"
        if report.loss_assumed and bias < UNBIASED
        else "",
        class_mix(report) if "direction-drift" in asked else "",
        _on_depth(report),
        _on_scale(report),
        f"the checkpoint is half precision ({dtype}); it was audited in float32"
        if dtype in ("float16", "bfloat16")
        else "",
        f"weights with NaN or inf: {and_more(weights)}" if weights else "",
        f"the named blocks hold {100 * stream.covered:.2g} % of the weights between embedding and "
        "head; check that --fa-stream names all of them"
        if stream and stream.covered is not None
        else "",
        *_on_inputs(report),
        *(doubt.text for doubt in report.doubts if "frozen-margin" in asked),
    )
    return list(filter(None, remarks))


def tensors_aside(names: Sequence[str]) -> str:
    """On the tensors of a checkpoint that the network lacks."""
    return f"ignored tensors of feedback or loss that the network lacks: {and_more(names)}"


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


def _on_inputs(report: Report) -> list[str]:
    """An accuracy that is not the claimed one, assumed inputs, and a control with other ones."""
    inputs, claimed, probes = report.inputs, report.claimed_acc, report.probe_accuracies
    network = report.depth.network if report.depth else None
    theirs = report.control.inputs if report.control else None
    accuracy = math.nan if report.headline_acc is None else report.headline_acc
    on = f" on {inputs} (normalisation: {inputs.normalisation})" if inputs else ""
    return [
        *(inputs.remarks if inputs else []),
        str(report.environment.get("targets", "")),
        f"{report.score_name} {fraction(claimed)} is claimed, but {fraction(accuracy)} was "
        f"measured{on}; check the data and its normalisation "
        "(--fa-normalize)"
        if claimed is not None and abs(claimed - accuracy) > CLAIM_SLACK_PP / 100
        else "",
        f"{report.probe_score} {fraction(network)} is far below a linear probe of h_L "
        f"({fraction(probes[-1])}): inputs or targets are not as in training (units, "
        "--fa-normalize), or the head is undertrained"
        if network is not None and probes and 100 * (probes[-1] - network) >= FAR_BELOW_PP
        else "",
        f"the control was evaluated on other inputs: {theirs} (normalisation: "
        f"{theirs.normalisation}, here {inputs.normalisation})"
        if inputs and theirs and theirs.normalisation != inputs.normalisation
        else "",
    ]


def _on_depth(report: Report) -> str:
    """Blocks without a part in a gain that passes."""
    depth, finding = report.depth, report.finding("e")
    if depth is None or not finding.passed or len(depth.steps_pp) == 1:
        return ""
    idle = 2 * len(depth.idle) >= len(depth.steps_pp)
    return f"{report.blocks(*depth.idle)}: no measurable gain for a linear probe" if idle else ""


def _on_scale(report: Report) -> str:
    """A stream that explodes in many small steps."""
    norms, most = compared(report), report.thresholds.h_norm_explosion_ratio
    if growth(report) is None or not report.finding("a").passed:
        return ""
    total = largest_growth(norms, "cumulative")
    by = ", ".join(map(sig, steps(norms)))
    said = f"the stream grows by {sig(total)} in all, though no block exceeds {limit(most)}: {by}"
    return said if total > most * most else ""
