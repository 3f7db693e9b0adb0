"""Which streams a user may name, what is no stream, and how a found one is run."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from pytest_fadiag.judge.errors import AuditError
from pytest_fadiag.measure.inputs import NetworkError
from pytest_fadiag.measure.stream.find import find_stream
from pytest_fadiag.measure.stream.samples import draw_samples
from pytest_fadiag.measure.stream.spec import spec_of

D = 8
X = torch.randn(6, 20, generator=torch.Generator().manual_seed(0))


class Branch(nn.Module):
    def __init__(self, d: int = D) -> None:
        super().__init__()
        self.ln, self.fc = nn.LayerNorm(d), nn.Linear(d, d)

    def forward(self, h: Tensor) -> Tensor:
        return torch.tanh(self.fc(self.ln(h)))


class Whole(Branch):
    def forward(self, h: Tensor) -> Tensor:
        return h + super().forward(h)


class Net(nn.Module):
    """``step`` makes the next state of one, of a block and of the inputs."""

    def __init__(self, blocks: int = 3, block: Callable[[], nn.Module] = Branch) -> None:
        super().__init__()
        self.embed, self.mix = nn.Linear(20, D), nn.Linear(20, D)
        self.blocks = nn.ModuleList(block() for _ in range(blocks))
        self.norm, self.head = nn.LayerNorm(D), nn.Linear(D, 5)

    def step(self, block: nn.Module, h: Tensor, x: Tensor) -> Tensor:
        return h + block(h)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        for block in self.blocks:
            h = self.step(block, h, x)
        return self.head(self.norm(h))


def refused(net: nn.Module, message: str, spec: str | None = None, x: Tensor = X) -> None:
    with pytest.raises(AuditError, match=message):
        find_stream(net.eval(), x, spec)


# --- what the user names -------------------------------------------------------------------------


@pytest.mark.parametrize("spec", ["blocks.*", "blocks.* -> norm", "blocks.0, blocks.1, blocks.2"])
def test_a_named_stream_is_the_one_that_is_found(spec: str) -> None:
    net = Net().eval()
    named, found = find_stream(net, X, spec), find_stream(net, X)
    assert named == found and named.info.spec == spec and not found.info.spec
    assert (named.info.blocks, named.info.head) == (found.info.blocks, "norm")


@pytest.mark.parametrize("block", [Branch, Whole], ids=["added outside", "added inside"])
@pytest.mark.parametrize("spec", [None, "blocks.*", "blocks.* -> norm"])
def test_one_block_is_a_stream(block: type[nn.Module], spec: str | None) -> None:
    net = Net(1, block).eval()
    if block is Whole:
        net.step = lambda own, h, x: own(h)
    assert find_stream(net, X, spec).blocks == ("blocks.0",)


def test_attention_and_mlp_may_be_one_block_or_two() -> None:
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attn, self.mlp = Branch(), nn.Sequential(Branch(), nn.Linear(D, D))

        def forward(self, h: Tensor) -> Tensor:
            h = h + self.attn(h)
            return h + self.mlp(h)

    net = Net(2, Layer).eval()
    net.step = lambda block, h, x: block(h)
    assert len(find_stream(net, X, "blocks.*").blocks) == 2
    halves = ("blocks.0.attn", "blocks.0.mlp", "blocks.1.attn", "blocks.1.mlp")
    assert find_stream(net, X, "blocks.*.attn, blocks.*.mlp").blocks == halves


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("blocks.1, blocks.2", r"leaves out blocks.0 and blocks.3; .*--fa-stream='blocks.\*'"),
        ("layers.* -> norm", r"no module matches 'layers.\*'.*top-level modules are: embed, mix,"),
        ("blocks.* -> out_ln", "no module matches 'out_ln'"),
        ("blocks.* ->", "no module matches ''"),
        ("", "no module matches ''"),
        ("-> norm", "no module matches ''"),
        ("blocks.* -> embed", "'embed' does not run after the last block, 'blocks.3'"),
        ("blocks.* -> blocks.2.ln", "'blocks.2.ln' does not run after the last block"),
        ("mix -> norm", "mix did not run on a tensor"),
        ("head", r"'head' adds nothing to the stream; .*--fa-stream='blocks.\*'"),
        ("blocks", "blocks did not run"),
    ],
)
def test_a_wrong_name_is_an_error_that_says_which_part(spec: str, message: str) -> None:
    refused(Net(4), message, spec)


class Twins(nn.Module):
    """Blocks of two kinds one after the other in one module, and a deep head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm = nn.Linear(20, D), nn.LayerNorm(D)
        self.left = nn.Sequential(*(Whole() for _ in range(3)))
        self.right = nn.ModuleList(Branch() for _ in range(3))
        self.head = nn.Sequential(nn.Linear(D, D), nn.ReLU(), nn.Linear(D, D), nn.Linear(D, 5))

    def forward(self, x: Tensor) -> Tensor:
        h = self.left(self.embed(x))
        for block in self.right:
            h = h + block(h)
        return self.head(self.norm(h))


