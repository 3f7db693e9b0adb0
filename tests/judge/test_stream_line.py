"""The stream of a report in words, in the JSON, on the page, in the form and below the table."""

from __future__ import annotations

import json

import pytest
from builders import report, row

from pytest_fadiag import AuditError, DiagnosticReport
from pytest_fadiag.judge.stream import ResidualStream
from pytest_fadiag.show.audit import Audit
from pytest_fadiag.show.form import form
from pytest_fadiag.show.html.details import facts
from pytest_fadiag.show.notes import notes_of

NAMES = tuple(f"blocks.{block}" for block in range(4))
STREAM = ResidualStream(NAMES, True, "out_ln", 0.0361, (64,) * 5)
LINE = "blocks.0 … blocks.3 → out_ln, 4 blocks, residual, 3.6 % of the parameters outside"


@pytest.mark.parametrize(
    ("stream", "line"),
    [
        (STREAM, LINE),
        (
            ResidualStream(("1", "2"), False, "head", 0.32),
            "1 … 2 → head, 2 blocks, no residual connections, 32 % of the parameters outside",
        ),
        (ResidualStream(("block",) * 3, True), "block, 3 blocks, residual"),
        (
            ResidualStream(("b",), True, "", 0.0, named="b"),
            "b, 1 block, residual, 0 % of the parameters outside, named by --fa-stream='b'",
        ),
        (ResidualStream(("b",), True, "", 1e-5), "b, 1 block, residual, < 0.1 % of the parameters outside"),
        (ResidualStream(("b",), True, "", 0.99999), "b, 1 block, residual, > 99.9 % of the parameters outside"),
    ],
)
def test_the_stream_in_one_line(stream: ResidualStream, line: str) -> None:
    assert str(stream) == line


def test_it_is_the_third_line_of_a_report() -> None:
    text = str(report(stream=STREAM, notes="bp_s42.pt on fashion-mnist")).splitlines()
    assert text[2] == f"  stream: {LINE}"


def test_the_page_and_the_form_name_it() -> None:
    made = row(report(stream=STREAM))
    assert ("stream", LINE) in facts(made)
    (line,) = [line for line in form(Audit([made])).splitlines() if line.startswith("| stream |")]
    assert "blocks.0 … blocks.3" in line and "4 blocks, residual, 3.6 % of the parameters outside" in line


def test_it_round_trips_and_documents_without_it_are_read() -> None:
    plain = json.loads(json.dumps(report(stream=STREAM).to_dict()))
    assert DiagnosticReport.from_dict(plain).stream == STREAM
    del plain["stream"]
    assert DiagnosticReport.from_dict(plain).stream is None


def test_a_guess_is_a_note_below_the_table() -> None:
    guessed = ResidualStream(NAMES, True, alternatives=tuple(f"stages.{stage}" for stage in range(5)))
    (note,) = notes_of([row(report(stream=guessed))])
    assert note.endswith(
        "the stream was guessed: stages.0, stages.1, stages.2 and 2 more could each be taken for one block; the 4 blocks "
        "inside and around them were taken"
    )
    assert notes_of([row(report(stream=STREAM))]) == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"blocks": []}, "a stream without blocks"),
        ({"sizes": [64] * 4}, "sizes must be 5 numbers"),
        ({"sizes": [64, 64, 0, 64, 64]}, "sizes must be 5 numbers from 1 on"),
        ({"outside": 1.5}, "outside must be a share"),
    ],
)
def test_a_stream_that_is_none_is_an_error(wrong: dict[str, object], said: str) -> None:
    plain = report(stream=STREAM).to_dict()
    plain["stream"] |= wrong
    with pytest.raises(AuditError, match=said):
        DiagnosticReport.from_dict(plain)
