"""HTML that cannot be injected into: whatever is not marked as HTML already is escaped, in text and in attributes."""

from __future__ import annotations

from html import escape

from ..printable import one_line, printable

VOID = frozenset({"br", "input", "link", "meta"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def text(value: str) -> Markup:
    """The text on one line, invisible characters spelled out, nothing in it markup."""
    return Markup(escape(one_line(value)))


def block(value: str) -> Markup:
    """Like :func:`text`, but the line breaks stay."""
    return Markup(escape(printable(value)))


def join(parts: list[Markup], separator: str = "") -> Markup:
    """Pieces of HTML, one after another."""
    return Markup(text(separator).join(parts))


def element(name: str, /, *children: str, **attributes: str | float | bool | None) -> Markup:
    """One element: ``class_`` is the attribute class, ``data_sort`` data-sort, True a bare attribute, None or False none."""
    opening = name
    for key, value in attributes.items():
        if value is not None and value is not False:
            attribute = key.rstrip("_").replace("_", "-")
            opening += f" {attribute}" if value is True else f' {attribute}="{text(str(value))}"'
    if name in VOID:
        return Markup(f"<{opening}>")
    content = "".join(child if isinstance(child, Markup) else text(child) for child in children)
    return Markup(f"<{opening}>{content}</{name}>")


def hidden(words: str) -> Markup:
    """Words for those who listen; the others see a symbol that says the same."""
    return element("span", words, class_="aside")


def badge(key: str, *, fired: bool = False) -> Markup:
    """The letter of a diagnostic: filled where it fired, outlined where it is only named."""
    return element("b", key, class_="key fired" if fired else "key")
