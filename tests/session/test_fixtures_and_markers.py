"""Written tests: the fixtures, each overridable alone, and the marker that says what a test claims."""

from __future__ import annotations

import pytest
from repo import Repo

BP = "--fa-checkpoint=runs/bp_s42.pt"
DFA = "--fa-checkpoint=runs/dfa_s42.pt"
AUDIT_ONLY = ("-k", "test_")


def test_a_test_that_asks_for_the_checkpoint_runs_once_for_each(repo: Repo) -> None:
    repo.write("test_own.py", "def test_own(fa_checkpoint):\n    assert fa_checkpoint.path.suffix == '.pt'\n")
    result = repo.run("--fa-checkpoint=runs", "-v", *AUDIT_ONLY)
    result.assert_outcomes(passed=3, deselected=13)
    result.stdout.fnmatch_lines(
        ["test_own.py::test_own[[]runs/bp_s123.pt] PASSED*", "test_own.py::test_own[[]runs/bp_s42.pt] *"]
    )


def test_a_test_that_asks_for_a_diagnostic_runs_once_for_each_checkpoint_and_diagnostic(repo: Repo) -> None:
    repo.write("test_own.py", "def test_own(fa_diagnostic):\n    fa_diagnostic.check()\n")
    result = repo.run(DFA, "-v", *AUDIT_ONLY)
    result.assert_outcomes(passed=1, failed=2, skipped=1, deselected=4)
    result.stdout.fnmatch_lines(["test_own.py::test_own[[]runs/dfa_s42.pt-residual-growth] FAILED*"])


def test_what_the_fixtures_give(repo: Repo) -> None:
    repo.write(
        "test_own.py",
        "def test_own(fa_checkpoint, fa_model, fa_eval_batches, fa_test_data, fa_frozen_baseline, fa_thresholds, fa_device,\n"
        "             fa_report):\n"
        "    assert (fa_checkpoint.method, fa_checkpoint.seed, fa_checkpoint.id) == ('bp', 42, 'runs/bp_s42.pt')\n"
        "    assert fa_checkpoint.config['method'] == 'bp' and fa_checkpoint.test_acc is None\n"
        "    assert set(fa_checkpoint.state_dict) == set(fa_model.state_dict())\n"
        "    assert [len(y) for x, y in fa_eval_batches] == [128, 128, 128, 16] and len(fa_eval_batches) == 4\n"
        "    assert len(fa_test_data) == 400 and fa_test_data.name == 'data.npz'\n"
        "    assert fa_frozen_baseline.accuracy.value == 0.4\n"
        "    assert fa_thresholds.g_norm_floor == 1e-7\n"
        "    assert fa_device in ('cpu', 'cuda', 'mps')\n"
        "    assert fa_report.verdict == 'trustworthy' and len(fa_report.residual_norms) == 5\n",
    )
    repo.run(BP, "--fa-frozen=0.4", *AUDIT_ONLY).assert_outcomes(passed=1, deselected=4)


def test_what_a_diagnostic_gives(repo: Repo) -> None:
    repo.write(
        "test_own.py",
        "def test_own(fa_diagnostic):\n"
        "    assert fa_diagnostic.key == 'a' and fa_diagnostic.fired and fa_diagnostic.value > fa_diagnostic.threshold == 50\n"
        "    assert fa_diagnostic.headline.startswith('per-block growth')\n",
    )
    repo.run(DFA, "--fa-diagnostics=a", *AUDIT_ONLY).assert_outcomes(passed=1, deselected=1)


def test_check_raises_an_assertion_whose_text_is_the_report(repo: Repo) -> None:
    repo.write(
        "test_own.py",
        "import pytest\n"
        "def test_report(fa_report):\n"
        "    with pytest.raises(AssertionError) as raised:\n        fa_report.check()\n"
        "    assert str(raised.value) == str(fa_report)\n"
        "def test_diagnostic(fa_diagnostic, fa_report):\n"
        "    with pytest.raises(AssertionError) as raised:\n        fa_diagnostic.check()\n"
        "    assert str(raised.value) == str(fa_report)\n",
    )
    repo.run(DFA, "--fa-diagnostics=ab", *AUDIT_ONLY).assert_outcomes(passed=3, deselected=2)


