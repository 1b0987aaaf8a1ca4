# SPDX-License-Identifier: Apache-2.0
"""Encodes and decodes random Unicode, code points one by one and real text with `tetrad tokenizer` and with the `tokenizers` and
`tiktoken` packages: tokens and texts must be equal. The tokenizer files are made here, by the packages themselves."""

import argparse
import base64
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time

import tiktoken
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).resolve().parent

CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
LEAD = r"[^\r\n\p{L}\p{N}]?"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTION + r"|" + LEAD + r"\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace("{1,3}", "")
CASED_END = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = f"{LEAD}{UPPER}*{LOWER}+{CONTRACTION}?|{LEAD}{UPPER}+{LOWER}*{CONTRACTION}?|" + r"\p{N}{1,3}|" + CASED_END
TEKKEN = f"{LEAD}{UPPER}*{LOWER}+|{LEAD}{UPPER}+{LOWER}*|" + r"\p{N}|" + CASED_END
# Ours for tiktoken's cl100k: `$` there is the end of the text.
CL100K = LLAMA3.replace(r"|\s*[\r\n]+", r"|\s+\z|\s*[\r\n]+")
# Other spellings that are in use.
GPT2_GROUPED = GPT2.replace("'s|'t|'re|'ve|'m|'ll|'d", "'(?:[sdmt]|ll|ve|re)")
LLAMA3_GROUPED = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|"
                  r"\s+(?!\S)|\s+")
# What tiktoken itself has.
TIKTOKEN_CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|"
                   r"\s+(?!\S)|\s")
TIKTOKEN_R50K = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"

SCRIPTS = [
    "Der schnelle braune Fuchs springt über den faulen Hund; Straße, größer, ΑΒΓ αβγ ὀδυσσεύς.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю. Їжак і ґанок.",
    "いろはにほへと ちりぬるを。吾輩は猫である。名前はまだ無い。１２３カタカナ",
    "天地玄黃，宇宙洪荒。日月盈昃，辰宿列張。简体中文：我能吞下玻璃而不伤身体。",
    "다람쥐 헌 쳇바퀴에 타고파. 키스의 고유조건은 입술끼리 만나야 하고",
    "نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر ٠١٢٣٤٥ ۱۲۳",
    "דג סקרן שט בים מאוכזב ולפתע מצא חברה",
    "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश करने वाले १२३",
    "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า กว่าบรรดาฝูงสัตว์เดรัจฉาน ๑๒๓",
    "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 ❤️ 🇩🇪 e\u0301 n\u0303 Å ﬁ ﬀ ™ ½ Ⅷ ² ①",
    "It's John's; they'LL we've I'M you'd don'T '\u017f ''s 'sound 'reply x''ll",
    "if (x<<=1) { return a->b[i++]; }\t// tabs\r\n\r\n    indented\n\n\n  \u00a0 \u3000mixed \u2028 \u0085 end   \n \n  ",
]


