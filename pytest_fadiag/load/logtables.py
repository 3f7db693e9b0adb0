"""Logs that other tools keep as tables: CSV files, TensorBoard's event files and the exported history of W&B."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..judge.errors import AuditError
from ..judge.wording import listed
from .logformats import RawLog, log_error

Row = Mapping[str, Any]
Columns = Mapping[str, str]
"""The column of the table in which each canonical key stands."""

EVENTS = "tfevents"
"""What the names of TensorBoard's files contain."""
STEPS = ("epoch", "step", "global_step", "_step")
"""What counts the records, in their order of preference."""
_NORM = re.compile(r"(?:.*_)?(?P<symbol>h|hidden|residual|g|grad|gradient)_?(?:norm_)?(?P<layer>\d+|l)(?:_norm)?")
_ACCURACY = re.compile(
    r"(?:.*_)?(?P<split>test|val|valid|validation|eval)_(?:.*_)?acc(?:uracy)?(?:_.*)?|acc_eval|acc(?:uracy)?"
)
_PANEL = re.compile(r"(?P<run>.+) - (?P<metric>.+)")
"""How W&B names the columns of a panel that is exported: «run - metric», with its bounds beside it."""


def is_table(path: Path) -> bool:
    """Whether a file is read as a table, by its name."""
    return path.suffix.lower() == ".csv" or EVENTS in path.name


def read_table(path: Path, columns: Columns | None = None) -> RawLog:
    """The log in a table, its columns those that are named, else those whose names say what they hold."""
    rows = list(_events(path) if EVENTS in path.name else _csv(path))
    return as_log(path, rows, columns)


def as_log(path: Path, rows: Iterable[Row], columns: Columns | None = None) -> RawLog:
    """Rows under canonical keys, those of one epoch as one entry: other tools write a row for each metric, or each step."""
    rows = list(rows)
    metrics: dict[str, str] = {}
    for name in dict.fromkeys(name for row in rows for name in row if name):
        other = metrics.setdefault(_metric(name), name)
        if other != name:
            raise log_error(
                path, f"{other!r:.60} and {name!r:.60} are one metric of two runs; keep each run in a file of its own"
            )
    rows = [{_metric(name): value for name, value in row.items() if name} for row in rows]
    if not rows:
        raise log_error(path, "the table holds no epoch; was the training stopped before its first ended?")
    names = list(dict.fromkeys(name for row in rows for name in row))
    chosen = {**_guess(path, names, taken=set(columns or {})), **_named(path, names, columns or {})}
    if "epoch" not in chosen:
        raise log_error(path, f"no column counts the epochs; it has {_some(names)}. Name it: --fa-log-columns=epoch=COLUMN")
    if len(chosen) == 1:
        raise log_error(
            path,
            f"no column is an accuracy or a norm of the stream; it has {_some(names)}. Name them: "
            "--fa-log-columns=acc_eval=COLUMN,h_L_norm=COLUMN,g_L_norm=COLUMN",
        )
    entries: dict[int, dict[str, Any]] = {}
    for number, row in enumerate(rows, 1):
        values = {key: row.get(name) for key, name in chosen.items()}
        epoch = values.pop("epoch")
        values = {key: value for key, value in values.items() if value is not None}
        if epoch is None or not values:
            continue
        if not isinstance(epoch, (int, float)) or epoch != int(epoch):
            raise log_error(
                path, f"{chosen['epoch']} is {epoch!r:.40}, not a whole number; name another column", f"row {number}"
            )
        entries.setdefault(int(epoch), {"epoch": int(epoch)}).update(values)
    guessed = {key: name for key, name in chosen.items() if key not in (columns or {}) and key != name}
    caveats: tuple[str, ...] = ()
    if guessed:
        which = listed(f"{key} from the column {name!r}" for key, name in guessed.items())
        caveats = (f"read {which}; --fa-log-columns says otherwise",)
    return RawLog(path, [(f"epoch {epoch}", entries[epoch]) for epoch in sorted(entries)], caveats=caveats)


def renamed(log: RawLog, columns: Columns) -> RawLog:
    """A log whose entries have some numbers under other names."""
    names = list(dict.fromkeys(name for _, entry in log.entries for name in entry))
    chosen = _named(log.path, names, columns)
    entries = [(place, {**entry, **{key: entry.get(name) for key, name in chosen.items()}}) for place, entry in log.entries]
    return replace(log, entries=entries)


