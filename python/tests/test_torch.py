# SPDX-License-Identifier: Apache-2.0
"""PyTorch on the CPU: bits, gradients, and what is built around layers."""

import copy
import os
import pickle

import numpy as np
import pytest

import tetrad
from conftest import KEY, RECIPES, dequantized_product

torch = pytest.importorskip("torch")
import tetrad.torch as tt  # noqa: E402

F32, BF16 = torch.float32, torch.bfloat16


def tensors(*shapes, dtype=F32, seed=20):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def bits(tensor):
    return tensor.detach().reshape(-1).view(torch.uint8).numpy().tobytes()


class Mlp(torch.nn.Module):
    def __init__(self, width=64, blocks=4, bias=True):
        super().__init__()
        self.blocks = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Linear(width, 2 * width, bias), torch.nn.GELU(), torch.nn.Linear(2 * width, width, bias))
            for _ in range(blocks)
        )
        self.head = torch.nn.Linear(width, 32, bias=False)

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


def small_model(**options):
    torch.manual_seed(3)
    return tt.convert(Mlp(), options.pop("recipe", "nvfp4"), keep=["head"], keep_last=0, seed=11, **options)


def gradients(model, x, forward=None):
    model.zero_grad()
    loss = (model if forward is None else forward)(x).float().square().mean()
    loss.backward()
    return [bits(loss)] + [bits(parameter.grad) for parameter in model.parameters()]


def reset(model):
    model.tetrad_key.set(step=0, microbatch=0)


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_a_layer_gives_the_bits_of_the_c_interface(recipe, dtype):
    x, dy = tensors((128, 64), (128, 192), dtype=dtype)
    (w,) = tensors((192, 64))
    x.requires_grad_()
    w.requires_grad_()
    y = tt.linear(x, w, recipe=recipe, key=KEY, layer=5)
    y.backward(dy)
    ml = pytest.importorskip("ml_dtypes") if dtype == BF16 else None
    to_numpy = (lambda t: t.detach().view(torch.int16).numpy().view(ml.bfloat16)) if ml else (lambda t: t.detach().numpy())
    theirs_y = tetrad.linear(to_numpy(x), w.detach().numpy(), recipe=recipe, key=KEY, layer=5)
    theirs_dx, theirs_dw = tetrad.linear_gradients(to_numpy(dy), to_numpy(x), w.detach().numpy(), recipe=recipe, key=KEY, layer=5)
    assert bits(y) == theirs_y.tobytes()
    assert bits(x.grad) == theirs_dx.tobytes()
    assert bits(w.grad) == theirs_dw.tobytes()


def test_gradients_are_exact_products_of_what_was_quantized():
    """With NVFP4 alone in backward operands that round to nearest, so that a test can quantize them again."""
    recipe = {"recipe": "nvfp4", "sr": "none", "rht": "none"}
    x, dy, w = tensors((64, 96), (64, 48), (48, 96))
    x.requires_grad_()
    w.requires_grad_()
    tt.linear(x, w, recipe=recipe).backward(dy)

    def values(tensor, **options):
        return tetrad.quantize(tensor.detach().numpy(), **options).dequantize()

    for ours, a, b in (
        (x.grad, values(dy), values(w, block="16x16", axis=0)),
        (w.grad, values(dy, axis=0), values(x, axis=0)),
    ):
        exact, bound = dequantized_product(a, b)
        assert (np.abs(ours.numpy() - exact) <= bound).all()


@pytest.mark.parametrize("options", [{}, {"block": "16x16"}, {"axis": 0, "rounding": "stochastic", "hadamard": 16}], ids=str)
@pytest.mark.parametrize("format", ["nvfp4", "mxfp4", "fp8"])
def test_quantizers_give_numpys_bytes(format, options):
    if "block" in options:
        options = {"block": {"nvfp4": "16x16", "mxfp4": "32x32", "fp8": "tensor"}[format]}
    (x,) = tensors((128, 256))
    q = tt.quantize(x, format, key=KEY, tensor="w", **options)
    expected = tetrad.quantize(x.numpy(), format, key=KEY, tensor="w", **options)
    assert bits(q.codes) == expected.codes.tobytes()
    assert q.scales.numpy().tobytes() == expected.scales.tobytes() and q.scales.shape == expected.scales.shape
    assert np.array_equal(q.dequantize().numpy(), expected.dequantize())
    assert q.dequantize(BF16).dtype == BF16
    views = {"nvfp4": (torch.float4_e2m1fn_x2, torch.float8_e4m3fn), "mxfp4": (torch.float4_e2m1fn_x2, torch.float8_e8m0fnu)}
    codes, scales = views.get(format, (torch.float8_e4m3fn, F32))
    assert (q.codes_as_float().dtype, q.scales_as_float().dtype) == (codes, scales)