def pieces_of_random_strings():
    """What random strings are made of, and how often each kind is chosen."""
    generator = random.Random(7)
    points = [p for p in range(0x110000) if not 0xD800 <= p < 0xE000]
    spaces = [chr(p) for p in [*range(9, 14), 0x1C, 0x1F, 0x20, 0x85, 0xA0, 0x1680, 0x180E, *range(0x2000, 0x200D), 0x2028, 0x2029,
                               0x202F, 0x205F, 0x2060, 0x3000, 0xFEFF]]
    edges = [chr(p) for p in (0, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFDD0, 0xFFFD, 0xFFFE, 0xFFFF, 0x10000, 0x1FFFF,
                              0x10FFFF)]
    words = [w for text in SCRIPTS for w in text.split()]
    marks = [chr(p) for p in [*range(0x300, 0x370), *range(0x93A, 0x950), *range(0xFE00, 0xFE10), 0x200C, 0x200D, 0x20E3,
                              *range(0x591, 0x5C8), *range(0x64B, 0x660), *range(0x1DC0, 0x1E00)]]
    jamo = [chr(p) for p in [*range(0x1100, 0x1114), *range(0x1160, 0x1177), *range(0x11A7, 0x11C4), 0xAC00, 0xAC01, 0xAC1C, 0xD788]]
    specials = ["<|endoftext|>", "<|begin|>", "<|end|>", "<|", "|>", "<a>", "<a>b", "[L]", "[R]", "[B]", "word", "Norm", "two words",
                "\u00e9", "\u6f22", " lead", "<|endoftext", "\u0120", "\t\t",
                "<e\u0301>", "[e\u0301]", "[\u00e9]", "\u1100\u1161", "\uac00"]
    contractions = [q + c for q in "'\u2019" for c in ("s", "S", "t", "re", "RE", "rE", "ve", "m", "ll", "Ll", "d", "\u017f", "l", "r", "")]
    kinds = [
        (12, list("etaoin shrdluETAOINSHRDLU")), (6, [" ", " ", "  ", "   ", "\n", "\r\n", "\n\n", "\t"]), (3, spaces),
        (4, [*"0123456789", "12", "1234", "\u0663", "\u00bd", "\u2167", "\U0001d7ce", "\U00011de3"]),
        (4, list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")), (4, contractions), (4, words), (3, marks), (1, jamo), (2, specials), (1, edges),
        (4, [chr(p) for p in generator.choices(points, k=20000)]), (3, [chr(p) for p in generator.choices(range(0xA0, 0x3000), k=20000)]),
    ]
    pool, weights = [], []
    for weight, items in kinds:
        pool += items
        weights += [weight / len(items)] * len(items)
    cumulative, total = [], 0.0
    for weight in weights:
        total += weight
        cumulative.append(total)
    return pool, cumulative


def random_strings(seed, count, pool, cumulative):
    generator = random.Random(seed)
    lengths = [int(generator.expovariate(1 / 10)) for _ in range(count)]
    pieces = generator.choices(pool, cum_weights=cumulative, k=sum(lengths))
    strings, at = [], 0
    for length in lengths:
        strings.append("".join(pieces[at:at + length]))
        at += length
    return strings


def code_points(kind, full):
    """Each beside letters of both cases, digits, spaces, newlines and apostrophes, or added tokens, or marks; many to a string.
    Not `full`: those below U+3400 and one in sixteen of the others."""
    if kind not in ("gpt2", "llama3", "o200k", "digits, then gpt2", "added tokens", "gpt2 with NFC"):
        return
    generator = random.Random(11)
    points = [chr(p) for p in range(0x110000)
              if not 0xD800 <= p < 0xE000 and (full or p < 0x3400 or generator.randrange(16) == 0)]
    for begin in range(0, len(points), 64):
        part = points[begin:begin + 64]
        if kind == "gpt2 with NFC":
            yield "".join(f"{c} a{c}{c} q{c}\u0334\u0301 q\u0345{c} \u0308{c}\u0301 \u1100{c}\u11a8 " for c in part)
        elif kind == "added tokens":
            yield "".join(f"word{c}-{c}word {c}[L][R]{c} " for c in part)
        else:
            yield "".join(f"a{c}b{c}{c} {c}1{c}'{c} X{c}\n{c}x" for c in part)


def real_texts():
    root = HERE.parent
    files = sorted(p for suffix in ("h", "cpp", "md", "py", "cu", "yaml") for p in root.glob(f"*/**/*.{suffix}")
                   if not any(part.startswith(("build", ".")) for part in p.relative_to(root).parts))
    return [p.read_text() for p in files[::4]]


def trained(pre_tokenizer, corpus, specials=("<|endoftext|>",), vocab=2000, ignore_merges=False):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  special_tokens=list(specials), show_progress=False)
    tokenizer.train_from_iterator(corpus, trainer)
    return tokenizer


def split_then_bytes(*patterns, behavior="isolated", invert=False, use_regex=False, before=()):
    steps = [*before, *(pre_tokenizers.Split(Regex(p), behavior, invert) for p in patterns)]
    return pre_tokenizers.Sequence([*steps, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)])


