"""Records what vLLM runs as a kvroof trace: batches of requests that come and go, prompts in chunks, cached prefixes.

    # in the environment: VLLM_ENABLE_V1_MULTIPROCESSING=0 VLLM_USE_V2_MODEL_RUNNER=0
    from kvroof_vllm import record
    llm = LLM("meta-llama/Llama-3.1-8B", enforce_eager=True, async_scheduling=False)
    with record(llm, "run.kvt"):
        llm.generate(prompts, SamplingParams(max_tokens=128))

Each request is a sequence, in the order of arrival. Captured is what each attention layer hands to its kernel: q and k
after rotary, k and v as they are written to the paged cache. Needs vLLM's V1 engine in this process.
"""

import contextlib
import math
import time
from dataclasses import dataclass, field

import torch

from kvroof_hook import TYPES, RecordingError, rotary_of, to_numpy
from kvroof_trace import Layer, Sequence, TraceWriter


@dataclass
class Request:
    """A request on its way into the trace, as its sequence `index`."""

    index: int
    prompt: list                             # token ids
    ids: list = field(default_factory=list)  # of the rows that were recorded
    sampled_logprob: float = math.nan        # of the token that was sampled last


@dataclass
class Chunk:
    """The tokens of one request in one step: `where` in the step's batch, positions first … first + len(ids) − 1."""

    request: Request
    first: int
    ids: list
    where: slice


def _engine(llm):
    """The engine and its model runner, where both are in this process and of a kind that can be recorded."""
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    engine = getattr(llm.llm_engine.engine_core, "engine_core", None)
    if engine is None:
        raise RecordingError("the engine runs in another process; set VLLM_ENABLE_V1_MULTIPROCESSING=0 before LLM()")
    config = llm.llm_engine.vllm_config
    refused = {
        "several devices (a layer's heads are spread over them)": config.parallel_config.world_size > 1,
        "CUDA graphs or compilation; pass enforce_eager=True": not config.model_config.enforce_eager,
        "asynchronous scheduling; pass async_scheduling=False": config.scheduler_config.async_scheduling,
        "speculative decoding": config.speculative_config is not None,
        "LoRA adapters": config.lora_config is not None,
        "a KV connector, whose rows were computed elsewhere": config.kv_transfer_config is not None,
    }
    for reason, is_so in refused.items():
        if is_so:
            raise RecordingError(f"vLLM runs with {reason}: this cannot be recorded")
    runner = engine.model_executor.driver_worker.worker.model_runner
    if not isinstance(runner, GPUModelRunner):
        raise RecordingError(f"{type(runner).__module__}: another model runner; set VLLM_USE_V2_MODEL_RUNNER=0")
    return engine, runner


def _attention_layers(config):
    """The model's attention modules in the order of its layers; other kinds of cache are refused by name."""
    from vllm.model_executor.layers.attention import Attention
    from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase

    found = []
    for name, layer in config.compilation_config.static_forward_context.items():
        if not isinstance(layer, AttentionLayerBase):
            continue
        if type(layer) is not Attention or layer.attn_type != "decoder":
            raise RecordingError(f"{name}: {type(layer).__name__} is not plain self-attention of a decoder")
        if layer.kv_sharing_target_layer_name is not None:
            raise RecordingError(f"{name}: it reads the cache of {layer.kv_sharing_target_layer_name}; a trace has "
                                 "rows of each layer's own")
        if layer.has_sink:
            raise RecordingError(f"{name}: attention sinks of vLLM cannot be recorded; kvroof_hook records those of "
                                 "transformers")
        if layer.kv_cache_torch_dtype != config.model_config.dtype:
            raise RecordingError(f"{name}: a cache in {layer.kv_cache_dtype}; pass kv_cache_dtype=\"auto\"")
        found.append(layer)
    if not found:
        raise RecordingError("the model has no attention layers")
    return found


