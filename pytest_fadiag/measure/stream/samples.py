"""The samples on which a stream is found: different from each other in what a network reads, alike in everything beside it."""

from __future__ import annotations

import torch
from torch import Tensor

from ...judge.errors import AuditError
from ...judge.records import LABEL_NAMES
from ..inputs import ModelInput

SEED = 20261


def test_samples(x: ModelInput, number: int, *, drawn: bool = False) -> ModelInput:
    """So many samples like those given.

    Fractions get noise, whole numbers are dealt anew among the places of one sample, or are all drawn; masks, token types,
    labels and what else does not tell samples apart is one sample's, for all: that of the sample with the widest masks.
    """
    generator = torch.Generator().manual_seed(SEED)
    if not isinstance(x, dict):
        return _varied(x, number, generator, drawn=drawn)
    read = _read(x)
    masks = [tensor.flatten(1).count_nonzero(1) for name, tensor in x.items() if "mask" in name]
    widest = int(torch.stack(masks).sum(0).argmax()) if masks else 0
    return {
        name: _varied(tensor, number, generator, drawn=drawn)
        if name in read
        else tensor[widest : widest + 1].expand(number, *tensor.shape[1:]).clone()
        for name, tensor in x.items()
    }


def _read(x: dict[str, Tensor]) -> list[str]:
    """The inputs that tell samples apart: all fractions that do, or the whole numbers with most values."""
    others = {name: tensor for name, tensor in x.items() if name not in LABEL_NAMES and "mask" not in name}
    fractions = [name for name, tensor in others.items() if tensor.is_floating_point()]
    varying = [name for name in fractions if len(x[name]) < 2 or bool((x[name] != x[name][:1]).any())]
    if fractions:
        return varying or fractions[:1]
    return [max(others, key=lambda name: int(torch.unique(others[name]).numel()))] if others else []


def _varied(tensor: Tensor, number: int, generator: torch.Generator, *, drawn: bool) -> Tensor:
    if tensor.is_floating_point():
        values = torch.nan_to_num(tensor.double())
        spread = float(values.std()) if values.numel() > 1 else 0.0
        noise = torch.randn((number, *tensor.shape[1:]), generator=generator, dtype=torch.float64).to(tensor.device)
        varied: Tensor = values[torch.arange(number) % len(values)] + noise * (spread if 0 < spread < 1e6 else 1.0)
        return varied
    if tensor.dtype == torch.bool:
        taken: Tensor = tensor[torch.arange(number) % len(tensor)]
        return taken
    rows = _drawn(tensor, number, generator) if drawn else _dealt(tensor, number, generator)
    if len(torch.unique(rows.flatten(1), dim=0)) < number:
        raise AuditError("the first samples are too much alike to find the stream by; shuffle the evaluation data")
    return rows


def _dealt(tensor: Tensor, number: int, generator: torch.Generator) -> Tensor:
    """Rows that hold one sample's numbers in other orders.

    A number that comes twice stays where it is, as padding and separators do, and so do the first and the last.
    """
    flat = tensor.flatten(1)
    sample = max(flat, key=lambda row: int(torch.unique(row).numel()))
    counts = torch.tensor([int((sample == value).sum()) for value in sample])
    places = torch.nonzero(counts == 1).flatten()[1:-1]
    rows = sample.repeat(number, 1)
    for row in rows[1:] if len(places) > 3 else ():
        row[places] = sample[places[torch.randperm(len(places), generator=generator)]]
    if len(torch.unique(rows, dim=0)) < number:
        return _drawn(tensor, number, generator)
    dealt: Tensor = rows.reshape(number, *tensor.shape[1:])
    return dealt


def _drawn(tensor: Tensor, number: int, generator: torch.Generator) -> Tensor:
    """Numbers between the smallest and the largest there is."""
    low, high = int(tensor.min()), int(tensor.max())
    return torch.randint(low, high + 1, (number, *tensor.shape[1:]), generator=generator).to(tensor)
