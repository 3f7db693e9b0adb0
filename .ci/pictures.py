"""Write the pictures of the documentation from an audit of the shipped checkpoints: `make hero` does it.

python .ci/pictures.py build/audit.json
"""

from __future__ import annotations

import html
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from pytest_fadiag import read_audit
from pytest_fadiag.show.audit import Audit
from pytest_fadiag.show.charts import charts_for
from pytest_fadiag.show.page import page
from pytest_fadiag.show.svg import svg
from pytest_fadiag.show.table import lines

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
INK = {"": "#e6edf3", "bold": "#ffffff", "red": "#ff7b72", "green": "#56d364", "yellow": "#d9a53a"}
SHOWN = ("bp_s42.pt", "dfa_s42.pt")
"""A healthy and a hollow network."""


def terminal(audit: Audit, width: int = 100) -> str:
    """What a terminal shows, as an SVG of text."""
    rows = lines(audit, width)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width * 8 + 32} {len(rows) * 18 + 30}">'
        '<rect width="100%" height="100%" rx="8" fill="#0d1117"/>'
        '<g font-family="ui-monospace, Menlo, Consolas, monospace" font-size="13">'
    ]
    for number, row in enumerate(rows):
        column = 0
        for text, look in row:
            weight = ' font-weight="700"' if look == "bold" else ""
            parts.append(
                f'<text x="{16 + 8 * column}" y="{28 + 18 * number}" fill="{INK[look]}"{weight}>'
                f"{html.escape(text).replace(chr(32), chr(160))}</text>"
            )
            column += len(text)
    return "".join([*parts, "</g></svg>"])


def main() -> None:
    audit = read_audit(Path(sys.argv[1]))
    IMAGES.mkdir(exist_ok=True)
    pair = [row for row in audit.measured if row.checkpoint.endswith(SHOWN)]
    for diagnostic in audit.diagnostics:
        for chart in charts_for(pair, diagnostic)[:1]:
            drawn = svg(chart).replace(
                "<svg ", '<svg xmlns="http://www.w3.org/2000/svg" color="#7d8590" '
            )
            (IMAGES / f"{diagnostic.name}.svg").write_text(drawn, "utf-8")
    hollow = Audit(tuple(pair[1:]), origin=audit.origin)
    (IMAGES / "terminal.svg").write_text(terminal(hollow), "utf-8")
    (IMAGES / "terminal-several.svg").write_text(
        terminal(Audit(audit.rows[:9], audit.margins[:3])), "utf-8"
    )
    chromium = shutil.which("chromium")
    if chromium is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.html"
        file.write_text(page(hollow), "utf-8")
        words = ["--headless=new", "--no-sandbox", "--hide-scrollbars", "--window-size=1280,1240"]
        target = IMAGES / "page.png"
        subprocess.run([chromium, *words, f"--screenshot={target}", file.as_uri()], check=True)


if __name__ == "__main__":
    main()
