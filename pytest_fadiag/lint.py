"""``fadiag lint``: six mistakes in code that measures credit; it is parsed and never run.

    $ fadiag lint src/
    src/evaluate.py:12:9: FA1 -1 is the order of this norm, not its dimension; write dim=-1

The evidence is local: names, and what the same function puts into them. A mistake that passes
through a helper function, an attribute, a default or a constant of the module is missed.
``# noqa: FA1`` or ``# fadiag: ok REASON`` on a line of the statement lets it stand.
"""

from __future__ import annotations

import ast
import os
import re
import sys
import tokenize
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from .judge.errors import AuditError
from .judge.words import one_line

Finding = tuple[int, int, str]
"""Line and column from 1, as editors count, and a text that begins with the code of the rule."""
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)


def words(text: str) -> frozenset[str]:
    """The words of names, in lower case: ``bpGrads_l2`` has bp, grads, l and 2."""
    return frozenset(
        word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+", text)
    )


CARRIES = re.compile(r"(torch|numpy)\.(?!nn\.(?!functional\.normalize|utils)|gradient$).*")
"""Functions that pass on what they are given; modules and losses do not."""
BUILTINS = words("list tuple sorted reversed enumerate zip dict map filter iter next float sum")
NORMS = re.compile(
    r"torch(\.functional|\.Tensor)?\.norm|(torch|numpy|jax\.numpy)\.linalg\.(vector_)?norm|torch\.nn\.functional\.normalize"
)
CLAMPS = {
    "torch.nn.functional.cosine_similarity",
    "torch.cosine_similarity",
    "torch.nn.CosineSimilarity",
}
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
ONE = ("1", "1.0")
SKIPPED = re.compile(r"\..+|__pycache__|site-packages|build|dist|node_modules|.+\.egg-info")
SILENT = re.compile(
    r"#\s*(?:noqa(?P<only>:\s*[A-Z][A-Z0-9, ]+)?\b|fadiag:\s*ok\b[\s:,;.–-]*[^\s#])"
)

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


def called(node: ast.AST | None) -> str:
    """The last part of what a call calls, ``norm`` of ``x.norm(2)``; else empty."""
    func = node.func if isinstance(node, ast.Call) else None
    return getattr(func, "attr", "") or getattr(func, "id", "")


def label(node: ast.AST) -> str:
    """The name of a name, an attribute or a called function."""
    return called(node) or getattr(node, "attr", "") or getattr(node, "id", "")


def keywords(call: ast.Call, *names: str) -> list[ast.expr]:
    """What a call gives for these keywords."""
    return [word.value for word in call.keywords if word.arg in names]


def over_layers(loop: ast.For | ast.comprehension) -> bool:
    """Whether a loop runs over layers, blocks or parameters, by the names in it."""
    found = words(
        " ".join(label(part) for side in (loop.iter, loop.target) for part in ast.walk(side))
    )
    return bool(found & LAYERS) and not found & BATCHES


