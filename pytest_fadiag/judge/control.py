"""The frozen-random (or shallow) control that an audited network is compared with."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from .config import Plain, plain_config
from .doubts import Doubt, DoubtKind
from .errors import AuditError
from .inputs import StatedInputs
from .names import LONGEST_NAME, as_name
from .ranges import hold
from .records import Accuracy

UNMARKED = "nothing in its name or config says that its blocks are frozen"


class ControlKind(str, enum.Enum):
    """What a control has in place of trained blocks."""

    FROZEN = "frozen"
    SHALLOW = "shallow"
    UNMARKED = "unmarked"
    """A file that neither its name nor its config calls frozen or shallow; it is taken for frozen."""

    def __str__(self) -> str:
        return self.value

    @property
    def words(self) -> str:
        """What the report calls such a control."""
        return "shallow" if self is ControlKind.SHALLOW else "frozen-random"

    @property
    def blocks(self) -> str:
        """What stands in the place of trained blocks."""
        return "no blocks" if self is ControlKind.SHALLOW else "random blocks"


@dataclass(frozen=True)
class Control:
    """A control's accuracy and where it comes from."""

    accuracy: Accuracy
    source: str = "given as a number"
    method: str | None = None
    seed: int | None = None
    kind: ControlKind = ControlKind.FROZEN
    inputs: StatedInputs | None = None
    """What it was evaluated on, where it was evaluated here."""
    doubts: tuple[Doubt, ...] = ()
    """What its file told against it, beside the network that it was compared with."""
    config: Mapping[str, Plain] = field(default_factory=dict, hash=False)
    """What its file says of its training."""
    probes: tuple[float, ...] = ()
    """What a linear probe reads at its h_0 … h_L, where it was evaluated here."""

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "kind", ControlKind(self.kind))
        except ValueError:
            raise AuditError(f"the kind of a control is {', '.join(ControlKind)}, not {self.kind!r}") from None
        hold(self, "probes", high=1)
        object.__setattr__(self, "config", plain_config(self.config))
        object.__setattr__(self, "source", as_name(self.source, "the source of a control", LONGEST_NAME))
        if self.method is not None:
            object.__setattr__(self, "method", as_name(self.method, "the method of a control"))

    @property
    def unmarked(self) -> Doubt | None:
        """That nothing calls it a control; of a log there are no tensors either that would tell."""
        return Doubt(DoubtKind.UNMARKED, self.source) if self.kind is ControlKind.UNMARKED else None

    def other_data(self, audited: str | None) -> Doubt | None:
        """That it was measured on other test data; nothing where the digest of one of the two is not known."""
        own = self.accuracy.data
        if own is None or audited is None or own == audited:
            return None
        return Doubt(DoubtKind.OTHER_DATA, f"SHA-256 {own[:12]}… there and {audited[:12]}… here")

    def another_method(self, audited: str) -> Doubt | None:
        """That it controls another method; nothing where it is a control of the audited one or of none."""
        return None if self.method in (None, audited) else Doubt(DoubtKind.OTHER_METHOD, str(self.method))

    def another_seed(self, audited: int | None) -> Doubt | None:
        """That it is of another seed; nothing where it is of the audited one, or one of the two is not known."""
        same = None in (self.seed, audited) or self.seed == audited
        return None if same else Doubt(DoubtKind.OTHER_SEED, str(self.seed))

    def describe(self, method: str, seed: int | None) -> str:
        """The provenance in words, for a network of this method and seed."""
        another_method, another_seed = self.another_method(method), self.another_seed(seed)
        of_seed = "" if self.seed is None else f"seed {self.seed}"
        parts = [
            self.source,
            UNMARKED if self.kind is ControlKind.UNMARKED else "",
            of_seed if another_seed is None else another_seed.text,
            "" if another_method is None else f"{another_method.text}, not {method}",
        ]
        return ", ".join(filter(None, parts))
