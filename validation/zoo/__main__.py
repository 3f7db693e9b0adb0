"""The command line."""

from __future__ import annotations

import argparse
import fnmatch
import importlib
import sys
import time
import warnings

import torch

from pytest_fadiag.load.vision import import_torchvision

from .checking import Outcome, Result, check
from .member import Member
from .tables import summary, table

FAMILIES = ("handwritten", "vision", "timm_nets", "hugging_face", "bio")


def main() -> int:
    """Check every member and print the tables; 1 where one is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m validation.zoo", description="Networks whose stream is known."
    )
    parser.add_argument(
        "--only",
        default="*",
        metavar="GLOB",
        help="names of members, such as 'timm/*' or '*/swin*'",
    )
    parser.add_argument(
        "--families", default=",".join(FAMILIES), help="modules of members, joined by commas"
    )
    parser.add_argument(
        "--verbose", action="store_true", help="print what was said of every member"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of other packages, on their own deprecated parts
    results, began = [], time.monotonic()
    for member in members(options.families.split(","), options.only):
        start = time.monotonic()
        result = check(member)
        results.append(result)
        _tell(result, time.monotonic() - start, options.verbose)
    print(
        "\n".join(
            ["", *table(results), "", *summary(results), "", f"{time.monotonic() - began:.0f} s"]
        )
    )
    return int(any(result.outcome is Outcome.WRONG for result in results))


def members(families: list[str], only: str) -> list[Member]:
    """The members of some families whose names fit a pattern."""
    if families != ["handwritten"]:
        import_torchvision()  # also where its operators belong to another build of torch
    made = [
        member
        for family in families
        for member in importlib.import_module(f".{family}", __package__).members()
    ]
    return [member for member in made if fnmatch.fnmatch(f"{member.family}/{member.name}", only)]


def _tell(result: Result, seconds: float, verbose: bool) -> None:
    helpful = result.outcome in (Outcome.RIGHT, Outcome.NAMED, Outcome.REFUSED)
    said = f"\n    {result.said}" if result.said and (verbose or not helpful) else ""
    name = f"{result.member.family}/{result.member.name}"
    print(
        f"{name}: {result.outcome.value}, {result.blocks} blocks, {seconds:.1f} s{said}",
        file=sys.stderr,
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
