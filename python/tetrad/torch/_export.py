# SPDX-License-Identifier: Apache-2.0
"""Models that were trained in PyTorch, as other programs read them. The program's own writer writes them: this hands it
the tensors and says which layers are quantized how."""

from __future__ import annotations

import copy
import ctypes as c
import itertools
import os
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .. import _library
from .._library import Error, ExportOptions, check, lib
from .._quantize import BF16, F32
from ._module import Linear, RandomKey, layers_of

FORMATS = ("hf", "modelopt", "compressed-tensors", "gguf")
_WITH_INPUT_SCALES = ("modelopt", "compressed-tensors")
_MODELS = "Llama, Qwen3 and Nemotron-H models of transformers (…ForCausalLM)"
_TYPES = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "f32"}


def export(
    model: nn.Module,
    format: str,
    out: str | os.PathLike[str],
    *,
    calibration: Iterable[Any] | None = None,
    tokenizer: Any = None,
    dtype: str | torch.dtype | None = None,
    joined_scales: bool = False,
    shard_gb: float | None = None,
    overwrite: bool = False,
) -> Path:
    """Writes a model that convert() made, for other programs, and returns ``out``.

    ``format``: "modelopt" and "compressed-tensors" (folders, for inference servers), "gguf" (a file, for llama.cpp), or
    "hf" (a folder with all values, for transformers). NVFP4 layers have the codes that the forward pass multiplies now;
    other weights are of ``dtype``: "bf16" (that of GGUF in any case), "f16" or "f32".
    ``calibration``: for modelopt and compressed-tensors, batches on which the model is run to see how large the inputs
    of each layer become: tensors of token ids, or dicts of what the model takes. A few dozen sequences of the training
    data will do.
    ``tokenizer``: one of transformers, or the folder of one.
    ``joined_scales``: quantizes q, k and v (gate and up) anew with one tensor scale, as servers that make one matrix of
    them need it, instead of taking the codes of training.
    ``shard_gb``: the largest file of a folder, 5 unless it is said.
    ``out`` appears whole or not at all; what is there is replaced only with ``overwrite``, and only an earlier export.
    """
    if format not in FORMATS:
        raise Error(f"export: there is no format {format!r}: choose one of {', '.join(FORMATS)}")
    model = _unwrapped(model)
    layers = layers_of(model)
    _check_model(model, layers)
    _check_target(Path(out), format, overwrite)
    _check_options(format, calibration=calibration, dtype=dtype, joined_scales=joined_scales or None, shard_gb=shard_gb)
    tensors = _tensors_of(model)
    largest = _largest_inputs(model, layers, calibration) if calibration is not None else {}
    with tempfile.TemporaryDirectory(prefix="tetrad-export-") as folder:
        _describe(model, tokenizer, folder)
        options = ExportOptions(
            folder=os.fsencode(folder),
            format=format.encode(),
            dtype=None if dtype is None else _name_of(dtype).encode(),
            shard_bytes=0 if shard_gb is None else int(shard_gb * 1e9),
            overwrite=int(overwrite),
            joined_scales=int(joined_scales),
        )
        try:
            notes = _write(options, tensors, layers, largest, out)
        except Error as error:
            raise Error(f"export: {_without(folder, str(error))}") from None
    for note in notes:
        warnings.warn(f"export: {_without(folder, note)}", stacklevel=2)
    return Path(out)


def _without(folder: str, text: str) -> str:
    """The temporary folder means nothing to people."""
    return text.replace(f"{folder}/", "the model's ")


