"""A callback for Lightning: every epoch is recorded, and a guard can end the run."""

from __future__ import annotations

import warnings
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
    itself.
    """

    def __init__(self, recorder: Recorder | Guard, *, network: str | None = None) -> None:
        self.recorder = recorder
        self.network = network

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Record the epoch, after its validation."""
        stop = False
        if trainer.is_global_zero:
            network: Any = pl_module
            if self.network:
                network = attrgetter(self.network)(pl_module)
            try:
                self.recorder.record(trainer.current_epoch + 1, network)
            except GuardStopped as stopped:
                warnings.warn(str(stopped), stacklevel=2)
                stop = True
        # Every process ends, or none.
        trainer.should_stop |= trainer.strategy.reduce_boolean_decision(stop, all=False)
