"""``fadiag lint``: six mistakes in code that measures credit; it is parsed and never run.

    $ fadiag lint src/
    src/evaluate.py:12:9: FA1 -1 is the order of this norm, not its dimension; write dim=-1

The evidence is local: names, and what the same function puts into them. A mistake that passes
through a helper function, an attribute, a default or a constant of the module is missed.
``# noqa: FA1`` on a line of the expression lets it stand.
"""

from __future__ import annotations

import ast
import re
import sys
import tokenize
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from . import __version__
from .judge.errors import AuditError
from .judge.words import one_line
from .load.names import walk

Finding = tuple[int, int, str]
"""Line and column from 1, as editors count, and a text that begins with the code of the rule."""


def words(text: str) -> frozenset[str]:
    """The words of names, in lower case: ``bpGrads_l2`` has bp, grads, l and 2."""
    return frozenset(
        word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+", text)
    )


CARRIES = re.compile(
    r"(torch|numpy)\.(?!nn\.(?!functional\.normalize|utils)|gradient$).*"
    "|list|tuple|sorted|reversed|enumerate|zip|dict|map|filter|iter|next|float|sum"
)
"""Functions that pass on what they are given; modules and losses do not."""
NORMS = re.compile(
    r"torch(\.functional|\.Tensor)?\.norm|(torch|numpy|jax\.numpy)\.linalg\.(vector_)?norm|torch\.nn\.functional\.normalize"
)
CLAMPS = re.compile(r"torch\.((nn\.functional\.)?cosine_similarity|nn\.CosineSimilarity)")
AUTOCAST = re.compile(r"torch(\.cuda|\.cpu)?(\.amp)?\.autocast")
WIDE = re.compile(r"dtype=(?!torch\.(float16|half)\b)|\bcpu\b|False")
"""What in the arguments of autocast says that it is not to float16."""
RANDOM = re.compile(
    r"rand(n|int)?(_like)?|(standard_)?normal|uniform|bernoulli|empty|(Float)?Tensor|\w*(uniform|normal|orthogonal)_"
)
MATRIX = re.compile(
    r"_*Bs?(_?\d+|_\w{1,3})?|.*(feedback|(?<![a-z])fbs?(?![a-z])|(weights?|matrix)_d?fa|fixed_backward).*"
)
"""Names of feedback matrices."""
FEEDBACK = re.compile(r"(?i)feedback|dfa|drtp|(?<![a-z])fa(?![a-z])")
SILENT = re.compile(r"#\s*noqa(?::\s*([A-Z][A-Z0-9, ]+))?\b")

GRADIENT = words(
    "grad grads gradient gradients credit credits delta deltas feedback vjp dgrad wgrad"
)
NOT_A_GRADIENT = words(
    "no requires require zero enable enabled checkpoint checkpointing scaler reverse reversal "
    "cam fn is accumulation mode has needs need norm norms loss losses penalty similarity "
    "similarities sim sims cos cosine cosines alignment angle angles ratio steps step time "
    "weighting boosting mask masks score scores idx index text prompt"
)
"""With one of these a name is a flag, a scalar, a loss or an image, and not a gradient."""
COSINE = words(
    "cos cosine cosines cosim cossim similarity similarities sim sims alignment alignments "
    "gamma gammas angle angles"
)
LAYERS = words(
    "layer layers param params parameter parameters module modules block blocks children "
    "weights stages depth hidden hiddens activations acts names grads gradients deltas "
    "credits feedbacks l li p name"
)
BATCHES = words(
    "batch batches minibatch minibatches loader dataloader sample samples dataset examples "
    "epoch epochs step steps seed seeds run runs task tasks client clients models domain "
    "domains envs trial trials chunk chunks views users tokens positions"
)
NORM = words("norm norms normed magnitude magnitudes rms amax")
UNIT = words(
    "normalize normalized normalise normalised normed unit units rescale rescaled direction"
)
STATISTIC = re.compile("(vector_)?norm|cosine_similarity|mean|abs|std|var|median|amax|quantile")


def called(node: Any) -> str:
    """The last part of what a call calls, ``norm`` of ``x.norm(2)``; else empty."""
    func = node.func if isinstance(node, ast.Call) else None
    return getattr(func, "attr", "") or getattr(func, "id", "")


def label(node: Any) -> str:
    """The name of a name, an attribute or a called function."""
    return called(node) or getattr(node, "attr", "") or getattr(node, "id", "")


def labels(*nodes: Any) -> frozenset[str]:
    """The words of all names in some expressions."""
    return words(" ".join(label(part) for node in nodes for part in ast.walk(node)))


def keywords(call: ast.Call, *names: str) -> list[ast.expr]:
    """What a call gives for these keywords."""
    return [word.value for word in call.keywords if word.arg in names]


