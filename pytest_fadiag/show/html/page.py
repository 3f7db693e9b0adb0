"""The page as a whole: templates that escape whatever they are given, a style and a script, and nothing else may run."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.ext import Extension
from markupsafe import Markup, escape

from ...judge.wording import as_log, limit, points
from .. import headline, share, status
from ..audit import Audit
from ..notes import notes_of
from ..printable import one_line, printable
from . import credit, details, listing, overlay, plots, sections


def page_of(audit: Audit, version: str) -> str:
    """The page of an audit."""
    style, script = _file("page.css"), _file("page.js")
    # Nothing is loaded, and by their digests only this style and this script count, whatever a name may smuggle in.
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return _environment().get_template("page.html").render(
        audit=audit,
        rows=audit.rows,
        version=version,
        title=headline.headline(audit),
        policy=policy,
        style=Markup(style),
        script=Markup(script),
        notes=notes_of(audit.rows),
        asked=sections.Asked(audit),
        prefix="",
    )  # fmt: skip


def cell_of(audit: Audit) -> str:
    """The audit as the output of a notebook's cell: its style reaches nothing outside, and no script is needed."""
    style = re.sub(r"(?m)^(\s*)(?::root|html|body)\b", r"\1:scope", _file("page.css"))
    return _environment().get_template("notebook.html").render(
        audit=audit,
        rows=audit.rows,
        title=headline.headline(audit),
        style=Markup(f"@scope (.fadiag) {{ {style} }}"),
        notes=notes_of(audit.rows),
        asked=sections.Asked(audit),
        prefix=f"cell-{id(audit):x}-",  # ids must not be those of another cell
    )  # fmt: skip


class _Compact(Extension):
    """Line breaks and indents of the templates are for their readers: between cells they would be text."""

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        return re.sub(r"\n\s*", "", source)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(__package__), autoescape=True, undefined=StrictUndefined, extensions=[_Compact], finalize=_spelled
    )
    views = (credit, details, headline, listing, overlay, plots, sections, share, status)
    environment.globals |= {view.__name__.rpartition(".")[2]: view for view in views}
    environment.filters |= {
        "as_log": as_log,
        "block": _block,
        "limit": limit,
        "place": "{:.1f}".format,
        "points": points,
        "share": lambda group, audit: share.share_of_bp(audit, group),
    }
    return environment


def _spelled(value: object) -> object:
    """What an expression in a template gives: on one line, invisible characters spelled out, unless it is HTML already."""
    return value if isinstance(value, Markup) else one_line(str(value))


def _block(value: object) -> Markup:
    """A text of several lines: the line breaks stay."""
    return escape(printable(str(value)))


@cache
def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


def _digest(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