def make_tokenizers(corpus):
    """Every feature that Tetrad reads, by name: the tokenizer, and a change to its file or None."""
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    result = {}

    def add(name, tokenizer, change=None):
        result[name] = (tokenizer, change)

    def merges_as_strings(root):
        root["model"]["merges"] = [" ".join(merge) for merge in root["model"]["merges"]]

    add("gpt2", trained(byte_level, corpus), merges_as_strings)
    add("gpt2 with prefix space", trained(pre_tokenizers.ByteLevel(add_prefix_space=True), corpus))
    add("gpt2 as a Split", trained(split_then_bytes(GPT2), corpus))
    add("gpt2 grouped", trained(split_then_bytes(GPT2_GROUPED), corpus))
    add("no split", trained(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False), corpus, vocab=600))

    llama3 = trained(split_then_bytes(LLAMA3), corpus, ("<|begin|>", "<|end|>"), ignore_merges=True)
    begin, end = llama3.token_to_id("<|begin|>"), llama3.token_to_id("<|end|>")
    llama3.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single="<|begin|> $A <|end|>", pair="$A $B", special_tokens=[("<|begin|>", begin), ("<|end|>", end)])])
    add("llama3", llama3)
    add("llama3 grouped", trained(split_then_bytes(LLAMA3_GROUPED), corpus))
    add("llama3 inverted", trained(split_then_bytes(LLAMA3, behavior="removed", invert=True), corpus))
    add("llama3, then gpt2", trained(split_then_bytes(LLAMA3, use_regex=True), corpus))
    add("cl100k", trained(split_then_bytes(CL100K), corpus))
    add("qwen2", trained(split_then_bytes(QWEN2), corpus))
    add("o200k", trained(split_then_bytes(O200K), corpus), merges_as_strings)
    add("tekken", trained(split_then_bytes(TEKKEN), corpus))
    add("digits, then gpt2", trained(split_then_bytes(use_regex=True, before=[pre_tokenizers.Digits(individual_digits=True)]), corpus))
    add("numbers, then llama3", trained(split_then_bytes(LLAMA3, before=[pre_tokenizers.Digits(individual_digits=False)]), corpus))

    zoo = trained(byte_level, corpus)
    zoo.add_tokens([AddedToken("<a>", normalized=False), AddedToken("<a>b", normalized=False), AddedToken("[L]", lstrip=True),
                    AddedToken("[R]", rstrip=True, normalized=False), AddedToken("[B]", lstrip=True, rstrip=True),
                    AddedToken("word", single_word=True), AddedToken("Norm", single_word=True, normalized=False),
                    AddedToken("two words"), AddedToken("\u00e9"), AddedToken("\u6f22"), AddedToken(" lead", normalized=False),
                    AddedToken("\u0120", normalized=False), AddedToken("\t\t", lstrip=True, rstrip=True, normalized=False)])
    zoo.add_special_tokens([AddedToken("<|begin|>", lstrip=True), AddedToken("<|end|>", normalized=True)])
    zoo.post_processor = processors.RobertaProcessing(("<|end|>", zoo.token_to_id("<|end|>")),
                                                      ("<|begin|>", zoo.token_to_id("<|begin|>")), True, False)
    add("added tokens", zoo)

    def normalizing(tokenizer):
        tokenizer.normalizer = normalizers.NFC()
        tokenizer.add_tokens([AddedToken("<e\u0301>", normalized=False), AddedToken("[e\u0301]"), AddedToken("\u1100\u1161"),
                              AddedToken("word", single_word=True)])
        return tokenizer

    add("qwen2 with NFC", normalizing(trained(split_then_bytes(QWEN2), corpus)))
    add("gpt2 with NFC", normalizing(trained(byte_level, corpus)))
    return result


def write_tokenizer(tokenizer, change, path):
    root = json.loads(tokenizer.to_str())
    if change:
        change(root)
    path.write_text(json.dumps(root, ensure_ascii=False))
    return Tokenizer.from_file(str(path))  # what the package makes of the very file


