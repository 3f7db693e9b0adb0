"""The smaller sections of the page: what was asked, margins over seeds, the checklist."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from ...judge.diagnostics import DIAGNOSTICS, Diagnostic
from ...judge.margins import SeedMargin, SeedVerdict
from ...judge.thresholds import DiagnosticThresholds
from ...judge.wording import count, limit, points
from ..audit import Audit, AuditRow, Checklist, MarginRow
from ..headline import checklist_count, fired_counts, margin_counts, standing_counts
from ..status import Standing
from .listing import log_tag, plain_header, scrolling
from .markup import Markup, badge, element

FINDING = ("number", "title", "file", "line", "code", "message", "fix", "silenced")
SCALE_PP = 5.0
"""How far from the minimum the bars of the margins reach: beyond, nothing is near to be decided."""
SYMBOLS = {
    SeedVerdict.PASS: ("✓", "trustworthy"),
    SeedVerdict.FIRE: ("✗", "walk-back"),
    SeedVerdict.INCONCLUSIVE: ("?", "partial"),
}


def section(title: str, *children: str, ident: str) -> Markup:
    """A headed part of the page."""
    return element("section", element("h2", title, id=ident), *children, aria_labelledby=ident)


def counts(rows: Sequence[AuditRow]) -> Markup:
    """How many rows stand where."""
    numbers = standing_counts(rows)
    tiles = [
        element(
            "li",
            element("span", standing.symbol, class_=f"symbol {standing.word}", aria_hidden="true"),
            element("b", str(numbers[standing])),
            element("span", standing.word, class_="word"),
            element("small", standing.meaning),
        )
        for standing in Standing
    ]
    return element("ul", *tiles, class_="counts")


def margin_tally(audit: Audit) -> Markup:
    """How many margins over seeds pass, fire or are open: a result may be trustworthy seed by seed, and not over them."""
    symbols = {verdict.value.lower(): symbol for verdict, symbol in SYMBOLS.items()}
    parts = []
    for word, number in margin_counts(audit).items():
        symbol, kind = symbols.get(word, ("–", "incomplete"))
        parts.append(
            element(
                "span", element("span", symbol, class_="symbol", aria_hidden="true"), f"{number} {word}", class_=f"tally {kind}"
            )
        )
    return element("p", element("a", "Margins over seeds", href="#seed-margins"), ": ", *parts, class_="over-seeds")


def diagnostics(rows: Sequence[AuditRow]) -> Markup:
    """What each diagnostic asks, its threshold as used here, and how often it fired."""
    used = [row.report.thresholds for row in rows if row.report is not None] or [DiagnosticThresholds()]
    items = [_diagnostic(diagnostic, rows, used) for diagnostic in DIAGNOSTICS]
    own = {diagnostic.threshold for diagnostic in DIAGNOSTICS}
    rules = [f"{f.name} {_used(used, f.name)}" for f in fields(DiagnosticThresholds) if f.name not in own]
    return element("div", element("ul", *items, class_="asked"), element("p", f"Rules: {' · '.join(rules)}", class_="quiet"))


def _diagnostic(diagnostic: Diagnostic, rows: Sequence[AuditRow], used: Sequence[DiagnosticThresholds]) -> Markup:
    fired, answered = fired_counts(rows, diagnostic.key)
    tally = [element("p", f"fired in {fired} of {answered}", class_="quiet")] if answered else []
    return element(
        "li",
        element("p", badge(diagnostic.key, fired=bool(fired)), element("b", diagnostic.name)),
        element("p", diagnostic.question),
        element("p", f"{diagnostic.threshold} {_used(used, diagnostic.threshold)}", class_="quiet"),
        *tally,
    )


def _used(used: Sequence[DiagnosticThresholds], name: str) -> str:
    """The value of a threshold, or where rows differ each value with the number of rows."""
    values = Counter(_shown(getattr(thresholds, name)) for thresholds in used)
    if len(values) == 1:
        return next(iter(values))
    return ", ".join(f"{value} ({count(rows, 'row')})" for value, rows in sorted(values.items()))


def _shown(value: float | str) -> str:
    return value if isinstance(value, str) else limit(value)


def margins(rows: Sequence[MarginRow]) -> Markup:
    """The margin of each method over its seeds, with its interval against the minimum."""
    words = [("method", "text"), ("seeds", "number"), ("margin, pp", "number"), ("95 % interval", "number")]
    words += [("minimum", "number"), ("around the minimum", "text"), ("verdict", "text")]
    table = element(
        "table",
        element("caption", "Margin of each method over its seeds", class_="aside"),
        element("thead", element("tr", *(plain_header(*word) for word in words))),
        element("tbody", *map(_margin, rows)),
        id="margins",
    )
    return scrolling("Margin of each method over its seeds", table)


def _margin(row: MarginRow) -> Markup:
    name = element("th", row.title, *log_tag(row.partial), scope="row")
    margin = row.margin
    if margin is None:
        text = f"{row.outcome.value}: {row.reason}" if row.reason else row.outcome.value
        return element("tr", name, element("td", text, colspan=6, class_="incomplete"))
    symbol, kind = SYMBOLS[margin.verdict]
    verdict: list[str] = [element("span", symbol, class_="symbol", aria_hidden="true"), margin.verdict.value]
    verdict += [element("span", "expected", class_="tag")] * row.as_expected
    if margin.verdict is SeedVerdict.INCONCLUSIVE:
        verdict.append(element("small", margin.needed()))
    if margin.caveat:
        verdict.append(element("small", margin.caveat))
    low, high = points(margin.interval.low), points(margin.interval.high)
    return element(
        "tr",
        name,
        element("td", f"n={margin.seeds}", class_="number"),
        element("td", points(margin.margin), class_="number"),
        element("td", f"{low} to {high}", class_="number", title=margin.interval.kind),
        element("td", limit(margin.minimum), class_="number"),
        element("td", _interval(margin)),
        element("td", *verdict, class_=f"wide {kind}"),
    )


def _interval(margin: SeedMargin) -> Markup:
    """The interval as a bar, the minimum as a dashed line; what lies farther off than the scale goes ends in an arrow."""
    low, high, middle = (
        _on_bar(value - margin.minimum) for value in (margin.interval.low, margin.interval.high, margin.margin)
    )
    parts = [element("line", x1=60, x2=60, y1=0, y2=20, class_="limit")]
    if low == high and abs(margin.interval.low - margin.minimum) >= SCALE_PP:
        parts.append(element("text", "◂" if high < 60 else "▸", x=f"{low:.1f}", y=14, text_anchor="middle", class_="far"))
    else:
        parts.append(element("line", x1=f"{low:.1f}", x2=f"{high:.1f}", y1=10, y2=10, class_="curve"))
        parts.append(element("circle", cx=f"{middle:.1f}", cy=10, r=3.5, class_="dot"))
    return element("svg", *parts, viewBox="0 0 120 20", class_="interval", aria_hidden="true")


def _on_bar(distance: float) -> float:
    """Where a distance from the minimum lies on a bar of 120 units."""
    return 60 + 54 * max(-1.0, min(1.0, distance / SCALE_PP))


def checklist(content: Checklist) -> Markup:
    """What the reading of evaluation code found, silenced findings last."""
    summary = element("p", f"{checklist_count(content)}.")
    if not content.findings:
        return summary
    ordered = sorted(content.findings, key=lambda finding: bool(finding.get("silenced")))
    return element("div", summary, element("ul", *map(_finding, ordered), class_="findings"))


def _finding(finding: Mapping[str, Any]) -> Markup:
    part = {name: str(finding.get(name) or "") for name in FINDING}
    parts = [
        element("p", badge(part["number"], fired=not part["silenced"]), element("b", part["title"])),
        element("p", element("code", f"{part['file']}:{part['line']}")),
    ]
    if part["code"]:
        parts.append(element("pre", part["code"], tabindex=0))
    parts.append(element("p", part["message"]))
    if part["fix"]:
        parts.append(element("p", element("b", "Fix: "), part["fix"]))
    if part["silenced"]:
        parts.append(element("p", element("b", "Silenced: "), part["silenced"]))
    return element("li", *parts, class_="silenced" if part["silenced"] else None)