def divides(node: Any) -> bool:
    """Whether a node is ``a / b`` or ``a /= b``."""
    return isinstance(getattr(node, "op", None), ast.Div)


class Reader:
    """Reads a file in its order, and judges each expression by what flowed into it until there."""

    def __init__(self, tree: ast.Module, text: str) -> None:
        self.text, self.lines = text, text.split("\n")
        self.imports: dict[str, str] = {}
        self.held: dict[str, list[Any]] = {}
        """By the names of this function, the expressions that flowed into them."""
        self.scope: Any = tree
        """The function around this node, or the module."""
        self.loop: Any = None
        """The loop around this node."""
        self.aligned: set[Any] = set()
        """The cosines of gradients."""
        self.found: set[Finding] = set()
        self.read(tree)

    def read(self, node: Any) -> None:
        """Read what is in a node, judge the node, and note what it puts into names."""
        outside, value = (self.held, self.scope, self.loop), getattr(node, "value", None)
        self.loop = node if isinstance(node, ast.For) else self.loop
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self.held, self.scope = {}, node
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                name = alias.asname or alias.name.partition(".")[0]
                self.imports[name] = module + (alias.name if alias.asname or module else name)
        for loop in (node, *getattr(node, "generators", ())):
            if hasattr(loop, "iter"):
                self.put(loop.target, self.sources(loop.iter))
        for child in ast.iter_child_nodes(node):
            self.read(child)
        self.held, self.scope, self.loop = outside
        if isinstance(node, (ast.Call, ast.BinOp, ast.Assign, ast.AugAssign)):
            self.judge(node)
        if called(node) == "append" and node.args:
            self.put(getattr(node.func, "value", None), self.repeated(node.args[0]), adds=True)
        for target in getattr(node, "targets", [getattr(node, "target", None)]):
            if isinstance(node, ast.AugAssign):
                flows = self.repeated(value)
                self.put(target, [ast.Call(ast.Name("sum"), flows[:1], []), *flows], adds=True)
            elif isinstance(target, ast.Subscript):
                self.put(target.value, self.repeated(value), adds=True)
            elif value is not None:
                self.put(target, self.sources(value))

    def put(self, target: Any, flows: list[Any], *, adds: bool = False) -> None:
        """Note what flows into the names of a target, in the place of what was there or with it."""
        if isinstance(target, (ast.Name, ast.Tuple, ast.List)):
            for name in (part.id for part in ast.walk(target) if isinstance(part, ast.Name)):
                self.held[name] = [*(self.held.get(name, []) if adds else []), *flows]

    def repeated(self, value: Any) -> list[Any]:
        """What flows from an expression in a loop, as from ``[value for … in …]``."""
        if self.loop is None:
            return self.sources(value)
        made = ast.comprehension(self.loop.target, self.loop.iter, [], 0)
        return [ast.ListComp(value, [made]), *self.sources(value)]

    def dotted(self, node: Any) -> str:
        """The full name of an import, ``torch.nn.functional.normalize`` of ``F.normalize``."""
        if isinstance(node, ast.Attribute):
            owner = self.dotted(node.value)
            return f"{owner}.{node.attr}" if owner else ""
        name = getattr(node, "id", "")
        return "" if name in self.held else self.imports.get(name, "")

    def operands(self, call: Any) -> list[Any]:
        """x, 2 of ``x.norm(2)`` and of ``torch.norm(x, 2)``; nothing of what is not a call."""
        func = getattr(call, "func", None)
        receiver = [func.value] if isinstance(func, ast.Attribute) and not self.dotted(func) else []
        return [*receiver, *call.args] if func else []

    def parts(self, node: Any) -> list[Any]:
        """The expressions whose numbers pass into this one."""
        if isinstance(node, ast.Call):
            passes = CARRIES.fullmatch(self.dotted(node.func) or getattr(node.func, "id", ""))
            return [part for part in self.operands(node) if passes or part not in node.args]
        if isinstance(node, ast.BinOp):  # weight - rate * gradient is a weight
            both = isinstance(node.op, (ast.Mult, ast.MatMult))
            return [node.left, node.right] if both else [node.left]
        held = [getattr(node, field, None) for field in ("value", "operand", "elt")]
        return [part for part in (*held, *getattr(node, "elts", ())) if isinstance(part, ast.expr)]

    def sources(self, node: Any) -> list[Any]:
        """An expression, and all that flows into it within its function."""
        flows = self.held.get(getattr(node, "id", ""), [])
        inner = (each for part in self.parts(node) for each in self.sources(part))
        return list(dict.fromkeys((node, *flows, *inner)))

    def is_gradient(self, node: Any) -> bool:
        """Whether an expression is a gradient or another credit signal, or a list of them."""
        known = (words(label(part)) for part in self.sources(node) if called(part) != "gradient")
        return any(each & GRADIENT and not each & NOT_A_GRADIENT for each in known)

    def clamps(self, node: Any) -> ast.Call | None:
        """The call that sets torch's eps: the cosine, or its ``nn.CosineSimilarity(…)``."""
        calls = [node, *self.sources(node.func)] if isinstance(node, ast.Call) else []
        return next(
            (c for c in calls if CLAMPS.fullmatch(self.dotted(getattr(c, "func", c)))), None
        )

    def compared(self, node: Any) -> list[Any]:
        """What a cosine compares: torch's, a helper's, or dot / (norm * norm); else nothing."""
        if isinstance(node, ast.BinOp) and divides(node):
            norms = [part for part in self.sources(node.right) if words(called(part)) & NORM]
            return [node.left] if len(norms) > 1 else []
        helper = words(called(node)) & COSINE and not self.dotted(node.func)
        return node.args[:2] if helper or self.clamps(node) else []

    def is_aligned(self, node: Any) -> bool:
        """Whether it is a cosine of gradients, perhaps under a name or after ``.item()``."""
        return not self.aligned.isdisjoint(self.sources(node))

    def by_layer(self, node: Any) -> list[Any]:
        """What the loops over layers, blocks or parameters put into a list, by the names there."""
        found = []
        for part in self.sources(node):
            loops = [labels(loop.iter, loop.target) for loop in getattr(part, "generators", ())]
            if any(names & LAYERS and not names & BATCHES for names in loops):
                found.append(getattr(part, "elt", None) or part.value)
        return found

    def judge(self, node: Any) -> None:
        """Add what the rules find in a node; a comment on one of its lines lets it stand."""
        if any(map(self.is_gradient, self.compared(node))):
            self.aligned.add(node)
        text = "\n".join(self.lines[node.lineno - 1 : node.end_lineno])
        silenced = [match[1] for match in SILENT.finditer(text)]
        for rule, message in RULES.items():
            if rule(self, node) and not any(message[:3] in (only or message) for only in silenced):
                self.found.add((node.lineno, node.col_offset + 1, message))


