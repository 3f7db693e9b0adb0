"""The numbers of (a) to (d): states, gradients, directions, output error, accuracy, precision."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.modules.conv import _ConvNd

from ..judge.errors import AuditError
from ..judge.records import BATCH, Precision, Resolution, Score
from .copies import copy_of
from .folds import clustered
from .inputs import like, rows
from .reference import passed
from .task import GROUPS, IGNORED, LOSSES
from .types import Batch
from .vectors import (
    directed,
    median,
    pairwise_cosine,
    row_cosines,
    row_norms,
    sketch,
    unit_rows,
)

if TYPE_CHECKING:
    from .run import NetworkSource

SAMPLES = 64
"""How many samples the dtypes are compared on."""
WIDE = 4_096
"""Gradients of more numbers are not asked for their rank."""
MOST_ENTRIES = 1 << 23
"""How many numbers the sums of all classes may hold; wider gradients are sketched."""


class _Collected:
    """Keeps what it takes of each batch."""

    def __init__(self, source: NetworkSource) -> None:
        self.source = source
        self.seen: list[list[Tensor]] = []

    def layers(self) -> list[Tensor]:
        """What was taken, of all batches as one."""
        return [torch.cat(parts) for parts in zip(*self.seen, strict=True)]


class States(_Collected):
    """The median ‖h_l‖ of every layer over samples and tokens."""

    needs = frozenset({"states"})

    def update(self, batch: Batch) -> None:
        """Take the norms."""
        self.seen.append(_norms(batch.states, self.source))

    def compute(self) -> dict[str, Any]:
        """Their medians."""
        norms = tuple(median(layer) for layer in self.layers())
        return {"residual_norms": norms, "nonfinite_states": _nonfinite(self.layers())}


class Gradients(_Collected):
    """The median ‖g_l‖ of every layer over samples and read tokens, and median(‖g_L‖/‖e‖).

    With them the effective rank, exp of the entropy of the spectrum of unit gradients: the
    smallest of all states, divided by that of the output errors.
    """

    needs = frozenset({"gradients"})

    def __init__(self, source: NetworkSource) -> None:
        super().__init__(source)
        self.rows: list[list[Tensor]] = []

    def update(self, batch: Batch) -> None:
        """Take the norms, those of the errors, and all of what is not too wide."""
        norms = _norms(batch.gradients, self.source)
        self.seen.append([*norms, batch.error.norms.unsqueeze(1)])
        flat = [own.flatten(1) for own in (*batch.gradients, batch.error.units)]
        self.rows.append([own[:, : own.shape[1] * (own.shape[1] <= WIDE)].float() for own in flat])

    def compute(self) -> dict[str, Any]:
        """Their medians, of the tokens that get a gradient.

        Padding gets none, nor at h_L all but the class token of a ViT. A sample without any
        gradient counts with a zero for every token that another sample reads.
        """
        *layers, errors = self.layers()
        medians, without, tokens = list[float](), list[int](), self.source.stream.tokens
        for norms in layers:
            read = norms != 0
            some = read.any(0) | ~read.any()
            read = torch.where(read.any(1, keepdim=True), read, some)
            medians.append(median((norms * errors / BATCH)[read]))
            without.append(int(median((~read).sum(1))))
        *ranks, of_errors = (effective_rank(torch.cat(own)) for own in zip(*self.rows, strict=True))
        known = [rank for rank in ranks if rank]
        per_error = layers[-1][read & (errors != 0)]
        if self.source.task.kind == "tokens":  # of which many share the error of their sequence
            per_error = row_norms(layers[-1])[errors[:, 0] != 0]
        return {
            "effective_rank": min(known) / of_errors if known and of_errors else None,
            "bp_grad_norms": tuple(medians),
            "gradient_per_unit_error": median(per_error) / BATCH,
            "nonfinite_gradients": _nonfinite(layers),
            "tokens": layers[-1].shape[1] if tokens[-1] else None,
            "tokens_without_gradient": tuple(without) if any(tokens) else (),
        }


def effective_rank(rows: Tensor) -> float:
    """exp of the entropy of the spectrum of unit rows; 0 where fewer than two have a direction."""
    if not rows.shape[1] or len(rows := rows[directed(row_norms(rows))]) < 2:
        return 0.0
    units = unit_rows(rows)
    gram = units.T @ units if units.shape[1] < len(units) else units @ units.T
    shares = torch.linalg.eigvalsh(gram).clamp_min(0) / len(units)
    return float(torch.special.entr(shares).sum().exp())


def _norms(values: list[Tensor], source: NetworkSource) -> list[Tensor]:
    """Of each layer ``[B, 1]``, for tokens ``[B, T]``."""
    layers = zip(values, source.stream.tokens, strict=True)
    return [row_norms(value if own else value.flatten(1).unsqueeze(1)) for value, own in layers]


def _nonfinite(layers: list[Tensor]) -> tuple[int, ...]:
    return tuple(int((~torch.isfinite(norms).all(1)).sum()) for norms in layers)


class Directions(_Collected):
    """The mean cosine of two batch-mean gradients at L//2, and of two classes' mean unit gradients.

    Where one sum per class would take too much memory (a thousand classes, tokens by the hundred),
    a sketch is summed: each entry, with a random sign, goes to one of fewer places, which keeps
    products of two gradients on average.
    """

    needs = frozenset({"gradients"})
    sums: Any = 0
    directionless = 0

    def update(self, batch: Batch) -> None:
        """Add the gradients of the batch, and by class their unit vectors."""
        self.layer = max((len(batch.gradients) - 1) // 2, 1)
        given, task = batch.gradients[self.layer], self.source.task
        targets, flat = task.targets(batch.y), given.flatten(1)
        groups, told = task.groups(targets), task.groups(task.predicted(batch.outputs))
        total = batch.error.norms @ flat.double()
        self.directionless += int((~directed(row_norms(flat))).sum())
        if task.kind == "tokens":
            told = torch.where(targets == IGNORED, -1, told).flatten()
            if given.ndim == 3 and given.shape[:2] == targets.shape:
                flat, groups = given.flatten(0, 1), groups.flatten()
            else:  # states have other tokens
                groups = groups.new_full(groups.shape[:1], -1)
        own = {"tokens": GROUPS, "regression": len(task.edges) + 1}
        classes, norms = own.get(task.kind or "", batch.outputs.shape[-1]), row_norms(flat)
        there = directed(norms) & (groups >= 0)
        units = flat[there].double() / norms[there].unsqueeze(1)
        if units.shape[1] > (most := max(1, MOST_ENTRIES // classes)):
            places, signs = sketch(units.shape[1], most, units.device)
            units = units.new_zeros(len(units), most).index_add_(1, places, units * signs)
        sums = units.new_zeros(classes, units.shape[1])
        self.sums = self.sums + sums.index_add_(0, groups[there], units)
        kinds = groups[groups >= 0], groups[there], told[told >= 0]
        counts = torch.stack([kind.bincount(minlength=classes) for kind in kinds])
        self.seen.append([total.unsqueeze(0), counts.unsqueeze(0)])

    def compute(self) -> dict[str, Any]:
        """Both cosines; the class that is predicted most often is left out of the second."""
        batch_sums, counts = self.layers()
        samples, known, predicted = counts.sum(0)
        left = known > 0
        if self.source.task.kind == "regression" and int(left.sum()) < 3:
            left[:] = False
        left[predicted.argmax()] &= not bool(predicted.any())
        means = self.sums[left] / known[left].unsqueeze(1)
        pairs = len(means) * (len(means) - 1)
        products = float(means.sum(0).square().sum() - means.square().sum())
        return {
            "stability_layer": self.layer,
            "cross_batch_stability": pairwise_cosine(batch_sums),
            "sample_invariance": products / pairs if pairs else math.nan,
            "zero_gradient_samples": self.directionless,
            "eval_classes": int((samples > 0).sum()),
        }


class OutputErrors(_Collected):
    """The median ‖e‖, and the mean cosine of two batch-mean output errors.

    Where the loss is assumed, also how biased the errors of other losses are: those of the loss
    that a network was trained by have a mean near 0.
    """

    needs = frozenset({"error"})

    def update(self, batch: Batch) -> None:
        """Take the sizes of the errors, and their sum."""
        task, errors = self.source.task, [batch.error]
        if task.assumed and task.kind == "classes":
            others = (replace(task, loss=name) for name in ("mse", "bce"))
            errors += [other.error(batch.outputs, batch.y) for other in others]
        taken = [(own.norms.unsqueeze(0), own.units.flatten(1)) for own in errors]
        self.seen.append([part for norms, units in taken for part in (norms, norms @ units)])

    def compute(self) -> dict[str, Any]:
        """Size, drift and bias."""
        norms, sums, *others = self.layers()
        bias = {
            LOSSES[name]: float(own.sum(0).norm() / sizes.sum())
            for name, sizes, own in zip(("mse", "bce"), others[::2], others[1::2], strict=False)
        }
        return {
            "output_error_norm": median(norms),
            "output_error_drift": pairwise_cosine(sums),
            "loss_bias": bias,
        }


class Accuracy(_Collected):
    """Which samples are classified correctly, and what is odd about the predictions."""

    needs = frozenset({"outputs"})

    def update(self, batch: Batch) -> None:
        """Take targets, scores, predictions, and which samples' outputs are finite."""
        task, targets = self.source.task, self.source.task.targets(batch.y)
        predicted, finite = task.predicted(batch.outputs), torch.isfinite(batch.outputs)
        predicted = task.groups(predicted) if task.kind == "regression" else predicted
        scores = task.scores(batch.outputs, batch.y)
        self.seen.append([targets, scores, predicted, finite.flatten(1).all(1)])
        self.classes = batch.outputs.shape[-1]

    def compute(self) -> dict[str, Any]:
        """The score, and the shares of the most frequent label and prediction."""
        targets, scores, predictions, finite = (taken.cpu() for taken in self.layers())
        task, data = self.source.task, self.source.data_digest
        order = hashlib.sha256(targets.numpy().tobytes()).hexdigest()
        weights = self.source.network.state_dict()
        counted = targets != IGNORED if task.kind == "tokens" else torch.ones(len(targets)) > 0
        predicted, labels, shares = predictions[counted].bincount(), targets[counted], {}
        if task.kind != "regression":
            occurring = labels.bincount()
            if len(labels) == int(occurring.max()):
                raise AuditError(
                    f"all {len(labels):,} labels are {int(labels[0])}: one class measures neither "
                    "accuracy nor direction; check the labels, or shuffle data sorted by class"
                )
            shares = {
                "classes": self.classes,
                "label_classes": int((occurring > 0).sum()),
                "label_class_share": int(occurring.max()) / len(labels),
            }
        if task.kind == "classes":
            score = Score.of(scores.bool().tolist(), order, data)
        else:
            clusters = self.source.clusters[: len(scores)]
            clusters = clusters if scores.ndim == 1 else clusters[:, None].expand_as(scores)
            parts = clustered(scores[counted], clusters[counted])
            score = Score.of_parts(parts.tolist(), order, data)
        return {
            "score": score,
            **shares,
            "predicted_class_share": float(predicted.max() / predicted.sum()),
            "nonfinite_outputs": int((~finite).sum()),
            "nonfinite_weights": tuple(
                name for name, own in weights.items() if not bool(torch.isfinite(own).all())
            ),
        }


