"""Write the table and the failing report of the README, and the documentation's page of options, from what they document.

python .ci/readme.py           # rewrite README.md and docs/options.md
python .ci/readme.py --check   # exit 1 if one of them is out of date, numbers to the rounding of another machine
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTEST = [sys.executable, "-m", "pytest", "-o", "fa_expect=", "--color=no", "-p", "no:cacheprovider"]


def shell(*arguments: str) -> str:
    environment = {**os.environ, "COLUMNS": "100", "PYTHONIOENCODING": "utf-8"}
    environment.pop("CI", None)
    done = subprocess.run([*PYTEST, *arguments], cwd=ROOT, capture_output=True, text=True, env=environment, check=False)
    return done.stdout


def table() -> str:
    names = [f"fixtures/checkpoints/{method}_s{seed}.pt" for method in ("bp", "dfa", "dfa-lam") for seed in (42, 123, 456)]
    lines = shell("--tb=no", "-rN", *names).splitlines()
    start = next(i for i, line in enumerate(lines) if " FA audit " in line)
    end = next(i for i, line in enumerate(lines) if line.startswith("FA audit of"))
    command = "$ pytest -o fa_expect= fixtures/checkpoints/{bp,dfa,dfa-lam}_s*.pt"
    return "\n".join(["```", command, *lines[start : end + 1], "```"])


def report() -> str:
    chosen = "--fa-diagnostics=ade"  # the whole report is in the documentation: a README has little room
    lines = shell("-rN", "-q", chosen, "fixtures/checkpoints/dfa_s42.pt::depth-utility").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("FA diagnostic report"))
    end = next(i for i, line in enumerate(lines) if line.startswith("VERDICT"))
    return "\n".join(
        [
            "```",
            f"$ pytest -o fa_expect= {chosen} fixtures/checkpoints/dfa_s42.pt::depth-utility",
            *lines[start : end + 1],
            "```",
        ]
    )


def options() -> str:
    from pytest_fadiag.session.options import OPTIONS

    rows = ["| option | ini | |", "| --- | --- | --- |"]
    for option in OPTIONS:
        value = "" if option.flag else f"={option.metavar}"
        ini = f"`{option.key}`" if option.ini else ""
        rows.append(f"| `--fa-{option.name}{value}` | {ini} | {option.help} |".replace("|cumulative", "\\|cumulative"))
    return "\n".join(re.sub(r"(?<=[A-Za-z_])\|(?=[A-Za-z])", r"\\|", row) for row in rows)


PARTS = {"README.md": {"table": table, "report": report}, "docs/options.md": {"options": options}}
"""What is written into which file, between the comments of that name."""


NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]\d+)?")


def agrees(shown: str, now: str) -> bool:
    """Whether two texts say the same: words exactly, numbers to two units of their last digit, since processors differ."""
    if NUMBER.sub("#", shown).split() != NUMBER.sub("#", now).split():
        return False
    pairs = zip(NUMBER.findall(shown), NUMBER.findall(now), strict=True)
    return all(a == b or abs(Decimal(a) - Decimal(b)) <= 2 * max(_unit(a), _unit(b)) for a, b in pairs)


def _unit(number: str) -> Decimal:
    """One of the last digit of a measured number; counts and seeds are exact."""
    exact = len(number) < 3 and number.isdecimal()
    return Decimal(0) if exact else Decimal(1).scaleb(int(Decimal(number).as_tuple().exponent))


def main() -> None:
    stale = []
    for name, parts in PARTS.items():
        path = ROOT / name
        before = text = path.read_text("utf-8")
        for part, make in parts.items():
            pattern = re.compile(rf"(<!-- {part}\b.*?-->\n).*?(<!-- /{part} -->)", re.DOTALL)
            text = pattern.sub(lambda found, made=make: f"{found[1]}{made()}\n{found[2]}", text)  # type: ignore[misc]
        if not agrees(before, text):
            stale.append(name)
        if "--check" not in sys.argv[1:]:
            path.write_text(text, "utf-8")
    if "--check" in sys.argv[1:] and stale:
        sys.exit(f"{', '.join(stale)} out of date: run python .ci/readme.py")


if __name__ == "__main__":
    main()
