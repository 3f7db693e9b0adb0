"""What a run audits, by which tests: a function of settings, arguments and file names.

No file is opened.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Literal

import msgspec

from ..judge.diagnostics import Diagnostic, available, default_diagnostics, get, select
from ..judge.errors import AuditError
from ..judge.protocol import PROTOCOLS
from ..judge.words import one_line
from ..load.logs import records_credit
from ..load.names import identify, is_checkpoint, is_log, model_file
from ..load.traces import fields_of, is_trace
from .settings import Settings, spelled

SEED_MARGIN = "seed-margin"
"""The name of the test of a method over its seeds."""
MARGIN = "frozen-margin"
Kind = Literal["checkpoint", "log", "trace"]
KINDS: tuple[Kind, ...] = ("checkpoint", "log", "trace")


class Job(msgspec.Struct, frozen=True):
    """One checkpoint or log to audit."""

    id: str
    """The node id of its tests without the diagnostic."""
    path: str
    kind: Kind
    method: str
    """As the file's name tells it; the file itself may say otherwise."""
    seed: int | None = None
    diagnostics: tuple[str, ...] = ()
    """The names of the diagnostics, one test each."""
    required: tuple[str, ...] = ()
    """The keys that were asked for by name: what cannot be measured of them is an error."""
    group: str | None = None
    """The margin over seeds that it belongs to."""
    skip: str = ""
    """Why its tests are skipped."""


class Plan(msgspec.Struct, frozen=True):
    """Everything that a run audits."""

    jobs: tuple[Job, ...] = ()
    """Those that get tests of their own."""
    named: tuple[Job, ...] = ()
    """All that options and arguments name: the seeds of margins, and what written tests run over.
    """
    margins: tuple[str, ...] = ()
    """The groups whose margin over seeds is tested."""
    rest: tuple[str, ...] | None = None
    """The arguments that are left to pytest, where some were typed."""

    def seeds_of(self, group: str) -> list[Job]:
        """The jobs of one margin over seeds."""
        return [job for job in self.named if job.group == group]


def real_files(path: Path, kind: Kind) -> list[str]:
    """The file itself, else the network or the files of the folder, else those that the glob
    matches.
    """
    fits = {"checkpoint": is_checkpoint, "log": is_log, "trace": is_trace}[kind]

    def network(folder: Path) -> list[Path]:
        model = model_file(folder) if kind == "checkpoint" else None
        return [model] if model else []

    if os.path.isdir(path):
        found = network(path) or list(filter(fits, path.iterdir()))
    elif os.path.exists(path):  # brackets in the name of a file that exists are not a glob
        found = [path]
    else:
        matches = map(Path, glob.glob(str(path), recursive=True))
        each = (network(one) if one.is_dir() else filter(fits, [one]) for one in matches)
        found = [file for some in each for file in some]
    return sorted({os.path.abspath(file) for file in found})


def diagnostics_for(
    settings: Settings, kind: Kind = "checkpoint", credit: bool = False, control: bool = False
) -> tuple[Diagnostic, ...]:
    """Which diagnostics run: a published form or an explicit list literally, else by what was
    supplied.
    """
    if settings.protocol is not None:
        return select(PROTOCOLS[settings.protocol].keys)
    if settings.diagnostics is not None:
        return select(settings.diagnostics)
    credit = credit or (settings.setup.credit is not None and kind == "checkpoint")
    return default_diagnostics(
        control=control or "frozen" in settings.texts, credit=credit, partial=kind == "log"
    )


