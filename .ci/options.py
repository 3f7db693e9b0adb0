"""Write docs/options.md from the option table; tests/test_docs.py compares the two."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "options.md"
ROLES = {
    "names": "What is audited",
    "measures": "How it is measured",
    "judges": "How it is judged",
    "shows": "What is written",
}
HEAD = """# Options

Marker beats command line beats ini file beats default. `fadiag audit` takes the same options, with or without the
prefix `--fa-`. Every option has an ini twin, `fa_batch_size` for `--fa-batch-size`, unless it says otherwise.
"""


EXAMPLES = {
    "checkpoint": "'runs/*_s*.pt'",
    "log": "'results/*.json'",
    "trace": "'traces/*.npz'",
    "seeds": "42,123,456",
    "missing": "skip",
    "memory": "8",
    "shard": "2/8",
    "model": "mylab.models:build",
    "stream": "'blocks.* -> out_ln'",
    "data": "cifar10:data",
    "train": "auto",
    "state-key": "agents.policy",
    "loss": "mse",
    "task": "regression",
    "forward": "mylab.models:logits",
    "normalize": "0.5,0.5,0.5/0.25,0.25,0.25",
    "batch-size": "64",
    "frozen": "'runs/frozen_*.pt'",
    "bp": "'runs/bp_s*.pt'",
    "credit": "mylab.rules:credit",
    "step": "mylab.rules:step",
    "device": "cuda:1",
    "threads": "4",
    "log-batch": "1024",
    "log-columns": "epoch=step,acc_eval=val/acc",
    "diagnostics": "abcd",
    "protocol": "three",
    "threshold": "margin_pp=1.0",
    "expect": "expected.json",
    "report": "html:audit.html",
}


def _escaped(text: str) -> str:
    """Text in which Markdown finds no markup, but for code in backticks."""
    return re.sub(r"([*_<>\[\]])", r"\\\1", text)


def page() -> str:
    """The page as it should be."""
    from pytest_fadiag.options import OPTIONS

    parts = [HEAD]
    for role, title in ROLES.items():
        parts.append(f"## {title}\n")
        for option in (option for option in OPTIONS if option.role == role):
            star = "" if option.ini else " (no ini twin)"
            value = "" if option.flag else f"={option.metavar}"
            example = EXAMPLES[option.name] if not option.flag else ""
            parts.append(
                f"### {option.name}\n\n`--fa-{option.name}{value}`{star}\n\n{_escaped(option.help)}\n"
            )
            if example:
                parts.append(f"    --fa-{option.name}={example}\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
