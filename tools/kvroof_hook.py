"""Records a Hugging Face model's own forward pass as a kvroof trace.

    from kvroof_hook import record
    with record(model, "run.kvt", max_new_tokens=128):
        model.generate(**inputs, max_new_tokens=128)

What is captured is what the model hands to its attention function: q and k after rotary, k and v as cached. That needs
transformers 4.48 or later (where models call ALL_ATTENTION_FUNCTIONS or their own eager_attention_forward) and one of the
many families that use it; others are refused by name, and can write traces with kvroof_trace.TraceWriter.
"""

import contextlib
import math
import sys
import time

import numpy as np
import torch

from kvroof_trace import Layer, Sequence, TraceWriter

TYPES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
# Of rotary embeddings: what Hugging Face's code of a family does with q and k, where its config does not tell.
ADJACENT_PAIRS = {"cohere", "cohere2", "codegen", "gptj", "deepseek_v2", "ernie4_5", "ernie4_5_moe", "glm", "glm4",
                  "helium", "llama4_text"}
TURNED_IF_SLIDING = {"cohere2", "exaone4"}
SCALINGS = {"default", "linear", "llama3", "yarn"}  # the same frequencies for texts of any length
NO_ROTARY = {"style": "none", "dims": 0, "theta": 0.0}


class RecordingError(RuntimeError):
    """The model or the call cannot be recorded; says why."""


def to_numpy(tensor):
    """A copy of a tensor on any device, for the writer; bfloat16 as its bits."""
    rows = tensor.detach().to("cpu", copy=True).contiguous()
    return rows.view(torch.int16).numpy().view(np.uint16) if rows.dtype == torch.bfloat16 else rows.numpy()


def rotary_of(config, width, layer):
    """How q and k of a layer were turned. What depends on the length of the text (dynamic, longrope) or is not known is
    written as none, and a replay says so."""
    kinds = getattr(config, "layer_types", None) or []
    kind = kinds[layer] if layer < len(kinds) else None
    ropes = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    rope = ropes.get(kind, ropes)  # one for each kind of layer, or one for all
    theta = rope.get("rope_theta") or getattr(config, "rope_theta", None)
    scaling = rope.get("rope_type") or rope.get("type") or "default"
    local = getattr(config, "rope_local_base_freq", None)  # Gemma 3 before transformers 5
    if local and rope is ropes:
        theta = {"sliding_attention": local, "full_attention": theta}.get(kind)
        scaling = "default" if kind == "sliding_attention" else scaling
    if not theta or scaling not in SCALINGS or not _is_turned(config, layer, kind):
        return dict(NO_ROTARY)
    share = (rope.get("partial_rotary_factor") or getattr(config, "partial_rotary_factor", None) or
             getattr(config, "rotary_pct", None) or 1.0)
    style = "adjacent_pairs" if config.model_type in ADJACENT_PAIRS else "half_split"
    rotary = {"style": style, "dims": int(width * share), "theta": float(theta)}
    if getattr(config, "qk_rope_head_dim", None):  # latent attention turns the last elements of a head
        rotary.update(first=config.qk_nope_head_dim, dims=config.qk_rope_head_dim)
    if scaling != "default":
        from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

        options = {} if rope is ropes else {"layer_type": kind}
        frequencies, magnitude = ROPE_INIT_FUNCTIONS[scaling](config, "cpu", **options)
        rotary.update(dims=2 * len(frequencies), magnitude=float(magnitude),
                      inverse_frequencies=[float(f) for f in frequencies])
    return rotary


def _is_turned(config, layer, kind):
    """Some families turn rows in some layers alone."""
    turned = getattr(config, "no_rope_layers", None)  # 1 where a layer has positions, whatever the name says
    if turned:
        return bool(turned[layer])
    if config.model_type not in TURNED_IF_SLIDING or not getattr(config, "sliding_window", None):
        return True
    return kind == "sliding_attention"


