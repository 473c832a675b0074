#!/usr/bin/env python3
"""Writes cases.jsonl: parts of tokenizers and what the reference library (pip install tokenizers==0.23.3) makes of texts.

The three models are small and our own: byte-level BPE, sentencepiece-style BPE with byte fallback, and Unigram.
"""
import itertools
import json
import pathlib
import random

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

FRAGMENTS = ["a", "ab", "Hello", "World", "FOO", "the", "DON'T", "it's", "we'LL", "o'ſ", "x'", "1", "12", "1234567", "²",
             "Ⅷ", "½", "٣", " ", "  ", "   ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\u2028", "\u0085", "\u200b", "é",
             "e\u0301", "\u0301", "ß", "İ", "Σς", "ﬁ", "Å", "中文", "日本語", "かな", "カナ", "한국", "ᄒ\u1161\u11ab", "हिन्दी",
             "ไทย", "،", "।", "…", "。", "!", "?", ".", ",", "(", ")", "[", "]", "|", "_", "-", "/", "\\", "$", "+", "^",
             "`", "~", "<", ">", "@", "#", "▁", "▁▁", "Ġ", "ǅ", "ʰ", "ª", "ⓐ", "😀", "👨\u200d👩", "\ufeff", "\u00ad",
             "\x00", "\u166d", "\u1b4e", "\u2e43", "\u0898", "\U00011935\U00011930", "\U00013527", "\uffff", "<0x41>",
             "if x:\n    return", "http://a.b/c", "3.14", "camelCase", "ABCdef", "XMLHttp"]
NUMBERS = r"\p{N}{1,3}"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
          r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
O200K = (TEKKEN.replace(r"+|[^\r", "+" + CONTRACTION + r"[^\r").replace(r"*|\p{N}|", "*" + CONTRACTION + NUMBERS + "|"))
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
            r"|\s*[\r\n]+|\s+(?!\S)|\s+")
BLOOM = " ?[^(\\s|[.,!?…。，、।۔،])]+"
BEHAVIORS = ["Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"]


