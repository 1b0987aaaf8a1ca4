# SPDX-License-Identifier: Apache-2.0
"""Trains a small model on text, serves it with `tetrad serve`, lets lm-evaluation-harness run a multiple-choice task and a
generation task against it, and compares every number with what `tetrad score` and `tetrad generate` say. OpenAI's own client
reads streams. No network."""

import argparse
import contextlib
import json
import logging
import os
import pathlib
import random
import subprocess
import sys
import tempfile

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", HF_EVALUATE_OFFLINE="1", TOKENIZERS_PARALLELISM="false",
                  TQDM_DISABLE="1")

import lm_eval
import openai
from lm_eval.tasks import TaskManager

logging.getLogger("lm_eval").setLevel(logging.ERROR)
HERE = pathlib.Path(__file__).resolve().parent
LENGTH = 96  # tokens of training, and so of a request
CONFIG = """
model: {{name: harness, pattern: "*-*-", hidden: 64, heads: 4, kv_heads: 2, head_dim: 16, ffn: 176, vocab: 512, tied: true}}
precision: nvfp4
data: {{tokenizer: tokenizer.json, sources: {{text: tokens}}}}
train: {{steps: 40, batch: 8, sequence: {length}, seed: 7}}
optim: {{lr: 3e-3}}
"""
CHOICE_TASK = """
task: tetrad_choice
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: question
doc_to_choice: choices
doc_to_target: answer
target_delimiter: " "
metric_list: [{{metric: acc}}, {{metric: acc_norm}}]
"""
GENERATION_TASK = """
task: tetrad_generation
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
test_split: test
output_type: generate_until
doc_to_text: question
doc_to_target: answer
generation_kwargs: {{until: ["\\n\\n", "the"], max_gen_toks: 24, temperature: 0}}
metric_list: [{{metric: bypass}}]
"""
QUESTIONS = ["The model is", "A checkpoint that is damaged", "Scales are", "Naïve 数 tokens", "Every recipe \"learns\":",
             "tetrad train", "1 + 1 =", "What the log says is"]
CHOICES = ["trained", "set aside", "powers of two", "in the folder", "a function\nof the seed", "—", "2"]


def tetrad(binary, *arguments, cwd, stdin=None):
    result = subprocess.run([binary, *arguments], cwd=cwd, capture_output=True, text=True, input=stdin, check=False)
    if result.returncode != 0:
        sys.exit(f"tetrad {' '.join(arguments)} failed:\n{result.stderr}")
    return result.stdout


def prepare(binary, folder):
    texts = [str(path) for path in sorted((HERE.parent / "docs").glob("*.md"))]
    tetrad(binary, "tokenizer", "train", *texts, "-o", "tokenizer.json", "--vocab", "512", cwd=folder)
    tetrad(binary, "data", "prepare", *texts, "-o", "tokens", "--tokenizer", "tokenizer.json", cwd=folder)
    (folder / "config.yaml").write_text(CONFIG.format(length=LENGTH))
    tetrad(binary, "train", "config.yaml", "--out", "run", cwd=folder)

    generator = random.Random(1)
    documents = [{"question": question, "choices": generator.sample(CHOICES, 4), "answer": generator.randrange(4)}
                 for question in QUESTIONS]
    (folder / "documents.jsonl").write_text("".join(json.dumps(document) + "\n" for document in documents))
    for name, task in (("choice", CHOICE_TASK), ("generation", GENERATION_TASK)):
        (folder / f"{name}.yaml").write_text(task.format(file=folder / "documents.jsonl"))
    return documents


@contextlib.contextmanager
def serving(binary, folder, *arguments):
    with open(folder / "server.log", "w") as log:
        server = subprocess.Popen([binary, "serve", "run", "--port", "0", *arguments], cwd=folder, text=True,
                                  stdout=subprocess.PIPE, stderr=log)
    try:
        line = server.stdout.readline()
        if not line.startswith("listening on "):
            sys.exit("tetrad serve failed:\n" + (folder / "server.log").read_text())
        yield line.split()[-1]
    finally:
        server.terminate()
        if server.wait() != 0:
            sys.exit(f"tetrad serve ended with {server.returncode}:\n" + (folder / "server.log").read_text())


def evaluate(url, folder, **arguments):
    model_args = {"model": "harness", "base_url": url + "/v1/completions", "tokenizer_backend": "remote",
                  "max_length": LENGTH, "max_retries": 1, **arguments}
    return lm_eval.simple_evaluate(
        model="local-completions", model_args=model_args, tasks=["tetrad_choice", "tetrad_generation"],
        task_manager=TaskManager(include_path=str(folder), include_defaults=False), log_samples=True, bootstrap_iters=0)


