"""Parts of a divided audit: what each says of the whole, and whether those that are merged belong together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ..judge.errors import AuditError
from ..judge.wording import listed
from ..load.sources import DataSpec
from ..show.audit import Audit, Division
from .options import OPTIONS
from .settings import Settings

OWN = (
    *("checkpoint", "log", "seeds", "missing", "merge", "shard", "checklist", "report", "expect", "update_expect"),
    *("update_expect_on_ci", "only", "no_cache", "unsafe_load", "batch_size", "device", "threads"),
)
"""Options in which the parts of one audit may differ: what they name, where results go, and what machines differ in."""


def division_of(settings: Settings, checkpoints: Sequence[str]) -> Division:
    """What a part says of the whole."""
    values = {option.field: getattr(settings, option.field) for option in OPTIONS if option.field not in OWN}
    return Division(tuple(checkpoints), {name: _shown(name, value) for name, value in values.items() if name in settings.given})


def _shown(name: str, value: object) -> str:
    """A value without the folders of one machine."""
    if name == "data":
        return DataSpec.parse(str(value), others=True).name
    if name == "frozen" and isinstance(value, tuple):
        return ", ".join(str(text).rpartition("/")[2] for text in value)
    if isinstance(value, tuple):
        return ", ".join("=".join(map(str, item)) if isinstance(item, tuple) else str(item) for item in value)
    return str(value)


def check_parts(audits: Mapping[Path, Audit], missing: str) -> None:
    """Refuse parts of different audits, and a part that is absent unless that is meant."""
    parts = {path: audit for path, audit in audits.items() if audit.shard is not None}
    if not parts:
        return
    files = "".join(f"\n  {path}" for path in parts)
    divisions = {path: audit.division for path, audit in parts.items() if audit.division is not None}
    for path in parts:
        if path not in divisions:
            raise AuditError(
                "--fa-merge: a part that does not say what it was divided from: an earlier version of pytest-fadiag wrote it; "
                f"audit it again\n  {path}"
            )
    counts = sorted({audit.shard[1] for audit in parts.values() if audit.shard is not None})
    if len(counts) > 1:
        raise AuditError(f"--fa-merge: these are parts of different divisions, into {' and '.join(map(str, counts))}{files}")
    first, division = next(iter(divisions.items()))
    for path, other in divisions.items():
        difference = _difference(division, other)
        if difference:
            raise AuditError(f"--fa-merge: these are parts of different audits: {difference}\n  {first}\n  {path}")
    if counts[0] > len(division.checkpoints):
        raise AuditError(f"--fa-merge: {counts[0]} parts of {len(division.checkpoints)} checkpoints: no such division{files}")
    _check_data(parts)
    if missing == "skip":
        return
    there = {audit.shard[0] for audit in parts.values() if audit.shard is not None}
    absent = [number for number in range(1, counts[0] + 1) if number not in there]
    if absent:
        raise AuditError(
            f"--fa-merge: part {', '.join(map(str, absent))} of {counts[0]} is missing; audit it with "
            f"--fa-shard={absent[0]}/{counts[0]}, or go without it by --fa-missing=skip{files}"
        )
    rows = {row.checkpoint for audit in parts.values() for row in audit.rows}
    lost = [name for name in division.checkpoints if name not in rows]
    if lost:
        raise AuditError(f"--fa-merge: no part has a row of {_some(lost)}, which they were divided from{files}")


def _difference(one: Division, other: Division) -> str:
    """In what two parts say different things of the whole."""
    alone = set(one.checkpoints) ^ set(other.checkpoints)
    if alone:
        return f"{_some(sorted(alone))} {'is' if len(alone) == 1 else 'are'} to be audited by one and not by the other"
    for name in sorted({*one.settings, *other.settings}):
        values = [division.settings.get(name, "not given") for division in (one, other)]
        if values[0] != values[1]:
            return f"--fa-{name.replace('_', '-')} is {values[0]} in one and {values[1]} in the other"
    return ""


def _check_data(parts: Mapping[Path, Audit]) -> None:
    """All parts are measured on the same test data, as far as these have a digest."""
    first: tuple[Path, str] | None = None
    for path, audit in parts.items():
        for row in audit.rows:
            digest = "" if row.report is None else str(row.report.environment.get("data_sha256") or "")
            if not digest:
                continue
            first = first or (path, digest)
            if digest != first[1]:
                raise AuditError(
                    f"--fa-merge: these are parts of different audits: their test data differ (SHA-256 {first[1][:12]}… and "
                    f"{digest[:12]}…)\n  {first[0]}\n  {path}"
                )


def _some(names: Sequence[str]) -> str:
    return listed(names[:3]) if len(names) <= 3 else f"{', '.join(names[:3])} and {len(names) - 3} more"
