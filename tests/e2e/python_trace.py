"""Opens traces in Python with safetensors and sqlite3 alone and checks tensors and tables.

usage: python_trace.py KVROOF MODEL-FOLDER      (exit 77: SKIPPED, the packages are not installed)
"""

import json
import pathlib
import sqlite3
import struct
import subprocess
import sys
import tempfile

try:
    import numpy as np
    from safetensors.numpy import load_file, save_file
except ImportError as missing:
    print(f"SKIPPED: {missing}; scripts/setup installs numpy and safetensors")
    sys.exit(77)

CAUSES = ["weights", "kv_read", "kv_write", "scores", "compaction", "activations"]


def run(program, *words):
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}: exit {done.returncode}: {done.stderr}"


def header_of(path):
    """The header of a safetensors file: eight bytes of length, then JSON."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        return json.loads(file.read(length))


def segments_of(trace):
    """Tensors of all segments, each joined along its first axis, after checking the journal against the files."""
    lines = [json.loads(line) for line in (trace / "journal.jsonl").read_text().splitlines()]
    tensors = {}
    steps = 0
    for number, line in enumerate(lines):
        path = trace / line["file"]
        assert line["segment"] == number and line["file"] == f"segments/{number:05}.safetensors"
        assert line["first_step"] == steps and line["bytes"] == path.stat().st_size and len(line["xxh3"]) == 16
        steps += line["steps"]
        metadata = header_of(path)["__metadata__"]
        assert metadata["format"] == "kvroof-trace-1" and int(metadata["segment"]) == number
        for name, tensor in load_file(path).items():
            tensors.setdefault(name, []).append(tensor)
    seal = json.loads((trace / "seal.json").read_text())
    assert (seal["segments"], seal["steps"]) == (len(lines), steps)
    assert seal["bytes"] == sum(line["bytes"] for line in lines)
    return {name: np.concatenate(parts) for name, parts in tensors.items()}, steps


def check_tables(trace, tensors):
    """kvroof_step repeats the tensor `steps`; Nsight's tables are there and can be joined."""
    database = sqlite3.connect(trace / "kernels.sqlite")
    columns = [row[1] for row in database.execute("PRAGMA table_info(kvroof_step)")]
    assert columns == ["step", "phase", "sequences", "start_ns", "end_ns"] + [f"{cause}_bytes" for cause in CAUSES]
    rows = database.execute("SELECT * FROM kvroof_step ORDER BY step").fetchall()
    assert len(rows) == len(tensors["steps"])
    for row, counted in zip(rows, tensors["steps"].tolist()):
        assert [row[0], ["prefill", "decode"].index(row[1]), row[2], *row[5:]] == counted
    kernels = "SELECT k.end - k.start, s.value FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.shortName"
    assert database.execute(kernels).fetchall() == []
    return rows


def check_import(program, folder, dtype):
    """Tensors that safetensors wrote come back from the trace, token by token."""
    rng = np.random.default_rng(1)
    layers, heads, kv_heads, n, d, prompt = 2, 4, 2, 3000, 32, 2900
    q, k, v = (rng.standard_normal((layers, h, n, d)).astype(dtype) for h in (heads, kv_heads, kv_heads))
    source = folder / f"{np.dtype(dtype).name}.safetensors"
    trace = folder / f"{np.dtype(dtype).name}.kvt"
    save_file({"q": q, "k": k, "v": v}, source)
    run(program, "import", "qkv", source, "--prompt", prompt, "--alibi", "-o", trace)
    tensors, _ = segments_of(trace)
    manifest = json.loads((trace / "manifest.json").read_text())
    assert manifest["format_version"] == 1 and manifest["kv_type"] == {"float32": "f32", "float16": "f16"}[q.dtype.name]
    assert manifest["sequences"] == [
        {"id": 0, "prompt": prompt, "requested_new_tokens": n - prompt, "tokens": n, "stop_reason": "imported"}
    ]
    for l in range(layers):
        assert manifest["layers"][l]["alibi_slopes"] == [2.0 ** (-2 * (h + 1)) for h in range(heads)]
        assert np.float32(manifest["layers"][l]["scale"]) == np.float32(1 / np.sqrt(d))
        for name, whole in (("q", q), ("k", k), ("v", v)):
            assert np.array_equal(tensors[f"s0.l{l}.{name}"], whole[l].transpose(1, 0, 2)), f"layer {l} {name}"
    check_tables(trace, tensors)


def check_record(program, model, folder):
    """A recorded run under a policy: shapes, ids, log-probabilities, evictions, counted bytes and times."""
    trace = folder / "record.kvt"
    words = ["record", "--model", model, "--prompt", "The trace of a short run, opened by another language.", "--ignore-eos"]
    run(program, *words, "--max-tokens", 8, "--policy", "window:budget=6", "--backend", "reference", "-o", trace)
    tensors, _ = segments_of(trace)
    manifest = json.loads((trace / "manifest.json").read_text())
    tokens = manifest["sequences"][0]["tokens"]
    evicted = 0
    for l, layer in enumerate(manifest["layers"]):
        assert tensors[f"s0.l{l}.q"].shape == (tokens, layer["query_heads"], layer["k_width"])
        assert tensors[f"s0.l{l}.k"].shape == (tokens, layer["kv_heads"], layer["k_width"])
        assert tensors[f"s0.l{l}.v"].shape == (tokens, layer["kv_heads"], layer["v_width"])
        assert np.isfinite(tensors[f"s0.l{l}.q"]).all()
        evicted += len(tensors[f"s0.l{l}.evictions"])
        assert tensors[f"s0.l{l}.evictions"][:, 2].max() < tokens
    # Six rows stay in each head of each layer.
    assert evicted == sum((tokens - 6) * layer["kv_heads"] for layer in manifest["layers"])
    ids, logprobs = tensors["s0.ids"], tensors["s0.logprobs"]
    assert ids.dtype == np.int64 and len(ids) == len(logprobs) >= tokens
    prompt = manifest["sequences"][0]["prompt"]
    assert logprobs[0] == 0 and (logprobs[prompt:] < 0).all() and len(logprobs) == prompt + 8
    assert np.isnan(logprobs[1:prompt]).all()  # not asked for
    for row in check_tables(trace, tensors):
        assert row[3] <= row[4] and row[5] > 0


def main():
    program, model = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for dtype in (np.float32, np.float16):
            check_import(program, folder, dtype)
        check_record(program, model, folder)
    print("traces open in Python: tensors and tables are what was recorded")


main()
