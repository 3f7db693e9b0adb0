"""(f): a method's credit against the BP gradient: Γ, its null, its size, where it leads."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..judge import records
from ..judge.errors import AuditError
from ..judge.records import BATCH
from ..judge.words import and_more
from .copies import copy_of, differentiable_parameters, working_copy
from .inputs import NetworkError, copied, each, like, rows, tensors_in, tensors_of, unlabelled
from .reference import differ, drawn_like, passed, shifted
from .task import name_of
from .types import Batch, ModelInput, Numbers, columns_of
from .vectors import directed, median, row_norms, unit_rows

if TYPE_CHECKING:
    from .pooling import Layout
    from .run import NetworkSource

Shape = tuple[int, ...]
CreditFunction = Callable[..., Sequence[Tensor]]
Compared = tuple[Tensor, Tensor, Tensor]
"""Where both credit and gradient are defined, and both as unit vectors, 0 elsewhere."""

ETA = 1e-3
"""The length of a nudge, relative to ‖h‖."""
RESOLVED = 1e-12
"""Of the loss: what a nudge changes by less than this is rounding."""
DRAWS = 200
RANDOM_DRAWS = 5
CHUNK = 1 << 24
"""How many products of features are held at once."""
WAYS = (
    "give it by --fa-credit=package.module:function (called with model, x, y, checkpoint) or the "
    "fixture fa_credit, or save the feedback matrices of DFA in the checkpoint as Bs"
)


@dataclass(frozen=True)
class CreditSource:
    """Where the credit of a network comes from, before it is looked at.

    >>> CreditSource(my_credit, "paper.rules:my_credit", checkpoint)
    """

    function: CreditFunction | None = None
    name: str = ""
    """What a report calls the function, where it is not by its own name."""
    checkpoint: Mapping[str, Any] = field(default_factory=dict)
    """The content of the file; its ``Bs`` serve where no function is given."""
    rebuild: Callable[[], nn.Module] | None = None
    """Builds the network again: feedback that differs then was drawn, and trained nothing."""


class Credit:
    """Compares credit and gradient of the evaluation batches sample by sample, in float64.

    What is wrong with the credit is part of the result. A network that does not run in float64
    is measured in its own precision.
    """

    needs = frozenset({"reference"})

    def __init__(self, source: NetworkSource) -> None:
        self.source = source
        self.credit = source.credit or CreditSource()
        self.name = self.credit.name or name_of(self.credit.function)
        self.problem = ""
        self.network = source.network
        if source.proof.dtype == "float64":
            self.network = copy_of(source.network, torch.float64)
        self.sites: dict[int, Site] = {}
        self.samples = 0

    def update(self, batch: Batch) -> None:
        """Measure an evaluation batch, at most ``batch_size`` samples at once."""
        if self.problem:
            return
        size = self.source.batch_size
        try:
            returned = None
            if self.credit.function is not None:
                returned = self._called(self.credit.function, batch)
            for start in range(0, len(batch.y), size):
                self._measure(batch, returned, slice(start, start + size))
        except AuditError as error:
            self.problem = str(error)

    def _called(self, function: CreditFunction, batch: Batch) -> Any:
        """What the function returns for a whole batch: a rule may normalise its credit over it.

        It gets a new copy of the network each time, so what it does to it ends with the batch.
        """
        network = copy_of(self.source.network)
        differentiable_parameters(network)
        x = batch.x
        if self.source.forward is not None:
            x, _ = unlabelled(x)
        arguments: tuple[Any, ...] = (network, copied(x), batch.y.clone())
        with suppress(TypeError):  # it takes three
            inspect.signature(function).bind(*arguments, self.credit.checkpoint)
            arguments = (*arguments, self.credit.checkpoint)
        try:
            with torch.enable_grad(), torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                return function(*arguments)
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
            raise AuditError(f"the credit function {self.name} raised {failure}") from error

    def _measure(self, batch: Batch, returned: Any, part: slice) -> None:
        """Compare the credit of some samples of a batch with their gradients, and nudge by both."""
        network = self.network
        stream = self.source.stream
        task = self.source.task
        samples = rows(batch.x, part)
        y = batch.y[part]
        x = like(samples, network)

        def objective(outputs: Tensor) -> Tensor:
            return (outputs * task.error(outputs, y).units.to(outputs)).sum()

        def losses_at(layer: int, shift: Tensor) -> Tensor:
            """The loss of each sample after something was added to h_l."""
            return task.losses(shifted(network, stream, x, layer, shift), y)

        trip = passed(network, stream, x, objective)
        losses = task.losses(trip.outputs, y)
        error = task.error(trip.outputs, y)
        shapes = [tuple(state.shape[1:]) for state in trip.states]
        if self.credit.function is None:
            credits = self._without_function(samples, error.whole, shapes)
        else:
            credits = self._checked(returned, shapes, part)
        for layer, credit in credits.items():
            state = trip.states[layer]
            values = credit.to(error.norms).flatten(1)
            gradient = trip.gradients[layer].to(error.norms).flatten(1)
            if (torch.isfinite(gradient).all(1) & ~torch.isfinite(values).all(1)).any():
                raise AuditError(
                    f"the credit from {self.name} is NaN or inf at h_{layer} for samples whose "
                    "gradient is finite"
                )
            if layer not in self.sites:
                self.sites[layer] = Site(layer, stream.layout, state)
            site = self.sites[layer]
            compared = site.compare(values, gradient, error.norms, state)
            first = None if batch.start else part
            site.nudge(compared, state, losses, losses_at, first)
        self.samples += len(y)

    def _without_function(
        self, x: ModelInput, error: Tensor, shapes: Sequence[Shape]
    ) -> dict[int, Tensor]:
        """The credit by layer, from the checkpoint's Bs or the network's own backward."""
        stored = self.credit.checkpoint.get("Bs")
        feedback = []
        if not isinstance(stored, dict):  # which has no order of blocks
            feedback = list(tensors_in(stored))
        written = self.source.task.written_error(error)
        *places, outputs = written.shape[1:]
        feedback_shapes = [tuple(matrix.shape) for matrix in feedback]
        fitting = [(*shape[len(places) :], outputs) for shape in shapes[1:]]
        if feedback_shapes == fitting:
            self.name = "the checkpoint's Bs (e B_lᵀ at h_{l+1})"
            return {layer: written @ matrix.to(error).T for layer, matrix in enumerate(feedback, 1)}
        if not self.source.proof.own_backward:
            content = "no Bs"
            if feedback:
                content = f"Bs of the shapes {feedback_shapes}, not {fitting}"
            raise AuditError(
                "no credit to compare: no credit function is given, the checkpoint holds "
                f"{content}, and the network has no backward of its own; {WAYS}"
            )
        self.name = "the network's own backward"
        if self.credit.rebuild is not None and not self.samples:
            self._refuse_random(self.credit.rebuild, x, error)
        return self._own_credit(self.source.network, x, error)

    def _own_credit(self, network: nn.Module, x: ModelInput, error: Tensor) -> dict[int, Tensor]:
        """What the own backward of a network brings to each state."""

        def objective(outputs: Tensor) -> Tensor:
            for module in network.modules():
                if hasattr(module, "loss_gradient"):  # of BioTorch's direct feedback alignment
                    module.loss_gradient = self.source.task.written_error(error).to(outputs)
            return (outputs * error.to(outputs)).sum()

        def traced(tensor: Tensor) -> Tensor:
            return tensor.detach().requires_grad_(tensor.is_floating_point())

        inputs = each(x, traced)  # the graph begins here: it must show what is done to h_0
        try:
            trip = passed(network, self.source.stream, inputs, objective, own_backward=True)
        except NetworkError as failure:
            raise AuditError(f"the network's own backward fails ({failure}); {WAYS}") from failure
        first = 0
        if trip.handed_on and not any(tensor.requires_grad for tensor in tensors_of(inputs)):
            first = 1
        return dict(enumerate(trip.gradients[first:], first))

    def _refuse_random(self, rebuild: Callable[[], nn.Module], x: ModelInput, e: Tensor) -> None:
        """An error where two builds have different feedback: it was drawn and not loaded."""
        credits = []
        for seed in (0, 1):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                network = working_copy(rebuild()).to(self.source.device)
            credits.append(self._own_credit(network, x, e).values())
        if differ(*credits):
            names = _outside_state_dict(network) or ["not found"]
            raise AuditError(
                "the feedback of the network's own backward differs from one build to the next, so "
                "it is not what trained this checkpoint; tensors outside the state_dict: "
                f"{and_more(names)}; save the feedback with the checkpoint"
            )

    def _checked(self, returned: Any, shapes: Sequence[Shape], part: slice) -> dict[int, Tensor]:
        """The function's credit of some samples of a batch by layer, samples first."""
        dims = self.source.stream.batch_dims
        expected: list[Shape | str] = [
            (*shape[:dim], BATCH, *shape[dim:]) for shape, dim in zip(shapes, dims, strict=True)
        ]
        credits = [returned]
        if isinstance(returned, (list, tuple, Tensor)):
            credits = list(returned)
        got = list(map(_shape_or_kind, credits))
        if got not in (expected, expected[1:]):
            raise AuditError(
                f"the credit function {self.name} returned {got}; expected a list of real numbers "
                f"of the shapes {expected[1:]}, those of the states that the blocks write, or one "
                f"more with that of h_0 first, {expected[0]}"
            )
        first = len(expected) - len(got)
        return {
            layer: credit.detach().movedim(dims[layer], 0)[part]
            for layer, credit in enumerate(credits, first)
        }

    def compute(self) -> Numbers:
        """The record of (f)."""
        columns: Numbers = {}
        if not self.problem:
            columns = columns_of([self.sites[layer].numbers() for layer in sorted(self.sites)])
        credit = records.Credit(
            source=self.name, problem=self.problem, samples=self.samples, **columns
        )
        return {"credit": credit}