def norm_order(code: Reader, node: Any) -> bool:
    """``x.norm(-1)`` and its spellings."""
    if not isinstance(node, ast.Call):
        return False
    full, operands = code.dotted(node.func), [*map(ast.unparse, code.operands(node))]
    named = [] if keywords(node, "dim", "axis") else keywords(node, "p", "ord")  # both named: meant
    slips = "-1" in (*operands[1:2], *map(ast.unparse, named))
    is_method = not full and isinstance(node.func, ast.Attribute) and called(node) == "norm"
    return slips and bool(is_method or NORMS.fullmatch(full))


def cosine_guard(code: Reader, node: Any) -> bool:
    """A cosine of torch on gradients, in a function that neither normalises nor compares norms."""
    maker = code.clamps(node) if node in code.aligned else None
    if maker is None:
        return False
    eps = [getattr(given, "value", None) for given in keywords(maker, "eps")] or [1e-8]
    guarded = not isinstance(eps[0], (int, float)) or eps[0] < 1e-8
    for part in ast.walk(code.scope):
        sized = (divides(part) or isinstance(part, ast.Compare)) and labels(part) & NORM
        guarded |= bool(sized or words(called(part)) & UNIT)
    return not guarded


def half_precision(code: Reader, node: Any) -> bool:
    """A statistic of gradients in float16, by a cast or by autocast, without a scaled loss."""
    if not STATISTIC.fullmatch(called(node)) or not any(map(code.is_gradient, code.operands(node))):
        return False
    half = any(
        called(part) in ("half", "to", "type", "astype")
        and re.search(r"\b(half|float16)\b", ast.unparse(part))
        for part in code.sources(node)
    )
    casts = [
        ast.unparse(part)
        for part in ast.walk(code.scope)
        if AUTOCAST.fullmatch(code.dotted(getattr(part, "func", part)))
    ]
    half = half or (bool(casts) and not any(map(WIDE.search, casts)))
    return half and "scaler" not in ast.unparse(code.scope)


def missing_credit(code: Reader, node: Any) -> bool:
    """A cosine of a gradient with itself, outside of tests."""
    sides = [*map(ast.unparse, code.compared(node))]
    same = len(sides) == 2 and sides[0] == sides[1] and node in code.aligned
    return same and "def test" not in ast.unparse(code.scope)


