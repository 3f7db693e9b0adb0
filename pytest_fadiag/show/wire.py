"""The JSON document of an audit, field by field; its schema is made from these types, and what is read is held to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypedDict

from msgspec import Meta

from ..judge.wire import Count, Fraction, Key, KeyList, Positive, ReportValues, SeedMarginValues, Several
from .status import Outcome

Columns = Mapping[str, float | None]
MovedValues = TypedDict("MovedValues", {"from": float | None, "to": float | None})
"""A number then and now; null where it was not measured."""


@dataclass(frozen=True, kw_only=True)
class RowValues:
    """What became of one checkpoint or log."""

    checkpoint: str
    method: str
    seed: int | None
    group: Annotated[str | None, Meta(description="The test of the margin over seeds that the row belongs to.")] = None
    partial: bool = False
    standing: Annotated[
        Literal["walk-back", "trustworthy", "partial", "incomplete"] | None,
        Meta(description="Where the row stands, as every count has it; partial is an incomplete row of an older version."),
    ] = None
    status: Annotated[str, Meta(description="What became of the row, as the table has it.")] = ""
    verdict: Annotated[str, Meta(description="The same in a sentence, of the diagnostics that ran.")] = ""
    published: Annotated[str, Meta(description="What the published form says, where one was named: FAIL(D1+D2).")] = ""
    fired: KeyList = ""
    expected: KeyList | None = None
    outcomes: Annotated[Mapping[Key, Outcome], Meta(description="By the key of the diagnostic.")] = field(default_factory=dict)
    reason: str = ""
    headline_acc: Fraction | None = None
    frozen_baseline_acc: Fraction | None = None
    recorded: Annotated[
        ReportValues | None, Meta(description="The report of the earlier audit that this one is compared with.")
    ] = None
    moved: Annotated[
        Mapping[str, MovedValues],
        Meta(description="The columns whose number is not what was recorded, then and now; null where it was not measured."),
    ] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class MeanValues:
    """The columns of the table over the seeds of a method."""

    method: str
    partial: bool = False
    seeds: Several
    mean: Columns
    sd: Columns


@dataclass(frozen=True, kw_only=True)
class MarginRowValues:
    """What became of the test of a method's margin over its seeds."""

    name: str
    method: str
    partial: bool = False
    outcome: Outcome = Outcome.NOT_RUN
    reason: str = ""
    expected: str | None = None
    margin: SeedMarginValues | None = None


class _Column(TypedDict, total=False):
    column: Positive


class PitfallValues(_Column):
    """One place in the code that commits a pitfall."""

    number: Positive
    title: str
    file: str
    line: Positive
    code: str
    message: str
    fix: str
    silenced: Annotated[str | None, Meta(description="The reason given for letting it stand.")]


@dataclass(frozen=True, kw_only=True)
class ChecklistValues:
    """What a reading of evaluation code found."""

    files: Count
    findings: tuple[PitfallValues, ...] = ()
    notebooks: Annotated[Count, Meta(description="How many lie beside these files, and were not read.")] = 0


@dataclass(frozen=True, kw_only=True)
class DivisionValues:
    """What an audit was divided from: parts of one whole have the same."""

    checkpoints: Annotated[tuple[str, ...], Meta(description="The ids of everything that the parts audit together.")]
    settings: Annotated[Mapping[str, str], Meta(description="The options that decide numbers and verdicts, by name.")]


@dataclass(frozen=True, kw_only=True)
class OriginValues:
    """Where an audit comes from, and what measures it again; paths start at the root folder."""

    created: Annotated[str, Meta(description="When it ended, as ISO 8601 has it, in UTC.")]
    command: str
    commit: Annotated[str | None, Meta(description="Of the repo; + behind it where files were changed since.")] = None
    versions: Mapping[str, str] = field(default_factory=dict)
    options: Annotated[Mapping[str, tuple[str, ...]], Meta(description="Every option that was set, by name.")] = field(
        default_factory=dict
    )
    files: Annotated[Mapping[str, str], Meta(description="The SHA-256 of every checkpoint, log and control, by path.")] = field(
        default_factory=dict
    )


@dataclass(frozen=True, kw_only=True)
class AuditValues:
    """What --fa-report=json writes: more fields may be added without a new version; a field that is named keeps its meaning."""

    format: Literal["pytest-fadiag audit"]
    format_version: Literal[3]
    pytest_fadiag: Annotated[str, Meta(description="The version of pytest-fadiag that wrote the file.")] = ""
    shard: Annotated[
        Annotated[tuple[Positive, ...], Meta(min_length=2, max_length=2)] | None,
        Meta(description="The part and the number of parts, where an audit was divided."),
    ] = None
    division: DivisionValues | None = None
    origin: OriginValues | None = None
    interrupted: Annotated[bool, Meta(description="Whether the run was stopped before its end.")] = False
    reports: Annotated[Mapping[str, ReportValues], Meta(description="The report of each checkpoint or log, by its id.")]
    summary: Annotated[
        tuple[RowValues, ...],
        Meta(description="One row for each checkpoint or log, measured or not, in the order of the table."),
    ]
    means: Annotated[tuple[MeanValues, ...], Meta(description="One for each method with several seeds.")] = ()
    seed_margins: Annotated[
        tuple[MarginRowValues, ...],
        Meta(description="One for each method whose margin over its seeds was to be tested."),
    ] = ()
    checklist: ChecklistValues | None = None
