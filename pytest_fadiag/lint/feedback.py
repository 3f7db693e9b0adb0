"""Pitfall 4: feedback matrices that no checkpoint holds, and missing credit that is reported as aligned."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from . import self_cosine
from .bindings import Kind
from .context import speaks_of_feedback
from .finding import Hit
from .saved import Saved
from .tree import Function, Tree, called_name, keyword, position
from .words import FEEDBACK, names, words

_RANDOM = names(
    """randn rand randn_like rand_like normal empty Tensor FloatTensor standard_normal uniform randint bernoulli
    orthogonal_ uniform_ normal_ xavier_uniform_ xavier_normal_ kaiming_uniform_ kaiming_normal_ trunc_normal_
    bernoulli_"""
)
# What puts a tensor into the state_dict, or holds it in a module that does.
_REGISTERED = names("Parameter ParameterList ParameterDict Buffer BufferList BufferDict register_buffer register_parameter")
_SEEDS = {"manual_seed", "seed", "default_rng", "RandomState", "PRNGKey", "manual_seed_all", "seed_everything", "set_seed"}
_LOADS = {"load", "load_state_dict", "load_file", "load_checkpoint"}
_EVALUATES = words("eval evaluate evaluation audit measure measurement replay reload rebuild restore diagnose analyse analyze")
_MATRIX = words("weight weights matrix matrices projection projections backward bwd")


def find(tree: Tree) -> Iterator[Hit]:
    """Every feedback matrix that is drawn at random and kept nowhere, and every 1.0 for missing credit."""
    yield from self_cosine.find(tree)
    if not speaks_of_feedback(tree):
        return
    for node in tree.nodes:
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
                yield from _attribute(tree, node, target)
            elif isinstance(target, ast.Name) and tree.class_of(node) is None:
                yield from _variable(tree, node, target.id)


def _is_lost(tree: Tree, name: str, value: ast.expr | None) -> bool:
    """Whether a value is a feedback matrix, by its name, that was drawn at random and is saved nowhere."""
    return value is not None and _names_feedback(name) and _is_drawn(tree, value) and not tree.fact(Saved).keeps(name)


def _attribute(tree: Tree, node: ast.Assign | ast.AnnAssign, target: ast.Attribute) -> Iterator[Hit]:
    """The finding of a plain tensor attribute, unless the class registers it under the same name as well."""
    name = target.attr
    if any(map(_registers, tree.values(target))) or not _is_lost(tree, name, node.value):
        return
    sequence = isinstance(node.value, (ast.List, ast.ListComp, ast.Dict, ast.DictComp, ast.Tuple))
    if not _is_module(tree, node):
        message = f"`self.{name}` is drawn at random and nothing in this file saves it"
        fix = f'add it to what is saved: `torch.save({{"state_dict": …, "{name}": self.{name}}}, path)`'
    elif sequence:
        message = f"`self.{name}` is drawn at random and is a plain list: it is in no state_dict"
        fix = f"write `self.{name} = nn.ParameterList(nn.Parameter(b, requires_grad=False) for b in …)`"
    else:
        message = f"`self.{name}` is drawn at random and is a plain tensor: it is in no state_dict"
        fix = f'write `self.register_buffer("{name}", …)`'
    yield Hit(node, f"{message}, so no checkpoint can tell which feedback trained the network", fix)


def _is_module(tree: Tree, node: ast.stmt) -> bool:
    """Whether the class around a statement is a torch module, by its base or by having a forward."""
    owner = tree.class_of(node)
    if owner is None:
        return False
    bases = {ast.unparse(base).rpartition(".")[2] for base in owner.bases}
    return "Module" in bases or any(isinstance(part, ast.FunctionDef) and part.name == "forward" for part in owner.body)


def _variable(tree: Tree, node: ast.Assign | ast.AnnAssign, name: str) -> Iterator[Hit]:
    """The finding of a variable: drawn again from a seed to evaluate, or left out of the checkpoint that is written."""
    if not _is_lost(tree, name, node.value) or _is_handed_on(tree, node, name):
        return
    owner = tree.function(node)
    if _is_evaluation(tree, node, owner) and _is_seeded(tree, node):
        message = f"`{name}` is drawn again from a seed: another torch version, device or order of draws gives other feedback"
        yield Hit(node, message, f'save the matrices with the checkpoint and read them: `{name} = checkpoint["{name}"]`')
    elif tree.fact(Saved).writes:
        message = f"`{name}` is drawn at random and is not in the checkpoint this file writes"
        yield Hit(node, message, f'add it to what is saved: `torch.save({{"state_dict": …, "{name}": {name}}}, path)`')


def _names_feedback(name: str) -> bool:
    """Whether a name is a feedback matrix's: B, Bs, B2, feedback_weights, fb_1, weight_fa, fixed_backward_weights."""
    letters = name.strip("_").rstrip("0123456789").rstrip("_")
    if letters in ("B", "Bs") or (name.startswith(("B_", "Bs_")) and len(name) <= 5):
        return True
    parts = words(name)
    return bool(parts & FEEDBACK or (parts & _MATRIX and parts & {"fa", "dfa", "fixed"}))