def test_opcheck():
    x, dy, w = tensors((64, 32), (64, 48), (48, 32))
    key, ops = tt.make_key(1), torch.ops.tetrad
    number = tt._ops.number_of_precision(tetrad.Recipe("nvfp4").precision(48))
    _, saved = ops.linear_forward(x, w, key, number, 0, True)
    quantizer = tt._ops.number_of_quantizer(tetrad.Quantizer("nvfp4", axis=0))
    codes, scales, amax = ops.quantize(x, key, quantizer, 0)
    calls = {
        "linear_forward": (x, w, key, number, 0, True),
        "linear_backward": (dy, w, x[:0], saved, key, number, 0, 3),
        "quantize": (x, key, quantizer, 0),
        "dequantize": (codes, scales, amax, quantizer, 32, 64, False),
    }
    for name, arguments in calls.items():
        torch.library.opcheck(getattr(ops, name).default, arguments)


def test_compiled_layers_give_the_same_bits():
    (x,) = tensors((64, 64))
    model = small_model()
    eager = [gradients(model, x) for _ in range(2)]
    assert eager[0][1:] != eager[1][1:], "the second pass draws other bits"
    reset(model)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    assert [gradients(model, x, compiled) for _ in range(2)] == eager
    (other,) = tensors((96, 64))
    assert gradients(model, other, compiled)  # another number of tokens, perhaps a symbolic one


def test_inductor_compiles_a_layer():
    x, w = tensors((64, 64), (32, 64))

    @torch.compile(fullgraph=True)
    def compiled(x, w):
        return tt.linear(x, w, key=KEY).relu()

    assert bits(compiled(x, w)) == bits(tt.linear(x, w, key=KEY).relu())


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_changes_no_bit(reentrant):
    from torch.utils.checkpoint import checkpoint

    (x,) = tensors((64, 64))
    x.requires_grad_()
    model = small_model(recipe={"recipe": "nvfp4", "sr": ["gradients", "activations"]})
    expected = gradients(model, x)

    def forward(x):
        model.tetrad_key.begin_pass()  # the root's forward is not called
        for block in model.blocks:
            x = x + checkpoint(block, x, use_reentrant=reentrant)
        return model.head(x)

    reset(model)
    assert gradients(model, x, forward) == expected


def test_accumulation_draws_anew_and_state_resumes(tmp_path):
    (x,) = tensors((64, 64))
    model = small_model()
    passes = [gradients(model, x) for _ in range(4)]
    assert len({tuple(p[1:]) for p in passes}) == 4
    model.eval()
    with torch.no_grad():
        model(x)
    model.train()
    assert model.tetrad_key.get() == tetrad.Key(11, 0, 4)
    reset(model)
    gradients(model, x), gradients(model, x)
    torch.save(model.state_dict(), tmp_path / "state.pt")
    other = small_model()
    other.load_state_dict(torch.load(tmp_path / "state.pt"))
    assert gradients(other, x) == passes[2]
    assert sum("tetrad" in name for name in model.state_dict()) == 1


def test_copies_and_pickles_are_models_of_their_own():
    (x,) = tensors((64, 64))
    model = small_model()
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        reset(model)
        assert gradients(other, x) == gradients(model, x)
        assert other.tetrad_key is not model.tetrad_key
        assert all(layer.key is other.tetrad_key for layer in tt.layers_of(other).values())


