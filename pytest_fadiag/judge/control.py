"""The frozen-random (or shallow) control that an audited network is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from .records import Accuracy

UNMARKED = "unmarked"
"""The kind of a control file that neither its name nor its config calls frozen or shallow."""


@dataclass(frozen=True)
class Control:
    """A control's accuracy and where it comes from."""

    accuracy: Accuracy
    source: str = "given as a number"
    method: str | None = None
    seed: int | None = None
    kind: str = "frozen"

    def describe(self, audited_method: str) -> str:
        """The provenance in words; a control trained by another method is said to be one."""
        parts = [self.source]
        if self.kind == UNMARKED:
            parts.append("nothing in its name or config says that its blocks are frozen")
        if self.seed is not None:
            parts.append(f"seed {self.seed}")
        if self.method is not None and self.method != audited_method:
            parts.append(f"control of another method: {self.method}, not {audited_method}")
        return ", ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """The control as plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Control:
        """The control that :meth:`to_dict` wrote."""
        return cls(**{**values, "accuracy": Accuracy(**values["accuracy"])})
