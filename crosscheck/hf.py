# SPDX-License-Identifier: Apache-2.0
"""Models of ours in the programs of others, and theirs in ours: transformers computes our logits from exports and we
compute its logits from imports; compressed-tensors and gguf decode our NVFP4 exports to what `tetrad quantize` makes of
the same weights."""

import argparse
import json
import pathlib
import random
import sys
import tempfile

import gguf
import numpy
import torch
import transformers
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationConfig
from safetensors.torch import load_file, save_file

from run import HERE, relative_difference, tetrad

# Largest difference of two logits, relative to the largest logit: both compute in f32.
LOGITS_TOLERANCE = 1e-4
# Relative difference of a layer's largest input: the calibration runs in NVFP4, transformers in f32.
INPUT_TOLERANCE = 0.25
# The same of logits with inputs of four bits, whose scales we take from the tensor and transformers from the calibration;
# nothing that is loaded wrongly stays within it.
SERVED_TOLERANCE = 0.2
TOKENS = 48
# 64 divides every row, as NVFP4 in GGUF needs it.
WIDE = ["model.hidden=128", "model.ffn=192"]


class Report:
    def __init__(self):
        self.good = True

    def expect(self, what, is_good, detail=""):
        print(f"  {'ok     ' if is_good else 'DIFFERS'} {what} {detail}")
        self.good &= bool(is_good)


def newest_checkpoint(run):
    return sorted((run / "checkpoints").glob("step-*"), key=lambda path: int(path.name[5:]))[-1]


def our_logits(binary, checkpoint, ids, folder, precision="f32"):
    (folder / "ids.txt").write_text("\n".join(" ".join(map(str, line)) for line in ids.tolist()) + "\n")
    tetrad(binary, "score", str(checkpoint), "--tokens", "ids.txt", "--logits", "logits.safetensors", "--precision", precision,
           "--json", cwd=folder)
    logits = load_file(folder / "logits.safetensors")
    return torch.stack([logits[f"line.{i}"] for i in range(len(ids))])


def their_logits(model, ids):
    with torch.no_grad():
        return model.eval()(ids, use_cache=False).logits


def load_theirs(path, **options):
    model, info = transformers.AutoModelForCausalLM.from_pretrained(path, output_loading_info=True, **options)
    return model, {key: sorted(value) for key, value in info.items() if value}


def check_exports(binary, run, name, folder, report):
    """transformers loads what we export, with nothing missing and nothing left over."""
    ids = torch.tensor([[random.Random(i).randrange(272) for _ in range(TOKENS)] for i in range(3)])
    ours = our_logits(binary, run, ids, folder)
    for shards, size in (("one file", "5"), ("shards", "0.0002")):
        out = folder / f"{name}-hf-{size}"
        tetrad(binary, "export", str(run), "-o", str(out), "--to", "hf", "--dtype", "f32", "--shard-gb", size, cwd=folder)
        check_export(out, f"{name}: export, {shards}", ids, ours, report)


def check_export(path, what, ids, ours, report):
    model, problems = load_theirs(path, dtype=torch.float32)
    difference = relative_difference(their_logits(model, ids), ours.double())
    report.expect(f"{what}, {type(model).__name__}", difference <= LOGITS_TOLERANCE and not problems,
                  f"logits differ by {difference:.1e} (at most {LOGITS_TOLERANCE:.0e}) {problems or ''}")


def check_tokenizers(binary, folder, report):
    """The tokenizer of an export, in transformers."""
    text = (HERE / "hf.py").read_text() + "\n\n  Zwölf Boxkämpfer jagen Víktor quer über 漢字🙂\t<|endoftext|>'s 1234  "
    ours = ["bytes", str(folder / "tokenizer.json")]
    tetrad(binary, "tokenizer", "train", str(HERE), "-o", ours[1], "--vocab", "272", cwd=folder)
    for index, tokenizer in enumerate(ours):
        tetrad(binary, "data", "prepare", str(HERE), "-o", f"text-{index}", "--tokenizer", tokenizer, cwd=folder)
        tetrad(binary, "train", str(HERE / "llama.yaml"), "--out", f"text-run-{index}", "train.steps=1",
               f"data.sources.synthetic=text-{index}", cwd=folder)
        out = folder / f"text-hf-{index}"
        tetrad(binary, "export", f"text-run-{index}", "-o", str(out), cwd=folder)
        theirs = transformers.AutoTokenizer.from_pretrained(out)
        if tokenizer == "bytes":
            text = text.replace("<|endoftext|>", "")
            expected = list(text.encode())
        else:
            expected = list(map(int, tetrad(binary, "tokenizer", "encode", tokenizer, text, cwd=folder).split()))
        report.expect(f"tokenizer of an export, {pathlib.Path(tokenizer).name}", theirs.encode(text) == expected,
                      f"{len(expected)} tokens")


