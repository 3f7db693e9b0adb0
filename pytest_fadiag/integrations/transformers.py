"""A callback for Hugging Face's Trainer: every epoch becomes a record of the audit's log, and a hollow run ends."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from ..guard import Guard, GuardStopped

if TYPE_CHECKING:
    from torch import nn
    from transformers import TrainerControl, TrainerState, TrainingArguments

    from ..recorder import Recorder


class FadiagCallback(TrainerCallback):  # type: ignore[misc]
    """``Trainer(callbacks=[FadiagCallback(Guard(Recorder(path, eval_batches)))])``; with a recorder alone it only records."""

    def __init__(self, recorder: Recorder | Guard) -> None:
        self.recorder = recorder

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: nn.Module, **_: Any
    ) -> TrainerControl:
        """Record the epoch; a guard's stop is the Trainer's own, which ends behind this epoch's evaluation and checkpoint."""
        if state.is_world_process_zero:
            try:
                self.recorder.record(round(state.epoch or 0), model)
            except GuardStopped as stopped:
                warnings.warn(str(stopped), stacklevel=2)
                control.should_training_stop = True
        return control
