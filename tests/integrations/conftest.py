"""Other packages import torchvision, whose build may be for another torch: it goes first."""

from __future__ import annotations

from contextlib import suppress

from pytest_fadiag.judge.errors import AuditError
from pytest_fadiag.load.vision import import_torchvision

with suppress(AuditError):  # without torchvision there is nothing to mend
    import_torchvision()
