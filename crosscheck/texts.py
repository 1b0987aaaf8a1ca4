# SPDX-License-Identifier: Apache-2.0
"""What a model's files say about its texts, on the way through a checkpoint of ours: transformers writes a Llama with the
special tokens of Llama 3.1, we import and export it, and transformers finds the same context, tokens and tokenizer, and
ends its texts where ours end."""

import argparse
import json
import pathlib
import sys
import tempfile

import tokenizers
import torch
import transformers

from hf import Report
from run import tetrad

BYTES = 256
SPECIAL = ["<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|reserved_special_token_1|>",
           "<|finetune_right_pad_id|>", "<|reserved_special_token_2|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>",
           "<|eot_id|>", "<|python_tag|>", "<|reserved_special_token_3|>"]
ID = {name: BYTES + i for i, name in enumerate(SPECIAL)}
VOCAB = 272  # a few that no token has
ENDS = [ID["<|end_of_text|>"], ID["<|eom_id|>"], ID["<|eot_id|>"]]
CONTEXT = 131072
PROMPT = "<|start_header_id|>user<|end_header_id|>\n\nHow long is a rope?<|eot_id|>"


def write_tokenizer(folder):
    """Bytes, and what Llama 3.1 has besides: a template that begins every text."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens([tokenizers.AddedToken(name, normalized=False, special=True) for name in SPECIAL])
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{SPECIAL[0]} $A", special_tokens=[(SPECIAL[0], ID[SPECIAL[0]])])
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<|begin_of_text|>", eos_token="<|eot_id|>",
                                                model_max_length=CONTEXT)
    fast.save_pretrained(folder)


def write_model(folder):
    """A model so small that it says something else at every place."""
    rope = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192}
    config = transformers.LlamaConfig(
        vocab_size=VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=16, initializer_range=0.3, max_position_embeddings=CONTEXT, rope_parameters=rope, bos_token_id=ID[SPECIAL[0]],
        eos_token_id=ENDS)
    torch.manual_seed(3)
    model = transformers.AutoModelForCausalLM.from_config(config).float()
    model.generation_config = transformers.GenerationConfig(bos_token_id=ID[SPECIAL[0]], eos_token_id=ENDS)
    model.save_pretrained(folder)


def check_files(theirs, ours, report):
    for key in ("max_position_embeddings", "bos_token_id", "eos_token_id"):
        before, after = (getattr(transformers.AutoConfig.from_pretrained(path), key) for path in (theirs, ours))
        report.expect(f"config.json keeps {key}", before == after, f"{before}, then {after}")
    for key in ("bos_token_id", "eos_token_id"):
        before, after = (getattr(transformers.GenerationConfig.from_pretrained(path), key) for path in (theirs, ours))
        report.expect(f"generation_config.json keeps {key}", before == after, f"{before}, then {after}")
    before, after = (transformers.AutoTokenizer.from_pretrained(path) for path in (theirs, ours))
    for key in ("bos_token", "eos_token", "model_max_length"):
        report.expect(f"the tokenizer keeps {key}", getattr(before, key) == getattr(after, key), getattr(after, key))
    special = [{token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
               for tokenizer in (before, after)]
    report.expect("the tokenizer keeps its special tokens", special[0] == special[1] == set(SPECIAL), f"{len(special[1])}")
    report.expect("both encode a conversation alike", before.encode(PROMPT) == after.encode(PROMPT),
                  f"{len(after.encode(PROMPT))} tokens")


def with_ends(path, ends):
    """The same folder with other tokens that end a text."""
    for name in ("config.json", "generation_config.json"):
        file = path / name
        file.write_text(json.dumps(json.loads(file.read_text()) | {"eos_token_id": ends}))


def check_generation(binary, theirs, folder, report):
    """Texts end at any of the tokens, there and here. Which ones the model says is found out first."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(theirs)
    prompt = tokenizer.encode(PROMPT, add_special_tokens=False)

    def ours(name):
        tetrad(binary, "import", str(theirs), "-o", name, cwd=folder)
        answer = json.loads(tetrad(binary, "generate", name, "--prompt", PROMPT, "--tokens", "40", "--temperature", "0",
                                   "--precision", "f32", "--json", cwd=folder))
        return answer["tokens"]

    def others():
        model = transformers.AutoModelForCausalLM.from_pretrained(theirs, dtype=torch.float32)
        ids = model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long), do_sample=False,
                             max_new_tokens=40, pad_token_id=0)[0, len(prompt):].tolist()
        return ids[:-1] if ids[-1] in model.generation_config.eos_token_id else ids

    whole = ours("whole")
    for place in (3, 11):
        with_ends(theirs, [ENDS[0], whole[place]])
        here, there = ours(f"until-{place}"), others()
        report.expect(f"a text ends at the second of two tokens, {len(here)} tokens long", here == there and len(here) <= place,
                      f"transformers': {len(there)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("binary", type=pathlib.Path, help="build/tetrad")
    binary = str(parser.parse_args().binary.resolve())
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    report = Report()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        theirs = folder / "theirs"
        write_model(theirs)
        write_tokenizer(theirs)
        tetrad(binary, "import", str(theirs), "-o", "imported", cwd=folder)
        tetrad(binary, "export", "imported", "-o", "ours", cwd=folder)
        check_files(theirs, folder / "ours", report)
        check_generation(binary, theirs, folder, report)
    print("texts:", "agree" if report.good else "DIFFER")
    sys.exit(0 if report.good else 1)


if __name__ == "__main__":
    main()
