"""What every repository of this folder shares: its record, its clone, the data, and the row of the table."""

from __future__ import annotations

import ast
import contextlib
import gzip
import importlib
import importlib.util
import inspect
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from math import isfinite
from pathlib import Path
from statistics import fmean, median
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch.utils.data import TensorDataset

from pytest_fadiag import Control, DiagnosticReport
from pytest_fadiag.judge.diagnostics import DIAGNOSTICS
from pytest_fadiag.judge.twin import Twin

# ---------------------------------------------------------------------------------------------
# A repository. Each file of this folder defines
#   HERE, its record;
#   train(rule, source, data), which trains by their code and returns what torch.save can keep; with an
#       argument ``frozen`` it trains the control too: blocks at their initialisation, the rest as ever;
#   audit(rule, trained, data), which returns the report: its lines are the glue that is counted;
#   setup(source), where their modules need changes before what was saved can be read again.
# All run in the clone's folder; a trace that audit() needs is written there.


@dataclass(frozen=True)
class Repository:
    """Where code comes from, and what of it is trained."""

    name: str
    """owner/name on GitHub."""
    commit: str
    rules: tuple[str, ...]
    """One row each; the word is passed to ``train``."""
    network: str
    data: str
    """The budget: how far the training was scaled down."""
    changes: str = ""
    """What had to be changed so that the code runs on a present torch."""
    bp: str = ""
    """The rule that is BP: the twin of the others."""
    blocks: str = ""
    """What is frozen in a control: the blocks that the report names, mostly a pattern for ``freeze``."""
    paper: Mapping[str, str] = field(default_factory=dict)
    """By rule, what its paper says of embedding, blocks and head: ``BP``, ``other``, or ``any``."""
    seeds: int = 3
    """How many networks of each rule; one where that takes minutes."""
    images: int = 30_000
    pairs: bool = True
    """Whether its data is pairs of images, or the images themselves."""

    def clone(self, folder: Path, mirror: Path | None) -> Path:
        """The code at this commit without notebooks and pictures, in a folder of its own."""
        target = folder / "source" / self.name.replace("/", "+")
        if not target.exists():
            places = [f"https://github.com/{self.name}"]
            if mirror is not None:
                here = mirror / self.name.replace("/", "+")
                places = [
                    str(path)
                    for path in (here, here / "repo")
                    if (path / "HEAD").exists() or (path / ".git").exists()
                ]
            if not places:
                raise FileNotFoundError(
                    f"{mirror} has no git directory {self.name.replace('/', '+')}"
                )
            git = ["git", "-C", str(target)]
            subprocess.run(
                ["git", "clone", "--quiet", "--no-checkout", places[0], str(target)], check=True
            )
            left_out = [f":!*.{kind}" for kind in ("ipynb", "pdf", "png", "gif", "nir")]
            checkout = [*git, "checkout", "--quiet", self.commit, "--", ".", *left_out]
            subprocess.run(checkout, check=True)
        return target


def load(
    path: Path, replace: Mapping[str, str] | None = None, name: str = "", **names: Any
) -> ModuleType:
    """A file of a clone as a module, with words replaced in memory and ``names`` that they use."""
    text = path.read_text(encoding="utf-8")
    for old, new in (replace or {}).items():
        if old not in text:
            raise ValueError(f"{path.name}: expected {old!r} in it")
        text = text.replace(old, new)
    module = ModuleType(name or path.stem)
    module.__file__, module.__spec__ = (
        str(path),
        importlib.util.spec_from_loader(module.__name__, None),
    )
    sys.modules[module.__name__] = module
    vars(module).update(names)
    exec(compile(text, str(path), "exec"), vars(module))
    return module


def missing(*names: str) -> None:
    """Empty modules in place of packages that only draw, log or plot."""
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError:
            sys.modules[name] = _Nothing(name)
            if name == "tqdm":
                vars(sys.modules[name])["tqdm"] = Silent


class Silent:
    """A progress bar without a bar."""

    def __init__(self, items: Any = (), **_: Any) -> None:
        self.items = items

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


def freeze(model: torch.nn.Module, blocks: str) -> None:
    """Hold the blocks at their initialisation: parameters, and batch statistics as in evaluation."""
    found = [one for name, one in model.named_modules() if re.match(blocks, name)]
    if not found:
        raise ValueError(f"no module is called {blocks}")
    for module in found:
        module.requires_grad_(False)
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
            module.register_forward_pre_hook(_still)


def _still(module: torch.nn.Module, _: Any) -> None:
    module.training = False


