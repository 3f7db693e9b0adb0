"""A callback for Hugging Face's Trainer: every epoch is recorded, and a guard can end the run."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from ..recorder import Guard, GuardStopped, Recorder

if TYPE_CHECKING:
    from torch import nn
    from transformers import TrainerControl, TrainerState, TrainingArguments


class FadiagCallback(TrainerCallback):  # type: ignore[misc]
    """Records, and with a :class:`Guard` stops, a run of the Trainer.

    >>> Trainer(callbacks=[FadiagCallback(Guard(Recorder(path, eval_batches)))], ...)
    """

    def __init__(self, recorder: Recorder | Guard) -> None:
        self.recorder = recorder

    def on_epoch_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: nn.Module,
        **_: Any,
    ) -> TrainerControl:
        """Record the epoch; the Trainer stops after its evaluation and checkpoint."""
        if state.is_world_process_zero:
            try:
                self.recorder.record(round(state.epoch or 0), model)
            except GuardStopped as stopped:
                warnings.warn(str(stopped), stacklevel=2)
                control.should_training_stop = True
        return control
