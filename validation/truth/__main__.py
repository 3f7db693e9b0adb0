"""The command line."""

from __future__ import annotations

import argparse
import fnmatch
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from .auditing import Outcome, audited
from .catalogue import Case, cases, networks
from .data import MIXES, SIZES, evaluations
from .files import is_made, make
from .tables import UNLABELLED, confusion, disagreements, margins, sizes, verdicts
from .work import run

HERE = Path(__file__).resolve().parent


def main() -> int:
    """Train what is missing, audit everything, print the tables; 1 where audit and truth differ in what must not be."""
    parser = argparse.ArgumentParser(
        prog="python -m validation.truth", description="Networks whose verdict is known."
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=Path("/usr/share/datasets/fashion-mnist"),
        metavar="ROOT",
        help="folder with the training split of Fashion-MNIST (default: where Debian's dataset-fashion-mnist puts it)",
    )
    parser.add_argument(
        "--folder", type=Path, default=HERE / "made", help="where networks and outcomes are kept"
    )
    parser.add_argument(
        "--only", default="*", metavar="GLOB", help="names of cases, such as 'vit*'"
    )
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count() or 1, help="processes (default: one a core)"
    )
    parser.add_argument("--train", action="store_true", help="train what is missing and stop there")
    options = parser.parse_args()
    chosen = [case for case in cases() if fnmatch.fnmatch(case.name, options.only)]
    if not chosen:
        parser.error(
            f"--only {options.only!r} matches none of: {', '.join(case.name for case in cases())}"
        )
    if not (options.data / "train-images-idx3-ubyte.gz").exists():
        parser.error(
            f"no training split in {options.data}: apt-get install dataset-fashion-mnist, or name a folder by --data"
        )
    try:
        train(chosen, options.folder, options.data, options.workers)
        judged = (
            [] if options.train else judge(chosen, options.folder, options.data, options.workers)
        )
    except KeyboardInterrupt:
        print("interrupted; the same command goes on with what is missing", file=sys.stderr)
        return 130
    if options.train:
        return 0
    print("\n".join(report(judged)))
    return int(any(disagreement.serious for disagreement in disagreements(judged)))


def train(chosen: Sequence[Case], folder: Path, root: Path, workers: int) -> None:
    """Make the files that these cases need and that are not there, parents first."""
    known = networks()
    names = {name for case in chosen for name in (case.network, case.control, case.twin)}
    needed = names & known.keys()
    needed |= {known[name].parent for name in needed if known[name].parent}
    for derived in (False, True):
        generation = [
            network
            for name, network in known.items()
            if name in needed and bool(network.parent) == derived
        ]
        jobs = [
            (network.name, make, (network, folder, root))
            for network in generation
            if not is_made(network, folder)
        ]
        for _ in run("train", jobs, workers):
            pass


def judge(
    chosen: Sequence[Case], folder: Path, root: Path, workers: int
) -> list[tuple[Case, Outcome]]:
    """The outcome of each case under every class mix, and on smaller test sets."""
    known = networks()
    jobs = {}
    for case in chosen:
        task = known[case.network].recipe.task if case.network in known else "ten"
        mixes = evaluations(task)
        if case.truth.kind in UNLABELLED:
            mixes = [mix for mix in mixes if mix in ("balanced", "2000")]
        for mix in mixes:
            jobs[f"{case.name}, {mix}"] = (case, mix)
    calls = [(name, audited, (*job, folder, root)) for name, job in jobs.items()]
    outcomes = dict(run("audit", calls, workers))
    return [(case, outcomes[name]) for name, (case, _) in jobs.items()]


def report(judged: Sequence[tuple[Case, Outcome]]) -> list[str]:
    """The tables, and the list of disagreements."""
    files = len({case.network for case, _ in judged})
    number = len({case.name for case, _ in judged})
    lines = [
        f"{files} networks in {number} cases, each under the class mixes {', '.join(MIXES)},"
        f" and on the first {', '.join(f'{size:,}' for size in SIZES)} images",
        "",
    ]
    mixed = [(case, outcome) for case, outcome in judged if outcome.mix in MIXES]
    lines += [*confusion(mixed), "", *verdicts(mixed), "", *sizes(judged), ""]
    lines += [*margins(mixed), ""]
    for disagreement in disagreements(judged):
        word = "WRONG" if disagreement.serious else "noted"
        lines.append(f"{word}: {disagreement.case}, {disagreement.mix}: {disagreement.what}")
        lines.append(f"    {disagreement.numbers}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
