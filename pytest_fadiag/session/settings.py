"""What one run of pytest is asked to audit, resolved from marker, command line, ini file and defaults."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ..judge.diagnostics import ALL, CreditAlignment, Diagnostic, Diagnostics
from ..judge.errors import AuditError
from ..judge.keys import Keys
from ..judge.protocol import PROTOCOLS, Protocol
from ..judge.thresholds import SHORT_NAMES, DiagnosticThresholds, threshold_names
from ..registry import Registry
from .options import OPTIONS, Option

MARKER = "fa_protocol"
MARKER_KEYS = ("checkpoint", "seeds", "diagnostics", "expect")
MEASURING = (
    *("checkpoint", "log", "data", "normalize", "model", "credit"),
    *("frozen", "threshold", "growth", "confounds", "diagnostics", "protocol", "checklist"),
)
"""What the ini file says of measuring and judging; a merge keeps what the merged audits say, also where these files are not."""


REGISTRY: pytest.StashKey[Registry] = pytest.StashKey()
"""What there is, of this package and of others."""


_NONE = Keys()


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The options of a run, with the folders that their paths start from."""

    available: Diagnostics

    root: Path
    cwd: Path
    given: frozenset[str]
    """The options that somebody set."""
    typed: frozenset[str]
    """Those that stand on the command line."""
    checkpoint: tuple[str, ...]
    log: tuple[str, ...]
    log_batch: int | None
    log_columns: tuple[tuple[str, str], ...] | None
    merge: tuple[str, ...]
    shard: tuple[int, int] | None
    seeds: tuple[int, ...] | None
    missing: str
    model: str | None
    stream: str | None
    data: str | None
    normalize: str | None
    batches: int
    batch_size: int | None
    frozen: tuple[str, ...]
    threshold: tuple[tuple[str, float], ...]
    growth: str | None
    confounds: str | None
    diagnostics: Keys
    named: Keys = _NONE
    """Those of them that somebody named, by letters, by «all» or by a published form."""
    everything: bool = False
    """Whether all diagnostics are run that can be: then one that nobody supplied with what it needs is no error."""
    protocol: str | None
    credit: str | None
    inconclusive: str
    checklist: tuple[str, ...]
    device: str
    threads: int
    report: tuple[tuple[str, str], ...]
    expect: str | None
    update_expect: bool
    update_expect_on_ci: bool
    only: bool
    no_cache: bool
    unsafe_load: bool

    @classmethod
    def of(cls, config: pytest.Config) -> Settings:
        """Command line over ini over default, decided by ``is not None`` here and nowhere else."""
        values: dict[str, Any] = {}
        given: set[str] = set()
        typed = {option.field for option in OPTIONS if config.getoption(option.key, None) is not None}
        unmeant = MEASURING if "merge" in typed and "checkpoint" not in typed else ()
        for option in OPTIONS:
            name = option.field
            line = config.getoption(option.key, None)
            ini = _ini(config, option) if name not in unmeant else None
            ini = None if ini in ("", []) else ini
            if option.merged and line is not None and ini is not None:
                line = [*ini, *line]
            chosen = line if line is not None else ini
            if chosen is not None and chosen is not False:
                given.add(name)
            values[name] = _read(option, chosen, from_ini=line is None)
        _one_way_to_choose(values, given, typed)
        registry = config.stash[REGISTRY]
        available = registry.diagnostics
        everything, chooses = values["diagnostics"] == ALL, values["diagnostics"] is not None
        for name in ("diagnostics", "threshold", "report"):
            try:
                values[name] = _known(name, values[name], registry)
            except AuditError as error:
                raise AuditError(f"{f'--fa-{name}' if name in typed else f'ini option fa_{name}'}: {error}") from None
        named = values["diagnostics"] if chooses else _NONE
        if values["credit"] is not None and values["protocol"] is None and not _narrows(typed):
            values["diagnostics"] = with_alignment(values["diagnostics"])
        return cls(
            **values,
            named=named,
            everything=everything,
            available=available,
            root=config.rootpath,
            cwd=config.invocation_params.dir,
            given=frozenset(given),
            typed=frozenset(typed),
        )

    @classmethod
    def defaults(cls, config: pytest.Config) -> Settings:
        """What holds where nobody set anything."""
        values = {option.field: _read(option, None, from_ini=False) for option in OPTIONS}
        available = config.stash[REGISTRY].diagnostics
        values["diagnostics"] = Keys.of(diagnostic.key for diagnostic in available.by_default)
        nothing: frozenset[str] = frozenset()
        root, cwd = config.rootpath, config.invocation_params.dir
        return cls(**values, root=root, cwd=cwd, available=available, given=nothing, typed=nothing)

    @property
    def selected(self) -> tuple[Diagnostic, ...]:
        """The diagnostics that are run."""
        return self.available.select(self.diagnostics)

    def thresholds(self, marked: Mapping[str, Any] | None = None) -> DiagnosticThresholds:
        """The thresholds of the command line and ini, then those of a marker."""
        marked = {name: value for name, value in (marked or {}).items() if name not in MARKER_KEYS}
        return self.available.thresholds().replace(**self.threshold_changes()).replace(**marked)

    @property
    def form(self) -> Protocol | None:
        """The published form by which the run judges, if it was asked for one."""
        return None if self.protocol is None else PROTOCOLS[self.protocol]

    @property
    def chooses(self) -> bool:
        """Whether somebody says which diagnostics are run, by name or by a published form."""
        return "diagnostics" in self.given or self.protocol is not None

    @property
    def adds_credit(self) -> bool:
        """Whether a credit that is given starts its diagnostic beside those that somebody names."""
        return self.protocol is None and not _narrows(self.typed)

    @property
    def ignores_credit(self) -> bool:
        """Whether a credit stands in the ini file at which no generated test looks, measured or shown."""
        return self.credit is not None and self.protocol is None and CreditAlignment.key not in self.diagnostics

    @property
    def updates_expect(self) -> bool:
        """Whether this run records what it finds instead of comparing with what was recorded."""
        return self.update_expect or self.update_expect_on_ci

    def threshold_changes(self) -> dict[str, Any]:
        """The thresholds that the command line or the ini file set, by name."""
        rules = {"growth": self.growth, "confounds": self.confounds}
        own = {} if self.form is None else self.form.rules
        return {**own, **dict(self.threshold), **{name: rule for name, rule in rules.items() if rule is not None}}

    def base(self, option: str) -> Path:
        """Where a relative path starts: the invocation's folder for what was typed, the root folder for ini and markers."""
        return self.cwd if option in self.typed else self.root

    def path(self, option: str, text: str) -> Path:
        """A path of an option, made absolute; a shell does not expand the ~ of --fa-expect=~/audit.json."""
        return self.base(option) / os.path.expanduser(text)

    def source(self, option: str) -> str:
        """How a message names an option: by where it stands."""
        return f"--fa-{option}" if option in self.typed else f"fa_{option} in the ini file"


