# SPDX-License-Identifier: Apache-2.0
"""Quantizers, products and the linear layer for NumPy."""

import os
import subprocess

import numpy as np
import pytest

import tetrad
from conftest import KEY, RECIPES, dequantized_product

OPTIONS = [
    {"format": "nvfp4"},
    {"format": "nvfp4", "block": "16x16", "scale": "4/6"},
    {"format": "nvfp4", "scale": "search", "hadamard": 16},
    {"format": "nvfp4", "axis": 0, "rounding": "stochastic", "hadamard": 32, "signs": "none"},
    {"format": "nvfp4", "rounding": "stochastic-hardware", "hadamard": 128, "signs": "fresh"},
    {"format": "nvfp4", "hadamard": 128, "signs": "fresh", "scale": "eden"},
    {"format": "mxfp4"},
    {"format": "mxfp4", "block": "32x32", "scale": "up", "axis": 0},
    {"format": "fp8"},
    {"format": "fp8", "block": "128x128", "axis": 0},
    {"format": "fp8", "block": "tensor", "rounding": "stochastic"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_bytes_are_those_of_the_program(options, dtype, program, rng, tmp_path):
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    x = rng.standard_normal((128, 256)).astype(dtype)
    tetrad.save(tmp_path / "in.safetensors", {"layers.0.w": x})
    flags = [f"--{name}={value}" for name, value in options.items()]
    command = [program, "quantize", tmp_path / "in.safetensors", "-o", tmp_path / "out.safetensors", "--seed=99", "--dequantize", *flags]
    subprocess.run(command, check=True, capture_output=True)
    q = tetrad.quantize(x, key=99, tensor="layers.0.w", seed=99, **options)
    theirs = tetrad.load(tmp_path / "out.safetensors")
    assert theirs["layers.0.w"].codes.tobytes() == q.codes.tobytes()
    assert theirs["layers.0.w"].scales.tobytes() == q.scales.tobytes()
    assert options["format"] != "nvfp4" or theirs["layers.0.w"].amax == q.amax
    assert theirs["layers.0.w.dequantized"].tobytes() == q.dequantize().tobytes()


def test_files_bring_back_what_was_saved(rng, tmp_path):
    x = rng.standard_normal((128, 128), dtype=np.float32)
    tensors = {str(number): tetrad.quantize(x, **options) for number, options in enumerate(OPTIONS)}
    tetrad.save(tmp_path / "q.safetensors", {**tensors, "plain": np.arange(6).reshape(2, 3)})
    back = tetrad.load(tmp_path / "q.safetensors")
    assert set(back) == {*tensors, "plain"}
    assert np.array_equal(back["plain"], np.arange(6).reshape(2, 3))
    for name, q in tensors.items():
        assert back[name].quantizer == q.quantizer
        assert back[name].shape == q.shape
        assert np.array_equal(back[name].dequantize(), q.dequantize())


OUTSIDE = b'{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}'.ljust(64)


@pytest.mark.parametrize(
    "content",
    [b"", b"12345", b"\xff" * 64, b"\x04" + b"\0" * 7 + b"nope", b"\x02" + b"\0" * 7 + b"[]", b"\x40" + b"\0" * 7 + OUTSIDE],
)
def test_what_is_no_file_is_refused(content, tmp_path):
    (tmp_path / "bad.safetensors").write_bytes(content)
    with pytest.raises(tetrad.Error):
        tetrad.load(tmp_path / "bad.safetensors")


def test_statistics_are_those_of_the_values(rng):
    x = rng.standard_normal((64, 128), dtype=np.float32)
    q, stats = tetrad.quantize(x, stats=True)
    error = (x - q.dequantize()).astype(np.float64)
    assert stats.noise == pytest.approx((error**2).sum(), rel=1e-6)
    assert stats.sqnr_db == pytest.approx(10 * np.log10((x.astype(np.float64) ** 2).sum() / (error**2).sum()), rel=1e-6)
    assert stats.elements == x.size


def test_products_are_exact_to_rounding(rng):
    a, b = rng.standard_normal((48, 160), dtype=np.float32), rng.standard_normal((160, 80), dtype=np.float32)
    qa, qb = tetrad.quantize(a), tetrad.quantize(b, axis=0)
    exact, bound = dequantized_product(qa.dequantize(), qb.dequantize())
    assert (np.abs(tetrad.matmul(qa, qb) - exact) <= bound).all()
    exact, bound = dequantized_product(qa.dequantize(), b.T)
    assert (np.abs(tetrad.matmul(qa, b) - exact) <= bound).all()


def test_layouts_do_not_matter(rng):
    x = rng.standard_normal((64, 96), dtype=np.float32)
    expected = tetrad.quantize(x).codes
    for same in (np.asfortranarray(x), np.repeat(x, 2, axis=1)[:, ::2], x[::-1][::-1], x.astype(">f4")):
        assert np.array_equal(tetrad.quantize(same).codes, expected)


@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_gradients_are_products_of_what_was_quantized(recipe, rng):
    """The bits are held to the program's layer by tests/c; here the call is checked: shapes, sides, the key."""
    x, w = rng.standard_normal((128, 64), dtype=np.float32), rng.standard_normal((128, 64), dtype=np.float32)
    dy = rng.standard_normal((128, 128), dtype=np.float32)
    y = tetrad.linear(x, w, recipe=recipe, key=KEY, layer=5)
    dx, dw = tetrad.linear_gradients(dy, x, w, recipe=recipe, key=KEY, layer=5)
    tolerance = 0.01 if recipe == "bf16" else 0.25
    for ours, exact in ((y, x @ w.T), (dx, dy @ w), (dw, dy.T @ x)):
        assert np.linalg.norm(ours - exact) <= tolerance * np.linalg.norm(exact)
    again = tetrad.linear_gradients(dy, x, w, recipe=recipe, key=KEY, layer=5)
    assert np.array_equal(dx, again[0]) and np.array_equal(dw, again[1])
    other = tetrad.linear_gradients(dy, x, w, recipe=recipe, key=KEY._replace(microbatch=4), layer=5)
    draws = recipe not in ("bf16", "fp8")
    assert np.array_equal(dw, other[1]) != draws


def test_recipes():
    assert "nvfp4 16x16" in repr(tetrad.Recipe("nvfp4").precision())
    kept = tetrad.Recipe("nvfp4", blocks=20)
    assert "nvfp4" in repr(kept.precision(block=16)) and "nvfp4" not in repr(kept.precision(block=17))
    late = tetrad.Recipe({"recipe": "nvfp4", "schedule": [{"at": 0.8, "forward": "bf16"}]})
    assert late.switches == [0.0, 0.8]
    assert repr(late.precision(progress=0.79)) == repr(late.precision())
    assert repr(late.precision(progress=0.8)) != repr(late.precision())
    assert late.precision(progress=0.9).id == late.precision(progress=0.8).id != late.precision().id


def bad_calls():
    f32 = np.zeros((32, 32), np.float32)
    return {
        "one dimension": lambda: tetrad.quantize(np.zeros(32, np.float32)),
        "three dimensions": lambda: tetrad.quantize(np.zeros((2, 32, 32), np.float32)),
        "float64": lambda: tetrad.quantize(np.zeros((32, 32))),
        "text": lambda: tetrad.quantize("values"),
        "objects": lambda: tetrad.quantize(np.array([[None] * 16] * 16)),
        "odd columns": lambda: tetrad.quantize(np.zeros((32, 20), np.float32)),
        "NaN": lambda: tetrad.quantize(np.full((16, 16), np.nan, np.float32)),
        "infinity": lambda: tetrad.quantize(np.full((16, 16), np.inf, np.float32)),
        "format": lambda: tetrad.quantize(f32, "int4"),
        "block": lambda: tetrad.quantize(f32, block="3x5"),
        "axis": lambda: tetrad.quantize(f32, axis=2),
        "hadamard": lambda: tetrad.quantize(f32, hadamard=24),
        "hadamard type": lambda: tetrad.quantize(f32, hadamard="16"),
        "rounding": lambda: tetrad.quantize(f32, rounding="up"),
        "scale": lambda: tetrad.quantize(f32, scale="up"),
        "signs": lambda: tetrad.quantize(f32, signs="odd"),
        "key": lambda: tetrad.quantize(f32, key=-1),
        "long key": lambda: tetrad.quantize(f32, key=(0, 2**32, 0)),
        "recipe": lambda: tetrad.linear(f32, f32, recipe="int4"),
        "recipe key": lambda: tetrad.linear(f32, f32, recipe={"recipe": "nvfp4", "colour": "red"}),
        "recipe type": lambda: tetrad.linear(f32, f32, recipe=4),
        "shapes": lambda: tetrad.linear(f32, np.zeros((32, 48), np.float32)),
        "tokens": lambda: tetrad.linear_gradients(np.zeros((24, 32), np.float32), np.zeros((24, 32), np.float32), f32),
        "layer": lambda: tetrad.linear(f32, f32, layer=-1),
        "inner": lambda: tetrad.matmul(f32, np.zeros((16, 32), np.float32)),
        "inner axis": lambda: tetrad.matmul(tetrad.quantize(f32), tetrad.quantize(f32)),
        "threads": lambda: tetrad.set_threads(-1),
    }


@pytest.mark.parametrize("name", bad_calls())
def test_bad_input_is_refused(name):
    with pytest.raises(tetrad.Error) as refusal:
        bad_calls()[name]()
    assert str(refusal.value)


def test_empty_matrices_are_matrices():
    assert tetrad.quantize(np.zeros((0, 32), np.float32)).dequantize().shape == (0, 32)
    assert tetrad.linear(np.zeros((0, 32), np.float32), np.zeros((16, 32), np.float32)).shape == (0, 16)


def test_a_forked_process_computes(rng):
    x = rng.standard_normal((512, 512), dtype=np.float32)
    expected = tetrad.quantize(x).codes
    child = os.fork()
    if child == 0:
        same = np.array_equal(tetrad.quantize(x).codes, expected)
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_threads_do_not_change_bits(rng):
    x = rng.standard_normal((512, 512), dtype=np.float32)
    expected = tetrad.quantize(x, rounding="stochastic", key=KEY).codes
    try:
        for threads in (1, 2, 3):
            tetrad.set_threads(threads)
            assert np.array_equal(tetrad.quantize(x, rounding="stochastic", key=KEY).codes, expected)
    finally:
        tetrad.set_threads(0)
