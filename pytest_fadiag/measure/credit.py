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
from .copies import copy_of, working_copy
from .inputs import NetworkError, copied, each, like, rows, tensors_in, tensors_of, unlabelled
from .pooling import Layout
from .reference import differ, drawn_like, passed, shifted
from .task import name_of
from .types import Batch, ModelInput
from .vectors import directed, median, row_norms, unit_rows

if TYPE_CHECKING:
    from .run import NetworkSource

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
        self.source, self.credit = source, source.credit or CreditSource()
        self.name = self.credit.name or name_of(self.credit.function)
        self.problem = ""
        wide = source.proof.dtype == "float64"
        self.network = copy_of(source.network, torch.float64) if wide else source.network
        self.layout = Layout(self.network, frozenset().union(*source.stream.exclusive_parameters))
        self.sites: dict[int, Site] = {}
        self.samples = 0

    def update(self, batch: Batch) -> None:
        """Measure an evaluation batch, at most ``batch_size`` samples at once."""
        if self.problem:
            return
        try:
            function, size = self.credit.function, self.source.batch_size
            returned = None if function is None else self._called(function, batch)
            for start in range(0, len(batch.y), size):
                self._measure(batch, returned, slice(start, start + size))
        except AuditError as error:
            self.problem = str(error)

    def _called(self, function: CreditFunction, batch: Batch) -> Any:
        """What the function returns for a whole batch: a rule may normalise its credit over it.

        It gets a new copy of the network each time, so what it does to it ends with the batch.
        """
        network = copy_of(self.source.network)
        for parameter in network.parameters():
            parameter.requires_grad_(parameter.is_floating_point())
        x = batch.x if self.source.forward is None else unlabelled(batch.x)[0]
        arguments: tuple[Any, ...] = network, copied(x), batch.y.clone()
        with suppress(TypeError):  # it takes three
            inspect.signature(function).bind(*arguments, self.credit.checkpoint)
            arguments = *arguments, self.credit.checkpoint
        try:
            with torch.enable_grad(), torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                return function(*arguments)
        except Exception as error:
            said = f"raised {type(error).__name__}: {error}"
            raise AuditError(f"the credit function {self.name} {said}") from error

    def _measure(self, batch: Batch, returned: Any, part: slice) -> None:
        network, stream, task = self.network, self.source.stream, self.source.task
        given, y = rows(batch.x, part), batch.y[part]
        x = like(given, network)

        def objective(outputs: Tensor) -> Tensor:
            return (outputs * task.error(outputs, y).units.to(outputs)).sum()

        def losses_at(layer: int, shift: Tensor) -> Tensor:
            """The loss of each sample after something was added to h_l."""
            return task.losses(shifted(network, stream, x, layer, shift), y)

        taken = passed(network, stream, x, objective)
        losses, error = task.losses(taken.outputs, y), task.error(taken.outputs, y)
        shapes = [tuple(state.shape[1:]) for state in taken.states]
        if self.credit.function is None:
            credits = self._found(given, error.whole, shapes)
        else:
            credits = self._checked(returned, shapes, part)
        for layer, credit in credits.items():
            a, g = (own.to(error.norms).flatten(1) for own in (credit, taken.gradients[layer]))
            if (torch.isfinite(g).all(1) & ~torch.isfinite(a).all(1)).any():
                raise AuditError(
                    f"the credit from {self.name} is NaN or inf at h_{layer} for samples whose "
                    "gradient is finite"
                )
            state = taken.states[layer]
            if layer not in self.sites:
                self.sites[layer] = Site(layer, self.layout, state)
            compared = self.sites[layer].compare(a, g, error.norms, state)
            first = None if batch.start else part
            self.sites[layer].nudge(compared, state, losses, losses_at, first)
        self.samples += len(y)

    def _found(
        self, x: ModelInput, e: Tensor, shapes: Sequence[tuple[int, ...]]
    ) -> dict[int, Tensor]:
        """The credit by layer, from the checkpoint's Bs or the network's own backward."""
        given = self.credit.checkpoint.get("Bs")  # a dictionary has no order of blocks
        feedback = [] if isinstance(given, dict) else list(tensors_in(given))
        written = self.source.task.written_error(e)
        got, sizes = [tuple(B.shape) for B in feedback], written.shape[1:]
        wanted = [(*own[len(sizes) - 1 :], sizes[-1]) for own in shapes[1:]]
        if got == wanted:
            self.name = "the checkpoint's Bs (e B_lᵀ at h_{l+1})"
            return {layer: written @ B.to(e).T for layer, B in enumerate(feedback, 1)}
        if not self.source.proof.own_backward:
            held = f"Bs of the shapes {got}, not {wanted}" if got else "no Bs"
            raise AuditError(
                f"no credit to compare: no credit function is given, the checkpoint holds {held}, "
                f"and the network has no backward of its own; {WAYS}"
            )
        self.name = "the network's own backward"
        if self.credit.rebuild is not None and not self.samples:
            self._refuse_drawn(self.credit.rebuild, x, e)
        return self._own(self.source.network, x, e)

    def _own(self, network: nn.Module, x: ModelInput, e: Tensor) -> dict[int, Tensor]:
        """What the own backward of a network brings to each state."""

        def objective(outputs: Tensor) -> Tensor:
            for module in network.modules():
                if hasattr(module, "loss_gradient"):  # of BioTorch's direct feedback alignment
                    module.loss_gradient = self.source.task.written_error(e).to(outputs)
            return (outputs * e.to(outputs)).sum()

        # The graph begins at the inputs: it must show what is done to h_0.
        traced = each(x, lambda own: own.detach().requires_grad_(own.is_floating_point()))
        try:
            seen = passed(network, self.source.stream, traced, objective, own_backward=True)
        except NetworkError as failure:
            raise AuditError(f"the network's own backward fails ({failure}); {WAYS}") from failure
        first = int(seen.handed_on and not any(own.requires_grad for own in tensors_of(traced)))
        return dict(enumerate(seen.gradients[first:], first))

    def _refuse_drawn(self, rebuild: Callable[[], nn.Module], x: ModelInput, e: Tensor) -> None:
        """An error where two builds have different feedback: it was drawn and not loaded."""
        brought = []
        for seed in (0, 1):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                network = working_copy(rebuild()).to(self.source.device)
            brought.append(self._own(network, x, e).values())
        if differ(*brought):
            kept, left = network.state_dict(), list[str]()
            for name, module in network.named_modules():
                held = {**vars(module), **module._buffers}.items()
                names = [f"{name}.{key}".lstrip(".") for key, own in held if torch.is_tensor(own)]
                left += [own for own in names if own not in kept]
            raise AuditError(
                "the feedback of the network's own backward differs from one build to the next, so "
                "it is not what trained this checkpoint; tensors outside the state_dict: "
                f"{and_more(left or ['not found'])}; save the feedback with the checkpoint"
            )

    def _checked(
        self, returned: Any, shapes: Sequence[tuple[int, ...]], part: slice
    ) -> dict[int, Tensor]:
        """The function's credit of some samples of a batch by layer, samples first."""
        dims = self.source.stream.batch_dims
        wanted = [(*own[:dim], BATCH, *own[dim:]) for own, dim in zip(shapes, dims, strict=True)]
        listed = returned if isinstance(returned, (list, tuple, Tensor)) else [returned]
        real = (isinstance(own, Tensor) and own.is_floating_point() for own in listed)
        got = [
            tuple(own.shape) if fits else str(getattr(own, "dtype", type(own).__name__))
            for own, fits in zip(listed, real, strict=True)
        ]
        if got not in (wanted, wanted[1:]):
            raise AuditError(
                f"the credit function {self.name} returned {got}; expected a list of real numbers "
                f"of the shapes {wanted[1:]}, those of the states that the blocks write, or one "
                f"more with that of h_0 first, {wanted[0]}"
            )
        credits = enumerate(listed, len(wanted) - len(got))
        return {layer: own.detach().movedim(dims[layer], 0)[part] for layer, own in credits}

    def compute(self) -> dict[str, Any]:
        """The record of (f)."""
        layers = [] if self.problem else sorted(self.sites)
        sites = [self.sites[layer].numbers() for layer in layers]
        numbers: dict[str, Any] = {"source": self.name, "problem": self.problem}
        for name in sites[0] if sites else ():
            numbers[name] = tuple(site[name] for site in sites)
        return {"credit": records.Credit(samples=self.samples, **numbers)}


