"""Audits from plain numbers, and golden files: ``GOLDEN=1 pytest tests/show`` writes them anew."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import builders
import pytest
from show.samples import EVIL, of

from pytest_fadiag.show.audit import Audit, Margin, Origin, Outcome, Row


@pytest.fixture(scope="session")
def audit() -> Audit:
    """Seeds with margins, a log, a record that is not met, an error, and a row that never ran."""
    healthy = [builders.credited(builders.probed(builders.healthy(seed=seed))) for seed in (1, 2)]
    exploded = [
        builders.credited(
            builders.probed(builders.exploded(seed=seed), 0.8, 0.6, 0.5, 0.5, 0.5),
            0.6,
            0.0,
            0.0,
            -0.3,
        )
        for seed in (1, 2)
    ]
    rows = [builders.row(report, group=report.method_name) for report in (*healthy, *exploded)]
    rows[1] = builders.row(healthy[1], group="bp", expected=("a",))
    rows.append(builders.row(builders.traced("dfa-lam", 1)))
    rows.append(builders.row(builders.healthy("fa", 7, control=None, frozen_baseline_acc=None)))
    rows.append(
        Row(
            "runs/broken.pt",
            "broken",
            None,
            None,
            {"a": Outcome.ERROR},
            "no stream found: see the docs",
        )
    )
    rows.append(Row("runs/late_s3.pt", "late", 3, None, {"a": Outcome.NOT_RUN}))
    margins = (
        builders.margin(
            "bp", margin=builders.seed_margin(14.0, 1.0, seeds=2), outcome=Outcome.PASSED
        ),
        builders.margin("dfa", seeds=2, expected="PASS"),
        Margin("fa", "fa", outcome=Outcome.SKIPPED, reason="no control"),
    )
    origin = Origin(
        created="2026-11-18T00:32:39+00:00",
        command="pytest --fa-only --fa-checkpoint=runs",
        commit="19ac0833+",
        versions={"torch": "2.13.0", "pytest": "9.2.0"},
        options={"expect": ("runs/expected.json",), "credit": ("examples.methods:credit",)},
        files={"runs/bp_s1.pt": "ab" * 32},
    )
    return of(*rows, margins=margins, origin=origin)


@pytest.fixture(scope="session")
def evil() -> Audit:
    """Names, notes and reasons that try to be markup."""
    report = builders.exploded(
        EVIL, 1, notes=EVIL, caveats=(EVIL,), config={EVIL: EVIL}, checkpoint=EVIL
    )
    broken = Row(f"{EVIL}.pt", EVIL, None, None, {"a": Outcome.ERROR}, EVIL)
    margin = Margin(EVIL, EVIL, outcome=Outcome.ERROR, reason=EVIL)
    origin = Origin(
        created=EVIL,
        command=EVIL,
        commit=EVIL,
        versions={EVIL: EVIL},
        files={EVIL: EVIL},
        options={"expect": (EVIL,)},
    )
    return of(builders.row(report, expected=()), broken, margins=(margin,), origin=origin)


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    """Compare a text with a file of this folder."""

    def check(name: str, text: str) -> None:
        file = Path(__file__).parent / "golden" / name
        if os.environ.get("GOLDEN"):
            file.write_text(text, "utf-8")
        assert text == file.read_text("utf-8")

    return check