def test_a_failing_report_of_a_written_test_shows_the_report_alone(repo: Repo) -> None:
    repo.write("test_own.py", "def test_own(fa_report):\n    fa_report.check()\n")
    result = repo.run(DFA, *AUDIT_ONLY)
    result.stdout.fnmatch_lines(["FA diagnostic report: dfa, seed 42", "VERDICT: needs walk-back: *"])
    result.stdout.fnmatch_lines(["FAILED test_own.py::test_own[[]runs/dfa_s42.pt] - per-block growth *"])
    result.stdout.no_fnmatch_line("*fa_report.check()*")


def test_an_assertion_of_the_tests_own_keeps_pytests_explanation(repo: Repo) -> None:
    repo.write("test_own.py", "def test_own(fa_report):\n    assert fa_report.verdict == 'trustworthy'\n")
    repo.run(DFA, *AUDIT_ONLY, "--tb=auto").stdout.fnmatch_lines([">*assert fa_report.verdict == 'trustworthy'", "E *"])


def test_a_test_that_needs_a_checkpoint_and_has_none_is_one_error_that_says_what_to_do(repo: Repo) -> None:
    repo.write("test_own.py", "def test_own(fa_report): pass\ndef test_other(): pass\n")
    result = repo.run()
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["test_own needs a checkpoint, and none is given: add --fa-checkpoint=PATH, *"])
    repo.run("-k", "other").assert_outcomes(passed=1, deselected=1)


def test_a_broken_control_is_an_error_of_a_test_that_asks_for_the_report(repo: Repo) -> None:
    repo.write("test_own.py", "def test_own(fa_report):\n    fa_report.check()\n")
    (repo.path / "controls" / "frozen_bp_s42.pt").write_bytes(b"no checkpoint")
    result = repo.run(BP, "--fa-frozen=controls/frozen_bp_s42.pt", *AUDIT_ONLY)
    result.assert_outcomes(errors=1, deselected=4)
    result.stdout.fnmatch_lines(["control *frozen_bp_s42.pt: *"])


# --- one fixture overridden in the conftest, the others left alone ---

OWN_NETWORK = """
import pytest, torch
from pytest_fadiag import ResidualMLP

class Own(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = ResidualMLP(20, 16, 4, 5)
    def forward(self, x):
        return self.inner(x)

@pytest.fixture
def fa_model(fa_checkpoint):
    model = Own()
    model.load_state_dict(fa_checkpoint.state_dict)
    return model
"""


def test_fa_model_alone(repo: Repo) -> None:
    import torch

    for name in ("runs/bp_s42.pt", "controls/frozen_bp_s42.pt"):
        content = torch.load(repo.path / name)
        content["state_dict"] = {f"inner.{key}": value for key, value in content["state_dict"].items()}
        torch.save(content, repo.path / name)
    repo.run(BP).assert_outcomes(errors=4)
    repo.write("conftest.py", OWN_NETWORK)
    report = repo.audit(BP, "--fa-frozen=controls/*.pt")["reports"]["runs/bp_s42.pt"]
    assert report["verdict"] == "trustworthy"
    assert report["control"]["source"] == "frozen_bp_s42.pt", "its control is built by the same fixture"


def test_fa_eval_batches_alone(repo: Repo) -> None:
    repo.ini()
    repo.write(
        "conftest.py",
        "import numpy, pytest, torch\n@pytest.fixture\ndef fa_eval_batches():\n"
        "    data = numpy.load('data.npz')\n    x, y = torch.tensor(data['x']), torch.tensor(data['y'])\n"
        "    return [(x[:200], y[:200]), (x[200:300], y[200:300])]\n",
    )
    report = repo.audit(BP, "--fa-frozen=controls/*.pt")["reports"]["runs/bp_s42.pt"]
    assert (report["accuracy"]["images"], report["companions"]["batches"]) == (300, 2)
    assert report["control"]["accuracy"]["images"] == 300, "the control sees the same images"


