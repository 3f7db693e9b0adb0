"""Networks with a backward of their own, as people write them, and their plain networks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from support import Chain, seeded
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

D, CLASSES = 16, 5


class Feedback(torch.autograd.Function):
    """Feedback alignment: the backward goes through fixed random matrices."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, feedback: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight, feedback)
        ctx.width = x.shape[-1]
        assert ctx.width == weight.shape[1]
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, error: Tensor) -> Any:
        x, _, feedback = ctx.saved_tensors
        return error @ feedback, error.mT @ x, error.sum(0), None


class SignSymmetric(torch.autograd.Function):
    """Sign-symmetric feedback in the other signature, with several outputs."""

    @staticmethod
    def forward(
        x: Tensor, weight: Tensor, bias: Tensor, feedback: Tensor
    ) -> tuple[Tensor, Tensor, int]:
        return F.linear(x, weight, bias), x.argmax(-1), 3

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, error: Tensor, _: Any, __: Any) -> Any:
        x, weight, _, _ = ctx.saved_tensors
        return error @ weight.sign(), error.mT @ x, error.sum(0), None


class Direct(torch.autograd.Function):
    """Direct feedback alignment that waits for an output error which only its own trainer sets."""

    error: Tensor | None = None

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, feedback: Tensor) -> Tensor:
        with torch.no_grad():  # as torch does anyway
            return F.linear(x.data, weight, bias)

    @staticmethod
    def backward(ctx: Any, error: Tensor) -> Any:
        return Direct.error.mm(error), None, None, None  # type: ignore[union-attr]


class Kernel(torch.autograd.Function):
    """A cube that autograd cannot see; its backward is the derivative, times a factor if wrong."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, factor: float) -> Tensor:
        ctx.save_for_backward(z)
        ctx.factor = factor
        return torch.from_numpy(z.detach().cpu().numpy() ** 3).to(z)

    @staticmethod
    def backward(ctx: Any, error: Tensor) -> Any:
        (z,) = ctx.saved_tensors
        return ctx.factor * 3 * z**2 * error, None


class Quantised(torch.autograd.Function):
    """A straight-through estimator."""

    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        return torch.round(4 * z) / 4

    @staticmethod
    def backward(ctx: Any, error: Tensor) -> Tensor:
        return error


feedback_linear = Feedback.apply
"""Bound to a name when the module is imported, as layers do."""


class OwnLinear(nn.Linear):
    """A linear layer with a feedback matrix."""

    def __init__(self, d_in: int, d_out: int, function: Callable[..., Any]) -> None:
        super().__init__(d_in, d_out)
        self.function = function
        self.weight_backward = nn.Parameter(torch.randn(d_out, d_in), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        output = self.function(x, self.weight, self.bias, self.weight_backward)
        return output[0] if isinstance(output, tuple) else output  # type: ignore[no-any-return]


Inner = Callable[[Any, Tensor], Tensor]
Linear = Callable[[int, int], nn.Linear]


class Block(nn.Module):
    """f(h) = fc2(act(fc1(ln(h)))), and how it is added."""

    def __init__(self, linear: Linear, act: Inner, step: Inner) -> None:
        super().__init__()
        self.ln = nn.LayerNorm(D)
        self.fc1, self.fc2 = linear(D, 2 * D), linear(2 * D, D)
        self.act, self.step = act, step

    def branch(self, h: Tensor) -> Tensor:
        return self.fc2(self.act(self, self.fc1(self.ln(h))))  # type: ignore[no-any-return]

    def forward(self, h: Tensor) -> Tensor:
        return self.step(self, h)


class Net(Chain):
    """Three blocks between an embedding and a head."""

    def __init__(
        self,
        linear: Linear = nn.Linear,
        act: Inner = lambda block, z: F.gelu(z),
        step: Inner = lambda block, h: h + block.branch(h),
    ) -> None:
        blocks = [Block(linear, act, step) for _ in range(3)]
        super().__init__(nn.Linear(20, D), blocks, nn.Linear(D, CLASSES))
        self.out_ln = nn.LayerNorm(D)

    def read(self, h: Tensor) -> Tensor:
        return super().read(self.out_ln(h))


def made(make: Callable[[], Net] | str, **parts: Any) -> Net:
    """A network of its own random stream; of the table by name."""
    net: Net = seeded(CASES[make] if isinstance(make, str) else partial(make, **parts))
    return net


def plain_copy(net: Net, **parts: Any) -> Net:
    """The plain network with the same weights."""
    plain, state = Net(**parts), net.state_dict()
    plain.load_state_dict({name: state[name] for name in state if "weight_backward" not in name})
    return plain


def _hooked(block: nn.Module, z: Tensor) -> Tensor:
    z = F.gelu(z)
    if z.requires_grad:
        z.register_hook(torch.zeros_like)
    return z


def _with_module_hooks() -> Net:
    net = Net()
    net.blocks[0].register_full_backward_hook(lambda _, inputs, __: (2 * inputs[0],))
    net.blocks[1].fc1.register_full_backward_pre_hook(lambda _, outputs: (0 * outputs[0],))
    return net


def _with_projected_targets() -> Net:
    """Direct random target projection: forward hooks hang another gradient on the block outputs."""
    net = Net()
    for block in net.blocks:
        projection = torch.randn(D)

        def hang(_: nn.Module, __: Any, output: Tensor, projection: Tensor = projection) -> None:
            if output.requires_grad:
                output.register_hook(projection.expand_as)

        block.register_forward_hook(hang)
    return net


def _checkpointed(reentrant: bool) -> Inner:
    return lambda block, h: h + checkpoint(block.branch, h, use_reentrant=reentrant)


FEEDBACK = partial(OwnLinear, function=feedback_linear)
CASES: dict[str, Callable[[], Net]] = {
    "plain": Net,
    "feedback alignment": lambda: Net(FEEDBACK),
    "sign-symmetric": lambda: Net(partial(OwnLinear, function=SignSymmetric.apply)),
    "direct feedback": lambda: Net(partial(OwnLinear, function=Direct.apply)),
    "projected targets": _with_projected_targets,
    "detached residual": lambda: Net(step=lambda block, h: h.detach() + block.branch(h)),
    "local": lambda: Net(
        step=lambda block, h: torch.detach(h) + block.branch(h.detach().requires_grad_())
    ),
    "detached after": lambda: Net(step=lambda block, h: (h + block.branch(h)).detach_()),
    "tensor hooks": lambda: Net(act=_hooked),
    "module hooks": _with_module_hooks,
    "checkpoint": lambda: Net(step=_checkpointed(reentrant=False)),
    "reentrant checkpoint": lambda: Net(step=_checkpointed(reentrant=True)),
    "feedback in checkpoints": lambda: Net(FEEDBACK, step=_checkpointed(reentrant=True)),
}
"""Each computes what its plain copy computes."""
