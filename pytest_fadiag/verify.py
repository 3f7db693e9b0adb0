"""An audit measured again from its certificate: files found by their digests, and every number beside the recorded one."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path
from typing import Any

from .judge.codec import NON_FINITE, to_plain
from .judge.errors import AuditError
from .judge.keys import labelled
from .judge.margins import SeedVerdict
from .judge.report import DiagnosticReport
from .judge.seed_report import SeedReport
from .judge.thresholds import DiagnosticThresholds
from .judge.wording import count
from .load.digests import file_digest
from .load.huggingface import MODELS
from .load.sources import FILES, DataSpec
from .registry import read_audit
from .show.audit import Audit, AuditRow, MarginRow, Origin
from .show.printable import plain_id
from .show.status import Outcome

TOLERANCE = 1e-5
"""How far a number may lie from the recorded one: a share of it, or absolutely where it is a cosine or a fraction."""
ELSEWHERE = 1e-2
"""The same on another device, with another torch or another number of threads, which sum in another order."""
ABSOLUTE = (
    "stability",
    "drift",
    "invariance",
    "acc",
    "share",
    "gamma",
    "null",
    "nudge",
    "probe",
    "_pp",
    "cosine",
    "reference_error",
)
"""Parts of the names of numbers whose zero means something: of these the difference counts, not its share."""
LEAST_SEEDS = 2
"""Rows below which there is no margin over seeds."""
AROUND = 2
"""How many folders lie between the root of a data set and its files, which --root may name too."""
WITH_IT = ("torch", "device", "device_name", "dtype", "threads", "tf32")
TAKEN = (
    *("stream", "normalize", "batches", "batch-size", "frozen", "threshold", "growth", "confounds", "diagnostics", "protocol"),
    *("device", "threads", "log-batch", "log-columns", "inconclusive"),
)
"""The options that are taken from a certificate: none of them runs code or writes a file."""
RUN_CODE = ("model", "credit", "unsafe-load")


@dataclass(frozen=True)
class Files:
    """Where the files of a certificate are now: at their recorded paths, else wherever their content lies under the roots."""

    origin: Origin
    roots: Sequence[Path]

    @cached_property
    def places(self) -> dict[str, Path]:
        """The files that were found, by their recorded paths."""
        found = {path: place for path in self.origin.files if (place := self._at_its_path(path)) is not None}
        lost = {self.origin.files[path]: path for path in self.origin.files if path not in found}
        suffixes = {Path(path).suffix for path in lost.values()}
        for file in itertools.takewhile(lambda _: lost, itertools.chain.from_iterable(map(_walk, self.roots))):
            if file.suffix in suffixes and file.is_file() and (path := lost.pop(file_digest(file), None)) is not None:
                found[path] = file
        return found

    def _at_its_path(self, path: str) -> Path | None:
        places = (root / path for root in self.roots)
        return next((place for place in places if place.is_file() and file_digest(place) == self.origin.files[path]), None)

    def problem(self, path: str) -> str:
        """Why a file was not found."""
        recorded = f"{self.origin.files[path][:12]}…"
        if (changed := next((root / path for root in self.roots if (root / path).is_file()), None)) is not None:
            return f"changed: SHA-256 {file_digest(changed)[:12]}…, recorded {recorded}"
        nothing = f"no file with SHA-256 {recorded} under {', '.join(map(str, self.roots))}"
        files = itertools.chain.from_iterable(map(_walk, self.roots))
        namesake = next((file for file in files if file.name == Path(path).name and file.is_file()), None)
        if namesake is None:
            return f"{nothing}; name its folder with --root"
        return f"{nothing}: {namesake} is another ({file_digest(namesake)[:12]}…), or was changed"


def verify(certificate: Path, roots: Sequence[Path]) -> int:
    """Measure an audit again and say what reproduces, row by row; 0 if everything does, else 1."""
    audit = read_audit(certificate / "audit.json" if certificate.is_dir() else certificate)
    if audit.origin is None or not audit.origin.files:
        raise AuditError(f"does not say what it was measured from; write it with --fa-report=certificate\n  {certificate}")
    roots = [root.resolve() for root in (*roots, Path.cwd())]
    files = Files(audit.origin, roots)
    then = _by_file(audit, audit.origin.files)
    measured = {path: row.report for path, row in then.items() if row.report is not None}
    if not measured:
        raise AuditError(f"none of its rows was measured from a file of its own\n  {certificate}")
    found = [row.checkpoint for row in then.values()]
    unlisted = [row.checkpoint for row in audit.rows if row.report is not None and row.checkpoint not in found]
    present = [path for path in measured if path in files.places]
    print(f"measuring {count(len(present), 'result')} of {audit.origin.created} again …", file=sys.stderr, flush=True)
    digests = (report.environment.get("data_sha256") for report in measured.values())
    digest = next((str(digest) for digest in digests if digest is not None), None)
    again = _measured(audit.origin, files, present, digest) if present else Audit([])
    now = _by_file(again, audit.origin.files)
    comparisons = []
    for path in measured:
        row = now.get(path)
        if path not in files.places:
            comparisons.append(Comparison(path, problem=files.problem(path)))
        elif row is None or row.report is None:
            comparisons.append(Comparison(path, problem=(row.reason if row is not None else "") or "could not be measured"))
        else:
            comparisons.append(Comparison.of(path, then[path], row))
    nowhere = "no file of the certificate is its own, so it cannot be verified"
    comparisons += [Comparison(name, problem=nowhere) for name in unlisted]
    lost = [path for path in audit.origin.files if path not in files.places and path not in measured]
    wrong = [f"{path}: {files.problem(path)}" for path in lost]
    wrong += [f"{path}: listed and not among the results" for path in _without_row(audit.origin, then)]
    wrong += [f"{margin.name}: {problem}" for margin in audit.margins if (problem := _margin_problem(margin, audit.rows))]
    return _say(comparisons, wrong, _notes(audit, again))


def _by_file(audit: Audit, files: Mapping[str, str]) -> dict[str, AuditRow]:
    """The rows by the recorded paths of their files; outside of the root folder an id is only the end of one."""
    rows: dict[str, AuditRow] = {}
    for row in audit.rows:
        ending = [path for path in files if f"/{plain_id(Path(path).as_posix())}".endswith(f"/{row.checkpoint}")]
        digest = None if row.report is None else row.report.environment.get("checkpoint_sha256")
        same = [path for path in ending if files[path] == digest]  # a control may have the same name
        paths = [row.checkpoint] if row.checkpoint in files else same or ending
        if len(paths) == 1:
            rows.setdefault(paths[0], row)  # a second row of one file has none of its own
    return rows


def _without_row(origin: Origin, rows: Mapping[str, AuditRow]) -> list[str]:
    """The listed files that were to be audited and have no row; controls are listed too, and what lies beside a network."""
    controls = [text.rpartition("=")[2] for text in origin.options.get("frozen", ())]
    folders = {Path(path).parent for path in origin.files if Path(path).name in MODELS}
    return [
        path
        for path in origin.files
        if path not in rows
        and not any(fnmatch(path, text) or Path(path).is_relative_to(text) for text in controls)
        and (Path(path).parent not in folders or Path(path).name in MODELS)
    ]


def _margin_problem(margin: MarginRow, rows: Sequence[AuditRow]) -> str:
    """In what a margin over seeds is not what the rows of its seeds give; empty where it is."""
    if margin.margin is None:
        return "passed, and has no margin" if margin.outcome is Outcome.PASSED else ""
    reports = [row.report for row in rows if row.group == margin.name and row.report is not None]
    if len(reports) < LEAST_SEEDS:
        return f"a margin over seeds, of which there is {count(len(reports), 'row')}"
    try:
        now = SeedReport.of(reports, reports[0].thresholds.frozen_acc_margin_pp).margin
    except AuditError as error:
        return f"its rows have no margin over seeds: {error}"
    recorded = margin.margin
    if now.verdict is not recorded.verdict:
        return f"the margin over seeds is {recorded.verdict.value}, and by its rows {now.verdict.value}"
    if margin.outcome is Outcome.PASSED and now.verdict is not SeedVerdict.PASS:
        return f"passed, and by its rows the margin over seeds is {now.verdict.value}"
    difference, number = max(_differences(to_plain(recorded), to_plain(now)), default=(0.0, ""))
    return f"{number} of its margin over seeds is not what its rows give" if difference > TOLERANCE else ""


def _notes(audit: Audit, again: Audit) -> list[str]:
    """What a reader of the certificate must know beside what reproduces."""
    published = DiagnosticThresholds().by_name()
    reports = [row.report for row in audit.rows if row.report is not None]
    changed = {
        f"{name} {value} (published: {published[name]})": None
        for report in reports
        for name, value in report.thresholds.by_name().items()
        if name in published and value != published[name]
    }
    notes = [f"judged by other thresholds than the published ones: {', '.join(changed)}"] if changed else []
    names = {margin.name for margin in audit.margins}
    absent = [margin for margin in again.margins if margin.name not in names]
    said = "its margin over seeds is not among the results; measured again it is"
    return notes + [f"{margin.name}: {said} {margin.margin.verdict.value}" for margin in absent if margin.margin is not None]


@dataclass(frozen=True)
class Comparison:
    """One result then and now."""

    path: str
    difference: float = 0.0
    number: str = ""
    """The number that differs most."""
    problem: str = ""
    elsewhere: str = ""
    """In what the two were measured differently."""

    @property
    def compared(self) -> bool:
        """Whether it was measured again."""
        return bool(self.number)

    @classmethod
    def of(cls, path: str, before: AuditRow, after: AuditRow) -> Comparison:
        """The two reports, number by number, and what follows from them."""
        then, now = before.report, after.report
        assert then is not None and now is not None
        environments = {name: (then.environment.get(name), now.environment.get(name)) for name in WITH_IT}
        other = [f"{name} {before} → {after}" for name, (before, after) in environments.items() if before != after]
        elsewhere, tolerance = ", ".join(other), ELSEWHERE if other else TOLERANCE
        difference, number = max(_differences(then.to_dict(), now.to_dict()), default=(0.0, ""))
        problem = ""
        if then.environment.get("data_sha256") != now.environment.get("data_sha256"):
            problem = "the test data is not what was measured on"
        elif difference > tolerance:
            problem = f"{number} differs by {difference:.1e}, more than {tolerance:g}"
        else:
            problem = _judged_otherwise(before, after)
        return cls(path, difference, number, problem, elsewhere)


def _judged_otherwise(before: AuditRow, after: AuditRow) -> str:
    """In what two rows of the same numbers are judged differently; empty where they are not."""
    then, now = before.report, after.report
    assert then is not None and now is not None
    facts = {
        "its method": (then.method_name, now.method_name),
        "the digest of its file": tuple(report.environment.get("checkpoint_sha256") for report in (then, now)),
        "its thresholds": (then.thresholds, now.thresholds),
        "what is asked of it": (set(then.diagnostics), set(now.diagnostics)),
        "its control": (_control(then), _control(now)),
    }
    other = next((name for name, (one, two) in facts.items() if one != two), None)
    if then.fired != now.fired:
        return f"fires {now.fired or 'nothing'}, recorded {then.fired or 'nothing'}"
    if then.verdict != now.verdict:
        return f"the verdict is «{now.verdict}», recorded «{then.verdict}»"
    passed = [key for key, outcome in before.outcomes.items() if outcome is Outcome.PASSED and key in now.fired]
    if passed:
        return f"{labelled(passed[0])} passed by the certificate, and fires"
    return f"{other} is not what is recorded" if other is not None else ""


def _control(report: DiagnosticReport) -> tuple[object, ...]:
    """Which control it was compared with, and what that one is doubted for."""
    control = report.control
    return () if control is None else (control.kind, control.method, control.seed, {doubt.kind for doubt in control.doubts})


def _say(comparisons: Sequence[Comparison], lost: Sequence[str], notes: Sequence[str]) -> int:
    for result in comparisons:
        if result.problem:
            print(f"  ✗ {result.path}: {result.problem}")
    for text in lost:
        print(f"  ✗ {text}")
    elsewhere = sorted({result.elsewhere for result in comparisons if result.elsewhere})
    for text in elsewhere:
        print(f"note: measured elsewhere ({text}): numbers may differ by {ELSEWHERE:g}")
    for text in notes:
        print(f"note: {text}")
    good = [result for result in comparisons if not result.problem]
    compared = [result.difference for result in comparisons if result.compared]
    largest = f"; largest relative difference {max(compared):.0e}" if compared else ""
    print(f"{len(good)} of {len(comparisons)} results reproduce{largest}")
    return 0 if len(good) == len(comparisons) and not lost else 1


def _differences(one: Any, other: Any, name: str = "") -> Iterator[tuple[float, str]]:
    """How far each number of a report lies from the other's."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in one:
            if key not in ("environment", "thresholds", "findings", "notes", "remarks", "doubts"):
                yield from _differences(one[key], other.get(key), f"{name}.{key}" if name else key)
    elif isinstance(one, list) and isinstance(other, list):
        if len(one) != len(other):
            yield math.inf, name
        for index, (a, b) in enumerate(zip(one, other, strict=False)):
            yield from _differences(a, b, f"{name}[{index}]")
    elif _is_number(one) and _is_number(other):
        scale = 1.0 if any(part in name for part in ABSOLUTE) else max(abs(one), abs(other))
        yield (abs(one - other) / scale if scale else 0.0), name
    elif one != other and (_counts(one) or _counts(other)):
        yield math.inf, name


