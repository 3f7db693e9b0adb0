"""What an audit can do: what is built in, and what other packages add, asked by pluggy's hooks."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pluggy

from . import builtin, hookspecs
from .judge.diagnostics import DIAGNOSTICS, Diagnostics
from .judge.errors import AuditError
from .judge.late import named
from .load.digests import code_digest, joined
from .load.sources import DataSpec

if TYPE_CHECKING:
    from .show.audit import Audit

GROUP = "pytest_fadiag"
"""The entry points by which a package adds to an audit; what it adds has names that begin so."""
OWN = "fadiag-builtin"
"""The plugin of what is built in."""


class Registry:
    """Everything that the plugins of one manager offer."""

    def __init__(self, manager: pluggy.PluginManager) -> None:
        self.manager = manager
        if not manager.has_plugin(OWN):
            manager.register(builtin, OWN)

    @cached_property
    def diagnostics(self) -> Diagnostics:
        """The built-in diagnostics and those of other packages."""
        offered = [diagnostic for some in self._all("diagnostics") for diagnostic in some]
        return DIAGNOSTICS.with_others(diagnostic for diagnostic in offered if diagnostic not in DIAGNOSTICS)

    @cached_property
    def report_kinds(self) -> dict[str, str]:
        """The kinds of files, each with where it goes if nobody says."""
        kinds: dict[str, str] = {}
        for some in reversed(self._all("report_kinds")):  # those that were registered first, our own, come first
            twice = next((kind for kind in some if kind in kinds), None)
            if twice is not None:
                raise AuditError(f"two packages write reports of the kind {twice!r}; uninstall one of them")
            kinds |= some
        return kinds

    def default_destination(self, kind: str) -> str:
        """Where a report goes if nobody says; a kind that nobody writes is an error that lists those that there are."""
        if kind not in self.report_kinds:
            close = difflib.get_close_matches(kind, self.report_kinds, 1)
            meant = f"; did you mean {close[0]!r}?" if close else ""
            raise AuditError(f"unknown report type {kind!r}{meant} (known: {', '.join(self.report_kinds)})")
        return self.report_kinds[kind]

    def write_report(self, kind: str, audit: Audit, destination: Path) -> list[str]:
        """Write an audit, and give what there is to say of it."""
        said: Sequence[str] | None = self.manager.hook.pytest_fadiag_write_report(
            kind=kind, audit=audit, destination=destination
        )
        if said is None:
            raise AuditError(f"--fa-report={kind}: the package that names this kind did not write it")
        return list(said)

    def data_spec(self, text: str, base: Path | None = None) -> DataSpec:
        """The data that a SPEC names, of one of our kinds or of another package's."""
        return DataSpec.parse(text, base, others=bool(self._others("load_data")))

    def load_data(self, spec: str, base: Path) -> object:
        """What another package reads behind a SPEC, or nothing."""
        with _said_so(f"data {spec!r}"):
            return self.manager.hook.pytest_fadiag_load_data(spec=spec, base=base)

    def load_checkpoint(self, path: Path, *, unsafe: bool) -> object:
        """What a checkpoint file holds."""
        with _said_so(str(path)):
            return self.manager.hook.pytest_fadiag_load_checkpoint(path=path, unsafe=unsafe)

    @cached_property
    def readers_digest(self) -> str | None:
        """What identifies the code of other packages that checkpoints are read by; nothing where that cannot be told."""
        digests = [code_digest(implementation.function.__module__) for implementation in self._others("load_checkpoint")]
        return None if None in digests else joined(digest for digest in digests if digest is not None)

    def _all(self, name: str) -> list[Any]:
        answers: list[Any] = getattr(self.manager.hook, f"{GROUP}_{name}")()
        return answers

    def _others(self, name: str) -> list[pluggy.HookImpl]:
        """The implementations of a hook that are not our own."""
        hook: pluggy.HookCaller = getattr(self.manager.hook, f"{GROUP}_{name}")
        return [implementation for implementation in hook.get_hookimpls() if implementation.plugin_name != OWN]


@contextmanager
def _said_so(what: str) -> Iterator[None]:
    """Name what was being read where another package's reader fails."""
    try:
        yield
    except AuditError:
        raise
    except Exception as error:
        raise AuditError(f"{what}: reading it raised {type(error).__name__}: {error}") from error


def load_packages(manager: pluggy.PluginManager) -> None:
    """Register what the installed packages name in their entry points; one that was blocked by its name is left out."""
    names = Counter(entry.name for entry in entry_points(group=GROUP))
    for name, times in sorted(names.items()):
        if times > 1:
            raise AuditError(f"{times} packages add to the audit under the name {name!r}; uninstall or rename all but one")
        try:
            manager.load_setuptools_entrypoints(GROUP, name)
        except Exception as error:  # whatever the package does when it is imported
            cause = error.__cause__ or error  # newer versions of pytest have an exception of their own for it
            raise AuditError(
                f"{name!r}, which adds to the audit (entry point of {GROUP}), cannot be loaded: {type(cause).__name__}: {cause}"
            ) from error


@cache
def installed() -> Registry:
    """What the packages offer that are installed: the registry of a process without pytest."""
    manager = _Manager("pytest")
    manager.add_hookspecs(hookspecs)
    load_packages(manager)
    return Registry(manager)


def read_audit(path: str | Path) -> Audit:
    """The audit behind a file of --fa-report=json, judged anew by the diagnostics that are installed."""
    audit: Audit = named("pytest_fadiag.show.document:read_audit")(Path(path), installed().diagnostics)
    return audit


class _Manager(pluggy.PluginManager):
    """Knows hooks by their names as pytest does, so that a package need not mark them."""

    def parse_hookimpl_opts(self, plugin: object, name: str) -> pluggy.HookimplOpts | None:
        options = super().parse_hookimpl_opts(plugin, name)
        if options is None and name.startswith(f"{GROUP}_") and callable(getattr(plugin, name)):
            return {
                "wrapper": False,
                "hookwrapper": False,
                "optionalhook": False,
                "tryfirst": False,
                "trylast": False,
                "specname": None,
            }
        return options
