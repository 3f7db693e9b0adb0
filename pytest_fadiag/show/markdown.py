"""The audit as Markdown: a job's summary, a paper's reporting form, a certificate's README."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..judge.words import and_more, one_line, sig
from .audit import Audit
from .page import rendered, templates
from .words import margin_words, words

RUNS_CODE = ("model", "credit", "forward", "loss", "unsafe-load")
"""Options that name code of the authors: ``fadiag verify`` wants them typed."""


PLAIN = re.compile(r"(?:[\w ,.;()%/±−–‖≥≤✗×·→…=^?+-]|: |< )*")
MARKUP = re.compile(r"(?:^|\W)_|_(?:\W|$)|www|^\d+[.)](?: |$)|^[-+] |^[-=+ ]+$|^ ")
"""Among these characters: emphasis, addresses, lists and rules."""


def markdown(audit: Audit) -> str:
    """A job's summary: the table, and the report of every network in which something fired."""
    return _rendered("markdown.md", audit)


def form(audit: Audit) -> str:
    """The reporting form of a paper, filled in as far as an audit knows."""
    return _rendered(
        "form.md",
        audit,
        references=dict.fromkeys(str(r.reference) for r in audit.reports if r.reference),
        common=_shared([report.config for report in audit.reports]),
        environment=_shared([report.environment for report in audit.reports]),
        methods=dict.fromkeys(row.method for row in audit.rows),
    )


def _shared(held: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What all of these hold."""
    first = held[0] if held else {}
    return {key: value for key, value in first.items() if all(o.get(key) == value for o in held)}


def readme(audit: Audit) -> str:
    """What tells the reviewer of a certificate what to type."""
    options = audit.origin.options if audit.origin else {}
    typed = [f"--{name}={value}" for name in RUNS_CODE for value in options.get(name, ())]
    return _rendered("certificate.md", audit, typed=typed)


def _rendered(name: str, audit: Audit, **values: Any) -> str:
    """A template of Markdown; what comes from files cannot become markup."""
    from markupsafe import Markup

    def numbers(held: Sequence[float | None] | None) -> str:
        return ", ".join("–" if value is None else sig(value) for value in held or ()) or "–"

    environment = templates(code, autoescape=False)
    environment.filters |= {
        "and_more": and_more,
        "margin": margin_words,
        "numbers": numbers,
        "verbatim": lambda text: Markup(one_line(text)),
        "words": words,
    }
    text = rendered(environment.get_template(name), audit, **values)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def code(text: str) -> str:
    """The text as it is where it holds nothing but words and numbers, else in backticks.

    >>> code("dfa, seed 42"), code("a*b"), code("a`b"), code("a|b")
    ('dfa, seed 42', '`a*b`', '`` a`b ``', '<code>a&#124;b</code>')
    """
    shown = one_line(text)
    if PLAIN.fullmatch(shown) and not MARKUP.search(shown):
        return shown
    if "|" in shown:  # no backslash keeps it in its cell, whatever stands before
        safe = (char if char.isalnum() else f"&#{ord(char)};" for char in shown)
        return f"<code>{''.join(safe)}</code>"
    fence = "`" * (1 + max(map(len, re.findall("`+", shown)), default=0))
    return f"{fence} {shown} {fence}" if "`" in shown else f"`{shown}`"
