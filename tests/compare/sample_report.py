#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes sample reports, as report.json and as pages, for scripts/check-report and for looking at the page while it is changed:

    tests/compare/sample_report.py OUT_FOLDER [CASE...]

The numbers are made up, from fixed seeds; the statistics are computed from them as far as the page shows them side by side."""

import json
import math
import pathlib
import random
import sys

PAGE = pathlib.Path(__file__).resolve().parents[2] / "src/tetrad/compare/page"
SCRIPTS = ["data.js", "chart.js", "sections.js", "report.js"]
OPERANDS = ["fprop.x", "fprop.w", "dgrad.dy", "dgrad.w", "wgrad.x", "wgrad.dy"]
T975 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571}  # 97.5 % of Student's t for that many pairs


def assemble(report):
    """The page that `tetrad compare` would write. "<" inside JSON occurs only in strings, where \\u003c means the same."""
    page = (PAGE / "report.html").read_text(encoding="utf-8")
    parts = {"/*STYLE*/": (PAGE / "report.css").read_text(encoding="utf-8"),
             "/*SCRIPT*/": "".join((PAGE / name).read_text(encoding="utf-8") for name in SCRIPTS),
             "/*REPORT*/": json.dumps(report, ensure_ascii=False).replace("<", "\\u003c")}
    for placeholder in parts:
        if page.count(placeholder) != 1:
            sys.exit(f"report.html must have {placeholder} exactly once, not {page.count(placeholder)} times")
    before, rest = page.split("/*STYLE*/")
    middle, rest = rest.split("/*REPORT*/")
    between, end = rest.split("/*SCRIPT*/")
    return before + parts["/*STYLE*/"] + middle + parts["/*REPORT*/"] + between + parts["/*SCRIPT*/"] + end


def rounded(value, digits=5):
    return None if value is None or not math.isfinite(value) else round(value, digits)


class Sampler:
    """Draws the trials of one comparison: what belongs to a seed is shared by all arms, as the data order is."""

    def __init__(self, seed, steps, tokens_per_step, points, sources):
        self.rng = random.Random(seed)
        self.steps, self.per_step, self.points, self.sources = steps, tokens_per_step, min(points, steps), sources
        self.shared = {}

    def seed_noise(self, key):
        if key not in self.shared:
            rng = random.Random(repr((key, self.steps)))
            self.shared[key] = (rng.gauss(0, 0.004), [rng.gauss(0, 1) for _ in range(self.points)])
        return self.shared[key]

    def trial(self, arm, seed, gap, diverges_at=None, ends_at=1.0, ending="finished", lr_factor=1, mix=""):
        offset, noise = self.seed_noise((seed, mix))
        own = self.rng.gauss(0, 0.0025)
        tokens, loss, norm = [], [], []
        for i in range(int(self.points * ends_at)):
            share = (i + 1) / self.points
            step = max(1, round(share * self.steps))
            fall = 1.7 + 3.9 * (1 + 260 * share) ** -0.62 + abs(math.log(lr_factor)) * 0.03
            fall -= 0.11 * max(0.0, (share - 0.8) / 0.2)  # the decay of the learning rate
            value = fall * (1 + offset + (gap / 100 + own) * min(1.0, 4 * share)) + 0.035 * noise[i] + self.rng.gauss(0, 0.006)
            size = 0.35 + 1.8 * math.exp(-30 * share) + 0.08 * abs(self.rng.gauss(0, 1)) + 0.02 * abs(gap)
            if diverges_at is not None and share > diverges_at:
                value += 40 * (share - diverges_at)
                size *= 1 + 300 * (share - diverges_at)
                if share > diverges_at + 0.08:
                    value = size = None
            tokens.append(step * self.per_step)
            loss.append(rounded(value))
            norm.append(rounded(size))
        evals = []
        for number, source in enumerate(self.sources):
            at = [(j + 1) * self.steps // 10 * self.per_step for j in range(10) if (j + 1) / 10 <= ends_at]
            values = [rounded((1.6 + 0.25 * number + 3 * (1 + 200 * t / (self.steps * self.per_step)) ** -0.6)
                              * (1 + offset + gap / 100 + own)) for t in at]
            if diverges_at is not None:
                values = [v if t < diverges_at * self.steps * self.per_step else None for v, t in zip(values, at, strict=True)]
            evals.append({"source": source, "tokens": at, "loss": values})
        events = []
        if diverges_at is not None:
            step = round(self.steps * (diverges_at + 0.08))
            events.append({"step": step, "what": "loss not finite", "where": "", "action": "stopped"})
        elif self.rng.random() < 0.2:
            events.append({"step": self.rng.randrange(1, self.steps), "what": "loss spike", "where": "", "action": "logged"})
        return {"seed": seed, "lr_factor": lr_factor, "mix": mix, "folder": f"runs/{arm}/seed-{seed}", "ending": ending,
                "tokens": tokens, "loss": loss, "grad_norm": norm, "evals": evals, "events": events}


def final_loss(trial, source):
    held = next((one for one in trial["evals"] if one["source"] == source), None)
    return held["loss"][-1] if held and held["loss"] else None


def gap_statistics(trials, references, source, margin):
    gaps, nats = [], []
    for trial in trials:
        base = next((one for one in references if (one["seed"], one["lr_factor"], one["mix"])
                     == (trial["seed"], trial["lr_factor"], trial["mix"])), None)
        a, b = final_loss(trial, source), base and final_loss(base, source)
        if a is not None and b is not None and trial["ending"] == base["ending"] == "finished":
            gaps.append(100 * (a / b - 1))
            nats.append(a - b)
    count = len(gaps)
    result = {"pairs": count, "gap_percent": None, "gap_nats": None, "interval_percent": None, "sd_percent": None,
              "freedom": max(0, count - 1), "differs": None, "p_zero": None, "p_equivalent": None, "p_worse": None}
    if count == 0:
        return result
    mean = sum(gaps) / count
    result.update(gap_percent=rounded(mean, 4), gap_nats=rounded(sum(nats) / count))
    if count > 1:
        sd = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / (count - 1))
        half = T975.get(count, 2) * sd / math.sqrt(count)
        closeness = (margin - abs(mean)) / (sd / math.sqrt(count))
        result.update(interval_percent=[rounded(mean - half, 4), rounded(mean + half, 4)], sd_percent=rounded(sd, 4),
                      differs=abs(mean) > half, p_zero=rounded(math.exp(-min(50, 2 * abs(mean) / (sd / math.sqrt(count))))),
                      p_equivalent=rounded(1 / (1 + math.exp(min(50, 1.7 * closeness)))),
                      p_worse=rounded(1 / (1 + math.exp(max(-50, min(50, 1.7 * (mean - margin) / (sd / math.sqrt(count))))))))
    return result


def verdict_of(name, reference, statistics, margin, diverged):
    interval, pairs = statistics["interval_percent"], statistics["pairs"]
    if name == reference:
        kind, text = "reference", "the reference"
    elif diverged:
        kind, text = "diverged", f"{diverged} of the trials diverged"
    elif interval is None:
        kind = "undecided"
        text = f"undecided: {statistics['gap_percent']:+.2f} % on one pair" if pairs else "undecided: no finished pair"
    else:
        span = f"{statistics['gap_percent']:+.2f} % (95 %: {interval[0]:.2f} to {interval[1]:.2f}; {pairs} pairs)"
        if -margin < interval[0] and interval[1] < margin:
            kind, text = "equivalent", f"within {margin} % of {reference}: {span}"
        elif interval[0] > margin:
            kind, text = "worse", f"worse than {reference} by more than {margin} %: {span}"
        elif interval[1] < 0:
            kind, text = "better", f"better than {reference}: {span}"
        else:
            kind, text = "undecided", f"undecided: {span}"
    return {"kind": kind, "text": text, **statistics}


def windows_of(statistics):
    """The held-out loss decides; the others are made up beside it."""
    def moved(title, name, share):
        scale = {key: share * value for key, value in statistics.items() if key in ("gap_percent", "gap_nats") and value is not None}
        interval = statistics["interval_percent"]
        return {**statistics, **scale, "interval_percent": interval and [share * end for end in interval], "name": name,
                "title": title}
    return [moved("held-out loss at the end", "heldout", 1), moved("training loss of the last 40 steps", "last", 0.9)]


def facets_of(trials, references, source, margin):
    facets = sorted({(one["lr_factor"], one["mix"]) for one in trials})
    if len(facets) < 2:
        return []
    return [{"lr_factor": factor, "mix": mix, **gap_statistics(
        [one for one in trials if (one["lr_factor"], one["mix"]) == (factor, mix)], references, source, margin)}
        for factor, mix in facets]


def divergence_bound(count, of):
    """Clopper and Pearson's upper 95 % bound, by bisection."""
    if of == 0 or count == of:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(50):
        p = (low + high) / 2
        tail = sum(math.comb(of, k) * p ** k * (1 - p) ** (of - k) for k in range(count + 1))
        low, high = (p, high) if tail > 0.05 else (low, p)
    return round(low, 4)


