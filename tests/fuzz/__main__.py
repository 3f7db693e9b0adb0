"""The long run: ``python -m fuzz`` in tests/; it goes on where it was stopped, and ends with a table of counts."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TextIO

CHUNK = 100
"""How many files one process tries before another takes its place."""
PATIENCE = 120.0
"""Seconds without a word after which a process hangs."""


def work(kind: str, first: int, last: int, folder: Path) -> None:
    """Try some mutants of a kind, and say of each what became of it."""
    from fuzz.tries import attempt

    for number in range(first, last):
        print(json.dumps([kind, number, "begun", ""]), flush=True)
        print(json.dumps([kind, number, *attempt(kind, number, folder)]), flush=True)


def main() -> None:
    """Hand out what has not been tried, to a few processes at a time."""
    from fuzz.corpus import CHECKPOINTS, OTHERS
    from fuzz.tries import BAD

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoints", type=int, default=5001)
    parser.add_argument("--others", type=int, default=2007)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--state", type=Path, default=Path(".fuzz.jsonl"), help="what was tried so far")
    options = parser.parse_args()
    done = _read(options.state)
    wanted = [
        (kind, n)
        for kinds, total in ((CHECKPOINTS, options.checkpoints), (OTHERS, options.others))
        for kind in kinds
        for n in range(total // len(kinds))
    ]
    todo = [(kind, n) for kind, n in wanted if (kind, n) not in done]
    chunks = _chunks(todo)
    print(f"{len(done)} tried before, {len(todo)} to try")
    deadline = time.monotonic() + 60 * options.minutes
    running: list[_Process] = []
    with options.state.open("a") as state:
        while (chunks and time.monotonic() < deadline) or running:
            while chunks and len(running) < options.jobs and time.monotonic() < deadline:
                running.append(_Process(*chunks.pop(0)))
            time.sleep(0.05)
            for process in list(running):
                for result in process.results():
                    done[result[0], result[1]] = (result[2], result[3])
                    state.write(json.dumps(result) + "\n")
                    state.flush()
                rest = process.rest()
                if rest is not None:
                    running.remove(process)
                    chunks[:0] = rest
    sys.exit(_table({key: value for key, value in done.items() if key in set(wanted)}, BAD))


class _Process:
    """One process that tries a chunk; if it dies or hangs, the file it was at is to blame."""

    def __init__(self, kind: str, first: int, last: int) -> None:
        self.kind, self.next, self.last = kind, first, last
        self.folder = tempfile.TemporaryDirectory(prefix="fuzz-")
        self.output: TextIO = open(Path(self.folder.name, "out.jsonl"), "w+")  # noqa: SIM115 (closed with the folder)
        command = [sys.executable, "-m", "fuzz", "work", kind, str(first), str(last), self.folder.name]
        self.process = subprocess.Popen(command, stdout=self.output, stderr=subprocess.DEVNULL, cwd=Path(__file__).parents[1])
        self.read, self.heard = 0, time.monotonic()

    def results(self) -> list[list[object]]:
        """What was tried since this was last asked."""
        found = []
        lines = Path(self.output.name).read_text().split("\n")[:-1]
        for line in lines[self.read :]:
            self.heard = time.monotonic()
            value = json.loads(line)
            if value[2] != "begun":
                found.append(value)
                self.next = value[1] + 1
        self.read = len(lines)
        ended, hangs = self.process.poll(), time.monotonic() - self.heard > PATIENCE
        if (ended is not None or hangs) and self.next < self.last and not found:
            if ended is None:
                self.process.kill()
                self.process.wait()
            found.append([self.kind, self.next, "slow" if ended is None else "died", f"exit code {ended}"])
            self.next += 1
        return found

    def rest(self) -> list[tuple[str, int, int]] | None:
        """What is left to try by another process, once this one has ended."""
        if self.process.poll() is None:
            return None
        if self.results_left():
            return None
        self.output.close()
        self.folder.cleanup()
        return [(self.kind, self.next, self.last)] if self.next < self.last else []

    def results_left(self) -> bool:
        """Whether the process wrote something that was not read yet."""
        return len(Path(self.output.name).read_text().split("\n")) - 1 > self.read


def _chunks(todo: list[tuple[str, int]]) -> list[tuple[str, int, int]]:
    chunks: list[tuple[str, int, int]] = []
    for kind, number in todo:
        if chunks and chunks[-1][0] == kind and chunks[-1][2] == number and number - chunks[-1][1] < CHUNK:
            chunks[-1] = (kind, chunks[-1][1], number + 1)
        else:
            chunks.append((kind, number, number + 1))
    return chunks


def _read(path: Path) -> dict[tuple[str, int], tuple[str, str]]:
    lines = path.read_text().splitlines() if path.exists() else []
    return {(kind, number): (outcome, detail) for kind, number, outcome, detail in map(json.loads, lines)}


def _table(done: dict[tuple[str, int], tuple[str, str]], bad: tuple[str, ...]) -> bool:
    counts: dict[str, Counter[str]] = {}
    for (kind, _), (outcome, _) in done.items():
        counts.setdefault(kind, Counter())[outcome] += 1
    columns = ["judged", "refused", *bad, "died"]
    print(f"{'kind':12}{'files':>7}" + "".join(f"{name:>{max(9, len(name) + 2)}}" for name in columns))
    total: Counter[str] = Counter()
    for kind, seen in counts.items():
        total += seen
        print(_line(kind, seen, columns))
    print(_line("all", total, columns))
    unnamed = [detail for outcome, detail in done.values() if detail.startswith("names no file")]
    print(f"errors that name no file: {len(unnamed)}")
    for text in sorted({text[:160] for text in unnamed})[:20]:
        print("  ", text)
    wrong = {key: value for key, value in done.items() if value[0] in (*bad, "died")}
    for (kind, number), (outcome, detail) in list(wrong.items())[:20]:
        print(f"--- {kind} {number}: {outcome}\n{detail}")
    return bool(wrong)


def _line(name: str, seen: Counter[str], columns: list[str]) -> str:
    return f"{name:12}{sum(seen.values()):7}" + "".join(f"{seen[column]:>{max(9, len(column) + 2)}}" for column in columns)


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        work(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5]))
    else:
        main()