@pytest.mark.parametrize("made", ["(x, y)", "DataSet(x, y, 'own data')"])
def test_fa_test_data_alone(repo: Repo, made: str) -> None:
    repo.ini()
    repo.write(
        "conftest.py",
        "import numpy, pytest, torch\nfrom pytest_fadiag import DataSet\n"
        "@pytest.fixture(scope='session')\ndef fa_test_data():\n"
        "    data = numpy.load('data.npz')\n    x, y = torch.tensor(data['x'][:300]), torch.tensor(data['y'][:300])\n"
        f"    return {made}\n",
    )
    report = repo.audit(BP, "--fa-frozen=controls/*.pt")["reports"]["runs/bp_s42.pt"]
    assert report["accuracy"]["images"] == report["control"]["accuracy"]["images"] == 300


@pytest.mark.parametrize(
    ("given", "accuracy", "outcome"),
    [("0.3", 0.3, "passed"), ("None", None, "skipped"), ("Control(Accuracy(0.3), 'by hand')", 0.3, "passed")],
)
def test_fa_frozen_baseline_alone(repo: Repo, given: str, accuracy: float | None, outcome: str) -> None:
    repo.write(
        "conftest.py",
        "import pytest\nfrom pytest_fadiag import Accuracy, Control\n"
        f"@pytest.fixture\ndef fa_frozen_baseline(fa_checkpoint):\n    return {given}\n",
    )
    document = repo.audit(BP)
    assert document["reports"]["runs/bp_s42.pt"]["frozen_baseline_acc"] == accuracy
    assert document["summary"][0]["outcomes"] == {"a": "passed", "b": "passed", "c": "passed", "d": outcome}


@pytest.mark.parametrize(
    ("body", "outcomes", "message"),
    [
        ("return 34.9", {"passed": 3, "errors": 1}, "*did you pass a percentage?*"),
        ("raise RuntimeError('no disk')", {"passed": 3, "errors": 1}, "*RuntimeError: no disk*"),
        ("pytest.skip('its control is not trained yet')", {"passed": 3, "skipped": 1}, "*its control is not trained yet*"),
    ],
)
def test_what_goes_wrong_with_the_users_control_concerns_the_margin_alone(
    repo: Repo, body: str, outcomes: dict[str, int], message: str
) -> None:
    repo.write("conftest.py", f"import pytest\n@pytest.fixture\ndef fa_frozen_baseline():\n    {body}\n")
    result = repo.run(BP, "-rs")
    result.assert_outcomes(**outcomes)
    result.stdout.fnmatch_lines([message])


def test_fa_thresholds_alone(repo: Repo) -> None:
    repo.write(
        "conftest.py",
        "import pytest\nfrom pytest_fadiag import DiagnosticThresholds\n"
        "@pytest.fixture\ndef fa_thresholds():\n    return DiagnosticThresholds(h_norm_explosion_ratio=1e30, g_norm_floor=0)\n",
    )
    repo.run(DFA).assert_outcomes(passed=3, skipped=1)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fa_thresholds", "the fixture fa_thresholds gave dict; expected DiagnosticThresholds(*"),
        ("fa_test_data", "the fixture fa_test_data gave dict; expected a pair of tensors (x, y), or a dictionary *"),
        ("fa_frozen_baseline", "accuracy must be a number in [[]0, 1], not {'a': 1}"),
    ],
)
def test_a_fixture_that_gives_something_else_is_named(repo: Repo, name: str, message: str) -> None:
    repo.write("conftest.py", f"import pytest\n@pytest.fixture\ndef {name}():\n    return {{'a': 1}}\n")
    result = repo.run(BP)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([message])


def test_fa_device_alone(repo: Repo) -> None:
    repo.write("conftest.py", "import pytest\n@pytest.fixture\ndef fa_device():\n    return 'cpu'\n")
    repo.run(BP, "--fa-device=cuda:99").assert_outcomes(passed=3, skipped=1)


