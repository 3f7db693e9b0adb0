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
from msgspec.structs import replace

from ..files import LARGEST_TEXT, check_file, parse_json, read_bytes, text_of
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
MOST_LINES = 1_000_000
MOST_ROWS = 200_000
"""Lines of a table, or objects of JSON."""
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
    "step": "rule_step",
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
        chosen = diagnostics or default_diagnostics(
            credit=self.base.credit is not None, partial=True
        )
        name = "control" if isinstance(control, Control) else "frozen_baseline_acc"
        report = self.base.replace(
            **{name: control},
            thresholds=thresholds or DiagnosticThresholds(),
            diagnostics=tuple(diagnostic.name for diagnostic in chosen),
        )
        check_judged(report, self.path)
        return report


def check_judged(report: Report, path: Path) -> None:
    """Refuse a log that measures nothing."""
    if not any(finding.measured for finding in report.findings):
        reason = "the last epoch has no number that a diagnostic needs, or the control is missing"
        raise AuditError(f"training log: {reason}\n  {path}")


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
        check_file(path)
        return {"log": list(_events(path))}
    text = text_of(read_bytes(path, LARGEST_TEXT))
    lines = text.count("\n")
    if lines > MOST_LINES:
        raise AuditError(f"{lines:,} lines; at most {MOST_LINES:,}")
    rows = lines if path.suffix == ".csv" else text.count("{")
    if rows > MOST_ROWS:
        raise AuditError(f"{rows:,} rows; at most {MOST_ROWS:,}: keep every k-th")
    if path.suffix == ".csv":
        return {"log": _csv_rows(text)}
    try:
        content = parse_json(text)
    except json.JSONDecodeError:
        return _json_lines(text)
    if not isinstance(content, dict) or not {"epoch", "recorder"}.isdisjoint(content):
        return _json_lines(text)
    logs = [key for key in content if key.endswith("log")]
    if len(logs) != 1:
        keys = ", ".join(map(repr, list(content)[:6])) or "nothing"
        raise AuditError(f"expected one log in the file, found {keys}; {ACCEPTED}")
    config = {}
    if logs[0] != "log":
        config["method"] = logs[0].removesuffix("_log")
    config.update(convert(content.get("config") or {}, Values, "config"))
    return {**content, "log": content[logs[0]], "config": config}


def _csv_rows(text: str) -> list[Values]:
    """The rows of a table, without their empty cells."""
    table = csv.DictReader(io.StringIO(text), strict=True)
    columns = table.fieldnames or ()
    if len(set(columns)) < len(columns):
        raise AuditError("two columns have the same name")
    rows = []
    for row in table:
        cells = {}
        for column, cell in row.items():
            if column and cell:
                cells[column] = cell
        rows.append(cells)
    return rows


def _json_lines(text: str) -> Values:
    """One JSON object a line, the first of which may say what holds for all."""
    objects: list[Values] = []
    lines = text.rstrip("\n").split("\n")
    cut = False
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            objects.append(convert(parse_json(line), Values, "entry"))
        except ValueError as error:
            cut = number == len(lines) > 1 and isinstance(error, json.JSONDecodeError)
            if not cut:  # else the writer was stopped while it wrote
                raise AuditError(f"line {number}: {error}; {ACCEPTED}") from error
    header: Values = {}
    if objects and "epoch" not in objects[0]:
        header = objects.pop(0)
    config = dict(convert(header.get("config") or {}, Values, "config"))
    for key in ("method", "seed"):
        if header.get(key) is not None:
            config[key] = header[key]
    return {**header, "config": config, "log": objects, "cut": cut}


def _events(path: Path) -> Iterator[Values]:
    """The scalars of a TensorBoard event file, one row each."""
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError as error:
        raise AuditError(f"{error}: pip install 'pytest-fadiag[tensorboard]'") from error
    events = EventAccumulator(str(path), size_guidance={"scalars": 0})
    events.Reload()
    for tag in events.Tags()["scalars"]:
        for event in events.Scalars(tag):
            yield {"step": event.step, tag: event.value}


def _canonical(values: Values, names: Mapping[str, str]) -> Values:
    """Values by their canonical names, as far as they are there."""
    canonical: Values = {}
    for name, spellings in names.items():
        for key in spellings.split():
            if values.get(key) is not None:
                canonical[name] = values[key]
                break
    return canonical


def _entries(rows: list[Values], columns: Mapping[str, str], table: bool) -> list[Entry]:
    """The epochs of a log; of a table the rows of an epoch as one: tools write one per metric."""
    absent = set(columns.values()).difference(*rows)
    if absent:
        raise AuditError(f"no column {min(absent)!r} (--fa-log-columns)")
    epochs: dict[Any, Values] = {}
    for number, row in enumerate(rows):
        values = _epoch_values(row, columns)
        if table and ("epoch" not in values or (len(values) < 3 and not values["norms"])):
            continue
        epoch = epochs.setdefault(values.get("epoch") if table else number, {"norms": {}})
        norms = epoch["norms"] | values["norms"]
        epoch.update(values, norms=norms)
    if len(epochs) > MOST_EPOCHS:
        raise AuditError(f"{len(epochs):,} epochs; at most {MOST_EPOCHS:,}: keep every k-th")
    entries: list[Entry] = []
    for epoch in epochs.values():
        entries.append(convert(epoch, Entry, f"epoch {epoch.get('epoch')!r:.20}"))
    if table:
        entries.sort(key=lambda entry: entry.epoch)
    for earlier, later in pairwise(entries):
        if later.epoch <= earlier.epoch:
            raise AuditError(
                f"epoch {later.epoch} follows epoch {earlier.epoch}; keep one training run per log"
            )
    if not entries:
        raise AuditError(
            f"no epoch with a known number; name its columns by --fa-log-columns, or {ACCEPTED}"
        )
    return entries


