"""How diagnostics are named in a text: letters for the built-in ones, the whole name for another package's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


class Keys(str):
    """Keys of diagnostics in their order, as a text: «abd», «abd,my-name»; ``in`` and iteration go by keys, not by characters.

    A name has a hyphen, so that no name can be taken for letters.
    """

    __slots__ = ()

    @classmethod
    def of(cls, keys: Iterable[str]) -> Keys:
        """These keys, each once: letters first, then names."""
        ordered = sorted(set(keys))
        letters = "".join(key for key in ordered if len(key) == 1)
        return cls(",".join(filter(None, [letters, *(key for key in ordered if len(key) > 1)])))

    @classmethod
    def parse(cls, text: str | Iterable[str]) -> Keys:
        """The keys that a person wrote: a text such as «abd,my-name», or a list of such texts."""
        if isinstance(text, Keys):
            return text
        parts = text.split(",") if isinstance(text, str) else (part for item in text for part in item.split(","))
        return cls.of(key for part in map(str.strip, parts) for key in ([part] if "-" in part else part))

    def __iter__(self) -> Iterator[str]:
        parts = self.split(",") if self else []
        return (key for part in parts for key in ([part] if "-" in part else part))

    def __contains__(self, key: object) -> bool:
        return key in tuple(self)


def labelled(key: str) -> str:
    """A key as a sentence names it: a letter in brackets, a name as it is."""
    return f"({key})" if len(key) == 1 else key
