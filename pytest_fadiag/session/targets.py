"""The checkpoints of a run: globs and seeds expanded once, each with a stable id; no file is opened."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ..outputs.printable import one_line
from ..protocol.errors import AuditError
from ..sources.identity import identify

SUFFIXES = (".pt", ".pth", ".ckpt", ".safetensors")


@dataclass(frozen=True)
class Target:
    """One checkpoint to audit, by its path and the id under which its tests run."""

    path: str
    id: str
    missing: bool = False

    @property
    def named(self) -> tuple[str, int | None]:
        """Method and seed as far as the file's name tells them."""
        return identify(Path(self.path))

    def to_dict(self) -> dict[str, Any]:
        """The target as plain values, for xdist's workers."""
        return asdict(self)


def expand(
    patterns: Iterable[str], base: Path, root: Path, *, seeds: Sequence[int] | None = None, missing: str = "error", what: str
) -> list[Target]:
    """The files behind paths, globs and folders, sorted, with ids; what matches nothing is an error unless it may."""
    found: list[tuple[str, bool]] = []
    for pattern in _seeded(list(patterns), seeds, what):
        files = _files(pattern, base)
        if not files and missing == "error":
            raise AuditError(_nothing(pattern, base, what))
        found += [(file, False) for file in files] or [(os.path.abspath(base / os.path.expanduser(pattern)), True)]
    paths = list(dict.fromkeys(path for path, _ in found))
    ids = _ids(paths, root)
    gone = {path for path, absent in found if absent}
    return sorted((Target(path, ids[path], path in gone) for path in paths), key=lambda target: target.id)


def _seeded(patterns: list[str], seeds: Sequence[int] | None, what: str) -> list[str]:
    if not all(pattern.strip() for pattern in patterns):
        raise AuditError(f"{what}: an empty path; is a variable of your shell unset?")
    templates = [pattern for pattern in patterns if "{seed}" in pattern]
    if templates and not seeds:
        raise AuditError(f"{what} {templates[0]!r} contains {{seed}}, but no seeds are given; add --fa-seeds=42,123,456")
    if seeds and patterns and not templates:
        raise AuditError(f"seeds are given, but {what} {patterns[0]!r} does not contain {{seed}}")
    expanded: list[str] = []
    for pattern in patterns:
        expanded += [pattern.replace("{seed}", str(seed)) for seed in seeds] if seeds and "{seed}" in pattern else [pattern]
    return expanded


def _files(pattern: str, base: Path) -> list[str]:
    """The file itself if it exists (so that brackets in its name are no glob), else those of the folder, else of the glob."""
    path = base / os.path.expanduser(pattern)
    if path.is_dir():
        return sorted(os.path.abspath(file) for file in path.iterdir() if file.suffix in SUFFIXES and file.is_file())
    if path.exists():
        return [os.path.abspath(path)]
    return sorted(os.path.abspath(file) for file in glob.glob(str(path), recursive=True) if os.path.isfile(file))


def _nothing(pattern: str, base: Path, what: str) -> str:
    path = base / os.path.expanduser(pattern)
    if path.is_dir():
        return f"{what}: no checkpoint ({', '.join(SUFFIXES)}) in the folder\n  {path}"
    kind = "the glob matches no file" if glob.has_magic(pattern) else "no such file"
    hint = "\nIf it may be absent, add --fa-missing=skip" if "checkpoint" in what else ""
    return f"{what}: {kind}\n  {path}{hint}"


def _ids(paths: Sequence[str], root: Path) -> dict[str, str]:
    """Below the root folder the relative path; elsewhere the shortest suffix that no other checkpoint has."""
    ids: dict[str, str] = {}
    outside: list[str] = []
    for path in paths:
        try:
            ids[path] = _plain(Path(path).relative_to(root).as_posix())
        except ValueError:
            outside.append(path)
    parts = {path: PurePosixPath(Path(path).as_posix()).parts for path in outside}
    for path in outside:
        for length in range(1, len(parts[path]) + 1):
            suffix = parts[path][-length:]
            same = Counter(other[-length:] for other in parts.values())[suffix]
            if same == 1 and _plain("/".join(suffix)) not in ids.values():
                break
        ids[path] = _plain("/".join(suffix))
    return ids


def _plain(text: str) -> str:
    """An id without what would break a terminal or be read as a separator: control characters and «::»."""
    return one_line(text).replace("::", ":\\x3a")
