"""The checkpoints and logs of a run: globs and seeds expanded once, each with a stable id; no file is opened."""

from __future__ import annotations

import enum
import glob
import itertools
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from ..judge.codec import to_plain
from ..judge.errors import AuditError
from ..judge.keys import Keys
from ..load.huggingface import is_network, model_file
from ..load.identity import identify
from ..load.logtables import EVENTS
from ..show.printable import one_line, plain_id
from .options import CHECKPOINTS

SEED_MARGIN = "seed-margin"
"""The name of the test of a method over its seeds."""


class Kind(str, enum.Enum):
    """What a target is: a checkpoint, a training log, or a row of an earlier audit, whose path is its place there."""

    CHECKPOINT = "checkpoint"
    LOG = "log"
    RECORDED = "recorded"


_LOOKS_LIKE = re.compile(r"\.(pt|pth|ckpt|safetensors|bin|pkl)(\.(tar|gz|tgz|zip))?$", re.IGNORECASE)
MOST_LOOKED_AT = 10_000
"""Files below a folder that are looked at for a note: it may be a whole repo."""
SUFFIXES = {Kind.CHECKPOINT: CHECKPOINTS, Kind.LOG: (".json", ".jsonl", ".csv")}


@dataclass(frozen=True)
class Target:
    """One checkpoint, log or recorded row to audit, by its path and the id under which its tests run."""

    path: str
    id: str
    kind: Kind = Kind.CHECKPOINT
    skip: str = ""
    """Why its tests are skipped, such as a file that does not exist where --fa-missing=skip lets it."""
    partial: bool = False
    method: str | None = None
    """Of a recorded row its method; else the file's name tells."""
    seed: int | None = None
    """Of a recorded row its seed, else what {seed} in its path stood for."""
    group: str | None = None
    """The test of the margin over seeds to which it belongs, told among all that a run names."""
    keys: Keys | None = None
    """Of a recorded row the diagnostics that were run; ``None`` for all."""

    @property
    def identity(self) -> tuple[str, int | None]:
        """Method and seed as far as they are told without opening the file."""
        if self.method is not None:
            return self.method, self.seed
        method, seed = identify(Path(self.path))
        return method, seed if self.seed is None else self.seed

    @property
    def file(self) -> Path | None:
        """The file behind it, if there is one on this machine."""
        return None if self.skip or self.kind is Kind.RECORDED else Path(self.path)

    def to_dict(self) -> dict[str, Any]:
        """The target as plain values, for xdist's workers."""
        plain: dict[str, Any] = to_plain(self)
        return plain

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Target:
        """The target that the controller sent."""
        keys = values["keys"]
        return cls(**{**values, "kind": Kind(values["kind"]), "keys": None if keys is None else Keys(keys)})


def expand(
    patterns: Iterable[str],
    base: Path,
    root: Path,
    *,
    seeds: Sequence[int] | None = None,
    missing: str = "error",
    what: str,
    kind: Kind = Kind.CHECKPOINT,
) -> list[Target]:
    """The files behind paths, globs and folders, sorted, with ids; what matches nothing is an error unless it may."""
    seed_by_path: dict[str, int | None] = {}
    absent: set[str] = set()
    for pattern, seed in _seeded(list(patterns), seeds, what):
        files = _files(pattern, base, kind)
        if not files and missing == "error":
            raise AuditError(_nothing(pattern, base, what, kind))
        files = files or [os.path.abspath(base / os.path.expanduser(pattern))]
        for path in files:
            if not os.path.exists(path) and missing == "error":
                raise AuditError(_gone(path, what))
            absent.update([] if os.path.exists(path) else [path])
            seed_by_path.setdefault(path, seed)
    ids = _ids(list(seed_by_path), root)
    targets = [
        Target(
            path,
            ids[path],
            kind,
            skip=f"{kind.value} does not exist: {one_line(path)}" if path in absent else "",
            partial=kind is Kind.LOG,
            seed=seed,
        )
        for path, seed in seed_by_path.items()
    ]
    return sorted(targets, key=lambda target: target.id)


