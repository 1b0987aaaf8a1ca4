# SPDX-License-Identifier: Apache-2.0
"""Layers, and what turns a model's own into them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn

from .._library import Error
from .._recipe import Description, Precision, Recipe, as_recipe
from . import _ops
from ._functional import Key, apply_linear, make_key, read_key

_MICROBATCH = 2**32


class RandomKey(nn.Module):
    """The random key of a model: one int64 buffer (seed; step and microbatch), in its state_dict.

    Each training pass of the model takes the next microbatch, so accumulated gradients draw anew; a layer that is
    computed again for its gradients finds the key of its pass. Ranks of torch.distributed share the buffer and draw
    differently.
    """

    value: torch.Tensor

    def __init__(self, seed: int = 0, rank: int | None = None, ranks: int | None = None) -> None:
        super().__init__()
        self.register_buffer("value", make_key(seed))
        self.rank, self.ranks = rank, ranks
        self._current: torch.Tensor | None = None
        self.passes = 0  # of training, as the host counts them

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        self._count_passes()

    def _count_passes(self) -> None:
        self.passes = self.get().microbatch // self.place()[1]

    def _apply(self, fn: Any, recurse: bool = True) -> RandomKey:
        """Follows a model to its device, and keeps its value even where that makes memory without content."""
        device = fn(self.value).device
        if device.type != "meta":
            self.value = self.value.to(device)
        return self

    def forward(self, input: Any) -> Any:
        """Nothing: it stands at the end of a torch.nn.Sequential that was converted."""
        return input

    def place(self) -> tuple[int, int]:
        if self.rank is not None:
            return self.rank, self.ranks or 1
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return torch.distributed.get_rank(), torch.distributed.get_world_size()
        return 0, 1

    def begin_pass(self) -> None:
        """Takes the key of the next microbatch. What a pass holds on to is a copy, which nothing changes."""
        rank, ranks = self.place()
        offset = torch.zeros_like(self.value)
        offset[1] = rank * _MICROBATCH
        self._current = self.value + offset
        self.value[1] += ranks * _MICROBATCH

    def current(self) -> torch.Tensor:
        key = self._current
        return self.value if key is None or key.device != self.value.device else key

    def set(self, seed: int | None = None, step: int | None = None, microbatch: int | None = None) -> None:
        """What the next pass draws by. Step and microbatch are the program's."""
        known = read_key(self.value)
        given = (known.seed if seed is None else seed, known.step if step is None else step)
        with torch.no_grad():
            self.value.copy_(make_key(*given, known.microbatch if microbatch is None else microbatch))
        self._count_passes()

    def get(self) -> Key:
        """What the next pass draws by. Waits for the device."""
        return read_key(self.value)

    def __deepcopy__(self, memo: dict[int, Any]) -> RandomKey:
        copy = RandomKey(0, self.rank, self.ranks)
        memo[id(self)] = copy
        copy.value = self.value.detach().clone()
        copy.passes = self.passes
        return copy


