"""The residual stream of any network: h_0 … h_L are found in unmodified networks, and their norms and gradients are right.

Each network here also spells its own stream out: ``states`` runs it by hand and returns the logits with the list of states, so
that float64 autograd gives norms and gradients that share nothing with tapes, cuts or hooks.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from support import clustered, in_batches, network
from torch import Tensor, nn
from torch.nn import functional as F

from pytest_fadiag import AuditError, measure
from pytest_fadiag.load.vision import import_torchvision
from pytest_fadiag.measure.stream.find import find_stream

D, CLASSES, BLOCKS = 16, 5, 3

States = Callable[[nn.Module, Tensor], tuple[Tensor, list[Tensor]]]


def by_hand(model: nn.Module, states: States, x: Tensor, y: Tensor, batch_dim: int = 0) -> tuple[list[float], list[float]]:
    """Median norms of states and gradients over the first full batches, from a float64 copy and states with retain_grad."""
    wide = copy.deepcopy(model).double().eval()
    probe = len(y) // 128 * 128
    logits, hidden = states(wide, x[:probe].double())
    for state in hidden:
        state.retain_grad()
    F.cross_entropy(logits, y[:probe], reduction="sum").backward()

    def medians(values: list[Tensor]) -> list[float]:
        moved = [value.detach().movedim(batch_dim, 0) for value in values]
        norms = [(value if value.ndim == 3 else value.flatten(1)).norm(dim=-1) for value in moved]
        read = [norm[:, (norm != 0).any(0)] if norm.ndim == 2 else norm for norm in norms]
        return [float(norm.flatten().quantile(0.5)) for norm in read]

    return medians(hidden), medians([state.grad / 128 for state in hidden if state.grad is not None])


def assert_measured(
    model: nn.Module, states: States, x: Tensor, y: Tensor, *, stream: str | None = None, batch_dim: int = 0
) -> None:
    """The measurement agrees with the states that the network spells out."""
    norms, gradients = by_hand(model, states, x, y, batch_dim)
    measured = measure(model, in_batches(x, y), stream=stream)
    assert measured.residual_norms == pytest.approx(norms, rel=1e-5)
    assert measured.bp_grad_norms == pytest.approx(gradients, rel=1e-4)


class Branch(nn.Module):
    """f_l alone; whoever calls it adds the residual."""

    def __init__(self, d: int = D) -> None:
        super().__init__()
        self.ln = nn.LayerNorm(d)
        self.fc = nn.Linear(d, d)

    def forward(self, h: Tensor) -> Tensor:
        return F.gelu(self.fc(self.ln(h)))


class Whole(Branch):
    """h_l + f_l: the block adds the residual itself."""

    def forward(self, h: Tensor) -> Tensor:
        return h + super().forward(h)


class Net(nn.Module):
    """A residual network without a word about its hidden states; ``step`` is how one state becomes the next."""

    def __init__(
        self,
        step: Callable[[Net, nn.Module, Tensor], Tensor],
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
        self.mix = nn.Linear(D, D)
        self.add = Add()
        self.norm = nn.LayerNorm(D) if norm else None
        self.head = nn.Linear(D, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        for block in self.blocks:
            h = self.step(self, block, h)
        return self.read(h)

    def read(self, h: Tensor) -> Tensor:
        logits: Tensor = self.head(h if self.norm is None else self.norm(h))
        return logits


class Add(nn.Module):
    """The residual added by a module, as quantisable networks do."""

    def forward(self, h: Tensor, f: Tensor) -> Tensor:
        return h + f


def stepped(net: nn.Module, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The states of a :class:`Net`."""
    assert isinstance(net, Net)
    hidden = [net.embed(x)]
    for block in net.blocks:
        hidden.append(net.step(net, block, hidden[-1]))
    return net.read(hidden[-1]), hidden


