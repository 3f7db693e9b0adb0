"""``# fadiag: ok <reason>``: what an author says against a finding, on any line of what was found."""

from __future__ import annotations

import ast
import io
import tokenize

from .tree import Tree

MARK = "fadiag:"


def comments(text: str) -> dict[int, str]:
    """The reason on each line that has the comment; empty where none was given."""
    reasons: dict[int, str] = {}
    if MARK not in text:
        return reasons  # tokenizing costs as much as parsing
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT and (reason := _reason(token.string)) is not None:
                reasons[token.start[0]] = reason
    except (tokenize.TokenError, SyntaxError):
        pass  # the parser took the file: what the tokenizer dislikes at its end costs no comment before it
    return reasons


def _reason(comment: str) -> str | None:
    """What follows the mark in a comment, up to the next comment on the line; None if the mark is not there."""
    remark = comment.partition(MARK)[2].lstrip()
    rest = remark.removeprefix("ok")
    if rest == remark or rest[:1].isalnum():  # «okay» is not «ok»
        return None
    return rest.partition("#")[0].strip(" \t:,;.-–—")


def extent(tree: Tree, node: ast.expr | ast.stmt) -> range:
    """The lines of what was found: of the whole statement, or of a block only the head in which it stands."""
    statement = tree.statement(node)
    body = getattr(statement, "body", None)
    if not isinstance(body, list):
        return range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
    first, last = node.lineno, node.end_lineno or node.lineno
    return (
        range(min(first, statement.lineno), max(last, body[0].lineno - 1) + 1)
        if first < body[0].lineno
        else range(first, last + 1)
    )