def layers_of(blocks):
    parts = ["qkv", "out", "up", "down"]
    return [f"blocks.{block}.{part}" for block in range(blocks) for part in parts]


def telemetry(rng, layers, quality, steps):
    """Quantizer cells, and gradient cosines that are worse where more is lost."""
    cells, cosines = [], []
    for depth, layer in enumerate(layers):
        for operand in OPERANDS:
            gradient = operand.endswith("dy")
            cells.append({"layer": layer, "operand": operand,
                          "sqnr_db": rounded(20.3 + quality - (2.4 if gradient else 0) - (1.5 if layer.endswith("down") else 0)
                                             - 2 * depth / len(layers) + rng.gauss(0, 0.3), 3),
                          "underflow": rounded(max(0, (0.09 if gradient else 0.03) + rng.gauss(0, 0.012)), 5),
                          "saturated": rounded(max(0, rng.gauss(0, 0.0008)), 6), "zero_scale_blocks": 0.0,
                          "amax": rounded(abs(rng.gauss(3, 1)) * (0.02 if gradient else 1), 4)})
        angle = 10 ** (-1.8 - 0.08 * quality + 0.4 * depth / len(layers) + rng.gauss(0, 0.05))
        cosines.append({"name": layer, "cosine": rounded(1 - angle, 4),
                        "norm_ratio": rounded(1 + rng.gauss(0.01, 0.01), 4)})
    mean = sum(one["cosine"] for one in cosines) / len(cosines)
    return ({"step": steps, "cells": cells}, {"cosine": rounded(mean, 4), "norm_ratio": 1.012, "layers": cosines})