class Site:
    """What is gathered at one state."""

    def __init__(self, layer: int, layout: Layout, state: Tensor) -> None:
        self.layer, self.layout = layer, layout
        features = layout.by_feature(state).shape[2]
        self.permutations = SignedPermutations(features, layer, state.device)
        self.parts: list[tuple[Tensor, Tensor, Tensor]] = []
        """Cosines, ratios of norms and cosines of the null, of some samples each."""
        self.undefined = 0
        self.changes = [(0.0, 0.0, 0.0)]
        """Of some samples each: the loss, and its change along the gradient and the credit."""
        self.along_random: list[list[float]] = []
        """Of the first batch: its change along the gradient, and along each random direction."""

    def compare(self, a: Tensor, g: Tensor, sizes: Tensor, state: Tensor) -> Compared:
        """Compare credit and gradient of some samples; the gradient is ``sizes`` times ``g``."""
        norms, of_gradient = row_norms(a), row_norms(g)
        defined = directed(norms) & directed(of_gradient) & (sizes > 0)
        credit, gradient = (torch.where(defined.unsqueeze(1), unit_rows(v), 0.0) for v in (a, g))
        cosines = (credit * gradient).sum(1).clamp(-1, 1)[defined]
        ratios = (norms / (of_gradient * sizes))[defined]
        shaped = (v[defined].view(-1, *state.shape[1:]) for v in (credit, gradient))
        null = self.permutations.cosines(*map(self.layout.by_feature, shaped))
        self.parts.append((cosines, ratios, null))
        self.undefined += len(g) - len(cosines)
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

        along = change(gradient)
        self.changes.append((float(losses[defined].sum()), along, change(credit)))
        if first is not None:  # random directions say what 0 looks like, and each costs a pass
            whole = gradient.new_empty(BATCH, gradient.shape[1])
            seeds = range(RANDOM_DRAWS * self.layer, RANDOM_DRAWS * (self.layer + 1))
            directions = (unit_rows(drawn_like(whole, seed)[first]) for seed in seeds)
            self.along_random.append([along, *map(change, directions)])

    def numbers(self) -> dict[str, Any]:
        """Its entry in each field of the record."""
        cosines, ratios, drawn = (torch.cat(own, -1) for own in zip(*self.parts, strict=True))
        null = torch.full((DRAWS,), math.nan)
        if len(cosines):
            null = torch.quantile(drawn, 0.5, dim=1).double()
        low, high = torch.quantile(null, null.new_tensor([0.025, 0.975])).tolist()
        loss, along_gradient, along_credit = map(sum, zip(*self.changes, strict=True))
        resolved = along_gradient < -RESOLVED * loss
        sums = [sum(changes) for changes in zip(*self.along_random, strict=True)]
        unit = sums[0] if resolved and sums[0] < 0 else math.nan
        return {
            "sites": f"h_{self.layer}",
            "gamma": median(cosines),
            "null_mean": float(null.mean()),
            "null_sd": float(null.std()),
            "null_low": low,
            "null_high": high,
            "nudge": along_credit / along_gradient if resolved else math.nan,
            "random_nudge": tuple(change / unit for change in sums[1:]),
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
        self.order, self.signs = torch.stack(order).to(device), signs.to(device, torch.float32)

    def cosines(self, credit: Tensor, gradient: Tensor) -> Tensor:
        """The cosine of each sample's permuted credit with its gradient, ``[draws, N]``.

        Both are ``[N, tokens, features]``, unit vectors of each sample as a whole, whose norm no
        permutation changes. For the width of a null float32 will do.
        """
        features, a, g = credit.shape[2], credit.float(), gradient.float()
        if credit.shape[1] == 1:
            a, g = a[:, 0].T.contiguous(), g[:, 0].T.contiguous()
            both = torch.cat([a, -a])
            signed = torch.where(self.signs > 0, self.order, self.order + features)
            return torch.stack([(both[own] * g).sum(0) for own in signed])
        # Summed over tokens, ⟨a P, g⟩ needs of both only the products of their features.
        places = (self.order * features + torch.arange(features, device=a.device)).flatten()
        parts, at_once = [], max(1, CHUNK // (max(DRAWS, features) * features))
        for start in range(0, max(1, len(a)), at_once):
            part = slice(start, start + at_once)
            products = (a[part].transpose(1, 2) @ g[part]).flatten(1)
            parts.append((products[:, places].view(-1, DRAWS, features) * self.signs).sum(2).T)
        return torch.cat(parts, 1)