def _shape_or_kind(credit: Any) -> Shape | str:
    """The shape of a tensor of real numbers; what anything else is."""
    if not isinstance(credit, Tensor):
        return type(credit).__name__
    if not credit.is_floating_point():
        return str(credit.dtype)
    return tuple(credit.shape)


def _outside_state_dict(network: nn.Module) -> list[str]:
    """The tensors that modules hold and a checkpoint does not."""
    saved = network.state_dict()
    names = []
    for prefix, module in network.named_modules():
        for key, value in {**vars(module), **module._buffers}.items():
            name = f"{prefix}.{key}".lstrip(".")
            if torch.is_tensor(value) and name not in saved:
                names.append(name)
    return names


class Site:
    """What is gathered at one state."""

    def __init__(self, layer: int, layout: Layout, state: Tensor) -> None:
        self.layer = layer
        self.layout = layout
        features = layout.by_feature(state).shape[2]
        self.permutations = SignedPermutations(features, layer, state.device)
        self.parts: list[tuple[Tensor, Tensor, Tensor]] = []
        """Cosines, ratios of norms and cosines of the null, of some samples each."""
        self.undefined = 0
        self.changes = [(0.0, 0.0, 0.0)]
        """Of some samples each: the loss, and its change along the gradient and the credit."""
        self.along_random: list[list[float]] = []
        """Of the first batch: its change along the gradient, and along each random direction."""

    def compare(self, credit: Tensor, gradient: Tensor, sizes: Tensor, state: Tensor) -> Compared:
        """Compare credit and gradient of some samples; the gradient is given without its size."""
        credit_norms = row_norms(credit)
        gradient_norms = row_norms(gradient)
        defined = directed(credit_norms) & directed(gradient_norms) & (sizes > 0)
        credit = torch.where(defined.unsqueeze(1), unit_rows(credit), 0.0)
        gradient = torch.where(defined.unsqueeze(1), unit_rows(gradient), 0.0)
        cosines = (credit * gradient).sum(1).clamp(-1, 1)[defined]
        ratios = (credit_norms / (gradient_norms * sizes))[defined]
        shape = (-1, *state.shape[1:])
        null = self.permutations.cosines(
            self.layout.by_feature(credit[defined].view(shape)),
            self.layout.by_feature(gradient[defined].view(shape)),
        )
        self.parts.append((cosines, ratios, null))
        self.undefined += len(gradient) - len(cosines)
        return defined, credit, gradient

    def nudge(
        self,
        compared: Compared,
        state: Tensor,
        losses: Tensor,
        losses_at: Callable[[int, Tensor], Tensor],
        first: slice | None,
    ) -> None:
        """See what steps of η‖h‖ down unit vectors make of the losses of the samples compared.

        ``first`` are their places in the first batch, where they are in it.
        """
        defined, credit, gradient = compared
        step = ETA * row_norms(state.flatten(1)).unsqueeze(1)

        def change(direction: Tensor) -> float:
            moved = losses_at(self.layer, -(step * direction).view_as(state))
            return float((moved - losses)[defined].sum())

        along_gradient = change(gradient)
        self.changes.append((float(losses[defined].sum()), along_gradient, change(credit)))
        if first is not None:  # random directions say what 0 looks like, and each costs a pass
            batch = gradient.new_empty(BATCH, gradient.shape[1])
            changes = [along_gradient]
            for seed in range(RANDOM_DRAWS * self.layer, RANDOM_DRAWS * (self.layer + 1)):
                changes.append(change(unit_rows(drawn_like(batch, seed)[first])))
            self.along_random.append(changes)

    def numbers(self) -> Numbers:
        """Its entry in each field of the record."""
        columns = zip(*self.parts, strict=True)
        cosines, ratios, null_cosines = (torch.cat(parts, -1) for parts in columns)
        null = torch.full((DRAWS,), math.nan)
        if len(cosines):
            null = torch.quantile(null_cosines, 0.5, dim=1).double()
        low, high = torch.quantile(null, null.new_tensor([0.025, 0.975])).tolist()
        loss, along_gradient, along_credit = map(sum, zip(*self.changes, strict=True))
        nudge = math.nan
        unit = math.nan
        in_first_batch = [sum(changes) for changes in zip(*self.along_random, strict=True)]
        if along_gradient < -RESOLVED * loss:
            nudge = along_credit / along_gradient
            if in_first_batch[0] < 0:
                unit = in_first_batch[0]
        return {
            "sites": f"h_{self.layer}",
            "gamma": median(cosines),
            "null_mean": float(null.mean()),
            "null_sd": float(null.std()),
            "null_low": low,
            "null_high": high,
            "nudge": nudge,
            "random_nudge": tuple(change / unit for change in in_first_batch[1:]),
            "magnitude": median(ratios),
            "undefined": self.undefined,
        }


