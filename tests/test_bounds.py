"""Small files that would eat the machine are errors before memory or time is spent; names are data wherever they are shown."""

from __future__ import annotations

import json
import time
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from builders import healthy, row
from support import network

from pytest_fadiag.judge.errors import AuditError
from pytest_fadiag.judge.limits import read_bytes
from pytest_fadiag.judge.names import LONGEST_METHOD
from pytest_fadiag.load.checkpoints import load_checkpoint
from pytest_fadiag.load.identity import identify
from pytest_fadiag.load.logs import read_log
from pytest_fadiag.load.networks import build_network
from pytest_fadiag.show.audit import Audit
from pytest_fadiag.show.document import audit_of, document, json_text
from pytest_fadiag.show.markdown import markdown
from pytest_fadiag.show.printable import cells, shortened
from pytest_fadiag.show.table import render

STATE = network().state_dict()


def refused(path: Path, state: dict[str, Any], said: str, **config: Any) -> None:
    torch.save({"state_dict": {**STATE, **state}, "config": config}, path)
    began = time.process_time()
    with pytest.raises(AuditError, match=said):
        build_network(load_checkpoint(path))
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("name", "tensor", "said"),
    [
        ("blocks.50000000.fc1.weight", torch.zeros(2, 2), "block 4 is missing: the file has tensors of blocks 0, 1, 2, 3, 500"),
        (f"blocks.{'9' * 5000}.fc1.weight", torch.zeros(2, 2), "not in the network: blocks.999"),
        ("embed.weight", torch.zeros(1).expand(30_000, 30_000), "embed.weight makes 3,600,000,000 bytes of 4 by repeating"),
        ("embed.weight", torch.zeros(1).expand(10**6, 10**6), "by repeating them"),
        ("embed.weight", torch.zeros(0, 0), r"embed.weight has shape \(0, 0\), expected a matrix"),
        ("embed.weight", torch.tensor(1.0), r"embed.weight has shape \(\), expected a matrix"),
        ("blocks.0.fc1.weight", torch.tensor(1.0), "blocks.0.fc1.weight is a single number"),
        ("blocks.0.fc1.weight", torch.zeros(10**6, 1), "misshaped: blocks.0.fc1.weight is"),
        ("out_head.weight", torch.zeros(3, 1), "misshaped: out_head.weight is"),
        ("embed.weight", torch.empty(16, 20, device="meta"), "embed.weight has a shape and no values"),
        ("embed.weight", torch.eye(16).to_sparse(), "embed.weight is sparse_coo; save plain tensors"),
        ("embed.weight", torch.zeros(16, 20).to(torch.float8_e4m3fn), "embed.weight is float8_e4m3fn"),
    ],
    ids=lambda value: None if isinstance(value, torch.Tensor) else str(value)[:30],
)
def test_a_tensor_that_no_network_is_built_from_is_named(tmp_path: Path, name: str, tensor: torch.Tensor, said: str) -> None:
    refused(tmp_path / "net.pt", {name: tensor}, said)


def test_a_compressed_archive_is_not_unpacked(tmp_path: Path) -> None:
    torch.save({"state_dict": {"embed.weight": torch.zeros(1 << 23)}}, tmp_path / "plain.pt")
    with (
        zipfile.ZipFile(tmp_path / "plain.pt") as plain,
        zipfile.ZipFile(tmp_path / "net.pt", "w", zipfile.ZIP_DEFLATED) as made,
    ):
        for record in plain.infolist():
            made.writestr(record.filename, plain.read(record))
    with pytest.raises(AuditError, match="would unpack to 33,5"):
        load_checkpoint(tmp_path / "net.pt")


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"method": "dfa", "seed": float("inf")}, ("dfa", None)),
        ({"method": "dfa", "seed": float("nan")}, ("dfa", None)),
        ({"method": "dfa", "seed": 10**400}, ("dfa", None)),
        ({"method": "dfa", "seed": torch.tensor([1, 2])}, ("dfa", None)),
        ({"method": "dfa", "seed": torch.tensor(7)}, ("dfa", 7)),
        ({"method": torch.tensor([1, 2])}, ("net", 1)),
        ({"method": "dfa", "frozen": torch.tensor([1, 2]), "seed": 3}, ("dfa", 3)),
        ({"method": "a\x1b[2J\n===== 8 passed ====="}, ("a\\x1b[2J\\n===== 8 passed =====", 1)),
    ],
)
def test_a_config_of_odd_values_names_what_it_can(config: dict[str, Any], expected: tuple[str, int | None]) -> None:
    assert identify(Path("net_s1.pt"), config) == expected


