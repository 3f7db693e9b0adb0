"""The diagnostics of the protocol and those of other packages."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from ..errors import AuditError
from ..thresholds import OTHERS, DiagnosticThresholds
from .base import Column, Curve, Diagnostic, Finding, Open, OpenKind, Role, Status
from .credit_alignment import CreditAlignment
from .depth_utility import DepthUtility
from .direction_drift import DirectionDrift
from .frozen_margin import FrozenMargin
from .gradient_floor import GradientFloor
from .linear_floor import LinearFloor
from .residual_growth import ResidualGrowth

__all__ = [
    "DIAGNOSTICS",
    "Column",
    "Curve",
    "Diagnostic",
    "Finding",
    "Open",
    "OpenKind",
    "Role",
    "Status",
    "available",
    "columns",
    "default_diagnostics",
    "get",
    "letters",
    "parse_keys",
    "published_names",
    "register",
    "select",
    "unregister",
]

DIAGNOSTICS: tuple[Diagnostic, ...] = (
    ResidualGrowth(),
    GradientFloor(),
    DirectionDrift(),
    FrozenMargin(),
    DepthUtility(),
    CreditAlignment(),
    LinearFloor(),
)
"""The built-in ones, in the order in which they are reported."""
_of_other_packages: dict[str, Diagnostic] = {}
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)+")


def register(diagnostic: Diagnostic) -> None:
    """Add a diagnostic of another package; it and its threshold are known by their names."""
    if not isinstance(diagnostic, Diagnostic):
        raise AuditError(f"expected an instance of a Diagnostic, got {diagnostic!r:.80}")
    name = diagnostic.name
    is_named = _NAME.fullmatch(name) and diagnostic.key == name
    if not is_named or diagnostic.default is None:
        raise AuditError(
            f"diagnostic {name!r}: expected a name such as my-name, no key, and a default"
        )
    titles = {column.title for column in diagnostic.columns}
    clashes = sorted({name, diagnostic.threshold, *titles} & _names_in_use())
    if clashes:
        raise AuditError(f"diagnostic {name!r}: {clashes[0]!r} exists already")
    _of_other_packages[name] = diagnostic
    OTHERS[diagnostic.threshold] = float(diagnostic.default)


def _names_in_use() -> set[str]:
    """Thresholds, diagnostics and columns share one space of names."""
    names = set(DiagnosticThresholds().by_name())
    names.update(diagnostic.name for diagnostic in available())
    names.update(column.title for column in columns())
    return names


def unregister(name: str) -> None:
    """Forget a diagnostic of another package."""
    if name in _of_other_packages:
        del OTHERS[_of_other_packages.pop(name).threshold]


def available() -> tuple[Diagnostic, ...]:
    """All diagnostics: by their letters, then by their names."""
    return (*DIAGNOSTICS, *(_of_other_packages[name] for name in sorted(_of_other_packages)))


def get(key: str) -> Diagnostic | None:
    """The diagnostic of a key or name.

    >>> get("d").name
    'frozen-margin'
    """
    for diagnostic in available():
        if key in (diagnostic.key, diagnostic.name):
            return diagnostic
    return None


def parse_keys(keys: str | Iterable[str]) -> tuple[str, ...]:
    """Keys as a person writes them: «abd», «abd,my-name», or a list of such texts."""
    texts = [keys] if isinstance(keys, str) else keys
    parsed: list[str] = []
    for text in texts:
        for word in text.split(","):
            name = word.strip()
            if "-" in name:
                parsed.append(name)
            else:
                parsed.extend(name)
    return tuple(parsed)


def select(keys: str | Iterable[str]) -> tuple[Diagnostic, ...]:
    """The diagnostics of keys or names, in their order; ``all`` are all.

    >>> [diagnostic.key for diagnostic in select("da")]
    ['a', 'd']
    """
    if keys == "all":
        return available()
    words = parse_keys(keys)
    unknown = [word for word in words if get(word) is None]
    if unknown:
        names = ", ".join(map(repr, unknown))
        raise AuditError(f"unknown diagnostic {names}; known: {_known_in_words()}")
    if not words:
        raise AuditError(f"no diagnostic given; known: {_known_in_words()}")
    return tuple(d for d in available() if d.key in words or d.name in words)


def _known_in_words() -> str:
    """Every key with its name: «a (residual-growth), …, my-name»."""
    words = []
    for diagnostic in available():
        built_in = diagnostic.key != diagnostic.name
        words.append(f"{diagnostic.key} ({diagnostic.name})" if built_in else diagnostic.name)
    return ", ".join(words)


def default_diagnostics(credit: bool, partial: bool = False) -> tuple[Diagnostic, ...]:
    """What runs where nothing is asked for: what needs a credit only where there is one.

    ``partial`` is a training log, which holds little of what is judged otherwise.
    """
    chosen = []
    for diagnostic in available():
        runs = diagnostic.by_default
        if diagnostic.needs_credit:
            runs = credit
        if runs and (diagnostic.reads_logs or not partial):
            chosen.append(diagnostic)
    return tuple(chosen)


def published_names() -> tuple[str, ...]:
    """The names of the published diagnostics, which a report is judged by without any word."""
    return tuple(d.name for d in DIAGNOSTICS if d.role is Role.REQUIRED)


def columns() -> tuple[Column, ...]:
    """The numbers that the diagnostics contribute to the audit table."""
    keyed = []
    for diagnostic in available():
        for column in diagnostic.columns:
            keyed.append(msgspec.structs.replace(column, key=diagnostic.key))
    return tuple(keyed)


def letters(keys: Iterable[str]) -> str:
    """Keys in one word: «abd», «abd,my-name»."""
    ordered = sorted(set(keys))
    word = "".join(key for key in ordered if len(key) == 1)
    names = [key for key in ordered if len(key) > 1]
    return ",".join([word, *names] if word else names)
