"""Networks as people of this field write them, with a backward of their own, and the plain network of the same weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
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
    """Uniform sign-symmetric feedback in the other signature, which cannot be differentiated twice, with several outputs."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor, feedback: Tensor) -> tuple[Tensor, Tensor, int]:
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


def plain_linear(d_in: int, d_out: int) -> nn.Linear:
    return nn.Linear(d_in, d_out)


Inner = Callable[[nn.Module, Tensor], Tensor]


class Block(nn.Module):
    """f(h) = fc2(act(fc1(ln(h)))), and how it is added."""

    def __init__(self, linear: Callable[[int, int], nn.Linear], act: Inner, step: Callable[[Block, Tensor], Tensor]) -> None:
        super().__init__()
        self.ln = nn.LayerNorm(D)
        self.fc1, self.fc2 = linear(D, 2 * D), linear(2 * D, D)
        self.act, self.step = act, step

    def branch(self, h: Tensor) -> Tensor:
        f: Tensor = self.fc2(self.act(self, self.fc1(self.ln(h))))
        return f

    def forward(self, h: Tensor) -> Tensor:
        return self.step(self, h)


class Net(nn.Module):
    """Three blocks between an embedding and a head."""

    def __init__(
        self,
        linear: Callable[[int, int], nn.Linear] = plain_linear,
        act: Inner = lambda block, z: F.gelu(z),
        step: Callable[[Block, Tensor], Tensor] = lambda block, h: h + block.branch(h),
        depth: int = 3,
    ) -> None:
        super().__init__()
        self.embed = nn.Linear(20, D)
        self.blocks = nn.ModuleList(Block(linear, act, step) for _ in range(depth))
        self.out_ln = nn.LayerNorm(D)
        self.head = nn.Linear(D, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        for block in self.blocks:
            h = block(h)
        logits: Tensor = self.head(self.out_ln(h))
        return logits


def made(make: Callable[[], Net], seed: int = 0) -> Net:
    """A network from its own random stream."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def plain_copy(net: Net, act: Inner | None = None) -> Net:
    """The plain network with the same weights, in float64."""
    plain = Net(act=act or (lambda block, z: F.gelu(z)), depth=len(net.blocks))
    plain.load_state_dict({name: value for name, value in net.state_dict().items() if "weight_backward" not in name})
    return plain.double()


def _hooked(block: nn.Module, z: Tensor) -> Tensor:
    z = F.gelu(z)
    if z.requires_grad:
        z.register_hook(torch.zeros_like)
    return z


def _with_module_hooks() -> Net:
    net = Net()
    net.blocks[0].register_full_backward_hook(lambda module, inputs, outputs: (2 * inputs[0],))
    net.blocks[1].fc1.register_full_backward_pre_hook(lambda module, outputs: (torch.zeros_like(outputs[0]),))
    return net


def _with_projected_targets() -> Net:
    """Direct random target projection: a forward hook hangs another gradient on what leaves each block."""
    net = Net()
    for block in net.blocks:
        projection = torch.randn(D)

        def hang(module: nn.Module, inputs: Any, output: Tensor, projection: Tensor = projection) -> None:
            if output.requires_grad:
                output.register_hook(projection.expand_as)

        block.register_forward_hook(hang)
    return net


CASES: dict[str, Callable[[], Net]] = {
    "plain": Net,
    "feedback alignment": lambda: Net(lambda a, b: OwnLinear(a, b, feedback_linear)),
    "sign-symmetric": lambda: Net(lambda a, b: OwnLinear(a, b, SignSymmetric.apply)),
    "direct feedback": lambda: Net(lambda a, b: OwnLinear(a, b, Direct.apply)),
    "projected targets": _with_projected_targets,
    "detached residual": lambda: Net(step=lambda block, h: h.detach() + block.branch(h)),
    "local": lambda: Net(step=lambda block, h: torch.detach(h) + block.branch(h.detach().requires_grad_())),
    "detached behind": lambda: Net(step=lambda block, h: (h + block.branch(h)).detach_()),
    "tensor hooks": lambda: Net(act=_hooked),
    "module hooks": _with_module_hooks,
    "checkpoint": lambda: Net(step=lambda block, h: h + checkpoint(block.branch, h, use_reentrant=False)),
    "reentrant checkpoint": lambda: Net(step=lambda block, h: h + checkpoint(block.branch, h, use_reentrant=True)),
    "feedback in checkpoints": lambda: Net(
        lambda a, b: OwnLinear(a, b, feedback_linear),
        step=lambda block, h: h + checkpoint(block.branch, h, use_reentrant=True),
    ),
}
"""Each computes what its plain copy computes."""
