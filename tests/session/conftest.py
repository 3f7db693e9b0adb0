"""Modules that a run in this process imports first are dropped after it: loaded here, they stay."""

from __future__ import annotations

import pytest_fadiag.api
import pytest_fadiag.cli
import pytest_fadiag.load.fingerprint
import pytest_fadiag.load.readers
import pytest_fadiag.measure.run
import pytest_fadiag.plugin
import pytest_fadiag.session.dist
import pytest_fadiag.session.hooks
import pytest_fadiag.session.summary
import pytest_fadiag.verify  # noqa: F401
