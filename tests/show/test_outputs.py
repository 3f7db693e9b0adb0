"""Every output of one audit: the same words, escaped names, files that are whole."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import builders
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from show.samples import EVIL, of

from pytest_fadiag.judge.errors import AuditError
from pytest_fadiag.show.audit import Audit
from pytest_fadiag.show.json import document
from pytest_fadiag.show.markdown import MARKUP, PLAIN, code, form, markdown, readme
from pytest_fadiag.show.outputs import OUTPUTS
from pytest_fadiag.show.page import page
from pytest_fadiag.show.report import DiagnosticReport
from pytest_fadiag.show.table import table
from pytest_fadiag.show.words import details, margin_words, words

TEXTS = {"table": lambda audit: table(audit, 200), "markdown": markdown, "form": form, "html": page}
VOID = ("meta", "link", "br", "input")
FIGURES = ("hero", "hero-dark", "audit", "credit", "depth", "rescue")
Golden = Callable[[str, str], None]


class Outline(HTMLParser):
    """The tags of a page, each with the names of its attributes; they close as they open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(" ".join([tag, *(name for name, _ in attrs)]))
        if tag not in VOID and not (self.get_starttag_text() or "").endswith("/>"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.mark.parametrize("kind", TEXTS)
def test_every_output_says_the_same_of_every_row(kind: str, audit: Audit) -> None:
    text = TEXTS[kind](audit)
    said = "".join(Outline(text).texts) if kind == "html" else text
    for row in audit.rows:
        assert (details(row) if kind == "table" else words(row)) in said
    for margin in audit.margins:
        assert margin_words(margin) in said or kind == "table"


def test_a_page_is_the_same_after_another_import_of_the_templates(
    audit: Audit, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = page(audit)
    for name in [name for name in sys.modules if name.split(".")[0] in ("jinja2", "markupsafe")]:
        monkeypatch.delitem(sys.modules, name)  # as pytest in this process does
    assert page(audit) == before


def without_reports(text: str) -> str:
    """Markdown without the texts of reports, which are not made here, and without a version."""
    return re.sub("(?s)<pre>.*?</pre>", "<pre>", re.sub(r"fadiag \d\S+", "fadiag X", text))


@pytest.mark.parametrize("kind", ["markdown", "form"])
def test_markdown_is_as_it_was(kind: str, audit: Audit, evil: Audit, golden: Golden) -> None:
    golden(f"{kind}.md", without_reports(TEXTS[kind](audit)))
    golden(f"evil_{kind}.md", without_reports(TEXTS[kind](evil)))


@pytest.mark.parametrize("kind", TEXTS)
def test_evil_names_hold_no_control_characters(kind: str, evil: Audit) -> None:
    assert all(char.isprintable() or char == "\n" for char in TEXTS[kind](evil))


def tame(audit: Audit) -> Audit:
    """The same audit under harmless names."""
    plain = json.dumps(msgspec.to_builtins(audit)).replace(json.dumps(EVIL)[1:-1], "x")
    return msgspec.json.decode(plain, type=Audit)


def test_the_outline_of_the_page_does_not_depend_on_names(evil: Audit, golden: Golden) -> None:
    outline = Outline(page(evil)).tags
    assert outline == Outline(page(tame(evil))).tags
    golden("page.txt", "\n".join(outline) + "\n")


@settings(max_examples=25, deadline=None)
@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=20))
def test_no_name_becomes_markup_of_the_page(name: str) -> None:
    tags = [
        Outline(page(of(builders.row(builders.exploded(text, 1))))).tags for text in (name, "x")
    ]
    assert tags[0] == tags[1]


@given(st.text() | st.text("`|\\<*_ a"))
def test_no_text_becomes_markdown(text: str) -> None:
    shown = code(text)
    assert shown.isprintable() and "|" not in shown
    if fence := re.match("`+", shown):
        inner = shown[len(fence[0]) : -len(fence[0])]
        assert shown.endswith(fence[0]) and fence[0] not in re.findall("`+", inner)
    elif shown.startswith("<code>"):
        assert re.fullmatch(r"<code>(\w|&#\d+;)+</code>", shown)
    else:
        assert PLAIN.fullmatch(shown) and not MARKUP.search(shown)


