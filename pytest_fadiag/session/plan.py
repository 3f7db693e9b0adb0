"""What a run audits, by which tests: a function of settings, arguments and file names.

No file is opened.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from ..judge.diagnostics import Diagnostic, Role, available, default_diagnostics, get, select
from ..judge.errors import AuditError
from ..judge.protocol import PROTOCOLS
from ..judge.words import one_line
from ..load.logs import records_credit
from ..load.names import identify, is_checkpoint, is_log, model_file
from ..load.traces import fields_of, is_trace
from .settings import Settings, spelled

SEED_MARGIN = "seed-margin"
"""The name of the test of a method over its seeds."""
Kind = Literal["checkpoint", "log", "trace"]
KINDS: tuple[Kind, ...] = ("checkpoint", "log", "trace")
IS_OF_KIND = {"checkpoint": is_checkpoint, "log": is_log, "trace": is_trace}


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
    with_credit: tuple[str, ...] = ()
    """The names of those that run too where a fixture gives a credit."""
    required: tuple[str, ...] = ()
    """The keys that were asked for by name: what cannot be measured of them is an error."""
    group: str | None = None
    """The margin over seeds that it belongs to."""
    skip: str = ""
    """Why its tests are skipped."""

    def given_credit(self) -> Job:
        """The job where a fixture gives a credit."""
        diagnostics = select([*self.diagnostics, *self.with_credit])
        return replace(self, diagnostics=names_of(diagnostics), with_credit=())


class Plan(msgspec.Struct, frozen=True):
    """Everything that a run audits."""

    jobs: tuple[Job, ...] = ()
    """Those that get tests of their own."""
    all_jobs: tuple[Job, ...] = ()
    """All that options and arguments name: the seeds of margins, and what written tests run over.
    """
    margins: tuple[str, ...] = ()
    """The groups whose margin over seeds is tested."""
    arguments: tuple[str, ...] | None = None
    """The arguments that are left to pytest, where some were typed."""

    def seeds_of(self, group: str) -> list[Job]:
        """The jobs of one margin over seeds."""
        return [job for job in self.all_jobs if job.group == group]


class Arguments(NamedTuple):
    """What the arguments of pytest say of an audit."""

    added: list[Job]
    """The files that no option names."""
    tests: dict[str, set[str]]
    """The names of the tests that are to run, by the path of their file."""
    other_words: list[str]


def names_of(diagnostics: Iterable[Diagnostic]) -> tuple[str, ...]:
    """Their names, in the order given."""
    return tuple(diagnostic.name for diagnostic in diagnostics)


def real_files(path: Path, kind: Kind) -> list[str]:
    """The file itself, else the network or the files of the folder, else those that the glob
    matches.
    """
    files: list[Path] = []
    if os.path.isdir(path):
        files = _networks(path, kind) or list(filter(IS_OF_KIND[kind], path.iterdir()))
    elif os.path.exists(path):  # brackets in the name of a file that exists are not a glob
        files = [path]
    else:
        for match in map(Path, glob.glob(str(path), recursive=True)):
            if match.is_dir():
                files += _networks(match, kind)
            elif IS_OF_KIND[kind](match):
                files.append(match)
    return sorted({os.path.abspath(file) for file in files})


def _networks(folder: Path, kind: Kind) -> list[Path]:
    """The file of a network whose name is its folder's."""
    file = model_file(folder) if kind == "checkpoint" else None
    return [] if file is None else [file]


def diagnostics_for(
    settings: Settings, kind: Kind = "checkpoint", credit: bool = False
) -> tuple[Diagnostic, ...]:
    """Which diagnostics run: a published form or an explicit list literally, else by what was
    supplied.
    """
    if settings.protocol is not None:
        return select(PROTOCOLS[settings.protocol].keys)
    if settings.diagnostics is not None:
        return select(settings.diagnostics)
    setup = settings.setup
    if kind == "checkpoint" and (setup.credit, setup.step) != (None, None):
        credit = True
    return default_diagnostics(credit, partial=kind == "log")


