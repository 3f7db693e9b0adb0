"""What a factory's code came from: the files that it imported and asked for, and the installed packages; free of torch.

A result is kept with these, so that a later run compares the files and imports nothing.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, lru_cache
from importlib.metadata import packages_distributions
from pathlib import Path
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from .digests import file_digest, installed_version, joined
from .installed import installed_trees, is_as_it_was
from .watch import ASKED, LISTED, READ, Watch, is_users, source_of, state

DYNAMIC = ("importlib", "__import__", "exec(", "runpy", "pydoc", "resolve_name", "sys.modules", "pytest_plugins")
"""What code does that may reach modules which its statements do not name."""
_imported: WeakKeyDictionary[ModuleType, str] = WeakKeyDictionary()
"""The digest of a module's file when it was first met: one that is edited during a run is not what the run imported."""


class Code:
    """The code behind a SPEC, and what it asked for; ``plugins`` are those of the run, conftests among them."""

    def __init__(self, spec: str, plugins: Callable[[], Iterable[object]] = tuple) -> None:
        self.spec, self._plugins, self._watch = spec, plugins, Watch()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note what this code asks for: it is imported, called, or used by a measurement."""
        try:
            with self._watch:
                yield
        finally:
            _closure([self.spec.partition(":")[0]], self._plugins())  # takes the digests of what was imported now

    def sources(self, modules: Iterable[str] = ()) -> dict[str, Any]:
        """What the code came from as far as this process has imported it; ``modules`` are more names to start from.

        What a conftest imports counts too: it may have changed these modules, or be reached through them by a name.
        """
        found, packages = _closure([self.spec.partition(":")[0], *modules], self._plugins())
        seen = self._watch.seen()
        own = {path for path, _ in found.values()}
        return {
            "modules": {name: list(place) for name, place in sorted(found.items())},
            **seen,
            READ: {path: digest for path, digest in seen[READ].items() if path not in own},
            "packages": {package: installed_version(package) for package in sorted(packages)},
            "installed": installed_trees(),
        }


def conftests_digest(plugins: Iterable[object]) -> str:
    """What identifies the user's own plugins of a run, which may change what other code does."""
    return joined(sorted(_digest(module, path) for module, path in _of_user(plugins)))


def _of_user(plugins: Iterable[object]) -> list[tuple[ModuleType, str]]:
    modules = [(plugin, _file(plugin)) for plugin in plugins if isinstance(plugin, ModuleType)]
    return [(module, path) for module, path in modules if path is not None and is_users(path)]


def is_current(sources: Any) -> bool:
    """Whether every file and package is still what it was, and a module of that name would still be that file."""
    if not isinstance(sources, Mapping):
        return False
    try:
        return (
            all(_found_there(name, path) and file_digest(Path(path)) == was for name, (path, was) in sources["modules"].items())
            and all(state(how, path) == was for how in (READ, LISTED, ASKED) for path, was in sources[how].items())
            and all(installed_version(package) == was for package, was in sources["packages"].items())
            and all(is_as_it_was(root, *was) for root, was in sources["installed"].items())
        )
    except (OSError, KeyError, TypeError, ValueError, AttributeError):
        return False


def _closure(names: Iterable[str], plugins: Iterable[object]) -> tuple[dict[str, tuple[str, str]], set[str]]:
    """The user's modules that these import, by their names each its file and digest, and the installed packages among them.

    Of the user's plugins what they import; their own files count by :func:`conftests_digest`, for several have one name.
    """
    files: dict[str, tuple[str, str]] = {}
    packages: set[str] = set()
    waiting, met = list(names), set()
    for plugin, own in _of_user(plugins):
        waiting += _imports(own, plugin)
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
        if not is_users(path):
            packages |= _package_of(name)
            continue
        files[name] = path, _digest(module, path)
        waiting += _imports(path, module)
    return files, packages


def _file(module: ModuleType) -> str | None:
    """The file of a module's code; one that is built in, or only a folder, has none; torch.classes names one that is none."""
    path = getattr(module, "__file__", None)
    source = source_of(os.path.abspath(path)) if path else ""
    return source if os.path.isfile(source) else None


def _imports(path: str, module: ModuleType) -> list[str]:
    """The modules that a source's import statements name, wherever they stand; all of the user's if it may reach others."""
    try:
        names, dynamic = _named_in(path, file_digest(Path(path)), getattr(module, "__package__", None) or "")
    except OSError:
        return []
    if not dynamic:
        return names
    return names + [name for name, other in list(sys.modules.items()) if _is_of_user(getattr(other, "__file__", None))]


@cache
def _is_of_user(path: str | None) -> bool:
    """Whether a module's file is the user's: asked of thousands of modules, whenever one may reach all of them."""
    return isinstance(path, str) and is_users(source_of(os.path.abspath(path)))


@lru_cache(maxsize=4096)
def _named_in(path: str, digest: str, package: str) -> tuple[list[str], bool]:
    """What the import statements of a source of this digest name, and whether it may reach others."""
    text = Path(path).read_text("utf-8", "replace")
    dynamic = any(word in text for word in DYNAMIC)
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return [], dynamic
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
            whole = ".".join(filter(None, [base, node.module]))
            names += [whole, *(f"{whole}.{alias.name}" for alias in node.names)]
    return names, dynamic


def _package_of(name: str) -> set[str]:
    top = name.partition(".")[0]
    return set() if top in sys.stdlib_module_names else set(_distributions().get(top, ()))


@cache
def _distributions() -> Mapping[str, list[str]]:
    return packages_distributions()


def _digest(module: ModuleType, path: str) -> str:
    if module not in _imported:
        _imported[module] = file_digest(Path(path))
    return _imported[module]


def _found_there(name: str, path: str) -> bool:
    """Whether importing a module would still take this file; only its first part is looked up, which imports nothing."""
    top = name.partition(".")[0]
    found = importlib.util.find_spec(top)
    if found is None:
        return False
    if top == name and not found.submodule_search_locations:
        return found.origin is not None and os.path.abspath(found.origin) == path
    return any(path.startswith(os.path.join(os.path.abspath(folder), "")) for folder in found.submodule_search_locations or ())
