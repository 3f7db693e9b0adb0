"""Scopes and what they bind: each name of a file with the expressions that flow into it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_FILLS = {"append": 0, "extend": 0, "add": 0, "update": 0, "insert": 1}


class Kind(Enum):
    """How a name got its value."""

    VALUE = "assigned"
    ITEM = "one element of what was assigned or iterated"
    AUGMENT = "changed in place by an operator"
    PARAMETER = "given by the caller; the value is the default"
    DEFINITION = "a function or class"
    IMPORT = "imported"


@dataclass(frozen=True, eq=False)
class Binding:
    """One way a name gets a value, and where."""

    node: ast.AST
    kind: Kind
    value: ast.expr | None = None
    module: str = ""

    @property
    def order(self) -> tuple[int, int]:
        """The end of what binds: a name is bound only after the right side was evaluated."""
        # The body of a loop reads the loop's own name, so a loop binds where its target stands.
        last = self.node.target if isinstance(self.node, (ast.For, ast.AsyncFor)) else self.node
        last = last.context_expr if isinstance(last, ast.withitem) else last
        if self.kind in (Kind.PARAMETER, Kind.DEFINITION, Kind.IMPORT) or isinstance(last, ast.comprehension):
            return 0, 0
        return getattr(last, "end_lineno", 0), getattr(last, "end_col_offset", 0)


@dataclass(eq=False)
class Scope:
    """The names of a module, function, lambda, class or comprehension; a class also has its ``self.`` attributes."""

    node: ast.AST
    parent: Scope | None
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    attributes: dict[str, list[Binding]] = field(default_factory=dict)
    filled: dict[str, list[tuple[ast.AST, ast.expr]]] = field(default_factory=dict)

    def add(self, name: str, binding: Binding) -> None:
        """Bind a name in this scope."""
        self.bindings.setdefault(name, []).append(binding)

    def climb(self, *kinds: type[ast.AST]) -> Scope | None:
        """The nearest scope of a kind, from here outwards."""
        scope: Scope | None = self
        while scope is not None and not isinstance(scope.node, kinds):
            scope = scope.parent
        return scope


def bind(node: ast.AST, scope: Scope, inner: Scope) -> None:
    """Enter what one node binds: ``scope`` is the one it stands in, ``inner`` the one it opens."""
    for name, binding in _imports(node):
        scope.add(name, binding)
    if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
        scope.add(node.name, Binding(node, Kind.DEFINITION))
    if isinstance(node, (*FUNCTIONS, ast.Lambda)):
        for name, default in _parameters(node.args):
            inner.add(name, Binding(node, Kind.PARAMETER, default))
    for target, value, kind in _assigned(node):
        _enter(target, Binding(node, kind, value), scope)
    _fill(node, scope)


def _imports(node: ast.AST) -> Iterator[tuple[str, Binding]]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            module = alias.name if alias.asname else alias.name.partition(".")[0]
            yield alias.asname or module, Binding(node, Kind.IMPORT, module=module)
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            module = "." * node.level + (f"{node.module}." if node.module else "") + alias.name
            yield alias.asname or alias.name, Binding(node, Kind.IMPORT, module=module)


def _parameters(args: ast.arguments) -> Iterator[tuple[str, ast.expr | None]]:
    positional = [*args.posonlyargs, *args.args]
    missing: list[ast.expr | None] = [None] * (len(positional) - len(args.defaults))
    for arg, default in zip(positional, [*missing, *args.defaults], strict=True):
        yield arg.arg, default
    for arg, keyword_default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        yield arg.arg, keyword_default
    for rest in (args.vararg, args.kwarg):
        if rest is not None:
            yield rest.arg, None


def _assigned(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr, Kind]]:
    """Target, value and kind of everything a node assigns."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield target, node.value, Kind.VALUE
    elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
        yield node.target, node.value, Kind.VALUE
    elif isinstance(node, ast.AugAssign):
        yield node.target, node.value, Kind.AUGMENT
    elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
        yield node.target, node.iter, Kind.ITEM
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield node.optional_vars, node.context_expr, Kind.VALUE


def _enter(target: ast.expr, binding: Binding, scope: Scope) -> None:
    if isinstance(target, ast.Name):
        owner = scope
        if isinstance(binding.node, ast.NamedExpr):  # a walrus binds outside the comprehension it stands in
            owner = scope.climb(*FUNCTIONS, ast.Lambda, ast.ClassDef, ast.Module) or scope
        owner.add(target.id, binding)
    elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id in ("self", "cls"):
        if (owner_class := scope.climb(ast.ClassDef)) is not None:
            owner_class.attributes.setdefault(target.attr, []).append(binding)
    elif isinstance(target, ast.Starred):
        _enter(target.value, binding, scope)
    elif isinstance(target, (ast.Tuple, ast.List)):
        for part, value, kind in _unpacked(target.elts, binding):
            _enter(part, Binding(binding.node, kind, value), scope)


def _unpacked(targets: list[ast.expr], binding: Binding) -> Iterator[tuple[ast.expr, ast.expr | None, Kind]]:
    """Each name of ``a, b = …`` or ``for a, b in …`` with the part that flows into it, as far as the syntax shows."""
    value = binding.value
    parts: list[ast.expr] | None = None
    kind = Kind.ITEM
    if isinstance(value, (ast.Tuple, ast.List)) and binding.kind is Kind.VALUE:
        parts, kind = value.elts, Kind.VALUE
    elif isinstance(value, ast.Call) and binding.kind is Kind.ITEM:
        name = value.func.id if isinstance(value.func, ast.Name) else None
        if name == "zip":
            parts = value.args
        elif name == "enumerate" and value.args:
            for target in targets[1:]:  # the first is the index
                yield target, value.args[0], Kind.ITEM
            return
    if parts is None or len(parts) != len(targets) or any(isinstance(part, ast.Starred) for part in (*parts, *targets)):
        parts, kind = None, Kind.ITEM
    for place, target in enumerate(targets):
        yield target, value if parts is None else parts[place], kind


def _fill(node: ast.AST, scope: Scope) -> None:
    """Enter what is put into a list or dict: ``cosines.append(c)``, ``cosines[name] = c``, ``cosines += [c]``."""
    container: ast.expr | None = None
    value: ast.expr | None = None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _FILLS:
        place = _FILLS[node.func.attr]
        if place < len(node.args):
            container, value = node.func.value, node.args[place]
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        container, value = node.targets[0].value, node.value
    elif isinstance(node, ast.AugAssign) and isinstance(node.value, ast.List):
        container, value = node.target, node.value
    if value is None:
        return
    if isinstance(container, ast.Name):
        home: Scope | None = scope
        while home is not None and container.id not in home.bindings:
            home = home.parent
        (home or scope).filled.setdefault(container.id, []).append((node, value))
    owner = scope.climb(ast.ClassDef)
    if isinstance(container, ast.Attribute) and isinstance(container.value, ast.Name) and owner is not None:
        owner.filled.setdefault(f"{container.value.id}.{container.attr}", []).append((node, value))
