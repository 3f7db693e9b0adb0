"""Fixtures shared by all tests."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support import clustered, network, trained
from torch import Tensor

from pytest_fadiag import ResidualMLP

pytest_plugins = ["pytester"]


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