def sequence(first: int, last: int, every: int = 1) -> States:
    """The states of a Sequential: what enters its modules first, first + every …, and what leaves the module before last."""

    def run(net: nn.Module, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        assert isinstance(net, nn.Sequential)
        hidden, h = [], x
        for index, module in enumerate(net):
            if first <= index <= last and (index - first) % every == 0:
                hidden.append(h)
                h = h.clone()  # a module that writes in place must not touch the state
            h = module(h)
        return h, hidden

    return run


@pytest.fixture
def data() -> tuple[Tensor, Tensor]:
    return clustered(300)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def downhill(net: Net, block: nn.Module, h: Tensor) -> Tensor:
    """A step down an energy, whose gradient the forward takes by itself."""
    with torch.enable_grad():
        state = h if h.requires_grad else h.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(block(state).square().sum(), state, create_graph=True)
    return h - gradient


STEPS: dict[str, Callable[[Net, nn.Module, Tensor], Tensor]] = {
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
    "h - gradient of an energy": downhill,
}


@pytest.mark.parametrize("norm", [True, False], ids=["terminal norm", "no terminal norm"])
@pytest.mark.parametrize("step", STEPS)
def test_the_stream_is_found_however_a_state_becomes_the_next(step: str, norm: bool, data: tuple[Tensor, Tensor]) -> None:
    assert_measured(Net(STEPS[step], norm=norm), stepped, *data)


def test_without_residual_connections_every_layer_between_the_first_and_the_last_is_a_block(
    data: tuple[Tensor, Tensor],
) -> None:
    def mixed(net: nn.Module, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        assert isinstance(net, Net)
        hidden = [net.embed(x)]
        for block in net.blocks:
            hidden.append(block(hidden[-1]))
            hidden.append(net.mix(hidden[-1]))
        return net.read(hidden[-1]), hidden

    def at_blocks(net: nn.Module, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        logits, hidden = mixed(net, x)
        return logits, hidden[::2]

    net = Net(lambda net, block, h: net.mix(block(h)))
    assert_measured(net, mixed, *data)
    assert_measured(net, at_blocks, *data, stream="blocks.* -> norm")


def test_a_norm_between_two_stages_hides_no_block_that_explodes() -> None:
    class Stages(nn.Module):
        """As in Swin and ConvNeXt: a norm and a layer take what a stage leaves to the width of the next."""

        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Linear(20, 16), nn.Linear(24, 5)
            self.down, self.norm = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 24)), nn.LayerNorm(24)
            self.stages = nn.ModuleList(nn.ModuleList(Whole(width) for _ in range(3)) for width in (16, 24))

        def forward(self, x: Tensor) -> Tensor:
            h = self.embed(x)
            for number, stage in enumerate(self.stages):
                for block in stage:  # type: ignore[attr-defined]
                    h = block(h)
                h = self.norm(h) if number else self.down(h)
            logits: Tensor = self.head(h)
            return logits

    net = Stages().eval()
    x, y = clustered(256)
    sound = measure(net, in_batches(x, y)).residual_norms
    with torch.no_grad():
        for parameter in net.stages[0][2].parameters():  # type: ignore[index]
            parameter.mul_(100)
    seen = measure(net, in_batches(x, y)).residual_norms
    assert seen[:3] == sound[:3]
    assert seen[3] > 1e3 * sound[3]
    assert seen[4] < 10 * sound[4]


def test_a_module_between_two_stages_is_not_taken_for_the_one_that_adds_the_residual(data: tuple[Tensor, Tensor]) -> None:
    class Staged(Net):
        """Two blocks with a layer between them; each residual is added by an operator."""

        def forward(self, x: Tensor) -> Tensor:
            return staged(self, x)[0]

    def staged(net: nn.Module, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        assert isinstance(net, Net)
        h = net.embed(x)
        left = h + net.blocks[0](h)
        middle = net.mix(left)
        last = middle + net.blocks[1](middle)
        return net.read(last), [h, left, last]

    assert_measured(Staged(STEPS["h + f"], blocks=2), staged, *data)


@pytest.mark.parametrize("norm", [True, False], ids=["terminal norm", "no terminal norm"])
def test_blocks_that_add_the_residual_themselves(norm: bool, data: tuple[Tensor, Tensor]) -> None:
    assert_measured(Net(lambda net, block, h: block(h), Whole, norm=norm), stepped, *data)


def test_blocks_that_return_a_tuple(data: tuple[Tensor, Tensor]) -> None:
    class WithAttention(Whole):
        def forward(self, h: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
            return super().forward(h), None

    assert_measured(Net(lambda net, block, h: block(h)[0], WithAttention), stepped, *data)


def test_networks_that_return_more_than_logits(data: tuple[Tensor, Tensor]) -> None:
    class Chatty(Net):
        def forward(self, x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:  # type: ignore[override]
            logits = super().forward(x)
            return logits, {"confidence": logits.softmax(1)}

    assert_measured(Chatty(STEPS["h + f"]), stepped, *data)


def test_two_tensors_that_could_both_be_the_logits_are_refused() -> None:
    class Wide(nn.Module):
        """Returns its features too, which are as wide as there are classes."""

        def __init__(self) -> None:
            super().__init__()
            self.embed, self.blocks, self.head = nn.Linear(20, D), nn.ModuleList([Whole(), Whole()]), nn.Linear(D, D)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            h = self.embed(x)
            for block in self.blocks:
                h = block(h)
            return h, self.head(h)

    x = torch.randn(2 * D, 20)
    with pytest.raises(AuditError, match=r"which of them are the logits cannot be told .* under the name 'logits'"):
        measure(Wide(), [(x, torch.arange(2 * D) % D)])


def test_inputs_of_whole_numbers(data: tuple[Tensor, Tensor]) -> None:
    """Token ids cannot require grad: the stream begins behind the embedding all the same."""

    class Words(Net):
        def forward(self, x: Tensor) -> Tensor:
            return worded(self, x)[0]

    def worded(net: nn.Module, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        assert isinstance(net, Net)
        hidden = [net.embed(x.long())]
        for block in net.blocks:
            hidden.append(hidden[-1] + block(hidden[-1]))
        return net.read(hidden[-1])[:, 0], hidden

    net = Words(STEPS["h + f"])
    net.embed = nn.Embedding(10, D)
    assert_measured(net, worded, torch.randint(0, 10, (300, 7)), data[1])


def test_one_block_used_many_times_is_as_many_blocks(data: tuple[Tensor, Tensor]) -> None:
    net = Net(STEPS["h + f"])
    net.blocks = nn.ModuleList([net.blocks[0]] * 4)
    assert_measured(net, stepped, *data)
    assert_measured(net, stepped, *data, stream="blocks.* -> norm")
    assert find_stream(net.eval(), data[0][:3], "blocks.3 -> norm").blocks == ("blocks.0",) * 4


def test_a_module_used_before_and_after_the_blocks_marks_the_end_by_its_second_call(data: tuple[Tensor, Tensor]) -> None:
    class Dropped(Net):
        def forward(self, x: Tensor) -> Tensor:
            h = self.drop(self.embed(x))
            for block in self.blocks:
                h = h + block(h)
            return self.read(self.drop(h))

    assert_measured(Dropped(STEPS["h + f"]), stepped, *data)
    assert_measured(Dropped(STEPS["h + f"]), stepped, *data, stream="blocks.* -> drop")


# --- plain Sequentials -----------------------------------------------------------------------------------


def mlp(*activations: nn.Module, width: int = D, classes: int = CLASSES) -> nn.Sequential:
    layers = [layer for activation in activations for layer in (nn.Linear(width, width), activation)]
    return nn.Sequential(nn.Linear(20, width), nn.ReLU(), *layers, nn.Linear(width, classes))


@pytest.mark.parametrize("inplace", [False, True], ids=["", "in place"])
def test_a_plain_sequential_mlp(inplace: bool, data: tuple[Tensor, Tensor]) -> None:
    net = mlp(*(nn.ReLU(inplace=inplace) for _ in range(3)))
    assert_measured(net, sequence(2, 8, 2), *data)


def test_the_head_of_a_plain_mlp_is_no_block_even_if_it_is_as_wide(data: tuple[Tensor, Tensor]) -> None:
    net = mlp(nn.ReLU(), nn.ReLU(), width=8, classes=8)
    assert_measured(net, sequence(2, 6, 2), *data)


def test_normalisation_layers_belong_to_the_layers_beside_them(data: tuple[Tensor, Tensor]) -> None:
    unit = [nn.Linear(D, D), nn.BatchNorm1d(D), nn.PReLU()]
    net = nn.Sequential(nn.Linear(20, D), *copy.deepcopy(unit), *copy.deepcopy(unit), nn.Linear(D, CLASSES))
    assert_measured(net, sequence(1, 7, 3), *data)


@pytest.mark.parametrize("blocks", ["one class", "Sequentials"])
def test_units_that_overwrite_their_input_in_place(blocks: str, data: tuple[Tensor, Tensor]) -> None:
    class Unit(nn.Sequential):
        """A class of the user's own."""

    kind = Unit if blocks == "one class" else nn.Sequential
    units = (kind(nn.ReLU(inplace=True), nn.Linear(D, D)) for _ in range(3))
    net = nn.Sequential(nn.Linear(20, D), *units, nn.Linear(D, CLASSES))
    assert_measured(net, sequence(1, 4), *data)


def test_a_head_that_overwrites_the_last_state_in_place(data: tuple[Tensor, Tensor]) -> None:
    net = nn.Sequential(nn.Linear(20, D), Whole(), Whole(), nn.Sequential(nn.ReLU(inplace=True), nn.Linear(D, CLASSES)))
    assert_measured(net, sequence(1, 3), *data)


def test_tokens_that_are_overwritten_in_place(data: tuple[Tensor, Tensor]) -> None:
    """The output of a Linear on tokens is a view: autograd forgets the hooks of a view that is written to."""
    x = torch.randn(300, 4, 20)
    units = (nn.Sequential(nn.ReLU(inplace=True), nn.Linear(D, D)) for _ in range(3))
    net = nn.Sequential(nn.Linear(20, D), *units, Mean(), nn.Linear(D, CLASSES))
    assert_measured(net, sequence(1, 4), x, data[1])


class Mean(nn.Module):
    """Mean pooling over tokens."""

    def forward(self, h: Tensor) -> Tensor:
        return h.mean(1)


def test_a_block_that_overwrites_a_state_which_is_used_again(data: tuple[Tensor, Tensor]) -> None:
    def states(net: nn.Module, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        assert isinstance(net, Net)
        hidden = [net.embed(x)]
        for block in net.blocks:
            h = F.relu(hidden[-1])
            hidden.append(h + block[1](h))  # type: ignore[index]
        return net.read(hidden[-1]), hidden

    assert_measured(Net(STEPS["h + f"], lambda: nn.Sequential(nn.ReLU(inplace=True), nn.Linear(D, D))), states, *data)


def test_states_in_one_tensor_that_is_written_over(data: tuple[Tensor, Tensor]) -> None:
    def added(net: Net, block: nn.Module, h: Tensor) -> Tensor:
        h += block(h)
        return h

    assert_measured(Net(added, lambda: nn.Linear(D, D)), lambda net, x: stepped(_with_step(net, STEPS["h + f"]), x), *data)


def _with_step(net: nn.Module, step: Callable[[Net, nn.Module, Tensor], Tensor]) -> nn.Module:
    assert isinstance(net, Net)
    net.step = step
    return net


def test_states_that_autograd_cannot_differentiate_by_have_norms_and_no_gradients(data: tuple[Tensor, Tensor]) -> None:
    """LayerNorm needs its input for the gradient, and h += f overwrites it: nobody could train this by backpropagation."""

    def added(net: Net, block: nn.Module, h: Tensor) -> Tensor:
        h += block(h)
        return h

    measured = measure(Net(added), in_batches(*data))
    assert len(measured.residual_norms) == BLOCKS + 1
    assert measured.bp_grad_norms == ()
    assert measured.reference is not None
    assert "modified by an inplace operation" in measured.reference.problem


# --- networks of torch and torchvision, unmodified -------------------------------------------------------


class Tokens(nn.Module):
    """A classifier around torch's own encoder."""

    def __init__(self, *, batch_first: bool, norm: bool, tokens: int = 7) -> None:
        super().__init__()
        self.batch_first, self.tokens = batch_first, tokens
        layer = nn.TransformerEncoderLayer(D, 2, 32, dropout=0.1, batch_first=batch_first, norm_first=norm)
        self.embed = nn.Linear(20, tokens * D)
        self.encoder = nn.TransformerEncoder(layer, BLOCKS, norm=nn.LayerNorm(D) if norm else None, enable_nested_tensor=False)
        self.head = nn.Linear(D, CLASSES)

    def start(self, x: Tensor) -> Tensor:
        h: Tensor = self.embed(x).view(len(x), self.tokens, D)
        return h if self.batch_first else h.transpose(0, 1)

    def read(self, h: Tensor) -> Tensor:
        logits: Tensor = self.head(h.mean(1 if self.batch_first else 0))
        return logits

    def forward(self, x: Tensor) -> Tensor:
        return self.read(self.encoder(self.start(x)))

    def states(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        hidden = [self.start(x)]
        for layer in self.encoder.layers:
            hidden.append(layer(hidden[-1]))
        norm = self.encoder.norm
        return self.read(hidden[-1] if norm is None else norm(hidden[-1])), hidden


@pytest.mark.parametrize("norm", [True, False], ids=["final norm", "no final norm"])
@pytest.mark.parametrize("batch_first", [True, False], ids=["batch first", "tokens first"])
def test_a_transformer_encoder(batch_first: bool, norm: bool, data: tuple[Tensor, Tensor]) -> None:
    net = Tokens(batch_first=batch_first, norm=norm)
    dim = 0 if batch_first else 1
    assert_measured(net, lambda wide, x: wide.states(x), *data, batch_dim=dim)  # type: ignore[union-attr,operator]


@pytest.mark.parametrize("tokens", [1, 2, 3, 5])
def test_samples_are_told_from_tokens_whatever_their_number(tokens: int) -> None:
    x = torch.randn(3, 20)
    assert set(find_stream(Tokens(batch_first=True, norm=True, tokens=tokens).eval(), x).batch_dims) == {0}
    assert set(find_stream(Tokens(batch_first=False, norm=True, tokens=tokens).eval(), x).batch_dims) == {1}


def test_a_vision_transformer(data: tuple[Tensor, Tensor]) -> None:
    """A small one of torchvision's own class: only the class token is read, so at h_L the others have no gradient."""
    vit = import_torchvision().models.VisionTransformer(32, 8, 3, 2, D, 32, num_classes=CLASSES)
    nn.init.normal_(vit.heads.head.weight)

    def states(net: nn.Module, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        patches = net._process_input(x)  # type: ignore[operator]
        hidden = [torch.cat([net.class_token.expand(len(x), -1, -1), patches], 1) + net.encoder.pos_embedding]  # type: ignore
        for layer in net.encoder.layers:  # type: ignore[union-attr]
            hidden.append(layer(hidden[-1]))
        return net.heads(net.encoder.ln(hidden[-1])[:, 0]), hidden  # type: ignore[union-attr,operator]

    assert_measured(vit, states, torch.randn(300, 3, 32, 32), data[1])
    assert measure(vit, in_batches(torch.randn(300, 3, 32, 32), data[1])).companions.tokens_without_gradient[-1] == 16


def test_resnet18(data: tuple[Tensor, Tensor]) -> None:
    """Eight blocks in four containers, feature maps of four sizes, in-place ReLUs everywhere."""
    net = import_torchvision().models.resnet18(weights=None, num_classes=CLASSES)

    def states(net: nn.Module, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        hidden = [net.maxpool(net.relu(net.bn1(net.conv1(x))))]  # type: ignore[operator]
        for stage in (net.layer1, net.layer2, net.layer3, net.layer4):
            for block in stage:  # type: ignore[union-attr]
                hidden.append(block(hidden[-1]))
        return net.fc(net.avgpool(hidden[-1]).flatten(1)), hidden  # type: ignore[operator]

    assert_measured(net, states, torch.randn(256, 3, 16, 16), data[1][:256])


# --- what the user names, and what a model returns -------------------------------------------------------


def test_named_returned_and_detected_streams_give_the_same_numbers(data: tuple[Tensor, Tensor]) -> None:
    class Silent(nn.Module):
        """The reference network, without its return_hidden."""

        def __init__(self) -> None:
            super().__init__()
            self.net = network()

        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.net(x)
            return logits

    returned = measure(network(), in_batches(*data))
    named = measure(network(), in_batches(*data), stream="blocks.* -> out_ln")
    detected = measure(Silent(), in_batches(*data))
    for other in (named, detected):
        assert other.residual_norms == pytest.approx(returned.residual_norms, rel=1e-6)
        assert other.bp_grad_norms == pytest.approx(returned.bp_grad_norms, rel=1e-6)
        assert other.cross_batch_stability == pytest.approx(returned.cross_batch_stability, abs=1e-6)


def test_a_chain_that_leaves_blocks_out_is_refused_with_the_whole_to_paste() -> None:
    net = Net(STEPS["h + f"], blocks=5).eval()
    with pytest.raises(AuditError, match=r"leaves out blocks.*: blocks.0, blocks.3, blocks.4. .*--fa-stream='blocks.\*'"):
        find_stream(net, torch.randn(3, 20), "blocks.1, blocks.2 -> blocks.3")


@pytest.mark.parametrize("spec", ["blocks.*", "blocks.* -> norm"])
@pytest.mark.parametrize("step", ["h + f", "h + drop(f)"])
def test_a_network_of_one_block_can_be_named(step: str, spec: str, data: tuple[Tensor, Tensor]) -> None:
    assert_measured(Net(STEPS[step], blocks=1), stepped, *data, stream=spec)


def test_one_block_that_adds_the_residual_itself_can_be_named(data: tuple[Tensor, Tensor]) -> None:
    assert_measured(Net(lambda net, block, h: block(h), Whole, 1), stepped, *data, stream="blocks.*")


@pytest.mark.parametrize("blocks", [1, 2])
def test_the_reference_network_needs_no_name_for_one_block(blocks: int, data: tuple[Tensor, Tensor]) -> None:
    assert len(measure(network(blocks=blocks), in_batches(*data)).residual_norms) == blocks + 1


class Remembers(Net):
    """Answers return_hidden, with whatever ``keep`` makes of its states."""

    def __init__(self, keep: Callable[[Tensor], Tensor]) -> None:
        super().__init__(STEPS["h + f"])
        self.keep = keep

    def forward(self, x: Tensor, return_hidden: bool = False) -> Tensor | tuple[Tensor, list[Tensor]]:  # type: ignore[override]
        logits, hidden = stepped(self, x)
        return (logits, [self.keep(h) for h in hidden]) if return_hidden else logits


@pytest.mark.parametrize("keep", [Tensor.detach, Tensor.clone, torch.tanh], ids=["detached", "cloned", "changed"])
def test_states_are_taken_on_the_way_to_the_logits_whatever_the_network_returns(
    keep: Callable[[Tensor], Tensor], data: tuple[Tensor, Tensor]
) -> None:
    assert_measured(Remembers(keep), stepped, *data)


def test_a_list_of_one_tensor_that_was_written_over_is_passed_over(data: tuple[Tensor, Tensor]) -> None:
    class Overwrites(Net):
        def forward(self, x: Tensor, return_hidden: bool = False) -> Tensor | tuple[Tensor, list[Tensor]]:  # type: ignore[override]
            h = self.embed(x)
            hidden = [h]
            for block in self.blocks:
                h += block.fc(h)
                hidden.append(h)
            return (self.head(h), hidden) if return_hidden else self.head(h)

    def states(net: nn.Module, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        assert isinstance(net, Net)
        hidden = [net.embed(x)]
        for block in net.blocks:
            hidden.append(hidden[-1] + block.fc(hidden[-1]))
        return net.head(hidden[-1]), hidden

    assert_measured(Overwrites(STEPS["h + f"]), states, *data)


@pytest.mark.parametrize("answer", ["a dictionary", "a stacked tensor", "nothing more than logits"])
def test_another_answer_to_return_hidden_is_passed_over(answer: str, data: tuple[Tensor, Tensor]) -> None:
    class Odd(Net):
        def forward(self, x: Tensor, return_hidden: bool = False) -> object:  # type: ignore[override]
            logits, hidden = stepped(self, x)
            answers = {"a dictionary": dict(enumerate(hidden)), "a stacked tensor": torch.stack(hidden)}
            return (logits, answers[answer]) if return_hidden and answer in answers else logits

    assert_measured(Odd(STEPS["h + f"]), stepped, *data)


def test_a_network_that_writes_to_its_input_leaves_the_callers_data_alone_while_the_stream_is_found() -> None:
    class Centred(Net):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.sub_(1))

    x = torch.randn(3, 20)
    before = x.clone()
    find_stream(Centred(STEPS["h + f"]).eval(), x)
    assert torch.equal(x, before)


# --- what is one stream, and what is none ----------------------------------------------------------------


class Twins(nn.Module):
    """Blocks of two kinds one behind the other, and a deep head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(20, D)
        self.left = nn.ModuleList(Whole() for _ in range(3))
        self.right = nn.ModuleList(Branch() for _ in range(3))
        self.norm = nn.LayerNorm(D)
        self.head = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(D, D), nn.ReLU())), nn.Linear(D, CLASSES))

    def states(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        hidden = [self.embed(x)]
        for block in self.left:
            hidden.append(block(hidden[-1]))
        for block in self.right:
            hidden.append(hidden[-1] + block(hidden[-1]))
        return self.head(self.norm(hidden[-1])), hidden

    def forward(self, x: Tensor) -> Tensor:
        return self.states(x)[0]


@pytest.mark.parametrize("spec", [None, "left.*, right.*", "left.*, right.* -> norm"])
def test_blocks_of_every_kind_belong_to_the_stream_and_the_head_does_not(spec: str | None, data: tuple[Tensor, Tensor]) -> None:
    assert_measured(Twins(), lambda net, x: net.states(x), *data, stream=spec)  # type: ignore[union-attr,operator]


@pytest.mark.parametrize("spec", ["left.*", "right.* -> norm", "head.0, head.2", "left.*, right.*, head.*"])
def test_every_other_choice_is_refused_with_one_that_is_not(spec: str) -> None:
    with pytest.raises(AuditError, match=r"--fa-stream='left.\*, right.\*'"):
        find_stream(Twins().eval(), torch.randn(3, 20), spec)


class Conditioned(nn.Module):
    """Blocks that take a second tensor of the samples beside their state."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.condition = nn.Linear(20, D), nn.Linear(20, D)
        self.blocks = nn.ModuleList(Branch() for _ in range(3))
        self.norm, self.head = nn.LayerNorm(D), nn.Linear(D, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h, c = self.embed(x), torch.tanh(self.condition(x))
        for block in self.blocks:
            h = h + block(h + c)
        logits: Tensor = self.head(self.norm(h))
        return logits


@pytest.mark.parametrize("spec", [None, "blocks.*", "blocks.* -> norm"])
def test_a_condition_beside_the_blocks_is_refused_whatever_is_named(spec: str | None) -> None:
    with pytest.raises(AuditError, match=r"no tensor carries all .* No --fa-stream passes the test"):
        find_stream(Conditioned().eval(), torch.randn(3, 20), spec)


def test_weights_that_a_network_makes_from_the_samples_are_a_condition() -> None:
    class Hyper(Conditioned):
        def forward(self, x: Tensor) -> Tensor:
            h, weights = self.embed(x), torch.einsum("bi,bj->bij", self.condition(x), self.condition(x))
            for _ in range(3):
                h = h + torch.tanh(torch.bmm(self.norm(h)[:, None], weights)[:, 0])
            logits: Tensor = self.head(self.norm(h))
            return logits

    with pytest.raises(AuditError, match=r"no tensor carries all .* No --fa-stream passes the test"):
        find_stream(Hyper().eval(), torch.randn(3, 20))


def test_branches_side_by_side_are_one_block(data: tuple[Tensor, Tensor]) -> None:
    class Experts(Net):
        def forward(self, x: Tensor) -> Tensor:
            return side_by_side(self, x)[0]

    def side_by_side(net: nn.Module, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        assert isinstance(net, Net)
        h = net.embed(x)
        last = h + sum(block(h) for block in net.blocks)
        return net.read(last), [h, last]

    assert_measured(Experts(STEPS["h + f"], blocks=6), side_by_side, *data)


def test_a_network_without_blocks_is_an_error_that_says_what_ran() -> None:
    with pytest.raises(
        AuditError, match=r"(?s)the network has no blocks.*embed \(Linear\), norm \(LayerNorm\), head \(Linear\)"
    ):
        find_stream(Net(STEPS["h + f"], blocks=0).eval(), torch.randn(3, 20))


def test_a_reference_network_without_blocks_has_no_stream(data: tuple[Tensor, Tensor]) -> None:
    with pytest.raises(AuditError, match="the network has no blocks"):
        measure(network(blocks=0), in_batches(*data))


def test_a_last_state_that_no_module_takes_is_seen_where_it_is_made(data: tuple[Tensor, Tensor]) -> None:
    class Doubled(Net):
        def read(self, h: Tensor) -> Tensor:
            return super().read(2 * h)

    assert_measured(Doubled(STEPS["h + f"]), stepped, *data)


def test_a_layer_behind_the_last_block_is_part_of_the_head(data: tuple[Tensor, Tensor]) -> None:
    class Cut(Net):
        def forward(self, x: Tensor) -> Tensor:
            return cut(self, x)[0]

    def cut(net: nn.Module, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        assert isinstance(net, Net)
        *blocks, last = net.blocks
        hidden = [net.embed(x)]
        for block in blocks:
            hidden.append(hidden[-1] + block(hidden[-1]))
        return net.read(last(hidden[-1])), hidden

    assert_measured(Cut(STEPS["h + f"]), cut, *data)


@pytest.mark.parametrize("step", ["relu(f)", "h + f"])
def test_the_last_state_comes_before_the_tokens_are_pooled(step: str, data: tuple[Tensor, Tensor]) -> None:
    class Pooled(Net):
        def read(self, h: Tensor) -> Tensor:
            return super().read(h.mean(1))

    assert_measured(Pooled(STEPS[step]), stepped, torch.randn(300, 4, 20), data[1])


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("layers.* -> norm", r"no module matches 'layers.\*'.*top-level modules are: embed, blocks"),
        ("blocks.* -> out_ln", "no module matches 'out_ln'"),
        ("blocks.* -> embed", "'embed' does not run after the last block, 'blocks.2'"),
        ("blocks.* -> blocks.2.ln", "'blocks.2.ln' does not run after the last block"),
        ("mix -> norm", "matches mix, but none of them ran"),
        ("", "no module matches ''"),
        ("-> norm", "no module matches ''"),
    ],
)
def test_a_wrong_name_is_an_error_that_says_which_part(spec: str, message: str) -> None:
    with pytest.raises(AuditError, match=message):
        find_stream(Net(STEPS["h + f"]).eval(), torch.randn(3, 20), spec)


def test_samples_and_tokens_folded_into_one_dimension_are_refused() -> None:
    class Flat(Net):
        def forward(self, x: Tensor) -> Tensor:
            h = self.embed(x).view(-1, D // 2, 2).flatten(0, 1)
            for block in self.blocks:
                h = h + block(h)
            return self.head(self.norm(h).view(-1, D)) if self.norm is not None else h

    net = Flat(STEPS["h + f"], lambda: Branch(2))
    net.norm = nn.LayerNorm(2)
    with pytest.raises(AuditError, match=r"samples and tokens folded into one dimension \(shape \(24, 2\) for 3 samples\)"):
        find_stream(net.eval(), torch.randn(3, 20))
