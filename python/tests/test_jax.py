# SPDX-License-Identifier: Apache-2.0
"""JAX on the CPU, as four devices: bits, transformations, sharding, Flax."""

import os

import numpy as np
import pytest

from conftest import KEY, RECIPES

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"

import tetrad

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax.sharding import AxisType, NamedSharding, PartitionSpec  # noqa: E402

import tetrad.jax as tj  # noqa: E402


def arrays(rng, *shapes, dtype=np.float32):
    return [rng.standard_normal(shape, dtype=np.float32).astype(dtype) for shape in shapes]


def same(a, b):
    return np.asarray(a).tobytes() == np.asarray(b).tobytes()


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16], ids=str)
@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_a_layer_gives_the_bits_of_the_c_interface(recipe, dtype, rng):
    x, dy = arrays(rng, (128, 64), (128, 192), dtype=dtype)
    (w,) = arrays(rng, (192, 64))
    y, pullback = jax.vjp(lambda x, w: tj.linear(x, w, key=KEY, layer=5, recipe=recipe), x, w)
    dx, dw = pullback(jnp.asarray(dy))
    expected_dx, expected_dw = tetrad.linear_gradients(dy, x, w, key=KEY, layer=5, recipe=recipe)
    assert same(y, tetrad.linear(x, w, key=KEY, layer=5, recipe=recipe))
    assert same(dx, expected_dx)
    assert same(dw, expected_dw)


def test_torch_gives_the_same_bits(rng):
    torch = pytest.importorskip("torch")
    import tetrad.torch as tt

    x, dy, w = arrays(rng, (64, 96), (64, 48), (48, 96))
    y, pullback = jax.vjp(lambda x, w: tj.linear(x, w, key=KEY, layer=9), x, w)
    dx, dw = pullback(jnp.asarray(dy))
    tx, tw = torch.tensor(x, requires_grad=True), torch.tensor(w, requires_grad=True)
    ty = tt.linear(tx, tw, key=KEY, layer=9)
    ty.backward(torch.tensor(dy))
    assert same(y, ty.detach().numpy()) and same(dx, tx.grad.numpy()) and same(dw, tw.grad.numpy())


@pytest.mark.parametrize(
    "options",
    [{}, {"axis": 0, "rounding": "stochastic", "hadamard": 16}, {"format": "mxfp4"}, {"format": "fp8", "block": "tensor"}],
    ids=str,
)
def test_quantizers_give_numpys_bytes(options, rng):
    (x,) = arrays(rng, (128, 256))
    q = jax.jit(lambda x: tj.quantize(x, key=KEY, tensor="w", **options))(x)
    expected = tetrad.quantize(x, key=KEY, tensor="w", **options)
    assert same(q.codes, expected.codes) and same(q.scales, expected.scales) and same(q.amax, expected.amax)
    assert q.scales.shape == expected.scales.shape
    assert same(jax.jit(lambda q: q.dequantize())(q), expected.dequantize())


def test_jit_and_remat_change_no_bit(rng):
    x, w = arrays(rng, (64, 64), (64, 64))

    def loss(w, x, key, wrap=lambda f: f):
        layer = wrap(lambda x, w: jnp.tanh(tj.linear(x, w, key=key)))
        return (layer(layer(x, w), w) ** 2).sum()

    eager = jax.grad(loss)(w, x, tj.make_key(*KEY))
    assert same(jax.jit(jax.grad(loss))(w, x, tj.make_key(*KEY)), eager)
    assert same(jax.jit(jax.grad(lambda *a: loss(*a, wrap=jax.checkpoint)))(w, x, tj.make_key(*KEY)), eager)
    assert not same(jax.grad(loss)(w, x, tj.make_key(1)), eager)


def test_subnormals_count_on_xlas_threads(rng):
    """XLA's threads flush them to zero."""
    x = arrays(rng, (256, 256))[0] * np.float32(1e-39)
    q = jax.jit(tj.quantize)(x)
    assert same(q.codes, tetrad.quantize(x).codes) and np.asarray(q.codes).any()


def test_keys_of_jax_are_keys(rng):
    x, w, dy = arrays(rng, (64, 64), (64, 64), (64, 64))

    def dw(key):
        return jax.vjp(lambda w: tj.linear(x, w, key=key), w)[1](jnp.asarray(dy))[0]

    typed, words = jax.random.key(77), jax.random.PRNGKey(77)
    assert same(dw(typed), dw(words))
    assert not same(dw(typed), dw(jax.random.key(78)))
    assert same(dw(tj.make_key(5, 1, 2)), dw((5, 1, 2)))
    assert same(dw(tj.fold_in((5, 1, 2), 7)), dw((5, 1, 9)))


def mesh_of_four(axis_type):
    return jax.make_mesh((4,), ("data",), axis_types=(axis_type,))


