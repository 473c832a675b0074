"""Traces written by tools/ replay to the same sets and bytes as those of `kvroof record`.

usage: python_hook.py KVROOF FOLDER-OF-GOLDEN-MODELS numpy|torch      (exit 77: SKIPPED, packages are not installed)
"""

import json
import pathlib
import sys
import tempfile

try:
    import numpy as np
    from hook_support import NEW_TOKENS, check_same_replay, check_same_rotary, record_ours, run, tensors_of
    from kvroof_trace import CAUSES, Layer, Sequence, TraceWriter, encode
    from kvroof_xxh3 import xxh3

    if sys.argv[3] == "torch":
        import torch
        from kvroof_hook import RecordingError, record
        from transformers import AutoModelForCausalLM
except ImportError as missing:
    print(f"SKIPPED: {missing}")
    sys.exit(77)


def copy_trace(source, target, **options):
    """Reads a recorded trace step by step and writes it again."""
    manifest = json.loads((source / "manifest.json").read_text())
    lines = (source / "journal.jsonl").read_text().splitlines()
    segments = [tensors_of(source / json.loads(line)["file"]) for line in lines]
    joined = {}
    for segment in segments:
        for name, array in segment.items():
            joined.setdefault(name, []).append(array)
    joined = {name: np.concatenate(parts) for name, parts in joined.items() if name != "checksum"}
    layers = [Layer(**layer) for layer in manifest["layers"]]
    sequences = [Sequence(s["prompt"], s["requested_new_tokens"], s["stop_reason"]) for s in manifest["sequences"]]
    kept = {key: manifest[key] for key in ("weight_type", "policy", "model_name", "model_shape", "source", "backend", "seed")}
    with TraceWriter(target, layers, sequences, manifest["kv_type"], **kept, **options) as trace:
        prompt, tokens = sequences[0].prompt, manifest["sequences"][0]["tokens"]
        ids, logprobs = joined["s0.ids"], joined["s0.logprobs"]
        first = 0
        for step, end in enumerate([prompt, *range(prompt + 1, tokens + 1)]):
            for l in range(len(layers)):
                trace.add_rows(0, l, *(joined[f"s0.l{l}.{name}"][first:end] for name in "qkv"))
                for s, head, position in joined.get(f"s0.l{l}.evictions", ()):
                    if s == step:
                        trace.add_eviction(0, l, s, head, position)
            upto = len(ids) if end == tokens else end
            trace.add_tokens(0, ids[first:upto], logprobs[first:upto])
            trace.end_step("prefill" if step == 0 else "decode", counted_bytes=tuple(joined["steps"][step][3:]))
            first = end
    return joined


def check_xxh3(folder):
    """The checksums that kvroof wrote, of files of many lengths."""
    for line in (folder / "journal.jsonl").read_text().splitlines():
        segment = json.loads(line)
        assert f"{xxh3((folder / segment['file']).read_bytes()):016x}" == segment["xxh3"]
    # XXH3_64bits of libxxhash 0.8.1 for the bytes 0, 1, 2, … (mod 256), at every border between its cases.
    known = {
        0: 0x2d06800538d394c2, 1: 0xc44bdff4074eecdb, 3: 0x5f4299fc161c9cbb, 4: 0x60dab036a58211f2, 8:
        0x3a1c2d7c85af88f8, 9: 0xe9612598145bb9dc, 16: 0x8355e3a6f61770db, 17: 0x9ef341a99de37328, 128:
        0x85c6174c7ff4c46b, 129: 0xec7642b431ba3e5a, 240: 0x375a384d957fe865, 241: 0x02e8cd95421c6d02, 1024:
        0xa870f92984398d22, 1025: 0x78c86e91ee939852, 2049: 0x62dff343e7dbac9b, 70000: 0xd35a895856e09167,
    }
    for length, value in known.items():
        assert xxh3(bytes(i % 256 for i in range(length))) == value, length


