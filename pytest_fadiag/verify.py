"""``fadiag verify``: measure an audit again from its certificate, and say which rows reproduce.

A certificate is read as data: it names files by their SHA-256 and says how they were measured.
What runs code must be typed: ``--model``, ``--credit``, ``--forward``, a function as ``--loss``,
data from a factory, ``--unsafe-load``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from fnmatch import fnmatch
from itertools import chain
from pathlib import Path

from .auditor import Auditor
from .judge.diagnostics import select
from .judge.errors import AuditError
from .judge.report import Report
from .judge.thresholds import DiagnosticThresholds
from .judge.words import one_line
from .load.controls import Controls, parse_controls
from .load.names import file_digest, is_log
from .load.setup import FACTORIES, Setup
from .load.sources import KINDS, data_digest
from .load.specs import is_factory
from .show.audit import Margin, Origin, Outcome, Row
from .show.combine import margins_of
from .show.compare import compare
from .show.json import read_audit


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
    audit = read_audit(certificate)
    rows, reports = [row for row in audit.rows if row.report is not None], audit.reports
    if audit.origin is None or not audit.origin.files or not rows:
        raise AuditError(f"{certificate}: names no files; write it with --fa-report=certificate")
    given = {name: text for name, text in typed.items() if text is not None}
    recorded = {name: texts[0] for name, texts in audit.origin.options.items() if texts}
    given |= {"unsafe-load": recorded.get("unsafe-load", "on")} if unsafe_load else {}
    for name in (*FACTORIES, "data", "unsafe-load"):
        if _runs_code(name, recorded.get(name, "")) and name not in given:
            raise AuditError(
                f"the certificate was made with --{name} {one_line(recorded[name])}, which runs "
                "code; type that option too, if you trust it"
            )
    wrong = [
        f"--{name}: {recorded.get(name, 'none')} is recorded, {text} was typed"
        for name, text in given.items()
        if text != recorded.get(name)
        and (_runs_code(name, text) or name in ("stream", "normalize", "loss", "task"))
    ]
    folders = [root.resolve() for root in (*roots, Path.cwd())]
    machine = ("batch-size", "device", "threads")  # this one's, not the recorded one's
    used = {
        name: text
        for name, text in recorded.items()
        if name not in machine and (name != "log-batch" or re.fullmatch("[0-9]{1,8}", text))
    }
    data = given.get("data") or _data(recorded.get("data"), reports, folders)
    setup = Setup.of({**used, **given}, data=data, unsafe=bool(unsafe_load))
    files, auditor = Files(audit.origin, folders), Auditor(setup)
    control, good = files.controls(audit.rows, frozen), 0
    for row, report in zip(rows, reports, strict=True):
        problems = _problems(row, report, files, auditor, control)
        good += not problems
        said = f"✗ {row.checkpoint}: {'; '.join(problems[:3])}"
        print(one_line(said if problems else f"✓ {row.checkpoint}"))
    again = {margin.name: _shown(margin) for margin in margins_of(audit.rows, {})}
    wrong += [
        f"{margin.name}: {_shown(margin)} is recorded, its rows give {again.get(margin.name)}"
        for margin in audit.margins
        if _shown(margin) != again.get(margin.name)
    ]
    limits = {pair for report in reports for pair in report.thresholds.by_name().items()}
    changed = sorted(limits - {*DiagnosticThresholds().by_name().items()}, key=str)
    wrong, notes = [f"✗ {text}" for text in wrong], [f"note: threshold {n} {v}" for n, v in changed]
    print(*map(one_line, [*wrong, *notes, f"{good} of {len(rows)} results reproduce"]), sep="\n")
    return int(good < len(rows) or bool(wrong))


def _runs_code(name: str, text: str) -> bool:
    safe = {"model": ("torchvision:",), "data": tuple(f"{kind}:" for kind in KINDS)}
    if not text or name not in (*FACTORIES, "data", "unsafe-load"):
        return False
    plain = name in ("data", "loss") and not is_factory(text)
    return not plain and not text.startswith(safe.get(name, ()))


def _shown(margin: Margin) -> str:
    held = margin.margin
    return f"{held.verdict.value} {held.margin:+.4f} pp" if held else "no margin"


class Files:
    """The files of a certificate: recorded by path and SHA-256, found wherever they lie now."""

    def __init__(self, origin: Origin, folders: Sequence[Path]) -> None:
        self.digests, self.options = origin.files, origin.options
        endings = {Path(path).suffix for path in self.digests}
        walks = (each for folder in folders for each in os.walk(folder))
        below = (Path(at, name) for at, _, names in walks for name in names)
        recorded = (folder / path for folder in folders for path in self.digests)
        found: dict[str, Path] = {}
        for place in chain(recorded, (place for place in below if place.suffix in endings)):
            found.setdefault(_digest(place), place)
            if found.keys() >= set(self.digests.values()):
                break
        self.places = {
            path: found[digest] for path, digest in self.digests.items() if digest in found
        }

    def path_of(self, row: Row) -> str:
        """The recorded path of a row's file: its id, or a path that ends with it; or nothing."""
        ends = [
            path for path in self.digests if f"/{one_line(path)}".endswith(f"/{row.checkpoint}")
        ]
        same = [path for path in ends if self.digests[path] == row.digest]
        return [*same, *ends, ""][0]

    def controls(self, rows: Sequence[Row], typed: Sequence[str] | None) -> Controls | None:
        """The controls that were typed, else the recorded ones, as far as their files are here."""
        values, audited = typed or self.options.get("frozen", ()), set(map(self.path_of, rows))
        twins = {name for row in rows if row.report for name in _twins(row.report)}

        def expand(text: str) -> list[Path]:
            others = [
                place
                for path, place in self.places.items()
                if fnmatch(path, text) or not (path in audited or Path(path).name in twins)
            ]
            return [Path(text)] if typed else others

        try:
            return parse_controls(values, expand) if values else None
        except AuditError:
            return None  # its rows then differ in their control


