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
prefix `--fa-`. Every option has an ini twin, `fa_batch_size` for `--fa-batch-size`, except those marked \\*.
"""


def page() -> str:
    """The page as it should be."""
    from pytest_fadiag.options import OPTIONS

    parts = [HEAD]
    for role, title in ROLES.items():
        parts.append(f"## {title}\n\n| option | |\n| --- | --- |")
        for option in (option for option in OPTIONS if option.role == role):
            spelled = f"--fa-{option.name}" + ("" if option.flag else f"={option.metavar}")
            star = "" if option.ini else " \\*"
            cells = (f"`{spelled}`{star}", option.help)
            parts.append("| " + " | ".join(re.sub(r"\|", r"\\|", cell) for cell in cells) + " |")
        parts.append("")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