def _epoch_values(row: Values, columns: Mapping[str, str]) -> Values:
    """The values of one row by their canonical names, the norms of single layers together."""
    named = dict(row)
    for name, column in columns.items():
        named[name] = row.get(column)
    norms: Values = {}
    for name, value in named.items():
        layer = _NORM.fullmatch(name)
        if layer and value is not None:
            norms[layer[1] + layer[2]] = value
    values = _canonical(named, ALIASES)
    values.update(convert(values.pop("companions", {}), Values, "companions"))
    values["norms"] = norms
    return values


def _log(path: Path, content: Values, batch: int | None, columns: Mapping[str, str]) -> TrainingLog:
    config: Values = content.get("config", {})
    about: About = convert(_canonical({**content, **config}, ABOUT), About, "config")
    rows = convert(content["log"], list[Values], "log")
    entries = _entries(rows, columns, EVENTS in path.name or path.suffix == ".csv")
    caveats = []
    if content.get("cut"):
        caveats.append("the last line is cut in the middle and was left out")
    if "recorder" in content or all(entry.stability_layer is not None for entry in entries):
        batch = BATCH
    batch = batch or about.gradient_batch
    assumed = None if batch else about.training_batch
    size, depth_known = _layer_count(entries, about)
    scale = (batch or assumed or BATCH) / BATCH
    entries = [_scaled(entry, size, about.h_0_norm, scale) for entry in entries]
    last = entries[-1]
    accuracy = about.final_acc
    images = about.images
    if accuracy is None or accuracy == last.headline_acc:
        accuracy = last.headline_acc
        images = last.images or about.images
    method, seed = identify(path, config)
    numbers = {name: getattr(last, name) for name in Measurement.__struct_fields__}
    numbers["score"] = None if accuracy is None else Score(accuracy, images)
    report = Report(
        **numbers,
        method_name=method,
        seed=seed,
        notes=f"{path.name}, a training log of {plural(len(entries), 'epoch')}",
        checkpoint=path.name,
        caveats=tuple(caveats),
        config=plain_config(config),
        log=Log(
            epochs=tuple(msgspec.convert(entry, Epoch, from_attributes=True) for entry in entries),
            gradient_batch=batch,
            assumed_batch=assumed,
            depth_known=depth_known,
        ),
    )
    return TrainingLog(path, report)


def _layer_count(entries: Sequence[Entry], about: About) -> tuple[int, bool]:
    """How many states h_0 … h_L the stream has, and whether the log says so."""
    sizes = set()
    if about.depth is not None:
        sizes.add(about.depth + 1)
    layers = set()
    for entry in entries:
        for norms in (entry.residual_norms, entry.bp_grad_norms):
            if norms:
                sizes.add(len(norms))
        for key in entry.norms:
            if key[1:] != "L":
                layers.add(int(key[1:]) + 1)
    deepest = max(layers, default=0)
    size = max(sizes, default=max(1, deepest) + 1)
    if len(sizes) > 1 or size > MOST_LAYERS or deepest > size:
        numbers = ", ".join(f"{number:,}" for number in sorted(sizes | layers)[-3:])
        raise AuditError(
            f"norms of {numbers} layers; expected h_0 … h_L in every epoch, at most {MOST_LAYERS:,}"
        )
    return size, bool(sizes)


def _scaled(entry: Entry, size: int, start: float | None, scale: float) -> Entry:
    """An epoch with all its norms in lists, and gradients as for batches of 128."""
    if entry.headline_acc is not None:
        check_accuracy(entry.headline_acc, f"epoch {entry.epoch}: accuracy", entry.task)
    singles = {"h0": start, **entry.norms}
    what = f"epoch {entry.epoch}: norms"
    residual_norms = check_norms(entry.residual_norms or _listed(singles, "h", size), what)
    gradient_norms = check_norms(entry.bp_grad_norms or _listed(singles, "g", size), what)
    gradients = []
    for norm in gradient_norms:
        gradients.append(None if norm is None else norm * scale)
    per_error = entry.gradient_per_unit_error
    if per_error is not None:
        per_error *= scale
    return replace(
        entry,
        residual_norms=residual_norms if size > 1 else (),
        bp_grad_norms=tuple(gradients),
        gradient_per_unit_error=per_error,
    )


def _listed(singles: Mapping[str, float | None], symbol: str, size: int) -> list[float | None]:
    """The norms of single layers as a list of all, of which some may be missing."""
    norms = [singles.get(f"{symbol}{layer}") for layer in range(size)]
    norms[-1] = singles.get(f"{symbol}L", norms[-1])
    return norms
