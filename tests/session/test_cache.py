"""Every checkpoint measured once: within a run, from run to run, and again when something that counts has changed."""

from __future__ import annotations

import errno
import io
import json
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from repo import Repo

import pytest_fadiag.cache
from pytest_fadiag.judge.files import write_atomically

BP = "--fa-checkpoint=runs/bp_s42.pt"
DFA = "--fa-checkpoint=runs/dfa_s42.pt"
LIST_MODULES = """
import sys
def pytest_sessionfinish():
    heavy = {"torch", "numpy", "matplotlib", "torchvision", "filelock"}
    with open("loaded.txt", "w") as file:
        file.write(" ".join(sorted(heavy & set(sys.modules))))
"""


@pytest.fixture
def cold(repo: Repo) -> Repo:
    repo.forget()
    return repo


def records(repo: Repo) -> list[Path]:
    return sorted((repo.path / ".pytest_cache" / "d" / "fadiag").glob("*.json"))


def test_the_diagnostics_of_a_checkpoint_share_one_measurement(cold: Repo, measured: list[str]) -> None:
    cold.run(BP, DFA).assert_outcomes(passed=4, failed=2, skipped=2)
    assert len(measured) == 2


def test_written_tests_share_it_too(cold: Repo, measured: list[str]) -> None:
    cold.write("test_own.py", "def test_one(fa_report): pass\ndef test_two(fa_diagnostic): pass\n")
    cold.run(BP)
    assert len(measured) == 1


def test_the_next_run_measures_nothing(cold: Repo, measured: list[str]) -> None:
    cold.run(BP)
    first = cold.audit(BP)["reports"]
    assert (len(measured), len(records(cold))) == (1, 1)
    assert cold.audit(BP)["reports"] == first


def test_a_cached_report_is_the_measured_one(cold: Repo) -> None:
    measured = cold.audit(DFA, "--fa-frozen=controls/*.pt")
    assert cold.audit(DFA, "--fa-frozen=controls/*.pt") == measured


def test_thresholds_are_not_part_of_the_key(cold: Repo, measured: list[str]) -> None:
    cold.run(DFA).assert_outcomes(passed=1, failed=2, skipped=1)
    lax = "--fa-threshold=h_norm_explosion_ratio=1e30", "--fa-threshold=g_norm_floor=0"
    cold.run(DFA, *lax).assert_outcomes(passed=3, skipped=1)
    cold.run(DFA, "--fa-confounds=flag", "--fa-growth=cumulative", "--fa-diagnostics=ac").assert_outcomes(failed=2)
    assert len(measured) == 1


def test_a_control_checkpoint_is_evaluated_once(cold: Repo, measured: list[str]) -> None:
    for _ in range(2):
        cold.run("--fa-checkpoint=runs/bp_*.pt", "--fa-frozen=controls/frozen_bp_s42.pt").assert_outcomes(passed=9)
    assert measured.count("accuracy control-readout") == 1 and len(measured) == 3


def test_another_diagnostic_does_not_measure_the_old_numbers_again(cold: Repo, measured: list[str]) -> None:
    cold.run(BP, "--fa-diagnostics=a")
    cold.run(BP, "--fa-diagnostics=ac")
    cold.run(BP)
    assert measured == ["states accuracy", "gradients directions output-error reference", "precision"]


def test_the_margin_alone_needs_neither_a_stream_nor_a_backward_pass(cold: Repo, measured: list[str]) -> None:
    cold.write("plain_net.py", "import torch\ndef make(): return torch.nn.Sequential(torch.nn.Linear(20, 5))\n")
    import torch

    constant = {"0.weight": torch.zeros(5, 20), "0.bias": torch.arange(5.0)}
    torch.save(constant, cold.path / "plain.pt")
    options = ("--fa-checkpoint=plain.pt", "--fa-model=plain_net:make", "--fa-frozen=0.5", "--fa-threshold=margin_pp=-100")
    cold.run(*options, "--fa-diagnostics=d").assert_outcomes(passed=1)
    assert measured == ["accuracy"]
    cold.run(*options).assert_outcomes(errors=4)


