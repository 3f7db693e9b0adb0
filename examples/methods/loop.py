"""The loop that every method shares: batches, optimiser, schedule, evaluation, log, checkpoint, resumption."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn import functional as F

from pytest_fadiag import AuditError, Guard, Recorder, ResidualMLP

from .files import log_path, partial_path, save
from .progress import Progress
from .registry import METHODS
from .samples import Samples, augmented, load_samples
from .settings import Settings
from .streams import initialise, streams

CHECK_EVERY = 50
EVALUATED_AT_ONCE = 2048
LOGGED_DIGITS = 5
"""Another order of summation leaves these alone, so a run that is repeated on another machine logs the same."""


class TrainingStopped(ArithmeticError):
    """Training cannot go on: the loss or the network is no longer finite."""


class Training:
    """One run, from initialisation or from where it was interrupted, to its checkpoint."""

    def __init__(self, settings: Settings, samples: Samples | None = None) -> None:
        self.settings = settings
        self.samples = samples or load_samples(settings.data, settings.device)
        self.streams = streams(settings.seed)
        self.net = self._network()
        self.rule = METHODS[settings.method](self.net, settings, self.streams)
        self.rule.auxiliary.to(settings.device)
        trained = [
            p
            for p in [*self.net.parameters(), *self.rule.auxiliary.parameters()]
            if p.requires_grad
        ]
        self.optimiser = torch.optim.AdamW(
            trained,
            lr=settings.lr,
            weight_decay=settings.wd,
            fused=settings.device.startswith(("cpu", "cuda")),
        )
        self.epoch = 0
        self.accuracy = math.nan
        self.recorder: Recorder | None = None
        self.guard: Guard | None = None

    def run(self) -> dict[str, Any]:
        """Train to the end and write the checkpoint, which is returned."""
        self._resume()
        self.recorder = self._log()
        self.guard = (
            Guard(self.recorder, stop=self.settings.guard, after=3) if self.settings.guard else None
        )
        progress = Progress(_title(self.settings), self.settings.epochs)
        try:
            while self.epoch < self.settings.epochs:
                loss, accuracy = self._train_epoch(progress)
                self.epoch += 1
                if self.epoch % self.settings.log_every == 0 or self.epoch == self.settings.epochs:
                    progress.epoch(self.epoch, self._evaluate(loss, accuracy))
                save(self._state(), partial_path(self.settings.out))
        finally:
            progress.close()
        checkpoint = self.checkpoint()
        save(checkpoint, self.settings.out)
        partial_path(self.settings.out).unlink(missing_ok=True)
        return checkpoint

    def checkpoint(self) -> dict[str, Any]:
        """What PROTOCOL asks of every trained checkpoint: tensors and plain values only."""
        return {
            "state_dict": {
                name: value.detach().cpu().clone() for name, value in self.net.state_dict().items()
            },
            "Bs": [B.detach().cpu().clone() for B in self.rule.feedback],
            "config": self._config(),
            "test_acc": self.accuracy,
            **self._bridge(),
        }

    def _bridge(self) -> dict[str, Any]:
        """The net that gives a bridge's credit; of a control only the accuracy is needed."""
        if self.rule.bridge is None or self.settings.frozen or self.settings.shallow:
            return {}
        return {
            "bridge": {
                name: value.detach().cpu().clone()
                for name, value in self.rule.bridge.state_dict().items()
            }
        }

    def _log(self) -> Recorder:
        """The log beside the checkpoint: a new run replaces it, a resumed one continues it."""
        path = log_path(self.settings.out)
        if not self.epoch:
            path.unlink(missing_ok=True)
        test = [(self.samples.test_x, self.samples.test_y)]
        return Recorder(
            path, test, config=self._config(), batch_size=EVALUATED_AT_ONCE, digits=LOGGED_DIGITS
        )

    def _network(self) -> ResidualMLP:
        s = self.settings
        with torch.random.fork_rng(
            devices=[]
        ):  # what torch draws here is drawn again below, from our own stream
            net = ResidualMLP(
                self.samples.d_in,
                s.d,
                s.blocks,
                self.samples.classes,
                mlp_ratio=s.mlp_ratio,
                activation=s.activation,
                out_ln=s.out_ln,
            )
        initialise(net, self.streams["initialisation"])
        if s.frozen:
            net.blocks.requires_grad_(False)
        return net.to(s.device)

    def _train_epoch(self, progress: Progress) -> tuple[float, float]:
        """One pass over the training data; its mean loss and accuracy, each sample as seen before its own step."""
        s, samples = self.settings, self.samples
        for group in self.optimiser.param_groups:
            group["lr"] = s.lr * (1 + math.cos(math.pi * self.epoch / s.epochs)) / 2
        order = torch.randperm(len(samples.y), generator=self.streams["data"]).to(s.device)
        chunks = order.split(s.batch)
        loss, hits = torch.zeros(2, device=s.device, dtype=torch.float64)
        for step, chunk in enumerate(chunks, 1):
            x, y = samples.x[chunk], samples.y[chunk]
            if s.augment:
                x = augmented(x, self.streams["augmentation"])
            self.optimiser.zero_grad(set_to_none=True)
            logits = self.rule.backward(x, y)
            self.optimiser.step()
            self.rule.after_step()
            loss += F.cross_entropy(logits, y, reduction="sum")
            hits += (logits.argmax(1) == y).sum()
            # A sum that is once non-finite stays so: looking at it now and then loses nothing and spares a GPU the wait.
            if (step % CHECK_EVERY == 0 or step == len(chunks)) and not torch.isfinite(loss):
                raise TrainingStopped(
                    f"the loss is {loss.item()} in epoch {self.epoch + 1}, by batch {step} of {len(chunks)}; no checkpoint was "
                    "written. Try a smaller --lr"
                )
            progress.step(self.epoch + 1, step / len(chunks))
        return loss.item() / len(order), hits.item() / len(order)

    def _evaluate(self, train_loss: float, train_accuracy: float) -> str:
        """Test accuracy and the numbers of the protocol go to the log; the status line is returned."""
        assert self.recorder is not None
        extra = {"train_loss": train_loss, "train_acc": train_accuracy}
        if not len(self.net.blocks):
            self.accuracy = self._plain_accuracy()
            self.recorder.record(
                self.epoch, None, self.accuracy, images=len(self.samples.test_y), **extra
            )
            return f"acc {self.accuracy:.3f}"
        measured = (self.guard or self.recorder).record(self.epoch, self.net, **extra)
        assert measured is not None
        if measured.nonfinite_outputs or measured.nonfinite_weights:
            raise TrainingStopped(
                f"the network is no longer finite after epoch {self.epoch}; no checkpoint was written"
            )
        assert measured.score is not None
        self.accuracy = measured.score.value
        return f"acc {self.accuracy:.3f} ‖h_L‖ {measured.residual_norms[-1]:.1e} ‖g_L‖ {measured.bp_grad_norms[-1]:.1e}"

    @torch.no_grad()
    def _plain_accuracy(self) -> float:
        """Test accuracy of a network without blocks, in which there is no stream to measure."""
        pairs = zip(
            self.samples.test_x.split(EVALUATED_AT_ONCE),
            self.samples.test_y.split(EVALUATED_AT_ONCE),
            strict=True,
        )
        hits = sum(int((self.net(x).argmax(1) == y).sum()) for x, y in pairs)
        return hits / len(self.samples.test_y)

    def _config(self) -> dict[str, Any]:
        s = self.settings
        return {
            "method": s.name,
            "seed": s.seed,
            "frozen": s.frozen,
            "shallow": s.shallow,
            "d_in": self.samples.d_in,
            "d": s.d,
            "blocks": s.blocks,
            "classes": self.samples.classes,
            "mlp_ratio": s.mlp_ratio,
            "activation": s.activation,
            "out_ln": s.out_ln,
            "data": self.samples.name,
            "mean": self.samples.mean,
            "std": self.samples.std,
            "augment": s.augment,
            "epochs": s.epochs,
            "optimiser": "adamw",
            "schedule": "cosine",
            "lr": s.lr,
            "wd": s.wd,
            "batch": s.batch,
            "lam": s.lam,
            "normalize_credit": s.normalize_credit,
            "beta": s.beta if s.method == "ep" else None,
        }

    def _state(self) -> dict[str, Any]:
        return {
            "settings": self.settings.decisive(),
            "epoch": self.epoch,
            "accuracy": self.accuracy,
            "net": self.net.state_dict(),
            "auxiliary": self.rule.auxiliary.state_dict(),
            "Bs": self.rule.feedback,
            "optimiser": self.optimiser.state_dict(),
            "streams": {
                purpose: generator.get_state() for purpose, generator in self.streams.items()
            },
        }

    def _resume(self) -> None:
        path = partial_path(self.settings.out)
        if not path.exists():
            return
        state = torch.load(path, map_location="cpu", weights_only=True)
        ours, theirs = self.settings.decisive(), state["settings"]
        other = [
            f"{key} {theirs.get(key)!r}, now {ours[key]!r}"
            for key in ours
            if theirs.get(key) != ours[key]
        ]
        if other:
            raise AuditError(
                f"{path} belongs to an interrupted run with other settings ({'; '.join(other)}): "
                "finish that run, remove the file, or choose another --out"
            )
        self.epoch, self.accuracy = state["epoch"], state["accuracy"]
        self.net.load_state_dict(state["net"])
        self.rule.auxiliary.load_state_dict(state["auxiliary"])
        for B, saved in zip(self.rule.feedback, state["Bs"], strict=True):
            B.copy_(saved)
        self.optimiser.load_state_dict(state["optimiser"])
        for purpose, generator in self.streams.items():
            generator.set_state(state["streams"][purpose])


def _title(s: Settings) -> str:
    return f"{'frozen ' if s.frozen else 'shallow ' if s.shallow else ''}{s.name} s{s.seed}"
