"""Reports, rows and margins from plain numbers: no network, no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from pytest_fadiag.judge.control import Control
from pytest_fadiag.judge.margins import Interval
from pytest_fadiag.judge.records import Credit, Depth, Epoch, LinearReadout, Log, Score
from pytest_fadiag.judge.report import Report
from pytest_fadiag.judge.seed_margins import SeedMargin

if TYPE_CHECKING:
    from pytest_fadiag.show.audit import Margin, Row

BP = Report(
    method_name="bp",
    residual_norms=(255.0, 226.0, 211.0, 205.0, 203.0),
    bp_grad_norms=(4e-4,) * 5,
    stability_layer=2,
    cross_batch_stability=0.099,
    headline_acc=0.609,
    frozen_baseline_acc=0.349,
)
"""The published network trained by backpropagation: nothing fires."""
PENALISED = Report(
    method_name="dfa-lam",
    residual_norms=(9.0, None, None, None, 4e4),
    bp_grad_norms=(None, None, 1e-6, None, None),
    stability_layer=2,
    headline_acc=0.363,
    frozen_baseline_acc=0.349,
    log=Log(gradient_batch=128),
)
"""The published log of a penalised run: h_0 and h_L alone, a proxy for ‖g_L‖, and (d) fires."""
ENVIRONMENT = {
    "torch": "2.13.0",
    "device": "cpu",
    "dtype": "float32",
    "threads": 1,
    "tf32": False,
    "data_sha256": "ab" * 32,
}


def report(base: Report = BP, /, **changes: Any) -> Report:
    """A report with some fields changed."""
    return base.replace(**changes)


def audited(base: Report, method: str, seed: int | None, **changes: Any) -> Report:
    """A report of one seed of a method, with a control of its own and an environment."""
    own: dict[str, Any] = {
        "method_name": method,
        "seed": seed,
        "checkpoint": f"{method}_s{seed}.pt",
        "control": Control(Score(0.76, 10_000), f"frozen_{method}_s{seed}.pt", method, seed),
        "environment": {
            **ENVIRONMENT,
            "checkpoint_sha256": f"{method}{seed}".encode().hex().ljust(64, "0"),
        },
    }
    if base.headline_acc is not None and base.log is None:
        own["score"] = Score(base.headline_acc, 10_000)
    if "headline_acc" in changes:
        own.pop("score", None)
    if "frozen_baseline_acc" in changes:
        del own["control"]
    return base.replace(**{**own, **changes})


def exploded(method: str = "dfa", seed: int | None = 42, **changes: Any) -> Report:
    """A network whose stream explodes in its first block: (a), (b) and (d) fire."""
    numbers = report(
        residual_norms=(6e3, 4e6, 9e6, 1e7, 1.5e7),
        bp_grad_norms=(3e-6, 4e-8, 4e-8, 4e-8, 4e-8),
        cross_batch_stability=-0.02,
        headline_acc=0.653,
    )
    return audited(numbers, method, seed, **changes)


def healthy(method: str = "bp", seed: int | None = 42, **changes: Any) -> Report:
    """A network of which nothing fires."""
    numbers = report(
        residual_norms=(35.0, 40.0, 45.0, 52.0, 66.0),
        bp_grad_norms=(9e-6, 8e-6, 7e-6, 5e-6, 4e-6),
        cross_batch_stability=0.06,
        headline_acc=0.9,
    )
    return audited(numbers, method, seed, **changes)


def traced(
    method: str, seed: int | None, epochs: int = 30, penalised: bool = False, **changes: Any
) -> Report:
    """A log with every norm of every epoch: the stream explodes in time, unless penalised."""
    shown = []
    for epoch in range(1, epochs + 1):
        size = 50.0 if penalised else 50.0 * 1.5**epoch
        shown.append(
            Epoch(
                epoch=epoch,
                residual_norms=(40.0, size, size, size, 2 * size),
                bp_grad_norms=(*[1e-5] * 4, 1e-5 if penalised else 1e-5 / 1.3**epoch),
                cross_batch_stability=None if penalised else 0.05,
                headline_acc=0.7 if penalised else 0.5 + 0.1 / epoch,
            )
        )
    final = ("residual_norms", "bp_grad_norms", "cross_batch_stability", "headline_acc")
    last = {name: getattr(shown[-1], name) for name in final}
    numbers = report(**last, log=Log(epochs=tuple(shown), gradient_batch=128))
    return audited(
        numbers, method, seed, **{"checkpoint": f"{method}_s{seed}.log.jsonl", **changes}
    )


def probed(base: Report, *probes: float, null: float | None = 0.62, **changes: Any) -> Report:
    """The report with (e): linear probes of h_0 … h_L, and that of h_L with random blocks."""
    read = probes or (0.6, 0.7, 0.74, 0.78, 0.8)
    blocks, gain = len(read) - 1, 100 * (read[-1] - max(read[0], null or 0.0))
    depth = Depth(
        probes=read,
        null=() if null is None else ((*[read[0]] * blocks, null),) * 2,
        interval=(gain - 1, gain + 1),
        step_intervals=((0.5, 2.0),) * blocks,
        change=(0.5,) * blocks,
        fitted=5_000,
        read=10_000,
        nonfinite=(0,) * (blocks + 1),
        trained=tuple(range(blocks)),
    )
    asked = dict.fromkeys((*base.diagnostics, "depth-utility"))
    return base.replace(**{"diagnostics": tuple(asked), "depth": depth, **changes})


def floored(base: Report, *bounds: float, readout: float = 0.793, **changes: Any) -> Report:
    """The report with (g): the 95 % interval of network − linear readout, and its middle."""
    low, high = bounds or (6.0, 9.0)
    floor = LinearReadout(
        readout=readout,
        network=round(readout + (low + high) / 200, 9),
        interval=(low, high),
        fitted=5_000,
        read=10_000,
        features=784,
        ridges=(0.01,),
    )
    asked = dict.fromkeys((*base.diagnostics, "linear-floor"))
    return base.replace(**{"diagnostics": tuple(asked), "floor": floor, **changes})


def credited(base: Report, *gamma: float, nudge: float | None = None, **changes: Any) -> Report:
    """The report with (f): Γ at h_1 … h_L against a null of ±0.1; the nudge is Γ unless given."""
    found = gamma or (0.9, 0.8, 0.7, 0.6)
    credit = Credit(
        source="examples.methods:credit",
        sites=tuple(f"h_{site + 1}" for site in range(len(found))),
        gamma=found,
        null_mean=(0.0,) * len(found),
        null_sd=(0.05,) * len(found),
        null_low=(-0.1,) * len(found),
        null_high=(0.1,) * len(found),
        nudge=found if nudge is None else (nudge,) * len(found),
        random_nudge=((-0.02, 0.0, 0.01),) * len(found),
        magnitude=(1.0,) * len(found),
        undefined=(0,) * len(found),
        samples=1_280,
    )
    asked = dict.fromkeys((*base.diagnostics, "credit-alignment"))
    return base.replace(**{"diagnostics": tuple(asked), "credit": credit, **changes})


def row(made: Report, **changes: Any) -> Row:
    """The row of a report, with outcomes as a run leaves them."""
    from pytest_fadiag.show.audit import Outcome, Row

    expected = changes.get("expected") or ""
    outcomes = {
        finding.key: Outcome("skipped")
        if not finding.measured
        else Outcome("passed")
        if not finding.fired
        else Outcome("xfailed" if finding.key in expected else "failed")
        for finding in made.findings
    }
    name = f"runs/{made.method_name}_s{made.seed}.pt" + (".log.jsonl" if made.partial else "")
    own = {
        "checkpoint": name,
        "method": made.method_name,
        "seed": made.seed,
        "report": made,
        "outcomes": outcomes,
    }
    return Row(**{**own, **changes})


def seed_margin(
    margin: float = -10.7, half: float = 0.8, seeds: int = 3, **changes: Any
) -> SeedMargin:
    """A mean margin over seeds, by default one that falls short."""
    short = SeedMargin(
        seeds=seeds,
        images=10_000,
        margin=margin,
        interval=Interval(
            margin - half, margin + half, f"over {seeds} seeds and 10,000 images, paired"
        ),
        minimum=2.0,
        over_seeds=0.1,
        over_images=0.05,
        residual=0.01,
    )
    return msgspec.structs.replace(short, **changes)


def margin(method: str, seeds: int = 3, **changes: Any) -> Margin:
    """The row of a margin over seeds that falls short."""
    from pytest_fadiag.show.audit import Margin, Outcome

    own = {
        "name": method,
        "method": method,
        "partial": False,
        "margin": seed_margin(seeds=seeds),
        "outcome": Outcome("failed"),
        "reason": "",
        "expected": None,
    }
    return Margin(**{**own, **changes})
