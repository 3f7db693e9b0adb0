"""What a stream SPEC says: ``blocks.*`` or ``attn*, mlp* -> out_ln``, the blocks and the module that takes h_L."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import nn

from ...judge.errors import AuditError
from ..modules import module_names


@dataclass(frozen=True)
class Spec:
    """A SPEC taken apart: patterns of the blocks, joined by commas, and of the module behind them, if one is given."""

    text: str
    blocks: str
    behind: str = ""

    @classmethod
    def parse(cls, text: str) -> Spec:
        """The SPEC of a text."""
        left, arrow, right = (part.strip() for part in text.partition("->"))
        if arrow and not right:
            raise AuditError(
                f"stream {text!r}: no module stands behind the arrow; leave it out, or name the one that takes h_L"
            )
        return cls(text, left, right)

    def modules(self, model: nn.Module, patterns: str) -> dict[str, nn.Module]:
        """The modules that some patterns name; an error where one names none."""
        names = module_names(model)
        found: dict[str, nn.Module] = {}
        for pattern in _patterns(patterns) or [""]:
            matching = {name: module for name, module in names.items() if name and fits(name, pattern)}
            if not matching:
                top_level = ", ".join(name for name in names if name and "." not in name) or "none"
                raise AuditError(
                    f"stream {self.text!r}: no module matches {pattern!r} (* stands for any part of a name between two dots); "
                    f"the network's top-level modules are: {top_level}"
                )
            found |= matching
        return found


def fits(name: str, pattern: str) -> bool:
    """Whether a dotted name fits a pattern, in which ``*`` matches within one part: ``block*``, ``stages.*.blocks.*``."""
    return re.fullmatch(re.escape(pattern).replace(r"\*", r"[^.]*"), name) is not None


def shortest(names: Sequence[str], ran: Iterable[str]) -> str:
    """The names as patterns: ``blocks.*`` for all of a list, where that matches no other module that ran."""
    wanted, others = set(names), set(ran) - set(names)
    patterns: dict[str, None] = {}
    for name in names:
        general = [name, *(_starred(name, [part]) for part in reversed(range(name.count(".") + 1)))]
        general.append(_starred(name, range(name.count(".") + 1)))
        usable = [pattern for pattern in general if not any(fits(other, pattern) for other in others)]
        most = max(usable, key=lambda pattern: sum(fits(own, pattern) for own in wanted))
        patterns[most if sum(fits(own, most) for own in wanted) > 1 else name] = None
    return ", ".join(patterns)


def _starred(name: str, places: Iterable[int]) -> str:
    """The name with the numbers at the end of some of its parts replaced by stars."""
    parts = name.split(".")
    for place in places:
        parts[place] = re.sub(r"\d+$", "*", parts[place])
    return ".".join(parts)


def _patterns(text: str) -> list[str]:
    return [pattern.strip() for pattern in text.split(",") if pattern.strip()]
