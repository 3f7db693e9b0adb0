"""What each worker sees of GPUs and cores, by real runs; counting them needs neither torch nor a GPU."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from execnet.xspec import XSpec
from workers.small_repo import WorkerRepo

from pytest_fadiag.session.dist import prepare_workers, visible_gpus


def fake_nvidia_smi(folder: Path, lines: str, code: int = 0) -> str:
    """A PATH on which nvidia-smi prints these lines."""
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{lines}END\nexit {code}\n")
    program.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def listed(gpus: int) -> str:
    return "".join(f"GPU {number}: NVIDIA A100-SXM4-40GB (UUID: GPU-{number:08x})\n" for number in range(gpus))


@pytest.mark.parametrize(
    ("given", "gpus"),
    [
        ("3,5", ["3", "5"]),
        ("GPU-8f6e, MIG-2a1b", ["GPU-8f6e", "MIG-2a1b"]),
        ("MIG-GPU-8f6e/1/0,MIG-GPU-8f6e/2/0", ["MIG-GPU-8f6e/1/0", "MIG-GPU-8f6e/2/0"]),
        ("", []),
        ("-1", []),
        ("0,-1,1", ["0"]),
    ],
)
def test_gpus_are_read_off_the_environment(monkeypatch: pytest.MonkeyPatch, given: str, gpus: list[str]) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    assert visible_gpus() == gpus


@pytest.mark.parametrize(
    ("lines", "code", "gpus"),
    [
        (listed(3), 0, ["0", "1", "2"]),
        ("GPU 0: A100 (UUID: GPU-1)\n  MIG 3g.20gb Device 0: (UUID: MIG-1)\n", 0, ["0"]),
        ("No devices found.\n", 0, []),
        (listed(1), 9, []),
    ],
    ids=["three", "one with MIG", "none", "a broken driver"],
)
def test_gpus_are_counted_by_nvidia_smi(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lines: str, code: int, gpus: list[str]
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", fake_nvidia_smi(tmp_path, lines, code))
    assert visible_gpus() == gpus


@pytest.mark.parametrize(
    ("workers", "visible", "expected"),
    [
        (2, "3,5", ["3", "5"]),
        (3, "GPU-8f6e,MIG-2a1b", ["GPU-8f6e", "MIG-2a1b", "GPU-8f6e"]),
        (2, "", ["", ""]),
        (2, "-1", ["-1", "-1"]),
        (2, "0,-1,1", ["0", "0"]),
    ],
    ids=["ordinals", "UUIDs, fewer than workers", "empty", "hidden", "hidden from the second on"],
)
def test_each_worker_is_given_one_entry_of_the_callers_list(
    monkeypatch: pytest.MonkeyPatch, workers: int, visible: str, expected: list[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    specs = [XSpec("popen") for _ in range(workers)]
    prepare_workers(specs)
    assert [spec.env.get("CUDA_VISIBLE_DEVICES", visible) for spec in specs] == expected  # what is not given is inherited


@pytest.mark.parametrize(("cores", "workers", "share"), [(16, 2, "8"), (16, 3, "5"), (2, 3, "1")])
def test_cores_are_shared_out_where_nobody_set_them(
    monkeypatch: pytest.MonkeyPatch, cores: int, workers: int, share: str
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    specs = [XSpec("popen"), XSpec("popen//env:OMP_NUM_THREADS=3"), XSpec("popen")][:workers]
    prepare_workers(specs)
    assert [spec.env["OMP_NUM_THREADS"] for spec in specs] == [share, "3", share][:workers]


def test_each_worker_sees_its_entry_and_a_replaced_one_that_of_the_dead(repo: WorkerRepo) -> None:
    visible = "GPU-8f6e,MIG-2a1b,5,-1,7"
    repo.run("-n", "3", CUDA_VISIBLE_DEVICES=visible, KILLS="setup net_s0.pt::residual-growth,setup net_s1.pt::residual-growth")
    given = {"gw0": "GPU-8f6e", "gw1": "MIG-2a1b", "gw2": "5"}
    alive = repo.gpus()
    dead = given.keys() - alive.keys()
    assert len(dead) == 2 and alive.keys() - given.keys() == {"gw3", "gw4"}
    assert {name: gpu for name, gpu in alive.items() if name in given} == {name: given[name] for name in given.keys() - dead}
    assert sorted([str(alive["gw3"]), str(alive["gw4"])]) == sorted(given[name] for name in dead)
    assert repo.seen["controller"] == (visible, os.environ["OMP_NUM_THREADS"], False)


def test_auto_is_the_number_of_gpus(repo: WorkerRepo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    result = repo.run("-n", "auto", PATH=fake_nvidia_smi(tmp_path, listed(3)))
    assert "3 workers" in result.stdout
    share = str(max(1, (os.cpu_count() or 1) // 3))
    workers = {f"gw{number}": (str(number), share, False) for number in range(3)}
    assert repo.seen == {**workers, "controller": (None, None, False)}


def test_the_environment_that_the_user_gave_a_worker_stays(repo: WorkerRepo, tmp_path: Path) -> None:
    path = fake_nvidia_smi(tmp_path, listed(2))
    result = repo.run("-d", "--tx", "2*popen//env:CUDA_VISIBLE_DEVICES=7//env:OMP_NUM_THREADS=3", "-v", PATH=path)
    assert "scheduling tests via CheckpointScheduling" in result.stdout, "-d switches --tx on and chooses nothing"
    assert repo.seen == {"gw0": ("7", "3", False), "gw1": ("7", "3", False), "controller": (None, "1", False)}
