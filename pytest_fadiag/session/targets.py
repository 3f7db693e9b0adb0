"""The checkpoints and logs of a run: globs and seeds expanded once, each with a stable id; no file is opened."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ..judge.errors import AuditError
from ..load.identity import identify
from ..show.printable import one_line

SUFFIXES = (".pt", ".pth", ".ckpt", ".safetensors")
LOG_SUFFIXES = (".json", ".jsonl")


@dataclass(frozen=True)
class Target:
    """One checkpoint or log to audit, by its path and the id under which its tests run."""

    path: str
    id: str
    missing: bool = False
    kind: str = "checkpoint"
    """checkpoint, log, or recorded: a row of an earlier audit, whose path is its place there."""
    partial: bool = False
    method: str | None = None
    """Of a recorded row its method; else the file's name tells."""
    seed: int | None = None
    """Of a recorded row its seed, else what {seed} in its path stood for."""
    group: str | None = None
    """The test of the margin over seeds to which it belongs, told among all that a run names."""

    @property
    def named(self) -> tuple[str, int | None]:
        """Method and seed as far as they are known without opening the file."""
        if self.method is not None:
            return self.method, self.seed
        method, seed = identify(Path(self.path))
        return method, seed if self.seed is None else self.seed

    def to_dict(self) -> dict[str, Any]:
        """The target as plain values, for xdist's workers."""
        return asdict(self)


def expand(
    patterns: Iterable[str],
    base: Path,
    root: Path,
    *,
    seeds: Sequence[int] | None = None,
    missing: str = "error",
    what: str,
    kind: str = "checkpoint",
) -> list[Target]:
    """The files behind paths, globs and folders, sorted, with ids; what matches nothing is an error unless it may."""
    found: dict[str, tuple[bool, int | None]] = {}
    suffixes = SUFFIXES if kind == "checkpoint" else LOG_SUFFIXES
    for pattern, seed in _seeded(list(patterns), seeds, what):
        files = _files(pattern, base, suffixes)
        if not files and missing == "error":
            raise AuditError(_nothing(pattern, base, what, suffixes))
        absent = os.path.abspath(base / os.path.expanduser(pattern))
        for path in files or [absent]:
            found.setdefault(path, (not files, seed))
    ids = _ids(list(found), root)
    targets = [Target(path, ids[path], gone, kind, partial=kind == "log", seed=seed) for path, (gone, seed) in found.items()]
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


def _files(pattern: str, base: Path, suffixes: tuple[str, ...]) -> list[str]:
    """The file itself if it exists (so that brackets in its name are no glob), else those of the folder, else of the glob."""
    path = base / os.path.expanduser(pattern)
    if path.is_dir():
        return sorted(os.path.abspath(file) for file in path.iterdir() if file.suffix in suffixes and file.is_file())
    if path.exists():
        return [os.path.abspath(path)]
    return sorted(os.path.abspath(file) for file in glob.glob(str(path), recursive=True) if os.path.isfile(file))


def _nothing(pattern: str, base: Path, what: str, suffixes: tuple[str, ...]) -> str:
    path = base / os.path.expanduser(pattern)
    if path.is_dir():
        noun = "log" if suffixes is LOG_SUFFIXES else "checkpoint"
        return f"{what}: no {noun} ({', '.join(suffixes)}) in the folder\n  {path}"
    kind = "the glob matches no file" if glob.has_magic(pattern) else "no such file"
    hint = "\nIf it may be absent, add --fa-missing=skip" if "checkpoint" in what or "log" in what else ""
    return f"{what}: {kind}\n  {path}{hint}"


def _ids(paths: Sequence[str], root: Path) -> dict[str, str]:
    """Below the root folder the relative path; elsewhere the shortest suffix that no other checkpoint has."""
    ids: dict[str, str] = {}
    outside: list[str] = []
    for path in paths:
        try:
            ids[path] = plain(Path(path).relative_to(root).as_posix())
        except ValueError:
            outside.append(path)
    parts = {path: PurePosixPath(Path(path).as_posix()).parts for path in outside}
    for path in outside:
        for length in range(1, len(parts[path]) + 1):
            suffix = parts[path][-length:]
            same = Counter(other[-length:] for other in parts.values())[suffix]
            if same == 1 and plain("/".join(suffix)) not in ids.values():
                break
        ids[path] = plain("/".join(suffix))
    return ids


def plain(text: str) -> str:
    """An id without what would break a terminal or be read as a separator: control characters and «::»."""
    return one_line(text).replace("::", ":\\x3a")
