"""The shipped fixtures are the files that the manifest names, each a finished training by its command."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import torch
import train

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "fixtures"
FILES = json.loads((FIXTURES / "MANIFEST.json").read_text(encoding="utf-8"))["files"]
CHECKPOINTS = [name for name in FILES if name.endswith(".pt")]


def test_every_file_is_as_the_manifest_says():
    for name, entry in FILES.items():
        assert hashlib.sha256((FIXTURES / name).read_bytes()).hexdigest() == entry["sha256"], name
    shipped = {path.relative_to(FIXTURES).as_posix() for path in (FIXTURES / "checkpoints").iterdir()}
    assert shipped == {name for name in FILES if name.startswith("checkpoints/")}


def test_seven_methods_and_six_controls_with_three_seeds_fit_in_twenty_megabytes():
    assert len(CHECKPOINTS) == (7 + 6) * 3
    assert sum((FIXTURES / name).stat().st_size for name in FILES) < 20e6


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_checkpoint_agrees_with_its_command_its_name_and_its_log(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    settings, _ = train.settings_from(FILES[name]["command"].split()[2:])
    content = torch.load(FIXTURES / name, weights_only=True)
    config = content["config"]
    frozen = "frozen_" if config["frozen"] else ""
    assert name == f"checkpoints/{frozen}{config['method']}_s{config['seed']}.pt"
    assert {key: config[key] for key in ("method", "seed", "frozen", "d", "epochs", "lam")} == {
        "method": settings.name,
        **{key: getattr(settings, key) for key in ("seed", "frozen", "d", "epochs", "lam")},
    }
    log = [json.loads(line) for line in (FIXTURES / f"{name}.log.jsonl").read_text(encoding="utf-8").splitlines()]
    every = settings.log_every
    log = [entry for entry in log if "epoch" in entry]  # a log of the recorder begins with a header
    assert [entry["epoch"] for entry in log] == list(range(every, settings.epochs + 1, every))
    assert log[-1]["acc_eval"] == content["test_acc"] == FILES[name]["test_acc"]