def check_numpy(program, models, folder):
    model = models / "llama-gqa"
    ids = tensors_of(model / "golden.safetensors")["ids_37"].tolist()
    for dtype in ("f32", "bf16", "f16"):
        ours, again, small = (folder / f"{dtype}-{name}.kvt" for name in ("ours", "again", "small"))
        record_ours(program, model, ours, ids, dtype)
        check_xxh3(ours)
        joined = copy_trace(ours, again)
        copy_trace(ours, small, segment_bytes=20000)
        assert len((small / "journal.jsonl").read_text().splitlines()) > 2
        for trace in (again, small):
            run(program, "inspect", trace, "--verify")
            check_same_replay(program, ours, trace, folder)
        written = tensors_of(again / "segments/00000.safetensors")
        assert set(joined) - set(written) == {"x-kv-resident"}  # which the engine alone knows of a cache
        for name in joined.keys() & written.keys():
            assert np.array_equal(written[name], joined[name]), name
        # A flipped bit is found, as in our own.
        path = again / "segments/00000.safetensors"
        data = bytearray(path.read_bytes())
        data[-100] ^= 1
        path.write_bytes(data)
        run(program, "inspect", again, "--verify", expected=4)
    check_rows_read_back(program, folder)
    # Evictions of a run under a policy, and what a crash leaves.
    ours, again, cut = (folder / f"{name}.kvt" for name in ("policy", "policy-again", "cut"))
    record_ours(program, model, ours, ids, "f32", "--policy", "h2o:budget=12")
    joined = copy_trace(ours, again)
    run(program, "inspect", again, "--verify")
    assert np.array_equal(tensors_of(again / "segments/00000.safetensors")["s0.l1.evictions"], joined["s0.l1.evictions"])
    try:
        copy_trace(ours, cut, segment_bytes=1 << 14)
    finally:
        (cut / "seal.json").unlink()
    run(program, "replay", cut, "--policy", "full", expected=4)
    run(program, "inspect", cut, "--repair")
    check_same_replay(program, ours, cut, folder)
    for wrong in (lambda t: t.add_rows(0, 0, np.zeros((1, 2, 4)), np.zeros((1, 1, 4)), np.zeros((1, 1, 8))),
                  lambda t: t.add_tokens(0, [1, 2], [0.0]), lambda t: t.add_tokens(0, [1], [np.inf]),
                  lambda t: t.end_step("prefil")):
        trace = TraceWriter(folder / f"wrong-{id(wrong)}.kvt", [Layer(2, 1, 4)], [Sequence(1)])
        try:
            wrong(trace)
        except ValueError:
            continue
        raise AssertionError("a wrong shape was taken")
    check_writer_lock(program, folder)
    assert len(CAUSES) == 6
    # Log-probabilities that nobody knows: 0 for the first token of a sequence, as the format has it, NaN for others.
    with TraceWriter(folder / "unknown.kvt", [Layer(2, 1, 4)], [Sequence(2)]) as trace:
        for phase, ids in (("prefill", [5, 6]), ("decode", [7])):
            trace.add_rows(0, 0, np.ones((len(ids), 2, 4)), np.ones((len(ids), 1, 4)), np.ones((len(ids), 1, 4)))
            trace.add_tokens(0, ids)
            trace.end_step(phase)
    written = tensors_of(folder / "unknown.kvt/segments/00000.safetensors")["s0.logprobs"]
    assert np.array_equal(written, [0, np.nan, np.nan], equal_nan=True), written
    run(program, "replay", folder / "unknown.kvt", "--policy", "full")


def check_writer_lock(program, folder):
    """A recording that runs is not repaired, one that was given up is."""
    path = folder / "running.kvt"
    try:
        with TraceWriter(path, [Layer(2, 1, 4)], [Sequence(1)], segment_bytes=1) as trace:
            for _ in range(2):
                trace.add_rows(0, 0, np.ones((1, 2, 4)), np.ones((1, 1, 4)), np.ones((1, 1, 4)))
                trace.add_tokens(0, [5])
                trace.end_step("decode")
            run(program, "inspect", path, "--repair", expected=4)
            assert not (path / "seal.json").exists() and not (path / "lost").exists()
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    run(program, "inspect", path, "--repair")
    assert not (path / "writer.lock").exists()
    with TraceWriter(folder / "ended.kvt", [Layer(2, 1, 4)], [Sequence(1)]):
        assert (folder / "ended.kvt/writer.lock").exists()
    assert not (folder / "ended.kvt/writer.lock").exists()


def check_rows_read_back(program, folder):
    """A sequence that came later takes rows of another one, from written segments and from the one that is open."""
    rows = np.random.default_rng(1).standard_normal((3, 30, 2, 4)).astype(np.float32)
    for kv_type in ("f32", "f16", "bf16"):
        path = folder / f"read-back-{kv_type}.kvt"
        with TraceWriter(path, [Layer(2, 2, 4)] * 2, [Sequence(3)], kv_type, segment_bytes=1000) as trace:
            for first in range(0, 30, 3):
                for layer in range(2):
                    trace.add_rows(0, layer, *rows[:, first:first + 3] * (layer + 1))
                trace.add_tokens(0, [5, 6, 7], [0.0] * 3)
                trace.end_step("decode" if first else "prefill")
            assert len((path / "journal.jsonl").read_text().splitlines()) > 1
            late = trace.add_sequence(Sequence(4))
            for layer in range(2):
                trace.add_rows(late, layer, *trace.rows(0, layer, 2, 29))
            trace.add_tokens(late, [8] * 27, [0.0] * 27)
            trace.end_step("prefill")
        run(program, "inspect", path, "--verify")
        written = tensors_of(sorted((path / "segments").iterdir())[-1])
        for layer in range(2):
            for name, array in zip("qkv", rows):
                expected = encode(array[2:29] * (layer + 1), kv_type)
                assert np.array_equal(written[f"s1.l{layer}.{name}"], expected), (kv_type, layer, name)


