"""The kinds of evaluation data: how each is named, what identifies it, and who reads it; told without torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..judge.errors import AuditError
from .digests import file_digest, file_stamp, joined
from .places import cifar10_files, fashion_mnist_files, image_files, the_file
from .specs import factory_digest, is_factory

if TYPE_CHECKING:
    from .data import DataSet


@dataclass(frozen=True)
class DataKind:
    """One kind of data."""

    name: str
    """What stands before the colon, or how the name of its file ends."""
    reader: str
    """``module:function`` of this folder, imported when data is read: ``(path, split) -> DataSet``."""
    files: Callable[[Path, str], Sequence[Path]]
    """The files of a split, which are what is read and what identifies the data."""
    written: str
    """The kind as a SPEC in help and errors."""
    many: bool = False
    """Whether these are so many that reading them all, to know whether one changed, would take as long as the audit."""


NAMED = {
    kind.name: kind
    for kind in (
        DataKind("fashion-mnist", "readers:fashion_mnist", fashion_mnist_files, "fashion-mnist:ROOT"),
        DataKind("cifar10", "readers:cifar10", cifar10_files, "cifar10:ROOT"),
        DataKind("folder", "readers:image_folder", image_files, "folder:PATH", many=True),
    )
}
"""By what stands before the colon of a SPEC."""
FILES = {ending: DataKind(ending, "readers:arrays", the_file, ending) for ending in (".npz", ".pt", ".pth", ".safetensors")}
"""By how a file's name ends."""
ACCEPTED = (
    f"{', '.join(kind.written for kind in NAMED.values())}, a file with x and y ({', '.join(FILES)}), package.module:factory"
)


class UnknownData(AuditError):
    """A SPEC that names none of the kinds of data."""

    def __init__(self, text: str) -> None:
        super().__init__(f"unknown data {text!r}; accepted: {ACCEPTED}")


@dataclass(frozen=True)
class DataSpec:
    """A SPEC taken apart: a kind of data and where it lies, or a factory of the user's."""

    text: str
    kind: DataKind | None = None
    path: Path | None = None

    @classmethod
    def parse(cls, text: str, base: Path | None = None, *, others: bool = False) -> DataSpec:
        """The data that a SPEC names; relative paths start at ``base``, so that a working folder does not count any more.

        With ``others`` one that is no kind of ours may be another package's, which only reading it tells.
        """
        prefix, colon, rest = text.partition(":")
        if colon and prefix in NAMED:
            if not rest:
                raise AuditError(f"data {text!r} names no place; write {NAMED[prefix].written}")
            path = _absolute(rest, base)
            return cls(f"{prefix}:{path}", NAMED[prefix], path)
        kind = FILES.get(Path(text).suffix)
        if kind is not None:
            path = _absolute(text, base)
            return cls(str(path), kind, path)
        if not others and not is_factory(text):
            raise UnknownData(text)
        return cls(text)

    @property
    def name(self) -> str:
        """What a report calls the data: a kind, or the name of a file wherever it lies."""
        if self.kind is None or self.path is None:
            return self.text
        return self.kind.name if self.kind.name in NAMED else self.path.name

    def check(self) -> None:
        """Refuse a path where nothing is, before a run begins."""
        if self.path is not None and not self.path.exists():
            raise AuditError(f"no such file or folder\n  {self.path}")

    def digest(self, split: str = "test") -> str | None:
        """What identifies the content of the data, or ``None`` where only running a factory would tell.

        A factory may tell by its attribute ``digest``, a text or a function that gives one.
        """
        if self.kind is None or self.path is None:
            own = factory_digest(self.text, "data factory") if self.text else None
            return None if own is None else joined([self.text, own])
        files = self._files(split)
        if self.kind.name in FILES:
            return file_digest(files[0][1]) if files else None  # as sha256sum has it
        return joined(f"{name} {file_digest(path)}" for name, path in files) if files else None

    def stamp(self, split: str = "test") -> str | None:
        """As :meth:`digest`, of many files by name, size, times and inode: changes whenever the content may have changed."""
        if self.kind is None or not self.kind.many:
            return self.digest(split)
        stamps = [(name, *file_stamp(path)) for name, path in self._files(split)]
        return joined(map(str, stamps)) if stamps else None

    def _files(self, split: str) -> list[tuple[str, Path]]:
        """The files of a split, each with its place below the data's own."""
        if self.kind is None or self.path is None:
            return []
        try:
            paths = self.kind.files(self.path, split)
        except AuditError:
            return []  # whoever reads the data says what is missing
        root = self.path if self.path.is_dir() else self.path.parent
        return [(path.relative_to(root).as_posix(), path) for path in paths]

    def load(self, split: str = "test") -> DataSet:
        """The data, decoded."""
        if self.kind is None or self.path is None:
            return self._made()
        data: DataSet = _reader(self.kind.reader)(self.path, split)
        return data

    def _made(self) -> DataSet:
        """What a factory gives; a SPEC whose module does not exist is rather a kind of data that was misspelled."""
        try:
            data: DataSet = _reader("readers:from_factory")(self.text)
        except AuditError as error:
            module = self.text.partition(":")[0]
            if "." in module or not isinstance(error.__cause__, ModuleNotFoundError):
                raise
            raise AuditError(f"unknown data {self.text!r}, and no module {module!r} to import; accepted: {ACCEPTED}") from error
        return data


def _reader(place: str) -> Any:
    """A reader by its place in this folder; importing it imports torch."""
    module, _, function = place.partition(":")
    return getattr(import_module(f".{module}", __package__), function)


def _absolute(text: str, base: Path | None) -> Path:
    path = Path(text).expanduser()
    return path if base is None else base / path