def make_jobs(
    settings: Settings,
    patterns: Iterable[str],
    base: Path,
    what: str,
    kind: Kind = "checkpoint",
    *,
    seeds: Sequence[int] | None = None,
    known: Collection[Job] = (),
) -> list[Job]:
    """The files behind paths, globs and folders as jobs, sorted by id.

    A missing file is an error unless it may be.
    """
    found: dict[str, tuple[int | None, str]] = {}
    seeds = settings.seeds if seeds is None else seeds
    for pattern in patterns:
        if "{seed}" in pattern and not seeds:
            raise AuditError(
                f"{what} {pattern!r} has {{seed}}, but no seeds are given; add "
                "--fa-seeds=42,123,456"
            )
        for seed in seeds if "{seed}" in pattern else [None]:
            path = base / os.path.expanduser(pattern.replace("{seed}", str(seed)))
            files = real_files(path, kind)
            if not files and settings.missing == "error":
                raise AuditError(
                    f"{what}: no {kind} there\n  {path}\nIf it may be absent, add --fa-missing=skip"
                )
            for file in files or [os.path.abspath(path)]:
                skip = "" if files else f"{kind} does not exist: {one_line(file)}"
                found.setdefault(file, (seed, skip))
    ids = make_ids(found, settings.root, {job.path: job.id for job in known})
    jobs = []
    for file, (seed, skip) in found.items():
        method, own = identify(Path(file))
        held = fields_of(Path(file)) if kind == "trace" else {}
        names = diagnostics_for(
            settings,
            kind,
            credit="a_1" in held or (kind == "log" and not skip and records_credit(Path(file))),
            control="control_outputs" in held,
        )
        jobs.append(
            Job(
                id=ids[file],
                path=file,
                kind=kind,
                method=method,
                seed=own if seed is None else seed,
                diagnostics=tuple(diagnostic.name for diagnostic in names),
                required=required(settings.diagnostics),
                skip=skip,
            )
        )
    return sorted(jobs, key=lambda job: job.id)


def required(asked: str | Sequence[str] | None) -> tuple[str, ...]:
    """The keys of an explicit list: (d) without a control stays a skip, and «all» are those that
    can be measured.
    """
    return tuple(d.key for d in select(asked) if d.key != "d") if asked and asked != "all" else ()


def make_ids(paths: Collection[str], root: Path, known: Mapping[str, str]) -> dict[str, str]:
    """Below the root folder the relative path.

    Elsewhere the shortest end of the path that no other file has.
    """
    ids = dict(known)
    outside = [Path(path).parts for path in {*paths, *known} if not Path(path).is_relative_to(root)]
    for path in sorted(paths, key=lambda path: not Path(path).is_relative_to(root)):
        parts = Path(path).parts
        lengths = [
            n
            for n in range(1, len(parts))
            if sum(other[-n:] == parts[-n:] for other in outside) == 1
        ]
        names = (
            [Path(path).relative_to(root).as_posix()]
            if parts not in outside
            else ["/".join(parts[-n:]) for n in lengths]
        )
        plain = [one_line(name).replace("::", ":\\x3a") for name in [*names, path]]
        ids.setdefault(path, next(name for name in plain if name not in ids.values()))
    return ids


def with_groups(jobs: Iterable[Job]) -> list[Job]:
    """The jobs with their margins over seeds: a method with two or more seeds.

    In each folder if seeds occur twice.
    """
    jobs = list(jobs)
    names: dict[str, str] = {}
    for by_folder in (False, True):
        members: dict[str, list[Job]] = {}
        for job in jobs:
            folder = f"{PurePosixPath(job.id).parent}/" if by_folder else ""
            name = f"{folder}{job.method}{' (log)' if job.kind == 'log' else ''}"
            if job.seed is not None and not job.skip and job.path not in names:
                members.setdefault(name.replace("::", ":\\x3a"), []).append(job)
        for name, group in members.items():
            if len({job.seed for job in group}) == len(group) > 1:
                names |= {job.path: name for job in group}
    return [msgspec.structs.replace(job, group=names.get(job.path)) for job in jobs]


def _ids(settings: Settings, name: str) -> set[str]:
    """What an argument may mean: an id as pytest prints it, from the root or the working folder."""
    return {name, Path(os.path.relpath(settings.cwd / name, settings.root)).as_posix()}


