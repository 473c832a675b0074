"""Records what llama.cpp runs as a kvroof trace, through llama-cpp-python.

    from kvroof_llama_cpp import Llama, record
    llm = Llama("model.gguf", n_ctx=4096)       # llama_cpp.Llama, with a context that can be watched
    with record(llm, "run.kvt"):
        llm("Once upon a time", max_tokens=128)

Each generate() is a sequence; llm(), create_completion() and create_chat_completion() call it. Captured is what the
graph stores into its KV cache and what its flash attention reads: q and k after rotary, k and v rounded to the cache's
type.
"""

import contextlib
import ctypes
import math
import re
import time
from unittest import mock

import llama_cpp
import numpy as np
from llama_cpp import _ctypes_extensions, _ggml
from llama_cpp import llama_cpp as bindings

from kvroof_trace import Layer, Sequence, TraceWriter

CACHE_TYPES = {0: "f32", 1: "f16", 30: "bf16"}  # ggml_type
ROTARY_STYLES = {0: "adjacent_pairs", 2: "half_split"}  # GGML_ROPE_TYPE_NORMAL, _NEOX

NO_ROTARY = {"style": "none", "dims": 0, "theta": 0.0}


class RecordingError(RuntimeError):
    """The model or the call cannot be recorded; says why."""


class Tensor(ctypes.Structure):
    """ggml_tensor of ggml.h; check_layout() compares it with the library."""


Tensor._fields_ = [
    ("type", ctypes.c_int), ("buffer", ctypes.c_void_p), ("ne", ctypes.c_int64 * 4), ("nb", ctypes.c_size_t * 4),
    ("op", ctypes.c_int), ("op_params", ctypes.c_int32 * 16), ("flags", ctypes.c_int32),
    ("src", ctypes.POINTER(Tensor) * 10), ("view_src", ctypes.POINTER(Tensor)), ("view_offs", ctypes.c_size_t),
    ("data", ctypes.c_void_p), ("name", ctypes.c_char * 64), ("extra", ctypes.c_void_p),
]

_base = _ctypes_extensions.load_shared_library("ggml-base", _ggml.libggml_base_path)
for _name, _result, _arguments in (
        ("ggml_get_name", ctypes.c_void_p, [ctypes.c_void_p]), ("ggml_get_data", ctypes.c_void_p, [ctypes.c_void_p]),
        ("ggml_op_name", ctypes.c_char_p, [ctypes.c_int]), ("ggml_nbytes", ctypes.c_size_t, [ctypes.c_void_p]),
        ("ggml_backend_tensor_get", None, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t])):
    getattr(_base, _name).restype, getattr(_base, _name).argtypes = _result, _arguments


def check_layout(address):
    tensor = Tensor.from_address(address)
    if _base.ggml_get_name(address) != address + Tensor.name.offset or _base.ggml_get_data(address) != tensor.data:
        raise RecordingError("this llama.cpp lays out ggml_tensor otherwise than ggml.h of llama-cpp-python 0.3.36")


def read(pointer):
    """A float32 tensor on any device → an array with its axes in the order of NumPy, outermost first."""
    tensor, address = pointer.contents, ctypes.addressof(pointer.contents)
    if tensor.type != 0:
        raise RecordingError(f"{tensor.name.decode()}: ggml type {tensor.type}, expected float32")
    bytes_ = np.empty(_base.ggml_nbytes(address), np.uint8)
    _base.ggml_backend_tensor_get(address, bytes_.ctypes.data, 0, bytes_.nbytes)
    return np.lib.stride_tricks.as_strided(bytes_.view(np.float32), tuple(tensor.ne)[::-1], tuple(tensor.nb)[::-1])


def floats(tensor, first, count):
    """Parameters of an operation that are stored as float32."""
    return np.frombuffer(bytes(tensor.op_params), np.float32)[first:first + count].tolist()


