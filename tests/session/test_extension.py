"""Other packages: the example is installed as pip installs it, and everything picks it up by its entry point and its name."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import torch
from html_tree import Tree
from repo import Repo

from pytest_fadiag import ResidualMLP
from pytest_fadiag.show.schema import schema

EXAMPLE = Path(__file__).parents[2] / "examples" / "extension"
RUNS = "--fa-checkpoint=runs", "--fa-frozen=controls/*.pt"
BP, DFA = "runs/bp_s42.pt", "runs/dfa_s42.pt"


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example and its metadata, built and installed by pip."""
    source, target = tmp_path_factory.mktemp("source") / "extension", tmp_path_factory.mktemp("site")
    shutil.copytree(EXAMPLE, source)  # a build leaves files beside its source
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--disable-pip-version-check", "--target", target, source], check=True)
    assert [path.name for path in target.glob("*.dist-info")] == ["fadiag_rank-1.0.dist-info"]
    return target


@pytest.fixture
def extended(repo: Repo, site: Path, monkeypatch: pytest.MonkeyPatch) -> Repo:
    """The repo where the package is installed, in this process and in those that it starts."""
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", str(site))
    repo.ini(None, fa_data="data.npz", fa_frozen="0.5")
    repo.load_what_is_installed()
    return repo


def effective_rank(repo: Repo, checkpoint: str) -> float:
    """That of h_L over the probe in float64, from the eigenvalues of the samples' covariance."""
    content, data = torch.load(repo.path / checkpoint, weights_only=True), np.load(repo.path / "data.npz")
    net = ResidualMLP(20, 16, 4, 5).double()
    net.load_state_dict({name: value.double() for name, value in content["state_dict"].items()})
    with torch.no_grad():
        h = net.embed(torch.from_numpy(data["x"][:384]).double())
        for block in net.blocks:
            h = h + block(h)
    shares = np.linalg.svd(h.numpy() - h.numpy().mean(0), compute_uv=False) ** 2
    shares /= shares.sum()
    return float(1 / (shares**2).sum())


def test_its_diagnostic_is_in_every_output_and_its_number_is_right(extended: Repo) -> None:
    files = [f"--fa-report={kind}" for kind in ("json", "html", "markdown", "form", "figures", "csv")]
    result = extended.run(*RUNS, "--fa-threshold=effective_rank_minimum=4", *files)
    result.stdout.fnmatch_lines(["method *  rank *", "dfa * walk-back a b d effective-rank", "FA audit: csv written to *"])
    document = json.loads((extended.path / "audit.json").read_text("utf-8"))
    jsonschema.validate(document, schema())
    report = document["reports"][DFA]
    ranks = report["observations"]["effective-rank"]["effective_ranks"]
    assert ranks[-1] == pytest.approx(effective_rank(extended, DFA), rel=1e-5) and len(ranks) == 5
    finding = report["findings"][-1]
    assert (finding["key"], finding["status"], finding["threshold"]) == ("effective-rank", "fire", 4.0)
    assert report["verdict"].endswith("; the stream has collapsed to a few directions")
    row = next(row for row in document["summary"] if row["checkpoint"] == DFA)
    assert row["fired"] == "abd,effective-rank" and row["outcomes"]["effective-rank"] == "failed"
    page = Tree((extended.path / "audit.html").read_text("utf-8")).root
    assert "does the last state use more than a few directions?" in page.one("ul", **{"class": "asked"}).text
    form = (extended.path / "form.md").read_text("utf-8")
    assert "- effective-rank: does the last state" in form and f"**fire** {ranks[-1]:.2f} |" in form
    assert "| rank | verdict |" in re.sub(" +", " ", (extended.path / "audit.md").read_text("utf-8"))
    with (extended.path / "audit.csv").open(encoding="utf-8", newline="") as file:
        table = {line["checkpoint"]: line for line in csv.DictReader(file)}
    assert float(table[DFA]["rank"]) == ranks[-1] and table[DFA]["fired"] == "abd,effective-rank"
    assert (extended.path / "figures" / "audit.png").exists()


