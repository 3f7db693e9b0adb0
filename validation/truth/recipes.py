"""What makes a network: architecture, data, learning rule, which parts learn, and what is done to it afterwards."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

BLOCKS = ("trained", "frozen", "first", "identity", "faint", "busy", "untrained")
"""What the blocks learn.

trained    all of them, from the labels
frozen     nothing: they stay as initialised, and the rest is trained (the control of the protocol)
first      block 0 alone; the others stay as initialised
identity   nothing: each returns its input
faint      their inner layers, from the labels; what they add is fixed at a thousandth of its usual size
busy       all of them, from labels dealt out at random, while embedding and head learn from the true ones
untrained  nothing, and the rest neither
"""


@dataclass(frozen=True)
class Recipe:
    """One training; equal recipes give equal networks on one machine."""

    architecture: str = "resmlp"
    d: int = 32
    blocks: int = 4
    activation: str = "gelu"
    out_ln: bool = True
    task: str = "ten"
    seed: int = 0
    method: str = "bp"
    lam: float = 0.0
    learning: str = "trained"
    labels: str = "true"
    """``shuffled``: dealt out at random, for the whole network."""
    optimiser: str = "adamw"
    lr: float = 2e-3
    wd: float = 0.01
    smoothing: float = 0.0
    steps: int = 2400
    batch: int = 128
    initialiser: str = ""
    """What draws the weights of the blocks, of ``INITIALISERS``; else each layer does."""

    @property
    def name(self) -> str:
        """The method as an audit names it."""
        return f"{self.method}-lam" if self.lam else self.method

    def config(self) -> dict[str, Any]:
        """What the checkpoint says of itself."""
        config = {**asdict(self), "method": self.name, "frozen": self.learning == "frozen"}
        if not self.initialiser:
            del config["initialiser"]
        return config
