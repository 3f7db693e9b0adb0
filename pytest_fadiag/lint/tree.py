"""A parsed file with what the checks ask of it: who encloses a node, what a name stands for, where a function is called."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import TypeVar

from .bindings import FUNCTIONS, Binding, Kind, Scope, bind

T = TypeVar("T")
N = TypeVar("N", bound=ast.AST)
Function = ast.FunctionDef | ast.AsyncFunctionDef

# What everyone calls these modules, for code that gets them by a star import.
CONVENTIONS = {"torch": "torch", "F": "torch.nn.functional", "nn": "torch.nn", "np": "numpy"}
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
_PLACELESS = (ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.boolop)
_SCOPED = (*FUNCTIONS, ast.Lambda, ast.ClassDef, *COMPREHENSIONS)


class Tree:
    """The syntax tree of one file, with parents, scopes and light data-flow; ``stem`` is the file's name without .py."""

    def __init__(self, module: ast.Module, stem: str) -> None:
        self.module = module
        self.stem = stem
        self.nodes: list[ast.AST] = []
        self._parents: dict[ast.AST, ast.AST] = {}
        self._scopes: dict[ast.AST, Scope] = {}
        self._calls: dict[str, list[ast.Call]] = {}
        self._facts: dict[object, object] = {}
        self._map(Scope(module, None))

    def _map(self, top: Scope) -> None:
        # A list instead of recursion: generated files have expressions deeper than Python's stack.
        pending: list[tuple[ast.AST, Scope]] = [(self.module, top)]
        while pending:
            node, scope = pending.pop()
            self.nodes.append(node)
            self._scopes[node] = scope
            if isinstance(node, ast.Call) and (name := called_name(node)):
                self._calls.setdefault(name, []).append(node)
            inner = Scope(node, scope) if isinstance(node, _SCOPED) else scope
            bind(node, scope, inner)
            outside = _evaluated_outside(node)
            # Load, Store and the operators are one object for the whole file, so they have no place in it.
            children = [child for child in ast.iter_child_nodes(node) if not isinstance(child, _PLACELESS)]
            for child in children:
                self._parents[child] = node
            pending.extend((child, scope if child in outside else inner) for child in reversed(children))

    def fact(self, kind: Callable[[Tree], T]) -> T:
        """What a class concludes from this tree, made once: checks share their conclusions."""
        if kind not in self._facts:
            self._facts[kind] = kind(self)
        return self._facts[kind]  # type: ignore[return-value]

    def all(self, kind: type[N]) -> Iterator[N]:
        """Every node of a kind, in the order of the source."""
        return (node for node in self.nodes if isinstance(node, kind))

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around a node, from the inside."""
        while (above := self._parents.get(node)) is not None:
            yield above
            node = above

    def parent(self, node: ast.AST) -> ast.AST:
        """The node directly around a node."""
        return self._parents[node]

    def scope(self, node: ast.AST) -> Scope:
        """The scope a node's names are looked up in."""
        return self._scopes[node]

    def statement(self, node: ast.AST) -> ast.stmt:
        """The innermost statement a node is part of."""
        for above in (node, *self.ancestors(node)):
            if isinstance(above, ast.stmt):
                return above
        raise ValueError("a module is part of no statement")

    def function(self, node: ast.AST) -> Function | None:
        """The function a node is in, if any."""
        return next((above for above in self.ancestors(node) if isinstance(above, FUNCTIONS)), None)

    def class_of(self, node: ast.AST) -> ast.ClassDef | None:
        """The class a node is in, if any."""
        return next((above for above in self.ancestors(node) if isinstance(above, ast.ClassDef)), None)

    def body(self, node: ast.AST) -> list[ast.AST]:
        """Every node of the function around a node, or of the file's top level: where its names live."""
        return self.fact(_bodies)[self.function(node)]

    def dotted(self, node: ast.AST) -> str | None:
        """The full name of what an expression names through the imports: ``F.normalize`` is torch.nn.functional.normalize."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return None
        _, bindings = self.lookup(node)
        modules = [binding.module for binding in bindings if binding.kind is Kind.IMPORT]
        root = modules[0] if modules else None if bindings else CONVENTIONS.get(node.id)
        return root and ".".join([root, *reversed(parts)])

    def receiver(self, call: ast.Call) -> ast.expr | None:
        """What a method is called on: x of ``x.norm(2)``; None for a function, also one of a module as in ``torch.norm(x)``."""
        return call.func.value if isinstance(call.func, ast.Attribute) and self.dotted(call.func) is None else None

    def lookup(self, node: ast.Name) -> tuple[Scope | None, list[Binding]]:
        """The scope that binds a name, and all its bindings there."""
        scope: Scope | None = self._scopes[node]
        here = True
        while scope is not None:
            # A class's names are seen in its own body, not in its methods.
            if (here or not isinstance(scope.node, ast.ClassDef)) and node.id in scope.bindings:
                return scope, scope.bindings[node.id]
            here = here and not isinstance(scope.node, (*FUNCTIONS, ast.Lambda))
            scope = scope.parent
        return None, []

    def reaching(self, node: ast.Name) -> list[Binding]:
        """The bindings whose value a name may have at this use: those before it, back to the first one sure to have run."""
        scope, bindings = self.lookup(node)
        if scope is None or self.function(node) is not (
            scope.node if isinstance(scope.node, FUNCTIONS) else self.function(scope.node)
        ):
            return bindings  # a closure runs when it is called: any binding may have come first
        around = set(self.ancestors(node))
        reaching = []
        for binding in sorted(bindings, key=lambda binding: binding.order, reverse=True):
            if binding.order > position(node):
                continue
            reaching.append(binding)
            if binding.kind is not Kind.AUGMENT and self._parents.get(binding.node) in around:
                break
        return reaching

    def values(self, node: ast.expr, *kinds: Kind) -> list[ast.expr]:
        """What a name may stand for at this use, or ``self.name`` in its class; only bindings of some kinds, if given."""
        bindings: list[Binding] = []
        if isinstance(node, ast.Name):
            bindings = self.reaching(node)
        elif isinstance(node, ast.Attribute):
            bindings = self.attribute(node)
        return [binding.value for binding in bindings if binding.value is not None and (not kinds or binding.kind in kinds)]

    def only_value(self, node: ast.Name) -> ast.expr | None:
        """What a name stands for, where just one binding reaches this use."""
        bindings = self.reaching(node)
        return bindings[0].value if len(bindings) == 1 else None

    def attribute(self, node: ast.Attribute) -> list[Binding]:
        """What the class around a node assigns to ``self.name``."""
        if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
            return []
        owner = self.class_of(node)
        return self._scopes[owner.body[0]].attributes.get(node.attr, []) if owner else []

    def contents(self, node: ast.expr) -> list[tuple[ast.AST, ast.expr]]:
        """What is put into a list or dict after its creation, each with the place: append, extend, item assignment."""
        if isinstance(node, ast.Name):
            scope, _ = self.lookup(node)
            return [] if scope is None else scope.filled.get(node.id, [])
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and (owner := self.class_of(node)):
            return self._scopes[owner.body[0]].filled.get(f"{node.value.id}.{node.attr}", [])
        return []

    def definition(self, call: ast.Call) -> Function | None:
        """The function of this file that a call runs: by its name, or a method by ``self.name``."""
        if isinstance(call.func, ast.Name):
            _, bindings = self.lookup(call.func)
            nodes = [binding.node for binding in bindings]
        elif isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name) and call.func.value.id == "self":
            owner = self.class_of(call)
            nodes = [node for node in owner.body if getattr(node, "name", None) == call.func.attr] if owner else []
        else:
            return None
        return next((node for node in nodes if isinstance(node, FUNCTIONS)), None)

    def results(self, call: ast.Call) -> list[ast.expr]:
        """What a function of this file may return to a call; of another function nothing."""
        if (function := self.definition(call)) is None:
            return []
        returns = (node for node in ast.walk(function) if isinstance(node, ast.Return) and self.function(node) is function)
        return [node.value for node in returns if node.value is not None]

    def arguments(self, function: Function, name: str) -> list[ast.expr]:
        """What the calls in this file give for one parameter of a function."""
        names = [arg.arg for arg in (*function.args.posonlyargs, *function.args.args)]
        arguments = []
        for call in self._calls.get(function.name, []):
            if self.definition(call) is not function:
                continue
            shift = 1 if isinstance(call.func, ast.Attribute) and names[:1] == ["self"] else 0
            place = names.index(name) - shift if name in names else -1
            if 0 <= place < len(call.args) and not any(isinstance(arg, ast.Starred) for arg in call.args[: place + 1]):
                arguments.append(call.args[place])
            arguments += [keyword.value for keyword in call.keywords if keyword.arg == name]
        return arguments

    def number(self, node: ast.expr | None) -> float | None:
        """The number an expression is, written there or under a name of its scope or as a parameter's default."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = self.number(node.operand)
            return None if value is None else -value
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
            return node.value
        if isinstance(node, ast.Name):
            value_of_name = self.only_value(node)
            return None if isinstance(value_of_name, ast.Name) else self.number(value_of_name)
        return None


