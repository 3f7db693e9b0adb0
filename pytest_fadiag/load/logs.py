"""Training logs: what is left to audit when no checkpoint is; free of torch."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from ..files import parse_json, read_bytes
from ..judge.control import Control
from ..judge.diagnostics import Diagnostic, default_diagnostics
from ..judge.errors import AuditError
from ..judge.records import BATCH, Epoch, Log, Measurement, Score, check_accuracy, check_norms
from ..judge.report import Report
from ..judge.thresholds import DiagnosticThresholds
from ..judge.words import plural
from .names import EVENTS, convert, identify, plain_config

RECORDER = "pytest-fadiag"
"""What the first line of a recorder's log says."""
MOST_LAYERS = 10_000
MOST_EPOCHS = 5_000
ALIASES = {
    "epoch": "epoch Epoch step Step global_step _step",
    "residual_norms": "residual_norms hidden_norms",
    "bp_grad_norms": "bp_grad_norms bp_grad_norms_per_sample_med",
    "cross_batch_stability": "cross_batch_stability drift",
    "headline_acc": "acc_eval headline_acc test_acc test_accuracy test/acc test/accuracy val_acc "
    "val_accuracy val/acc val/accuracy eval/acc eval/accuracy acc accuracy",
    "stability_layer": "stability_layer",
    "stream": "stream",
    "credit": "credit",
    "companions": "companions",
    "images": "images test_images n_test",
}
"""The spellings of each value of an epoch; the first that is there counts."""
ABOUT = {
    "depth": "n_blocks num_blocks blocks L depth n_layers num_layers",
    "gradient_batch": "grad_batch_size eval_batch_size diagnostic_batch_size",
    "training_batch": "batch_size batch",
    "images": ALIASES["images"],
    "h_0_norm": "h_0_norm",
    "final_acc": "final_test_acc test_acc",
}
"""The same of a whole run, in the config or next to the epochs."""
ACCEPTED = """expected
  {"config": {…}, "final_test_acc": 0.363, "log": [{"epoch": 1, "h_L_norm": 9.1, "acc_eval": 0.31}]}
    with h_<k>_norm and g_<k>_norm, or the lists hidden_norms and bp_grad_norms of all layers;
    config may have method, seed, h_0_norm, n_blocks, grad_batch_size (at which gradients were
    taken), n_test (test images)
  {"<method>_log": [{"epoch": 1, …}, …]}
  JSON lines {"epoch": 1, …}, CSV with a header, TensorBoard events, a log of a Recorder"""
_NORM = re.compile(r"(?:.*/)?([hg])_([0-9]{1,9}|L)_norm")

Values = dict[str, Any]


class Entry(Measurement, frozen=True, kw_only=True):
    """One epoch as its log has it."""

    epoch: int
    headline_acc: float | None = None
    images: int | None = None
    norms: dict[str, float] = msgspec.field(default_factory=dict)
    """Of single layers: h0, hL, g2."""


class About(msgspec.Struct):
    """What holds for all epochs."""

    depth: int | None = None
    gradient_batch: int | None = None
    training_batch: int | None = None
    images: int | None = None
    h_0_norm: float | None = None
    final_acc: float | None = None


@dataclass(frozen=True)
class TrainingLog:
    """What a log says about one training run."""

    path: Path
    base: Report
    """Its last epoch, without a control; gradients as for batches of 128."""

    def report(
        self,
        control: Control | float | None = None,
        thresholds: DiagnosticThresholds | None = None,
        diagnostics: Sequence[Diagnostic] | None = None,
    ) -> Report:
        """The partial audit of the last epoch, with when each diagnostic first fired.

        >>> read_log("results/dfa_s42.json").report(0.349).verdict
        """
        asked = diagnostics or default_diagnostics(
            control=control is not None, credit=self.base.credit is not None, partial=True
        )
        name = "control" if isinstance(control, Control) else "frozen_baseline_acc"
        report = self.base.replace(
            **{name: control},
            thresholds=thresholds or DiagnosticThresholds(),
            diagnostics=tuple(diagnostic.name for diagnostic in asked),
        )
        check_judged(report, self.path)
        return report


def check_judged(report: Report, path: Path) -> None:
    """Refuse a log that measures nothing."""
    if not any(finding.measured for finding in report.findings):
        said = "the last epoch has no number that a diagnostic needs, or the control is missing"
        raise AuditError(f"training log: {said}\n  {path}")


