"""Traces that tools/kvroof_llama_cpp.py writes of llama.cpp replay to the same sets and bytes as those of `kvroof record`.

usage: python_llama_cpp.py KVROOF FOLDER-OF-GOLDEN-MODELS      (exit 77: SKIPPED, packages are not installed)
"""

import json
import pathlib
import sys
import tempfile

try:
    import gguf
    import numpy as np
    from hook_support import NEW_TOKENS, check_same_replay, check_same_rotary, record_ours, run, tensors_of
    from kvroof_llama_cpp import Llama, RecordingError, record
except ImportError as missing:
    print(f"SKIPPED: {missing}")
    sys.exit(77)

TOLERANCE = 0.03  # llama.cpp's CPU attention also rounds queries and sums to f16, ours the cache alone


def to_pairs(weight, heads):
    """Rows of a projection as GGUF has them for LLaMA: element i of a head's first half is beside that of its second."""
    return weight.reshape(heads, 2, len(weight) // heads // 2, -1).swapaxes(1, 2).reshape(weight.shape)


def to_halves(rows):
    """[tokens, heads, width] as Hugging Face has them."""
    return rows.reshape(*rows.shape[:2], -1, 2).swapaxes(2, 3).reshape(rows.shape)


def to_gguf(model, path, inverse_frequencies=None):
    """A golden model as a GGUF file in float32, without a vocabulary."""
    config = json.loads((model / "config.json").read_text())
    name = config["model_type"]
    arch = {value: key for key, value in gguf.MODEL_ARCH_NAMES.items()}[name]
    names = gguf.get_tensor_name_map(arch, config["num_hidden_layers"])
    writer = gguf.GGUFWriter(path, name)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    scaling = config.get("rope_scaling") or {}
    if scaling.get("rope_type") == "llama3":  # llama.cpp has a factor of each pair in the file
        plain = config["rope_theta"] ** (-np.arange(0, config["head_dim"], 2) / config["head_dim"])
        writer.add_tensor("rope_freqs.weight", (plain / inverse_frequencies).astype(np.float32))
    elif scaling.get("type") == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(scaling["factor"])
        writer.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])
    writer.add_tokenizer_model("none")
    for key, bits in tensors_of(model / "model.safetensors").items():
        assert bits.dtype == np.uint16, key
        weight = (bits.astype(np.uint32) << 16).view(np.float32)
        if name == "llama" and ("q_proj" in key or "k_proj" in key):
            weight = to_pairs(weight, config["num_attention_heads" if "q_proj" in key else "num_key_value_heads"])
        writer.add_tensor(names.get_name(key, try_suffixes=(".weight", ".bias")), weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def load(path, **options):
    return Llama(str(path), **{"n_ctx": 256, "n_batch": 24, "n_ubatch": 16, "n_threads": 2, "verbose": False, **options})


def generate(llm, prompt, count=NEW_TOKENS):
    made = []
    for token in llm.generate(prompt, temp=0.0, repeat_penalty=1.0):
        made.append(token)
        if len(made) == count:
            return made
    raise AssertionError("the generator ended by itself")


def check_family(program, model, style, folder):
    """A prompt in batches of 24 and micro-batches of 16, and a second one that starts from the first one's cache."""
    prompt = tensors_of(model / "golden.safetensors")["ids_37"].tolist()
    prompts = [prompt, [*prompt[:20], 5, 6, 7, 8]]
    theirs, ours = folder / f"{model.name}.kvt", folder / f"{model.name}-ours.kvt"
    record_ours(program, model, ours, prompts, "f32", kv="f16")
    turned = json.loads((ours / "manifest.json").read_text())["layers"][0]["rotary"]
    llm = load(to_gguf(model, folder / f"{model.name}.gguf", turned.get("inverse_frequencies")))
    with record(llm, theirs):
        made = [generate(llm, ids) for ids in prompts]
    run(program, "inspect", theirs, "--verify")
    written, expected = (tensors_of(trace / "segments/00000.safetensors") for trace in (theirs, ours))
    assert (written["steps"][:, 1] == 0).sum() == 3 and len(written["steps"]) == 3 + 2 * (NEW_TOKENS - 1)
    for s, ids in enumerate(prompts):
        assert expected[f"s{s}.ids"].tolist() == ids + made[s], "greedy continuations differ"
        assert written[f"s{s}.ids"].tolist() == (ids + made[s])[:-1]  # the last one is never fed back
        sampled = slice(len(ids), len(ids) + NEW_TOKENS - 1)
        assert np.abs(written[f"s{s}.logprobs"][sampled] - expected[f"s{s}.logprobs"][sampled]).max() < TOLERANCE
        for name in (name for name in expected if name[-2:] in (".q", ".k", ".v") and name.startswith(f"s{s}.")):
            rows = written[name] if name[-1] == "v" or style == "half_split" else to_halves(written[name])
            assert rows.dtype == np.float16 and rows.shape == expected[name].shape, name
            assert np.abs(rows.astype(float) - expected[name].astype(float)).max() < TOLERANCE, name
    assert np.array_equal(written["s0.l1.k"][:20], written["s1.l1.k"][:20])
    for layer in json.loads((theirs / "manifest.json").read_text())["layers"]:
        assert layer["rotary"]["theta"] == llm_theta(model), layer
        check_same_rotary({**turned, "style": style}, layer["rotary"], model.name)
    check_same_replay(program, ours, theirs, folder, tolerance=1e-3)
    return llm


def llm_theta(model):
    return json.loads((model / "config.json").read_text())["rope_theta"]


def check_refusals(llm, folder):
    def outside():
        llm.reset()
        llm.eval([5, 6, 7])

    quantised = load(folder / "llama-gqa.gguf", type_k=8, type_v=8)
    scores = load(folder / "llama-gqa.gguf", flash_attn=False)
    for number, (model, call, reason) in enumerate((
            (llm, lambda: None, "nothing"), (llm, outside, "generate()"),
            (quantised, lambda: generate(quantised, [5, 6, 7], 2), "quantised"),
            (scores, lambda: generate(scores, [5, 6, 7], 2), "flash"), (object(), lambda: None, "Llama"))):
        try:
            with record(model, folder / f"refused-{number}.kvt"):
                call()
        except RecordingError as refusal:
            assert reason in str(refusal), refusal
        else:
            raise AssertionError(f"{reason}: this could not be recorded")
    # A refusal leaves the model as it was.
    assert llm.recording is None and "decode" not in vars(llm._ctx)
    assert generate(llm, [5, 6, 7], 3)


def main():
    program, models = sys.argv[1], pathlib.Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        llm = check_family(program, models / "llama-gqa", "adjacent_pairs", folder)
        check_family(program, models / "qwen3", "half_split", folder)
        for name in ("llama31", "llama-yarn"):
            check_family(program, models / name, "adjacent_pairs", folder)
        check_refusals(llm, folder)
    print("traces of llama.cpp replay to the same sets and bytes")


main()