def byte_level(regex=False, prefix=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def sequence(key, *parts):
    return {"type": "Sequence", key: list(parts)}


def pre(*parts):
    return sequence("pretokenizers", *parts)


def replace(pattern, content, kind="String"):
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def metaspace(scheme, cut):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": cut}


def strip(left, right):
    return {"type": "Strip", "strip_left": left, "strip_right": right}


def decode_strip(start, stop):
    return {"type": "Strip", "content": " ", "start": start, "stop": stop}


def added(content, **flags):
    return {"content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": False, **flags}


def with_ids(tokens, vocabulary):
    """Added tokens that the model knows have its ids, the others those behind it."""
    fresh = itertools.count(len(vocabulary))
    return [{"id": vocabulary[t["content"]] if t["content"] in vocabulary else next(fresh), **t} for t in tokens]


def train_models():
    """The merges and scores come from a few fixed lines, so that words, numbers and spaces have merges of their own."""
    lines = ["Hello World the hello ab it's we'll don't 1234567 12 return if x:\n    return camelCase ABCdef XMLHttp",
             "中文 日本語 かな カナ 한국 हिन्दी ไทย é e\u0301 ß ﬁ http://a.b/c 3.14 .. ... !! ?? () [] 😀 ▁▁ \n\n \r\n  the   "] * 4
    by_bytes = Tokenizer(models.BPE())
    by_bytes.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    by_bytes.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=500, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False, max_token_length=6))
    pieces = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    pieces.train_from_iterator([line.replace(" ", "▁") for line in lines], trainers.BpeTrainer(
        vocab_size=520, show_progress=False, max_token_length=6,
        special_tokens=["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]))
    bpe = [json.loads(t.to_str())["model"] for t in (by_bytes, pieces)]
    tokens = sorted(bpe[1]["vocab"], key=bpe[1]["vocab"].get)
    scores = random.Random(7)
    unigram = {"type": "Unigram", "unk_id": 0, "byte_fallback": False,
               "vocab": [[t, round(-scores.uniform(1, 6) - 1 / len(t), 4)] for t in tokens]}
    return {"bytes": bpe[0], "pieces": bpe[1], "unigram": unigram}


def cases():
    """(name, model, other parts) of every case."""
    plain = {"normalizer": None, "pre_tokenizer": None, "decoder": None, "added_tokens": []}
    of_bytes = {**plain, "pre_tokenizer": byte_level(True), "decoder": byte_level()}
    for form in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "ByteLevel"):
        yield form, "bytes", {**(plain if form == "ByteLevel" else of_bytes), "normalizer": {"type": form}}
    for left, right in itertools.product((False, True), repeat=2):
        yield f"strip {left} {right}", "bytes", {**of_bytes, "normalizer": strip(left, right)}
    for pattern, kind in ((" ", "String"), (r"\s{2,}", "Regex"), (r"\p{P}", "Regex"), ("a+|(?<=b)$", "Regex")):
        yield f"replace {kind} {pattern}", "bytes", {**of_bytes, "normalizer": replace(pattern, "_x", kind)}
    for behavior, invert in itertools.product(BEHAVIORS, (False, True)):
        for pattern, kind in ((r"\s+", "Regex"), (r"\p{L}+|\p{N}", "Regex"), (" ", "String"), ("a*", "Regex")):
            yield f"split {kind} {pattern} {behavior} {invert}", "bytes", {
                **of_bytes, "pre_tokenizer": pre(split(pattern, behavior, invert, kind), byte_level())}
    for name, expression in (("llama3", LLAMA3), ("qwen2", LLAMA3.replace("{1,3}", "")), ("tekken", TEKKEN),
                             ("o200k", O200K), ("bloom", BLOOM), ("threes", "[0-9][0-9][0-9]")):
        yield name, "bytes", {**of_bytes, "pre_tokenizer": pre(split(expression), byte_level())}
    yield "deepseek", "bytes", {**of_bytes, "pre_tokenizer": pre(
        split(NUMBERS), split("[一-龥぀-ゟ゠-ヿ]+"), split(DEEPSEEK), byte_level())}
    yield "deepseek-v2", "bytes", {**of_bytes, "pre_tokenizer": pre(
        split(r"[\r\n]"), split(r"\s?[A-Za-zµÀ-ÖØ-öø-ƺ]+"), split(r"\s?[!-/:-~！-／：-～‘-‟　-。]+"), split(r"\s+$"),
        split("[一-龥ࠀ-一가-퟿]+"), {"type": "Digits", "individual_digits": True}, byte_level())}
    yield "cohere", "bytes", {**of_bytes, "normalizer": {"type": "NFC"}, "pre_tokenizer": pre(
        {"type": "Digits", "individual_digits": True}, byte_level(True))}
    for expression in (r"(?i)ss|ß|ſ", r"\h+", r"[[:punct:]]+", r"[\p{L}&&[^a-z]]+", r"(?<=\p{Lu})\p{Ll}+", r"\X", r"\b", r"^",
                       r"(a|b)\1", r"(?>\s+)(?=\S)", r"\p{Han}+", r"\p{^L}+", r"\w+", "."):
        yield f"regex {expression}", "bytes", {**of_bytes, "pre_tokenizer": pre(split(expression), byte_level())}
    for kind in ("Whitespace", "WhitespaceSplit", "BertPreTokenizer"):
        yield kind, "bytes", {**of_bytes, "pre_tokenizer": pre({"type": kind}, byte_level())}
    for behavior in BEHAVIORS:
        yield f"punctuation {behavior}", "bytes", {
            **of_bytes, "pre_tokenizer": pre({"type": "Punctuation", "behavior": behavior}, byte_level())}
    yield "delimiter", "bytes", {**of_bytes, "pre_tokenizer": pre({"type": "CharDelimiterSplit", "delimiter": "a"}, byte_level())}
    yield "length", "bytes", {**of_bytes, "pre_tokenizer": pre({"type": "FixedLength", "length": 3}, byte_level(True, True))}
    sentence = sequence("decoders", replace("▁", " "), {"type": "ByteFallback"}, {"type": "Fuse"}, decode_strip(1, 0))
    for scheme, cut in itertools.product(("first", "always", "never"), (False, True)):
        for model in ("pieces", "unigram"):
            yield f"metaspace {scheme} {cut} {model}", model, {
                **plain, "pre_tokenizer": metaspace(scheme, cut), "decoder": metaspace(scheme, cut),
                "added_tokens": [added("<x>"), added("<s>", special=True, rstrip=True)]}
    yield "metaspace after a strip", "pieces", {
        **plain, "normalizer": sequence("normalizers", strip(True, True), replace(r" {2,}", "▁", "Regex")),
        "pre_tokenizer": pre({"type": "WhitespaceSplit"}, metaspace("first", True)), "decoder": sentence}
    prepend = sequence("normalizers", {"type": "Prepend", "prepend": "▁"}, replace(" ", "▁"))
    flags = [added("<n>", normalized=True), added("<l>", lstrip=True),
             added("ab", single_word=True), added("\n", rstrip=True, lstrip=True),
             added("  ", rstrip=True), added("中", single_word=True, normalized=True)]
    yield "llama2", "pieces", {**plain, "normalizer": prepend, "decoder": sentence, "added_tokens": flags}
    yield "no fallback", "unigram", {**plain, "normalizer": prepend, "decoder": sentence}
    for steps in ([{"type": "ByteFallback"}], [{"type": "ByteFallback"}, decode_strip(1, 1)], [{"type": "Fuse"}, byte_level()],
                  [replace(r"\p{L}", "_", "Regex"), {"type": "Fuse"}, decode_strip(2, 0)], [metaspace("always", True)], []):
        yield f"decoders {[s['type'] for s in steps]}", "pieces", {
            **plain, "pre_tokenizer": metaspace("always", True), "decoder": sequence("decoders", *steps)}


def results(tokenizer, text):
    """Text, ids and what they decode to; nothing where the library fails by itself (Strip, on some texts)."""
    try:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        return [text, ids, tokenizer.decode(ids, skip_special_tokens=True)]
    except BaseException as error:
        if "Panic" not in type(error).__name__:
            raise
        return None


def main():
    made = train_models()
    vocabularies = {name: model["vocab"] for name, model in made.items()}
    vocabularies["unigram"] = {token: i for i, (token, _) in enumerate(made["unigram"]["vocab"])}
    source = random.Random(11)
    folder = pathlib.Path(__file__).parent
    with open(folder / "cases.jsonl", "w", encoding="utf-8") as out:
        out.write(json.dumps({"models": made}, ensure_ascii=False, separators=(",", ":")) + "\n")
        for name, model, parts in cases():
            parts["added_tokens"] = with_ids(parts["added_tokens"], vocabularies[model])
            whole = {"version": "1.0", "truncation": None, "padding": None, "post_processor": None, "model": made[model],
                     **parts}
            tokenizer = Tokenizer.from_str(json.dumps(whole))
            fragments = [*FRAGMENTS, *(a["content"] for a in parts["added_tokens"])]
            drawn = ("".join(source.choices(fragments, k=source.randint(1, 12))) for _ in range(14))
            texts = [result for text in drawn if (result := results(tokenizer, text))]
            out.write(json.dumps({"name": name, "model": model, "parts": parts, "texts": texts}, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
