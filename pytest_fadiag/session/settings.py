"""What one run of pytest is asked to do: marker over command line over ini file over default,
decided here alone.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ..judge.diagnostics import select
from ..judge.errors import AuditError
from ..judge.protocol import PROTOCOLS
from ..judge.records import Normalisation
from ..judge.thresholds import SHORT_NAMES, DiagnosticThresholds
from ..load.setup import Setup
from ..load.sources import parse_data
from ..options import OPTIONS, Option

MARKER = "fa_protocol"
MARKER_KEYS: dict[str, tuple[Any, str]] = {
    "checkpoint": ((str, os.PathLike), "'runs/*.pt'"),
    "seeds": (int, "[42, 123]"),
    "diagnostics": (str, "'abd'"),
    "expect": (str, "'a'"),
}
"""The keywords of the marker that are not thresholds: their type, and an example."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The options of a run, each from one source."""

    root: Path
    cwd: Path
    texts: dict[str, tuple[str, ...]]
    """Every option that was set, as it was written, by its name."""
    typed: frozenset[str]
    """The names of those on the command line."""
    seeds: tuple[int, ...]
    missing: str
    shard: tuple[int, int] | None
    only: bool
    setup: Setup
    no_cache: bool
    diagnostics: str | None
    """The explicit list, where there is one."""
    protocol: str | None
    thresholds: DiagnosticThresholds
    expect: Path | None
    update_expect: bool

    @classmethod
    def read(cls, config: pytest.Config) -> Settings:
        """The settings of a run; what is wrong with one is an error that names it."""
        texts = {option.name: _texts(config, option) for option in OPTIONS}
        typed = frozenset(o.name for o in OPTIONS if config.getoption(o.key, None) is not None)
        kinds = {"checkpoint", "log", "trace"}
        if typed & kinds:  # what is typed replaces all that the ini file names
            texts |= dict.fromkeys(kinds - typed, ())
        if texts["protocol"] and texts["diagnostics"]:
            if len(typed & {"protocol", "diagnostics"}) != 1:
                raise AuditError(
                    "--fa-protocol says which diagnostics run; leave out --fa-diagnostics"
                )
            texts |= dict.fromkeys({"protocol", "diagnostics"} - typed, ())
        one = {o.name: texts[o.name][-1] if texts[o.name] else o.default for o in OPTIONS}
        part, parts = (int(number) for number in (one["shard"] or "1/1").split("/"))
        if part > parts:
            raise AuditError(f"--fa-shard={one['shard']}: expected a part of at most {parts}")
        rules = {**PROTOCOLS[one["protocol"]].rules} if one["protocol"] else {}
        pairs = [text.partition("=") for text in texts["threshold"]]
        rules |= {name.strip(): value.strip() for name, _, value in pairs}
        root, cwd = config.rootpath, config.invocation_params.dir
        base = {name: cwd if name in typed else root for name in texts}
        with _said_of("diagnostics", typed):
            select(one["diagnostics"] or "all")
        with _said_of("normalize", typed):
            Normalisation.parse(one["normalize"] or "none")
        with _said_of("threshold", typed):
            thresholds = DiagnosticThresholds().replace(**rules)
        with _said_of("data", typed):
            data = one["data"] and _data(config, one["data"], base["data"])
        return cls(
            root=root,
            cwd=cwd,
            texts={name: given for name, given in texts.items() if given},
            typed=typed,
            seeds=tuple(map(int, one["seeds"].split(","))) if one["seeds"] else (),
            missing=str(one["missing"]),
            shard=(part, parts) if one["shard"] else None,
            only=bool(one["only"]),
            setup=Setup.of(one, data=data, unsafe=bool(one["unsafe-load"]), base=root),
            no_cache=bool(one["no-cache"]),
            diagnostics=one["diagnostics"],
            protocol=one["protocol"],
            thresholds=thresholds,
            expect=base["expect"] / os.path.expanduser(one["expect"]) if one["expect"] else None,
            update_expect=bool(one["update-expect"]),
        )

    def path(self, option: str, text: str) -> Path:
        """A path of an option: what is typed starts in the working folder, what the ini file says
        in the root folder.
        """
        return (self.cwd if option in self.typed else self.root) / os.path.expanduser(text)


def spelled(option: str, typed: Collection[str]) -> str:
    """An option as it was given."""
    return f"--fa-{option}" if option in typed else f"ini option fa_{option}"


@contextmanager
def _said_of(option: str, typed: Collection[str]) -> Iterator[None]:
    """Name an option in what is wrong with it."""
    try:
        yield
    except AuditError as error:
        raise AuditError(f"{spelled(option, typed)}: {error}") from None


def _texts(config: pytest.Config, option: Option) -> tuple[str, ...]:
    """What an option is set to: the command line's values, else the ini file's.

    Thresholds of both.
    """
    line = config.getoption(option.key, None)
    try:
        ini: Any = config.getini(option.key) if option.ini else None
        chosen = (
            ini if line is None else [*(ini or ()), *line] if option.name == "threshold" else line
        )
        if chosen in (None, "", False):
            return ()
        if option.flag:
            return ("true",)
        listed = [str(value) for value in chosen] if isinstance(chosen, list) else [str(chosen)]
        return tuple(option.check(text) for text in (listed if option.many else [",".join(listed)]))
    except (argparse.ArgumentTypeError, TypeError, ValueError) as error:
        raise AuditError(f"ini option {option.key}: {error}") from None


def _data(config: pytest.Config, spec: str, base: Path) -> str:
    """The SPEC of the data with an absolute path.

    One that is not built in may be another package's.
    """
    try:
        kind, place = parse_data(spec, base)
    except AuditError:
        if config.hook.pytest_fadiag_load_data.get_hookimpls():
            return spec
        raise
    path = os.path.abspath(place)
    return {"factory": spec, "file": path}.get(kind, f"{kind}:{path}")


def marked(node: pytest.Item | pytest.Collector) -> dict[str, Any]:
    """The keywords of the markers on a test, its class and its module, by full names.

    The closest wins, key by key.
    """
    merged: dict[str, Any] = {}
    for mark in reversed(list(node.iter_markers(MARKER))):
        if mark.args:
            raise AuditError(f"@pytest.mark.{MARKER} takes keywords only, not {mark.args[0]!r}")
        merged |= {SHORT_NAMES.get(name, name): value for name, value in mark.kwargs.items()}
    try:
        DiagnosticThresholds().replace(**{k: v for k, v in merged.items() if k not in MARKER_KEYS})
        for name in merged.keys() & MARKER_KEYS.keys():
            kind, example = MARKER_KEYS[name]
            given = merged[name] if isinstance(merged[name], (list, tuple)) else [merged[name]]
            if not all(isinstance(value, kind) for value in given):
                raise AuditError(f"expected {name}={example}, not {merged[name]!r}")
            if kind is str and merged[name] != "all":
                given = [one.key for one in select(given)] if any(given) else []
            merged[name] = merged[name] if merged[name] == "all" else tuple(given)
    except AuditError as error:
        others = ", ".join(MARKER_KEYS)
        raise AuditError(f"@pytest.mark.{MARKER}: {error}; other keywords: {others}") from None
    return merged