def test_convert_keeps_what_it_is_told():
    names = lambda model: set(tt.layers_of(model))  # noqa: E731
    both = {"0", "2"}
    every = {f"blocks.{block}.{part}" for block in range(4) for part in both}
    assert names(tt.convert(Mlp(), keep_last=0)) == every
    layers = tt.layers_of(tt.convert(Mlp(), "nvfp4"))  # 15 % of 4 blocks: the last one
    assert {name for name, layer in layers.items() if "nvfp4" in layer.precision} == {n for n in every if "blocks.3" not in n}
    layers = tt.layers_of(tt.convert(Mlp(), "nvfp4", keep_first=1, keep_last=0.5))
    assert {name for name, layer in layers.items() if "nvfp4" in layer.precision} == {f"blocks.1.{part}" for part in both}
    assert names(tt.convert(Mlp(), keep=["blocks.*.2", "head"])) == {f"blocks.{block}.0" for block in range(4)}
    dict_recipe = {"recipe": "nvfp4", "high_precision": {"last": 0, "match": ["*.2"]}}
    layers = tt.layers_of(tt.convert(Mlp(), dict_recipe))
    assert all(("nvfp4" in layer.precision) == name.endswith("0") for name, layer in layers.items())
    before = Mlp()
    parameters = {name: id(parameter) for name, parameter in before.named_parameters()}
    assert {name: id(parameter) for name, parameter in tt.convert(before).named_parameters()} == parameters


def test_a_schedule_switches_the_recipe():
    (x,) = tensors((64, 64))
    model = small_model()
    tt.set_schedule(model, [(0.5, {"forward": "bf16", "backward": "bf16"})], passes=4)
    described = []
    for _ in range(4):
        gradients(model, x)
        described.append("nvfp4" in tt.layers_of(model)["blocks.0.0"].precision)
    assert described == [True, True, False, False]
    tt.set_progress(model, 0.25)
    assert "nvfp4" in tt.layers_of(model)["blocks.0.0"].precision


def test_autocast_quantizes_the_master_weights():
    x, w = tensors((64, 64), (32, 64))
    w.requires_grad_()
    with torch.autocast("cpu", dtype=BF16):
        y = tt.linear(x, w, key=KEY)
    assert y.dtype == BF16
    y.sum().backward()
    assert w.grad.dtype == F32
    assert bits(y) == bits(tt.linear(x.to(BF16), w, key=KEY))


def test_layouts_and_shapes_of_inputs_do_not_matter():
    x, w, bias = tensors((2, 40, 64), (32, 64), (32,))
    for tensor in (x, w, bias):
        tensor.requires_grad_()
    y = tt.linear(x, w, bias, key=KEY)  # 80 tokens
    assert y.shape == (2, 40, 32)
    strided = torch.repeat_interleave(x.detach(), 2, dim=-1)[..., ::2].requires_grad_()
    assert bits(tt.linear(strided, w, bias, key=KEY)) == bits(y)
    y.sum().backward()  # an expanded gradient
    assert torch.allclose(bias.grad, torch.full((32,), 80.0))
    # Tokens that no block fits are filled up with zeros, which changes nothing.
    odd = tt.linear(x[:, :37], w, key=KEY)
    assert bits(odd[0]) == bits((y - bias)[0, :37]) or torch.allclose(odd[0], (y - bias)[0, :37], atol=1e-6)
    with torch.no_grad():
        assert tt.linear(x[0, 0], w, key=KEY).shape == (32,)
        assert tt.linear(x[:, :0], w, key=KEY).shape == (2, 0, 32)


def test_frozen_weights_and_inputs():
    x, w = tensors((64, 64), (32, 64))
    w.requires_grad_()
    tt.linear(x, w, key=KEY).sum().backward()
    alone = w.grad.clone()
    x.requires_grad_()
    w.grad = None
    tt.linear(x, w, key=KEY).sum().backward()
    assert bits(alone) == bits(w.grad)
    frozen = x.detach().requires_grad_()
    tt.linear(frozen, w.detach(), key=KEY).sum().backward()
    assert bits(frozen.grad) == bits(x.grad)


