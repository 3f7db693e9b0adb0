"""Terminal, JSON, page, Markdown, form and figures say the same of every row: each is parsed, and compared with the others."""

from __future__ import annotations

import io
import json
import operator
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from builders import exploded, healthy, probed, row, traced
from html_tree import Node, Tree
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pytest_fadiag.judge.diagnostics import DIAGNOSTICS
from pytest_fadiag.judge.records import AuxiliaryStatistics
from pytest_fadiag.show.audit import Audit, AuditRow
from pytest_fadiag.show.document import document
from pytest_fadiag.show.figures import figures, style
from pytest_fadiag.show.form import form
from pytest_fadiag.show.html import html
from pytest_fadiag.show.markdown import markdown
from pytest_fadiag.show.terminal import one_line, write_brief, write_table

COLUMNS = Audit(()).columns

KEYS = "abcd"
NAMED = re.compile(r"(walk-back|likely|error|not run|no)((?: [a-e](?!\w)\??)+)")
Facts = dict[str, Any]
"""What an output says of a row: its standing, and sets of keys, such as those that fired; what it does not say is absent."""

NO_CONTROL: dict[str, Any] = {"frozen_baseline_acc": None, "control": None}
SATURATED: dict[str, Any] = {
    "bp_grad_norms": [1e-9] * 5,
    "companions": AuxiliaryStatistics(gradient_per_unit_error=2e-5, output_error_norm=1e-4),
}
VARIED: dict[str, Any] = {"cross_batch_stability": 0.41, "companions": AuxiliaryStatistics(sample_invariance=0.02)}
EXACT_LOG: dict[str, Any] = {"partial": True, "gradient_batch": 128}
LOG: dict[str, Any] = {"partial": True, "gradient_batch": None}
BROKEN_D = {"a": "passed", "b": "passed", "c": "passed", "d": "error"}


def every_status() -> list[AuditRow]:
    """A row of each kind; the method is what it is."""
    return [
        row(healthy("trustworthy")),
        row(healthy("expected-pass"), expected=""),
        row(healthy("unexpected-pass"), expected="c"),
        row(healthy("saturated", **SATURATED)),
        row(healthy("varied", **VARIED)),
        row(healthy("saturated-not-run", **SATURATED), outcomes={"a": "passed"}),
        row(exploded("saturated-and-fired", **SATURATED)),
        row(exploded("walked")),
        row(exploded("expected"), expected="abd"),
        row(exploded("unexpected"), expected="a"),
        row(healthy("no-control", **NO_CONTROL), outcomes={"a": "passed", "b": "passed", "c": "passed", "d": "skipped"}),
        row(healthy("whole-report", **NO_CONTROL), outcomes={}),
        row(healthy("unread-control", **NO_CONTROL), outcomes=BROKEN_D, reason="control unreadable"),
        row(healthy("broken-teardown"), outcomes={**BROKEN_D, "b": "error", "d": "passed"}, reason="teardown"),
        row(exploded("broken-and-fired"), outcomes={"a": "error", "b": "failed", "c": "passed", "d": "failed"}, reason="x"),
        row(healthy("only-broken"), outcomes={"d": "error"}, expected="", reason="x"),
        row(healthy("stopped"), outcomes={"a": "passed", "b": "not run", "c": "not run", "d": "not run"}),
        row(exploded("stopped-early"), outcomes={"c": "passed", "a": "not run", "b": "not run", "d": "not run"}),
        row(healthy("listed"), outcomes=dict.fromkeys(KEYS, "not run"), expected=""),
        row(healthy("only-d"), outcomes={"d": "passed"}),
        row(exploded("only-d-fired"), outcomes={"d": "failed"}),
        row(healthy("only-d-unmeasured", **NO_CONTROL), outcomes={"d": "skipped"}),
        row(exploded("only-c"), outcomes={"c": "passed"}, expected="abd"),
        AuditRow("runs/corrupt.pt", "corrupt", 1, None, dict.fromkeys(KEYS, "error"), "not a checkpoint"),
        AuditRow("runs/mute.pt", "mute", 1, None, {"a": "error"}),
        AuditRow("runs/waiting.pt", "waiting", 1, None, dict.fromkeys(KEYS, "not run")),
        AuditRow("runs/missing.pt", "missing", 1, None, dict.fromkeys(KEYS, "skipped")),
        row(healthy("exact-log", **EXACT_LOG)),
        row(healthy("exact-log-no-control", **EXACT_LOG, **NO_CONTROL)),
        row(healthy("exact-log-ab", **EXACT_LOG), outcomes={"a": "passed", "b": "passed"}),
        row(healthy("likely-log", **LOG, cross_batch_stability=0.1), expected=""),
        row(healthy("unmeasured-log", **LOG, cross_batch_stability=None)),
        row(healthy("likely-fire-log", **LOG, bp_grad_norms=[1e-8] * 5, cross_batch_stability=None)),
        row(healthy("likely-excused-log", **LOG, **SATURATED)),
        row(traced("traced", 1)),
        row(traced("traced-d", 1), outcomes={"d": "failed"}),
    ]


