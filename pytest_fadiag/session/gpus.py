"""Which GPUs this run may use, counted without torch."""

from __future__ import annotations

import os
import shutil
import subprocess


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
