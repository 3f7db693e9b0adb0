"""(e) in a run of pytest: when it runs, what becomes of it, and where it stands in for a control that is none."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from repo import Repo
from support import rings, trained_on_rings

from pytest_fadiag import audit, diagnose
from pytest_fadiag.judge.control import Control
from pytest_fadiag.judge.records import Accuracy

DEEP, HOLLOW, BOTH = "--fa-checkpoint=runs/deep_s1.pt", "--fa-checkpoint=runs/hollow_s1.pt", "--fa-checkpoint=runs"
USABLE, AT_CHANCE = "--fa-frozen=0.5", "--fa-frozen=0.25"


def save(path: Path, model: torch.nn.Module, method: str) -> None:
    """A checkpoint of the first seed of a method."""
    path.parent.mkdir(exist_ok=True)
    torch.save({"state_dict": model.state_dict(), "config": {"method": method, "seed": 1}}, path)


@pytest.fixture(scope="session")
def deep_and_hollow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network whose depth helps, one whose blocks are as drawn, their data, and 900 images of it."""
    folder = tmp_path_factory.mktemp("deep")
    for name, samples in (("rings.npz", 1_300), ("few.npz", 900)):
        x, y = rings(samples)
        np.savez(folder / name, x=x.numpy(), y=y.numpy())
    save(folder / "runs" / "deep_s1.pt", trained_on_rings(), "deep")
    save(folder / "runs" / "hollow_s1.pt", trained_on_rings(0), "hollow")
    return folder


@pytest.fixture
def deep(pytester: pytest.Pytester, deep_and_hollow: Path, monkeypatch: pytest.MonkeyPatch) -> Repo:
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for warm in (False, True):
        repo = Repo(pytester, deep_and_hollow)
        repo.ini(None, fa_data="rings.npz")
        if not warm and not (deep_and_hollow / ".pytest_cache").exists():
            repo.measure_once(BOTH, files=2)
    return repo


def test_without_a_control_it_runs_and_decides(deep: Repo) -> None:
    rows = deep.summary(BOTH)
    good, bad = rows["runs/deep_s1.pt"], rows["runs/hollow_s1.pt"]
    assert good["outcomes"] == {"a": "passed", "b": "passed", "c": "passed", "d": "skipped", "e": "passed"}
    assert good["verdict"] == "trustworthy"
    assert bad["outcomes"]["e"] == "failed" and bad["fired"] == "e"
    assert bad["verdict"] == "needs walk-back: depth adds nothing to read"


def test_a_failing_test_says_what_to_write_in_the_paper(deep: Repo) -> None:
    result = deep.run(HOLLOW)
    result.stdout.fnmatch_lines(
        ["*FLAG: depth adds nothing to read: every block is as a new initialisation*learnt in the blocks."]
    )
    result.stdout.fnmatch_lines(["FAILED runs/hollow_s1.pt::depth-utility - every block is as a new initialisation leaves it"])


@pytest.mark.parametrize("control", ["option", "ini", "fixture"])
def test_with_a_control_it_does_not_run_unless_somebody_asks_for_it(deep: Repo, control: str) -> None:
    options = [DEEP, *([USABLE] if control == "option" else [])]
    if control == "ini":
        deep.ini(None, fa_data="rings.npz", fa_frozen="0.5")
    if control == "fixture":
        deep.write("conftest.py", "import pytest\n@pytest.fixture\ndef fa_frozen_baseline(): return 0.5\n")
    row = deep.summary(*options)["runs/deep_s1.pt"]
    assert set(row["outcomes"]) == set("abcd") and row["verdict"] == "trustworthy"
    asked = deep.summary(*options, "--fa-diagnostics=abcde")["runs/deep_s1.pt"]
    assert asked["outcomes"]["d"] == asked["outcomes"]["e"] == "passed"


def test_the_table_the_document_and_every_file_have_it(deep: Repo) -> None:
    result = deep.run(BOTH, "--fa-report=json:audit.json", "--fa-report=markdown:audit.md", "--fa-report=html:audit.html")
    result.stdout.fnmatch_lines(["method *depth*"])
    report = json.loads((deep.path / "audit.json").read_text("utf-8"))["reports"]["runs/deep_s1.pt"]
    assert len(report["probe_accuracies"]) == len(report["null_probe_accuracies"]) == 4
    low, high = report["depth_interval_pp"]
    assert low < report["depth_utility_pp"] < high and len(report["block_change"]) == 3
    shown = f"{report['depth_utility_pp']:+.2f}"
    for name in ("audit.md", "audit.html"):
        assert shown in (deep.path / name).read_text("utf-8")