def test_without_a_digest_of_the_data_a_run_still_measures_once(cold: Repo, measured: list[str]) -> None:
    cold.write("own_data_factory.py", "import numpy\ndef make():\n    d = numpy.load('data.npz')\n    return d['x'], d['y']\n")
    for _ in range(2):
        cold.run(BP, "--fa-data=own_data_factory:make").assert_outcomes(passed=3, skipped=1)
    assert len(measured) == 2, "once a run: what a factory returns is not known before it is called"
    assert records(cold) == []


def changed_checkpoint(repo: Repo) -> None:
    import torch

    content = torch.load(repo.path / "runs" / "bp_s42.pt")
    content["state_dict"]["embed.bias"][0] += 1e-3
    torch.save(content, repo.path / "runs" / "bp_s42.pt")


def changed_data(repo: Repo) -> None:
    data = np.load(repo.path / "data.npz")
    np.savez(repo.path / "data.npz", x=data["x"] * 1.01, y=data["y"])


def changed_factory(repo: Repo) -> None:
    path = repo.path / "net_factory_of_repo" / "blocks.py"
    path.write_text(path.read_text() + "# another comment\n")


@pytest.mark.parametrize("change", [changed_checkpoint, changed_data, changed_factory], ids=lambda change: change.__name__)
def test_what_counts_is_measured_again(cold: Repo, measured: list[str], change: Any) -> None:
    cold.write("net_factory_of_repo/__init__.py", "from .blocks import make\n")
    cold.write(
        "net_factory_of_repo/blocks.py", "from pytest_fadiag import ResidualMLP\ndef make(): return ResidualMLP(20, 16, 4, 5)\n"
    )
    options = (BP, "--fa-model=net_factory_of_repo:make")
    cold.run(*options).assert_outcomes(passed=3, skipped=1)
    cold.run(*options)
    assert len(measured) == 1
    change(cold)
    cold.run(*options).assert_outcomes(passed=3, skipped=1)
    assert len(measured) == 2


@pytest.mark.parametrize(
    ("option", "again"),
    [
        ("--fa-batches=2", "states gradients output-error reference precision directions"),
        ("--fa-stream=blocks.* -> out_ln", "states gradients output-error reference precision directions"),
        ("--fa-device=cpu", "states gradients output-error reference precision directions accuracy"),
        ("--fa-threads=2", "states gradients output-error reference precision directions accuracy"),
    ],
)
def test_how_it_is_measured_counts_for_what_depends_on_it(cold: Repo, measured: list[str], option: str, again: str) -> None:
    cold.run(BP)
    cold.run(BP, option)
    assert measured[1:] == [again]


def test_how_many_samples_are_forwarded_at_once_does_not_count(cold: Repo, measured: list[str]) -> None:
    cold.run(BP)
    cold.run(BP, "--fa-batch-size=50")
    assert len(measured) == 1


def test_where_it_lies_does_not_count(cold: Repo, measured: list[str]) -> None:
    cold.run(BP)
    (cold.path / "moved").mkdir()
    (cold.path / "data.npz").rename(cold.path / "moved" / "data.npz")
    (cold.path / "runs" / "bp_s42.pt").rename(cold.path / "moved" / "bp_s42.pt")
    cold.run("--fa-checkpoint=moved/bp_s42.pt", "--fa-data=moved/data.npz").assert_outcomes(passed=3, skipped=1)
    assert len(measured) == 1


def test_a_touched_file_of_the_same_content_is_not_measured_again(cold: Repo, measured: list[str]) -> None:
    cold.run(BP)
    os.utime(cold.path / "runs" / "bp_s42.pt", (1, 1))
    cold.run(BP)
    assert len(measured) == 1


