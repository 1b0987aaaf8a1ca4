# SPDX-License-Identifier: Apache-2.0
"""Tetrad for JAX: functions on arrays, and what Flax' and MaxText's layers take for a product.

    y = tetrad.jax.linear(x, w, key=key, layer=3, recipe="nvfp4")
"""

from ._flax import Quant, dot_general, make_dot_general_cls
from ._functional import Quantized, dequantize, fold_in, linear, make_key, quantize

__all__ = [
    "Quant",
    "Quantized",
    "dequantize",
    "dot_general",
    "fold_in",
    "linear",
    "make_dot_general_cls",
    "make_key",
    "quantize",
]
