"""The accuracy over every sample, image by image, and what is odd about the predictions."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from ...judge.observers import ACCURACY
from ...judge.records import Accuracy
from .base import Observer, Output, PassInfo


class Classification(Observer[Output]):
    """Which samples are classified correctly; one whose logits are not finite is not."""

    spec = ACCURACY
    watches = (Output,)
    every_batch = True

    def __init__(self, info: PassInfo) -> None:
        self.network, self.data_digest = info.network, info.data_digest
        self.classes = 0
        self.labels: list[Tensor] = []
        self.hits: list[Tensor] = []
        self.predictions: list[Tensor] = []
        self.finite: list[Tensor] = []
        self.largest: list[Tensor] = []

    def update(self, seen: Output) -> None:
        logits, labels = seen.logits, seen.samples.labels
        finite, predicted = torch.isfinite(logits).all(1), logits.argmax(1)
        self.classes = logits.shape[1]
        self.labels.append(labels)
        self.finite.append(finite)
        self.hits.append((predicted == labels) & finite)
        self.predictions.append(predicted)
        self.largest.append(logits.abs().amax())

    def compute(self) -> dict[str, Any]:
        hits = torch.cat(self.hits).tolist() if self.hits else []
        labels = torch.cat(self.labels) if self.labels else torch.empty(0)
        occurring = Counter(labels.tolist())
        order = hashlib.sha256(labels.cpu().numpy().tobytes()).hexdigest()
        accuracy = Accuracy.of(hits, order, self.data_digest)
        predictions = torch.bincount(torch.cat(self.predictions))
        return {
            "accuracy": asdict(accuracy),
            "classes": self.classes,
            "label_classes": len(occurring),
            "largest_label_share": max(occurring.values()) / len(labels),
            "predicted_class_share": float(predictions.max() / predictions.sum()),
            "largest_logit": float(torch.stack(self.largest).max()),
            "nonfinite_logits": int((~torch.cat(self.finite)).sum()),
            "nonfinite_weights": _nonfinite_weights(self.network),
        }


def _nonfinite_weights(network: nn.Module) -> list[str]:
    tensors = [(name, value) for name, value in network.state_dict().items() if value.is_floating_point()]
    if not tensors:
        return []
    nonfinite = torch.stack([(~torch.isfinite(value)).any() for _, value in tensors]).tolist()
    return [name for (name, _), broken in zip(tensors, nonfinite, strict=True) if broken]