def _counts(value: Any) -> bool:
    """Whether a value is measured; words and truth values follow from what is, and are compared as verdicts."""
    return _is_number(value) or isinstance(value, (list, Mapping)) or (isinstance(value, str) and value in NON_FINITE)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _measured(origin: Origin, files: Files, paths: Sequence[str], digest: str | None) -> Audit:
    """The audit of these files by pytest, in a folder laid out as the recorded one was."""
    with tempfile.TemporaryDirectory(prefix="fadiag-") as folder:
        # Files outside of the recorded root folder lie in folders around the root of the copy.
        above = max((Path(path).parts.count("..") for path in origin.files), default=0)
        root = Path(folder).joinpath(*map(str, range(above + 1)))
        root.mkdir(parents=True)
        for path, place in files.places.items():
            if place.suffix in (".py", ".ini", ".toml", ".cfg"):
                raise AuditError(f"lists a file that pytest would run or obey, and no audit measures: {path}")
            copy = Path(os.path.normpath(root / path))
            if not copy.is_relative_to(folder):
                raise AuditError(f"names a file by no path from its root folder: {path}")
            _link(copy, place)
        (root / "pytest.ini").write_text("[pytest]\n", "utf-8")
        if code := [name for name in RUN_CODE if name in origin.options]:
            raise AuditError(f"asks for code of its author (--fa-{code[0]}={origin.options[code[0]][0]}), which is not run")
        data = [find_data(text, files.roots, digest) for text in origin.options.get("data", ())]
        taken = {"data": data, **{name: origin.options[name] for name in TAKEN if name in origin.options}}
        options = [f"--fa-{name}={text}" for name, texts in taken.items() for text in texts]
        kinds = {path: "log" if path in _logs(origin) else "checkpoint" for path in paths}
        targets = [f"--fa-{kinds[path]}={path}" for path in paths]
        command = [
            sys.executable,
            "-I",
            "-m",
            "pytest",
            "--noconftest",
            "--fa-only",
            "--fa-no-cache",
            "--fa-report=json:again.json",
            *options,
            *targets,
        ]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        if not (root / "again.json").is_file():
            raise AuditError("the audit could not be run again:\n" + (done.stderr.strip() or done.stdout[-2000:].strip()))
        return read_audit(root / "again.json")


