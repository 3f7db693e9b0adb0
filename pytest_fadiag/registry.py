"""What an audit can do: what is built in, and what other packages add, asked by pluggy's hooks."""

from __future__ import annotations

from collections import Counter
from functools import cache, cached_property
from importlib.metadata import entry_points

import pluggy

from . import builtin, hookspecs
from .judge.diagnostics import DIAGNOSTICS, Diagnostics
from .judge.errors import AuditError

GROUP = "pytest_fadiag"
"""The entry points by which a package adds to an audit; what it adds has names that begin so."""


class Registry:
    """Everything that the plugins of one manager offer."""

    def __init__(self, manager: pluggy.PluginManager) -> None:
        self.manager = manager
        if not manager.has_plugin("fadiag-builtin"):
            manager.register(builtin, "fadiag-builtin")

    @cached_property
    def diagnostics(self) -> Diagnostics:
        """The built-in diagnostics and those of other packages."""
        offered = [diagnostic for some in self.manager.hook.pytest_fadiag_diagnostics() for diagnostic in some]
        return DIAGNOSTICS.with_others(diagnostic for diagnostic in offered if diagnostic not in DIAGNOSTICS)


def load_packages(manager: pluggy.PluginManager) -> None:
    """Register what the installed packages name in their entry points; one that was blocked by its name is left out."""
    names = Counter(entry.name for entry in entry_points(group=GROUP))
    for name, times in sorted(names.items()):
        if times > 1:
            raise AuditError(f"{times} packages add to the audit under the name {name!r}; uninstall or rename all but one")
        try:
            manager.load_setuptools_entrypoints(GROUP, name)
        except Exception as error:  # whatever the package does when it is imported
            raise AuditError(
                f"{name!r}, which adds to the audit (entry point of {GROUP}), cannot be loaded: {type(error).__name__}: {error}"
            ) from error


@cache
def installed() -> Registry:
    """What the packages offer that are installed: the registry of a process without pytest."""
    manager = _Manager("pytest")
    manager.add_hookspecs(hookspecs)
    load_packages(manager)
    return Registry(manager)


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
