# SPDX-License-Identifier: Apache-2.0
"""Export of converted models: each format is read by those whose it is (compressed-tensors, gguf, llama.cpp, transformers), and
has the values that the forward pass multiplied."""

import json
import warnings

import numpy as np
import pytest

import tetrad

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
import tetrad.torch as tt  # noqa: E402
from small_models import KEPT, TOKENS, VOCAB, batches, config_of, export, tensors_of, trained_model  # noqa: E402

# Largest difference of two logits, relative to the largest: both are computed in float32.
LOGITS_TOLERANCE = 1e-5
# Inputs in four bits, with scales from a calibration, may cost so many times what they cost with scales of each tensor.
SERVED_FACTOR = 2.5
# Of log-probabilities of llama.cpp, which rounds what it multiplies weights with: as in crosscheck/llama_cpp.py.
LLAMA_CPP_TOLERANCE = 0.05
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=torch.float64)


def quantized_layers(model):
    """The layers whose forward pass is NVFP4, with the quantizer's codes of their weights."""
    layers = {name: layer for name, layer in tt.layers_of(model).items() if "nvfp4" in layer.precision}
    assert len(layers) > 3
    return {name: tt.quantize(layer.weight.detach(), "nvfp4", block="16x16") for name, layer in layers.items()}


def without_tensor_scale(codes, scales):
    """code * block scale, which float64 holds exactly."""
    values = E2M1[torch.stack((codes & 0xF, codes >> 4), dim=-1).flatten(1).long()]
    return values * scales.view(torch.float8_e4m3fn).double().repeat_interleave(16, dim=1)


def forward_values(q):
    return without_tensor_scale(q.codes, q.scales) * (q.amax.double() / 2688)


def as_trained(model, dtype=torch.bfloat16, vectors=None):
    """A model of transformers alone, with the weights that the forward pass multiplies; others are rounded to what the file
    has them in."""
    plain = transformers.AutoModelForCausalLM.from_config(model.config)
    forward = {name + ".weight": forward_values(q).float() for name, q in quantized_layers(model).items()}
    state = {}
    for name, tensor in model.state_dict().items():
        if name.startswith("tetrad_key"):
            continue
        stays = name.rsplit(".", 1)[-1] in ("A_log", "D", "dt_bias")
        rounded = tensor if stays or (vectors and tensor.dim() < 2) else tensor.to(dtype)
        state[name] = forward.get(name, rounded.float())
    plain.load_state_dict(state)
    return plain.float().eval()


def logits_of(model, ids):
    with torch.no_grad():
        return model(ids, use_cache=False).logits.double()


def difference(a, b):
    return ((a - b).abs().max() / b.abs().max()).item()


def their_name(module, kind):
    """Nemotron-H's backbone has a name of its own in files."""
    return module.replace("model.", "backbone.", 1) if kind == "nemotron_h" else module


def test_the_quantizer_makes_what_the_forward_pass_multiplies(models):
    model = models("llama")
    for name, q in quantized_layers(model).items():
        layer = model.get_submodule(name)
        with torch.no_grad():
            multiplied = layer(torch.eye(layer.in_features)).T.double()
        values = forward_values(q)
        assert (multiplied - values).abs().max() <= 2.0**-22 * values.abs().max(), name
        assert (layer.weight - values).abs().max() > 1e-3 * values.abs().max(), "four bits differ from the weight"


@pytest.mark.parametrize("kind", ["llama", "qwen3", "nemotron_h"])
def test_modelopt_has_the_codes_of_training(models, kind, tmp_path):
    model = models(kind)
    tensors = tensors_of(export(model, "modelopt", tmp_path / "out", "scales of their own"))
    config = json.loads((tmp_path / "out/config.json").read_text())
    excluded = json.loads((tmp_path / "out/hf_quant_config.json").read_text())["quantization"]["exclude_modules"]
    layers = {their_name(name, kind): q for name, q in quantized_layers(model).items()}
    for name, q in layers.items():
        assert torch.equal(tensors[name + ".weight"], q.codes)
        assert torch.equal(tensors[name + ".weight_scale"].view(torch.uint8), q.scales)
        assert tensors[name + ".weight_scale_2"] == q.amax / 2688
    assert {name for name in tensors if name.endswith(".weight_scale_2")} == {name + ".weight_scale_2" for name in layers}
    others = {their_name(name, kind) for name in tt.layers_of(model)} - set(layers)
    assert others and others <= set(excluded) and not set(layers) & set(excluded)
    assert "lm_head" in excluded and (kind == "nemotron_h" or KEPT in excluded)
    assert config["quantization_config"]["quant_algo"] == "NVFP4" and config["architectures"] == [type(model).__name__]
    for name, tensor in tensors.items():
        if name.endswith("_proj.weight") and name[: -len(".weight")] not in layers:
            original = model.state_dict()[name.replace("backbone.", "model.")]
            assert torch.equal(tensor, original.bfloat16()), name


