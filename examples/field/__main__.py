"""Clone, train and audit the repositories of this folder, and write a table.

python -m examples.field --folder runs/field --data /path/to/fashion-mnist
python -m examples.field drtp jpc --folder runs/field --data /path/to/fashion-mnist --mirror clones
"""

from __future__ import annotations

import argparse
import importlib
import json
import pickle
import pkgutil
import subprocess
import sys
import time
import traceback
from pathlib import Path

import torch

from .common import Data, Repository, Row, glue_lines, inside, markdown


def names() -> list[str]:
    """Every file of this folder that describes a repository."""
    here = Path(__file__).parent
    return sorted(
        one.name
        for one in pkgutil.iter_modules([str(here)])
        if one.name not in ("common", "__main__")
    )


def run(name: str, options: argparse.Namespace) -> list[Row]:
    """Train and audit every rule of one repository; what goes wrong is a row too."""
    module = importlib.import_module(f"{__package__}.{name}")
    here: Repository = module.HERE
    if here.refused:
        return [Row.of(name, here, rule, why=here.refused) for rule in here.rules]
    rows = []
    for rule in here.rules:
        row = Row.of(name, here, rule, glue=glue_lines(module.audit))
        rows.append(row)
        try:
            source = here.clone(options.folder, options.mirror)
            data = Data(options.data.resolve(), options.images, options.tested)
            _ = data.torchvision
            saved = options.folder / f"{name}-{rule}.pt"
            with inside(source):
                if hasattr(module, "setup"):
                    module.setup(source)
                if options.again or not saved.exists():
                    torch.manual_seed(options.seed)
                    start = time.process_time()
                    trained = module.train(rule, source, data)
                    minutes = (time.process_time() - start) / 60
                    try:
                        torch.save(
                            {"trained": trained, "minutes": minutes},
                            part := saved.with_suffix(".part"),
                        )
                        part.rename(saved)
                    except (AttributeError, TypeError, pickle.PicklingError) as error:
                        print(f"{name} {rule} cannot be kept, so it is audited now: {error}")
                else:
                    kept = torch.load(saved, weights_only=False)
                    trained, minutes = kept["trained"], kept["minutes"]
                row.train_minutes = minutes
                start = time.process_time()
                report = module.audit(rule, trained, data)
                row.audit_minutes = (time.process_time() - start) / 60
            row.add(report)
            report.save(options.folder / f"{name}-{rule}.json")
            (options.folder / f"{name}-{rule}.report.txt").write_text(str(report), encoding="utf-8")
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
    parser.add_argument("--seed", type=int, default=1)
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
            rows = [row.to_dict() for row in run(name, options)]
            (rows_file / f"{name}.json").write_text(
                json.dumps(rows, indent=1, ensure_ascii=False), encoding="utf-8"
            )
        else:  # one process each: their modules are all called train, utils, models
            command = [sys.executable, "-m", "examples.field", *sys.argv[1:]]
            subprocess.run([*command, "--only", name], check=False)
    rows = [
        Row(**row)
        for file in sorted(rows_file.glob("*.json"))
        for row in json.loads(file.read_text(encoding="utf-8"))
    ]
    (options.folder / "field.json").write_text(
        json.dumps([row.to_dict() for row in rows], indent=1, ensure_ascii=False), encoding="utf-8"
    )
    (options.folder / "field.md").write_text(markdown(rows), encoding="utf-8")
    print(markdown(rows))


if __name__ == "__main__":
    main()
