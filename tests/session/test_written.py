"""Written tests: what the fixtures give, what a conftest may put in their place, and what a marker
says.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from repo import Repo

from pytest_fadiag.auditor import Auditor

BP, DFA = "--fa-checkpoint=runs/bp_s42.pt", "--fa-checkpoint=runs/dfa_s42.pt"
MARK = "P = pytest.mark.fa_protocol\n"


def test_every_fixture_gives_what_its_help_says(repo: Repo) -> None:
    repo.write(
        "test_own.py",
        """
def test_checkpoint(fa_checkpoint):
    assert (fa_checkpoint.path.name, fa_checkpoint.id) == ("bp_s42.pt", "runs/bp_s42.pt")
    assert (fa_checkpoint.method, fa_checkpoint.seed) == ("bp", 42)
    assert fa_checkpoint.config["method"] == "bp"
    assert "embed.weight" in fa_checkpoint.state_dict and fa_checkpoint.test_acc is None

def test_network(fa_model, fa_eval_batches, fa_test_data, fa_device, fa_credit, fa_step):
    x, y = next(iter(fa_eval_batches))
    assert fa_model(x).shape == (len(y), 5) and len(fa_test_data.y) == 400
    assert fa_device == "cpu" and fa_credit is fa_step is None

def test_report(fa_report, fa_thresholds, fa_frozen_baseline):
    assert fa_report.method_name == "bp" and fa_report.fired == ()
    assert fa_report.control == fa_frozen_baseline and fa_thresholds.frozen_acc_margin_pp == 2
    fa_report.check()

def test_diagnostic(fa_diagnostic, fa_report):
    assert fa_diagnostic.finding in fa_report.findings and fa_diagnostic.status.value == "pass"
    fa_diagnostic.check()
""",
    )
    repo.run(BP, "--fa-frozen=controls/*.pt", "test_own.py", "--fa-device=cpu").assert_outcomes(
        passed=11
    )


def test_a_marker_names_checkpoints_seeds_diagnostics_and_thresholds_the_closest_wins(
    repo: Repo,
) -> None:
    repo.write(
        "test_own.py",
        f"""{MARK}
pytestmark = P(checkpoint="runs/bp_s{{seed}}.pt", seeds=[42, 123], margin_pp=1, g_norm_floor=1e-9)
def found(t):
    return t.frozen_acc_margin_pp, t.g_norm_floor, t.growth
def test_module(fa_checkpoint, fa_thresholds):
    assert found(fa_thresholds) == (1, 1e-9, "per_block")
@P(frozen_acc_margin_pp=2, growth="cumulative")
class TestClass:
    @P(margin_pp=3)
    def test_function(self, fa_thresholds):
        assert found(fa_thresholds) == (3, 1e-9, "cumulative")
    @P(checkpoint=["runs/dfa_s42.pt"], seeds=[1], diagnostics="ca", expect="a")
    def test_diagnostics(self, fa_diagnostic):
        fa_diagnostic.check()
    @P(checkpoint="runs/dfa_*.pt", expect="ab", diagnostics="abc", g_norm_floor=1e-7)
    def test_report(self, fa_report):
        fa_report.check()
