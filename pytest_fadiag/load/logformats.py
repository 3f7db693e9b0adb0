"""The shapes in which training logs come, brought to one: a config and entries, each with its place in the file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..judge.codec import parse_json
from ..judge.errors import AuditError
from ..judge.limits import LARGEST_LOG, MOST_ENTRIES, read_bytes
from ..judge.wording import count

RECORDER = "pytest-fadiag"
FORMAT_VERSION = 1
"""Raised when the recorder's lines change their meaning."""

ACCEPTED = """\
accepted are
  {"config": {…}, "final_test_acc": 0.363, "log": [{"epoch": 1, "h_L_norm": 9.1, "g_2_norm": 1e-6, "acc_eval": 0.31}, …]}
    with h_<k>_norm and g_<k>_norm of any layers, or the lists hidden_norms and bp_grad_norms_per_sample_med of all of them;
    the config tells the more, the more it has of: method, seed, h_0_norm (if the epochs have none), n_blocks (how many blocks),
    grad_batch_size (the batch size at which the gradients were taken), n_test (how many test images)
  {"<method>_log": [{"epoch": 1, …}, …]}, for one method or for several
  JSON lines {"epoch": 1, …}, one an epoch, as pytest_fadiag.Recorder writes them"""


@dataclass(frozen=True)
class RawLog:
    """One log as its file holds it."""

    path: Path
    entries: list[tuple[str, dict[str, Any]]]
    """Each with its place: «line 3», «log[2]»."""
    config: Mapping[str, Any] = field(default_factory=dict)
    method: str | None = None
    top: Mapping[str, Any] = field(default_factory=dict)
    """What stands beside the entries."""
    caveats: tuple[str, ...] = ()

    @property
    def recorded(self) -> bool:
        """Whether the numbers are the protocol's own, as the recorder and its older form without a header wrote them."""
        return "recorder" in self.top or all({"stability_layer", "companions"} <= set(entry) for _, entry in self.entries)


def log_error(path: Path, what: str, place: str = "") -> AuditError:
    """An error in a log: what and where on the first line, the file on its own."""
    return AuditError(f"training log: {f'{place}: ' if place else ''}{what}\n  {path}")


def read_raw(path: Path) -> list[RawLog]:
    """The logs in a file; only one of several methods has more than one."""
    text = _text(path)
    if not text.strip():
        raise log_error(path, "the file is empty; was the training stopped before its first epoch ended?")
    content, problem = _parsed(text)
    first_line, _ = _parsed(text.lstrip().partition("\n")[0])  # an object too where another of several lines is broken
    if isinstance(content, dict) and not {"epoch", "recorder"} & set(content):
        logs = _document(path, content)
    elif isinstance(content, dict) or (
        problem is not None and not isinstance(problem, AuditError) and isinstance(first_line, dict)
    ):
        logs = [_lines(path, text)]
    elif problem is not None:
        raise log_error(path, _not_json(problem, text))
    else:
        raise log_error(path, f"unknown format: a JSON {type(content).__name__}\n{ACCEPTED}")
    for log in logs:
        if not log.entries:
            name = f" of {log.method}" if log.method else ""
            cut = "; its only line ends in the middle" if log.caveats else ""
            raise log_error(path, f"the log{name} holds no epoch{cut}; was the training stopped before its first ended?")
    return logs


def _text(path: Path) -> str:
    try:
        data = read_bytes(path, LARGEST_LOG)
    except AuditError as error:
        raise AuditError(f"training log: {error}") from None
    except OSError as error:
        raise log_error(path, f"cannot be read: {error.strerror or error}") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        end = data.rfind(b"\n") + 1
        if 0 < end <= error.start:  # a last line that was cut within a letter is cut like any other
            return data[:end].decode("utf-8-sig") + "…"
        raise log_error(path, f"not text in UTF-8 (byte {error.start:,}); is it the log, and not the checkpoint?") from error


def _parsed(text: str) -> tuple[Any, Exception | None]:
    try:
        return parse_json(text), None
    except (ValueError, RecursionError) as error:  # ValueError: also a number with thousands of digits
        return None, error


def _not_json(problem: Exception, text: str) -> str:
    if isinstance(problem, json.JSONDecodeError):
        if problem.pos >= len(text.rstrip()) or problem.msg.startswith("Unterminated"):
            return (
                f"the JSON ends in the middle (line {problem.lineno}), so it was not written to its end; write it anew, or log "
                "JSON lines, of which a crash costs only the last"
            )
        return f"not JSON: {problem.msg} (line {problem.lineno}, column {problem.colno})\n{ACCEPTED}"
    return f"not JSON: {type(problem).__name__}: {problem}"


def _document(path: Path, content: dict[str, Any]) -> list[RawLog]:
    config = _config(path, content)
    methods = [key.removesuffix("_log") for key in content if key.endswith("_log") and key != "_log"]
    others = [key for key in content if key.endswith("_log") and _is_log(content[key])]
    if "log" in content and others:
        advice = "name it <method>_log too, or keep one log in a file"
        raise log_error(path, f"holds 'log' and {others[0]!r:.60}, and nobody says whose 'log' is; {advice}")
    if "log" in content:
        return [RawLog(path, _entries(path, content["log"], "log"), config, top=content)]
    if not methods:
        keys = ", ".join(map(repr, list(content)[:6])) or "nothing"
        raise log_error(path, f"unknown format: an object with {keys}\n{ACCEPTED}")
    logs = {method: _entries(path, content[f"{method}_log"], f"{method}_log") for method in methods}
    return [RawLog(path, logs[method], config, method, _top_of(content, method, len(methods))) for method in methods]


