"""The audit as a reviewer gets it."""

from __future__ import annotations

from pathlib import Path

from ..judge.errors import AuditError
from ..judge.files import write_atomically
from .audit import Audit
from .document import json_text
from .html import html


def certify(audit: Audit, folder: Path) -> list[str]:
    """Write the document that is measured again, and the page for whoever only reads."""
    if audit.origin is None or not audit.origin.files:
        raise AuditError(
            "--fa-report=certificate: nothing of this audit was measured from files, so nothing can be measured again"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("audit.json", json_text(audit)), ("audit.html", html(audit))):
        write_atomically(folder / name, text)
    return ["FA audit: measure the certificate again with: fadiag verify " + str(folder)]
