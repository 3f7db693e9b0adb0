"""The audit as Markdown: a job's summary, a paper's reporting form, a certificate's README."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..judge.words import and_more, one_line, sig
from .audit import Audit, Row
from .page import rendered, templates, word_of
from .words import margin_words, words

RUNS_CODE = ("model", "credit", "step", "forward", "loss", "unsafe-load")
"""Options that name code of the authors: ``fadiag verify`` wants them typed."""

PLAIN = re.compile(r"(?:[\w ,.;()%/±−–‖≥≤✗×·→…=^?+-]|: |< )*")
MARKUP = re.compile(r"(?:^|\W)_|_(?:\W|$)|www|^\d+[.)](?: |$)|^[-+] |^[-=+ ]+$|^ ")
"""Among these characters: emphasis, addresses, lists and rules."""


def markdown(audit: Audit) -> str:
    """A job's summary: the table, and the report of every network in which something fired."""
    return _rendered("markdown.md", audit)


def form(audit: Audit) -> str:
    """The reporting form of a paper, filled in as far as an audit knows."""
    references = [str(report.reference) for report in audit.reports if report.reference]
    return _rendered(
        "form.md",
        audit,
        references=dict.fromkeys(references),
        common=_common([report.config for report in audit.reports]),
        environment=_common([report.environment for report in audit.reports]),
        methods=dict.fromkeys(row.method for row in audit.rows),
    )


def _common(settings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What is the same in all of these."""
    common = {}
    for name, value in settings[0].items() if settings else ():
        if all(setting.get(name) == value for setting in settings):
            common[name] = value
    return common


def readme(audit: Audit) -> str:
    """What tells the reviewer of a certificate what to type."""
    typed = []
    if audit.origin is not None:
        for name in RUNS_CODE:
            typed += [f"--{name}={value}" for value in audit.origin.options.get(name, ())]
    return _rendered("certificate.md", audit, typed=typed)


def _rendered(name: str, audit: Audit, **values: Any) -> str:
    """A template of Markdown; what comes from files cannot become markup."""
    from markupsafe import Markup

    environment = templates(code, autoescape=False)
    environment.filters |= {
        "and_more": and_more,
        "margin": margin_words,
        "numbers": _numbers,
        "verdict": word_of,
        "why": _why,
        "verbatim": lambda text: Markup(one_line(text)),
        "words": words,
    }
    text = rendered(environment.get_template(name), audit, **values)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def _why(row: Row) -> str:
    """What failed, or what keeps the verdict open."""
    return row.conclusion.headline.partition(": ")[2] or row.reason or "–"


def _numbers(values: Sequence[float | None] | None) -> str:
    texts = []
    for value in values or ():
        texts.append("–" if value is None else sig(value))
    return ", ".join(texts) or "–"


def code(text: str) -> str:
    """The text as it is where it holds nothing but words and numbers, else in backticks.

    >>> code("dfa, seed 42"), code("a*b"), code("a`b"), code("a|b")
    ('dfa, seed 42', '`a*b`', '`` a`b ``', '<code>a&#124;b</code>')
    """
    line = one_line(text)
    if PLAIN.fullmatch(line) and not MARKUP.search(line):
        return line
    if "|" in line:  # no backslash keeps it in its cell, whatever stands before
        safe = re.sub(r"[^\w]|_", lambda match: f"&#{ord(match[0])};", line)
        return f"<code>{safe}</code>"
    if "`" not in line:
        return f"`{line}`"
    fence = "`" * (1 + max(map(len, re.findall("`+", line))))
    return f"{fence} {line} {fence}"
