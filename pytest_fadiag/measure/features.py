"""The states of samples by token and feature; which dimension counts the features is told by the layers of the blocks."""

from __future__ import annotations

from torch import Tensor, nn

from ..judge.errors import AuditError
from .modules import named_parameters
from .reinitialise import modules_of_blocks
from .stream.sites import Stream


class Layout:
    """Knows the sizes that the blocks' layers expect in the second and in the last dimension of what they are given."""

    def __init__(self, network: nn.Module, stream: Stream) -> None:
        self.second, self.last = set[int](), set[int]()
        for module, _ in modules_of_blocks(network, named_parameters(network), stream):
            if isinstance(module, nn.modules.conv._ConvNd):
                self.second |= {module.in_channels, module.out_channels}
            elif isinstance(module, (nn.modules.batchnorm._NormBase, nn.GroupNorm)):
                self.second.add(
                    module.num_features if isinstance(module, nn.modules.batchnorm._NormBase) else module.num_channels
                )
            elif isinstance(module, nn.Linear):
                self.last |= {module.in_features, module.out_features}
            else:  # a norm of somebody's own, or torch's: one number a feature, as a rule of the last dimension
                self.last |= {len(own) for own in module._parameters.values() if own is not None and own.ndim == 1}

    def by_feature(self, values: Tensor) -> Tensor:
        """``[N, tokens, features]``: a vector is one token, the positions of a feature map are tokens."""
        if values.ndim == 2:
            return values.unsqueeze(1)
        if self.is_map(values):
            return values.flatten(2).transpose(1, 2)
        return values.flatten(1, -2)

    def is_map(self, values: Tensor) -> bool:
        """Whether the second dimension counts the features, as in what convolutions make, and not the last."""
        if values.ndim == 2:
            return False
        second, last = values.shape[1] in self.second, values.shape[-1] in self.last
        if second and last:
            raise AuditError(
                f"the layers of the blocks fit the second and the last dimension of a state of {list(values.shape[1:])}: which "
                "of them counts the features cannot be told"
            )
        if second or last:
            return second
        # No layer tells: tokens, unless it is an image whose sides are equal.
        return values.ndim > 3 and not (values.shape[1] == values.shape[2] != values.shape[-1])
