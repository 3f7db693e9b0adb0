"""The demo: two verdicts, a page, and what to type next; the command's own words."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_fadiag import __version__, cli, read_audit
from pytest_fadiag.demo import HERE, demo


def test_the_demo_audits_both_networks_and_says_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    text = "\n".join(demo())
    assert "✗ WALK BACK  dfa, seed 456, accuracy 0.65" in text
    assert "✓ TRUSTWORTHY\n  bp 456" in text
    assert "fadiag audit runs/*.pt --model" in text and "fadiag-demo.html" in text
    page = (tmp_path / "fadiag-demo.html").read_text("utf-8")
    assert "2 checkpoints: 1 walk back, 1 trustworthy" in page


def test_the_demo_is_small() -> None:
    sizes = [file.stat().st_size for file in HERE.iterdir() if file.is_file()]
    assert sum(sizes) < 2_500_000


def test_a_report_gives_numbers_to_a_tracker(tmp_path: Path) -> None:
    import builders

    from pytest_fadiag.show.report import DiagnosticReport

    numbers = DiagnosticReport.of(builders.exploded()).metrics()
    assert numbers["fadiag/walk_back"] == 1 and numbers["fadiag/trustworthy"] == 0
    assert numbers["fadiag/frozen-margin"] == pytest.approx(-10.7)
    assert numbers["fadiag/direction-drift_fails"] == 0
    assert all(type(value) is float for value in numbers.values())
    report = DiagnosticReport.of(builders.exploded())
    report.save(tmp_path / "audit.json")
    assert read_audit(tmp_path / "audit.json").rows[0].conclusion.fired == report.fired


def test_the_command_has_a_version_and_one_spelling_of_an_option(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for words in (["--version"], ["audit", "--help"]):
        with pytest.raises(SystemExit, match="0"):
            cli.main(words)
    shown = capsys.readouterr().out
    assert shown.startswith(f"pytest-fadiag {__version__}\n")
    assert "how it is measured:" in shown and "  --frozen VALUE" in shown
    assert "--fa-frozen VALUE" not in shown


@pytest.mark.parametrize(
    ("encoding", "text"),
    [("ascii", "x |g_L| -1.5 >= 2 -> ... Gamma"), ("utf-8", "✗ ‖g_L‖ −1.5 ≥ 2 → … Γ")],
)
def test_a_terminal_without_symbols_gets_ascii(encoding: str, text: str) -> None:
    from pytest_fadiag.judge.words import ASCII

    assert "✗ ‖g_L‖ −1.5 ≥ 2 → … Γ".encode(encoding, ASCII).decode(encoding) == text
    assert "ж".encode("ascii", ASCII) == b"\\u0436"