class GradientPrecision(_Collected):
    """The cosine of the gradient at h_L in one dtype to that in float64, and the samples lost."""

    needs = frozenset({"reference"})

    result: Precision | None = None

    def update(self, batch: Batch) -> None:
        """Compare on the first 64 samples, as for the mean loss of 128."""
        if batch.start or self.source.proof.dtype != "float64":
            return
        x, y = rows(batch.x, slice(SAMPLES)), batch.y[:SAMPLES]
        maps = any(isinstance(own, _ConvNd) for own in self.source.network.modules())
        slow = batch.y.device.type == "cpu" and maps
        task, stream = self.source.task, self.source.stream

        def gradient(dtype: torch.dtype) -> Tensor:
            network = copy_of(self.source.network, dtype)
            seen = passed(
                network,
                stream,
                like(x, network),
                lambda outputs: task.losses(outputs, y).sum() / BATCH,
                first=len(stream.sites) - 1,
            )
            return seen.gradients[-1].flatten(1)

        wide = gradient(torch.float64)
        there = directed(row_norms(wide))

        def resolution(dtype: torch.dtype) -> Resolution:
            name = str(dtype).removeprefix("torch.")
            if slow and dtype is not torch.float32:
                problem = "skipped: convolutions in half precision are slow on a CPU"
                return Resolution(dtype=name, problem=problem)
            try:
                narrow = gradient(dtype).to(wide)
            except AuditError as error:  # not every operation exists in half precision
                return Resolution(dtype=name, problem=f"does not run: {str(error).splitlines()[0]}")
            kept = there & directed(row_norms(narrow))
            cosine, lost = median(row_cosines(narrow[kept], wide[kept])), int((there & ~kept).sum())
            return Resolution(dtype=name, cosine=cosine, lost=lost)

        dtypes = map(resolution, (torch.float32, torch.bfloat16, torch.float16))
        self.result = Precision(samples=int(there.sum()), dtypes=tuple(dtypes))

    def compute(self) -> dict[str, Any]:
        """The comparison; nothing where the network does not run in float64."""
        return {"precision": self.result}
