"""The values of a training log under canonical keys; each knows its own name and place in the file, which errors tell."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ..judge.codec import NON_FINITE
from ..judge.errors import AuditError
from ..judge.limits import MOST_LAYERS
from ..judge.records import check_accuracy
from ..judge.trajectory import Series
from ..judge.wording import count
from .logformats import RawLog, check_epoch, kept_of, log_error

SPELLINGS = {
    "h": ("hidden_norms", "residual_norms"),
    "g": ("bp_grad_norms_per_sample_med", "bp_grad_norms"),
    "accuracy": ("acc_eval", "test_acc", "acc"),
    "final_accuracy": ("final_test_acc", "test_acc"),
    "drift": ("drift", "cross_batch_stability"),
    "images": ("images", "test_images", "n_test"),
    "blocks": ("n_blocks", "num_blocks", "blocks", "L", "depth", "n_layers", "num_layers"),
    "gradient_batch": ("grad_batch_size", "eval_batch_size", "diagnostic_batch_size"),
    "training_batch": ("batch_size", "batch"),  # of the optimiser's steps: often, not always, that of the gradients too
}
"""The accepted names of each canonical key, in their order of precedence; other keys have one name, their own."""
NORM = re.compile(r"(?P<symbol>[hg])_(?P<layer>[0-9]{1,9}|L)_norm")
SAME_NORM = 1e-2
"""How far two numbers for one norm may lie apart, relatively, as far as rounding to two digits explains."""
NUMBERS_IN_WORDS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf, **NON_FINITE}
"""Non-finite numbers as ``str`` spells them, and as JSON dialects do."""


@dataclass(frozen=True)
class Field:
    """One value of a log, ``None`` where it has none; each method gives it as one type, or an error says where it is not."""

    path: Path
    place: str
    name: str
    value: Any

    def error(self, problem: str) -> AuditError:
        """An error in this field."""
        return log_error(self.path, problem, self.place)

    def number(self) -> float | None:
        """A float, NaN and infinities among them; text and truth values are slips of whoever wrote the log."""
        value = NUMBERS_IN_WORDS.get(self.value, self.value) if isinstance(self.value, str) else self.value
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            hint = "; write it without quotes" if isinstance(value, str) else ""
            raise self.error(f"{self.name} is {value!r:.40}, not a number{hint}")
        try:
            return float(value)
        except OverflowError:
            raise self.error(f"{self.name} is larger than any float") from None

    def norm(self) -> float | None:
        """A norm, which may be infinite or NaN and never negative."""
        norm = self.number()
        if norm is not None and norm < 0:
            raise self.error(f"{self.name} is {norm:g}, but a norm is never negative")
        return norm

    def cosine(self) -> float | None:
        """A cosine, which may be NaN."""
        cosine = self.number()
        if cosine is not None and abs(cosine) > 1 + 1e-9:
            raise self.error(f"drift is {cosine:g}, but a cosine lies in [-1, 1]")
        return cosine

    def accuracy(self) -> float | None:
        """A fraction in [0, 1]."""
        value = self.number()
        try:
            return None if value is None else check_accuracy(value, self.name)
        except AuditError as error:
            raise self.error(str(error)) from None

    def whole(self, least: int = 0) -> int | None:
        """A whole number."""
        value: int | None = self.value
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            raise self.error(f"{self.name} is {value!r:.40}, not a whole number from {least}")
        if value is not None and value.bit_length() > 63:
            raise self.error(f"{self.name} is a number of many digits")
        return value


@dataclass(frozen=True)
class Fields:
    """The fields of one JSON object by canonical keys."""

    path: Path
    place: str
    source: Mapping[str, Any]

    def __getitem__(self, key: str) -> Field:
        names = SPELLINGS.get(key, (key,))
        name = next((name for name in names if self.source.get(name) is not None), names[0])
        return Field(self.path, self.place, name, self.source.get(name))


class Entry(NamedTuple):
    """One epoch of a log."""

    epoch: int
    fields: Fields
    norms: list[tuple[str, str, Field]]
    """Each with its symbol, h or g, and its layer, a number or L."""


def entries_of(log: RawLog) -> list[Entry]:
    """The epochs of a log, which rise, with their norms from single numbers and from lists."""
    entries: list[Entry] = []
    step, before = kept_of(len(log.entries)), None
    for number, (place, source) in enumerate(log.entries, 1):
        epoch = before = check_epoch(log.path, place, source, before)
        if number % step and number < len(log.entries):
            continue
        fields = Fields(log.path, f"{place} (epoch {epoch})" if place.startswith("line") else f"epoch {epoch}", source)
        entries.append(Entry(epoch, fields, list(_norms(fields))))
    return entries


def _norms(fields: Fields) -> Iterator[tuple[str, str, Field]]:
    for key in fields.source:
        if match := NORM.fullmatch(key):
            yield match["symbol"], match["layer"], fields[key]
    for symbol in "hg":
        field = fields[symbol]
        if not isinstance(field.value, list | None):
            raise field.error(f"{field.name} is {field.value!r:.40}, not a list with one number a layer")
        if field.value is not None and len(field.value) > MOST_LAYERS:
            raise field.error(f"{field.name} has {len(field.value):,} entries, and at most {MOST_LAYERS:,} layers are read")
        for layer, value in enumerate(field.value or ()):
            yield symbol, str(layer), Field(field.path, field.place, f"{field.name}[{layer}]", value)


def depth_of(entries: list[Entry], config: Fields) -> int | None:
    """The number of blocks, in which the config and every list of every epoch must agree."""
    blocks = config["blocks"]
    depth = blocks.whole()
    if depth is not None and depth >= MOST_LAYERS:
        raise blocks.error(f"{blocks.name} is {depth:,}, and at most {MOST_LAYERS - 1:,} blocks are read")
    first: dict[str, Field] = {}
    for field in (entry.fields[symbol] for entry in entries for symbol in "hg"):
        if field.value is None:
            continue
        length, before = len(field.value), first.setdefault(field.name, field)
        size = f"{field.name} has {count(length, 'entry', 'entries')}"
        if length != len(before.value):
            advice = "log every layer in every epoch, null for what is missing"
            raise field.error(f"{size}, but {len(before.value)} in {before.place}; {advice}")
        if depth is not None and length != depth + 1:
            layers = f"{blocks.name} in the config is {depth}, which makes {depth + 1} layers, h_0 to h_{depth}"
            raise field.error(f"{size}, but {layers}; correct the one that is wrong")
    lengths = {name: len(field.value) for name, field in first.items()}
    if len(set(lengths.values())) > 1:
        (name, length), *others = lengths.items()
        other = next(other for other in others if other[1] != length)
        raise log_error(config.path, f"{name} has {length} entries and {other[0]} {other[1]}; log every layer")
    return depth if depth is not None or not lengths else next(iter(lengths.values())) - 1


def layer_norms(entry: Entry, size: int, start: float | None) -> tuple[Series, Series]:
    """‖h_l‖ and ‖g_l‖ of an epoch by layer; ``start`` is ‖h_0‖ where the epoch has none, and two for one layer must agree."""
    norms: dict[tuple[str, int], tuple[Field, float]] = {}
    for symbol, layer, field in entry.norms:
        value = field.norm()
        if value is None:
            continue
        index = size - 1 if layer == "L" else int(layer)
        if index >= size:
            raise field.error(f"{field.name}, but there are {size - 1} blocks by the config or lists")
        other, other_value = norms.get((symbol, index), (field, value))
        if not math.isclose(value, other_value, rel_tol=SAME_NORM) and not (math.isnan(value) and math.isnan(other_value)):
            raise field.error(
                f"{other.name} is {other_value:g} and {field.name} is {value:g}, but both are ‖{symbol}_{index}‖; "
                "correct the one that is wrong, or leave it out"
            )
        norms[symbol, index] = field, value
    values = {place: value for place, (_, value) in norms.items()}
    if start is not None:
        values.setdefault(("h", 0), start)
    return tuple(values.get(("h", layer)) for layer in range(size)), tuple(values.get(("g", layer)) for layer in range(size))
