# SPDX-License-Identifier: Apache-2.0
"""Quantizers for NumPy: all formats and options of `tetrad quantize`, to the same bytes."""

from __future__ import annotations

import ctypes as c
import hashlib
import math
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from . import _library
from ._library import CQuantized, CQuantizer, Error, Layout, Matrix, QuantizeOptions, check, lib

F32, BF16 = 1, 2


class Key(NamedTuple):
    """Where random bits come from. There is no generator: the same key gives the same bits."""

    seed: int = 0
    step: int = 0
    microbatch: int = 0


def checked_key(key: Key | tuple[int, ...] | int) -> Key:
    key = Key(key) if isinstance(key, (int, np.integer)) else Key(*key)
    limits = (2**64, 2**32, 2**32)
    if any(isinstance(value, bool) or int(value) != value or not 0 <= value < limit for value, limit in zip(key, limits, strict=True)):
        raise Error(f"{key} is no key: a seed of 64 bits, a step and a microbatch of 32 bits")
    return Key(*(int(value) for value in key))


def matrix_of(array: np.ndarray, name: str) -> Matrix:
    """An array as the library sees it. It must outlive the result."""
    if array.ndim != 2:
        raise Error(f"{name} has {array.ndim} dimensions, not 2")
    if array.dtype == np.float32:
        dtype = F32
    elif array.dtype.name == "bfloat16":
        dtype = BF16
    else:
        raise Error(f"{name} is {array.dtype.name}: convert it to float32 or bfloat16")
    rows, cols = array.shape
    row, col = (stride // array.itemsize for stride in array.strides)
    if array.size == 0:
        row, col = max(cols, 1), 1
    return Matrix(array.ctypes.data, rows, cols, row, col, dtype, 0)


def prepared(array: Any, name: str) -> np.ndarray:
    """What was given as a matrix that the library can read: F16 is widened, other strides are copied."""
    if not isinstance(array, np.ndarray):
        try:
            array = np.asarray(array)
        except Exception as error:
            raise Error(f"{name} is no array: {error}") from error
    if array.dtype == np.float16:
        array = array.astype(np.float32)
    if array.ndim == 2 and not (array.flags.c_contiguous or array.flags.f_contiguous):
        array = np.ascontiguousarray(array)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    matrix_of(array, name)
    return array


@dataclass(frozen=True)
class Quantizer:
    """How a matrix is quantized: the options of `tetrad quantize`, with the same names and meanings."""

    format: str = "nvfp4"
    block: str | None = None
    axis: int = 1
    rounding: str = "nearest"
    hadamard: int = 0
    signs: str = "fixed"
    scale: str | None = None
    seed: int = 0  # of fresh signs
    _struct: CQuantizer = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("format", "block", "rounding", "signs", "scale"):
            value = getattr(self, name)
            if not (isinstance(value, str) or (value is None and name in ("block", "scale"))):
                raise Error(f"{name} is {value!r}, not a text")
        if self.axis not in (0, 1):
            raise Error(f"axis {self.axis} is neither 0 nor 1")
        if self.signs not in ("fixed", "none", "fresh"):
            raise Error(f"signs '{self.signs}' are none of fixed, none, fresh")
        if not isinstance(self.hadamard, int) or not 0 <= self.hadamard <= 128:
            raise Error(f"hadamard is {self.hadamard!r}: use 0 (none) or a power of two from 2 to 128")
        struct = CQuantizer()
        block = None if self.block is None else self.block.encode()
        check(lib.tetrad_quantizer_init(c.byref(struct), c.c_size_t(c.sizeof(struct)), self.format.encode(), block, self.rounding.encode()))
        struct.axis = self.axis
        struct.hadamard = self.hadamard
        if self.signs == "none":
            struct.signs = 0
        if self.signs == "fresh":
            check(lib.tetrad_quantizer_draw_signs(c.byref(struct), c.c_uint64(checked_key(self.seed).seed)))
        if self.scale is not None:
            check(lib.tetrad_quantizer_set_scale(c.byref(struct), self.scale.encode()))
        object.__setattr__(self, "_struct", struct)

    @property
    def id(self) -> int:
        """A number that stands for it in operations of PyTorch and JAX: the same in every process."""
        _announce(self)
        return _id_of(self)

    def layout(self, rows: int, cols: int) -> Layout:
        layout = Layout()
        check(lib.tetrad_quantized_layout(c.byref(self._struct), c.c_int64(rows), c.c_int64(cols), c.byref(layout)))
        return layout


def _id_of(quantizer: Quantizer) -> int:
    return int.from_bytes(hashlib.sha256(repr(quantizer).encode()).digest()[:8], "little") >> 1


@cache
def _announce(quantizer: Quantizer) -> None:
    check(_library.frameworks().tetrad_python_announce_quantizer(c.c_int64(_id_of(quantizer)), c.byref(quantizer._struct)))


@dataclass(frozen=True)
class Quantized:
    """A quantized matrix, as a product reads it: blocks along the columns, so transposed if its axis is 0.

    ``codes``: uint8, two E2M1 codes in a byte (the first in the low half), or an E4M3 code each.
    ``scales``: uint8 with the bits of E4M3 (NVFP4) or E8M0 (MXFP4); float32 in FP8.
    ``amax``: the largest magnitude; NVFP4's tensor scale follows from it.
    """

    codes: np.ndarray
    scales: np.ndarray
    amax: np.float32
    quantizer: Quantizer
    shape: tuple[int, int]  # of the matrix that was quantized

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + self.scales.nbytes + self.amax.nbytes

    def dequantize(self, dtype: Any = np.float32) -> np.ndarray:
        return dequantize(self, dtype)

    def struct(self) -> CQuantized:
        """For a call of the library, which this object must outlive."""
        return _struct_of(self.codes, self.scales, self._amax_array)

    def __post_init__(self) -> None:
        layout = self.quantizer.layout(*self.shape)
        codes = np.asarray(self.codes, order="C")
        scales = np.asarray(self.scales, order="C")
        if codes.nbytes != layout.code_bytes or scales.nbytes != layout.scale_bytes:
            raise Error(
                f"{codes.nbytes} bytes of codes and {scales.nbytes} of scales, where a matrix of {self.shape} in "
                f"{self.quantizer.format} has {layout.code_bytes} and {layout.scale_bytes}"
            )
        object.__setattr__(self, "codes", codes)
        object.__setattr__(self, "scales", scales)
        object.__setattr__(self, "amax", np.float32(self.amax))
        object.__setattr__(self, "_amax_array", np.array([self.amax], np.float32))


def _struct_of(codes: np.ndarray, scales: np.ndarray, amax: np.ndarray) -> CQuantized:
    return CQuantized(
        codes=codes.ctypes.data, code_bytes=codes.nbytes, scales=scales.ctypes.data, scale_bytes=scales.nbytes, amax=amax.ctypes.data
    )


@dataclass(frozen=True)
class Stats:
    """What was lost, as `tetrad quantize` prints it."""

    amax: float
    signal: float
    noise: float
    max_error: float
    elements: int
    flushed: int
    saturated: int
    blocks: int
    zero_scale_blocks: int

    @property
    def sqnr_db(self) -> float:
        """Infinite if nothing was lost."""
        return math.inf if self.noise == 0 else 10 * math.log10(self.signal / self.noise)


def quantize(
    x: Any,
    format: str | Quantizer = "nvfp4",
    *,
    key: Key | tuple[int, ...] | int = 0,
    tensor: int | str = 0,
    stats: bool = False,
    **options: Any,
) -> Any:
    """Quantizes a matrix (float32, bfloat16 or float16); with ``stats`` returns (Quantized, Stats).

    ``options`` are those of Quantizer: block, axis, rounding, hadamard, signs, scale, seed. What stochastic rounding
    draws follows from ``key`` and ``tensor``: a number, or the name by which `tetrad quantize` would draw.
    Raises Error where values are not finite.
    """
    quantizer = replace(format, **options) if isinstance(format, Quantizer) else Quantizer(format, **options)
    x = prepared(x, "x")
    key = checked_key(key)
    layout = quantizer.layout(*x.shape)
    codes = np.empty((layout.rows, layout.code_bytes // layout.rows if layout.rows else 0), np.uint8)
    scales = np.empty(layout.scale_bytes, np.uint8)
    amax = np.zeros(1, np.float32)
    number = lib.tetrad_tensor_of_name(tensor.encode()) if isinstance(tensor, str) else int(tensor)
    random = _library.Random(key.seed, key.step, key.microbatch, number, 0)
    out = _struct_of(codes, scales, amax)
    measured = _library.Stats()
    check(
        lib.tetrad_quantize(
            _library.context.get(),
            c.byref(matrix_of(x, "x")),
            c.byref(quantizer._struct),
            c.byref(QuantizeOptions(random=random)),
            c.byref(out),
            c.byref(measured) if stats else None,
        )
    )
    if np.isnan(amax[0]):
        raise Error("x has values that are not finite, or its transform overflows: nothing of it can be quantized")
    result = Quantized(codes, _shaped_scales(scales, quantizer, layout), amax[0], quantizer, x.shape)
    if not stats:
        return result
    figures = {name: getattr(measured, name) for name in Stats.__dataclass_fields__}
    return result, Stats(**figures)


def _shaped_scales(scales: np.ndarray, quantizer: Quantizer, layout: Layout) -> np.ndarray:
    if quantizer.format == "fp8":
        scales = scales.view(np.float32)
    return scales.reshape(()) if quantizer.block == "tensor" else scales.reshape(layout.scale_rows, layout.scale_cols)


def dequantize(q: Quantized, dtype: Any = np.float32) -> np.ndarray:
    """The values, as a product reads them: transposed if blocks run along axis 0; transformed if it was."""
    layout = q.quantizer.layout(*q.shape)
    out = np.empty((layout.rows, layout.cols), dtype)
    check(
        lib.tetrad_dequantize(
            _library.context.get(), c.byref(q.quantizer._struct), c.byref(q.struct()), c.byref(matrix_of(out, "dtype"))
        )
    )
    return out


def matmul(a: Any, b: Any, dtype: Any = np.float32) -> np.ndarray:
    """a @ b, of matrices or of what quantize() made of them.

    The reduction runs along the blocks: quantize a with axis=1 and b with axis=0. Products accumulate in float32.
    """
    keep: list[Any] = []
    left, a_shape = _operand(a, 1, "a", keep)
    right, b_shape = _operand(b, 0, "b", keep)
    if a_shape[1] != b_shape[0]:
        raise Error(f"a is {a_shape} and b is {b_shape}: their inner dimensions are different")
    out = np.empty((a_shape[0], b_shape[1]), dtype)
    check(lib.tetrad_matmul(_library.context.get(), c.byref(left), c.byref(right), c.byref(matrix_of(out, "dtype"))))
    return out


def _operand(given: Any, axis: int, name: str, keep: list[Any]) -> tuple[_library.Operand, tuple[int, int]]:
    """`keep` holds what the operand points to."""
    if not isinstance(given, Quantized):
        array = prepared(given, name)
        keep.append(array)
        return _library.Operand(values=matrix_of(array if axis == 1 else array.T, name)), array.shape
    if given.quantizer.axis != axis:
        raise Error(f"{name} was quantized along axis {given.quantizer.axis}, and this product reduces along axis {axis}")
    quantizer, memory = c.pointer(given.quantizer._struct), c.pointer(given.struct())
    keep += [given, quantizer, memory]
    rows, cols = given.shape if axis == 1 else given.shape[::-1]
    return _library.Operand(quantizer=quantizer, quantized=memory, rows=rows, cols=cols), given.shape
