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
from functools import partial
from pathlib import Path
from typing import Any

import torch

from pytest_fadiag import DiagnosticReport, diagnose
from pytest_fadiag.judge.twin import Twin

try:  # it keeps what is defined in a function too
    import cloudpickle as pickler
except ImportError:
    pickler = pickle

from .certificates import write
from .common import Data, Repository, Row, glue_lines, inside, judged, tables, with_control
from .figure import draw

BP = "BP · BP · BP"
"""What is said of embedding, blocks and head by the papers of backpropagation."""


def names() -> list[str]:
    """Every file of this folder that describes a repository."""
    here = Path(__file__).parent
    return sorted(
        one.name
        for one in pkgutil.iter_modules([str(here)])
        if one.name not in ("common", "certificates", "figure", "__main__")
    )


def diagnosed(
    calls: list[Any], model: Any, batches: Any, *, control: bool, **options: Any
) -> DiagnosticReport | None:
    """The report, beside the control that was there before; of a control the call alone."""
    calls.append((model, batches, options))
    if control:
        return None
    frozen = calls[0][0] if len(calls) > 1 else None
    return diagnose(model, batches, control=frozen, **options)


def trained(module: Any, source: Path, saved: Path, *given: Any, **frozen: bool) -> dict[str, Any]:
    """The network of a rule and the minutes of its training, from the folder if it is there."""
    if saved.exists():
        return dict(torch.load(saved, weights_only=False))
    rule, data = given
    start = time.process_time()
    torch.manual_seed(data.seed)
    network = module.train(rule, source, data, **frozen)
    kept = {"trained": network, "minutes": (time.process_time() - start) / 60}
    part = saved.with_suffix(".part")
    try:
        torch.save(kept, part, pickle_module=pickler)
        part.rename(saved)
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        print(f"{saved.stem} cannot be kept, so it is audited now: {error}")
    return kept


def audited(
    module: Any, calls: list[Any], row: Row, saved: Path, data: Data, source: Path, **frozen: bool
) -> Any:
    """The report of a network, or how ``diagnose`` was called for its control."""
    is_control = any(frozen.values())
    if is_control:
        saved = saved.with_name(re.sub(r"(?=-s\d+\.pt$)", "-frozen", saved.name))
    kept = trained(module, source, saved, row.rule, data, **frozen)
    row.train_minutes += kept["minutes"]
    start = time.process_time()
    module.diagnose = partial(diagnosed, calls, control=is_control, seed=row.seed)
    report = module.audit(row.rule, kept["trained"], data)
    row.audit_minutes += (time.process_time() - start) / 60
    return report


def run(name: str, seed: int, options: argparse.Namespace) -> list[Row]:
    """Train and audit every rule of one repository, BP first; what goes wrong is a row too."""
    module = importlib.import_module(f"{__package__}.{name}")
    here: Repository = module.HERE
    images = options.images or here.images
    data = Data(options.data.resolve(), images, options.tested, seed, here.pairs)
    _ = data.torchvision
    twin: Twin | None = None
    rows = []
    for rule in here.rules:
        kind = "pairs" if here.pairs else "images"
        budget = f"{images:,} {kind}; {here.data}" if images else here.data
        facts = here.name, here.commit, rule, seed, here.network, budget, here.changes
        row = Row(name, *facts, bp=rule == here.bp, glue=glue_lines(module))
        row.paper = BP if row.bp else here.paper.get(rule, here.paper.get("", ""))
        rows.append(row)
        place = options.folder / f"{name}-{rule}-s{seed}"
        saved = place.with_name(f"{place.name}.pt")
        try:
            source = here.clone(options.folder, options.mirror)
            with inside(source):
                if hasattr(module, "setup"):
                    module.setup(source)
                has_control = "frozen" in inspect.signature(module.train).parameters
                calls: list[Any] = []
                settings = (module, calls, row, saved, data, source)
                control = audited(*settings, frozen=True) if has_control else None
                report = audited(*settings, **({"frozen": False} if has_control else {}))
                if control is not None:  # of a trace
                    report = with_control(report, control)
            twin = Twin.of([report]) if row.bp else twin
            report = judged(report, twin)
            row.add(report)
            report.save(place.with_name(f"{place.name}.json"))
            text = place.with_name(f"{place.name}.txt")
            text.write_text(str(report), encoding="utf-8")
            if options.traces and calls and report.residual_norms:
                path = options.traces / f"{place.name.replace(' ', '-')}.npz"
                write(path, calls[::-1], rule, seed)
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
    parser.add_argument("--images", type=int, help="training images (default: as each file says)")
    parser.add_argument("--tested", type=int, default=10_000, help="test images (default: 10,000)")
    parser.add_argument("--seeds", type=int, default=9, help="at most so many of each network")
    parser.add_argument(
        "--traces", type=Path, help="write traces into this folder, for examples.field.certificates"
    )
    parser.add_argument("--page", type=Path, help="write the tables into this Markdown page too")
    parser.add_argument("--again", action="store_true", help="train again what the folder holds")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.folder = options.folder.resolve()
    options.traces = options.traces and options.traces.resolve()
    options.mirror = options.mirror and options.mirror.resolve()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.again:
        for name in options.names or names():
            for path in options.folder.glob(f"{name}-*.pt"):
                path.unlink()
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
            given = [word for word in sys.argv[1:] if word != "--again"]
            command = [sys.executable, "-m", "examples.field", *given]
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
        draw(rows, options.folder, options.page)


if __name__ == "__main__":
    main()
