"""The networks, and what must be said of each: written down before anything is measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from operator import attrgetter

from .initialisers import INITIALISERS
from .recipes import Recipe


@dataclass(frozen=True)
class Network:
    """One file: trained by a recipe, or another network changed by a surgery."""

    name: str
    recipe: Recipe
    parent: str = ""
    surgery: str = ""


@dataclass(frozen=True)
class Truth:
    """What holds of a network, by how it was made."""

    kind: str
    """``healthy``; ``broken``: as a whole; ``in part``: block 0 alone learnt; ``shallow task``: healthy, and one linear layer
    would do; ``small gradient``: a healthy function in parameters of another scale; ``bad control``: healthy, beside a control
    that is none; ``initialised otherwise``: trained as a whole from an initialisation of its own; ``hardly trained``: the same
    for a few steps, which may or may not be enough; ``shipped``: a network of ``fixtures/``."""
    fires: str = ""
    """The diagnostics that must fire, whatever the class mix."""
    silent: str = ""
    """Those that must not."""
    idle: tuple[int, ...] = ()
    """Blocks that add nothing, to be named."""
    questions: str = ""
    """What the report must say of the control."""

    @property
    def verdict(self) -> str:
        """What the verdict must be: «trustworthy», «not trustworthy», or either."""
        if self.kind == "healthy":
            return "trustworthy"
        return "not trustworthy" if self.fires or self.kind == "broken" else "either"


@dataclass(frozen=True)
class Case:
    """A network beside a control, or beside none, and the truth about it."""

    name: str
    network: str
    truth: Truth
    control: str = ""

    @property
    def twin(self) -> str:
        """A network of the same shapes and task, trained as a whole by BP; empty where there is none."""
        if self.network.startswith(SHIPPED):
            return ""
        shape = attrgetter("architecture", "d", "blocks", "activation", "out_ln", "task")
        own_recipe = networks()[self.network].recipe
        twins = [
            (recipe.seed != own_recipe.seed, name)
            for name, recipe in (MAIN | VARIANTS | EASY).items()
            if recipe.method == "bp" and shape(recipe) == shape(own_recipe)
        ]
        return min(twins, default=(0, ""))[1]


SHIPPED = "shipped "
"""How the names of the networks in ``fixtures/`` begin here."""

HEALTHY = Truth("healthy", silent="abc")
SHIPPED_HEALTHY = Truth("shipped, healthy", silent="abc")
SHIPPED_HOLLOW = Truth("shipped, hollow")
SHALLOW = Truth("shallow task", fires="e", silent="abc")
NO_DEPTH = Truth("broken", fires="e")
NOTHING = Truth("broken")
UNDERCUT = Truth("broken", fires="de")
EXPLODED = Truth("broken", fires="a")
FLOORED = Truth("broken", fires="b")
SCALED_UP = Truth("small gradient", fires="b", silent="a")
ONE_CLASS = Truth("broken", fires="c")

MAIN = {
    "resmlp": Recipe(),
    "post-ln": Recipe(architecture="post-ln"),
    "plain": Recipe(architecture="plain", d=16, blocks=6, steps=4000),
    "conv": Recipe(architecture="conv", d=12, steps=600, lr=5e-3),
    "vit-class": Recipe(architecture="vit-class", blocks=3, steps=600, lr=5e-3),
    "vit-mean": Recipe(architecture="vit-mean", blocks=3, steps=600, lr=5e-3),
    "mixer": Recipe(architecture="mixer", blocks=3, steps=600, lr=5e-3),
}
"""One network of each architecture, by which the broken ones are made too."""

R, P, C = MAIN["resmlp"], MAIN["plain"], MAIN["conv"]
VARIANTS = {
    "resmlp-d16": replace(R, d=16, steps=4000),
    "resmlp-d64": replace(R, d=64),
    "resmlp-d128": replace(R, d=128, steps=1500),
    "resmlp-2-blocks": replace(R, blocks=2, steps=4000),
    "resmlp-8-blocks": replace(R, blocks=8, d=24),
    "resmlp-12-blocks": replace(R, blocks=12, d=24),
    "resmlp-relu": replace(R, activation="relu"),
    "resmlp-tanh": replace(R, activation="tanh"),
    "resmlp-silu": replace(R, activation="silu"),
    "resmlp-no-norm": replace(R, out_ln=False),
    "resmlp-s1": replace(R, seed=1),
    "resmlp-s2": replace(R, seed=2),
    "resmlp-sgd": replace(R, optimiser="sgd", lr=0.1, wd=1e-4),
    "resmlp-adam": replace(R, optimiser="adam"),
    "resmlp-rmsprop": replace(R, optimiser="rmsprop", lr=5e-4),
    "resmlp-decay": replace(R, wd=0.3),
    "resmlp-smooth": replace(R, smoothing=0.1),
    "resmlp-smooth-d64": replace(R, smoothing=0.3, d=64),
    "resmlp-five": replace(R, task="five"),
    "resmlp-three": replace(R, task="three"),
    "resmlp-two": replace(R, task="two"),
    "saturated-five": replace(R, task="five", d=64, steps=3000),
    "saturated-three": replace(R, task="three", d=64, steps=3000),
    "saturated-two": replace(R, task="two", d=64, steps=3000),
    "fa": replace(R, method="fa", steps=3000),
    "fa-s1": replace(R, method="fa", steps=3000, seed=1),
    "fa-d48": replace(R, method="fa", d=48, steps=3000),
    "fa-five": replace(R, method="fa", task="five", steps=3000),
    "fa-three": replace(R, method="fa", task="three", steps=3000),
    "ep": replace(R, method="ep", steps=1000),
    "ep-five": replace(R, method="ep", task="five", steps=800),
    "ep-two": replace(R, method="ep", task="two", steps=800),
    "post-ln-six": replace(MAIN["post-ln"], blocks=6, d=24),
    "post-ln-three": replace(MAIN["post-ln"], task="three"),
    "post-ln-smooth": replace(MAIN["post-ln"], smoothing=0.1, seed=1),
    "plain-three-blocks": replace(P, blocks=3, d=24),
    "plain-five": replace(P, task="five", blocks=4),
    "conv-stages": replace(C, architecture="conv-stages", d=8),
    "conv-sgd": replace(C, optimiser="sgd", lr=0.1, wd=1e-4),
    "conv-five": replace(C, task="five"),
    "conv-two": replace(C, task="two", blocks=3),
    "vit-class-five": replace(MAIN["vit-class"], task="five"),
    "vit-class-smooth": replace(MAIN["vit-class"], smoothing=0.1, d=24, blocks=4),
    "vit-mean-three": replace(MAIN["vit-mean"], task="three"),
    "vit-mean-s1": replace(MAIN["vit-mean"], seed=1, d=24),
    "mixer-three": replace(MAIN["mixer"], task="three"),
    "mixer-decay": replace(MAIN["mixer"], wd=0.3, d=24, seed=1),
}
EASY = {
    "resmlp-easy": replace(R, task="easy", steps=400),
    "conv-easy": replace(C, task="easy", steps=200, blocks=3),
}
CONTROLLED = (
    *MAIN,
    "resmlp-d64",
    "resmlp-8-blocks",
    "resmlp-five",
    "resmlp-three",
    "resmlp-two",
    "fa",
    "fa-five",
    "ep",
)
"""The healthy ones beside which a frozen control is trained; controls are audited too, as blocks at initialisation."""

LOCAL = {
    "dfa": replace(R, method="dfa", steps=4000),
    "dfa-s1": replace(R, method="dfa", steps=4000, seed=1),
    "dfa-d64": replace(R, method="dfa", d=64, steps=3000),
    "dfa-five": replace(R, method="dfa", task="five", steps=2000),
    "dfa-three": replace(R, method="dfa", task="three", steps=2000),
    "dfa-lam": replace(R, method="dfa", lam=1e-2, steps=3000),
    "dfa-lam-s1": replace(R, method="dfa", lam=1e-1, seed=1),
    "dfa-lam-five": replace(R, method="dfa", lam=1e-2, task="five", steps=2000),
}
UNDER_CONTROL = {
    "dfa": "dfa",
    "dfa-s1": "dfa",
    "dfa-five": "dfa-five",
    "dfa-lam": "dfa",
    "dfa-lam-five": "dfa-five",
}
"""The local rules beside which a frozen control of DFA stands; λ acts on the blocks alone."""

SHORT = 150
"""The steps of a training that may not be enough."""


def _own_initialisations() -> Iterator[tuple[str, Recipe]]:
    """Frozen blocks of every initialiser in all frozen networks, and the same blocks trained, long and short."""
    originals = MAIN | VARIANTS | LOCAL
    for initialiser in INITIALISERS:
        for name in (*CONTROLLED, "dfa", "dfa-five"):
            recipe = replace(originals[name], learning="frozen", initialiser=initialiser)
            yield f"frozen_{name}-{initialiser}", recipe
        for name, recipe in MAIN.items():
            for optimiser, lr in (("sgd", 0.1), ("adam", recipe.lr)):
                trained = replace(recipe, initialiser=initialiser, optimiser=optimiser, lr=lr)
                yield f"{name}-{initialiser}-{optimiser}", trained
                yield f"{name}-{initialiser}-{optimiser}-short", replace(trained, steps=SHORT)


BROKEN = (
    (
        "exploded",
        "exploded",
        EXPLODED,
        ("resmlp", "plain", "conv", "vit-class", "vit-mean", "mixer", "resmlp-two"),
    ),
    ("floored", "floored", FLOORED, ("resmlp", "post-ln", "conv", "vit-mean", "resmlp-three")),
    ("scaled-up", "scaled-up", SCALED_UP, ("resmlp", "vit-class", "mixer")),
    ("one-class", "one-class", ONE_CLASS, (*MAIN, "resmlp-five", "resmlp-three", "resmlp-two")),
    ("half", "float16", HEALTHY, ("resmlp-s1", "vit-mean", "conv-five")),
    ("bfloat16", "bfloat16", HEALTHY, ("resmlp-s2", "mixer")),
)
"""What is done to trained networks: suffix, surgery, truth, to whom."""


def networks() -> dict[str, Network]:
    """Every file by its name, parents first."""
    made = [Network(name, recipe) for name, recipe in _recipes()]
    known = dict(MAIN | VARIANTS | LOCAL)
    made += [
        Network(f"{name}-{suffix}", known[name], name, how)
        for suffix, how, _, names in BROKEN
        for name in names
    ]
    made += [
        Network(
            "frozen_resmlp-chance", replace(R, learning="frozen"), "frozen_resmlp", "one-class"
        ),
        Network("frozen_resmlp-cheating", R, "resmlp-s1", "called frozen"),
    ]
    return {network.name: network for network in made}


def _recipes() -> Iterator[tuple[str, Recipe]]:
    yield from MAIN.items()
    yield from LOCAL.items()
    for name in CONTROLLED:
        yield f"frozen_{name}", replace((MAIN | VARIANTS)[name], learning="frozen")
    yield "frozen_dfa", replace(LOCAL["dfa"], learning="frozen")
    yield "frozen_dfa-five", replace(LOCAL["dfa-five"], learning="frozen")
    for name, recipe in MAIN.items():
        for learning in ("identity", "busy", "first"):
            yield (
                f"{name}-{learning}",
                replace(recipe, learning=learning, seed=3, steps=2 * recipe.steps // 3),
            )
        if name not in ("plain", "conv"):
            yield (
                f"{name}-faint",
                replace(recipe, learning="faint", seed=4, steps=2 * recipe.steps // 3),
            )
    for name in ("resmlp", "plain", "conv", "vit-mean"):
        yield f"{name}-shuffled", replace(MAIN[name], labels="shuffled")
    yield "resmlp-three-shuffled", replace(R, task="three", labels="shuffled")
    for name in ("resmlp", "vit-class", "conv"):
        yield f"{name}-untrained", replace(MAIN[name], learning="untrained")
    yield "resmlp-two-identity", replace(R, task="two", learning="identity")
    yield "resmlp-five-first", replace(R, task="five", learning="first")
    yield from EASY.items()
    yield "frozen_resmlp-weak", replace(R, learning="frozen", steps=20)
    yield "frozen_resmlp-narrow", replace(R, learning="frozen", d=4)
    yield from VARIANTS.items()
    yield from _own_initialisations()


def cases() -> list[Case]:
    """Every network with its truth, beside a control where one was trained for it."""
    return [
        *_healthy(),
        *_broken(),
        *_initialised_otherwise(),
        *_beside_bad_controls(),
        *_shipped(),
    ]


def _shipped() -> Iterator[Case]:
    """The networks of ``fixtures/``, each beside its control; λ acts on the blocks alone."""
    for method in ("bp", "fa", "ep", "dfa", "dfa-lam", "state-bridge", "credit-bridge"):
        truth = SHIPPED_HEALTHY if method in ("bp", "fa", "ep") else SHIPPED_HOLLOW
        control = method.removesuffix("-lam")
        for seed in (42, 123, 456):
            name = f"{SHIPPED}{method}_s{seed}"
            yield Case(name, name, truth, f"{SHIPPED}frozen_{control}_s{seed}")


def _healthy() -> Iterator[Case]:
    for name in MAIN | VARIANTS:
        yield Case(name, name, HEALTHY, f"frozen_{name}" if name in CONTROLLED else "")
    for name in EASY:
        yield Case(name, name, SHALLOW)
    for suffix, _, truth, names in BROKEN:
        for name in names:
            yield Case(f"{name}-{suffix}", f"{name}-{suffix}", truth)


def _broken() -> Iterator[Case]:
    for name in LOCAL:
        control = UNDER_CONTROL.get(name)
        yield Case(
            name, name, UNDERCUT if control else NO_DEPTH, f"frozen_{control}" if control else ""
        )
    for name in (*CONTROLLED, "dfa", "dfa-five"):
        yield Case(f"frozen_{name}", f"frozen_{name}", NO_DEPTH)
    known = networks()
    for name, network in known.items():
        recipe = network.recipe
        if network.parent or recipe.initialiser:
            continue
        if recipe.learning == "first":
            yield Case(
                name, name, Truth("in part", silent="abc", idle=tuple(range(1, recipe.blocks)))
            )
        if recipe.learning == "faint" and recipe.architecture == "vit-class":
            # Whatever the class token is given, it had nothing before, and the norm behind the blocks sees it in full.
            yield Case(name, name, Truth("in part", silent="abc"))
        elif recipe.learning == "busy":
            # Random labels may make the classes easier to decode; the head does not use it.
            yield Case(name, name, NOTHING)
        elif recipe.learning in ("identity", "faint", "untrained"):
            control = f"frozen_{name.rpartition('-')[0]}"
            yield Case(
                name,
                name,
                NO_DEPTH,
                control if recipe.learning == "identity" and control in known else "",
            )
        if recipe.labels == "shuffled":
            yield Case(name, name, NOTHING)


def _initialised_otherwise() -> Iterator[Case]:
    for name, recipe in _own_initialisations():
        if recipe.learning == "frozen":
            yield Case(name, name, NOTHING)
        elif recipe.steps == SHORT:
            yield Case(name, name, Truth("hardly trained"))
        else:
            yield Case(name, name, Truth("initialised otherwise"))


def _beside_bad_controls() -> Iterator[Case]:
    """Controls that are none: a broken network must not pass by them, nor a healthy one fail without a word."""
    bad = {
        "weak": "undertrained",
        "narrow": "architecture",
        "chance": "chance",
        "cheating": "trained",
    }
    for kind, question in bad.items():
        control = f"frozen_resmlp-{kind}"
        yield Case(
            f"resmlp-identity beside {kind}",
            "resmlp-identity",
            replace(NO_DEPTH, questions=question),
            control,
        )
        yield Case(
            f"resmlp beside {kind}",
            "resmlp",
            Truth("bad control", silent="abc", questions=question),
            control,
        )
    yield Case(
        "dfa beside weak", "dfa", replace(NO_DEPTH, questions="undertrained"), "frozen_resmlp-weak"
    )
    yield Case(
        "dfa beside bp's",
        "dfa",
        replace(UNDERCUT, questions="has none of its own"),
        "frozen_resmlp",
    )
    yield Case(
        "resmlp beside s1's",
        "resmlp-s1",
        Truth("bad control", silent="abc", questions="the control of seed"),
        "frozen_resmlp",
    )