@pytest.mark.parametrize("given", ["'runs/dfa_s42.pt'", "Path(__file__).parent / 'runs' / 'dfa_s42.pt'"])
def test_fa_checkpoint_alone_may_be_a_path(repo: Repo, given: str) -> None:
    repo.write(
        "test_own.py",
        f"import pytest\nfrom pathlib import Path\n@pytest.fixture\ndef fa_checkpoint():\n    return {given}\n"
        "def test_own(fa_report):\n    assert fa_report.method_name == 'dfa' and fa_report.fired == 'ab'\n"
        "def test_model(fa_model, fa_eval_batches): pass\n",
    )
    repo.run().assert_outcomes(passed=2)
    repo.run("test_own.py", "--fa-checkpoint=runs", *AUDIT_ONLY).assert_outcomes(passed=2, deselected=13)


def test_fa_checkpoint_may_build_on_the_plugins_own(repo: Repo) -> None:
    repo.write(
        "conftest.py",
        "import pytest\nseen = []\n@pytest.fixture\ndef fa_checkpoint(fa_checkpoint):\n"
        "    print('SEEN', fa_checkpoint.id)\n    return fa_checkpoint\n",
    )
    result = repo.run("--fa-checkpoint=runs", "--fa-diagnostics=c", "-s")
    result.assert_outcomes(passed=3)
    assert sum("SEEN runs/" in line for line in result.outlines) == 3


def test_fa_checkpoint_of_another_kind_is_an_error_that_says_what_is_expected(repo: Repo) -> None:
    repo.write("conftest.py", "import pytest\n@pytest.fixture\ndef fa_checkpoint():\n    return {}\n")
    repo.write("test_own.py", "def test_own(fa_report): pass\n")
    result = repo.run()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["the fixture fa_checkpoint gave dict; expected the path of a checkpoint, *"])


def test_a_test_may_parametrize_its_checkpoint_and_its_diagnostic_itself(repo: Repo) -> None:
    repo.write(
        "test_own.py",
        "import pytest\n@pytest.mark.parametrize('fa_checkpoint', ['runs/bp_s42.pt', 'runs/dfa_s42.pt'], indirect=True)\n"
        "@pytest.mark.parametrize('fa_diagnostic', ['c', 'direction-drift'], indirect=True)\n"
        "def test_own(fa_diagnostic):\n    fa_diagnostic.check()\n",
    )
    repo.run().assert_outcomes(passed=4)


def test_an_overriding_fixture_with_parameters_is_measured_for_each(repo: Repo, measured: list[str]) -> None:
    repo.write(
        "test_own.py",
        "import pytest\n@pytest.fixture(params=[1.0, 2.0])\ndef fa_model(fa_model, request):\n"
        "    fa_model.embed.weight.data.mul_(request.param)\n    fa_model.embed.bias.data.mul_(request.param)\n"
        "    return fa_model\n"
        "seen = set()\n"
        "def test_own(fa_model, fa_report):\n    seen.add(fa_report.residual_norms[0])\n"
        "def test_again(fa_model, fa_report):\n    assert fa_report.residual_norms[0] in seen\n"
        "def test_both():\n    assert len(seen) == 2\n",
    )
    repo.run("test_own.py", BP, *AUDIT_ONLY).assert_outcomes(passed=5, deselected=4)
    assert len(measured) == 2, "once for each parameter, not for each test"


def test_a_fixture_that_raises_shows_the_users_traceback_and_the_other_checkpoints_run(repo: Repo) -> None:
    repo.write(
        "conftest.py",
        "import pytest\n@pytest.fixture\ndef fa_model(fa_checkpoint, fa_model):\n"
        "    if fa_checkpoint.method == 'dfa':\n        raise RuntimeError('a slip of mine')\n    return fa_model\n",
    )
    result = repo.run(BP, DFA, "--fa-diagnostics=ab")
    result.assert_outcomes(passed=2, errors=2)
    result.stdout.fnmatch_lines(["*raise RuntimeError('a slip of mine')", "dfa *error: *a slip of mine*"])


