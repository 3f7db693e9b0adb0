"""A callback for Lightning: every epoch is recorded, and a guard can end the run."""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ..recorder import Guard, GuardStopped, Recorder

try:
    from lightning.pytorch import Callback
except ImportError:  # the package under its older name
    from pytorch_lightning import Callback

if TYPE_CHECKING:
    from lightning.pytorch import LightningModule, Trainer


class FadiagCallback(Callback):  # type: ignore[misc]
    """Records, and with a :class:`Guard` stops, a run of Lightning's Trainer.

    >>> Trainer(callbacks=[FadiagCallback(Guard(Recorder(path, val_batches)), network="net")])

    ``network`` is the attribute of the LightningModule that is audited, by default the module
    itself. With ``steps``, updates are compared with the BP gradient, as by ``Recorder.step``.
    """

    def __init__(
        self, recorder: Recorder | Guard, *, network: str | None = None, steps: bool = False
    ) -> None:
        self.recorder = recorder
        self.network = network
        self.steps = steps
        self.update = ExitStack()

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Begin to watch an update."""
        if self.steps and trainer.is_global_zero:
            network = self._network(pl_module)
            self.update.enter_context(self.recorder.step(batch, model=network))

    def on_train_batch_end(self, *_: Any) -> None:
        """Compare what was updated."""
        self.update.close()

    def _network(self, pl_module: LightningModule) -> Any:
        return attrgetter(self.network)(pl_module) if self.network else pl_module

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Record the epoch, after its validation."""
        stop = False
        if trainer.is_global_zero:
            try:
                self.recorder.record(trainer.current_epoch + 1, self._network(pl_module))
            except GuardStopped as stopped:
                warnings.warn(str(stopped), stacklevel=2)
                stop = True
        # Every process ends, or none.
        trainer.should_stop |= trainer.strategy.reduce_boolean_decision(stop, all=False)
