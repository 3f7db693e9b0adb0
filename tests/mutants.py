"""How much of the judge the tests hold: every small change of its code must make one of them fail (``make mutants``).

python tests/mutants.py                                    all mutants of pytest_fadiag/judge
python tests/mutants.py --sample 200 margins.py scale.py   some of those of two files
python tests/mutants.py --again FILE --tests tests/judge   those that FILE lists as they were printed, by these tests alone

The tests are collected once; each mutant is a process forked from there, in which the code of one function, or one constant of
a module, is replaced, and which runs the tests that reach its line: first those that noticed another change of the same
function, then the quick ones. What is read while a class is made cannot be replaced so, and is counted as not tried. Strings
are left alone: their wording is no behaviour.
"""

from __future__ import annotations

import argparse
import ast
import os
import pickle
import random
import signal
import sys
import time
import types
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

ROOT = Path(__file__).resolve().parents[1]
JUDGE = ROOT / "pytest_fadiag" / "judge"
TESTS = (
    *("tests/judge", "tests/load/test_questioned.py", "tests/show/test_status.py", "tests/show/test_form.py"),
    *("tests/show/test_same_everywhere.py", "tests/show/test_changes.py", "tests/show/test_reading.py"),
)
SECONDS = 120
BROKEN = 99
"""How a process ends that could not try its mutant: no test failed there."""
OPPOSITE: dict[type, tuple[type, ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div,),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Mult,),
    ast.Pow: (ast.Mult,),
}
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
Change = tuple[Any, str, str, Any]
"""Where, in words, which field of the node, and to what."""


