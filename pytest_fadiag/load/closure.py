"""What a factory's code came from: the files that it imported and opened, and versions of installed packages; free of torch.

A result is kept with these, so that a later run compares the files and imports nothing.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from .digests import file_digest, installed_version

DYNAMIC = ("import_module", "__import__", "exec(", "runpy")
"""What code does that may import modules which its statements do not name."""
UNKEPT = ("/proc/", "/sys/", "/dev/")
"""What is read there is another content each time."""
_INSTALLED = tuple({os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_OWN = os.path.join(os.path.abspath(Path(__file__).parents[1]), "")  # found by a path with «..» in it, it is this package too
_listeners: list[set[str]] = []
_opened: dict[str, dict[str, str]] = {}
"""The files that were opened while a factory was imported and called, by its SPEC, with their digests."""
_imported: WeakKeyDictionary[ModuleType, str] = WeakKeyDictionary()
"""The digest of a module's file when it was first met: one that is edited during a run is not what the run imported."""


@contextmanager
def watched(spec: str) -> Iterator[None]:
    """Note which files are opened while a factory is imported and called."""
    _hook()
    listener: set[str] = set()
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
        paths = {_source(os.path.abspath(name)) for name in listener}
        _opened[spec] = {
            path: file_digest(Path(path))
            for path in sorted(paths)
            if not path.startswith(UNKEPT) and _is_users(path) and os.path.isfile(path)
        }
        sources_of(spec)  # takes the digests of what was imported now


@cache
def _hook() -> None:
    """An audit hook stays as long as the process, so there is one, and it is idle while nobody listens."""

    def listen(event: str, arguments: tuple[Any, ...]) -> None:
        if _listeners and event == "open" and isinstance(arguments[0], (str, bytes)):
            mode = arguments[1]
            if mode is None or "r" in mode or "+" in mode:
                for listener in _listeners:
                    listener.add(os.fsdecode(arguments[0]))

    sys.addaudithook(listen)


def sources_of(spec: str, modules: Iterable[str] = ()) -> dict[str, Any]:
    """What the code of a factory came from as far as this process has imported it; ``modules`` are more names to start from."""
    found, packages = _closure([spec.partition(":")[0], *modules])
    return {
        "modules": {name: [path, _digest(name, path)] for name, path in sorted(found.items())},
        "files": {path: digest for path, digest in _opened.get(spec, {}).items() if path not in found.values()},
        "packages": {package: installed_version(package) for package in sorted(packages)},
    }


def is_current(sources: Any) -> bool:
    """Whether every file and package is still what it was, and a module of that name would still be that file."""
    if not isinstance(sources, Mapping):
        return False
    try:
        return (
            all(_found_there(name, path) and file_digest(Path(path)) == was for name, (path, was) in sources["modules"].items())
            and all(file_digest(Path(path)) == was for path, was in sources["files"].items())
            and all(installed_version(package) == was for package, was in sources["packages"].items())
        )
    except (OSError, KeyError, TypeError, ValueError, AttributeError):
        return False


def _closure(names: Iterable[str]) -> tuple[dict[str, str], set[str]]:
    """The files of the user's modules that these import, by their names, and the installed packages among the imports."""
    files: dict[str, str] = {}
    packages: set[str] = set()
    waiting, met = list(names), set()
    while waiting:
        name = waiting.pop()
        module = sys.modules.get(name)
        if name in met or module is None:
            continue
        met.add(name)
        if "." in name:
            waiting.append(name.rpartition(".")[0])  # a package's own code runs before that of its modules
        path = _file(module)
        if path is None:
            continue
        if not _is_users(path):
            packages |= _package_of(name)
            continue
        files[name] = path
        waiting += _imports(path, module)
    return files, packages


def _file(module: ModuleType) -> str | None:
    """The file of a module's code; one that is built in, or only a folder, has none; torch.classes names one that is none."""
    path = getattr(module, "__file__", None)
    source = _source(os.path.abspath(path)) if path else ""
    return source if os.path.isfile(source) else None


def _source(path: str) -> str:
    """The source of a compiled file, where it is there."""
    if path.endswith(".pyc"):
        try:
            source = importlib.util.source_from_cache(path)
        except ValueError:
            return path
        return source if os.path.isfile(source) else path
    return path


def _is_users(path: str) -> bool:
    """Whether a file belongs neither to Python, nor to an installed package, nor to this one."""
    parts = Path(path).parts
    return not path.startswith((*_INSTALLED, _OWN)) and "site-packages" not in parts and "dist-packages" not in parts


def _imports(path: str, module: ModuleType) -> list[str]:
    """The modules that a source's import statements name, wherever they stand; all of the user's if it may import others."""
    try:
        text = Path(path).read_text("utf-8", "replace")
        tree = ast.parse(text)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return []
    names: list[str] = []
    package = getattr(module, "__package__", None) or ""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
            whole = ".".join(filter(None, [base, node.module]))
            names += [whole, *(f"{whole}.{alias.name}" for alias in node.names)]
    if any(word in text for word in DYNAMIC):
        names += [name for name, other in list(sys.modules.items()) if (own := _file(other)) is not None and _is_users(own)]
    return names


def _package_of(name: str) -> set[str]:
    top = name.partition(".")[0]
    return set() if top in sys.stdlib_module_names else set(_distributions().get(top, ()))


@cache
def _distributions() -> Mapping[str, list[str]]:
    return packages_distributions()


def _digest(name: str, path: str) -> str:
    return _imported.setdefault(sys.modules[name], file_digest(Path(path)))


def _found_there(name: str, path: str) -> bool:
    """Whether importing a module would still take this file; only its first part is looked up, which imports nothing."""
    top = name.partition(".")[0]
    found = importlib.util.find_spec(top)
    if found is None:
        return False
    if top == name and not found.submodule_search_locations:
        return found.origin is not None and os.path.abspath(found.origin) == path
    return any(path.startswith(os.path.join(os.path.abspath(folder), "")) for folder in found.submodule_search_locations or ())
