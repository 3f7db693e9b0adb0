"""Which checkpoints are seeds of one method, told from their names alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from .targets import Target, plain

SEED_MARGIN = "seed-margin"
"""The name of the test of a method over its seeds."""


@dataclass(frozen=True)
class SeedGroup:
    """The seeds of one method, and the name under which their margin is tested."""

    name: str
    method: str
    targets: tuple[Target, ...]

    @property
    def partial(self) -> bool:
        """Whether these are logs."""
        return self.targets[0].partial


def seed_groups(targets: Sequence[Target]) -> list[SeedGroup]:
    """The methods with two or more seeds; a method whose seeds occur in several folders has a group in each of them."""
    by_method: dict[tuple[str, bool], list[Target]] = {}
    for target in targets:
        method, seed = target.named
        if seed is not None and not target.missing:
            by_method.setdefault((method, target.partial), []).append(target)
    groups: list[SeedGroup] = []
    for (method, partial), found in sorted(by_method.items()):
        suffix = " (log)" if partial else ""
        if _distinct(found):
            groups.append(SeedGroup(plain(f"{method}{suffix}"), method, tuple(found)))
            continue
        by_folder: dict[str, list[Target]] = {}
        for target in found:
            by_folder.setdefault(str(PurePosixPath(target.id).parent), []).append(target)
        for folder, there in by_folder.items():
            if _distinct(there):
                groups.append(SeedGroup(plain(f"{folder}/{method}{suffix}"), method, tuple(there)))
    return [group for group in groups if len(group.targets) > 1]


def _distinct(targets: Sequence[Target]) -> bool:
    return len({target.named[1] for target in targets}) == len(targets)
