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
    "stages depth names name l li p"
)
CREDITS = words("weights hidden hiddens activations acts grads gradients deltas credits feedbacks")
"""Names of lists of tensors; those of gradients may be by layer or by sample."""
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


def names_in(target: Any) -> list[str]:
    """The names that an assignment to a target binds."""
    if not isinstance(target, (ast.Name, ast.Tuple, ast.List)):
        return []
    return [part.id for part in ast.walk(target) if isinstance(part, ast.Name)]


def divides(node: Any) -> bool:
    """Whether a node is ``a / b`` or ``a /= b``."""
    return isinstance(getattr(node, "op", None), ast.Div)


class Reader:
    """Reads a file in its order, and judges each expression by what flowed into it until there."""

    def __init__(self, tree: ast.Module, text: str) -> None:
        self.text = text
        self.lines = text.split("\n")
        self.imports: dict[str, str] = {}
        self.flows: dict[str, list[Any]] = {}
        """By the names of this function, the expressions that flowed into them."""
        self.scope: Any = tree
        """The function around this node, or the module."""
        self.loop: ast.For | None = None
        """The loop around this node."""
        self.alignments: set[Any] = set()
        """The cosines of gradients."""
        self.findings: set[Finding] = set()
        self.read(tree)

    def read(self, node: Any) -> None:
        """Read what is in a node, judge the node, and note what it puts into names."""
        outside = (self.flows, self.scope, self.loop)
        if isinstance(node, ast.For):
            self.loop = node
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self.flows = {}
            self.scope = node
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            self.note_imports(node)
        for loop in (node, *getattr(node, "generators", ())):
            if hasattr(loop, "iter"):
                self.put(loop.target, self.elements(loop.iter))
        for child in ast.iter_child_nodes(node):
            self.read(child)
        self.flows, self.scope, self.loop = outside
        if isinstance(node, (ast.Call, ast.BinOp, ast.Assign, ast.AugAssign)):
            self.judge(node)
        self.note_values(node)

    def note_imports(self, node: ast.Import | ast.ImportFrom) -> None:
        """Note the full names of what is imported."""
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            if isinstance(node, ast.ImportFrom):
                self.imports[name] = f"{node.module}.{alias.name}"
            elif alias.asname:
                self.imports[name] = alias.name
            else:
                self.imports[name] = name

    def note_values(self, node: Any) -> None:
        """Note what an assignment or an ``append`` puts into names."""
        targets: list[ast.expr] = []
        if called(node) == "append" and node.args:
            self.add(getattr(node.func, "value", None), self.repeated(node.args[0]))
        elif isinstance(node, ast.AugAssign):
            flows = self.repeated(node.value)
            total = ast.Call(ast.Name("sum"), flows[:1], [])
            self.add(node.target, [total, *flows])
        elif isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            targets = [node.target]
        for target in targets:
            if isinstance(target, ast.Subscript):
                self.add(target.value, self.repeated(node.value))
            else:
                self.put(target, self.sources(node.value))

    def put(self, target: Any, flows: list[Any]) -> None:
        """Note what flows into the names of a target, in the place of what was there."""
        for name in names_in(target):
            self.flows[name] = list(flows)

    def add(self, target: Any, flows: list[Any]) -> None:
        """Note what flows into the names of a target, with what was there."""
        for name in names_in(target):
            self.flows[name] = [*self.flows.get(name, []), *flows]

    def repeated(self, value: Any) -> list[Any]:
        """What flows from an expression in a loop, as from ``[value for … in …]``."""
        flows = self.sources(value)
        if self.loop is None:
            return flows
        generator = ast.comprehension(self.loop.target, self.loop.iter, [], 0)
        return [ast.ListComp(value, [generator]), *flows]

    def dotted(self, node: Any) -> str:
        """The full name of an import, ``torch.nn.functional.normalize`` of ``F.normalize``."""
        if isinstance(node, ast.Attribute):
            owner = self.dotted(node.value)
            return f"{owner}.{node.attr}" if owner else ""
        name = getattr(node, "id", "")
        return "" if name in self.flows else self.imports.get(name, "")

    def operands(self, call: Any) -> list[Any]:
        """x, 2 of ``x.norm(2)`` and of ``torch.norm(x, 2)``; nothing of what is not a call."""
        if not isinstance(call, ast.Call):
            return []
        if isinstance(call.func, ast.Attribute) and not self.dotted(call.func):
            return [call.func.value, *call.args]
        return list(call.args)

    def parts(self, node: Any) -> list[Any]:
        """The expressions whose numbers pass into this one."""
        if isinstance(node, ast.Call):
            function = self.dotted(node.func) or getattr(node.func, "id", "")
            if CARRIES.fullmatch(function):
                return self.operands(node)
            return [part for part in self.operands(node) if part not in node.args]
        if isinstance(node, ast.BinOp):
            if isinstance(node.op, (ast.Mult, ast.MatMult)):
                return [node.left, node.right]
            return [node.left]  # weight - rate * gradient is a weight
        fields = [getattr(node, field, None) for field in ("value", "operand", "elt")]
        return [
            part for part in (*fields, *getattr(node, "elts", ())) if isinstance(part, ast.expr)
        ]

    def sources(self, node: Any) -> list[Any]:
        """An expression, and all that flows into it within its function."""
        sources = [node, *self.flows.get(getattr(node, "id", ""), [])]
        for part in self.parts(node):
            is_element = isinstance(node, ast.Subscript)
            sources += self.elements(part) if is_element else self.sources(part)
        return list(dict.fromkeys(sources))

    def elements(self, node: Any) -> list[Any]:
        """What flows into an element or a slice of a list; it is not the list itself."""
        return [part for part in self.sources(node) if not hasattr(part, "generators")]

    def is_gradient(self, node: Any) -> bool:
        """Whether an expression is a gradient or another credit signal, or a list of them."""
        for part in self.sources(node):
            name = words(label(part))
            if name & GRADIENT and not name & NOT_A_GRADIENT and called(part) != "gradient":
                return True
        return False

    def clamps(self, node: Any) -> ast.Call | None:
        """The call that sets torch's eps: the cosine, or its ``nn.CosineSimilarity(…)``."""
        if not isinstance(node, ast.Call):
            return None
        for call in (node, *self.sources(node.func)):
            if CLAMPS.fullmatch(self.dotted(getattr(call, "func", call))):
                return call  # type: ignore[no-any-return]
        return None

    def compared(self, node: Any) -> list[Any]:
        """What a cosine compares: torch's, a helper's, or dot / (norm * norm); else nothing."""
        if isinstance(node, ast.BinOp) and divides(node):
            norms = [part for part in self.sources(node.right) if words(called(part)) & NORM]
            return [node.left] if len(norms) > 1 else []
        is_helper = words(called(node)) & COSINE and not self.dotted(node.func)
        if is_helper or self.clamps(node):
            return list(node.args[:2])
        return []

    def by_loop(self, node: Any, loop_names: frozenset[str]) -> list[Any]:
        """What the loops over such names put into a list."""
        values = []
        for part in self.sources(node):
            for loop in getattr(part, "generators", ()):
                names = labels(loop.iter, loop.target)
                if names & loop_names and not names & BATCHES:
                    values.append(getattr(part, "elt", None) or part.value)
        return values

    def judge(self, node: Any) -> None:
        """Add what the rules find in a node; a comment on one of its lines lets it stand."""
        if any(map(self.is_gradient, self.compared(node))):
            self.alignments.add(node)
        for rule, message in RULES.items():
            if rule(self, node) and not self.is_silenced(node, message[:3]):
                self.findings.add((node.lineno, node.col_offset + 1, message))

    def is_silenced(self, node: Any, code: str) -> bool:
        """Whether a comment on the lines of a node lets this mistake stand."""
        text = "\n".join(self.lines[node.lineno - 1 : node.end_lineno])
        return any(code in (match[1] or code) for match in SILENT.finditer(text))


