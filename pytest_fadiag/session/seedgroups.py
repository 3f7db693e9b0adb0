"""Which checkpoints are seeds of one method, told from their names alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from ..judge.wording import as_log
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


def grouped(targets: Iterable[Target]) -> list[Target]:
    """The targets, each with its group: a method with two or more seeds, in each folder if its seeds occur in several.

    A group is told among everything that a run names, so that a part of it and the merge of all parts have the same groups.
    """
    targets = list(targets)
    by_method: dict[tuple[str, bool], list[Target]] = {}
    for target in targets:
        method, seed = target.named
        if seed is not None and not target.missing:
            by_method.setdefault((method, target.partial), []).append(target)
    names: dict[str, str] = {}
    for (method, partial), found in by_method.items():
        if _distinct(found):
            names |= {target.path: as_log(method, partial) for target in found}
            continue
        by_folder: dict[str, list[Target]] = {}
        for target in found:
            by_folder.setdefault(str(PurePosixPath(target.id).parent), []).append(target)
        for folder, there in by_folder.items():
            if _distinct(there):
                names |= {target.path: as_log(f"{folder}/{method}", partial) for target in there}
    sizes = [plain(name) for name in names.values()]
    fitting = {path: plain(name) for path, name in names.items() if sizes.count(plain(name)) > 1}
    return [replace(target, group=fitting.get(target.path)) for target in targets]


def seed_groups(targets: Sequence[Target]) -> list[SeedGroup]:
    """The groups with two or more members among these targets."""
    by_name: dict[str, list[Target]] = {}
    for target in targets:
        if target.group is not None and not target.missing:
            by_name.setdefault(target.group, []).append(target)
    groups = [SeedGroup(name, found[0].named[0], tuple(found)) for name, found in sorted(by_name.items())]
    return [group for group in groups if len(group.targets) > 1]


def _distinct(targets: Sequence[Target]) -> bool:
    return len({target.named[1] for target in targets}) == len(targets)