# --- markers ---


def claim(decorator: str, body: str = "    fa_report.check()\n") -> str:
    return f"import pytest\n{decorator}\ndef test_claim(fa_report):\n{body}"


def test_a_marker_names_checkpoint_and_seeds(repo: Repo) -> None:
    repo.write("test_own.py", claim("@pytest.mark.fa_protocol(checkpoint='runs/bp_s{seed}.pt', seeds=[42, 123])"))
    repo.run().assert_outcomes(passed=2)
    repo.write("test_own.py", claim("@pytest.mark.fa_protocol(checkpoint=['runs/bp_s42.pt', 'runs/bp_s123.pt'])"))
    repo.run().assert_outcomes(passed=2)
    repo.write("test_own.py", claim("@pytest.mark.fa_protocol(checkpoint='runs/bp_*.pt')"))
    repo.run().assert_outcomes(passed=2)


def test_seeds_of_a_marker_stand_for_seed_in_the_option_and_the_other_way_round(repo: Repo) -> None:
    repo.write("test_own.py", claim("@pytest.mark.fa_protocol(seeds=[42])"))
    repo.run("--fa-checkpoint=runs/bp_s{seed}.pt", "--fa-seeds=42,123", *AUDIT_ONLY).assert_outcomes(passed=1, deselected=9)
    repo.write("test_own.py", claim("@pytest.mark.fa_protocol(checkpoint='runs/bp_s{seed}.pt')"))
    repo.run("--fa-seeds=42,123").assert_outcomes(passed=2)


def test_a_marker_chooses_diagnostics(repo: Repo) -> None:
    repo.write(
        "test_own.py",
        "import pytest\n@pytest.mark.fa_protocol(checkpoint='runs/dfa_s42.pt', diagnostics='cd')\n"
        "def test_claim(fa_diagnostic):\n    fa_diagnostic.check()\n",
    )
    repo.run().assert_outcomes(passed=1, skipped=1)


def test_markers_on_function_class_and_module_the_closest_wins_key_by_key(repo: Repo) -> None:
    repo.write(
        "test_own.py",
        "import pytest\n"
        "pytestmark = pytest.mark.fa_protocol(\n"
        "    checkpoint='runs/bp_s42.pt', margin_pp=1, g_norm_floor=1e-9, growth='cumulative')\n"
        "def found(t):\n    return t.frozen_acc_margin_pp, t.g_norm_floor, t.growth, t.h_norm_explosion_ratio\n"
        "def test_module(fa_thresholds):\n    assert found(fa_thresholds) == (1, 1e-9, 'cumulative', 50)\n"
        "@pytest.mark.fa_protocol(frozen_acc_margin_pp=2, h_norm_explosion_ratio=60)\n"
        "class TestClass:\n"
        "    def test_class(self, fa_thresholds):\n"
        "        assert found(fa_thresholds) == (2, 1e-9, 'cumulative', 60)\n"
        "    @pytest.mark.fa_protocol(margin_pp=3, growth='per_block')\n"
        "    def test_function(self, fa_thresholds, fa_checkpoint):\n"
        "        assert found(fa_thresholds) == (3, 1e-9, 'per_block', 60)\n"
        "        assert fa_checkpoint.method == 'bp'\n",
    )
    repo.run().assert_outcomes(passed=3)


def test_a_conftest_may_mark_generated_tests(repo: Repo) -> None:
    repo.write(
        "conftest.py",
        "import pytest\ndef pytest_collection_modifyitems(items):\n"
        "    for item in items:\n        if 'dfa' in item.nodeid:\n"
        "            item.add_marker(pytest.mark.fa_protocol(h_norm_explosion_ratio=1e30, expect='b'))\n",
    )
    repo.run(DFA).assert_outcomes(passed=2, xfailed=1, skipped=1)


