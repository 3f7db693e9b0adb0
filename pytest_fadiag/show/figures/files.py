"""Figures to files: the same audit gives the same bytes, and a file is whole or not there."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .style import house_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 300
# Without these a file would hold the time or the version that made it, and differ where the figure does not.
_METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


def write_figures(drawn: Mapping[str, Figure], folder: Path) -> list[Path]:
    """Write each figure as PNG and PDF; all are rendered before the first is written."""
    with house_style():
        rendered = {
            f"{name}.{kind}": _rendered(figure, kind, metadata)
            for name, figure in drawn.items()
            for kind, metadata in _METADATA.items()
        }
    if rendered:
        folder.mkdir(parents=True, exist_ok=True)
    for name, content in rendered.items():
        _write_whole(folder / name, content)
    return [folder / name for name in rendered]


def _rendered(figure: Figure, kind: str, metadata: dict[str, Any]) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format=kind, dpi=DPI, metadata=metadata)
    return content.getvalue()


def _write_whole(path: Path, content: bytes) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)  # mkstemp makes it private
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
