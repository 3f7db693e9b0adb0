"""What a file writes into checkpoints, by name: so that a feedback matrix that is saved is not reported."""

from __future__ import annotations

import ast

from .tree import Tree, called_name
from .words import FEEDBACK, names, words

_WRITERS = {"torch.save", "numpy.save", "numpy.savez", "numpy.savez_compressed", "pickle.dump", "joblib.dump"}
_NAMED_WRITERS = {"save_file", "save_checkpoint", "savez", "save_pretrained"}
_STATES = names("state_dict get_extra_state __getstate__ checkpoint save save_checkpoint to_dict on_save_checkpoint")
_WHOLE = words("model net network self learner agent")


class Saved:
    """The names that reach a checkpoint in one file."""

    def __init__(self, tree: Tree) -> None:
        self.names: set[str] = set()
        self.writes = False
        self.whole = False
        for node in tree.nodes:
            if isinstance(node, ast.Call) and self._is_writer(tree, node):
                self.writes = True
                content = node.args[0] if node.args else None
                # A network pickled whole takes its plain attributes along.
                self.whole |= isinstance(content, ast.Name) and bool(words(content.id) & _WHOLE)
                self._mentioned(node)
            elif isinstance(node, ast.FunctionDef) and node.name in _STATES:
                self._mentioned(node)
            elif isinstance(node, ast.Dict):
                self._keys(node)
            elif isinstance(node, ast.Call) and called_name(node) in (
                "dict",
                "register_buffer",
                "register_parameter",
                "setattr",
            ):
                self._mentioned(node)
            elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
                self._mentioned(node.slice)

    def keeps(self, name: str) -> bool:
        """Whether a matrix of this name is saved, under its own name or under one that says feedback."""
        return (
            self.whole or name.lower() in self.names or bool({word for saved in self.names for word in words(saved)} & FEEDBACK)
        )

    @staticmethod
    def _is_writer(tree: Tree, call: ast.Call) -> bool:
        return tree.dotted(call.func) in _WRITERS or called_name(call) in _NAMED_WRITERS

    def _keys(self, node: ast.Dict) -> None:
        """Enter the keys of a dict and the variables it holds under them: it may be the checkpoint."""
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                self.names.add(key.value.lower())
                if isinstance(name := getattr(value, "id", getattr(value, "attr", None)), str):
                    self.names.add(name.lower())

    def _mentioned(self, node: ast.AST) -> None:
        """Enter every name, attribute, keyword and string of a node."""
        for part in ast.walk(node):
            text = part.value if isinstance(part, ast.Constant) else None
            for name in (text, getattr(part, "attr", None), getattr(part, "id", None), getattr(part, "arg", None)):
                if isinstance(name, str) and name.isidentifier():
                    self.names.add(name.lower())
