"""Every command of the README and the documentation is run, in a lab's repo that has what the pages speak of."""

from __future__ import annotations

import json
import os
import pickle
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from repo import ALONE
from support import network
from test_docs import FENCED, PAGES, PASTED, ROOT

from pytest_fadiag import Recorder, diagnose
from pytest_fadiag.command import COMMANDS, main

NEEDS = {
    "pip install pytest-fadiag": "a package index",
    "pytest -d --tx '2*ssh=gpu7": "another host; examples/recipes/try_ssh.sh tries it on one",
    "make bench": "all benchmarks, one after the other",
    "make truth": "Debian's dataset-fashion-mnist, and an hour",
    "make zoo": "other packages, and 15 minutes",
    "make fuzz": "up to an hour",
    "make kills": "up to 90 minutes",
    "make mutants": "an hour",
}
"""What is not run: it needs what is not here, or hours. Of the targets of make it is asked what they would do."""
ELSEWHERE = {
    "stream-rank": "tests/session/test_extension.py",
    "events.out.tfevents": "tests/integrations/test_tensorboard.py",
    "checkpoints/": "tests/session/test_shipped_pages.py",
    "examples/logs/dfa-lam": "tests/session/test_shipped_pages.py",
    "--fa-credit=examples.methods:credit": "tests/session/test_shipped_pages.py",
    "python benchmarks/credit.py": "tests/session/test_shipped_pages.py",
    "python examples/train.py": "tests/examples/test_training.py",
    "fashion-mnist:ROOT": "tests/examples/test_training.py",
    "make audit": "tests/session/test_shipped_pages.py",
    "make readme": "tests/session/test_shipped_pages.py",
    "make test": ".ci/run",
    "make lint": ".ci/run",
    "make docs": ".ci/run",
}
"""What another file runs, with the packages or networks that it needs."""
LINES = [line for _, line in PASTED]
WORDS = set(LINES)
BARE = {f"fadiag {command.name}" for command in COMMANDS} | {"fadiag audit …", "pytest --fa-only …"}
"""Names of commands in a sentence, not lines to paste."""
ENDED_WELL = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
"""Whatever the verdict on a network that nobody trained: the command was understood, and something was audited."""


def lab_command(line: str) -> bool:
    known = any(part in line for part in [*NEEDS, *ELSEWHERE])
    return line.startswith(("pytest ", "fadiag ")) and line not in BARE and not known


@pytest.fixture(scope="module")
def lab_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Networks, controls, logs, data and code under the names that the pages use."""
    lab = tmp_path_factory.mktemp("lab")
    rng = np.random.default_rng(0)
    for name in ("runs", "results", "logs", "tests", "mylab", "src/evaluate", "data/cifar-10-batches-py", "unpacked"):
        (lab / name).mkdir(parents=True)
    shape = {"d_in": 3072, "d": 8, "blocks": 2, "classes": 10}
    images = rng.integers(0, 256, (300, 3072), np.uint8)
    shown = (torch.from_numpy(images).view(-1, 3, 1024) / 255 - 0.5).flatten(1) * 4
    labels = network(**shape)(shown).argmax(1).tolist()  # so that networks close to this one are better than chance
    (lab / "data/cifar-10-batches-py/test_batch").write_bytes(pickle.dumps({"data": images, "labels": labels}, protocol=4))
    for method, seed in (("fa", 1), ("dfa", 42), ("dfa", 123), ("dfa", 456)):
        for frozen in (False, True):
            net = network(**shape)
            other = network(**shape, seed=seed + frozen)
            weights = {key: 0.9 * value + 0.1 * other.state_dict()[key] for key, value in net.state_dict().items()}
            saved = {"state_dict": weights, "config": {"method": method, "seed": seed, "frozen": frozen}}
            torch.save(saved, lab / f"runs/{'frozen_' * frozen}{method}_s{seed}.pt")
    batches = [(torch.randn(256, 3072), torch.arange(256) % 10)]
    Recorder(lab / "runs/dfa_s42.jsonl", batches, config={"method": "dfa", "seed": 42}).record(1, network(**shape), acc=0.3)
    shutil.copy(ROOT / "examples/logs/dfa-lam_s42.json", lab / "results")
    (lab / "logs/metrics.csv").write_text("epoch,h_0_norm,h_L_norm,g_2_norm,acc_eval\n1,9,90,1e-4,0.3\n2,9,99,1e-4,0.36\n")
    build = "from pytest_fadiag import ResidualMLP\n\ndef build():\n    return ResidualMLP(3072, 8, 2, 10)\n"
    (lab / "mylab/models.py").write_text(build)
    (lab / "mylab/plain.py").write_text(build)
    (lab / "src/evaluate/gamma.py").write_text("def gamma(a, g):\n    return (a * g).sum() / (a.norm() * g.norm())\n")
    (lab / "tests/test_x.py").write_text(_python("tests.md")[0])
    (lab / "expected.json").write_text(json.dumps(dict.fromkeys(("dfa", "fa"), "")))
    ini = "fa_data = cifar10:data\nfa_checkpoint = runs/dfa_s*.pt\nfa_device = cpu\npythonpath = .\n"
    (lab / "pytest.ini").write_text(f"[pytest]\n{ini}")
    return lab


@pytest.fixture
def lab(lab_files: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A pytester in the lab; what is measured once is kept for the next command."""
    monkeypatch.chdir(lab_files)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(lab_files / "summary.md"))
    monkeypatch.setenv("PYTEST_XDIST_AUTO_NUM_WORKERS", "1")
    monkeypatch.delenv("CI", raising=False)
    return pytester


