"""Write a page for each diagnostic, and llms.txt; tests/test_docs.py compares them with what is there."""

from __future__ import annotations

import re
from pathlib import Path

from pytest_fadiag.judge.diagnostics import DIAGNOSTICS, Diagnostic
from pytest_fadiag.judge.thresholds import DiagnosticThresholds
from pytest_fadiag.judge.words import limit

DOCS = Path(__file__).resolve().parent.parent / "docs"
FORMULAS = {
    "residual-growth": r"\text{growth} = \max_l \frac{\lVert h_{l+1}\rVert}{\lVert h_l\rVert}, \qquad \lVert h_l\rVert = \operatorname{median}_i \lVert h_{l,i}\rVert_2",
    "gradient-floor": r"\lVert g_L\rVert = \operatorname{median}_i \lVert g_{L,i}\rVert_2, \qquad \text{per unit of output error: } \operatorname{median}_i \frac{\lVert g_{L,i}\rVert}{\lVert e_i\rVert}",
    "direction-drift": r"\text{drift} = \operatorname{mean}_{p \neq q} \cos(\bar g_p, \bar g_q), \qquad \text{agreement} = \operatorname{mean}_{a \neq b} \langle m_a, m_b\rangle",
    "frozen-margin": r"\text{margin} = 100\,(\text{score} - \text{score of the frozen control})",
    "depth-utility": r"\text{utility} = 100\,\bigl(\text{probe}(h_L) - \text{probe}(h_0)\bigr) - \max(\text{null}, 0)",
    "credit-alignment": r"\Gamma_s = \operatorname{median}_i \cos(a_{s,i}, g_{s,i}), \qquad \text{nudge}_s = \frac{\Delta\ell(\text{step along } a_s)}{\Delta\ell(\text{step along } g_s)}",
    "linear-floor": r"\text{difference} = 100\,(\text{score} - \text{score of a linear readout of the inputs})",
}
RATES = re.compile(r"(?m)^\| \((\w)\) `[\w-]+` \|(.*)\|$")
"""The rows of the first table of docs/validation.md."""
LLMS = """# pytest-fadiag

> Audits networks trained without backpropagation: did the hidden layers learn, or only the embedding and the head?
> One verdict per network: trustworthy, incomplete, or walk back. `report.next` says what to do.

    pip install pytest-fadiag
    fadiag demo
    fadiag audit runs/*.pt --model package.module:Net --data cifar10:data --frozen 'runs/frozen_*.pt'

    from pytest_fadiag import diagnose
    report = diagnose(model, test_batches, control=0.763)
    report.verdict, report.next, report.metrics()

Rules: the network has a residual stream; test data in batches (x, y); the control is the same network trained with
frozen random blocks. A test that was not measured is never a pass. Exit codes are pytest's.

## Docs
"""


def pages() -> dict[str, str]:
    """Every generated page by its name."""
    rates = dict(RATES.findall((DOCS / "validation.md").read_text("utf-8")))
    texts = {f"{diagnostic.name}.md": _page(diagnostic, rates) for diagnostic in DIAGNOSTICS}
    titles = [LLMS]
    for path in sorted(set(DOCS.glob("*.md")) - {DOCS / "index.md"}):
        title = path.read_text("utf-8").partition("\n")[0].lstrip("# ")
        titles.append(f"- [{title}](https://pytest-fadiag.readthedocs.io/{path.stem}/)\n")
    return texts | {"llms.txt": "".join(titles)}


def _page(diagnostic: Diagnostic, rates: dict[str, str]) -> str:
    threshold = getattr(DiagnosticThresholds(), diagnostic.threshold, diagnostic.default)
    rule = diagnostic.fails_if.format(limit(float(threshold or 0)))
    parts = [
        f"# {diagnostic.label}\n",
        f"**{diagnostic.question[0].upper()}{diagnostic.question[1:]}** Fails if {rule}.\n",
        f"$$\n{FORMULAS[diagnostic.name]}\n$$\n",
        f"{diagnostic.meaning}\n",
    ]
    if (DOCS / "images" / f"{diagnostic.name}.svg").exists():
        parts.append(
            f"![{diagnostic.name} of bp and dfa](images/{diagnostic.name}.svg){{ width=460 }}\n"
        )
        parts.append(
            "The shipped `bp` (blue, healthy) and `dfa` (brown, hollow), seed 42; a red square fails.\n"
        )
    fires, silent, true_silent, false_fires, passes, false_walk_backs = (
        int(cell) for cell in rates[diagnostic.key].split("|")
    )
    judged = fires + silent + true_silent + false_fires + passes + false_walk_backs
    if judged:
        must = "## How often it is wrong\n\n| labelled networks | right | wrong |\n| --- | ---: | ---: |\n"
        rows = {
            "must fail": (fires, silent),
            "must not fail": (true_silent, false_fires),
            "expected to pass": (passes, false_walk_backs),
        }
        for name, (right, wrong) in rows.items():
            if right + wrong:
                must += f"| {name} | {right} | {wrong} |\n"
        must += "\n"
        parts.append(
            f"{must}Audits of [labelled networks](validation.md#error-rates-on-labelled-networks).\n"
        )
    instead = getattr(diagnostic, "instead", "")
    if instead:
        parts.append(f"## What to write\n\nWhere it fails: {instead}.\n")
    anchor = re.sub(r"[()]", "", diagnostic.label).replace(" ", "-")
    parts.append(
        f"Exact definitions, history and limits: [what each diagnostic measures](diagnostics.md#{anchor}).\n"
    )
    return "\n".join(parts)


if __name__ == "__main__":
    for name, text in pages().items():
        (DOCS / name).write_text(text, "utf-8")
