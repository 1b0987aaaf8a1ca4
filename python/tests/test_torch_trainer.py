# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's Trainer on a small Llama: two lines, and accumulation, checkpointing and autocast as it does them."""

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

import tetrad.torch as tt  # noqa: E402


class Counting(torch.utils.data.Dataset):
    """Texts that count upwards, each from another place: soon learned."""

    def __len__(self):
        return 256

    def __getitem__(self, index):
        tokens = (torch.arange(32) + index) % 64
        return {"input_ids": tokens, "labels": tokens}


def small_llama():
    torch.manual_seed(2)
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2
    )
    return transformers.LlamaForCausalLM(config)


def train(model, folder):
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        max_steps=16,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        gradient_checkpointing=True,
        learning_rate=3e-3,
        bf16=True,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        logging_steps=4,
        seed=3,
        disable_tqdm=True,
    )
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=Counting())
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def test_trainer_learns_in_four_bits(tmp_path):
    plain = train(small_llama(), tmp_path)
    model = tt.convert(small_llama(), recipe="nvfp4", keep=["lm_head"], seed=1234)
    losses = train(model, tmp_path)
    assert model.tetrad_key.get().microbatch == 32, "each microbatch takes a key of its own"
    assert sum("nvfp4" in layer.precision for layer in tt.layers_of(model).values()) == 3 * 7
    assert losses[-1] < 0.75 * losses[0]
    assert abs(losses[-1] - plain[-1]) < 0.15 * plain[-1]