def encode(binary, folder, text):
    return json.loads(tetrad(binary, "tokenizer", "encode", "tokenizer.json", "--json", cwd=folder, stdin=text))["ids"]


def expected_scores(binary, folder, documents, precision):
    """[document][choice]: sum of the log-probabilities of the choice's tokens, as the harness cuts them."""
    lines, starts = [], []
    for document in documents:
        for choice in document["choices"]:
            whole = encode(binary, folder, document["question"] + " " + choice)
            context = encode(binary, folder, document["question"])
            starts.append(len(context))
            lines.append(" ".join(map(str, context + whole[len(context):])))
    scored = json.loads(tetrad(binary, "score", "run", "--tokens", "-", "--json", "--precision", precision, cwd=folder,
                               stdin="\n".join(lines) + "\n"))["lines"]
    sums = [sum(line["logprobs"][start:]) for line, start in zip(scored, starts, strict=True)]
    return [sums[i:i + 4] for i in range(0, len(sums), 4)]


def expected_text(binary, folder, question, precision):
    text = json.loads(tetrad(binary, "generate", "run", "--prompt", question, "--tokens", "24", "--temperature", "0",
                             "--precision", precision, "--json", cwd=folder))["text"]
    return text[:min([text.find(stop) for stop in ("\n\n", "the") if stop in text], default=len(text))]


def check_streams(url):
    """What OpenAI's client puts together of a stream is what it gets as a whole, and errors are exceptions of its own."""
    client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
    request = dict(model="harness", prompt=QUESTIONS, max_tokens=16, temperature=1, seed=5, stop=["the"], logprobs=1)
    whole = client.completions.create(**request)
    texts, tokens, usage = [""] * len(QUESTIONS), [[] for _ in QUESTIONS], None
    for event in client.completions.create(**request, stream=True, stream_options={"include_usage": True}):
        usage = event.usage or usage
        for choice in event.choices:
            texts[choice.index] += choice.text
            tokens[choice.index] += choice.logprobs.token_logprobs
    different = [choice.index for choice in whole.choices
                 if choice.text != texts[choice.index] or choice.logprobs.token_logprobs != tokens[choice.index]]
    good = not different and usage == whole.usage and client.models.list().data[0] == client.models.retrieve("harness")
    try:
        client.completions.create(model="harness", prompt="a", max_tokens=-1)
        good = False
    except openai.BadRequestError as error:
        good &= error.param == "max_tokens"
    print(f"  openai {openai.__version__}: {len(QUESTIONS)} streams, {len(different)} unlike the whole;",
          "models, usage and errors read" if good else "models, usage or errors DIFFER")
    return good


def check(binary, folder, documents, precision, tolerance, **arguments):
    with serving(binary, folder, "--precision", precision) as url:
        results = evaluate(url, folder, **arguments)
        good = check_streams(url)
    worst = 0.0
    right = 0
    scores = expected_scores(binary, folder, documents, precision)
    samples = {sample["doc_id"]: sample for sample in results["samples"]["tetrad_choice"]}
    for i, document in enumerate(documents):
        actual = [response[0] for response in samples[i]["filtered_resps"]]
        worst = max(worst, *(abs(a - e) for a, e in zip(actual, scores[i], strict=True)))
        right += max(range(4), key=scores[i].__getitem__) == document["answer"]
    accuracy = results["results"]["tetrad_choice"]["acc,none"]
    print(f"  {4 * len(documents)} choices: largest difference to tetrad score {worst:.1e} nats (at most {tolerance:.0e} "
          f"allowed); accuracy {accuracy} (tetrad score: {right / len(documents)})")
    good &= worst <= tolerance and accuracy == right / len(documents)

    texts = {sample["doc_id"]: sample["filtered_resps"][0] for sample in results["samples"]["tetrad_generation"]}
    different = [i for i, document in enumerate(documents)
                 if texts[i] != expected_text(binary, folder, document["question"], precision)]
    print(f"  {len(documents)} continuations, {len(different)} unlike those of tetrad generate")
    return good and not different


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("binary", type=pathlib.Path, help="build/tetrad")
    binary = str(parser.parse_args().binary.resolve())
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        documents = prepare(binary, folder)
        print(f"lm-evaluation-harness {lm_eval.__version__}: NVFP4, one request after another")
        good = check(binary, folder, documents, "nvfp4", 0.0)
        print("f32, four clients with batches of three")
        # Sums over the same numbers in another order: 24 tokens at 1e-5 each would be generous.
        good &= check(binary, folder, documents, "f32", 1e-4, num_concurrent=4, batch_size=3)
    print("harness:", "agrees" if good else "DIFFERS")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
