"""Train networks in JAX by backpropagation and by direct feedback alignment (DFA), and audit them.

    pip install 'pytest-fadiag[jax]'
    python examples/jax_network.py --data fixtures/fashion-mnist

An MLP of eight narrow pre-LayerNorm blocks is trained on the first 5,000 images of the shipped test subset, with a control whose
blocks stay as initialised; it has no skip connections, so random blocks lose what trained ones keep. The audit reads the other 5,000. Glue between JAX and the audit: the two calls of `module`, and `update` in the step.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from pytest_fadiag import diagnose, load_data

try:
    import jax
    import jax.numpy as jnp

    from pytest_fadiag.jax import module
except ImportError:
    sys.exit("examples/jax_network.py needs JAX, which is not installed: pip install jax")

DEPTH, WIDTH, CLASSES, BATCH, RATE = 8, 16, 10, 128, 1e-3


def embed(weights: Any, x: Any) -> Any:
    """h_0."""
    return x @ weights["w"]


def block(weights: Any, h: Any) -> Any:
    """The next state; a skip connection would belong here."""
    return jax.nn.gelu(normed(h) @ weights["in"]) @ weights["out"]


def head(weights: Any, h: Any) -> Any:
    """The logits."""
    return normed(h) @ weights["w"]


def normed(h: Any) -> Any:
    """LayerNorm without scale and shift."""
    return (h - h.mean(-1, keepdims=True)) / jnp.sqrt(h.var(-1, keepdims=True) + 1e-5)


FUNCTIONS = [embed, *[block] * DEPTH, head]


def initial(key: Any, inputs: int) -> list[dict[str, Any]]:
    """Weights of each layer as N(0, 1/fan-in)."""

    def matrix(key: Any, *shape: int) -> Any:
        return jax.random.normal(key, shape) / jnp.sqrt(shape[0])

    keys = jax.random.split(key, 2 * DEPTH + 2)
    blocks = [
        {
            "in": matrix(keys[2 * number], WIDTH, 4 * WIDTH),
            "out": matrix(keys[2 * number + 1], 4 * WIDTH, WIDTH),
        }
        for number in range(DEPTH)
    ]
    return [
        {"w": matrix(keys[-1], inputs, WIDTH)},
        *blocks,
        {"w": matrix(keys[-2], WIDTH, CLASSES)},
    ]


def states_of(weights: Any, x: Any) -> list[Any]:
    """h_0 … h_L, and the logits."""
    states = [x]
    for function, parameters in zip(FUNCTIONS, weights, strict=True):
        states.append(function(parameters, states[-1]))
    return states[1:]


def losses(logits: Any, y: Any) -> Any:
    """The cross-entropy of each sample."""
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1)[:, 0]


def bp_loss(weights: Any, x: Any, y: Any, feedback: Any) -> Any:
    """The mean loss."""
    return losses(states_of(weights, x)[-1], y).mean()


def dfa_loss(weights: Any, x: Any, y: Any, feedback: Any) -> Any:
    """A loss whose gradient is DFA's: each block sees its own credit, the head the true error."""
    *states, logits = jax.lax.stop_gradient(states_of(weights, x))
    error = jax.nn.softmax(logits) - jax.nn.one_hot(y, CLASSES)
    total = losses(head(weights[-1], states[-1]), y).sum()
    inputs = [x, *states]
    for layer, (parameters, h, matrix) in enumerate(zip(weights, inputs, feedback, strict=False)):
        credit = error @ matrix.T
        credit /= jnp.sqrt((credit * credit).mean(-1, keepdims=True)) + 1e-6
        output = block(parameters, h) if layer else embed(parameters, h)
        total += (output * credit).sum()
    return total / len(x)


def trained(loss: Any, seed: int, x: Any, y: Any, epochs: int, *, frozen: bool) -> tuple[Any, Any]:
    """Weights after some epochs of Adam, and the feedback; ``frozen`` keeps the blocks."""
    first, second, third = jax.random.split(jax.random.PRNGKey(seed), 3)
    weights = initial(first, x.shape[1])
    feedback = list(jax.random.normal(second, (DEPTH + 1, WIDTH, CLASSES)) / CLASSES**0.5)
    moments = [jax.tree.map(jnp.zeros_like, weights)] * 2

    @jax.jit
    def step(weights: Any, moments: Any, count: Any, x: Any, y: Any) -> Any:
        slope = jax.grad(loss)(weights, x, y, feedback)
        if frozen:
            slope[1:-1] = jax.tree.map(jnp.zeros_like, slope[1:-1])
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments[0], slope)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, moments[1], slope)
        scale = RATE * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
        new = jax.tree.map(lambda w, m, v: w - scale * m / (jnp.sqrt(v) + 1e-8), weights, m, v)
        return new, [m, v]

    count = 0
    for epoch in range(epochs):
        order = jax.random.permutation(jax.random.fold_in(third, epoch), len(x))
        for start in range(0, len(x) - BATCH + 1, BATCH):
            rows = order[start : start + BATCH]
            count += 1
            weights, moments = step(weights, moments, count, x[rows], y[rows])
    return weights, feedback


def main() -> None:
    """Train four networks, audit two of them beside the others, print their verdicts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("fixtures/fashion-mnist"))
    parser.add_argument("--out", type=Path, default=Path("."), help="folder of the reports")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    data = load_data(f"fashion-mnist:{options.data}")
    images = (data.x.flatten(1).numpy() / 255 - 0.286) / 0.353
    labels = data.y.numpy()
    half = len(images) // 2
    x, y = jnp.asarray(images[:half], jnp.float32), jnp.asarray(labels[:half])
    for method, loss in (("bp", bp_loss), ("dfa", dfa_loss)):
        weights, feedback = trained(loss, options.seed, x, y, options.epochs, frozen=False)
        frozen, _ = trained(loss, options.seed, x, y, options.epochs, frozen=True)
        network = module(list(zip(FUNCTIONS, weights, strict=True)))
        control = module(list(zip(FUNCTIONS, frozen, strict=True)))

        def update(
            network: Any, x: Any, y: Any, loss: Any = loss, feedback: Any = feedback
        ) -> None:
            """One step of plain gradient descent by the method."""
            now = [parameters for _, parameters in network.layers]
            slope = jax.grad(loss)(now, jnp.asarray(x), jnp.asarray(y), feedback)
            new = jax.tree.map(lambda w, g: w - 0.01 * g, now, slope)
            network.update(list(zip(FUNCTIONS, new, strict=True)))

        test = jnp.asarray(images[half:], jnp.float32)
        report = diagnose(
            network,
            test,
            labels[half:],
            control=control,
            step=update,
            method_name=method,
            seed=options.seed,
        )
        report.save(options.out / f"{method}_s{options.seed}.json")
        print(report)


if __name__ == "__main__":
    main()
