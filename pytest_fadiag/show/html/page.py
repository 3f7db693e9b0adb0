"""The page as a whole: one file with its style and script, which may load nothing and run nothing else."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from ...judge.diagnostics import DIAGNOSTICS
from ..audit import Audit, Checklist
from ..headline import headline
from ..notes import notes_of
from ..status import Standing
from .details import reports
from .listing import audit_table, mean_table
from .markup import Markup, element
from .sections import checklist, counts, diagnostics, margin_tally, margins, section


def html(audit: Audit, version: str) -> str:
    """The audit as one HTML file; the same audit gives the same bytes."""
    style, script = _file("page.css"), _file("page.js")
    title = headline(audit)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_policy(style, script)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="generator", content=f"pytest-fadiag {version}"),
        element("link", rel="icon", href="data:,"),
        element("title", f"FA audit: {title}"),
        element("style", style),
    )
    body = element(
        "body",
        element("header", element("p", "FA audit", class_="quiet"), element("h1", title), *_counted(audit)),
        element("main", *_sections(audit)),
        element("footer", element("p", f"Written by pytest-fadiag {version}.", class_="quiet")),
        element("script", script),
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _counted(audit: Audit) -> list[Markup]:
    tally = [margin_tally(audit)] if audit.margins else []
    if audit.rows:
        return [counts(audit.rows), *tally]
    none = "No checkpoint and no log was measured by itself, so nothing here says that a result holds."
    return [element("p", none), *tally]


def _sections(audit: Audit) -> list[Markup]:
    rows = audit.rows
    parts = [section("What was asked", diagnostics(rows), ident="asked")]
    read = [] if audit.checklist is None else [_checklist(audit.checklist)]
    if not rows:  # then it is what the page is about
        parts, read = [*read, *parts], []
    if rows:
        parts.append(section("Results", _controls(), audit_table(rows), ident="results"))
    means = mean_table(audit)
    if means is not None:
        parts.append(section("Mean ± sd over seeds", means, ident="over-seeds"))
    if audit.margins:
        parts.append(section("Margin over seeds", margins(audit.margins), ident="seed-margins"))
    notes = [element("li", note) for note in notes_of(rows)]
    if notes:
        parts.append(section("Notes", element("ul", *notes, class_="notes"), ident="notes"))
    parts += read
    if rows:
        buttons = element(
            "p",
            element("button", "Open all", type="button", id="open"),
            element("button", "Close all", type="button", id="close"),
            class_="controls",
            hidden=True,
        )
        parts.append(section("Reports", buttons, reports(rows), ident="all-reports"))
    return parts


def _checklist(content: Checklist) -> Markup:
    return section("Checklist of the evaluation code", checklist(content), ident="checklist")


def _controls() -> Markup:
    """The filters; hidden until the script is there to serve them."""
    fired = [("", "anything or nothing"), *((d.key, f"({d.key}) {d.name}") for d in DIAGNOSTICS), ("none", "nothing")]
    stands = [("", "all"), *((standing.word, standing.word) for standing in Standing)]
    return element(
        "form",
        element(
            "label", "Find ", element("input", type="search", id="find", autocomplete="off", placeholder="method, seed, file")
        ),
        element("label", "Status ", _select("status", stands)),
        element("label", "Fired ", _select("fired", fired)),
        element("button", "Reset", type="reset"),
        element("output", id="shown", role="status"),
        class_="controls",
        role="search",
        aria_label="Filter the results",
        hidden=True,
    )


def _select(ident: str, options: Sequence[tuple[str, str]]) -> Markup:
    return element("select", *(element("option", words, value=value) for value, words in options), id=ident)


@cache
def _file(name: str) -> Markup:
    return Markup(files(__package__).joinpath(name).read_text("utf-8"))


def _policy(style: str, script: str) -> str:
    """Nothing is loaded, and by their digests only this style and this script count, whatever a name may smuggle in."""
    return (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
