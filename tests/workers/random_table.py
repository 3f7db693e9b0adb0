"""What is lost when workers are killed, and runs told to stop, at random moments: `python tests/workers/random_table.py`.

Every run notes its result in a file, so that the script can be stopped and goes on where it was.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from workers.crash_table import BLAMED, KEYS
from workers.small_repo import forget, hear_interrupts, make_repo

HANG = 600.0
"""Seconds after which a run that takes half a minute on an idle machine is called hanging."""
KINDS = {"worker killed": 200, "SIGINT": 40, "SIGTERM": 40}
"""How often each thing must have happened; workers are killed one to four in a run, replacements among them."""
REASONS = ("its worker died", "not tried again")
PROBLEMS = (
    "hangs",
    "internal error",
    "no audit",
    "torn file",
    "rows lost",
    "wrong test blamed",
    "green",
    "orphans",
    "left over",
)


def one_run(kind: str, number: int, root: Path) -> tuple[list[str], list[float]]:
    """One run that something happens to: what is wrong afterwards, and the moments at which it happened."""
    rng = random.Random(f"{kind} {number}")
    if rng.random() < 0.5:
        forget(root)
    for old in root.glob("out.*"):
        old.unlink()
    temporary = root / "tmp"
    shutil.rmtree(temporary, ignore_errors=True)  # of a run that hung and was killed
    temporary.mkdir()
    reports = [f"--fa-report={report}:out.{report}" for report in ("json", "html", "markdown")]
    command = [sys.executable, "-m", "pytest", "--color=no", "-n", "2", *reports, *(["--fa-no-cache"] * (rng.random() < 0.3))]
    environment = {**os.environ, "TMPDIR": str(temporary), "COLUMNS": "120", "PYTHONFAULTHANDLER": "1"}
    with (root / "out.txt").open("w") as output:
        process = subprocess.Popen(
            command,
            cwd=root,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=hear_interrupts,  # noqa: PLW1509
        )
    began = time.monotonic()
    times = rng.randint(1, 4) if kind == "worker killed" else 1
    moments = sorted(rng.uniform(0.2, 8.0 if rng.random() < 0.6 else 3.0) for _ in range(times))
    workers: dict[int, psutil.Process] = {}
    happened: list[float] = []
    while process.poll() is None and time.monotonic() - began < HANG:
        with contextlib.suppress(psutil.NoSuchProcess):
            workers |= {child.pid: child for child in psutil.Process(process.pid).children(recursive=True)}
        if moments and time.monotonic() - began >= moments[0] and _strike(kind, process, list(workers.values()), rng):
            happened.append(round(moments.pop(0), 1))
        time.sleep(0.02)
    hangs = process.poll() is None
    if hangs:
        process.send_signal(signal.SIGABRT)  # its threads are at the end of out.txt then
        process.wait()
        shutil.copy(root / "out.txt", Path(tempfile.gettempdir(), f"hang-{number}.txt"))
    psutil.wait_procs(list(workers.values()), timeout=5)
    orphans = [worker for worker in workers.values() if worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE]
    for orphan in orphans:
        orphan.kill()
    if not happened:
        return [], []
    found = _problems(kind, len(happened), root, process.returncode)
    found += ["hangs"] * hangs + ["orphans"] * bool(orphans) + ["left over"] * bool(list(temporary.glob("fadiag-*")))
    return sorted(set(found)), happened


def _strike(kind: str, process: subprocess.Popen[bytes], workers: list[psutil.Process], rng: random.Random) -> bool:
    if kind != "worker killed":
        process.send_signal(signal.Signals[kind])
        return True
    alive = [worker for worker in workers if worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE]
    if not alive:
        return False  # none has started yet, or all have ended: a moment later then
    try:
        rng.choice(alive).kill()
    except psutil.NoSuchProcess:
        return False
    return True


def _problems(kind: str, times: int, root: Path, code: int) -> list[str]:
    text = (root / "out.txt").read_text(errors="replace")
    if "INTERNALERROR" in text or code == 3:
        return ["internal error"]
    written = root / "out.json"
    if not written.exists():
        # Told to stop before the audit began there is nothing to write; a killed worker costs no file.
        return ["no audit"] if kind == "worker killed" or " workers [" in text else []
    try:
        audit = json.loads(written.read_text("utf-8"))
    except ValueError:
        return ["torn file"]
    found = []
    if not (root / "out.html").read_text().rstrip().endswith("</html>"):
        found.append("torn file")
    rows = {row["checkpoint"]: row for row in audit["summary"]}
    complete = len(rows) == 6 and all(set(KEYS.values()) <= set(row["outcomes"]) for row in rows.values())
    if not complete and (kind == "worker killed" or rows):
        found.append("rows lost")
    errors = {f"{name}::{key}" for name, row in rows.items() for key, outcome in row["outcomes"].items() if outcome == "error"}
    blamed = [f"{test.partition('::')[0]}::{KEYS.get(test.rpartition('::')[2])}" for test in BLAMED.findall(text)]
    if kind == "worker killed":
        wrong = [test for test in blamed if test.partition("::")[0] in rows and test not in errors]
        unexplained = [row for row in rows.values() if "error" in row["outcomes"].values() and not row["reason"]]
        odd = [row for row in rows.values() if row["reason"] and not any(reason in row["reason"] for reason in REASONS)]
        missing = [row for row in rows.values() if {"not run", "failed"} & set(row["outcomes"].values())]
        found += ["wrong test blamed"] * bool(wrong or unexplained or odd or len(blamed) > times) + ["rows lost"] * bool(
            missing
        )
        found += ["green"] * bool(errors and code == 0)
    elif code == 0 and any("not run" in row["outcomes"].values() for row in rows.values()):
        found.append("green")
    return found


def main() -> None:
    """Do what is left to do, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="of the 200 kills and 2 x 40 signals")
    parser.add_argument("--minutes", type=float, default=90)
    parser.add_argument("--state", type=Path, default=Path(".random_table.jsonl"))
    options = parser.parse_args()
    lines = options.state.read_text().splitlines() if options.state.exists() else []
    done = {(kind, number): (found, moments) for kind, number, found, moments in map(json.loads, lines)}
    deadline = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory() as folder, options.state.open("a") as state:
        root = make_repo(Path(folder))
        for kind, total in KINDS.items():
            number = 0
            while sum(len(moments) for (k, _), (_, moments) in done.items() if k == kind) < options.share * total:
                if time.monotonic() > deadline:
                    break
                if (kind, number) not in done:
                    done[kind, number] = one_run(kind, number, root)
                    state.write(json.dumps([kind, number, *done[kind, number]]) + "\n")
                    state.flush()
                    if done[kind, number][0]:
                        print(kind, number, *done[kind, number], flush=True)
                number += 1
    print(f"{'':16}{'times':>6}{'runs':>6}" + "".join(f"{name:>{len(name) + 2}}" for name in PROBLEMS))
    failed = False
    for kind in KINDS:
        seen = [(found, moments) for (k, _), (found, moments) in done.items() if k == kind and moments]
        counts = Counter(problem for found, _ in seen for problem in found)
        failed |= bool(counts)
        print(
            f"{kind:16}{sum(len(moments) for _, moments in seen):6}{len(seen):6}"
            + "".join(f"{counts[name]:>{len(name) + 2}}" for name in PROBLEMS)
        )
    sys.exit(failed)


if __name__ == "__main__":
    main()
