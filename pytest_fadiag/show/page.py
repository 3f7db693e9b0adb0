"""The audit as one self-contained HTML page, and one report as the output of a notebook's cell."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..judge.words import grouped, one_line, printable
from .audit import Audit, Row
from .cells import Entry, entries_of, table_of
from .charts import Chart, charts_for, training
from .json import document
from .svg import gauge_svg, sample, svg
from .words import headline, legend, mark, next_steps, notes, rule, setting, title_of

if TYPE_CHECKING:
    from jinja2 import Environment, Template
    from markupsafe import Markup


def page(audit: Audit) -> str:
    """The page; by their digests only its own style and script run, whatever a name holds."""
    from markupsafe import Markup

    folder = files(__package__).joinpath("templates")
    style = folder.joinpath("page.css").read_text("utf-8")
    script = folder.joinpath("page.js").read_text("utf-8")
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    rows = audit.measured
    methods = grouped((row.method, row) for row in rows)
    data = json.dumps(document(audit), allow_nan=False, separators=(",", ":"))
    return rendered(
        templates(one_line, autoescape=True).get_template("page.html"),
        audit,
        charts=_charts_of,
        entries=_entries,
        with_charts=True,
        words_found=list(
            dict.fromkeys(word_of(line.row) for line in table_of(audit).lines if line.row)
        ),
        methods=[
            (name, Markup(sample(number)), rows_of_method)
            for number, (name, rows_of_method) in enumerate(methods.items())
        ],
        rules={diagnostic.key: rule(diagnostic, audit) for diagnostic in audit.diagnostics},
        cards={d.key: _markup(charts_for(rows, d, len(rows) > 1)) for d in audit.diagnostics},
        policy=policy,
        style=Markup(style),
        script=Markup(script),
        data=Markup(data.replace("<", "\\u003c")),
    )


def cell(row: Row) -> str:
    """One network as a notebook shows it, with its style and without a script."""
    from markupsafe import Markup

    audit = Audit((row,))
    style = files(__package__).joinpath("templates", "notebook.css").read_text("utf-8")
    return rendered(
        templates(one_line, autoescape=True).get_template("notebook.html"),
        audit,
        line=table_of(audit).lines[0],
        title=f"{mark(row.conclusion.word)} {title_of(row)}",
        style=Markup(style),
        one=None,
        charts=_charts_of,
        entries=_entries,
        with_charts=False,
    )


def word_of(row: Row) -> str:
    """What a filter calls the verdict of a row."""
    return row.conclusion.word.value if row.conclusion.word else "no verdict"


def _entries(row: Row) -> Iterator[Entry]:
    return entries_of(row, table_of(Audit((row,))))


def rendered(template: Template, audit: Audit, **values: Any) -> str:
    """A document about an audit, with what every one of them says."""
    return template.render(
        audit=audit,
        headline=headline(audit),
        setting=setting(audit),
        legend=legend(audit),
        next_steps=next_steps(audit),
        notes=notes(audit),
        table=table_of(audit),
        version=__version__,
        **values,
    )


def templates(spell: Callable[[str], str], *, autoescape: bool) -> Environment:
    """The templates of this package; what they write is spelled first, unless it is markup."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup, escape

    environment = Environment(
        loader=PackageLoader(__package__),
        autoescape=autoescape,
        undefined=StrictUndefined,
        finalize=lambda value: value if isinstance(value, Markup) else spell(str(value)),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "block": lambda value: escape(printable(str(value))),
        "word": word_of,
        "drawn": lambda gauge: Markup(gauge_svg(gauge)),
        "pairs": _pairs,
    }
    return environment


def _pairs(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _charts_of(row: Row, has_cards: bool) -> list[Markup]:
    """The charts of one network; where a page has cards for it, those that they do not show."""
    charts: list[Chart] = []
    if row.report is not None and not has_cards:
        for diagnostic in row.report.asked:
            charts += charts_for([row], diagnostic, points=False)
    return _markup([*charts, *training([row])])


def _markup(charts: Sequence[Chart]) -> list[Markup]:
    from markupsafe import Markup

    return [Markup(svg(chart)) for chart in charts]


def _digest(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
