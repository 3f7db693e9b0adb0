"""What networks were given is stated, and what was assumed is noted: on the terminal, in the files, by option and ini file."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from repo import Repo
from support import network

DFA = "--fa-checkpoint=runs/dfa_s42.pt"
BP = "--fa-checkpoint=runs/bp_s*.pt"


@pytest.fixture
def pixels(repo: Repo) -> Repo:
    """The repo with images of bytes for its test data, and one checkpoint that says how it was trained."""
    draw = np.random.default_rng(0)
    np.savez(repo.path / "data.npz", x=draw.integers(0, 256, (300, 20), np.uint8), y=np.arange(300) % 5)
    content = {"state_dict": network().state_dict(), "config": {"method": "told", "mean": 0.5, "std": 0.5}}
    torch.save(content, repo.path / "runs" / "told_s1.pt")
    return repo


@pytest.mark.parametrize(
    ("value", "message"),
    [("usual", "*--fa-normalize: expected data, none, or MEAN/STD*"), ("0/0", "*--fa-normalize: '0/0' has a std of 0*")],
)
def test_a_value_that_is_none_ends_the_command(repo: Repo, value: str, message: str) -> None:
    result = repo.run(DFA, f"--fa-normalize={value}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([message])
    repo.ini(fa_data="data.npz", fa_normalize=value)
    result = repo.run(DFA)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*ini option fa_normalize: *"])


def test_what_was_assumed_stands_below_the_table_once(pixels: Repo) -> None:
    shown = pixels.run(BP, "--fa-checkpoint=runs/told_s1.pt").stdout.str()
    note = "note: runs/bp_s42.pt and 1 more: nothing says how the inputs were normalised in training, so of data.npz pixels in"
    assert " ".join(shown.split()).count(note) == 1
    assert "these rows differ in normalisation: mean 0.5 and std 0.5, none" in " ".join(shown.split())
    assert "nothing says" not in pixels.run(BP, "--fa-normalize=none").stdout.str()


def test_every_file_states_the_inputs(pixels: Repo) -> None:
    names = {"html": "audit.html", "markdown": "audit.md", "form": "form.md"}
    document = pixels.audit("--fa-checkpoint=runs/told_s1.pt", *(f"--fa-report={kind}:{name}" for kind, name in names.items()))
    report = document["reports"]["runs/told_s1.pt"]
    assert report["inputs"]["data"] == "data.npz"
    assert (report["inputs"]["by"], report["inputs"]["mean"], report["inputs"]["std"]) == ("checkpoint", [0.5], [0.5])
    stated = "data.npz, normalised by the checkpoint"
    for name in ("audit.html", "form.md"):
        assert stated in (pixels.path / name).read_text("utf-8").replace("\\", ""), name


def test_another_normalisation_is_measured_anew_and_the_same_is_not(pixels: Repo, measured: list[str]) -> None:
    def first_norm(*options: str) -> float:
        norms: list[float] = pixels.audit(DFA, *options)["reports"]["runs/dfa_s42.pt"]["residual_norms"]
        return norms[0]

    plain, half = first_norm("--fa-normalize=none"), first_norm("--fa-normalize=0/0.5")
    assert len(measured) == 2
    assert half > 1.5 * plain
    assert (first_norm("--fa-normalize=none"), first_norm("--fa-normalize=0/0.5")) == (plain, half)
    assert first_norm("--fa-normalize= 0 / 0.5") == half
    assert len(measured) == 2
    assert first_norm() == plain
    assert len(measured) == 3


def test_a_record_of_another_normalisation_is_said_to_be_one(pixels: Repo) -> None:
    pixels.audit(DFA, "--fa-normalize=none")
    (pixels.path / "audit.json").rename(pixels.path / "recorded.json")
    result = pixels.run(DFA, "--fa-normalize=0/0.5", "--fa-expect=recorded.json")
    shown = " ".join(result.stdout.str().split())
    assert "normalisation was none when recorded and is mean 0 and std 0.5 now" in shown


FACTORY = """
import torch
MADE = []
def make():
    MADE.append(1)
    generator = torch.Generator().manual_seed(0)
    return torch.randn(300, 20, generator=generator), torch.arange(300) % 5
"""


@pytest.mark.parametrize(
    ("digest", "passes"),
    [("", 2), ("make.digest = 'v1'", 1), ("make.digest = lambda: 'v1'", 1)],
    ids=["none", "text", "function"],
)
def test_data_of_a_factory_is_kept_where_it_says_what_identifies_it(
    repo: Repo, measured: list[str], digest: str, passes: int
) -> None:
    repo.write("mydata.py", FACTORY + digest + "\n")
    for _ in range(2):
        repo.run(DFA, "--fa-data=mydata:make")
    assert len(measured) == passes
    if digest:
        repo.write("mydata.py", FACTORY + digest.replace("v1", "version 2") + "\n")
        repo.run(DFA, "--fa-data=mydata:make")
        assert len(measured) == passes + 1


def test_data_may_bring_its_digest_itself(repo: Repo, measured: list[str]) -> None:
    whole = FACTORY.replace("return ", "from pytest_fadiag import DataSet\n    return DataSet(").replace(
        " % 5", " % 5, 'mine', digest='v1')"
    )
    repo.write("mydata.py", whole)
    for _ in range(2):
        repo.run(DFA, "--fa-data=mydata:make")
    assert len(measured) == 1