def _layer(number, attention, config):
    """The manifest's entry of an attention module."""
    impl = attention.impl
    slopes = getattr(impl, "alibi_slopes", None)
    slopes = [] if slopes is None else [float(slope) for slope in slopes]
    return Layer(attention.num_heads, attention.num_kv_heads, attention.head_size, attention.head_size_v,
                 float(impl.scale), float(getattr(impl, "logits_soft_cap", None) or 0.0),
                 int(attention.sliding_window or 0), slopes, rotary_of(config, attention.head_size, number))


class Recording:
    """What vLLM runs on its way into a trace; made by record()."""

    def __init__(self, llm, path, model_shape, segment_bytes):
        self.engine, self.runner = _engine(llm)
        self.path, self.model_shape, self.segment_bytes = path, model_shape, segment_bytes
        self.config = llm.llm_engine.vllm_config
        self.attention = _attention_layers(self.config)
        self.writer = None
        self.requests = {}      # vLLM's id → Request
        self.scheduled = None   # tokens of each request in the step in progress
        self.seen = []          # (q, k, v) of each layer in it
        self.start_ns = 0

    # What vLLM calls, wrapped.

    def execute_model(self, original):
        def recorded(scheduled, *words, **options):
            self.scheduled, self.seen, self.logprobs = dict(scheduled.num_scheduled_tokens), [], None
            self.start_ns = time.monotonic_ns()
            return original(scheduled, *words, **options)
        return recorded

    def sample_tokens(self, original):
        def recorded(*words, **options):
            output = original(*words, **options)
            if self.scheduled:
                self.end_step(output, time.monotonic_ns())
            self.scheduled = None
            return output
        return recorded

    def compute_logits(self, original):
        def recorded(*words, **options):
            logits = original(*words, **options)
            if self.scheduled and self.logprobs is None:  # later calls are for log-probabilities of prompts
                self.logprobs = torch.log_softmax(logits.detach().float(), -1)
            return logits
        return recorded

    def attend(self, original):
        def recorded(layer, query, key, value, *words, **options):
            if self.scheduled:
                count = sum(self.scheduled.values())  # the rest is padding
                self.seen.append([to_numpy(part[:count]) for part in (query, key, value)])
                self.dtype = key.dtype
            return original(layer, query, key, value, *words, **options)
        return recorded

    def before_forward(self, model, words, options):
        ids, positions = options.get("input_ids"), options.get("positions")
        if self.scheduled and (ids is None or positions is None or positions.dim() != 1):
            raise RecordingError("only models that are called with token ids and one position of each can be recorded")
        if self.scheduled:
            count = sum(self.scheduled.values())
            self.ids, self.positions = ids[:count].tolist(), positions[:count].tolist()

    # Into the trace.

    def admit(self):
        """Sequences of the requests that vLLM has taken since the last step, whether they have run or not."""
        admitted = []
        for name, request in self.engine.scheduler.requests.items():
            if name in self.requests:
                continue
            if request.prompt_token_ids is None:
                raise RecordingError(f"request {name}: its prompt is not token ids")
            prompt = list(request.prompt_token_ids)
            self.requests[name] = Request(len(self.requests), prompt)
            admitted.append(Sequence(len(prompt), request.max_tokens, "imported"))
        return admitted

    def open_writer(self, sequences):
        if self.dtype not in TYPES:
            raise RecordingError(f"attention in {self.dtype} cannot be recorded; expected float32, float16 or bfloat16")
        model = self.config.model_config
        layers = [_layer(number, attention, model.hf_text_config) for number, attention in enumerate(self.attention)]
        self.writer = TraceWriter(self.path, layers, sequences, TYPES[self.dtype], weight_type=TYPES.get(model.dtype),
                                  model_name=model.hf_text_config.model_type, model_path=model.model,
                                  model_shape=self.model_shape, segment_bytes=self.segment_bytes)

    def end_step(self, output, end_ns):
        if len(self.seen) != len(self.attention):
            raise RecordingError(f"{len(self.seen)} of {len(self.attention)} layers called their attention in a step")
        admitted = self.admit()
        if self.writer is None:
            self.open_writer(admitted)
        else:
            for sequence in admitted:
                self.writer.add_sequence(sequence)
        chunks, at = [], 0
        for name in output.req_ids:  # the order of the batch
            where = slice(at, at := at + self.scheduled[name])
            chunks.append(Chunk(self.requests[name], self.positions[where.start], self.ids[where], where))
        is_prefill = any(chunk.first < len(chunk.request.prompt) for chunk in chunks)
        self.write_all(chunks)
        for row, (name, sampled) in enumerate(zip(output.req_ids, output.sampled_token_ids)):
            if sampled:
                self.requests[name].sampled_logprob = float(self.logprobs[row, sampled[0]])
        self.writer.end_step("prefill" if is_prefill else "decode", len(chunks), self.start_ns, end_ns)

    def write_all(self, chunks):
        """A request may start from a prefix that another one computes in this very step."""
        while chunks:
            waiting = [chunk for chunk in chunks if not self.write(chunk)]
            if len(waiting) == len(chunks):
                raise RecordingError(f"sequence {chunks[0].request.index} starts at token {chunks[0].first}, and "
                                     "nobody was recorded who computed the tokens before it")
            chunks = waiting

    def write(self, chunk):
        """The chunk's rows, and those of a cached prefix before it; False: nobody has recorded that prefix yet."""
        request = chunk.request
        known = len(request.ids)
        if chunk.first > known:
            donor = self.donor(request.prompt[:chunk.first])
            if donor is None:
                return False
            for layer in range(len(self.attention)):
                self.writer.add_rows(request.index, layer, *self.writer.rows(donor.index, layer, known, chunk.first))
            self.add_tokens(request, request.prompt[known:chunk.first])
            known = chunk.first
        skip = known - chunk.first  # computed a second time, after a preemption
        if skip < len(chunk.ids):
            for layer, parts in enumerate(self.seen):
                self.writer.add_rows(request.index, layer, *(part[chunk.where][skip:] for part in parts))
            self.add_tokens(request, chunk.ids[skip:])
        return True

    def donor(self, prefix):
        """A request whose recorded tokens begin with the prefix."""
        matching = (request for request in self.requests.values() if request.ids[:len(prefix)] == prefix)
        return next(matching, None)

    def add_tokens(self, request, ids):
        """Log-probabilities are known of sampled tokens; those of a prompt nobody asked for."""
        first = len(request.ids)
        logprobs = [request.sampled_logprob if first + i >= len(request.prompt) else math.nan for i in range(len(ids))]
        if first == 0:
            logprobs[0] = 0.0
        request.ids += ids
        self.writer.add_tokens(request.index, ids, logprobs)