def test_a_name_without_an_end_is_refused() -> None:
    with pytest.raises(AuditError, match=r"net.pt: the method's name has 300,000 characters, and at most 500 make a name: xxx"):
        identify(Path("net.pt"), {"method": "x" * 300_000})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            {"config": {"n_blocks": 10**12}, "log": [{"epoch": 1, "h_L_norm": 3.0}]},
            "n_blocks is 1,000,000,000,000, and",
        ),
        ({"config": {"n_blocks": 10**400}, "log": [{"epoch": 1, "h_L_norm": 3.0}]}, "n_blocks is a number of many digits"),
        ({"log": [{"epoch": 1, "h_999999999_norm": 3.0}]}, "a norm of layer 999,999,999, and at most 10,000 layers are read"),
        ({"log": [{"epoch": 10**30, "h_L_norm": 3.0}]}, "epoch is a number of many digits"),
        ({"log": [{"epoch": 1, "hidden_norms": [1.0] * 10_001}]}, "hidden_norms has 10,001 entries, and at most 10,000"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_log_of_more_layers_than_there_are_is_refused(tmp_path: Path, content: dict[str, Any], said: str) -> None:
    (tmp_path / "log.json").write_text(json.dumps(content))
    with pytest.raises(AuditError, match=said):
        read_log(tmp_path / "log.json")


def test_of_a_log_with_very_many_lines_evenly_chosen_ones_are_judged_and_it_says_so(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    lines = [json.dumps({"epoch": epoch, "hidden_norms": [1.0, 2.0], "acc_eval": 0.5}) for epoch in range(60_000)]
    path.write_text("\n".join(lines))
    began = time.process_time()
    log = read_log(path)
    assert time.process_time() - began < 10
    assert len(log.points) <= 5_001 and log.epochs[-1] == 59_999
    assert log.caveats == ("the log has 60,000 entries, of which one in 12 and the last are judged",)
    lines[40_001] = lines[40_000]
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(AuditError, match="line 40002: epoch 40000 is there twice"):
        read_log(path)
    path.write_text(json.dumps({"log": [json.loads(line) for line in lines[:30_000]]}))
    log = read_log(path)
    assert len(log.points) == 5_000 and "one in 6 and the last" in log.caveats[0]


def test_a_file_without_an_end_is_not_read_to_it() -> None:
    with pytest.raises(AuditError, match=r"has more than 1 MB, and no more is read\n  /dev/zero"):
        read_bytes(Path("/dev/zero"), 1 << 20)


def test_what_is_shortened_takes_no_longer_than_it_is_long() -> None:
    began = time.process_time()
    short = shortened("x測" * 500_000, 20)
    assert time.process_time() - began < 0.5
    assert short.endswith("…") and cells(short) <= 20
    assert shortened("abc", 3) == "abc" and shortened("測試", 3) == "測…" and shortened("e\u0301" * 9, 9) == "e\u0301" * 9


def test_an_audit_of_thousands_of_rows_is_rendered() -> None:
    audit = Audit([row(healthy(f"m{number % 100}", number)) for number in range(1_000)])
    began = time.process_time()
    for made in (render(audit, 120), markdown(audit), json_text(audit)):
        assert len(made) > 1_000
    few = time.process_time() - began
    again = audit_of(document(audit, "0"))
    assert len(again.rows) == 1_000
    assert few < 8, "a tenth of ten thousand, which takes ten times as long: nothing of it is quadratic"


@pytest.mark.parametrize("name", ["checkpoint", "method"])
def test_an_audit_with_names_of_control_characters_is_read_with_escapes(name: str) -> None:
    plain = document(Audit([row(healthy())]), "0")
    hostile = "x\x1b[1A\n===== 8 passed =====\u202e"
    if name == "checkpoint":
        plain["reports"] = {hostile: next(iter(plain["reports"].values()))}
    for report in plain["reports"].values():
        report["method_name"] = hostile if name == "method" else report["method_name"]
    plain["summary"][0][name] = hostile
    (read,) = audit_of(plain).rows
    assert getattr(read, name) == "x\\x1b[1A\\n===== 8 passed =====\\u202e"
    assert read.report is not None and str(read.report).replace("\n", "").isprintable()


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (
            lambda plain: plain["summary"][0].update(checkpoint="x" * 10_000_000),
            "a report of|has 10,000,000 char",
        ),
        (lambda plain: plain["summary"][0].update(method="x" * (LONGEST_METHOD + 1)), "not those of its report|characters"),
        (lambda plain: next(iter(plain["reports"].values())).update(residual_norms=[1.0] * 100_000), "at most 10,000 layers"),
        (lambda plain: plain.update(shard=[1]), "shard"),
        (lambda plain: next(iter(plain["reports"].values())).update(headline_acc=10**400), "headline_acc"),
        (lambda plain: next(iter(plain["reports"].values()))["accuracy"].update(images=10**12, correct="00"), "hexadecimal"),
    ],
)
def test_an_audit_larger_than_any_is_refused(edit: Any, said: str) -> None:
    plain = json.loads(json_text(Audit([row(healthy())])))
    edit(plain)
    tracemalloc.start()
    began = time.process_time()
    with pytest.raises(AuditError, match=said):
        audit_of(plain)
    assert time.process_time() - began < 2 and tracemalloc.get_traced_memory()[1] < 1 << 28
    tracemalloc.stop()


def test_a_table_without_an_epoch_in_any_row_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("epoch,h_4_norm\n,1.0\n,2.0\n")
    with pytest.raises(AuditError, match=r"the log holds no epoch: no row of it counts one\n  .*log.csv"):
        read_log(tmp_path / "log.csv")
