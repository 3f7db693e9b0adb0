"""The stream is looked for once an architecture, and anew where anything that could change it is another."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator

import pytest
import torch
from support import network
from torch import Tensor, nn

from pytest_fadiag.measure.stream import find, known
from pytest_fadiag.measure.stream.find import find_stream

X = torch.randn(8, 20, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[nn.Module]]:
    """The networks in which a stream was looked for."""
    searched: list[nn.Module] = []
    own = find._searched

    def counted(model: nn.Module, *rest: object) -> object:
        searched.append(model)
        return own(model, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(known, "_found", {})
    monkeypatch.setattr(find, "_searched", counted)
    yield searched


def test_networks_of_one_structure_are_searched_once(searches: list[nn.Module]) -> None:
    first, second = (find_stream(network(seed=seed), X) for seed in (0, 1))
    assert first == second and first.record == second.record and len(searches) == 1


class Switched(nn.Module):
    """Blocks that add to their state, or do not, as a setting says."""

    def __init__(self, residual: bool = True, note: object = None) -> None:
        super().__init__()
        self.embed, self.blocks, self.head = nn.Linear(20, 8), nn.ModuleList(nn.Linear(8, 8) for _ in range(3)), nn.Linear(8, 5)
        self.residual, self.note = residual, note

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        for block in self.blocks:
            h = h + torch.relu(block(h)) if self.residual else torch.relu(block(h))
        return self.head(h)


def _hooked() -> nn.Module:
    model = Switched()
    model.blocks[0].register_forward_hook(lambda module, args, output: 2 * output)
    return model


def _forward(model: Switched, x: Tensor) -> Tensor:
    h = model.embed(x)
    return model.head(h + torch.relu(model.blocks[0](h)))


def _patched() -> nn.Module:
    model = Switched()
    model.forward = types.MethodType(_forward, model)  # type: ignore[method-assign]
    return model


@pytest.mark.parametrize(
    "other",
    [lambda: Switched(residual=False), lambda: Switched(note=object()), _hooked, _patched],
    ids=["a setting", "what cannot be compared", "a hook", "another forward"],
)
def test_whatever_could_change_the_stream_is_looked_at(other: Callable[[], nn.Module], searches: list[nn.Module]) -> None:
    find_stream(Switched(), X)
    find_stream(other(), X)
    assert len(searches) == 2


def test_what_cannot_be_compared_is_never_remembered(searches: list[nn.Module]) -> None:
    model = Switched(note=object())
    for _ in range(2):
        find_stream(model, X)
    assert len(searches) == 2


def test_names_and_shapes_of_inputs_are_looked_at(searches: list[nn.Module]) -> None:
    find_stream(network(), X)
    find_stream(network(), X, "blocks.*")
    find_stream(network(d_in=10), X[:, :10])
    assert len(searches) == 3


def test_the_number_of_streams_is_bounded(searches: list[nn.Module], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "MOST", 1)
    for width in (8, 16, 8):
        find_stream(network(d=width), X)
    assert len(searches) == 3 and len(known._found) == 1


def test_a_tensor_that_two_layers_share_makes_another_structure(searches: list[nn.Module]) -> None:
    apart, shared = network(), network()
    shared.blocks[1].ln.weight = shared.out_ln.weight  # type: ignore[union-attr, index]
    own = [frozenset().union(*find_stream(model, X).parameters) for model in (apart, shared)]
    assert "out_ln.weight" not in own[0] and "out_ln.weight" in own[1] and len(searches) == 2
