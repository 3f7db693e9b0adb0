"""A certificate measured again: what reproduces, what was changed, and what is only elsewhere."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from builders import healthy, row
from repo import Repo

from pytest_fadiag import AuditError
from pytest_fadiag.command import main
from pytest_fadiag.load.digests import file_digest
from pytest_fadiag.load.sources import DataSpec
from pytest_fadiag.verify import Comparison, _differences, find_data, verify

BP, DFA = "runs/bp_s42.pt", "runs/dfa_s42.pt"
REPRODUCED = "2 of 2 results reproduce; largest relative difference 0e+00"


@pytest.fixture
def certified(repo: Repo) -> Path:
    """A repo with the certificate of its audit."""
    done = repo.run("--fa-checkpoint=runs/*_s42.pt", "--fa-frozen=0.3", "--fa-only", "--fa-report=certificate:certificate")
    assert (repo.path / "certificate" / "audit.html").is_file(), done.outlines
    return repo.path


def test_what_nobody_touched_reproduces_wherever_the_files_lie(
    certified: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("reviewer")
    shutil.move(certified / "runs", elsewhere / "unpacked")
    shutil.move(certified / "data.npz", elsewhere / "data.npz")
    shutil.move(certified / "certificate", elsewhere / "certificate")
    command = [sys.executable, "-m", "pytest_fadiag", "verify", "certificate", "--root", "unpacked"]
    done = subprocess.run(command, cwd=elsewhere, capture_output=True, text=True, check=False)
    assert REPRODUCED in done.stdout and not done.returncode, done.stdout + done.stderr


@pytest.mark.usefixtures("verify_here")
def test_data_outside_of_the_folder_is_found_at_its_path_and_else_by_its_digest(
    repo: Repo, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    outside = tmp_path_factory.mktemp("datasets")
    shutil.move(repo.path / "data.npz", outside / "data.npz")
    repo.ini()
    options = (f"--fa-data={outside / 'data.npz'}", "--fa-frozen=0.3", "--fa-only", "--fa-report=certificate:certificate")
    repo.run("--fa-checkpoint=runs/*_s42.pt", *options)
    assert main(["verify", "certificate", "--root", "/"]) == 0
    assert REPRODUCED in capsys.readouterr().out
    (outside / "unpacked").mkdir()
    shutil.move(outside / "data.npz", outside / "unpacked" / "images.npz")
    assert main(["verify", "certificate", "--root", str(outside)]) == 0
    assert REPRODUCED in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["fashion-mnist", "cifar10", "folder"])
@pytest.mark.parametrize("root", [".", "there", "there/renamed", "there/renamed/{inside}"])
def test_a_folder_of_data_is_found_where_it_lies_under_a_root(kind: str, root: str, tmp_path: Path) -> None:
    inside = {"fashion-mnist": "FashionMNIST/raw", "cifar10": "cifar-10-batches-py", "folder": "."}[kind]
    names = {
        "fashion-mnist": ["FashionMNIST/raw/t10k-images-idx3-ubyte", "FashionMNIST/raw/t10k-labels-idx1-ubyte"],
        "cifar10": ["cifar-10-batches-py/test_batch"],
        "folder": ["test/cat/1.png", "test/dog/1.png"],
    }[kind]
    for folder, content in (("there/renamed", "these"), ("there/others", "others")):
        for name in names:
            place = tmp_path / folder / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(content + name)
    digest = DataSpec.parse(f"{kind}:{tmp_path / 'there' / 'renamed'}").digest()
    found = find_data(f"{kind}:/no/such/{kind}", [tmp_path / root.format(inside=inside)], digest)
    assert found == f"{kind}:{tmp_path / 'there' / 'renamed'}"


def test_nobody_looks_for_data_that_is_at_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data.npz").write_text("these")
    monkeypatch.setattr("pytest_fadiag.verify.os.walk", lambda root: pytest.fail("all of the disk, with --root /"))
    digest = DataSpec.parse(str(tmp_path / "data.npz")).digest()
    assert find_data(str(tmp_path / "data.npz"), [Path("/")], digest) == str(tmp_path / "data.npz")


def test_changed_data_at_its_path_is_taken_where_there_is_no_other(tmp_path: Path) -> None:
    (tmp_path / "data.npz").write_text("changed")
    assert find_data("data.npz", [tmp_path], "0" * 64) == str(tmp_path / "data.npz")
    with pytest.raises(
        AuditError, match=r"the test data is not there, or was changed: neither at /no/data.npz nor by its digest"
    ):
        find_data("/no/data.npz", [tmp_path], "0" * 64)


@pytest.mark.usefixtures("verify_here")
def test_a_control_far_above_the_root_is_linked_nowhere_but_in_the_copy(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    deep = repo.path.joinpath(*"abcdef")
    shutil.copytree(repo.path / "runs", deep / "runs")
    (deep / "pytest.ini").write_text("[pytest]\n")
    monkeypatch.chdir(deep)
    named = ("--fa-checkpoint=runs/bp_s42.pt", f"--fa-data={repo.path}/data.npz", f"--fa-frozen={repo.path}/controls/*.pt")
    done = repo.run("--fa-only", *named, "--fa-diagnostics=ad", "--fa-report=certificate:certificate")
    assert '"../../../../../../controls/' in (deep / "certificate" / "audit.json").read_text("utf-8"), done.outlines
    assert main(["verify", "certificate"]) == 0
    assert "1 of 1 results reproduce" in capsys.readouterr().out


@pytest.mark.usefixtures("verify_here")
def test_checkpoints_outside_of_the_root_are_found_at_their_paths_and_else_under_a_root(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their ids are only the ends of their paths, and a control may have the name of a checkpoint."""
    inside = repo.path / "inside"
    for name in ("one", "two", "controls"):
        (repo.path / name).mkdir(exist_ok=True)
    shutil.copy(repo.path / "runs" / "bp_s42.pt", repo.path / "one" / "net.pt")
    shutil.copy(repo.path / "runs" / "dfa_s42.pt", repo.path / "two" / "net.pt")
    shutil.copy(repo.path / "runs" / "bp_s123.pt", repo.path / "two" / "alone.pt")
    shutil.copy(repo.path / "controls" / "frozen_bp_s42.pt", repo.path / "controls" / "alone.pt")
    inside.mkdir()
    (inside / "pytest.ini").write_text("[pytest]\n")
    monkeypatch.chdir(inside)
    named = ("--fa-checkpoint=../one/net.pt", "--fa-checkpoint=../two", "--fa-data=../data.npz", "--fa-frozen=../controls/*.pt")
    done = repo.run("--fa-only", *named, "--fa-diagnostics=ad", "--fa-report=certificate:certificate")
    assert "FA audit of 3 checkpoints" in done.stdout.str()
    assert main(["verify", "certificate"]) == 0
    assert "3 of 3 results reproduce" in capsys.readouterr().out
    away = repo.path / "moved" / "away"
    shutil.copytree(repo.path / "one", away / "one")
    shutil.move(inside / "certificate", away / "certificate")
    shutil.rmtree(repo.path / "two")
    shutil.rmtree(repo.path / "runs")
    monkeypatch.chdir(away)
    assert main(["verify", "certificate", f"--root={repo.path}"]) == 1
    said = capsys.readouterr().out
    assert "✗ ../two/net.pt: no file with SHA-256" in said and "one/net.pt is another (" in said
    assert "1 of 3 results reproduce" in said