def _seeded(patterns: list[str], seeds: Sequence[int] | None, what: str) -> list[tuple[str, int | None]]:
    """Each pattern with the seed that {seed} stands for in it."""
    if not all(pattern.strip() for pattern in patterns):
        raise AuditError(f"{what}: an empty path; is a variable of your shell unset?")
    templates = [pattern for pattern in patterns if "{seed}" in pattern]
    if templates and not seeds:
        raise AuditError(f"{what} {templates[0]!r} contains {{seed}}, but no seeds are given; add --fa-seeds=42,123,456")
    if seeds and patterns and not templates:
        raise AuditError(f"seeds are given, but {what} {patterns[0]!r} does not contain {{seed}}")
    expanded: list[tuple[str, int | None]] = []
    for pattern in patterns:
        if seeds and "{seed}" in pattern:
            expanded += [(pattern.replace("{seed}", str(seed)), seed) for seed in seeds]
        else:
            expanded.append((pattern, None))
    return expanded


def _files(pattern: str, base: Path, kind: Kind) -> list[str]:
    """The file itself if it exists (so that brackets in its name are no glob), else those of the folder, else of the glob.

    A folder of Hugging Face's is one network. A link to a file that is not there, as of git-annex, is named as any other.
    """
    path = base / os.path.expanduser(pattern)
    try:
        path.exists()
    except OSError as error:  # a name that is too long
        raise AuditError(f"{pattern[:80]}…: {error.strerror}") from None
    if path.is_dir():
        model = _model_in(path, kind)
        files = [file for file in path.iterdir() if _is_of(kind, file) and _is_meant(file)]
        return sorted(map(os.path.abspath, files if model is None else [model]))
    if path.exists():
        return [os.path.abspath(path)]
    matches = [Path(match) for match in glob.glob(str(path), recursive=True)]
    files = [match for match in matches if _is_meant(match) and (kind is not Kind.CHECKPOINT or is_network(match))]
    models = [model for match in matches if match.is_dir() and (model := _model_in(match, kind)) is not None]
    return sorted({os.path.abspath(file) for file in (*files, *models)})


def left_out(patterns: Iterable[str], base: Path) -> list[str]:
    """The files that folders and globs match and that are taken for no networks, by their names alone."""
    found: dict[str, None] = {}
    for pattern in patterns:
        path = base / os.path.expanduser(pattern.replace("{seed}", "*"))
        if path.is_dir():
            matches = [] if model_file(path) else [file for file in path.iterdir() if file.suffix in SUFFIXES[Kind.CHECKPOINT]]
        else:
            matches = [] if path.exists() else [Path(match) for match in glob.glob(str(path), recursive=True)]
        found |= {os.path.abspath(match): None for match in sorted(matches) if not is_network(match) and match.is_file()}
    return list(found)


def passed_over(patterns: Iterable[str], base: Path) -> list[str]:
    """The files of folders that look like checkpoints and are not taken: by another ending, or in a folder below."""
    found: dict[str, None] = {}
    for pattern in patterns:
        folder = base / os.path.expanduser(pattern)
        if folder.is_dir() and model_file(folder) is None:
            below = itertools.islice(_below(folder), MOST_LOOKED_AT)
            alike = (file for file in below if _LOOKS_LIKE.search(file.name) and is_network(file) and _is_meant(file))
            taken = (file for file in alike if file.parent != folder or not _is_of(Kind.CHECKPOINT, file))
            found |= {os.path.abspath(file): None for file in sorted(taken)}
    return list(found)


def _below(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(place, name) for name in names)


def _is_meant(file: Path) -> bool:
    """Whether this is a file, or a link to one that is not there: dropped without a word, it would be green."""
    return file.is_file() or (file.is_symlink() and not file.exists())


def _is_of(kind: Kind, file: Path) -> bool:
    """Whether a file of a folder is meant; the states of optimizers and the like, beside networks, are none."""
    if kind is Kind.CHECKPOINT and not is_network(file):
        return False
    return file.suffix in SUFFIXES[kind] or (kind is Kind.LOG and EVENTS in file.name)


def _model_in(folder: Path, kind: Kind) -> Path | None:
    return model_file(folder) if kind is Kind.CHECKPOINT else None


