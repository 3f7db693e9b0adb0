"""What files are called and what identifies them; free of torch."""

from __future__ import annotations

import hashlib
import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from ..files import check_file, read_bytes, read_json
from ..judge.errors import AuditError
from ..judge.words import one_line
from .specs import find_package

SUFFIXES = (".pt", ".pth", ".ckpt", ".safetensors", ".pt.tar", ".pth.tar", ".ckpt.tar")
"""How the names of checkpoints end."""
EVENTS = "tfevents"
"""What the names of TensorBoard's files contain."""
MODELS = (
    *("model.safetensors", "model.safetensors.index.json"),
    *("pytorch_model.bin", "pytorch_model.bin.index.json"),
)
"""The network of a Hugging Face folder: the first of these that is there."""
LONGEST_NAME = 500
"""Characters of a method's name, which stands in tables and test ids."""
NO_CODE = {"node_modules", "site-packages", "__pycache__"}
BUILT = {"build", "dist"}
"""Folders without code of the author, the latter where they are not inside a package."""

_NAME = re.compile(r"(?P<method>.+?)_s(?:eed)?(?P<seed>\d+)(?:\..*)?")
_ENDINGS = re.compile(r"(?:\.(?:pt|pth|ckpt|safetensors|npz|bin|tar|log|jsonl?|csv))+$|\.\w+$")
_INSTALLED = re.compile(r"[/\\](?:site|dist)-packages[/\\]")
_NO_NETWORK = re.compile(r"(?:optimizer|scheduler|scaler|rng_state|training_args)(?:_\w+)?\.\w+")


def convert(values: Any, kind: Any, what: str) -> Any:
    """Plain values as a type, or an error that names the field."""
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise AuditError(f"{what}: {error}") from None


def identify(path: Path, config: Mapping[str, Any] | None = None) -> tuple[str, int | None]:
    """The method and seed of a file: from its config, else ``<method>_s<seed>``, else its stem.

    >>> identify(Path("runs/dfa_s42.pth.tar"))
    ('dfa', 42)
    """
    config = config or {}
    name = path.parent.name if path.name in MODELS else path.name
    parts = _NAME.fullmatch(name)
    seed: Any = config.get("seed")
    method = _ENDINGS.sub("", name) or name
    if parts:
        method = parts["method"]
        if seed is None:
            seed = parts["seed"]
    if config_value_set(config, "method"):
        method = str(config["method"])
        for kind in ("frozen", "shallow"):
            if config_value_set(config, kind):
                method += f"-{kind}"
    method = one_line(method[:LONGEST_NAME])
    try:
        number = int(seed)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # of a tensor with several entries
        return method, None
    if number.bit_length() > 63:
        return method, None
    return method, number


def config_value_set(config: Mapping[str, Any], key: str) -> bool:
    """Whether a config has a text, a number or ``True`` under a key, and not an empty one."""
    return isinstance(config.get(key), (str, int, float)) and bool(config[key])


def plain_config(config: Mapping[Any, Any]) -> dict[str, Any]:
    """The texts, numbers and truth values of a config, as a report and a file can hold them."""
    plain: dict[str, Any] = {}
    for name, value in list(config.items())[:200]:
        key = one_line(str(name)[:LONGEST_NAME])
        if isinstance(value, str):
            plain[key] = one_line(value[:LONGEST_NAME])
        elif isinstance(value, (int, float)) and not abs(value) >= 1 << 63:
            plain[key] = value
    return plain


def is_checkpoint(path: Path) -> bool:
    """Whether a file may hold a network, by its name: states of optimizers and the like do not."""
    return path.name.endswith((*SUFFIXES, *MODELS)) and not _NO_NETWORK.fullmatch(path.name)


def is_log(path: Path) -> bool:
    """Whether a file may be a training log, by its name."""
    if path.name in MODELS:
        return False
    return EVENTS in path.name or path.name.endswith((".json", ".jsonl", ".csv"))


def model_file(folder: Path) -> Path | None:
    """The network of a folder that Hugging Face's Trainer wrote; nothing for another folder."""
    companions = ("config.json", "trainer_state.json", "training_args.bin", "optimizer.pt")
    if not any((folder / name).exists() for name in companions):
        return None
    for name in MODELS:
        if (folder / name).is_file():
            return folder / name
    return None


def parts_of(path: Path) -> list[Path]:
    """The files that an index names; none of what is not an index."""
    if not path.name.endswith(".index.json"):
        return []
    what = f"{path}: not an index of a network's files"
    index = convert(read_json(path), dict[str, Any], what)
    places = convert(index.get("weight_map"), dict[str, str], what)
    return [path.with_name(Path(name).name) for name in sorted(set(places.values()))]


