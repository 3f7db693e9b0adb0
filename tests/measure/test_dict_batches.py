"""Batches as dictionaries of tensors, and forward passes that insist on labels: the network is called as by hand."""

from __future__ import annotations

from collections import UserDict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from support import clustered, in_batches, network
from torch import Tensor, nn

from pytest_fadiag import ResidualMLP, measure
from pytest_fadiag.judge.errors import AuditError
from pytest_fadiag.recorder import Recorder

CLASSES, WIDTH, TOKENS = 5, 16, 7


class Reader(nn.Module):
    """Tokens with a mask: each block adds the mean of the tokens that the mask lets through."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, WIDTH)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(3))
        self.ln = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def states(self, input_ids: Tensor, attention_mask: Tensor) -> list[Tensor]:
        mask = attention_mask.unsqueeze(-1).to(self.head.weight.dtype)
        h = [(self.embed(input_ids) * mask).sum(1) / mask.sum(1)]
        for block in self.blocks:
            h.append(h[-1] + block(h[-1]))
        return h

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        assert labels is None  # a loss is nobody's business here
        return {"logits": self.head(self.ln(self.states(input_ids, attention_mask)[-1]))}


@pytest.fixture(scope="module")
def reader() -> Reader:
    torch.manual_seed(0)
    return Reader()


@pytest.fixture(scope="module")
def text() -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(1)
    lengths = torch.randint(1, TOKENS + 1, (300,), generator=draw)
    return {
        "input_ids": torch.randint(0, 50, (300, TOKENS), generator=draw),
        "attention_mask": (torch.arange(TOKENS) < lengths[:, None]).long(),
        "labels": torch.randint(0, CLASSES, (300,), generator=draw),
    }


def split(batch: dict[str, Tensor], size: int) -> list[dict[str, Tensor]]:
    return [{name: value[at : at + size] for name, value in batch.items()} for at in range(0, 300, size)]


@pytest.mark.parametrize("size", [300, 128, 37])
@pytest.mark.parametrize("made", [dict, UserDict], ids=["dict", "UserDict, as BatchEncoding is"])
def test_dict_batches_give_what_the_network_gives_by_hand(
    reader: Reader, text: dict[str, Tensor], size: int, made: Any
) -> None:
    measured = measure(reader, [made(batch) for batch in split(text, size)], batches=2)

    wide = Reader().double()
    wide.load_state_dict({name: value.double() for name, value in reader.state_dict().items()})
    probe = {name: value[:256] for name, value in text.items()}
    states = wide.states(probe["input_ids"], probe["attention_mask"])
    for state in states:
        state.retain_grad()
    logits = wide.head(wide.ln(states[-1]))
    nn.functional.cross_entropy(logits, probe["labels"], reduction="sum").backward()
    norms = [float(np.median(state.detach().norm(dim=1).numpy())) for state in states]
    gradients = [float(np.median(state.grad.norm(dim=1).numpy() / 128)) for state in states if state.grad is not None]
    predicted = wide(text["input_ids"], text["attention_mask"])["logits"].argmax(1)
    assert measured.residual_norms == pytest.approx(norms, rel=1e-5)
    assert measured.bp_grad_norms == pytest.approx(gradients, rel=1e-5)
    assert measured.accuracy is not None
    assert measured.accuracy.value == pytest.approx(float((predicted == text["labels"]).double().mean()))


@pytest.mark.parametrize("most", [12, 4])
def test_padding_has_no_gradient_and_counts_for_none(most: int) -> None:
    class Tokens(nn.Module):
        """Each token by itself; the head reads the mean of those that are no padding."""

        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(30, 8), nn.Linear(8, CLASSES)
            self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

        def states(self, ids: Tensor) -> list[Tensor]:
            states = [self.embed(ids)]
            for block in self.blocks:
                states.append(states[-1] + torch.tanh(block(states[-1])))
            return states

        def read(self, h: Tensor, mask: Tensor) -> Tensor:
            logits: Tensor = self.head((h * mask[..., None]).sum(1) / mask.sum(1, keepdim=True))
            return logits

        def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
            return self.read(self.states(ids)[-1], mask)

    torch.manual_seed(0)
    net, ids, labels = Tokens(), torch.randint(30, (256, 12)), torch.randint(CLASSES, (256,))
    mask = (torch.arange(12) < torch.randint(1, most + 1, (256, 1))).long()
    measured = measure(net, [{"ids": ids, "mask": mask, "labels": labels}], batches=2)
    states = net.double().states(ids)
    for state in states:
        state.retain_grad()
    nn.functional.cross_entropy(net.read(states[-1], mask), labels, reduction="sum").backward()
    read = [state.grad.norm(dim=2)[mask.bool()].numpy() / 128 for state in states if state.grad is not None]
    assert measured.bp_grad_norms == pytest.approx([float(np.median(norms)) for norms in read], rel=1e-5)
    left_out = float(np.median((1 - mask).sum(1).numpy()))
    assert measured.companions.tokens_without_gradient == tuple([int(left_out)] * 4)


def test_the_mask_goes_with_its_samples(reader: Reader, text: dict[str, Tensor]) -> None:
    unmasked = {**text, "attention_mask": torch.ones_like(text["attention_mask"])}
    with_mask, without = (measure(reader, split(batch, 100), batches=2) for batch in (text, unmasked))
    assert with_mask.residual_norms[0] != pytest.approx(without.residual_norms[0], rel=1e-3)


def test_a_pair_of_named_inputs_and_labels_is_a_batch_too(reader: Reader, text: dict[str, Tensor]) -> None:
    pairs = [({name: batch[name] for name in ("input_ids", "attention_mask")}, batch["labels"]) for batch in split(text, 50)]
    assert measure(reader, pairs, batches=2) == measure(reader, split(text, 50), batches=2)


def test_a_plain_network_takes_its_input_by_name_as_well_as_by_place() -> None:
    x, y = clustered(300)
    named = [{"x": part, "y": labels} for part, labels in in_batches(x, y)]
    assert measure(network(), named, batches=2) == measure(network(), in_batches(x, y), batches=2)


def test_a_recorder_takes_dict_batches(reader: Reader, text: dict[str, Tensor], tmp_path: Any) -> None:
    recorded = Recorder(tmp_path / "log.jsonl", split(text, 60)).record(1, reader)
    assert recorded is not None
    assert recorded == replace(measure(reader, split(text, 60)), extra=recorded.extra)


def test_infinities_of_an_additive_mask_are_no_fault_of_the_data(text: dict[str, Tensor]) -> None:
    class Additive(Reader):
        def forward(self, input_ids: Tensor, score_mask: Tensor) -> dict[str, Tensor]:  # type: ignore[override]
            return super().forward(input_ids, score_mask.exp())

    additive = {"input_ids": text["input_ids"], "score_mask": text["attention_mask"].float().log(), "labels": text["labels"]}
    assert torch.isinf(additive["score_mask"]).any()
    assert measure(Additive(), [additive], batches=2).accuracy is not None


class Insistent(ResidualMLP):
    """Takes labels as rules do that use them on the way back."""

    leak = 0.0

    def forward(self, x: Tensor, targets: Tensor) -> Tensor:  # type: ignore[override]
        logits = super().forward(x)
        assert isinstance(logits, Tensor)
        return logits + self.leak * nn.functional.one_hot(targets, CLASSES)


@pytest.mark.parametrize("named", [False, True])
def test_a_forward_pass_that_insists_on_labels_gets_them(named: bool) -> None:
    x, y = clustered(300)
    plain = network(20, 16, 4, CLASSES)
    insistent = Insistent(20, 16, 4, CLASSES)
    insistent.load_state_dict(plain.state_dict())
    batches: Any = [{"x": part, "labels": labels} for part, labels in in_batches(x, y)] if named else in_batches(x, y)
    measured, expected = measure(insistent, batches, batches=2), measure(plain, in_batches(x, y), batches=2)
    assert measured.accuracy == expected.accuracy
    assert measured.bp_grad_norms == pytest.approx(expected.bp_grad_norms, rel=1e-6)


def test_logits_that_depend_on_the_labels_are_no_prediction() -> None:
    insistent = Insistent(20, 16, 4, CLASSES)
    insistent.leak = 0.1
    with pytest.raises(AuditError, match=r"forward takes 'targets' and its logits depend on them, so they are no prediction"):
        measure(insistent, in_batches(*clustered(300)), batches=2)
