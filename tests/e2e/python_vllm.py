"""Traces that tools/kvroof_vllm.py writes of vLLM replay to the same sets and bytes as those of `kvroof record`.

usage: python_vllm.py KVROOF FOLDER-OF-GOLDEN-MODELS      (exit 77: SKIPPED, packages are not installed)
"""

import json
import os
import pathlib
import random
import shutil
import sys
import tempfile

os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_USE_V2_MODEL_RUNNER="0", VLLM_NO_USAGE_STATS="1",
                  VLLM_CPU_KVCACHE_SPACE="1", VLLM_CPU_OMP_THREADS_BIND="nobind", OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1")
try:
    import numpy as np
    from hook_support import NEW_TOKENS, check_same_replay, check_same_rotary, record_ours, run, tensors_of
    from kvroof_vllm import RecordingError, record
    from vllm import LLM, SamplingParams
except ImportError as missing:
    print(f"SKIPPED: {missing}")
    sys.exit(77)

ENGINES = []  # one that is dropped takes down what the next one in the process uses


def engine(model, folder, **options):
    """vLLM reads every safetensors file of a folder, and golden models have more than one."""
    copy = folder / f"model-{model.name}"
    copy.mkdir(exist_ok=True)
    for name in ("config.json", "model.safetensors"):
        shutil.copy(model / name, copy / name)
    settings = {"dtype": "float32", "max_model_len": 128, "block_size": 32, "enforce_eager": True,
                "async_scheduling": False, "skip_tokenizer_init": True, "max_num_seqs": 4, "max_num_batched_tokens": 24,
                "enable_prefix_caching": False}
    ENGINES.append(LLM(str(copy), **{**settings, **options}))
    return ENGINES[-1]


def generate(llm, prompts, **options):
    settings = {"max_tokens": NEW_TOKENS, "temperature": 0, "ignore_eos": True, "detokenize": False, **options}
    return llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], SamplingParams(**settings), use_tqdm=False)


def joined(trace):
    """All tensors of a trace, their segments one behind the other."""
    parts = {}
    for path in sorted((trace / "segments").iterdir()):
        for name, array in tensors_of(path).items():
            parts.setdefault(name, []).append(array)
    return {name: np.concatenate(arrays) for name, arrays in parts.items()}


def check_same(program, model, prompts, made, trace, folder):
    """Ids, rows and replays are those of kvroof's own recording of the same prompts."""
    ours = folder / f"ours-{trace.name}"
    record_ours(program, model, ours, prompts, "f32")
    run(program, "inspect", trace, "--verify")
    theirs, expected = joined(trace), joined(ours)
    for s, prompt in enumerate(prompts):
        assert expected[f"s{s}.ids"].tolist() == prompt + made[s], f"sequence {s}: greedy continuations differ"
        assert theirs[f"s{s}.ids"].tolist() == (prompt + made[s])[:-1]  # the last one is never fed back
        sampled = theirs[f"s{s}.logprobs"][len(prompt):]
        assert np.abs(sampled - expected[f"s{s}.logprobs"][len(prompt):-1]).max() < 1e-3
        assert theirs[f"s{s}.logprobs"][0] == 0 and np.isnan(theirs[f"s{s}.logprobs"][1:len(prompt)]).all()
    rows = [name for name in expected if name[-2:] in (".q", ".k", ".v")]
    assert sorted(rows) == sorted(name for name in theirs if name[-2:] in (".q", ".k", ".v"))
    for name in rows:
        assert theirs[name].shape == expected[name].shape, name
        assert np.abs(theirs[name] - expected[name]).max() < 1e-3, name
    manifests = [json.loads((path / "manifest.json").read_text()) for path in (trace, ours)]
    for a, b in zip(*(manifest["layers"] for manifest in manifests)):
        assert abs(a.pop("scale") - b.pop("scale")) < 1e-6
        check_same_rotary(b.pop("rotary"), a.pop("rotary"), model.name)
        assert a == b, f"layers differ: {a} and {b}"
    check_same_replay(program, ours, trace, folder)
    return theirs


def check_batch(program, models, folder):
    """Prompts of different lengths come and go, in chunks; prefixes come from other requests, also of the same step."""
    model = models / "llama-gqa"
    llm = engine(model, folder, enable_prefix_caching=True)
    draw = random.Random(5)
    prompts = [[draw.randrange(3, 224) for _ in range(n)] for n in (70, 9, 33, 40, 21, 64)]
    for i in (3, 5):
        prompts[i][:32] = prompts[0][:32]
    trace = folder / "batch.kvt"
    with record(llm, trace, segment_bytes=100_000):
        outputs = generate(llm, prompts)
    assert sum(output.num_cached_tokens > 0 for output in outputs) >= 1, "no prefix was cached"
    assert len(list((trace / "segments").iterdir())) > 3
    theirs = check_same(program, model, prompts, [list(o.outputs[0].token_ids) for o in outputs], trace, folder)
    steps = theirs["steps"]
    assert (steps[:, 1] == 0).sum() > 6 and (steps[:, 2] > 1).any() and steps[:, 2].max() <= 4
    check_again(program, llm, prompts, folder)