# --- reading each output ---------------------------------------------------------------------------------------------


def of_words(text: str) -> Facts:
    """What «walk-back a b? d* (expected a) error c not run d no c» says."""
    plain, expected = re.subn(r" ?\(expected [a-z ]+\)", "", text)
    facts: Facts = {"as_expected": False if expected else True if "*" in plain else None}
    plain = plain.replace("*", "")
    if plain.startswith("error:") or plain in ("error", "not run", "skipped"):
        return {**facts, "standing": "incomplete", "fired": set(), "instead of a report": plain}
    assert NAMED.sub("", re.sub("^(trustworthy|incomplete)", "", plain)).strip() == "", text
    named = {word: set(keys.split()) for word, keys in NAMED.findall(plain)}
    fired, likely, absent, broken, not_run = (
        named.get(word, set()) for word in ("walk-back", "likely", "no", "error", "not run")
    )
    facts |= {"fired": {key[0] for key in fired}, "broken": broken}
    if fired:
        return {**facts, "standing": "walk-back", "likely fired": {key[0] for key in fired if key.endswith("?")}}
    standing = plain.split()[0]
    undecided = likely | absent | broken | not_run
    assert (standing == "incomplete") == bool(undecided) or ("e" in KEYS and undecided in ({"d"}, {"e"})), text
    return {**facts, "standing": standing, "passed": set(KEYS) - absent - broken - not_run, "likely passed": likely}


def of_sentence(text: str) -> Facts:
    """What «needs walk-back: …», «trustworthy» or «incomplete: …» says."""
    if text.startswith("needs walk-back: "):
        flags = text.removeprefix("needs walk-back: ").split("; ")
        keys = {flag: next(d.key for d in DIAGNOSTICS if flag.removesuffix(" (likely)") == d.walk_back) for flag in flags}
        likely = {key for flag, key in keys.items() if flag.endswith("(likely)")}
        return {"standing": "walk-back", "fired": set(keys.values()), "likely fired": likely}
    if text == "trustworthy":
        return {"standing": "trustworthy", "fired": set()}
    if not text.startswith("incomplete: "):
        return without_mark(of_words(text))
    undecided = {}
    for part in text.removeprefix("incomplete: ").split("; "):
        name, _, what = part.partition(" ")
        undecided[next(d.key for d in DIAGNOSTICS if d.name == name)] = what
    by_word = {word: {key for key, what in undecided.items() if what == word} for word in ("likely", "not measured", "error")}
    return {
        "standing": "incomplete",
        "fired": set(),
        "passed": set(KEYS) - undecided.keys() | by_word["likely"],
        "likely passed": by_word["likely"],
        "unmeasured": by_word["not measured"],
        "broken": by_word["error"],
    }


def without_mark(facts: Facts) -> Facts:
    """Of words that bear no mark of what is as expected, what they say of the rest."""
    return {name: value for name, value in facts.items() if name != "as_expected"}


def merged(*parts: Facts) -> Facts:
    """What several places of one output say of a row; they must not contradict each other."""
    facts: Facts = {}
    for part in parts:
        assert all(facts[name] == part[name] for name in facts.keys() & part.keys()), parts
        facts |= part
    return facts


class Writer:
    """A wide terminal that keeps what is written."""

    fullwidth = 400

    def __init__(self) -> None:
        self._file = io.TextIOWrapper(io.BytesIO(), "utf-8")
        self.text = ""
        self.colours: set[tuple[str, str]] = set()

    def write(self, msg: str, **markup: bool) -> None:
        self.text += msg
        self.colours = {*self.colours, *((msg.strip(), colour) for colour in markup if colour != "bold")}

    def line(self, s: str = "", **markup: bool) -> None:
        self.write(f"{s}\n", **markup)


