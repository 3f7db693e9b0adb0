"""What an audit can do: what is built in, and what other packages add through :mod:`hookspecs`."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import pluggy

from . import hookspecs
from .judge.diagnostics import Diagnostic, register, unregister
from .judge.errors import AuditError
from .show.outputs import OUTPUTS, Output

if TYPE_CHECKING:
    from .measure.types import Metric

GROUP = "pytest_fadiag"


class Registry:
    """What the plugins of one manager offer; their diagnostics are known until ``close``."""

    def __init__(self, manager: pluggy.PluginManager) -> None:
        self.hook: Any = manager.hook
        self.diagnostics: list[Diagnostic] = []
        for package in self.hook.pytest_fadiag_diagnostics():
            self.diagnostics.extend(package)
        for diagnostic in self.diagnostics:
            register(diagnostic)
        _open_registries.append(self)

    def close(self) -> None:
        """Forget the diagnostics of other packages."""
        _open_registries.remove(self)
        for diagnostic in self.diagnostics:
            unregister(diagnostic.name)

    def metrics(self) -> dict[str, Callable[[Any], Metric]]:
        """What measures the diagnostics of other packages."""
        return dict(ChainMap(*self.hook.pytest_fadiag_metrics()))

    def outputs(self) -> dict[str, Output]:
        """The kinds of ``--fa-report``, the built-in ones first; these cannot be replaced."""
        outputs = dict(OUTPUTS)
        for package in self.hook.pytest_fadiag_outputs():
            for name, output in package.items():
                outputs.setdefault(name, output)
        return outputs


def load_packages(manager: pluggy.PluginManager) -> None:
    """Register what installed packages name in their entry points."""
    try:
        manager.load_setuptools_entrypoints(GROUP)
    except Exception as error:  # whatever the package does when it is imported
        raise AuditError(
            f"an entry point of {GROUP} cannot be loaded: {type(error).__name__}: {error}"
        ) from error


@cache
def installed() -> Registry:
    """What the installed packages offer: the registry of a process without pytest."""
    manager = _Manager("pytest")
    manager.add_hookspecs(hookspecs)
    load_packages(manager)
    return Registry(manager)


_open_registries: list[Registry] = []


def current() -> Registry:
    """What this process has registered: that of a run of pytest, else of what is installed."""
    return _open_registries[-1] if _open_registries else installed()


class _Manager(pluggy.PluginManager):
    """Takes functions by their names, as pytest does."""

    def parse_hookimpl_opts(self, plugin: object, name: str) -> pluggy.HookimplOpts | None:
        options = super().parse_hookimpl_opts(plugin, name)
        if options is None and name.startswith(f"{GROUP}_"):
            marked: Any = pluggy.HookimplMarker("pytest")(getattr(plugin, name))
            return marked.pytest_impl  # type: ignore[no-any-return]
        return options
