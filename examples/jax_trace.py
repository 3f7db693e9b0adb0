"""Audit networks that were trained in JAX: dump one trace per network, then run `fadiag audit` on them.

    pip install jax
    python examples/jax_trace.py --data fixtures/fashion-mnist --out traces
    fadiag audit traces/*.npz

A pre-LayerNorm residual MLP is trained by backpropagation and by direct feedback alignment (DFA), each with a control whose
blocks stay as initialised. The training half is the first 5,000 images of the shipped test subset, the audit reads the other 5,000.
A zero is added at every state and at the outputs; one `jax.grad` by these zeros gives all gradients.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from pytest_fadiag import audit, load_data, save_trace

try:
    import jax
    import jax.numpy as jnp
except ImportError:
    sys.exit("examples/jax_trace.py needs JAX, which is not installed: pip install jax")

DEPTH, WIDTH, CLASSES, BATCH, RATE = 3, 48, 10, 128, 1e-3


def initial(key: Any, inputs: int) -> dict[str, Any]:
    """Weights as N(0, 1/fan-in), biases zero, one array per name."""

    def drawn(key: Any, *shape: int) -> Any:
        return jax.random.normal(key, shape) / jnp.sqrt(shape[0])

    keys = jax.random.split(key, 2 * DEPTH + 2)
    blocks = [
        {
            "in": drawn(keys[2 * n], WIDTH, 4 * WIDTH),
            "out": drawn(keys[2 * n + 1], 4 * WIDTH, WIDTH),
        }
        for n in range(DEPTH)
    ]
    return {
        "embed": drawn(keys[-1], inputs, WIDTH),
        "blocks": blocks,
        "head": drawn(keys[-2], WIDTH, CLASSES),
    }


def normed(h: Any) -> Any:
    """LayerNorm without scale and shift."""
    return (h - h.mean(-1, keepdims=True)) / jnp.sqrt(h.var(-1, keepdims=True) + 1e-5)


def branch(block: dict[str, Any], h: Any) -> Any:
    """What a block adds to the stream."""
    return jax.nn.gelu(normed(h) @ block["in"]) @ block["out"]


def forward(weights: dict[str, Any], x: Any, zeros: list[Any]) -> tuple[Any, list[Any]]:
    """Outputs and states; a zero is added at every state and, the last one, at the outputs."""
    states = [x @ weights["embed"] + zeros[0]]
    for block, zero in zip(weights["blocks"], zeros[1:-1], strict=True):
        states.append(states[-1] + branch(block, states[-1]) + zero)
    return normed(states[-1]) @ weights["head"] + zeros[-1], states


def no_zeros(samples: int) -> list[Any]:
    """One zero for each state and for the outputs."""
    return [jnp.zeros((samples, WIDTH))] * (DEPTH + 1) + [jnp.zeros((samples, CLASSES))]


def losses(outputs: Any, y: Any) -> Any:
    """The cross-entropy of each sample."""
    return -jnp.take_along_axis(jax.nn.log_softmax(outputs), y[:, None], 1)[:, 0]


def credits(feedback: list[Any], outputs: Any, y: Any) -> list[Any]:
    """DFA's credit at h_0 … h_L: the output error through fixed random matrices, of RMS 1."""
    error = jax.nn.softmax(outputs) - jax.nn.one_hot(y, CLASSES)
    raw = [error @ B.T for B in feedback]
    return [a / (jnp.sqrt((a * a).mean(-1, keepdims=True)) + 1e-6) for a in raw]


def bp_loss(weights: dict[str, Any], x: Any, y: Any, feedback: list[Any]) -> Any:
    """The mean loss."""
    return losses(forward(weights, x, no_zeros(len(x)))[0], y).mean()


def dfa_loss(weights: dict[str, Any], x: Any, y: Any, feedback: list[Any]) -> Any:
    """A loss whose gradient is DFA's: each block sees its own credit, the head the true error."""
    stop = jax.lax.stop_gradient
    outputs, states = stop(forward(weights, x, no_zeros(len(x))))
    first, *rest = credits(feedback, outputs, y)
    total = (
        losses(normed(states[-1]) @ weights["head"], y).sum() + (x @ weights["embed"] * first).sum()
    )
    for block, h, a in zip(weights["blocks"], states, rest, strict=False):
        total += (branch(block, h) * a).sum()
    return total / len(x)


def trained(
    loss: Any, seed: int, x: Any, y: Any, epochs: int, frozen: bool
) -> tuple[Any, list[Any]]:
    """Weights after some epochs of Adam, and the feedback matrices; ``frozen`` keeps the blocks."""
    first, second, third = jax.random.split(jax.random.PRNGKey(seed), 3)
    weights = initial(first, x.shape[1])
    feedback = list(jax.random.normal(second, (DEPTH + 1, WIDTH, CLASSES)) / CLASSES**0.5)
    moments = [jax.tree.map(jnp.zeros_like, weights)] * 2

    @jax.jit
    def step(weights: Any, moments: Any, count: Any, x: Any, y: Any) -> Any:
        slope = jax.grad(loss)(weights, x, y, feedback)
        if frozen:
            slope["blocks"] = jax.tree.map(jnp.zeros_like, slope["blocks"])
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments[0], slope)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, moments[1], slope)
        scale = RATE * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
        new = jax.tree.map(lambda w, m, v: w - scale * m / (jnp.sqrt(v) + 1e-8), weights, m, v)
        return new, [m, v]

    count = 0
    for epoch in range(epochs):
        order = jax.random.permutation(jax.random.fold_in(third, epoch), len(x))
        for start in range(0, len(x) - BATCH + 1, BATCH):
            rows, count = order[start : start + BATCH], count + 1
            weights, moments = step(weights, moments, count, x[rows], y[rows])
    return weights, feedback


def main() -> None:
    """Train four networks, write two traces, print their verdicts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("fixtures/fashion-mnist"))
    parser.add_argument("--out", type=Path, default=Path("traces"))
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    data = load_data(f"fashion-mnist:{options.data}")
    images = (data.x.flatten(1).numpy() / 255 - 0.286) / 0.353
    x, y = jnp.asarray(images, jnp.float32), jnp.asarray(data.y.numpy())
    half = len(x) // 2
    for method, loss in (("bp", bp_loss), ("dfa", dfa_loss)):
        known = (options.seed, x[:half], y[:half], options.epochs)
        weights, feedback = trained(loss, *known, frozen=False)
        control, _ = trained(loss, *known, frozen=True)
        test, labels, zeros = x[half:], y[half:], no_zeros(len(x) - half)
        outputs, states = forward(weights, test, zeros)

        def total(
            zeros: list[Any], weights: Any = weights, test: Any = test, y: Any = labels
        ) -> Any:
            return losses(forward(weights, test, zeros)[0], y).sum()

        *slopes, error = jax.grad(total)(zeros)
        path = options.out / f"{method}_s{options.seed}.npz"
        save_trace(
            path,
            outputs=outputs,
            y=labels,
            e=error,
            h=states,
            g=slopes,
            a=credits(feedback, outputs, labels)[1:] if method == "dfa" else slopes[1:],
            x=test,
            control_outputs=forward(control, test, zeros)[0],
            method=method,
            seed=options.seed,
        )
        print(f"{path}: {audit(path).verdict}")


if __name__ == "__main__":
    main()
