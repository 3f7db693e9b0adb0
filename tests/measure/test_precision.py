"""In which dtypes the BP gradient is resolved, against gradients that are taken by hand."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from own_backwards import CASES, Net, made
from support import clustered, in_batches
from torch import Tensor, nn
from torch.nn import functional as F

from pytest_fadiag import diagnose, measure
from pytest_fadiag.judge.codec import read
from pytest_fadiag.judge.observers import Precision, Resolution

X, Y = clustered(256)


def by_hand(net: Net, dtype: torch.dtype) -> np.ndarray:
    """The gradient of the mean loss of the first 128 samples at h_L, in one dtype throughout."""
    narrow = copy.deepcopy(net).to(dtype)
    h = narrow.embed(X[:128].to(dtype))
    for block in narrow.blocks:
        h = block(h)
    h = h.detach().requires_grad_()
    losses = F.cross_entropy(narrow.head(narrow.out_ln(h)), Y[:128], reduction="sum")
    (gradient,) = torch.autograd.grad(losses / 128, h)
    return gradient.double().numpy()


def precision_of(net: nn.Module, batch_size: int = 128) -> dict[str, Resolution]:
    measured = measure(net, in_batches(X, Y), batch_size=batch_size).extra["precision"]
    precision = read(Precision, measured, "precision")
    assert precision.samples == 128
    return {seen.dtype: seen for seen in precision.dtypes}


@pytest.mark.parametrize("scale", [1.0, 3e-5, 1e-7])
@pytest.mark.parametrize("batch_size", [128, 50])
def test_cosines_and_lost_samples_are_those_of_gradients_taken_in_each_dtype(scale: float, batch_size: int) -> None:
    net = made(Net)
    with torch.no_grad():
        net.head.weight.mul_(scale)
    wide, seen = by_hand(net, torch.float64), precision_of(net, batch_size)
    assert list(seen) == ["float32", "bfloat16", "float16"]
    for name, resolution in seen.items():
        narrow = by_hand(net, getattr(torch, name))
        kept = (narrow != 0).any(1)
        assert resolution.lost == 128 - kept.sum()
        cosines = [a @ b / np.sqrt((a @ a) * (b @ b)) for a, b in zip(narrow[kept], wide[kept], strict=True)]
        expected = np.median(cosines) if cosines else np.nan
        assert resolution.cosine == pytest.approx(expected, abs=2e-3, nan_ok=True)
    assert seen["float32"].cosine == pytest.approx(1, abs=1e-9)
    assert (seen["float16"].lost == 128) == (scale < 1e-6)


def test_the_gradient_is_the_reference_not_an_own_backward() -> None:
    assert precision_of(made(CASES["feedback alignment"]))["float32"].cosine == pytest.approx(1, abs=1e-9)


def test_a_dtype_that_does_not_run_is_said() -> None:
    def act(block: nn.Module, z: Tensor) -> Tensor:
        if z.dtype is torch.float16:
            raise RuntimeError('"gelu" not implemented for Half')
        return F.gelu(z)

    net = made(lambda: Net(act=act))
    seen = precision_of(net)
    assert (seen["float16"].cosine, seen["float16"].lost) == (None, 0)
    text = str(diagnose(model=net, eval_batches=in_batches(X, Y)))
    assert "cosine to the float64 gradient at h_L (median of 128 samples): float32 1.0000; bfloat16 " in text
    assert 'float16 does not run: RuntimeError: "gelu" not implemented for Half' in " ".join(text.split())


def test_a_collapsed_gradient_is_small_in_float32_and_gone_in_float16() -> None:
    net = made(Net)
    with torch.no_grad():
        net.head.weight.mul_(1e-8)
    report = diagnose(model=net, eval_batches=in_batches(X, Y))
    assert report.bp_grad_at_floor
    assert "float16 lost for all of them" in " ".join(str(report).split())
    with torch.no_grad():
        net.head.weight.zero_()
    dead = str(diagnose(model=net, eval_batches=in_batches(X, Y)))
    assert "in no dtype is there a gradient at h_L to resolve" in dead