def _known(name: str, value: Any, registry: Registry) -> Any:
    """A value that names diagnostics, thresholds or kinds of files, held to those that there are."""
    available = registry.diagnostics
    if name == "diagnostics":
        chosen = available.by_default if value is None else available.select(value)
        return Keys.of(diagnostic.key for diagnostic in chosen)
    if name == "threshold":
        available.thresholds().replace(**dict(value))
        return value
    defaults = {kind: registry.default_destination(kind) for kind, _ in value}
    return tuple((kind, destination or defaults[kind]) for kind, destination in value)


def _one_way_to_choose(values: dict[str, Any], given: set[str], typed: set[str]) -> None:
    """Let a published form name the diagnostics; where names are given as well, what was typed wins, else it is an error."""
    both = {"protocol", "diagnostics"}
    if both <= given and len(both & typed) != 1:
        raise AuditError(
            "--fa-protocol and --fa-diagnostics exclude each other: a published form says which diagnostics are run; leave one "
            "of them out"
        )
    if both <= given:
        (other,) = both - typed
        given.discard(other)
        values[other] = None
    if values["protocol"] is not None:
        values["diagnostics"] = PROTOCOLS[values["protocol"]].keys


def _narrows(typed: Set[str]) -> bool:
    """Whether the command line says which diagnostics are run, and the credit stands elsewhere: what is typed wins."""
    return "diagnostics" in typed and "credit" not in typed


