"""The reporting form: filled in where the audit knows, left to the author where it does not."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from pytest_fadiag.judge.diagnostics import DIAGNOSTICS
from pytest_fadiag.show.audit import Audit, Checklist
from pytest_fadiag.show.checklist import PITFALLS
from pytest_fadiag.show.form import form

Audits = dict[str, Callable[[], Audit]]


def plain(text: str) -> str:
    """The text as a reader of the rendered form sees it."""
    return re.sub(r"\\([^a-zA-Z0-9\s])", r"\1", text)


def part(text: str, method: str) -> str:
    """The form of one method, as rendered."""
    return plain(text).split(f"\n## {method}\n")[1].split("\n## ")[0]


def test_every_method_has_its_form(audits: Audits) -> None:
    text = plain(form(audits["usual"](), "0.3.0"))
    assert re.findall(r"^## (.*)$", text, re.M) == ["bp", "dfa", "dfa (log)", "dfa-lam (log)"]
    assert "Filled in by pytest-fadiag 0.3.0." in text


def test_identification_and_headline_numbers(audits: Audits) -> None:
    text = part(form(audits["usual"](), "0.3"), "dfa")
    assert "| seeds | 42, 123, 456 (n = 3) |" in text
    assert "| audited | checkpoints: runs/dfa_s42.pt, runs/dfa_s123.pt, runs/dfa_s456.pt |" in text
    assert "| accuracy | 0.6530 ± 0 (n = 3) |" in text and "| accuracy of the control | 0.7600 ± 0 (n = 3) |" in text
    assert "**FIRE**: -10.70 pp, 95 % interval -11.50 to -9.90 (over 3 seeds), minimum 2 pp, n = 3" in text
    assert "| margin over seeds | not tested |" in part(form(audits["usual"](), "0.3"), "bp")
    assert "0.9000 (n = 1, no spread)" in form(audits["one"](), "0.3")


def test_the_diagnostics_with_every_layer_of_every_seed(audits: Audits) -> None:
    text = part(form(audits["usual"](), "0.3"), "dfa")
    assert all(f"### ({diagnostic.key}) {diagnostic.name}:" in text for diagnostic in DIAGNOSTICS.by_default)
    assert text.count("h_0 6.0e+03, h_1 4.0e+06, h_2 9.0e+06, h_3 1.0e+07, h_4 1.5e+07; per-block growth 667") == 3
    assert text.count("| **fire** | per-block growth 667 > 50 |") == 3
    assert text.count("95 % interval -11.95 to -9.44 (binomial, 10,000 images, unpaired)") == 3
    assert text.count("| pass | cross-batch cosine -0.020 <= 0.3 | layer 2; cosine -0.020 |") == 3


def test_holes_bounds_and_errors_are_said_to_be_so(audits: Audits) -> None:
    text = form(audits["odd"](), "0.3")
    holes = part(text, "holes (log)")
    assert "likely pass" in holes and "not measured" in holes and "h_0 9, h_4 4.0e+04" in holes and "training logs" in holes
    assert "No control was supplied" in part(text, "bare (log)")
    assert "cannot be read: " in part(text, "broken") and "| later" not in part(text, "broken")
    assert "not run" in part(text, "later")


def test_the_first_epochs_are_there_where_there_are_epochs(audits: Audits) -> None:
    text = form(audits["usual"](), "0.3")
    heading = "First epoch at which each diagnostic fires"
    assert heading not in part(text, "dfa")
    assert "| 42 | 10 | 18 | never | 1 | 1 to 30 |" in part(text, "dfa (log)")
    assert "| 42 | never | never | not measured | 1 | 1 to 30 |" in part(text, "dfa-lam (log)")
    assert "1 (not at the end)" in part(form(audits["odd"](), "0.3"), "wild")


def test_a_diagnostic_that_no_epoch_allows_to_judge_is_not_said_never_to_have_fired(audits: Audits) -> None:
    log = next(row for row in audits["usual"]().rows if row.method == "dfa-lam")
    assert log.report is not None and log.report.trajectory is not None
    course = log.report.trajectory
    blind = tuple(replace(point, bp_grad_norms=(None,) * 5) for point in course.points)
    only_at_the_end = replace(log.report, trajectory=replace(course, points=blind))
    text = part(form(Audit([replace(log, report=only_at_the_end)]), "0.3"), "dfa-lam (log)")
    assert "| 42 | never | not logged by epoch | not measured | 1 | 1 to 30 |" in text
    later = replace(log.report, residual_norms=[1, 1e9, 1e9, 1e9, 1e9])
    text = part(form(Audit([replace(log, report=later)]), "0.3"), "dfa-lam (log)")
    assert "| 42 | only in the final numbers | never | not measured | 1 | 1 to 30 |" in text


def test_control_thresholds_and_environment(audits: Audits) -> None:
    audit = audits["usual"]()
    text = part(form(audit, "0.3"), "dfa")
    assert "| 42 | frozen | 0.7600 | 10,000 | frozen_dfa_s42.pt, seed 42 |" in text
    assert "| torch | 2.13.0 |" in text and "| TF32 | no |" in text and f"| checkpoint, SHA-256 | {'cd' * 32} |" in text
    assert "| h_norm_explosion_ratio | 50 |" in text and "default" not in text
    (one,) = audits["one"]().rows
    assert one.report is not None
    own = replace(one.report, thresholds=one.report.thresholds.replace(margin_pp=5), environment={})
    changed = plain(form(Audit([replace(one, report=own)]), "0.3"))
    assert "| frozen_acc_margin_pp | **5** (default 2) |" in changed and "Not recorded: *left to the author*" in changed


def test_digests_that_differ_are_given_for_each_seed(audits: Audits) -> None:
    rows = []
    for number, found in enumerate(audits["usual"]().rows[:3]):
        assert found.report is not None
        rows.append(replace(found, report=replace(found.report, environment={"checkpoint_sha256": str(number)})))
    assert "| checkpoint, SHA-256 | seed 42: 0; seed 123: 1; seed 456: 2 |" in plain(form(Audit(rows), "0.3"))


def test_the_checklist_ticks_only_what_was_verified(audits: Audits) -> None:
    audit = audits["usual"]()
    text = part(form(audit, "0.3"), "dfa")
    items = re.split(r"\n- \*\*(?=\d\. )", text)[1:]
    assert [item.splitlines()[0].removesuffix("**") for item in items] == [f"{n}. {item.title}" for n, item in PITFALLS.items()]
    assert "[x] in this form's numbers: every norm is the L2 norm" in items[0]
    assert "[ ] ✗ violated in the evaluation code: eval.py:12 (g.norm(-1)): takes the L₋₁ norm; fix: g.norm(dim=-1)" in items[0]
    assert (
        "[ ] in the evaluation code: left to the author, who let it stand: eval.py:20" in items[1]
        and "[x] in the ev" not in items[1]
    )
    assert "violated" not in items[1], "what the author let stand"
    assert "[x] in the evaluation code: no sign of it in the syntax of the 4 files that were read" in items[2]
    assert "[ ] in the checkpoints: left to the author" in items[3]


def test_code_that_was_not_read_is_not_ticked(audits: Audits) -> None:
    for none in (None, Checklist(0)):
        text = plain(form(replace(audits["usual"](), checklist=none), "0.3"))
        assert "[x] in the evaluation code" not in text and "violated" not in text
        assert text.count("[ ] in the evaluation code: left to the author; it was not read") == 4 * 6


def test_numbers_of_a_log_are_the_authors(audits: Audits) -> None:
    assert "[x] in this form's numbers" not in part(form(audits["usual"](), "0.3"), "dfa (log)")


@pytest.mark.parametrize("saved, said", [(True, "[x] in the checkpoints: each holds"), (False, "[ ] in the checkpoints: left")])
def test_saved_feedback_is_ticked_where_the_audit_noted_it(saved: bool, said: str, audits: Audits) -> None:
    (one,) = audits["one"]().rows
    assert one.report is not None
    noted = replace(one, report=replace(one.report, environment={"feedback_saved": saved}))
    assert said in form(Audit([noted]), "0.3")


def test_no_name_becomes_markup(audits: Audits) -> None:
    audit = audits["odd"]()
    finding = {"number": 1, "file": "a|b<script>.py", "line": 1, "code": "`x`\n# y", "message": "**m**", "silenced": None}
    text = form(replace(audit, checklist=Checklist(1, [finding])), "0.3")
    for found in re.finditer(r"<script|\*\*m\*\*|`x`|\$\\frac|\x1b|\u202e", text):
        assert text[found.start() - 1] == "\\", text[found.start() - 20 : found.end() + 20]
    rows = [line for line in text.splitlines() if line.startswith("|")]
    widths = {len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) for line in rows if "_a" in line}
    assert widths <= {3, 5, 6, 7}, "a bar in a name opens no cell"
    assert not re.search(r"^# y", text, re.M)


def test_numbers_and_versions_are_readable_in_the_file_itself(audits: Audits) -> None:
    text = form(audits["usual"](), "0.1.0")
    assert "pytest-fadiag 0.1.0. What" in text and "| accuracy | 0.6530 ± 0 (n = 3) |" in text
    assert "h_0 6.0e+03, h_1 4.0e+06" in text and "margin -10.70 pp < 2" in text and "| checkpoints: runs/bp_s42.pt," in text


def test_seeds_that_repeat_are_warned_of(audits: Audits) -> None:
    (row,) = audits["one"]().rows
    same = [replace(row, seed=42, checkpoint=f"runs/bp-{number}.pt") for number in range(3)]
    text = part(form(Audit(same), "0.3"), "bp")
    assert "| seeds | 42, 42, 42 (n = 3) |" in text and "\n**Warning: seed 42 occurs more than once, so n counts runs" in text
    assert "Warning" not in form(audits["usual"](), "0.3")
    more = [*same, *(replace(found, seed=7, checkpoint=f"{found.checkpoint}x") for found in same)]
    assert "**Warning: seeds 7 and 42 occur more than once" in form(Audit(more), "0.3")


def test_zero_rows_give_a_form_that_says_so(audits: Audits) -> None:
    assert "No method was audited." in form(audits["empty"](), "0.3")


def test_without_a_method_the_checklist_is_still_there(audits: Audits) -> None:
    text = plain(form(Audit([], checklist=audits["usual"]().checklist), "0.3"))
    assert "No method was audited." in text and "\n## Checklist of pitfalls\n" in text
    assert "✗ violated in the evaluation code: eval.py:12 (g.norm(-1)): takes the L₋₁ norm; fix: g.norm(dim=-1)" in text
    assert "who let it stand: eval.py:20" in text and "in this form's numbers" not in text and "in the checkpoints" not in text
    assert "the syntax of the file that was read" in form(Audit([], checklist=Checklist(1)), "0.3")


def test_margins_over_seeds_alone_are_given(audits: Audits) -> None:
    text = form(Audit([], audits["usual"]().margins), "0.3")
    assert "only its margin over seeds" in text and "| dfa | **FIRE**: -10.70 pp, 95 % interval" in text
    assert "## Margins over seeds" not in form(audits["usual"](), "0.3")


def test_the_titles_are_those_of_the_checks_that_read_code() -> None:
    from pytest_fadiag.lint.registry import PITFALLS as CHECKED

    assert {number: item.title for number, item in PITFALLS.items()} == {
        number: entry.title for number, entry in CHECKED.items()
    }
