"""The networks of the field as traces, and a certificate of their audit that ``fadiag verify`` accepts.

python -m examples.field drtp --folder runs/field --data … --traces runs/traces
python -m examples.field.certificates runs/traces runs/certificates.tar
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from pytest_fadiag import save_trace
from pytest_fadiag.measure.run import NetworkSource
from pytest_fadiag.measure.task import Task

SAMPLES = 1_280
"""As many as gradients are measured on."""
Call = tuple[Any, Any, dict[str, Any]]
"""A network, its test batches, and the options of ``diagnose``."""


def arrays(call: Call) -> dict[str, Any]:
    """Outputs, states and gradients of the first test samples."""
    model, batches, options = call
    x, y = (torch.cat(part)[:SAMPLES] for part in zip(*batches, strict=True))
    source = NetworkSource(
        model,
        list(zip(x.split(128), y.split(128), strict=True)),
        task=Task(loss=options.get("loss")),
        forward=options.get("forward"),
        stream=options.get("stream"),
    )
    parts = list(source.batches(frozenset({"outputs", "states", "gradients", "error"})))
    layers = range(len(parts[0].states))

    def joined(tensors: Sequence[torch.Tensor]) -> Any:
        return torch.cat([tensor.flatten(1) for tensor in tensors]).float().numpy()

    return {
        "outputs": joined([part.outputs for part in parts]),
        "y": y.numpy(),
        "e": joined([part.error.whole for part in parts]),
        "h": [joined([part.states[layer] for part in parts]) for layer in layers],
        "g": [
            joined([part.gradients[layer].flatten(1) * part.error.norms[:, None] for part in parts])
            for layer in layers
        ],
        "x": x.flatten(1).numpy(),
    }


def write(path: Path, calls: Sequence[Call], method: str, seed: int) -> None:
    """The trace of a network, with the outputs of its control, which comes second.

    None for tokens, nor for a loss of its own, which a trace cannot name.
    """
    loss = calls[0][2].get("loss") or "ce"
    if not isinstance(loss, str) or calls[0][1][0][1].dim() > 1:
        return
    found = arrays(calls[0]) | {"loss": loss}
    if len(calls) > 1:
        found["control_outputs"] = arrays(calls[1])["outputs"]
    path.parent.mkdir(parents=True, exist_ok=True)
    save_trace(path, **found, method=method, seed=seed)


def main() -> None:
    """Audit the traces of a folder, and put them and the certificate into one archive."""
    traces, archive = Path(sys.argv[1]), Path(sys.argv[2])
    certificate = traces / "certificate"
    paths = map(str, sorted(traces.glob("*.npz")))
    command = [sys.executable, "-m", "pytest_fadiag", "audit", *paths, "-q", "--tb=no"]
    command += ["--rootdir", str(traces), "--report", f"certificate:{certificate.absolute()}"]
    subprocess.run(command, check=False)  # a network that fails is certified too
    with tarfile.open(archive, "w") as tar:
        for path in [*sorted(traces.glob("*.npz")), certificate]:
            tar.add(path, path.name)
    print(f"{archive}: unpack it, then fadiag verify certificate --root .")


if __name__ == "__main__":
    main()