def test_input_scales_are_those_of_the_calibration(models, tmp_path):
    model = models("llama")
    largest = {}
    hooks = [
        layer.register_forward_pre_hook(
            lambda _, x, name=name: largest.update({name: max(largest.get(name, 0.0), x[0].abs().max().item())})
        )
        for name, layer in tt.layers_of(model).items()
    ]
    for ids in batches(2, seed=6):
        logits_of(model, ids)
    for hook in hooks:
        hook.remove()
    key = model.tetrad_key.get()
    model.train()
    calibration = [batches(2, seed=6)[0], {"input_ids": batches(2, seed=6)[1], "use_cache": False}]
    tensors = tensors_of(export(model, "modelopt", tmp_path / "out", "scales of their own", calibration=calibration))
    assert model.training and model.tetrad_key.get() == key, "an export leaves the model as it was"
    model.eval()
    for name in quantized_layers(model):
        assert tensors[name + ".input_scale"] == np.float32(largest[name]) / np.float32(2688), name


@pytest.mark.parametrize("kind", ["llama", "qwen3", "nemotron_h"])
def test_compressed_tensors_decodes_the_values_of_training(models, kind, tmp_path):
    pytest.importorskip("compressed_tensors")
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationConfig

    model = models(kind)
    out = export(model, "compressed-tensors", tmp_path / "out", "scales of their own")
    tensors = tensors_of(out)
    config = QuantizationConfig.model_validate(json.loads((out / "config.json").read_text())["quantization_config"])
    compressor = BaseCompressor.get_value_from_registry(config.format)
    decompressed = {}
    for module, q in quantized_layers(model).items():
        name = their_name(module, kind)
        state = {key.rsplit(".", 1)[1]: value for key, value in tensors.items() if key.startswith(name + ".")}
        decoded = compressor.decompress(state, config.config_groups["group_0"])["weight"]
        # The package divides block scales by the global one in float32, multiplies, and leaves BF16.
        scale = (q.scales.view(torch.float8_e4m3fn).float() / (2688 / q.amax)).repeat_interleave(16, dim=1)
        wanted = without_tensor_scale(q.codes, torch.full_like(q.scales, 0x38)).float() * scale
        assert torch.equal(decoded, wanted.to(decoded.dtype)), module
        assert difference(wanted.double(), forward_values(q)) < 1e-6
        decompressed[module] = decoded
    # transformers loads the folder through the package
    served, info = transformers.AutoModelForCausalLM.from_pretrained(out, output_loading_info=True)
    assert not any(info.values()), info
    ids = batches(1, seed=8)[0]
    served_logits = logits_of(served.eval(), ids)  # weights are decoded now
    for module, weight in decompressed.items():
        assert torch.equal(served.get_submodule(module).weight, weight), module
    ours = logits_of(model, ids)
    assert difference(served_logits, ours) <= SERVED_FACTOR * difference(logits_of(as_trained(model), ids), ours)


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_logits_are_those_of_the_forward_passes_weights(models, kind, tmp_path):
    """Of the file, read without any code of ours, in transformers' own model; and of a model with what tt.quantize() gives."""
    model = models(kind)
    out = export(model, "modelopt", tmp_path / "out", "scales of their own")
    tensors = tensors_of(out)
    state = {name: tensor.float() for name, tensor in tensors.items() if tensor.dtype == torch.bfloat16}
    for name in (name[: -len("_scale_2")] for name in tensors if name.endswith(".weight_scale_2")):
        values = without_tensor_scale(tensors[name], tensors[name + "_scale"].view(torch.uint8))
        state[name] = (values * tensors[name + "_scale_2"].double()).float()
    if model.config.tie_word_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    config = transformers.AutoConfig.from_pretrained(out)
    del config.quantization_config
    read = transformers.AutoModelForCausalLM.from_config(config).float()
    read.load_state_dict(state)
    ids = batches(1, seed=8)[0]
    logits = logits_of(as_trained(model), ids)
    assert difference(logits_of(read.eval(), ids), logits) <= LOGITS_TOLERANCE
    unquantized = as_plain(model)
    assert difference(logits_of(unquantized, ids), logits) > 100 * LOGITS_TOLERANCE, "the comparison sees four bits"


def as_plain(model):
    plain = transformers.AutoModelForCausalLM.from_config(model.config)
    plain.load_state_dict({name: tensor for name, tensor in model.state_dict().items() if not name.startswith("tetrad_key")})
    return plain.float().eval()