def _csv(path: Path) -> Iterator[Row]:
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise log_error(path, f"cannot be read: {getattr(error, 'strerror', None) or error}") from error
    try:
        table = csv.DictReader(io.StringIO(text), strict=True)
        twice = [name for name, times in Counter(table.fieldnames or ()).items() if name.strip() and times > 1]
        if twice:
            raise log_error(path, f"two columns are named {twice[0]!r:.60}, and nobody knows which is meant; leave one out")
        for row in table:
            if None in row:
                raise log_error(path, f"more cells than the header has columns: {row[None]!r:.60}")
            yield {name: _cell(value) for name, value in row.items()}
    except csv.Error as error:
        raise log_error(path, f"not CSV: {error}") from error


def _cell(text: str | None) -> float | str | None:
    """The number in a cell; an empty one, as where a metric was not logged in that step, holds nothing."""
    if text is None or not text.strip():
        return None
    try:
        return float(text)
    except ValueError:
        return text


def _events(path: Path) -> Iterator[Row]:
    """The scalars of an event file, a row each; histograms and images are not loaded."""
    try:
        from tensorboard.backend.event_processing.event_accumulator import SCALARS, TENSORS, EventAccumulator
        from tensorboard.util.tensor_util import make_ndarray
    except ImportError as error:
        raise AuditError(
            f"TensorBoard's event files are read with its own package, which is missing ({error}); "
            f"pip install 'pytest-fadiag[tensorboard]'\n  {path}"
        ) from error
    events = EventAccumulator(str(path), size_guidance={SCALARS: 0, TENSORS: 0})
    try:
        events.Reload()
    except Exception as error:
        raise log_error(path, f"not an event file of TensorBoard: {type(error).__name__}: {error}") from error
    for tag in events.Tags()[SCALARS]:
        yield from ({"step": event.step, tag: event.value} for event in events.Scalars(tag))
    for tag in events.Tags()[TENSORS]:
        for event in events.Tensors(tag):
            value = make_ndarray(event.tensor_proto)
            if value.ndim == 0 and value.dtype.kind in "fiu":
                yield {"step": event.step, tag: float(value)}


def _metric(name: str) -> str:
    panel = _PANEL.fullmatch(name)
    return panel["metric"] if panel else name


def _guess(path: Path, names: Iterable[str], taken: set[str]) -> dict[str, str]:
    """The columns whose names say what they hold; two for one thing are an error, for nobody knows which is meant."""
    candidates: dict[str, list[str]] = {}
    for name in names:
        key = _key(name)
        if key is not None and key not in taken:
            candidates.setdefault(key, []).append(name)
    for key, several in candidates.items():
        if len(several) > 1 and key not in several:
            raise log_error(path, f"{key} may be {listed(map(repr, several))}; say which: --fa-log-columns={key}={several[0]}")
    chosen = {key: key if key in several else several[0] for key, several in candidates.items()}
    steps = [step for step in STEPS if step in {name.lower() for name in names}]
    if "epoch" not in taken and steps:
        chosen["epoch"] = next(name for name in names if name.lower() == steps[0])
    return chosen


def _key(name: str) -> str | None:
    """The canonical key behind a column's name: val/acc is acc_eval, fa/h_4_norm is h_4_norm."""
    plain = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    if plain.endswith(("_min", "_max")) or plain in STEPS:
        return None
    if norm := _NORM.fullmatch(plain):
        layer = "L" if norm["layer"] == "l" else str(int(norm["layer"]))
        return f"{norm['symbol'][0] if norm['symbol'][0] != 'r' else 'h'}_{layer}_norm"
    if _ACCURACY.fullmatch(plain):
        return "acc_eval"
    return "drift" if plain in ("drift", "cross_batch_stability") else None


def _named(path: Path, names: Iterable[str], columns: Columns) -> dict[str, str]:
    for key, name in columns.items():
        if name not in names:
            raise log_error(path, f"no column {name!r} for {key} (--fa-log-columns); it has {_some(list(names))}")
    return dict(columns)


def _some(names: list[str], most: int = 20) -> str:
    shown = ", ".join(map(repr, names[:most])) or "none"
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")