@pytest.mark.parametrize("spec", [None, "left.*, right.*", "left.*, right.* -> norm"])
def test_blocks_of_every_kind_belong_to_the_stream_and_the_head_does_not(spec: str | None) -> None:
    blocks = find_stream(Twins().eval(), X, spec).blocks
    assert blocks == tuple(f"{side}.{own}" for side in ("left", "right") for own in range(3))


@pytest.mark.parametrize(
    "spec",
    ["left.*", "right.* -> norm", "head.0, head.2", "left.*, right.*, head.*", "left, right.*"],
)
def test_every_other_choice_is_refused_with_one_that_is_not(spec: str) -> None:
    refused(Twins(), r"--fa-stream='left.\*, right.\*'", spec)


def test_a_layer_of_a_plain_network_that_is_inside_another_or_the_head_is_refused() -> None:
    net = nn.Sequential(
        nn.Linear(20, D),
        nn.Sequential(nn.Linear(D, D), nn.Tanh(), nn.Linear(D, D)),
        nn.Linear(D, 5),
    )
    refused(net, "names '1.2' inside another block", "1, 1.2")
    refused(net, "takes the head for a block", "1, 2")


names = st.lists(st.sampled_from(["a.0", "a.1", "a.0.f", "a.1.f", "b1", "b2", "c"]), unique=True)


@given(blocks=names.filter(len), others=names)
def test_a_spec_to_paste_names_its_blocks_and_nothing_else(
    blocks: list[str], others: list[str]
) -> None:
    ran = [SimpleNamespace(name=name, inputs=[0]) for name in [*blocks, *others]]
    graph: Any = SimpleNamespace(tape=SimpleNamespace(calls=ran))
    spec = spec_of(graph, [SimpleNamespace(name=name) for name in blocks])  # type: ignore[misc]
    patterns = [pattern.replace(".", r"\.").replace("*", "[^.]*") for pattern in spec.split(", ")]
    named = {own.name for own in ran if any(re.fullmatch(one, own.name) for one in patterns)}
    assert named == {*blocks}


# --- what is no stream ---------------------------------------------------------------------------

BYPASS = r"no single stream .* bypasses the sums in .*\. No --fa-stream passes"


@pytest.mark.parametrize("spec", [None, "blocks.*", "blocks.* -> norm"])
def test_a_condition_of_the_blocks_is_refused_whatever_is_named(spec: str | None) -> None:
    net = Net()
    net.step = lambda block, h, x: h + block(h + torch.tanh(net.mix(x)))
    refused(net, BYPASS, spec)