class Recording:
    """One batch of sequences on its way into a trace; made by record()."""

    def __init__(self, model, path, max_new_tokens, prompt, prompt_logprobs, model_shape, segment_bytes):
        self.model, self.path, self.prompt_logprobs = model, path, prompt_logprobs
        self.max_new_tokens, self.prompt = max_new_tokens, prompt
        self.model_shape, self.segment_bytes = model_shape, segment_bytes
        self.config = model.config.get_text_config()
        if getattr(model.config, "is_encoder_decoder", False):
            raise RecordingError(f"{self.config.model_type}: encoder-decoder models cannot be recorded")
        self.writer = None
        self.seen = {}          # layer → (query, key, value, Layer) of the forward pass in progress
        self.pads = None        # of each sequence: padded positions before its first token
        self.tokens = 0         # positions of the padded batch so far
        self.last = None        # log-probabilities after the last position [batch, vocab]
        self.start_ns = 0

    # What the model hands to its attention function, and the hooks around its forward pass.

    def attention(self, original):
        def recorded(module, query, key, value, attention_mask, *words, **options):
            self.capture(module, query, key, value, options)
            return original(module, query, key, value, attention_mask, *words, **options)
        recorded.kvroof_original = original
        return recorded

    def capture(self, module, query, key, value, options):
        layer = getattr(module, "layer_idx", None)
        if layer is None or getattr(module, "is_cross_attention", False):
            raise RecordingError(f"{type(module).__name__}: not the self-attention of a numbered layer")
        if layer in self.seen:
            raise RecordingError(f"layer {layer} was called twice in one forward pass")
        heads, count, width = query.shape[1:]
        scale = options.get("scaling")
        sinks = options.get("s_aux")
        sizes = Layer(heads, key.shape[1], width, value.shape[-1], float(scale or 1 / math.sqrt(width)),
                      float(options.get("softcap") or 0.0), int(options.get("sliding_window") or 0), [],
                      rotary_of(self.config, width, layer),
                      [] if sinks is None else sinks.detach().float().flatten().tolist())
        if key.shape[2] > self.tokens + count:
            raise RecordingError(f"layer {layer}: {key.shape[2]} cached keys after {self.tokens + count} tokens; static "
                                 "caches and caches that were filled before cannot be recorded")
        self.seen[layer] = (query, key[:, :, -count:], value[:, :, -count:], sizes)

    def before_forward(self, module, arguments, options):
        ids = options.get("input_ids", arguments[0] if arguments else None)
        if ids is None:
            raise RecordingError("the model was not called with input_ids")
        if self.tokens > 0 and ids.shape[1] > 1:
            raise RecordingError("a second prompt, or several tokens in one decode step: one record() holds one batch that "
                                 "is decoded token by token")
        for key in ("logits_to_keep", "num_logits_to_keep"):  # generate() asks for the last logits of a prompt alone
            if self.prompt_logprobs and key in options:
                options[key] = 0
        if self.tokens == 0:
            self.start(ids, options.get("attention_mask"))
        self.seen.clear()
        self.start_ns = time.monotonic_ns()
        return arguments, options

    def start(self, ids, mask):
        batch, length = ids.shape
        kept = torch.ones_like(ids) if mask is None or mask.dim() != 2 else mask[:, :length].long()
        self.pads = (length - kept.sum(1)).tolist()
        if any(kept[b, :pad].any() or not kept[b, pad:].all() for b, pad in enumerate(self.pads)):
            raise RecordingError("padding has to be on the left, as for generation")
        self.lengths = [length - pad for pad in self.pads]

    def after_forward(self, module, arguments, options, output):
        ids = options.get("input_ids", arguments[0] if arguments else None)
        layers = self.config.num_hidden_layers
        if sorted(self.seen) != list(range(layers)):
            missing = sorted(set(range(layers)) - set(self.seen))
            raise RecordingError(f"{self.config.model_type}: layers {missing} did not call an attention function that can "
                                 "be recorded; kvroof_trace.TraceWriter writes traces of any model")
        if self.writer is None:
            self.open_writer()
        count = ids.shape[1]
        logprobs = self.logprobs(ids, output.logits)
        for b, pad in enumerate(self.pads):
            skip = pad if self.tokens == 0 else 0
            for layer in range(layers):
                query, key, value, _ = self.seen[layer]
                self.writer.add_rows(b, layer, *(to_numpy(part[b, :, skip:].transpose(0, 1)) for part in (query, key, value)))
            self.writer.add_tokens(b, ids[b, skip:].cpu().numpy(), logprobs[b, skip:])
        phase = "prefill" if self.tokens == 0 else "decode"
        self.tokens += count
        self.seen.clear()
        self.writer.end_step(phase, len(self.pads), self.start_ns, time.monotonic_ns())

    def open_writer(self):
        query, _, _, _ = self.seen[0]
        if query.dtype not in TYPES:
            raise RecordingError(f"attention in {query.dtype} cannot be recorded; expected float32, float16 or bfloat16")
        sequences = []
        for length in self.lengths:
            if self.prompt is not None and not 1 <= self.prompt <= length:
                raise RecordingError(f"prompt={self.prompt}: the sequence has {length} tokens")
            sequences.append(Sequence(self.prompt or length, self.max_new_tokens or 0, "imported"))
        self.writer = TraceWriter(
            self.path, [self.seen[layer][3] for layer in sorted(self.seen)], sequences, TYPES[query.dtype],
            weight_type=TYPES.get(self.model.dtype), model_name=self.config.model_type,
            model_path=getattr(self.model, "name_or_path", ""), model_shape=self.model_shape,
            segment_bytes=self.segment_bytes)

    def logprobs(self, ids, logits):
        """Of each fed token, from the logits before it; 0 for the first of a sequence, NaN where there were no logits."""
        after = torch.log_softmax(logits.detach().float(), -1)
        found = torch.full(ids.shape, math.nan)
        if self.last is not None:
            found[:, 0] = self.last.gather(1, ids[:, :1]).squeeze(1).cpu()
        if after.shape[1] == ids.shape[1]:
            found[:, 1:] = after[:, :-1].gather(2, ids[:, 1:, None]).squeeze(2).cpu()
        if self.tokens == 0:
            for b, pad in enumerate(self.pads):
                found[b, pad] = 0
        self.last = after[:, -1]
        return found.numpy()