def _is_drawn(tree: Tree, value: ast.expr, depth: int = 3) -> bool:
    """Whether a value is random numbers, or a list of them, that nothing registers."""
    if _registers(value):
        return False
    for part in ast.walk(value):
        if isinstance(part, ast.Call) and called_name(part) in _RANDOM and not _is_other(tree, part):
            return True
        if isinstance(part, ast.Name) and depth and part is value:
            return any(_is_drawn(tree, bound, depth - 1) for bound in tree.values(part, Kind.VALUE))
    return False


def _is_other(tree: Tree, call: ast.Call) -> bool:
    """Whether a function only shares its name with a random one: ``random.uniform``, ``Normal(…)`` of a distribution."""
    full = tree.dotted(call.func)
    return full is not None and not full.startswith(("torch.", "numpy.", "jax."))


def _registers(value: ast.expr) -> bool:
    return any(isinstance(part, ast.Call) and called_name(part) in _REGISTERED for part in ast.walk(value))


def _is_handed_on(tree: Tree, node: ast.stmt, name: str) -> bool:
    """Whether a variable is returned, made an attribute or given to a module: then another place keeps it."""
    for part in tree.body(node):
        if isinstance(part, (ast.Return, ast.Yield)) and part.value is not None:
            # The matrices themselves: what is computed from them does not keep them.
            parts: list[ast.AST] = [part.value, *ast.iter_child_nodes(part.value)]
        elif isinstance(part, ast.Assign) and any(isinstance(target, ast.Attribute) for target in part.targets):
            parts = list(ast.walk(part.value))
        elif isinstance(part, ast.Call) and ((called_name(part) or "")[:1].isupper() or _registers(part)):
            parts = [*part.args, *(word.value for word in part.keywords)]
        else:
            continue
        if any(isinstance(inner, ast.Name) and inner.id == name for inner in parts):
            return True
    return False


def _is_evaluation(tree: Tree, node: ast.stmt, owner: Function | None) -> bool:
    """Whether the code around a statement evaluates a network that was trained before."""
    if owner is not None and words(owner.name) & _EVALUATES:
        return True
    return any(isinstance(part, ast.Call) and called_name(part) in _LOADS for part in tree.body(node))


def _is_seeded(tree: Tree, node: ast.stmt) -> bool:
    """Whether a seed was set before a statement in its function, or its draw is given a generator."""
    if any(isinstance(part, ast.Call) and keyword(part, "generator") is not None for part in ast.walk(node)):
        return True
    calls = (part for part in tree.body(node) if isinstance(part, ast.Call) and called_name(part) in _SEEDS)
    return any(position(call) < position(node) for call in calls)