def heldout_of(source, trials, references, margin, gap, in_bf16):
    losses = [value for value in (final_loss(trial, source) for trial in trials) if value is not None]
    mean = sum(losses) / len(losses) if losses else None
    statistics = gap_statistics(trials, references, source, margin)
    return {"source": source, "loss": rounded(mean), "gap_percent": statistics["gap_percent"], "gap_nats": statistics["gap_nats"],
            "interval_percent": statistics["interval_percent"], "bits_per_byte": rounded(mean and mean / math.log(2) / 1.9),
            "excess_nats": rounded(mean and 0.02 + gap / 100) if source.startswith("markov") else None,
            "bf16_loss": rounded(mean and mean - gap / 200) if in_bf16 else None}


def fixed_weights_of(gap, first):
    """What the forward pass loses on the reference's weights, paired by token."""
    difference = 0 if first else gap / 100
    return {"loss": rounded(2.41 + difference), "difference_nats": rounded(difference), "standard_error": 0 if first else 0.0004,
            "noise": difference < 0.0008, "sequences": 512, "tokens": 512 * 1024}


def checks_of(gap):
    scores = [(f"arithmetic carry {carry}", "accuracy", 0.97 - 0.06 * carry, -gap / 100) for carry in range(3)]
    scores += [("bracket completion", "accuracy", 0.88, -gap / 120), ("multiple choice, calibration", "ECE", 0.031, gap / 500)]
    return [{"name": name, "value": rounded(score + change, 4), "unit": unit, "count": 64 * (number + 1),
             "reference": rounded(score, 4)} for number, (name, unit, score, change) in enumerate(scores)]


def cost_of(backend, speed, tokens_to_loss):
    cpu = backend == "cpu"
    rate = (28100 if cpu else 412000) * speed
    return {"tokens_per_s": rounded(rate, 1), "speed": speed, "tflops": rounded(5e-6 * rate if cpu else 9.7e-4 * rate, 3),
            "utilisation": rounded(0.41 / max(1, speed), 3),
            "peak_name": "OpenBLAS SGEMM, measured" if cpu else "989 TFLOP/s BF16 dense",
            "memory_bytes": int((6.4e7 if cpu else 4.1e9) * (0.6 + 0.4 / speed)), "checkpoint_seconds": 0.021 if cpu else 1.9,
            "checkpoint_bytes": 9830400 if cpu else 1947600000, "joules_per_token": None if cpu else rounded(0.0016 / speed, 6),
            "price_per_million_tokens": None, "tokens_to_reference_loss": tokens_to_loss}


