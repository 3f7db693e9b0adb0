"""The states of samples by token and feature; which dimension counts the features is told by the layers of the blocks."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from ..judge.errors import AuditError
from .modules import named_parameters
from .reinitialise import modules_of_blocks
from .stream.sites import Stream


class Layout:
    """Knows the sizes that the blocks' layers expect in the second and in the last dimension of what they are given."""

    def __init__(self, network: nn.Module, stream: Stream) -> None:
        self.second, self.last = set[tuple[int, int]](), set[int]()
        """The former by how many dimensions a sample has there: a state of two is nothing that a Conv2d is given."""
        self.surely_second, self.surely_last = set[tuple[int, int]](), set[int]()
        """Those of layers that do not serve to mix tokens too, as linear ones and convolutions of one position do."""
        for module, _ in modules_of_blocks(network, named_parameters(network), stream):
            if isinstance(module, nn.modules.conv._ConvNd):
                sizes = {(1 + len(module.kernel_size), size) for size in (module.in_channels, module.out_channels)}
                (self.surely_second if max(module.kernel_size) > 1 else self.second).update(sizes)
            elif isinstance(module, (nn.modules.batchnorm._NormBase, nn.GroupNorm)):
                size = module.num_channels if isinstance(module, nn.GroupNorm) else module.num_features
                self.surely_second |= {(dims, size) for dims in _dims(module)}
            elif isinstance(module, nn.Linear):
                self.last |= {module.in_features, module.out_features}
            else:  # a norm of somebody's own, or torch's: one number a feature, as a rule of the last dimension
                self.surely_last |= {len(own) for own in module._parameters.values() if own is not None and own.ndim == 1}
        self.second |= self.surely_second
        self.last |= self.surely_last

    def by_feature(self, values: Tensor) -> Tensor:
        """``[N, tokens, features]``: a vector is one token, the positions of a feature map are tokens."""
        if values.ndim == 2:
            return values.unsqueeze(1)
        if self.is_map(values):
            return values.flatten(2).transpose(1, 2)
        return values.flatten(1, -2)

    def shaped(self, by_feature: Tensor, like: Tensor) -> Tensor:
        """``[N, tokens, features]`` in the shape that states have."""
        return by_feature.transpose(1, 2).reshape(like.shape) if self.is_map(like) else by_feature.reshape(like.shape)

    def is_map(self, values: Tensor) -> bool:
        """Whether the second dimension counts the features, as in what convolutions make, and not the last."""
        return self._channels_first(values.shape[1:])

    def are_tokens(self, shape: Sequence[int]) -> bool:
        """Whether a sample's state of this shape is a list of tokens, each of which has a norm of its own."""
        return len(shape) == 2 and not self._channels_first(shape)

    def _channels_first(self, shape: Sequence[int]) -> bool:
        if len(shape) < 2:
            return False
        there = (len(shape), shape[0])
        second, last = any(shape[0] == size for _, size in self.second), shape[-1] in self.last
        if second and last:
            second = there in self.second
        if second and last:
            second, last = there in self.surely_second, shape[-1] in self.surely_last
            if second == last:
                raise AuditError(
                    f"the layers of the blocks fit the second and the last dimension of a state of {list(shape)}: which "
                    "of them counts the features cannot be told"
                )
        if second or last:
            return second
        # No layer tells: tokens, unless it is an image whose sides are equal.
        return len(shape) > 2 and not (shape[0] == shape[1] != shape[-1])


def _dims(norm: nn.Module) -> Sequence[int]:
    """How many dimensions the samples may have that a normalisation by channels takes."""
    for dims, kinds in enumerate(
        (
            (nn.BatchNorm1d, nn.InstanceNorm1d),
            (nn.BatchNorm2d, nn.InstanceNorm2d),
            (nn.BatchNorm3d, nn.InstanceNorm3d),
        ),
        start=2,
    ):
        if isinstance(norm, kinds):
            return (dims,)
    return (2, 3, 4)
