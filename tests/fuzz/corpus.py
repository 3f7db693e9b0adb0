"""Files as strangers send them: made from a good one of each kind, damaged or forged in a way that its number decides."""

from __future__ import annotations

import copy
import gzip
import io
import json
import os
import pickle
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from builders import exploded, healthy, margin, row, traced
from safetensors.torch import save_file
from support import clustered, network

from pytest_fadiag.show.audit import Audit
from pytest_fadiag.show.document import json_text

CHECKPOINTS = ("zip", "legacy", "safetensors")
OTHERS = ("audit", "expect", "control", "log", "lines", "table", "npz", "idx", "tensors")
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 10**30, 10**400, 0.5, -0.0, 1e308, float("nan"), float("inf"), float("-inf")),
    *("", "x", "NaN", "\x1b[2J", "a\nb", "\u202e", "x" * 10_000, [], [1], [[]], [None], {}, {"x": 1}, {"": {}}),
)
"""Values that a field does not expect."""


class Bomb:
    """What runs code when its pickle is loaded: it leaves a file that says so."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch '{self.canary}'",)


def hollow() -> dict[str, torch.Tensor]:
    """The tensors of a network whose first block explodes the stream: (a) fires whatever its accuracy."""
    state = network(seed=1).state_dict()
    state["blocks.0.fc2.weight"] = state["blocks.0.fc2.weight"] * 1e6
    return state


def write_data(folder: Path) -> Path:
    """The test data that checkpoints are audited on."""
    x, y = clustered(300)
    np.savez(folder / "data.npz", x=x.numpy(), y=y.numpy())
    return folder / "data.npz"


def checkpoint(kind: str, number: int, folder: Path, canary: Path) -> Path:
    """The mutant of a number: its bytes, its tensors, its config or its pickle are not what was saved."""
    rng = random.Random(f"{kind} {number}")
    path = folder / f"{kind}_s{number}.{'safetensors' if kind == 'safetensors' else 'pt'}"
    state, config = dict(hollow()), {"method": "dfa", "seed": 1}
    how = rng.choice(("bytes", "bytes", "tensor", "tensor", "config", "keys", "pickle", "shape"))
    content: dict[str, Any] = {"state_dict": state, "config": config, "test_acc": 0.5}
    if how == "tensor":
        _odd_tensor(rng, state)
    elif how == "keys":
        _odd_keys(rng, state, content)
    elif how == "config":
        config[rng.choice(("method", "seed", "frozen", "mean", "std", "activation", "normalize"))] = _odd_value(rng)
        content["test_acc"] = _odd_value(rng) if rng.random() < 0.3 else 0.5
    elif how == "pickle" and kind != "safetensors":
        _forged(rng, content, canary)
    elif how == "shape":
        name = rng.choice(list(state))
        state[name] = torch.zeros([rng.choice((0, 1, 3, 16, 20, 64, 1000)) for _ in range(rng.randrange(4))])
    try:
        if kind == "safetensors":
            plain = {name: value.contiguous() for name, value in state.items() if isinstance(value, torch.Tensor)}
            save_file(plain, path)
        else:
            torch.save(content, path, _use_new_zipfile_serialization=kind == "zip")
    except Exception:  # what cannot be saved is damaged in its bytes instead
        torch.save({"state_dict": hollow()}, path)
        how = "bytes"
    if how == "pickle" and kind == "zip" and rng.random() < 0.5:
        _plain_pickle(rng, path, canary)
    if how == "bytes":
        path.write_bytes(damaged(rng, path.read_bytes()))
    return path


def _odd_tensor(rng: random.Random, state: dict[str, torch.Tensor]) -> None:
    name = rng.choice(list(state))
    tensor = state[name]
    changes: list[Callable[[], torch.Tensor]] = [
        lambda: tensor.to(rng.choice((torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.uint8, torch.bool))),
        lambda: tensor.to(rng.choice((torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64))),
        lambda: torch.full_like(tensor, rng.choice((float("nan"), float("inf"), 0.0, 1e30, 1e-40))),
        lambda: torch.empty_like(tensor, device="meta"),
        lambda: torch.zeros(1).expand(tensor.shape),
        lambda: torch.zeros(1).expand(rng.choice((10**4, 10**6)), rng.choice((10**4, 10**6))),
        lambda: tensor.reshape(1, -1).to_sparse(),
        lambda: torch.quantize_per_tensor(tensor, 0.1, 0, torch.qint8),
        lambda: tensor.t() if tensor.ndim == 2 else tensor[:1],
        tensor.sum,
        lambda: torch.empty(0),
        lambda: torch.nn.Parameter(tensor),
    ]
    state[name] = rng.choice(changes)()


def _odd_keys(rng: random.Random, state: dict[str, Any], content: dict[str, Any]) -> None:
    name = rng.choice(list(state))
    digits = rng.choice(("5", "50000000", "999999999", "9" * 5000, "-1", "01", "٣"))
    changes: list[Callable[[], Any]] = [
        lambda: state.pop(name),
        lambda: state.update({f"blocks.{digits}.fc1.weight": torch.zeros(2, 2)}),
        lambda: state.update({f"module.{name}": torch.zeros(2)}),
        lambda: state.update({rng.choice(("", "\x1b[2J", "x" * 100_000, "a\nb")): torch.zeros(2)}),
        lambda: content.update(state_dict=_odd_value(rng)),
        lambda: content.update(model=_odd_value(rng)),
        lambda: content.update(config=_odd_value(rng)),
        lambda: state.update({name: _odd_value(rng)}),
    ]
    rng.choice(changes)()


def _odd_value(rng: random.Random) -> Any:
    return rng.choice((*ODD, torch.zeros(2), torch.tensor(3), torch.zeros(0), b"bytes", (1, 2), {"a": torch.ones(2)}))


def _forged(rng: random.Random, content: dict[str, Any], canary: Path) -> None:
    place = rng.choice(("top", "config", "state", "key"))
    bomb = Bomb(canary)
    if place == "top":
        content["extra"] = bomb
    elif place == "config":
        content["config"]["method"] = bomb
    elif place == "state":
        content["state_dict"]["embed.weight"] = bomb
    else:
        content["state_dict"]["x"] = [bomb, {"deep": (bomb,)}]


def _plain_pickle(rng: random.Random, path: Path, canary: Path) -> None:
    """A pickle that torch did not write, as a file or in the archive's place."""
    forged = pickle.dumps({"state_dict": Bomb(canary)}, protocol=rng.choice((0, 2, 4)))
    if rng.random() < 0.5:
        path.write_bytes(forged)
        return
    with zipfile.ZipFile(path, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        archive.writestr("net/data.pkl", forged)
        archive.writestr("net/version", "3\n")
        archive.writestr("net/data/0", b"\0" * rng.choice((0, 10, 1 << 20)))


def damaged(rng: random.Random, content: bytes) -> bytes:
    """Bytes of which some are flipped, cut, repeated or from elsewhere; nearer the ends, where headers and tables are."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8, 64))):
        if not data:
            break
        at = rng.choice(
            (rng.randrange(len(data)), rng.randrange(min(len(data), 300)), len(data) - 1 - rng.randrange(min(len(data), 300)))
        )
        how = rng.randrange(6)
        if how == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif how == 1:
            data[at] = rng.choice((0, 255, 0x80, 0x7F, rng.randrange(256)))
        elif how == 2:
            del data[at:]
        elif how == 3:
            del data[at : at + rng.choice((1, 4, 100))]
        elif how == 4:
            data[at:at] = data[at : at + rng.choice((1, 4, 100))]
        else:
            data[at : at + 4] = rng.randbytes(4)
    return bytes(data)


def _audit() -> dict[str, Any]:
    rows = [row(exploded()), row(healthy()), row(traced("dfa-lam", 1, epochs=4)), row(exploded(seed=123))]
    content: dict[str, Any] = json.loads(json_text(Audit(rows, [margin("dfa")])))
    return content


_LOG = {
    "config": {"method": "dfa", "seed": 1, "n_blocks": 4, "grad_batch_size": 128, "n_test": 100, "h_0_norm": 3.0},
    "final_test_acc": 0.5,
    "log": [
        {"epoch": n, "hidden_norms": [1.0] * 5, "bp_grad_norms": [1e-4] * 5, "acc_eval": 0.4, "h_L_norm": 1.0}
        for n in (1, 2, 3)
    ],
}
_ENDINGS = {"audit": "json", "expect": "json", "control": "json", "log": "json", "lines": "jsonl", "table": "csv", "idx": "gz"}


def other(kind: str, number: int, folder: Path) -> Path:
    """The mutant of a number of another kind of file."""
    rng = random.Random(f"{kind} {number}")
    path = folder / f"{kind}_s{number}.{_ENDINGS.get(kind, 'npz' if kind == 'npz' else 'pt')}"
    if kind == "idx":
        path = folder / "t10k-images-idx3-ubyte.gz"
    plain = {
        "audit": _audit,
        "expect": lambda: rng.choice((_audit(), {"dfa": "abd", "bp": "", "dfa::seed-margin": "FIRE"})),
        "control": lambda: rng.choice((_audit(), {"dfa": 0.3, "bp": 0.2}, copy.deepcopy(_LOG))),
        "log": lambda: copy.deepcopy(_LOG),
        "lines": lambda: copy.deepcopy(_LOG),
    }.get(kind)
    if plain is None:
        path.write_bytes(damaged(rng, _bytes(kind, rng)))
        if kind == "idx":
            labels = b"\0\0\x08\x01" + (10).to_bytes(4, "big") + bytes(range(10))
            (folder / "t10k-labels-idx1-ubyte").write_bytes(labels)
        return path
    content = plain()
    if rng.random() < 0.75:
        for _ in range(rng.choice((1, 1, 2, 5))):
            _odd_field(rng, content)
    if rng.random() < 0.03:
        depth = rng.choice((500, 100_000))
        path.write_text("[" * depth + "]" * depth if rng.random() < 0.5 else '{"reports":' * depth)
        return path
    text = _text(kind, content)
    path.write_bytes(
        damaged(rng, text.encode("utf-8", "surrogatepass")) if rng.random() < 0.3 else text.encode("utf-8", "replace")
    )
    return path


def _bytes(kind: str, rng: random.Random) -> bytes:
    buffer = io.BytesIO()
    x, y = np.zeros((10, 4), np.float32), np.arange(10)
    if kind == "npz":
        odd = rng.choice((x, x.astype(object), np.zeros((10, 0)), np.float64(3), x.astype(complex), np.array(["a"] * 10)))
        (np.savez if rng.random() < 0.5 else np.savez_compressed)(buffer, x=odd, y=y if rng.random() < 0.7 else y[:3])
    elif kind == "tensors":
        odd = rng.choice(
            (torch.zeros(10, 4), torch.zeros(1).expand(10**6, 10**6), torch.empty(10, 4, device="meta"), [1], None)
        )
        torch.save({"x": odd, "y": torch.arange(10)}, buffer)
    elif kind == "idx":
        size = rng.choice((10, 10, 2**32 - 1))
        header = b"\0\0\x08" + bytes([rng.choice((3, 3, 0, 1, 255))]) + b"".join(n.to_bytes(4, "big") for n in (size, 28, 28))
        return gzip.compress(header + bytes(10 * 28 * 28))
    else:
        return b"epoch,h_0_norm,h_4_norm,g_4_norm,test_acc\n" + b"".join(b"%d,1.0,2.0,1e-4,0.5\n" % n for n in range(5))
    return buffer.getvalue()


def _text(kind: str, content: Any) -> str:
    if kind == "lines" and isinstance(content, dict) and isinstance(content.get("log"), list):
        entries = [{"config": content.get("config")}, *content["log"]]
        return "\n".join(_json(entry) for entry in entries) + "\n"
    return _json(content)


def _json(content: Any) -> str:
    """JSON as Python writes it; whole numbers beyond what it writes out are written by hand."""
    huge = 10**400
    return json.dumps(content, default=str).replace(str(huge), "1" + "0" * 400)


def _odd_field(rng: random.Random, content: Any) -> None:
    """Put an odd value somewhere in a document, or take something out of it."""
    holder, key = None, None
    value = content
    while isinstance(value, (dict, list)) and value and (holder is None or rng.random() < 0.8):
        holder = value
        key = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
        value = value[key]
    if holder is None:
        return
    how = rng.random()
    if how < 0.15:
        del holder[key]
    elif how < 0.25 and isinstance(holder, dict):
        holder[rng.choice(("", "x" * 5000, "\x1b[2J", "shard", "h_999999999_norm", "epoch", "companions"))] = rng.choice(ODD)
    elif how < 0.3 and isinstance(value, list):
        holder[key] = value * rng.choice((2, 3000))
    else:
        holder[key] = copy.deepcopy(rng.choice(ODD))
