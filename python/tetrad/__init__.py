# SPDX-License-Identifier: Apache-2.0
"""Tetrad: NVFP4, MXFP4 and FP8 with exact numerics.

Here for NumPy; ``tetrad.torch`` for PyTorch and ``tetrad.jax`` for JAX. docs/python.md begins with examples.
"""

from ._files import load, save
from ._library import Error, __version__, set_threads
from ._linear import linear, linear_gradients
from ._quantize import Key, Quantized, Quantizer, Stats, dequantize, matmul, quantize
from ._recipe import Precision, Recipe

__all__ = [
    "Error",
    "Key",
    "Precision",
    "Quantized",
    "Quantizer",
    "Recipe",
    "Stats",
    "__version__",
    "dequantize",
    "linear",
    "linear_gradients",
    "load",
    "matmul",
    "quantize",
    "save",
    "set_threads",
]
