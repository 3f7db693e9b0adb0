"""The figure of an audit in a glance: what training the blocks adds to frozen random ones."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from ..judge.verdict import Word
from ..judge.words import and_more, grouped, one_line
from .audit import Row, reports_of
from .words import GROUPS, score_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NUMBERS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
QUIET = {False: "#57606a", True: "#9aa4b0"}
INK = {False: "#000000", True: "#e6edf3"}
GROUND = {False: "#ffffff", True: "#0d1117"}
LEFT, RIGHT = 0.95, 1.6
"""Inches for the names and for margins and verdicts."""
TONES = {
    Word.WALK_BACK: ("#b3261e", "#ff7b72"),
    Word.INCOMPLETE: ("#8a6100", "#d9a53a"),
    Word.TRUSTWORTHY: ("#1a7f37", "#56d364"),
    Word.AS_GIVEN: ("#1a7f37", "#56d364"),
}
"""The colours of verdicts, on a light and on a dark ground."""


class _Method(NamedTuple):
    name: str
    frozen: float
    trained: tuple[float, ...]
    word: Word

    @property
    def margin(self) -> float:
        return 100 * (fmean(self.trained) - self.frozen)


def hero(rows: Sequence[Row], width: float, *, dark: bool = False) -> Figure | None:
    """One row a method: ○ frozen random blocks, ● trained ones, margin and verdict at the right.

    ``None`` where no network has a control.
    """
    from matplotlib.figure import Figure

    methods = sorted(_methods(rows), key=lambda method: -method.margin)
    if not methods:
        return None
    drawing = Figure((width, 0.95 + 0.26 * len(methods)), facecolor=GROUND[dark])
    height = drawing.get_figheight()
    across = width - LEFT - RIGHT
    axes = drawing.add_axes(
        (LEFT / width, 0.42 / height, across / width, 0.26 * len(methods) / height),
        facecolor="none",
    )
    for place, method in enumerate(methods):
        colour = TONES[method.word][dark]
        trained = [*method.trained]
        axes.plot([method.frozen, *trained], [place] * (1 + len(trained)), color=colour, alpha=0.45)
        look: dict[str, Any] = {"ls": "", "marker": "o", "clip_on": False}
        axes.plot(trained, [place] * len(trained), ms=5, color=colour, zorder=4, **look)
        ring: dict[str, Any] = {
            "ms": 7,
            "mfc": GROUND[dark],
            "mec": QUIET[dark],
            "mew": 1.6,
            "zorder": 3,
        }
        axes.plot([method.frozen], [place], **look, **ring)
        margin = f"{method.margin:+.1f} pp".replace("-", "−")
        word = method.word.value.removesuffix(" (reference as given)")
        look = {"color": colour, "va": "center", "size": 8}
        look["transform"] = axes.get_yaxis_transform()
        axes.text(1 + 0.75 / across, place, margin, ha="right", weight="bold", **look)
        axes.text(1 + 0.85 / across, place, word, **look)
    axes.set_yticks(range(len(methods)), [method.name for method in methods])
    axes.set_ylim(len(methods) - 0.6, -0.6)
    axes.tick_params(axis="both", length=0, labelsize=8, colors=INK[dark])
    axes.grid(axis="x", color=QUIET[dark], alpha=0.25, lw=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(INK[dark])
    axes.set_xlabel(_scale(rows), loc="left", size=8, color=INK[dark])
    top: dict[str, Any] = {"va": "top", "color": INK[dark]}
    drawing.text(LEFT / width, 1 - 0.1 / height, _title(methods), size=10, weight="bold", **top)
    key = "○ blocks frozen at random   ● trained blocks   right: margin, verdict"
    top["color"] = QUIET[dark]
    drawing.text(LEFT / width, 1 - 0.32 / height, key, size=8, **top)
    return drawing


def _methods(rows: Sequence[Row]) -> list[_Method]:
    """The methods whose networks have a control; the worst verdict counts."""
    methods = []
    for name, same in grouped((row.method, row) for row in rows).items():
        frozen = []
        trained = []
        words = []
        for row in same:
            report = row.report
            word = row.conclusion.word
            if report is None or report.margin_pp is None or word is None:
                continue
            if report.headline_acc is not None and report.frozen_baseline_acc is not None:
                frozen.append(report.frozen_baseline_acc)
                trained.append(report.headline_acc)
                words.append(word)
        if words:
            worst = min(words, key=GROUPS.index)
            methods.append(
                _Method(one_line(name).replace("$", r"\$"), fmean(frozen), tuple(trained), worst)
            )
    return methods


def _title(methods: Sequence[_Method]) -> str:
    """The finding: «Training the blocks pays off in three of seven methods»."""
    sound = sum(method.word in (Word.TRUSTWORTHY, Word.AS_GIVEN) for method in methods)
    if len(methods) == 1:
        return f"{methods[0].name}: {methods[0].word.value}"
    return f"Training the blocks pays off in {_number(sound)} of {_number(len(methods))} methods"


def _number(count: int) -> str:
    return NUMBERS[count] if count < len(NUMBERS) else str(count)


def _scale(rows: Sequence[Row]) -> str:
    """«test accuracy, fashion-mnist, three seeds»."""
    reports = reports_of(rows)
    parts = [f"test {score_name(reports)}"]
    data = {report.inputs.data: None for report in reports if report.inputs and report.inputs.data}
    if data:
        parts.append(one_line(and_more([*data])).replace("$", r"\$"))
    seeds = {row.seed for row in rows} - {None}
    if len(seeds) > 1:
        parts.append(f"{_number(len(seeds))} seeds")
    return ", ".join(parts)
