"""A dozen of them made so small that the test suite trains them in seconds, on half of the shipped split."""

from __future__ import annotations

from dataclasses import replace

from .catalogue import (
    EXPLODED,
    FLOORED,
    HEALTHY,
    MAIN,
    NO_DEPTH,
    ONE_CLASS,
    UNDERCUT,
    Case,
    Network,
    Truth,
)

STOPPED = Truth("undertrained", silent="abc")
"""Healthy, and stopped before its depth helps, as a ResMLP is after 200 steps: (e) may say either."""

R = replace(MAIN["resmlp"], d=16, blocks=2, steps=120, lr=1e-2, batch=64)
C = replace(MAIN["conv"], d=8, blocks=2, steps=80, lr=1e-2, batch=64)
V = replace(MAIN["vit-mean"], d=8, blocks=2, steps=80, lr=2e-2, batch=64)
M = replace(MAIN["mixer"], d=8, blocks=2, steps=80, lr=2e-2, batch=64)
D = replace(R, method="dfa")

SLICE: tuple[tuple[Network, Truth], ...] = (
    (Network("resmlp", R), STOPPED),
    (Network("conv", C), HEALTHY),
    (Network("vit", V), HEALTHY),
    (Network("mixer", M), HEALTHY),
    (Network("resmlp-exploded", R, "resmlp", "exploded"), EXPLODED),
    (Network("vit-exploded", V, "vit", "exploded"), EXPLODED),
    (Network("conv-floored", C, "conv", "floored"), FLOORED),
    (Network("vit-one-class", V, "vit", "one-class"), ONE_CLASS),
    (Network("resmlp-identity", replace(R, learning="identity")), NO_DEPTH),
    (Network("resmlp-busy", replace(R, learning="busy")), NO_DEPTH),
    (Network("mixer-faint", replace(M, learning="faint")), NO_DEPTH),
    (Network("frozen_conv", replace(C, learning="frozen")), NO_DEPTH),
    (Network("frozen_dfa", replace(D, learning="frozen")), NO_DEPTH),
    (Network("dfa", D), UNDERCUT),
)
"""Each network and the truth about it, parents first."""


def networks() -> dict[str, Network]:
    """The files of the slice by their names."""
    return {network.name: network for network, _ in SLICE}


def cases() -> list[Case]:
    """DFA stands beside its frozen control, the others beside none."""
    return [
        Case(net.name, net.name, truth, "frozen_dfa" if net.name == "dfa" else "")
        for net, truth in SLICE
    ]
