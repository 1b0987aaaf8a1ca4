# SPDX-License-Identifier: Apache-2.0
"""A quantized matrix as torchao's NVFP4Tensor: the same memory, and values that differ by what one more rounding does."""

import sys

import numpy as np
import pytest

import tetrad

torch = pytest.importorskip("torch")
pytest.importorskip("torchao")

from torchao.prototype.mx_formats.nvfp4_tensor import NVFP4Tensor, per_tensor_amax_to_scale  # noqa: E402

import tetrad.torch as tt  # noqa: E402

# The magnitudes that codes stand for.
MAGNITUDES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
OPTIONS = [
    {},
    {"block": "16x16"},
    {"axis": 0},
    {"axis": 0, "block": "16x16"},
    {"scale": "4/6"},
    {"scale": "search"},
    {"scale": "eden", "hadamard": 64, "signs": "fresh"},
    {"rounding": "stochastic", "hadamard": 16},
]


def matrix(rows=64, cols=192, seed=20, spread=0.0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn((rows, cols), generator=generator) * torch.logspace(-spread, spread, rows)[:, None]


def parts(q):
    """Of each element: its code's sign and magnitude, and its block's scale."""
    codes = np.stack((q.codes.numpy() & 15, q.codes.numpy() >> 4), axis=-1).reshape(q.codes.shape[0], -1)
    scales = np.repeat(q.scales_as_float().float().numpy(), 16, axis=1)
    return np.where(codes >= 8, np.float32(-1), np.float32(1)), MAGNITUDES[codes & 7], scales


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_torchao_decodes_our_codes_with_one_more_rounding(options):
    """We compute (code · s) · T, where code · s is exact; torchao code · (s · T), which is rounded twice. So they are the same
    where code or s is a power of two, and elsewhere differ by less than three times 2^-24."""
    q = tt.quantize(matrix(spread=2), key=7, **options)
    theirs = q.to_torchao().dequantize().numpy()
    ours = q.dequantize().numpy()
    sign, magnitude, scale = parts(q)
    tensor_scale = q.to_torchao().per_tensor_scale.numpy()
    assert np.array_equal(sign * magnitude * scale * tensor_scale, ours), "the tensor's scale is what we decode by"
    assert np.array_equal(sign * magnitude * (scale * tensor_scale), theirs)
    exact = (np.frexp(magnitude)[0] == 0.5) | (np.frexp(scale)[0] == 0.5) | (magnitude == 0) | (scale == 0)
    assert np.array_equal(ours[exact], theirs[exact])
    assert (np.abs(theirs - ours) <= 3 * 2.0**-24 * np.abs(ours)).all()
    assert 0 < np.count_nonzero(theirs != ours) < np.count_nonzero(~exact), "some do differ, so this compares something"


def test_where_the_tensor_scale_is_a_power_of_two_all_values_are_the_same():
    x = matrix().clamp(-2.5, 2.5)
    x[3, 5] = 2.625  # 2688 / 1024
    for dtype in (torch.float32, torch.bfloat16):
        q = tt.quantize(x)
        assert q.to_torchao().per_tensor_scale == 2.0**-10
        assert torch.equal(q.to_torchao(dtype).dequantize(), q.dequantize(dtype))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_it_is_the_same_memory(options):
    q = tt.quantize(matrix(), key=7, **options)
    view = q.to_torchao(torch.bfloat16)
    assert isinstance(view, NVFP4Tensor) and view.dtype == torch.bfloat16
    assert view.shape == (q.shape if q.quantizer.axis == 1 else q.shape[::-1])
    assert view.qdata.data_ptr() == q.codes.data_ptr() and view.scale.data_ptr() == q.scales.data_ptr()
    before = view.dequantize()
    q.codes[0, 0] ^= 0x88  # both signs
    after = view.dequantize()
    assert torch.equal(after[0, :2], -before[0, :2]) and torch.equal(after[1:], before[1:])


def test_the_transposed_view_is_the_matrix_that_was_quantized():
    x = matrix()
    view = tt.quantize(x, axis=0).to_torchao()
    assert torch.equal(view.t().dequantize(), view.dequantize().t())
    error = (view.t().dequantize() - x).norm() / x.norm()
    assert error < 0.12


def test_torchao_multiplies_it():
    """Without Blackwell's units torchao decodes a weight and leaves the product to PyTorch."""
    x, w = matrix(32, 64), matrix(48, 64, seed=21)
    view = tt.quantize(w).to_torchao()
    assert torch.equal(torch.nn.functional.linear(x, view), x @ view.dequantize().t())


def test_torchaos_own_tensor_has_the_same_layout():
    """Where both define the same codes: nothing near the least scale that torchao allows, and no tie."""
    x = matrix()
    theirs = NVFP4Tensor.to_nvfp4(x, per_tensor_scale=per_tensor_amax_to_scale(x.abs().max()))
    ours = tt.quantize(x).to_torchao()
    assert torch.equal(ours.qdata, theirs.qdata)
    assert torch.equal(ours.scale.view(torch.uint8), theirs.scale.view(torch.uint8))
    assert ours.scale.shape == theirs.scale.shape and ours.is_swizzled_scales == theirs.is_swizzled_scales
    assert abs(float(ours.per_tensor_scale / theirs.per_tensor_scale) - 1) < 2.0**-22


@pytest.mark.parametrize("amax", [0.0, 1e-38, 1e-42, 3.4e38, float("nan")])
def test_extreme_tensors_decode_alike(amax):
    x = matrix(16, 64)
    x = x / x.abs().max() * amax
    q = tt.quantize(x)
    ours, theirs = q.dequantize(), q.to_torchao().dequantize()
    assert torch.equal(ours.isnan(), theirs.isnan())
    # Subnormal results are rounded to multiples of 2^-149, twice.
    assert ((ours - theirs).abs() <= 3 * 2.0**-24 * ours.abs() + 2.0**-147)[~ours.isnan()].all()
    assert bool(ours.isnan().all()) == np.isnan(amax)


def test_what_does_not_fit_is_said(monkeypatch):
    q = tt.quantize(matrix(32, 64))
    for other, message in ((tt.quantize(matrix(32, 64), "mxfp4"), "mxfp4"), (tt.quantize(matrix(32, 128), "fp8"), "fp8")):
        with pytest.raises(tetrad.Error, match=f"holds nvfp4, and this is {message}"):
            other.to_torchao()
    with pytest.raises(tetrad.Error, match="neither float32 nor bfloat16"):
        q.to_torchao(torch.float64)
    monkeypatch.setitem(sys.modules, "torchao.prototype.mx_formats.nvfp4_tensor", None)
    with pytest.raises(tetrad.Error, match="pip install torchao"):
        q.to_torchao()


def test_torchao_is_imported_only_when_asked_for():
    import subprocess

    program = "import sys, tetrad.torch; sys.exit(any(name.split('.')[0] == 'torchao' for name in sys.modules))"
    subprocess.run([sys.executable, "-c", program], check=True)
