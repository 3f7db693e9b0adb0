"""What a file is about, by all its names: a matrix called B is a feedback matrix only where feedback is spoken of."""

from __future__ import annotations

import ast

from .tree import Tree
from .words import FEEDBACK_CONTEXT, words

_CREDIT = FEEDBACK_CONTEXT | words("credit grad grads gradient gradients bp backprop")
_FIELDS = ("id", "attr", "arg", "name")


def speaks_of_feedback(tree: Tree) -> bool:
    """Whether a file is about training with feedback weights."""
    return bool(tree.fact(_vocabulary) & FEEDBACK_CONTEXT)


def speaks_of_credit(tree: Tree) -> bool:
    """Whether a file is about gradients or other credit."""
    return bool(tree.fact(_vocabulary) & _CREDIT)


def _vocabulary(tree: Tree) -> frozenset[str]:
    vocabulary = set(words(tree.stem))
    for node in tree.nodes:
        for field in _FIELDS:
            if isinstance(name := getattr(node, field, None), str):
                vocabulary |= words(name)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and (text := ast.get_docstring(node, clean=False)):
            vocabulary |= words(text)
    return frozenset(vocabulary)