@dataclass(frozen=True)
class Mutant:
    """One change of a file's tree, made in place by the process that tries it."""

    path: Path
    tree: ast.Module
    owner: str
    """The function or the constant that it belongs to, by its qualified name; empty for what runs while a class is made."""
    line: int
    what: str
    node: ast.AST
    field: str
    value: Any
    in_function: bool

    def __str__(self) -> str:
        return f"{self.path.relative_to(JUDGE)}:{self.line}: {self.what}"

    def make(self) -> None:
        """Replace what it belongs to in the module as it is loaded."""
        setattr(self.node, self.field, self.value)
        code = compile(ast.fix_missing_locations(self.tree), str(self.path), "exec")
        name = ".".join(self.path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        found: Any = sys.modules[name]
        before = vars(found).get(self.owner)
        for part in self.owner.split("."):
            found = vars(found)[part]
        if isinstance(function := _function(found), types.FunctionType):
            getattr(found, "cache_clear", lambda: None)()
            function.__code__ = next(one for one in _codes(code) if one.co_qualname == self.owner)
            return
        exec(code, fresh := {**vars(sys.modules[name]), "__name__": name})
        for module in [module for key, module in sys.modules.items() if key.startswith("pytest_fadiag")]:
            for key, value in vars(module).items():
                if value is before and key == self.owner:
                    setattr(module, key, fresh[self.owner])


def mutants(path: Path) -> Iterator[Mutant]:
    """Every mutant of a file."""
    tree = ast.parse(path.read_text("utf-8"))
    functions = {owner for owner, node in _owned(tree) if isinstance(node, ast.FunctionDef)}
    for owner, node in _owned(tree):
        for place, what, field, value in (*_operators(node), *_values(node), *_statements(node)):
            yield Mutant(path, tree, owner, place.lineno, what, node, field, value, owner in functions)


def _owned(node: Any, inside: str = "") -> Iterator[tuple[str, ast.AST]]:
    """The nodes of a module or a class, each with the function or constant that it belongs to."""
    for one in node.body:
        if isinstance(one, ast.ClassDef):
            yield from _owned(one, f"{inside}{one.name}.")
        elif isinstance(one, ast.FunctionDef):
            one.decorator_list, decorators = [], one.decorator_list
            yield from ((f"{inside}{one.name}", part) for part in list(_code(one)) if part is not one.args)
            one.decorator_list = decorators
        else:
            constant = isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name) and not inside
            yield from ((one.targets[0].id if constant else "", part) for part in _code(one))


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a tree, without annotations, defaults, the texts that an f-string formats numbers by, and whether a zip is
    strict, which only guards against what does not happen."""
    yield node
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns", "format_spec", "args" if isinstance(node, ast.FunctionDef) else ""):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and getattr(child, "arg", None) != "strict":
                    yield from _code(child)


def _operators(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.Compare):
        for number, operator in enumerate(node.ops):
            for other in OPPOSITE[type(operator)]:
                after = [*node.ops[:number], other(), *node.ops[number + 1 :]]
                yield node, f"{type(operator).__name__} → {other.__name__}", "ops", after
    if isinstance(node, ast.BoolOp | ast.BinOp | ast.AugAssign):
        for other in OPPOSITE.get(type(node.op), ()):
            yield node, f"{type(node.op).__name__} → {other.__name__}", "op", other()
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield node, f"{type(node.op).__name__} twice", "operand", ast.UnaryOp(node.op, node.operand)


def _values(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        old = node.value
        new = not old if isinstance(old, bool) else old + 1 if isinstance(old, int) else old * 1.1 or 1.0
        yield node, f"{old!r} → {new!r}", "value", new
    if isinstance(node, ast.Name) and node.id in NAMES:
        yield node, f"{node.id} → {NAMES[node.id]}", "id", NAMES[node.id]


def _statements(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        for value in (True, False):
            yield node.test, f"condition → {value}", "test", ast.Constant(value)
    if isinstance(node, ast.comprehension):
        for number, condition in enumerate(node.ifs):
            yield condition, "filter → True", "ifs", [*node.ifs[:number], *node.ifs[number + 1 :]]
    if isinstance(node, ast.Return) and ast.unparse(node) not in ("return", "return None"):
        yield node, "return None", "value", ast.Constant(None)
    for field in ("body", "orelse"):
        body = getattr(node, field, None)
        for number, one in enumerate(body if isinstance(body, list) else ()):
            text = isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)
            if isinstance(one, ast.Expr | ast.AugAssign | ast.Raise | ast.Continue) and not text:
                after = [*body[:number], ast.Pass(), *body[number + 1 :]]
                yield one, f"deleted: {ast.unparse(one).splitlines()[0][:60]}", field, after


def _function(found: Any) -> Any:
    """The function below a property, a class method or a cache."""
    for name in ("fget", "func", "__func__", "__wrapped__"):
        if not isinstance(found, types.FunctionType) and hasattr(found, name):
            found = getattr(found, name)
    return found.__wrapped__ if hasattr(found, "__wrapped__") else found


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def forked(work: Callable[[], int]) -> int:
    """The id of a process that does this work in silence and ends with its result, or by a signal when its time is over."""
    process = os.fork()
    if process:
        return process
    silent, result = os.open(os.devnull, os.O_WRONLY), BROKEN
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    try:
        result = work()
    finally:
        os._exit(result)


def first_to_fail(items: Sequence[pytest.Item]) -> pytest.Item | None:
    """The first of the tests that fails, if one does."""
    for item, after in zip(items, [*items[1:], None], strict=True):
        if any(report.failed for report in runtestprotocol(item, log=False, nextitem=after)):
            return item
    return None


class Trials:
    """A pytest plugin that tries mutants in place of running the tests."""

    def __init__(self, chosen: Sequence[Mutant], workers: int, slowest: float) -> None:
        self.chosen, self.workers, self.slowest = chosen, workers, slowest
        self.results: list[tuple[Mutant, str]] = []
        self.noticing: dict[tuple[Path, str], dict[str, None]] = defaultdict(dict)
        """The tests that noticed a change of a function, the last one at the end."""

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Find out which tests reach which lines, and try each mutant by those of its line; unchanged code must survive."""
        items = {item.nodeid: item for item in session.items}
        reached, seconds = self._reached(session.items)
        quick = sorted((name for name in items if seconds[name] < self.slowest), key=seconds.__getitem__)
        order = {name: number for number, name in enumerate(quick)}
        process = forked(lambda: int(first_to_fail([items[name] for name in quick]) is not None))
        if os.waitpid(process, 0)[1]:
            raise pytest.UsageError("the tests fail without any change, so that no mutant can be told from none")
        print(f"{len(self.chosen)} mutants, {len(quick)} tests, which pass as the code is", flush=True)
        waiting, running = [*self.chosen[::-1]], dict[int, tuple[Mutant, int]]()
        while waiting or running:
            while waiting and len(running) < self.workers:
                mutant = waiting.pop()
                names = reached.get((str(mutant.path), mutant.line), set()) & order.keys() if mutant.in_function else set(quick)
                if not mutant.owner or not names:
                    self._tell(mutant, "not reached" if mutant.owner else "not tried")
                    continue
                noticing = [name for name in reversed(self.noticing[mutant.path, mutant.owner]) if name in names]
                quickest = sorted(names.difference(noticing), key=order.__getitem__)
                tests = [items[name] for name in (*noticing, *quickest)]
                source, target = os.pipe()
                running[forked(lambda: self._trial(mutant, tests, target))] = mutant, source  # noqa: B023
                os.close(target)
            if running:
                process, status = os.wait()
                mutant, source = running.pop(process)
                with os.fdopen(source, "rb") as file:
                    name = file.read().decode()
                if name:
                    self.noticing[mutant.path, mutant.owner].pop(name, None)
                    self.noticing[mutant.path, mutant.owner][name] = None
                ended = {0: "survived", 1: "killed", BROKEN: "broken"}
                self._tell(mutant, "timed out" if os.WIFSIGNALED(status) else ended.get(os.WEXITSTATUS(status), "broken"))
        return True

    def _tell(self, mutant: Mutant, what: str) -> None:
        self.results.append((mutant, what))
        if what not in ("killed", "not tried"):
            print(f"{what}: {mutant}", flush=True)

    def _trial(self, mutant: Mutant, items: Sequence[pytest.Item], target: int) -> int:
        """Whether a test notices the change; its name goes into a pipe."""
        signal.alarm(SECONDS)
        mutant.make()
        item = first_to_fail(items)
        if item is not None:
            os.write(target, item.nodeid.encode())
        return int(item is not None)

    def _reached(self, items: Sequence[pytest.Item]) -> tuple[dict[tuple[str, int], set[str]], dict[str, float]]:
        """The tests that reach each line of the judge, and how long each takes; all of them must pass."""
        source, target = os.pipe()

        def work() -> int:
            tests: dict[tuple[str, int], set[str]] = defaultdict(set)
            seconds = {}
            for item, after in zip(items, [*items[1:], None], strict=True):

                def lines(frame: Any, event: str, _: Any, name: str = item.nodeid) -> Any:
                    tests[frame.f_code.co_filename, frame.f_lineno].add(name)
                    return lines

                began = time.process_time()
                sys.settrace(lambda frame, *_: lines if frame.f_code.co_filename.startswith(str(JUDGE)) else None)
                failed = any(report.failed for report in runtestprotocol(item, log=False, nextitem=after))
                sys.settrace(None)
                seconds[item.nodeid] = 1e9 if failed else time.process_time() - began
            with os.fdopen(target, "wb") as file:
                pickle.dump((dict(tests), seconds), file)
            return 0

        process = forked(work)
        os.close(target)
        with os.fdopen(source, "rb") as file:
            data = file.read()
        os.waitpid(process, 0)
        return pickle.loads(data)  # type: ignore[no-any-return]


