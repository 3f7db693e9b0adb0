"""The zoo's networks by hand: each stream is the one written down, or refused for its reason."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from pytest_fadiag.measure.stream.find import find_stream
from validation.zoo.checking import Outcome, check
from validation.zoo.handwritten import members
from validation.zoo.member import Member, Refusal, Stream

MEMBERS = {member.name: member for member in members()}
NAMED = "a chain that leaves blocks out"
"""Refused as it is named, with a SPEC that is right."""
FOUND = MEMBERS["residual inside"]


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*")
@pytest.mark.parametrize("name", MEMBERS)
def test_what_is_found_is_what_was_written_down(name: str) -> None:
    result = check(MEMBERS[name])
    expected = Outcome.REFUSED if isinstance(MEMBERS[name].truth, Refusal) else Outcome.RIGHT
    assert result.outcome is (Outcome.NAMED if name == NAMED else expected), result.said


LOUD = [
    own
    for own in MEMBERS.values()
    if own.name.endswith(", loud") and not isinstance(own.truth, Refusal)
]


@pytest.mark.parametrize("member", LOUD, ids=[own.name for own in LOUD])
def test_a_loud_part_fires_and_a_loud_embedding_does_not(member: Member) -> None:
    torch.manual_seed(0)
    network, x, norms = member.make().eval(), member.inputs(), list[float]()
    stream = find_stream(network, x)
    with torch.no_grad():
        stream.run(network, x, lambda _, h: norms.append(float(h.flatten(1).norm(dim=1).median())))
    growth = max(after / before for before, after in pairwise(norms))
    assert (growth > 50) is (member.name != "an embedding with a sum, loud")
    assert stream.info.residual is (member.name != "one hidden layer, loud")


@pytest.mark.parametrize(
    ("truth", "said"),
    [
        (Stream(("blocks.0", "blocks.1")), "3 blocks were found, and there are 2"),
        (Stream(("blocks.0", "blocks.1", "blocks.2"), "head"), "h_3 is another"),
        (Refusal("there is none", "no stream"), "accepted, but there is none"),
    ],
    ids=["a block is skipped", "the state after the norm", "a refusal"],
)
def test_another_truth_is_not_taken_for_the_stream(truth: Stream | Refusal, said: str) -> None:
    result = check(replace(FOUND, truth=truth))
    assert result.outcome is Outcome.WRONG and said in result.said


def test_a_gradient_that_an_own_backward_makes_is_not_taken_for_the_derivative() -> None:
    """The truth without its plain copy is the network's own backward: the audit must differ."""
    member = MEMBERS["feedback alignment"]
    result = check(replace(member, truth=replace(member.truth, within=lambda model: model)))
    assert result.outcome is Outcome.WRONG and result.said.startswith("g_0 is another")
