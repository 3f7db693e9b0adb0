"""Which GPUs this run may use, counted without torch."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest


def visible_gpus() -> list[str]:
    """The entries of ``CUDA_VISIBLE_DEVICES`` as they stand (ordinals, UUIDs, MIG names), else what nvidia-smi lists."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        entries = [entry.strip() for entry in given.split(",") if entry.strip()]
        # As CUDA reads the list: -1 hides itself and everything behind it.
        return entries[: entries.index("-1")] if "-1" in entries else entries
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    try:
        listed = subprocess.run([program, "-L"], capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [str(number) for number, _ in enumerate(line for line in listed.splitlines() if line.startswith("GPU "))]


def auto_workers(config: pytest.Config) -> int | None:
    """As many workers as GPUs for an audit; otherwise xdist's own answer."""
    if os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS"):
        return None
    asked = config.getoption("fa_checkpoint", None) or config.getini("fa_checkpoint")  # logs and merged audits need no GPU
    return (len(visible_gpus()) or None) if asked else None
