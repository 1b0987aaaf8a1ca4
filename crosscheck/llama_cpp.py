# SPDX-License-Identifier: Apache-2.0
"""Our GGUF files in llama.cpp itself, in NVFP4 and in BF16: its tokens of a text, and its distribution of the next token after
some prompts, against what we compute in f32 from the very values in the file."""

import argparse
import json
import pathlib
import sys
import tempfile
import urllib.request

import torch
import xllamacpp
from safetensors.torch import load_file

from run import HERE, tetrad

# Largest difference of two log-probabilities, in nats. llama.cpp rounds what it multiplies weights with: to BF16, or to 8 bits
# for NVFP4. A mistake in the order of rows, in positions or in the halves of the feed-forward layer makes it 2 and more.
TOLERANCE = 0.05
PROMPTS, TOKENS = 6, 40
SIZES = ["model.hidden=128", "model.ffn=192", "train.steps=60", "precision.high_precision.first=1",
         "precision.high_precision.last=1"]
TEXT = "def f(x): return x + 12345  # naïve 漢字🙂\t'tis\n\n    the  end"


def our_distributions(binary, checkpoint, prompts, folder):
    (folder / "ids.txt").write_text("\n".join(" ".join(map(str, ids)) for ids in prompts) + "\n")
    tetrad(binary, "score", str(checkpoint), "--tokens", "ids.txt", "--logits", "logits.safetensors", "--precision", "f32",
           "--json", cwd=folder)
    logits = load_file(folder / "logits.safetensors")
    return torch.stack([logits[f"line.{i}"][-1].double().log_softmax(0) for i in range(len(prompts))])


def start_server(path):
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(path)
    parameters.n_ctx = TOKENS + 8
    parameters.n_parallel = 1
    parameters.warmup = False
    parameters.verbosity = -1
    parameters.cpuparams.n_threads = 1
    parameters.cache_type_k = parameters.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    return xllamacpp.Server(parameters)


def their_tokens(server, text):
    request = urllib.request.Request(server.listening_address + "/tokenize", json.dumps({"content": text}).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)["tokens"]


def their_distributions(server, prompts, vocab):
    result = torch.full((len(prompts), vocab), float("nan"), dtype=torch.float64)
    for row, ids in zip(result, prompts, strict=True):
        reply = server.handle_completions({"prompt": ids, "max_tokens": 1, "logprobs": vocab, "temperature": 1.0})
        reply = json.loads(reply) if isinstance(reply, str) else reply
        for token in reply["choices"][0]["logprobs"]["content"][0]["top_logprobs"]:
            row[token["id"]] = token["logprob"]
    return result


def check(binary, name, precision, prompts, tokens, folder):
    path, imported = folder / f"{name}-{precision}.gguf", folder / f"{name}-{precision}"
    tetrad(binary, "export", f"run-{name}", "-o", str(path), "--to", "gguf", "--precision", precision, cwd=folder)
    tetrad(binary, "import", str(path), "-o", str(imported), cwd=folder)
    ours = our_distributions(binary, imported, prompts, folder)
    server = start_server(path)
    difference = (their_distributions(server, prompts, ours.shape[1]) - ours).abs().max().item()
    same_tokens = their_tokens(server, TEXT) == tokens
    is_good = difference <= TOLERANCE and same_tokens  # NaN, for a token that is missing, is not good
    print(f"  {'ok     ' if is_good else 'DIFFERS'} {name}, {precision}: largest difference of {ours.numel()} log-probabilities "
          f"{difference:.1e} (at most {TOLERANCE}); {len(tokens)} tokens {'equal' if same_tokens else 'DIFFER'}")
    return is_good


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("binary", type=pathlib.Path, help="build/tetrad")
    binary = str(parser.parse_args().binary.resolve())
    text = (HERE / "reference.py").read_bytes()
    prompts = [list(text[500 * i: 500 * i + TOKENS]) for i in range(PROMPTS)]
    good = True
    print(f"against llama.cpp of xllamacpp {xllamacpp.__version__}")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        # fewer tokens than the models have room for
        tetrad(binary, "tokenizer", "train", str(HERE), "-o", "tokenizer.json", "--vocab", "270", cwd=folder)
        for model, tokenizer in (("llama", "tokenizer.json"), ("qwen3", "tokenizer.json"), ("hybrid", "bytes")):
            tetrad(binary, "data", "prepare", str(HERE), "-o", model, "--tokenizer", tokenizer, cwd=folder)
            tetrad(binary, "train", str(HERE / f"{model}.yaml"), "--out", f"run-{model}", f"data.sources.synthetic={model}",
                   *SIZES, cwd=folder)
            tokens = list(map(int, tetrad(binary, "tokenizer", "encode", tokenizer, TEXT, cwd=folder).split()))
            for precision in ("trained", "bf16"):
                good &= check(binary, model, precision, prompts, tokens, folder)
    print("llama.cpp:", "agrees" if good else "DIFFERS")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
