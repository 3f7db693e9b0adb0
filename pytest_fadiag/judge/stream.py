"""The residual stream of a network as a report names it: its blocks, the module behind them, and what lies outside."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .errors import AuditError
from .wording import count, listed

MOST_NAMED = 3


@dataclass(frozen=True)
class ResidualStream:
    """Which modules are the blocks between h_0 and h_L."""

    blocks: tuple[str, ...]
    """Their names, in the order in which they run."""
    residual: bool
    """Whether some block leaves its state as it is and adds to it; else the blocks are the layers between first and last."""
    behind: str = ""
    """The module that h_L goes to, where there is one."""
    outside: float | None = None
    """The share of the network's parameters that no block reads."""
    sizes: tuple[int, ...] = ()
    """How many numbers the norm of each state is over: where they differ, growth compares root mean squares."""
    named: str = ""
    """The SPEC that names the blocks, where they were not found."""
    alternatives: tuple[str, ...] = ()
    """Modules that could each be taken for a block, and whose parts were taken instead."""

    def __post_init__(self) -> None:
        if not self.blocks:
            raise AuditError("a stream without blocks is none")
        if self.sizes and (len(self.sizes) != len(self.blocks) + 1 or min(self.sizes) < 1):
            raise AuditError(f"sizes must be {len(self.blocks) + 1} numbers from 1 on, one a state, not {self.sizes!r:.60}")
        if self.outside is not None and not 0 <= self.outside <= 1:
            raise AuditError(f"outside must be a share in [0, 1], not {self.outside!r}")

    def __str__(self) -> str:
        parts = [
            f"{self.ends}{f' → {self.behind}' if self.behind else ''}",
            count(len(self.blocks), "block"),
            "residual" if self.residual else "no residual connections",
            *([] if self.outside is None else [f"{_percent(self.outside)} of the parameters outside"]),
            *([f"named by --fa-stream='{self.named}'"] if self.named else []),
        ]
        return ", ".join(parts)

    @property
    def ends(self) -> str:
        """The first and the last block: blocks.0 … blocks.3."""
        return self.blocks[0] if len(set(self.blocks)) == 1 else f"{self.blocks[0]} … {self.blocks[-1]}"

    def remarks(self) -> Iterator[str]:
        """What else the stream could have been."""
        if self.alternatives:
            shown = list(self.alternatives[:MOST_NAMED])
            if len(self.alternatives) > MOST_NAMED:
                shown.append(f"{len(self.alternatives) - MOST_NAMED} more")
            yield (
                f"the stream was guessed: {listed(shown)} could each be taken for one block; the {len(self.blocks)} blocks "
                "inside and around them were taken"
            )

    def changes_shape(self, states: int) -> bool:
        """Whether the norms of so many states are over different numbers of entries."""
        return len(self.sizes) == states and len(set(self.sizes)) > 1


def _percent(share: float) -> str:
    """A share as a percentage, never 0 % of something nor 100 % of less than all."""
    if share in (0, 1):
        return f"{100 * share:.0f} %"
    percent = 100 * share
    return (
        "< 0.1 %"
        if percent < 0.1
        else "> 99.9 %"
        if percent > 99.9
        else f"{percent:.2g} %"
        if percent < 99
        else f"{percent:.1f} %"
    )