def required(keys: str | Sequence[str] | None) -> tuple[str, ...]:
    """The keys of an explicit list: without a control its margin stays a skip, and «all» are those
    that can be measured.
    """
    if not keys or keys == "all":
        return ()
    return tuple(diagnostic.key for diagnostic in select(keys) if not diagnostic.needs_control)


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
    """The files of paths, globs and folders as jobs, sorted by id.

    A missing file is an error unless it may be.
    """
    if seeds is None:
        seeds = settings.seeds
    seeds_by_file: dict[str, int | None] = {}
    missing: set[str] = set()
    for path, seed in _paths(patterns, base, what, seeds):
        files = real_files(path, kind)
        if not files and settings.missing == "error":
            raise AuditError(
                f"{what}: no {kind} there\n  {path}\nIf it may be absent, add --fa-missing=skip"
            )
        if not files:
            files = [os.path.abspath(path)]
            missing.update(files)
        for file in files:
            seeds_by_file.setdefault(file, seed)
    ids = make_ids(seeds_by_file, settings.root, {job.path: job.id for job in known})
    jobs = []
    for file, seed in seeds_by_file.items():
        jobs.append(_job(settings, ids[file], Path(file), kind, seed, is_missing=file in missing))
    return sorted(jobs, key=lambda job: job.id)


def _paths(
    patterns: Iterable[str], base: Path, what: str, seeds: Sequence[int]
) -> Iterator[tuple[Path, int | None]]:
    """Every pattern as a path, once for each seed that it names."""
    for pattern in patterns:
        if "{seed}" not in pattern:
            yield base / os.path.expanduser(pattern), None
        elif not seeds:
            raise AuditError(
                f"{what} {pattern!r} has {{seed}}, but no seeds are given; add "
                "--fa-seeds=42,123,456"
            )
        else:
            for seed in seeds:
                yield base / os.path.expanduser(pattern.replace("{seed}", str(seed))), seed


def _job(
    settings: Settings, name: str, path: Path, kind: Kind, seed: int | None, *, is_missing: bool
) -> Job:
    """One file with the diagnostics that run on it."""
    method, seed_of_name = identify(path)
    fields = fields_of(path) if kind == "trace" else {}
    credit = "a_1" in fields
    if kind == "log" and not is_missing:
        credit = records_credit(path)
    diagnostics = diagnostics_for(settings, kind, credit)
    with_credit = diagnostics
    if kind == "checkpoint":
        with_credit = diagnostics_for(settings, kind, True)
    return Job(
        id=name,
        path=str(path),
        kind=kind,
        method=method,
        seed=seed_of_name if seed is None else seed,
        diagnostics=names_of(diagnostics),
        with_credit=names_of(d for d in with_credit if d not in diagnostics),
        required=required(settings.diagnostics),
        skip=f"{kind} does not exist: {one_line(str(path))}" if is_missing else "",
    )


def make_ids(paths: Collection[str], root: Path, known: Mapping[str, str]) -> dict[str, str]:
    """Below the root folder the relative path.

    Elsewhere the shortest end of the path that no other file has.
    """
    ids = dict(known)
    outside = [path for path in {*paths, *known} if not Path(path).is_relative_to(root)]
    for path in sorted(set(paths).difference(outside)):
        name = Path(path).relative_to(root).as_posix()
        ids.setdefault(path, _first_free([name, path], ids.values()))
    for path in sorted(set(paths).intersection(outside)):
        ids.setdefault(path, _first_free([*_own_ends(path, outside), path], ids.values()))
    return ids


def _own_ends(path: str, paths: Iterable[str]) -> Iterator[str]:
    """The ends of a path that no other of these paths has, the shortest first."""
    parts_of_all = [Path(other_path).parts for other_path in paths]
    parts = Path(path).parts
    for length in range(1, len(parts)):
        ends = [parts_of_one[-length:] for parts_of_one in parts_of_all]
        if ends.count(parts[-length:]) == 1:
            yield "/".join(parts[-length:])


def _first_free(names: Iterable[str], taken: Collection[str]) -> str:
    """The first of these names that is no id yet."""
    for name in names:
        plain = _plain(one_line(name))
        if plain not in taken:
            return plain
    raise AssertionError("every path differs")


