"""Recorded findings: which diagnostics of which checkpoint or method are known to fire, and the
record written.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec

from ..files import read_json, write_atomically
from ..judge.diagnostics import letters, select
from ..judge.errors import AuditError
from ..judge.margins import SeedVerdict
from ..judge.words import plural
from ..show.audit import Audit, Keys, Outcome, Row
from .plan import SEED_MARGIN

ENDING = f"::{SEED_MARGIN}"


class Expectations(msgspec.Struct, frozen=True):
    """The keys that are expected to fire, by checkpoint id or method, and verdicts of margins over
    seeds by name.

    >>> Expectations.parse({"dfa": "abd", "dfa::seed-margin": "FIRE"}).of("runs/dfa_s42.pt", "dfa")
    ('a', 'b', 'd')
    """

    keys: dict[str, Keys] = {}
    margins: dict[str, str] = {}

    @classmethod
    def read(cls, path: Path) -> Expectations:
        """The record in a file."""
        try:
            return cls.parse(read_json(path))
        except AuditError as error:
            raise AuditError(f"--fa-expect: {error}\n  {path}") from None

    @classmethod
    def parse(cls, content: Any) -> Expectations:
        """A JSON object of letters and verdicts."""
        if not isinstance(content, dict):
            raise AuditError(f"expected a JSON object, not a {type(content).__name__}")
        keys, margins = {}, {}
        for name, value in content.items():
            if name.endswith(ENDING):
                if value not in list(SeedVerdict):
                    raise AuditError(f"{name!r}: expected {', '.join(SeedVerdict)}, not {value!r}")
                margins[name.removesuffix(ENDING)] = str(value)
            elif isinstance(value, str):
                keys[name] = tuple(diagnostic.key for diagnostic in select(value)) if value else ()
            else:
                raise AuditError(
                    f'{name!r}: expected the keys that fire, such as "abd", or "" for none, not '
                    f"{value!r}"
                )
        return cls(keys, margins)

    def of(self, checkpoint: str, method: str) -> Keys:
        """What is expected to fire; of what is not listed, nothing is."""
        return self.keys.get(checkpoint, self.keys.get(method, ()))

    def updated(self, audit: Audit) -> dict[str, str]:
        """The record with what an audit found; what was not judged keeps its entry."""
        lost = {Outcome.ERROR, Outcome.NOT_RUN}
        broken = [row.checkpoint for row in audit.rows if lost & {*row.outcomes.values()}]
        broken += [f"{margin.name}{ENDING}" for margin in audit.margins if margin.outcome in lost]
        if broken:
            raise AuditError(f"{broken[0]} was not judged")
        keys = {name: letters(own) for name, own in self.keys.items()}
        margins = dict(self.margins)
        for method in dict.fromkeys(row.method for row in audit.rows):
            found = {row.checkpoint: self._found(row) for row in audit.rows if row.method == method}
            listed = method in self.keys or found.keys() & self.keys
            if not listed and len(set(found.values())) == 1:
                keys[method] = next(iter(found.values()))
            else:
                known = {name: letters(self.of(name, method)) for name in found}
                keys |= {name: own for name, own in found.items() if own != known[name]}
        for margin in audit.margins:
            if margin.verdict not in (None, self.margins.get(margin.name, "PASS")):
                margins[margin.name] = str(margin.verdict)
        return keys | {f"{name}{ENDING}": verdict for name, verdict in margins.items()}

    def _found(self, row: Row) -> str:
        """What fired, and of what did not run what was recorded."""
        ran = {*row.status.fired, *row.status.passed, *row.status.unmeasured}
        kept = (key for key in self.of(row.checkpoint, row.method) if key not in ran)
        return letters([*row.status.fired, *kept])


def check_update(path: Path | None) -> None:
    """Recording what is found needs a file and a person: on CI it would turn every change green."""
    if path is None:
        raise AuditError("--fa-update-expect: name the file to write with --fa-expect=FILE")
    if os.environ.get("CI", "").lower() not in ("", "0", "false"):
        raise AuditError(
            "--fa-update-expect: refused where CI is set; update the record on your machine"
        )
    if path.exists():
        Expectations.read(path)


def update(path: Path | None, audit: Audit) -> str:
    """Write the record whole, or not at all, and say so."""
    assert path is not None
    before = Expectations.read(path) if path.exists() else Expectations()
    write_atomically(
        path.resolve(), json.dumps(before.updated(audit), indent=1, ensure_ascii=False) + "\n"
    )
    return f"{plural(len(audit.rows), 'result')} recorded in {path}"