def norm_order(code: Reader, node: Any) -> bool:
    """``x.norm(-1)`` and its spellings."""
    if not isinstance(node, ast.Call):
        return False
    orders = code.operands(node)[1:2]
    if not keywords(node, "dim", "axis"):  # who names both means it
        orders += keywords(node, "p", "ord")
    if "-1" not in map(ast.unparse, orders):
        return False
    function = code.dotted(node.func)
    is_method = not function and isinstance(node.func, ast.Attribute) and called(node) == "norm"
    return is_method or bool(NORMS.fullmatch(function))


def cosine_guard(code: Reader, node: Any) -> bool:
    """A cosine of torch on gradients, in a function that neither normalises nor compares norms."""
    call = code.clamps(node) if node in code.alignments else None
    if call is None:
        return False
    for eps in keywords(call, "eps"):
        value = getattr(eps, "value", None)
        if not isinstance(value, (int, float)) or value < 1e-8:
            return False
    for part in ast.walk(code.scope):
        if words(called(part)) & UNIT:
            return False
        if (divides(part) or isinstance(part, ast.Compare)) and labels(part) & NORM:
            return False
    return True


def half_precision(code: Reader, node: Any) -> bool:
    """A statistic of gradients in float16, by a cast or by autocast, without a scaled loss."""
    if not STATISTIC.fullmatch(called(node)) or not any(map(code.is_gradient, code.operands(node))):
        return False
    if "scaler" in ast.unparse(code.scope):
        return False
    if any(map(casts_to_half, code.sources(node))):
        return True
    autocasts = [
        ast.unparse(part)
        for part in ast.walk(code.scope)
        if AUTOCAST.fullmatch(code.dotted(getattr(part, "func", part)))
    ]
    return bool(autocasts) and not any(map(WIDE.search, autocasts))