def lost_feedback(code: Reader, node: Any) -> bool:
    """A random ``self.B`` that its class neither registers nor saves."""
    name = getattr(getattr(node, "targets", [None])[0], "attr", "")
    if not MATRIX.fullmatch(name) or not FEEDBACK.search(code.text):
        return False
    drawn = {called(inner) for part in code.sources(node.value) for inner in ast.walk(part)}
    kept = rf"(register_buffer|save)\([^)]*\b{name}\b|self\.{name} = nn\.Parameter"
    saved = "Parameter" in drawn or re.search(kept, code.text)
    return not saved and any(map(RANDOM.fullmatch, drawn))


def concatenation(code: Reader, node: Any) -> bool:
    """A cosine of which a side joins the gradients of several layers."""
    sides = code.compared(node) if node in code.aligned else []
    for part in (source for side in sides for source in code.sources(side)):
        joins = called(part) in ("cat", "concat", "concatenate", "hstack")
        several = joins and any(map(code.by_layer, code.operands(part)[:1]))
        if several or called(part) == "parameters_to_vector":
            return True
    return False


def layer_average(code: Reader, node: Any) -> bool:
    """A mean, or a sum that is divided, over layers of cosines of gradients."""
    listed: list[Any] = []
    if called(node) in ("mean", "fmean", "nanmean", "average"):
        along = [*code.operands(node)[1:], *keywords(node, "dim", "axis")]
        listed = code.operands(node)[:1] if {"0"} >= set(map(ast.unparse, along)) else []
    elif divides(node):
        totals = code.sources(getattr(node, "left", getattr(node, "target", None)))
        sums = [part for part in totals if called(part) == "sum"]
        listed = [each for total in sums for each in code.operands(total)[:1]]
    return any(
        not isinstance(each, ast.Subscript) and any(map(code.is_aligned, code.by_layer(each)))
        for each in listed  # cosines[1:] leaves h_0 out
    )


RULES = {
    norm_order: "FA1 -1 is the order of this norm, not its dimension; write dim=-1",
    cosine_guard: "FA2 this cosine clamps the norms of gradients at its eps; "
    "divide by the norms in float64 first, or pass eps=0 and mask zeros",
    half_precision: "FA3 a statistic of gradients in float16, where values below 6e-8 are 0; "
    "take it in float32, outside of autocast",
    missing_credit: "FA4 missing credit reads 1.0, perfect alignment; "
    "report NaN and leave it out of averages",
    lost_feedback: "FA4 these feedback weights are random and in no state_dict; "
    "use register_buffer, or save them with the checkpoint",
    concatenation: "FA5 one cosine over concatenated layers is that of the largest gradient; "
    "take it layer by layer",
    layer_average: "FA6 a mean of cosines over layers hides those near 0; "
    "report every layer, the embedding apart",
}


def check(tree: ast.Module, text: str) -> list[Finding]:
    """The mistakes in one parsed file, in the order of its lines."""
    return sorted(Reader(tree, text).found)


class Flake8:
    """The same rules as a flake8 plugin: ``flake8 --select FA``."""

    name, version = "pytest-fadiag", __version__

    def __init__(self, tree: ast.Module, lines: list[str]) -> None:
        self.found = check(tree, "".join(lines))

    def run(self) -> Iterator[tuple[int, int, str, type]]:
        """The findings as flake8 takes them."""
        return ((line, column - 1, text, type(self)) for line, column, text in self.found)


def check_file(path: Path) -> list[Finding]:
    """The mistakes in one file; of a file that cannot be read one finding, FA0, says why."""
    try:
        with tokenize.open(path) as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the escapes and comparisons in the file
            text = file.read()
            return check(ast.parse(text), text)
    except (OSError, SyntaxError, ValueError, LookupError, RecursionError, MemoryError) as error:
        return [(getattr(error, "lineno", None) or 1, 1, f"FA0 cannot be read as Python: {error}")]


def python_files(path: Path) -> list[Path]:
    """A file, or the Python files in a folder, without hidden and built ones."""
    below = [file for file in walk(path, code=True) if file.suffix == ".py"]
    if not below and not path.is_file():
        raise AuditError(
            f"expected a Python file, or a folder of them, but got {one_line(str(path))}"
        )
    return below or [path]


def main(paths: Sequence[str]) -> int:
    """Print the mistakes in these files and folders; 1 if there are any, else 0.

    >>> main(["src/evaluate.py"])
    src/evaluate.py:12:9: FA1 -1 is the order of this norm, not its dimension; write dim=-1
    1
    """
    checked = [path for given in paths for path in python_files(Path(given))]
    findings = [(path, *found) for path in checked for found in check_file(path)]
    for path, line, column, text in findings:
        print(one_line(f"{path}:{line}:{column}: {text}"))
    print(f"{len(findings)} findings in {len(checked)} Python files", file=sys.stderr)
    return int(bool(findings))
