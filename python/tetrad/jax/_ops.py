# SPDX-License-Identifier: Apache-2.0
"""The operations of native/xla_ops.cpp, and how they are cut where arrays are sharded."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import NamedSharding, PartitionSpec

from .. import _library
from .._library import Error
from .._quantize import Quantizer
from .._recipe import Precision

_handlers = _library.frameworks()
if not hasattr(_handlers, "tetrad_xla_linear_forward_cpu"):
    raise ImportError("tetrad.jax: the package was built without JAX's headers: install jaxlib, and build it again")
for _name in ("linear_forward", "linear_backward", "quantize", "dequantize"):
    for _platform, _ending in (("cpu", "cpu"), ("CUDA", "cuda")):
        _capsule = jax.ffi.pycapsule(getattr(_handlers, f"tetrad_xla_{_name}_{_ending}"))
        jax.ffi.register_ffi_target(f"tetrad_{_name}", _capsule, platform=_platform)

# What an operation's number stands for, where only its shape is computed.
precisions: dict[int, Precision] = {}


def number_of_precision(precision: Precision) -> int:
    precisions[precision.announce().id] = precision
    return precision.id


def _call(name: str, results: Any, *arguments: jax.Array, **attributes: int) -> Any:
    # has_side_effect stays False: equal calls give equal bits, and what nobody reads need not be computed.
    call = jax.ffi.ffi_call(f"tetrad_{name}", results, vmap_method=None)
    return call(*arguments, **{key: np.int64(value) for key, value in attributes.items()})


def _refuse_vmap(*_: Any) -> Any:
    raise Error(
        "tetrad.jax: there is no vmap of a quantized layer, because a matrix has one scale: give linear() all leading dimensions, "
        "or use jax.lax.map"
    )


def _without_vmap(operation: Any) -> Any:
    wrapped = jax.custom_batching.custom_vmap(operation)
    wrapped.def_vmap(_refuse_vmap)
    return wrapped


def _forward(x: jax.Array, w: jax.Array, key: jax.Array, precision: int, layer: int) -> jax.Array:
    # Nothing is saved for the backward pass, which makes the same codes of x again: bytes whose number is no line over the
    # tokens could not be sharded along them.
    results = (jax.ShapeDtypeStruct((x.shape[0], w.shape[0]), x.dtype), jax.ShapeDtypeStruct((0,), jnp.uint8))
    return _call("linear_forward", results, x, w, key, precision=precision, layer=layer)[0]


def _backward(dy: jax.Array, w: jax.Array, x: jax.Array, key: jax.Array, precision: int, layer: int) -> tuple[jax.Array, jax.Array]:
    results = (jax.ShapeDtypeStruct((dy.shape[0], w.shape[1]), dy.dtype), jax.ShapeDtypeStruct(w.shape, w.dtype))
    saved = jnp.zeros((0,), jnp.uint8)
    return _call("linear_backward", results, dy, w, x, saved, key, precision=precision, layer=layer)


# Where x is sharded along its tokens, every device computes a layer of its own tokens: their scales are their own, they draw
# by a key of their own, and dw is summed. Other shardings are gathered.
_sharded_forward = custom_partitioning(_forward, static_argnums=(3, 4))
_sharded_backward = custom_partitioning(_backward, static_argnums=(4, 5))


def _token_axes(shape: Any) -> Any:
    spec = shape.sharding.spec
    return spec[0] if len(spec) > 0 else None


def _shardings(mesh: Any, *specs: Any) -> tuple[NamedSharding, ...]:
    return tuple(NamedSharding(mesh, PartitionSpec(*spec)) for spec in specs)


def _key_of_shard(key: jax.Array, axes: Any) -> jax.Array:
    """Microbatches of a step stay below 2^16."""
    return key if axes is None else key.at[3].add(jax.lax.axis_index(axes).astype(jnp.uint32) << 16)


def _partition_forward(precision: int, layer: int, mesh: Any, given: Any, _: Any) -> Any:
    axes = _token_axes(given[0])

    def lower(x: jax.Array, w: jax.Array, key: jax.Array) -> jax.Array:
        return _forward(x, w, _key_of_shard(key, axes), precision, layer)

    (y,) = _shardings(mesh, (axes, None))
    return mesh, lower, y, _shardings(mesh, (axes, None), (None, None), (None,))


def _partition_backward(precision: int, layer: int, mesh: Any, given: Any, _: Any) -> Any:
    axes = _token_axes(given[0])

    def lower(dy: jax.Array, w: jax.Array, x: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        dx, dw = _backward(dy, w, x, _key_of_shard(key, axes), precision, layer)
        return dx, dw if axes is None else jax.lax.psum(dw, axes)

    tokens, whole = (axes, None), (None, None)
    return mesh, lower, _shardings(mesh, tokens, whole), _shardings(mesh, tokens, whole, tokens, (None,))


_sharded_forward.def_partition(
    partition=_partition_forward,
    infer_sharding_from_operands=lambda precision, layer, mesh, given, _: _shardings(mesh, (_token_axes(given[0]), None))[0],
    sharding_rule="t i, o i, k -> t o",
    need_replication_factors=("i", "o", "k"),
)
_sharded_backward.def_partition(
    partition=_partition_backward,
    infer_sharding_from_operands=lambda precision, layer, mesh, given, _: _shardings(mesh, (_token_axes(given[0]), None), (None, None)),
    sharding_rule="t o, o i, t i, k -> t i, o i",
    need_replication_factors=("o", "i", "k"),  # in the order of the rule
)


def forward(x: jax.Array, w: jax.Array, key: jax.Array, precision: int, layer: int) -> jax.Array:
    """y."""
    return _without_vmap(lambda *given: _sharded_forward(*given, precision, layer))(x, w, key)


def backward(dy: jax.Array, w: jax.Array, x: jax.Array, key: jax.Array, precision: int, layer: int) -> tuple[jax.Array, jax.Array]:
    """(dx, dw)."""
    return _without_vmap(lambda *given: _sharded_backward(*given, precision, layer))(dy, w, x, key)


def quantize(x: jax.Array, key: jax.Array, quantizer: Quantizer, tensor: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    layout = quantizer.layout(*x.shape)
    per_row = layout.code_bytes // layout.rows if layout.rows else 0
    results = (
        jax.ShapeDtypeStruct((layout.rows, per_row), jnp.uint8),
        jax.ShapeDtypeStruct(_scale_shape(quantizer, layout), jnp.float32 if quantizer.format == "fp8" else jnp.uint8),
        jax.ShapeDtypeStruct((), jnp.float32),
    )
    call = _without_vmap(lambda x, key: _call("quantize", results, x, key, quantizer=quantizer.id, tensor=tensor))
    return call(x, key)


def _scale_shape(quantizer: Quantizer, layout: Any) -> tuple[int, ...]:
    return () if quantizer.block == "tensor" else (layout.scale_rows, layout.scale_cols)


def dequantize(codes: jax.Array, scales: jax.Array, amax: jax.Array, quantizer: Quantizer, rows: int, cols: int, dtype: Any) -> jax.Array:
    result = jax.ShapeDtypeStruct((rows, cols), dtype)
    return _without_vmap(lambda *given: _call("dequantize", result, *given, quantizer=quantizer.id))(codes, scales, amax)