def check_again(program, llm, prompts, folder):
    """A second generate() in the same recording starts from what the first one computed; several samples of a prompt are
    sequences of their own."""
    long, trace = prompts[0], folder / "again.kvt"
    with record(llm, trace):
        first = generate(llm, [long])[0]
        second = generate(llm, [long[:64] + [7, 8, 9]])[0]
        generate(llm, [prompts[4]], n=2, temperature=1.0)
    assert (first.num_cached_tokens, second.num_cached_tokens) == (0, 64)
    run(program, "inspect", trace, "--verify")
    tensors = joined(trace)
    for name in ("s0.l1.q", "s0.l1.k", "s0.l1.v"):
        assert np.array_equal(tensors[name][:64], tensors[name.replace("s0", "s1")][:64]), name
        assert len(tensors[name.replace("s0", "s1")]) == 67 + NEW_TOKENS - 1
    assert tensors["s2.ids"][:21].tolist() == tensors["s3.ids"][:21].tolist() == prompts[4]
    run(program, "replay", trace, "--policy", "full,window:budget=12", "--quiet")
    # Nothing is left behind, and what cannot be recorded is refused.
    assert "forward" not in vars(llm.llm_engine.vllm_config.compilation_config.static_forward_context[
        "model.layers.0.self_attn.attn"].impl)
    try:
        with record(llm, folder / "nothing.kvt"):
            pass
    except RecordingError as refusal:
        assert "nothing" in str(refusal)
    else:
        raise AssertionError("a recording of nothing was taken")


def check_preemption(program, models, folder):
    """Requests that lose their blocks are computed again, and recorded once."""
    model = models / "llama-gqa"
    llm = engine(model, folder, num_gpu_blocks_override=8, max_model_len=128, max_num_batched_tokens=128)
    scheduler = llm.llm_engine.engine_core.engine_core.scheduler
    preempt, preempted = scheduler._preempt_request, []

    def counted(request, *words, **options):
        preempted.append(request)
        return preempt(request, *words, **options)

    scheduler._preempt_request = counted
    draw = random.Random(6)
    prompts = [[draw.randrange(3, 200) for _ in range(n)] for n in (60, 55, 58)]
    with record(llm, folder / "preempted.kvt"):
        outputs = generate(llm, prompts)
    assert preempted, "nothing was preempted"
    check_same(program, model, prompts, [list(o.outputs[0].token_ids) for o in outputs], folder / "preempted.kvt", folder)


def check_families(program, models, folder):
    """Windows, a soft-cap with a scale of its own, and norms of q and k."""
    for name in ("mistral", "gemma2", "qwen3", "llama31", "llama-yarn"):
        llm = engine(models / name, folder)
        prompts = [[5, 6, 7, 8, 9], list(range(3, 40))]
        with record(llm, folder / f"{name}.kvt"):
            outputs = generate(llm, prompts)
        check_same(program, models / name, prompts, [list(o.outputs[0].token_ids) for o in outputs],
                   folder / f"{name}.kvt", folder)


def check_refusals(folder):
    """What an engine says of itself decides, so that it need not be one that takes minutes to build."""
    llm = ENGINES[-1]
    config = llm.llm_engine.vllm_config
    for part, name, value in ((config.model_config, "enforce_eager", False), (config, "lora_config", object()),
                              (config.scheduler_config, "async_scheduling", True),
                              (config.parallel_config, "world_size", 2)):
        honest = getattr(part, name)
        object.__setattr__(part, name, value)
        try:
            with record(llm, folder / "refused.kvt"):
                generate(llm, [[5, 6, 7]])
        except RecordingError as refusal:
            assert "cannot be recorded" in str(refusal)
        else:
            raise AssertionError(f"{name}={value}: this could not be recorded")
        finally:
            object.__setattr__(part, name, honest)
        assert not (folder / "refused.kvt").exists()


def main():
    program, models = sys.argv[1], pathlib.Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        check_batch(program, models, folder)
        check_preemption(program, models, folder)
        check_families(program, models, folder)
        check_refusals(folder)
    print("traces of vLLM replay to the same sets and bytes")


main()
