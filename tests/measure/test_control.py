"""The network to train for a control: random blocks that no training moves."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from support import Chain, Residual, changed, clustered, fitted, network, trained
from torch import Tensor, nn

from pytest_fadiag.judge.errors import AuditError
from pytest_fadiag.measure.control import make_control

D = 8
IMAGES = torch.randn(16, 3, 8, 8, generator=torch.Generator().manual_seed(0)) + 1


def convolutional(*, affine: bool = True) -> Any:
    """A stem with batch statistics of its own, residual blocks, and a head on what is pooled."""
    norms = [nn.BatchNorm2d(D, affine=affine) for _ in range(2)]
    blocks = [Residual(norm, nn.ReLU(), nn.Conv2d(D, D, 3, padding=1)) for norm in norms]
    stem = nn.Sequential(nn.Conv2d(3, D, 3, padding=1), nn.BatchNorm2d(D))
    return Chain(
        stem, blocks, nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(D, 5))
    )


def moved(before: dict[str, Tensor], model: nn.Module) -> set[str]:
    return {name for name, own in model.state_dict().items() if not torch.equal(own, before[name])}


def frozen_parameters(control: nn.Module) -> list[str]:
    return [name for name, own in control.named_parameters() if not own.requires_grad]


def in_blocks(names: Any) -> set[str]:
    return {name for name in names if name.startswith("blocks.")}


def test_the_blocks_are_re_initialised_and_frozen_and_the_model_stays_what_it_is() -> None:
    model = trained(30)
    before = copy.deepcopy(model.state_dict())
    control = make_control(model, seed=1)
    assert moved(before, model) == set() and all(own.requires_grad for own in model.parameters())
    assert moved(before, control) == in_blocks(before) == set(frozen_parameters(control))
    begun = copy.deepcopy(control.state_dict())
    fitted(control.train(), *clustered(256), 3)
    assert moved(begun, control) == set(begun) - in_blocks(begun)


@pytest.mark.parametrize("affine", [True, False])
def test_batch_statistics_of_the_blocks_stay_and_those_of_the_stem_move(affine: bool) -> None:
    def trained_before(net: Any) -> None:
        for block in net.blocks:
            block.f[0].running_mean.add_(3.0)

    model = changed(convolutional(affine=affine), trained_before)
    control: Any = make_control(model, inputs=IMAGES, seed=1)
    assert not control.blocks[0].f[0].running_mean.any()
    before = copy.deepcopy(control.state_dict())
    fitted(control.train(), IMAGES, torch.arange(16) % 5, 3)
    assert moved(before, control) == set(before) - in_blocks(before)
    assert control.embed[1].training and control.training
    h = torch.randn(16, D, 8, 8)
    assert torch.equal(control.train().blocks[0](h), control.eval().blocks[0](h))


def test_a_seed_decides_the_draw_and_the_global_random_state_stays() -> None:
    state = torch.random.get_rng_state()
    first, again, other = (make_control(network(), seed=s).blocks[0].fc1.weight for s in (5, 5, 6))
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("seed", [0, 42])
def test_from_scratch_everything_is_drawn_and_no_two_layers_from_the_same_numbers(
    seed: int,
) -> None:
    model = trained(30)
    before = copy.deepcopy(model.state_dict())
    control: Any = make_control(model, seed=seed, from_scratch=True)
    assert moved(before, control) == set(before)
    assert torch.equal(control.out_ln.weight, torch.ones(16)) and control.embed.weight.requires_grad
    layers = [own.detach().flatten()[:64] for own in control.parameters() if own.ndim > 1]
    alike = torch.corrcoef(torch.stack(layers)).fill_diagonal_(0)  # that of 64 others is 0.125
    assert len(layers) == 10 and float(alike.abs().max()) < 0.6


def test_inputs_are_asked_for_where_the_first_layer_does_not_tell_them() -> None:
    with pytest.raises(AuditError, match=r"make_control\(model, inputs=x\)"):
        make_control(convolutional())
    frozen = frozen_parameters(make_control(convolutional(), inputs=IMAGES))
    assert frozen and frozen == sorted(in_blocks(frozen), key=frozen.index)


def test_the_stream_may_be_named() -> None:
    control = make_control(network(), "blocks.* -> out_ln")
    assert in_blocks(frozen_parameters(control)) == set(frozen_parameters(control)) != set()
    with pytest.raises(AuditError, match=r"layers\.\*"):
        make_control(network(), "layers.* -> out_ln")


def test_a_block_that_cannot_be_re_initialised_is_an_error_that_names_it() -> None:
    model = network()
    model.blocks[1].ln.weight = model.out_ln.weight
    with pytest.raises(AuditError, match=r"blocks\.1 cannot be re-initialised: some parameters"):
        make_control(model)


def test_a_control_can_be_copied_pickled_and_loaded_into_its_network() -> None:
    control = make_control(convolutional(), inputs=IMAGES, seed=1)
    again = pickle.loads(pickle.dumps(control))
    assert moved(control.state_dict(), again) == set()
    assert not copy.deepcopy(control).train()(IMAGES).isnan().any()
    convolutional().load_state_dict(control.state_dict())
    half = make_control(network().to(torch.bfloat16), seed=1)
    assert {own.dtype for own in half.parameters()} == {torch.bfloat16}
