"""From a path to a report: what is measured once, what is kept, and what is measured again."""

from __future__ import annotations

import errno
import importlib
import json
import os
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from pytest_fadiag import AuditError, Control, ResidualMLP, Score, audit, diagnose
from pytest_fadiag.auditor import Auditor, Overrides
from pytest_fadiag.cache import Cache
from pytest_fadiag.judge.diagnostics import select
from pytest_fadiag.load.controls import parse_controls
from pytest_fadiag.load.data import DataSet, load_data
from pytest_fadiag.load.setup import Setup
from pytest_fadiag.measure import run
from pytest_fadiag.show.compare import compare

FACTORY = """
import torch
from pytest_fadiag import ResidualMLP

def make():
    return ResidualMLP(8, 12, 2, 3)
"""


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A checkpoint, a control and 1,400 samples of three classes."""
    generator = torch.Generator().manual_seed(0)
    x, noise = torch.randn(1400, 8, generator=generator), torch.randn(1400, generator=generator)
    y = ((x[:, 0] * x[:, 1] + 0.3 * noise) > 0).long() + (x[:, 2] > 1).long()
    numpy.savez(tmp_path / "data.npz", x=x.numpy(), y=y.numpy())
    for seed, name in enumerate(("bp_s1", "frozen_bp_s1")):
        torch.manual_seed(seed)
        state = ResidualMLP(8, 12, 2, 3).state_dict()
        config = {"method": "fa", "seed": 1, "frozen": name.startswith("frozen")}
        torch.save({"state_dict": state, "config": config}, tmp_path / f"{name}.pt")
    return tmp_path


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The metrics of each measurement that is really made."""
    made: list[list[str]] = []
    measure = run.measure

    def counted(source: Any, metrics: Any, **rest: Any) -> Any:
        made.append(list(metrics))
        return measure(source, metrics, **rest)

    monkeypatch.setattr(run, "measure", counted)
    return made


def auditor(repo: Path, **setup: Any) -> Auditor:
    setup = {"data": "data.npz", "base": repo, **setup}
    return Auditor(Setup(**setup), cache=Cache(repo / "cache"))


def report(repo: Path, keys: str = "abc", by: Auditor | None = None, **rest: Any) -> Any:
    return (by or auditor(repo)).report(repo / "bp_s1.pt", diagnostics=select(keys), **rest)


def test_a_checkpoint_is_measured_once_and_then_kept(repo: Path, passes: list[list[str]]) -> None:
    first = report(repo)
    later = auditor(repo)
    assert report(repo, by=later).to_dict() == first.to_dict() and len(passes) == 1
    assert later.from_cache == {repo / "bp_s1.pt"}


def test_what_is_missing_is_added_and_the_rest_is_not_measured_again(
    repo: Path, passes: list[list[str]]
) -> None:
    report(repo, "ab")
    assert report(repo, "abe").depth is not None
    assert passes[1] == ["depth"]
    assert report(repo, "abe").depth is not None and len(passes) == 2


@pytest.mark.parametrize("keys", ["a", "b", "d", "e", "ag"])
def test_what_an_earlier_audit_asked_for_is_not_shown(repo: Path, keys: str) -> None:
    alone = report(repo, keys, Auditor(Setup(data="data.npz", base=repo)), control=0.5)
    report(repo, "abceg")
    assert compare(alone, report(repo, keys, control=0.5)).problems == []


def test_what_another_worker_added_is_not_measured_again(
    repo: Path, passes: list[list[str]]
) -> None:
    ours, theirs = auditor(repo), auditor(repo)
    report(repo, "ab", by=ours)
    report(repo, "abe", by=theirs)
    assert report(repo, "abe", by=ours).depth is not None and len(passes) == 2