def _picked(
    settings: Settings, args: Sequence[str], known: list[Job]
) -> tuple[dict[str, set[str]], list[str]]:
    """The tests that arguments name, by path, and the other arguments.

    A file that no option names is added to what is known.
    """
    picked: dict[str, set[str]] = {}
    rest: list[str] = []
    for argument in args:
        name, *tests = argument.split("::")
        path, ids = os.path.abspath(settings.cwd / name), _ids(settings, name)
        job = next((job for job in known if job.id in ids or job.path == path), None)
        kind: Kind = "trace" if path.endswith(".npz") else "checkpoint"
        fits = kind == "trace" or is_checkpoint(Path(path))
        if job is None and fits and real_files(Path(path), kind):
            known += make_jobs(settings, [path], settings.cwd, name, kind, known=known)
            job = known[-1]
        if job is None:
            rest.append(argument)
            continue
        if unknown := [test for test in tests if get(test) is None]:
            names = ", ".join(diagnostic.name for diagnostic in available())
            raise AuditError(f"{argument}: no diagnostic {unknown[0]!r}; known: {names}")
        picked.setdefault(job.path, set()).update(tests or job.diagnostics)
    return picked, rest


def make_plan(
    settings: Settings,
    args: Sequence[str],
    controls: Collection[str] = (),
) -> Plan:
    """What the options name, and what typed arguments select among it or add to it.

    ``controls`` are the files of --fa-frozen: they are not audited unless an argument names them.
    """
    naming = {*KINDS} & settings.typed
    texts = {kind: settings.texts.get(kind, ()) for kind in KINDS}
    if "seeds" in settings.typed and any(texts.values()) and "{seed}" not in str(texts):
        raise AuditError(
            "--fa-seeds is given, but neither --fa-checkpoint nor --fa-log contains {seed}"
        )
    known: list[Job] = []
    for kind in KINDS:
        base, what = settings.path(kind, ""), spelled(kind, settings.typed)
        known += make_jobs(settings, texts[kind], base, what, kind, known=known)
    named = len(known)
    picked, rest = _picked(settings, args, known)
    every = with_groups(job for job in known if job.path not in controls or job.path in picked)
    if named and not every:
        raise AuditError(
            "everything to audit is a control of --fa-frozen: nothing is left to audit"
        )
    groups = {job.group for job in every if job.group is not None}
    over_seeds = {
        argument: groups & _ids(settings, argument.removesuffix(f"::{SEED_MARGIN}"))
        for argument in rest
        if argument.endswith(f"::{SEED_MARGIN}")
    }
    margins = set[str]().union(*over_seeds.values())
    rest = [argument for argument in rest if not over_seeds.get(argument)]
    jobs = every
    if (picked or margins) and not (naming and len(known) > named):
        jobs = [job for job in every if job.path in picked]
    elif rest and not naming:
        # What the ini file names belongs to a run of everything, as testpaths do.
        folders = [os.path.abspath(settings.cwd / argument.partition("::")[0]) for argument in rest]
        above = {settings.root, *settings.root.parents}
        if above.isdisjoint(map(Path, folders)):
            jobs = [job for job in every if any(map(Path(job.path).is_relative_to, folders))]
    jobs = [_only(job, picked[job.path]) if job.path in picked else job for job in jobs]
    if jobs and all(job.skip for job in jobs):
        raise AuditError(
            "none of the files to audit exists; --fa-missing=skip lets some be absent\n  "
            f"{jobs[0].path}"
        )
    if settings.only and not (jobs or margins):
        raise AuditError(
            "--fa-only: nothing to audit is named; add --fa-checkpoint, --fa-log or --fa-trace"
        )
    if settings.shard is not None:
        part, parts = settings.shard
        if parts > len(jobs):
            raise AuditError(
                f"--fa-shard={part}/{parts}: {len(jobs)} to audit; use at most {len(jobs)} parts"
            )
        jobs = sorted(jobs, key=lambda job: job.id)[part - 1 :: parts]
    elif not margins and (settings.protocol is None or PROTOCOLS[settings.protocol].over_seeds):
        whole = {job.path for job in jobs if job in every and MARGIN in job.diagnostics}
        partly = {job.group for job in every if job.path not in whole}
        margins = groups - partly
    return Plan(tuple(jobs), tuple(every), tuple(sorted(margins)), tuple(rest) if args else None)


def _only(job: Job, names: Collection[str]) -> Job:
    """The job with the tests that arguments name; one that would not run by itself is asked for."""
    added = required([name for name in names if name not in job.diagnostics])
    chosen = tuple(diagnostic.name for diagnostic in available() if diagnostic.name in names)
    return msgspec.structs.replace(job, diagnostics=chosen, required=(*job.required, *added))