def read_log(
    path: str | Path, *, batch: int | None = None, columns: Mapping[str, str] | None = None
) -> TrainingLog:
    """The training log in a file.

    ``batch`` is the batch size of its gradients, where it does not say. ``columns`` names values
    that have other names there: ``{"epoch": "step", "acc_eval": "val/top1"}``.
    """
    path = Path(path)
    try:
        return _log(path, _document(path), batch, columns or {})
    except (OSError, ValueError, RecursionError, csv.Error) as error:  # also an AuditError
        raise AuditError(f"training log: {error}\n  {path}") from error


def parse_columns(text: str) -> dict[str, str]:
    """``--fa-log-columns``.

    >>> parse_columns("epoch=step,acc_eval=val/top1")
    {'epoch': 'step', 'acc_eval': 'val/top1'}
    """
    pairs = (part.partition("=") for part in text.split(","))
    return {name.strip(): column.strip() for name, _, column in pairs}


def records_credit(path: Path) -> bool:
    """Whether a log has Γ, so that (f) is judged; what cannot be read has none."""
    try:
        return read_log(path).base.credit is not None
    except AuditError:
        return False


def _document(path: Path) -> Values:
    """What a file holds, as ``config``, ``log``, and what stands next to them."""
    if EVENTS in path.name:
        return {"log": list(_events(path))}
    text = read_bytes(path).decode("utf-8-sig")
    if path.suffix == ".csv":
        rows = csv.DictReader(io.StringIO(text), strict=True)
        if len(set(rows.fieldnames or ())) < len(rows.fieldnames or ()):
            raise AuditError("two columns have the same name")
        return {
            "log": [{name: cell for name, cell in row.items() if name and cell} for row in rows]
        }
    try:
        content = parse_json(text)
    except json.JSONDecodeError:
        content = None
    if isinstance(content, dict) and not {"epoch", "recorder"} & set(content):
        logs = [key for key in content if key.endswith("log")]
        if len(logs) != 1:
            found = ", ".join(map(repr, list(content)[:6])) or "nothing"
            raise AuditError(f"expected one log in the file, found {found}; {ACCEPTED}")
        method = {"method": logs[0].removesuffix("_log")} if logs[0] != "log" else {}
        config = method | convert(content.get("config") or {}, Values, "config")
        return {**content, "log": content[logs[0]], "config": config}
    objects: list[Values] = []
    lines = text.rstrip("\n").split("\n")
    cut = False
    for number, line in enumerate(lines, 1):
        try:
            objects += [convert(parse_json(line), Values, "entry")] if line.strip() else []
        except ValueError as error:
            cut = number == len(lines) > 1 and isinstance(error, json.JSONDecodeError)
            if not cut:  # else the writer was stopped while it wrote
                raise AuditError(f"line {number}: {error}; {ACCEPTED}") from error
    header = objects.pop(0) if objects and "epoch" not in objects[0] else {}
    identity = {key: header[key] for key in ("method", "seed") if header.get(key) is not None}
    config = convert(header.get("config") or {}, Values, "config")
    return {**header, "config": config | identity, "log": objects, "cut": cut}


def _events(path: Path) -> Iterator[Values]:
    """The scalars of a TensorBoard event file, one row each."""
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError as error:
        raise AuditError(f"{error}: pip install 'pytest-fadiag[tensorboard]'") from error
    events = EventAccumulator(str(path), size_guidance={"scalars": 0})
    events.Reload()
    for tag in events.Tags()["scalars"]:
        yield from ({"step": event.step, tag: event.value} for event in events.Scalars(tag))


def _named(values: Values, names: Mapping[str, str]) -> Values:
    """Values by their canonical names, as far as they are there."""
    found: Values = {}
    for name, spelled in names.items():
        held = [values[key] for key in spelled.split() if values.get(key) is not None]
        found |= {name: held[0]} if held else {}
    return found


