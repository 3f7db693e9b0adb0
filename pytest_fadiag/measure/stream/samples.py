"""Test samples: many enough, different enough, and like those that a user gives."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ...judge.errors import AuditError
from ..inputs import LABEL_NAMES
from ..types import ModelInput


def draw_samples(x: ModelInput, number: int, *, random_ids: bool) -> ModelInput:
    """So many samples like those given.

    Real numbers get noise; token ids are shuffled among the places of one sample, or drawn.
    Masks, token types, labels and what else does not tell samples apart is one sample's, repeated
    for all: that of the sample with the widest masks.
    """
    generator = torch.Generator().manual_seed(20261)
    tensors = x if isinstance(x, dict) else {"": x}
    differing = _telling_apart(tensors)
    widest = _widest(tensors)
    samples = {}
    for name, tensor in tensors.items():
        if name not in differing:
            samples[name] = tensor[[widest] * number]
        elif tensor.is_floating_point():
            samples[name] = _noisy(tensor, number, generator)
        else:
            samples[name] = _token_ids(tensor, number, generator, random_ids)
    if isinstance(x, dict):
        return samples
    return samples[""]


def _telling_apart(tensors: Mapping[str, Tensor]) -> list[str]:
    """The names of inputs that tell samples apart: real numbers, else the most varied ids."""
    names = [name for name in tensors if name not in LABEL_NAMES and "mask" not in name]
    real = [name for name in names if tensors[name].is_floating_point()]
    differing = []
    for name in real:
        tensor = tensors[name]
        if len(tensor) < 2 or (tensor != tensor[:1]).any():
            differing.append(name)
    if real:
        return differing or real[:1]
    return sorted(names, key=lambda name: -len(torch.unique(tensors[name])))[:1]


def _widest(tensors: Mapping[str, Tensor]) -> int:
    """The number of the sample whose masks leave out least."""
    masks = [
        tensor.flatten(1).count_nonzero(1) for name, tensor in tensors.items() if "mask" in name
    ]
    if not masks:
        return 0
    return int(torch.stack(masks).sum(0).argmax())


def _noisy(tensor: Tensor, number: int, generator: torch.Generator) -> Tensor:
    """So many samples of real numbers, with noise of the size of their spread."""
    values = tensor.double()
    spread = float(values.std(correction=0))
    if not 0 < spread < 1e6:
        spread = 1.0
    samples = values[torch.arange(number) % len(values)]
    noise = torch.randn(samples.shape, generator=generator, dtype=torch.float64)
    return samples + noise * spread


def _token_ids(tensor: Tensor, number: int, generator: torch.Generator, random: bool) -> Tensor:
    """Rows with one sample's numbers in other orders, or with numbers between the extremes.

    A number that comes twice stays where it is, as padding and separators do, and so do the first
    and the last.
    """
    flat = tensor.flatten(1)
    sample = max(flat, key=lambda row: len(torch.unique(row)))
    places = torch.nonzero((sample == sample[:, None]).sum(0) == 1).flatten()[1:-1]
    ids: Tensor = sample.repeat(number, 1)
    for row in ids[1:]:
        row[places] = sample[places[torch.randperm(len(places), generator=generator)]]
    if random or len(places) < 4 or len(torch.unique(ids, dim=0)) < number:
        low = int(flat.min())
        high = int(flat.max())
        ids = torch.randint(low, high + 1, ids.shape, generator=generator).to(tensor)
    if len(torch.unique(ids, dim=0)) < number:
        raise AuditError("the first samples are too much alike; shuffle the evaluation data")
    return ids.reshape(number, *tensor.shape[1:])