def _is_log(value: Any) -> bool:
    """Whether a list holds epochs, and not the losses or times that others keep beside them."""
    return isinstance(value, list) and any(isinstance(item, dict) for item in value)


def _top_of(content: dict[str, Any], method: str, methods: int) -> dict[str, Any]:
    """What stands beside one of several logs: a value for all, unless it is an accuracy, which belongs to one method."""
    top = {key: value for key, value in content.items() if not key.endswith("_log")}
    for key in ("final_test_acc", "test_acc"):
        value = top.pop(key, None)
        value = value.get(method) if isinstance(value, dict) else value if methods == 1 else None
        top[key] = content.get(f"{method}_{key}", value)
    return top


def _config(path: Path, content: Mapping[str, Any]) -> dict[str, Any]:
    config = content.get("config")
    if config is not None and not isinstance(config, dict):
        raise log_error(path, f"config is {config!r:.40}, not an object")
    return config or {}


def _entries(path: Path, values: Any, key: str) -> list[tuple[str, dict[str, Any]]]:
    if not isinstance(values, list):
        raise log_error(path, f"{key!r} is {type(values).__name__}, not a list of epochs\n{ACCEPTED}")
    for index, value in enumerate(values):
        if not isinstance(value, dict):
            raise log_error(path, f'{value!r:.40} is no object {{"epoch": …}}\n{ACCEPTED}', f"{key}[{index}]")
    return [(f"{key}[{index}]", value) for index, value in enumerate(values)]


def check_epoch(path: Path, place: str, source: Mapping[str, Any], before: int | None) -> int:
    """The epoch of an entry, which must come after the one before."""
    epoch = source.get("epoch")
    if "epoch" not in source:
        keys = ", ".join(map(repr, list(source)[:8]))
        raise log_error(path, f"no epoch in this entry, which has {keys}\n{ACCEPTED}", place)
    if isinstance(epoch, bool) or not isinstance(epoch, int) or not 0 <= epoch < 1 << 63:
        raise log_error(path, f"epoch is {_brief(epoch)}, not a whole number", place)
    if before is not None and epoch <= before:
        order = f"epoch {epoch} is there twice" if epoch == before else f"epoch {epoch} comes after epoch {before}"
        raise log_error(path, f"{order}; keep the epochs of one training, in their order", place)
    return epoch


def _brief(value: Any) -> str:
    """A value in a few letters; a whole number of thousands of digits cannot be written out."""
    return "a number of many digits" if isinstance(value, int) and value.bit_length() > 64 else f"{value!r:.40}"


def kept_of(entries: int) -> int:
    """Every how manieth entry of a log is judged: all, unless there are more than anybody reads."""
    return -(-entries // MOST_ENTRIES)


def kept_caveat(entries: int) -> str:
    """What a report says of a log that was not judged in every entry."""
    return f"the log has {entries:,} entries, of which one in {kept_of(entries)} and the last are judged"


def _lines(path: Path, text: str) -> RawLog:
    objects: list[tuple[str, dict[str, Any]]] = []
    caveats: tuple[str, ...] = ()
    lines = text.split("\n")
    filled = len(lines) - (not lines[-1].strip())
    step, before = kept_of(filled), None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        value, problem = _parsed(line)
        if step > 1 and isinstance(value, dict) and "epoch" in value:
            # Every line is read and checked; of so many only some are kept in memory.
            before = check_epoch(path, f"line {number}", value, before)
            if number % step and number < filled:
                continue
        if isinstance(problem, AuditError):  # whole JSON that says two things, wherever it stands
            raise log_error(path, str(problem), f"line {number}")
        if problem is not None and number == len(lines):  # no line end after it: the writer was stopped while it wrote
            epochs = sum("epoch" in entry for _, entry in objects)
            caveats = (f"the last line of the log is cut in the middle; {count(epochs, 'epoch')} before it are used",)
        elif problem is not None:
            raise log_error(path, f"not JSON: {problem}; remove the line if it is lost", f"line {number}")
        elif not isinstance(value, dict):
            raise log_error(path, f'{value!r:.40} is no object {{"epoch": …}}\n{ACCEPTED}', f"line {number}")
        else:
            objects.append((f"line {number}", value))
    if step > 1:
        caveats = (*caveats, kept_caveat(filled))
    first = objects[0][1] if objects else {}
    header = objects.pop(0)[1] if "epoch" not in first and {"recorder", "config"} & set(first) else {}
    version = header.get("recorder"), header.get("format_version")
    if "recorder" in header and version != (RECORDER, FORMAT_VERSION):
        writer = f"{version[0]!r:.40}, format {version[1]!r:.10}"
        raise log_error(path, f"written by {writer}; this version reads {RECORDER}, format {FORMAT_VERSION}", "line 1")
    second = next((place for place, entry in objects if "recorder" in entry), None)
    if second is not None:
        raise log_error(path, "a second header: these are two logs, keep each in a file of its own", second)
    identity = {key: header[key] for key in ("method", "seed") if header.get(key) is not None}
    return RawLog(path, objects, {**_config(path, header), **identity}, top=header, caveats=caveats)
