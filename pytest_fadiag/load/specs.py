"""Objects named on the command line as ``package.module:name``; free of torch."""

from __future__ import annotations

import ast
import difflib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Iterable, Mapping
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from ..judge.errors import AuditError
from .digests import installed_version, joined

CONFIG_NAMES = ("config", "cfg", "conf")
"""Parameters that get the checkpoint's ``config`` although they have a default."""

_FACTORY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def import_from_here() -> None:
    """Let the working folder's modules be imported: a paper repo's own package is usually not installed."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)


def is_factory(spec: str) -> bool:
    """Whether a SPEC has the form ``package.module:name``."""
    return _FACTORY.fullmatch(spec) is not None


def call_factory(spec: str, what: str, config: Mapping[str, Any] | None = None) -> Any:
    """What the factory returns; it is called with the config if it takes it whole, else with what it takes of it by name."""
    factory = _imported(spec, what)
    arguments, named = ((), {}) if config is None else _taken(factory, config)
    try:
        return factory(*arguments, **named)
    except Exception as error:
        raise AuditError(f"{what} {spec!r} raised {type(error).__name__}: {error}") from error


def named_function(spec: str, what: str) -> Any:
    """The function that a SPEC names."""
    if not is_factory(spec):
        raise AuditError(f"{what} {spec!r}: expected package.module:function")
    return _imported(spec, what)


def network_identity(spec: str | None) -> str | None:
    """What a network is known by before anything is imported: its SPEC, and where its code would be taken from.

    What a factory's code consists of is only known when it was imported: results are kept with its sources.
    """
    if spec is None:
        return "reference"
    if spec.startswith("torchvision:"):
        return joined([spec, installed_version("torchvision")])
    if not is_factory(spec):
        return spec
    _look_here()
    try:
        found = importlib.util.find_spec(spec.partition(":")[0].partition(".")[0])
    except (ImportError, ValueError):
        return None
    if found is None or (found.origin is None and not found.submodule_search_locations):
        return None
    return joined([spec, str(found.origin), *(found.submodule_search_locations or ())])


def _look_here() -> None:
    here = str(Path.cwd())
    if here not in sys.path:  # a paper repo's own package is usually not installed
        sys.path.append(here)


MAKES_NAMES = {"__getattr__", "exec", "globals", "locals", "setattr", "vars"}
"""What may bind names in a module that its text does not have."""


def absent(spec: str) -> str:
    """Why there is nothing of a name, as far as files tell before anything is imported; nothing where they do not tell."""
    module, _, name = spec.partition(":")
    _look_here()
    importlib.invalidate_caches()
    parts = module.split(".")
    try:
        found = importlib.util.find_spec(parts[0])
    except (ImportError, ValueError):
        return ""
    for length in range(2, len(parts) + 1):
        folders = None if found is None else found.submodule_search_locations
        if not folders or not all(map(os.path.isdir, folders)):
            break
        found = PathFinder.find_spec(".".join(parts[:length]), folders)
    else:
        return "" if found is not None and _may_have(found.origin, name) else _missing(module, name, found)
    return _missing(module, name, None) if found is None else ""


def _may_have(origin: str | None, name: str) -> bool:
    if origin is None or not origin.endswith(".py"):
        return True
    names = _names(Path(origin))
    return names is None or name in names


def _names(file: Path) -> set[str] | None:
    """The names that the text of a module binds; unknown where it may bind others."""
    try:
        nodes = list(ast.walk(ast.parse(file.read_bytes())))
    except (OSError, SyntaxError, ValueError):
        return None
    aliases = [alias for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom)) for alias in node.names]
    names = {(alias.asname or alias.name).partition(".")[0] for alias in aliases}
    names |= {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))}
    names |= {node.id for node in nodes if isinstance(node, ast.Name)}
    return None if "*" in names or names & MAKES_NAMES else names


def _missing(module: str, name: str, found: ModuleSpec | None) -> str:
    if found is None:
        return f"there is no module {module!r}; is its folder on PYTHONPATH?"
    return f"module {module!r} has no {name!r}{_meant(name, _names(Path(str(found.origin))) or ())}"


def _meant(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, names, 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def factory_digest(spec: str, what: str) -> str | None:
    """What a factory says identifies what it makes, by its attribute ``digest``; importing it is all that this takes."""
    try:
        digest = getattr(_imported(spec, what), "digest", None)
    except AuditError:
        return None  # whoever calls it says what is wrong
    try:
        own = digest() if callable(digest) else digest
    except Exception as error:
        raise AuditError(f"{what} {spec!r}: its digest() raised {type(error).__name__}: {error}") from error
    if own is not None and not (isinstance(own, str) and own):
        raise AuditError(f"{what} {spec!r}: its digest is {own!r:.80}; expected a text, or a function that returns one")
    return own


def _taken(factory: Any, config: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A config as the arguments of a factory: whole, where a parameter is called so or must be given and is not in it.

    A class such as a LightningModule takes its width and depth by name, as its ``hyper_parameters`` have them.
    """
    try:
        parameters = list(inspect.signature(factory).parameters.values())
    except (TypeError, ValueError):
        return (), {}
    first = next((p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)), None)
    asked = first is not None and first.default is first.empty and first.name not in config
    if first is not None and (asked or first.name in CONFIG_NAMES):
        return (dict(config),), {}
    by_name = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    return (), {name: config[name] for name in by_name if name in config}


def _imported(spec: str, what: str) -> Any:
    module, _, name = spec.partition(":")
    _look_here()
    try:
        found = getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise AuditError(f"{what} {spec!r}: cannot import {module!r} ({error}); is its folder on PYTHONPATH?") from error
    except AttributeError:
        meant = _meant(name, vars(sys.modules[module]) if module in sys.modules else ())
        raise AuditError(f"{what} {spec!r}: module {module!r} has no {name!r}{meant}") from None
    except Exception as error:
        raise AuditError(f"{what} {spec!r}: importing {module!r} raised {type(error).__name__}: {error}") from error
    if not callable(found):
        raise AuditError(f"{what} {spec!r} is {type(found).__name__}, not a function or class that can be called")
    return found