def test_cache_clear_forgets(cold: Repo, measured: list[str]) -> None:
    cold.run(BP)
    cold.run(BP, "--cache-clear")
    assert len(measured) == 2
    cold.run(BP)
    assert len(measured) == 2


def test_no_cache_neither_reads_nor_writes(cold: Repo, measured: list[str]) -> None:
    cold.run(BP, "--fa-no-cache").assert_outcomes(passed=3, skipped=1)
    assert (len(measured), records(cold)) == (1, [])
    cold.run(BP)
    cold.run(BP, "--fa-no-cache")
    assert len(measured) == 3


def test_without_pytests_cache_a_run_measures_once(cold: Repo, measured: list[str]) -> None:
    cold.run(BP, "-p", "no:cacheprovider").assert_outcomes(passed=3, skipped=1)
    assert len(measured) == 1
    assert not (cold.path / ".pytest_cache").exists()


def test_a_run_without_an_audit_leaves_no_folder(cold: Repo) -> None:
    cold.write("test_own.py", "def test_own(): pass\n")
    cold.run()
    cold.run(BP, "--collect-only")
    assert not (cold.path / ".pytest_cache" / "d").exists()


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "{}", '{"checkpoint": 1}'], ids=repr)
def test_a_damaged_record_is_measured_anew(cold: Repo, measured: list[str], content: str) -> None:
    cold.run(BP)
    records(cold)[0].write_text(content)
    cold.run(BP).assert_outcomes(passed=3, skipped=1)
    assert len(measured) == 2
    assert json.loads(records(cold)[0].read_text())["checkpoint"]["method"] == "bp", "and mended"


def test_a_cache_folder_that_cannot_be_made_costs_a_warning(cold: Repo, measured: list[str]) -> None:
    (cold.path / ".pytest_cache").mkdir()
    (cold.path / ".pytest_cache" / "d").write_text("a file where the folder should be")
    result = cold.run(BP)
    result.assert_outcomes(passed=3, skipped=1, warnings=1)
    result.stdout.fnmatch_lines(["*PytestWarning: fadiag: measurements are not kept for the next run: *"])
    assert len(measured) == 1


def test_a_full_disk_costs_a_warning(cold: Repo, measured: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(pytest_fadiag.cache, "write_atomically", full)
    result = cold.run(BP, DFA)
    result.assert_outcomes(passed=4, failed=2, skipped=2, warnings=1)
    result.stdout.fnmatch_lines(["*PytestWarning: fadiag: measurements are not kept for the next run: *No space left*"])
    assert len(measured) == 2


def test_an_atomic_write_leaves_the_old_file_or_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "record.json"
    write_atomically(path, "old")
    with monkeypatch.context() as patched, pytest.raises(OSError):
        patched.setattr(os, "replace", lambda *names: (_ for _ in ()).throw(OSError(errno.EIO, "input/output error")))
        write_atomically(path, "new")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path], "and nothing beside it"
    umask = os.umask(0)
    os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask


def test_a_failing_input_is_read_once(cold: Repo) -> None:
    cold.write(
        "failing_factory.py",
        "from pathlib import Path\nlog = Path('calls.txt')\n"
        "def make():\n    log.write_text((log.read_text() if log.exists() else '') + 'x')\n"
        "    raise RuntimeError('no such architecture')\n",
    )
    result = cold.run(BP, "--fa-model=failing_factory:make")
    result.assert_outcomes(errors=4)
    result.stdout.fnmatch_lines(["*network factory 'failing_factory:make' raised RuntimeError: no such architecture"])
    assert (cold.path / "calls.txt").read_text() == "x"