class SignedPermutations:
    """The null of Γ: in each draw one signed permutation of the features for all samples.

    Credits of other samples would not do: the credits of all samples span a few dimensions, and
    what matters is how these few lie. For a Gaussian feedback matrix a signed permutation of its
    rows is a fresh matrix.
    """

    def __init__(self, features: int, seed: int, device: torch.device) -> None:
        generator = torch.Generator().manual_seed(seed)
        order = [torch.randperm(features, generator=generator) for _ in range(DRAWS)]
        signs = 2 * torch.randint(0, 2, (DRAWS, features), generator=generator) - 1
        self.order = torch.stack(order).to(device)
        self.signs = signs.to(device, torch.float32)

    def cosines(self, credit: Tensor, gradient: Tensor) -> Tensor:
        """The cosine of each sample's permuted credit with its gradient, ``[draws, N]``.

        Both are ``[N, tokens, features]``, unit vectors of each sample as a whole, whose norm no
        permutation changes. For the width of a null float32 will do.
        """
        features = credit.shape[2]
        a = credit.float()
        g = gradient.float()
        if credit.shape[1] > 1:
            return self._over_tokens(a, g)
        a = a[:, 0].T.contiguous()
        g = g[:, 0].T.contiguous()
        both = torch.cat([a, -a])
        signed = torch.where(self.signs > 0, self.order, self.order + features)
        return torch.stack([(both[permutation] * g).sum(0) for permutation in signed])

    def _over_tokens(self, a: Tensor, g: Tensor) -> Tensor:
        """The same of several tokens: ⟨a P, g⟩ needs only the products of their features."""
        features = a.shape[2]
        places = (self.order * features + torch.arange(features, device=a.device)).flatten()
        at_once = max(1, CHUNK // (max(DRAWS, features) * features))
        cosines = []
        for start in range(0, max(1, len(a)), at_once):
            part = slice(start, start + at_once)
            products = (a[part].transpose(1, 2) @ g[part]).flatten(1)
            permuted = products[:, places].view(-1, DRAWS, features)
            cosines.append((permuted * self.signs).sum(2).T)
        return torch.cat(cosines, 1)