def in_terminal(audit: Audit) -> dict[str, Facts]:
    writer = Writer()
    write_table(writer, audit, [])
    head, *lines = writer.text.splitlines()
    facts = {}
    for line in lines[: len(audit.rows)]:
        excused = {c.key for c in COLUMNS if line[: head.index(c.title) + len(c.title)].endswith("^")}
        facts[line.split()[0]] = merged(of_words(line[head.index("verdict") :]), {"excused": excused})
    return facts


def in_brief(audit: Audit) -> dict[str, Facts]:
    """What -q says: a line a row, and below what its marks mean."""
    writer = Writer()
    write_brief(writer, audit, [])
    facts = {}
    for made, line in zip(audit.rows, writer.text.splitlines(), strict=False):
        name, _, said = line.partition(": ")
        assert name == made.checkpoint
        words, *excused = said.split(" ^")
        facts[made.method] = merged(of_words(words), {"excused": set(excused)} if made.report else {})
        alarm = facts[made.method]["standing"] == "walk-back" or made.status.is_alarming
        colour = "red" if alarm else {"trustworthy": "green", "incomplete": "yellow"}[facts[made.method]["standing"]]
        assert (line, colour) in writer.colours
    return facts


def in_markdown(audit: Audit) -> dict[str, Facts]:
    text = markdown(audit)
    lines = [re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines() if line.startswith("| ")]
    head, _, *body = ([re.sub(r"^\*\*|\*\*$|\\(?=\W)", "", cell.strip()) for cell in cells] for cells in lines)
    sentences = dict(re.findall(r"<summary>runs/(.+?)_s\d+\.\S*: (.*)</summary>", text))
    facts = {}
    for cells in body:
        name = cells[0].split()[0]
        excused = {c.key for c in COLUMNS if cells[head.index(c.title)].endswith("^")}
        facts[name] = merged(of_words(cells[-1]), {"excused": excused})
        assert (name in sentences) == bool(facts[name]["fired"]), "what needs a walk-back has its report"
        if name in sentences:
            facts[name] = merged(facts[name], of_sentence(sentences[name]))
    return facts


def in_json(audit: Audit) -> dict[str, Facts]:
    values = json.loads(json.dumps(document(audit, "1")))
    crosses = {"b": operator.lt, "c": operator.gt}
    facts = {}
    for entry in values["summary"]:
        stated = {"standing": entry["standing"], "fired": set(entry["fired"])}
        said = merged(of_words(entry["status"]), stated, of_sentence(entry["verdict"]))
        if "passed" in said:  # by the numbers: what passes although its number crosses its threshold
            findings = {finding["key"]: finding for finding in values["reports"][entry["checkpoint"]]["findings"]}
            passed = [findings[key] for key in said["passed"] & crosses.keys()]
            said["excused"] = {f["key"] for f in passed if crosses[f["key"]](f["value"], f["threshold"])}
        facts[entry["method"]] = said
    return facts


def in_page(audit: Audit) -> dict[str, Facts]:
    root = Tree(html(audit, "1")).root
    table = root.one("table", id="audit")
    titles = [header.text for header in table.one("thead").all("th")]
    tags = {"expected": True, "not as expected": False}
    facts = {}
    for number, line in enumerate(table.one("tbody").all("tr")):
        cells = dict(zip(titles, (cell for cell in line.children if isinstance(cell, Node)), strict=True))
        stated = {"standing": line.attributes["data-standing"], "fired": set(line.attributes["data-fired"].split())}
        words = of_words("".join(child for child in cells["verdict"].children if isinstance(child, str)))
        sentence = root.one("details", id=f"report-{number}").one("span", **{"class": "what"}).text
        said = merged(stated, without_mark(words), of_sentence(sentence))
        said["as_expected"] = next((tags[tag.text] for tag in cells["verdict"].all() if tag.text in tags), None)
        assert (said["as_expected"] is False) == (words["as_expected"] is False)
        assert cells["verdict"].attributes["class"] == f"verdict {said['standing']}"
        numbers = {column: cells[column.key + column.title].text for column in COLUMNS if column.key}
        said["excused"] = {column.key for column, text in numbers.items() if text.endswith("excused")}
        assert {column.key for column, text in numbers.items() if "(fired)" in text} == said["fired"]
        facts[cells["method"].all("a")[0].text] = said
    return facts