@pytest.mark.parametrize("changed", ["weights", "data", "code", "setting"])
def test_what_the_numbers_depend_on_makes_them_be_measured_again(
    repo: Path, passes: list[list[str]], changed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(repo)
    (repo / f"nets_{changed}.py").write_text(FACTORY, "utf-8")
    (repo / "layers.py").write_text("", "utf-8")
    setup = {"model": f"nets_{changed}:make"}
    report(repo, by=auditor(repo, **setup))
    if changed == "weights":
        content = torch.load(repo / "bp_s1.pt", weights_only=True)
        content["state_dict"]["embed.weight"][0, 0] += 1
        torch.save(content, repo / "bp_s1.pt")
    elif changed == "data":
        data = dict(numpy.load(repo / "data.npz"))
        data["x"][0, 0] += 1
        numpy.savez(repo / "data.npz", **data)
    elif changed == "code":
        (repo / "layers.py").write_text("x = 1", "utf-8")
    else:
        setup["normalize"] = "0.1/2"
    report(repo, by=auditor(repo, **setup))
    assert len(passes) == 2


LOSSES = """
def huber(outputs, y):
    return outputs.gather(1, y[:, None]).squeeze(1).square()

def decay(model, x, y):
    for parameter in model.parameters():
        parameter.data *= 0.9

def second(model, x, y):
    return model(x)[:, [2, 0, 1]]
"""


@pytest.mark.parametrize(
    ("config", "option", "loss", "assumed", "caveat"),
    [
        (None, None, "cross-entropy", True, ""),
        ("nn.CrossEntropyLoss()", None, "cross-entropy", False, ""),
        ("MSELoss", None, "squared error", False, ""),
        ("bce_with_logits", None, "binary cross-entropy", False, ""),
        ("mse", "mse", "squared error", False, ""),
        ("mse", "ce", "cross-entropy", False, "names the loss 'mse'; ce was used"),
        ("hinge", None, "cross-entropy", True, "names the loss 'hinge'; the usual one was used"),
        (0.31, None, "cross-entropy", True, ""),
        ("mse", "losses:huber", "losses:huber", False, ""),
    ],
)
def test_the_loss_is_what_was_given_else_what_the_config_names(
    repo: Path,
    config: Any,
    option: str | None,
    loss: str,
    assumed: bool,
    caveat: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(repo)
    (repo / "losses.py").write_text(LOSSES, "utf-8")
    content = torch.load(repo / "bp_s1.pt", weights_only=True)
    content["config"] |= {"activation": "gelu", **({} if config is None else {"loss": config})}
    torch.save(content, repo / "bp_s1.pt")
    made = report(repo, "b", by=auditor(repo, loss=option))
    assert (made.loss, made.loss_assumed) == (loss, assumed)
    assert "; ".join(made.caveats).count(caveat or "loss") == bool(caveat)


@pytest.mark.parametrize(
    "changed", [{"loss": "mse"}, {"loss": "losses:huber"}, "forward", "task", "step"]
)
def test_loss_task_forward_and_step_are_part_of_what_is_kept(
    repo: Path, passes: list[list[str]], changed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(repo)
    (repo / "losses.py").write_text(LOSSES, "utf-8")
    named = {
        "forward": {"forward": "losses:second"},
        "task": {"task": "classes"},
        "step": {"step": "losses:decay"},
    }
    setup = changed if isinstance(changed, dict) else named[changed]
    plain, other = report(repo, "b"), report(repo, "b", by=auditor(repo, **setup))
    assert (plain.bp_grad_norms == other.bp_grad_norms) is (changed in ("task", "step"))
    report(repo, "b", by=auditor(repo, **setup))
    assert len(passes) == 2
    (repo / "losses.py").write_text(LOSSES + "# changed", "utf-8")
    report(repo, "b", by=auditor(repo, **setup))
    assert len(passes) == 3


def test_what_calls_the_network_gets_images_as_the_data_has_them(repo: Path) -> None:
    arrays = numpy.load(repo / "data.npz")
    numpy.savez(repo / "images.npz", x=arrays["x"].reshape(-1, 1, 2, 4), y=arrays["y"])
    shapes = set()

    def forward(model: Any, x: torch.Tensor, y: torch.Tensor) -> Any:
        shapes.add(x.shape[1:])
        return model(x.flatten(1))

    images = str(repo / "images.npz")
    given = report(repo, "eg", by=auditor(repo, data=images, train=images, forward=forward))
    assert shapes == {(1, 2, 4)} and given.depth.training == "images.npz (train)"
    flattened = report(repo, "eg", by=auditor(repo, data=images, train=images))
    assert given.depth.probes == flattened.depth.probes


def test_data_of_another_shape_is_refused_in_words(repo: Path) -> None:
    numpy.savez(repo / "wide.npz", x=numpy.zeros((300, 3, 4, 4), "f"), y=numpy.arange(300) % 3)
    with pytest.raises(
        AuditError, match="the network takes 8 values, the data has 3×4×4: the netw"
    ):
        report(repo, by=auditor(repo, data="wide.npz"))


def test_a_forward_gets_training_images_in_the_shape_of_the_test_images(repo: Path) -> None:
    data = load_data("data.npz", base=repo)
    images = DataSet(data.x.view(-1, 1, 2, 4), data.y, "images")
    shapes = set()

    def forward(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        shapes.add(tuple(x.shape[1:]))
        return model(x)

    audit(repo / "bp_s1.pt", data=images, train=images, forward=forward)
    assert shapes == {(1, 2, 4)}


def test_what_a_fixture_gives_is_measured_and_never_stored(
    repo: Path, passes: list[list[str]]
) -> None:
    torch.manual_seed(5)
    network, by = ResidualMLP(8, 12, 2, 3), auditor(repo)
    own = report(repo, by=by, overrides=Overrides(network=network))
    assert report(repo, by=auditor(repo)).residual_norms != own.residual_norms
    assert len(passes) == 2
    x, y = load_data("data.npz", base=repo).x, load_data("data.npz", base=repo).y
    assert own.residual_norms == diagnose(network, [(x, y)]).residual_norms


def test_data_of_a_fixture_are_the_twins_too(repo: Path) -> None:
    data = load_data(str(repo / "data.npz"))
    rules: dict[str, Any] = {"control": 0.4, "twins": [repo / "frozen_bp_s1.pt"]}
    expected = report(repo, "abcdg", **rules)
    assert expected.twin is not None
    no_data = auditor(repo, data=None)
    given = report(repo, "abcdg", no_data, overrides=Overrides(data=data), **rules)
    assert given.twin == expected.twin and given.verdict == expected.verdict
    model = ResidualMLP(8, 12, 2, 3)
    given = report(repo, "abcdg", overrides=Overrides(network=model), **rules)
    assert given.twin is None


def test_a_broken_or_forged_entry_is_measured_again(repo: Path, passes: list[list[str]]) -> None:
    report(repo)
    (entry,) = (repo / "cache").glob("*.json")
    whole = entry.read_bytes()
    forged = [b"{", b"[]", json.dumps({"report": {}, "metrics": "a"}).encode()]
    for place in range(0, len(whole), len(whole) // 8):
        flipped = bytearray(whole)
        flipped[place] ^= 1
        forged.append(bytes(flipped))
    for count, content in enumerate(forged, 2):
        entry.write_bytes(content)
        report(repo)
        assert len(passes) == count
    entry.rename(entry.with_name(f"{'0' * 40}.json"))
    assert Cache(repo / "cache").get("0" * 40) is None, "an entry under the key of another"


WHOLE = """
from pytest_fadiag import ResidualMLP

class Net(ResidualMLP):
    pass
"""


def test_a_class_outside_the_root_is_measured_and_not_kept(
    repo: Path, passes: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, is_kept in (("elsewhere", False), ("root/pkg/build", True)):
        name = f"whole_{folder[:4]}"
        place = repo / folder / f"{name}.py"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(WHOLE, "utf-8")
        monkeypatch.syspath_prepend(place.parent)
        torch.manual_seed(1)
        torch.save(importlib.import_module(name).Net(8, 12, 2, 3), repo / "whole.pt")
        for _ in range(2):
            monkeypatch.delitem(sys.modules, name, raising=False)
            setup = Setup(data=str(repo / "data.npz"), base=repo / "root", unsafe=True)
            by = Auditor(setup, cache=Cache(repo / "cache"))
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                by.report(repo / "whole.pt", diagnostics=select("a"))
            texts = [str(warning.message) for warning in caught]
            unkept = f"not kept for the next run: code outside the root folder was loaded, {place}"
            assert [unkept in text for text in texts].count(True) == int(not is_kept)
        assert len(passes) == (3 if is_kept else 2)


def test_a_file_that_is_swapped_while_it_is_read_is_refused(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after, the digest is the same."""
    other = (repo / "frozen_bp_s1.pt").read_bytes()
    data = dict(numpy.load(repo / "data.npz"))
    numpy.savez(repo / "other.npz", x=data["x"] + 1, y=data["y"])
    contents = {"bp_s1.pt": other, "data.npz": (repo / "other.npz").read_bytes()}
    for name, content in contents.items():
        with monkeypatch.context() as patch:
            patch.setattr(
                "pytest_fadiag.load.names.read_bytes",
                lambda path, name=name, content=content: (
                    content if path.name == name else path.read_bytes()
                ),
            )
            with pytest.raises(AuditError, match=f"{name}: changed while it was measured"):
                report(repo)
    assert report(repo).residual_norms == report(repo, by=auditor(repo)).residual_norms


def test_a_cache_that_cannot_be_written_is_said_once(repo: Path) -> None:
    (repo / "file").write_text("", "utf-8")
    by = Auditor(Setup(data="data.npz", base=repo), cache=Cache(repo / "file" / "x"))
    with pytest.warns(UserWarning, match="not kept") as said:
        assert report(repo, by=by).residual_norms
    assert len(said) == 1


def test_a_full_disk_costs_the_cache_and_not_the_audit_whatever_warnings_are(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("pytest_fadiag.cache.write_atomically", full)
    by = auditor(repo)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("error")
        assert report(repo, by=by).residual_norms and report(repo, "b", by=by).bp_grad_norms
    assert [str(warning.message) for warning in caught] == [
        f"measurements are not kept for the next run: {repo}/cache: No space left on device"
    ]


def test_an_error_names_the_file_and_is_raised_again_without_measuring(repo: Path) -> None:
    (repo / "bp_s1.pt").write_bytes(b"nothing")
    by = auditor(repo)
    for _ in range(2):
        with pytest.raises(AuditError, match=r"bp_s1\.pt"):
            report(repo, by=by)


def test_a_control_file_is_evaluated_on_the_same_images_and_paired(repo: Path) -> None:
    controls = parse_controls([str(repo / "frozen_bp_s1.pt")])
    made = report(repo, "d", control=controls)
    assert made.control.source == "frozen_bp_s1.pt" and made.control.score.images == 1400
    assert made.control.score.order == made.score.order and made.control.score.correct


def test_a_control_is_evaluated_only_where_its_margin_is_asked_for(
    repo: Path, passes: list[list[str]]
) -> None:
    controls = parse_controls([f"{repo}/frozen_bp_s1.pt"])
    auditor = Auditor(Setup(data=f"{repo}/data.npz"))
    report = auditor.report(repo / "bp_s1.pt", diagnostics=select("abc"), control=controls)
    assert len(passes) == 1 and report.control is None and report.depth is None


def test_without_a_usable_control_depth_utility_stands_in(repo: Path) -> None:
    at_chance = Control(Score(1 / 3, 1400))
    assert report(repo, "abcde", control=at_chance).depth is not None
    assert report(repo, "abcde", control=0.61).depth is not None
    audited = Control(Score.of([image < 854 for image in range(1400)]))
    beside_a_sound_one = report(repo, "abcde", control=audited)
    assert beside_a_sound_one.depth is None
    finding = beside_a_sound_one.finding("e")
    assert finding.headline == "not needed: a sound control decides"
    assert report(repo, "abcde", control=audited, listed=True).depth is not None


def test_a_control_that_fits_nothing_is_an_error_of_frozen_margin_alone(repo: Path) -> None:
    made = report(repo, "ad", control=parse_controls(["dfa=0.3"]))
    assert "dfa" in made.finding("d").error and made.finding("a").measured


def test_audit_gives_what_the_auditor_gives(repo: Path) -> None:
    public = audit(repo / "bp_s1.pt", data="data.npz", frozen=0.4, base=repo)
    assert public.to_dict() == report(repo, "abcdeg", control=0.4).to_dict()
    with pytest.raises(AuditError, match="percentage"):
        audit(repo / "bp_s1.pt", data="data.npz", frozen=34.9, base=repo)


DRAWN = """
import torch
from torch import nn
from pytest_fadiag import ResidualMLP

class Through(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, B):
        ctx.save_for_backward(B)
        return x @ weight.T

    @staticmethod
    def backward(ctx, gradient):
        return gradient @ ctx.saved_tensors[0], None, None

class Layer(nn.Linear):
    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs, bias=False)
        self.B = {feedback}

    def forward(self, x):
        return Through.apply(x, self.weight, self.B)

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln, self.fc = nn.LayerNorm(12), Layer(12, 12)

    def forward(self, h):
        return h + self.fc(torch.relu(self.ln(h)))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.blocks = nn.Linear(8, 12), nn.Sequential(Block(), Block())
        self.head = nn.Linear(12, 3)

    def forward(self, x):
        return self.head(self.blocks(self.embed(x)))
"""


@pytest.mark.parametrize(
    ("feedback", "drawn"),
    [("torch.randn(outputs, inputs)", True), ("nn.Buffer(torch.randn(outputs, inputs))", False)],
)
def test_feedback_that_did_not_train_the_network_is_no_credit(
    repo: Path, feedback: str, drawn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"feedback_{drawn}"
    (repo / f"{name}.py").write_text(DRAWN.replace("{feedback}", feedback), "utf-8")
    monkeypatch.syspath_prepend(repo)
    module = importlib.import_module(name)
    torch.save({"state_dict": module.Net().state_dict()}, repo / "fa_s1.pt")
    by = auditor(repo, model=f"{name}:Net")
    made = by.report(repo / "fa_s1.pt", diagnostics=select("f"))
    assert ("blocks.0.fc.B" in made.credit.problem) == drawn
    assert made.finding("f").measured != drawn


def test_a_copy_under_another_name_is_another_method(repo: Path) -> None:
    state = torch.load(repo / "bp_s1.pt", weights_only=True)["state_dict"]
    torch.save(state, repo / "bp_s1.pt")
    shutil.copy(repo / "bp_s1.pt", repo / "dfa_s2.pt")
    for name in ("bp_s1.pt", "dfa_s2.pt"):
        made = auditor(repo).report(repo / name, diagnostics=select("a"))
        assert f"{made.method_name}_s{made.seed}.pt" == made.notes.split()[0] == name