def called_name(call: ast.Call) -> str | None:
    """The last part of what a call calls: ``norm`` for ``x.norm(2)``."""
    func = call.func
    return func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else None


def keyword(call: ast.Call, *names: str) -> ast.expr | None:
    """The value of the first of these keywords a call gives."""
    return next((word.value for name in names for word in call.keywords if word.arg == name), None)


def argument(call: ast.Call, place: int, *names: str) -> ast.expr | None:
    """The argument at a place, or given by one of these names."""
    positional = call.args[place] if place < len(call.args) and not isinstance(call.args[place], ast.Starred) else None
    return positional if positional is not None else keyword(call, *names)


def position(node: ast.AST) -> tuple[int, int]:
    """Where a node begins, to compare with others."""
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def _bodies(tree: Tree) -> dict[Function | None, list[ast.AST]]:
    """The nodes of each function without those of the functions in it; None is the file's top level."""
    bodies: dict[Function | None, list[ast.AST]] = {None: []}
    owners: dict[ast.AST, Function | None] = {tree.module: None}
    for node in tree.nodes[1:]:  # a parent comes before its children
        above = tree.parent(node)
        owners[node] = above if isinstance(above, FUNCTIONS) else owners[above]
        bodies.setdefault(owners[node], []).append(node)
    return bodies


def _evaluated_outside(node: ast.AST) -> set[ast.AST]:
    """The parts of a definition that the scope around it evaluates."""
    if isinstance(node, FUNCTIONS):
        return {*node.decorator_list, *([node.returns] if node.returns else [])}
    if isinstance(node, ast.ClassDef):
        return {*node.decorator_list, *node.bases, *node.keywords}
    return set()