def _nothing(pattern: str, base: Path, what: str, kind: Kind) -> str:
    path = base / os.path.expanduser(pattern)
    if path.is_dir():
        return f"{what}: no {kind.value} ({', '.join(SUFFIXES[kind])}) in the folder\n  {path}"
    problem = "the glob matches no file" if glob.has_magic(pattern) else "no such file"
    return f"{what}: {problem}\n  {path}{_may_be_absent(what)}"


def _gone(path: str, what: str) -> str:
    to = f"a link to a file that does not exist: {os.readlink(path)}" if os.path.islink(path) else "no such file"
    return f"{what}: {to}\n  {path}{_may_be_absent(what)}"


def _may_be_absent(what: str) -> str:
    return "\nIf it may be absent, add --fa-missing=skip" if "checkpoint" in what or "log" in what else ""


def _ids(paths: Sequence[str], root: Path) -> dict[str, str]:
    """Below the root folder the relative path; elsewhere the shortest suffix that no other checkpoint has."""
    ids: dict[str, str] = {}
    outside: list[str] = []
    for path in paths:
        try:
            ids[path] = plain_id(Path(path).relative_to(root).as_posix())
        except ValueError:
            outside.append(path)
    parts = {path: PurePosixPath(Path(path).as_posix()).parts for path in outside}
    for path in outside:
        for length in range(1, len(parts[path]) + 1):
            suffix = parts[path][-length:]
            same = Counter(other[-length:] for other in parts.values())[suffix]
            if same == 1 and plain_id("/".join(suffix)) not in ids.values():
                break
        ids[path] = plain_id("/".join(suffix))
    return ids


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


def with_groups(targets: Iterable[Target]) -> list[Target]:
    """The targets, each with its group: a method with two or more seeds, in each folder if its seeds occur in several.

    A group is told among everything that a run names, so that a part of it and the merge of all parts have the same groups.
    """
    targets = list(targets)
    by_method: dict[tuple[str, bool], list[Target]] = {}
    for target in targets:
        method, seed = target.identity
        if seed is not None and not target.skip:
            by_method.setdefault((method, target.partial), []).append(target)
    names: dict[str, str] = {}
    for (method, partial), members in by_method.items():
        suffix = " (log)" if partial else ""
        if _distinct_seeds(members):
            names |= {target.path: plain_id(f"{method}{suffix}") for target in members}
            continue
        by_folder: dict[str, list[Target]] = {}
        for target in members:
            by_folder.setdefault(str(PurePosixPath(target.id).parent), []).append(target)
        for folder, there in by_folder.items():
            if _distinct_seeds(there):
                names |= {target.path: plain_id(f"{folder}/{method}{suffix}") for target in there}
    sizes = Counter(names.values())
    groups = {path: name for path, name in names.items() if sizes[name] > 1}
    return [replace(target, group=groups.get(target.path)) for target in targets]


def seed_groups(targets: Iterable[Target]) -> list[SeedGroup]:
    """The groups with two or more members among these targets."""
    by_name: dict[str, list[Target]] = {}
    for target in targets:
        if target.group is not None and not target.skip:
            by_name.setdefault(target.group, []).append(target)
    groups = [SeedGroup(name, members[0].identity[0], tuple(members)) for name, members in sorted(by_name.items())]
    return [group for group in groups if len(group.targets) > 1]


def _distinct_seeds(targets: Sequence[Target]) -> bool:
    return len({target.identity[1] for target in targets}) == len(targets)


