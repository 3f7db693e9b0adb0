"""Traces: what a network that ran elsewhere leaves as arrays; free of torch until one is read."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..files import write_atomically
from ..judge.errors import AuditError
from ..judge.words import and_more, one_line

LEAST = 256
"""Rows that states must have: two batches."""
NEEDED = ("outputs", "y", "e", "h_0", "g_0")
TEXTS = ("method", "seed", "loss")
OTHERS = ("a_0", "x", "control_outputs", "groups")


def fields_of(path: Path) -> dict[str, str]:
    """The names of the arrays in a file, and the texts of a .safetensors file; none if unreadable.

    Only the header is read: a plan asks for it.
    """
    from safetensors import SafetensorError, safe_open

    try:
        if path.suffix == ".npz":
            with zipfile.ZipFile(path) as archive:
                return {name.removesuffix(".npy"): "" for name in archive.namelist()}
        with safe_open(path, "np") as file:
            return {**dict.fromkeys(file.keys(), ""), **(file.metadata() or {})}
    except (OSError, zipfile.BadZipFile, SafetensorError):
        return {}


def is_trace(path: Path) -> bool:
    """Whether a file is a trace: a .npz file, or a .safetensors file that holds one."""
    if path.suffix != ".safetensors":
        return path.suffix == ".npz"
    return set(NEEDED) <= fields_of(path).keys()


def read_trace(path: Path) -> dict[str, Any]:
    """The arrays of a trace by name, their shapes checked; ``method``, ``seed``, ``loss`` as texts.

    >>> read_trace(Path("traces/dfa_s1.npz"))["h_0"].shape
    (10000, 256)
    """
    from .readers import read_arrays

    texts = {name: text for name, text in fields_of(path).items() if text and name in TEXTS}
    return checked({**read_arrays(path), **texts})


def checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays as a trace, or an error that says what is missing or has another shape or dtype."""
    import numpy as np

    texts = {name: one_line(str(np.asarray(given[name]))[:80]) for name in TEXTS if name in given}
    arrays = {n: np.require(own, None, "W") for n, own in given.items() if n not in TEXTS}
    depth = max(sum(name.startswith(kind) for name in arrays) for kind in ("h_", "g_")) - 1
    kinds = "hga" if any(name.startswith("a_") for name in arrays) else "hg"
    states = [f"{kind}_{n}" for kind in kinds for n in range(depth + 1) if n or kind != "a"]
    due = dict.fromkeys([*NEEDED, "h_1", *states])
    if missing := [name for name in due if name not in arrays]:
        raise AuditError(
            f"{and_more(missing)} missing: a trace holds every state h_0 … h_L with its gradient, "
            f"credit at all of h_1 … h_L or none; this one has {', '.join(arrays)}"
        )
    if strange := [name for name in arrays if name not in (*due, *OTHERS)]:
        known = ", ".join((*due, *OTHERS, *TEXTS))
        raise AuditError(f"a trace has no array {and_more(strange)}; expected {known}")
    samples, rows = len(arrays["outputs"]), len(arrays["h_0"])
    for name, array in arrays.items():
        layer, wide = name[1:2] == "_", name in (*states, "a_0", "outputs", "e", "control_outputs")
        if array.dtype not in (np.float32, np.float64) if wide else array.dtype.kind not in "fiub":
            raise AuditError(
                f"{name} is {array.dtype}; dump float32 or float64: in less, states overflow and "
                "gradients vanish"
            )
        shape = arrays[f"h_{name[2:]}" if layer else "outputs"].shape if wide else array.shape
        counts = sorted({samples, rows}) if name == "e" else [rows if layer else samples]
        if not array.ndim or len(array) not in counts or array.shape[1:] != shape[1:]:
            fitting = " or ".join(str((count, *shape[1:])) for count in counts)
            raise AuditError(
                f"{name} has shape {array.shape}, expected {fitting}: one row per sample, and each "
                "gradient and credit as its state"
            )
        if broken := int((~np.isfinite(array)).reshape(len(array), -1).any(1).sum()):
            raise AuditError(
                f"{name} is NaN or inf for {broken:,} of {len(array):,} samples: training diverged "
                "or the dump overflowed; a trace needs finite numbers"
            )
    if not LEAST <= rows <= samples:
        raise AuditError(
            f"states have {rows:,} rows and outputs {samples:,}; expected states of at least the "
            f"first {LEAST} samples"
        )
    return {**arrays, **texts}


def write_trace(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write a trace, whole or not at all."""
    import numpy as np

    if path.suffix != ".npz":
        raise AuditError(f"{path}: expected a name that ends with .npz")
    file = io.BytesIO()
    np.savez(file, **arrays)
    write_atomically(path, file.getvalue())