@contextlib.contextmanager
def record(llm, path, model_shape=None, segment_bytes=8 << 20):
    """Records what `llm` (vLLM's LLM) generates within `with` into the trace `path`; one generate() or several.

    Prefixes that were cached before are dropped first, so that every row is computed under the recorder's eyes. A
    request that starts from a cached prefix gets the rows of the one that computed it; rows that a preempted request
    computes again are recorded once. `model_shape` is the shape of format.md as a dict; without it, replays cover
    attention alone, unless --as names a model. An exception leaves the trace unsealed.
    """
    recording = Recording(llm, path, model_shape, segment_bytes)
    if not llm.reset_prefix_cache():
        raise RecordingError("requests are running; record() begins before they do")
    runner, model = recording.runner, recording.runner.get_model()
    patches = [(runner, "execute_model", recording.execute_model), (runner, "sample_tokens", recording.sample_tokens),
               (model, "compute_logits", recording.compute_logits),
               *((attention.impl, "forward", recording.attend) for attention in recording.attention)]
    hook = model.register_forward_pre_hook(recording.before_forward, with_kwargs=True)
    try:
        for target, name, wrap in patches:
            setattr(target, name, wrap(getattr(target, name)))
        yield recording
        if recording.writer is None:
            raise RecordingError(f"{path}: nothing was recorded, because vLLM generated nothing")
        recording.writer.seal()
    finally:
        if recording.writer is not None:
            recording.writer.close()
        hook.remove()
        for target, name, _ in patches:
            vars(target).pop(name, None)  # the method of its class shows again
