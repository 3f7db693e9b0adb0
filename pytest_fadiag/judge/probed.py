"""What a report has of its probes: the numbers of (e) under the names by which people and files know them."""

from __future__ import annotations

from functools import cached_property
from typing import TypeVar

from .depth import Depth
from .observers import DEPTH, ObserverSpec

Result = TypeVar("Result")


class Probed:
    """A report, as far as probes were read for it."""

    def observed(self, observer: ObserverSpec[Result]) -> Result | None:
        """What an observer saw."""
        raise NotImplementedError

    @cached_property
    def depth(self) -> Depth | None:
        """What linear probes read along the stream, and of blocks drawn anew; ``None`` where nobody looked."""
        return self.observed(DEPTH)

    @property
    def probe_accuracies(self) -> tuple[float, ...] | None:
        """What a linear probe reads at h_0 … h_L, as fractions; ``None`` where it was not measured."""
        return self._probed.probes if self._probed else None

    @property
    def null_probe_accuracies(self) -> tuple[float, ...] | None:
        """The same with blocks drawn anew, the mean of the draws; ``None`` where there is no null."""
        return self._probed.null_probes if self._probed and self._probed.null else None

    @property
    def depth_null_pp(self) -> float | None:
        """What a probe gains from h_0 to h_L with blocks drawn anew, in percentage points."""
        return self._probed.null_pp if self._probed else None

    @property
    def depth_utility_pp(self) -> float | None:
        """What a probe gains from h_0 to h_L beyond what it gains by chance, in percentage points."""
        return self._probed.utility_pp if self._probed else None

    @property
    def depth_interval_pp(self) -> tuple[float, float] | None:
        """The 95 % interval of the depth utility, paired over the images; without a null that of the gain."""
        return self._probed.interval if self._probed else None

    @property
    def block_change(self) -> tuple[float, ...] | None:
        """The median ‖f_l‖/‖h_l‖ of every block, where probes were read."""
        return self._probed.change if self._probed else None

    @property
    def idle_blocks(self) -> tuple[int, ...] | None:
        """The blocks, counted from 0, that add nothing to what a probe reads; ``None`` where it was not measured."""
        return self._probed.idle if self._probed else None

    @property
    def _probed(self) -> Depth | None:
        return None if self.depth is None or self.depth.problem else self.depth