class Comparison:
    def __init__(self, title, seed, steps, per_step, points, sources, seeds, blocks=2, margin=1.5):
        self.sampler = Sampler(seed, steps, per_step, points, sources)
        self.rng = random.Random(seed + 1)
        self.seeds, self.layers, self.steps, self.sources = seeds, layers_of(blocks), steps, sources
        self.report = {
            "format": 1, "title": title, "created": "2026-11-15T17:00:00Z", "build": "c99e3ab",
            "hardware": {"backend": "cpu", "device": "AMD EPYC 9B14", "threads": 2},
            "model": {"name": "quickstart", "parameters": 819200, "pattern": "*-*-", "vocab": 256},
            "training": {"steps": steps, "tokens": steps * per_step, "batch": 16, "sequence": per_step // 16, "schedule": "wsd",
                         "lr": 0.003},
            "data": [{"source": one, "tokens": steps * per_step, "epochs": 0.75, "heldout_tokens": 8192} for one in sources],
            "command": ["tetrad", "compare", "configs/quickstart.yaml", "--arms", "bf16,nvfp4", "--out", "a folder"],
            "trunk": None, "primary": "held-out loss at the end",
            "looks": {"planned": 1, "before": [], "alpha": 0.05, "alpha_spent": 0.05},
            "reference": "", "margin_percent": margin, "alpha": 0.05, "complete": True,
            "lock": {"common_sha256": f"{self.rng.getrandbits(256):064x}", "common_keys": 118, "differences": [], "axes": [
                {"key": "train.seed", "values": [str(one) for one in seeds]}, {"key": "optim.lr", "values": ["0.003"]}]},
            "arms": []}

    def arm(self, name, gap=0.0, speed=1.0, description=None, quality=None, trials=None, checks=True, tokens_to_loss=None,
            **trial_options):
        report, first = self.report, not self.report["arms"]
        if first:
            report["reference"] = name
        if trials is None:
            trials = [self.sampler.trial(name, seed, gap, **trial_options) for seed in self.seeds]
        references = trials if first else report["arms"][0]["trials"]
        margin = report["margin_percent"]
        source = self.sources[0] if self.sources else None
        ended = [one for one in trials if one["ending"] in ("finished", "diverged")]
        diverged = sum(one["ending"] == "diverged" for one in trials)
        statistics = gap_statistics([] if first else trials, references, source, margin)
        quantizer, gradient = (None, None) if quality is None else telemetry(self.rng, self.layers, quality, self.steps)
        in_bf16 = quality is not None and not first
        heldout = [heldout_of(one, trials, [] if first else references, margin, gap, in_bf16) for one in self.sources]
        tokens = report["training"]["tokens"]
        spikes = sum(event["what"] == "loss spike" for one in trials for event in one["events"])
        report["arms"].append({
            "name": name, "description": description or f"precision.recipe={name}", "is_reference": first,
            "verdict": verdict_of(name, report["reference"], statistics, margin, diverged),
            "windows": windows_of(statistics), "facets": [] if first else facets_of(trials, references, source, margin),
            "divergences": {"count": diverged, "of": len(ended), "bound": divergence_bound(diverged, len(ended))},
            "spikes": {"count": spikes, "per_million_tokens": rounded(1e6 * spikes / (tokens * max(1, len(ended))), 4)},
            "skipped_steps": 0, "heldout": heldout,
            "checks": checks_of(gap) if checks else [],
            "gradient": gradient, "fixed_weights": None if quality is None else fixed_weights_of(gap, first), "quantizer": quantizer,
            "cost": cost_of(report["hardware"]["backend"], speed, 1.0 if first else tokens_to_loss),
            "recovery": {"nan": "skipped 1 step, then as before", "nan_ok": True, "resume": "equal to the bit", "resume_ok": True},
            "trials": trials})
        differences = report["lock"]["differences"] or [{"key": "precision.recipe", "values": {}}]
        differences[0]["values"][name] = name
        report["lock"]["differences"] = differences
        return report["arms"][-1]