def random_models():
    common = dict(vocab_size=272, hidden_size=96, intermediate_size=176, num_attention_heads=4, num_key_value_heads=2,
                  head_dim=32, max_position_embeddings=256, initializer_range=0.1)
    llama3 = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
              "original_max_position_embeddings": 64}
    yield "untied Llama", transformers.LlamaConfig(**common, num_hidden_layers=3, rms_norm_eps=1e-5)
    yield "tied Llama, llama3 positions", transformers.LlamaConfig(**common, num_hidden_layers=2, tie_word_embeddings=True,
                                                                   rope_parameters=llama3)
    yield "untied Qwen3", transformers.Qwen3Config(**common, num_hidden_layers=3)
    yield "tied Qwen3, llama3 positions", transformers.Qwen3Config(**common, num_hidden_layers=2, tie_word_embeddings=True,
                                                                   rope_parameters=llama3)
    # transformers takes time_step_min for the least time step of a prompt, and we import models without such a limit.
    yield "Nemotron-H", transformers.NemotronHConfig(
        **common, hybrid_override_pattern="M-M*-M-", mamba_num_heads=8, mamba_head_dim=16, n_groups=2, ssm_state_size=18,
        conv_kernel=4, chunk_size=16, time_step_min=1e-30, time_step_floor=0.01)


def check_imports(binary, folder, report):
    """What transformers saves, of random weights in each type, computes the same here, and there again."""
    ids = torch.tensor([[random.Random(9 + i).randrange(272) for _ in range(TOKENS)] for i in range(3)])
    for index, (name, config) in enumerate(random_models()):
        for dtype, shard in ((torch.float32, "100KB"), (torch.bfloat16, "5GB"), (torch.float16, "5GB")):
            torch.manual_seed(index)
            model = transformers.AutoModelForCausalLM.from_config(config).to(dtype)
            for module in model.modules():
                if hasattr(module, "dt_bias"):
                    module.dt_bias.data -= 3  # short time steps, which a least one would change
                if hasattr(module, "q_norm"):  # ones would hide whose is whose
                    torch.nn.init.normal_(module.q_norm.weight, 1, 0.3)
                    torch.nn.init.normal_(module.k_norm.weight, 1, 0.3)
            out = folder / f"theirs-{index}-{str(dtype)[6:]}"
            model.save_pretrained(out, max_shard_size=shard)
            tetrad(binary, "import", str(out), "-o", str(out) + "-imported", cwd=folder)
            ours = our_logits(binary, str(out) + "-imported", ids, folder)
            difference = relative_difference(ours, their_logits(model.float(), ids).double())
            files = len(list(out.glob("*.safetensors")))
            report.expect(f"{name}: import, {str(dtype)[6:]}, {files} file{'s' if files > 1 else ''}",
                          difference <= LOGITS_TOLERANCE, f"logits differ by {difference:.1e}")
        tetrad(binary, "export", str(out) + "-imported", "-o", str(out) + "-again", "--dtype", "f32", cwd=folder)
        check_export(pathlib.Path(str(out) + "-again"), f"{name}: export of an import", ids, ours, report)


def expected_weights(binary, checkpoint, config, folder):
    """Codes, scales and amax of every linear weight by the name of its HF module, from `tetrad quantize`."""
    weights = load_file(checkpoint / "model.safetensors")
    leaves = ("qkv", "out", "up", "down", "in")
    save_file({name: tensor for name, tensor in weights.items() if name.split(".")[-2] in leaves and tensor.dim() == 2},
              folder / "linears.safetensors")
    tetrad(binary, "quantize", "linears.safetensors", "-o", "quantized.safetensors", "--block", "16x16", cwd=folder)
    quantized = load_file(folder / "quantized.safetensors")
    is_llama = config["model_type"] in ("llama", "qwen3")
    q, kv = (config[key] * config["head_dim"] for key in ("num_attention_heads", "num_key_value_heads"))
    ffn = config["intermediate_size"]
    parts = {"qkv": [("q_proj", q), ("k_proj", kv), ("v_proj", kv)], "down": [("down_proj", None)],
             "up": [("gate_proj", ffn), ("up_proj", ffn)] if is_llama else [("up_proj", None)], "in": [("in_proj", None)]}
    expected = {}
    for name in [name for name in quantized if name.endswith(".codes")]:
        _, block, leaf, *_ = name.split(".")
        base = name[: -len(".codes")]
        is_mamba = f"blocks.{block}.in.weight.codes" in quantized
        cut = parts.get(leaf) or [("out_proj" if is_mamba else "o_proj", None)]
        row = 0
        for part, part_rows in cut:
            rows = part_rows or len(quantized[name])
            module = (f"model.layers.{int(block) // 2}.{'mlp' if leaf in ('up', 'down') else 'self_attn'}.{part}" if is_llama
                      else f"backbone.layers.{block}.mixer.{part}")
            expected[module] = (quantized[base + ".codes"][row: row + rows], quantized[base + ".scales"][row: row + rows],
                                quantized[base + ".amax"])
            row += rows
    return expected


