"""What one training run is: everything that decides its result, and where the result goes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Settings:
    """One run; two runs with equal settings end in the same bits on one machine."""

    method: str
    data: str
    out: Path
    seed: int = 42
    epochs: int = 15
    lr: float = 1e-3
    wd: float = 0.01
    batch: int = 128
    d: int = 256
    blocks: int = 4
    mlp_ratio: float = 4.0
    activation: str = "gelu"
    out_ln: bool = True
    lam: float = 0.0
    normalize_credit: bool = True
    beta: float = 0.003
    frozen: bool = False
    shallow: bool = False
    augment: bool = False
    device: str = "cpu"
    log_every: int = 1
    guard: str = ""

    @property
    def name(self) -> str:
        """The method as the audit table names it: DFA with a penalty is a method of its own."""
        return f"{self.method}-lam" if self.lam > 0 else self.method

    def decisive(self) -> dict[str, Any]:
        """What a resumed run must share with the interrupted one."""
        return {
            key: value
            for key, value in asdict(self).items()
            if key not in ("out", "log_every", "guard")
        }
