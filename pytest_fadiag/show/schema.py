"""The published schema of the JSON document, made from its types: ``python -m pytest_fadiag.show.schema`` renews the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from msgspec.json import schema_components

from ..judge.codec import NON_FINITE
from .upgrade import FORMAT_VERSION
from .wire import AuditValues, PitfallValues

PATH = Path(__file__).with_name("audit.schema.json")
NUMBERS: dict[str, Any] = {
    "Number": {
        "description": "JSON has no number for what is not finite.",
        "anyOf": [{"type": "number"}, {"enum": list(NON_FINITE)}],
    },
    "Norm": {"description": "Never negative.", "anyOf": [{"type": "number", "minimum": 0}, {"enum": ["NaN", "Infinity"]}]},
    "Cosine": {
        "description": "NaN where it is undefined.",
        "anyOf": [{"type": "number", "minimum": -1 - 1e-9, "maximum": 1 + 1e-9}, {"enum": ["NaN"]}],
    },
}
"""The floats of the document, as the codec writes them."""


def schema() -> dict[str, Any]:
    """The schema of the document as this version writes it."""
    _, components = schema_components([AuditValues], ref_template="#/$defs/{name}")
    made = {name: _written(component) for name, component in components.items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:pytest-fadiag:audit:{FORMAT_VERSION}",
        **made.pop("AuditValues"),
        "title": f"pytest-fadiag audit, format version {FORMAT_VERSION}",
        "$defs": {**NUMBERS, **made},
    }


def _written(part: Any) -> Any:
    """A part of the schema as the codec writes it: every field, though some may be left out on reading, and any float."""
    if isinstance(part, list):
        return [_written(item) for item in part]
    if not isinstance(part, dict):
        return part
    made = {name: _written(item) for name, item in part.items() if name != "default"}
    if made.get("type") == "number" and ("$ref" in made or not {"minimum", "maximum"} & set(made)):
        del made["type"]
        made.setdefault("$ref", "#/$defs/Number")
    if isinstance(made.get("properties"), dict):
        made["required"] = [name for name in made["properties"] if name not in PitfallValues.__optional_keys__]
    return made


if __name__ == "__main__":
    PATH.write_text(json.dumps(schema(), indent=1, ensure_ascii=False) + "\n", "utf-8")
