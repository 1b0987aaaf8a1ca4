# SPDX-License-Identifier: Apache-2.0
"""What Flax' layers take for jax.lax.dot_general, and MaxText for its quantization."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from .._library import Error
from .._recipe import Description, Recipe, as_recipe
from ._functional import linear

_RNG = "sr_rng"


def dot_general(
    lhs: jax.Array,
    rhs: jax.Array,
    dimension_numbers: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
    *,
    key: Any = 0,
    layer: int = 0,
    recipe: Description | Recipe = "nvfp4",
    **_: Any,
) -> jax.Array:
    """jax.lax.dot_general of activations and a kernel, as linear() computes it.

    The last dimensions of lhs are contracted with the first of rhs, or with the last, and there is no batch.
    """
    (left, right), (left_batch, right_batch) = dimension_numbers
    left = tuple(axis % lhs.ndim for axis in left)
    right = tuple(axis % rhs.ndim for axis in right)
    count = len(left)
    if left_batch or right_batch or count == 0:
        raise Error("dot_general: only products of activations and a kernel can be quantized, without batch dimensions")
    if left != tuple(range(lhs.ndim - count, lhs.ndim)):
        raise Error(f"dot_general: the last dimensions of lhs must be contracted, not {left}")
    inner = math.prod(lhs.shape[axis] for axis in left)
    if right == tuple(range(count)):
        outer = rhs.shape[count:]
        w = rhs.reshape(inner, -1).T
    elif right == tuple(range(rhs.ndim - count, rhs.ndim)):
        outer = rhs.shape[: rhs.ndim - count]
        w = rhs.reshape(-1, inner)
    else:
        raise Error(f"dot_general: the first or the last dimensions of rhs must be contracted, not {right}")
    leading = lhs.shape[: lhs.ndim - count]
    y = linear(lhs.reshape(*leading, inner), w, key=key, layer=layer, recipe=recipe)
    y = y.reshape(*leading, *outer)
    return y if preferred_element_type is None else y.astype(preferred_element_type)


def make_dot_general_cls(recipe: Description | Recipe = "nvfp4") -> Any:
    """A class for ``nn.Dense(dot_general_cls=...)``, or whose objects are for ``nn.Dense(dot_general=...)``.

    What is random follows from the stream "sr_rng": ``model.apply(variables, x, rngs={"sr_rng": key})``, a new key for each
    microbatch. Flax derives another one from it for each layer.
    """
    import flax.linen as nn

    chosen = as_recipe(recipe)

    class TetradDotGeneral(nn.Module):
        @nn.compact
        def __call__(self, lhs: jax.Array, rhs: jax.Array, dimension_numbers: Any, *args: Any, **options: Any) -> jax.Array:
            key = self.make_rng(_RNG) if self.has_rng(_RNG) else jnp.zeros(4, jnp.uint32)
            return dot_general(lhs, rhs, dimension_numbers, *args, key=key, recipe=chosen, **options)

    return TetradDotGeneral


class Quant:
    """A quantization in the shape that MaxText's layers ask for: dot_general_cls() and einsum()."""

    def __init__(self, recipe: Description | Recipe = "nvfp4") -> None:
        self.recipe = as_recipe(recipe)

    def dot_general_cls(self, mesh_axes: Any = ()) -> Any:
        return make_dot_general_cls(self.recipe)

    def einsum(self, dtype: Any = jnp.float32) -> Any:
        """Products of two activations (attention) stay as they are."""
        return jnp.einsum
