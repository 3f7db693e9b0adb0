"""The audit as one self-contained HTML page, and one report as the output of a notebook's cell."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..judge.words import one_line, printable
from .audit import Audit, Row
from .cells import table_of
from .charts import charts_for, training
from .json import document
from .svg import sample, svg
from .words import headline, legend, notes, rule, setting

if TYPE_CHECKING:
    from jinja2 import Environment, Template
    from markupsafe import Markup


def page(audit: Audit) -> str:
    """The page; by their digests only its own style and script run, whatever a name holds."""
    from markupsafe import Markup

    folder = files(__package__).joinpath("templates")
    style, script = (folder.joinpath(f"page.{kind}").read_text("utf-8") for kind in ("css", "js"))
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    rows = [row for row in audit.rows if row.report is not None]
    methods = list(dict.fromkeys(row.method for row in rows))
    data = json.dumps(document(audit), allow_nan=False, separators=(",", ":")).replace(
        "<", "\\u003c"
    )
    return rendered(
        templates(one_line, autoescape=True).get_template("page.html"),
        audit,
        charts=_drawn,
        methods=[(name, Markup(sample(number))) for number, name in enumerate(methods)],
        rules={own.key: rule(own, audit) for own in audit.diagnostics},
        drawn={
            own.key: [Markup(svg(chart)) for chart in charts_for(rows, own)]
            for own in audit.diagnostics
        },
        policy=policy,
        style=Markup(style),
        script=Markup(script),
        data=Markup(data),
    )


def cell(row: Row) -> str:
    """One network as a notebook shows it: no style or script of its own."""
    template = templates(one_line, autoescape=True).get_template("network.html")
    return template.render(line=table_of(Audit((row,))).lines[0], one=None, charts=_drawn)


def rendered(template: Template, audit: Audit, **values: Any) -> str:
    """A document about an audit, with what every one of them says."""
    return template.render(
        audit=audit,
        headline=headline(audit),
        setting=setting(audit),
        legend=legend(audit),
        notes=notes(audit),
        table=table_of(audit),
        version=__version__,
        **values,
    )


def templates(spelled: Callable[[str], str], *, autoescape: bool) -> Environment:
    """The templates of this package; what they write is spelled first, unless it is markup."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup, escape

    environment = Environment(
        loader=PackageLoader(__package__),
        autoescape=autoescape,
        undefined=StrictUndefined,
        finalize=lambda value: value if isinstance(value, Markup) else spelled(str(value)),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "block": lambda value: escape(printable(str(value))),
        "pairs": lambda held: ", ".join(f"{key} {value}" for key, value in held.items()),
    }
    return environment


def _drawn(row: Row, alone: bool) -> list[Markup]:
    """The charts of one network: of a page of its own those that its cards do not have."""
    from markupsafe import Markup

    asked = row.report.asked if row.report and not alone else ()
    own = [chart for one in asked for chart in charts_for([row], one, points=False)]
    return [Markup(svg(chart)) for chart in (*own, *training([row]))]


def _digest(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
