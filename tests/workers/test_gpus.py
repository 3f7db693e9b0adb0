"""Which GPUs and cores each worker is given; counting them needs neither torch nor a GPU."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from execnet.xspec import XSpec

from pytest_fadiag.session.dist import Workers, visible_gpus


@pytest.mark.parametrize(
    ("given", "gpus"),
    [
        ("3,5", ["3", "5"]),
        ("GPU-8f6e, MIG-GPU-8f6e/1/0", ["GPU-8f6e", "MIG-GPU-8f6e/1/0"]),
        ("", []),
        ("-1", []),
        ("0,-1,1", ["0"]),
    ],
)
def test_gpus_are_read_off_the_environment(
    monkeypatch: pytest.MonkeyPatch, given: str, gpus: list[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    assert visible_gpus() == gpus


@pytest.mark.parametrize(
    ("lines", "code", "gpus"),
    [
        ("GPU 0: A100 (UUID: GPU-0)\nGPU 1: A100 (UUID: GPU-1)\n", 0, ["0", "1"]),
        ("GPU 0: A100 (UUID: GPU-1)\n  MIG 3g.20gb Device 0: (UUID: MIG-1)\n", 0, ["0"]),
        ("No devices found.\n", 0, []),
        ("GPU 0: A100 (UUID: GPU-0)\n", 9, []),
    ],
    ids=["two", "one with MIG", "none", "a broken driver"],
)
def test_gpus_are_counted_by_nvidia_smi(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lines: str, code: int, gpus: list[str]
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{lines}END\nexit {code}\n")
    program.chmod(0o755)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert visible_gpus() == gpus


@pytest.mark.parametrize(
    ("workers", "visible", "expected"),
    [
        (2, "3,5", ["3", "5"]),
        (3, "GPU-8f6e,MIG-2a1b", ["GPU-8f6e", "MIG-2a1b", "GPU-8f6e"]),
        (2, "-1", ["-1", "-1"]),
        (2, "0,-1,1", ["0", "0"]),
    ],
)
def test_each_worker_is_given_one_entry_of_the_callers_list(
    monkeypatch: pytest.MonkeyPatch, workers: int, visible: str, expected: list[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    specs = [XSpec("popen") for _ in range(workers)]
    elsewhere = XSpec("ssh=host")
    Workers.pytest_xdist_setupnodes([*specs, elsewhere])
    assert [
        spec.env.get("CUDA_VISIBLE_DEVICES", visible) for spec in specs
    ] == expected  # else it is inherited
    assert all(int(spec.env["OMP_NUM_THREADS"]) >= 1 for spec in specs)
    assert not elsewhere.env, "a worker elsewhere has other GPUs and cores"