def _plain(name: str) -> str:
    """A name without the sign that divides a node id."""
    return name.replace("::", ":\\x3a")


def with_groups(jobs: Iterable[Job]) -> list[Job]:
    """The jobs with their margins over seeds: a method with two or more seeds.

    In each folder if seeds occur twice.
    """
    jobs = list(jobs)
    groups = _groups(jobs, {}, by_folder=False)
    groups = _groups(jobs, groups, by_folder=True)
    return [replace(job, group=groups.get(job.path)) for job in jobs]


def _groups(jobs: Iterable[Job], groups: Mapping[str, str], *, by_folder: bool) -> dict[str, str]:
    """The groups by path, with those of jobs that have none yet."""
    members: dict[str, list[Job]] = {}
    for job in jobs:
        if job.seed is None or job.skip or job.path in groups:
            continue
        name = job.method
        if by_folder:
            name = f"{PurePosixPath(job.id).parent}/{name}"
        if job.kind == "log":
            name += " (log)"
        members.setdefault(_plain(name), []).append(job)
    updated = dict(groups)
    for name, seeds in members.items():
        if len({job.seed for job in seeds}) == len(seeds) > 1:
            updated |= {job.path: name for job in seeds}
    return updated


def _ids(settings: Settings, name: str) -> set[str]:
    """What an argument may mean: an id as pytest prints it, from the root or the working folder."""
    return {name, Path(os.path.relpath(settings.cwd / name, settings.root)).as_posix()}


def read_arguments(
    settings: Settings, words: Sequence[str], of_options: Sequence[Job]
) -> Arguments:
    """The tests that arguments name, by path, and the other arguments."""
    arguments = Arguments([], {}, [])
    for word in words:
        name, *tests = word.split("::")
        job = _job_of_argument(settings, name, [*of_options, *arguments.added])
        if job is None:
            arguments.other_words.append(word)
            continue
        if job not in of_options and job not in arguments.added:
            arguments.added.append(job)
        for test in tests:
            if get(test) is None:
                names = ", ".join(names_of(available()))
                raise AuditError(f"{word}: no diagnostic {test!r}; known: {names}")
        arguments.tests.setdefault(job.path, set()).update(tests or job.diagnostics)
    return arguments


def _job_of_argument(settings: Settings, name: str, jobs: Sequence[Job]) -> Job | None:
    """The job that an argument names, or that of a file that no option names."""
    path = os.path.abspath(settings.cwd / name)
    ids = _ids(settings, name)
    for job in jobs:
        if job.id in ids or job.path == path:
            return job
    kind: Kind = "trace" if path.endswith(".npz") else "checkpoint"
    if kind == "checkpoint" and not is_checkpoint(Path(path)):
        return None
    if not real_files(Path(path), kind):
        return None
    return make_jobs(settings, [path], settings.cwd, name, kind, known=jobs)[-1]


def make_plan(
    settings: Settings,
    words: Sequence[str],
    controls: Collection[str] = (),
) -> Plan:
    """What the options name, and what typed arguments select among it or add to it.

    ``controls`` are the files of --fa-frozen: they are not audited unless an argument names them.
    """
    of_options = _jobs_of_options(settings)
    arguments = read_arguments(settings, words, of_options)
    audited = with_groups(
        job
        for job in (*of_options, *arguments.added)
        if job.path not in controls or job.path in arguments.tests
    )
    if of_options and not audited:
        raise AuditError(
            "everything to audit is a control of --fa-frozen: nothing is left to audit"
        )
    margins, other_words = _margins_of_arguments(settings, arguments.other_words, audited)
    arguments = arguments._replace(other_words=other_words)
    jobs = []
    for job in _selected(settings, audited, arguments, margins):
        names = arguments.tests.get(job.path)
        jobs.append(job if names is None else _only(job, names))
    _check(settings, jobs, margins)
    if settings.shard is not None:
        jobs = _part(jobs, *settings.shard)
    elif not margins:
        margins = _margins_of_jobs(settings, jobs, audited)
    return Plan(
        jobs=tuple(jobs),
        all_jobs=tuple(audited),
        margins=tuple(sorted(margins)),
        arguments=tuple(other_words) if words else None,
    )