def main() -> int:
    """Try the mutants, print those that survive and a count a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", help="parts of paths below pytest_fadiag/judge (default: all)")
    parser.add_argument("--sample", type=int, metavar="N", help="that many, drawn with --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--again", type=Path, metavar="FILE", help="only those that a run printed into this file")
    parser.add_argument("--tests", nargs="+", metavar="PATH", default=TESTS, help="the tests to try them by")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--slowest", type=float, default=2.0, metavar="SECONDS", help="leave out slower tests (default: 2)")
    options = parser.parse_args()
    listed = None if options.again is None else {line.strip() for line in options.again.read_text("utf-8").splitlines()}
    os.chdir(ROOT)
    paths = [
        path for path in sorted(JUDGE.rglob("*.py")) if not options.files or any(part in str(path) for part in options.files)
    ]
    chosen = [mutant for path in paths for mutant in mutants(path)]
    if listed is not None:
        chosen = [mutant for mutant in chosen if not {str(mutant), f"survived: {mutant}"}.isdisjoint(listed)]
    if options.sample and options.sample < len(chosen):
        chosen = random.Random(options.seed).sample(chosen, options.sample)
    trials = Trials(chosen, options.workers, options.slowest)
    plugins = ["-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:randomly", "-p", "no:terminal", "-p", "no:timeout"]
    code = pytest.main([*plugins, "-s", "-o", "addopts=--import-mode=importlib", *options.tests], [trials])
    if code or not trials.results:
        return int(code) or 1
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for mutant, what in trials.results:
        counts[str(mutant.path.relative_to(JUDGE))][what] += 1
    counts["all"] = sum(counts.values(), Counter())
    for name, count in counts.items():
        print(f"{name:36}", *(f"{what} {number}" for what, number in sorted(count.items())))
    return int(counts["all"]["survived"] > 0)


if __name__ == "__main__":
    sys.exit(main())
