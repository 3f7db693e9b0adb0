"""The reporting form: filled in where the audit knows, left to the author where it does not."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pytest_fadiag.judge.diagnostics import DIAGNOSTICS
from pytest_fadiag.judge.pitfalls import PITFALLS
from pytest_fadiag.judge.records import Reference
from pytest_fadiag.show.audit import Audit, AuditRow, Checklist, Origin
from pytest_fadiag.show.form import form

Audits = dict[str, Callable[[], Audit]]


def plain(text: str) -> str:
    """The text as a reader of the rendered form sees it."""
    return re.sub(r"\\([^a-zA-Z0-9\s])", r"\1", text)


def part(text: str, title: str) -> str:
    """A section of the form, as rendered."""
    return plain(text).split(f"\n## {title}\n")[1].split("\n## ")[0]


def lines(text: str, title: str, *first: str) -> list[str]:
    """The lines of a section's table that begin with these cells."""
    return [line for line in part(text, title).splitlines() if line.startswith(f"| {' | '.join(first)} |")]


def test_a_form_is_one_page_a_paper(audits: Audits) -> None:
    text = form(audits["usual"](), "0.3.0")
    titles = [
        "Setting",
        "Results",
        "Methods",
        "First epoch at which each diagnostic fires",
        "Checklist of pitfalls",
        "Layer by layer",
    ]
    assert re.findall(r"^## (.*)$", plain(text), re.M) == titles
    assert re.search(r"^\d of 12 results need a walk-back\. Filled in by pytest-fadiag 0\.3\.0\. What", plain(text), re.M)
    said_once = ("torch 2.13.0", "h_norm_explosion_ratio 50", "**1. norm(-1)", "- (a) residual-growth")
    assert [plain(text).count(words) for words in said_once] == [1] * 4


def test_when_and_from_which_commit(audits: Audits) -> None:
    made = Origin("2026-01-02T03:04:05+00:00", "pytest --fa-only", "0123456+", {}, {}, {})
    text = plain(form(replace(audits["one"](), origin=made), "0.3"))
    assert (
        "Filled in by pytest-fadiag 0.3 on 2026-01-02 from commit 0123456+." in text
        and "| command | pytest --fa-only |" in text
    )


CONFIG = {
    "method": "x",
    "seed": 1,
    "frozen": False,
    "blocks": 4,
    "d": 40,
    "data": "fashion-mnist",
    "optimiser": "adamw",
    "lr": 1e-3,
}


def configured(audit: Audit, change: Callable[[AuditRow], dict[str, Any]]) -> Audit:
    rows = []
    for found in audit.rows:
        assert found.report is not None
        rows.append(replace(found, report=replace(found.report, config=change(found))))
    return Audit(rows)


def test_how_a_network_was_trained_is_filled_in_from_its_config(audits: Audits) -> None:
    audit = configured(audits["usual"](), lambda row: {**CONFIG, "epochs": 30, "out_ln": True})
    text = form(audit, "0.3")
    assert "| architecture | blocks 4, d 40, out_ln yes |" in part(text, "Setting")
    assert "| optimiser | adamw, lr 0.001 |" in part(text, "Setting") and "| epochs | 30 |" in part(text, "Setting")
    assert "| data | fashion-mnist |" in part(text, "Setting")
    assert all(line.endswith("| – |") for line in lines(text, "Methods", "dfa"))
    none = part(form(audits["usual"](), "0.3"), "Setting")
    assert none.count("*left to the author*") == 4 and "| epochs | *left to the author* |" in none


def test_what_methods_do_not_have_in_common_stands_in_their_rows(audits: Audits) -> None:
    epochs = {42: 10, 123: 20, 456: 20}
    audit = configured(
        audits["usual"](), lambda row: {**CONFIG, "lam": 0.01 * (row.method == "dfa-lam"), "epochs": epochs[row.seed or 42]}
    )
    text = form(audit, "0.3")
    assert lines(text, "Methods", "dfa-lam (log)")[0].endswith("| lam 0.01, epochs 10 or 20 |")
    assert lines(text, "Methods", "dfa")[0].endswith("| lam 0, epochs 10 or 20 |")
    assert "| epochs | differs between methods or seeds, see their own settings below |" in part(text, "Setting")


