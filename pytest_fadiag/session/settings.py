"""What one run of pytest is asked to do: marker over command line over ini file over default,
decided here alone.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..judge.diagnostics import select
from ..judge.errors import AuditError
from ..judge.protocol import PROTOCOLS
from ..judge.records import Normalisation
from ..judge.thresholds import SHORT_NAMES, DiagnosticThresholds
from ..load.setup import Setup
from ..load.sources import parse_data
from ..options import OPTIONS, Option

if TYPE_CHECKING:
    import pytest

MARKER = "fa_protocol"
MARKER_KEYS: dict[str, tuple[Any, str]] = {
    "checkpoint": ((str, os.PathLike), "'runs/*.pt'"),
    "seeds": (int, "[42, 123]"),
    "diagnostics": (str, "'abd'"),
    "expect": (str, "'a'"),
}
"""The keywords of the marker that are not thresholds: their type, and an example."""
NAMES = {"checkpoint", "log", "trace"}
"""The options that name files to audit: what is typed replaces all that the ini file names."""
JUDGES = {"protocol", "diagnostics"}
"""The options that say which diagnostics run."""


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
        typed = frozenset(o.name for o in OPTIONS if config.getoption(o.key, None) is not None)
        texts = _texts_of_all(config, typed)
        values: dict[str, Any] = {}
        for option in OPTIONS:
            values[option.name] = option.default
            if texts[option.name]:
                values[option.name] = texts[option.name][-1]
        with _naming("diagnostics", typed):
            select(values["diagnostics"] or "all")
        with _naming("normalize", typed):
            Normalisation.parse(values["normalize"] or "none")
        with _naming("threshold", typed):
            thresholds = _thresholds(values["protocol"], texts["threshold"])
        root = config.rootpath
        cwd = config.invocation_params.dir
        data = values["data"]
        if data:
            with _naming("data", typed):
                data = _data(config, data, cwd if "data" in typed else root)
        expect = None
        if values["expect"]:
            expect = _path(cwd if "expect" in typed else root, values["expect"])
        return cls(
            root=root,
            cwd=cwd,
            texts={name: words for name, words in texts.items() if words},
            typed=typed,
            seeds=_seeds(values["seeds"]),
            missing=str(values["missing"]),
            shard=_shard(values["shard"]),
            only=bool(values["only"]),
            setup=Setup.of(values, data=data, unsafe=bool(values["unsafe-load"]), base=root),
            no_cache=bool(values["no-cache"]),
            diagnostics=values["diagnostics"],
            protocol=values["protocol"],
            thresholds=thresholds,
            expect=expect,
            update_expect=bool(values["update-expect"]),
        )

    def path(self, option: str, text: str) -> Path:
        """A path of an option: what is typed starts in the working folder, what the ini file says
        in the root folder.
        """
        return _path(self.cwd if option in self.typed else self.root, text)


def spelled(option: str, typed: Collection[str]) -> str:
    """An option as it was given."""
    return f"--fa-{option}" if option in typed else f"ini option fa_{option}"


@contextmanager
def _naming(option: str, typed: Collection[str]) -> Iterator[None]:
    """Name an option in what is wrong with it."""
    try:
        yield
    except AuditError as error:
        raise AuditError(f"{spelled(option, typed)}: {error}") from None


def _texts_of_all(config: pytest.Config, typed: Collection[str]) -> dict[str, tuple[str, ...]]:
    """What every option is set to, where those that exclude each other are one."""
    texts = {option.name: _texts(config, option) for option in OPTIONS}
    replaced: set[str] = set()
    if not NAMES.isdisjoint(typed):
        replaced |= NAMES.difference(typed)
    if all(texts[name] for name in JUDGES):
        if len(JUDGES.intersection(typed)) != 1:
            raise AuditError("--fa-protocol says which diagnostics run; leave out --fa-diagnostics")
        replaced |= JUDGES.difference(typed)
    return texts | dict.fromkeys(replaced, ())


def _texts(config: pytest.Config, option: Option) -> tuple[str, ...]:
    """What an option is set to: the command line's values, else the ini file's.

    Thresholds of both.
    """
    try:
        value = config.getoption(option.key, None)
        if option.ini and (value is None or option.name == "threshold"):
            of_ini: Any = config.getini(option.key)
            value = of_ini if value is None else [*(of_ini or ()), *value]
        if value in (None, "", False):
            return ()
        if option.flag:
            return ("true",)
        values = [str(text) for text in value] if isinstance(value, list) else [str(value)]
        if not option.many:
            values = [",".join(values)]
        return tuple(map(option.check, values))
    except (argparse.ArgumentTypeError, TypeError, ValueError) as error:
        raise AuditError(f"ini option {option.key}: {error}") from None


def _thresholds(protocol: str | None, texts: Sequence[str]) -> DiagnosticThresholds:
    """The thresholds and rules of a published form, with those that are changed."""
    rules: dict[str, str] = {}
    if protocol is not None:
        rules |= PROTOCOLS[protocol].rules
    for text in texts:
        name, _, value = text.partition("=")
        rules[name.strip()] = value.strip()
    return DiagnosticThresholds().replace(**rules)


def _seeds(text: str | None) -> tuple[int, ...]:
    return tuple(map(int, text.split(","))) if text else ()


def _shard(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    part, parts = map(int, text.split("/"))
    if part > parts:
        raise AuditError(f"--fa-shard={text}: expected a part of at most {parts}")
    return part, parts


def _path(base: Path, text: str) -> Path:
    return base / os.path.expanduser(text)


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
    if kind == "factory":
        return spec
    path = os.path.abspath(place)
    return path if kind == "file" else f"{kind}:{path}"


def marked(node: pytest.Item | pytest.Collector) -> dict[str, Any]:
    """The keywords of the markers on a test, its class and its module, by full names.

    The closest wins, key by key.
    """
    keywords: dict[str, Any] = {}
    for mark in reversed(list(node.iter_markers(MARKER))):
        if mark.args:
            raise AuditError(f"@pytest.mark.{MARKER} takes keywords only, not {mark.args[0]!r}")
        for name, value in mark.kwargs.items():
            keywords[SHORT_NAMES.get(name, name)] = value
    limits = {name: value for name, value in keywords.items() if name not in MARKER_KEYS}
    try:
        DiagnosticThresholds().replace(**limits)
        for name in keywords.keys() & MARKER_KEYS.keys():
            keywords[name] = _keyword(name, keywords[name])
    except AuditError as error:
        names = ", ".join(MARKER_KEYS)
        raise AuditError(f"@pytest.mark.{MARKER}: {error}; other keywords: {names}") from None
    return keywords


def _keyword(name: str, value: Any) -> Any:
    """One keyword of the marker that is no threshold: «all», or a tuple of what it lists."""
    kind, example = MARKER_KEYS[name]
    values = value if isinstance(value, (list, tuple)) else [value]
    if not all(isinstance(entry, kind) for entry in values):
        raise AuditError(f"expected {name}={example}, not {value!r}")
    if kind is not str:
        return tuple(values)
    if value == "all":
        return value
    if not any(values):
        return ()
    return tuple(diagnostic.key for diagnostic in select(values))
