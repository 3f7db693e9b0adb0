"""The diagnostics that a run knows: the built-in ones, and those of other packages."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from ..errors import AuditError
from ..keys import Keys
from ..observers import ObserverSpec
from ..thresholds import DiagnosticThresholds, threshold_names
from .base import Diagnostic
from .column import Column

ALL = "all"
"""The word for every diagnostic there is."""
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)+")


class Diagnostics(tuple[Diagnostic, ...]):
    """Diagnostics in the order in which they are reported: by their letters, then by their names."""

    __slots__ = ()

    def __new__(cls, diagnostics: Iterable[Diagnostic]) -> Diagnostics:
        """These diagnostics, checked: each has a name, and a name, an observer or a threshold belongs to one of them."""
        ordered = sorted(diagnostics, key=lambda diagnostic: (len(diagnostic.key) > 1, diagnostic.key))
        _check(ordered)
        return super().__new__(cls, ordered)

    def with_others(self, others: Iterable[Diagnostic]) -> Diagnostics:
        """These and those of other packages, which have names and no letters."""
        others = list(others)
        for other in others:
            if not isinstance(other, Diagnostic):
                raise AuditError(f"{other!r:.80} is no diagnostic; give instances of a class derived from Diagnostic")
            if other.key != other.name:
                raise AuditError(
                    f"the diagnostic {other.name!r} has the key {other.key!r}: letters belong to the built-in diagnostics, "
                    "others are known by their names"
                )
        return Diagnostics([*self, *others]) if others else self

    @property
    def by_default(self) -> Diagnostics:
        """Those that run where nobody says which."""
        return tuple.__new__(Diagnostics, (diagnostic for diagnostic in self if diagnostic.by_default))

    def select(self, keys: str | Iterable[str]) -> tuple[Diagnostic, ...]:
        """The diagnostics named by keys or names («ad», «ad,my-name», «frozen-margin», «all»), in their order."""
        if keys == ALL:
            return tuple(self)
        wanted = Keys.parse(keys)
        unknown = sorted(key for key in wanted if self.get(key) is None)
        if unknown or not wanted:
            shown = keys if isinstance(keys, str) else ",".join(keys)
            raise AuditError(
                f"diagnostics {str(shown)!r}: "
                + (f"unknown key {', '.join(map(repr, unknown))}; " if unknown else "no key given; ")
                + f"known: {self.listed}"
            )
        return tuple(diagnostic for diagnostic in self if diagnostic.key in wanted or diagnostic.name in wanted)

    def get(self, key: str) -> Diagnostic | None:
        """The diagnostic with this key or this name."""
        return next((diagnostic for diagnostic in self if key in (diagnostic.key, diagnostic.name)), None)

    @property
    def listed(self) -> str:
        """Their keys and names in a row, for a person."""
        return ", ".join(d.name if d.key == d.name else f"{d.key} ({d.name})" for d in self)

    @property
    def observers(self) -> dict[str, ObserverSpec[object]]:
        """Those that measure what they judge, by name."""
        return {observer.name: observer for diagnostic in self for observer in diagnostic.observers}

    @property
    def columns(self) -> tuple[Column, ...]:
        """The numbers that they contribute to the table."""
        return tuple(column for diagnostic in self for column in diagnostic.columns)

    def thresholds(self) -> DiagnosticThresholds:
        """The defaults of all of them."""
        return DiagnosticThresholds(others={d.threshold: d.default for d in self if d.default is not None})


def _check(diagnostics: list[Diagnostic]) -> None:
    for diagnostic in diagnostics:
        if not _NAME.fullmatch(diagnostic.name):
            raise AuditError(
                f"the diagnostic {diagnostic.name!r} needs a name of lower-case words joined by hyphens, such as my-name: a "
                "name without a hyphen could be taken for letters"
            )
        if diagnostic.threshold not in threshold_names() and diagnostic.default is None:
            raise AuditError(f"the diagnostic {diagnostic.name!r} has no default for its threshold {diagnostic.threshold!r}")
    specs = {spec for diagnostic in diagnostics for spec in diagnostic.observers}
    for what, names in (
        ("the diagnostic", [diagnostic.name for diagnostic in diagnostics]),
        ("the key", [diagnostic.key for diagnostic in diagnostics]),
        ("the threshold", [diagnostic.threshold for diagnostic in diagnostics]),
        ("the column", [column.title for diagnostic in diagnostics for column in diagnostic.columns]),
        ("the observer", [spec.name for spec in specs]),
    ):
        twice = [name for name, times in Counter(names).items() if times > 1]
        if twice:
            raise AuditError(f"{what} {twice[0]!r} is given twice, so that nobody could tell which is meant")