def test_weights_that_a_network_makes_from_the_samples_are_a_condition() -> None:
    class Hyper(Net):
        def forward(self, x: Tensor) -> Tensor:
            h, weights = self.embed(x), torch.einsum("bi,bj->bij", self.mix(x), self.mix(x))
            for _ in range(3):
                h = h + torch.tanh(torch.bmm(self.norm(h)[:, None], weights)[:, 0])
            return self.head(self.norm(h))

    refused(Hyper(), BYPASS)


def test_streams_that_are_mixed_between_the_blocks_are_not_one_block() -> None:
    class Mixed(Net):
        def forward(self, x: Tensor) -> Tensor:
            one = two = self.embed(x)
            for block in self.blocks:
                update = block(0.7 * one + 0.3 * two)
                one, two = (
                    0.9 * one + 0.2 * two + 0.5 * update,
                    0.1 * one + 0.8 * two + 0.4 * update,
                )
            return self.head(self.norm(one + two))

    refused(Mixed(), BYPASS)


@pytest.mark.parametrize(
    ("leave", "message"),
    [
        (Tensor.tolist, "no single stream"),
        (lambda h: [[float(value) for value in row] for row in h], "does not carry all"),
    ],
    ids=["seen by the tape", "seen by the cut test alone"],
)
def test_numbers_that_bypass_the_blocks_outside_torch_are_refused(
    leave: Callable[[Tensor], list[list[float]]], message: str
) -> None:
    class Detour(Net):
        def forward(self, x: Tensor) -> Tensor:
            h = self.embed(x)
            aside = leave(h)
            for block in self.blocks:
                h = h + block(h)
            return self.head(self.norm(h) + torch.tensor(aside, dtype=h.dtype))

    refused(Detour(), message)


