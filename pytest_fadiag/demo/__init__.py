"""``fadiag demo``: two small networks on Fashion-MNIST, by BP and by direct feedback alignment."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from ..api import audit
from ..show.audit import Audit, Row
from ..show.outputs import OUTPUTS
from ..show.table import table

HERE = Path(__file__).parent
PAGE = Path("fadiag-demo.html")
NEXT = """\
The same audit by files:
  cd {folder}
  fadiag audit bp_s456.pt dfa_s456.pt --data fashion-mnist-2000.npz --frozen 'frozen_*.pt'
Your networks, and the network to train for a frozen control of one:
  fadiag audit runs/*.pt --model package.module:Net --data cifar10:data
  fadiag control runs/dfa_s1.pt --model package.module:Net  # then --frozen FILE"""


def demo() -> Iterator[str]:
    """Audit both networks, write the page, and say what to type next.

    >>> print("\\n".join(demo()))
    """
    width = shutil.get_terminal_size((100, 24)).columns
    rows = []
    for name in ("bp_s456.pt", "dfa_s456.pt"):
        data = str(HERE / "fashion-mnist-2000.npz")
        rows.append(Row.of(audit(HERE / name, data=data, frozen=HERE / f"frozen_{name}")))
    yield "Did the blocks learn? One network was trained by direct feedback alignment:\n"
    yield table(Audit((rows[1],)), width)
    yield "It stands next to the same network trained by backpropagation:\n"
    yield table(Audit(tuple(rows)), width)
    OUTPUTS["html"].write(Audit(tuple(rows)), PAGE)
    yield f"Both as a page with charts: {PAGE}\n\n{NEXT.format(folder=HERE)}"
