"""Recording what was found, for --fa-expect to compare with: whole, by the controller alone, and never half an audit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..judge.diagnostics import Status
from ..judge.errors import AuditError
from ..judge.wording import count
from .cache import write_atomically
from .expect import short_by_letters
from .files import json_text
from .seedgroups import SEED_MARGIN
from .settings import resolved

if TYPE_CHECKING:
    from ..show.audit import Audit, AuditRow
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
    before = check_record(path)
    is_letters = before is not None and "reports" not in before
    text = _letters(before or {}, audit) if is_letters else json_text(_with_earlier(path, audit) if before else audit)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path.resolve(), text)
    return f"FA audit: {count(len(audit.rows), 'row')} recorded in {path}"


def check_record(path: Path) -> dict[str, Any] | None:
    """What is recorded so far; a file that is no record is not overwritten."""
    if path.is_dir():
        raise AuditError(f"is a folder; name the file to write in it\n  {path}")
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

    from ..show.document import read_document

    earlier = read_document(path)
    now, margins = {row.checkpoint for row in audit.rows}, {row.name for row in audit.margins}
    rows = [*audit.rows, *(row for row in earlier.rows if row.checkpoint not in now)]
    kept = [*audit.margins, *(row for row in earlier.margins if row.name not in margins)]
    return replace(
        audit,
        rows=sorted(rows, key=lambda row: row.place),
        margins=sorted(kept, key=lambda row: row.name),
        checklist=audit.checklist or earlier.checklist,
    )


def _letters(before: Mapping[str, Any], audit: Audit) -> str:
    """A record of letters: a row that differs from its entry, or its method's, gets one of its own; the others stay."""
    after = dict(before)
    expected: dict[str, list[str]] = {}
    for row in audit.rows:
        recorded = before.get(row.checkpoint, before.get(row.method))
        letters = _letters_of(row, recorded)
        if letters != recorded:
            after[row.checkpoint] = letters
        expected.setdefault(row.group or "", []).append(letters)
    for margin in audit.margins:
        if margin.margin is None:
            continue
        key, verdict = f"{margin.name}::{SEED_MARGIN}", margin.margin.verdict.value
        short = short_by_letters(expected.get(margin.name, [])) is not None
        if key in before or verdict == "INCONCLUSIVE" or short != (verdict == "FIRE"):
            after[key] = verdict
    return json.dumps(after, indent=1, ensure_ascii=False) + "\n"


def _letters_of(row: AuditRow, recorded: str | None) -> str:
    """What fires, and of what was not judged in this run what was recorded; nothing is made up of what nobody judged."""
    assert row.report is not None
    letters = ""
    for finding in row.report.findings:
        ran = row.outcomes.get(finding.key, "not run" if row.outcomes else "passed") != "not run"
        if ran and finding.status is not Status.NOT_MEASURED:
            letters += finding.key * finding.fired
        elif recorded is not None:
            letters += finding.key * (finding.key in recorded)
        elif not ran:
            raise AuditError(f"{row.checkpoint}: {finding.name} was not run, and nothing is recorded of it; run all of them")
    return letters
