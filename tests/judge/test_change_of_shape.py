"""Growth across a change of shape compares root mean squares; where the shape stays, it is the ratio of norms."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from builders import report, row
from torch import Tensor, nn

from pytest_fadiag import Recorder, diagnose
from pytest_fadiag.judge.diagnostics.residual_growth import allowed_norm, compared
from pytest_fadiag.judge.stream import ResidualStream
from pytest_fadiag.load.logs import read_log
from pytest_fadiag.show.figures import depth
from pytest_fadiag.show.html.plots import residual_norms

STAGES = ResidualStream(("a", "b", "c"), True, sizes=(16, 16, 400, 400))


def test_a_larger_state_of_the_same_entries_has_not_grown() -> None:
    made = report(residual_norms=[4.0, 4.0, 20.0, 20.0], bp_grad_norms=[1e-3] * 4, stream=STAGES)
    assert compared(made) == [1.0, 1.0, 1.0, 1.0]
    assert made.finding("a").value == 1.0
    assert "per-block growth (max rms h_l+1/rms h_l): 1    cumulative growth (max rms h_l/rms h_0): 1" in str(made)
    assert "root mean squares, since the shape changes: h_0 1  h_1 1  h_2 1  h_3 1" in str(made)


def test_a_smaller_state_with_larger_entries_has() -> None:
    """Its norm grows by 12, its entries by 60: (a) fires above 50."""
    shrinks = ResidualStream(("a", "b", "c"), True, sizes=(400, 400, 16, 16))
    made = report(residual_norms=[20.0, 20.0, 240.0, 240.0], bp_grad_norms=[1e-3] * 4, stream=shrinks)
    assert made.finding("a").value == 60.0 and made.residual_stream_exploded
    assert "It explodes in block 1 (rms h_1 1 → h_2 60)" in str(made)
    assert not report(residual_norms=[20.0, 20.0, 240.0, 240.0], bp_grad_norms=[1e-3] * 4).residual_stream_exploded


def test_of_one_shape_the_norms_are_compared_as_they_are() -> None:
    norms = [255.0, 226.0, 211.0, 205.0, 203.0]
    made = report(residual_norms=norms, stream=ResidualStream(("b",) * 4, True, sizes=(7,) * 5))
    assert made.finding("a").value == report(residual_norms=norms).finding("a").value
    assert "‖h_l+1‖/‖h_l‖" in str(made) and "root mean square" not in str(made)


def test_plots_draw_what_the_norm_may_be_at_its_size() -> None:
    made = report(residual_norms=[4.0, 4.0, 20.0, 20.0], bp_grad_norms=[1e-3] * 4, stream=STAGES)
    assert [allowed_norm(made, layer, layer + 1) for layer in range(3)] == [200.0, 1000.0, 1000.0]
    assert [line.value for line in residual_norms(made).limits] == [200.0, 1000.0, 1000.0]
    assert depth._steep(made) == []
    crossing = report(residual_norms=[4.0, 4.0, 1001.0, 20.0], bp_grad_norms=[1e-3] * 4, stream=STAGES)
    assert depth._steep(crossing) == [(1, 2, 4.0, 1001.0)]
    assert residual_norms(crossing).fired == {2}
    assert row(crossing).report is crossing


class Adds(nn.Module):
    """h + c, with a weight that is 0, so that every entry grows by exactly c."""

    def __init__(self, channels: int, more: float) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 1)
        nn.init.zeros_(self.conv.weight)
        nn.init.constant_(self.conv.bias, more)

    def forward(self, h: Tensor) -> Tensor:
        return h + self.conv(h)


class Staged(nn.Module):
    """Every entry of h_0, h_1, h_2 and h_3 is 1, 2, 2 and 180; h_0 and h_1 have 2 × 8 × 8 of them, the others 4 × 4 × 4."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 2, 1)
        nn.init.zeros_(self.stem.weight)
        nn.init.ones_(self.stem.bias)
        self.first = Adds(2, 1.0)
        self.down = nn.Conv2d(2, 4, 2, 2)
        nn.init.zeros_(self.down.weight)
        nn.init.constant_(self.down.bias, 2.0)
        self.second, self.third = Adds(4, 0.0), Adds(4, 178.0)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.down(self.first(self.stem(x)))
        return self.head(nn.functional.avg_pool2d(self.third(self.second(h)), 4).flatten(1))


def test_a_network_of_known_norms_in_two_shapes(tmp_path: Path) -> None:
    torch.manual_seed(0)
    batches = [(torch.randn(128, 1, 8, 8), torch.arange(128) % 3) for _ in range(2)]
    made = diagnose(model=Staged(), eval_batches=batches)
    assert made.stream is not None
    assert made.stream.blocks == ("first", "second", "third") and made.stream.sizes == (128, 128, 64, 64)
    assert made.residual_norms == pytest.approx([math.sqrt(128), 2 * math.sqrt(128), 2 * 8, 180 * 8], rel=1e-6)
    assert compared(made) == pytest.approx([1, 2, 2, 180], rel=1e-6)
    assert made.finding("a").value == pytest.approx(90, rel=1e-6)
    Recorder(tmp_path / "bp_s1.jsonl", batches).record(1, Staged())
    assert read_log(tmp_path / "bp_s1.jsonl").report().finding("a").value == pytest.approx(90, rel=1e-6)
