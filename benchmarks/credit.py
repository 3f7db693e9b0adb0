"""What (f) costs, finds and does not find, on the shipped checkpoints.

cost      `pytest` in fixtures/ without and with --fa-credit and (f), nothing measured before, one process, one thread, turn by
          turn; the ratio of processor seconds is taken round by round, so that a loaded machine slows both alike
table     Γ, its z against the null, nudge and size at every site of every checkpoint
random    feedback drawn anew, as often as asked: how often each site by itself is null, and how often (f) fires
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

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
    """The whole audit with (f) beside the audit without, by the letters of the fixtures' ini file and by the published four."""
    for keys in ("abcde", "abcd"):
        ratios = []
        for number in range(1, rounds + 1):
            without = processor_seconds(f"--fa-diagnostics={keys}")
            with_credit = processor_seconds(f"--fa-diagnostics={keys}f", CREDIT)
            ratios.append(with_credit / without)
            print(
                f"{keys}, round {number}: {without:.1f} s, with (f) {with_credit:.1f} s: {ratios[-1]:.2f} times",
                flush=True,
            )
        print(f"{keys} with (f): {statistics.median(ratios):.2f} times the audit without")


def table(checkpoints: Sequence[str]) -> None:
    """Every number of every site."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "audit.json"
        named = [f"--fa-checkpoint=checkpoints/{name}.pt" for name in checkpoints]
        processor_seconds(
            CREDIT, "--fa-diagnostics=f", "-o", "fa_expect=", f"--fa-report=json:{path}", *named
        )
        reports = json.loads(path.read_text("utf-8"))["reports"]
    print(
        "| checkpoint | site | state | Γ | z | nudge | ‖a‖/‖g‖ |\n| --- | --- | --- | ---: | ---: | ---: | ---: |"
    )
    for name, report in sorted(reports.items()):
        seen = report["credit"]
        columns = (seen[key] for key in ("sites", "state", "gamma", "z", "nudge", "magnitude"))
        for site, state, gamma, z, nudge, size in zip(*columns, strict=True):
            print(
                f"| {Path(name).stem} | {site} | {state} | {gamma:+.3f} | {z:+.1f} | {nudge:+.3f} | {size:.3g} |"
            )


def random(draws: int, checkpoint: str) -> None:
    """Credit that has nothing to do with the network."""
    import torch

    from pytest_fadiag import ResidualMLP
    from pytest_fadiag.judge.credit import Credit, SiteState
    from pytest_fadiag.load.checkpoints import load_checkpoint
    from pytest_fadiag.load.data import EvalBatches
    from pytest_fadiag.load.networks import build_network
    from pytest_fadiag.measure.credit import CreditSource
    from pytest_fadiag.measure.observe import observe
    from pytest_fadiag.workshop import load_data

    torch.set_num_threads(1)
    data = load_data(f"fashion-mnist:{FIXTURES / 'fashion-mnist'}")
    read = load_checkpoint(FIXTURES / "checkpoints" / f"{checkpoint}.pt")
    model = build_network(read)
    assert isinstance(model, ResidualMLP)
    batches = EvalBatches(data.for_checkpoint(read.config, None), 128, flatten=True)
    null: Counter[str] = Counter()
    fired = 0
    for draw in range(draws):
        generator = torch.Generator().manual_seed(draw)
        feedback = [
            torch.randn(model.out_head.weight.T.shape, generator=generator) for _ in model.blocks
        ]
        source = CreditSource(checkpoint={"Bs": feedback})
        seen = Credit(
            **observe(model, batches, ["reference", "credit"], credit=source).results["credit"]
        )
        null.update(site for site, state in seen.blocks if state is SiteState.NULL)
        fired += bool(seen.against) or 2 * seen.aligned <= len(seen.blocks)
    for site, times in sorted(null.items()):
        print(f"{checkpoint} {site}: null in {times} of {draws}")
    print(f"{checkpoint}: (f) fires in {fired} of {draws}")


def main() -> None:
    """The parts that are asked for, else all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "parts", nargs="*", default=["cost", "table", "random"], metavar="cost|table|random"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument(
        "--checkpoint", nargs="*", help="default of table: all, of random: bp_s42 dfa_s42"
    )
    given = parser.parse_args()
    for part in given.parts:
        if part == "cost":
            cost(given.rounds)
        elif part == "table":
            table(given.checkpoint or ())
        elif part == "random":
            for name in given.checkpoint or ("bp_s42", "dfa_s42"):
                random(given.draws, name)
        else:
            parser.error(f"no part {part!r}")


if __name__ == "__main__":
    main()
