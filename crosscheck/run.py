# SPDX-License-Identifier: Apache-2.0
"""Trains a small Llama, a small Qwen3 and a small hybrid model for a few steps, then computes logits, loss and every parameter's
gradient of the checkpoints with reference.py and compares them with what the engine says in f32."""

import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import torch
import yaml
from safetensors.torch import load_file

from reference import Reference

HERE = pathlib.Path(__file__).resolve().parent
# Largest difference, relative to the largest magnitude of the tensor. The engine rounds every operation to f32
# (6e-8); sums over some hundred terms and a handful of layers make that about 1e-6.
LOGITS_TOLERANCE = 1e-5
GRADIENT_TOLERANCE = 5e-5
LOSS_TOLERANCE = 1e-6


def tetrad(binary, *arguments, cwd):
    result = subprocess.run([binary, *arguments], cwd=cwd, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"tetrad {' '.join(arguments)} failed:\n{result.stderr}")
    return result.stdout


def relative_difference(actual, expected):
    return ((actual.double() - expected).abs().max() / expected.abs().max().clamp_min(1e-300)).item()


def check(binary, config, folder):
    tetrad(binary, "train", str(config), "--out", config.stem, cwd=folder)
    checkpoint = sorted((folder / config.stem / "checkpoints").glob("step-*"), key=lambda p: int(p.name[5:]))[-1]
    model = yaml.safe_load((checkpoint / "config.yaml").read_text())["model"]
    if model.get("rope") == "none":
        model["rope"] = None
    elif model["rope"].get("scaling") == "none":
        model["rope"]["scaling"] = None

    generator = random.Random(1)
    tokens = [[generator.randrange(model["vocab"]) for _ in range(65)] for _ in range(4)]
    (folder / "ids.txt").write_text("\n".join(" ".join(map(str, line)) for line in tokens) + "\n")
    scores = json.loads(tetrad(binary, "score", str(checkpoint), "--tokens", "ids.txt", "--logits", "logits.safetensors",
                               "--gradients", "gradients.safetensors", "--precision", "f32", "--json", cwd=folder))
    reference = Reference(model, load_file(checkpoint / "model.safetensors"))
    ids = torch.tensor(tokens)
    expected_logits = reference.logits(ids)
    loss = reference.loss(ids)
    loss.backward()

    worst = []
    logits = load_file(folder / "logits.safetensors")
    for line in range(len(tokens)):
        worst.append(("logits", relative_difference(logits[f"line.{line}"], expected_logits[line].detach()), LOGITS_TOLERANCE))
    values = [p for line in scores["lines"] for p in line["logprobs"][1:]]
    worst.append(("loss", abs(-sum(values) / len(values) - loss.item()) / loss.item(), LOSS_TOLERANCE))
    gradients = load_file(folder / "gradients.safetensors")
    if gradients.keys() != reference.weights.keys():
        sys.exit(f"parameters differ: {sorted(gradients.keys() ^ reference.weights.keys())}")
    for name, weight in reference.weights.items():
        worst.append((f"gradient of {name}", relative_difference(gradients[name], weight.grad), GRADIENT_TOLERANCE))

    failed = [entry for entry in worst if not entry[1] <= entry[2]]
    for kind in ("logits", "loss", "gradient"):
        name, difference, tolerance = max((e for e in worst if e[0].startswith(kind)), key=lambda e: e[1])
        print(f"  {kind:<9} largest relative difference {difference:.1e} (at most {tolerance:.0e} allowed), {name}")
    print(f"  {len(gradients)} parameters compared")
    for name, difference, tolerance in failed:
        print(f"  DIFFERS: {name}: {difference:.2e} > {tolerance:.0e}")
    return not failed


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("binary", type=pathlib.Path, help="build/tetrad")
    arguments = parser.parse_args()
    binary = str(arguments.binary.resolve())
    torch.manual_seed(0)
    good = True
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        tetrad(binary, "data", "synth", "markov", "-o", "crosscheck-data", "--vocab", "272", "--tokens", "20000", cwd=folder)
        for config in (HERE / "llama.yaml", HERE / "qwen3.yaml", HERE / "hybrid.yaml"):
            print(f"{config.stem}: against PyTorch {torch.__version__} in double precision")
            good &= check(binary, config, folder)
    print("crosscheck:", "agrees" if good else "DIFFERS")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