def study():
    """What the README shows: four precisions with three seeds, on a device."""
    made = Comparison("Four precisions on kernel sources, 162M parameters", 11, 4000, 32768, 700,
                      ["code", "documentation", "markov 2"], [1, 2, 3], blocks=12)
    made.report["hardware"] = {"backend": "cuda", "device": "NVIDIA H200", "threads": 16}
    made.report["trunk"] = {"steps": 1000, "tokens": 1000 * 32768, "given": []}
    made.report["model"] = {"name": "dense-162m", "parameters": 162_300_000, "pattern": "*-" * 12, "vocab": 32768}
    made.arm("bf16")
    made.arm("fp8", 0.12, 1.31, quality=11, tokens_to_loss=1.004)
    made.arm("nvfp4", 0.78, 1.62, quality=0, tokens_to_loss=1.03)
    made.arm("mxfp4", 2.9, 1.58, quality=-2.5, tokens_to_loss=1.21)
    for number, arm in enumerate(made.report["arms"]):  # what the driver of a device counts; other samples have none
        arm["cost"]["device_busy"] = rounded(0.97 - 0.015 * number, 3)
    return made.report


def quickstart():
    """One pair: a gap, but no statement about noise; no gradients, no checks."""
    made = Comparison("quickstart: bf16, nvfp4", 21, 300, 4096, 300, ["text"], [1])
    made.arm("bf16", checks=False)
    made.arm("nvfp4", 0.53, 0.77, quality=0, checks=False)
    for arm in made.report["arms"]:
        arm["gradient"] = arm["fixed_weights"] = arm["recovery"] = None
    return made.report


def many():
    """As much as the page must bear: twelve arms, six seeds, 1500 points each; some arms diverge."""
    made = Comparison("Ablation ladder, twelve arms", 31, 6000, 16384, 1500, ["code", "text"], [1, 2, 3, 4, 5, 6], blocks=24)
    made.arm("bf16")
    for number in range(1, 11):
        made.arm(f"nvfp4-variant-{number}", (-0.4, 0.3, 0.7, 1.0, 1.3, 1.6, 2.2, 3.1, 4.0, 6.5)[number - 1], 1.1 + number / 20,
                 quality=-number / 4, description=f"precision.rht={number}, precision.sr=gradients", tokens_to_loss=1 + number / 50)
    trials = [made.sampler.trial("nvfp4-nothing", seed, 8, diverges_at=0.25 + seed / 20 if seed < 5 else None,
                                 ending="diverged" if seed < 5 else "finished") for seed in made.seeds]
    made.arm("nvfp4-nothing", 8, 1.7, quality=-3, trials=trials)
    return made.report


def incomplete():
    """Killed on the way: trials that are missing or running, an arm without anything, values that nobody measured."""
    made = Comparison("Killed at half time", 41, 1000, 8192, 500, ["text"], [1, 2, 3])
    made.arm("bf16", checks=False)
    draw = made.sampler.trial
    missing = {"seed": 3, "lr_factor": 1, "mix": "", "folder": "runs/nvfp4/seed-3", "ending": "missing", "tokens": [], "loss": [],
               "grad_norm": [], "evals": [], "events": []}
    made.arm("nvfp4", 0.6, 0.8, checks=False, trials=[
        draw("nvfp4", 1, 0.6), draw("nvfp4", 2, 0.6, ends_at=0.55, ending="running"), dict(missing)])
    made.arm("mxfp4", 2.0, 0.8, checks=False, trials=[
        dict(missing, seed=seed, folder=f"runs/mxfp4/seed-{seed}") for seed in (1, 2, 3)])
    report = made.report
    report.update(complete=False, build=None, data=[], command=[])
    report["model"]["pattern"] = None
    empty = report["arms"][2]
    empty.update(heldout=[], gradient=None, fixed_weights=None, quantizer=None, recovery=None, cost=dict.fromkeys(empty["cost"]),
                 spikes={"count": None, "per_million_tokens": None}, skipped_steps=None)
    return report


def alone():
    """One arm, and nothing but what must be there."""
    made = Comparison("bf16 alone", 51, 200, 2048, 200, [], [7])
    made.arm("bf16", checks=False)
    made.report["lock"]["differences"] = []
    made.report["arms"][0].update(recovery=None, cost=None)
    return made.report


