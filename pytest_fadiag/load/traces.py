"""Traces: what a network that ran elsewhere leaves as arrays; free of torch until one is read."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..files import check_file, write_atomically
from ..judge.errors import AuditError
from ..judge.words import and_more, one_line
from .names import read_files

LEAST = 256
"""Rows that states must have: two batches."""
NEEDED = ("outputs", "y", "e", "h_0", "g_0")
TEXTS = ("method", "seed", "loss")
OPTIONAL = ("a_0", "x", "control_outputs", "groups")


def fields_of(path: Path) -> dict[str, str]:
    """The names of the arrays in a file, and the texts of a .safetensors file; none if unreadable.

    Only the header is read: a plan asks for it.
    """
    from safetensors import safe_open

    try:
        check_file(path)
        if path.suffix == ".npz":
            with zipfile.ZipFile(path) as archive:
                return {name.removesuffix(".npy"): "" for name in archive.namelist()}
        with safe_open(path, "np") as file:
            return {**dict.fromkeys(file.keys(), ""), **(file.metadata() or {})}
    except Exception:  # reading the arrays says it
        return {}


def is_trace(path: Path) -> bool:
    """Whether a file is a trace: a .npz file, or a .safetensors file that holds one."""
    if path.suffix != ".safetensors":
        return path.suffix == ".npz"
    return set(NEEDED) <= fields_of(path).keys()


def read_trace(path: Path, digest: str | None = None) -> dict[str, Any]:
    """The arrays of a trace by name, their shapes checked; ``method``, ``seed``, ``loss`` as texts.

    A file whose bytes have another ``digest`` is refused.

    >>> read_trace(Path("traces/dfa_s1.npz"))["h_0"].shape
    (10000, 256)
    """
    from .readers import read_arrays

    values = dict(read_arrays(read_files([path], digest)[path], path))
    for name, text in fields_of(path).items():
        if text and name in TEXTS:
            values[name] = text
    return checked(values)


def checked(values: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays as a trace, or an error that says what is missing or has another shape or dtype."""
    import numpy as np

    arrays = {}
    texts = {}
    for name, value in values.items():
        if name in TEXTS:
            texts[name] = one_line(str(np.asarray(value))[:80])
        else:
            arrays[name] = np.require(value, None, "W")
    states = _state_names(arrays)
    expected = dict.fromkeys([*NEEDED, "h_1", *states])
    missing = [name for name in expected if name not in arrays]
    if missing:
        raise AuditError(
            f"{and_more(missing)} missing: a trace holds every state h_0 … h_L with its gradient, "
            f"credit at all of h_1 … h_L or none; this one has {', '.join(arrays)}"
        )
    strange = [name for name in arrays if name not in (*expected, *OPTIONAL)]
    if strange:
        names = ", ".join((*expected, *OPTIONAL, *TEXTS))
        raise AuditError(f"a trace has no array {and_more(strange)}; expected {names}")
    for name in arrays:
        _check_array(name, arrays, states)
    samples = len(arrays["outputs"])
    rows = len(arrays["h_0"])
    if not LEAST <= rows <= samples:
        raise AuditError(
            f"states have {rows:,} rows and outputs {samples:,}; expected states of at least the "
            f"first {LEAST} samples"
        )
    return {**arrays, **texts}


def _state_names(arrays: Mapping[str, Any]) -> list[str]:
    """The states of a trace with their gradients, and with their credit where it has any."""
    states = sum(name.startswith("h_") for name in arrays)
    gradients = sum(name.startswith("g_") for name in arrays)
    layers = range(max(states, gradients))
    names = [f"h_{layer}" for layer in layers]
    names += [f"g_{layer}" for layer in layers]
    if any(name.startswith("a_") for name in arrays):
        names += [f"a_{layer}" for layer in layers[1:]]
    return names


def _check_array(name: str, arrays: Mapping[str, Any], states: Sequence[str]) -> None:
    """Refuse an array of a trace that has another dtype or shape, or holds NaN or inf."""
    import numpy as np

    array = arrays[name]
    is_state = name[1:2] == "_"
    is_wide = name in (*states, "a_0", "outputs", "e", "control_outputs")
    fits = array.dtype.kind in "fiub"
    if is_wide:
        fits = array.dtype in (np.float32, np.float64)
    if not fits:
        raise AuditError(
            f"{name} is {array.dtype}; dump float32 or float64: in less, states overflow and "
            "gradients vanish"
        )
    samples = len(arrays["outputs"])
    rows = len(arrays["h_0"])
    counts = [samples]
    if is_state:
        counts = [rows]
    elif name == "e":
        counts = sorted({samples, rows})
    shape = array.shape
    if is_wide:
        shape = arrays[f"h_{name[2:]}" if is_state else "outputs"].shape
    if not array.ndim or len(array) not in counts or array.shape[1:] != shape[1:]:
        fitting = " or ".join(str((count, *shape[1:])) for count in counts)
        raise AuditError(
            f"{name} has shape {array.shape}, expected {fitting}: one row per sample, and each "
            "gradient and credit as its state"
        )
    broken = int((~np.isfinite(array)).reshape(len(array), -1).any(1).sum())
    if broken:
        raise AuditError(
            f"{name} is NaN or inf for {broken:,} of {len(array):,} samples: training diverged "
            "or the dump overflowed; a trace needs finite numbers"
        )


def write_trace(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write a trace, whole or not at all."""
    import numpy as np

    if path.suffix != ".npz":
        raise AuditError(f"{path}: expected a name that ends with .npz")
    file = io.BytesIO()
    np.savez(file, **arrays)
    write_atomically(path, file.getvalue())
