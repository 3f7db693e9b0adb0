"""The same audit from several workers: the same rows, the same colours, each checkpoint measured once."""

from __future__ import annotations

import json
import os
from collections import Counter

import pytest
from repo import Repo

OPTIONS = ("--fa-checkpoint=runs", "--fa-frozen=controls/*.pt")


def table(result: pytest.RunResult) -> list[str]:
    start = next(number for number, line in enumerate(result.outlines) if " FA audit " in line)
    return result.outlines[start + 1 : start + 7]


def test_two_workers_give_the_same_audit_in_the_same_colours(repo: Repo) -> None:
    repo.write(
        "conftest.py",
        "import sys\ndef pytest_sessionfinish(session):\n"
        "    if not hasattr(session.config, 'workerinput'):\n"
        "        with open('controller.txt', 'w') as file:\n            file.write(str('torch' in sys.modules))\n",
    )
    alone = repo.run(*OPTIONS, "--color=yes", "--fa-report=json:one.json")
    result = repo.spawn(*OPTIONS, "--color=yes", "--fa-report=json:two.json", "--junitxml=two.xml", "-n2")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert table(result) == table(alone)
    one, two = (json.loads((repo.path / name).read_text("utf-8")) for name in ("one.json", "two.json"))
    for document in (one, two):  # of when it was made, and by which command, they tell different things
        del document["origin"]["created"], document["origin"]["command"]
    assert two == one
    flags = [line for line in result.outlines if "FLAG:" in line]
    assert flags and all(line.startswith("\x1b[31m") for line in flags)
    summary = [line for line in result.outlines if "FAILED" in line and "residual-growth" in line]
    assert summary and "per-block growth" in summary[0]
    assert sum("FA audit of" in line for line in result.outlines) == 1, "the controller alone prints"
    assert (repo.path / "two.xml").read_text("utf-8").count('name="fa_method"') == 13
    assert (repo.path / "controller.txt").read_text() == "False", "the controller never imports torch"


def test_workers_measure_each_checkpoint_once_even_if_its_tests_are_spread_and_give_the_reports_of_one_process(
    repo: Repo,
) -> None:
    alone = repo.audit(*OPTIONS)["reports"]
    repo.forget()
    repo.write(
        "conftest.py",
        "import os\nfrom pytest_fadiag.workshop import Workshop\noriginal = Workshop.observe\n"
        "def counted(self, network, batches, observers, *rest):\n"
        "    with open(f'measured-{os.getpid()}.txt', 'a') as file:\n"
        "        file.write(''.join(f'{observer.name}\\n' for observer in observers))\n"
        "    return original(self, network, batches, observers, *rest)\n"
        "Workshop.observe = counted\n",
    )
    assert repo.audit(*OPTIONS, "-n2", "--dist=load", "--maxschedchunk=1", run=repo.spawn)["reports"] == alone
    seen = Counter(name for file in repo.path.glob("measured-*.txt") for name in file.read_text().splitlines())
    assert (seen.pop("accuracy"), seen.pop("control-readout")) == (5, 2), "three checkpoints and two controls"
    assert seen == dict.fromkeys(("states", "gradients", "output-error", "reference", "precision", "directions"), 3)


def test_a_pasted_id_and_brief_tracebacks_work_with_workers(repo: Repo) -> None:
    result = repo.spawn("runs/dfa_s42.pt::residual-growth", "-n1", "--tb=line")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["runs/dfa_s42.pt::residual-growth: per-block growth *"])
    result.stdout.no_fnmatch_line("FA diagnostic report*")


def test_a_file_name_that_is_not_utf8_is_refused_before_it_breaks_the_workers(repo: Repo) -> None:
    (repo.path / "runs" / "dfa_s42.pt").rename(repo.path / "runs" / os.fsdecode(b"caf\xe9.pt"))
    result = repo.spawn("--fa-checkpoint=runs", "-n1")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: xdist cannot send a file name that is not UTF-8 to its workers; rename", "  runs/caf*.pt"]
    )