def test_the_page_runs_nothing_but_its_own_script(audit: Audit) -> None:
    text = page(audit)
    policy = re.search(r'Content-Security-Policy" content="([^"]+)', text)
    assert policy is not None and policy[1].startswith("default-src &#39;none&#39;")
    for tag in ("style", "script"):
        (content,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"sha256-{digest}" in policy[1]
    assert "style=" not in re.sub("<script.*", "", text, flags=re.DOTALL)


def test_the_page_holds_the_audit(audit: Audit, evil: Audit) -> None:
    for made in (audit, evil):
        (data,) = re.findall(
            '<script type="application/json" id="audit">(.*?)</script>', page(made), re.DOTALL
        )
        assert json.loads(data) == document(made)


def test_all_kinds_are_written_whole(audit: Audit, tmp_path: Path) -> None:
    log = builders.probed(builders.credited(builders.traced("dfa", 1)))
    small = of(builders.row(log), origin=audit.origin)
    for output in OUTPUTS.values():
        output.write(small, tmp_path / output.destination)
    written = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*.*") if file.is_file()}
    figures = {
        f"{folder}/{name}.{end}"
        for folder in ("figures", "figures-5.5")
        for name in FIGURES
        for end in ("pdf", "png")
    }
    certificate = {f"certificate/{name}" for name in ("README.md", "audit.html", "audit.json")}
    texts = {"audit.txt", "audit.json", "audit.html", "audit.md", "form.md"}
    assert written == texts | figures | certificate


def test_a_job_summary_is_appended_to(
    audit: Audit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("before\n", "utf-8")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    OUTPUTS["markdown"].write(audit, summary)
    assert summary.read_text("utf-8") == "before\n" + markdown(audit)


def test_a_certificate_says_what_to_type(audit: Audit, tmp_path: Path) -> None:
    text = readme(audit)
    assert "    fadiag verify . --root FOLDER\n" in text
    assert "    --credit=examples.methods:credit\n" in text
    with pytest.raises(AuditError, match="nothing to measure again"):
        OUTPUTS["certificate"].write(Audit(audit.rows), tmp_path)


def test_a_report_shows_plots_and_saves_itself(tmp_path: Path) -> None:
    report = DiagnosticReport.of(
        builders.healthy(), method_name="<i>", control=builders.healthy().control
    )
    for name in ("a.json", "a.html", "a.md", "a.txt"):
        report.save(tmp_path / name)
        assert (tmp_path / name).stat().st_size > 100
    with pytest.raises(AuditError, match=r"ends in \.json, \.html, \.md, \.txt"):
        report.save(tmp_path / "a.docx")
    cell = report._repr_html_()
    assert "data-jp-theme-light" in cell and "prefers-color-scheme" not in cell
    assert "<svg" in cell and ", seed 42: " in cell and "&lt;i&gt;" in cell and "<i>" not in cell
    assert [axes.get_title(loc="left")[5:8] for axes in report.plot(5.5).axes][:2] == ["(a)", "(b)"]


def test_one_network_opens_expanded_with_its_findings_in_the_cards(audit: Audit) -> None:
    one, many = page(of(builders.row(builders.exploded()))), page(audit)
    assert '<details id="dfa-s42" open>' in one and 'id="open"' not in one
    assert "<details open" not in many and many.count(" open>") == 0 and 'id="open"' in many
    assert "per-block growth 667 &gt; 50" in one and "It explodes in block 0" in one
    assert "Fails in 3 of 6</b>: dfa 2 of 2, dfa-lam 1 of 1" in many
    cards = one.partition('class="cards"')[2].partition("<h2>")[0]
    assert (cards.count("<svg"), cards.count("<section")) == (2, 4)  # curves of (a) and (b)
    tests = one.partition('class="findings"')[2].partition("</table>")[0]
    assert tests.count('class="gauge"') == 4 and "95 % CI [" in tests
    assert "In the paper: report no Γ." in cards


def test_importing_every_output_imports_nothing_heavy() -> None:
    script = (
        "import sys, pytest_fadiag.show.report, pytest_fadiag.show.combine\n"
        "heavy = {'torch', 'numpy', 'matplotlib', 'jinja2', 'pytest'}\n"
        "print(sorted(heavy.intersection(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
