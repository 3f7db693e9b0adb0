"""The scan: every check over every file, with what its author said against a finding."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..judge.pitfalls import PITFALLS
from .files import Unreadable, parsed, python_files
from .finding import Hit, Pitfall, Scan
from .registry import CHECKS
from .silence import comments, extent
from .tree import Tree


def scan(path: Path) -> Scan:
    """The pitfalls in a Python file or in a folder of them."""
    paths, problems, notebooks = python_files(path)
    findings: list[Pitfall] = []
    files = []
    for source in paths:
        name = source.relative_to(path).as_posix() if source != path else path.as_posix()
        try:
            text, module = parsed(source)
            findings += sorted(_findings(text, Tree(module, source.stem), name), key=_order)
        except Unreadable as error:
            problems.append(f"{name}: {error}")
        except RecursionError:
            problems.append(f"{name}: is nested too deeply to check")
        else:
            files.append(name)
    return Scan(findings, sorted(files), problems, notebooks)


def _findings(text: str, tree: Tree, file: str) -> Iterator[Pitfall]:
    lines = text.split("\n")  # as the parser counts: splitlines also breaks at form feeds
    reasons = comments(text)
    for number, find in CHECKS.items():
        places = set()
        for hit in find(tree):
            place = (hit.node.lineno, hit.node.col_offset)
            if place not in places:
                places.add(place)
                yield _finding(number, hit, tree, file, lines, reasons)


def _finding(number: int, hit: Hit, tree: Tree, file: str, lines: list[str], reasons: dict[int, str]) -> Pitfall:
    remarks = [reasons[line] for line in extent(tree, hit.node) if line in reasons]
    silenced = next((reason for reason in remarks if reason), None)
    bare = "; `# fadiag: ok` silences this only with a reason behind it" if remarks and silenced is None else ""
    line = hit.node.lineno
    source = lines[line - 1] if line <= len(lines) else ""
    return Pitfall(
        number=number,
        title=PITFALLS[number].title,
        file=file,
        line=line,
        column=len(source.encode()[: hit.node.col_offset].decode(errors="replace")) + 1,  # the parser counts bytes
        code=source.strip(),
        message=hit.message + bare,
        fix=hit.fix,
        silenced=silenced,
    )


def _order(finding: Pitfall) -> tuple[int, int, int]:
    return finding.line, finding.column, finding.number
