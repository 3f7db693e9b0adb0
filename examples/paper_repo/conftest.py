"""All that this repo tells the plugin beyond its ini file: how to build the paper's network."""

from __future__ import annotations

from typing import Any

import pytest
from paper.network import PaperNet


@pytest.fixture
def fa_model(fa_checkpoint: Any) -> PaperNet:
    """The paper's network with the weights of the checkpoint under test."""
    config = fa_checkpoint.config
    net = PaperNet(config["d"], config["depth"])
    net.load_state_dict(fa_checkpoint.state_dict)
    return net