def test_meta_tensors_have_shapes():
    model = tt.convert(Mlp().to("meta"), keep=["head"])
    assert model(torch.empty(64, 64, device="meta")).shape == (64, 32)
    model.to_empty(device="cpu")
    assert model.tetrad_key.get() == tetrad.Key(0, 0, 1)


def bad_calls():
    x, w = torch.zeros(32, 32), torch.zeros(32, 32, requires_grad=True)
    key = tt.make_key()
    number = tt._ops.number_of_precision(tetrad.Recipe("nvfp4").precision(32))
    ops = torch.ops.tetrad
    return {
        "float16": lambda: tt.linear(x.half(), w),
        "float64": lambda: tt.linear(x, w.double()),
        "shapes": lambda: tt.linear(x, torch.zeros(32, 48)),
        "scalar": lambda: tt.linear(torch.tensor(1.0), w),
        "device": lambda: tt.linear(x, torch.zeros(32, 32, device="meta")),
        "in features": lambda: tt.linear(torch.zeros(32, 24), torch.zeros(32, 24)),
        "recipe": lambda: tt.linear(x, w, recipe="int4"),
        "layer": lambda: tt.linear(x, w, layer=-1),
        "key shape": lambda: tt.linear(x, w, key=torch.zeros(3, dtype=torch.int64)),
        "key dtype": lambda: tt.linear(x, w, key=torch.zeros(2)),
        "unknown number": lambda: ops.linear_forward(x, w, key, 12345, 0, True),
        "vector": lambda: ops.linear_forward(x[0], w, key, number, 0, True),
        "strides": lambda: ops.linear_forward(torch.zeros(32, 64)[:, ::2], w, key, number, 0, True),
        "saved": lambda: ops.linear_backward(x, w, x, torch.zeros(7, dtype=torch.uint8), key, number, 0, 3),
        "saved dtype": lambda: ops.linear_backward(x, w, x, torch.zeros(7), key, number, 0, 3),
        "saved strides": lambda: ops.linear_backward(x, w, x, torch.zeros(14, dtype=torch.uint8)[::2], key, number, 0, 3),
        "quantize": lambda: tt.quantize(torch.zeros(4, 4, 4)),
        "quantize dtype": lambda: tt.quantize(torch.zeros(16, 16, dtype=torch.int32)),
        "dequantize": lambda: tt.dequantize(tt.quantize(x), torch.float64),
        "codes": lambda: ops.dequantize(torch.zeros(3, dtype=torch.uint8), torch.zeros(3, dtype=torch.uint8), torch.zeros(1),
                                        tt._ops.number_of_quantizer(tetrad.Quantizer()), 16, 16, False),
        "convert twice": lambda: tt.convert(small_model()),
        "convert nothing": lambda: tt.convert(torch.nn.Sequential(torch.nn.ReLU())),
        "convert keeps": lambda: tt.convert(Mlp(), keep=["no_such_layer"]),
        "convert recipe": lambda: tt.convert(Mlp(), {"recipe": "nvfp4", "rht": {"size": 24}}),
        "schedule": lambda: tt.set_schedule(Mlp(), [(0.5, {"forward": "bf16"})], 4),
        "progress": lambda: tt.set_progress(small_model(), 2),
    }  # fmt: skip


@pytest.mark.parametrize("name", bad_calls())
def test_bad_input_is_refused(name):
    with pytest.raises((tetrad.Error, RuntimeError)) as refusal:
        bad_calls()[name]()
    assert str(refusal.value)


def test_a_forked_process_computes():
    x, w = tensors((256, 256), (256, 256))
    expected = bits(tt.linear(x, w, key=KEY))
    child = os.fork()
    if child == 0:
        torch.set_num_threads(1)
        os._exit(0 if bits(tt.linear(x, w, key=KEY)) == expected else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_flush_to_zero_changes_no_bit():
    x, w = tensors((64, 64), (32, 64))
    x *= 1e-39  # subnormal
    expected, codes = bits(tt.linear(x, w, key=KEY)), bits(tt.quantize(x).codes)
    assert any(codes)
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush to zero")
    try:
        assert bits(tt.quantize(x).codes) == codes
        assert bits(tt.linear(x, w, key=KEY)) == expected
    finally:
        torch.set_flush_denormal(False)