E2M1 = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6], dtype=torch.float64)


def without_tensor_scale(codes, scales):
    """code * block scale, which f64 holds exactly."""
    values = E2M1[torch.stack((codes & 0xF, codes >> 4), dim=-1).flatten(1).long()]
    return values * scales.double().repeat_interleave(16, dim=1)


def check_compressed_tensors(binary, run, name, folder, report):
    out = folder / f"{name}-ct"
    tetrad(binary, "export", str(run), "-o", str(out), "--to", "compressed-tensors", cwd=folder)
    config = json.loads((out / "config.json").read_text())
    expected = expected_weights(binary, newest_checkpoint(run), config, folder)
    quantization = QuantizationConfig.model_validate(config["quantization_config"])
    scheme = quantization.config_groups["group_0"]
    compressor = BaseCompressor.get_value_from_registry(quantization.format)
    tensors = load_file(out / "model.safetensors")
    modules = [key[: -len(".weight_packed")] for key in tensors if key.endswith(".weight_packed")]
    report.expect(f"{name}: compressed-tensors reads the configuration", modules and not set(modules) & set(quantization.ignore)
                  and set(expected) - set(modules) <= set(quantization.ignore),
                  f"{len(modules)} NVFP4 layers, {len(quantization.ignore)} excluded")
    worst, exact, weights = 0.0, True, {}
    for module in modules:
        state = {key.rsplit(".", 1)[1]: value for key, value in tensors.items() if key.startswith(module + ".")}
        codes, scales, amax = expected[module]
        # The package divides block scales by the global one in f32, multiplies, and leaves BF16.
        scale = (scales.float() / (2688 / amax)).repeat_interleave(16, dim=1)
        wanted = without_tensor_scale(codes, torch.ones_like(scales, dtype=torch.float32)).float() * scale
        decompressed = compressor.decompress(state, scheme)["weight"]
        exact &= torch.equal(decompressed, wanted.to(decompressed.dtype))
        worst = max(worst, relative_difference(wanted, without_tensor_scale(codes, scales) * (amax.double() / 2688)))
        weights[module] = decompressed
    report.expect(f"{name}: compressed-tensors decodes the weights of the forward pass", exact and worst < 1e-6,
                  f"to the bit in BF16; {worst:.0e} from code * scale * amax / 2688 before that")
    weights |= {key[: -len(".weight")]: value for key, value in tensors.items() if key.endswith(".weight")}
    check_served(binary, run, name, out, weights, folder, report)


def check_served(binary, run, name, out, weights, folder, report):
    """transformers loads the folder through compressed-tensors: each layer has its weights, and logits are near ours."""
    ids = torch.tensor([[random.Random(i).randrange(272) for _ in range(TOKENS)] for i in range(3)])
    model, problems = load_theirs(out)
    logits = their_logits(model, ids)  # weights are decoded now
    wrong = [module for module, weight in weights.items()
             if not torch.equal(model.get_submodule(module.replace("backbone.", "model.", 1)).weight, weight)]
    report.expect(f"{name}: transformers loads the NVFP4 export", not problems and not wrong,
                  f"{len(weights)} weights {problems or ''} {wrong or ''}")
    difference = relative_difference(logits, our_logits(binary, run, ids, folder, "trained").double())
    report.expect(f"{name}: and computes our logits", difference <= SERVED_TOLERANCE,
                  f"they differ by {difference:.2f} (at most {SERVED_TOLERANCE})")


def largest_inputs(path, modules, folder):
    """Largest |x| that transformers gives each module, over the sequences of the calibration."""
    model, _ = load_theirs(path, dtype=torch.float32)
    amax = {}

    def note(module):
        return lambda _, inputs: amax.update({module: max(amax.get(module, 0.0), inputs[0].abs().max().item())})

    # transformers 5 has the backbone of Nemotron-H as `model`
    names = {name.replace("model.", "backbone.", 1) if path.name.startswith("hybrid") else name: name
             for name, _ in model.named_modules()}
    for module in modules:
        model.get_submodule(names[module]).register_forward_pre_hook(note(module))
    tokens = numpy.fromfile(folder / "crosscheck-data.bin", dtype=numpy.uint16)[: 32 * 64].astype(numpy.int64)
    their_logits(model, torch.from_numpy(tokens).view(32, 64))
    return amax