def test_what_cannot_be_measured_is_a_skip_and_an_error_for_whoever_names_it(deep: Repo) -> None:
    few = "--fa-data=few.npz"
    row = deep.summary(DEEP, few)["runs/deep_s1.pt"]
    assert row["outcomes"]["e"] == "skipped"
    assert row["verdict"] == "incomplete: frozen-margin not measured; depth-utility not measured"
    assert deep.summary(DEEP, few, "--fa-diagnostics=all")["runs/deep_s1.pt"]["outcomes"]["e"] == "skipped"
    for named in ("--fa-diagnostics=abce", "--fa-diagnostics=depth-utility"):
        result = deep.run(DEEP, few, named)
        assert result.ret == 1
        result.stdout.fnmatch_lines(["*depth-utility cannot be judged: 900 test images*1,000*"])
    deep.write(
        "test_it.py",
        """
import pytest

@pytest.mark.fa_protocol(diagnostics="e", checkpoint="runs/deep_s1.pt")
def test_depth(fa_diagnostic):
    fa_diagnostic.check()
""",
    )
    deep.run(few, "test_it.py").assert_outcomes(errors=1)


def test_a_control_that_is_none_is_replaced_by_it_in_the_test_of_the_margin(deep: Repo) -> None:
    rows = deep.summary(BOTH, AT_CHANCE)
    good, bad = rows["runs/deep_s1.pt"], rows["runs/hollow_s1.pt"]
    assert good["outcomes"] == {"a": "passed", "b": "passed", "c": "passed", "d": "passed"}
    assert good["verdict"] == "trustworthy"
    assert bad["outcomes"]["d"] == "failed" and bad["fired"] == "e"
    assert bad["verdict"] == "needs walk-back: depth adds nothing to read"
    deep.run(HOLLOW, AT_CHANCE).stdout.fnmatch_lines(
        ["FAILED runs/hollow_s1.pt::frozen-margin - *chance*; (e) depth-utility i*"]
    )
    assert deep.summary(BOTH, AT_CHANCE, "--fa-diagnostics=abcde")["runs/hollow_s1.pt"]["outcomes"] == {
        "a": "passed",
        "b": "passed",
        "c": "passed",
        "d": "skipped",
        "e": "failed",
    }


NO_CONTROL = "import pytest\n@pytest.fixture\ndef fa_frozen_baseline(): return None\n"


def test_a_fixture_that_gives_no_control_is_replaced_by_it_too(deep: Repo) -> None:
    deep.write("conftest.py", NO_CONTROL)
    rows = deep.summary(BOTH)
    (deep.path / "audit.json").rename(deep.path / "whole.json")
    good, bad = rows["runs/deep_s1.pt"], rows["runs/hollow_s1.pt"]
    assert good["outcomes"] == {"a": "passed", "b": "passed", "c": "passed", "d": "passed", "e": "passed"}
    assert good["verdict"] == "trustworthy"
    assert bad["outcomes"]["d"] == bad["outcomes"]["e"] == "failed" and bad["fired"] == "e"
    deep.run(HOLLOW).stdout.fnmatch_lines(
        ["FAILED runs/hollow_s1.pt::frozen-margin - no frozen-random control*; (e) depth-utility i*"]
    )
    deep.write("test_own.py", "def test_own(fa_report): fa_report.check()\n")
    deep.run("test_own.py", HOLLOW, "-k", "test_own").assert_outcomes(failed=1, deselected=4)
    merged = deep.summary("--fa-merge=whole.json")
    assert merged["runs/hollow_s1.pt"]["fired"] == "e" and merged["runs/deep_s1.pt"]["verdict"] == "trustworthy"


def test_where_it_is_not_asked_for_no_fixture_brings_it(deep: Repo) -> None:
    deep.write("conftest.py", NO_CONTROL)
    deep.run(HOLLOW, "--fa-diagnostics=abcd").assert_outcomes(passed=3, skipped=1)
    deep.write("conftest.py", NO_CONTROL.replace("None", "0.9"))
    rows = deep.summary(HOLLOW)
    assert rows["runs/hollow_s1.pt"]["fired"] == "d" and "e" not in rows["runs/hollow_s1.pt"]["outcomes"]


def test_audit_and_diagnose_follow_the_same_rule(deep: Repo) -> None:
    path, data = deep.path / "runs" / "hollow_s1.pt", str(deep.path / "rings.npz")
    assert audit(path, data=data).fired == "e"
    beside_a_control = audit(path, data=data, frozen=0.9)
    assert beside_a_control.fired == "d" and beside_a_control.depth is None
    assert audit(path, data=data, frozen=0.25).fired == "e"
    model, (x, y) = trained_on_rings(0), rings(1_300)
    batches = list(zip(x.split(100), y.split(100), strict=True))
    control = Control(Accuracy(0.25, 1_300))
    assert diagnose(model=model, eval_batches=batches).fired == "e"
    assert diagnose(model=model, eval_batches=batches, frozen_baseline_acc=control).fired == "e"
    assert diagnose(model=model, eval_batches=batches, frozen_baseline_acc=0.9).depth is None
    once = diagnose(model=model, eval_batches=iter(batches))
    assert once.depth is not None and "only once" in once.depth.problem and once.verdict.startswith("incomplete: ")