@pytest.mark.parametrize("kind", ["llama", "qwen3", "nemotron_h"])
def test_hf_keeps_all_values(models, kind, tmp_path):
    model = models(kind)
    export(model, "hf", tmp_path / "out", dtype=torch.float32, shard_gb=0.0005)
    assert (tmp_path / "out/model.safetensors.index.json").exists()
    loaded, info = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out", output_loading_info=True, dtype=torch.float32)
    assert not any(info.values()), info
    plain = as_plain(model)
    for name, tensor in plain.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor), name
    ids = batches(1, seed=8)[0]
    assert difference(logits_of(loaded.eval(), ids), logits_of(plain, ids)) <= LOGITS_TOLERANCE
    assert loaded.generation_config.eos_token_id == model.generation_config.eos_token_id


GGUF_LEAVES = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output", "gate_proj": "ffn_gate",
               "up_proj": "ffn_up", "down_proj": "ffn_down", "in_proj": "ssm_in", "out_proj": "ssm_out"}  # fmt: skip


@pytest.mark.parametrize("kind", ["llama", "qwen3", "nemotron_h"])
def test_gguf_decodes_the_values_of_training(models, kind, tmp_path):
    gguf = pytest.importorskip("gguf")
    model = models(kind)
    reader = gguf.GGUFReader(export(model, "gguf", tmp_path / "model.gguf"))
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    packed = set()
    for module, q in quantized_layers(model).items():
        leaf = module.split(".")[-1]
        base = f"blk.{module.split('.')[2]}.{GGUF_LEAVES[leaf]}"
        tensor = tensors[base + ".weight"]
        assert tensor.tensor_type == gguf.GGMLQuantizationType.NVFP4, base
        packed.add(base + ".weight")
        wanted = without_tensor_scale(q.codes, q.scales)
        if kind == "llama" and leaf in ("q_proj", "k_proj"):
            rows, cols = wanted.shape  # halves of each head to neighbours
            wanted = wanted.view(-1, 2, model.config.head_dim // 2, cols).transpose(1, 2).reshape(rows, cols)
        actual = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float64)
        assert np.array_equal(actual, wanted.numpy()), base
        assert tensors[base + ".scale"].data[0] == (q.amax / 2688).numpy()
    assert packed == {name for name, tensor in tensors.items() if tensor.tensor_type == gguf.GGMLQuantizationType.NVFP4}