def _logs(origin: Origin) -> set[str]:
    logs = {path for path in origin.files if Path(path).suffix in (".json", ".jsonl", ".csv") or "tfevents" in path}
    return {path for path in logs if Path(path).name not in MODELS}


def find_data(text: str, roots: Sequence[Path], digest: str | None) -> str:
    """The SPEC of the test data where it lies now: at its recorded path, else what has its digest under the roots.

    Changed data at its path is taken where there is no other, and the comparison says that it is changed.
    """
    recorded = DataSpec.parse(text, others=True)
    if recorded.kind is None or recorded.path is None:
        raise AuditError(f"asks for code of its author (--fa-data={text}), which is not run")
    prefix = text.removesuffix(str(recorded.path)) if ":" in text.removesuffix(str(recorded.path)) else ""
    at = (Path(os.path.normpath(root / recorded.path)) for root in roots)  # an absolute path stays what it is
    there = [path for path in dict.fromkeys(at) if path.exists()]
    for path in itertools.chain(there, [] if digest is None else _candidates(recorded, roots)):
        if digest is None or replace(recorded, path=path).digest() == digest:
            return f"{prefix}{path}"
    if there:
        return f"{prefix}{there[0]}"
    raise AuditError(
        f"the test data is not there, or was changed: neither at {recorded.path} nor by its digest under "
        f"{', '.join(map(str, roots))}; name its folder with --root"
    )


def _candidates(data: DataSpec, roots: Sequence[Path]) -> Iterator[Path]:
    """Where data of a kind could lie: a file of the same ending; a folder below a root, or around what it was unpacked to."""
    assert data.kind is not None and data.path is not None
    for root in roots:
        if data.kind.name in FILES:
            yield from (file for file in _walk(root) if file.suffix == data.kind.name and file.is_file())
            continue
        folders = itertools.chain(
            [root], filter(Path.is_dir, _walk(root)), () if data.kind.many else list(root.parents)[:AROUND]
        )
        # Reading every file of every folder takes its time: a tree of images has its name, or nothing but folders in it.
        yield from (
            folder for folder in folders if not data.kind.many or folder.name == data.path.name or _holds_folders(folder)
        )


def _walk(root: Path) -> Iterator[Path]:
    """Everything below a folder, also while others write there; what may not be read is passed over."""
    for folder, folders, files in os.walk(root):
        folders.sort()
        yield from (Path(folder, name) for name in (*folders, *sorted(files)))


def _holds_folders(folder: Path) -> bool:
    try:
        return all(entry.is_dir() for entry in folder.iterdir())
    except OSError:
        return False


def _link(place: Path, target: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if not place.exists():
        place.symlink_to(target)