class _Nothing(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Nothing(f"{self.__name__}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        return None


@contextlib.contextmanager
def inside(source: Path) -> Iterator[None]:
    """The clone as working directory and first on the path, as its own commands have it."""
    before = Path.cwd()
    sys.path.insert(0, str(source))
    os.chdir(source)
    try:
        yield
    finally:
        os.chdir(before)


# ---------------------------------------------------------------------------------------------
# The data: pairs of Fashion-MNIST images, in place of MNIST; some networks take the images themselves.


@cache
def everything(folder: Path, *, pairs: bool, train: bool) -> tuple[Any, Any]:
    """All images of a split, or pairs of them, and labels."""
    part = "train" if train else "t10k"
    bytes_of = [
        np.frombuffer(gzip.decompress((folder / f"{part}-{name}-ubyte.gz").read_bytes()), np.uint8)
        for name in ("images-idx3", "labels-idx1")
    ]
    x, y = bytes_of[0][16:].reshape(-1, 28, 28), bytes_of[1][8:]
    if not pairs:
        return x, y
    other = np.random.default_rng(int(train)).permutation(len(y))
    half = (x[:, ::2] // 2 + x[:, 1::2] // 2).astype(np.uint8)
    return np.concatenate([half, half[other]], axis=1), (y + y[other]) % 10


@dataclass(frozen=True)
class Data:
    """Fashion-MNIST as the four files ``{train,t10k}-{images-idx3,labels-idx1}-ubyte.gz`` of a folder.

    A pair is an image above another one, each at half its height, in 28 x 28 pixels; its class is
    the sum of both labels modulo 10, which no layer alone can read.
    """

    folder: Path
    train: int = 30_000
    """The first so many training images are used, and test images."""
    tested: int = 10_000
    seed: int = 1
    pairs: bool = True

    def images(self, *, train: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Images [N, 28, 28] from 0 to 255 and labels [N]; the same for every seed."""
        x, y = everything(self.folder, pairs=self.pairs, train=train)
        end = self.train if train else self.tested
        return torch.tensor(x[:end]), torch.tensor(y[:end]).long()

    def arrays(
        self,
        *,
        train: bool,
        mean: float = 0.0,
        std: float = 1.0,
        shape: tuple[int, ...] = (1, 28, 28),
        pad: int = 0,
        channels: int = 1,
    ) -> TensorDataset:
        """Images from 0 to 1, then normalised, with ``pad`` black pixels around them, and labels.

        Grey images go in as so many equal ``channels``.
        """
        x, y = self.images(train=train)
        x = torch.nn.functional.pad(x, (pad,) * 4)
        x = ((x.float() / 255 - mean) / std).reshape(-1, *shape)
        return TensorDataset(x if channels == 1 else x.expand(-1, channels, -1, -1), y)

    def loader(self, batch_size: int, **arrays: Any) -> torch.utils.data.DataLoader[Any]:
        """Shuffled training batches, all of one size."""
        return torch.utils.data.DataLoader(
            self.arrays(train=True, **arrays), batch_size, shuffle=True, drop_last=True
        )

    def test(self, **arrays: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """The test set as batches for ``diagnose``."""
        x, y = self.arrays(train=False, **arrays).tensors
        return list(zip(x.split(500), y.split(500), strict=True))

    def training(self, **arrays: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """The first 10,000 training images as batches, for ``train=``."""
        x, y = (one[:10_000] for one in self.arrays(train=True, **arrays).tensors)
        return list(zip(x.split(500), y.split(500), strict=True))

    @cached_property
    def torchvision(self) -> ModuleType:
        """torchvision, whose MNIST and FashionMNIST are these images."""
        from pytest_fadiag.load.vision import import_torchvision

        outer, module = self, import_torchvision()

        class Images(torch.utils.data.Dataset[Any]):
            def __init__(
                self,
                root: Any = None,
                train: bool = True,
                transform: Callable[..., Any] | None = None,
                target_transform: Callable[..., Any] | None = None,
                download: bool = False,
            ) -> None:
                self.data, self.targets = outer.images(train=train)
                self.transform, self.target_transform = transform, target_transform
                self.classes = [str(label) for label in range(10)]

            def __len__(self) -> int:
                return len(self.targets)

            def __getitem__(self, index: int) -> tuple[Any, Any]:
                from PIL import Image

                x, y = Image.fromarray(self.data[index].numpy()), int(self.targets[index])
                return (
                    self.transform(x) if self.transform else x,
                    self.target_transform(y) if self.target_transform else y,
                )

        module.datasets.MNIST = module.datasets.FashionMNIST = Images
        return module


# ---------------------------------------------------------------------------------------------
# The tables.

MARKS = {"pass": "✓", "fail": "✗", "not resolved": "?", "not measured": "–"}
WORDS = {"BP's own": "BP", "label-free": "label-free", "frozen": "frozen"}
"""What a part is without a number."""
REFUSALS = ("no stream: ", "the reference is not proven: ")


def with_control(report: DiagnosticReport, control: DiagnosticReport) -> DiagnosticReport:
    """A report beside its frozen control, by (d) and (e) both."""
    if control.score is None:
        return report
    probes, own = (
        ((), None) if control.depth is None else (control.depth.probes, control.depth.network)
    )
    source = "trained by the same code with frozen blocks"
    return report.replace(control=Control(control.score, source, probes=probes, balanced=own))


def judged(report: DiagnosticReport, twin: Twin | None) -> DiagnosticReport:
    """Beside the BP twin; (e) is judged where there is no control or a doubtful one, as in every audit."""
    both = report.control is None or report.questions_control
    asked = [one for one in report.diagnostics if both or one != "depth-utility"]
    return report.replace(twin=twin, diagnostics=tuple(asked))


@dataclass
class Row:
    """One network: what was trained, and what the audit says."""

    name: str
    repository: str
    commit: str
    rule: str
    seed: int
    network: str
    data: str
    changes: str = ""
    bp: bool = False
    accuracy: float | None = None
    control: float | None = None
    margin: float | None = None
    utility: float | None = None
    loss: str = ""
    marks: dict[str, str] | None = None
    headlines: dict[str, str] | None = None
    step: dict[str, str] | None = None
    """By part, what one step of the rule does there."""
    paper: str = ""
    """What its paper says of embedding, blocks and head."""
    gamma: dict[str, float | None] | None = None
    verdict: str = ""
    why: str = ""
    """Why there is no verdict."""
    glue: int | None = None
    train_minutes: float = 0.0
    audit_minutes: float = 0.0

    def add(self, report: DiagnosticReport) -> None:
        """What the report says."""
        self.accuracy, self.verdict = report.headline_acc, report.verdict
        self.control, self.margin = report.frozen_baseline_acc, report.margin_pp
        self.utility = report.depth_utility_pp
        self.loss = f"{report.loss}{' (assumed)' if report.loss_assumed else ''}"
        self.marks = {one.key: MARKS[one.status.value] for one in report.findings}
        self.headlines = {one.key: one.error or one.headline for one in report.findings}
        if report.step is not None and not report.step.problem:
            self.step = {
                part: state.value if state.value in WORDS else f"{contrast:+.2f}"
                for part, state, contrast in zip(
                    report.step.parts, report.step.state, report.step.contrast, strict=True
                )
            }
        if report.credit is not None and not report.credit.problem:
            pairs = zip(report.credit.sites, report.credit.gamma, strict=True)
            self.gamma = {site: own if isfinite(own) else None for site, own in pairs}


def glue_lines(module: ModuleType) -> int:
    """The logical lines of ``audit`` and of the functions that it needs and training does not.

    A long line counts once; docstrings, signatures and imports do not.
    """
    tree = ast.parse(inspect.getsource(module))
    functions = {one.name: one for one in tree.body if isinstance(one, ast.FunctionDef)}

    def needed(start: str) -> set[str]:
        found, todo = set(), [start]
        while todo:
            name = todo.pop()
            found.add(name)
            words = [one for one in ast.walk(functions[name]) if isinstance(one, ast.Name)]
            used = {one.id for one in words if isinstance(one.ctx, ast.Load)}
            local = {one.id for one in words if isinstance(one.ctx, ast.Store)}
            todo += (used & functions.keys()) - local - found
        return found

    counted = 0
    for name in needed("audit") - needed("train"):
        for line in ast.walk(functions[name]):
            text = isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)
            skipped = text or isinstance(line, ast.Import | ast.ImportFrom)
            counted += isinstance(line, ast.stmt) and not skipped and line is not functions[name]
    return counted


def tables(rows: list[Row]) -> dict[str, str]:
    """By name: the results with a row per rule, the networks and data, and what was refused."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.repository, row.rule), []).append(row)
    keys = [one.key for one in DIAGNOSTICS]
    head = ["repository", "rule", "verdict", "because", "accuracy", *keys]
    head += ["margin", "depth", "% of BP"]
    lines, seen = [[*head, "embedding · blocks · head", "as published", "glue", "minutes"]], ""
    for (repository, rule), own in groups.items():
        short = "" if repository == seen else short_name(repository)
        seen = repository
        lines.append([
            short, f"{rule} (BP)" if own[0].bp and rule.lower() != "bp" else rule,
            agreed([verdict(row) for row in own]),
            agreed([row.verdict.partition(": ")[2] for row in own]),
            mean([row.accuracy for row in own], ".3f"),
            *(agreed([(row.marks or {}).get(key, "") for row in own]) for key in keys),
            mean([row.margin for row in own], "+.1f"),
            mean([row.utility for row in own], "+.1f"),
            share(own, [row for row in rows if row.bp and row.repository == repository]),
            parts(own[0]),
            as_published(own),
            str(own[0].glue or ""),
            f"{sum(row.train_minutes + row.audit_minutes for row in own):.1f}",
        ])  # fmt: skip
    networks = [["repository", "network", "data and budget", "changes"]] + [
        [
            f"[{row.repository}](https://github.com/{row.repository}/tree/{row.commit})",
            row.network,
            row.data,
            row.changes,
        ]
        for row in {row.repository: row for row in rows}.values()
    ]
    refused = [["repository", "", "what the audit says"]] + [
        [short_name(row.repository), f"({' '.join(at)})", said]
        for row in {(row.repository, row.rule): row for row in reversed(rows)}.values()
        for said, at in sentences(row).items()
    ]
    glue = [row.glue for row in {row.repository: row for row in rows}.values() if row.glue]
    minutes = sum(row.train_minutes + row.audit_minutes for row in rows)
    total = f"\nMedian glue: {median(glue):g} lines. CPU time: {minutes:.0f} minutes on one core.\n"
    return {
        "results": grid(lines) + total,
        "networks": grid(networks),
        "refused": grid(refused),
    }


def parts(row: Row) -> str:
    """What one step does to embedding, blocks and head; or the credit at each state."""
    if row.step is None:
        gammas = [mean([one], "+.2f") for one in (row.gamma or {}).values()]
        return " ".join(gammas) and f"Γ {' '.join(gammas)}"
    words = {part: WORDS.get(text, text).replace("-0", "−0") for part, text in row.step.items()}
    ends = [words.pop(end, "") for end in ("embedding", "head")]
    return " · ".join(text for text in (ends[0], " ".join(words.values()), ends[1]) if text)


def as_published(rows: list[Row]) -> str:
    """✓ where one step does in each part what the paper says, else what the paper says."""
    steps = [row.step for row in rows if row.step]
    if not steps or not rows[0].paper:
        return ""
    said = dict(zip(("embedding", "blocks", "head"), rows[0].paper.split(" · "), strict=True))
    for step in steps:
        for part, state in step.items():
            expected = said[part if part in said else "blocks"]
            if expected != "any" and (expected == "BP") != (state == "BP's own"):
                return f"✗ {rows[0].paper}"
    return "✓"


def sentences(row: Row) -> dict[str, list[str]]:
    """What a report says is missing, with the letters that it concerns."""
    found: dict[str, list[str]] = {}
    for key, said in (row.headlines or {}).items():
        if said.startswith(REFUSALS) or ((row.marks or {})[key] == "–" and key != "d"):
            found.setdefault(said, []).append(key)
    return found


def short_name(repository: str) -> str:
    """The name without its owner; of a long one its capitals."""
    name = repository.split("/")[1]
    return name if len(name) < 28 else "".join(filter(str.isupper, name)) or name


def mean(values: list[float | None], form: str) -> str:
    """The mean over seeds."""
    known = [value for value in values if value is not None]
    return format(sum(known) / len(known), form).replace("-", "−") if known else ""


def share(rows: list[Row], twins: list[Row]) -> str:
    """Which part of BP's margin a rule reaches; empty where BP has none, or is not healthy."""
    sound = all((row.marks or {}).get(key) == "✓" for row in twins for key in "abcg")
    own, theirs = (
        fmean([row.margin or 0 for row in some]) if some else 0 for some in (rows, twins)
    )
    return f"{100 * own / theirs:.0f}" if sound and own > 0 and theirs >= 2 else ""


def agreed(values: list[str]) -> str:
    """The value of all seeds, or each with its count."""
    counts = Counter(value for value in values if value).most_common()
    if len({*values}) == 1:
        return values[0]
    return ", ".join(f"{n} {one}" if len(one) > 1 else f"{n}{one}" for one, n in counts)


def verdict(row: Row) -> str:
    """The first words of a verdict."""
    words = row.verdict.split(":")[0].removeprefix("needs ").replace("walk-back", "walk back")
    return words or f"not audited: {row.why}"


def grid(lines: list[list[str]]) -> str:
    """A table in Markdown."""
    head, *rest = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in [head, ["---"] * len(head), *rest])
