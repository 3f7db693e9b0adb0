"""Which expressions are cosines: torch's own, an instance of its module, a helper's by name, or one written out."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from .tree import Tree, argument, called_name, keyword
from .words import NORM, words

_FUNCTIONS = {"torch.nn.functional.cosine_similarity", "torch.cosine_similarity"}
_MODULES = {"torch.nn.CosineSimilarity", "torch.nn.modules.distance.CosineSimilarity"}
_HELPER = words("cos cosine cosim cossim")
_DOTS = {"dot", "vdot", "inner", "sum", "matmul"}
# A matrix of every pair, a loss, a schedule, an embedding: they share the word.
_OTHER = words("pairwise loss schedule scheduler annealing lr embedding rotary decay warmup sin matrix cdist distance")


@dataclass(frozen=True)
class Cosine:
    """A cosine in the code: the expression, what it compares, and torch's eps where it is torch's own."""

    node: ast.expr
    first: ast.expr
    second: ast.expr
    torch: bool
    eps: ast.expr | None = None

    @property
    def sides(self) -> tuple[ast.expr, ast.expr]:
        """The two things compared."""
        return self.first, self.second


class Cosines:
    """Every cosine of one tree."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._by_node: dict[ast.AST, Cosine] = {}
        for node in tree.nodes:
            cosine = None
            if isinstance(node, ast.Call):
                cosine = self._call(node)
            elif isinstance(node, ast.BinOp):
                cosine = self._quotient(node)
            if cosine is not None:
                self._by_node[node] = cosine

    def __iter__(self) -> Iterator[Cosine]:
        return iter(self._by_node.values())

    def inside(self, node: ast.expr, depth: int = 4) -> Cosine | None:
        """The cosine an expression is, possibly under a name, after ``.mean().item()`` or in ``float(…)``."""
        if node in self._by_node:
            return self._by_node[node]
        if depth == 0:
            return None
        inner: list[ast.expr] = []
        if isinstance(node, ast.Call):
            inner = [node.func.value] if isinstance(node.func, ast.Attribute) else []
            inner += node.args[:1]
        elif isinstance(node, ast.Name):
            inner = self.tree.values(node)
        elif isinstance(node, ast.BinOp):
            inner = [node.left, node.right]
        return next((cosine for part in inner if (cosine := self.inside(part, depth - 1)) is not None), None)

    def _call(self, node: ast.Call) -> Cosine | None:
        full = self.tree.dotted(node.func)
        first, second = argument(node, 0, "x1", "input1"), argument(node, 1, "x2", "input2")
        if first is None or second is None:
            return None
        if full in _FUNCTIONS:
            return Cosine(node, first, second, True, argument(node, 3, "eps"))
        if (module := self._module(node.func)) is not None:
            return Cosine(node, first, second, True, argument(module, 1, "eps"))
        name = words(called_name(node) or "")
        if name & _HELPER and not name & _OTHER and keyword(node, "reduction", "metric") is None:
            library = (full or "").startswith(("sklearn.", "torchmetrics.", "math.", "numpy.", "torch."))
            return None if library else Cosine(node, first, second, False)
        return None

    def _module(self, func: ast.expr) -> ast.Call | None:
        """The ``nn.CosineSimilarity(…)`` that is called, there or under a name."""
        calls = [value for value in (func, *self.tree.values(func)) if isinstance(value, ast.Call)]
        return next((call for call in calls if self.tree.dotted(call.func) in _MODULES), None)

    def _quotient(self, node: ast.BinOp) -> Cosine | None:
        """``dot / (norm * norm)``, each part possibly under a name."""
        if not isinstance(node.op, ast.Div):
            return None
        pair = self._dot(node.left)
        return Cosine(node, *pair, torch=False) if pair is not None and self._norms(node.right, 4) >= 2 else None

    def _dot(self, node: ast.expr, depth: int = 3) -> tuple[ast.expr, ast.expr] | None:
        """The two factors of an inner product."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            return node.left, node.right
        if isinstance(node, ast.Name) and depth:
            value = self.tree.only_value(node)
            return None if value is None else self._dot(value, depth - 1)
        if isinstance(node, (ast.GeneratorExp, ast.ListComp)):
            return self._dot(node.elt, depth)
        return self._dot_call(node, depth) if isinstance(node, ast.Call) else None

    def _dot_call(self, node: ast.Call, depth: int) -> tuple[ast.expr, ast.expr] | None:
        name = called_name(node)
        if name not in _DOTS | {"float", "item"}:
            return None
        receiver = self.tree.receiver(node)
        operands = [*([receiver] if receiver is not None else []), *node.args]
        if name in _DOTS - {"sum"} and len(operands) > 1:
            return operands[0], operands[1]
        product = operands[0] if operands else None
        if isinstance(product, ast.BinOp) and isinstance(product.op, ast.Mult):
            return product.left, product.right
        return self._dot(product, depth - 1) if product is not None and depth else None

    def _norms(self, node: ast.expr, depth: int) -> int:
        """How many norms are multiplied in a denominator."""
        if isinstance(node, ast.BinOp):
            return self._norms(node.left, depth) + self._norms(node.right, depth)
        if isinstance(node, ast.Call):
            name = called_name(node) or ""
            if words(name) & NORM:
                return 1
            if name in ("max", "clamp", "clamp_min", "maximum", "float", "item", "sqrt"):
                inner = [*node.args, *([node.func.value] if isinstance(node.func, ast.Attribute) else [])]
                return sum(self._norms(part, depth) for part in inner) or (1 if name == "sqrt" else 0)
        if isinstance(node, ast.Name):
            values = self.tree.values(node) if depth else []
            return max([self._norms(value, depth - 1) for value in values] + [1 if words(node.id) & NORM else 0])
        return 0