def files_of(path: Path) -> list[Path]:
    """All files that make up a checkpoint: itself, its parts, the config.json of its folder."""
    files = [path, *parts_of(path)]
    config = path.with_name("config.json")
    if path.name in MODELS and config.is_file():
        files.append(config)
    return files


def file_digest(path: Path) -> str:
    """The SHA-256 of a checkpoint or any other file, read once as long as it does not change."""
    try:
        return joined({file: _digest_of(file) for file in files_of(path)})
    except OSError as error:
        name = error.filename or path  # of a part, where it is one of several
        raise AuditError(f"{name}: cannot be read: {error.strerror}") from error


def joined(digests: Mapping[Path, str], folder: Path | None = None) -> str:
    """One digest of those of files, by their names, or by their paths below a folder."""
    if folder is None and len(digests) == 1:
        return next(iter(digests.values()))
    lines = []
    for path, digest in digests.items():
        name = path.relative_to(folder).as_posix() if folder else path.name
        lines.append(f"{name} {digest}")
    return digest_of_lines(lines)


def digest_of_lines(lines: Iterable[str]) -> str:
    """One digest of many lines."""
    return hashlib.sha256("\n".join(lines).encode(errors="backslashreplace")).hexdigest()


def read_files(
    paths: Sequence[Path], digest: str | None, folder: Path | None = None
) -> dict[Path, bytes]:
    """The bytes of files; other ones than those that a digest stands for are refused."""
    contents = {}
    digests = {}
    for path in paths:
        try:
            contents[path] = read_bytes(path)
        except OSError as error:
            raise AuditError(f"{path}: cannot be read: {error.strerror}") from error
        digests[path] = hashlib.sha256(contents[path]).hexdigest()
    if digest is not None and joined(digests, folder) != digest:
        raise AuditError(f"{paths[0]}: changed while it was measured; run again when it is whole")
    return contents


def _digest_of(file: Path) -> str:
    status = check_file(file)
    return _digest(str(file), (status.st_size, status.st_mtime_ns, status.st_ctime_ns))


@lru_cache(maxsize=4096)
def _digest(path: str, stamp: tuple[int, ...]) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def walk(root: Path, *, code: bool = False) -> Iterator[Path]:
    """Every file below a folder in order, also through links, each folder once.

    Of ``code`` neither hidden folders nor virtual environments are looked at, nor what was built at
    the root.
    """
    visited: set[str] = set()
    for place, folders, names in os.walk(root, followlinks=True):
        real_place = os.path.realpath(place)
        if real_place in visited or (code and "pyvenv.cfg" in names):
            folders.clear()  # a link back to a folder above it has no end
            continue
        visited.add(real_place)
        if code:
            is_root = place == str(root) and "__init__.py" not in names
            ignored = NO_CODE | BUILT if is_root else NO_CODE
            folders[:] = [name for name in folders if name[0] != "." and name not in ignored]
        folders.sort()
        for name in sorted(names):
            yield Path(place, name)


def code_files(root: Path, modules: Sequence[str]) -> set[str]:
    """Every ``*.py`` below a folder and of the packages that some SPECs name."""
    places = [root]
    for package in filter(None, map(find_package, modules)):
        places.extend(map(Path, package.submodule_search_locations or [package.origin or ""]))
    code: set[str] = set()
    for place in places:
        files = walk(place, code=True) if place.is_dir() else [place]
        for file in files:
            if file.suffix == ".py" and file.is_file():
                code.add(os.path.realpath(file))
    return code


def loaded_files() -> set[str]:
    """The files of this process's modules, except those of Python and of installed packages."""
    standard = sysconfig.get_path("stdlib")
    files = set()
    for module in list(sys.modules.values()):
        spec = getattr(module, "__spec__", None)
        if spec is not None and spec.has_location:
            file = str(spec.origin)
            if not file.startswith(standard) and not _INSTALLED.search(file):
                files.add(os.path.realpath(file))
    return files


def code_digest(root: Path, files: Iterable[str]) -> str:
    """What identifies the code in these files, Python, and all packages that are installed."""
    installed: set[str] = set()
    for place in sys.path:
        installed.update(path.name for path in Path(place).glob("*-info"))
    lines = [sys.version, os.environ.get("PYTHONPATH", ""), *sorted(installed)]
    for file in sorted(files):
        place = os.path.relpath(file, os.path.realpath(root))
        lines.append(f"{place} {_digest_of(Path(file))}")
    return digest_of_lines(lines)