def _entries(rows: list[Values], columns: Mapping[str, str], table: bool) -> list[Entry]:
    """The epochs of a log; of a table the rows of an epoch as one: tools write one per metric."""
    if absent := set(columns.values()).difference(*rows):
        raise AuditError(f"no column {min(absent)!r} (--fa-log-columns)")
    held: dict[Any, Values] = {}
    for number, row in enumerate(rows):
        given = {**row, **{name: row.get(column) for name, column in columns.items()}}
        singles = ((_NORM.fullmatch(name), own) for name, own in given.items() if own is not None)
        norms = {found[1] + found[2]: value for found, value in singles if found}
        entry = _named(given, ALIASES)
        entry |= convert(entry.pop("companions", {}), Values, "companions")
        if not table or ("epoch" in entry and (norms or len(entry) > 1)):
            before = held.setdefault(entry.get("epoch") if table else number, {"norms": {}})
            before.update(entry, norms=before["norms"] | norms)
    entries: list[Entry] = [
        convert(entry, Entry, f"epoch {entry.get('epoch')!r:.20}") for entry in held.values()
    ]
    if table:
        entries.sort(key=lambda entry: entry.epoch)
    for one, other in pairwise(entries):
        if other.epoch <= one.epoch:
            raise AuditError(
                f"epoch {other.epoch} follows epoch {one.epoch}; keep one training run per log"
            )
    if len(entries) > MOST_EPOCHS:
        raise AuditError(f"{len(entries):,} epochs; at most {MOST_EPOCHS:,}: keep every k-th")
    if not entries:
        raise AuditError(
            f"no epoch with a known number; name its columns by --fa-log-columns, or {ACCEPTED}"
        )
    return entries


def _log(path: Path, content: Values, batch: int | None, columns: Mapping[str, str]) -> TrainingLog:
    config: Values = content.get("config", {})
    about: About = convert(_named({**content, **config}, ABOUT), About, "config")
    rows = convert(content["log"], list[Values], "log")
    entries = _entries(rows, columns, EVENTS in path.name or path.suffix == ".csv")
    cut = ("the last line is cut in the middle and was left out",) if content.get("cut") else ()
    recorded = "recorder" in content or all(entry.stability_layer is not None for entry in entries)
    batch = BATCH if recorded else batch or about.gradient_batch
    assumed = None if batch else about.training_batch
    lists = (norms for entry in entries for norms in (entry.residual_norms, entry.bp_grad_norms))
    sizes = {len(norms) for norms in lists if norms}
    sizes |= set() if about.depth is None else {about.depth + 1}
    layers = {int(key[1:]) + 1 for entry in entries for key in entry.norms if key[1:] != "L"}
    size = max(sizes or {1 + max(layers, default=1)})
    if len(sizes) > 1 or size > MOST_LAYERS or max(layers, default=0) > size:
        seen = ", ".join(f"{number:,}" for number in sorted(sizes | layers)[-3:])
        raise AuditError(
            f"norms of {seen} layers; expected h_0 … h_L in every epoch, at most {MOST_LAYERS:,}"
        )
    scale = (batch or assumed or BATCH) / BATCH
    entries = [_scaled(entry, size, about.h_0_norm, scale) for entry in entries]
    last, own = entries[-1], entries[-1].headline_acc
    final = own if about.final_acc is None else about.final_acc
    images = (last.images if final == own else None) or about.images
    method, seed = identify(path, config)
    report = Report(
        **{
            **{name: getattr(last, name) for name in Measurement.__struct_fields__},
            "score": None if final is None else Score(final, images),
        },
        method_name=method,
        seed=seed,
        notes=f"{path.name}, a training log of {plural(len(entries), 'epoch')}",
        checkpoint=path.name,
        caveats=cut,
        config=plain_config(config),
        log=Log(
            epochs=tuple(msgspec.convert(entry, Epoch, from_attributes=True) for entry in entries),
            gradient_batch=batch,
            assumed_batch=assumed,
            depth_known=bool(sizes),
        ),
    )
    return TrainingLog(path, report)


def _scaled(entry: Entry, size: int, start: float | None, scale: float) -> Entry:
    """An epoch with all its norms in lists, and gradients as for batches of 128."""
    if entry.headline_acc is not None:
        check_accuracy(entry.headline_acc, f"epoch {entry.epoch}: accuracy", entry.task)
    single, rows = {"h0": start, **entry.norms}, []
    for symbol, listed in (("h", entry.residual_norms), ("g", entry.bp_grad_norms)):
        known = [single.get(f"{symbol}{layer}") for layer in range(size)]
        known[-1] = single.get(f"{symbol}L", known[-1])
        rows.append(check_norms(listed or known, f"epoch {entry.epoch}: norms"))
    per_error = entry.gradient_per_unit_error
    return msgspec.structs.replace(
        entry,
        residual_norms=rows[0] if size > 1 else (),
        bp_grad_norms=tuple(None if norm is None else norm * scale for norm in rows[1]),
        gradient_per_unit_error=None if per_error is None else per_error * scale,
    )
