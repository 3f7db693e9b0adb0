"""Objects named as ``package.module:name``; free of torch."""

from __future__ import annotations

import inspect
import os
import pkgutil
import re
import sys
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from typing import Any

from ..judge.errors import AuditError

_FACTORY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def is_factory(spec: str) -> bool:
    """Whether a SPEC has the form ``package.module:name``."""
    return _FACTORY.fullmatch(spec) is not None


def add_cwd_to_path() -> None:
    """Let modules of the working folder be imported: a paper's package is rarely installed."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def find_package(spec: str) -> ModuleSpec | None:
    """Where the top-level package of a SPEC lies; nothing is imported."""
    add_cwd_to_path()
    try:
        return find_spec(re.split("[.:]", spec)[0])
    except (ImportError, ValueError):
        return None


def check_factory(spec: str, what: str) -> None:
    """Refuse a SPEC that names nothing, as far as that is known before anything is imported."""
    if not is_factory(spec):
        raise AuditError(f"{what} {spec!r}: expected package.module:name")
    if find_package(spec) is None:
        raise AuditError(f"{what} {spec!r}: no such module; is its folder on PYTHONPATH?")


def import_object(spec: str, what: str) -> Any:
    """The function or class that a SPEC names.

    >>> import_object("math:sqrt", "credit function")(4.0)
    2.0
    """
    check_factory(spec, what)
    try:
        return pkgutil.resolve_name(spec)
    except Exception as error:
        raise AuditError(
            f"{what} {spec!r} cannot be imported: {type(error).__name__}: {error}"
        ) from error


def call_factory(spec: str, what: str, config: Mapping[str, Any] | None = None) -> Any:
    """What a factory returns; it gets the config whole, or by name what it takes of it."""
    factory = import_object(spec, what)
    try:
        if config is None:
            return factory()
        parameters = inspect.signature(factory).parameters
        first = next(iter(parameters.values()), None)
        if first is not None and _takes_config(first, config):
            return factory(dict(config))
        return factory(**{name: config[name] for name in parameters if name in config})
    except Exception as error:
        raise AuditError(f"{what} {spec!r} raised {type(error).__name__}: {error}") from error


def _takes_config(parameter: inspect.Parameter, config: Mapping[str, Any]) -> bool:
    """Whether the first parameter of a factory is the config as a whole."""
    if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
        return False
    if parameter.name in ("config", "cfg", "conf"):
        return True
    return parameter.default is parameter.empty and parameter.name not in config
