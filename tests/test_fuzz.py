"""Damaged and forged files end in an AuditError and never run code; ``make fuzz`` tries more."""

from __future__ import annotations

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
from safetensors.torch import save
from support import network

from pytest_fadiag.judge.errors import AuditError
from pytest_fadiag.load.checkpoint import load_checkpoint
from pytest_fadiag.load.data import load_data
from pytest_fadiag.load.logs import read_log
from pytest_fadiag.load.network import build_network
from pytest_fadiag.show.audit import Audit, Row
from pytest_fadiag.show.json import json_text, read_audit

pytestmark = pytest.mark.fuzz
RUN = "import os; os.environ['FADIAG_RAN'] = 'yes'"
tries = settings(
    max_examples=int(os.environ.get("FADIAG_EXAMPLES", "60")),
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


STATE = network(d=4, blocks=1).state_dict()
ARRAYS = io.BytesIO()
np.savez(ARRAYS, x=np.zeros((4, 3), np.float32), y=np.arange(4))
LOG = {"config": {"n_blocks": 2}, "log": [{"epoch": 1, "h_0_norm": 9, "h_L_norm": 1}]}
FILES = {
    "net_s1.pt": written({"state_dict": STATE, "config": {"method": "net"}, "test_acc": 0.5}),
    "old_s1.pt": written(STATE, _use_new_zipfile_serialization=False),
    "net_s1.safetensors": save(STATE),
    "data.npz": ARRAYS.getvalue(),
    "log_s1.json": json.dumps(LOG).encode(),
    "audit.json": json_text(Audit((Row("net_s1.pt", "net", 1, healthy()),))).encode(),
}


def read(path: Path) -> None:
    """Read a file as an audit would."""
    if path.name == "audit.json":
        read_audit(path)
    elif path.suffix == ".json":
        read_log(path).report(0.5)
    elif path.suffix == ".npz":
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
    content = bytearray(FILES[name])
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
