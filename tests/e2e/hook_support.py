"""What the tests of tools/ share: runs of kvroof, its files read by Python, and traces compared by their replays."""

import json
import pathlib
import subprocess
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))

NEW_TOKENS = 16  # as far as the references are sure of every token
POLICIES = "full,window:budget=12,h2o:budget=0.5,keyformer:budget=14,streaming:budget=10,random:budget=9"


def run(program, *words, expected=0):
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == expected, f"{words}: exit {done.returncode}: {done.stderr}"
    return done.stdout


def tensors_of(path):
    """Name → array of a safetensors file; bfloat16 as uint16."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    types = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16, "I64": np.int64, "I32": np.int32, "U8": np.uint8}
    return {
        name: np.frombuffer(data[8 + length + t["data_offsets"][0]:8 + length + t["data_offsets"][1]],
                            types[t["dtype"]]).reshape(t["shape"])
        for name, t in header.items()
    }


def check_same_replay(program, ours, theirs, folder, tolerance=1e-4):
    """Kept sets of every step, layer and head, and every column that does not name the model."""
    answers = []
    for trace in (ours, theirs):
        kept = folder / f"{trace.name}.jsonl"
        rows = json.loads(run(program, "replay", trace, "--policy", POLICIES, "--format", "json", "--quiet", "--kept",
                              kept, "--kept-steps", "all"))
        answers.append((kept.read_text(), rows))
    assert answers[0][0] and answers[0][0] == answers[1][0], "kept sets differ"
    rows = [answer[1]["points"] if isinstance(answer[1], dict) else answer[1] for answer in answers]
    assert len(rows[0]) == 6
    for a, b in zip(*rows):
        for key in ("policy", "kept_tokens", "kv_resident_bytes", "kv_read_bytes"):
            assert a[key] == b[key], f"{a['policy']}: {key} {a[key]} and {b[key]}"
        for key in ("recall_mean", "output_error"):
            assert abs((a[key] or 0) - (b[key] or 0)) < tolerance, f"{a['policy']}: {key} {a[key]} and {b[key]}"


def check_same_rotary(ours, theirs, name):
    """How q and k of a layer were turned, by its two manifests; tables to the precision of a float."""
    for key in ("style", "dims", "theta") if ours["style"] != "none" else ("style", "dims"):
        assert ours[key] == theirs[key], (name, key, ours, theirs)
    assert ours.get("first", 0) == theirs.get("first", 0), (name, ours, theirs)
    for key, plain in (("magnitude", 1), ("inverse_frequencies", 0)):
        assert np.allclose(ours.get(key, plain), theirs.get(key, plain), rtol=1e-5, atol=0), (name, ours, theirs)


def record_ours(program, model, trace, ids, dtype, *more, kv=None):
    """`ids`: of a prompt, or of several."""
    prompts = ids if isinstance(ids[0], list) else [ids]
    words = [word for prompt in prompts for word in ("--ids", " ".join(map(str, prompt)))]
    run(program, "record", "--model", model, *words, "-n", NEW_TOKENS, "--ignore-eos", "--backend", "reference",
        "--dtype", dtype, "--kv", kv or dtype, "--prompt-logprobs", *more, "-o", trace)
