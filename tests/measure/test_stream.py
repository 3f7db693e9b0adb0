"""The residual stream of any network: h_0 … h_L are found in unmodified networks, and are right.

Each network here also spells its own stream out: ``states`` runs it by hand and returns the logits
with the list of states, so that float64 autograd gives states and gradients that share nothing with
tapes, cuts or hooks.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pytest_fadiag.load.vision import import_torchvision
from pytest_fadiag.measure.copies import named_parameters, working_copy
from pytest_fadiag.measure.reference import passed
from pytest_fadiag.measure.stream.find import find_stream
from pytest_fadiag.measure.stream.sites import Stream

D, CLASSES, BLOCKS = 16, 5, 3

States = Callable[[nn.Module, Tensor], tuple[Tensor, list[Tensor]]]


def assert_found(
    net: nn.Module, states: States, x: Tensor, spec: str | None = None, batch_dim: int = 0
) -> Stream:
    """States and gradients are those that the network spells out, for every sample."""
    wide = copy.deepcopy(net).double().eval()
    x = x.double() if x.is_floating_point() else x
    y = torch.arange(len(x)) % CLASSES
    logits, hidden = states(copy.deepcopy(wide), x)
    for state in hidden:
        state.retain_grad()
    F.cross_entropy(logits, y, reduction="sum").backward()
    network = working_copy(wide)
    stream = find_stream(network, x, spec)
    seen = passed(network, stream, x, lambda own: F.cross_entropy(own, y, reduction="sum"))
    assert len(seen.states) == len(hidden)
    for state, gradient, true in zip(seen.states, seen.gradients, hidden, strict=True):
        assert true.grad is not None
        moved = [own.movedim(batch_dim, 0) for own in (true.detach(), true.grad)]
        torch.testing.assert_close([state, gradient], moved, rtol=1e-9, atol=1e-12)
    return stream


class Branch(nn.Module):
    """f_l alone; the caller adds the residual."""

    def __init__(self, d: int = D) -> None:
        super().__init__()
        self.ln, self.fc = nn.LayerNorm(d), nn.Linear(d, d)

    def forward(self, h: Tensor) -> Tensor:
        return F.gelu(self.fc(self.ln(h)))


class Whole(Branch):
    """h_l + f_l: the block adds the residual itself."""

    def forward(self, h: Tensor) -> Tensor:
        return h + super().forward(h)


Step = Callable[["Net", nn.Module, Tensor], Tensor]


class Net(nn.Module):
    """A residual network without a word about its states; ``step`` makes the next of one."""

    def __init__(
        self,
        step: Step = lambda net, block, h: h + block(h),
        block: Callable[[], nn.Module] = Branch,
        blocks: int = BLOCKS,
        *,
        norm: bool = True,
    ) -> None:
        super().__init__()
        self.step = step
        self.embed = nn.Linear(20, D)
        self.blocks = nn.ModuleList(block() for _ in range(blocks))
        self.drop = nn.Dropout(0.1)
        self.scale = nn.Parameter(torch.full((D,), 0.5))
        self.mix, self.add = nn.Linear(D, D), Add()
        self.norm = nn.LayerNorm(D) if norm else nn.Identity()
        self.head = nn.Linear(D, CLASSES)

    def states(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        hidden = [self.embed(x)]
        for block in self.blocks:
            hidden.append(self.step(self, block, hidden[-1]))
        return self.read(hidden[-1]), hidden

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        for block in self.blocks:
            h = self.step(self, block, h)
        return self.read(h)

    def read(self, h: Tensor) -> Tensor:
        return self.head(self.norm(h))


class Add(nn.Module):
    """The residual added by a module, as quantisable networks do."""

    def forward(self, h: Tensor, f: Tensor) -> Tensor:
        return h + f


def own_states(net: nn.Module, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    return net.states(x)


X = torch.randn(6, 20, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def downhill(net: Net, block: nn.Module, h: Tensor) -> Tensor:
    """A step down an energy, whose gradient the forward takes by itself."""
    with torch.enable_grad():
        state = h if h.requires_grad else h.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(block(state).square().sum(), state, create_graph=True)
    return h - gradient


def through_numpy(net: Net, block: nn.Module, h: Tensor) -> Tensor:
    """A gate of numbers that torch does not see."""
    gate = torch.as_tensor([1.0 + abs(value) for value in h.detach().sum(1).tolist()])
    return h + block(h) * gate.to(h)[:, None]


STEPS: dict[str, Step] = {
    "h + f": lambda net, block, h: h + block(h),
    "h + drop(f)": lambda net, block, h: h + net.drop(block(h)),
    "h + scale * drop(f)": lambda net, block, h: h + net.scale * net.drop(block(h)),
    "h + mix(drop(f))": lambda net, block, h: h + net.mix(net.drop(block(h))),
    "add(h, f)": lambda net, block, h: net.add(h, block(h)),
    "f": lambda net, block, h: block(h),
    "relu(f)": lambda net, block, h: F.relu(block(h)),
    "relu_(f)": lambda net, block, h: F.relu(block(h), inplace=True),
    "drop(f)": lambda net, block, h: net.drop(block(h)),
    "block(h=h)": lambda net, block, h: h + block(h=h),
    "h + vmap(f)": lambda net, block, h: h + torch.func.vmap(block)(h),
    "h + gate * f, the gate by Python": through_numpy,
    "h - gradient of an energy": downhill,
}


@pytest.mark.parametrize("norm", [True, False], ids=["terminal norm", "no terminal norm"])
@pytest.mark.parametrize("step", STEPS)
def test_the_stream_is_found_however_a_state_becomes_the_next(step: str, norm: bool) -> None:
    stream = assert_found(Net(STEPS[step], norm=norm), own_states, X)
    assert stream.info.residual is (step not in ("f", "relu(f)", "relu_(f)", "drop(f)"))


def test_without_residual_connections_every_layer_between_the_first_and_the_last_is_a_block() -> (
    None
):
    def mixed(net: nn.Module, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        hidden = [net.embed(x)]
        for block in net.blocks:
            hidden.append(block(hidden[-1]))
            hidden.append(net.mix(hidden[-1]))
        return net.read(hidden[-1]), hidden

    def at_blocks(net: nn.Module, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        logits, hidden = mixed(net, x)
        return logits, hidden[::2]

    net = Net(lambda net, block, h: net.mix(block(h)))
    assert_found(net, mixed, X)
    assert_found(net, at_blocks, X, "blocks.* -> norm")


class Stages(nn.Module):
    """As in Swin and ConvNeXt: a norm and a layer take a stage's output to the next width."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(20, 16), nn.Linear(24, CLASSES)
        self.down = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 24))
        self.norm = nn.LayerNorm(24)
        self.stages = nn.ModuleList(
            nn.ModuleList(Whole(width) for _ in range(3)) for width in (16, 24)
        )

    def states(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        h = self.embed(x)
        hidden = [h]
        for number, stage in enumerate(self.stages):
            for block in stage:
                h = block(h)
                hidden.append(h)
            h = self.norm(h) if number else self.down(h)
        return self.head(h), hidden

    def forward(self, x: Tensor) -> Tensor:
        return self.states(x)[0]


def test_a_norm_between_two_stages_hides_no_block_that_explodes() -> None:
    stream = assert_found(Stages(), own_states, X)
    assert stream.info.sizes == (16, 16, 16, 16, 24, 24, 24)
    assert stream.info.head == "norm"


def test_a_module_between_two_stages_is_not_taken_for_the_one_that_adds_the_residual() -> None:
    class Staged(Net):
        """Two blocks with a layer between them; each residual is added by an operator."""

        def states(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
            h = self.embed(x)
            left = h + self.blocks[0](h)
            middle = self.mix(left)
            last = middle + self.blocks[1](middle)
            return self.read(last), [h, left, last]

        def forward(self, x: Tensor) -> Tensor:
            return self.states(x)[0]

    assert_found(Staged(blocks=2), own_states, X)


def test_inputs_of_whole_numbers() -> None:
    """Token ids cannot require grad: the stream begins after the embedding all the same."""

    class Words(Net):
        def read(self, h: Tensor) -> Tensor:
            return super().read(h)[:, 0]

    net = Words()
    net.embed = nn.Embedding(10, D)
    assert_found(net, own_states, torch.randint(0, 10, (6, 7)))


@pytest.mark.parametrize("spec", [None, "blocks.* -> norm"])
def test_one_block_used_many_times_is_as_many_blocks(spec: str | None) -> None:
    net = Net()
    net.blocks = nn.ModuleList([net.blocks[0]] * 4)
    assert assert_found(net, own_states, X, spec).blocks == ("blocks.0",) * 4


@pytest.mark.parametrize("spec", [None, "blocks.* -> drop"])
def test_a_module_used_before_and_after_the_blocks_marks_the_end_by_its_second_call(
    spec: str | None,
) -> None:
    class Dropped(Net):
        def forward(self, x: Tensor) -> Tensor:
            h = self.drop(self.embed(x))
            for block in self.blocks:
                h = h + block(h)
            return self.read(self.drop(h))

    assert_found(Dropped(), own_states, X, spec)


# --- plain Sequentials, and writes in place ------------------------------------------------------


def sequence(first: int, last: int, every: int = 1) -> States:
    """The states of a Sequential: what enters its modules first, first + every … last."""

    def run(net: nn.Module, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        hidden, h = [], x
        for index, module in enumerate(net):
            if first <= index <= last and (index - first) % every == 0:
                hidden.append(h)
                h = h.clone()  # a module that writes in place must not touch the state
            h = module(h)
        return h, hidden

    return run


def mlp(*activations: nn.Module, width: int = D, classes: int = CLASSES) -> nn.Sequential:
    layers = [layer for own in activations for layer in (nn.Linear(width, width), own)]
    return nn.Sequential(nn.Linear(20, width), nn.ReLU(), *layers, nn.Linear(width, classes))


class Mean(nn.Module):
    def forward(self, h: Tensor) -> Tensor:
        return h.mean(1)


def in_place(kind: type[nn.Sequential] = nn.Sequential) -> list[nn.Module]:
    return [kind(nn.ReLU(inplace=True), nn.Linear(D, D)) for _ in range(3)]


class Unit(nn.Sequential):
    """A class of the user's own."""


def units(*layers: nn.Module) -> list[nn.Module]:
    return [copy.deepcopy(layer) for _ in range(2) for layer in layers]


SEQUENCES: dict[str, tuple[Callable[[], nn.Sequential], States]] = {
    "plain": (lambda: mlp(*(nn.ReLU() for _ in range(3))), sequence(2, 8, 2)),
    "in place": (lambda: mlp(*(nn.ReLU(inplace=True) for _ in range(3))), sequence(2, 8, 2)),
    "a head as wide as the layers": (
        lambda: mlp(nn.ReLU(), nn.ReLU(), width=8, classes=8),
        sequence(2, 6, 2),
    ),
    "norms belong to the layers next to them": (
        lambda: nn.Sequential(
            nn.Linear(20, D),
            *units(nn.Linear(D, D), nn.BatchNorm1d(D), nn.PReLU()),
            nn.Linear(D, CLASSES),
        ),
        sequence(1, 7, 3),
    ),
    "units that overwrite their input": (
        lambda: nn.Sequential(nn.Linear(20, D), *in_place(), nn.Linear(D, CLASSES)),
        sequence(1, 4),
    ),
    "the same of one class": (
        lambda: nn.Sequential(nn.Linear(20, D), *in_place(Unit), nn.Linear(D, CLASSES)),
        sequence(1, 4),
    ),
    "a head that overwrites the last state": (
        lambda: nn.Sequential(
            nn.Linear(20, D),
            *(Whole(), Whole()),
            nn.Sequential(nn.ReLU(inplace=True), nn.Linear(D, CLASSES)),
        ),
        sequence(1, 3),
    ),
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_a_sequential(name: str) -> None:
    make, states = SEQUENCES[name]
    assert_found(make(), states, X)


def test_tokens_that_are_overwritten_in_place() -> None:
    """The output of a Linear on tokens is a view: autograd forgets hooks of one written to."""
    net = nn.Sequential(nn.Linear(20, D), *in_place(), Mean(), nn.Linear(D, CLASSES))
    assert_found(net, sequence(1, 4), torch.randn(6, 4, 20))


def test_a_block_that_overwrites_a_state_which_is_used_again() -> None:
    def states(net: nn.Module, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        hidden = [net.embed(x)]
        for block in net.blocks:
            h = F.relu(hidden[-1])
            hidden.append(h + block[1](h))
        return net.read(hidden[-1]), hidden

    net = Net(block=lambda: nn.Sequential(nn.ReLU(inplace=True), nn.Linear(D, D)))
    assert_found(net, states, X)


class Expanded(Net):
    """Hyper-connections: several streams that begin as one, in the same memory."""

    def states(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        hidden = [self.embed(x)[:, None].expand(-1, 4, -1)]
        for block in self.blocks:
            hidden.append(self.step(self, block, hidden[-1]))
        return self.read(hidden[-1].mean(1)), hidden

    def forward(self, x: Tensor) -> Tensor:
        return self.states(x)[0]


@pytest.mark.parametrize("step", ["h + f", "f"])
def test_a_state_whose_entries_share_memory(step: str) -> None:
    assert_found(Expanded(STEPS[step]), own_states, X)


def test_states_in_one_tensor_that_is_written_over() -> None:
    def added(net: Net, block: nn.Module, h: Tensor) -> Tensor:
        h += block(h)
        return h

    def apart(net: nn.Module, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        net.step = STEPS["h + f"]
        return net.states(x)

    assert_found(Net(added, lambda: nn.Linear(D, D)), apart, X)


# --- tokens, and networks of torch and torchvision -----------------------------------------------


class Tokens(nn.Module):
    """A classifier around torch's own encoder."""

    def __init__(self, *, batch_first: bool, norm: bool = True, tokens: int = 7) -> None:
        super().__init__()
        self.dims = (0, 1) if batch_first else (1, 0)
        self.embed, self.head = nn.Linear(20, tokens * D), nn.Linear(D, CLASSES)
        layer = nn.TransformerEncoderLayer(
            D, 2, 32, dropout=0.1, batch_first=batch_first, norm_first=norm
        )
        self.encoder = nn.TransformerEncoder(
            layer, BLOCKS, norm=nn.LayerNorm(D) if norm else None, enable_nested_tensor=False
        )

    def start(self, x: Tensor) -> Tensor:
        return self.embed(x).view(len(x), -1, D).movedim(0, self.dims[0])

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(self.start(x)).mean(self.dims[1]))

    def states(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        hidden = [self.start(x)]
        for layer in self.encoder.layers:
            hidden.append(layer(hidden[-1]))
        last = self.encoder.norm(hidden[-1]) if self.encoder.norm else hidden[-1]
        return self.head(last.mean(self.dims[1])), hidden


@pytest.mark.parametrize("norm", [True, False], ids=["final norm", "no final norm"])
@pytest.mark.parametrize("batch_first", [True, False], ids=["batch first", "tokens first"])
def test_a_transformer_encoder(batch_first: bool, norm: bool) -> None:
    net = Tokens(batch_first=batch_first, norm=norm)
    stream = assert_found(net, own_states, X, batch_dim=0 if batch_first else 1)
    assert all(stream.tokens) and stream.info.sizes == (D,) * (BLOCKS + 1)


@pytest.mark.parametrize("tokens", [1, 2, 3, 5])
def test_samples_are_told_from_tokens_whatever_their_number(tokens: int) -> None:
    for dim, batch_first in enumerate([True, False]):
        net = Tokens(batch_first=batch_first, tokens=tokens).eval()
        assert set(find_stream(net, X).batch_dims) == {dim}


def test_a_vision_transformer() -> None:
    vit = import_torchvision().models.VisionTransformer(32, 8, 3, 2, D, 32, num_classes=CLASSES)
    nn.init.normal_(vit.heads.head.weight)

    def states(net: nn.Module, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        tokens = torch.cat([net.class_token.expand(len(x), -1, -1), net._process_input(x)], 1)
        hidden = [tokens + net.encoder.pos_embedding]
        for layer in net.encoder.layers:
            hidden.append(layer(hidden[-1]))
        return net.heads(net.encoder.ln(hidden[-1])[:, 0]), hidden

    assert_found(vit, states, torch.randn(4, 3, 32, 32))


def test_resnet18() -> None:
    """Eight blocks in four containers, feature maps of four sizes, in-place ReLUs everywhere."""
    net = import_torchvision().models.resnet18(weights=None, num_classes=CLASSES)

    def states(net: nn.Module, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        hidden = [net.maxpool(net.relu(net.bn1(net.conv1(x))))]
        for stage in (net.layer1, net.layer2, net.layer3, net.layer4):
            for block in stage:
                hidden.append(block(hidden[-1]))
        return net.fc(net.avgpool(hidden[-1]).flatten(1)), hidden

    stream = assert_found(net, states, torch.randn(4, 3, 16, 16))
    assert not any(stream.tokens) and stream.info.head == "avgpool"
    assert stream.blocks == tuple(f"layer{stage}.{own}" for stage in range(1, 5) for own in (0, 1))


class AsTokens(nn.Module):
    """The positions of a feature map as tokens, through a layer and with their own sum."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, h: Tensor) -> Tensor:
        tokens = h.flatten(2).transpose(1, 2)
        return tokens + self.fc(tokens)


def test_a_norm_is_over_a_whole_map_and_over_the_features_of_a_token() -> None:
    class Residual(nn.Sequential):
        def forward(self, h: Tensor) -> Tensor:
            return h + super().forward(h)

    maps = [Residual(nn.Conv2d(6, 6, 3, padding=1), nn.ReLU()) for _ in range(2)]
    embed = [nn.Unflatten(1, (1, 4, 5)), nn.Conv2d(1, 6, 1)]
    tokens = [AsTokens(), Residual(nn.LayerNorm(6), nn.Linear(6, 6))]
    net = nn.Sequential(*embed, *maps, *tokens, Mean(), nn.Linear(6, CLASSES))
    stream = assert_found(net, sequence(2, 6), X)
    assert stream.tokens == (False, False, False, True, True)
    assert stream.info.sizes == (120, 120, 120, 6, 6)


# --- where the stream ends, and what belongs to it -----------------------------------------------


def test_branches_side_by_side_are_one_block() -> None:
    class Experts(Net):
        def states(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
            h = self.embed(x)
            last = h + sum(block(h) for block in self.blocks)
            return self.read(last), [h, last]

        def forward(self, x: Tensor) -> Tensor:
            return self.states(x)[0]

    assert_found(Experts(blocks=6), own_states, X)


def test_a_last_state_that_no_module_takes_is_seen_where_it_is_made() -> None:
    class Doubled(Net):
        def read(self, h: Tensor) -> Tensor:
            return super().read(2 * h)

    stream = assert_found(Doubled(lambda net, block, h: block(h) + net.scale + h), own_states, X)
    last = stream.sites[-1]
    assert (last.function, last.occurrence) == ("add", 1)  # the second sum after the last block
    assert str(last) == "what add returns after the output of 'blocks.2'"


def test_a_layer_after_the_last_block_is_part_of_the_head() -> None:
    class Cut(Net):
        def states(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
            hidden = [self.embed(x)]
            for block in self.blocks[:-1]:
                hidden.append(hidden[-1] + block(hidden[-1]))
            return self.read(self.blocks[-1](hidden[-1])), hidden

        def forward(self, x: Tensor) -> Tensor:
            return self.states(x)[0]

    assert_found(Cut(), own_states, X)


@pytest.mark.parametrize("step", ["relu(f)", "h + f"])
def test_the_last_state_comes_before_the_tokens_are_pooled(step: str) -> None:
    class Pooled(Net):
        def read(self, h: Tensor) -> Tensor:
            return super().read(h.mean(1))

    assert_found(Pooled(STEPS[step]), own_states, torch.randn(6, 4, 20))


def test_parameters_belong_to_blocks_to_what_is_outside_or_to_both() -> None:
    net = Net().eval()
    net.blocks[1].ln.weight = net.norm.weight
    net.blocks[2].fc.register_parameter("feedback", nn.Parameter(torch.randn(D, D)))
    del net.mix, net.scale
    stream = find_stream(net, X)
    shared, own = "norm.weight", {"fc.weight", "fc.bias", "ln.weight", "ln.bias"}
    assert stream.parameters[0] == {f"blocks.0.{name}" for name in own}
    assert (
        shared in stream.parameters[1] & stream.outside
        and shared not in stream.exclusive_parameters[1]
    )
    assert (
        "blocks.2.fc.feedback" in stream.exclusive_parameters[2]
    )  # no forward reads it: it belongs to its module
    outside = {"embed.weight", "embed.bias", shared, "norm.bias", "head.weight", "head.bias"}
    assert stream.outside == outside
    sizes = {name: own.numel() for name, own in named_parameters(net).items()}
    inside = [size for name, size in sizes.items() if name.startswith("blocks.") or name == shared]
    assert stream.info.outside == pytest.approx(1 - sum(inside) / sum(sizes.values()))


def test_numbered_parts_of_modules_that_could_be_blocks_are_the_blocks() -> None:
    """Numbered parts of one kind in modules of one class: either could be meant."""

    class Group(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleList(Branch() for _ in range(2))

        def forward(self, h: Tensor) -> Tensor:
            for part in self.parts:
                h = h + part(h)
            return h

    net = Net(lambda net, block, h: block(h), Group, 2).eval()
    info = find_stream(net, X).info
    assert info.blocks == tuple(f"blocks.{group}.parts.{own}" for group in (0, 1) for own in (0, 1))


def test_states_are_named_where_they_are() -> None:
    """After the activation, not at the output of the layer that is the block."""
    layers = nn.Linear(20, D), nn.ReLU(), nn.Linear(D, D), nn.ReLU(), nn.Linear(D, 5)
    info = find_stream(nn.Sequential(*layers).eval(), X).info
    assert (info.blocks, info.states) == (("2",), ("the output of '1'", "the output of '3'"))


class Gated(nn.Module):
    """An update by a norm and a gain, without a matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.ln, self.gain = nn.LayerNorm(D), nn.Parameter(torch.ones(D))

    def forward(self, h: Tensor) -> Tensor:
        return h + self.gain * torch.tanh(self.ln(h))


def test_an_update_without_a_matrix_is_a_block() -> None:
    net = nn.Sequential(nn.Linear(20, D), Whole(), Whole(), Gated(), nn.Linear(D, 5))
    assert find_stream(net.eval(), X).blocks == ("1", "2", "3")


def test_a_block_whose_weight_norm_is_zero_is_a_block() -> None:
    net = nn.Sequential(nn.Linear(20, D), *(Whole() for _ in range(3)), nn.Linear(D, 5))
    for block in net[1:4]:
        nn.utils.parametrizations.weight_norm(block.fc)
    for parameter in net[2].fc.parameters():
        nn.init.zeros_(parameter)
    assert find_stream(net.eval(), X).blocks == ("1", "2", "3")
