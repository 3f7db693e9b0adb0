"""The tables of the page: a row a checkpoint or log, and a mean of each method over its seeds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from ...judge.diagnostics import DIAGNOSTICS, Column, Finding
from ..audit import COLUMNS, Audit, AuditRow
from ..changes import Move, moves
from ..groups import method_groups
from ..status import Standing, in_words
from .markup import Markup, badge, element, hidden, join


def audit_table(rows: Sequence[AuditRow]) -> Markup:
    """One row each; what a sort or a filter needs is in data attributes."""
    epochs = any(row.first_fired for row in rows)
    twins = Counter((row.method, row.seed, row.partial) for row in rows)
    # The verdict stands before the numbers, where a narrow screen shows it too.
    head = [_header("method", "text"), _header("seed"), _header("verdict", "text"), *map(_column_header, COLUMNS)]
    head += [_header("first fired", title="the epoch at which each diagnostic first fired")] if epochs else []
    body = []
    for number, row in enumerate(rows):
        named = twins[row.method, row.seed, row.partial] > 1 or row.seed is None
        moved = moves(row)
        numbers = [_number(row, column, moved.get(column.title)) for column in COLUMNS]
        cells = [_method(row, number, named), _seed(row), _verdict(row), *numbers]
        cells += [_epochs(row)] if epochs else []
        first = number == 0 or rows[number - 1].method != row.method
        words = (row.method, "" if row.seed is None else str(row.seed), row.checkpoint, in_words(row.status))
        body.append(
            element(
                "tr",
                *cells,
                class_="first" if first else None,
                data_standing=row.status.standing.word,
                data_fired=row.fired,
                data_find=" ".join(words).lower(),
                data_report=f"report-{number}",
            )
        )
    return _table("Each checkpoint and log", head, body, ident="audit")


def mean_table(audit: Audit) -> Markup | None:
    """The means, where any method has several seeds: apart from the rows, so that sorting does not tear them away."""
    body = []
    for group in method_groups(audit):
        if group.mean is not None:
            numbers = zip(COLUMNS, group.mean.values, group.mean.deviations, strict=True)
            name = element("th", group.method, *log_tag(group.partial), scope="row", data_sort=group.method)
            seeds = element("td", f"n={group.mean.seeds}", class_="number", data_sort=group.mean.seeds)
            body.append(element("tr", name, seeds, *(_mean(*number) for number in numbers)))
    head = [_header("method", "text"), _header("seeds"), *map(_column_header, COLUMNS)]
    return _table("Mean ± sample standard deviation over seeds", head, body, ident="means") if body else None


def scrolling(name: str, table: Markup) -> Markup:
    """A table in a box of its own that scrolls sideways, by keyboard too: the page itself never does."""
    return element("div", table, class_="scroll", role="region", aria_label=name, tabindex=0)


def plain_header(words: str, kind: str = "text") -> Markup:
    """The header of a column of a table that is not sorted."""
    return element("th", words, scope="col", class_=kind)


def sort_key(value: float | None) -> str | None:
    """The number as a script reads it; what is missing or undefined has no key and stays last."""
    if value is None or math.isnan(value):
        return None
    return repr(float(value)) if math.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")


def _table(name: str, head: Sequence[Markup], body: Sequence[Markup], *, ident: str) -> Markup:
    table = element(
        "table",
        element("caption", name, class_="aside"),
        element("thead", element("tr", *head)),
        element("tbody", *body),
        id=ident,
        class_="sortable",
    )
    return scrolling(name, table)


def _header(words: str, kind: str = "number", *, before: str = "", title: str | None = None) -> Markup:
    return element("th", before, words, scope="col", class_=kind, title=title)


def _column_header(column: Column) -> Markup:
    owner = next((diagnostic for diagnostic in DIAGNOSTICS if diagnostic.key == column.key), None)
    if owner is None:
        return _header(column.title)
    return _header(column.title, before=badge(owner.key), title=f"({owner.key}) {owner.name}: {owner.question}")


def _method(row: AuditRow, number: int, named: bool) -> Markup:
    link = element("a", row.method or "(no name)", href=f"#report-{number}", title=row.checkpoint)
    file = [element("small", row.checkpoint)] if named else []
    return element("th", link, *log_tag(row.partial), *file, scope="row", data_sort=row.method)


def log_tag(partial: bool) -> list[Markup]:
    """The mark of what comes from a training log."""
    return [element("span", "log", class_="tag", title="read from a training log, not measured on a checkpoint")] * partial


def _seed(row: AuditRow) -> Markup:
    return element("td", "" if row.seed is None else str(row.seed), class_="number", data_sort=row.seed)


def _number(row: AuditRow, column: Column, move: Move | None) -> Markup:
    value = None if row.report is None else column.value(row.report)
    shown = Markup(element("span", "–", aria_hidden="true") + hidden("not measured")) if value is None else column.show(value)
    finding = _decided_by(row, column)
    parts: list[str] = [shown]
    if finding is not None and finding.fired:
        parts = [badge(finding.key, fired=True), element("strong", shown), hidden(" (fired)")]
    if finding is not None and finding.key in row.status.likely:
        parts.append(element("small", "likely"))
    if finding is not None and finding.excused:
        parts.append(element("small", "excused"))
    if move is not None:
        parts.append(element("small", f"was {move.was}", class_="move", title=f"{move} since recorded"))
    return element(
        "td",
        *parts,
        class_="number fired" if finding is not None and finding.fired else "number",
        data_sort=sort_key(value),
        title=None if finding is None else f"({finding.key}) {finding.name}: {finding.outcome}, {finding.headline}",
    )


def _decided_by(row: AuditRow, column: Column) -> Finding | None:
    """The finding that rests on the number of a cell; a bound of a number that is not known is shown in its last column."""
    if row.report is None or column.key == "" or column.key not in row.status.judged:
        return None
    finding = row.report.finding(column.key)
    own = [other for other in COLUMNS if other.key == column.key]
    same = [other for other in own if _same(other.value(row.report), finding.value)]
    return finding if column is (same or own)[-1] else None


def _same(value: float | None, decided: float | None) -> bool:
    if value is None or decided is None:
        return False
    return value == decided or (math.isnan(value) and math.isnan(decided))


def _epochs(row: AuditRow) -> Markup:
    first = list(row.first_fired.items())
    parts = [join([badge(key, fired=key in row.fired), Markup(f" {epoch:g}")]) for key, epoch in first]
    listed = [element("span", part, class_="epoch") for part in parts]
    return element("td", *listed, class_="number", data_sort=first[0][1] if first else None)


def _verdict(row: AuditRow) -> Markup:
    status = row.status
    tags: list[Markup] = []
    if status.as_expected:
        tags = [element("span", "expected", class_="tag", title="this is what was recorded")]
    elif status.as_expected is False:
        tags = [element("strong", "not as expected", class_="tag alarm")]
    words = in_words(status, mark="")
    symbol = element("span", status.standing.symbol, class_="symbol", aria_hidden="true")
    order = list(Standing).index(status.standing)
    return element("td", symbol, words, *tags, class_=f"verdict {status.standing.word}", data_sort=f"{order} {words}")


def _mean(column: Column, value: float | None, deviation: float | None) -> Markup:
    if value is None or deviation is None:
        return element("td", "–", class_="number")
    shown = "?" if math.isnan(deviation) else f"{deviation:.2g}"
    return element("td", column.show(value), element("small", f"± {shown}"), class_="number", data_sort=sort_key(value))