def test_samples_and_tokens_folded_into_one_dimension_are_refused() -> None:
    class Flat(Net):
        def forward(self, x: Tensor) -> Tensor:
            h = self.embed(x).view(-1, D // 2, 2).flatten(0, 1)
            for block in self.blocks:
                h = h + block(h)
            return self.head(h.view(-1, D))

    folded = r"shape \(12, 2\) for 3 samples: samples and tokens are folded into one dimension"
    refused(Flat(block=lambda: Branch(2)), folded)


# --- the whole stream, or none ------------------------------------------------------------------


class Nested(nn.Module):
    """Two updates inside a third, and what is done to both."""

    def __init__(self, last: Callable[[Tensor], Tensor] = torch.relu) -> None:
        super().__init__()
        self.inner, self.out = nn.ModuleList(Whole() for _ in range(2)), nn.Linear(D, D)
        self.last = last

    def forward(self, h: Tensor) -> Tensor:
        return h + self.out(self.last(self.inner[1](self.inner[0](h))))


def stacked(*blocks: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(20, D), *blocks, nn.LayerNorm(D), nn.Linear(D, 5)).eval()


@pytest.mark.parametrize("spec", [None, "1, 2"])
def test_a_block_that_holds_others_must_repeat_along_the_stream(spec: str | None) -> None:
    assert find_stream(stacked(Nested(), Nested()), X).blocks == ("1", "2")
    message = "what '0' returns bypasses the sums in '1.inner.0', '1.inner.1' and '1' and feeds"
    refused(stacked(Nested(), Whole()), message, spec)


@pytest.mark.parametrize("last", [torch.tanh, lambda h: h / h.norm(dim=-1, keepdim=True)])
def test_a_block_that_hides_how_large_its_inner_updates_are_is_refused(
    last: Callable[[Tensor], Tensor],
) -> None:
    message = "'2' has updates of its own that no state shows: '2.inner.0' times 10000 is lost"
    for spec in (None, "1, 2"):
        refused(stacked(Nested(last), Nested(last)), message, spec)


class Beside(nn.Module):
    """Two paths side by side, each with a sum of its own where ``block`` has one."""

    def __init__(self, block: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.left, self.right, self.mix = block(), block(), nn.Linear(D, D)

    def forward(self, h: Tensor) -> Tensor:
        return h + self.left(h) * torch.sigmoid(self.right(self.mix(h)))


class Projected(nn.Module):
    """Two updates with projections for skips, and a long skip around both."""

    def __init__(self) -> None:
        super().__init__()
        self.skips = nn.ModuleList(nn.Linear(D, D) for _ in range(2))
        self.branches = nn.ModuleList(Branch() for _ in range(2))

    def forward(self, h: Tensor) -> Tensor:
        first = self.skips[0](h) + self.branches[0](h)
        return torch.tanh(self.skips[1](first) + self.branches[1](first)) * h


def test_sums_of_a_projection_are_residual_sums() -> None:
    message = "bypasses the sums in '1' and feeds"
    refused(stacked(Projected(), Whole(), Whole()), message)


class Joined(Net):
    """The head reads what each of a few layers leaves, side by side."""

    def __init__(self, layers: int) -> None:
        super().__init__(layers)
        self.join = nn.Linear(layers * D, D)

    def forward(self, x: Tensor) -> Tensor:
        states = [self.embed(x)]
        for block in self.blocks:
            states.append(block(states[-1]))
        return self.head(self.norm(self.join(torch.cat(states[1:], 1))))


def test_layers_that_the_head_reads_side_by_side_are_no_block() -> None:
    """Taken for one, a layer before it could explode unseen."""
    refused(Joined(3), BYPASS)


class Averaged(Net):
    """Every layer has a head."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(D, 5) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        logits, h = [], self.embed(x)
        for block, head in zip(self.blocks, self.heads, strict=True):
            h = block(h)
            logits.append(head(h))
        return torch.stack(logits).mean(0)


def test_heads_of_all_layers_are_no_head() -> None:
    """Two of three layers would lie in it, where they could explode unseen."""
    refused(Averaged(), "'?blocks.0'?, hold .* so they are not the whole stream")


class Shaped(Net):
    """The letter U: what a layer leaves is read beside what two more make of it."""

    def __init__(self) -> None:
        super().__init__(4, lambda: nn.Linear(D, D))
        self.join = nn.Linear(2 * D, D)

    def forward(self, x: Tensor) -> Tensor:
        first, second, third, last = self.blocks
        h = torch.relu(second(torch.relu(first(self.embed(x)))))
        inner = torch.relu(last(torch.relu(third(h))))
        return self.head(torch.relu(self.join(torch.cat([inner, h], 1))))


def test_layers_before_and_after_a_single_sum_are_blocks() -> None:
    """Taken for embedding and head, they could explode unseen."""
    stream = find_stream(Shaped().eval(), X)
    assert stream.info.blocks[:2] == ("blocks.0", "blocks.1")
    assert len(stream.info.blocks) == 4


def test_modules_of_one_class_with_a_sum_each_are_several_blocks_and_branches_are_not() -> None:
    refused(stacked(Beside(Whole), Whole()), "bypasses the sums in '1.left', '1.right' and '1'")
    assert find_stream(stacked(Beside(Branch), Whole()), X).blocks == ("1", "2")


def test_a_stream_with_few_of_the_weights_is_taken_only_if_it_is_named() -> None:
    wide = [nn.Linear(D, 90), nn.ReLU(), nn.Linear(90, D), nn.ReLU()]
    net = stacked(*wide, Whole(), Whole())
    # 2 · (64 + 8 + 16) weights in blocks, 720 + 90 + 720 + 8 in the layers before them
    refused(net, r"the blocks found, 5 and 6, hold 10 % of the weights .* not the whole stream;")
    stream = find_stream(net, X, "5, 6")
    assert stream.blocks == ("5", "6") and "outside the blocks, named by" in str(stream.info)
    assert stream.info.covered == pytest.approx(176 / 1714, abs=0.01)
    narrow = [nn.Linear(D, 20), nn.ReLU(), nn.Linear(20, D), nn.ReLU()]
    named = find_stream(stacked(*narrow, Whole(), Whole()), X, "5, 6")
    assert named.blocks == ("5", "6") and named.info.covered is None
    assert find_stream(stacked(*narrow, Whole(), Whole()), X).blocks == ("5", "6")
    net[0], net[-1] = nn.Linear(20, D), nn.Linear(D, 5000)  # the last layer is head, of any size
    assert find_stream(nn.Sequential(net[0], *net[5:]).eval(), X).blocks == ("1", "2")


class Stem(Nested):
    def __init__(self, inner: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.first, self.inner = nn.Linear(20, D), nn.ModuleList(inner() for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.first(x))


def test_what_begins_at_the_input_and_does_not_repeat_is_embedding_whatever_it_holds() -> None:
    class Other(Whole): ...

    net = stacked(Whole(), Whole())
    net[0] = Stem(Other)
    assert find_stream(net.eval(), X).blocks == ("1", "2")
    net[0] = Stem(Whole)
    refused(net, "bypasses the sums in '0.inner.0', '0.inner.1' and '0'")


def test_blocks_that_the_raw_input_passes_by_are_blocks() -> None:
    """Taken for the embedding of the others, they could explode unseen."""

    class Injected(Net):
        def step(self, block: nn.Module, h: Tensor, x: Tensor) -> Tensor:
            injects = block in list(self.blocks)[1:4]
            return super().step(block, h + self.mix(x) if injects else h, x)

    refused(Injected(6), "the input bypasses the sums in forward and feeds 'mix'")


def test_the_first_block_is_one_also_where_it_alone_has_no_norm_and_nothing_embeds() -> None:
    class First(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList(nn.LayerNorm(20) for _ in range(2))
            self.parts = nn.ModuleList(Branch(20) for _ in range(3))
            self.scale, self.head = nn.Parameter(torch.ones(20)), nn.Linear(20, 5)

        def forward(self, x: Tensor) -> Tensor:
            h = x * self.scale
            for at, part in enumerate(self.parts):
                h = h + part(h if at == 0 else self.norms[at - 1](h))
            return self.head(h)

    assert find_stream(First().eval(), X).blocks == ("parts.0", "parts.1", "parts.2")


class Steps(nn.Module):
    """One cell, many times; ``reads`` says whether every step reads the input again."""

    def __init__(self, reads: bool) -> None:
        super().__init__()
        self.first, self.cell, self.head = nn.Linear(20, D), Whole(), nn.Linear(D, 5)
        self.reads = reads

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        for _ in range(5):
            h = self.cell(h + torch.tanh(self.first(x)) if self.reads else h)
        return self.head(h)


@pytest.mark.parametrize("spec", [None, "cell"])
def test_steps_in_time_are_told_and_a_block_that_is_shared_in_depth_is_a_stream(
    spec: str | None,
) -> None:
    message = r"run many times in one pass \('first' 6 times and 'cell.fc' 5 times\): in time"
    refused(Steps(reads=True), message, spec)
    assert find_stream(Steps(reads=False).eval(), X, spec).blocks == ("cell",) * 5


def test_an_equilibrium_whose_embedding_is_larger_than_its_cell_is_told_as_steps_in_time() -> None:
    class Equilibrium(Steps):
        def forward(self, x: Tensor) -> Tensor:
            u = self.first(x)
            h = torch.zeros_like(u)
            for _ in range(9):
                h = torch.tanh(self.cell.fc(h) + u)
            return self.head(h)

    net = Equilibrium(reads=True)
    net.first = nn.Sequential(nn.Linear(20, 400), nn.Tanh(), nn.Linear(400, D))
    refused(net, r"run many times in one pass \('cell.fc' \d times\): in time")


def test_a_small_layer_that_runs_often_does_not_make_a_condition_a_recurrence() -> None:
    class Conditioned(Net):
        def step(self, block: nn.Module, h: Tensor, x: Tensor) -> Tensor:
            return h + block(h + torch.tanh(self.mix(x)))

    refused(Conditioned(), BYPASS)


@pytest.mark.parametrize("between", [nn.ReLU(), nn.Identity()], ids=["activation", "linear"])
def test_one_hidden_layer_is_one_block_from_the_input(between: nn.Module) -> None:
    net = nn.Sequential(nn.Linear(20, D), between, nn.Linear(D, 5)).eval()
    states: dict[int, Tensor] = {}
    find_stream(net, X).run(net, X, states.__setitem__)
    torch.testing.assert_close(states, {0: X, 1: net[:2](X)})


def test_a_network_without_blocks_is_an_error_that_says_what_ran() -> None:
    ran = r"no blocks: .* ran: embed \(Linear\), norm \(LayerNorm\) and head \(Linear\)"
    refused(Net(blocks=0), ran)


def test_logits_that_no_weights_make_differ_are_refused() -> None:
    class Constant(Net):
        def forward(self, x: Tensor) -> Tensor:
            return 0 * super().forward(x)

    refused(Constant(), "the logits are the same for all samples")


def test_logits_of_another_shape_are_refused() -> None:
    refused(nn.Sequential(Net(), nn.Flatten(0)), r"expected \[3, classes\]")


def test_a_network_that_fails_is_told_with_its_own_error() -> None:
    refused(Net(), r"failed on inputs of shape \(3, 4\)", x=torch.randn(6, 4))


def test_alike_token_ids_are_refused() -> None:
    net = Net()
    net.embed = nn.Embedding(4, D)
    refused(net, "too much alike", x=torch.ones(6, 1, dtype=torch.long))


# --- how a network is left, and how a stream is run ----------------------------------------------


def test_neither_data_nor_network_nor_random_state_are_touched() -> None:
    class Centred(Net):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.sub_(1))

    net, x = Centred().eval(), X.clone()
    weights, state = (
        {key: own.clone() for key, own in net.state_dict().items()},
        torch.get_rng_state(),
    )
    find_stream(net, x)
    assert torch.equal(x, X) and torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(own, weights[key]) for key, own in net.state_dict().items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())


def test_weights_decide_nothing_not_even_where_they_are_zero_or_not_finite() -> None:
    sound, dead, broken = Net().eval(), Net().eval(), Net().eval()
    for parameter in dead.blocks.parameters():
        nn.init.zeros_(parameter)
    nn.init.constant_(broken.blocks[1].fc.weight, float("nan"))
    assert find_stream(sound, X) == find_stream(dead, X) == find_stream(broken, X)


def test_a_network_that_runs_in_float32_alone_is_found_in_float32() -> None:
    class Narrow(Net):
        def forward(self, x: Tensor) -> Tensor:
            if self.embed.weight.data_ptr() and self.embed.weight.element_size() != 4:
                raise TypeError("float32 only")
            return super().forward(x)

    assert len(find_stream(Narrow().eval(), X).blocks) == 3


def test_a_state_dict_may_hold_more_than_tensors() -> None:
    class Noted(Net):
        def get_extra_state(self) -> Any:
            return {"epoch": 3, "note": "trained"}

        def set_extra_state(self, state: Any) -> None: ...

    assert len(find_stream(Noted().eval(), X).blocks) == 3


def test_memory_that_a_reversible_block_frees_is_not_read() -> None:
    class Reversible(Whole):
        def forward(self, h: Tensor) -> Tensor:
            out = super().forward(h)
            h.untyped_storage().resize_(0)
            return out

    net = Net(block=Reversible)
    net.step = lambda block, h, x: block(h)
    refused(net, "was freed in the forward pass, as reversible blocks do; let the blocks keep")


def test_an_error_of_the_caller_is_not_the_networks() -> None:
    net = Net().eval()
    stream = find_stream(net, X)

    def fails(layer: int, state: Tensor) -> None:
        raise ZeroDivisionError(f"at {layer}")

    with pytest.raises(ZeroDivisionError, match="at 0"):
        stream.run(net, X, fails)
    with pytest.raises(NetworkError, match="the network failed"):
        stream.run(net, X[:, :4], lambda *_: None)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())


def test_a_network_that_runs_otherwise_than_when_its_stream_was_found_is_refused() -> None:
    net = Net().eval()
    stream = find_stream(net, X)
    net.step = lambda block, h, x: h
    with pytest.raises(AuditError, match=r"does not run as it did .* after 1 others"):
        stream.run(net, X, lambda *_: None)


def test_states_come_in_their_order_and_stay_as_they_were_seen() -> None:
    """Also where the forward goes on to write to them in place."""
    net = nn.Sequential(
        nn.Linear(20, D),
        *(nn.Sequential(nn.ReLU(inplace=True), nn.Linear(D, D)) for _ in range(2)),
        nn.Linear(D, 5),
    ).eval()
    stream, kept, values = find_stream(net, X), list[Tensor](), list[Tensor]()

    def on_state(layer: int, state: Tensor) -> None:
        assert layer == len(kept)
        kept.append(state)
        values.append(state.clone())

    with torch.no_grad():
        logits = stream.run(net, X, on_state)
    assert torch.equal(logits, net(X))
    assert len(kept) == 3 and all(map(torch.equal, kept, values))


# --- the samples on which it is found ------------------------------------------------------------


def test_samples_differ_in_what_is_read_and_in_nothing_else() -> None:
    ids = torch.tensor([[1, 9, 8, 7, 6, 5, 4, 2, 0, 0], [1, 3, 2, 0, 0, 0, 0, 0, 0, 0]])
    x = {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": torch.tensor([1, 0])}
    made = draw_samples(x, 3, random_ids=False)
    assert isinstance(made, dict)
    assert all(sorted(row.tolist()) == sorted(ids[0].tolist()) for row in made["input_ids"])
    assert (made["input_ids"][:, [0, 7, 8, 9]] == ids[0, [0, 7, 8, 9]]).all()
    assert len(torch.unique(made["input_ids"], dim=0)) == 3
    assert (made["attention_mask"] == x["attention_mask"][0]).all()  # the widest
    assert made["labels"].tolist() == [1, 1, 1]
    drawn = draw_samples(x, 3, random_ids=True)
    assert isinstance(drawn, dict) and drawn["input_ids"].max() <= 9


@settings(max_examples=20, deadline=None)
@given(number=st.sampled_from([3, 5, 7]), scale=st.sampled_from([0.0, 1e-3, 1.0, 1e3, 1e9]))
def test_noise_is_as_wide_as_the_data(number: int, scale: float) -> None:
    x = {"image": scale * torch.randn(4, 50), "angle": torch.full((4, 2), 0.5)}
    made = draw_samples(x, number, random_ids=False)
    assert isinstance(made, dict)
    assert (made["angle"] == 0.5).all() or scale == 0
    spread = float((made["image"] - x["image"][torch.arange(number) % 4]).std())
    assert 0.6 < spread / (scale if 0 < scale < 1e6 else 1.0) < 1.6


class Aggregation(nn.Module):
    """A state and an update side by side, and a layer that reads both, as in VoVNet."""

    def __init__(self) -> None:
        super().__init__()
        self.mid, self.out = Appended(), nn.Linear(2 * D, D)

    def forward(self, h: Tensor) -> Tensor:
        return torch.relu(self.out(self.mid(h)))


class Appended(Branch):
    def forward(self, h: Tensor) -> Tensor:
        return torch.cat([h, super().forward(h)], -1)


def test_a_layer_after_the_sum_of_each_block_belongs_to_it_also_to_the_last() -> None:
    stream = find_stream(stacked(*(Aggregation() for _ in range(3))), X)
    assert stream.blocks == ("1", "2", "3")
    assert all(f"{name}.out.weight" in stream.parameters[int(name) - 1] for name in stream.blocks)


# --- reasons that are the true ones -------------------------------------------------------------


class Functional(nn.Module):
    """Two updates by matrices that are no parameters, between layers that are."""

    def __init__(self, ends: type[nn.Module] = nn.Linear) -> None:
        super().__init__()
        self.embed, self.head = ends(20, D), ends(D, 5)
        self.weights = [torch.randn(D, D) for _ in range(2)]

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        for weight in self.weights:
            h = h + torch.tanh(h @ weight.to(h))
        return self.head(h)


class Cut(nn.Module):
    """A layer without weights: the first numbers."""

    def __init__(self, _: int, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, x: Tensor) -> Tensor:
        return x[:, : self.width]


@pytest.mark.parametrize("spec", [None, "embed"])
def test_weights_that_are_no_parameters_are_named_as_the_reason(spec: str | None) -> None:
    refused(Functional(), "adds a product with a tensor outside the parameters", spec)
    refused(Functional(Cut), "the network has no parameters", spec)


class Observing(Net):
    """Divided by the largest number so far, as an observer of quantisation does."""

    def __init__(self) -> None:
        super().__init__(2)
        self.register_buffer("largest", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.largest += 1
        return super().forward(x) / self.largest


def test_buffers_that_every_pass_changes_are_named_instead_of_randomness() -> None:
    refused(Observing(), "every pass changes largest, and the logits with it, in eval mode too")


def test_a_wrong_name_gets_no_hint_where_the_blocks_found_are_not_the_whole_stream() -> None:
    wide = [nn.Linear(D, 90), nn.ReLU(), nn.Linear(90, D), nn.ReLU()]
    with pytest.raises(AuditError, match=r"no module matches 'blocks\.\*'") as caught:
        find_stream(stacked(*wide, Whole(), Whole()), X, "blocks.*")
    assert "--fa-stream" not in str(caught.value)


class Multiplied(Net):
    """The head reads the product of what a few layers leave."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        product = torch.ones(())
        for block in self.blocks:
            h = block(h)
            product = product * (1 + h)
        return self.head(product)


def test_a_wrong_name_gets_no_hint_that_names_other_blocks_than_those_found() -> None:
    """What holds two of the layers is no module: named, it would be left out."""
    net = Multiplied().eval()
    assert len(find_stream(net, X).info.blocks) == 2
    with pytest.raises(AuditError) as caught:
        find_stream(net, X, "layers.*")
    assert "--fa-stream=" not in str(caught.value)


class Gated(Net):
    """Its second block runs if a parameter is above 0."""

    def __init__(self, gate: float) -> None:
        super().__init__(3)
        self.gate = nn.Parameter(torch.tensor(gate))

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        for number, block in enumerate(self.blocks):
            if number != 1 or self.gate > 0:
                h = h + block(h)
        return self.head(self.norm(h))


def test_modules_that_run_with_other_weights_alone_are_refused_and_named() -> None:
    refused(
        Gated(-1.0), "which modules run depends on the weights.*: blocks.1 do not always run so"
    )
    assert find_stream(Gated(1.0).eval(), X).blocks == ("blocks.0", "blocks.1", "blocks.2")


class Experts(nn.Module):
    """A residual update by one of two layers, the second where a parameter is above 0."""

    def __init__(self, choice: float) -> None:
        super().__init__()
        self.experts = nn.ModuleList(Branch() for _ in range(2))
        self.choice = nn.Parameter(torch.tensor(choice))

    def forward(self, h: Tensor) -> Tensor:
        return h + self.experts[int(self.choice > 0)](h)


@pytest.mark.parametrize("choice", [-1.0, 1.0])
def test_which_expert_runs_within_a_block_may_depend_on_the_weights(choice: float) -> None:
    assert find_stream(stacked(Experts(choice), Whole()), X).blocks == ("1", "2")
