# SPDX-License-Identifier: Apache-2.0
"""Recipes: the description that configurations of the program have (docs/recipes.md), as a name or a dict."""

from __future__ import annotations

import ctypes as c
import hashlib
import json
import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from . import _library
from ._library import Error, Layer, check, lib

Description = str | Mapping[str, Any]

_LARGEST_TRANSFORM = 128


class Precision:
    """How the three products of one linear layer are quantized. Equal ones have the same ``id``, in every process."""

    def __init__(self, handle: c.c_void_p, text: str) -> None:
        self._handle = handle
        self.id = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1
        multiple = c.c_int64()
        check(lib.tetrad_precision_token_multiple(handle, c.byref(multiple)))
        self.token_multiple: int = multiple.value
        self.signs_by_value = False
        self._announced = False

    def __del__(self) -> None:
        # An announced one is used by operations until the process ends.
        if lib is not None and not self.__dict__.get("_announced", True):
            lib.tetrad_precision_free(self._handle)

    def __repr__(self) -> str:
        needed = c.c_size_t()
        check(lib.tetrad_precision_describe(self._handle, None, c.c_size_t(0), c.byref(needed)))
        text = c.create_string_buffer(needed.value)
        check(lib.tetrad_precision_describe(self._handle, text, needed, None))
        return text.value.decode()

    def announce(self) -> Precision:
        """Makes it known to the operations of PyTorch and JAX."""
        if not self._announced:
            check(_library.frameworks().tetrad_python_announce_precision(c.c_int64(self.id), self._handle))
            self._announced = True
        return self

    def saved_bytes(self, tokens: int, in_features: int) -> int:
        """What a forward pass leaves for the backward pass; 0: that reads x itself."""
        size = c.c_size_t()
        check(lib.tetrad_linear_saved_bytes(self._handle, c.c_int64(tokens), c.c_int64(in_features), c.byref(size)))
        return size.value


class Recipe:
    """A recipe for all linear layers of a model.

    ``description`` is a name ("bf16", "fp8", "mxfp4", "nvfp4", "tetrad") or a dict with the keys of docs/recipes.md.
    ``blocks`` is how many blocks the model has, of which a recipe leaves some in BF16; 0: all layers are quantized,
    unless ``high_precision`` says otherwise.
    """

    def __init__(self, description: Description = "nvfp4", blocks: int = 0) -> None:
        self.description = _as_dict(description)
        self.blocks = int(blocks)
        said = dict(self.description)
        if self.blocks == 0 and said.get("high_precision") != "none":
            high = dict(said.get("high_precision", {}))
            said["high_precision"] = {"first": 0, "last": 0} | high
        self.text = _flow(said)
        self._handle = c.c_void_p()
        check(lib.tetrad_recipe_parse(self.text.encode(), c.c_int64(max(self.blocks, 1)), c.byref(self._handle)))

    def __del__(self) -> None:
        if lib is not None and self.__dict__.get("_handle"):
            lib.tetrad_recipe_free(self._handle)

    def __repr__(self) -> str:
        return f"Recipe({json.dumps(self.description)}, blocks={self.blocks})"

    def __reduce__(self) -> Any:
        return Recipe, (self.description, self.blocks)

    @property
    def switches(self) -> list[float]:
        """The fractions of the training at which its schedule changes something, from 0 on."""
        return [0.0] + [float(change["at"]) for change in self.description.get("schedule", [])]

    def precision(self, out_features: int = 0, name: str = "linear", block: int = 0, progress: float = 0.0) -> Precision:
        """Of the layer of that name in that block, when ``progress`` of the training is over."""
        phase = max((at for at in self.switches if at <= progress), default=0.0)
        transform = math.gcd(int(out_features), _LARGEST_TRANSFORM) if out_features else 0
        return _precision(self, self.text, self.blocks, transform, name, int(block), phase)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Recipe) and (self.text, self.blocks) == (other.text, other.blocks)

    def __hash__(self) -> int:
        return hash((self.text, self.blocks))


@lru_cache(maxsize=4096)
def _precision(recipe: Recipe, text: str, blocks: int, out_features: int, name: str, block: int, progress: float) -> Precision:
    layer = Layer(name=name.encode(), block=block, out_features=out_features, progress=progress)
    handle = c.c_void_p()
    check(lib.tetrad_precision_of_layer(recipe._handle, c.byref(layer), c.byref(handle)))
    return Precision(handle, repr((text, blocks, out_features, name, block, progress)))


def _flow(value: Any) -> str:
    """YAML on one line. Words stand without quotes, in which none and auto would be texts."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(str(key))}: {_flow(value[key])}" for key in sorted(value, key=str)) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_flow(element) for element in value) + "]"
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", value):
        return value
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise Error(f"recipe: {error}") from error


def _as_dict(description: Description) -> dict[str, Any]:
    if isinstance(description, str):
        return {"recipe": description}
    if isinstance(description, Mapping):
        return {str(key): value for key, value in description.items()}
    raise Error(f"a recipe is a name or a dict, not {type(description).__name__}")


@lru_cache(maxsize=64)
def _named(name: str) -> Recipe:
    return Recipe(name)


def as_recipe(description: Description | Recipe) -> Recipe:
    """For functions of single layers, which leave out what a recipe says about a model's ends."""
    if isinstance(description, Recipe):
        return description
    return _named(description) if isinstance(description, str) else Recipe(description)
