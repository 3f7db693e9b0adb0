"""``fadiag verify``: measure an audit again from its certificate, and say which rows reproduce.

A certificate is read as data: it names files by their SHA-256 and says how they were measured.
What runs code must be typed: ``--model``, ``--credit``, ``--step``, ``--forward``, a function as
``--loss``, data from a factory, ``--unsafe-load``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

from .auditor import Auditor
from .judge.diagnostics import select
from .judge.errors import AuditError
from .judge.report import Report
from .judge.thresholds import DiagnosticThresholds
from .judge.words import grouped, one_line
from .load.controls import Controls, parse_controls
from .load.names import file_digest, is_log
from .load.setup import FACTORIES, Setup
from .load.sources import KINDS, data_digest
from .load.specs import is_factory
from .show.audit import Audit, Margin, Origin, Outcome, Row
from .show.combine import margins_of
from .show.compare import compare
from .show.json import read_audit

UNSAFE = "unsafe-load"
CODE = (*FACTORIES, "data", "train", UNSAFE)
"""Options that may run code."""
MACHINE = ("batch-size", "device", "threads", "memory")
"""Options that are those of this machine, not the recorded ones."""


def verify(
    certificate: Path,
    roots: Sequence[Path] = (),
    *,
    unsafe_load: bool = False,
    frozen: Sequence[str] | None = None,
    **typed: str | None,
) -> int:
    """Print which rows of a certificate reproduce; 0 if all do, else 1.

    >>> verify(Path("certificate"), [Path("unpacked")])
    ✓ runs/bp_s42.pt
    ✗ runs/dfa_s42.pt: residual_norms[4] 1.5e+07 → 1.4e+07
    1 of 2 results reproduce
    1

    ``typed`` are options that measure, as the command takes them: model, data, stream, device, …
    """
    certified = Certificate.read(certificate)
    options = {name: text for name, text in typed.items() if text is not None}
    if unsafe_load:
        options[UNSAFE] = certified.options.get(UNSAFE, "on")
    certified.refuse_untyped_code(options)
    folders = [root.resolve() for root in (*roots, Path.cwd())]
    setup = Setup.of(
        {**certified.settings, **options},
        data=options.get("data") or certified.data(folders),
        unsafe=unsafe_load,
    )
    auditor = Auditor(setup)
    files = Files(certified.origin, folders)
    control = files.controls(certified, frozen)
    reproduced = 0
    for row in certified.rows:
        problems = _problems(row, files, auditor, control)
        if problems:
            print(one_line(f"✗ {row.checkpoint}: {'; '.join(problems[:3])}"))
        else:
            print(one_line(f"✓ {row.checkpoint}"))
            reproduced += 1
    contradictions = [*certified.contradicted_by(options), *certified.other_margins()]
    for text in contradictions:
        print(one_line(f"✗ {text}"))
    for name, limit in certified.changed_thresholds():
        print(one_line(f"note: threshold {name} {limit}"))
    print(f"{reproduced} of {len(certified.rows)} results reproduce")
    return int(reproduced < len(certified.rows) or bool(contradictions))


class Certificate(NamedTuple):
    """A recorded audit with its files: what was measured, and how."""

    audit: Audit
    origin: Origin
    rows: list[Row]
    """Those that were measured."""
    options: dict[str, str]
    """The first value of every option that is recorded."""

    @classmethod
    def read(cls, path: Path) -> Certificate:
        """The certificate in a file or folder; an audit that names no files is refused."""
        audit = read_audit(path)
        if audit.origin is None or not audit.origin.files or not audit.reports:
            raise AuditError(f"{path}: names no files; write it with --fa-report=certificate")
        options = {name: texts[0] for name, texts in audit.origin.options.items() if texts}
        return cls(audit, audit.origin, audit.measured, options)

    def refuse_untyped_code(self, typed: Mapping[str, str]) -> None:
        """Raise where a recorded option runs code and was not typed too."""
        for name in CODE:
            text = self.options.get(name, "")
            if _runs_code(name, text) and name not in typed:
                raise AuditError(
                    f"the certificate was made with --{name} {one_line(text)}, which runs code; "
                    "type that option too, if you trust it"
                )

    @property
    def settings(self) -> dict[str, str]:
        """The recorded options that do not depend on the machine."""
        settings = {}
        for name, text in self.options.items():
            is_count = re.fullmatch("[0-9]{1,8}", text)
            if name not in MACHINE and (name != "log-batch" or is_count):
                settings[name] = text
        return settings

    def data(self, folders: Sequence[Path]) -> str | None:
        """Where the recorded test data lies: at its path, or below a folder by its file's name."""
        spec = self.options.get("data")
        if spec is None:
            return None
        kind, colon, path = spec.rpartition(":")
        digests = {report.environment.get("data_sha256") for report in self.audit.reports}
        changed = ""
        for folder in folders:
            for name in (path, Path(path).name, ""):
                candidate = f"{kind}{colon}{folder / name}"
                with suppress(AuditError):
                    if _is_inside(folder / name, folder):
                        if data_digest(candidate) in digests:
                            return candidate
                        changed = changed or candidate
        if changed:
            return changed
        raise AuditError(
            f"test data {one_line(spec)}: not below the working folder; name its folder with "
            "--root, or the data with --data"
        )

    def contradicted_by(self, typed: Mapping[str, str]) -> Iterator[str]:
        """Where another value was typed than the one that is recorded."""
        for name, text in typed.items():
            is_setting = name in ("stream", "normalize", "loss", "task", "train")
            recorded = self.options.get(name)
            if (is_setting or _runs_code(name, text)) and text != recorded:
                yield f"--{name}: {recorded or 'none'} is recorded, {text} was typed"

    def other_margins(self) -> Iterator[str]:
        """The recorded margins over seeds that its own rows do not give."""
        margins = {margin.name: margin for margin in margins_of(self.audit.rows, {})}
        for margin in self.audit.margins:
            recorded = _in_words(margin)
            computed = _in_words(margins.get(margin.name))
            if recorded != computed:
                yield f"{margin.name}: {recorded} is recorded, its rows give {computed}"

    def changed_thresholds(self) -> list[tuple[str, Any]]:
        """The recorded thresholds that are not the protocol's."""
        limits: set[tuple[str, Any]] = set()
        for report in self.audit.reports:
            limits.update(report.thresholds.by_name().items())
        return sorted(limits.difference(DiagnosticThresholds().by_name().items()), key=str)


