"""The null of Γ: what credit of the same kind would read if its features had nothing to do with the gradient's."""

from __future__ import annotations

import torch
from torch import Tensor

DRAWS = 200
CHUNK = 1 << 20
"""How many entries are held at once beside the network."""
CACHED = 1 << 16
"""How many entries a processor has at hand while the draws are made one after another."""


class SignedPermutations:
    """Draws of one signed permutation of the features each, the same for every sample and token.

    Dealing credits to other samples instead would be no null: the credits of all samples span a few dimensions, and what
    matters is how these few lie. For a Gaussian feedback matrix a signed permutation of its rows is a fresh matrix.
    """

    def __init__(self, features: int, seed: int, device: torch.device, draws: int = DRAWS) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.order = torch.stack([torch.randperm(features, generator=generator) for _ in range(draws)]).to(device)
        self.signs = (2 * torch.randint(0, 2, (draws, features), generator=generator) - 1).to(device)

    def cosines(self, credit: Tensor, gradient: Tensor) -> Tensor:
        """The cosine of each sample's permuted credit with its gradient, ``[draws, N]``; both are ``[N, tokens, features]``.

        They are unit vectors of each sample as a whole, whose norm no permutation changes; for the width of a null float32 will
        do, in a third of the time.
        """
        features = self.order.shape[1]
        tokens = credit.shape[1] > 1
        rows = max(1, CHUNK // (max(self.order.shape) * features)) if tokens else max(128, CACHED // features)
        parts = zip(torch.split(credit.float(), rows), torch.split(gradient.float(), rows), strict=True)
        return torch.cat([self._tokens(a, g) if tokens else self._one_vector(a, g) for a, g in parts], 1)

    def _one_vector(self, a: Tensor, g: Tensor) -> Tensor:
        a, g = a[:, 0].T.contiguous(), g[:, 0].T.contiguous()
        both = torch.cat([a, -a])
        cosines = a.new_empty(len(self.order), a.shape[1])
        permuted = torch.empty_like(a)
        for draw, rows in enumerate(torch.where(self.signs > 0, self.order, self.order + len(a))):
            torch.index_select(both, 0, rows, out=permuted)
            torch.sum(permuted.mul_(g), 0, out=cosines[draw])
        return cosines

    def _tokens(self, a: Tensor, g: Tensor) -> Tensor:
        """Summed over tokens, ⟨a P, g⟩ needs of a and g only the products of their features: one matrix for all draws."""
        products = (a.transpose(1, 2) @ g).permute(1, 2, 0)
        own = torch.arange(a.shape[2], device=a.device)
        return (products[self.order, own] * self.signs.unsqueeze(2)).sum(1)