def test_expect_on_a_marker_is_a_strict_xfail_of_diagnostics_and_a_check_of_reports(repo: Repo) -> None:
    repo.write(
        "test_own.py",
        "import pytest\npytestmark = pytest.mark.fa_protocol(checkpoint='runs/dfa_s42.pt', expect='ab')\n"
        "def test_diagnostic(fa_diagnostic):\n    fa_diagnostic.check()\n"
        "def test_report(fa_report):\n    fa_report.check()\n",
    )
    repo.run().assert_outcomes(passed=2, xfailed=2, skipped=1)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ("margin=2", "unknown keyword 'margin'; known: g_norm_floor, *margin_pp, checkpoint, seeds, diagnostics, expect"),
        ("'runs/a.pt'", "takes keywords only, not 'runs/a.pt'; known: *"),
        ("margin_pp=200", "threshold frozen_acc_margin_pp must be a number from -100 to 100, not 200"),
        ("margin_pp='2'", "threshold frozen_acc_margin_pp must be a number from -100 to 100, not '2'"),
        ("growth='total'", "growth must be one of per_block, cumulative, not 'total'"),
        ("diagnostics='ax'", "diagnostics 'ax': unknown key 'x'; known: a (residual-growth), *"),
        ("diagnostics=''", "diagnostics '': no key given; known: *"),
        ("diagnostics=[1]", "diagnostics must be keys such as 'ad' or [[]'a', 'my-name'], not [[]1]"),
        ("expect='z'", "diagnostics 'z': unknown key 'z'; known: *"),
        ("expect=1", "expect must be keys such as 'ad' or [[]'a', 'my-name'], not 1"),
        ("seeds=42", "seeds must be a list of whole numbers such as [[]42, 123], not 42"),
        ("seeds='42,123'", "seeds must be a list of whole numbers such as [[]42, 123], not '42,123'"),
        ("seeds=[]", "seeds must be a list of whole numbers such as [[]42, 123], not [[]]"),
        ("checkpoint=42", "checkpoint must be a path, a glob or a list of them, not 42"),
    ],
)
@pytest.mark.parametrize("fixture", ["fa_report", ""], ids=["with", "without"])
def test_a_wrong_keyword_is_an_error_of_its_test_and_names_the_known_ones(
    repo: Repo, keywords: str, message: str, fixture: str
) -> None:
    repo.write(
        "test_own.py",
        f"import pytest\n@pytest.mark.fa_protocol({keywords})\ndef test_claim({fixture}): pass\ndef test_other(): pass\n",
    )
    result = repo.run(BP, "--fa-diagnostics=a")
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines([f"@pytest.mark.fa_protocol*{message}", "ERROR test_own.py::test_claim - @pytest.mark.fa_pr*"])


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ("checkpoint='runs/none.pt'", "@pytest.mark.fa_protocol on test_claim: checkpoint: no such file"),
        ("checkpoint='runs/bp_s{seed}.pt'", "*checkpoint 'runs/bp_s{seed}.pt' contains {seed}, but no seeds are given*"),
        ("checkpoint='runs/bp_s42.pt', seeds=[42]", "seeds are given, but *'runs/bp_s42.pt' does not contain {seed}"),
        ("checkpoint=''", "*checkpoint: an empty path*"),
    ],
)
def test_a_marker_whose_checkpoint_cannot_be_found_is_an_error_of_its_test(repo: Repo, keywords: str, message: str) -> None:
    repo.write("test_own.py", claim(f"@pytest.mark.fa_protocol({keywords})"))
    result = repo.run()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([message])
    listed = repo.run("--collect-only")
    assert listed.ret == pytest.ExitCode.USAGE_ERROR
    listed.stderr.fnmatch_lines([f"ERROR: test_own.py::test_claim: {message}"])


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_wrong_marker_is_one_error_at_any_number_of_workers(repo: Repo, workers: str) -> None:
    repo.write("test_own.py", claim("@pytest.mark.fa_protocol(margin=2)"))
    repo.write("test_other.py", "def test_other(): pass\n")
    result = repo.spawn("-n", workers)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(
        [
            "@pytest.mark.fa_protocol: unknown keyword 'margin'; known: *",
            "ERROR test_own.py::test_claim - @pytest.mark.fa_protocol: unknown keyword 'margin'*",
        ]
    )
    result.stdout.no_fnmatch_line("*Traceback*")


