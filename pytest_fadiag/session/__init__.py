"""The pytest side of an audit; its parts are imported when something is audited, so that a run without one pays nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .hooks import AuditHooks

HOOKS: pytest.StashKey[AuditHooks] = pytest.StashKey()


def audit_of(config: pytest.Config) -> AuditHooks:
    """The audit of this process, begun when it is first asked for; it takes part in pytest's hooks from then on."""
    if HOOKS not in config.stash:
        from .hooks import AuditHooks

        config.stash[HOOKS] = hooks = AuditHooks(config)
        config.pluginmanager.register(hooks, "fadiag-audit")
        hooks.begin()
        if config.getoption("dist", "no") != "no":
            from .dist import Workers

            config.pluginmanager.register(Workers(config, hooks.run), "fadiag-workers")
    return config.stash[HOOKS]


def workers_of(config: pytest.Config) -> int | None:
    """As many workers as GPUs for an audit; otherwise xdist's own answer."""
    from .dist import auto_workers

    return auto_workers(config)
