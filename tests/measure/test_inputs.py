"""Batches in, outputs out: what is taken, and what is refused in which words."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from pytest_fadiag.judge.errors import AuditError
from pytest_fadiag.measure.copies import copy_of
from pytest_fadiag.measure.inputs import (
    NetworkError,
    Outputs,
    call_network,
    checked,
    joined,
    largest_difference,
    like,
    read_once,
    regrouped,
)

X, Y = torch.arange(600.0).view(300, 2), torch.arange(300) % 5


@given(st.lists(st.integers(0, 300), max_size=12), st.integers(0, 4), st.booleans())
def test_any_batches_become_groups_of_exactly_128_and_the_rest_in_their_order(
    sizes: list[int], groups: int, named: bool
) -> None:
    total = sum(sizes)
    x, y = torch.arange(total), torch.arange(total)
    parts = zip(x.split(sizes), y.split(sizes), strict=True) if sizes else []
    batches = [{"x": a, "labels": b} if named else (a, b) for a, b in parts]
    found = list(regrouped(batches, groups))
    whole = [len(y) for _, y, group in found if group]
    assert whole == [128] * min(groups, total // 128)
    assert [group for *_, group in found] == sorted((group for *_, group in found), reverse=True)
    assert torch.cat([torch.zeros(0), *(y for _, y, _ in found)]).tolist() == y.tolist()
    for inputs, labels, _ in found:
        assert torch.equal(inputs["x"] if isinstance(inputs, dict) else inputs, labels)


@pytest.mark.parametrize(
    "batch",
    [(X, Y), [X.numpy(), Y.tolist()], ({"x": X}, Y), {"x": X, "labels": Y}, UserDict(x=X, y=Y)],
    ids=["pair", "arrays", "named pair", "dictionary", "as BatchEncoding is"],
)
def test_a_batch_is_a_pair_or_a_dictionary_with_the_labels_in_it(batch: Any) -> None:
    ((x, y),) = checked([batch])
    assert torch.equal(x["x"] if isinstance(x, dict) else x, X)
    assert torch.equal(y, Y)


BROKEN: dict[str, tuple[Any, str]] = {
    "a tensor": (X, "evaluation batch 0 is a Tensor; expected a pair"),
    "no pair": ([X], r"evaluation batch 0 is a Tensor; expected a pair \(inputs, labels\), or"),
    "three": ([(X, Y), (X, Y, Y)], "evaluation batch 1 is a tuple; expected a pair"),
    "no labels": ([{"x": X}], "evaluation batch 0 is a dict; .* one of labels, label, "),
    "text": ([("x", Y)], "evaluation batch 0: expected tensors"),
    "images": (
        [(X, torch.ones(300, 2, 2))],
        r"targets of shape \(300, 2, 2\)",
    ),
    "infinite": ([(X, Y / 0)], "inputs or targets hold NaN or inf; mend them"),
    "lengths": ([(X, Y[:-1])], r"inputs of shape \(300, 2\) \(torch.float32\) for 299 labels"),
    "mask": (
        [{"x": X, "mask": X[:1], "y": Y}],
        r"inputs x \(300, 2\) .*, mask \(1, 2\) .* for 300",
    ),
    "complex": ([(X * 1j, Y)], "evaluation batch 0: complex numbers; give real and imaginary"),
    "NaN": ([(X / 0, Y)], "evaluation batch 0: inputs or targets hold NaN or inf"),
    "shapes": ([(X[:99], Y[:99]), (X[:, :1], Y)], r"batches differ, .*\(0, 2\).* and .*\(0, 1\)"),
    "names": ([(X[:99], Y[:99]), {"x": X, "y": Y}], "evaluation batches differ, inputs of shape"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_batch_is_refused(name: str) -> None:
    batches, message = BROKEN[name]
    with pytest.raises(AuditError, match=message):
        list(regrouped(batches, 10))


def test_a_generator_is_copied_up_to_the_memory_that_is_given() -> None:
    """Eight batches of 1 MB, the labels aside: 9 MB hold them, and 7 MB do not."""
    buffer = torch.zeros(250, 1000)

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        for number in range(8):
            yield buffer.fill_(number), torch.zeros(250, dtype=torch.long)

    copies = list(read_once(batches(), 0.009))
    assert [float(x[0, 0]) for x, _ in copies] == [*range(8)]
    with pytest.raises(AuditError, match=r"takes more than 0.007 GB, .* --fa-memory=GB"):
        read_once(batches(), 0.007)
    assert read_once(copies, 0.001) is copies


def test_a_large_batch_comes_in_pieces() -> None:
    x, y = torch.randn(10_000, 3), torch.arange(10_000)
    pieces = list(checked([(x, y)]))
    assert [len(labels) for _, labels in pieces] == [4096, 4096, 1808]
    assert torch.equal(torch.cat([inputs for inputs, _ in pieces]), x)
    assert torch.equal(torch.cat([labels for _, labels in pieces]), y)


def test_infinities_of_an_additive_mask_are_no_fault_of_the_data() -> None:
    assert list(checked([{"x": X, "score_mask": (Y == 0).float().log(), "y": Y}]))


def test_samples_of_several_batches_are_joined_mask_and_all() -> None:
    whole = joined([{"x": X[:3], "mask": Y[:3]}, {"x": X[3:], "mask": Y[3:]}])
    assert isinstance(whole, dict)
    assert torch.equal(whole["x"], X)
    assert torch.equal(whole["mask"], Y)


def test_inputs_come_in_the_precision_of_a_network_and_whole_numbers_stay() -> None:
    given = {"x": X, "ids": Y}
    moved = like(given, nn.Linear(2, 2).double())
    assert isinstance(moved, dict)
    assert (moved["x"].dtype, moved["ids"].dtype) == (torch.float64, torch.int64)


# --- what a network returns ----------------------------------------------------------------------


@dataclass
class Answer:
    features: Tensor
    scores: Tensor


LOGITS, WIDE = torch.randn(4, 5), torch.randn(4, 9)


@pytest.mark.parametrize(
    "returned",
    [
        LOGITS,
        {"loss": WIDE.mean(), "logits": LOGITS, "hidden": WIDE},
        SimpleNamespace(logits=LOGITS, hidden=LOGITS),
        (LOGITS, None),
        [{"states": (WIDE, torch.randn(4, 5, 5))}, LOGITS],
        Answer(WIDE, LOGITS),
    ],
    ids=["tensor", "by name", "attribute", "tuple", "nested", "dataclass"],
)
def test_the_outputs_are_a_tensor_the_logits_or_the_only_one_that_fits(returned: Any) -> None:
    assert Outputs(5)(returned) is LOGITS


@pytest.mark.parametrize(
    "returned", [None, {"loss": WIDE.mean()}, (LOGITS, LOGITS + 1), (WIDE, WIDE)]
)
def test_outputs_that_cannot_be_told_are_refused(returned: Any) -> None:
    with pytest.raises(
        AuditError, match=r"the network returned \w+ with tensors .* expected one, or"
    ):
        Outputs(5)(returned)


def test_the_largest_difference_of_two_samples() -> None:
    assert largest_difference(torch.tensor([[1.0, 5.0], [2.0, 3.0]])) == 2
    assert not largest_difference(torch.tensor([[1.0], [torch.inf]])) < torch.inf


# --- the one place that calls a network ----------------------------------------------------------


class Fails(nn.Module):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error, self.fc = error, nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        raise self.error


def test_a_failure_of_the_network_names_the_inputs_and_an_audit_error_is_left_alone() -> None:
    with pytest.raises(
        NetworkError, match=r"failed on inputs of shape \(300, 2\).*KeyError: 'mask'"
    ):
        call_network(Fails(KeyError("mask")), X)
    with pytest.raises(AuditError, match=r"^of ours$"):
        call_network(Fails(AuditError("of ours")), X)


class Casts(nn.Module):
    """Asks for float32 in every way that forwards do."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(2, 2)
        self.seen: list[torch.dtype] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen = [x.dtype]
        made = [torch.zeros(2), torch.arange(2) / 3, torch.ones(2, dtype=torch.bfloat16)]
        h = self.fc(x.float().to(torch.float32)) + sum(made) + torch.tensor(0.5)
        return nn.functional.softmax(h.half(), -1, dtype=torch.float32)


def test_a_float64_copy_computes_in_float64_whatever_its_forward_asks_for() -> None:
    own = Casts()
    wide = copy_of(own, torch.float64)
    outputs = call_network(wide, X.double())
    assert outputs.dtype == torch.float64
    plain = copy_of(own.fc, torch.float64)
    added = torch.tensor([1.5, 1.5 + 1 / 3], dtype=torch.float64)
    exact = torch.softmax(plain(X.double()) + added, -1)
    torch.testing.assert_close(outputs, exact, rtol=1e-7, atol=0)
    assert wide.seen == [torch.float32]  # it goes the way that it goes in the measurement
    assert torch.zeros(1).dtype == torch.float32