def _digest(path: Path) -> str:
    try:
        return file_digest(path) if os.path.isfile(path) else ""
    except AuditError:
        return ""


def _data(spec: str | None, reports: Sequence[Report], folders: Sequence[Path]) -> str | None:
    """Where the recorded test data lies: at its path, or below a folder by the name of its file."""
    kind, colon, place = (spec or "").rpartition(":")
    known = {report.environment.get("data_sha256") for report in reports}
    for path in (folder / name for folder in folders for name in (place, Path(place).name, "")):
        try:
            if data_digest(f"{kind}{colon}{path}") in known:
                return f"{kind}{colon}{path}"
        except AuditError:
            continue
    return spec


def _problems(
    row: Row, then: Report, files: Files, auditor: Auditor, control: Controls | None
) -> list[str]:
    """In what a row does not reproduce."""
    try:
        now = _measured(row, then, files, auditor, control)
    except AuditError as error:
        return [str(error)]
    passed = [key for key, outcome in row.outcomes.items() if outcome is Outcome.PASSED]
    fires = [f"({key}) is recorded as passed, and fires" for key in passed if key in now.fired]
    return [*compare(then, now).problems, *fires]


def _twins(report: Report) -> list[str]:
    return report.twin.source.split(", ") if report.twin else []


def _measured(
    row: Row, then: Report, files: Files, auditor: Auditor, control: Controls | None
) -> Report:
    path = files.path_of(row)
    if path not in files.places:
        wanted = f"no file of this name with SHA-256 {row.digest[:12]}…"
        raise AuditError(f"{wanted} was recorded and found; name its folder with --root")
    place, names = files.places[path], _twins(then)
    # (e) was not asked for, but added because of the control: BP's was not measured then.
    added = then.questions_control and then.twin is not None and then.twin.utility_pp is None
    return auditor.report(
        place,
        twins=[own for path, own in files.places.items() if Path(path).name in names],
        diagnostics=[one for one in select(then.diagnostics) if one.key != "e" or not added],
        control=control,
        thresholds=then.thresholds,
        seed=row.seed,
        protocol=then.protocol,
        literal=not added,
        log=is_log(place),
    )