def test_a_row_a_method_and_seed(audits: Audits) -> None:
    text = form(audits["usual"](), "0.3")
    (line,) = lines(text, "Results", "dfa", "123")
    assert line == (
        "| dfa | 123 | 0.6530 | **fire** 667 | **fire** 4.0e-08 | pass -0.020 | **fire** -10.70 | **walk-back a b d** |"
    )
    assert lines(text, "Results", "bp", "42")[0].endswith("| trustworthy |")
    assert all(f"- ({d.key}) {d.name}: {d.question}" in part(text, "Results") for d in DIAGNOSTICS.by_default)


def test_the_methods_with_their_controls_and_margins(audits: Audits) -> None:
    text = form(audits["usual"](), "0.3")
    (dfa,) = lines(text, "Methods", "dfa")
    assert dfa.startswith(
        "| dfa | 3 | 0.6530 ± 0 | 0.7600 ± 0; its frozen control | -10.70 ± 0 | **FIRE**: -10.70, 95 % interval"
    )
    assert "interval -11.50 to -9.90 (over 3 seeds), minimum 2 |" in dfa
    assert "| not tested |" in lines(text, "Methods", "bp")[0]
    assert "| 1 | 0.9000 | 0.7600; its frozen control |" in form(audits["one"](), "0.3")


def test_a_caveat_that_all_margins_share_is_said_once(audits: Audits) -> None:
    audit = audits["usual"]()
    (of_dfa,) = audit.margins
    assert of_dfa.margin is not None
    noted = replace(of_dfa, margin=replace(of_dfa.margin, caveat="unpaired, all of them"))
    other = replace(noted, name="bp", method="bp", margin=replace(of_dfa.margin, caveat="unpaired, all of them"))
    assert form(replace(audit, margins=[noted, other]), "0.3").count("unpaired, all of them") == 1
    assert "minimum 2; unpaired, all of them |" in plain(
        form(replace(audit, margins=[noted, replace(other, margin=of_dfa.margin)]), "0.3")
    )


def test_how_far_a_method_gets_towards_bp(audits: Audits) -> None:
    audit = audits["usual"]()
    text = form(audit, "0.3")
    assert "(method − control)/(BP − control): means over seeds" in text
    shares = {name: lines(text, "Methods", name)[0].split(" | ")[6] for name in ("bp", "dfa", "dfa-lam (log)")}
    assert shares == {
        "bp": "–",
        "dfa": f"{(0.653 - 0.76) / (0.9 - 0.76):.2f}",
        "dfa-lam (log)": f"{(0.7 - 0.76) / (0.9 - 0.76):.2f}",
    }
    assert "BP − control" not in form(Audit([row for row in audit.rows if row.method != "bp"]), "0.3")
    weak = [row if row.method != "bp" else replaced(row, headline_acc=0.7, accuracy=None) for row in audit.rows]
    assert "BP − control" not in form(Audit(weak), "0.3"), "BP is no better than the control"
    elsewhere = [row if row.method != "bp" else replaced(row, environment={"data_sha256": "other"}) for row in audit.rows]
    assert "BP − control" not in form(Audit(elsewhere), "0.3"), "BP was measured on other data"


def replaced(row: AuditRow, **changes: Any) -> AuditRow:
    assert row.report is not None
    return replace(row, report=replace(row.report, **changes))


