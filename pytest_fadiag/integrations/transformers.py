"""A callback for Hugging Face's Trainer: every epoch is recorded, and a guard can end the run."""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from ..judge.errors import AuditError
from ..recorder import Guard, GuardStopped, Recorder

if TYPE_CHECKING:
    from torch import nn
    from transformers import TrainerControl, TrainerState, TrainingArguments


class FadiagCallback(TrainerCallback):  # type: ignore[misc]
    """Records, and with a :class:`Guard` stops, a run of the Trainer.

    >>> Trainer(callbacks=[FadiagCallback(Guard(Recorder(path, eval_batches)))], ...)

    With ``steps``, updates are compared with the BP gradient, as by ``Recorder.step``; each by the
    first batch that the network sees, so gradients must not be accumulated.
    """

    def __init__(self, recorder: Recorder | Guard, *, steps: bool = False) -> None:
        self.recorder = recorder
        self.steps = steps
        self.update = ExitStack()

    def on_step_begin(
        self, args: TrainingArguments, state: Any, control: Any, model: nn.Module, **_: Any
    ) -> None:
        """Watch the update from the next forward pass on."""
        if not self.steps or not state.is_world_process_zero:
            return
        if args.gradient_accumulation_steps > 1:
            raise AuditError("steps=True: expected gradient_accumulation_steps=1")

        def begin(module: nn.Module, _: Any, inputs: dict[str, Any]) -> None:
            hook.remove()
            batch = {name: value for name, value in inputs.items() if getattr(value, "ndim", 0)}
            self.update.enter_context(self.recorder.step(batch, model=model))

        hook = model.register_forward_pre_hook(begin, with_kwargs=True)

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Compare what was updated."""
        self.update.close()

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
