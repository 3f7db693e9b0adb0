"""How inputs are normalised: as the user says, else as the checkpoint does, else as is usual; free of torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..judge.errors import AuditError
from ..judge.inputs import Normalisation, NormalisedBy, StatedInputs, check_constants

Statistics = tuple[float, ...]


def state_inputs(data: StatedInputs, config: Mapping[str, Any], option: Normalisation | None) -> StatedInputs:
    """What is done to data for a network of this ``config``; ``data`` says what its own constants are."""
    own = _of_config(config)
    means, stds = own or (None, None)
    stated = replace(data, option=None if option is None else option.text, checkpoint_mean=means, checkpoint_std=stds)
    plain = replace(stated, by=NormalisedBy.NOTHING, mean=None, std=None)
    if option is not None and option.mean is not None:
        return replace(stated, by=NormalisedBy.OPTION, mean=option.mean, std=option.std)
    if option is not None and option.text == "none":
        return plain
    if option is None and data.pixels and own is not None:
        return replace(stated, by=NormalisedBy.CHECKPOINT, mean=means, std=stds)
    if option is None and data.pixels and _says_raw(config):
        return replace(plain, by=NormalisedBy.CHECKPOINT)
    if option is not None and data.mean is None:
        raise AuditError(f"--fa-normalize=data: {data.data} has no usual constants; give the numbers: --fa-normalize=MEAN/STD")
    return stated


def _says_raw(config: Mapping[str, Any]) -> bool:
    """Whether a config says that its network was trained on pixels as they are."""
    said = config.get("normalize", config.get("normalise"))
    return said is False or (isinstance(said, str) and said.lower() == "none")


def _of_config(config: Mapping[str, Any]) -> tuple[Statistics, Statistics] | None:
    """The ``mean`` and ``std`` of a config, or those under its ``normalize``."""
    nested = config.get("normalize")
    given = nested if isinstance(nested, Mapping) else config
    mean, std = given.get("mean"), given.get("std")
    if mean is None and std is None:
        return None
    means, stds = _numbers(mean, 0.0, "mean"), _numbers(std, 1.0, "std")
    check_constants(means, stds, "the checkpoint's config has")
    return means, stds


def _numbers(value: Any, default: float, what: str) -> Statistics:
    value = value.tolist() if hasattr(value, "tolist") else value
    values = [default] if value is None else value if isinstance(value, (list, tuple)) else [value]
    try:
        return tuple(float(number) for number in values)
    except (TypeError, ValueError, OverflowError):
        raise AuditError(f"the checkpoint's config has {what} {value!r:.80}; expected one number per channel") from None