def test_controls_are_held_against_their_networks_by_both_configs(audits: Audits) -> None:
    audit = configured(audits["usual"](), lambda row: {**CONFIG, "lam": 0.01 * (row.method == "dfa-lam")})

    def controlled(rows: list[AuditRow], **changes: Any) -> str:
        made = []
        for row in rows:
            assert row.report is not None and row.report.control is not None
            config = {**CONFIG, "lam": 0.0, "frozen": True, "seed": 99, **changes}
            made.append(replaced(row, control=replace(row.report.control, config=config)))
        return part(form(Audit(made), "0.3"), "Methods")

    without_lam = [row for row in audit.rows if row.method != "dfa-lam"]
    assert "- [x] each control was trained by the same method" in controlled(without_lam)
    unlike = controlled(list(audit.rows))
    assert "- [ ] ✗ dfa-lam (log) and its control: lam 0.01, its control 0\n" in unlike + "\n" and "[x]" not in unlike
    assert "optimiser adamw, its control sgd; epochs none, its control 3" in controlled(without_lam, optimiser="sgd", epochs=3)
    assert "- [ ] each control was trained by the same method" in part(form(audit, "0.3"), "Methods"), "no config to compare"


def test_every_layer_of_every_seed(audits: Audits) -> None:
    text = part(form(audits["usual"](), "0.3"), "Layer by layer")
    assert text.count("h_0 6.0e+03, h_1 4.0e+06, h_2 9.0e+06, h_3 1.0e+07, h_4 1.5e+07; per-block growth 667") == 3
    assert text.count("95 % interval -11.95 to -9.44 (binomial, 10,000 images, unpaired)") == 3
    assert "| dfa | 42 | runs/dfa_s42.pt, cdcdcdcdcdcd… |" in text and "| frozen_dfa_s42.pt, seed 42, 10,000 images |" in text


def test_holes_bounds_and_errors_are_said_to_be_so(audits: Audits) -> None:
    text = form(audits["odd"](), "0.3")
    (holes,) = lines(text, "Results", "holes (log)")
    assert "likely pass" in holes and "not measured" in holes and "h_0 9, h_4 4.0e+04" in part(text, "Layer by layer")
    assert "training logs (a partial audit" in part(text, "Setting")
    assert "none supplied: *left to the author*" in lines(text, "Methods", "bare (log)")[0]
    assert "error: cannot be read: " in lines(text, "Results", "broken")[0]
    assert lines(text, "Results", "later")[0].endswith("| – | – | – | – | – | not run |")


def test_the_first_epochs_are_there_where_there_are_epochs(audits: Audits) -> None:
    heading = "First epoch at which each diagnostic fires"
    text = form(audits["usual"](), "0.3")
    assert lines(text, heading, "dfa") == []
    assert "| dfa (log) | 42 | 10 | 18 | never | 1 | 1 to 30 |" in part(text, heading)
    assert "| dfa-lam (log) | 42 | never | never | not measured | 1 | 1 to 30 |" in part(text, heading)
    assert "1 (not at the end)" in lines(form(audits["odd"](), "0.3"), heading, "wild")[0]


def test_a_diagnostic_that_no_epoch_allows_to_judge_is_not_said_never_to_have_fired(audits: Audits) -> None:
    log = next(row for row in audits["usual"]().rows if row.method == "dfa-lam")
    assert log.report is not None and log.report.trajectory is not None
    course = log.report.trajectory
    blind = tuple(replace(point, bp_grad_norms=(None,) * 5) for point in course.points)
    only_at_the_end = replace(log.report, trajectory=replace(course, points=blind))
    text = form(Audit([replace(log, report=only_at_the_end)]), "0.3")
    assert "| 42 | never | not logged by epoch | not measured | 1 | 1 to 30 |" in text
    later = replace(log.report, residual_norms=[1, 1e9, 1e9, 1e9, 1e9])
    text = form(Audit([replace(log, report=later)]), "0.3")
    assert "| 42 | only in the final numbers | never | not measured | 1 | 1 to 30 |" in text


def test_thresholds_and_environment_where_they_differ(audits: Audits) -> None:
    audit = audits["usual"]()
    assert "default" not in part(form(audit, "0.3"), "Setting") and "TF32 no" in part(form(audit, "0.3"), "Setting")
    (one,) = audits["one"]().rows
    assert one.report is not None
    own = replaced(one, thresholds=one.report.thresholds.replace(margin_pp=5), environment={})
    text = part(form(Audit([own]), "0.3"), "Setting")
    assert "frozen_acc_margin_pp 5 (default 2)" in text and "| environment | *left to the author* |" in text
    rows = [replaced(row, environment={"torch": "1" if row.seed == 42 else "2"}) for row in audit.rows[:3]]
    assert "| environment | torch bp 42: 1; bp 123, bp 456: 2 |" in part(form(Audit(rows), "0.3"), "Setting")


