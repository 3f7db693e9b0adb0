"""The audit table of a run: as wide as the terminal, with a row for what never ran, and no name that steers the terminal."""

from __future__ import annotations

import unicodedata

import pytest
from repo import Repo

HOSTILE = "x\x1b[31mred\x07\r\n| a | <script>alert(1)</script> `b` [c](d) \u202egnp"


def cells(line: str) -> int:
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in line)


def lines_of_the_table(result: pytest.RunResult) -> list[str]:
    start = next(number for number, line in enumerate(result.outlines) if " FA audit " in line)
    return result.outlines[start:]


def test_the_table_of_a_run(repo: Repo) -> None:
    table = lines_of_the_table(repo.run("--fa-checkpoint=runs", "--fa-frozen=controls/*.pt"))
    assert [line.split()[:2] for line in table[2:6]] == [["bp", "42"], ["bp", "123"], ["bp", "n=2"], ["dfa", "42"]]
    assert table[6] == "^ crosses its threshold, but is excused"
    assert table[7].startswith("note: runs/bp_s42.pt and 2 more: no config names the activation of the network")
    assert table[9] == "note: runs/bp_s123.pt: control of another seed: 42"
    assert table[10] == "FA audit of 3 checkpoints: 2 trustworthy, 1 walk-back (a:1 b:1 d:1)"


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_run_keeps_to_the_width_of_the_terminal(repo: Repo, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    (repo.path / "runs" / "x.pt").write_bytes(b"")
    table = lines_of_the_table(repo.run("--fa-checkpoint=runs", "--fa-frozen=controls/*.pt", "-rN"))[:-1]
    assert max(map(cells, table[:-1])) <= width
    assert cells(table[-1]) <= max(width, 80)
    assert "1 incomplete" in table[-1]


def test_q_leaves_one_line(repo: Repo) -> None:
    result = repo.run("--fa-checkpoint=runs", "-q", "--tb=no", "-rN")
    (only,) = (line for line in result.outlines if "audit" in line)
    assert only == "FA audit of 3 checkpoints: 0 trustworthy, 1 walk-back (a:1 b:1), 2 incomplete, 3 without control"


def test_a_partial_run_is_not_called_trustworthy(repo: Repo) -> None:
    result = repo.run("--fa-checkpoint=runs/bp_s42.pt", "-q", "-k", "growth")
    result.stdout.fnmatch_lines(["FA audit of 1 checkpoint: 0 trustworthy, 0 walk-back, 1 incomplete"])


def test_nothing_is_printed_where_nothing_is_audited(repo: Repo) -> None:
    repo.write("test_own.py", "def test_own(): pass\n")
    for options in ((), ("-q",), ("-v",), ("--fa-report=json:none.json",)):
        repo.run(*options).stdout.no_fnmatch_line("*FA *")
    assert not (repo.path / "none.json").exists()


def test_a_test_that_only_asks_for_the_checkpoint_makes_no_row(repo: Repo) -> None:
    repo.write("test_own.py", "def test_own(fa_model): pass\n")
    repo.run("--fa-checkpoint=runs/bp_s42.pt", "-k", "own").stdout.no_fnmatch_line("*FA audit*")


def test_a_run_that_is_interrupted_shows_what_it_did_not_come_to(repo: Repo) -> None:
    repo.write("test_broken.py", "import no_such_module\n")
    repo.run("--fa-checkpoint=runs/bp_s42.pt").stdout.fnmatch_lines(
        ["bp *not run", "FA audit, interrupted before its end, of 1 checkpoint: *1 incomplete"]
    )


def test_of_two_tests_with_different_thresholds_the_row_shows_what_found_more(repo: Repo) -> None:
    repo.write(
        "test_own.py",
        "import pytest\npytestmark = pytest.mark.fa_protocol(checkpoint='runs/dfa_s42.pt')\n"
        "@pytest.mark.fa_protocol(h_norm_explosion_ratio=1e30, g_norm_floor=0)\ndef test_lax(fa_report): fa_report.check()\n"
        "def test_strict(fa_report): pass\n"
        "@pytest.mark.fa_protocol(h_norm_explosion_ratio=1e30, g_norm_floor=0)\ndef test_zlax(fa_report): fa_report.check()\n",
    )
    assert repo.summary()["runs/dfa_s42.pt"]["fired"] == "ab"


def test_two_files_outside_the_repo_under_one_short_name_keep_their_own_rows(
    repo: Repo, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("elsewhere")
    for name, source in (("one", "bp_s42.pt"), ("two", "dfa_s42.pt")):
        (folder / name).mkdir()
        (folder / name / "net.pt").write_bytes((repo.path / "runs" / source).read_bytes())
    repo.write(
        "test_own.py",
        f"import pytest\n@pytest.mark.fa_protocol(checkpoint='{folder}/one/net.pt')\ndef test_one(fa_report): pass\n"
        f"@pytest.mark.fa_protocol(checkpoint='{folder}/two/net.pt')\ndef test_two(fa_report): pass\n",
    )
    assert {name: found["method"] for name, found in repo.summary().items()} == {
        f"{folder}/one/net.pt": "bp",
        f"{folder}/two/net.pt": "dfa",
    }


def test_ascii_where_the_output_is_not_utf8(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    table = lines_of_the_table(repo.spawn("--fa-checkpoint=runs", "-rN", "--tb=no", "-p", "no:xdist"))
    assert "".join(table).isascii()
    assert "|h_L|" in table[1] and "\\u" not in "".join(table)


def test_a_hostile_name_is_neutral_in_all_that_a_run_prints_and_writes(repo: Repo) -> None:
    import torch

    content = torch.load(repo.path / "runs" / "dfa_s42.pt")
    content["config"]["method"] = HOSTILE
    name = "ev\x1b[31mil\u202e\n_s1.pt"
    torch.save(content, repo.path / "runs" / name)
    (repo.path / "runs" / "broken\x1b[2J.pt").write_bytes(b"PK")
    options = ["--fa-report=markdown:out.md", "--fa-missing=skip", "-rA", "-v"]
    result = repo.run(*options, "--fa-checkpoint=runs/*il*.pt", "--fa-checkpoint=runs/broken*", "--fa-checkpoint=no\x1bne.pt")
    result.assert_outcomes(passed=1, failed=2, skipped=5, errors=4)
    for shown in (result.stdout.str(), (repo.path / "out.md").read_text("utf-8")):
        assert {char for char in shown if not char.isprintable()} == {"\n"}
