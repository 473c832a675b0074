"""Compares the ROUGE of `kvroof eval` with the package rouge_score on texts that a model wrote.

usage: rouge_package.py KVROOF MODEL-FOLDER      (exit 77: SKIPPED, the package is not installed)
"""

import json
import pathlib
import subprocess
import sys
import tempfile

try:
    from rouge_score import rouge_scorer
except ImportError as missing:
    print(f"SKIPPED: {missing}; `build/python/bin/pip install rouge-score` brings it")
    sys.exit(77)

REFERENCES = [
    "The quick brown fox jumps over the lazy dog; the dog doesn't mind.",
    "the the the The table index of the table, of the row",
    "CREATE TABLE creates a new, empty table. \u212aelvin \u0130s na\u00efve\u2014caf\u00e9 3.14 \u4e2d\u6587",
    "...",
]


def main():
    program, model = sys.argv[1:3]
    prompts = ["The table is", "CREATE TABLE creates a new", "The function returns the", "To open a file, use"]
    examples = [{"prompt": p, "reference": r} for p, r in zip(prompts, REFERENCES)]
    scorer = rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=False)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "examples.jsonl").write_text("".join(json.dumps(e) + "\n" for e in examples))
        words = [program, "eval", "--model", model, "--jsonl", folder / "examples.jsonl", "--quiet", "--max-tokens", "40",
                 "--details", folder / "details.jsonl"]
        subprocess.run([str(w) for w in words], check=True, stdout=subprocess.DEVNULL)
        details = [json.loads(line) for line in (folder / "details.jsonl").read_text().splitlines()]
    assert len(details) == len(examples)
    for example, found in zip(examples, details):
        for kind, expected in scorer.score(example["reference"], found["text"]).items():
            ours = found[kind]
            for ours_value, value in zip((ours["precision"], ours["recall"], ours["f1"]), expected):
                assert abs(ours_value - value) < 1e-12, (kind, example, found["text"], ours, expected)
    print("ROUGE is what rouge_score computes")


main()
