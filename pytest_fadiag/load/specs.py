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

CONFIG_NAMES = ("config", "cfg", "conf")
"""What the parameter of a factory is called that takes the config whole."""
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


def call_factory(
    spec: str, what: str, config: Mapping[str, Any] | None = None, **others: Any
) -> Any:
    """What a factory returns; it gets the config whole, or by name what it takes of it.

    ``others`` are what else it may take by name, such as the state_dict.
    """
    factory = import_object(spec, what)
    try:
        if config is None:
            return factory()
        parameters = inspect.signature(factory).parameters
        arguments = {name: value for name, value in others.items() if name in parameters}
        required = _required(parameters, arguments)
        if required and (required[0] in CONFIG_NAMES or len(required) == len(parameters) == 1):
            return factory(dict(config), **arguments)
        lacking = [name for name in required if name not in config]
        arguments |= {name: config[name] for name in parameters if name in config}
        if not lacking:
            return factory(**arguments)
    except Exception as error:
        raise AuditError(f"{what} {spec!r} raised {type(error).__name__}: {error}") from error
    raise AuditError(
        f"{what} {spec!r} takes {', '.join(lacking)}, which the checkpoint's config does not hold: "
        "write a factory of one parameter, config, that builds the network"
    )


def _required(
    parameters: Mapping[str, inspect.Parameter], arguments: Mapping[str, Any]
) -> list[str]:
    """The parameters that a call must give besides these arguments; a config may always be one."""
    required = []
    for name, parameter in parameters.items():
        by_name = parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        needed = parameter.default is parameter.empty or name in CONFIG_NAMES
        if by_name and needed and name not in arguments:
            required.append(name)
    return required
