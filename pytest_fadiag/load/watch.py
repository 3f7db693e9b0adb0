"""Which files code asks for while it runs: those it opens, lists or looks for, also where there are none; free of torch."""

from __future__ import annotations

import functools
import importlib.util
import os
import stat
import sys
import sysconfig
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from .digests import file_digest, joined

READ, LISTED, ASKED = "files", "folders", "asked"
"""Ways to depend on a path: by its content, by the names in it, and by what is there at all."""
CHANGED = "changed while it was used"
"""The state of a path that had two: what was seen of it is nobody's, and no later state is equal to it."""
UNKEPT = ("/proc/", "/sys/", "/dev/")
"""What is read there is another content each time."""
PASSING = {"__pycache__", ".pytest_cache"}
"""What every run leaves in a folder."""
IMPORTING = {"importlib", "_frozen_importlib_external", "pkgutil"}
"""Who lists every folder of modules to find one."""
WRITING = os.O_TRUNC | os.O_EXCL
_INSTALLED = tuple({os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_OWN = os.path.join(os.path.abspath(Path(__file__).parents[1]), "")  # found by a path with «..» in it, it is this package too
_stat, _access = os.stat, os.access
_own = threading.local()
"""Says that this thread is asking for itself."""
_listeners: list[Watch] = []


class Watch:
    """Notes what is asked for while it is entered, each with its state when that was first: later it may be another."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], str] = {}

    def __enter__(self) -> None:
        _hook()
        _listeners.append(self)
        # No audit event tells who asks whether a file is there; os.path and pathlib ask by these names.
        os.stat, os.access = _asking(_stat), _asking(_access)

    def __exit__(self, *_: object) -> None:
        _listeners.remove(self)
        if not _listeners:
            os.stat, os.access = _stat, _access

    def note(self, how: str, path: str) -> None:
        """Remember how a path was used."""
        if (how, path) not in self._seen:
            self._seen[how, path] = state(how, path)

    def seen(self) -> dict[str, dict[str, str]]:
        """By the way it was used every path with its state."""
        told: dict[str, dict[str, str]] = {READ: {}, LISTED: {}, ASKED: {}}
        for (how, path), was in sorted(self._seen.items()):
            told[how][path] = was if state(how, path) == was else CHANGED
        return told


def state(how: str, path: str) -> str:
    """What somebody who uses a path in this way can see of it."""
    try:
        if how == LISTED:
            return joined(sorted(set(os.listdir(path)) - PASSING))
        status = _stat(path)
        if not stat.S_ISREG(status.st_mode):
            return "folder" if stat.S_ISDIR(status.st_mode) else "no file"
        return file_digest(Path(path)) if how == READ else f"{status.st_size} bytes"
    except (FileNotFoundError, NotADirectoryError):
        return "absent"
    except (OSError, ValueError):
        return "unreadable"


@cache
def _hook() -> None:
    """An audit hook stays as long as the process, so there is one, and it is idle while nobody listens."""

    def listen(event: str, arguments: tuple[Any, ...]) -> None:
        if not _listeners:
            return
        if event == "open":
            if not (arguments[2] & WRITING or arguments[2] & os.O_ACCMODE == os.O_WRONLY):
                _note(READ, arguments[0])
        elif event in ("os.listdir", "os.scandir"):
            asker = str(sys._getframe(1).f_globals.get("__name__", "")).partition(".")[0]
            if asker not in IMPORTING:
                _note(LISTED, arguments[0] or ".")

    sys.addaudithook(listen)


def _asking(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def asking(path: Any, *args: Any, **named: Any) -> Any:
        if named.get("dir_fd") is None:
            _note(ASKED, path)
        return function(path, *args, **named)

    return asking


def _note(how: str, name: Any) -> None:
    if isinstance(name, int) or getattr(_own, "asks", False):
        return
    _own.asks = True
    try:
        path = source_of(os.path.abspath(os.fsdecode(name)))
        if not path.startswith(UNKEPT) and is_users(path):
            for listener in list(_listeners):
                listener.note(how, path)
    except (OSError, TypeError, ValueError):
        pass  # whoever asks with such a name is told what is wrong with it
    finally:
        _own.asks = False


def source_of(path: str) -> str:
    """The source of a compiled file, where it is there."""
    if path.endswith(".pyc"):
        try:
            source = importlib.util.source_from_cache(path)
        except ValueError:
            return path
        return source if os.path.isfile(source) else path
    return path


_PACKAGES = {"site-packages", "dist-packages"}


def is_users(path: str) -> bool:
    """Whether a file belongs neither to Python, nor to an installed package, nor to this one."""
    return not path.startswith((*_INSTALLED, _OWN)) and not _PACKAGES & set(path.split(os.sep))
