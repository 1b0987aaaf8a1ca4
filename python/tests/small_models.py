# SPDX-License-Identifier: Apache-2.0
"""Small models of transformers, converted and trained a little, for the tests of export."""

import warnings

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
import tetrad.torch as tt  # noqa: E402

VOCAB, TOKENS = 320, 32
KEPT = "model.layers.1.mlp.down_proj"

SIZES = dict(
    vocab_size=VOCAB, hidden_size=128, intermediate_size=192, num_attention_heads=4, num_key_value_heads=2, head_dim=32,
    max_position_embeddings=256,
)  # fmt: skip


def config_of(kind, **changes):
    if kind == "qwen3":
        return transformers.Qwen3Config(**SIZES, num_hidden_layers=3, tie_word_embeddings=True, **changes)
    if kind == "nemotron_h":
        return transformers.NemotronHConfig(
            **SIZES, hybrid_override_pattern="M-*-M-", mamba_num_heads=8, mamba_head_dim=16, n_groups=2, ssm_state_size=18,
            conv_kernel=4, chunk_size=16, time_step_min=1e-30, mlp_hidden_act="relu2",
        )  # fmt: skip
    return transformers.LlamaConfig(**SIZES, num_hidden_layers=3, bos_token_id=1, eos_token_id=2, **changes)


def batches(count, seed=5):
    """Texts that count upwards, in steps of one to three: soon learned."""
    generator = torch.Generator().manual_seed(seed)
    steps, first = (torch.randint(low, high, (count, 4, 1), generator=generator) for low, high in ((1, 4), (0, VOCAB)))
    return list((torch.arange(TOKENS) * steps + first) % VOCAB)


def trained_model(kind, recipe="nvfp4", steps=16, changes=None, **options):
    torch.manual_seed(7)
    model = transformers.AutoModelForCausalLM.from_config(config_of(kind, **(changes or {})))
    keep = ["lm_head"] + ([KEPT] if kind != "nemotron_h" else [])
    tt.convert(model, recipe, keep=options.pop("keep", keep), keep_last=options.pop("keep_last", 1), seed=3, **options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for ids in batches(steps):
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()


def export(model, format, out, expected_warning=None, **options):
    if format in ("modelopt", "compressed-tensors"):
        options.setdefault("calibration", batches(2, seed=6))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert tt.export(model, format, out, **options) == out
    texts = [str(one.message) for one in said if str(one.message).startswith("export: ")]
    assert len(texts) == (expected_warning is not None) and all(expected_warning in text for text in texts)
    return out


def tensors_of(folder):
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")
