"""What identifies an installed package beyond its version, which stays the same when it is installed from a folder again."""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path

from .digests import file_digest, file_stamp, joined

# fmt: off
BY_VERSION = {
    "torch", "torchvision", "torchaudio", "torchgen", "functorch", "triton", "nvidia", "numpy", "scipy", "pandas", "sklearn",
    "matplotlib", "PIL", "transformers", "sympy", "mpmath", "networkx", "jax", "jaxlib", "tensorflow", "numba", "llvmlite",
    "cv2", "pyarrow", "pytest", "_pytest", "hypothesis", "pygments", "setuptools", "fontTools",
}
# fmt: on
"""Large packages that hardly anybody installs from a folder of his own: these are known by their version."""


def installed_trees() -> dict[str, list[str]]:
    """The installed packages that this process has imported, each with a stamp and a digest of its files."""
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    roots = {root for file in files if isinstance(file, str) and (root := _root(os.path.abspath(file))) is not None}
    return {root: [_stamp(root), _digest(root)] for root in sorted(roots)}


def is_as_it_was(root: str, stamp: str, digest: str) -> bool:
    """Whether an installed package has the files that it had; their content is read only where their stamps are others."""
    return _stamp(root) == stamp or _digest(root) == digest


def look_again() -> None:
    """Forget what was seen: a run looks at each package once."""
    _stamp.cache_clear()
    _digest.cache_clear()


def _root(path: str) -> str | None:
    """The folder or file of a package right below the place of installed ones."""
    parts = Path(path).parts
    places = [number for number, part in enumerate(parts[:-1]) if part in ("site-packages", "dist-packages")]
    if not places or parts[places[-1] + 1].partition(".")[0] in BY_VERSION:
        return None
    return str(Path(*parts[: places[-1] + 2]))


@cache
def _stamp(root: str) -> str:
    return joined(f"{path} {file_stamp(path)}" for path in _files(root))


@cache
def _digest(root: str) -> str:
    return joined(f"{path} {file_digest(path)}" for path in _files(root))


def _files(root: str) -> list[Path]:
    """All files of a package, for it may read those that are no code; nothing where it is gone."""
    if os.path.isfile(root):
        return [Path(root)]
    found = (Path(folder, name) for folder, _, names in os.walk(root) for name in names if not name.endswith(".pyc"))
    return sorted(path for path in found if path.is_file())