def test_a_forged_path_writes_nothing_outside_of_the_copy(certified: Path) -> None:
    document, forged = certified / "certificate" / "audit.json", certified / "forged" / "bp_s42.pt"
    document.write_text(document.read_text("utf-8").replace('"runs/bp_s42.pt": "', f'"{forged}": "'), "utf-8")
    with pytest.raises(AuditError, match="names a file by no path from its root folder"):
        verify(document, [certified])
    assert not forged.parent.exists()


@pytest.mark.parametrize("option", ["model", "credit", "unsafe-load", "data"])
def test_no_option_of_a_certificate_runs_code(certified: Path, option: str) -> None:
    document = certified / "certificate" / "audit.json"
    content = json.loads(document.read_text("utf-8"))
    content["origin"]["options"][option] = ["evil:run"]
    document.write_text(json.dumps(content), "utf-8")
    with pytest.raises(AuditError, match="asks for code of its author"):
        verify(document, [certified])


def test_nothing_around_the_files_of_a_certificate_runs_and_nothing_is_written(certified: Path) -> None:
    """Not what Python or pytest would import by its name, and no report at a path that the certificate names."""
    document, trace = certified / "certificate" / "audit.json", certified / "trace"
    for name in ("sitecustomize.py", "conftest.py", "runs/conftest.py"):
        (certified / name).write_text(f"open({str(trace)!r}, 'w')\n", "utf-8")
    content = json.loads(document.read_text("utf-8"))
    content["origin"]["options"]["report"] = [f"markdown:{trace}"]
    document.write_text(json.dumps(content), "utf-8")
    assert verify(document, [certified]) == 0
    content["origin"]["files"]["conftest.py"] = file_digest(certified / "conftest.py")
    document.write_text(json.dumps(content), "utf-8")
    with pytest.raises(AuditError, match="would run or obey"):
        verify(document, [certified])
    assert not trace.exists()