""",
    )
    result = repo.run("-v")
    result.assert_outcomes(passed=5, xfailed=1)
    result.stdout.fnmatch_lines(
        [
            "*::test_module[[]runs/bp_s123.pt[]] PASSED*",
            "*test_diagnostics[[]runs/dfa_s42.pt-residual-growth[]] XFAIL*",
        ]
    )


def test_what_is_wrong_with_a_marker_fails_its_test_alone(repo: Repo) -> None:
    wrong = {
        "margin=2": "unknown threshold 'margin'; known: *",
        "'runs/a.pt'": "takes keywords only, not 'runs/a.pt'",
        "margin_pp=200": "frozen_acc_margin_pp must be a finite number",
        "diagnostics='ax'": "unknown diagnostic 'x'",
        "expect=[1]": "expected expect='a', not [[]1]",
        "seeds=['42']": "expected seeds=[[]42, 123], not [[]'42']",
        "checkpoint=42": "expected checkpoint='runs/[*].pt', not 42",
        "checkpoint='gone.pt'": "checkpoint: no checkpoint there",
        "checkpoint='bp_s{seed}.pt'": "*has {seed}, but no seeds are given*",
    }
    tests = [f"@P({words})\ndef test_{n}(fa_report): pass\n" for n, words in enumerate(wrong)]
    repo.write("test_own.py", MARK + "".join(tests) + "def test_other(): pass\n")
    result = repo.run(BP, "test_own.py", "-k", "test_")
    assert result.parseoutcomes()["errors"] == len(wrong) and result.parseoutcomes()["passed"] == 1
    for number, message in enumerate(wrong.values()):
        result.stdout.fnmatch_lines(
            [f"ERROR test_own.py::test_{number}* - @pytest.mark.fa_protocol*{message}*"]
        )


@pytest.mark.parametrize(
    "text",
    [
        "@P(checkpoint='missing.pt')\ndef test_claim(): pass\n",
        "@P(checkpoint='missing.pt')\nclass TestAll:\n    def test_claim(self): pass\n",
    ],
    ids=["function", "class"],
)
def test_a_marker_that_audits_nothing_is_a_collection_error(repo: Repo, text: str) -> None:
    repo.write("test_own.py", MARK + text)
    result = repo.run()
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(
        ["test_own.py::*test_claim: @pytest.mark.fa_protocol on a test without a fixture*"]
    )


def test_a_test_without_a_checkpoint_says_what_to_add(repo: Repo) -> None:
    repo.write("test_own.py", "def test_own(fa_report): pass\n")
    result = repo.run()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["test_own needs a checkpoint: add --fa-checkpoint=PATH*"])
    repo.write("test_own.py", f"{MARK}@P(checkpoint='gone.pt')\ndef test_own(fa_report): pass\n")
    repo.run("--fa-missing=skip").assert_outcomes(errors=1)


def test_a_test_may_parametrise_the_fixtures_itself(repo: Repo) -> None:
    repo.write(
        "test_own.py",
        """
@pytest.mark.parametrize("fa_checkpoint", ["runs/bp_s42.pt"], indirect=True)
@pytest.mark.parametrize("fa_diagnostic", ["c", "direction-drift"], indirect=True)
def test_own(fa_diagnostic):
    assert fa_diagnostic.key == "c"
""",
    )
    repo.run().assert_outcomes(passed=2)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that are really measured in this process."""
    names: list[str] = []
    original: Any = Auditor._measure

    def counted(self: Auditor, path: Path, *rest: Any) -> Any:
        names.append(path.name)
        return original(self, path, *rest)

    monkeypatch.setattr(Auditor, "_measure", counted)
    return names


def test_what_a_conftest_overrides_is_measured_in_this_process_once_and_not_kept(
    repo: Repo, measured: list[str]
) -> None:
    repo.write(
        "conftest.py",
        """
@pytest.fixture
def fa_model(fa_model):
    fa_model.blocks[0].fc2.weight.data.mul_(1e6)
    return fa_model
""",
    )
    for run in (1, 2):
        document = repo.audit("--fa-checkpoint=runs/bp_*.pt", "--fa-frozen=0.3")
        assert [row["fired"] for row in document["rows"]] == [["a", "b"]] * 2
        assert document["margins"][0]["outcome"] == "passed", "from the reports of this process"
        assert measured == ["bp_s123.pt", "bp_s42.pt"] * run


@pytest.mark.parametrize(
    "fixture", ["fa_model(fa_model): return fa_model", "fa_frozen_baseline(): return 0.3"]
)
def test_a_margin_over_seeds_whose_reports_are_elsewhere_is_an_error(
    repo: Repo, fixture: str
) -> None:
    repo.write("conftest.py", f"@pytest.fixture\ndef {fixture}\n")
    result = repo.run("--fa-checkpoint=runs/bp_*.pt", "--fa-frozen=0.3", "-k", "seed-margin")
    result.assert_outcomes(failed=1, deselected=8)
    name = fixture.partition("(")[0]
    result.stdout.fnmatch_lines(
        [f"a conftest overrides {name}, so only the tests of single checkpoints measure*"]
    )