def _runs_code(name: str, text: str) -> bool:
    """Whether an option with this value runs code that the certificate's author chose."""
    if not text or name not in CODE or (name, text) == ("train", "auto"):
        return False
    if name == "model":
        return not text.startswith("torchvision:")
    if name == "data" and text.startswith(tuple(f"{kind}:" for kind in KINDS)):
        return False
    return name not in ("data", "loss") or is_factory(text)


def _in_words(margin: Margin | None) -> str | None:
    if margin is None:
        return None
    if margin.margin is None:
        return "no margin"
    return f"{margin.margin.verdict.value} {margin.margin.margin:+.4f} pp"


def _is_inside(place: Path, folder: Path) -> bool:
    """Whether a path that a certificate names stays below a folder, also through links."""
    return "\0" not in str(place) and place.resolve().is_relative_to(folder)


class Files:
    """The files of a certificate: recorded by path and SHA-256, found wherever they lie now."""

    def __init__(self, origin: Origin, folders: Sequence[Path]) -> None:
        self.digests = origin.files
        self.places: dict[str, Path] = {}
        """By recorded path; of files that are alike the one of the same name, if there is one."""
        paths = grouped((digest, path) for path, digest in self.digests.items())
        missing = set(self.digests)
        for place in self._candidates(folders):
            for path in missing.intersection(paths.get(_digest(place), ())):
                self.places.setdefault(path, place)
                if place.name == Path(path).name:
                    self.places[path] = place
                    missing.remove(path)
            if not missing:
                break

    def _candidates(self, folders: Sequence[Path]) -> Iterator[Path]:
        """The recorded paths, then all files below the folders whose names end alike."""
        for folder in folders:
            for path in self.digests:
                if _is_inside(folder / path, folder):
                    yield folder / path
        suffixes = {Path(path).suffix for path in self.digests}
        for folder in folders:
            for parent, _, names in os.walk(folder):
                for name in names:
                    if Path(name).suffix in suffixes:
                        yield Path(parent, name)

    def path_of(self, row: Row) -> str:
        """The recorded path of a row's file: its id, or a path that ends with it; or nothing."""
        by_name = [
            path for path in self.digests if f"/{one_line(path)}".endswith(f"/{row.checkpoint}")
        ]
        for path in by_name:
            if self.digests[path] == row.digest:
                return path
        return by_name[0] if by_name else ""

    def controls(self, certified: Certificate, typed: Sequence[str] | None) -> Controls | None:
        """The controls that were typed, else the recorded ones, as far as their files are here."""
        values = typed or certified.origin.options.get("frozen", ())
        if not values:
            return None
        audited = set(map(self.path_of, certified.audit.rows))
        twins: set[str] = set()
        for report in certified.audit.reports:
            twins.update(_twins(report))

        def expand(text: str) -> list[Path]:
            if typed:
                return [Path(text)]
            places = []
            for path, place in self.places.items():
                is_another = path in audited or Path(path).name in twins
                if fnmatch(path, text) or not is_another:
                    places.append(place)
            return places

        try:
            return parse_controls(values, expand)
        except AuditError:
            return None  # its rows then differ in their control


def _digest(path: Path) -> str:
    try:
        return file_digest(path)
    except AuditError:
        return ""


def _problems(row: Row, files: Files, auditor: Auditor, control: Controls | None) -> list[str]:
    """In what a row does not reproduce."""
    recorded = row.report
    assert recorded is not None
    try:
        measured = _measured(row, recorded, files, auditor, control)
    except AuditError as error:
        return [str(error)]
    problems = compare(recorded, measured).problems
    if row.method != measured.method_name:
        problems.append(f"its row says {row.method}, its file {measured.method_name}")
    for key, outcome in row.outcomes.items():
        if outcome is Outcome.PASSED and key in measured.fired:
            problems.append(f"({key}) is recorded as passed, and fails")
    return problems


def _twins(report: Report) -> list[str]:
    return report.twin.source.split(", ") if report.twin else []


def _measured(
    row: Row, recorded: Report, files: Files, auditor: Auditor, control: Controls | None
) -> Report:
    path = files.path_of(row)
    if path not in files.places:
        raise AuditError(
            f"no file of this name with SHA-256 {row.digest[:12]}… was recorded and found; "
            "name its folder with --root"
        )
    twins = _twins(recorded)
    twin = recorded.twin
    # (e) that was asked for was measured of the network and of its BP twins.
    listed = recorded.depth is not None and (twin is None or twin.utility_pp is not None)
    place = files.places[path]
    return auditor.report(
        place,
        twins=[place for path, place in files.places.items() if Path(path).name in twins],
        diagnostics=select(recorded.diagnostics),
        control=control,
        thresholds=recorded.thresholds,
        seed=row.seed,
        protocol=recorded.protocol,
        listed=listed,
        log=is_log(place),
    )
