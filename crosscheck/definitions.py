# SPDX-License-Identifier: Apache-2.0
"""Where others define NVFP4 differently: the same matrices quantized by us, by torchao and by ModelOpt, and by the formulas that
Transformer Engine publishes (it has no build for CPUs). Prints the tables of docs/python.md.

Every difference is explained: each definition is also computed here, as ours with some steps replaced, and must give the
library's bytes. So what a step costs can be counted by replacing it alone.

definitions.py  (with the Python package in PYTHONPATH or installed)
"""

import argparse
import sys
from dataclasses import dataclass, replace

import ml_dtypes
import modelopt
import numpy as np
import torch
import torchao
from modelopt.torch.quantization.qtensor.nvfp4_tensor import NVFP4QTensor
from torchao.prototype.mx_formats.nvfp4_tensor import NVFP4Tensor, per_tensor_amax_to_scale

import tetrad

F32 = np.float32
LARGEST = np.finfo(F32).max
SIDE = 1024


@dataclass(frozen=True)
class Steps:
    """What definitions do differently. As it stands: ours. S = 2688 / amax, T is the tensor's scale, s the block's."""

    tensor: str = "T = 1 / S"
    block: str = "s = amax_b · (S / 6)"
    least: str = "s >= 0"
    of_zeros: str = "s of zeros 0"
    code: str = "x · (1 / (s · T))"
    sign: str = "-0 as 0"


# What is replaced together to see what it costs: a block's scale is rounded from the tensor's.
GROUPS = (("tensor", "block"), ("least",), ("of_zeros",), ("code",), ("sign",))
LEAST = {"s >= 0": 0.0, "s >= 2^-9": 2.0**-9, "s >= 2^-6": 2.0**-6}


def quantize(x: np.ndarray, steps: Steps) -> tuple[np.ndarray, np.ndarray]:
    """The codes, one in a byte, and the bytes of the scales, in rows of 16-element blocks; every operation in float32."""
    x = x.astype(F32)
    blocks = x.reshape(-1, 16)
    amax, amax_b = np.abs(x).max(), np.abs(blocks).max(axis=1, keepdims=True)
    s_enc = np.minimum(F32(2688) / amax, LARGEST)
    scale = {"T = 1 / S": F32(1) / s_enc, "T = amax / 2688": amax / F32(2688), "none": F32(1)}[steps.tensor]
    wanted = {
        "s = amax_b · (S / 6)": lambda: amax_b * (s_enc * F32(1 / 6)),
        "s = amax_b / 6 · S": lambda: amax_b / F32(6) * s_enc,
        "s = amax_b / 6 / T": lambda: amax_b / F32(6) / scale,
        "s = amax_b / (6 T)": lambda: amax_b / (F32(6) * scale),
    }[steps.block]()
    if steps.of_zeros == "s of zeros 1":
        wanted = np.where(wanted == 0, F32(1), wanted)
    s_b = np.clip(wanted, F32(LEAST[steps.least]), F32(448)).astype(ml_dtypes.float8_e4m3fn)
    s = s_b.astype(F32)
    ours = blocks * np.minimum(F32(1) / (s * scale), LARGEST)
    scaled = {
        "x · (1 / (s · T))": lambda: ours,
        # Nobody whose steps these are has scales of zero.
        "x · ((1 / T) / s)": lambda: np.where(s == 0, ours, blocks * ((F32(1) / scale) / s)),
        "x / (s · T)": lambda: np.where(s == 0, ours, blocks / (s * scale)),
    }[steps.code]()
    return nearest_code(scaled) | (sign_of(x, steps.sign).reshape(-1, 16) << 3), s_b.view(np.uint8)


def nearest_code(values: np.ndarray) -> np.ndarray:
    middles = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5], F32)
    below = np.searchsorted(middles, np.abs(values), "left")
    tie = np.searchsorted(middles, np.abs(values), "right") > below
    return (below + (tie & (below % 2 == 1))).astype(np.uint8)


def sign_of(x: np.ndarray, what: str) -> np.ndarray:
    return (np.signbit(x) if what == "-0 as -0" else x < 0).astype(np.uint8)


