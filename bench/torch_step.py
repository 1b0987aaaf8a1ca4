# SPDX-License-Identifier: Apache-2.0
"""The peer: a training step of the quickstart model in PyTorch on the CPU, in turns with `tetrad bench step`.

    build/crosscheck-venv/bin/python bench/torch_step.py build/tetrad [--threads 2] [--compile]

Prints tokens/s of PyTorch in f32 and in BF16 (autocast; AdamW fused), of Tetrad's BF16 step measured right before and
after, and the ratio to the faster of PyTorch's two.
"""

import argparse
import json
import statistics
import subprocess
import time

import torch
import torch.nn.functional as F
from torch import nn

# The preset `quickstart`.
HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, FFN, VOCAB = 128, 4, 4, 2, 32, 384, 256


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm = nn.RMSNorm(HIDDEN, eps=1e-5)
        self.qkv = nn.Linear(HIDDEN, (HEADS + 2 * KV_HEADS) * HEAD_DIM, bias=False)
        self.out = nn.Linear(HEADS * HEAD_DIM, HIDDEN, bias=False)
        self.ffn_norm = nn.RMSNorm(HIDDEN, eps=1e-5)
        self.up = nn.Linear(HIDDEN, 2 * FFN, bias=False)
        self.down = nn.Linear(FFN, HIDDEN, bias=False)

    def forward(self, x, cos, sin):
        batch, time_, _ = x.shape
        qkv = self.qkv(self.attention_norm(x)).view(batch, time_, HEADS + 2 * KV_HEADS, HEAD_DIM).transpose(1, 2)
        qk, v = qkv[:, : HEADS + KV_HEADS], qkv[:, HEADS + KV_HEADS :]
        left, right = qk.chunk(2, dim=-1)
        qk = torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1).to(v.dtype)
        q, k = qk[:, :HEADS], qk[:, HEADS:]
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, time_, HEADS * HEAD_DIM))
        gate, up = self.up(self.ffn_norm(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Llama(nn.Module):
    def __init__(self, sequence):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(HIDDEN, eps=1e-5)
        frequencies = 10000.0 ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
        angles = torch.arange(sequence)[:, None] * frequencies
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return F.linear(self.norm(x), self.embedding.weight)


def torch_tokens_per_s(autocast, batch, sequence, repeats, compiled):
    torch.manual_seed(0)
    model = Llama(sequence)
    forward = torch.compile(model) if compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    tokens = torch.randint(0, VOCAB, (batch, sequence + 1))
    times = []
    for _ in range(repeats + 3):
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            logits = forward(tokens[:, :-1])
        loss = F.cross_entropy(logits.float().reshape(-1, VOCAB), tokens[:, 1:].reshape(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        times.append(time.perf_counter() - begin)
    return batch * sequence / statistics.median(times[3:])


def tetrad_tokens_per_s(binary, batch, sequence, threads):
    command = [binary, "bench", "step", "--batch", str(batch), "--sequence", str(sequence), "--threads", str(threads), "--json"]
    figures = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["figures"]
    return next(f["value"] for f in figures if f["name"] == "bf16 step")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--sequence", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--compile", action="store_true", help="torch.compile (needs a C++ compiler)")
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    ours = [tetrad_tokens_per_s(a.binary, a.batch, a.sequence, a.threads)]
    theirs = {}
    for compiled in ([False, True] if a.compile else [False]):
        for name, autocast in (("f32", False), ("bf16", True)):
            label = f"PyTorch {torch.__version__} {name}{', compiled' if compiled else ''}"
            theirs[label] = torch_tokens_per_s(autocast, a.batch, a.sequence, a.repeats, compiled)
            print(f"{label:<40} {theirs[label]:9.0f} tokens/s")
    ours.append(tetrad_tokens_per_s(a.binary, a.batch, a.sequence, a.threads))
    print(f"{'Tetrad bf16, before and after':<40} {ours[0]:9.0f} {ours[1]:9.0f} tokens/s")
    print(f"Tetrad over the fastest PyTorch: {min(ours) / max(theirs.values()):.2f}")


if __name__ == "__main__":
    main()