def _jobs_of_options(settings: Settings) -> list[Job]:
    texts = {kind: settings.texts.get(kind, ()) for kind in KINDS}
    if "seeds" in settings.typed and any(texts.values()) and "{seed}" not in str(texts):
        raise AuditError(
            "--fa-seeds is given, but neither --fa-checkpoint nor --fa-log contains {seed}"
        )
    jobs: list[Job] = []
    for kind in KINDS:
        base = settings.path(kind, "")
        option = spelled(kind, settings.typed)
        jobs += make_jobs(settings, texts[kind], base, option, kind, known=jobs)
    return jobs


def _margins_of_arguments(
    settings: Settings, words: Iterable[str], jobs: Iterable[Job]
) -> tuple[set[str], list[str]]:
    """The margins over seeds that arguments name, and the other arguments."""
    groups = _groups_of(jobs)
    margins: set[str] = set()
    other_words = []
    for word in words:
        name, _, test = word.rpartition("::")
        matches = groups & _ids(settings, name)
        if test == SEED_MARGIN and matches:
            margins |= matches
        else:
            other_words.append(word)
    return margins, other_words


def _selected(
    settings: Settings, jobs: list[Job], arguments: Arguments, margins: Collection[str]
) -> list[Job]:
    """The jobs that get tests of their own."""
    are_typed = not settings.typed.isdisjoint(KINDS)
    if arguments.tests or margins:
        if are_typed and arguments.added:
            return jobs
        return [job for job in jobs if job.path in arguments.tests]
    if are_typed or not arguments.other_words:
        return jobs
    # What the ini file names belongs to a run of everything, as testpaths do.
    folders = []
    for word in arguments.other_words:
        folder = Path(os.path.abspath(settings.cwd / word.partition("::")[0]))
        if settings.root.is_relative_to(folder):
            return jobs
        folders.append(folder)
    return [job for job in jobs if any(map(Path(job.path).is_relative_to, folders))]


def _only(job: Job, names: Collection[str]) -> Job:
    """The job with the tests that arguments name; one that might not run by itself is asked for."""
    if names == {*job.diagnostics}:
        return job
    diagnostics = select(names)
    added = []
    for diagnostic in diagnostics:
        if diagnostic.name not in job.diagnostics or diagnostic.role is Role.FALLBACK:
            added.append(diagnostic.name)
    return replace(
        job,
        diagnostics=names_of(diagnostics),
        with_credit=(),
        required=(*job.required, *required(added)),
    )


def _check(settings: Settings, jobs: Sequence[Job], margins: Collection[str]) -> None:
    """Refuse a run of nothing."""
    if jobs and all(job.skip for job in jobs):
        raise AuditError(
            "none of the files to audit exists; --fa-missing=skip lets some be absent\n  "
            f"{jobs[0].path}"
        )
    if settings.only and not (jobs or margins):
        raise AuditError(
            "--fa-only: nothing to audit is named; add --fa-checkpoint, --fa-log or --fa-trace"
        )


def _part(jobs: Sequence[Job], part: int, parts: int) -> list[Job]:
    if parts > len(jobs):
        raise AuditError(
            f"--fa-shard={part}/{parts}: {len(jobs)} to audit; use at most {len(jobs)} parts"
        )
    return sorted(jobs, key=lambda job: job.id)[part - 1 :: parts]


def _margins_of_jobs(settings: Settings, jobs: Sequence[Job], audited: Sequence[Job]) -> set[str]:
    """The groups of which every seed is audited whole, with the diagnostic whose margin it is."""
    if settings.protocol is not None and not PROTOCOLS[settings.protocol].over_seeds:
        return set()
    names = names_of(diagnostic for diagnostic in available() if diagnostic.over_seeds)
    groups = _groups_of(audited)
    for job in audited:
        if job not in jobs or set(names).isdisjoint(job.diagnostics):
            groups -= {job.group}
    return groups


def _groups_of(jobs: Iterable[Job]) -> set[str]:
    return {job.group for job in jobs if job.group is not None}
