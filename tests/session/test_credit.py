"""(f) in a run of pytest: where the credit comes from, when it is looked at, and what becomes of it."""

from __future__ import annotations

import pytest
import torch
from repo import Repo

BP = "--fa-checkpoint=runs/bp_s42.pt"
GRADIENT = """
import torch

def gradient(model, x, y, checkpoint):
    logits, states = model(x, return_hidden=True)
    return torch.autograd.grad(torch.nn.functional.cross_entropy(logits, y, reduction="sum"), states)

def opposite(model, x, y, checkpoint):
    return [-a for a in gradient(model, x, y, checkpoint)]

def by_file(model, x, y, checkpoint):
    assert checkpoint["config"]["method"] == "bp"
    return gradient(model, x, y, checkpoint)

def broken(model, x, y, checkpoint):
    return gradient(model, x, y, checkpoint)[2:]
"""


@pytest.fixture
def rules(repo: Repo) -> Repo:
    repo.write("rules.py", GRADIENT)
    repo.ini(None, fa_data="data.npz", fa_frozen="0.5")
    return repo


def test_a_credit_function_starts_the_diagnostic_and_reaches_every_output(rules: Repo) -> None:
    document = rules.audit(BP, "--fa-credit=rules:gradient", "--fa-report=html:page.html", "--fa-report=markdown:audit.md")
    row = document["summary"][0]
    assert row["outcomes"]["f"] == "passed"
    (report,) = document["reports"].values()
    assert report["credit"]["sites"] == ["h_0", "h_1", "h_2", "h_3", "h_4"]
    assert report["credit"]["gamma"] == pytest.approx([1.0] * 5, abs=1e-5)
    assert report["credit"]["state"] == ["aligned"] * 5
    assert set(report["credit"]) == {"sites", "gamma", "null_low", "null_high", "z", "nudge", "magnitude", "state"}
    assert "4/4" in (rules.path / "audit.md").read_text("utf-8")
    assert "4/4" in (rules.path / "page.html").read_text("utf-8")


def test_without_a_credit_function_nothing_is_looked_at_even_where_feedback_is_saved(repo: Repo) -> None:
    path = repo.path / "runs" / "bp_s42.pt"
    content = torch.load(path, weights_only=True)
    width, classes = content["state_dict"]["out_head.weight"].T.shape
    content["Bs"] = [torch.randn(width, classes) for _ in range(4)]
    torch.save(content, path)
    assert "f" not in repo.summary(BP)["runs/bp_s42.pt"]["outcomes"]
    (report,) = repo.audit(BP, "--fa-diagnostics=f")["reports"].values()
    assert report["credit"]["sites"] == ["h_1", "h_2", "h_3", "h_4"]
    assert report["observations"]["credit"]["source"].startswith("the checkpoint's Bs")


def test_credit_that_climbs_the_loss_fires_and_the_line_says_where(rules: Repo) -> None:
    result = rules.run(BP, "--fa-credit=rules:opposite", "--fa-diagnostics=f")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*h_1 against  Γ -1.000*", "FAILED *credit-alignment - 0 of 4 block sites aligned, and against the gradient at h_1,*"]
    )


def test_asked_for_alone_it_knows_a_reference_at_the_floor(rules: Repo) -> None:
    path = rules.path / "runs" / "bp_s42.pt"
    content = torch.load(path, weights_only=True)
    content["state_dict"]["out_head.weight"] *= 1e-8
    torch.save(content, path)
    result = rules.run(BP, "--fa-credit=rules:opposite", "--fa-diagnostics=f")
    result.stdout.fnmatch_lines(
        ["*credit-alignment: fire (against a reference at the floor)", "*Γ is taken against a reference*"]
    )


def test_the_credit_function_gets_what_the_file_holds(rules: Repo) -> None:
    rules.run(BP, "--fa-credit=rules:by_file", "--fa-diagnostics=f").assert_outcomes(passed=1)