def in_form(audit: Audit) -> dict[str, Facts]:
    text = re.sub(r"\\([^a-zA-Z0-9\s])", r"\1", form(audit, "1"))
    head, _, *lines = text.partition("\n## Results\n\n")[2].partition("\n\n")[0].splitlines()
    assert [title[1] for title in head.split(" | ")[3:-1]] == list(KEYS)
    facts = {}
    for line in lines:
        name, _, _, *cells, verdict = line.strip("| ").split(" | ")
        said = without_mark(of_words(verdict.strip("*")))
        assert verdict.startswith("**") == bool(said["fired"])
        if set(cells) != {"–"}:  # else there is no report
            words: dict[str, set[str]] = {}
            for key, cell in zip(KEYS, cells, strict=True):
                outcome = re.match(r"(\*\*)?((?:likely )?(?:fire|pass)|not measured|not run|error)", cell)
                assert outcome is not None and bool(outcome[1]) == ("fire" in outcome[2]), cell
                words.setdefault(outcome[2], set()).add(key)
            fired, likely_fired, passed, likely_passed, unmeasured, broken = (
                words.get(word, set()) for word in ("fire", "likely fire", "pass", "likely pass", "not measured", "error")
            )
            said = merged(
                said,
                {"fired": fired | likely_fired, "likely fired": likely_fired, "passed": passed | likely_passed},
                {"likely passed": likely_passed, "unmeasured": unmeasured},
                {} if fired else {"broken": broken},  # what fired is shown as fired, though its test broke
                {
                    "excused": {
                        key for key, cell in zip(KEYS, cells, strict=True) if re.search("saturated|not sample-inv", cell)
                    }
                },
            )
        facts[name.split()[0]] = said
    return facts


def looks(axes: Axes) -> list[tuple[Any, Any, Any]]:
    """The marker, the colour and the filling of each line."""
    return [(line.get_marker(), line.get_color(), line.get_markerfacecolor()) for line in axes.lines]


def in_figures(audit: Audit) -> dict[str, Facts]:
    marks = {(mark.marker, mark.colour, mark.inside): mark.label for mark in style.OUTCOMES}
    pages: list[Figure] = [figure for name, figure in figures(audit).items() if name.partition("-")[0] == "audit"]
    facts = {}
    probed_rows = [found for found in audit.rows if found.report is not None and found.report.probe_accuracies]
    depth = [marks[look] for look in looks(figures(audit)["depth"].axes[1]) if look in marks] if probed_rows else []
    of_depth = dict(zip((found.method for found in probed_rows), depth, strict=True))
    for figure in pages:
        names = [text.get_text().split()[0] for text in figure.texts if text.get_fontsize() == style.TITLE]
        for number, name in enumerate(names):
            labels = {}
            for key, axes in zip("abcd", figure.axes[4 * number : 4 * number + 4], strict=True):
                (labels[key],) = (marks[look] for look in looks(axes) if look in marks)
            if name in of_depth:
                labels["e"] = of_depth[name]
            facts[name] = {
                "fired": {key for key, label in labels.items() if label.endswith("fires")},
                "likely fired": {key for key, label in labels.items() if label == "likely fires"},
                "passed": {key for key, label in labels.items() if "passes" in label},
                "likely passed": {key for key, label in labels.items() if "likely passes" in label},
                "excused": {key for key, label in labels.items() if label.endswith("excused")},
            }
    return facts


READERS: dict[str, Callable[[Audit], dict[str, Facts]]] = {
    "terminal": in_terminal,
    "-q": in_brief,
    "Markdown": in_markdown,
    "JSON": in_json,
    "page": in_page,
    "form": in_form,
    "figures": in_figures,
}


@pytest.fixture(scope="module")
def audit() -> Audit:
    """One audit with a row of every status."""
    return Audit(every_status())


@pytest.fixture(scope="module")
def said(audit: Audit) -> dict[str, dict[str, Facts]]:
    """What each output says of each row."""
    return {output: read(audit) for output, read in READERS.items()}