def tetrad_lines(binary, arguments, values):
    text = "".join(json.dumps(value) + "\n" for value in values)
    run = subprocess.run([binary, "tokenizer", *arguments, "--lines"], input=text, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        sys.exit(f"tetrad tokenizer {' '.join(map(str, arguments))} failed: {run.stderr}")
    return [json.loads(line) for line in run.stdout.split("\n")[:-1]]


def first_difference(name, what, inputs, ours, theirs):
    if len(ours) != len(theirs):
        sys.exit(f"{name}: {len(ours)} results for {len(theirs)} inputs")
    for given, mine, wanted in zip(inputs, ours, theirs, strict=True):
        if mine != wanted:
            print(f"DIFFERS: {name}, {what}: {given!r}\n  tetrad  {mine}\n  package {wanted}")
            return False
    return True


def package_ids(tokenizer, strings, add_special_tokens):
    """In portions: the package's results hold much more than ids."""
    ids = []
    for begin in range(0, len(strings), 500):
        ids += [e.ids for e in tokenizer.encode_batch_fast(strings[begin:begin + 500], add_special_tokens=add_special_tokens)]
    return ids


def check_tokenizer(binary, name, tokenizer, path, strings, seed):
    """Encodes without and with special tokens, then decodes whole and torn lists of ids."""
    theirs = package_ids(tokenizer, strings, False)
    good = first_difference(name, "encode", strings, tetrad_lines(binary, ["encode", path], strings), theirs)
    some = strings[:2000]
    good &= first_difference(name, "encode --special", some, tetrad_lines(binary, ["encode", path, "--special"], some),
                             package_ids(tokenizer, some, True))
    generator = random.Random(seed)
    vocab = tokenizer.get_vocab_size()
    lists = [ids[:generator.randrange(len(ids) + 1)] for ids in theirs[:len(theirs) // 4] if len(ids) < 10000]
    lists += [[generator.randrange(vocab + 10) for _ in range(generator.randrange(12))] for _ in range(len(lists))]
    for skip in (False, True):
        wanted = tokenizer.decode_batch(lists, skip_special_tokens=skip)
        flags = ["--skip-special"] if skip else []
        good &= first_difference(name, " ".join(["decode", *flags]), lists, tetrad_lines(binary, ["decode", path, *flags], lists),
                                 wanted)
    return good


def check_tiktoken(binary, folder, name, pattern, source, strings, specials):
    """A rank file of the tokens that the package learned, read by tiktoken and by us."""
    spelling = {c: b for b, c in enumerate(bytes_in_spelling_order())}
    added = {token.content for token in source.get_added_tokens_decoder().values()}
    vocab = sorted(source.get_vocab().items(), key=lambda item: item[1])
    tokens = [bytes(spelling[c] for c in token) for token, _ in vocab if token not in added]
    tokens.sort(key=lambda t: len(t) > 1)  # bytes first, as in real files; the rest stays in order
    ranks = {token: rank for rank, token in enumerate(tokens)}
    path = folder / f"{name}.tiktoken"
    path.write_bytes(b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks.items()))
    special_ids = {content: len(ranks) + i for i, content in enumerate(specials)}
    encoding = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens=special_ids)
    theirs = encoding.encode_batch(strings, allowed_special="all", num_threads=1)
    return first_difference(f"tiktoken {name}", "encode", strings, tetrad_lines(binary, ["encode", f"{name}:{path}"], strings), theirs)


def bytes_in_spelling_order():
    itself = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    other = iter(range(0x100, 0x200))
    return [chr(b) if b in itself else chr(next(other)) for b in range(256)]


def speed(tokenizer, texts):
    """MB/s of the package on one thread."""
    size = sum(len(text.encode()) for text in texts)
    begin = time.perf_counter()
    for text in texts:
        tokenizer.encode(text, add_special_tokens=False)
    package = size / (time.perf_counter() - begin) / 1e6
    print(f"  the package encodes {package:.1f} MB/s of this repository's sources, one document at a time; "
          f"`tetrad bench tokenizer` measures ours")


def llama3_tokens(named):
    """The special tokens of Llama 3, by their place behind the last rank."""
    reserved = (f"reserved_special_token_{i}" for i in range(256))
    return [f"<|{named.get(i) or next(reserved)}|>" for i in range(256)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("binary", type=pathlib.Path, help="build/tetrad")
    parser.add_argument("--strings", type=int, default=40000, help="random strings in all (default: %(default)s)")
    parser.add_argument("--full", action="store_true", help="a million random strings, and every code point")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    binary = str(arguments.binary.resolve())
    if arguments.full:
        arguments.strings = max(arguments.strings, 1000000)
    texts = real_texts() + SCRIPTS
    pool, cumulative = pieces_of_random_strings()
    all_tokenizers = make_tokenizers(texts[::8] + 20 * SCRIPTS)
    per_tokenizer = -(-arguments.strings // len(all_tokenizers))
    print(f"against tokenizers {tokenizers.__version__} and tiktoken {tiktoken.__version__}: {per_tokenizer} random strings for each of "
          f"{len(all_tokenizers)} tokenizers, {'all' if arguments.full else 'some'} code points, {len(texts)} texts")
    good = True
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for number, (kind, (tokenizer, change)) in enumerate(all_tokenizers.items()):
            path = folder / f"{number}.json"
            written = write_tokenizer(tokenizer, change, path)
            strings = random_strings(arguments.seed * 1000 + number, per_tokenizer, pool, cumulative) + texts
            strings += code_points(kind, arguments.full)
            begin = time.perf_counter()
            same = check_tokenizer(binary, kind, written, str(path), strings, number)
            good &= same
            seconds = time.perf_counter() - begin
            print(f"  {kind:<24} {len(strings):>8} strings {'equal' if same else 'DIFFER'} ({seconds:.1f} s)", flush=True)
        strings = random_strings(arguments.seed, per_tokenizer, pool, cumulative) + texts
        llama3 = {0: "begin_of_text", 1: "end_of_text", 6: "start_header_id", 7: "end_header_id", 9: "eot_id"}
        llama31 = llama3 | {4: "finetune_right_pad_id", 8: "eom_id", 10: "python_tag"}
        for encoding, pattern, specials in (("cl100k", TIKTOKEN_CL100K, ["<|endoftext|>"]), ("o200k", O200K, ["<|endoftext|>"]),
                                            ("r50k", TIKTOKEN_R50K, ["<|endoftext|>"]), ("llama3", LLAMA3, llama3_tokens(llama3)),
                                            ("llama3.1", LLAMA3, llama3_tokens(llama31))):
            source = all_tokenizers["o200k" if encoding == "o200k" else "llama3"][0]
            same = check_tiktoken(binary, folder, encoding, pattern, source, strings, specials)
            good &= same
            print(f"  tiktoken {encoding:<15} {len(strings):>8} strings {'equal' if same else 'DIFFER'}", flush=True)
        speed(all_tokenizers["gpt2"][0], texts)
    print("tokenizers:", "equal" if good else "DIFFER")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