class Linear(nn.Linear):
    """torch.nn.Linear, computed by a recipe. Its weight is the master copy, in float32 or bfloat16.

    By itself it has a key of its own, which each training pass advances; convert() gives all layers of a model one.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        recipe: Description | Recipe = "nvfp4",
        seed: int = 0,
        layer: int = 0,
    ) -> None:
        super().__init__(in_features, out_features, bias, device, dtype)
        self.tetrad_key = RandomKey(seed)
        self.tetrad_key.to(device=self.weight.device)
        self.register_forward_pre_hook(_begin_pass)
        self._adopt(as_recipe(recipe), "linear", 0, layer)

    def _adopt(self, recipe: Recipe, name: str, block: int, layer: int, shared: RandomKey | None = None) -> None:
        # Not registered: a shared key is its root's.
        self.__dict__["_shared_key"] = shared
        self.__dict__["_place"] = (recipe, name, block)
        self.layer = layer
        self.set_progress(0.0)

    def set_progress(self, progress: float) -> None:
        """Takes what the recipe's schedule says when that fraction of the training is over."""
        self.__dict__["_progress"] = progress
        precision = self.current_precision()
        self.precision = repr(precision)
        self._number, self._token_multiple = _ops.number_of_precision(precision), precision.token_multiple

    def current_precision(self) -> Precision:
        recipe, name, block = self._place
        return recipe.precision(self.out_features, name, block, self._progress)

    @property
    def key(self) -> RandomKey:
        return self._shared_key if self._shared_key is not None else self.tetrad_key

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return apply_linear(input, self.weight, self.bias, self._number, self._token_multiple, self.key.current(), self.layer)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, layer={self.layer}, {self.precision}"

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        del state["_number"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.set_progress(self._progress)


def _begin_pass(module: nn.Module, _: Any) -> None:
    if not module.training:
        return
    key: RandomKey = module.tetrad_key
    if not torch.compiler.is_compiling():
        key.passes += 1
        schedule = module.__dict__.get("_tetrad_schedule")
        if schedule is not None:
            schedule.follow(key.passes - 1)
    key.begin_pass()


def _blocks_of(model: nn.Module) -> tuple[dict[str, int], int]:
    """The block that each linear layer is in, by the first number in its name, and how many blocks there are.

    Layers beside the blocks (a head, an embedding's projection) belong to none: -1.
    """
    blocks = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            number = re.search(r"(?:^|\.)(\d+)(?:\.|$)", name)
            blocks[name] = int(number.group(1)) if number else -1
    return blocks, max(blocks.values(), default=-1) + 1


def _matches(patterns: Sequence[str], name: str) -> bool:
    return any(fnmatchcase(name, pattern) or fnmatchcase(name, f"*.{pattern}") for pattern in patterns)


def _share(share: float, blocks: int) -> int:
    """A number of blocks, or below 1 a fraction of them, rounded up."""
    if share < 0:
        raise Error(f"{share} of the blocks cannot be kept")
    return math.ceil(share * blocks) if share < 1 else int(share)


def convert(
    model: nn.Module,
    recipe: Description | Recipe = "nvfp4",
    *,
    keep: Sequence[str] = ("lm_head", "head", "embed_out", "output"),
    keep_first: float | None = None,
    keep_last: float | None = None,
    seed: int = 0,
    rank: int | None = None,
    ranks: int | None = None,
) -> nn.Module:
    """Turns the linear layers of a model into Linear, in place, and returns it. Parameters stay what they are.

    ``keep``: layers that stay as they are, by name or pattern ("lm_head", "model.layers.0.*").
    ``keep_first``, ``keep_last``: a number of blocks at the ends, or a share below 1, that stay as they are; None: what
    the recipe says (the last 15 % in most). A block is what has a number in the names of its layers.
    ``rank``, ``ranks``: among those that train on different data; None: of torch.distributed, if that runs.
    Layers whose extents no block of 16 fits stay as they are too. Call it before the optimizer is made and before
    the model is wrapped or compiled.
    """
    if isinstance(model, nn.Linear) or any(isinstance(module, (Linear, RandomKey)) for module in model.modules()):
        raise Error("convert: give a model with linear layers that has not been converted (for one layer: tetrad.torch.Linear)")
    if isinstance(keep, str):
        keep = [keep]
    where, count = _blocks_of(model)
    unused = [pattern for pattern in keep if not any(_matches([pattern], name) for name in where)]
    if unused and tuple(keep) != convert.__kwdefaults__["keep"]:
        raise Error(f"convert: no linear layer is called {', '.join(unused)}; there are {', '.join(list(where)[:8])}, …")
    given = isinstance(recipe, Recipe)
    resolved = recipe if given else Recipe(_with_ends(recipe, keep_first, keep_last, count), blocks=count)
    key = RandomKey(seed, rank, ranks)
    layer = 0
    for name, module in list(model.named_modules()):
        if type(module) is not nn.Linear:
            continue
        layer += 1  # kept ones count: keeping another does not change what the rest draw
        fits = module.in_features % 16 == 0 and module.out_features % 16 == 0
        if _matches(keep, name) or not fits:
            continue
        module.__class__ = Linear
        block = where[name] if where[name] >= 0 else count // 2  # in the middle: what is said of the ends is not about it
        module._adopt(resolved, name, block, layer - 1, key)
    if not any(isinstance(module, Linear) for module in model.modules()):
        raise Error("convert: nothing is left to convert: there are no linear layers with multiples of 16 but those to keep")
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    if device.type != "meta":
        key.to(device=device)
    model.tetrad_key = key
    model.register_forward_pre_hook(_begin_pass)
    return model


def _with_ends(recipe: Description, first: float | None, last: float | None, blocks: int) -> dict[str, Any]:
    description = {"recipe": recipe} if isinstance(recipe, str) else dict(recipe)
    ends = {name: _share(share, blocks) for name, share in (("first", first), ("last", last)) if share is not None}
    if ends:
        high = description.get("high_precision", {})
        description["high_precision"] = ({"first": 0, "last": 0} if high == "none" else dict(high)) | ends
    return description


class _Schedule:
    """Which phase of the recipe a pass is in: host numbers alone, so nothing waits for a device."""

    def __init__(self, layers: list[Linear], switches: list[float], passes: int) -> None:
        self.layers, self.switches, self.passes = layers, switches, passes
        self.phase = -1

    def follow(self, done: int) -> None:
        progress = min(done / self.passes, 1.0)
        phase = sum(progress >= at for at in self.switches) - 1
        if phase != self.phase:
            self.phase = phase
            for layer in self.layers:
                layer.set_progress(self.switches[phase])


def layers_of(model: nn.Module) -> dict[str, Linear]:
    return {name: module for name, module in model.named_modules() if isinstance(module, Linear)}


def set_schedule(model: nn.Module, schedule: Sequence[tuple[float, dict[str, str]]], passes: int) -> None:
    """Changes the recipe while a model trains: ``[(0.82, {"forward": "bf16"})]`` computes forward passes in BF16 for
    the last 18 % of ``passes``, the number of training passes (microbatches) that the model will make.

    With a compiled model call set_progress() yourself: a graph has no place to count in.
    """
    layers = list(layers_of(model).values())
    if not layers or "tetrad_key" not in model._modules:
        raise Error("set_schedule: give the model that convert() returned")
    if passes <= 0:
        raise Error(f"set_schedule: {passes} passes")
    changes = [{"at": float(at), **change} for at, change in schedule]
    changed: dict[Recipe, Recipe] = {}
    for layer in layers:
        recipe, name, block = layer._place
        if recipe not in changed:
            changed[recipe] = Recipe(recipe.description | {"schedule": changes}, recipe.blocks)
        layer.__dict__["_place"] = (changed[recipe], name, block)
    following = _Schedule(layers, [0.0] + [change["at"] for change in changes], passes)
    following.follow(model.tetrad_key.passes)
    model.__dict__["_tetrad_schedule"] = following


def set_progress(model: nn.Module, progress: float) -> None:
    """Puts all layers where a schedule is when that fraction of the training is over."""
    if not 0 <= progress <= 1:
        raise Error(f"set_progress: {progress} is not within 0 and 1")
    for layer in layers_of(model).values():
        layer.set_progress(progress)