def test_the_worst_proof_of_the_reference_stands_for_all(audits: Audits) -> None:
    errors = {42: 1e-9, 123: 3e-8, 456: 2e-9}
    proven = Reference(problem="", dtype="float64")
    rows = [replaced(row, reference=proven, reference_error=errors[row.seed or 42]) for row in audits["usual"]().rows[:6]]
    text = part(form(Audit(rows), "0.3"), "Setting")
    assert "| reference | BP gradient, agrees with finite differences to 3.0e-08 or better |" in text
    rows[5] = replaced(rows[5], reference=replace(proven, problem="it is odd"), reference_error=None)
    assert "dfa 456: not proven: it is odd" in part(form(Audit(rows), "0.3"), "Setting")


def test_the_checklist_ticks_only_what_was_verified(audits: Audits) -> None:
    audit = audits["usual"]()
    text = part(form(Audit(audit.rows[:6], checklist=audit.checklist), "0.3"), "Checklist of pitfalls")
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
        assert text.count("[ ] the evaluation code: left to the author; it was not read") == 1


def test_numbers_of_a_log_are_the_authors(audits: Audits) -> None:
    audit = audits["usual"]()
    both = part(form(audit, "0.3"), "Checklist of pitfalls")
    own = [both.count(f"in this form's numbers of {source}") for source in ("checkpoints: ", "logs: left")]
    assert own == [len(PITFALLS) - 1] * 2, "feedback is not the audit's own"
    assert "[x] in this form's numbers" not in form(Audit([row for row in audit.rows if row.partial]), "0.3")


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
    assert widths <= {3, 8, 9, 10}, "a bar in a name opens no cell"
    assert not re.search(r"^# y", text, re.M)


def test_seeds_that_repeat_are_warned_of(audits: Audits) -> None:
    (row,) = audits["one"]().rows
    same = [replace(row, seed=42, checkpoint=f"runs/bp-{number}.pt") for number in range(3)]
    assert "- bp: seed 42 occurs more than once, so n counts runs" in part(form(Audit(same), "0.3"), "Remarks")
    assert "more than once" not in form(audits["usual"](), "0.3")
    more = [*same, *(replace(found, seed=7, checkpoint=f"{found.checkpoint}x") for found in same)]
    assert "seeds 7 and 42 occur more than once" in form(Audit(more), "0.3")


def test_notes_of_rows_are_remarks_without_the_name_of_the_file(audits: Audits) -> None:
    row = audits["usual"]().rows[0]
    noted = replaced(row, checkpoint="bp_s42.pt", notes="bp_s42.pt on some-data; taken in the dark")
    assert part(form(Audit([noted]), "0.3"), "Remarks").strip() == "- bp 42: taken in the dark"


def test_zero_rows_give_a_form_that_says_so(audits: Audits) -> None:
    assert "No method was audited by itself." in form(audits["empty"](), "0.3")


def test_without_a_method_the_checklist_is_still_there(audits: Audits) -> None:
    text = plain(form(Audit([], checklist=audits["usual"]().checklist), "0.3"))
    assert "No method was audited by itself." in text and "\n## Checklist of pitfalls\n" in text
    assert "✗ violated in the evaluation code: eval.py:12 (g.norm(-1)): takes the L₋₁ norm; fix: g.norm(dim=-1)" in text
    assert "who let it stand: eval.py:20" in text and "in this form's numbers" not in text and "in the checkpoints" not in text
    assert "the syntax of the file that was read" in form(Audit([], checklist=Checklist(1)), "0.3")


def test_margins_over_seeds_alone_are_given(audits: Audits) -> None:
    text = form(Audit([], audits["usual"]().margins), "0.3")
    assert "No method was audited by itself." in text and "| dfa | **FIRE**: -10.70, 95 % interval" in text
