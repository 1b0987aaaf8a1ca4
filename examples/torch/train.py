# SPDX-License-Identifier: Apache-2.0
"""A small Llama over the bytes of text files, in BF16 and in NVFP4, and what four bits cost: with --seeds several times, each
time from other weights and on other places of the text, which both precisions share.

python examples/torch/train.py docs/*.md --steps 200 --seeds 3
"""

import argparse
import copy
import math
from pathlib import Path
from statistics import mean, stdev

import torch
import torch.nn.functional as F
from torch import nn

import tetrad.torch as tt


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        inner = 8 * width // 3 // 16 * 16
        self.gate_up, self.down = nn.Linear(width, 2 * inner, bias=False), nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)


class Llama(nn.Module):
    def __init__(self, width: int = 128, blocks: int = 4, heads: int = 4) -> None:
        super().__init__()
        self.embedding = nn.Embedding(256, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(blocks))
        self.norm = nn.RMSNorm(width)
        self.lm_head = nn.Linear(width, 256, bias=False)
        self.half = width // heads // 2
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        place = torch.arange(tokens.shape[1], device=tokens.device)
        angles = place[:, None] * 10000 ** (-torch.arange(self.half, device=tokens.device) / self.half)
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, angles.cos(), angles.sin())
        return self.lm_head(self.norm(x))


def batch_of(data: torch.Tensor, seed: int, step: int, batch: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed << 32 | step)
    starts = torch.randint(len(data) - length - 1, (batch,), generator=generator)
    rows = torch.stack([data[start : start + length + 1] for start in starts]).long()
    return rows[:, :-1], rows[:, 1:]


def train(model: nn.Module, data: torch.Tensor, steps: int, seed: int, device: str) -> float:
    """Returns the mean loss of the last tenth."""
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.95), weight_decay=0.1)
    losses = []
    warmup = 20
    for step in range(steps):
        for group in optimizer.param_groups:
            progress = max(0, step - warmup) / max(1, steps - warmup)
            group["lr"] = 2e-3 * min(1, (step + 1) / warmup) * (1 + math.cos(math.pi * progress)) / 2
        x, y = (tensor.to(device) for tensor in batch_of(data, seed, step, 8, 128))
        with torch.autocast(device, dtype=torch.bfloat16):
            logits = model(x)
        loss = F.cross_entropy(logits.float().flatten(0, 1), y.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        if step % max(steps // 10, 1) == 0:
            print(f"  step {step:5}  loss {loss.item():.4f}", flush=True)
    return mean(losses[-max(steps // 10, 1) :])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--recipe", default="nvfp4")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    text = b"".join(path.read_bytes() for path in options.files)
    data = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    gaps = []
    for seed in range(1, options.seeds + 1):
        torch.manual_seed(seed)
        reference = Llama()
        quantized = tt.convert(copy.deepcopy(reference), options.recipe, keep=["lm_head"], seed=seed)
        print(f"seed {seed}: bf16")
        plain = train(reference, data, options.steps, seed, options.device)
        print(f"seed {seed}: {options.recipe}")
        ours = train(quantized, data, options.steps, seed, options.device)
        gaps.append(100 * (ours / plain - 1))
        print(f"bf16 {plain:.4f}, {options.recipe} {ours:.4f}: {gaps[-1]:+.2f} %", flush=True)
    if len(gaps) > 1:
        print(f"{options.seeds} seeds: {mean(gaps):+.2f} %, standard error {stdev(gaps) / math.sqrt(len(gaps)):.2f}")


if __name__ == "__main__":
    main()