@pytest.mark.parametrize("diagnostics", ["f", "abf", "credit-alignment"])
def test_asked_for_and_not_measurable_is_an_error_that_names_the_ways(repo: Repo, diagnostics: str) -> None:
    result = repo.run(BP, f"--fa-diagnostics={diagnostics}")
    assert result.parseoutcomes()["errors"] == 1
    result.stdout.fnmatch_lines(["*credit-alignment cannot be judged: no credit to compare: no credit function is given*"])


def test_all_means_all_that_can_be_measured(repo: Repo) -> None:
    outcomes = repo.summary(BP, "--fa-frozen=0.5", "--fa-diagnostics=all")["runs/bp_s42.pt"]["outcomes"]
    assert outcomes["f"] == "skipped"
    assert set(outcomes.values()) == {"passed", "skipped"}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("rules:missing", "module 'rules' has no 'missing'"),
        ("nowhere:credit", "cannot import 'nowhere'"),
        ("rules:broken", "returned 3 tensors, but the stream has 4 blocks"),
    ],
)
def test_what_is_wrong_with_the_function_concerns_its_diagnostic_alone(rules: Repo, spec: str, said: str) -> None:
    outcomes = rules.summary(BP, "--fa-frozen=0.5", f"--fa-credit={spec}")["runs/bp_s42.pt"]["outcomes"]
    assert outcomes == {"a": "passed", "b": "passed", "c": "passed", "d": "passed", "f": "error"}
    result = rules.run(BP, f"--fa-credit={spec}", "--fa-diagnostics=f")
    result.stdout.fnmatch_lines([f"*{said}*"])


def test_a_spec_that_is_none_is_a_usage_error(repo: Repo) -> None:
    result = repo.run(BP, "--fa-credit=rules.py")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--fa-credit: expected package.module:function, not 'rules.py'*"])


def test_the_ini_file_can_name_the_function_and_a_marker_the_diagnostic(rules: Repo) -> None:
    rules.ini(None, fa_data="data.npz", fa_credit="rules:gradient", fa_frozen="0.5")
    rules.write(
        "test_own.py",
        "import pytest\n"
        "@pytest.mark.fa_protocol(diagnostics='f')\n"
        "def test_own(fa_diagnostic):\n    assert fa_diagnostic.value == 1\n",
    )
    rules.run(BP, "-k", "test_own or credit-alignment").assert_outcomes(passed=2, deselected=4)


def test_a_fixture_of_the_repo_gives_the_credit_and_starts_the_diagnostic(rules: Repo) -> None:
    rules.write("conftest.py", "import pytest, rules\n@pytest.fixture\ndef fa_credit():\n    return rules.opposite\n")
    rules.write("test_own.py", "def test_own(fa_report):\n    assert fa_report.credit.source == 'the fixture fa_credit'\n")
    result = rules.run(BP, "--fa-frozen=0.5", "-v")
    result.assert_outcomes(passed=5, failed=1)
    result.stdout.fnmatch_lines(["*runs/bp_s42.pt::credit-alignment FAILED*"])


def test_the_fixture_gives_the_function_of_the_option(rules: Repo) -> None:
    rules.write("test_own.py", "def test_own(fa_credit):\n    assert fa_credit.__name__ == 'gradient'\n")
    rules.run(BP, "--fa-credit=rules:gradient", "-k", "test_own").assert_outcomes(passed=1, deselected=5)


def test_a_result_is_kept_with_the_code_of_its_function(rules: Repo, measured: list[str]) -> None:
    command = (BP, "--fa-credit=rules:gradient", "--fa-diagnostics=f")
    rules.run(*command).assert_outcomes(passed=1)
    rules.run(*command).assert_outcomes(passed=1)
    assert len(measured) == 1
    rules.run(BP, "--fa-credit=rules:opposite", "--fa-diagnostics=f").assert_outcomes(failed=1)
    assert len(measured) == 2
    rules.write("rules.py", GRADIENT.replace("return torch.autograd.grad(", "return torch.autograd.grad(-1 * "))
    rules.run(*command).assert_outcomes(failed=1)
    assert len(measured) == 3


