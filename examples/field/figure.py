"""The networks of the field in a glance: one row a rule, as in the picture of an audit."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from pytest_fadiag import read_audit
from pytest_fadiag.show import hero

from .common import Row


def draw(rows: list[Row], folder: Path, page: Path) -> None:
    """Write the figure beside the page, on a light and on a dark ground."""
    audited = []
    for row in rows:
        if row.verdict and row.margin is not None:
            (one,) = read_audit(folder / f"{row.name}-{row.rule}-s{row.seed}.json").rows
            audited.append(replace(one, method=f"{row.name}  {row.rule}"))
    hero.LEFT = 2.3
    for dark in (False, True):
        if drawing := hero.hero(audited, 8.0, dark=dark):
            drawing.savefig(page.with_name(f"field{'-dark' * dark}.png"), dpi=110)
