"""What a list runs over: layers, which must stay apart, or batches, which may be put together."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from .bindings import Kind
from .gradients import AUTOGRAD
from .tree import COMPREHENSIONS, Tree, called_name
from .words import BATCH, GRADIENT_LIST, LAYER, LAYER_INDEX, names, words

# Calls that hand on the elements of their argument.
_WRAPPERS = {"list", "tuple", "sorted", "reversed", "enumerate", "zip", "filter", "iter", "tqdm"}
_STACKS = names("stack cat concat concatenate hstack vstack tensor as_tensor array asarray Tensor FloatTensor")
_VIEWS = {"values", "items", "float", "double", "cpu", "detach", "numpy", "to", "copy", "abs", "clone", "tolist"}
_DEPTH = 8  # of names for names: enough for what people write, an end for lists that are made of themselves


class Sequences:
    """Answers, for one tree, what the elements of a list are and what they run over."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    def over_layers(self, node: ast.expr, depth: int = _DEPTH) -> bool:
        """Whether a list has one element a layer, a block or a parameter."""
        return self._axis(node, depth) == "layers"

    def loop_over_layers(self, loop: ast.For | ast.AsyncFor) -> bool:
        """Whether a loop runs over layers, blocks or parameters."""
        return self._loop(loop, _DEPTH) == "layers"

    def elements(self, node: ast.expr, depth: int = _DEPTH) -> Iterator[tuple[ast.expr, bool]]:
        """The expressions a list is made of, each with whether its loop runs over layers."""
        if depth == 0:
            return
        if isinstance(node, ast.DictComp):
            yield node.value, self._loops(node.generators, depth) == "layers"
        elif isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
            yield node.elt, self._loops(node.generators, depth) == "layers"
        elif isinstance(node, (ast.Name, ast.Attribute)):
            yield from self._named(node, depth)
        elif isinstance(node, ast.Call) and (inner := self.unwrapped(node)) is not None:
            yield from self.elements(inner, depth - 1)

    def unwrapped(self, node: ast.Call) -> ast.expr | None:
        """The list in ``torch.stack(list(cosines.values())).float()``, one call at a time."""
        name = called_name(node)
        if (inner := self.tree.receiver(node)) is not None:
            return inner if name in _VIEWS else None
        return node.args[0] if node.args and name in _WRAPPERS | _STACKS else None

    def _named(self, node: ast.Name | ast.Attribute, depth: int) -> Iterator[tuple[ast.expr, bool]]:
        for value in self.tree.values(node, Kind.VALUE):
            yield from self.elements(value, depth - 1)
        bindings = self.tree.reaching(node) if isinstance(node, ast.Name) else self.tree.attribute(node)
        # A list made anew inside the loop over layers has the elements of the inner loop only.
        around_creation = {above for binding in bindings for above in (binding.node, *self.tree.ancestors(binding.node))}
        for place, value in self.tree.contents(node):
            loops = [
                above
                for above in self.tree.ancestors(place)
                if isinstance(above, (ast.For, ast.AsyncFor)) and above not in around_creation
            ]
            yield value, self._loops(loops, depth) == "layers"

    def _axis(self, node: ast.expr, depth: int) -> str | None:
        if depth == 0:
            return None
        if isinstance(node, COMPREHENSIONS):
            return self._loops(node.generators, depth)
        if isinstance(node, ast.Call):
            return self._call_axis(node, depth)
        if isinstance(node, (ast.Subscript, ast.Starred)):
            return self._axis(node.value, depth)
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self._name_axis(node, depth)
        return None

    def _name_axis(self, node: ast.Name | ast.Attribute, depth: int) -> str | None:
        own = _axis_by_name([node.id if isinstance(node, ast.Name) else node.attr])
        if own == "batches":
            return own
        loops = {over for _, over in self._named(node, depth)}
        if loops:
            return "layers" if True in loops else None
        kinds = set(Kind) - {Kind.PARAMETER}
        values = self.tree.values(node, *kinds) if isinstance(node, ast.Name) else []
        axes = [self._axis(value, depth - 1) for value in values if not isinstance(value, (ast.List, ast.Constant))]
        return own or next((axis for axis in axes if axis), None)

    def _call_axis(self, node: ast.Call, depth: int) -> str | None:
        name = called_name(node) or ""
        if self.tree.dotted(node.func) in AUTOGRAD:
            if len(node.args) < 2:
                return None
            inputs = node.args[1]
            several = isinstance(inputs, (ast.List, ast.Tuple)) and len(inputs.elts) > 1
            return "layers" if several else self._axis(inputs, depth - 1)
        if name in _WRAPPERS | _VIEWS | {"len", "range"}:
            inner = [*node.args, *([node.func.value] if isinstance(node.func, ast.Attribute) else [])]
            axes = {self._axis(arg, depth - 1) for arg in inner}
            return "batches" if "batches" in axes else "layers" if "layers" in axes else None
        return _axis_by_name([name])

    def _loops(self, loops: Iterable[ast.For | ast.AsyncFor | ast.comprehension], depth: int) -> str | None:
        """What nested loops run over together: layers if one of them does."""
        axes = [self._loop(loop, depth) for loop in loops]
        return "layers" if "layers" in axes else "batches" if "batches" in axes else None

    def _loop(self, loop: ast.For | ast.AsyncFor | ast.comprehension, depth: int) -> str | None:
        axis = self._axis(loop.iter, depth - 1)
        if axis is None:
            targets = {name.id for name in ast.walk(loop.target) if isinstance(name, ast.Name)}
            axis = "layers" if any(words(name) & LAYER_INDEX for name in targets) else _axis_by_name(targets)
        return axis


def _axis_by_name(names: Iterable[str]) -> str | None:
    """What a name says its elements run over."""
    parts = {word for name in names for word in words(name)}
    if parts & BATCH:
        return "batches"
    return "layers" if parts & (LAYER | GRADIENT_LIST) else None
