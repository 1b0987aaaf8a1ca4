# SPDX-License-Identifier: Apache-2.0
"""The operations of native/torch_ops.cpp: their signatures, and what they give to tensors without data.

A precision or a quantizer is the number that stands for it (Precision.id, Quantizer.id).
"""

from __future__ import annotations

from pathlib import Path

import torch

from .. import _library
from .._quantize import Quantizer
from .._recipe import Precision

_library_of_ops = torch.library.Library("tetrad", "DEF")
_library_of_ops.define(
    "linear_forward(Tensor x, Tensor w, Tensor key, int precision, int layer, bool save) -> (Tensor, Tensor)",
)
_library_of_ops.define(
    "linear_backward(Tensor dy, Tensor w, Tensor x, Tensor saved, Tensor key, int precision, int layer, int wanted) -> (Tensor, Tensor)",
)
_library_of_ops.define("quantize(Tensor x, Tensor key, int quantizer, int tensor) -> (Tensor, Tensor, Tensor)")
_library_of_ops.define(
    "dequantize(Tensor codes, Tensor scales, Tensor amax, int quantizer, int rows, int cols, bool bf16) -> Tensor",
)

_refusal = _library.frameworks().tetrad_python_load_torch(str(Path(torch.__file__).parent / "lib").encode())
if _refusal:
    raise ImportError(f"tetrad.torch: {_refusal.decode()}")

# What an operation's number stands for, where only its shape is computed.
precisions: dict[int, Precision] = {}
quantizers: dict[int, Quantizer] = {}


def number_of_precision(precision: Precision) -> int:
    precisions[precision.announce().id] = precision
    return precision.id


def number_of_quantizer(quantizer: Quantizer) -> int:
    quantizers[quantizer.id] = quantizer
    return quantizer.id


@torch.library.register_fake("tetrad::linear_forward", lib=_library_of_ops)
def _(x: torch.Tensor, w: torch.Tensor, key: torch.Tensor, precision: int, layer: int, save: bool) -> tuple[torch.Tensor, torch.Tensor]:
    torch._check(x.dim() == 2 and w.dim() == 2 and x.shape[1] == w.shape[1], lambda: f"x is {x.shape} and w is {w.shape}")
    # How much is saved is no line over the tokens, so a compiler makes a program for each number of them.
    size = precisions[precision].saved_bytes(int(x.shape[0]), int(x.shape[1])) if save else 0
    return x.new_empty((x.shape[0], w.shape[0])), x.new_empty((size,), dtype=torch.uint8)


@torch.library.register_fake("tetrad::linear_backward", lib=_library_of_ops)
def _(
    dy: torch.Tensor, w: torch.Tensor, x: torch.Tensor, saved: torch.Tensor, key: torch.Tensor, precision: int, layer: int, wanted: int
) -> tuple[torch.Tensor, torch.Tensor]:
    dx = dy.new_empty((dy.shape[0] if wanted & 1 else 0, w.shape[1]))
    dw = dy.new_empty((dy.shape[1] if wanted & 2 else 0, w.shape[1]), dtype=w.dtype)
    return dx, dw


@torch.library.register_fake("tetrad::quantize", lib=_library_of_ops)
def _(x: torch.Tensor, key: torch.Tensor, quantizer: int, tensor: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rows, cols = (int(extent) for extent in x.shape)
    layout = quantizers[quantizer].layout(rows, cols)
    codes = x.new_empty((layout.rows, layout.code_bytes // max(layout.rows, 1)), dtype=torch.uint8)
    return codes, x.new_empty((layout.scale_bytes,), dtype=torch.uint8), x.new_empty((1,), dtype=torch.float32)


@torch.library.register_fake("tetrad::dequantize", lib=_library_of_ops)
def _(
    codes: torch.Tensor, scales: torch.Tensor, amax: torch.Tensor, quantizer: int, rows: int, cols: int, bf16: bool
) -> torch.Tensor:
    return codes.new_empty((rows, cols), dtype=torch.bfloat16 if bf16 else torch.float32)