def run(lab: pytest.Pytester, line: str, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """Run a command as a shell would have split it; pytest runs in this process."""
    folder = Path.cwd()
    rest = "--fa-data=cifar10:data" if line.startswith("pytest") else "--data cifar10:data"
    split = shlex.shlex(os.path.expandvars(line.replace("…", rest)), posix=False, punctuation_chars=False)
    split.whitespace_split = True
    words: list[str] = []
    for word in split:
        plain = shlex.split(word)[0]
        matches = (
            sorted(str(path.relative_to(folder)) for path in folder.glob(plain)) if "*" in word and "'" not in word else []
        )
        words += matches or [plain]
    results: list[pytest.RunResult] = []

    def inside(*arguments: str) -> None:
        os.chdir(folder)
        results.append(lab.runpytest_inprocess(*ALONE, "-p", "xdist", f"--rootdir={folder}", *arguments))

    if words[0] == "pytest":
        inside(*words[1:])
    else:
        monkeypatch.setattr(os, "execv", lambda path, command: inside(*command[3:]))
        code = main(words[1:])
        if not results:
            return int(code), ""
    return int(results[0].ret), results[0].stdout.str() + results[0].stderr.str()


@pytest.mark.usefixtures("verify_here")
def test_the_commands_of_all_pages_work_in_the_order_of_a_reader(lab: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [line for line in LINES if lab_command(line)]
    assert len(lines) > 12
    part = (
        "pytest --fa-checkpoint='runs/*_s*.pt' --fa-frozen='runs/frozen_*.pt' --fa-shard={0}/2 --fa-report=json:part-{0}.json"
    )
    made_before = [part.format(1), part.format(2), "pytest -m fa_protocol --fa-report=json:audit.json"]
    certificates_first = sorted(dict.fromkeys(lines), key=lambda line: "verify" in line)
    control = Path("runs/frozen_dfa_s42.pt")
    for line in [*made_before, *certificates_first]:
        before = control.read_bytes()
        if line.startswith("fadiag control"):
            control.unlink()  # none is written over another
        code, shown = run(lab, line, monkeypatch)
        control.write_bytes(before)
        assert code in ENDED_WELL, f"{line}\n{shown}"
        assert " error" not in shown.splitlines()[-1] if shown else True, f"{line}\n{shown}"


def test_the_pre_commit_hook_of_the_page_refuses_a_pitfall(lab: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its entry with the names of files behind it, as pre-commit calls it."""
    hooks = (ROOT / ".pre-commit-hooks.yaml").read_text("utf-8")
    (name,), (entry,) = (re.findall(rf"^[- ]+{key}: (.+)$", hooks, re.MULTILINE) for key in ("id", "entry"))
    assert f"    - id: {name}\n" in (ROOT / "docs" / "recipes.md").read_text("utf-8")
    Path("src/bad.py").write_text("def size(grad):\n    return grad.norm(-1)\n")
    assert run(lab, f"{entry} src/evaluate/gamma.py", monkeypatch)[0] == pytest.ExitCode.OK
    code, shown = run(lab, f"{entry} src/evaluate/gamma.py src/bad.py", monkeypatch)
    assert code == pytest.ExitCode.TESTS_FAILED and "src/bad.py:2: pitfall 1" in shown


def test_the_action_has_the_inputs_that_the_page_gives_it() -> None:
    (given,) = re.findall(
        r"- uses: pytest-fadiag/.*?\n  with:\n(.*?)```", (ROOT / "docs/recipes.md").read_text("utf-8"), re.DOTALL
    )
    inputs = (ROOT / "action.yml").read_text("utf-8").partition("inputs:")[2].partition("runs:")[0]
    named = set(re.findall(r"^    ([\w-]+):", given, re.MULTILINE))
    assert named and named <= set(re.findall(r"^  ([\w-]+):", inputs, re.MULTILINE))


@pytest.mark.parametrize("target", sorted({line.split()[1] for line in WORDS if line.startswith("make ")}))
def test_make_knows_what_to_do(target: str) -> None:
    subprocess.run(["make", "--dry-run", target], cwd=ROOT, check=True, capture_output=True)


@pytest.mark.parametrize("said", [*NEEDS, *ELSEWHERE])
def test_what_is_not_run_is_still_on_a_page(said: str) -> None:
    assert any(said in line for line in WORDS)
    assert said not in ELSEWHERE or (ROOT / ELSEWHERE[said]).exists()


def test_every_command_is_run_or_told_why_not() -> None:
    for line in WORDS - BARE:
        assert lab_command(line) or any(part in line for part in [*NEEDS, *ELSEWHERE]), line


def _python(page: str) -> list[str]:
    path = next(path for path in PAGES if path.name == page and path.parent.name in ("docs", ROOT.name))
    return [code for language, code in FENCED.findall(path.read_text("utf-8")) if language == "python"]


@pytest.mark.parametrize("page", ["audit.md", "training.md"])
def test_the_python_of_a_page_runs(lab: pytest.Pytester, page: str) -> None:
    net = network(d_in=3072, d=8, blocks=2, classes=10)
    batches = [(torch.randn(256, 3072), torch.arange(256) % 10)]
    space = {"net": net, "model": net, "batches": batches, "test_loader": batches, "config": {}, "epochs": 1}
    space |= {"train": lambda model: None, "evaluate": lambda model: 0.5}
    space |= {"Bs": [torch.randn(8, 10)] * 2, "dfa_credit": lambda model, x, y, Bs: [torch.randn(len(y), len(B)) for B in Bs]}
    for name in ("dfa_s42.jsonl",):
        Path("runs", name).unlink(missing_ok=True)
    for code in _python(page):
        if "integrations" not in code:  # those are in tests/integrations
            exec(code.replace("guard.record(epoch,", "guard.record(epoch + 1,"), space)


class Projected(torch.autograd.Function):
    """DRTP: the identity, and on the way back targets through a fixed matrix in the place of the gradient."""

    @staticmethod
    def forward(ctx: Any, h: torch.Tensor, targets: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(targets, B)
        return h.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        targets, B = ctx.saved_tensors
        return -targets @ B, None, None


class Block(torch.nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.LayerNorm(d), torch.nn.Linear(d, d), torch.nn.GELU(), torch.nn.Linear(d, d))
        self.register_buffer("B", torch.randn(10, d))


class DRTP(torch.nn.Module):
    """Keeps the one-hot targets of a batch in an attribute, which nothing but its training loop sets."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.blocks = torch.nn.Linear(20, 16), torch.nn.ModuleList(Block(16) for _ in range(3))
        self.out_ln, self.out_head = torch.nn.LayerNorm(16), torch.nn.Linear(16, 10)
        self.targets: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.embed(x)
        for block in self.blocks:
            h = h + block.inner(h)
            h = h if self.targets is None else Projected.apply(h, self.targets, block.B)  # type: ignore[no-untyped-call]
        logits: torch.Tensor = self.out_head(self.out_ln(h))
        return logits


def test_the_credit_of_the_page_is_what_drtp_sends_back_to_its_states() -> None:
    torch.manual_seed(0)
    net, x, y = DRTP().double(), torch.randn(128, 20, dtype=torch.float64), torch.arange(128) % 10
    space: dict[str, Any] = {}
    exec(_python("own-backward.md")[0].replace(".float()", ".double()"), space)
    seen: list[torch.Tensor] = []
    for block in net.blocks:  # the credit of a block output acts on what the block adds: its last layer gets it as it is
        block.inner.register_full_backward_hook(lambda module, into, out: seen.insert(0, out[0]))
    net.targets = torch.nn.functional.one_hot(y, 10).double()
    torch.nn.functional.cross_entropy(net(x), y, reduction="sum").backward()
    for given, sent in zip(space["credit"](net, x, y, {}), seen, strict=True):
        torch.testing.assert_close(given, sent)
    net.targets = None
    report = diagnose(
        model=net.float(),
        eval_batches=[(x.float(), y)] * 2,
        credit=lambda model, x, y: [-torch.nn.functional.one_hot(y, 10).float() @ block.B for block in model.blocks],
    )
    assert report.credit is not None and report.credit.sites == ("h_1", "h_2", "h_3")