@pytest.mark.parametrize("method", [made.method for made in every_status()])
def test_every_output_says_the_same_of_a_row(said: dict[str, dict[str, Facts]], audit: Audit, method: str) -> None:
    agree(said, audit, method)


def agree(said: dict[str, dict[str, Facts]], audit: Audit, method: str) -> None:
    """Every output that speaks of a row says the same."""
    of_row = {output: facts[method] for output, facts in said.items() if method in facts}
    reported = next(made.report for made in audit.rows if made.method == method) is not None
    assert set(of_row) == set(READERS) - (set() if reported else {"figures"})
    by_fact: dict[str, dict[str, Any]] = {}
    for output, facts in of_row.items():
        for fact, value in facts.items():
            by_fact.setdefault(fact, {})[output] = value
    for fact, values in by_fact.items():
        assert all(value == next(iter(values.values())) for value in values.values()), (fact, values)
    assert set(by_fact["fired"]) == set(of_row) and set(by_fact["standing"]) == set(of_row) - {"figures"}


def test_every_output_says_the_same_of_what_depth_adds(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        row(probed(healthy("deep"))),
        row(probed(healthy("shallow"), 0.6, 0.6, 0.6, 0.6, 0.61, null=0.6)),
        row(probed(healthy("no-null"), null=None)),
        row(probed(exploded("all"), 0.6, 0.5, 0.5, 0.5, 0.5), expected="abde"),
        row(probed(healthy("instead-of-d", **NO_CONTROL))),
        row(probed(healthy("broken-e")), outcomes={**dict.fromkeys("abcd", "passed"), "e": "error"}, reason="x"),
        row(probed(healthy("not-run-e")), outcomes={**dict.fromkeys("abcd", "passed"), "e": "not run"}),
    ]
    audit = Audit(rows)
    monkeypatch.setitem(globals(), "KEYS", "abcde")
    monkeypatch.setitem(globals(), "COLUMNS", audit.columns)
    said = {output: read(audit) for output, read in READERS.items()}
    for made in rows:
        agree(said, audit, made.method)
    assert {name: facts["fired"] for name, facts in said["figures"].items() if facts["fired"]} == {
        "shallow": {"e"},
        "all": {"a", "b", "d", "e"},
    }
    assert "e" in said["form"]["no-null"]["likely passed"] and said["JSON"]["deep"]["standing"] == "trustworthy"


def test_the_marks_of_brief_lines_are_explained_below_them(audit: Audit) -> None:
    writer = Writer()
    write_brief(writer, audit, [])
    assert all(mark in writer.text for mark in ("\n* as expected\n", "? likely fires", "no: not measured", "^ crosses"))


def test_the_rows_are_of_every_status(said: dict[str, dict[str, Facts]]) -> None:
    facts = said["JSON"].values()
    assert {each["standing"] for each in facts} == {"walk-back", "trustworthy", "incomplete"}
    for name in ("fired", "likely fired", "passed", "likely passed", "unmeasured", "broken", "excused"):
        assert any(each.get(name) for each in facts), name
    assert {each["as_expected"] for each in facts} == {True, False, None}


def test_every_count_is_the_same(audit: Audit, said: dict[str, dict[str, Facts]]) -> None:
    counts = Counter(facts["standing"] for facts in said["JSON"].values())
    line = one_line(audit, 1000)
    assert {word: int(number) for number, word in re.findall(r"(\d+) (trustworthy|walk-back|incomplete)", line)} == counts
    fired = Counter(key for facts in said["JSON"].values() for key in facts["fired"])
    assert dict(re.findall(r"(\w):(\d+)", line)) == {key: str(number) for key, number in fired.items()}
    root = Tree(html(audit, "1")).root
    tiles = {item.all("span")[1].text: int(item.one("b").text) for item in root.one("ul", **{"class": "counts"}).all("li")}
    assert tiles == counts
    for item in root.one("ul", **{"class": "asked"}).all("li"):
        key = item.all("b")[0].text
        answered = fired[key] + sum(key in facts.get("passed", ()) for facts in said["figures"].values())
        assert item.text.endswith(f"fired in {fired[key]} of {answered}")
    headline = f"{counts['walk-back']} of {len(audit.rows)} results need a walk-back, {counts['incomplete']} incomplete"
    assert root.one("h1").text == headline == markdown(audit).splitlines()[2]
