"""An audit in a sentence: how many results stand, and what the margins over seeds say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ..judge.margins import SeedVerdict
from ..judge.wording import count
from .audit import Audit, AuditRow, Checklist
from .status import Outcome, Standing

UNKNOWN = {Outcome.SKIPPED: "no control"}
"""What a margin over seeds without a number is called, where its outcome would say less."""


INTERRUPTED = "interrupted before its end"


def headline(audit: Audit) -> str:
    """What was found in a sentence, and whether that is all."""
    said = "; ".join(filter(None, [_found(audit), published_line(audit)]))
    return f"{INTERRUPTED}: {said}" if audit.interrupted else said


def _found(audit: Audit) -> str:
    """How many results need a walk-back, else how many are trustworthy; where there is none, what else was found."""
    rows, counts = audit.rows, margin_counts(audit)
    if not rows:
        code = f"evaluation code: {checklist_count(audit.checklist)}" if audit.checklist is not None else "nothing was audited"
        return margins_line(audit) or code
    standings = standing_counts(rows)
    walked, passed = standings[Standing.WALK_BACK], standings[Standing.TRUSTWORTHY]
    incomplete = f", {standings[Standing.INCOMPLETE]} incomplete" if standings[Standing.INCOMPLETE] else ""
    if walked:
        needs = "needs" if walked == 1 else "need"
        return f"{walked} of {count(len(rows), 'result')} {needs} a walk-back{incomplete}"
    undecided = any(word in counts for word in ("inconclusive", "fire", "error"))
    but = ", but not every margin over seeds" if undecided and passed else ""
    return f"{passed} of {count(len(rows), 'result')} trustworthy{incomplete}{but}"


def published_line(audit: Audit) -> str:
    """How many rows pass by the published form that they are judged by: «D1 to D3: 5 PASS, 13 FAIL», or nothing."""
    counts = Counter(row.status.published.partition("(")[0] for row in audit.rows if row.status.published)
    return f"D1 to D3: {', '.join(f'{counts[word]} {word}' for word in ('PASS', 'FAIL', 'INCOMPLETE') if counts[word])}" * bool(
        counts
    )


def standing_counts(rows: Sequence[AuditRow]) -> Counter[Standing]:
    """How many rows stand where."""
    return Counter(row.status.standing for row in rows)


def fired_counts(rows: Sequence[AuditRow], key: str) -> tuple[int, int]:
    """In how many rows a diagnostic fired, and of how many there is an answer."""
    fired = sum(key in row.status.fired for row in rows)
    return fired, fired + sum(key in row.status.passed for row in rows)


def margin_counts(audit: Audit) -> Mapping[str, int]:
    """How many margins over seeds pass, are inconclusive or fire, then how many have no number and why; none that is zero."""
    words = Counter(
        UNKNOWN.get(row.outcome, row.outcome.value) if row.margin is None else row.margin.verdict.value.lower()
        for row in audit.margins
    )
    order = [verdict.value.lower() for verdict in (SeedVerdict.PASS, SeedVerdict.INCONCLUSIVE, SeedVerdict.FIRE)]
    return {word: words[word] for word in [*order, *sorted(set(words) - set(order))] if words[word]}


def margins_line(audit: Audit) -> str:
    """Those numbers in words, or nothing: «margins over seeds: 2 pass, 1 inconclusive»."""
    counts = margin_counts(audit)
    return f"margins over seeds: {', '.join(f'{number} {word}' for word, number in counts.items())}" if counts else ""


def checklist_count(checklist: Checklist) -> str:
    """How much code was read and what came of it: «4 files read, 2 findings, 1 silenced»."""
    read = f"{count(checklist.files, 'file')} read"
    if not checklist.findings:
        return f"{read}, nothing found"
    silenced = sum(bool(finding.get("silenced")) for finding in checklist.findings)
    return f"{read}, {count(len(checklist.findings), 'finding')}" + (f", {silenced} silenced" if silenced else "")
