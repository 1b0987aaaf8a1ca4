# SPDX-License-Identifier: Apache-2.0
"""Tensors of safetensors files: checkpoints of runs, exports, and what `tetrad quantize` writes."""

from __future__ import annotations

import json
import mmap
import os
import struct
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ._library import Error
from ._quantize import Quantized, Quantizer

# What NumPy has no type for is read as bits, unless ml_dtypes is installed.
_DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?",
}  # fmt: skip
_ML_DTYPES = {
    "BF16": ("bfloat16", "<u2"),
    "F8_E4M3": ("float8_e4m3fn", "u1"),
    "F8_E5M2": ("float8_e5m2", "u1"),
    "F8_E8M0": ("float8_e8m0fnu", "u1"),
}
_LARGEST_HEADER = 100_000_000


def _dtype(name: str) -> np.dtype:
    if name in _DTYPES:
        return np.dtype(_DTYPES[name])
    if name not in _ML_DTYPES:
        raise Error(f"a tensor has dtype {name}, which is not known")
    typed, bits = _ML_DTYPES[name]
    try:
        import ml_dtypes
    except ImportError:
        return np.dtype(bits)
    return np.dtype(getattr(ml_dtypes, typed))


def _read(path: str | os.PathLike[str]) -> tuple[dict[str, np.ndarray], dict[str, str], dict[str, str]]:
    """Tensors, the names of their dtypes, and the file's metadata. Arrays are views of the mapped file."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < 8:
            raise Error(f"{path} is no safetensors file: it has {size} bytes")
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    (length,) = struct.unpack("<Q", memory[:8])
    if length > min(size - 8, _LARGEST_HEADER):
        raise Error(f"{path} is no safetensors file: its header would have {length} bytes")
    try:
        header = json.loads(memory[8 : 8 + length])
        if not isinstance(header, dict):
            raise ValueError("its header is no object")
    except ValueError as error:
        raise Error(f"{path} is no safetensors file: {error}") from error
    metadata = header.pop("__metadata__", {})
    tensors, dtypes = {}, {}
    for name, entry in header.items():
        try:
            dtype, shape = _dtype(entry["dtype"]), [int(extent) for extent in entry["shape"]]
            begin, end = entry["data_offsets"]
            count = int(np.prod(shape, dtype=object)) if shape else 1
            fits = 0 <= begin <= end <= size - 8 - length and end - begin == count * dtype.itemsize
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Error(f"{path}: the entry of {name!r} cannot be read: {error}") from error
        if not fits or min(shape, default=0) < 0:
            raise Error(f"{path}: the entry of {name!r} does not fit its bytes")
        tensors[name] = np.frombuffer(memory, dtype, count, 8 + length + begin).reshape(shape)
        dtypes[name] = entry["dtype"]
    return tensors, dtypes, metadata


def load(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Every tensor by its name. What `tetrad quantize` or save() quantized comes as Quantized."""
    tensors, dtypes, metadata = _read(path)
    result: dict[str, Any] = dict(tensors)
    described = json.loads(metadata.get("tetrad.quantizers", "{}"))
    for key in tensors:
        name = key.removesuffix(".codes")
        if name == key or name + ".scales" not in tensors:
            continue
        codes, scales = tensors[key], tensors[name + ".scales"]
        said = described.get(name)
        quantizer = Quantizer(**said) if said else _guess(codes, scales, dtypes[key], dtypes[name + ".scales"])
        rows, cols = codes.shape[0], codes.shape[1] * (1 if quantizer.format == "fp8" else 2)
        amax = tensors.get(name + ".amax", np.float32(1))
        scales = scales if quantizer.format == "fp8" else scales.view(np.uint8)
        shape = (rows, cols) if quantizer.axis == 1 else (cols, rows)
        result[name] = Quantized(codes.view(np.uint8), scales, np.float32(amax), quantizer, shape)
        for part in (".codes", ".scales", ".amax"):
            result.pop(name + part, None)
    return result


def _guess(codes: np.ndarray, scales: np.ndarray, code_dtype: str, scale_dtype: str) -> Quantizer:
    """What decodes them: `tetrad quantize` does not say it per tensor, but dtypes and shapes do. The tensor is taken
    as it lies, so with blocks along its rows."""
    if code_dtype != "F8_E4M3":
        return Quantizer("nvfp4" if scale_dtype == "F8_E4M3" else "mxfp4")
    if scales.ndim == 0:
        return Quantizer("fp8", block="tensor")
    return Quantizer("fp8", block="1x128" if scales.shape[0] == codes.shape[0] else "128x128")


def save(path: str | os.PathLike[str], tensors: Mapping[str, Any]) -> None:
    """Writes arrays and Quantized matrices. The file appears whole or not at all."""
    parts: dict[str, tuple[str, np.ndarray]] = {}
    quantizers: dict[str, dict[str, Any]] = {}
    for name, value in tensors.items():
        if isinstance(value, Quantized):
            fp8 = value.quantizer.format == "fp8"
            parts[name + ".codes"] = ("F8_E4M3" if fp8 else "U8", value.codes)
            parts[name + ".scales"] = ({"nvfp4": "F8_E4M3", "mxfp4": "U8", "fp8": "F32"}[value.quantizer.format], value.scales)
            if value.quantizer.format == "nvfp4":
                parts[name + ".amax"] = ("F32", np.asarray(value.amax))
            options = ("format", "block", "axis", "rounding", "hadamard", "signs", "scale", "seed")
            quantizers[name] = {option: getattr(value.quantizer, option) for option in options}
        else:
            array = np.asarray(value)
            parts[name] = (_name_of(array.dtype), array)
    header: dict[str, Any] = {"__metadata__": {"tetrad.quantizers": json.dumps(quantizers)}} if quantizers else {}
    place = 0
    for name, (dtype, array) in parts.items():
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [place, place + array.nbytes]}
        place += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path = Path(path)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name + ".", delete=False) as file:
        try:
            file.write(struct.pack("<Q", len(text)) + text)
            for _, array in parts.values():
                file.write(np.ascontiguousarray(array).tobytes())
            file.flush()
            os.fsync(file.fileno())
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise


def _name_of(dtype: np.dtype) -> str:
    for name, (typed, _) in _ML_DTYPES.items():
        if dtype.name == typed:
            return name
    for name, code in _DTYPES.items():
        if dtype == np.dtype(code):
            return name
    raise Error(f"{dtype} cannot be written: safetensors has no name for it")