def test_sharded_tokens_stay_sharded(rng):
    mesh = mesh_of_four(AxisType.Auto)
    x, w, dy = arrays(rng, (256, 64), (96, 64), (256, 96))
    rows = NamedSharding(mesh, PartitionSpec("data"))
    xs, dys = jax.device_put(x, rows), jax.device_put(dy, rows)

    @jax.jit
    def run(x, w, dy):
        y, pullback = jax.vjp(lambda x, w: tj.linear(x, w, key=KEY, layer=2), x, w)
        return y, *pullback(dy)

    y, dx, dw = run(xs, w, dys)
    for array in (y, dx):
        assert array.sharding.is_equivalent_to(rows, 2), array.sharding
    parts = []
    for device in range(4):
        own, key = slice(64 * device, 64 * device + 64), KEY._replace(microbatch=KEY.microbatch + (device << 16))
        assert same(y[own], tetrad.linear(x[own], w, key=key, layer=2))
        part_dx, part_dw = tetrad.linear_gradients(dy[own], x[own], w, key=key, layer=2)
        assert same(dx[own], part_dx)
        parts.append(part_dw)
    assert np.allclose(dw, sum(parts), rtol=1e-5, atol=1e-4)


def test_shard_map_computes_the_parts(rng):
    mesh = mesh_of_four(AxisType.Auto)
    x, w = arrays(rng, (256, 64), (96, 64))

    def part(x, w):
        return tj.linear(x, w, key=tj.fold_in(KEY, jax.lax.axis_index("data")))

    y = jax.jit(jax.shard_map(part, mesh=mesh, in_specs=(PartitionSpec("data"), PartitionSpec()), out_specs=PartitionSpec("data")))(x, w)
    assert same(y, np.concatenate([tetrad.linear(x[64 * i : 64 * i + 64], w) for i in range(4)]))


def test_leading_dimensions_and_odd_tokens(rng):
    x, w = arrays(rng, (2, 19, 64), (32, 64))
    y = tj.linear(x, w)
    assert y.shape == (2, 19, 32)
    padded = np.zeros((48, 64), np.float32)
    padded[:38] = x.reshape(38, 64)
    assert same(y.reshape(38, 32), tetrad.linear(padded, w)[:38])
    assert tj.linear(x[:, :0], w).shape == (2, 0, 32)


def test_dot_general_is_linear(rng):
    x, kernel = arrays(rng, (4, 16, 64), (64, 2, 32))
    y = tj.dot_general(x, kernel, (((2,), (0,)), ((), ())), key=KEY)
    assert same(y.reshape(64, 64), tetrad.linear(x.reshape(64, 64), kernel.reshape(64, 64).T, key=KEY))
    swapped = tj.dot_general(x, np.moveaxis(kernel, 0, 2), (((2,), (2,)), ((), ())), key=KEY, preferred_element_type=jnp.bfloat16)
    assert swapped.dtype == jnp.bfloat16 and same(swapped, y.astype(jnp.bfloat16))


@pytest.mark.parametrize("give", ["object", "class", "maxtext"])
def test_flax_layers_take_it(give, rng):
    nn = pytest.importorskip("flax.linen")
    options = {
        "object": {"dot_general": tj.make_dot_general_cls("nvfp4")()},
        "class": {"dot_general_cls": tj.make_dot_general_cls("nvfp4")},
        "maxtext": {"dot_general_cls": tj.Quant("nvfp4").dot_general_cls()},
    }[give]
    (x,) = arrays(rng, (64, 64))

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x):
            for _ in range(2):
                x = nn.tanh(nn.Dense(64, **options)(x))
            return x

    model = Model()
    variables = model.init({"params": jax.random.key(0)}, x)
    assert set(variables) == {"params"}
    gradient = jax.jit(jax.grad(lambda v, k: (model.apply(v, x, rngs={"sr_rng": k}) ** 2).sum()))
    first, again, other = (gradient(variables, jax.random.key(seed)) for seed in (1, 1, 2))
    kernels = [tree["params"]["Dense_0"]["kernel"] for tree in (first, again, other)]
    assert same(kernels[0], kernels[1]) and not same(kernels[0], kernels[2])


def bad_calls():
    x = jnp.zeros((32, 32))
    batch = (((2,), (1,)), ((0,), (0,)))
    return {
        "vmap": lambda: jax.vmap(lambda x: tj.linear(x, jnp.zeros((32, 32))))(jnp.zeros((2, 32, 32))),
        "shapes": lambda: tj.linear(x, jnp.zeros((32, 48))),
        "dtype": lambda: tj.linear(x, jnp.zeros((32, 32), jnp.int32)),
        "features": lambda: jax.block_until_ready(tj.linear(jnp.zeros((32, 24)), jnp.zeros((32, 24)))),
        "recipe": lambda: tj.linear(x, x, recipe="int4"),
        "layer": lambda: tj.linear(x, x, layer=-1),
        "key": lambda: tj.linear(x, x, key=jnp.zeros(3, jnp.uint32)),
        "quantize": lambda: tj.quantize(jnp.zeros((4, 4, 4))),
        "quantize shape": lambda: tj.quantize(jnp.zeros((16, 20))),
        "batch": lambda: tj.dot_general(jnp.zeros((2, 16, 16)), jnp.zeros((2, 16, 16)), batch),
        "middle": lambda: tj.dot_general(jnp.zeros((16, 2, 16)), x, (((0,), (0,)), ((), ()))),
    }


@pytest.mark.parametrize("name", bad_calls())
def test_bad_input_is_refused(name):
    with pytest.raises((tetrad.Error, ValueError, RuntimeError)) as refusal:
        bad_calls()[name]()
    assert str(refusal.value)