def with_alignment(keys: Keys) -> Keys:
    """These diagnostics and that of the credit, which is run where the credit is given."""
    return Keys.of([*keys, CreditAlignment.key])


def _ini(config: pytest.Config, option: Option) -> Any:
    try:
        return config.getini(option.key) if option.ini else None
    except (TypeError, ValueError) as error:  # before pytest 9.2 a value of the wrong type is no UsageError
        raise AuditError(f"ini option {option.key}: {error}") from None


def _read(option: Option, chosen: Any, *, from_ini: bool) -> Any:
    if option.flag:
        return bool(chosen)
    if chosen is None:
        return option.default if not option.many else ()
    # A TOML file may hold numbers, and a list where a comma would do: fa_frozen = [0.349], fa_seeds = [42, 123].
    texts = [str(value) for value in chosen] if isinstance(chosen, (list, tuple)) else [str(chosen)]
    try:
        return tuple(option.read(text) for text in texts) if option.many else option.read(",".join(texts))
    except argparse.ArgumentTypeError as error:
        where = f"ini option {option.key}" if from_ini else f"--fa-{option.name}"
        raise AuditError(f"{where}: {error}") from None


def marked(node: pytest.Item | pytest.Collector) -> dict[str, Any]:
    """The keywords of the markers on a test, its class and its module; the closest wins, key by key."""
    merged: dict[str, Any] = {}
    for marker in reversed(list(node.iter_markers(MARKER))):
        merged.update(_keywords(marker, node.config.stash[REGISTRY].diagnostics))
    return merged


def _keywords(marker: pytest.Mark, available: Diagnostics) -> dict[str, Any]:
    """The keywords of one marker, checked; an unknown one fails with the accepted ones named."""
    if not marker.args and not marker.kwargs:
        return {}  # as on every generated test
    defaults = available.thresholds()
    accepted = (*threshold_names(short=True), *defaults.others, *MARKER_KEYS)
    if marker.args:
        raise AuditError(f"@pytest.mark.{MARKER} takes keywords only, not {marker.args[0]!r}; known: {', '.join(accepted)}")
    keywords = dict(marker.kwargs)
    unknown = sorted(set(keywords) - set(accepted))
    if unknown:
        raise AuditError(f"@pytest.mark.{MARKER}: unknown keyword {unknown[0]!r}; known: {', '.join(accepted)}")
    try:
        defaults.replace(**{name: value for name, value in keywords.items() if name not in MARKER_KEYS})
        keywords |= _chosen(keywords, available)
    except AuditError as error:
        raise AuditError(f"@pytest.mark.{MARKER}: {error}") from None
    # By full names, so that margin_pp on a function replaces frozen_acc_margin_pp on its class.
    return {SHORT_NAMES.get(name, name): value for name, value in keywords.items()}


def _chosen(keywords: Mapping[str, Any], available: Diagnostics) -> dict[str, Keys]:
    """The diagnostics that a marker asks for and expects to fire; which checkpoints and seeds it names is checked."""
    chosen: dict[str, Keys] = {}
    for name in ("diagnostics", "expect"):
        keys = keywords.get(name)
        listed = isinstance(keys, (list, tuple)) and all(isinstance(key, str) for key in keys)
        if keys is not None and not isinstance(keys, str) and not listed:
            raise AuditError(f"{name} must be keys such as 'ad' or ['a', 'my-name'], not {keys!r}")
        if keys or (name == "diagnostics" and keys is not None):
            chosen[name] = Keys.of(diagnostic.key for diagnostic in available.select(keys))
    seeds = keywords.get("seeds")
    if seeds is not None and (isinstance(seeds, (str, int)) or not all(type(seed) is int for seed in seeds) or not seeds):
        raise AuditError(f"seeds must be a list of whole numbers such as [42, 123], not {seeds!r}")
    paths = keywords.get("checkpoint")
    names = paths if isinstance(paths, (list, tuple)) else [paths]
    if paths is not None and not all(isinstance(path, (str, os.PathLike)) for path in names):
        raise AuditError(f"checkpoint must be a path, a glob or a list of them, not {paths!r}")
    return chosen