def _unwrapped(model: nn.Module) -> nn.Module:
    """Without what torch.compile and DistributedDataParallel put around it."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and isinstance(model, nn.parallel.DistributedDataParallel):
            inner = model.module
        if inner is None:
            return model
        model = inner


def _check_model(model: nn.Module, layers: Mapping[str, Linear]) -> None:
    if not layers:
        raise Error("export: no layer of this model is Tetrad's: convert it (tetrad.torch.convert) and train it first")
    config = getattr(model, "config", None)
    if not (hasattr(config, "save_pretrained") and hasattr(config, "to_diff_dict")):
        raise Error(
            f"export: {type(model).__name__} has no config of transformers, so its layers' names and shapes mean nothing to other "
            f"programs. {_MODELS} can be exported; of others, tetrad.save() writes what tetrad.quantize() makes of "
            "each weight"
        )


def _check_target(out: Path, format: str, overwrite: bool) -> None:
    """What the writer would refuse in the words of the program, before a calibration."""
    if overwrite:
        return
    taken = out.exists() if format == "gguf" else out.is_dir() and any(out.iterdir())
    if taken:
        raise Error(f"export: {str(out)!r} is there already: choose another name, or give overwrite=True if it is an earlier export")


def _check_options(format: str, **given: Any) -> None:
    """What a format has no use for would else be passed over without a word."""
    useless = {
        "calibration": {"hf": "it has no input scales", "gguf": "it has no input scales"},
        "dtype": {"gguf": "matrices are NVFP4 or BF16, the rest is F32"},
        "joined_scales": {"hf": "all weights keep their values"},
        "shard_gb": {"gguf": "it is one file"},
    }
    for name, value in given.items():
        if value is not None and format in useless[name]:
            raise Error(f"export: {name} has no effect with {format}: {useless[name][format]}; leave it out")
    if given["calibration"] is None and format in _WITH_INPUT_SCALES:
        raise Error(f"export: {format} has a scale for the inputs of each layer: give calibration=…, some batches of token ids")
    if given["shard_gb"] is not None and not 1e-6 <= given["shard_gb"] <= 1e6:
        raise Error(f"export: files of {given['shard_gb']} GB")


def _name_of(dtype: str | torch.dtype) -> str:
    return _TYPES.get(dtype, str(dtype)) if isinstance(dtype, torch.dtype) else str(dtype)


def _tensors_of(model: nn.Module) -> dict[str, torch.Tensor]:
    """By the names that transformers has for them."""
    ours = {f"{name}.value" if name else "value" for name, module in model.named_modules() if isinstance(module, RandomKey)}
    tensors = {name: tensor for name, tensor in model.state_dict().items() if name not in ours}
    for name, tensor in tensors.items():
        if hasattr(tensor, "full_tensor"):
            raise Error(
                f"export: {name} is shared among ranks: gather the weights (torch.distributed.checkpoint.state_dict, "
                "full_state_dict=True), load them into a model that was converted and not sharded, and export that"
            )
        if tensor.is_meta:
            raise Error(f"export: {name} has no values (it is on the device meta): load the model's weights first")
        if tensor.dtype not in _TYPES:
            raise Error(f"export: {name} is {tensor.dtype}: convert the model to float32 or bfloat16")
    return tensors


def _largest_inputs(model: nn.Module, layers: Mapping[str, Linear], batches: Iterable[Any]) -> dict[str, float]:
    largest: dict[str, torch.Tensor] = {}

    def observer(name: str) -> Callable[..., None]:
        def note(_: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
            if inputs[0].numel() == 0:
                return
            amax = inputs[0].detach().abs().amax().float()
            largest[name] = torch.maximum(largest[name], amax) if name in largest else amax

        return note

    hooks = [layer.register_forward_pre_hook(observer(name)) for name, layer in layers.items()]
    training = {module: module.training for module in model.modules()}
    model.eval()  # nothing is dropped, and no key is taken
    device = next(model.parameters()).device
    count = 0
    try:
        with torch.no_grad():
            for batch in batches:
                count += 1
                if isinstance(batch, Mapping):
                    model(**{key: value.to(device) if isinstance(value, torch.Tensor) else value for key, value in batch.items()})
                elif isinstance(batch, torch.Tensor):
                    model(batch.to(device))
                else:
                    raise Error(f"export: a batch for calibration is a tensor or a dict, not {type(batch).__name__}")
    finally:
        for hook in hooks:
            hook.remove()
        for module, was in training.items():
            module.training = was
    if count == 0:
        raise Error("export: there is no batch to calibrate with")
    return {name: amax.item() for name, amax in largest.items()}


def _describe(model: nn.Module, tokenizer: Any, folder: str) -> None:
    """All of a saved model but its weights."""
    if isinstance(tokenizer, (str, os.PathLike)):
        import transformers

        tokenizer = transformers.AutoTokenizer.from_pretrained(tokenizer)
    if tokenizer is not None:
        if not hasattr(tokenizer, "save_pretrained"):
            raise Error(f"export: {type(tokenizer).__name__} is no tokenizer of transformers")
        tokenizer.save_pretrained(folder)
    config = copy.deepcopy(model.config)
    config.architectures = [type(model).__name__]
    config.save_pretrained(folder)
    generation = getattr(model, "generation_config", None)
    if generation is not None:
        generation.save_pretrained(folder)


def _copy(tensor: torch.Tensor, memory: int, size: int) -> None:
    known = torch.bfloat16 if tensor.dtype == torch.bfloat16 else torch.float32
    tensor = tensor.detach().to("cpu", known).contiguous()
    if tensor.nbytes != size:
        raise RuntimeError(f"export: a tensor has {tensor.nbytes} bytes instead of {size}")
    c.memmove(memory, tensor.data_ptr(), size)


def _write(
    options: ExportOptions,
    tensors: Mapping[str, torch.Tensor],
    layers: Mapping[str, Linear],
    largest: Mapping[str, float],
    out: str | os.PathLike[str],
) -> list[str]:
    """Returns what people should know of what was written."""
    failure: list[BaseException] = []

    def read(_: Any, name: bytes, memory: int, size: int) -> int:
        try:
            _copy(tensors[name.decode()], memory, size)
        except BaseException as error:  # C has no exceptions: what it was is raised when the call has returned
            failure.append(error)
            return 1
        return 0

    options.read = _library.ReadTensor(read)
    handle = c.c_void_p()
    check(lib.tetrad_export_create(c.byref(options), c.byref(handle)))
    try:
        for name, tensor in tensors.items():
            shape = (c.c_int64 * tensor.dim())(*tensor.shape)
            number = BF16 if tensor.dtype == torch.bfloat16 else F32
            check(lib.tetrad_export_tensor(handle, name.encode(), c.c_int32(number), shape, c.c_int32(tensor.dim())))
        for name, layer in layers.items():
            amax = c.c_float(largest.get(name, -1.0))
            check(lib.tetrad_export_layer(handle, name.encode(), layer.current_precision()._handle, amax))
        status = lib.tetrad_export_write(handle, _library.context.get(), os.fsencode(out))
        if failure:
            raise failure[0]
        check(status)
        notes = (lib.tetrad_export_warning(handle, c.c_size_t(index)) for index in itertools.count())
        return [note.decode(errors="replace") for note in itertools.takewhile(lambda note: note is not None, notes)]
    finally:
        lib.tetrad_export_free(handle)