@pytest.mark.parametrize(
    ("fixture", "outcomes"),
    [
        ("fa_frozen_baseline(): return 0.999", "a. b. c. dF"),
        ("fa_frozen_baseline(): return 34.9", "a. b. c. dE"),
        (
            "fa_thresholds(fa_thresholds): return "
            "fa_thresholds.replace(h_norm_explosion_ratio=0.1)",
            "aF b. c. d.",
        ),
        ("fa_checkpoint(): return 'runs/dfa_s42.pt'", "aF bF c. dF"),
        ("fa_device(): return 'cpu'", "a. b. c. d."),
        (
            "fa_eval_batches(fa_eval_batches): return [(3 * x, y) for x, y in fa_eval_batches]",
            "a. b. c. d.",
        ),
        ("fa_test_data(fa_test_data): return fa_test_data.x, fa_test_data.y", "a. b. c. d."),
    ],
    ids=lambda value: value.partition("(")[0],
)
def test_each_fixture_may_be_overridden(repo: Repo, fixture: str, outcomes: str) -> None:
    repo.write("conftest.py", f"@pytest.fixture\ndef {fixture}\n")
    found = repo.outcomes(BP, "--fa-frozen=controls/*.pt")
    other = "dfa_s42" if "fa_checkpoint" in fixture else "bp_s42"
    assert found[other] == outcomes


CREDIT = """fa_credit():
    return lambda model, x, y, checkpoint: [x[:, :16] for _ in range(4)]
"""
STEP = """fa_step():
    def step(model, x, y):
        for parameter in model.parameters():
            parameter.data *= 0.9
    return step
"""


@pytest.mark.parametrize("fixture", [CREDIT, STEP], ids=["credit", "step"])
def test_a_credit_or_step_of_a_conftest_starts_its_diagnostic(repo: Repo, fixture: str) -> None:
    repo.ini(fa_data="data.npz")
    repo.write("conftest.py", f"@pytest.fixture\ndef {fixture}")
    assert repo.outcomes(BP, "--fa-frozen=0.3")["bp_s42"] == "a. b. c. d. es fF gs"


def test_a_step_is_an_option_and_its_mistake_an_error_where_f_is_asked_for(repo: Repo) -> None:
    repo.ini(fa_data="data.npz", fa_step="rule:update")
    repo.write(
        "rule.py",
        "import torch\n"
        "def update(model, x, y, checkpoint):\n"
        "    assert checkpoint['config']\n"
        "    torch.nn.functional.cross_entropy(model(x), y).backward()\n"
        "    torch.optim.SGD(model.parameters(), 1.0).step()\n"
        "def none(model, x, y): pass\n",
    )
    assert repo.outcomes(BP, "--fa-diagnostics=f")["bp_s42"] == "f."
    repo.result.stdout.fnmatch_lines(["*this rule is backpropagation*"])
    found = repo.outcomes(BP, "--fa-diagnostics=f", "--fa-step=rule:none", "-rs")
    assert found["bp_s42"] == "fE"
    assert repo.outcomes(BP, "--fa-step=rule:none")["bp_s42"].endswith("fs gs")
    repo.result.stdout.fnmatch_lines(["*changed no parameter*"])


def test_a_fixture_that_raises_shows_the_users_traceback(repo: Repo) -> None:
    repo.write(
        "conftest.py",
        "@pytest.fixture\ndef fa_model():\n    raise RuntimeError('a slip of mine')\n",
    )
    result = repo.run(BP, "--fa-diagnostics=a")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*raise RuntimeError('a slip of mine')", "! *a slip of mine*"])


EXTENSION = """
from pytest_fadiag import Diagnostic, Status

class Wide(Diagnostic):
    name, question, threshold, default = "too-wide", "is it wide?", "widest", 3.0
    needs, walk_back = ("states",), "too wide"
    def judge(self, report):
        fires = len(report.residual_norms) > self.limit(report)
        return self.finding(report, Status.FIRE if fires else Status.PASS, 5.0, "5 states")
    def lines(self, report):
        return ["states counted"]

@pytest.hookimpl(optionalhook=True)
def pytest_fadiag_diagnostics():
    return [Wide()]
"""


def test_a_conftest_may_add_a_diagnostic_that_is_known_for_this_run_alone(repo: Repo) -> None:
    repo.write("conftest.py", EXTENSION)
    assert repo.outcomes(BP, "--fa-diagnostics=a,too-wide")["bp_s42"] == "a. too-wideF"
    repo.result.stdout.fnmatch_lines(["FAILED runs/bp_s42.pt::too-wide - 5 states: too wide"])
    mild = repo.outcomes(BP, "--fa-diagnostics=too-wide", "--fa-threshold=widest=9")
    assert mild["bp_s42"] == "too-wide."
    (repo.path / "conftest.py").unlink()
    assert repo.run(BP, "--fa-diagnostics=too-wide").ret == pytest.ExitCode.USAGE_ERROR
