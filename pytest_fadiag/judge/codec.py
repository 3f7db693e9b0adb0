"""Typed values to plain JSON values and back: what crosses a process or a file is checked field by field when it is read."""

from __future__ import annotations

import enum
import json
import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

from .errors import AuditError

if TYPE_CHECKING:
    from msgspec.inspect import Type

T = TypeVar("T")
Prepare = Callable[[Any, str], Any]
"""Takes a plain value and its place, and gives what msgspec can read."""

NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""How non-finite floats are written, which JSON has no numbers for."""


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text; one key twice in an object is an error, since of two values nobody knows which is meant."""
    return json.loads(text, object_pairs_hook=_each_key_once)


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        twice = next(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
        raise AuditError(f"the key {twice!r:.60} is there twice in one object, and nobody knows which value is meant")
    return values


def to_plain(value: Any) -> Any:
    """The value in exactly the built-in types, as xdist wants them: dataclasses as objects, tuples as lists."""
    plain = value
    if isinstance(value, enum.Enum):
        plain = to_plain(value.value)
    elif isinstance(value, float) and not math.isfinite(value):
        plain = "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    elif isinstance(value, (str, int, float)) and not isinstance(value, bool):
        plain = next(kind(value) for kind in (str, int, float) if isinstance(value, kind))
    elif is_dataclass(value):
        plain = {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
    elif isinstance(value, Mapping):
        plain = {str(key): to_plain(item) for key, item in value.items()}
    elif isinstance(value, (list, tuple)):
        plain = [to_plain(item) for item in value]
    return plain


def read(kind: type[T], plain: Any, what: str) -> T:
    """The value of a type behind plain JSON values; keys it does not know are left out, for a newer writer may add some."""
    from msgspec import ValidationError, convert

    prepared = _preparation(kind)(plain, what)  # type: ignore[arg-type]  # a type can be hashed
    try:
        return convert(prepared, kind)
    except (ValidationError, UnicodeEncodeError) as error:
        said, _, place = str(error).rpartition(" - at `$")
        raise AuditError(f"{what}{place.rstrip('`')}: {said}" if said else f"{what}: {error}") from None


@cache
def _preparation(kind: Hashable) -> Prepare:
    from msgspec.inspect import type_info

    return _prepare(type_info(kind)) or (lambda plain, place: plain)


def _prepare(kind: Type) -> Prepare | None:  # noqa: PLR0911 (a case each)
    """What puts floats in the place of the strings that stand for them, where the type has a float; nothing where it has none.

    It goes only as deep as the type, and refuses on the way what msgspec would take, or would not say what is taken instead.
    """
    from msgspec import inspect

    match kind:
        case inspect.Metadata():
            return _prepare(kind.type)
        case inspect.FloatType():
            return lambda plain, place: NON_FINITE.get(plain, plain) if isinstance(plain, str) else plain
        case inspect.IntType():
            return _check_size
        case inspect.EnumType():
            return partial(_check_one_of, [member.value for member in kind.cls])
        case inspect.LiteralType():
            return partial(_check_one_of, kind.values)
        case inspect.UnionType():
            text = any(isinstance(alternative, inspect.StrType) for alternative in kind.types)  # then a string is a string
            others = [alternative for alternative in kind.types if not (text and isinstance(alternative, inspect.FloatType))]
            steps = [step for alternative in others if (step := _prepare(alternative))]
            return partial(_prepare_union, steps) if steps[1:] else next(iter(steps), None)
        case inspect.CollectionType() if step := _prepare(kind.item_type):
            return partial(_prepare_items, step)
        case inspect.DictType() if step := _prepare(kind.value_type):
            return partial(_prepare_values, step)
        case inspect.DataclassType() | inspect.TypedDictType():
            return partial(_prepare_fields, {own.name: step for own in kind.fields if (step := _prepare(own.type))})
    return None


def _prepare_union(steps: Sequence[Prepare], plain: Any, place: str) -> Any:
    for step in steps:
        plain = step(plain, place)
    return plain


def _prepare_items(step: Prepare, plain: Any, place: str) -> Any:
    if not isinstance(plain, (list, tuple)):
        return plain
    return [step(item, f"{place}[{index}]") for index, item in enumerate(plain)]


def _prepare_values(step: Prepare, plain: Any, place: str) -> Any:
    return {key: step(item, f"{place}[{key!r}]") for key, item in plain.items()} if isinstance(plain, Mapping) else plain


def _prepare_fields(steps: Mapping[str, Prepare], plain: Any, place: str) -> Any:
    if not isinstance(plain, Mapping):
        return plain
    return {name: steps[name](item, f"{place}.{name}") if name in steps else item for name, item in plain.items()}


def _check_size(plain: Any, place: str) -> Any:
    if isinstance(plain, int) and plain.bit_length() > 63:
        raise AuditError(f"{place}: Expected `int` of 64 bits at most")  # no sum of floats could take more
    return plain


def _check_one_of(values: Sequence[Any], plain: Any, place: str) -> Any:
    if isinstance(plain, str) and plain not in values:
        raise AuditError(f"{place}: Expected {', '.join(map(repr, values))}, got {plain!r:.40}")
    return plain
