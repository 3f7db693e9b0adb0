"""Feedback alignment whose feedback is saved with the network."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


class Trainer:
    def __init__(self, widths: list[int], classes: int) -> None:
        self.fb_weights = [torch.randn(width, classes) for width in widths]

    def save(self, path: str) -> None:
        torch.save({"fb_weights": self.fb_weights}, path)


def test_the_cosine_of_a_gradient_with_itself_is_one() -> None:
    grad = torch.ones(3, 4)
    assert F.cosine_similarity(grad, grad, eps=0).allclose(torch.ones(3))


def missing(grad: Tensor, credit: Tensor) -> Tensor:
    cosine = F.cosine_similarity(grad, credit, eps=0)
    cosine[credit.norm(dim=-1) == 0] = torch.nan
    return cosine
