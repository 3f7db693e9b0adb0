"""What stands below the table: remarks on rows, and what they were not measured alike with."""

from __future__ import annotations

from collections.abc import Sequence

from .changes import environment_notes
from .rows import AuditRow


def notes_of(rows: Sequence[AuditRow]) -> list[str]:
    """The notes of all rows, each once."""
    return list(dict.fromkeys([*(note for row in rows for note in row.notes), *environment_notes(rows)]))
