"""BP, DFA, DFA with a penalty, and frozen networks on three regressions and a language model, trained and audited.

    python validation/tasks.py

The residual MLP of the examples, four blocks of width 64, learns by squared error, and their transformer by cross-entropy. Every
method has a frozen control. Frozen networks are audited too, without a control, as if they were results. The blocks of «normal»
hold normal numbers of the usual spread, so no range of an initialiser tells that they were never trained.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pytest_fadiag import ResidualMLP, audit, load_data, read_audit

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
import language_model
import regression
import rules

TRAINING, TEST, STEPS = 20_000, 4_000, 2_000
LAM = 1e-2
"""The penalty on what a block adds to the stream, as published."""
RESULTS = {"bp": "BP", "dfa": "DFA", "dfa-lam": "DFA+λ"}
ALONE = {"frozen_bp": "frozen BP", "normal_bp": "frozen BP, normal", "frozen_dfa": "frozen DFA"}
"""The networks by the names of their files: results with controls, and those without."""
SAME = {"frozen_dfa": "frozen_dfa-lam"}
"""A penalty on blocks that do not learn changes nothing, so one training gives both controls."""
SEEDS = (0, 1, 2)
COLUMNS = ("task", "network", "growth", "(d)", "(e)", "(g)", "verdict")
Split = tuple[Tensor, ...]
"""Inputs and targets to train on, inputs and targets to test on."""


def teacher(root: Path) -> Split:
    """Five values that a random network computes."""
    x, y = regression.teacher()
    own = regression.TRAINING
    return x[:own], y[:own], x[own:], y[own:]


def rotation(root: Path) -> Split:
    """The angle by which an image is turned, −45° to 45°, in units of 45°."""
    generator, parts = torch.Generator().manual_seed(0), []
    for x in images(root):
        y = 2 * torch.rand(len(x), 1, generator=generator) - 1
        cos, sin = (y * torch.pi / 4).cos(), (y * torch.pi / 4).sin()
        turn = torch.stack([torch.cat([cos, -sin, 0 * y], 1), torch.cat([sin, cos, 0 * y], 1)], 1)
        grid = F.affine_grid(turn, list(x.shape), align_corners=False)
        black = x.min()
        parts += [F.grid_sample(x - black, grid, align_corners=False).add(black).flatten(1), y]
    return tuple(parts)


def lower_half(root: Path) -> Split:
    """The lower half of an image, pooled to 7×14 values, from its upper half."""
    halves = [(x[:, :, :14], F.avg_pool2d(x[:, :, 14:], 2)) for x in images(root)]
    return tuple(part.flatten(1) for pair in halves for part in pair)


def images(root: Path) -> list[Tensor]:
    """The first images of both splits of Fashion-MNIST, normalised."""
    splits = [load_data(f"fashion-mnist:{root}", split=split) for split in ("train", "test")]
    parts = zip(splits, (TRAINING, TEST), strict=True)
    return [data.normalised(data.x[:count]) for data, count in parts]


def tokens(root: Path) -> Split:
    """The next character of Python's own documentation."""
    return tuple(part for rows in language_model.text() for part in (rows[:, :-1], rows[:, 1:]))


TASKS: dict[str, Callable[[Path], Split]] = {
    "teacher, k=5": teacher,
    "rotation, k=1": rotation,
    "lower half, k=98": lower_half,
    "characters": tokens,
}


