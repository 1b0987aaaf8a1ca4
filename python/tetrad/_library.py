# SPDX-License-Identifier: Apache-2.0
"""The C interface (tetrad/c/tetrad.h) as ctypes sees it: structs, functions, contexts and errors."""

from __future__ import annotations

import ctypes as c
import threading
from functools import cache
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent / "_lib"
_ABI_VERSION = 1


class Error(ValueError):
    """What was asked for makes no sense; the message says what, and what to do."""


class Matrix(c.Structure):
    _fields_ = [
        ("data", c.c_void_p),
        ("rows", c.c_int64),
        ("cols", c.c_int64),
        ("row_stride", c.c_int64),
        ("col_stride", c.c_int64),
        ("dtype", c.c_int32),
        ("reserved", c.c_int32),
    ]


class _Sized(c.Structure):
    """Structs that may grow begin with their size."""

    def __init__(self, **values: Any) -> None:
        super().__init__(struct_size=c.sizeof(type(self)), **values)


class CpuOptions(_Sized):
    _fields_ = [("struct_size", c.c_size_t), ("threads", c.c_int32), ("instruction_set", c.c_char_p)]


class CQuantizer(_Sized):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("format", c.c_int32),
        ("block_rows", c.c_int32),
        ("block_cols", c.c_int32),
        ("axis", c.c_int32),
        ("rounding", c.c_int32),
        ("hadamard", c.c_int32),
        ("signs", c.c_uint32),
        ("scale", c.c_int32),
        ("long_signs", c.c_uint32 * 4),
    ]


class Layout(_Sized):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("rows", c.c_int64),
        ("cols", c.c_int64),
        ("code_bytes", c.c_int64),
        ("scale_rows", c.c_int64),
        ("scale_cols", c.c_int64),
        ("scale_bytes", c.c_int64),
        ("scale_dtype", c.c_int32),
        ("reserved", c.c_int32),
    ]


class CQuantized(_Sized):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("codes", c.c_void_p),
        ("code_bytes", c.c_size_t),
        ("scales", c.c_void_p),
        ("scale_bytes", c.c_size_t),
        ("amax", c.c_void_p),
    ]


class Random(c.Structure):
    _fields_ = [
        ("seed", c.c_uint64),
        ("step", c.c_uint32),
        ("microbatch", c.c_uint32),
        ("tensor", c.c_uint32),
        ("reserved", c.c_uint32),
    ]


class QuantizeOptions(_Sized):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("random", Random),
        ("amax", c.POINTER(c.c_float)),
        ("first_row", c.c_int64),
        ("first_col", c.c_int64),
        ("total_cols", c.c_int64),
        ("key", c.c_void_p),
    ]


class Stats(_Sized):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("amax", c.c_double),
        ("signal", c.c_double),
        ("noise", c.c_double),
        ("max_error", c.c_double),
        ("elements", c.c_int64),
        ("non_finite", c.c_int64),
        ("flushed", c.c_int64),
        ("saturated", c.c_int64),
        ("blocks", c.c_int64),
        ("zero_scale_blocks", c.c_int64),
    ]


class Operand(_Sized):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("values", Matrix),
        ("quantizer", c.POINTER(CQuantizer)),
        ("quantized", c.POINTER(CQuantized)),
        ("rows", c.c_int64),
        ("cols", c.c_int64),
    ]


class Layer(_Sized):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("name", c.c_char_p),
        ("block", c.c_int64),
        ("out_features", c.c_int64),
        ("progress", c.c_double),
    ]


class LinearKey(c.Structure):
    _fields_ = [
        ("seed", c.c_uint64),
        ("step", c.c_uint32),
        ("microbatch", c.c_uint32),
        ("layer", c.c_uint32),
        ("reserved", c.c_uint32),
    ]


class LinearForward(_Sized):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("precision", c.c_void_p),
        ("key", LinearKey),
        ("x", Matrix),
        ("w", Matrix),
        ("y", Matrix),
        ("saved", c.c_void_p),
        ("saved_bytes", c.c_size_t),
        ("random_key", c.c_void_p),
    ]


class LinearBackward(_Sized):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("precision", c.c_void_p),
        ("key", LinearKey),
        ("dy", Matrix),
        ("w", Matrix),
        ("dx", Matrix),
        ("dw", Matrix),
        ("x", Matrix),
        ("saved", c.c_void_p),
        ("saved_bytes", c.c_size_t),
        ("accumulate", c.c_int32),
        ("reserved", c.c_int32),
        ("random_key", c.c_void_p),
    ]


# user, name, memory, bytes: 0 where the memory was filled
ReadTensor = c.CFUNCTYPE(c.c_int32, c.c_void_p, c.c_char_p, c.c_void_p, c.c_size_t)


class ExportOptions(_Sized):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("folder", c.c_char_p),
        ("format", c.c_char_p),
        ("dtype", c.c_char_p),
        ("read", ReadTensor),
        ("user", c.c_void_p),
        ("shard_bytes", c.c_uint64),
        ("overwrite", c.c_int32),
        ("joined_scales", c.c_int32),
    ]


def _load(name: str) -> c.CDLL:
    try:
        return c.CDLL(str(_FOLDER / name))
    except OSError as error:
        raise ImportError(f"tetrad: its compiled part cannot be loaded ({error}): install the package again") from error


lib = _load("libtetrad.so.1")
lib.tetrad_version.restype = c.c_char_p
lib.tetrad_last_error.restype = c.c_char_p
lib.tetrad_tensor_of_name.restype = c.c_uint32
lib.tetrad_export_warning.restype = c.c_char_p
if lib.tetrad_abi_version() != _ABI_VERSION:
    raise ImportError(f"tetrad: the library has ABI version {lib.tetrad_abi_version()}, and this package needs {_ABI_VERSION}")

__version__: str = lib.tetrad_version().decode()


def check(status: int) -> None:
    """Raises what the library says, unless all is well."""
    if status == 0:
        return
    message = lib.tetrad_last_error().decode(errors="replace")
    raise {2: Error, 3: MemoryError}.get(status, RuntimeError)(message)


@cache
def frameworks() -> c.CDLL:
    """The operations of PyTorch and JAX."""
    loaded = _load("libtetrad_frameworks.so")
    loaded.tetrad_python_load_torch.restype = c.c_char_p
    loaded.tetrad_python_set_threads(_settings["threads"])
    return loaded


_settings = {"threads": 0}


class _Context(threading.local):
    """A context of each thread: one may be used by one thread at a time."""

    handle: c.c_void_p | None = None
    threads = -1

    def get(self) -> c.c_void_p:
        threads = _settings["threads"]
        if self.handle is None or self.threads != threads:
            self.free()
            handle = c.c_void_p()
            check(lib.tetrad_cpu_context(c.byref(CpuOptions(threads=threads)), c.byref(handle)))
            self.handle, self.threads = handle, threads
        return self.handle

    def free(self) -> None:
        if self.handle is not None and lib is not None:
            lib.tetrad_context_free(self.handle)
            self.handle = None

    def __del__(self) -> None:
        self.free()


context = _Context()


def set_threads(count: int) -> None:
    """How many threads the processor's operations use; 0: TETRAD_THREADS, or as many as there are cores.

    PyTorch's operations go by ``torch.set_num_threads`` instead.
    """
    if count < 0 or count > 4096:
        raise Error(f"set_threads: {count} threads")
    _settings["threads"] = int(count)
    if frameworks.cache_info().currsize > 0:
        frameworks().tetrad_python_set_threads(int(count))
