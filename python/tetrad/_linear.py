# SPDX-License-Identifier: Apache-2.0
"""A linear layer's forward and backward pass for NumPy: the bits that the program trains with."""

from __future__ import annotations

import ctypes as c
from typing import Any

import numpy as np

from . import _library
from ._library import Error, LinearBackward, LinearForward, LinearKey, check, lib
from ._quantize import Key, checked_key, matrix_of, prepared
from ._recipe import Description, Recipe, as_recipe


def _key_of(key: Key | tuple[int, ...] | int, layer: int) -> LinearKey:
    seed, step, microbatch = checked_key(key)
    if not 0 <= layer < 2**28:
        raise Error(f"layer {layer} is not a number below 2^28")
    return LinearKey(seed, step, microbatch, layer, 0)


def linear(
    x: Any, w: Any, *, recipe: Description | Recipe = "nvfp4", key: Key | tuple[int, ...] | int = 0, layer: int = 0
) -> np.ndarray:
    """y = x wᵀ of x [tokens, in] and w [out, in]; y has the dtype of x.

    Random bits follow from ``key`` and ``layer``, which is different for each linear layer of a model.
    """
    x, w = prepared(x, "x"), prepared(w, "w")
    if x.shape[1] != w.shape[1]:
        raise Error(f"x is {x.shape} and w is {w.shape}: w must be [out, {x.shape[1]}]")
    precision = as_recipe(recipe).precision(w.shape[0])
    y = np.empty((x.shape[0], w.shape[0]), x.dtype)
    args = LinearForward(
        precision=precision._handle, key=_key_of(key, layer), x=matrix_of(x, "x"), w=matrix_of(w, "w"), y=matrix_of(y, "y")
    )
    check(lib.tetrad_linear_forward(_library.context.get(), c.byref(args)))
    return y


def linear_gradients(
    dy: Any, x: Any, w: Any, *, recipe: Description | Recipe = "nvfp4", key: Key | tuple[int, ...] | int = 0, layer: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """(dx, dw) of linear() with the same x, w, recipe, key and layer, given dy [tokens, out]."""
    dy, x, w = prepared(dy, "dy"), prepared(x, "x"), prepared(w, "w")
    if x.shape[1] != w.shape[1] or dy.shape != (x.shape[0], w.shape[0]):
        raise Error(f"dy is {dy.shape}, x is {x.shape} and w is {w.shape}: they must be [tokens, out], [tokens, in] and [out, in]")
    precision = as_recipe(recipe).precision(w.shape[0])
    dx, dw = np.empty(x.shape, dy.dtype), np.empty(w.shape, w.dtype)
    args = LinearBackward(
        precision=precision._handle,
        key=_key_of(key, layer),
        dy=matrix_of(dy, "dy"),
        w=matrix_of(w, "w"),
        dx=matrix_of(dx, "dx"),
        dw=matrix_of(dw, "dw"),
        x=matrix_of(x, "x"),
    )
    check(lib.tetrad_linear_backward(_library.context.get(), c.byref(args)))
    return dx, dw
