"""The reference network of the protocol: a pre-LayerNorm residual MLP."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "gelu": nn.GELU,
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "silu": nn.SiLU,
    "identity": nn.Identity,
}


class ResidualBlock(nn.Module):
    """f_l(h) = fc2(act(fc1(ln(h)))); the residual is added by the network."""

    def __init__(self, d: int, hidden: int, activation: str) -> None:
        super().__init__()
        self.ln = nn.LayerNorm(d)
        self.fc1 = nn.Linear(d, hidden)
        self.act = ACTIVATIONS[activation]()
        self.fc2 = nn.Linear(hidden, d)

    def forward(self, h: Tensor) -> Tensor:
        f: Tensor = self.fc2(self.act(self.fc1(self.ln(h))))
        return f


class ResidualMLP(nn.Module):
    """h_0 = embed(x), h_{l+1} = h_l + f_l(h_l), logits = out_head(out_ln(h_L)); images are flattened."""

    def __init__(
        self,
        d_in: int = 3072,
        d: int = 256,
        blocks: int = 4,
        classes: int = 10,
        *,
        mlp_ratio: float = 4.0,
        activation: str = "gelu",
        out_ln: bool = True,
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(f"unknown activation {activation!r}; known: {', '.join(ACTIVATIONS)}")
        self.embed = nn.Linear(d_in, d)
        self.blocks = nn.ModuleList(ResidualBlock(d, round(mlp_ratio * d), activation) for _ in range(blocks))
        self.out_ln = nn.LayerNorm(d) if out_ln else nn.Identity()
        self.out_head = nn.Linear(d, classes)

    def forward(self, x: Tensor, return_hidden: bool = False) -> Tensor | tuple[Tensor, list[Tensor]]:
        h = self.embed(x.flatten(1))
        states = [h]
        for block in self.blocks:
            h = h + block(h)
            states.append(h)
        logits: Tensor = self.out_head(self.out_ln(h))
        return (logits, states) if return_hidden else logits

    @torch.no_grad()
    def hidden(self, x: Tensor) -> list[Tensor]:
        """The states h_0 … h_L, without a graph."""
        return self(x, return_hidden=True)[1]  # type: ignore[no-any-return]