def diverged():
    """One arm loses two trials on the way, and one at once, without a single finite value; another arm loses all of them."""
    made = Comparison("fp4 without scales", 61, 400, 4096, 400, ["text"], [1, 2, 3, 4])
    made.arm("bf16")
    trials = [made.sampler.trial("e2m1", seed, 5, diverges_at=at, ending="finished" if at is None else "diverged")
              for seed, at in ((1, 0.05), (2, 0.0), (3, 0.55), (4, None))]
    trials[1].update(loss=[None] * 400, grad_norm=[None] * 400)
    made.arm("e2m1", 5, 0.7, trials=trials)
    made.arm("e2m1-no-rht", 5, 0.7, diverges_at=0.02, ending="diverged")
    made.report["arms"][1]["recovery"].update(nan="the loss did not come back", nan_ok=False)
    return made.report


def factors():
    """Learning-rate factors and data mixes: several facets, of which one is shown at a time. Looked at too often."""
    made = Comparison("Two rates, two mixes", 71, 500, 4096, 250, ["text"], [1, 2])
    made.report["looks"] = {"planned": 1, "before": [1], "alpha": 0.025, "alpha_spent": 0.075}
    for name, gap in (("bf16", 0.0), ("nvfp4", 0.9)):
        made.arm(name, gap, trials=[made.sampler.trial(name, seed, gap, lr_factor=factor, mix=mix)
                                    for factor in (0.5, 1, 2) for mix in ("code", "prose") for seed in (1, 2)])
    return made.report


def unstarted():
    """The first look, before any trial has a point."""
    made = Comparison("Just begun", 91, 400, 4096, 400, ["text"], [1, 2])
    for name in ("bf16", "nvfp4"):
        made.arm(name, checks=False, ends_at=0.0, ending="running")
        made.report["arms"][-1].update(heldout=[], recovery=None, cost=None)
    made.report["complete"] = False
    return made.report


def hostile():
    """Names as an attacker or a careless user would choose them. Whatever runs sets window.owned."""
    attack = "</script><img src=x onerror=\"window.owned=1\"><script>window.owned=1</script>"
    names = [attack, "<!--<script>window.owned=1//", "__proto__", "=cmd|' /C calc'!A0,\"quoted\"\nsecond line",
             "/*SCRIPT*/\u202egnp.txt" + "w" * 300]
    made = Comparison(f"<svg onload=window.owned=1>{attack}", 81, 200, 2048, 100, [attack, "constructor"], [1, 2])
    for number, name in enumerate(names):
        made.arm(name, 0.4 * number, 0.9, quality=None if number == 0 else 0, description=attack)
    report = made.report
    report["command"] = [attack, "it's"]
    report["primary"] = report["data"][0]["source"] = attack
    report["build"] = report["hardware"]["device"] = report["model"]["name"] = report["lock"]["common_sha256"] = attack
    report["lock"]["differences"].append({"key": attack, "values": dict.fromkeys(names, attack)})
    report["lock"]["axes"].append({"key": attack, "values": [attack]})
    for arm in report["arms"]:
        arm["verdict"]["text"] = attack
        arm["windows"][1]["title"] = attack
        arm["recovery"].update(nan=attack, resume=attack)
        arm["checks"][0].update(name=attack, unit=attack)
        if arm["cost"]:
            arm["cost"]["peak_name"] = attack
        for cell in arm["quantizer"]["cells"][:7] if arm["quantizer"] else []:
            cell["layer"] = attack
        if arm["gradient"]:
            arm["gradient"]["layers"][0]["name"] = attack
        for trial in arm["trials"]:
            trial["events"].append({"step": 3, "what": attack, "where": attack, "action": attack})
    return report


CASES = {function.__name__: function for function in (
    study, quickstart, many, incomplete, unstarted, alone, diverged, factors, hostile)}


def write(name, folder):
    """Writes NAME.json and NAME.html; gives the path of the latter."""
    report = CASES[name]()
    page = folder / f"{name}.html"
    (folder / f"{name}.json").write_text(json.dumps(report, ensure_ascii=False), encoding="utf-8")
    page.write_text(assemble(report), encoding="utf-8", newline="")
    return page


def main():
    if len(sys.argv) < 2 or any(name not in CASES for name in sys.argv[2:]):
        sys.exit(f"usage: sample_report.py OUT_FOLDER [CASE...]; cases: {' '.join(CASES)}")
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or CASES:
        write(name, out)


if __name__ == "__main__":
    main()
