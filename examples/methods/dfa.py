"""Direct feedback alignment (Nøkland 2016), one feedback matrix per residual block.

    e = softmax(logits) − one-hot          B_l ~ N(0, 1)/√C, d×C, fixed
    a_l = e B_lᵀ                           divided by its RMS over features unless credit is left unnormalised
    block l descends  mean_i ⟨f_l(h_l), a_l⟩ + λ·mean_i ‖f_l(h_l)‖²,   embed  mean_i ⟨embed(x), a_0⟩

a_l acts on h_{l+1}, so it stands in for g_{l+1}. λ = 0 is vanilla DFA; λ > 0 penalises what a block adds to the stream.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from pytest_fadiag import ResidualMLP

from .local import descend, local_pass, per_rms
from .rule import LearningRule, output_error
from .settings import Settings


class DirectFeedbackAlignment(LearningRule):
    """DFA, with Bs = [B_0, …, B_{L−1}]; the embedding shares B_0 with the first block."""

    summary = (
        "direct feedback alignment: the output error through one fixed random matrix per block"
    )

    def __init__(
        self, net: ResidualMLP, settings: Settings, streams: Mapping[str, torch.Generator]
    ) -> None:
        super().__init__(net, settings, streams)
        classes, d = net.out_head.weight.shape
        for _ in range(
            max(1, len(net.blocks))
        ):  # a network without blocks still has an embedding to teach
            drawn = torch.randn(d, classes, generator=streams["feedback"]) / math.sqrt(classes)
            self.feedback.append(drawn.to(net.out_head.weight))

    def credits(self, logits: Tensor, y: Tensor) -> list[Tensor]:
        """e B_0ᵀ … e B_{L−1}ᵀ."""
        e = output_error(logits, y)
        return [e @ B.T for B in self.feedback]

    def backward(self, x: Tensor, y: Tensor) -> Tensor:
        forward = local_pass(self.net, x)
        a = self.credits(forward.logits, y)
        if self.settings.normalize_credit:
            a = [per_rms(credit) for credit in a]
        descend(
            self.net,
            forward,
            y,
            embed=a[0],
            blocks=a[: len(self.net.blocks)],
            lam=self.settings.lam,
        )
        return forward.logits.detach()

    def credit(self, x: Tensor, y: Tensor) -> list[Tensor]:
        a = self.credits(self.net(x), y)
        return [
            a[0],
            *a[: len(self.net.blocks)],
        ]  # the embedding learns by the credit of the first block