def test_its_items_are_selected_by_name_and_its_numbers_are_kept(extended: Repo, measured: list[str]) -> None:
    one = f"--fa-checkpoint={BP}"
    extended.run(one, "--fa-diagnostics=a,effective-rank", "--collect-only", "-q").stdout.fnmatch_lines(
        [f"{BP}::residual-growth", f"{BP}::effective-rank", "", "2 tests*"]
    )
    extended.run(one, "--fa-diagnostics=abcd")
    assert len(measured) == 1 and "effective-rank" not in measured[0]
    extended.run(one, f"{BP}::effective-rank").assert_outcomes(passed=1)
    extended.run(one, "--fa-diagnostics=effective-rank").assert_outcomes(passed=1)
    assert measured[1:] == ["effective-rank"], "what was known of the checkpoint is not measured again"
    extended.write(
        "test_own.py",
        "import pytest\n@pytest.mark.fa_protocol(diagnostics=['a', 'effective-rank'], expect=['effective-rank'],\n"
        "    effective_rank_minimum=99.0)\ndef test_own(fa_report): fa_report.check()\n",
    )
    extended.run("test_own.py", one, "-k", "test_own").assert_outcomes(passed=1, deselected=5)


def test_it_is_expected_by_name_and_an_older_record_does_not_know_it(extended: Repo) -> None:
    minimum = "--fa-threshold=effective_rank_minimum=4"
    (extended.path / "letters.json").write_text('{"dfa": ["a", "b", "d", "effective-rank"]}')
    (extended.path / "older.json").write_text('{"dfa": "abd"}')
    command = f"--fa-checkpoint={DFA}", RUNS[1], minimum
    extended.run(*command, "--fa-expect=letters.json").assert_outcomes(passed=1, xfailed=4)
    extended.run(*command, "--fa-report=json:record.json")
    extended.run(*command, "--fa-expect=record.json").assert_outcomes(passed=1, xfailed=4)
    changed = extended.run(*command[:2], "--fa-threshold=effective_rank_minimum=0", "--fa-expect=record.json")
    changed.assert_outcomes(passed=1, xfailed=3, failed=1)
    changed.stdout.fnmatch_lines(["CHANGED: effective-rank changed from fire to pass: *"])
    older = extended.run(*command, "--fa-expect=older.json")
    older.assert_outcomes(passed=1, xfailed=3, failed=1)  # a fired diagnostic is never a skip
    older.stdout.fnmatch_lines(["dfa *walk-back a b d effective-rank*", "FAILED *fired, and is not in the record older.json*"])
    passing = extended.run(*command[:2], "--fa-threshold=effective_rank_minimum=0", "--fa-expect=older.json")
    passing.assert_outcomes(passed=1, xfailed=3, skipped=1)
    passing.stdout.fnmatch_lines(["note: not in the record older.json: effective-rank"])
    extended.run(*command, "--fa-expect=older.json", "--fa-update-expect")
    assert json.loads((extended.path / "older.json").read_text()) == {"dfa": "abd", DFA: "abd,effective-rank"}


