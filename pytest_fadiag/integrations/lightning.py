"""A callback for Lightning: every epoch becomes a record of the audit's log, and a hollow run ends early."""

from __future__ import annotations

import warnings
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ..guard import Guard, GuardStopped

try:
    from lightning.pytorch import Callback
except ImportError:  # the package under its older name
    from pytorch_lightning import Callback

if TYPE_CHECKING:
    from lightning.pytorch import LightningModule, Trainer

    from ..recorder import Recorder


class FadiagCallback(Callback):  # type: ignore[misc]
    """``Trainer(callbacks=[FadiagCallback(Guard(Recorder(path, val_batches)))])``; with a recorder alone it only records.

    ``network`` is the attribute of the LightningModule that is audited, the module itself where there is none; ``accuracy`` the
    name under which it logs its test accuracy as a fraction, without which every evaluation sample is classified again.
    """

    def __init__(self, recorder: Recorder | Guard, *, network: str | None = None, accuracy: str | None = None) -> None:
        self.recorder, self.network, self.accuracy = recorder, network, accuracy

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Record the epoch, behind its validation."""
        hollow = False
        if trainer.is_global_zero:
            logged = None if self.accuracy is None else trainer.callback_metrics.get(self.accuracy)
            network: Any = pl_module if self.network is None else attrgetter(self.network)(pl_module)
            try:
                self.recorder.record(trainer.current_epoch + 1, network, None if logged is None else float(logged))
            except GuardStopped as stopped:
                warnings.warn(str(stopped), stacklevel=2)
                hollow = True
        trainer.should_stop |= trainer.strategy.reduce_boolean_decision(hollow, all=False)  # every process ends, or none
