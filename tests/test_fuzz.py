"""Damaged and forged files end in an AuditError and never run code; ``make fuzz`` tries more."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from builders import healthy
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from PIL import Image
from safetensors.numpy import save as save_arrays
from safetensors.torch import save
from support import network

from pytest_fadiag.cache import Cache
from pytest_fadiag.judge.errors import AuditError
from pytest_fadiag.load.checkpoint import load_checkpoint
from pytest_fadiag.load.data import load_data
from pytest_fadiag.load.logs import read_log
from pytest_fadiag.load.network import build_network
from pytest_fadiag.load.readers import read_cifar10, read_idx, read_images
from pytest_fadiag.load.traces import read_trace
from pytest_fadiag.measure.traces import measure_trace
from pytest_fadiag.show.audit import Audit, Origin, Row
from pytest_fadiag.show.combine import combine, margins_of
from pytest_fadiag.show.json import json_text, read_audit
from pytest_fadiag.show.markdown import markdown
from pytest_fadiag.show.page import page
from pytest_fadiag.show.table import table
from pytest_fadiag.verify import Certificate, Files

pytestmark = pytest.mark.fuzz
RUN = "import os; os.environ['FADIAG_RAN'] = 'yes'"
tries = settings(
    max_examples=int(os.environ.get("FADIAG_EXAMPLES", "30")),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


class Bomb:
    """A pickle that runs a function when it is read."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return exec, (RUN,)


def written(content: Any, **options: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer, **options)
    return buffer.getvalue()


def arrays(**values: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **values)
    return buffer.getvalue()


def image() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (3, 2)).save(buffer, "PNG")
    return buffer.getvalue()


def certificate() -> bytes:
    rows = tuple(
        Row(f"net_s{seed}.pt", "net", seed, healthy(seed=seed), group="net") for seed in (1, 2)
    )
    origin = Origin(created="2026", files={"a_s1.pt": "0" * 64}, options={"data": ("data.npz",)})
    return json_text(Audit(rows, margins_of(rows, {}), (1, 1), origin)).encode()


STATE = network(d=4, blocks=1).state_dict()
LOG = {"config": {"n_blocks": 2}, "log": [{"epoch": 1, "h_0_norm": 9, "h_L_norm": 1}]}
EPOCHS = "".join(f'{{"epoch": {epoch}, "h_0_norm": 9, "h_L_norm": 1}}\n' for epoch in (1, 2))
LABELS = np.arange(256) % 2
LOGITS = np.random.default_rng(0).normal(size=(256, 2)).astype(np.float32)
SHARES = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
ERROR = (SHARES - np.eye(2)[LABELS]).astype(np.float32)
TRACE = {"outputs": LOGITS, "y": LABELS, "e": ERROR}
TRACE |= {"h_0": LOGITS, "h_1": LOGITS, "g_0": ERROR, "g_1": ERROR}
ENTRY = {"metrics": ["states"], "residual_norms": [1.0, 2.0]}
IDX = b"\0\0\x08\x03\0\0\0\2\0\0\0\2\0\0\0\2" + bytes(8)
BATCH = pickle.dumps({"data": np.zeros((2, 3072), np.uint8), "labels": [0, 1]}, 2)
FILES = {
    "net_s1.pt": written({"state_dict": STATE, "config": {"method": "net"}, "test_acc": 0.5}),
    "old_s1.pt": written(STATE, _use_new_zipfile_serialization=False),
    "net_s1.safetensors": save(STATE),
    "data.npz": arrays(x=np.zeros((4, 3), np.float32), y=np.arange(4)),
    "data.pt": written({"x": torch.zeros(4, 3), "y": torch.arange(4)}),
    "images-idx3": IDX,
    "images-idx3.gz": gzip.compress(IDX),
    "test_batch": BATCH,
    "image.png": image(),
    "trace.npz": arrays(**TRACE),
    "trace.safetensors": save_arrays(TRACE, {"method": "net", "seed": "1"}),
    "log_s1.json": json.dumps(LOG).encode(),
    "log_s1.jsonl": EPOCHS.encode(),
    "log_s1.csv": b"epoch,h_0_norm,h_L_norm,acc\n1,9,1,0.5\n2,9,2,0.6\n",
    "audit.json": certificate(),
    "entry.json": b"",
}


def read(path: Path) -> None:
    """Read a file as an audit would."""
    if path.name == "entry.json":
        assert Cache(path.parent).get("entry") in (None, ENTRY)
    elif path.name == "audit.json":
        audit = read_audit(path)
        table(combine([audit, audit]))
        page(audit)
        markdown(audit)
        certified = Certificate.read(path)
        certified.data([path.parent])
        [*certified.other_margins(), *certified.contradicted_by({"stream": "x"})]
        Files(certified.origin, [path.parent]).controls(certified, None)
    elif path.name.startswith("trace"):
        arrays = read_trace(path)
        measure_trace(arrays, ["states", "gradients"])
    elif path.name.startswith("images"):
        read_idx(path.read_bytes(), path)
    elif path.name == "test_batch":
        read_cifar10(path.read_bytes(), path)
    elif path.name == "image.png":
        read_images({path: path.read_bytes()})
    elif path.name.startswith("log"):
        read_log(path).report(0.5)
    elif path.name.startswith("data"):
        load_data(str(path))
    else:
        build_network(load_checkpoint(path))


@pytest.mark.parametrize("name", FILES)
@tries
@given(
    changes=st.lists(
        st.tuples(st.floats(0, 1), st.integers(0, 3), st.binary(max_size=8)), max_size=4
    )
)
@example(changes=[])
def test_a_damaged_file_is_refused_or_read(name: str, changes: list[Any], tmp_path: Path) -> None:
    Cache(tmp_path).put("entry", ENTRY)
    (tmp_path / "data.npz").write_bytes(FILES["data.npz"])  # which the certificate names
    content = bytearray(FILES[name] or (tmp_path / name).read_bytes())
    for place, kind, new in changes:
        at = int(place * len(content))
        stop = (at, at + len(new), at + 64, len(content))[
            kind
        ]  # insert, replace, cut out, truncate
        content[at:stop] = new
    (tmp_path / name).write_bytes(content)
    try:
        read(tmp_path / name)
    except AuditError:
        assert changes
    assert "FADIAG_RAN" not in os.environ


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("form", ["zip", "legacy", "bare"])
def test_a_pickle_that_would_run_code_is_refused(form: str, protocol: int, tmp_path: Path) -> None:
    content = {"state_dict": STATE, "config": {"method": Bomb()}}
    zipped = {"_use_new_zipfile_serialization": form == "zip", "pickle_protocol": protocol}
    packed = pickle.dumps(Bomb(), protocol) if form == "bare" else written(content, **zipped)
    (tmp_path / "net_s1.pt").write_bytes(packed)
    with pytest.raises(AuditError):
        read(tmp_path / "net_s1.pt")
    assert "FADIAG_RAN" not in os.environ
