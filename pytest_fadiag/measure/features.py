"""The states of samples by token and feature."""

from __future__ import annotations

from torch import Tensor


def by_feature(values: Tensor) -> Tensor:
    """``[N, tokens, features]``: a vector is one token, the positions of a feature map are tokens."""
    if values.ndim == 2:
        return values.unsqueeze(1)
    if values.ndim == 3:
        return values
    return values.flatten(1, 2) if channels_last(values) else values.flatten(2).transpose(1, 2)


def channels_last(values: Tensor) -> bool:
    """Whether a feature map has its channels at the end, as in a Swin."""
    height, width = values.shape[1:3]
    return values.ndim == 4 and height == width != values.shape[3]
