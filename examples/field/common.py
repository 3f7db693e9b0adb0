"""What every repository of this folder shares: its record, its clone, the data, and the row of the table."""

from __future__ import annotations

import ast
import contextlib
import gzip
import importlib
import importlib.util
import inspect
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch.utils.data import TensorDataset

from pytest_fadiag import DiagnosticReport
from pytest_fadiag.judge.diagnostics import DIAGNOSTICS

# ---------------------------------------------------------------------------------------------
# A repository. Each file of this folder defines
#   HERE, its record;
#   train(rule, source, data), which trains by their code and returns what torch.save can keep;
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
    """The data, and how far the training was scaled down."""
    changes: str = ""
    """What had to be changed so that the code runs on a present torch."""
    refused: str = ""
    """Why it cannot be audited, or not be run; then it is not trained."""

    def clone(self, folder: Path, mirror: Path | None) -> Path:
        """The code at this commit without its notebooks, in a folder of its own."""
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
            subprocess.run(
                [*git, "checkout", "--quiet", self.commit, "--", ".", ":!*.ipynb"], check=True
            )
        return target


def load(path: Path, replace: Mapping[str, str] | None = None, name: str = "") -> ModuleType:
    """A file of a clone as a module, with words of it replaced in memory; the file stays as it is."""
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
    exec(compile(text, str(path), "exec"), vars(module))
    return module


def missing(*names: str) -> None:
    """Empty modules in place of packages that only draw, log or plot."""
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError:
            sys.modules[name] = _Nothing(name)


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
# The data: Fashion-MNIST, in place of MNIST and CIFAR-10 too.


@dataclass(frozen=True)
class Data:
    """Fashion-MNIST as the four files ``{train,t10k}-{images-idx3,labels-idx1}-ubyte.gz`` of a folder."""

    folder: Path
    train: int = 10_000
    """The first so many training images are used, and test images."""
    tested: int = 10_000

    def images(self, *, train: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Images [N, 28, 28] from 0 to 255 and labels [N]."""
        part = "train" if train else "t10k"
        x = self._read(f"{part}-images-idx3-ubyte.gz", 16).reshape(-1, 28, 28)
        y = self._read(f"{part}-labels-idx1-ubyte.gz", 8)
        end = self.train if train else self.tested
        return torch.tensor(x[:end]), torch.tensor(y[:end]).long()

    def _read(self, name: str, skip: int) -> Any:
        with gzip.open(self.folder / name) as file:
            return np.frombuffer(file.read(), np.uint8, offset=skip)

    def arrays(
        self,
        *,
        train: bool,
        mean: float = 0.0,
        std: float = 1.0,
        shape: tuple[int, ...] = (1, 28, 28),
        pad: int = 0,
    ) -> TensorDataset:
        """Images from 0 to 1, then normalised, with ``pad`` black pixels around them, and labels."""
        x, y = self.images(train=train)
        x = torch.nn.functional.pad(x, (pad,) * 4)
        return TensorDataset(((x.float() / 255 - mean) / std).reshape(-1, *shape), y)

    def loader(self, batch_size: int, **arrays: Any) -> torch.utils.data.DataLoader[Any]:
        """Shuffled training batches, all of one size."""
        return torch.utils.data.DataLoader(
            self.arrays(train=True, **arrays), batch_size, shuffle=True, drop_last=True
        )

    def test(self, **arrays: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """The test set as batches for ``diagnose``."""
        x, y = self.arrays(train=False, **arrays).tensors
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
# The table.


@dataclass
class Row:
    """One line of the table: what was trained, and what the audit says."""

    name: str
    repository: str
    commit: str
    rule: str
    network: str
    data: str
    changes: str = ""
    accuracy: float | None = None
    loss: str = ""
    findings: dict[str, str] | None = None
    headlines: dict[str, str] | None = None
    gamma: dict[str, float | None] | None = None
    verdict: str = ""
    why: str = ""
    """Why there is no verdict."""
    glue: int | None = None
    train_minutes: float | None = None
    audit_minutes: float | None = None

    @classmethod
    def of(cls, name: str, here: Repository, rule: str, **rest: Any) -> Row:
        """The row of one rule of a repository."""
        return cls(
            name, here.name, here.commit, rule, here.network, here.data, here.changes, **rest
        )

    def add(self, report: DiagnosticReport) -> None:
        """What the report says."""
        self.accuracy, self.verdict = report.headline_acc, report.verdict
        self.loss = getattr(report, "loss", "") + (
            " (assumed)" if getattr(report, "loss_assumed", False) else ""
        )
        self.findings = {finding.key: finding.outcome for finding in report.findings}
        self.headlines = {
            finding.key: finding.error or finding.headline for finding in report.findings
        }
        if report.credit is not None and not report.credit.problem:
            self.gamma = dict(zip(report.credit.sites, report.credit.gamma, strict=True))

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def glue_lines(function: Callable[..., Any]) -> int:
    """The logical lines of a function's body, without its docstring: a long one counts once."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    lines = [one for one in ast.walk(tree) if isinstance(one, ast.stmt)]
    texts = [
        one for one in lines if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)
    ]
    return len(lines) - len(texts) - 1


def markdown(rows: list[Row]) -> str:
    """The table in Markdown: a row per rule, a column per diagnostic."""
    keys = [one.key for one in DIAGNOSTICS]
    head = [
        "repository",
        "rule",
        "network",
        "data",
        "accuracy",
        *(f"({key})" for key in keys),
        "Γ by layer",
        "verdict",
        "glue",
        "minutes",
    ]
    lines = [head, ["---"] * len(head)]
    for row in rows:
        gamma = ", ".join(
            "–" if value is None else f"{value:+.2f}" for value in (row.gamma or {}).values()
        )
        minutes = [
            f"{value:.1f}" for value in (row.train_minutes, row.audit_minutes) if value is not None
        ]
        lines.append([
            f"[{row.repository}](https://github.com/{row.repository}/tree/{row.commit})",
            row.rule, row.network, row.data,
            "" if row.accuracy is None else f"{row.accuracy:.3f}",
            *((row.findings or {}).get(key, "") for key in keys),
            gamma, row.verdict or f"not audited: {row.why}",
            "" if row.glue is None else str(row.glue), " + ".join(minutes),
        ])  # fmt: skip
    return "".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines
    )
