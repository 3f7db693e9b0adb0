"""Recording what was found, for --fa-expect to compare with: whole, by the controller alone, and never half an audit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..protocol.errors import AuditError
from ..protocol.wording import count
from .cache import write_atomically
from .files import json_text
from .seedgroups import SEED_MARGIN
from .settings import resolved

if TYPE_CHECKING:
    from ..outputs.rows import Audit
    from .auditor import Auditor


def renew(auditor: Auditor, audit: Audit) -> str:
    """Write the file of --fa-expect and say what was done; what this run did not audit keeps its record."""
    path = resolved(auditor.config, "expect", auditor.settings, auditor.settings.expect)
    broken = [row.checkpoint for row in audit.rows if row.report is None or {"error", "not run"} & set(row.outcomes.values())]
    broken += [f"{row.name}::{SEED_MARGIN}" for row in audit.margins if row.outcome in ("error", "not run")]
    if broken:
        more = f" and {len(broken) - 1} more" if len(broken) > 1 else ""
        raise AuditError(f"{broken[0]}{more} could not be audited\n  {path}")
    if not audit.rows:
        raise AuditError(f"nothing was audited\n  {path}")
    before = _before(path)
    is_letters = before is not None and "reports" not in before
    text = _letters(before or {}, audit) if is_letters else json_text(_with_earlier(path, audit) if before else audit)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path.resolve(), text)
    return f"FA audit: {count(len(audit.rows), 'row')} recorded in {path}"


def _before(path: Path) -> dict[str, Any] | None:
    """What is recorded so far; a file that is no record is not overwritten."""
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise AuditError(f"the file there is not JSON ({error}), so it is not overwritten\n  {path}") from None
    if not isinstance(content, dict):
        raise AuditError(f"the file there is no record, so it is not overwritten\n  {path}")
    return content


def _with_earlier(path: Path, audit: Audit) -> Audit:
    """The audit, and the rows of an earlier one that this run left out."""
    from dataclasses import replace

    from ..outputs.document import read_document

    earlier = read_document(path)
    now, margins = {row.checkpoint for row in audit.rows}, {row.name for row in audit.margins}
    rows = [*audit.rows, *(row for row in earlier.rows if row.checkpoint not in now)]
    kept = [*audit.margins, *(row for row in earlier.margins if row.name not in margins)]
    return replace(
        audit,
        rows=sorted(rows, key=lambda row: (row.partial, row.method, -1 if row.seed is None else row.seed, row.checkpoint)),
        margins=sorted(kept, key=lambda row: row.name),
        checklist=audit.checklist or earlier.checklist,
    )


def _letters(before: Mapping[str, Any], audit: Audit) -> str:
    """A record of letters: a method's where all its checkpoints agree and none has an entry of its own, else each one's."""
    after = dict(before)
    by_method: dict[str, list[Any]] = {}
    for row in audit.rows:
        by_method.setdefault(row.method, []).append(row)
    for method, rows in by_method.items():
        letters = {row.fired for row in rows}
        own = [row for row in rows if row.checkpoint in before]
        if len(letters) == 1 and not own:
            after[method] = letters.pop()
            continue
        for row in rows:
            if row in own or after.get(method) != row.fired:
                after[row.checkpoint] = row.fired
    for margin in audit.margins:
        key = f"{margin.name}::{SEED_MARGIN}"
        if margin.margin is not None and (key in before or margin.margin.verdict.value == "INCONCLUSIVE"):
            after[key] = margin.margin.verdict.value
    return json.dumps(after, indent=1, ensure_ascii=False) + "\n"
