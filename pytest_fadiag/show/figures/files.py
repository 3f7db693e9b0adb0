"""Figures to files: the same audit gives the same bytes, and a file is whole or not there."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from ...judge.files import write_atomically
from .style import house_style

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
        write_atomically(folder / name, content)
    return [folder / name for name in rendered]


def _rendered(figure: Figure, kind: str, metadata: dict[str, Any]) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format=kind, dpi=DPI, metadata=metadata)
    return content.getvalue()