def check_modelopt(binary, run, name, folder, report):
    out = folder / f"{name}-modelopt"
    tetrad(binary, "export", str(run), "-o", str(out), "--to", "modelopt", cwd=folder)
    config = json.loads((out / "config.json").read_text())
    excluded = json.loads((out / "hf_quant_config.json").read_text())["quantization"]["exclude_modules"]
    expected = expected_weights(binary, newest_checkpoint(run), config, folder)
    tensors = load_file(out / "model.safetensors")
    modules = [key[: -len(".weight_scale_2")] for key in tensors if key.endswith(".weight_scale_2")]
    good = bool(modules) and set(expected) - set(modules) <= set(excluded) and not set(modules) & set(excluded)
    for module in modules:
        codes, scales, amax = expected[module]
        good &= torch.equal(tensors[module + ".weight"], codes)
        good &= torch.equal(tensors[module + ".weight_scale"].view(torch.uint8), scales.view(torch.uint8))
        good &= tensors[module + ".weight_scale_2"] == amax / 2688
        good &= tensors[module + ".input_scale"].shape == torch.Size([])
    report.expect(f"{name}: ModelOpt's tensors are those of the forward pass", good, f"{len(modules)} NVFP4 layers")
    scales = {module: tensors[module + ".input_scale"].item() * 2688 for module in modules}
    amax = largest_inputs(folder / f"{name}-hf-5", modules, folder)
    worst = max(abs(scales[module] / amax[module] - 1) for module in modules)
    report.expect(f"{name}: input scales are those of the inputs", worst <= INPUT_TOLERANCE,
                  f"largest inputs differ by {worst:.0%} (at most {INPUT_TOLERANCE:.0%}) from those in transformers, in f32")


GGUF_LEAVES = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output", "gate_proj": "ffn_gate",
               "up_proj": "ffn_up", "down_proj": "ffn_down", "in_proj": "ssm_in", "out_proj": "ssm_out"}


def check_gguf(binary, run, name, folder, report):
    out = folder / f"{name}.gguf"
    tetrad(binary, "export", str(run), "-o", str(out), "--to", "gguf", cwd=folder)
    config = json.loads((folder / f"{name}-ct" / "config.json").read_text())
    expected = expected_weights(binary, newest_checkpoint(run), config, folder)
    reader = gguf.GGUFReader(out)
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    good, packed = True, 0
    for module, (codes, scales, amax) in expected.items():
        layer, leaf = module.split(".")[2], module.split(".")[-1]
        base = f"blk.{layer}.{GGUF_LEAVES[leaf]}"
        tensor = tensors[base + ".weight"]
        if tensor.tensor_type != gguf.GGMLQuantizationType.NVFP4:
            continue
        packed += 1
        wanted = without_tensor_scale(codes, scales)
        if config["model_type"] == "llama" and leaf in ("q_proj", "k_proj"):
            rows, cols = wanted.shape  # halves of each head to neighbours
            half = config["head_dim"] // 2
            wanted = wanted.view(-1, 2, half, cols).transpose(1, 2).reshape(rows, cols)
        actual = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(numpy.float64)
        good &= numpy.array_equal(actual, wanted.numpy())
        good &= tensors[base + ".scale"].data[0] == (amax / 2688).numpy()
    report.expect(f"{name}: gguf decodes the weights of the forward pass", good and packed > 0,
                  f"{packed} NVFP4 tensors of {len(tensors)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("binary", type=pathlib.Path, help="build/tetrad")
    binary = str(parser.parse_args().binary.resolve())
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    report = Report()
    print(f"against transformers {transformers.__version__}")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        tetrad(binary, "data", "synth", "markov", "-o", "crosscheck-data", "--vocab", "272", "--tokens", "20000", cwd=folder)
        for config in (HERE / "llama.yaml", HERE / "qwen3.yaml", HERE / "hybrid.yaml"):
            run = folder / config.stem
            tetrad(binary, "train", str(config), "--out", str(run), *WIDE, "precision.high_precision.first=1",
                   "precision.high_precision.last=1", cwd=folder)
            check_exports(binary, run, config.stem, folder, report)
            check_compressed_tensors(binary, run, config.stem, folder, report)
            check_modelopt(binary, run, config.stem, folder, report)
            check_gguf(binary, run, config.stem, folder, report)
        for config, tied in (("llama", "false"), ("qwen3", "true"), ("hybrid", "true")):
            run = folder / f"{config}-tied-{tied}"
            tetrad(binary, "train", str(HERE / f"{config}.yaml"), "--out", str(run), f"model.tied={tied}", cwd=folder)
            check_exports(binary, run, run.name, folder, report)
        check_imports(binary, folder, report)
        check_tokenizers(binary, folder, report)
    print("interchange:", "agrees" if report.good else "DIFFERS")
    sys.exit(0 if report.good else 1)


if __name__ == "__main__":
    main()