def check_torch(program, models, folder):
    torch.manual_seed(0)
    for name in ("llama", "llama-bias", "llama-gqa", "qwen3", "gpt_oss"):
        for attention in ("eager",) if name == "gpt_oss" else ("eager", "sdpa"):
            model = AutoModelForCausalLM.from_pretrained(models / name, dtype=torch.float32, attn_implementation=attention)
            ids = tensors_of(models / name / "golden.safetensors")["ids_37"].tolist()
            ours, hooked, forward = (folder / f"{name}-{attention}-{kind}.kvt" for kind in ("ours", "hook", "forward"))
            record_ours(program, models / name, ours, ids, "f32")
            with record(model, hooked, max_new_tokens=NEW_TOKENS, prompt_logprobs=True):
                model.generation_config.eos_token_id = None  # as --ignore-eos
                made = model.generate(torch.tensor([ids]), max_new_tokens=NEW_TOKENS, do_sample=False,
                                      pad_token_id=0)[0].tolist()
            run(program, "inspect", hooked, "--verify")
            written = tensors_of(hooked / "segments/00000.safetensors")
            recorded = tensors_of(ours / "segments/00000.safetensors")
            assert made == recorded["s0.ids"].tolist(), "greedy continuations differ"
            assert written["s0.ids"].tolist() == made[:-1]  # the last one is never fed back
            assert np.abs(written["s0.logprobs"] - recorded["s0.logprobs"][:-1]).max() < 1e-3
            for tensor in (n for n in written if n[-2:] in (".q", ".k", ".v")):
                assert np.abs(written[tensor] - recorded[tensor]).max() < 1e-3, tensor
            check_same_replay(program, ours, hooked, folder)
            # The whole text in one forward pass gives the same trace but for rounding.
            with record(model, forward, max_new_tokens=NEW_TOKENS, prompt=len(ids)):
                model(torch.tensor([made[:-1]]))
            check_same_replay(program, ours, forward, folder)
            assert not hasattr(model.forward, "kvroof_original")
    check_rotary(program, models, folder)
    llama = AutoModelForCausalLM.from_pretrained(models / "llama", dtype=torch.float32)
    check_batch_and_refusals(program, llama, folder)


def check_rotary(program, models, folder):
    """How q and k were turned, in every layer: a part of a head, other pairs, scaled, or by another base in some."""
    for name in ("gpt-neox", "cohere", "cohere2", "deepseek-v2", "ernie4_5", "exaone4", "gemma3", "glm4", "gpt_oss", "llama31", "llama-yarn",
                 "phi", "smollm3"):
        model = AutoModelForCausalLM.from_pretrained(models / name, dtype=torch.float32, attn_implementation="eager")
        ours, hooked = (folder / f"rotary-{name}-{kind}.kvt" for kind in ("ours", "hook"))
        record_ours(program, models / name, ours, [5, 6, 7], "f32")
        with record(model, hooked, max_new_tokens=1):
            model(torch.tensor([[5, 6, 7]]))
        recorded, written = ([layer["rotary"] for layer in json.loads((trace / "manifest.json").read_text())["layers"]]
                             for trace in (ours, hooked))
        assert len(recorded) == len(written) > 1
        for a, b in zip(recorded, written):
            check_same_rotary(a, b, name)


def check_batch_and_refusals(program, model, folder):
    """Left padding is no part of a trace; what cannot be recorded is refused."""
    short, long = torch.tensor([5, 6, 7, 8, 9]), torch.arange(3, 14)
    padded = torch.stack([torch.cat([torch.zeros(6, dtype=torch.long), short]), long])
    mask = torch.ones_like(padded)
    mask[0, :6] = 0
    for name, inputs, attention_mask in (("batch", padded, mask), ("alone", short[None], torch.ones(1, 5))):
        with record(model, folder / f"{name}.kvt", max_new_tokens=4):
            model.generate(inputs, attention_mask=attention_mask.long(), max_new_tokens=4, min_new_tokens=4, do_sample=False,
                           pad_token_id=0)
    batch, alone = (tensors_of(folder / f"{name}.kvt/segments/00000.safetensors") for name in ("batch", "alone"))
    run(program, "inspect", folder / "batch.kvt", "--verify")
    assert batch["s1.l0.q"].shape[0] == 11 + 3
    assert np.isnan(batch["s1.logprobs"]).tolist() == [False, *[True] * 10, *[False] * 3]  # nobody asked for the prompt's
    for name, array in alone.items():
        if name.startswith("s0."):
            assert np.allclose(batch[name], array, atol=1e-4, equal_nan=True), name
    for number, wrong in enumerate((lambda: (model(long[None]), model(long[None])),
                                    lambda: model(padded, attention_mask=1 - mask), lambda: None)):
        try:
            with record(model, folder / f"refused-{number}.kvt"):
                wrong()
        except RecordingError as refusal:
            assert str(refusal)
            continue
        raise AssertionError("this could not be recorded")


def main():
    program, models, kind = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
    with tempfile.TemporaryDirectory() as folder:
        (check_torch if kind == "torch" else check_numpy)(program, models, pathlib.Path(folder))
    print("traces of other writers replay to the same sets and bytes")


main()
