"""What a reader of a report must know beside the diagnostics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .chance import at_chance
from .diagnostics.depth_utility import draws_remark, idle_remark
from .diagnostics.direction_drift import DirectionDrift, class_mix
from .diagnostics.frozen_margin import FrozenMargin, doubts_about
from .names import one_line
from .scale import scaled_up, spread_growth
from .wording import count, fraction

if TYPE_CHECKING:
    from .report import DiagnosticReport

CLAIM_SLACK_PP = 0.5
"""How far a checkpoint's own accuracy may lie from the measured one before the report says so."""


FAR_BELOW_PP = 5.0
"""How far a network may read below a linear readout of its own embedding before guessed inputs are named as a likely cause."""


def remarks_on(report: DiagnosticReport) -> list[str]:
    """Sentences on the log, the accuracy, the precision and the weights."""
    companions, remarks = report.companions, list(report.caveats)
    images = report.accuracy.images if report.accuracy is not None else None
    accuracy = report.headline_acc
    if companions.nonfinite_logits:
        remarks.append(f"the logits are not finite for {count(companions.nonfinite_logits, 'image')}, which count as errors")
    elif accuracy is not None and (guess := at_chance(accuracy, companions, images)) is not None:
        remarks.append(f"accuracy is at chance ({guess.symbol}); an untrained network passes (a) to (c) by construction")
    if DirectionDrift.name in report.diagnostics:
        remarks += filter(None, [class_mix(report)])
    remarks += filter(None, [idle_remark(report), draws_remark(report), spread_growth(report), scaled_up(report)])
    dtype = report.environment.get("dtype")
    if dtype in ("float16", "bfloat16"):
        remarks.append(f"the checkpoint is half precision ({dtype}); it was audited in float32")
    if companions.nonfinite_weights:
        names = ", ".join(companions.nonfinite_weights[:3]) + (" …" if len(companions.nonfinite_weights) > 3 else "")
        remarks.append(f"{count(len(companions.nonfinite_weights), 'weight tensor')} with NaN or inf: {names}")
    claimed = report.claimed_acc
    if claimed is not None and accuracy is not None and 100 * abs(claimed - accuracy) > CLAIM_SLACK_PP:
        remarks.append(
            f"the checkpoint claims accuracy {fraction(claimed)}, but {fraction(accuracy)} was measured{_with(report)}; "
            "check the data and its normalisation (--fa-normalize)"
        )
    compared = FrozenMargin.name in report.diagnostics
    questions = [doubt.text for doubt in doubts_about(report) if doubt.weighs and compared]
    return [*remarks, *([] if report.stream is None else report.stream.remarks()), *_on_inputs(report), *questions]


def on_tensors_aside(names: Sequence[str], most: int = 3) -> list[str]:
    """A sentence on the tensors that were not loaded, where there are any."""
    if not names:
        return []
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return [
        f"{count(len(names), 'tensor')} of feedback or loss that the network lacks, left aside: {', '.join(names[:most])}{more}"
    ]


def on_activation(assumed: str | None) -> list[str]:
    """A sentence on the activation of a rebuilt network, where nobody named it."""
    if assumed is None:
        return []
    said = f"no config names the activation of the network, and tensors do not tell it: {assumed} was taken"
    return [f"{said}; name it as activation in the checkpoint's config, or give the network (--fa-model)"]


def on_other_weights(keys: Sequence[str]) -> list[str]:
    """A sentence on other weights of the same network in its file, where there are any."""
    if not keys:
        return []
    return [f"the file holds other weights of this network too, which were not audited: {', '.join(map(one_line, keys[:3]))}"]


def _with(report: DiagnosticReport) -> str:
    """The normalisations in force, where they are known."""
    if report.inputs is None:
        return ""
    return f" on {report.inputs} (normalisation: {report.inputs.normalisation})"


def _on_inputs(report: DiagnosticReport) -> list[str]:
    """What was assumed of the inputs, and where those of the control are others."""
    inputs, control = report.inputs, report.control
    if inputs is None:
        return []
    remarks = list(inputs.remarks())
    probes, accuracy = report.probe_accuracies, report.headline_acc
    if inputs.assumed and probes and accuracy is not None and 100 * (probes[0] - accuracy) > FAR_BELOW_PP:
        remarks.append(
            f"the network reads {fraction(accuracy)} where a linear readout of its embedding reads {fraction(probes[0])}: it "
            "looks so where inputs are normalised otherwise than in training, and nothing here says how they were"
        )
    if control is not None and control.inputs is not None and control.inputs.normalisation != inputs.normalisation:
        remarks.append(
            f"its control {control.source} was evaluated on other inputs: {control.inputs} (normalisation: "
            f"{control.inputs.normalisation}, here {inputs.normalisation})"
        )
    return remarks