def test_it_survives_workers_and_a_merge_and_leaves_no_trace_when_it_is_gone(
    extended: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = extended.audit(*RUNS)
    spread = extended.audit(*RUNS, "-n", "1", run=extended.spawn)
    assert {name: report["observations"] for name, report in spread["reports"].items()} == {
        name: report["observations"] for name, report in alone["reports"].items()
    }
    (extended.path / "audit.json").rename(extended.path / "all.json")
    extended.run(f"--fa-checkpoint={BP}", RUNS[1], "--fa-diagnostics=abcd", "--fa-report=json:abcd.json")
    extended.run(f"--fa-checkpoint={BP}", RUNS[1], "--fa-diagnostics=effective-rank", "--fa-report=json:rank.json")
    merged = extended.audit("--fa-merge=abcd.json", "--fa-merge=rank.json")
    assert merged["reports"][BP]["observations"] == alone["reports"][BP]["observations"]
    assert list(merged["summary"][0]["outcomes"]) == ["a", "b", "c", "d", "effective-rank"]
    wrong = json.loads((extended.path / "rank.json").read_text())
    wrong["reports"][BP]["observations"]["effective-rank"]["effective_ranks"][-1] *= 1.1
    (extended.path / "wrong.json").write_text(json.dumps(wrong))
    refused = extended.run("--fa-merge=rank.json", "--fa-merge=wrong.json")
    refused.stderr.fnmatch_lines(["ERROR: --fa-merge: * contradict each other: rank is *"])
    for path in [site for site in sys.path if (Path(site) / "fadiag_rank").exists()]:
        sys.path.remove(path)
    monkeypatch.delenv("PYTHONPATH")
    gone = extended.run(*RUNS, "--fa-report=json:audit.json")
    assert "rank" not in gone.stdout.str() and "rank" not in (extended.path / "audit.json").read_text()
    assert "effective-rank" not in extended.run("--help").stdout.str()
    refused = extended.run("--fa-merge=all.json")
    refused.stderr.fnmatch_lines(["ERROR: --fa-merge: *: no diagnostic 'effective-rank' here; install the package that *"])
    unknown = extended.run(*RUNS, "--fa-diagnostics=abcd,effective-rank")
    unknown.stderr.fnmatch_lines(["ERROR: --fa-diagnostics: * unknown key 'effective-rank'; known: a (residual-growth), *"])
    unknown = extended.run(*RUNS, "--fa-report=csv")
    unknown.stderr.fnmatch_lines(["ERROR: --fa-report: unknown report type 'csv' (known: json, *"])


def test_it_reads_checkpoints_and_data_that_only_it_knows(extended: Repo) -> None:
    content, data = torch.load(extended.path / BP, weights_only=True), np.load(extended.path / "data.npz")
    np.savez(extended.path / "ours_s7.npz", **{name: value.numpy() for name, value in content["state_dict"].items()})
    (extended.path / "tables").mkdir()
    np.savetxt(extended.path / "tables" / "data.csv", np.column_stack([data["x"], data["y"]]), delimiter=",", fmt="%.9g")
    known = extended.audit(f"--fa-checkpoint={BP}")["reports"][BP]
    extended.ini(None, fa_data="csv:tables/data.csv", fa_frozen="0.5")
    here = extended.audit("--fa-checkpoint=ours_s7.npz")["reports"]["ours_s7.npz"]
    assert (here["method_name"], here["seed"], here["inputs"]["data"]) == ("ours", 7, "data.csv")
    assert here["residual_norms"] == pytest.approx(known["residual_norms"]) and here["headline_acc"] == known["headline_acc"]
    wrong = {"csv:tables/none.csv": "*none.csv: no table of numbers: *", "tsv:x.tsv": "unknown data 'tsv:x.tsv'*"}
    for spec, said in wrong.items():
        result = extended.run("--fa-checkpoint=ours_s7.npz", f"--fa-data={spec}", "--fa-diagnostics=a")
        result.assert_outcomes(errors=1)
        result.stdout.fnmatch_lines([said])


def test_help_names_it_and_a_library_call_knows_it(extended: Repo) -> None:
    text = " ".join(extended.run("--help").stdout.str().split())
    assert "Of packages installed here: effective-rank" in text and "Of packages installed here: csv" in text
    script = (
        "import sys; from pytest_fadiag import audit, read_audit\n"
        f"report = audit({BP!r}, data='data.npz', frozen=0.3)\n"
        "print(report.fired or 'nothing', report.finding('effective-rank').headline, report.diagnostics)\n"
    )
    said = subprocess.run([sys.executable, "-c", script], cwd=extended.path, capture_output=True, text=True, check=True).stdout
    rank = f"{effective_rank(extended, BP):.2f}"
    assert said.startswith(f"nothing effective rank of h_L {rank} >= 2 ") and said.strip().endswith("'effective-rank')")


def test_a_conftest_can_have_the_hooks_and_a_package_that_breaks_is_named(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    repo.write(
        "conftest.py",
        "import pytest\nfrom pytest_fadiag import Diagnostic, Status\n"
        "class Mine(Diagnostic):\n"
        "    name, question, threshold, default = 'my-own', 'is it?', 'my_own_minimum', 1.0\n"
        "    observers, walk_back = (), 'it is not'\n"
        "    def judge(self, report):\n        return self.finding(report, Status.FIRE, 0.5, '0.5 < 1', 'It is not.')\n"
        "    def lines(self, report):\n        return ['0.5']\n"
        "@pytest.hookimpl(optionalhook=True)\n"
        "def pytest_fadiag_diagnostics():\n    return [Mine()]\n",
    )
    repo.ini(None, fa_data="data.npz", fa_frozen="0.5")
    repo.load_what_is_installed()
    result = repo.run(f"--fa-checkpoint={BP}")
    result.assert_outcomes(passed=4, failed=1)
    result.stdout.fnmatch_lines(["VERDICT: needs walk-back: it is not", f"FAILED {BP}::my-own - 0.5 < 1"])
    repo.ini(None)
    repo.run("-p", "no:fadiag").stdout.fnmatch_lines(["*no tests ran in *"])
    repo.ini(None, fa_data="data.npz", fa_frozen="0.5")
    broken = repo.path / "broken"
    (broken / "broken-1.0.dist-info").mkdir(parents=True)
    (broken / "broken-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (broken / "broken-1.0.dist-info" / "entry_points.txt").write_text("[pytest_fadiag]\nbroken = broken_hooks\n")
    monkeypatch.syspath_prepend(str(broken))
    result = repo.run(f"--fa-checkpoint={BP}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: 'broken', which adds to the audit (*), cannot be loaded: ModuleNotFoundError: *"])
    repo.run(f"--fa-checkpoint={BP}", "-p", "no:broken").assert_outcomes(passed=4, failed=1)
