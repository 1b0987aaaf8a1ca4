# SPDX-License-Identifier: Apache-2.0
"""Functions on tensors: quantize, dequantize, linear, and the keys of their random bits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch

from .._library import Error, lib
from .._quantize import Key, Quantizer, checked_key
from .._recipe import Description, Recipe, as_recipe
from . import _ops
from ._torchao import to_torchao

_WANTS_DX, _WANTS_DW = 1, 2
_WORD = 2**64
_MICROBATCH = 2**32


def make_key(seed: int = 0, step: int = 0, microbatch: int = 0, device: Any = None) -> torch.Tensor:
    """A random key: int64 of two elements, the seed, and step + 2^32 microbatch (both as signed numbers)."""
    key = checked_key(Key(seed, step, microbatch))
    words = (key.seed, key.step + key.microbatch * _MICROBATCH)
    return torch.tensor([word - _WORD if word >= _WORD // 2 else word for word in words], dtype=torch.int64, device=device)


def read_key(key: torch.Tensor) -> Key:
    """What make_key() was given. Waits for the key's device."""
    seed, place = (word % _WORD for word in key.tolist())
    return Key(seed, place % _MICROBATCH, place // _MICROBATCH)


@cache
def _constant_key(key: Key, device: torch.device) -> torch.Tensor:
    return make_key(*key, device=device)


def _key_on(key: torch.Tensor | Key | tuple[int, ...] | int, device: torch.device) -> torch.Tensor:
    if isinstance(key, torch.Tensor):
        return key
    known = checked_key(key)
    # A tensor made while a compiler looks on, or without data, must not be kept.
    if torch.compiler.is_compiling() or device.type == "meta":
        return make_key(*known, device=device)
    return _constant_key(known, device)


@dataclass(frozen=True)
class Quantized:
    """A quantized matrix, as a product reads it: blocks along the columns, so transposed if its axis is 0.

    ``codes``: uint8, two E2M1 codes in a byte or an E4M3 code each; ``scales``: uint8 with the bits of E4M3 or E8M0, or
    float32 in FP8. ``codes_as_float()`` and ``scales_as_float()`` are the same bits as PyTorch's own types.
    """

    codes: torch.Tensor
    scales: torch.Tensor
    amax: torch.Tensor
    quantizer: Quantizer
    shape: tuple[int, int]  # of the matrix that was quantized

    def dequantize(self, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return dequantize(self, dtype)

    def codes_as_float(self) -> torch.Tensor:
        """The codes as float4_e2m1fn_x2, or float8_e4m3fn in FP8."""
        return self.codes.view(torch.float8_e4m3fn if self.quantizer.format == "fp8" else torch.float4_e2m1fn_x2)

    def scales_as_float(self) -> torch.Tensor:
        """The scales as float8_e4m3fn (NVFP4), float8_e8m0fnu (MXFP4) or float32 (FP8)."""
        types = {"nvfp4": torch.float8_e4m3fn, "mxfp4": torch.float8_e8m0fnu, "fp8": torch.float32}
        return self.scales.view(types[self.quantizer.format])

    def to_torchao(self, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """NVFP4 as torchao's NVFP4Tensor: codes and scales are the same memory, the tensor scale is computed.

        As with dequantize(), it is the transposed matrix if the axis is 0: take ``.t()`` of it. ``dtype`` (float32 or bfloat16)
        is what torchao decodes to and computes products in.
        """
        return to_torchao(self, dtype)


def quantize(
    x: torch.Tensor,
    format: str | Quantizer = "nvfp4",
    *,
    key: torch.Tensor | Key | tuple[int, ...] | int = 0,
    tensor: int | str = 0,
    **options: Any,
) -> Quantized:
    """As tetrad.quantize(), on the device of x. The amax of a tensor that is not finite is NaN, and all its values."""
    quantizer = replace(format, **options) if isinstance(format, Quantizer) else Quantizer(format, **options)
    x = _matrix(x, "x")
    layout = quantizer.layout(int(x.shape[0]), int(x.shape[1]))
    number = lib.tetrad_tensor_of_name(tensor.encode()) if isinstance(tensor, str) else int(tensor)
    codes, scales, amax = torch.ops.tetrad.quantize(x, _key_on(key, x.device), _ops.number_of_quantizer(quantizer), number)
    if quantizer.format == "fp8":
        scales = scales.view(torch.float32)
    scales = scales.reshape(()) if quantizer.block == "tensor" else scales.reshape(layout.scale_rows, layout.scale_cols)
    return Quantized(codes, scales, amax.reshape(()), quantizer, (int(x.shape[0]), int(x.shape[1])))


def dequantize(q: Quantized, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """The values, as a product reads them: transposed if blocks run along axis 0; transformed if it was."""
    if dtype not in (torch.float32, torch.bfloat16):
        raise Error(f"dequantize: {dtype} is neither float32 nor bfloat16")
    rows, cols = q.shape if q.quantizer.axis == 1 else q.shape[::-1]
    scales = q.scales.contiguous().reshape(-1).view(torch.uint8)
    number = _ops.number_of_quantizer(q.quantizer)
    return torch.ops.tetrad.dequantize(q.codes, scales, q.amax.reshape(1), number, rows, cols, dtype == torch.bfloat16)


def linear(
    x: torch.Tensor,
    w: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    recipe: Description | Recipe = "nvfp4",
    key: torch.Tensor | Key | tuple[int, ...] | int = 0,
    layer: int = 0,
) -> torch.Tensor:
    """y = x wᵀ + bias, differentiable, with x [..., in] and w [out, in].

    What is random (in most recipes the rounding of gradients) follows from ``key`` and ``layer``, which is different for each
    linear layer of a model. Nothing is drawn from PyTorch's generators.
    """
    number, token_multiple = resolve(recipe, int(w.shape[0]))
    return apply_linear(x, w, bias, number, token_multiple, _key_on(key, x.device), layer)


def resolve(recipe: Description | Recipe, out_features: int) -> tuple[int, int]:
    """The number of a precision, and what it wants the number of tokens to be a multiple of."""
    precision = as_recipe(recipe).precision(out_features)
    return _ops.number_of_precision(precision), precision.token_multiple


# What torch.compiler.assume_constant_result does, without importing the whole compiler, which takes longer than all else.
resolve._dynamo_marked_constant = True  # type: ignore[attr-defined]


def apply_linear(
    x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None, number: int, token_multiple: int, key: torch.Tensor, layer: int
) -> torch.Tensor:
    if x.device.type in ("cpu", "cuda") and torch.is_autocast_enabled(x.device.type):
        # As in the program: activations in BF16, and the weight quantized from its master copy.
        x = x.to(torch.bfloat16)
    if x.dim() == 0 or w.dim() != 2 or x.shape[-1] != w.shape[1]:
        raise Error(f"linear: x is {tuple(x.shape)} and w is {tuple(w.shape)}: w must be [out, {x.shape[-1] if x.dim() else 'in'}]")
    if x.device != w.device:
        raise Error(f"linear: x is on {x.device} and w on {w.device}")
    for name, tensor in (("x", x), ("w", w)):
        if tensor.dtype not in (torch.float32, torch.bfloat16):
            raise Error(f"linear: {name} is {tensor.dtype}: convert it to float32 or bfloat16")
    leading = x.shape[:-1]
    rows = x.reshape(-1, x.shape[-1])
    tokens = rows.shape[0]
    saves = torch.is_grad_enabled() and (x.requires_grad or w.requires_grad)
    # Rows of zeros change no other row, and blocks of wgrad run along the tokens.
    missing = -tokens % token_multiple if saves else 0
    if missing:
        rows = torch.nn.functional.pad(rows, (0, 0, 0, missing))
    y = _Linear.apply(rows.contiguous(), w.contiguous(), key, number, layer, saves and w.requires_grad)
    if missing:
        y = y[:tokens]
    y = y.reshape(*leading, w.shape[0])
    return y if bias is None else y + bias.to(y.dtype)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor, key: torch.Tensor, precision: int, layer: int, save: bool) -> torch.Tensor:
        y, saved = torch.ops.tetrad.linear_forward(x, w, key, precision, layer, save)
        keeps_x = save and saved.shape[0] == 0
        ctx.save_for_backward(x if keeps_x else x.new_empty((0, x.shape[1])), w, saved, key)
        ctx.precision, ctx.layer = precision, layer
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> Any:
        x, w, saved, key = ctx.saved_tensors
        wants_dx, wants_dw = ctx.needs_input_grad[:2]
        wanted = (_WANTS_DX if wants_dx else 0) | (_WANTS_DW if wants_dw else 0)
        dx, dw = torch.ops.tetrad.linear_backward(dy.contiguous(), w, x, saved, key, ctx.precision, ctx.layer, wanted)
        return dx if wants_dx else None, dw if wants_dw else None, None, None, None, None


def _matrix(x: torch.Tensor, name: str) -> torch.Tensor:
    if not isinstance(x, torch.Tensor) or x.dim() != 2:
        raise Error(f"{name} is no matrix")
    if x.dtype == torch.float16:
        x = x.float()
    if x.dtype not in (torch.float32, torch.bfloat16):
        raise Error(f"{name} is {x.dtype}: convert it to float32 or bfloat16")
    return x.contiguous()