@pytest.mark.parametrize(
    "text",
    [
        "@pytest.mark.fa_protocol(checkpoint='missing.pt')\ndef test_claim(): pass\n",
        "@pytest.mark.fa_protocol\ndef test_claim(): pass\n",
        "@pytest.mark.fa_protocol(checkpoint='runs/bp_s42.pt')\nclass TestAll:\n    def test_claim(self): pass\n",
        "pytestmark = pytest.mark.fa_protocol(checkpoint='runs/bp_s42.pt')\ndef test_claim(): pass\n",
        "import unittest\nclass TestAll(unittest.TestCase):\n    @pytest.mark.fa_protocol(margin_pp=3)\n"
        "    def test_claim(self): pass\n",
        "import unittest\n@pytest.mark.fa_protocol(checkpoint='missing.pt')\nclass TestAll(unittest.TestCase):\n"
        "    def test_claim(self): pass\n",
        "@pytest.mark.fa_protocol(checkpoint='missing.pt')\ndef test_claim(fa_device): pass\n",
        "@pytest.fixture\ndef fa_mine(): pass\n@pytest.mark.fa_protocol(checkpoint='missing.pt')\n"
        "def test_claim(fa_mine): pass\n",
        "@pytest.mark.fa_protocol(checkpoint='missing.pt')\ndef test_claim(fa_thresholds): pass\n",
        "@pytest.mark.fa_protocol(expect='a')\ndef test_claim(fa_checkpoint): pass\n",
        "@pytest.mark.fa_protocol(checkpoint='runs/bp_s42.pt')\nclass TestAll:\n    def test_claim(self, fa_device): pass\n",
    ],
    ids=[
        *("function", "bare", "class", "module", "unittest", "unittest-class", "device", "own-fixture", "thresholds"),
        *("expect", "class-of-device"),
    ],
)
def test_a_marker_that_audits_nothing_is_refused(repo: Repo, text: str) -> None:
    repo.write("test_own.py", f"import pytest\n{text}")
    result = repo.run(BP, "--fa-diagnostics=a")
    result.assert_outcomes(errors=1, passed=1)
    result.stdout.fnmatch_lines(["ERROR test_own.py::*test_claim* - @pytest.mark.fa_protocol on *"])


def test_a_marker_on_a_unittest_class_is_refused_also_where_nothing_else_is_audited(repo: Repo) -> None:
    repo.ini(None)
    repo.write(
        "test_own.py",
        "import pytest, unittest\n@pytest.mark.fa_protocol(checkpoint='missing.pt')\nclass TestAll(unittest.TestCase):\n"
        "    def test_claim(self): pass\n",
    )
    repo.run().assert_outcomes(errors=1)


@pytest.mark.parametrize(
    "text",
    [
        "@pytest.mark.parametrize('n', [pytest.param(1, marks=P(checkpoint='runs/dfa_s42.pt'))])\n"
        "def test_claim(n, fa_report): pass\n",
        "@pytest.mark.parametrize('n', [pytest.param(1, marks=P(diagnostics='a'))])\ndef test_claim(n, fa_diagnostic): pass\n",
        "@P(checkpoint='runs/bp_s42.pt')\n@P(checkpoint='runs/dfa_s42.pt')\ndef test_claim(fa_report): pass\n",
        "@P(margin_pp=1)\n@P(frozen_acc_margin_pp=2)\ndef test_claim(fa_report): pass\n",
        "pytestmark = [P(checkpoint='runs/bp_s42.pt'), P(checkpoint='runs/dfa_s42.pt')]\ndef test_claim(fa_report): pass\n",
        "@P(checkpoint='runs/bp_s42.pt')\n@P(checkpoint='runs/dfa_s42.pt')\nclass TestAll:\n"
        "    def test_claim(self, fa_report): pass\n",
    ],
    ids=["param", "param-diagnostics", "twice", "twice-by-short-name", "twice-on-module", "twice-on-class"],
)
def test_what_of_a_marker_would_be_dropped_is_refused(repo: Repo, text: str) -> None:
    repo.write("test_own.py", f"import pytest\nP = pytest.mark.fa_protocol\n{text}")
    result = repo.run("test_own.py", "--fa-checkpoint=runs/bp_s42.pt", "-k", "test_claim")
    assert result.ret == pytest.ExitCode.TESTS_FAILED and "passed" not in result.parseoutcomes()
    result.stdout.fnmatch_lines(["ERROR test_own.py::*test_claim* - @pytest.mark.fa_protocol*"])


