# SPDX-License-Identifier: Apache-2.0
"""What tt.export refuses, and what becomes of an export that does not end well."""

import copy
import resource

import pytest

import tetrad

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
import tetrad.torch as tt  # noqa: E402
from small_models import batches, config_of, export, trained_model  # noqa: E402


def test_wrapped_models_are_unwrapped(models, tmp_path):
    export(torch.compile(models("llama")), "gguf", tmp_path / "model.gguf")


def refused(match, model, format="hf", **options):
    with pytest.raises(tetrad.Error, match=match):
        tt.export(model, format, options.pop("out"), **options)


def test_what_cannot_be_exported_is_said(models, tmp_path):
    out, model = tmp_path / "out", models("llama")
    refused("no format 'onnx'.*gguf", model, "onnx", out=out)
    refused("convert it", transformers.AutoModelForCausalLM.from_config(config_of("llama")), out=out)
    refused("no config of transformers.*Llama, Qwen3 and Nemotron-H", tt.convert(torch.nn.Sequential(torch.nn.Linear(64, 64))), out=out)
    refused("give calibration", model, "modelopt", out=out)
    refused("no batch", model, "modelopt", calibration=[], out=out)
    refused("not list", model, "modelopt", calibration=[[1, 2]], out=out)
    refused("no effect with gguf", model, "gguf", calibration=batches(1), out=out)
    refused("dtype has no effect with gguf", model, "gguf", dtype="f32", out=out)
    refused("joined_scales has no effect with hf", model, joined_scales=True, out=out)
    refused("no type .*float64", model, dtype=torch.float64, out=out)
    refused("no tokenizer", model, tokenizer=3, out=out)
    refused("files of -1 GB", model, shard_gb=-1, out=out)
    meta = copy.deepcopy(model).to("meta")
    refused("device meta", meta, out=out)
    # an architecture that no writer knows
    gpt = transformers.GPTNeoXConfig(vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4)
    other = tt.convert(transformers.AutoModelForCausalLM.from_config(gpt), keep=["lm_head"], keep_last=0)
    refused("GPTNeoXForCausalLM.* is not supported: only LlamaForCausalLM", other, out=out)
    # a layer that has four bits nowhere else
    head = trained_model("llama", steps=0, keep=[], keep_last=0)
    refused("lm_head is quantized.*keep it", head, "gguf", out=out)
    # formats that servers do not have
    drawn = {"recipe": "nvfp4", "sr": ["weights", "gradients"]}
    for recipe, what in (("mxfp4", "weights are mxfp4"), ("fp8", "weights are fp8"), (drawn, "weights are rounded stochastically")):
        refused(f"{what}.*format hf", trained_model("llama", recipe, steps=0), "gguf", out=out)
    refused("no layer .* NVFP4", trained_model("llama", "bf16", steps=0), "modelopt", out=out, calibration=batches(1))
    ended = trained_model("llama", steps=0)
    tt.set_schedule(ended, [(0.5, {"forward": "bf16"})], passes=10)
    tt.set_progress(ended, 1.0)
    refused("no layer .* NVFP4", ended, "compressed-tensors", out=out, calibration=batches(1))
    double = trained_model("llama", steps=0).double()
    refused("float64: convert", double, out=out)
    bad = trained_model("llama", steps=0)
    bad.model.layers[0].mlp.up_proj.weight.data[0, 0] = float("nan")
    refused("not finite", bad, out=out)
    refused("values that are not finite", bad, "modelopt", calibration=batches(1), out=out)
    assert not list(tmp_path.iterdir()), "nothing is left of what was refused"


def test_what_is_there_is_replaced_only_if_asked_for(models, tmp_path):
    model = models("llama")
    export(model, "hf", tmp_path / "out")
    refused("already.*overwrite=True", model, out=tmp_path / "out")
    export(model, "hf", tmp_path / "out", overwrite=True)
    export(model, "gguf", tmp_path / "model.gguf")
    refused("already", model, "gguf", out=tmp_path / "model.gguf")
    export(model, "gguf", tmp_path / "model.gguf", overwrite=True)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/chapter").write_text("mine")
    refused("not replaced", model, out=tmp_path / "thesis", overwrite=True)
    assert (tmp_path / "thesis/chapter").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.gguf", "out", "thesis"]


def test_an_export_that_is_stopped_leaves_nothing(models, tmp_path, monkeypatch):
    import tetrad.torch._export as module

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "_copy", stop)
    for format, name in (("hf", "out"), ("gguf", "model.gguf")):
        with pytest.raises(KeyboardInterrupt):
            tt.export(models("llama"), format, tmp_path / "new" / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("format", ["hf", "modelopt", "gguf"])
def test_a_disk_that_is_full_leaves_nothing(models, format, tmp_path):
    """A limit on the size of files fails in the middle of one, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    calibration = batches(1) if format == "modelopt" else None
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, before[1]))
    try:
        with pytest.raises(RuntimeError, match=r"failed to write.*File too large"):
            tt.export(models("llama"), format, tmp_path / "new/out", calibration=calibration)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.iterdir())


def test_models_of_several_ranks(tmp_path):
    from torch.distributed import fsdp

    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        model = trained_model("llama", steps=0)
        export(torch.nn.parallel.DistributedDataParallel(model), "gguf", tmp_path / "model.gguf")
        fsdp.fully_shard(model, mesh=torch.distributed.init_device_mesh("cpu", (1,)))
        refused("shared among ranks.*full_state_dict", model, "gguf", out=tmp_path / "sharded.gguf")
    finally:
        torch.distributed.destroy_process_group()
