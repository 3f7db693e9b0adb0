"""A slice of the long run (``make fuzz``): every kind of file, damaged or forged, and every option with any text."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path

import pytest
from fuzz.corpus import CHECKPOINTS, OTHERS
from fuzz.tries import BAD, attempt
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_fadiag.judge.errors import AuditError
from pytest_fadiag.judge.names import as_name, printable
from pytest_fadiag.load.identity import identify
from pytest_fadiag.session.options import OPTIONS
from pytest_fadiag.show.markdown import escaped
from pytest_fadiag.show.printable import cells, one_line, plain_id, shortened

TEXT = st.text(st.characters(exclude_categories=[]), max_size=60)


@pytest.mark.parametrize("kind", [*CHECKPOINTS, *OTHERS])
def test_what_is_damaged_or_forged_is_judged_or_refused_by_name(kind: str, tmp_path: Path) -> None:
    for number in range(10_000, 10_000 + (12 if kind in CHECKPOINTS else 6)):
        outcome, detail = attempt(kind, number, tmp_path)
        assert outcome not in BAD, f"{kind} {number}: {outcome}\n{detail}"
        assert not detail.startswith("names no file"), f"{kind} {number}: {detail}"


@settings(max_examples=60, deadline=None)
@given(TEXT)
def test_a_name_steers_no_terminal_and_opens_no_line(name: str) -> None:
    for shown in (as_name(name, "a name"), one_line(name), plain_id(name), one_line(printable(name))):
        assert shown.isprintable() and "\n" not in shown
    assert as_name(as_name(name, "a name"), "a name") == as_name(name, "a name"), "escaped once, it stays as it is"
    assert cells(shortened(one_line(name), 9)) <= 9
    assert "::" not in plain_id(name)
    assert not escaped(one_line(name), start=True).startswith(("#", ">", "- ", "|"))


@settings(max_examples=60, deadline=None)
@given(
    TEXT.filter(lambda text: text.strip("./") and "\0" not in text),
    st.dictionaries(
        st.sampled_from(("method", "seed", "frozen")),
        st.one_of(TEXT, st.integers(), st.floats(), st.none(), st.lists(st.integers())),
    ),
)
def test_any_name_and_any_config_give_a_method_and_a_seed(stem: str, config: dict[str, object]) -> None:
    method, seed = identify(Path(stem), config)
    assert method.isprintable() and (seed is None or abs(seed) < 2**63)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([option for option in OPTIONS if not option.flag]), TEXT)
def test_any_text_of_an_option_is_read_or_refused(option: object, text: str) -> None:
    with contextlib.suppress(argparse.ArgumentTypeError, AuditError):
        option.read(text)  # type: ignore[attr-defined]