def rotary_of(tensor):
    """The rotary embedding of a ROPE operation; its tables where it is scaled: a factor of each pair (LLaMA 3.1), linear,
    or YaRN (Peng et al. 2023, section 3.4), each as ggml computes it."""
    dims, trained = tensor.op_params[1], tensor.op_params[4]
    theta, scale, extension, magnitude, fast, slow = floats(tensor, 5, 6)
    rotary = {"style": ROTARY_STYLES[tensor.op_params[2]], "dims": dims, "theta": theta}
    if not tensor.src[2] and (scale, extension, magnitude) == (1.0, 0.0, 1.0):
        return rotary
    frequencies = theta ** (-np.arange(0, dims, 2) / dims)
    if tensor.src[2]:
        frequencies /= read(tensor.src[2]).reshape(-1)[:dims // 2]
    kept = 0.0  # the share of each pair that stays as it was
    if extension:
        low, high = (dims * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(theta)) for turns in (fast, slow))
        low, high = max(0, math.floor(low)), min(dims - 1, math.ceil(high))
        kept = extension * (1 - np.clip((np.arange(dims // 2) - low) / max(0.001, high - low), 0, 1))
        magnitude *= 1 + 0.1 * math.log(1 / scale)
    frequencies = frequencies * (scale * (1 - kept) + kept)
    return {**rotary, "magnitude": magnitude, "inverse_frequencies": frequencies.astype(np.float32).tolist()}


class Llama(llama_cpp.Llama):
    """llama_cpp.Llama whose context tells record() of its tensors, and which runs flash attention."""

    def __init__(self, *words, **options):
        self.recording = None
        self._watch = llama_cpp.ggml_backend_sched_eval_callback(self._on_tensor)  # the context holds no reference
        defaults = bindings.llama_context_default_params

        def watched():
            params = defaults()
            params.cb_eval = self._watch
            return params

        with mock.patch.object(bindings, "llama_context_default_params", watched):
            super().__init__(*words, **{"flash_attn": True, **options})

    def _on_tensor(self, address, ask, _):
        return self.recording.on_tensor(address, ask) if self.recording else not ask

    def generate(self, tokens, *words, **options):
        if self.recording:
            self.recording.begin(list(tokens))
        return super().generate(tokens, *words, **options)


class Recording:
    """What llama.cpp runs on its way into a trace; made by record()."""

    def __init__(self, llm, path, model_shape, segment_bytes):
        self.llm, self.path, self.model_shape, self.segment_bytes = llm, path, model_shape, segment_bytes
        self.writer = None
        self.sequences = []   # of the trace
        self.ids = []         # of the rows of each
        self.layers = {}      # layer → Layer
        self.rotary = NO_ROTARY  # of the layer in progress
        self.rows = {}        # layer → {"q", "k", "v": [array of each micro-batch]} of the decode() in progress
        self.layer = None     # whose rows were stored last
        self.kind = None      # of the cache, as attention reads it
        self.error = None
        self.checked = False
        self.logprobs = None  # after the last token

    # The graph, an operation at a time. An exception cannot pass through C: it waits for the end of decode().

    def on_tensor(self, address, ask):
        if self.error:
            return False
        try:
            if not self.checked:
                check_layout(address)
                self.checked = True
            tensor = Tensor.from_address(address)
            kind = _base.ggml_op_name(tensor.op).decode()
            if not ask and kind in ("ROPE", "SET_ROWS", "FLASH_ATTN_EXT"):
                getattr(self, "on_" + kind.lower())(tensor)
            return True if not ask else self.wants(kind, tensor)
        except Exception as error:  # pylint: disable=broad-exception-caught
            self.error = error
            return False

    def wants(self, kind, tensor):
        """Rows of k are asked for where they are made, too: a back end could fuse that with storing them."""
        return kind in ("SET_ROWS", "FLASH_ATTN_EXT") or re.match(rb"[QKV]cur", tensor.name) is not None

    def on_rope(self, tensor):
        """What was done to k."""
        if tensor.op_params[2] in ROTARY_STYLES:
            self.rotary = rotary_of(tensor)

    def on_set_rows(self, tensor):
        stored = re.match(rb"cache_([kv])_l(\d+)", tensor.view_src.contents.name if tensor.view_src else b"")
        if not stored:
            raise RecordingError(f"{tensor.name.decode()}: a store that is not into the KV cache")
        name, self.layer = stored[1].decode(), int(stored[2])
        rows = read(tensor.src[0])[0, 0]  # [tokens, heads × width]
        self.rows.setdefault(self.layer, {"q": [], "k": [], "v": []})[name].append(rows)

    def on_flash_attn_ext(self, tensor):
        query, key, value = (tensor.src[i].contents for i in range(3))
        scale, max_bias, softcap = floats(tensor, 0, 3)
        if query.ne[3] != 1 or max_bias or tensor.src[4]:
            raise RecordingError(f"layer {self.layer}: several streams, ALiBi or attention sinks cannot be recorded")
        if key.type not in CACHE_TYPES or key.type != value.type:
            raise RecordingError("the KV cache is quantised or its k and v have different types; expected type_k and "
                                 "type_v f32, f16 or bf16")
        self.kind = CACHE_TYPES[key.type]
        self.layers[self.layer] = Layer(query.ne[2], key.ne[2], query.ne[0], value.ne[0], scale, softcap,
                                        rotary=self.rotary)
        self.rotary = NO_ROTARY
        self.rows[self.layer]["q"].append(read(tensor.src[0])[0].transpose(1, 0, 2))  # [tokens, heads, width]

    # Into the trace.

    def begin(self, prompt):
        self.sequences.append(Sequence(len(prompt), 0, "imported"))
        self.ids.append([])
        self.prompt = prompt
        self.logprobs = None
        if self.writer:
            self.writer.add_sequence(self.sequences[-1])

    def decode(self, original):
        def recorded(batch):
            if not self.sequences:
                raise RecordingError("tokens were evaluated outside generate()")
            self.rows.clear()
            start_ns = time.monotonic_ns()
            try:
                original(batch)
            finally:
                if self.error:
                    raise self.error
            end_ns, tokens = time.monotonic_ns(), batch.batch.n_tokens
            self.end_step([batch.batch.token[i] for i in range(tokens)], batch.batch.pos[0], start_ns, end_ns)
        return recorded

    def end_step(self, ids, first, start_ns, end_ns):
        if not self.rows or sorted(self.rows) != list(range(len(self.layers))) or any(
                sum(map(len, parts)) != len(ids) for rows in self.rows.values() for parts in rows.values()):
            raise RecordingError("the graph does not store k and v of every token in every layer, or its attention is "
                                 "not flash attention; pass flash_attn=True")
        if self.writer is None:
            self.open_writer()
        index, known = len(self.ids) - 1, len(self.ids[-1])
        if first < known:
            raise RecordingError(f"tokens from {first} on were taken back: speculative decoding cannot be recorded")
        if first > known:
            self.copy_prefix(index, known, first)
        for layer, rows in self.rows.items():
            shape = self.layers[layer]
            heads = {"q": shape.query_heads, "k": shape.kv_heads, "v": shape.kv_heads}
            self.writer.add_rows(index, layer, *(np.concatenate(rows[name]).reshape(len(ids), heads[name], -1)
                                                 for name in "qkv"))
        self.add_tokens(index, ids)
        self.logprobs = self.last_logprobs()
        self.writer.end_step("prefill" if first < len(self.prompt) else "decode", 1, start_ns, end_ns)

    def open_writer(self):
        kept = {number: self.layers[number] for number in sorted(self.layers)}
        self.writer = TraceWriter(self.path, list(kept.values()), self.sequences, self.kind,
                                  model_name=self.llm.metadata.get("general.architecture", ""),
                                  model_path=self.llm.model_path, model_shape=self.model_shape,
                                  segment_bytes=self.segment_bytes)

    def copy_prefix(self, index, known, first):
        """What llama.cpp still has of the sequence before."""
        if known or not index or self.ids[index - 1][:first] != self.prompt[:first]:
            raise RecordingError(f"sequence {index} starts at token {first}, and nobody recorded those before it")
        for layer in range(len(self.layers)):
            self.writer.add_rows(index, layer, *self.writer.rows(index - 1, layer, 0, first))
        self.add_tokens(index, self.prompt[:first])

    def add_tokens(self, index, ids):
        """Log-probabilities are known of what was generated, and of none of a prompt's tokens."""
        known = len(self.ids[index])
        logprobs = np.full(len(ids), math.nan)
        if known == 0:
            logprobs[0] = 0
        elif known >= len(self.prompt) and self.logprobs is not None:
            logprobs[0] = self.logprobs[ids[0]]
        self.ids[index] += ids
        self.writer.add_tokens(index, ids, logprobs)

    def last_logprobs(self):
        logits = llama_cpp.llama_get_logits_ith(self.llm._ctx.ctx, -1)
        if not logits:
            return None
        values = np.ctypeslib.as_array(logits, shape=(self.llm.n_vocab(),)).astype(np.float64)
        return values - (values.max() + math.log(np.exp(values - values.max()).sum()))


@contextlib.contextmanager
def record(llm, path, model_shape=None, segment_bytes=8 << 20):
    """Records what `llm` (this module's Llama) generates within `with` into the trace `path`.

    Tokens that llama.cpp still has in its cache from the sequence before are copied in the trace; what it had before
    record() is dropped. `model_shape` is the shape of format.md as a dict; without it, replays cover attention alone,
    unless --as names a model. An exception leaves the trace unsealed.
    """
    if not isinstance(llm, Llama):
        raise RecordingError("expected a model made by kvroof_llama_cpp.Llama, whose context can be watched")
    if llama_cpp.llama_model_n_swa(llm._model.model) > 0:
        raise RecordingError("models with a sliding window cannot be recorded: llama.cpp hides which layers have it")
    if llm.draft_model is not None:
        raise RecordingError("speculative decoding cannot be recorded")
    recording = Recording(llm, path, model_shape, segment_bytes)
    decode = llm._ctx.decode
    llm.reset()
    try:
        llm.recording, llm._ctx.decode = recording, recording.decode(decode)
        yield recording
        if recording.writer is None:
            raise RecordingError(f"{path}: nothing was recorded, because llama.cpp generated nothing")
        recording.writer.seal()
    finally:
        if recording.writer is not None:
            recording.writer.close()
        llm.recording = None
        del llm._ctx.decode
