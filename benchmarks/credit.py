"""What (f) costs, finds and does not find, on the shipped checkpoints.

cost      `pytest` in fixtures/ without and with --fa-credit and (f), uncached, one process, one
          thread, in turns; the ratio of processor seconds is taken round by round
table     Γ, its z against the null, nudge and size at every site of every checkpoint
steps     the contrast of one step of the rule at every part of every checkpoint
random    fresh random feedback: how often each site is null, and how often (f) fires
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from examples.methods import credit, step
from pytest_fadiag.judge.records import Credit, SiteState
from pytest_fadiag.load.checkpoint import load_checkpoint
from pytest_fadiag.load.data import load_data
from pytest_fadiag.load.network import ResidualMLP, build_network
from pytest_fadiag.measure.credit import CreditSource
from pytest_fadiag.measure.run import NetworkSource, measure
from pytest_fadiag.measure.step import StepSource

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
CREDIT = "--fa-credit=examples.methods:credit"
AUDIT = [
    "-q",
    "--fa-only",
    "--fa-no-cache",
    "-p",
    "no:xdist",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:randomly",
]


def processor_seconds(*options: str) -> float:
    """What one audit of the fixtures takes; findings that no record expects are no failure of the benchmark."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTEST_ADDOPTS": ""}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "pytest", *AUDIT, *options]
    done = subprocess.run(
        command, cwd=FIXTURES, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, 1):
        raise SystemExit(
            f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def cost(rounds: int) -> None:
    """The audit with (f) and without, by the letters of the fixtures' ini file and the first four."""
    for keys in ("abcde", "abcd"):
        ratios = []
        for number in range(1, rounds + 1):
            without = processor_seconds(f"--fa-diagnostics={keys}")
            with_credit = processor_seconds(f"--fa-diagnostics={keys}f", CREDIT)
            ratios.append(with_credit / without)
            seconds = f"{without:.1f} s, with (f) {with_credit:.1f} s"
            print(f"{keys}, round {number}: {seconds}: {ratios[-1]:.2f} times", flush=True)
        print(f"{keys} with (f): {statistics.median(ratios):.2f} times the audit without")


def table(checkpoints: Sequence[str]) -> None:
    """Every number of every site, measured in this process."""
    names = checkpoints or shipped()
    print("| checkpoint | site | state | Γ | z | nudge | ‖a‖/‖g‖ |")
    print("| --- | --- | --- | ---: | ---: | ---: | ---: |")
    for name in names:
        seen = measured(name)
        states = [state.value for state in seen.state]
        columns = (seen.sites, states, seen.gamma, seen.z, seen.nudge, seen.magnitude)
        for site, state, gamma, z, nudge, size in zip(*columns, strict=True):
            numbers = f"{gamma:+.3f} | {z:+.1f} | {nudge:+.3f} | {size:.3g}"
            print(f"| {name} | {site} | {state} | {numbers} |", flush=True)


def steps(checkpoints: Sequence[str]) -> None:
    """The contrast of each part, with half the width of its interval, and its state."""
    print("| checkpoint | embedding | blocks | head | states of the blocks |")
    print("| --- | ---: | ---: | ---: | --- |")
    for name in checkpoints:
        read, model, batches = loaded(name)
        source = StepSource(step, "examples.methods:step", read.content)
        seen = measure(NetworkSource(model, batches, step=source), ["step"]).step
        assert seen is not None and not seen.problem
        cells = []
        for contrast, high in zip(seen.contrast, seen.high, strict=True):
            cells.append(f"{contrast:+.2f} ± {high - contrast:.2f}")
        states = ", ".join(state.value for state in seen.state[1:-1])
        blocks = ", ".join(cells[1:-1])
        print(f"| {name} | {cells[0]} | {blocks} | {cells[-1]} | {states} |", flush=True)


def shipped() -> list[str]:
    """The names of the checkpoints and their controls."""
    return sorted(path.stem for path in (FIXTURES / "checkpoints").glob("*_s*.pt"))


def loaded(name: str) -> tuple[Any, nn.Module, Any]:
    """A shipped checkpoint, its network, and the test data as it takes it."""
    torch.set_num_threads(1)
    read = load_checkpoint(FIXTURES / "checkpoints" / f"{name}.pt")
    data = load_data(f"fashion-mnist:{FIXTURES / 'fashion-mnist'}")
    batches = replace(data.for_checkpoint(read.config, None), size=512, flat=True)
    return read, build_network(read, None), batches


def measured(name: str, feedback_seed: int | None = None) -> Credit:
    """The credit of a shipped checkpoint by its own rule, or by fresh random feedback."""
    read, model, batches = loaded(name)
    source = CreditSource(credit, "examples.methods:credit", read.content)
    if feedback_seed is not None:
        assert isinstance(model, ResidualMLP)
        generator = torch.Generator().manual_seed(feedback_seed)
        shape = model.out_head.weight.T.shape
        Bs = [torch.randn(shape, generator=generator) for _ in model.blocks]
        source = CreditSource(checkpoint={"Bs": Bs})
    seen = measure(NetworkSource(model, batches, credit=source), ["credit"]).credit
    assert seen is not None and not seen.problem
    return seen


def random(draws: int, checkpoint: str) -> None:
    """Credit that has nothing to do with the network."""
    null: Counter[str] = Counter()
    fired = 0
    for draw in range(draws):
        seen = measured(checkpoint, draw)
        states = [state for _, state in seen.blocks]
        null.update(site for site, state in seen.blocks if state is SiteState.NULL)
        fired += SiteState.AGAINST in states or 2 * seen.aligned <= len(states)
    for site, times in sorted(null.items()):
        print(f"{checkpoint} {site}: null in {times} of {draws}")
    print(f"{checkpoint}: (f) fires in {fired} of {draws}")


def main() -> None:
    """The parts that are asked for, else all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "parts", nargs="*", default=["cost", "table", "random"], metavar="cost|table|steps|random"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument(
        "--checkpoint", nargs="*", help="default of table and steps: all, of random: bp_s42 dfa_s42"
    )
    given = parser.parse_args()
    for part in given.parts:
        if part == "cost":
            cost(given.rounds)
        elif part == "table":
            table(given.checkpoint or ())
        elif part == "steps":
            steps(given.checkpoint or [name for name in shipped() if "frozen" not in name])
        elif part == "random":
            for name in given.checkpoint or ("bp_s42", "dfa_s42"):
                random(given.draws, name)
        else:
            parser.error(f"no part {part!r}")


if __name__ == "__main__":
    main()
