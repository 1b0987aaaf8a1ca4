# SPDX-License-Identifier: Apache-2.0
"""Functions on arrays: quantize, dequantize, linear, and the keys of their random bits."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._library import Error, lib
from .._quantize import Key, Quantizer, checked_key
from .._recipe import Description, Recipe, as_recipe
from . import _ops


def make_key(seed: int = 0, step: int = 0, microbatch: int = 0) -> jax.Array:
    """A random key as all of Tetrad has it: uint32 of four elements, the seed's low and high half, step, microbatch."""
    key = checked_key(Key(seed, step, microbatch))
    return jnp.array([key.seed % 2**32, key.seed >> 32, key.step, key.microbatch], jnp.uint32)


def fold_in(key: Any, data: Any) -> jax.Array:
    """Another key for each number below 2^32, such as a device's place in jax.shard_map: the microbatch grows by it."""
    words = _words_of(key)
    return words.at[3].add(jnp.asarray(data).astype(jnp.uint32))


def _words_of(key: Any) -> jax.Array:
    """A key of ours, one of JAX (typed, or as uint32), or (seed, step, microbatch)."""
    if isinstance(key, (int, tuple)) and not isinstance(key, bool):
        return make_key(*((key,) if isinstance(key, int) else key))
    if isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        key = jax.random.key_data(key)
    key = jnp.asarray(key)
    if key.dtype != jnp.uint32 or key.shape not in ((2,), (4,)):
        raise Error(f"a key of {key.dtype}{list(key.shape)}: give one of jax.random, tetrad.jax.make_key(), or (seed, step, microbatch)")
    return key if key.shape == (4,) else jnp.concatenate([key, jnp.zeros(2, jnp.uint32)])


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Quantized:
    """A quantized matrix, as a product reads it; the members are those of tetrad.Quantized."""

    codes: jax.Array
    scales: jax.Array
    amax: jax.Array
    quantizer: Quantizer = field(metadata={"static": True})
    shape: tuple[int, int] = field(metadata={"static": True})

    def dequantize(self, dtype: Any = jnp.float32) -> jax.Array:
        return dequantize(self, dtype)


def quantize(
    x: jax.Array, format: str | Quantizer = "nvfp4", *, key: Any = 0, tensor: int | str = 0, **options: Any
) -> Quantized:
    """As tetrad.quantize(). The amax of a matrix that is not finite is NaN, and all its values."""
    quantizer = replace(format, **options) if isinstance(format, Quantizer) else Quantizer(format, **options)
    x = _checked(x, "x")
    if x.ndim != 2:
        raise Error(f"x has {x.ndim} dimensions, not 2")
    number = lib.tetrad_tensor_of_name(tensor.encode()) if isinstance(tensor, str) else int(tensor)
    return Quantized(*_ops.quantize(x, _words_of(key), quantizer, number), quantizer, x.shape)


def dequantize(q: Quantized, dtype: Any = jnp.float32) -> jax.Array:
    """The values, as a product reads them: transposed if blocks run along axis 0; transformed if it was."""
    if jnp.dtype(dtype) not in (jnp.dtype(jnp.float32), jnp.dtype(jnp.bfloat16)):
        raise Error(f"dequantize: {jnp.dtype(dtype)} is neither float32 nor bfloat16")
    rows, cols = q.shape if q.quantizer.axis == 1 else q.shape[::-1]
    return _ops.dequantize(q.codes, q.scales, q.amax, q.quantizer, rows, cols, dtype)


def _checked(array: Any, name: str) -> jax.Array:
    array = jnp.asarray(array)
    if array.dtype == jnp.float16:
        array = array.astype(jnp.float32)
    if array.dtype not in (jnp.float32, jnp.bfloat16):
        raise Error(f"{name} is {array.dtype}: convert it to float32 or bfloat16")
    return array


def linear(x: Any, w: Any, *, key: Any = 0, layer: int = 0, recipe: Description | Recipe = "nvfp4") -> jax.Array:
    """y = x wᵀ, differentiable, with x [..., in] and w [out, in].

    What is random (in most recipes the rounding of gradients) follows from ``key`` and ``layer``, which is different for
    each linear layer of a model.
    """
    x, w = _checked(x, "x"), _checked(w, "w")
    if x.ndim == 0 or w.ndim != 2 or x.shape[-1] != w.shape[1]:
        raise Error(f"linear: x is {x.shape} and w is {w.shape}: w must be [out, {x.shape[-1] if x.ndim else 'in'}]")
    if not 0 <= layer < 2**28:
        raise Error(f"layer {layer} is not a number below 2^28")
    precision = as_recipe(recipe).precision(w.shape[0])
    number = _ops.number_of_precision(precision)
    rows = x.reshape(-1, x.shape[-1])
    tokens = rows.shape[0]
    # Rows of zeros change no other row, and blocks of wgrad run along the tokens.
    missing = -tokens % precision.token_multiple
    if missing:
        rows = jnp.pad(rows, ((0, missing), (0, 0)))
    y = _linear(rows, w, _words_of(key), number, layer)
    return y[:tokens].reshape(*x.shape[:-1], w.shape[0])


@partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def _linear(x: jax.Array, w: jax.Array, key: jax.Array, precision: int, layer: int) -> jax.Array:
    return _ops.forward(x, w, key, precision, layer)


def _linear_forward(x: jax.Array, w: jax.Array, key: jax.Array, precision: int, layer: int) -> tuple[jax.Array, Any]:
    return _ops.forward(x, w, key, precision, layer), (x, w, key)


def _linear_backward(precision: int, layer: int, kept: Any, dy: jax.Array) -> tuple[jax.Array, jax.Array, np.ndarray]:
    x, w, key = kept
    dx, dw = _ops.backward(dy, w, x, key, precision, layer)
    return dx, dw, np.zeros(key.shape, jax.dtypes.float0)


_linear.defvjp(_linear_forward, _linear_backward)
