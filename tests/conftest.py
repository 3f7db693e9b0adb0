"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from collections.abc import Callable

# Before torch starts: networks of this size run faster on one thread, and the suite's subprocesses do not fight for cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Some hundred processes are started below: each would compile the package anew where nothing compiled is kept.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

import pytest
from hypothesis import settings
from support import clustered, network, trained
from torch import Tensor

from pytest_fadiag import ResidualMLP

pytest_plugins = ["pytester"]
settings.register_profile("patient", settings(), deadline=None)  # a busy machine is slow, and no test is about time
settings.load_profile("patient")


@pytest.fixture
def data() -> tuple[Tensor, Tensor]:
    """Thirteen hundred samples: ten full batches and a rest."""
    return clustered(1300)


@pytest.fixture(scope="session")
def trained_network() -> Callable[[], ResidualMLP]:
    """A copy of one trained network, made once."""
    model = trained(300)

    def copied() -> ResidualMLP:
        fresh = network()
        fresh.load_state_dict(model.state_dict())
        return fresh

    return copied
