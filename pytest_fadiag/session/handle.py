"""The checkpoint of one test: known by its path and name at once, opened only when its contents are asked for."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..protocol.errors import AuditError
from ..sources.digests import file_digest
from .targets import Target

if TYPE_CHECKING:
    from ..sources.checkpoints import Checkpoint


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
        from ..sources.checkpoints import load_checkpoint

        return load_checkpoint(self.path, unsafe=self.unsafe)

    @property
    def digest(self) -> str:
        """The SHA-256 of the file."""
        try:
            return file_digest(self.path)
        except OSError as error:
            raise AuditError(
                f"{self.path}: cannot be read: {error.strerror or error}; was it moved since collection?"
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
