"""Files that only this lab has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from pytest_fadiag import AuditError, DataSet


def read_weights(path: Path) -> dict[str, Any]:
    """Tensors by name; method and seed come from the name of the file."""
    with np.load(path, allow_pickle=False) as archive:
        return {name: torch.from_numpy(archive[name]) for name in archive.files}


def read_samples(path: Path) -> DataSet:
    try:
        table = np.loadtxt(path, delimiter=",", ndmin=2)
    except (OSError, ValueError) as error:
        raise AuditError(f"{path}: no table of numbers: {error}") from error
    return DataSet(
        torch.from_numpy(table[:, :-1]).float(), torch.from_numpy(table[:, -1]).long(), path.name
    )
