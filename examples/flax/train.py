# SPDX-License-Identifier: Apache-2.0
"""A small Llama over the bytes of text files in Flax, in BF16 and in NVFP4, and what four bits cost: with --seeds several times,
each time from other weights and on other places of the text, which both precisions share.

python examples/flax/train.py docs/*.md --steps 200 --seeds 3
"""

import argparse
import math
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

import tetrad.jax as tj

WIDTH, BLOCKS, HEADS, LENGTH = 128, 4, 4, 128
INIT = nn.initializers.normal(0.02)


class Block(nn.Module):
    dot_general_cls: Any

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        dense = partial(nn.Dense, use_bias=False, dtype=jnp.bfloat16, kernel_init=INIT, dot_general_cls=self.dot_general_cls)
        batch, length, width = x.shape
        q, k, v = jnp.moveaxis(dense(3 * width)(nn.RMSNorm()(x)).reshape(batch, length, 3, HEADS, -1), 2, 0)
        mixed = jax.nn.dot_product_attention(rotate(q), rotate(k), v, is_causal=True)
        x = x + dense(width)(mixed.reshape(batch, length, width))
        inner = 8 * width // 3 // 16 * 16
        gate, up = jnp.split(dense(2 * inner)(nn.RMSNorm()(x)), 2, axis=-1)
        return x + dense(width)(nn.silu(gate) * up)


def rotate(x: jax.Array) -> jax.Array:
    first, second = jnp.split(x, 2, axis=-1)
    half = first.shape[-1]
    angles = jnp.arange(x.shape[1])[:, None, None] * 10000 ** (-jnp.arange(half) / half)
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    return jnp.concatenate((first * cos - second * sin, second * cos + first * sin), axis=-1).astype(x.dtype)


class Llama(nn.Module):
    recipe: str | None

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        x = nn.Embed(256, WIDTH, embedding_init=INIT)(tokens)
        for block in range(BLOCKS):
            # The last block stays in BF16, as the recipe has it.
            quantized = self.recipe and block < BLOCKS - 1
            x = Block(tj.make_dot_general_cls(self.recipe) if quantized else None)(x)
        return nn.Dense(256, use_bias=False, dtype=jnp.bfloat16, kernel_init=INIT)(nn.RMSNorm()(x))


def train(model: Llama, data: np.ndarray, steps: int, seed: int) -> float:
    """Returns the mean loss of the last tenth."""
    schedule = optax.warmup_cosine_decay_schedule(0, 2e-3, 20, max(steps, 21))
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, b2=0.95, weight_decay=0.1))
    parameters = model.init(jax.random.key(seed), jnp.zeros((1, LENGTH), jnp.int32))
    state = optimizer.init(parameters)

    @jax.jit
    def update(parameters: Any, state: Any, rows: jax.Array, key: jax.Array) -> Any:
        def loss_of(parameters: Any) -> jax.Array:
            logits = model.apply(parameters, rows[:, :-1], rngs={"sr_rng": key})
            return optax.softmax_cross_entropy_with_integer_labels(logits.astype(jnp.float32), rows[:, 1:]).mean()

        loss, gradient = jax.value_and_grad(loss_of)(parameters)
        change, state = optimizer.update(gradient, state, parameters)
        return optax.apply_updates(parameters, change), state, loss

    losses = []
    for step in range(steps):
        starts = np.random.default_rng([seed, step]).integers(len(data) - LENGTH - 1, size=8)
        rows = np.stack([data[start : start + LENGTH + 1] for start in starts]).astype(np.int32)
        parameters, state, loss = update(parameters, state, rows, jax.random.fold_in(jax.random.key(seed), step))
        losses.append(float(loss))
        if step % max(steps // 10, 1) == 0:
            print(f"  step {step:5}  loss {losses[-1]:.4f}", flush=True)
    return mean(losses[-max(steps // 10, 1) :])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--recipe", default="nvfp4")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    data = np.frombuffer(b"".join(path.read_bytes() for path in options.files), np.uint8)
    gaps = []
    for seed in range(1, options.seeds + 1):
        print(f"seed {seed}: bf16")
        plain = train(Llama(None), data, options.steps, seed)
        print(f"seed {seed}: {options.recipe}")
        ours = train(Llama(options.recipe), data, options.steps, seed)
        gaps.append(100 * (ours / plain - 1))
        print(f"bf16 {plain:.4f}, {options.recipe} {ours:.4f}: {gaps[-1]:+.2f} %", flush=True)
    if len(gaps) > 1:
        print(f"{options.seeds} seeds: {mean(gaps):+.2f} %, standard error {stdev(gaps) / math.sqrt(len(gaps)):.2f}")


if __name__ == "__main__":
    main()
