# SPDX-License-Identifier: Apache-2.0
"""Tetrad for PyTorch 2.11 and later: functions on tensors, the layer, and what converts a model.

    model = tetrad.torch.convert(model, recipe="nvfp4", keep=["lm_head"], seed=1234)
"""

from ._export import export
from ._functional import Quantized, dequantize, linear, make_key, quantize, read_key
from ._module import Linear, RandomKey, convert, layers_of, set_progress, set_schedule

__all__ = [
    "Linear",
    "Quantized",
    "RandomKey",
    "convert",
    "dequantize",
    "export",
    "layers_of",
    "linear",
    "make_key",
    "quantize",
    "read_key",
    "set_progress",
    "set_schedule",
]
