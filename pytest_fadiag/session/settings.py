"""What one run of pytest is asked to audit, resolved from marker, command line, ini file and defaults."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ..protocol.diagnostics import select
from ..protocol.errors import AuditError
from ..protocol.thresholds import DiagnosticThresholds, threshold_names
from .options import OPTIONS, Option

MARKER = "fa_protocol"
MARKER_KEYS = ("checkpoint", "seeds", "diagnostics", "expect")


@dataclass(frozen=True)
class Settings:
    """The options of a run as one object; ``given`` are those that somebody set."""

    values: Mapping[str, Any]
    given: frozenset[str]
    from_command_line: frozenset[str]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self.values[name]
        except KeyError:
            raise AttributeError(name) from None

    @classmethod
    def of(cls, config: pytest.Config) -> Settings:
        """Command line over ini over default, decided by ``is not None`` here and nowhere else."""
        values: dict[str, Any] = {}
        given, typed = set(), set()
        for option in OPTIONS:
            name = option.key.removeprefix("fa_")
            line = config.getoption(option.key, None)
            ini = config.getini(option.key) if option.ini else None
            if line is not None:
                typed.add(name)
            chosen = line if line is not None else ini if ini not in (None, "", []) else None
            if chosen is not None and chosen is not False:
                given.add(name)
            values[name] = _read(option, chosen, from_ini=line is None)
        return cls(values, frozenset(given), frozenset(typed))

    def thresholds(self, marked: Mapping[str, Any] | None = None) -> DiagnosticThresholds:
        """The thresholds of the command line and ini, then those of a marker."""
        changes = dict(self.threshold or ())
        for name in ("growth", "confounds"):
            if self.values[name] is not None:
                changes[name] = self.values[name]
        marked = {name: value for name, value in (marked or {}).items() if name not in MARKER_KEYS}
        return DiagnosticThresholds().replace(**changes).replace(**marked)


def _read(option: Option, chosen: Any, *, from_ini: bool) -> Any:
    if chosen is None:
        return option.default if not option.many else ()
    if option.flag:
        return bool(chosen)
    try:
        return tuple(option.read(text) for text in chosen) if option.many else option.read(chosen)
    except argparse.ArgumentTypeError as error:
        where = f"ini option {option.key}" if from_ini else f"--fa-{option.name}"
        raise pytest.UsageError(f"{where}: {error}") from None


def marked(node: pytest.Item | pytest.Collector) -> dict[str, Any]:
    """The keywords of the markers on a test, its class and its module; the closest wins, key by key."""
    merged: dict[str, Any] = {}
    for marker in reversed(list(node.iter_markers(MARKER))):
        merged.update(marker_keywords(marker))
    return merged


def marker_keywords(marker: pytest.Mark) -> dict[str, Any]:
    """The keywords of one marker, checked; an unknown one fails with the known ones named."""
    known = (*threshold_names(short=True), *MARKER_KEYS)
    if marker.args:
        raise pytest.UsageError(f"@pytest.mark.{MARKER} takes keywords only, not {marker.args[0]!r}; known: {', '.join(known)}")
    keywords = dict(marker.kwargs)
    unknown = sorted(set(keywords) - set(known))
    if unknown:
        raise pytest.UsageError(f"@pytest.mark.{MARKER}: unknown keyword {unknown[0]!r}; known: {', '.join(known)}")
    try:
        DiagnosticThresholds().replace(**{name: value for name, value in keywords.items() if name not in MARKER_KEYS})
        if "diagnostics" in keywords:
            select(keywords["diagnostics"])
        if keywords.get("expect"):
            select(keywords["expect"])
    except (AuditError, TypeError) as error:
        raise pytest.UsageError(f"@pytest.mark.{MARKER}: {error}") from None
    return keywords


def base_folder(config: pytest.Config, name: str, settings: Settings) -> Path:
    """Where a relative path starts: the invocation's folder for what was typed, the root folder for ini and markers."""
    return config.invocation_params.dir if name in settings.from_command_line else config.rootpath
