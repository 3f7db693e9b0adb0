"""The tables of the zoo, in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .checking import Outcome, Result, tally

TITLES = {
    Outcome.RIGHT: "right",
    Outcome.NAMED: "refused, with a SPEC that is right",
    Outcome.REFUSED: "refused for the true reason",
    Outcome.UNHELPFUL: "refused without help",
    Outcome.WRONG: "wrong",
}


def summary(results: Sequence[Result]) -> list[str]:
    """How many are right, by family."""
    families = list(dict.fromkeys(result.member.family for result in results))
    rows = [
        (family, [result for result in results if result.member.family == family])
        for family in families
    ]
    lines = [_line(["family", "tried", *TITLES.values()]), _line(["---"] * (2 + len(TITLES)))]
    for name, own in [*rows, ("all", list(results))]:
        lines.append(_line([name, len(own), *(tally(own)[outcome] for outcome in TITLES)]))
    return lines


def table(results: Sequence[Result]) -> list[str]:
    """Every member with what was found."""
    lines = [_line(["family", "network", "blocks", "outcome"]), _line(["---"] * 4)]
    for result in results:
        member = result.member
        lines.append(
            _line([member.family, member.name, result.blocks or "–", TITLES[result.outcome]])
        )
    return lines


def _line(cells: Iterable[object]) -> str:
    return f"| {' | '.join(str(cell) for cell in cells)} |"
