"""The slice of the zoo that needs torch alone: what is found of each network is its stream as it was written down, or a refusal
that gives the true reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.zoo.checking import Outcome, check
from benchmarks.zoo.handwritten import members
from benchmarks.zoo.member import Member, Refusal, Stream

MEMBERS = {member.name: member for member in members()}
WITH_HELP = ("a chain that leaves blocks out",)
"""Those that are refused as they are named, with a SPEC that is right."""


def expected(member: Member) -> Outcome:
    if isinstance(member.truth, Refusal):
        return Outcome.REFUSED
    return Outcome.NAMED if member.name in WITH_HELP else Outcome.RIGHT


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:FutureWarning")
@pytest.mark.parametrize("name", MEMBERS)
def test_what_is_found_is_what_was_written_down(name: str) -> None:
    result = check(MEMBERS[name])
    assert result.outcome is expected(MEMBERS[name]), result.said


@pytest.mark.parametrize(
    ("blocks", "last", "said"),
    [
        (("blocks.0", "blocks.1"), "", "3 blocks were found, and there are 2"),
        (("blocks.0", "blocks.1", "blocks.2"), "head", "h_3 is another"),
    ],
    ids=["a block is skipped", "the state behind the norm"],
)
def test_another_truth_is_not_taken_for_the_stream(blocks: tuple[str, ...], last: str, said: str) -> None:
    result = check(replace(MEMBERS["residual inside"], truth=Stream(blocks, last)))
    assert result.outcome is Outcome.WRONG and said in result.said


def test_a_gradient_that_an_own_backward_doubles_is_not_taken_for_the_derivative() -> None:
    """The truth without its plain copy is the network's own backward: the audit must differ from it, at h_0 first."""
    member = MEMBERS["feedback alignment"]
    assert isinstance(member.truth, Stream)
    result = check(replace(member, truth=Stream(member.truth.blocks)))
    assert result.outcome is Outcome.WRONG and result.said.startswith("g_0 is another")


def test_a_network_that_should_be_refused_and_is_not_is_wrong() -> None:
    result = check(replace(MEMBERS["residual inside"], truth=Refusal("nobody knows", "no stream")))
    assert result.outcome is Outcome.WRONG