def _patches(model, recording):
    """(mapping or module, name, replacement) of every attention function that the model may call."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    # What a model may name; flash attention hands over other layouts, and is left alone.
    patches = [(ALL_ATTENTION_FUNCTIONS, name, recording.attention(ALL_ATTENTION_FUNCTIONS[name]))
               for name in ("sdpa", "eager") if name in ALL_ATTENTION_FUNCTIONS]
    for name in sorted({type(module).__module__ for module in model.modules()}):
        code = sys.modules.get(name)
        if code is not None and hasattr(code, "eager_attention_forward"):
            patches.append((vars(code), "eager_attention_forward", recording.attention(code.eager_attention_forward)))
    return patches


@contextlib.contextmanager
def record(model, path, max_new_tokens=None, prompt=None, prompt_logprobs=False, model_shape=None,
           segment_bytes=8 << 20):
    """Records what `model` (a causal language model of transformers) runs within `with` into the trace `path`.

    One batch: a prompt, padded on the left if at all, then one token a step, as generate() does without beams; or one
    forward pass over a whole text, with `prompt` saying how many tokens of it are the prompt. `max_new_tokens` is what
    was asked for (Keyformer's T), by default what was generated. `prompt_logprobs` asks for all logits of the prompt, which
    takes memory of prompt × vocabulary. `model_shape` is the shape of format.md as a dict;
    without it, replays cover attention alone, unless --as names a model. An exception leaves the trace unsealed.
    """
    recording = Recording(model, path, max_new_tokens, prompt, prompt_logprobs, model_shape, segment_bytes)
    patches = _patches(model, recording)
    hooks = [model.register_forward_pre_hook(recording.before_forward, with_kwargs=True),
             model.register_forward_hook(recording.after_forward, with_kwargs=True)]
    try:
        for target, name, replacement in patches:
            target[name] = replacement
        yield recording
        if recording.writer is None:
            raise RecordingError(f"{path}: nothing was recorded, because the model was not called")
        recording.writer.seal()
    finally:
        if recording.writer is not None:
            recording.writer.close()
        for target, name, replacement in patches:
            target[name] = replacement.kvroof_original
        for hook in hooks:
            hook.remove()
