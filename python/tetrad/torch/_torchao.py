# SPDX-License-Identifier: Apache-2.0
"""A quantized matrix as torchao's NVFP4Tensor: the same memory, under the name that torchao's functions know."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from .._library import Error

if TYPE_CHECKING:
    from ._functional import Quantized

_ONES = 0x22  # two codes of E2M1, 1 each
_ONE = 0x38  # the scale 1 in E4M3


def to_torchao(q: Quantized, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """The NVFP4Tensor. torchao is imported here and nowhere else."""
    if q.quantizer.format != "nvfp4":
        raise Error(f"to_torchao: torchao's NVFP4Tensor holds nvfp4, and this is {q.quantizer.format}")
    if dtype not in (torch.float32, torch.bfloat16):
        raise Error(f"to_torchao: {dtype} is neither float32 nor bfloat16")
    try:
        from torchao.prototype.mx_formats.nvfp4_tensor import NVFP4Tensor
    except ImportError as error:
        raise Error(f"to_torchao needs torchao 0.18 or later (pip install torchao): {error}") from error
    # The even element is in the low half of a byte there, too, and scales that are not swizzled lie in rows.
    return NVFP4Tensor(q.codes, q.scales_as_float(), 16, dtype, per_tensor_scale=_tensor_scale(q))


def _tensor_scale(q: Quantized) -> torch.Tensor:
    """What a code of 1 under a scale of 1 decodes to, so that its formula stands in one place. Waits for no device."""
    quantizer = replace(q.quantizer, block="1x16", axis=1)
    codes = torch.full((1, 64), _ONES, dtype=torch.uint8, device=q.codes.device)
    scales = torch.full((1, 8), _ONE, dtype=torch.uint8, device=q.codes.device)
    return replace(q, codes=codes, scales=scales, quantizer=quantizer, shape=(1, 128)).dequantize()[0, 0].clone()