def test_a_record_from_before_says_nothing_of_it(deep: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)  # where a record is not renewed
    (deep.path / "expected.json").write_text(json.dumps({"deep": "", "hollow": ""}))
    result = deep.run(BOTH, "--fa-expect=expected.json", "-rfs")
    result.assert_outcomes(passed=6, skipped=3, failed=1)  # where it passes: a fired diagnostic is never a skip
    result.stdout.fnmatch_lines(["*(e) of runs/deep_s1.pt is not recorded in expected.json*"])
    result.stdout.fnmatch_lines(
        [
            "CHANGED: depth-utility fired, and is not in the record expected.json: *",
            "FAILED runs/hollow_s1.pt::depth-utility - fired, and is not in the record expected.json*",
        ]
    )
    deep.run(BOTH, "--fa-expect=expected.json", "--fa-update-expect", "--fa-diagnostics=abcde")
    assert json.loads((deep.path / "expected.json").read_text()) == {"deep": "", "hollow": "", "runs/hollow_s1.pt": "e"}
    deep.run(BOTH, "--fa-expect=expected.json").assert_outcomes(passed=7, skipped=2, xfailed=1)


@pytest.mark.parametrize("control", [(), (AT_CHANCE,)], ids=["none", "at-chance"])
def test_where_a_record_does_not_know_it_no_test_is_green_that_sees_it_fire(deep: Repo, control: tuple[str, ...]) -> None:
    (deep.path / "expected.json").write_text(json.dumps({"hollow": ""}))
    deep.run(HOLLOW, *control, "--fa-expect=expected.json").assert_outcomes(passed=3, failed=1, skipped=0 if control else 1)
    deep.write("test_own.py", "def test_report(fa_report): pass\n")
    seen = deep.run("test_own.py", HOLLOW, *control, "--fa-expect=expected.json", "-k", "test_report")
    seen.assert_outcomes(errors=1, deselected=4 if control else 5)
    seen.stdout.fnmatch_lines(["ERROR *fired, and is not in the record expected.json*"])
    deep.write("test_own.py", "def test_it(fa_diagnostic): pass\n")
    alone = deep.run("test_own.py", HOLLOW, *control, "--fa-expect=expected.json", "-k", "test_it")
    assert alone.parseoutcomes()["failed"] == 1


def test_in_the_place_of_an_unusable_control_it_is_compared_with_its_record(deep: Repo) -> None:
    deep.run(BOTH, AT_CHANCE, "--fa-report=json:record.json")
    deep.run(BOTH, AT_CHANCE, "--fa-expect=record.json").assert_outcomes(passed=6, skipped=1, xfailed=1)
    harder = ("--fa-threshold=depth_utility_minimum_pp=99", DEEP, AT_CHANCE)
    changed = deep.run(*harder, "--fa-expect=record.json")
    changed.assert_outcomes(passed=3, failed=1)
    changed.stdout.fnmatch_lines(["CHANGED: depth-utility changed from pass to fire: *"])


def test_a_merge_keeps_it(deep: Repo) -> None:
    for name in ("deep", "hollow"):
        deep.run(f"--fa-checkpoint=runs/{name}_s1.pt", f"--fa-report=json:{name}.json")
    rows = deep.summary("--fa-merge=deep.json", "--fa-merge=hollow.json")
    assert rows["runs/deep_s1.pt"]["verdict"] == "trustworthy"
    assert rows["runs/hollow_s1.pt"]["fired"] == "e" and rows["runs/hollow_s1.pt"]["outcomes"]["e"] == "failed"


def test_it_is_measured_once_and_kept(deep: Repo, measured: list[str]) -> None:
    deep.forget()
    deep.run(BOTH)
    assert len(measured) == 2 and all("depth" in own for own in measured)
    deep.run(BOTH, "--fa-threshold=depth_utility_minimum_pp=99").assert_outcomes(passed=6, failed=2, skipped=2)
    assert len(measured) == 2


def test_a_log_has_no_test_of_it(deep: Repo) -> None:
    log = {"config": {"method": "dfa"}, "final_test_acc": 0.3, "log": [{"epoch": 1, "h_L_norm": 4.0, "acc_eval": 0.3}]}
    (deep.path / "dfa.json").write_text(json.dumps(log))
    assert "e" not in deep.summary("--fa-log=dfa.json")["dfa.json"]["outcomes"]


def test_with_a_worker_it_is_the_same(deep: Repo) -> None:
    alone = deep.summary(DEEP)
    deep.forget()
    document = deep.audit(DEEP, "-n", "1", run=deep.spawn)
    assert {row["checkpoint"]: row["outcomes"] for row in document["summary"]} == {
        name: row["outcomes"] for name, row in alone.items()
    }


def test_torch_is_not_needed_for_what_is_kept(deep: Repo) -> None:
    deep.run(BOTH)
    deep.write("conftest.py", "import sys\ndef pytest_sessionfinish():\n    assert 'torch' not in sys.modules\n")
    assert deep.spawn(BOTH, "-p", "no:xdist").ret == 1  # hollow fires, and nothing else goes wrong
    assert torch is not None
