"""The checkpoint of one test: known by its path and name at once, opened only when its contents are asked for."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..judge.errors import AuditError
from ..load.digests import file_digest
from .settings import MARKER
from .targets import Target, expand

if TYPE_CHECKING:
    from ..load.checkpoints import Checkpoint


class CheckpointUnderTest:
    """What the fixture ``fa_checkpoint`` gives: ``path``, ``id``, ``method``, ``seed``, and the loaded contents on demand."""

    def __init__(self, target: Target, *, unsafe: bool) -> None:
        self.target, self.unsafe = target, unsafe
        self.path, self.id = Path(target.path), target.id
        self.known: tuple[str, int | None] | None = None

    def __repr__(self) -> str:
        return f"<checkpoint {self.id}>"

    @cached_property
    def contents(self) -> Checkpoint:
        """The file, read without running code from it."""
        from ..load.checkpoints import load_checkpoint

        return load_checkpoint(self.path, unsafe=self.unsafe)

    def release(self) -> None:
        """Let the tensors go; a test that asks for them reads the file again."""
        self.__dict__.pop("contents", None)

    @property
    def digest(self) -> str:
        """The SHA-256 of the file."""
        try:
            return file_digest(self.path)
        except OSError as error:
            raise AuditError(
                f"{self.path}: cannot be read: {error.strerror or error}; was it moved or deleted since collection?"
            ) from error

    @property
    def identity(self) -> tuple[str, int | None]:
        """Method and seed by the file's ``config``, else by its name."""
        return self.known or (self.contents.method, self.contents.seed)

    @property
    def method(self) -> str:
        """The method that the network was trained by."""
        return self.identity[0]

    @property
    def seed(self) -> int | None:
        """The seed of the training run, if known."""
        return self.identity[1]

    @property
    def state_dict(self) -> dict[str, Any]:
        """The tensors, by their names without wrappers' prefixes."""
        return self.contents.state_dict

    @property
    def config(self) -> dict[str, Any]:
        """What the checkpoint says about its training."""
        return dict(self.contents.config)

    @property
    def test_acc(self) -> float | None:
        """The accuracy that the checkpoint claims."""
        return self.contents.test_acc


def checkpoint_for(request: pytest.FixtureRequest) -> CheckpointUnderTest:
    """The checkpoint that a test was parametrised with or generated for."""
    from .collection import TARGET

    given = getattr(request, "param", None)
    if given is None:
        given = request.node.stash.get(TARGET, None)
    if given is None:
        raise AuditError(
            f"{request.node.name} needs a checkpoint, and none is given: add --fa-checkpoint=PATH, fa_checkpoint in the ini "
            f"file or @pytest.mark.{MARKER}(checkpoint=PATH), override the fixture fa_checkpoint, or deselect the test"
        )
    return as_checkpoint(request, given)


def as_checkpoint(request: pytest.FixtureRequest, given: object) -> CheckpointUnderTest:
    """What a fixture or a parametrised test calls its checkpoint: the plugin's own object, or a path."""
    from .auditor import AUDITOR

    if isinstance(given, CheckpointUnderTest):
        return given
    if isinstance(given, (str, os.PathLike)):
        root = request.config.rootpath
        found = expand([os.fspath(given)], root, root, what="fa_checkpoint")
        if len(found) > 1:
            raise AuditError(f"fa_checkpoint: {os.fspath(given)!r} names {len(found)} files, and a test has one checkpoint")
        given = found[0]
    if isinstance(given, Target):
        return request.config.stash[AUDITOR].handle(given)
    raise AuditError(
        f"the fixture fa_checkpoint gave {type(given).__name__}; expected the path of a checkpoint, or what the plugin's own "
        "fa_checkpoint gives"
    )
