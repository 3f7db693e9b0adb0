"""What a worker costs that dies, at each moment at which it can: `python tests/workers/crash_table.py --runs 10`."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

KEYS = {"residual-growth": "a", "gradient-floor": "b", "direction-drift": "c", "frozen-margin": "d"}
BLAMED = re.compile(r"^worker 'gw\d+' crashed while running '([^']+)'$", re.MULTILINE)
HANG = 180
"""Seconds after which a run that takes a few is called hanging."""


@dataclass(frozen=True)
class Position:
    """Moments at which workers die, each ``moment who``, the tests that die with them, and what else the run is told."""

    name: str
    kills: tuple[str, ...]
    blamed: tuple[str, ...]
    options: tuple[str, ...] = ("-n", "2")
    cold: bool = False
    restarts: bool = True
    lost: tuple[str, ...] = ()
    """Networks that are not tried again, since a worker died while it measured them: their other tests say so."""


def _killing(name: str, moment: str, *who: str, **options: object) -> Position:
    """A position at which exactly the tests are blamed that the worker dies in."""
    kills = tuple(f"{moment} {test}" for test in who)
    return Position(name, kills, tuple(_full(test) for test in who), **options)  # type: ignore[arg-type]


def _full(test: str) -> str:
    return test if test == "net::seed-margin" else f"runs/{test}"


ONCE = ("-n", "2", "--max-worker-restart=0")
POSITIONS = [
    _killing("in set-up", "setup", "net_s0.pt::gradient-floor"),
    _killing("in the test", "call", "net_s3.pt::residual-growth"),
    _killing("in measurement, cold cache", "measure", "net_s2.pt::residual-growth", cold=True, lost=("net_s2.pt",)),
    _killing("after a test's reports", "finish", "net_s1.pt::gradient-floor"),
    # The test that was waiting is the one that the controller misses.
    Position("between two tests", ("between net_s2.pt::gradient-floor",), ("runs/net_s2.pt::direction-drift",)),
    _killing("os._exit(0) in the test", "exit", "net_s3.pt::gradient-floor"),
    _killing("twice in a row", "call", "net_s4.pt::gradient-floor", "net_s4.pt::direction-drift"),
    _killing("four times in a row", "call", *(f"net_s2.pt::{name}" for name in KEYS)),
    _killing("both workers", "call", "net_s0.pt::residual-growth", "net_s1.pt::residual-growth"),
    _killing(
        "both workers in measurement",
        "measure",
        "net_s0.pt::residual-growth",
        "net_s1.pt::residual-growth",
        cold=True,
        lost=("net_s0.pt", "net_s1.pt"),
    ),
    _killing("the only worker", "call", "net_s2.pt::gradient-floor", options=("-n", "1")),
    _killing("in the seed-margin test", "judge", "net::seed-margin"),
    _killing("the last test of all", "finish", "net::seed-margin"),
    Position("in collection", ("collection gw0",), ()),
    _killing("no restarts", "call", "net_s0.pt::residual-growth", options=ONCE, restarts=False),
    _killing(
        "no restarts, both workers",
        "call",
        "net_s0.pt::residual-growth",
        "net_s1.pt::residual-growth",
        options=ONCE,
        restarts=False,
    ),
    _killing(
        "no restarts, the only worker",
        "setup",
        "net_s0.pt::frozen-margin",
        options=("-n", "1", ONCE[-1]),
        restarts=False,
    ),
]


def together(*names: str) -> Position:
    """Positions with the same options as one, in which all of their workers die in one run."""
    chosen = [next(position for position in POSITIONS if position.name == name) for name in names]
    kills = tuple(kill for position in chosen for kill in position.kills)
    return replace(chosen[0], name=", ".join(names), kills=kills, blamed=tuple(t for p in chosen for t in p.blamed))


SUITE = [
    together(
        *("in set-up", "after a test's reports", "between two tests", "os._exit(0) in the test", "twice in a row"),
        "in the seed-margin test",
    ),
    replace(together("in measurement, cold cache"), options=("-n", "1")),
    together("in collection", "both workers", "the last test of all"),
    together("the only worker"),
    together("no restarts, both workers"),
]
"""What the test suite runs; the positions that are left out differ from one of these in nothing that can be told beforehand."""
NO_RESTARTS = together("no restarts")


def problems(position: Position, root: Path) -> tuple[list[str], str]:
    """Let workers die there once: what of the audit was lost beyond the tests that they died in, and what was shown."""
    from workers.small_repo import forget, run

    if position.cold:
        forget(root)
    (root / "audit.json").unlink(missing_ok=True)
    try:
        shown = run(
            root, *position.options, "--fa-report=json:audit.json", env={"KILLS": ",".join(position.kills)}, timeout=HANG
        )
    except subprocess.TimeoutExpired:
        return ["hangs"], ""
    return _found(position, root / "audit.json", shown), shown.stdout


def _found(position: Position, written: Path, completed: subprocess.CompletedProcess[str]) -> list[str]:
    if "INTERNALERROR" in completed.stdout:
        return ["internal error"]
    if not written.exists():
        return ["no audit written"]
    outcomes = _outcomes(written)
    return [
        problem
        for problem, found in {
            "exit code 0": position.blamed and completed.returncode == 0,
            "failed without a blamed test": not position.blamed and completed.returncode != 0,
            "rows missing": len(outcomes) != 4 * 6 + 1,
            "another test blamed": sorted(BLAMED.findall(completed.stdout)) != sorted(position.blamed),
            "blamed test not an error": any(outcomes.get(test) != "error" for test in position.blamed),
            "others lost": _others(position, outcomes),
        }.items()
        if found
    ]


def _outcomes(written: Path) -> dict[str, str]:
    audit = json.loads(written.read_text("utf-8"))
    outcomes = {f"{margin['name']}::seed-margin": margin["outcome"] for margin in audit["seed_margins"]}
    for row in audit["summary"]:
        outcomes.update({f"{row['checkpoint']}::{name}": row["outcomes"].get(key, "none") for name, key in KEYS.items()})
    return outcomes


def _others(position: Position, outcomes: dict[str, str]) -> bool:
    """Whether a test that killed nobody did not pass; without restarts some never ran, and must say so."""
    others = {test: outcome for test, outcome in outcomes.items() if test not in position.blamed}
    refused = {test for test in others if position.lost and (test == "net::seed-margin" or _network(test) in position.lost)}
    if any(others[test] != "error" for test in refused):
        return True
    rest = {outcome for test, outcome in others.items() if test not in refused}
    return rest != {"passed"} if position.restarts else "not run" not in rest or not rest <= {"passed", "not run"}


def _network(test: str) -> str:
    return test.partition("::")[0].removeprefix("runs/")


def main() -> None:
    """Print one row a position."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--only", default="", help="positions whose name contains this")
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from workers.small_repo import make_repo

    print(f"{'a worker dies':32}{'runs':>5}{'good':>6}{'s a run':>9}  problems")
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        root = make_repo(Path(folder))
        for position in POSITIONS:
            if options.only not in position.name:
                continue
            began = time.perf_counter()
            seen = [problems(position, root)[0] for _ in range(options.runs)]
            each = (time.perf_counter() - began) / options.runs
            counts = Counter(problem for found in seen for problem in found)
            said = ", ".join(f"{problem} x {count}" for problem, count in counts.items()) or "none"
            failed |= bool(counts)
            print(f"{position.name:32}{options.runs:5}{seen.count([]):6}{each:9.1f}  {said}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