class Code:
    """One file: its nodes with parents, its imports, and what each function puts into a name."""

    def __init__(self, tree: ast.Module, text: str) -> None:
        self.text = text
        self.nodes = list(ast.walk(tree))
        self.parents = {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}
        self.imports: dict[str, str] = {}
        self.bound: dict[
            tuple[ast.AST, str], list[tuple[bool, tuple[int, int], ast.AST, ast.expr]]
        ] = {}
        for node in self.nodes:
            for alias in node.names if isinstance(node, (ast.Import, ast.ImportFrom)) else ():
                module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
                name = alias.asname or alias.name.partition(".")[0]
                self.imports[name] = module + (alias.name if alias.asname or module else name)
            for target in getattr(node, "targets", [getattr(node, "target", None)]):
                self._bind(target, getattr(node, "iter", getattr(node, "value", None)), node)
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and called(node) == "append"
                and node.args
            ):
                self._bind(node.func.value, node.args[0], node)

    def _bind(self, target: ast.expr | None, value: ast.expr | None, node: ast.AST) -> None:
        """Note what a node assigns, appends or adds to a name, or writes into it."""
        adds = isinstance(target, ast.Subscript) or isinstance(node, (ast.AugAssign, ast.Call))
        start: ast.AST = self.parents[node] if isinstance(node, ast.comprehension) else node
        target = target.value if isinstance(target, ast.Subscript) else target
        if value is not None and isinstance(target, (ast.Name, ast.Tuple, ast.List)):
            entry = (adds, (start.lineno, start.col_offset), node, value)  # type: ignore[attr-defined]
            for name in ast.walk(target):
                self.bound.setdefault((self.scope(node), label(name)), []).append(entry)

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around a node, from the inside."""
        while (parent := self.parents.get(node)) is not None:
            yield parent
            node = parent

    def scope(self, node: ast.AST) -> ast.AST:
        """The function around a node, or the module."""
        return next((above for above in self.above(node) if isinstance(above, SCOPES)), node)

    def dotted(self, node: ast.AST) -> str:
        """The full name of an import, ``torch.nn.functional.normalize`` of ``F.normalize``."""
        if isinstance(node, ast.Attribute):
            owner = self.dotted(node.value)
            return f"{owner}.{node.attr}" if owner else ""
        is_import = isinstance(node, ast.Name) and (self.scope(node), node.id) not in self.bound
        return self.imports.get(label(node), "") if is_import else ""

    def operands(self, call: ast.AST | None) -> list[ast.expr]:
        """x, 2 of ``x.norm(2)`` and of ``torch.norm(x, 2)``; nothing of what is not a call."""
        func = call.func if isinstance(call, ast.Call) else None
        receiver = [func.value] if isinstance(func, ast.Attribute) and not self.dotted(func) else []
        return [*receiver, *getattr(call, "args", [])] if func else []

    def put(self, node: ast.AST | None) -> list[tuple[ast.AST, ast.expr]]:
        """What its function puts into a name before this use: last assignment, all additions."""
        entries = (
            self.bound.get((self.scope(node), node.id), []) if isinstance(node, ast.Name) else []
        )
        before = [each for each in entries if each[1] <= (node.lineno, node.col_offset)]  # type: ignore[union-attr]
        last = max((place for adds, place, *_ in before if not adds), default=None)
        return [(where, value) for adds, place, where, value in before if adds or place == last]

    def parts(self, node: ast.AST) -> list[ast.expr]:
        """The expressions whose numbers pass into this one."""
        if isinstance(node, ast.Call):
            passes = CARRIES.fullmatch(self.dotted(node.func)) or called(node) in BUILTINS
            operands = self.operands(node)
            return operands if passes else operands[: len(operands) - len(node.args)]
        if isinstance(node, ast.BinOp):  # weight - rate * gradient is a weight
            return [
                node.left,
                *([node.right] if isinstance(node.op, (ast.Mult, ast.MatMult)) else []),
            ]
        held = [getattr(node, field, None) for field in ("value", "operand", "elt")] + getattr(
            node, "elts", []
        )
        return [value for _, value in self.put(node)] + [
            part for part in held if isinstance(part, ast.expr)
        ]

    def sources(self, node: ast.AST) -> list[ast.AST]:
        """An expression, and all that flows into it within its function."""
        found = [node]
        for part in found:
            found += [each for each in self.parts(part) if each not in found]
        return found

    def is_gradient(self, node: ast.AST) -> bool:
        """Whether an expression is a gradient or another credit signal, or a list of them."""
        known = (words(label(part)) for part in self.sources(node) if called(part) != "gradient")
        return any(each & GRADIENT and not each & NOT_A_GRADIENT for each in known)

    def clamps(self, node: ast.AST) -> ast.Call | None:
        """The call that sets torch's eps: the cosine, or its ``nn.CosineSimilarity(…)``."""
        func = getattr(node, "func", None)
        makers = [node, func, *(value for _, value in self.put(func))]
        calls = (maker for maker in makers if isinstance(maker, ast.Call))
        return next((call for call in calls if self.dotted(call.func) in CLAMPS), None)

    def compared(self, node: ast.AST) -> list[ast.expr]:
        """What a cosine compares: torch's, a helper's, or dot / (norm * norm); else nothing."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            dot, below = (
                [value for _, value in self.put(side)][-1:] or [side]
                for side in (node.left, node.right)
            )
            names = (called(part) or getattr(part, "id", "") for part in ast.walk(below[0]))
            several = sum(bool(words(name) & NORM) for name in names) > 1
            return [part for part in ast.walk(dot[0]) if several and isinstance(part, ast.Name)]
        helper = words(called(node)) & COSINE and not self.dotted(node.func)  # type: ignore[attr-defined]
        return node.args[:2] if helper or self.clamps(node) is not None else []  # type: ignore[attr-defined]

    def is_alignment(self, node: ast.AST) -> bool:
        """Whether it is a cosine of gradients, perhaps under a name or after ``.item()``."""
        return any(
            self.is_gradient(side) for part in self.sources(node) for side in self.compared(part)
        )

    def elements(self, node: ast.AST) -> list[tuple[ast.expr, bool]]:
        """What a list holds, as far as the function shows, and whether by a loop over layers."""
        found: list[tuple[ast.expr, bool]] = []
        for part in self.sources(node):
            if isinstance(part, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
                found.append((part.elt, any(map(over_layers, part.generators))))
            for place, value in self.put(part):
                loops = [above for above in self.above(place) if isinstance(above, ast.For)]
                found.append((value, any(map(over_layers, loops[:1]))))
        return found

    def is_statistic(self, node: ast.AST) -> bool:
        """Whether a node is a norm, cosine, mean or the like of gradients; clipping is not one."""
        name = words(called(node))
        of_gradients = STATISTIC.fullmatch(called(node)) and any(
            map(self.is_gradient, self.operands(node))
        )
        return "clip" not in name and bool(
            of_gradients or (name & GRADIENT and name & (NORM | COSINE))
        )

    def is_silenced(self, node: ast.expr | ast.stmt, rule: str) -> bool:
        """Whether a comment on the statement, or on the head of a block, lets it stand."""
        statement = next(each for each in (node, *self.above(node)) if isinstance(each, ast.stmt))
        last = (node if hasattr(statement, "body") else statement).end_lineno
        lines = self.text.split("\n")[min(statement.lineno, node.lineno) - 1 : last]
        found = [match["only"] for line in lines for match in SILENT.finditer(line)]
        return any(rule in (only or rule) for only in found)


def norm_order(code: Code, node: ast.AST) -> bool:
    """``x.norm(-1)`` and its spellings."""
    if not isinstance(node, ast.Call):
        return False
    full, operands = code.dotted(node.func), [*map(ast.unparse, code.operands(node))]
    is_method = (
        not full and isinstance(node.func, ast.Attribute) and operands[0] not in ("self", "cls")
    )
    named = [] if keywords(node, "dim", "axis") else keywords(node, "p", "ord")  # both named: meant
    slips = "-1" in (*operands[1:2], *map(ast.unparse, named))
    return slips and bool(NORMS.fullmatch(full) or (is_method and called(node) == "norm"))


def cosine_guard(code: Code, node: ast.AST) -> bool:
    """A cosine of torch on gradients, in a function that neither normalises nor compares norms."""
    maker = code.clamps(node)
    if maker is None or not any(map(code.is_gradient, code.compared(node))):
        return False
    eps = next(iter(keywords(maker, "eps")), ast.Constant(1e-8))
    value = getattr(eps, "value", None)
    if not isinstance(value, (int, float)) or value < 1e-8:
        return False
    around = list(ast.walk(code.scope(node)))
    sizes: list[ast.AST] = []
    for part in around:
        if isinstance(getattr(part, "op", None), ast.Div):
            sizes += code.sources(getattr(part, "right", getattr(part, "value", part)))
        elif isinstance(part, ast.Compare):
            sizes += ast.walk(part)
    normalises = any(words(called(part)) & UNIT for part in around)
    return not normalises and not any(words(label(part)) & NORM for part in sizes)


def half_precision(code: Code, node: ast.AST) -> bool:
    """A statistic of gradients in float16, by a cast or by autocast, without a scaled loss."""
    if not code.is_statistic(node):
        return False
    scope, inside = code.scope(node), [*code.above(node)]
    casts = [
        part for part in code.sources(node) if called(part) in ("half", "to", "type", "astype")
    ]
    half = any(re.search(r"\b(half|float16)\b", ast.unparse(cast)) for cast in casts)
    for block in inside + [
        part for part in ast.walk(scope) if isinstance(part, ast.With) and part not in inside
    ]:
        heads = [item.context_expr for item in getattr(block, "items", [])] + getattr(
            block, "decorator_list", []
        )
        casting = [
            ast.unparse(head)
            for head in heads
            if AUTOCAST.fullmatch(code.dotted(getattr(head, "func", head)))
        ]
        # what ran in float16 forwards does so backwards
        if casting and (
            block in inside
            or ("loss =" in ast.unparse(block) and "loss.backward(" in ast.unparse(scope))
        ):
            half = half or not WIDE.search(casting[0])
            break
    return half and "scaler" not in ast.unparse(scope)


def missing_credit(code: Code, node: ast.AST) -> bool:
    """A cosine of a gradient with itself, or 1.0 in the place of a cosine of gradients."""
    sides, target = [*map(ast.unparse, code.compared(node))], getattr(node, "targets", [None])[0]
    replaced: list[ast.AST] = []
    if len(sides) == 2 and sides[0] == sides[1] and "def test" not in ast.unparse(code.scope(node)):
        replaced = [node]
    elif isinstance(node, ast.IfExp):
        replaced = [
            a
            for a, b in ((node.body, node.orelse), (node.orelse, node.body))
            if ast.unparse(b) in ONE
        ]
    elif isinstance(target, ast.Subscript) and any(
        isinstance(part, ast.Compare) for part in ast.walk(target.slice)
    ):
        replaced = [target.value] if ast.unparse(node.value) in ONE else []  # type: ignore[attr-defined]
    return any(map(code.is_alignment, replaced))


def lost_feedback(code: Code, node: ast.AST) -> bool:
    """A random ``self.B`` that its class neither registers nor saves."""
    name = getattr(getattr(node, "targets", [None])[0], "attr", "")
    if (
        not isinstance(node, ast.Assign)
        or not MATRIX.fullmatch(name)
        or not FEEDBACK.search(code.text)
    ):
        return False
    drawn = {called(inner) for part in code.sources(node.value) for inner in ast.walk(part)}
    owner = next(
        (ast.unparse(above) for above in code.above(node) if isinstance(above, ast.ClassDef)), ""
    )
    kept = re.search(rf"(register_buffer|save)\(.*\b{name}\b|self\.{name} = nn\.Parameter", owner)
    return "Parameter" not in drawn and not kept and any(map(RANDOM.fullmatch, drawn))


def concatenation(code: Code, node: ast.AST) -> bool:
    """A cosine of which a side joins the gradients of several layers."""
    sides = code.compared(node)
    for part in (source for side in sides for source in code.sources(side)):
        name, joined = called(part), [*code.operands(part), None][0]
        if name in ("flatten", "ravel", "view", "reshape") and called(joined) == "stack":
            name, joined = "cat", code.operands(joined)[0]
        several = any(over for _, over in code.elements(joined or part))
        if isinstance(joined, ast.List):
            owners = re.findall(r"([\w.]+?)(?:\.weight|\.bias)?\.grad\b", ast.unparse(joined))
            several = len(set(owners)) > 1
        joins = name in ("cat", "concat", "concatenate", "hstack") and several
        if (joins or name == "parameters_to_vector") and any(map(code.is_gradient, sides)):
            return True
    return False


def layer_average(code: Code, node: ast.AST) -> bool:
    """A mean, or a sum that is divided, over layers of cosines of gradients."""
    listed: list[ast.expr] = []
    if isinstance(node, ast.Call) and called(node) in ("mean", "fmean", "nanmean", "average"):
        along = [*code.operands(node)[1:], *keywords(node, "dim", "axis")]
        listed = code.operands(node)[:1] if {"0"} >= set(map(ast.unparse, along)) else []
    elif isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, ast.Div):
        total = node.left if isinstance(node, ast.BinOp) else node.target
        is_total = any(isinstance(place, ast.AugAssign) for place, _ in code.put(total))
        listed = code.operands(total)[:1] if called(total) == "sum" else [total] if is_total else []
    for each in listed:
        elements, name = code.elements(each), words(label(each))
        by_name = isinstance(node, ast.Call) and not elements and name & LAYERS and name & COSINE
        averages = by_name or any(over and code.is_alignment(element) for element, over in elements)
        return bool(averages) and not isinstance(each, ast.Subscript)  # cosines[1:] leaves h_0 out
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
    code, lines, found = Code(tree, text), text.split("\n"), set()
    for node in code.nodes:
        if not isinstance(node, (ast.Call, ast.BinOp, ast.IfExp, ast.Assign, ast.AugAssign)):
            continue
        before = lines[node.lineno - 1].encode()[: node.col_offset].decode(errors="replace")
        for rule, message in RULES.items():
            if rule(code, node) and not code.is_silenced(node, message[:3]):
                found.add((node.lineno, len(before) + 1, message))
    return sorted(found)


class Flake8:
    """The same rules as a flake8 plugin: ``flake8 --select FA``."""

    name, version = "pytest-fadiag", "0.1.0"

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
            tree = ast.parse(text := file.read())
    except (OSError, SyntaxError, ValueError, LookupError, RecursionError, MemoryError) as error:
        return [(getattr(error, "lineno", None) or 1, 1, f"FA0 cannot be read as Python: {error}")]
    try:
        return check(tree, text)
    except RecursionError:
        return [(1, 1, "FA0 is nested too deeply to check")]


def python_files(path: Path) -> Iterator[Path]:
    """A file, or the Python files in a folder, without linked, hidden and built ones."""
    if path.is_file():
        yield path
    for folder, below, files in os.walk(path):
        below[:] = [
            name
            for name in sorted(below)
            if not (SKIPPED.fullmatch(name) or Path(folder, name, "pyvenv.cfg").exists())
        ]
        yield from (Path(folder, name) for name in sorted(files) if name.endswith(".py"))


def main(paths: Sequence[str]) -> int:
    """Print the mistakes in these files and folders; 1 if there are any, else 0.

    >>> main(["src/evaluate.py"])
    src/evaluate.py:12:9: FA1 -1 is the order of this norm, not its dimension; write dim=-1
    1
    """
    files = {given: list(python_files(Path(given))) for given in paths}
    if empty := [given for given in paths if not files[given]]:
        raise AuditError(
            f"expected a Python file, or a folder of them, but got {one_line(empty[0])}"
        )
    findings = [
        (path, *found) for below in files.values() for path in below for found in check_file(path)
    ]
    for path, line, column, text in findings:
        print(one_line(f"{path}:{line}:{column}: {text}"))
    print(
        f"{len(findings)} findings in {sum(map(len, files.values()))} Python files", file=sys.stderr
    )
    return int(bool(findings))