def outcomes_of(repo: Repo, *options: str) -> dict[str, str]:
    outcomes: dict[str, str] = repo.summary(BP, *options)["runs/bp_s42.pt"]["outcomes"]
    return outcomes


@pytest.mark.parametrize("diagnostics", ["ab", "abf"])
def test_a_typed_credit_starts_it_beside_the_letters_of_the_ini_file_or_of_the_command(rules: Repo, diagnostics: str) -> None:
    rules.ini(diagnostics, fa_data="data.npz")
    passed = {"a": "passed", "b": "passed", "f": "passed"}
    assert outcomes_of(rules, "--fa-credit=rules:gradient") == passed
    rules.ini("abcde", fa_data="data.npz")
    assert outcomes_of(rules, "--fa-credit=rules:gradient", f"--fa-diagnostics={diagnostics}") == passed
    rules.ini(diagnostics, fa_data="data.npz", fa_credit="rules:gradient")
    assert outcomes_of(rules) == passed


def test_letters_that_are_typed_leave_out_the_credit_of_the_ini_file_and_say_so(rules: Repo) -> None:
    rules.ini("abf", fa_data="data.npz", fa_credit="rules:gradient")
    document = rules.audit(BP, "--fa-diagnostics=ab")
    assert set(document["summary"][0]["outcomes"]) == {"a", "b"}
    assert "credit" not in document["origin"]["options"], "measured again from there, it would start (f)"
    result = rules.run(BP, "--fa-diagnostics=ab")
    result.stdout.fnmatch_lines(["*fa_credit of the ini file is not looked at: --fa-diagnostics leaves (f) out"])
    for options in ((), ("--fa-diagnostics=abf",), ("--fa-protocol=four",)):
        rules.run(BP, *options).stdout.no_fnmatch_line("*is not looked at*")


def test_a_fixture_starts_it_beside_the_letters_of_the_ini_file(rules: Repo) -> None:
    rules.ini("ab", fa_data="data.npz")
    rules.write("conftest.py", "import pytest, rules\n@pytest.fixture\ndef fa_credit():\n    return rules.gradient\n")
    assert outcomes_of(rules) == {"a": "passed", "b": "passed", "f": "passed"}
    assert set(outcomes_of(rules, "--fa-diagnostics=ab")) == {"a", "b"}


def test_a_log_has_no_states_at_which_a_function_could_give_its_credit(rules: Repo) -> None:
    (rules.path / "bp_s1.json").write_text('{"log": [{"epoch": 1, "hidden_norms": [1, 2], "acc_eval": 0.9}]}')
    rules.ini("ab", fa_data="data.npz")
    assert set(rules.summary("--fa-log=bp_s1.json", "--fa-credit=rules:gradient")["bp_s1.json"]["outcomes"]) == {"a", "b"}


def test_a_record_that_does_not_know_it_is_no_error_unless_it_is_named(rules: Repo) -> None:
    (rules.path / "expected.json").write_text('{"bp": ""}')
    rules.ini("ab", fa_data="data.npz", fa_expect="expected.json")
    result = rules.run(BP, "--fa-credit=rules:gradient")
    result.assert_outcomes(passed=2, skipped=1)
    result.stdout.fnmatch_lines(["note: not in the record expected.json: credit-alignment"])
    fired = rules.run(BP, "--fa-credit=rules:opposite")
    fired.assert_outcomes(passed=2, failed=1)  # a fired diagnostic is never a skip
    fired.stdout.fnmatch_lines(
        ["bp * walk-back f*", "FAILED *credit-alignment - fired, and is not in the record expected.json*"]
    )
    rules.run(BP, "--fa-credit=rules:broken").assert_outcomes(passed=2, errors=1)
    rules.run(BP, "--fa-credit=rules:opposite", "--fa-diagnostics=abf").assert_outcomes(passed=2, errors=1)
