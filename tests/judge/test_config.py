"""What a report carries of a config that anyone may have written."""

from __future__ import annotations

import json
import math

from builders import BP, report

from pytest_fadiag.judge.config import MOST_SETTINGS, plain_config
from pytest_fadiag.judge.report import DiagnosticReport


def test_plain_values_stay_and_the_rest_goes() -> None:
    config = {
        "epochs": 30,
        "lr": 1e-3,
        "optimiser": "adamw",
        "out_ln": True,
        "beta": None,
        "mean": [0.286],
        3: "x",
        "nan": math.nan,
    }
    assert plain_config(config) == {"epochs": 30, "lr": 1e-3, "optimiser": "adamw", "out_ln": True}


def test_what_has_no_end_or_steers_a_terminal_does_not_come_in() -> None:
    many = {f"k{number}": number for number in range(10_000)}
    plain = plain_config({**many, "novel": "x" * 10_000, "y" * 10_000: 1, "huge": 10**40, "frozen": True})
    assert len(plain) == MOST_SETTINGS and next(iter(plain)) == "frozen" and "huge" not in plain
    assert plain_config({"a\nb": "\x1b[31mred"}) == {"a\\nb": "\\x1b[31mred"}


def test_a_report_takes_it_through_json() -> None:
    made = report(BP, config={"epochs": 30, "lam": 0.01, "data": "a\nb", "frozen": False, "nested": {}})
    assert made.config == {"frozen": False, "epochs": 30, "lam": 0.01, "data": "a\\nb"}
    assert DiagnosticReport.from_dict(json.loads(json.dumps(made.to_dict()))).config == made.config
    assert DiagnosticReport.from_dict({**BP.to_dict(), "config": {}}).config == {}
