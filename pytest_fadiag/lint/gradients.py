"""Which expressions are gradients or other credit signals, by their names and by what flows into them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from .bindings import Binding, Kind
from .tree import Tree, called_name
from .words import names_gradient

AUTOGRAD = {"torch.autograd.grad", "torch.autograd.functional.vjp", "torch.func.vjp", "torch.func.jacrev"}
_SLOPES = {"torch.gradient", "numpy.gradient"}  # of an image or a signal, not of a loss
_CARRIERS = ("torch.", "numpy.", "jax.numpy.")
_BUILTINS = {"list", "tuple", "sorted", "reversed", "float", "dict", "map", "filter", "next", "iter", "zip", "sum"}
# Attributes of a gradient that are the same numbers.
_SAME = {"T", "mT", "H", "data", "real", "flat"}
# Methods of a gradient that give something else than its numbers.
_FACTS = {"size", "dim", "numel", "keys", "nelement", "backward", "is_contiguous", "register_hook"}


class Gradients:
    """Answers, for one tree, whether an expression is a gradient."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._answers: dict[ast.AST, bool] = {}
        self._rules: dict[type[ast.AST], Callable[..., bool]] = {
            ast.Name: self._name,
            ast.Attribute: self._attribute,
            ast.Subscript: self._subscript,
            ast.Call: self._call,
            ast.BinOp: self._operation,
            ast.UnaryOp: lambda node: self(node.operand),
            ast.IfExp: lambda node: self(node.body) or self(node.orelse),
            ast.BoolOp: lambda node: self.any(node.values),
            ast.NamedExpr: lambda node: self(node.value),
            ast.Starred: lambda node: self(node.value),
            ast.List: lambda node: self.any(node.elts),
            ast.Tuple: lambda node: self.any(node.elts),
            ast.Dict: lambda node: self.any(node.values),
            ast.ListComp: lambda node: self(node.elt),
            ast.SetComp: lambda node: self(node.elt),
            ast.GeneratorExp: lambda node: self(node.elt),
            ast.DictComp: lambda node: self(node.value),
        }

    def __call__(self, node: ast.AST | None) -> bool:
        """Whether an expression is a gradient, or a list of them."""
        if node is None:
            return False
        if node not in self._answers:
            self._answers[node] = False  # what a name is while that is being found out: the end of a circle
            rule = self._rules.get(type(node))
            self._answers[node] = rule is not None and rule(node)
        return self._answers[node]

    def any(self, nodes: Iterable[ast.AST]) -> bool:
        """Whether one of several expressions is a gradient."""
        return any(self(node) for node in nodes)

    def _name(self, node: ast.Name) -> bool:
        if names_gradient(node.id):
            return True
        return any(self._bound(node, binding) for binding in self.tree.reaching(node)) or self.any(
            value for _, value in self.tree.contents(node)
        )

    def _bound(self, node: ast.Name, binding: Binding) -> bool:
        if binding.kind is not Kind.PARAMETER:
            return self(binding.value)
        function = self.tree.function(node)
        # ``def gradient_cosine(a, b)`` says what its a and b are.
        return function is not None and (_names_gradients_of(function.name) or self.any(self.tree.arguments(function, node.id)))

    def _attribute(self, node: ast.Attribute) -> bool:
        if names_gradient(node.attr):
            return True
        if node.attr in _SAME:
            return self(node.value)
        return self.any(self.tree.values(node)) or self.any(value for _, value in self.tree.contents(node))

    def _subscript(self, node: ast.Subscript) -> bool:
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        return self(node.value) or (isinstance(key, str) and names_gradient(key))

    def _call(self, node: ast.Call) -> bool:
        full = self.tree.dotted(node.func)
        name = called_name(node)
        if full in _SLOPES:
            return False
        # A lower-case name: GradReverse(…) and the like make modules.
        if full in AUTOGRAD or (name is not None and names_gradient(name) and name.lower() == name):
            return True
        if full is not None and full.startswith(_CARRIERS):
            return self._carries(full, node)
        if self(self.tree.receiver(node)):
            return name not in _FACTS
        if isinstance(node.func, ast.Name) and name in _BUILTINS:
            return self.any(node.args)
        return self.any(self.tree.results(node))

    def _carries(self, full: str, node: ast.Call) -> bool:
        """Whether a function of torch or numpy hands on a gradient: not if it is a module, a loss or an image operation."""
        last = full.rpartition(".")[2]
        if full.startswith("torch.nn.") and last not in ("normalize", "parameters_to_vector", "pad"):
            return False
        return last[:1].islower() and last != "cosine_similarity" and self.any(node.args)

    def _operation(self, node: ast.BinOp) -> bool:
        sides = [side for side in (node.left, node.right) if not isinstance(side, ast.Constant)]
        if isinstance(node.op, (ast.Add, ast.Sub)):
            # ``weight - rate * gradient`` is a weight, ``gradient + 1e-12`` a gradient.
            return bool(sides) and all(self(side) for side in sides)
        return self(node.left) if isinstance(node.op, ast.Div) else self.any(sides)


def _names_gradients_of(function: str) -> bool:
    """Whether a function's name says that its arguments are gradients; there ``gradient_cosine`` does."""
    return any(names_gradient(part) for part in function.split("_")) and "loss" not in function.lower()