@pytest.mark.usefixtures("verify_here")
def test_a_changed_weight_and_changed_data_are_told(certified: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = certified / "runs" / "dfa_s42.pt"
    content = torch.load(path, weights_only=True)
    next(iter(content.get("state_dict", content).values())).view(-1)[0] += 1
    torch.save(content, path)
    data = dict(np.load(certified / "data.npz"))
    data["x"] = data["x"].copy()
    data["x"].reshape(-1)[0] += 1
    np.savez(certified / "data.npz", **data)
    assert main(["verify", "certificate"]) == 1
    said = capsys.readouterr().out
    assert "✗ runs/dfa_s42.pt: changed: SHA-256" in said
    assert "✗ runs/bp_s42.pt: the test data is not what was measured on" in said
    assert "0 of 2 results reproduce" in said


def test_an_audit_that_does_not_say_what_it_was_measured_from_is_refused(certified: Path) -> None:
    document = certified / "certificate" / "audit.json"
    document.write_text(document.read_text("utf-8").replace('"origin": {', '"nothing": {'), "utf-8")
    with pytest.raises(AuditError, match="does not say what it was measured from"):
        verify(document, [])


def _added(content: dict[str, Any]) -> None:
    """A row of a file that is nowhere."""
    row = copy.deepcopy(next(row for row in content["summary"] if row["checkpoint"] == BP))
    content["reports"]["runs/bp_s99.pt"] = {**copy.deepcopy(content["reports"][BP]), "seed": 99, "headline_acc": 0.99}
    content["summary"].append({**row, "checkpoint": "runs/bp_s99.pt", "seed": 99})


def _renamed(content: dict[str, Any]) -> None:
    content["reports"]["runs/dfa_.pt"] = content["reports"].pop(DFA)
    next(row for row in content["summary"] if row["checkpoint"] == DFA)["checkpoint"] = "runs/dfa_.pt"


def _removed(content: dict[str, Any]) -> None:
    del content["reports"][DFA]
    content["summary"] = [row for row in content["summary"] if row["checkpoint"] != DFA]


def _passed(content: dict[str, Any]) -> None:
    row = next(row for row in content["summary"] if row["checkpoint"] == DFA)
    row["outcomes"] = dict.fromkeys(row["outcomes"], "passed")


@pytest.mark.usefixtures("verify_here")
@pytest.mark.parametrize(
    ("forge", "said"),
    [
        (_added, ["✗ runs/bp_s99.pt: no file of the certificate is its own, so it cannot be verified", "2 of 3 results"]),
        (_renamed, ["✗ runs/dfa_.pt: no file of the certificate", "✗ runs/dfa_s42.pt: listed and not among the results"]),
        (_removed, ["✗ runs/dfa_s42.pt: listed and not among the results", "1 of 1 results"]),
        (_passed, ["✗ runs/dfa_s42.pt: (a) passed by the certificate, and fires", "1 of 2 results"]),
        (
            lambda content: content["reports"][BP].update(residual_norms=[1.0, 1.0], bp_grad_norms=[1e-3, 1e-3]),
            ["✗ runs/bp_s42.pt: residual_norms differs by inf", "1 of 2 results"],
        ),
        (
            lambda content: content["reports"][BP]["control"]["accuracy"].update(images=300, correct=None),
            ["✗ runs/bp_s42.pt: control.accuracy.images differs by", "1 of 2 results"],
        ),
        (
            lambda content: content["reports"][BP]["control"].update(
                doubts=[{"kind": "trained", "detail": "its config says frozen: False"}]
            ),
            ["✗ runs/bp_s42.pt: the verdict is «", "1 of 2 results"],
        ),
        (
            lambda content: content["reports"][BP]["thresholds"].update(h_norm_explosion_ratio=60.0),
            ["✗ runs/bp_s42.pt: its thresholds is not what is recorded", "h_norm_explosion_ratio 60.0 (published: 50.0)"],
        ),
    ],
)
def test_what_was_edited_is_told(repo: Repo, forge: Any, said: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    repo.run("--fa-checkpoint=runs/*_s42.pt", "--fa-frozen=controls/*.pt", "--fa-only", "--fa-report=json:a.json")
    assert main(["verify", "a.json"]) == 0, "controls that no row uses are no rows that were removed"
    content = json.loads((repo.path / "a.json").read_text("utf-8"))
    forge(content)
    (repo.path / "a.json").write_text(json.dumps(content), "utf-8")
    capsys.readouterr()
    assert main(["verify", "a.json"]) == 1
    out = capsys.readouterr().out
    assert all(text in out for text in said), out


@pytest.mark.usefixtures("verify_here")
def test_a_margin_over_seeds_is_judged_again_from_its_rows(repo: Repo, capsys: pytest.CaptureFixture[str]) -> None:
    audited = ("--fa-checkpoint=runs/bp_s*.pt", "--fa-frozen=controls/*.pt", "--fa-only", "--fa-report=json:a.json")
    repo.run(*audited, "--fa-threshold=margin_pp=-60")
    assert main(["verify", "a.json"]) == 0
    assert "note: judged by other thresholds than the published ones: frozen_acc_margin_pp -60.0" in capsys.readouterr().out
    honest = json.loads((repo.path / "a.json").read_text("utf-8"))

    def edited(**changes: Any) -> str:
        content = copy.deepcopy(honest)
        (row,) = content["seed_margins"]
        row["margin"]["interval"].update(changes)
        content["seed_margins"] = [row] if changes else []
        (repo.path / "e.json").write_text(json.dumps(content), "utf-8")
        assert main(["verify", "e.json"]) == (1 if changes else 0)
        return capsys.readouterr().out

    assert "✗ bp: interval.low of its margin over seeds is not what its rows give" in edited(low=-59.0)
    assert "✗ bp: the margin over seeds is FIRE, and by its rows PASS" in edited(low=-90.0, high=-80.0)
    assert "note: bp: its margin over seeds is not among the results; measured again it is PASS" in edited()


def test_norms_are_compared_by_their_share_and_cosines_absolutely() -> None:
    one = {"bp_grad_norms": [1e-9, 2.0], "cross_batch_stability": 0.001, "companions": {"sample_invariance": 0.0}}
    other = {"bp_grad_norms": [1.1e-9, 2.0], "cross_batch_stability": 0.002, "companions": {"sample_invariance": 1e-4}}
    found = {name: difference for difference, name in _differences(one, other)}
    assert found["bp_grad_norms[0]"] == pytest.approx(0.1 / 1.1)
    assert found["cross_batch_stability"] == pytest.approx(1e-3)
    assert found["companions.sample_invariance"] == pytest.approx(1e-4)
    for recorded, measured in (
        (1.0, None), (None, 1.0), ("NaN", 1.0), (1.0, "NaN"), ([1.0], [1.0, 2.0]), ([1.0], None), ({"a": 1.0}, None)
    ):  # fmt: skip
        assert (float("inf"), "h") in list(_differences({"h": recorded}, {"h": measured}))
    assert list(_differences({"h": "one", "b": True}, {"h": "other", "b": False})) == []


def test_how_closely_the_reference_was_proven_is_rounding_and_no_number_of_the_network() -> None:
    then, now = (
        row(healthy(reference_error=error, bp_grad_norms=[9e-6, 8e-6, 7e-6, 5e-6, last], environment={"threads": threads}))
        for error, last, threads in ((2e-9, 4e-6, 2), (3e-9, 4.00001e-6, 1))
    )
    compared = Comparison.of("net.pt", then, now)
    assert not compared.problem and compared.elsewhere == "threads 2 → 1"
    assert compared.difference == pytest.approx(2.5e-6, rel=1e-3) and compared.number == "bp_grad_norms[4]"
