"""The report that users hold: it plots itself, saves itself, and shows itself in a notebook."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..judge.errors import AuditError
from ..judge.report import Report
from ..judge.verdict import Word
from .audit import Audit, Row
from .figures import figures
from .outputs import OUTPUTS
from .page import cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = {".json": "json", ".html": "html", ".md": "markdown", ".txt": "table"}


class DiagnosticReport(Report, frozen=True, kw_only=True, dict=True):
    """What the diagnostics say about one network.

    >>> report = DiagnosticReport(
    ...     method_name="dfa", residual_norms=[9, 4e6], bp_grad_norms=[1e-6, 4e-9],
    ...     cross_batch_stability=0.1, headline_acc=0.3, frozen_baseline_acc=0.35,
    ... )
    >>> report.fired
    ('a', 'b', 'd')
    >>> report.save("dfa.html")  # doctest: +SKIP
    """

    def plot(self, width: float = 7.0) -> Figure:
        """A figure of its diagnostics, ``width`` inches wide.

        >>> report.plot().savefig("dfa.pdf")  # doctest: +SKIP
        """
        return figures(self._audit, width)["audit"]

    def metrics(self) -> dict[str, float]:
        """The numbers as a flat dictionary, for a tracker of experiments.

        >>> wandb.log(report.metrics())  # doctest: +SKIP
        """
        word = self.conclusion.word
        numbers: dict[str, float] = {
            "fadiag/trustworthy": float(word in (Word.TRUSTWORTHY, Word.AS_GIVEN)),
            "fadiag/walk_back": float(word is Word.WALK_BACK),
        }
        if self.headline_acc is not None:
            numbers["fadiag/score"] = self.headline_acc
        for finding in self.findings:
            if finding.value is not None:
                numbers[f"fadiag/{finding.name}"] = finding.value
            if finding.measured:
                numbers[f"fadiag/{finding.name}_fails"] = float(finding.fired)
        return numbers

    def save(self, path: str | Path) -> None:
        """Write the report as .json, .html, .md or .txt, by the ending of the name."""
        kind = SUFFIXES.get(Path(path).suffix)
        if kind is None:
            raise AuditError(
                f"expected a name that ends in {', '.join(SUFFIXES)}, but got {str(path)!r}"
            )
        OUTPUTS[kind].write(self._audit, Path(path))

    def _repr_html_(self) -> str:
        return cell(self._audit.rows[0])

    @property
    def _audit(self) -> Audit:
        return Audit((Row.of(self),))