@dataclass(frozen=True)
class Targets:
    """Everything that a run audits, and which tests of it."""

    written: tuple[Target, ...] = ()
    """Those that written tests run over."""
    generated: tuple[Target, ...] = ()
    """Those that get tests of their own."""
    named: tuple[Target, ...] = ()
    """Everything that the options name, whether or not it gets tests: the seeds of ``margins``."""
    only: Mapping[str, tuple[str, ...] | None] | None = None
    """By path the names of the diagnostics that the arguments ask for (``None``: all), where they name any checkpoint."""
    margins: tuple[str, ...] | None = None
    """The methods whose margin over seeds is tested; ``None`` for every one that has several seeds among the generated."""
    whole: tuple[str, ...] = ()
    """The ids of everything that was divided, where this is a part of it."""
    pitfalls: tuple[str, ...] | None = None
    """The tests of evaluation code that the arguments name; ``None`` for all."""
    controls: tuple[str, ...] = ()
    """The paths of what would be audited if it did not serve as a control; known to the controller alone."""

    def without(self, paths: Sequence[Path]) -> Targets:
        """These targets without the files that serve as controls: a folder often holds both."""
        controls = {str(path) for path in paths} - set(self.only or ())
        written, generated, named = (
            tuple(target for target in targets if target.path not in controls)
            for targets in (self.written, self.generated, self.named)
        )
        if self.generated and not generated:
            raise AuditError(
                "everything to audit also serves as a control (--fa-frozen), so that nothing is left:\n  "
                + "\n  ".join(target.path for target in self.generated[:5])
            )
        serving = tuple(target.path for target in self.generated if target.path in controls)
        return replace(self, written=written, generated=generated, named=named, controls=serving)

    def check_some(self) -> None:
        """Some of the files may be absent where somebody said so; a run that audits none of them would be green."""
        if self.generated and all(target.skip for target in self.generated):
            raise AuditError(
                "none of what is to be audited exists; --fa-missing=skip lets some files be absent, and not all:\n  "
                + "\n  ".join(target.path for target in self.generated[:5])
            )

    def shard(self, number: int, count: int) -> Targets:
        """One of several parts of about the same number of bytes, the same on every machine that has the same files.

        A margin over seeds needs all of them, so it is left to the run that merges the parts.
        """
        if self.only:
            raise AuditError(
                "--fa-shard divides what --fa-checkpoint and --fa-log name; leave the paths among the arguments out"
            )
        if any(target.kind is Kind.RECORDED for target in self.generated):
            raise AuditError("--fa-shard and --fa-merge exclude each other: parts are cut from checkpoints, not from audits")
        if not self.generated:
            raise AuditError("--fa-shard: nothing to divide; name checkpoints with --fa-checkpoint or logs with --fa-log")
        if count > len(self.generated):
            raise AuditError(
                f"--fa-shard={number}/{count}: part {count} would be empty, for there are {len(self.generated)} checkpoints to "
                f"audit; divide them into at most {len(self.generated)}"
            )
        sizes = {target.path: 0 if target.file is None else os.path.getsize(target.path) for target in self.generated}
        loads = [(0, 0, index) for index in range(count)]
        parts: list[set[str]] = [set() for _ in range(count)]
        for target in sorted(self.generated, key=lambda target: (-sizes[target.path], target.id)):
            size, files, lightest = min(loads)
            parts[lightest].add(target.path)
            loads[lightest] = (size + sizes[target.path], files + 1, lightest)
        written, generated = (
            tuple(target for target in targets if target.path in parts[number - 1])
            for targets in (self.written, self.generated)
        )
        whole = tuple(sorted(target.id for target in self.generated))
        return replace(self, written=written, generated=generated, margins=(), whole=whole)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for xdist's workers."""
        lists = {name: [target.to_dict() for target in getattr(self, name)] for name in ("written", "generated", "named")}
        only = None if self.only is None else {path: None if n is None else list(n) for path, n in self.only.items()}
        return {**lists, "only": only, "margins": _list(self.margins), "pitfalls": _list(self.pitfalls)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Targets:
        """The targets that the controller sent."""
        lists = {name: tuple(map(Target.from_dict, values[name])) for name in ("written", "generated", "named")}
        only = values["only"]
        return cls(
            written=lists["written"],
            generated=lists["generated"],
            named=lists["named"],
            only=None if only is None else {path: None if names is None else tuple(names) for path, names in only.items()},
            margins=None if values["margins"] is None else tuple(values["margins"]),
            pitfalls=None if values["pitfalls"] is None else tuple(values["pitfalls"]),
        )


def _list(names: tuple[str, ...] | None) -> list[str] | None:
    return None if names is None else list(names)