def test_a_marker_of_pytest_param_may_change_what_is_looked_at_later(repo: Repo) -> None:
    repo.write(
        "test_own.py",
        "import pytest\nP = pytest.mark.fa_protocol\n"
        "@pytest.mark.parametrize('n', [pytest.param(3, marks=P(margin_pp=3, diagnostics='ab', expect='ab'))])\n"
        "@P(checkpoint='runs/dfa_s42.pt')\ndef test_claim(n, fa_report):\n"
        "    assert fa_report.thresholds.frozen_acc_margin_pp == n\n    fa_report.check()\n"
        "@P(margin_pp=4)\nclass Base: pass\n"
        "@P(margin_pp=5, checkpoint='runs/bp_s42.pt')\nclass TestInherits(Base):\n    def test_it(self, fa_checkpoint): pass\n",
    )
    repo.run("test_own.py").assert_outcomes(passed=2)


def test_where_no_file_of_a_marker_exists_nothing_is_green(repo: Repo) -> None:
    gone = claim("@pytest.mark.fa_protocol(checkpoint='runs/gone.pt')")
    repo.write("test_own.py", gone)
    result = repo.run("--fa-missing=skip")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["ERROR test_own.py::test_claim* - none of the checkpoints that tests name exists*"])
    repo.run("--fa-missing=skip", BP, "--fa-diagnostics=a").assert_outcomes(passed=1, skipped=1)
    repo.write("test_own.py", claim("@pytest.mark.fa_protocol(checkpoint=['runs/gone.pt', 'runs/bp_s42.pt'])"))
    repo.run("--fa-missing=skip").assert_outcomes(passed=1, skipped=1)


@pytest.mark.parametrize(("expected", "outcome"), [("a", "failed"), ("", "passed")])
def test_what_a_marker_expects_of_a_report_is_compared_where_the_test_does_not(repo: Repo, expected: str, outcome: str) -> None:
    marker = f"@pytest.mark.fa_protocol(checkpoint='runs/bp_s42.pt', expect='{expected}')"
    repo.write("test_own.py", claim(marker, "    assert fa_report.headline_acc > 0.1\n"))
    result = repo.run("test_own.py")
    result.assert_outcomes(**{outcome: 1})
    if expected:
        result.stdout.fnmatch_lines(["CHANGED: residual-growth was expected to fire and does not: *"])


@pytest.mark.parametrize(
    "text",
    [
        "pytestmark = pytest.mark.fa_protocol(margin_pp=3)\ndef test_plain(): pass\n",
        "pytestmark = pytest.mark.fa_protocol(checkpoint='runs/bp_s42.pt')\n"
        "def test_a(): pass\ndef test_b(fa_checkpoint): pass\n",
        "@pytest.mark.fa_protocol(margin_pp=3)\ndef test_a(fa_thresholds): assert fa_thresholds.frozen_acc_margin_pp == 3\n",
    ],
    ids=["thresholds-above-plain-tests", "one-of-several-asks", "thresholds-alone"],
)
def test_a_marker_above_plain_tests_or_for_thresholds_stands(repo: Repo, text: str) -> None:
    repo.write("test_own.py", f"import pytest\n{text}")
    assert repo.run().ret == pytest.ExitCode.OK