def test_a_run_answered_from_the_cache_imports_no_torch(repo: Repo) -> None:
    repo.write("conftest.py", LIST_MODULES)
    options = ("--fa-checkpoint=runs", "--fa-frozen=controls/*.pt", "--fa-threshold=margin_pp=3", "-p", "no:xdist")
    repo.spawn(*options, "--fa-report=json:a.json", "--fa-report=markdown:a.md", "--junitxml=a.xml").assert_outcomes(
        passed=10, failed=3
    )
    assert (repo.path / "loaded.txt").read_text() == ""


def test_collection_imports_no_torch(repo: Repo) -> None:
    repo.write("conftest.py", LIST_MODULES)
    repo.spawn("--collect-only", "-q", "--fa-checkpoint=runs", "--fa-frozen=controls/*.pt", "-p", "no:xdist")
    assert (repo.path / "loaded.txt").read_text() == ""


# --- the progress of a long measurement ---

SLOW = """
import time, pytest
import pytest_fadiag.show.progress as progress
progress.PATIENCE = 0.2
@pytest.fixture
def fa_eval_batches(fa_eval_batches):
    class Slow:
        name, note, samples = "slow data", "", fa_eval_batches.samples
        def __iter__(self):
            print("a word of the user's")
            for batch in fa_eval_batches:
                time.sleep(0.25)
                yield batch
    return Slow()
"""


def on_a_terminal(folder: Path, *args: str) -> str:
    """What pytest writes to a terminal of 80 columns."""
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "pytest", "-p", "no:hypothesispytest", "-p", "no:randomly", "-p", "no:xdist", *args]
    environment = {**os.environ, "COLUMNS": "80", "TERM": "xterm"}
    process = subprocess.Popen(command, cwd=folder, env=environment, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    shown, deadline = b"", time.monotonic() + 60
    while time.monotonic() < deadline and (select.select([master], [], [], 0.1)[0] or process.poll() is None):
        try:
            shown += os.read(master, 1 << 16) if select.select([master], [], [], 0.1)[0] else b""
        except OSError:  # the other side is closed
            break
    process.wait(10)
    os.close(master)
    return shown.decode()


@pytest.mark.parametrize("capture", ["fd", "no"])
def test_on_a_terminal_a_long_measurement_shows_how_far_it_is_and_takes_it_back(cold: Repo, capture: str) -> None:
    cold.write("conftest.py", SLOW)
    shown = on_a_terminal(cold.path, DFA, "--fa-diagnostics=a", f"--capture={capture}")
    assert "\x1b7 measuring dfa_s42.pt 64 %\x1b[K\x1b8" in shown
    rest = shown.rpartition("\x1b8")[2]
    assert rest.startswith("\x1b[K"), "the last one is erased"
    captured = shown.partition("Captured stdout setup")[2]
    assert "measuring" not in captured
    assert ("a word of the user's" in captured) == (capture != "no")


def test_without_a_terminal_there_is_no_progress(cold: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_fadiag.show.progress.PATIENCE", 2.0)  # put back what the conftest changes in this process
    cold.write("conftest.py", SLOW)
    result = cold.run(DFA, "--fa-diagnostics=a")
    assert "measuring" not in result.stdout.str() and "\x1b" not in result.stdout.str()


def test_progress_waits_two_seconds_and_leaves_a_narrow_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    import pytest_fadiag.show.progress as module

    now = 0.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    written = io.StringIO()
    writer = SimpleNamespace(fullwidth=80, width_of_current_line=20, _file=written)
    reporter = SimpleNamespace(isatty=True, _tw=writer)
    with module.Progress(reporter, None, "ev\x1b[2Jil.pt") as progress:
        now = 1.9
        progress(64, 400)
        assert written.getvalue() == ""
        now = 2.1
        progress(200, 400)
        assert written.getvalue() == "\x1b7 measuring ev\\x1b[2Jil.pt 50 %\x1b[K\x1b8"
        writer.width_of_current_line = 62
        now = 2.3
        progress(300, 0)
        assert written.getvalue().count("measuring") == 1
    assert written.getvalue().endswith("\x1b[K")
