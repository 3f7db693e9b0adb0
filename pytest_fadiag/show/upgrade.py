"""Documents of earlier versions as plain values of this one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..judge.codec import read
from ..judge.errors import AuditError
from ..judge.margins import ASSUMED_IMAGES
from ..judge.records import with_present_names
from ..judge.wire import Several

FORMAT = "pytest-fadiag audit"
FORMAT_VERSION = 3
"""1 had neither seed margins, nor logs, nor a checklist; 2 had margins whose intervals were resampled. Both are still read."""


def upgraded(values: Mapping[str, Any]) -> dict[str, Any]:
    """A document as this version would have written it; one of a later version is an error that says so."""
    version = values.get("format_version", 1)
    if type(version) is not int or not 1 <= version <= FORMAT_VERSION:
        raise AuditError(
            f"an audit of format version {version!r:.40}, and this pytest-fadiag reads up to {FORMAT_VERSION}: update "
            "pytest-fadiag"
        )
    plain = dict(values)
    for upgrade in (_from_version_1, _from_version_2)[version - 1 :]:
        plain = upgrade(plain)
    return plain


def _from_version_1(plain: dict[str, Any]) -> dict[str, Any]:
    """Version 1 is also what says of itself neither format nor version."""
    return {**plain, "format": FORMAT}


def _from_version_2(plain: dict[str, Any]) -> dict[str, Any]:
    """Version 2 had no file names in reports, other names in records, and standard deviations in margins over seeds."""
    return {
        **plain,
        "format_version": FORMAT_VERSION,
        "reports": _with_file_names(plain.get("reports")),
        "summary": _each(plain.get("summary"), "recorded", lambda report, _: _renamed(report)),
        "seed_margins": _each(plain.get("seed_margins", []), "margin", _with_variance),
    }


def _with_file_names(reports: Any) -> Any:
    """The reports with the names of their files, in which their ids end."""
    if not isinstance(reports, dict):
        return reports
    names = {name: {"checkpoint": name.rpartition("/")[2]} for name in reports}
    return {name: {**names[name], **report} if isinstance(report, dict) else report for name, report in reports.items()}


def _each(rows: Any, name: str, change: Callable[[dict[str, Any], str], Any]) -> Any:
    """The rows with one of their objects changed; what is no row, or has no such object, is left to whoever reads it."""
    if not isinstance(rows, list):
        return rows
    changeable = [isinstance(row, dict) and isinstance(row.get(name), dict) for row in rows]
    return [
        {**row, name: change(row[name], f"[{index}].{name}")} if changeable[index] else row for index, row in enumerate(rows)
    ]


def _renamed(report: dict[str, Any]) -> dict[str, Any]:
    return {**report, "companions": with_present_names(report["companions"])} if "companions" in report else report


@dataclass(frozen=True)
class _Deviations:
    """The standard deviations from seed to seed, from image to image, and of each seed on each image."""

    seeds: Several
    images: Several | None
    assumed_images: Several | None = None
    seed_sd: float | None = None
    image_sd: float | None = None
    specific_part: float | None = None


def _with_variance(margin: dict[str, Any], place: str) -> dict[str, Any]:
    if margin.get("variance") is not None:
        return margin
    old = read(_Deviations, margin, f"audit.seed_margins{place}")
    images = old.images or old.assumed_images or ASSUMED_IMAGES
    by_seed, by_image, rest = (value or 0.0 for value in (old.seed_sd, old.image_sd, old.specific_part))
    parts = {"over_seeds": by_seed**2 / old.seeds, "over_images": by_image**2 / images}
    return {**margin, "variance": {**parts, "residual": rest**2 / (old.seeds * images)}}
