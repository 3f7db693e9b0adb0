"""The names of a checkpoint's tensors against those of a network: wrappers' prefixes, and what belongs to no forward pass."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

PREFIXES = ("module.", "_orig_mod.")
"""What DataParallel and torch.compile put before the names of a network: never a part of it."""
WRAPPERS = (*PREFIXES, "model.", "net.", "network.")
"""What wrappers such as a LightningModule put there too, and what a network may call a part of its own."""
_WHAT = r"(?:weights?|bias(?:es)?|matri(?:x|ces)|params?|layers?|kernels?)"
_FEEDBACK = re.compile(
    rf"Bs|B_?(?:fb|fa|dfa|\d+)|(?:fixed_|random_)?(?:fb|feedbacks?)(?:_?{_WHAT})*(?:_?\d+)?"
    rf"|{_WHAT}_(?:backward|feedback|fb|fa|dfa)|(?:backward|fa|dfa)_{_WHAT}"
)
"""A part of a dotted name that says «feedback»: Bs, B0, weight_backward, fixed_fb_weights, feedback.0."""
_LOSS = re.compile(r"(?:criterion|loss|loss_fn|loss_func|loss_function)\.")
"""The weights of classes in a loss, which a LightningModule keeps beside its network."""


@dataclass(frozen=True)
class Fit:
    """Which tensor of a checkpoint goes where in a network."""

    pairs: Mapping[str, str]
    """By the network's names those of the checkpoint."""
    missing: tuple[str, ...]
    extra: tuple[str, ...]
    """What the network lacks, and whose name says nothing of feedback."""
    aside: tuple[str, ...]
    """What the network lacks and no forward pass uses, by its name."""


def unprefixed(name: str, prefixes: tuple[str, ...] = PREFIXES) -> str:
    """A tensor's own name, without what wrappers put before it, in whatever order."""
    while name.startswith(prefixes):
        name = name.partition(".")[2]
    return name


def fit(given: Collection[str], own: Collection[str], tied: Mapping[str, Collection[str]] | None = None) -> Fit:
    """The names of a checkpoint against those of a network: as they are, else without wrappers' prefixes on either side.

    ``tied`` are by name the other names of the same tensor in the network, of which a file may hold one alone.
    """
    candidates = [_matched(given, own, tied or {}, prefixes) for prefixes in ((), PREFIXES, WRAPPERS)]
    return min((candidate for candidate in candidates if candidate is not None), key=lambda candidate: len(candidate.missing))


def _matched(
    given: Collection[str], own: Collection[str], tied: Mapping[str, Collection[str]], prefixes: tuple[str, ...]
) -> Fit | None:
    """The names matched without these prefixes; nothing where they are needed to tell two tensors apart."""
    bare_given = {unprefixed(name, prefixes): name for name in given}
    bare_own = {unprefixed(name, prefixes): name for name in own}
    if len(bare_given) < len(given) or len(bare_own) < len(own):
        return None
    pairs = {name: bare_given[bare] for bare, name in bare_own.items() if bare in bare_given}
    for name, others in tied.items():
        partner = next((other for other in others if other in pairs), None)
        if name not in pairs and partner is not None:
            pairs[name] = pairs[partner]
    left = [name for name in given if name not in set(pairs.values())]
    aside = [name for name in left if is_aside(unprefixed(name, prefixes), bare_own)]
    return Fit(
        pairs,
        tuple(name for name in own if name not in pairs),
        tuple(name for name in left if name not in aside),
        tuple(aside),
    )


def is_aside(name: str, own: Collection[str]) -> bool:
    """Whether a tensor that a network lacks belongs to feedback or to a loss: by its name, and below what the network has."""
    *path, last = name.split(".")
    if _LOSS.match(name):
        return True
    if any(_FEEDBACK.fullmatch(part) for part in path):
        return True
    # Its module, or where that only holds feedback the one around it.
    around = tuple(f"{'.'.join(parts)}." for parts in (path, path[:-1]) if parts)
    within = not path or any(other.startswith(around) for other in own)
    return within and _FEEDBACK.fullmatch(last) is not None