def byte_tokenizer():
    """A small byte-level BPE of transformers, with tokens that begin and end a text and a template for chats."""
    import tokenizers

    bpe = tokenizers.Tokenizer(tokenizers.models.BPE())
    bpe.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=VOCAB - 8,
        special_tokens=["<pad>", "<s>", "</s>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train([__file__], trainer)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token="<s>", eos_token="</s>", pad_token="<pad>")
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    return tokenizer


def test_a_folder_takes_the_tokenizer_as_it_is(models, tmp_path):
    tokenizer = byte_tokenizer()
    tokenizer.save_pretrained(tmp_path / "theirs")
    for given in (tokenizer, tmp_path / "theirs"):
        out = export(models("llama"), "hf", tmp_path / "out", tokenizer=given, overwrite=True)
        loaded = transformers.AutoTokenizer.from_pretrained(out)
        text = "def f(x): return x + 12345  # naïve 漢字🙂\t'tis"
        assert loaded(text).input_ids == tokenizer(text).input_ids
        assert loaded.chat_template == tokenizer.chat_template and loaded.eos_token == "</s>"


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_llama_cpp_computes_the_logits_of_the_forward_passes_weights(kind, tmp_path):
    xllamacpp = pytest.importorskip("xllamacpp")
    # weights this large make much of every layer
    model, tokenizer = trained_model(kind, steps=0, changes={"initializer_range": 0.06}), byte_tokenizer()
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(export(model, "gguf", tmp_path / "model.gguf", tokenizer=tokenizer))
    parameters.n_ctx = TOKENS + 8
    parameters.n_parallel = 1
    parameters.warmup = False
    parameters.verbosity = -1
    parameters.cpuparams.n_threads = 1
    parameters.cache_type_k = parameters.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    server = xllamacpp.Server(parameters)
    reference, wrong = as_trained(model, vectors=True), as_trained(model, vectors=True)
    for layer in wrong.model.layers:  # a mistake in the order of rows shows
        layer.self_attn.q_proj.weight.data = layer.self_attn.q_proj.weight.data.roll(1, 0)
    # where the next token ends a text, or is a part of a character, it says nothing of any token
    following = {ids: logits_of(reference, ids[None])[0, -1].argmax().item() for ids in torch.cat(batches(6, seed=8))}
    prompts = [ids for ids, token in following.items() if token > 2 and tokenizer.decode(token).isascii()]
    assert len(prompts) > 3
    for ids in prompts[:3]:
        reply = server.handle_completions({"prompt": ids.tolist(), "max_tokens": 1, "logprobs": VOCAB, "temperature": 0.0})
        reply = json.loads(reply) if isinstance(reply, str) else reply
        theirs = torch.full((VOCAB,), float("nan"), dtype=torch.float64)
        for token in reply["choices"][0]["logprobs"]["content"][0]["top_logprobs"]:
            theirs[token["id"]] = token["logprob"]
        ours, mistaken = (logits_of(one, ids[None])[0, -1].log_softmax(0) for one in (reference, wrong))
        assert (theirs - ours).abs().max() <= LLAMA_CPP_TOLERANCE  # NaN, for a token that is missing, is not
        assert (theirs - mistaken).abs().max() > 4 * LLAMA_CPP_TOLERANCE


def test_joined_scales_are_one_for_what_servers_join(models, tmp_path):
    model = models("llama")
    tensors = tensors_of(export(model, "modelopt", tmp_path / "out", joined_scales=True))
    for parent, leaves in (("self_attn", ("q_proj", "k_proj", "v_proj")), ("mlp", ("gate_proj", "up_proj"))):
        modules = [f"model.layers.0.{parent}.{leaf}" for leaf in leaves]
        weights = [model.get_submodule(module).weight.detach() for module in modules]
        q = tt.quantize(torch.cat(weights), "nvfp4", block="16x16")
        assert torch.equal(torch.cat([tensors[module + ".weight"] for module in modules]), q.codes)
        assert all(tensors[module + ".weight_scale_2"] == q.amax / 2688 for module in modules)
        assert len({tensors[module + ".input_scale"].item() for module in modules}) == 1
    # alone, a layer has what it has anyway
    down = quantized_layers(model)["model.layers.0.mlp.down_proj"]
    assert torch.equal(tensors["model.layers.0.mlp.down_proj.weight"], down.codes)


def test_fp8_layers_are_left_as_they_are(tmp_path):
    """Also where only some of what servers join are FP8, and the rest is none of ours."""
    recipe = {"recipe": "nvfp4", "high_precision": {"fp8": ["*.q_proj", "lm_head"]}}
    model = trained_model("llama", recipe, steps=0, keep=["k_proj", "layers.1.self_attn.v_proj"])
    assert "fp8" in model.model.layers[0].self_attn.q_proj.precision and "fp8" in model.lm_head.precision
    for joined in (False, True):
        if joined:
            model.model.layers[0].self_attn.v_proj.__class__ = torch.nn.Linear  # or it would need one scale with q_proj
        expected = None if joined else "k_proj"
        tensors = tensors_of(export(model, "modelopt", tmp_path / str(joined), expected, joined_scales=joined))
        for name in ("model.layers.0.self_attn.q_proj.weight", "model.layers.1.self_attn.q_proj.weight", "lm_head.weight"):
            assert torch.equal(tensors[name], model.state_dict()[name].bfloat16()), name


def test_other_scales_are_kept_and_inputs_warned_of(tmp_path):
    """Training may search scales, which servers cannot do for inputs."""
    model = trained_model("llama", recipe={"recipe": "nvfp4", "scale": "search"}, steps=1)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        tt.export(model, "modelopt", tmp_path / "out", calibration=batches(1))
    assert any("scale search" in str(one.message) for one in said)
    assert any("scale search" in text for text in json.loads((tmp_path / "out/tetrad_export.json").read_text())["warnings"])
    tensors = tensors_of(tmp_path / "out")
    for name, layer in tt.layers_of(model).items():
        if "nvfp4" in layer.precision:
            q = tt.quantize(layer.weight.detach(), "nvfp4", block="16x16", scale="search")
            assert torch.equal(tensors[name + ".weight"], q.codes)


def test_bfloat16_weights_and_layers_that_differ(tmp_path):
    """A model whose weights are BF16, in which k_proj stays and q_proj does not."""
    torch.manual_seed(7)
    model = transformers.AutoModelForCausalLM.from_config(config_of("llama")).to(torch.bfloat16)
    tt.convert(model, "nvfp4", keep=["lm_head", "k_proj"], keep_last=0)
    tensors = tensors_of(export(model.eval(), "modelopt", tmp_path / "out", "scales of their own"))
    q = tt.quantize(model.model.layers[1].self_attn.q_proj.weight.detach(), "nvfp4", block="16x16")
    assert torch.equal(tensors["model.layers.1.self_attn.q_proj.weight"], q.codes)
    assert torch.equal(tensors["model.layers.1.self_attn.k_proj.weight"], model.model.layers[1].self_attn.k_proj.weight)
    with pytest.raises(tetrad.Error, match="different ways"):
        export(model, "modelopt", tmp_path / "joined", joined_scales=True)
