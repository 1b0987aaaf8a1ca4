# SPDX-License-Identifier: Apache-2.0
"""Trains a small model, scrapes it while it trains as Prometheus does, reads that with prometheus_client, and compares it with
what the run's metrics.jsonl says."""

import argparse
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

CONFIG = """
model: {name: 'a "name"\\with \\\\', pattern: "*-", hidden: 32, heads: 2, kv_heads: 1, head_dim: 16, ffn: 64, vocab: 64}
data: {sources: {'first': {path: data, heldout: data-heldout}}}
train: {steps: 1000000, batch: 2, sequence: 32, eval: {every: 4, sequences: 2}, checkpoint: 10}
run: {metrics_address: "0"}
"""
KEYS = {"loss": "loss", "grad_norm": "grad_norm", "learning_rate": "lr", "tokens_per_second": "tokens_per_s", "tflops": "tflops",
        "memory_bytes": "memory_bytes", "tokens": "tokens"}  # the parser leaves out _total


def families_at(url):
    with urllib.request.urlopen(url) as reply:
        if reply.headers["Content-Type"] != "text/plain; version=0.0.4; charset=utf-8":
            sys.exit(f"Content-Type is {reply.headers['Content-Type']}")
        return {family.name.removeprefix("tetrad_train_"): family for family in text_string_to_metric_families(reply.read().decode())}


def url_of(run, log):
    while run.poll() is None:
        lines = [line for line in log.read_text().splitlines() if line.startswith("figures for Prometheus: ")]
        if lines:
            return lines[0].split()[-1]
        time.sleep(0.02)
    sys.exit("tetrad train failed:\n" + log.read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("binary", type=pathlib.Path, help="build/tetrad")
    binary = str(parser.parse_args().binary.resolve())
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        subprocess.run([binary, "data", "synth", "markov", "-o", "data", "--vocab", "64", "--tokens", "4000"], cwd=folder,
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        (folder / "config.yaml").write_text(CONFIG)
        with open(folder / "log", "w") as log:
            run = subprocess.Popen([binary, "train", "config.yaml", "--out", "run"], cwd=folder, stdout=log, stderr=log)
        try:
            url = url_of(run, folder / "log")
            families = families_at(url)
            while "eval_loss" not in families:
                families = families_at(url)
        finally:
            run.send_signal(signal.SIGTERM)
            status = run.wait()
        step = families["step"].samples[0].value
        lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
        line = next(line for line in lines if line["kind"] == "train" and line["step"] == step)
        evaluations = {line["source"]: line["loss"] for line in lines if line["kind"] == "eval" and line["step"] <= step}

    wrong = [f"{name} is {families[name].samples[0].value}, not {line[key]}" for name, key in KEYS.items()
             if families[name].samples[0].value != line[key]]
    info = families["info"].samples[0].labels
    if info["model"] != 'a "name"\\with \\\\':
        wrong.append(f"the label model is {info['model']}")
    if families["tokens"].type != "counter" or families["loss"].type != "gauge":
        wrong.append("types are not those of a counter and a gauge")
    if {sample.labels["source"] for sample in families["eval_loss"].samples} != evaluations.keys():
        wrong.append("sources of eval_loss are not those that were evaluated")
    if status != 5:
        wrong.append(f"the run ended with {status}")
    print(f"scrape: {len(families)} families at step {step:.0f}:", "; ".join(wrong) or "agrees with metrics.jsonl")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