def casts_to_half(node: Any) -> bool:
    """Whether a call casts to float16."""
    if called(node) not in ("half", "to", "type", "astype"):
        return False
    return bool(re.search(r"\b(half|float16)\b", ast.unparse(node)))


def missing_credit(code: Reader, node: Any) -> bool:
    """A cosine of a gradient with itself, outside of tests."""
    sides = [ast.unparse(side) for side in code.compared(node)]
    if node not in code.alignments or len(sides) < 2 or sides[0] != sides[1]:
        return False
    return "def test" not in ast.unparse(code.scope)


def lost_feedback(code: Reader, node: Any) -> bool:
    """A random ``self.B`` that its class neither registers nor saves."""
    name = getattr(getattr(node, "targets", [None])[0], "attr", "")
    if not MATRIX.fullmatch(name) or not FEEDBACK.search(code.text):
        return False
    functions: set[str] = set()
    for part in code.sources(node.value):
        functions.update(called(inner) for inner in ast.walk(part))
    saves = rf"(register_buffer|save)\([^)]*\b{name}\b|self\.{name} = nn\.Parameter"
    if "Parameter" in functions or re.search(saves, code.text):
        return False
    return any(map(RANDOM.fullmatch, functions))


def concatenation(code: Reader, node: Any) -> bool:
    """A cosine of which a side joins the gradients of several layers."""
    if node not in code.alignments:
        return False
    for side in code.compared(node):
        for part in code.sources(side):
            if called(part) == "parameters_to_vector":
                return True
            if called(part) in ("cat", "concat", "concatenate", "hstack"):
                for operand in code.operands(part)[:1]:
                    if code.by_loop(operand, LAYERS | CREDITS):
                        return True
    return False


def layer_average(code: Reader, node: Any) -> bool:
    """A mean, or a sum that is divided, over layers of cosines of gradients."""
    lists: list[Any] = []
    if called(node) in ("mean", "fmean", "nanmean", "average"):
        dimensions = [*code.operands(node)[1:], *keywords(node, "dim", "axis")]
        if {"0"}.issuperset(map(ast.unparse, dimensions)):
            lists = code.operands(node)[:1]
    elif divides(node):
        total = getattr(node, "left", getattr(node, "target", None))
        for part in code.sources(total):
            if called(part) == "sum":
                lists += code.operands(part)[:1]
    for values in lists:
        for cosine in code.by_loop(values, LAYERS):
            if not code.alignments.isdisjoint(code.sources(cosine)):
                return True
    return False


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
    return sorted(Reader(tree, text).findings)


class Flake8:
    """The same rules as a flake8 plugin: ``flake8 --select FA``."""

    name = "pytest-fadiag"
    version = __version__

    def __init__(self, tree: ast.Module, lines: list[str]) -> None:
        self.findings = check(tree, "".join(lines))

    def run(self) -> Iterator[tuple[int, int, str, type]]:
        """The findings as flake8 takes them."""
        for line, column, text in self.findings:
            yield line, column - 1, text, type(self)


def check_file(path: Path) -> list[Finding]:
    """The mistakes in one file; of a file that cannot be read one finding, FA0, says why."""
    try:
        if not path.is_file():
            raise OSError("expected a regular file")
        with tokenize.open(path) as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the escapes and comparisons in the file
            text = file.read()
            return check(ast.parse(text), text)
    except (OSError, SyntaxError, ValueError, LookupError, RecursionError, MemoryError) as error:
        return [(getattr(error, "lineno", None) or 1, 1, f"FA0 cannot be read as Python: {error}")]


def python_files(path: Path) -> list[Path]:
    """A file, or the Python files in a folder, without hidden and built ones."""
    if path.is_file():
        return [path]
    files = [file for file in walk(path, code=True) if file.suffix == ".py"]
    if not files:
        raise AuditError(
            f"expected a Python file, or a folder of them, but got {one_line(str(path))}"
        )
    return files


def main(paths: Sequence[str]) -> int:
    """Print the mistakes in these files and folders; 1 if there are any, else 0.

    >>> main(["src/evaluate.py"])
    src/evaluate.py:12:9: FA1 -1 is the order of this norm, not its dimension; write dim=-1
    1
    """
    files: list[Path] = []
    for path in paths:
        files += python_files(Path(path))
    count = 0
    for file in files:
        for line, column, text in check_file(file):
            print(one_line(f"{file}:{line}:{column}: {text}"))
            count += 1
    print(f"{count} findings in {len(files)} Python files", file=sys.stderr)
    return int(count > 0)