def train(name: str, data: Split, seed: int) -> tuple[nn.Module, list[Tensor], dict[str, Any]]:
    """The network of one file, its feedback matrices and its config."""
    first, _, last = name.rpartition("_")
    x, y, text = data[0], data[1], not data[1].is_floating_point()
    torch.manual_seed(seed)
    net: Any = language_model.build() if text else ResidualMLP(x.shape[1], 64, 4, y.shape[1])
    for own in net.blocks.parameters() if first == "normal" else ():
        if own.ndim > 1:
            nn.init.normal_(own, 0.0, float(own.detach().std()))
    losses = language_model.losses if text else regression.losses
    config = {"rule": last.partition("-")[0], "seed": seed, "frozen": bool(first)}
    config |= {"lam": LAM * last.endswith("lam"), "lr": 3e-3 if text else 1e-3}
    config |= {"steps": language_model.STEPS if text else STEPS}
    Bs = rules.train(net, x, y, losses, **config)  # type: ignore[arg-type]
    config |= {"method": last, "loss": "ce" if text else "mse", "activation": "gelu"}
    return net, Bs, {**config, "n_train": len(x)}


def audited(data: Split, folder: Path) -> dict[str, list[Any]]:
    """Train, save, audit: results by the command with their controls, the others by ``audit``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pytest.ini").touch()  # not that of this repository
    np.savez(folder / "test.npz", x=data[2].numpy(), y=data[3].numpy())
    for name, seed in product([*RESULTS, *ALONE], SEEDS):
        net, Bs, config = train(name, data, seed)
        rules.save(folder / f"{name}_s{seed}.pt", net, Bs, **config)
        if name in SAME:
            config |= {"method": "dfa-lam", "lam": LAM}
            rules.save(folder / f"{SAME[name]}_s{seed}.pt", net, Bs, **config)
    model = None if data[1].is_floating_point() else "language_model:build"
    files = [f"{name}_s{seed}.pt" for name, seed in product(RESULTS, SEEDS)]
    words = [*files, "--diagnostics abcdeg", *([f"--model {model}"] if model else [])]
    if rules.audit(folder, " ".join(words)):
        raise SystemExit("the audit could not run")
    own = {row.checkpoint: row.report for row in read_audit(folder / "audit.json").rows}
    found = {name: [own[f"{name}_s{seed}.pt"] for seed in SEEDS] for name in RESULTS}
    for name in ALONE:
        paths = [folder / f"{name}_s{seed}.pt" for seed in SEEDS]
        test = str(folder / "test.npz")
        found[name] = [audit(path, data=test, model=model) for path in paths]
    return found


def number(key: str, report: Any) -> str:
    """What a diagnostic measured; ✗: it fired, ?: (e) is not resolved or the control of (d) is in doubt."""
    own = next(finding for finding in report.findings if finding.key == key)
    if own.value is None:
        return "–"
    shown = f"{own.value:{'.3g' if key == 'a' else '+.1f'}}".replace("-", "−")
    doubt = report.questions_control if key == "d" else key == "e" and not own.measured
    return shown + ("✗" if key in report.fired else "?" if doubt else "")


def verdict(report: Any) -> str:
    """The verdict in the words of the audit table."""
    fired = f"walk back ({' '.join(report.fired)})"
    return fired if report.fired else report.verdict.partition(":")[0]


def joined(texts: list[str]) -> str:
    """One text per seed, or the one of all."""
    return texts[0] if len(set(texts)) == 1 else " · ".join(texts)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--data", type=Path, default=Path("/usr/share/datasets/fashion-mnist"), metavar="ROOT")
    add("--folder", type=Path, default=Path("build/tasks"), help="where the networks are kept")
    options = parser.parse_args()
    if not (options.data / "train-images-idx3-ubyte.gz").exists():
        parser.error(f"no training split of Fashion-MNIST in {options.data}; name it by --data")
    torch.set_num_threads(1)
    start = time.monotonic()
    lines = [f"| {' | '.join(COLUMNS)} |", "| --- " * len(COLUMNS) + "|"]
    for task, data in TASKS.items():
        found = audited(data(options.data), options.folder / data.__name__)
        for name, reports in found.items():
            cells = [joined([number(key, own) for own in reports]) for key in "adeg"]
            cells += [joined([*map(verdict, reports)])]
            lines.append(f"| {' | '.join([task, {**RESULTS, **ALONE}[name], *cells])} |")
    print("\n".join(["", *lines, "", f"{time.monotonic() - start:.0f} s"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