def tensor_of(x: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(x.view(np.int16)).view(torch.bfloat16) if x.dtype == ml_dtypes.bfloat16 else torch.from_numpy(x)


def unpacked(codes: np.ndarray) -> np.ndarray:
    return np.stack((codes & 15, codes >> 4), axis=-1).reshape(-1, 16)


def by_torchao(x: np.ndarray, with_tensor_scale: bool) -> tuple[np.ndarray, np.ndarray]:
    values = tensor_of(x)
    scale = per_tensor_amax_to_scale(values.abs().max()) if with_tensor_scale else None
    q = NVFP4Tensor.to_nvfp4(values, per_tensor_scale=scale)
    return unpacked(q.qdata.numpy()), q.scale.view(torch.uint8).numpy().reshape(-1, 1)


def by_modelopt(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    q, scales, _ = NVFP4QTensor.quantize(tensor_of(x).clone(), 16)
    return unpacked(q._quantized_data.numpy()), scales.view(torch.uint8).numpy().reshape(-1, 1)


def by_us(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    q = tetrad.quantize(x)
    return unpacked(q.codes), q.scales.reshape(-1, 1)


OURS = Steps()
# Who computes it, and its steps. What has no function is a formula only: nothing of that library was run.
DEFINITIONS = {
    f"torchao {torchao.__version__}": (
        lambda x: by_torchao(x, True),
        Steps("T = amax / 2688", "s = amax_b / 6 / T", least="s >= 2^-6", code="x · ((1 / T) / s)", sign="-0 as -0"),
    ),
    f"torchao {torchao.__version__}, no tensor scale": (
        lambda x: by_torchao(x, False),
        Steps("none", "s = amax_b / 6 / T", least="s >= 2^-6", code="x · ((1 / T) / s)", sign="-0 as -0"),
    ),
    f"ModelOpt {modelopt.__version__}": (
        by_modelopt,
        Steps("T = amax / 2688", "s = amax_b / (6 T)", least="s >= 2^-9", of_zeros="s of zeros 1", code="x / (s · T)"),
    ),
    "Transformer Engine 2.14 to 2.20.2, formula": (None, OURS),
    "Transformer Engine 2.9 to 2.13, formula": (None, Steps(block="s = amax_b / 6 · S")),
}


def normal(rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal((SIDE, SIDE)).astype(F32)


def mixed(rng: np.random.Generator) -> np.ndarray:
    x = normal(rng) * F32(0.02)
    x[rng.random(x.shape) < 1e-4] *= F32(1000)
    x[rng.random(x.shape) < 0.05] = 0
    x[rng.random(x.shape) < 0.05] = F32(-0.0)
    x[:32] = 0
    x[32:64] *= F32(1e-37)  # subnormal
    return x


INPUTS = {
    "normal, f32": normal,
    "normal, BF16": lambda rng: normal(rng).astype(ml_dtypes.bfloat16),
    "rows from 1e-4 to 1e2": lambda rng: normal(rng) * np.logspace(-4, 2, SIDE, dtype=F32)[:, None],
    "outliers, zeros, subnormals": mixed,
}


class Table:
    """Counts, summed over matrices; a cell shows two of them or a share."""

    def __init__(self, title: str) -> None:
        self.title, self.rows = title, {}

    def add(self, row: str, column: str, first: int, second: int) -> None:
        cell = self.rows.setdefault(row, {}).setdefault(column, [0, 0])
        cell[0] += int(first)
        cell[1] += int(second)

    def show(self, form: str) -> None:
        print(f"\n| {self.title} | {' | '.join(INPUTS)} |\n|{'---|' * (len(INPUTS) + 1)}")
        for name, cells in self.rows.items():
            print(f"| {name} | {' | '.join(form.format(a, b, 100 * a / max(b, 1)) for a, b in cells.values())} |")


def differing(a: tuple[np.ndarray, np.ndarray], b: tuple[np.ndarray, np.ndarray]) -> tuple[int, int]:
    return int(np.count_nonzero(a[0] != b[0])), int(np.count_nonzero(a[1] != b[1]))


def lost(x: np.ndarray, q: tuple[np.ndarray, np.ndarray]) -> tuple[int, int]:
    """Values that are not zero and decode to zero, and all that are not zero."""
    nonzero = x.astype(F32).reshape(-1, 16) != 0
    return np.count_nonzero(((q[0] & 7 == 0) | (q[1] == 0)) & nonzero), np.count_nonzero(nonzero)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--matrices", type=int, default=16, help="of each kind, a million values each")
    options = parser.parse_args()
    np.seterr(all="ignore")  # reciprocals of subnormal scales are meant to pass the largest number
    whole, alone, zeroed = Table("codes / scales that differ from ours"), Table("one step alone"), Table("decode to zero")
    wrong, of_bf16 = [], {}

    def compare(who: str, kind: str, theirs: tuple[np.ndarray, np.ndarray], formula: tuple[np.ndarray, np.ndarray]) -> None:
        if any(differing(theirs, formula)):
            wrong.append(f"{who}, {kind}: {differing(theirs, formula)} codes and scales are not those of the formula")

    single = {
        ", ".join(str(getattr(steps, step)) for step in group): replace(OURS, **{step: getattr(steps, step) for step in group})
        for _, steps in DEFINITIONS.values()
        if steps.tensor != "none"
        for group in GROUPS
        if any(getattr(steps, step) != getattr(OURS, step) for step in group)
    }
    for kind, make in INPUTS.items():
        for seed in range(options.matrices):
            x = make(np.random.default_rng(seed))
            ours = by_us(x)
            compare("ours", kind, ours, quantize(x, OURS))
            zeroed.add("ours", kind, *lost(x, ours))
            for who, (run, steps) in DEFINITIONS.items():
                formula = quantize(x, steps)
                theirs = run(x) if run else formula
                compare(who, kind, theirs, formula)
                whole.add(who, kind, *differing(theirs, ours))
                if kind == "normal, BF16":
                    of_bf16.setdefault(who, []).append(differing(theirs, ours)[0])
                zeroed.add(who, kind, *lost(x, theirs))
            for step, steps in single.items():
                alone.add(step, kind, *differing(quantize(x, steps), ours))

    print(f"{options.matrices} × {SIDE * SIDE:,} values of each kind; PyTorch {torch.__version__}, NumPy {np.__version__}")
    whole.show("{:,} / {:,}")
    alone.show("{:,} / {:,}")
    zeroed.show("{2:.2f} %")
    amax = (np.arange(2**23, dtype=np.uint32) + F32(1).view(np.uint32)).view(F32)  # every mantissa
    print(f"\n1 / (2688 / amax) is not amax / 2688 for {100 * np.mean(F32(1) / (F32(2688) / amax) != amax / F32(2688)):.1f} % of amax")
    for who, counts in of_bf16.items():
        print(f"{who}: {min(counts):,} to {max(counts):,} codes of one matrix of normal BF16 differ")
    zeros = np.zeros((16, 16), F32)
    print(f"a matrix of zeros has scales of {by_us(zeros)[1][0, 0]:#04x} here, in ModelOpt {by_modelopt(zeros)[1][0, 0]:#04x}")
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
