"""Clone, train and audit the repositories of this folder, and write a table.

python -m examples.field --folder runs/field --data /path/to/fashion-mnist
python -m examples.field drtp jpc --folder runs/field --data /path/to/fashion-mnist --mirror clones
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import pickle
import pkgutil
import re
import subprocess
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path

import torch

from pytest_fadiag import DiagnosticReport
from pytest_fadiag.judge.twin import Twin

from .common import Data, Repository, Row, glue_lines, inside, judged, tables, with_control


def names() -> list[str]:
    """Every file of this folder that describes a repository."""
    here = Path(__file__).parent
    return sorted(
        one.name
        for one in pkgutil.iter_modules([str(here)])
        if one.name not in ("common", "__main__")
    )


def run(name: str, seed: int, options: argparse.Namespace) -> list[Row]:
    """Train and audit every rule of one repository, BP first; what goes wrong is a row too."""
    module = importlib.import_module(f"{__package__}.{name}")
    here: Repository = module.HERE
    data = Data(options.data.resolve(), options.images, options.tested, seed)
    _ = data.torchvision
    twin: Twin | None = None
    rows = []

    def network(rule: str, row: Row, **frozen: bool) -> DiagnosticReport:
        control = any(frozen.values())
        saved = options.folder / f"{name}-{rule}{'-frozen' if control else ''}-s{seed}.pt"
        start = time.process_time()
        if options.again or not saved.exists():
            torch.manual_seed(seed)
            trained = module.train(rule, source, data, **frozen)
            kept = {"trained": trained, "minutes": (time.process_time() - start) / 60}
            try:
                torch.save(kept, part := saved.with_suffix(".part"))
                part.rename(saved)
            except (AttributeError, TypeError, pickle.PicklingError) as error:
                print(f"{saved.stem} cannot be kept, so it is audited now: {error}")
        else:
            kept = torch.load(saved, weights_only=False)
        row.train_minutes += kept["minutes"]
        start = time.process_time()
        read = here.bp or rule if control else rule  # a control has no credit to read
        report: DiagnosticReport = module.audit(read, kept["trained"], data)
        row.audit_minutes += (time.process_time() - start) / 60
        return report

    for rule in here.rules:
        facts = here.name, here.commit, rule, seed, here.network, here.data, here.changes
        row = Row(name, *facts, bp=rule == here.bp, glue=glue_lines(module.audit))
        rows.append(row)
        try:
            source = here.clone(options.folder, options.mirror)
            with inside(source):
                if hasattr(module, "setup"):
                    module.setup(source)
                if "frozen" in inspect.signature(module.train).parameters:
                    report = network(rule, row, frozen=False)
                    report = with_control(report, network(rule, row, frozen=True))
                else:
                    report = network(rule, row)
            twin = Twin.of([report]) if row.bp else twin
            report = judged(report, twin)
            row.add(report)
            report.save(options.folder / f"{name}-{rule}-s{seed}.json")
            text = options.folder / f"{name}-{rule}-s{seed}.txt"
            text.write_text(str(report), encoding="utf-8")
        except Exception as error:
            traceback.print_exc()
            row.why = f"{type(error).__name__}: {error}"
    return rows


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.field",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"default: all of {', '.join(names())}"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        required=True,
        help="clones, trained networks, reports and the table go here",
    )
    parser.add_argument(
        "--data", type=Path, required=True, help="the folder of Fashion-MNIST's four .gz files"
    )
    parser.add_argument(
        "--mirror",
        type=Path,
        help="a folder of git directories OWNER+NAME; without it GitHub is asked",
    )
    parser.add_argument(
        "--images", type=int, default=10_000, help="training images (default: 10,000)"
    )
    parser.add_argument("--tested", type=int, default=10_000, help="test images (default: 10,000)")
    parser.add_argument("--seeds", type=int, default=9, help="at most so many of each network")
    parser.add_argument("--page", type=Path, help="write the tables into this Markdown page too")
    parser.add_argument("--again", action="store_true", help="train again what the folder holds")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.folder = options.folder.resolve()
    options.mirror = options.mirror and options.mirror.resolve()
    options.folder.mkdir(parents=True, exist_ok=True)
    chosen = [options.only] if options.only else options.names or names()
    if unknown := set(chosen) - set(names()):
        parser.error(
            f"no such repository: {', '.join(sorted(unknown))}; expected some of {', '.join(names())}"
        )
    rows_file = options.folder / "rows"
    rows_file.mkdir(exist_ok=True)
    for name in chosen:
        if len(chosen) == 1:
            here: Repository = importlib.import_module(f"{__package__}.{name}").HERE
            for seed in range(1, min(here.seeds, options.seeds) + 1):
                own = [asdict(row) for row in run(name, seed, options)]
                text = json.dumps(own, indent=1, ensure_ascii=False)
                (rows_file / f"{name}-s{seed}.json").write_text(text, encoding="utf-8")
        else:  # one process each: their modules are all called train, utils, models
            command = [sys.executable, "-m", "examples.field", *sys.argv[1:]]
            subprocess.run([*command, "--only", name], check=False)
    rows = [
        Row(**row)
        for file in sorted(rows_file.glob("*.json"))
        for row in json.loads(file.read_text(encoding="utf-8"))
    ]
    text = json.dumps([asdict(row) for row in rows], indent=1, ensure_ascii=False)
    (options.folder / "field.json").write_text(text, encoding="utf-8")
    made = tables(rows)
    print(made["results"])
    if options.page and not options.only:
        text = options.page.read_text(encoding="utf-8")
        for what, table in made.items():
            mark = f"<!-- {what} -->\n"
            text = re.sub(f"{mark}.*?{mark}", lambda _: f"{mark}{table}{mark}", text, flags=re.S)  # noqa: B023
        options.page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
