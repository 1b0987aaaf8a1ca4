# SPDX-License-Identifier: Apache-2.0
"""A decoder in plain PyTorch, in double precision: what the engine must compute, written a second time.

It shares nothing with the engine but the names of the weights in a checkpoint. Mamba-2 is the sequential
recurrence, attention the whole score matrix, gradients come from autograd.
"""

import math

import torch
import torch.nn.functional as F


def rms_norm(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def rope_frequencies(rope, dim):
    frequencies = float(rope["theta"]) ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    scaling = rope.get("scaling")
    if not scaling:
        return frequencies
    context, factor = scaling["original_context"], scaling["factor"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    wavelength = 2 * math.pi / frequencies
    blend = ((context / wavelength - low) / (high - low)).clamp(0, 1)
    return (1 - blend) * frequencies / factor + blend * frequencies


def rotate(x, frequencies):
    """x: [batch, heads, time, dim], halves paired."""
    angles = torch.arange(x.shape[2], dtype=torch.float64)[:, None] * frequencies
    cos, sin = angles.cos(), angles.sin()
    left, right = x.chunk(2, dim=-1)
    return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1)


class Reference:
    """`config` is the `model` section of a resolved configuration; `weights` maps names to tensors."""

    def __init__(self, config, weights):
        self.config = config
        self.weights = {name: tensor.double().requires_grad_() for name, tensor in weights.items()}

    def logits(self, tokens):
        config, weights = self.config, self.weights
        x = weights["embedding.weight"][tokens]
        mixers = {"*": self.attention, "-": self.feed_forward, "M": self.mamba2}
        for index, letter in enumerate(config["pattern"]):
            prefix = f"blocks.{index}."
            x = x + mixers[letter](rms_norm(x, weights[prefix + "norm.weight"], config["norm_epsilon"]), prefix)
        x = rms_norm(x, weights["norm.weight"], config["norm_epsilon"])
        return x @ weights["embedding.weight" if config["tied"] else "head.weight"].T

    def loss(self, tokens):
        logits = self.logits(tokens[:, :-1])
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1))

    def attention(self, x, prefix):
        config = self.config
        heads, kv_heads, dim = config["heads"], config["kv_heads"], config["head_dim"]
        batch, time, _ = x.shape
        qkv = (x @ self.weights[prefix + "qkv.weight"].T).view(batch, time, heads + 2 * kv_heads, dim).transpose(1, 2)
        q, k, v = qkv.split([heads, kv_heads, kv_heads], dim=1)
        if config.get("qk_norm"):
            q, k = (rms_norm(t, self.weights[prefix + name], config["norm_epsilon"])
                    for t, name in ((q, "q_norm.weight"), (k, "k_norm.weight")))
        if config.get("rope"):
            frequencies = rope_frequencies(config["rope"], dim)
            q, k = rotate(q, frequencies), rotate(k, frequencies)
        k, v = (t.repeat_interleave(heads // kv_heads, dim=1) for t in (k, v))
        scores = q @ k.transpose(-1, -2) / math.sqrt(dim)
        future = torch.ones(time, time, dtype=torch.bool).triu(1)
        out = scores.masked_fill(future, -math.inf).softmax(-1) @ v
        return out.transpose(1, 2).reshape(batch, time, heads * dim) @ self.weights[prefix + "out.weight"].T

    def feed_forward(self, x, prefix):
        up = x @ self.weights[prefix + "up.weight"].T
        if self.config["activation"] == "swiglu":
            gate, up = up.chunk(2, dim=-1)
            hidden = F.silu(gate) * up
        else:
            hidden = F.relu(up).square()
        return hidden @ self.weights[prefix + "down.weight"].T

    def mamba2(self, x, prefix):
        mamba, w = self.config["mamba"], lambda name: self.weights[prefix + name]
        heads, dim, groups, state = mamba["heads"], mamba["head_dim"], mamba["groups"], mamba["state"]
        inner, batch, time = heads * dim, x.shape[0], x.shape[1]
        z, xbc, dt = (x @ w("in.weight").T).split([inner, inner + 2 * groups * state, heads], dim=-1)
        padded = F.pad(xbc.transpose(1, 2), (mamba["conv"] - 1, 0))
        xbc = F.silu(F.conv1d(padded, w("conv.weight")[:, None], w("conv.bias"), groups=xbc.shape[-1])).transpose(1, 2)
        u, b, c = xbc.split([inner, groups * state, groups * state], dim=-1)
        u = u.view(batch, time, heads, dim)
        b, c = (t.view(batch, time, groups, state).repeat_interleave(heads // groups, dim=2) for t in (b, c))
        dt = F.softplus(dt + w("dt_bias"))
        decay = torch.exp(-dt * w("a_log").exp())
        memory = torch.zeros(batch, heads, dim, state, dtype=x.dtype)
        outputs = []
        for t in range(time):
            drive = dt[:, t, :, None, None] * u[:, t, :, :, None] * b[:, t, :, None, :]
            memory = memory * decay[:, t, :, None, None] + drive
            outputs.append((memory * c[:, t, :, None, :]).sum(-1) + w("d")[:, None] * u[:, t])
        gated = torch.stack(outputs, dim=1).reshape(batch, time, inner) * F.silu(z)
        normed = rms_norm(gated.view(batch, time, groups, -1), 1.0, self.config["norm_epsilon"])
        return (normed.reshape(batch, time, inner) * w("gated_norm.weight")) @ w("out.weight").T
