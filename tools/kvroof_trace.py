"""Writes kvroof traces (traces/format.md, version 1) from any framework; needs numpy and the standard library alone.

    with TraceWriter("run.kvt", [Layer(32, 8, 128)] * 32, [Sequence(prompt=1024)], kv_type="bf16") as trace:
        trace.add_rows(0, layer, q, k, v)   # for each layer; q [n, query_heads, width] after rotary, k and v likewise
        trace.add_tokens(0, ids, logprobs)
        trace.end_step("prefill")           # and so on, a step at a time
"""

import json
import math
import os
import pathlib
import platform
import sqlite3
import sys
from dataclasses import dataclass, field

import numpy as np

from kvroof_xxh3 import xxh3

try:
    import fcntl
except ImportError:  # no Unix
    fcntl = None

FORMAT_VERSION = 1
PHASES = ("prefill", "decode")
CAUSES = ("weights", "kv_read", "kv_write", "scores", "compaction", "activations")
SAFETENSORS_TYPES = {"f32": "F32", "f16": "F16", "bf16": "BF16"}
NUMPY_TYPES = {"f32": np.float32, "f16": np.float16, "bf16": np.uint16}  # bfloat16 by its bits

# Tables and columns of NVIDIA Nsight Systems' SQLite export, empty here.
KERNEL_TABLES = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (
  start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL,
  greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
  demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER, launchType INTEGER,
  cacheConfig INTEGER, registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL, gridY INTEGER NOT NULL,
  gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, blockY INTEGER NOT NULL, blockZ INTEGER NOT NULL,
  staticSharedMemory INTEGER NOT NULL, dynamicSharedMemory INTEGER NOT NULL, localMemoryPerThread INTEGER NOT NULL,
  localMemoryTotal INTEGER NOT NULL, gridId INTEGER NOT NULL, sharedMemoryExecuted INTEGER, graphNodeId INTEGER,
  sharedMemoryLimitConfig INTEGER);
"""


@dataclass
class Layer:
    """One layer of the manifest; query head h reads KV head h / (query_heads / kv_heads)."""

    query_heads: int
    kv_heads: int
    k_width: int
    v_width: int = 0                # 0: as k_width
    scale: float = 0.0              # of q·k; 0: 1/√k_width
    softcap: float = 0.0            # 0: none
    window: int = 0                 # tokens, own position included; 0: none
    alibi_slopes: list = field(default_factory=list)  # one for each query head, or none
    rotary: dict = field(default_factory=lambda: {"style": "none", "dims": 0, "theta": 0.0})
    attention_sinks: list = field(default_factory=list)  # a logit beside those of tokens for each query head, or none

    def as_json(self):
        if len(self.attention_sinks) not in (0, self.query_heads) or not all(map(math.isfinite, self.attention_sinks)):
            raise ValueError(f"attention_sinks: expected a finite number for each of {self.query_heads} query heads or none")
        sinks = {"attention_sinks": list(self.attention_sinks)} if len(self.attention_sinks) else {}
        return {
            "query_heads": self.query_heads,
            "kv_heads": self.kv_heads,
            "k_width": self.k_width,
            "v_width": self.v_width or self.k_width,
            "scale": self.scale or 1 / math.sqrt(self.k_width),
            "softcap": self.softcap,
            "window": self.window,
            "alibi_slopes": list(self.alibi_slopes),
            "rotary": self.rotary,
        } | sinks


@dataclass
class Sequence:
    """One sequence of the manifest; its id is its index."""

    prompt: int                      # tokens
    requested_new_tokens: int = 0    # Keyformer's T; 0: as many as were recorded
    stop_reason: str = "unknown"     # length, end_of_text, interrupted, context, imported, unknown


def to_bf16(values):
    """float32 → the bits of bfloat16 as uint16, rounded to nearest even; NaN stays NaN."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = ((bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))) >> np.uint32(16)).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded)


def encode(values, kv_type):
    """Rows in the trace's type: float arrays are rounded, uint16 are bits of bfloat16."""
    values = np.asarray(values)
    if kv_type == "bf16":
        return np.ascontiguousarray(values if values.dtype == np.uint16 else to_bf16(values.astype(np.float32)))
    return np.ascontiguousarray(values, NUMPY_TYPES[kv_type])


def safetensors_bytes(tensors, metadata):
    """The file with a last tensor `checksum`: XXH3-64 of all bytes before it. tensors: (name, type, array)."""
    header, offset = {"__metadata__": metadata}, 0
    for name, kind, array in [*tensors, ("checksum", "U8", np.zeros(8, np.uint8))]:
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    body = b"".join([len(text).to_bytes(8, "little"), text, *(array.tobytes() for _, _, array in tensors)])
    return body + xxh3(body).to_bytes(8, "little")


def write_whole(path, data):
    """Under a temporary name, synchronised, renamed: the file appears whole or not at all."""
    part = path.with_name(path.name + ".part")
    with open(part, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


def lock_writer(folder):
    """A lock that ends with the file or with the process, so that no repair takes a recording that still runs for one
    that was killed. Where the system has no such locks, a trace is written without."""
    file = open(folder / "writer.lock", "wb")
    try:
        if fcntl:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise FileExistsError(f"{folder}: a program still writes it; choose a name that no recording has") from None
    except OSError:
        pass
    return file


class TraceWriter:
    """Buffers whole engine steps and writes them as segments; seal() completes the trace, and so does leaving `with`
    without an exception. After an exception the trace stays unsealed: `kvroof inspect --repair` keeps what is intact,
    once close() was called, which `with` does, or the process has ended.
    """

    def __init__(self, path, layers, sequences, kv_type="f32", *, weight_type=None, policy="full", model_name="",
                 model_path="", model_shape=None, seed=0, source="import", backend="", segment_bytes=8 << 20):
        if kv_type not in SAFETENSORS_TYPES:
            raise ValueError(f"kv_type {kv_type!r}: expected one of {', '.join(SAFETENSORS_TYPES)}")
        self.path = pathlib.Path(path)
        self.layers, self.sequences = list(layers), list(sequences)
        self.kv_type, self.segment_bytes = kv_type, segment_bytes
        self._manifest = {
            "format_version": FORMAT_VERSION, "tool_version": "kvroof_trace.py 1", "source": source,
            "model_name": model_name, "model_path": str(model_path), "model_shape": model_shape, "backend": backend,
            "policy": policy, "seed": seed, "weight_type": weight_type or kv_type, "kv_type": kv_type,
            "command_line": " ".join(sys.argv), "host": " ".join(platform.uname()[:3]),
        }
        self._rows = [[0] * len(self.layers) for _ in self.sequences]  # recorded so far
        self._ids = [0] * len(self.sequences)
        self._journal, self._steps, self._all_bytes = [], [], 0
        self._held = []  # of each segment: (first row, end) of each sequence
        self._start_segment()
        if self.path.exists() and any(self.path.iterdir()):
            raise FileExistsError(f"{self.path}: exists and is not empty")
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = lock_writer(self.path)
        try:
            (self.path / "segments").mkdir()
        except FileExistsError:  # another recording had the name, and came and went meanwhile
            self._let_go()
            raise
        write_whole(self.path / "manifest.json", self._manifest_bytes())

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        try:
            if kind is None:
                self.seal()
        finally:
            self.close()

    def close(self):
        """Lets go of a trace that is not sealed, to which nothing more may be added: it may be repaired."""
        self._lock.close()

    def _let_go(self):
        lock = self.path / "writer.lock"
        if not fcntl:  # such systems remove no open file
            self._lock.close()
        lock.unlink(missing_ok=True)
        self._lock.close()

    def add_sequence(self, sequence):
        """One more sequence, for engines that take requests while they run; its id, the index. A repaired trace knows
        those alone that were there before the first segment was written."""
        self.sequences.append(sequence)
        self._rows.append([0] * len(self.layers))
        self._ids.append(0)
        self._open.append(self._empty_part(len(self.sequences) - 1))
        return len(self.sequences) - 1

    def add_rows(self, sequence, layer, q, k, v):
        """The next rows of a layer, as attention consumed them: q [n, query_heads, k_width], k [n, kv_heads, k_width],
        v [n, kv_heads, v_width]; float arrays, or uint16 with the bits of bfloat16."""
        shape = self.layers[layer].as_json()
        n = len(q)
        expected = {"q": (n, shape["query_heads"], shape["k_width"]), "k": (n, shape["kv_heads"], shape["k_width"]),
                    "v": (n, shape["kv_heads"], shape["v_width"])}
        for name, rows in (("q", q), ("k", k), ("v", v)):
            if np.shape(rows) != expected[name]:
                raise ValueError(f"layer {layer}: {name} has the shape {np.shape(rows)}, expected {expected[name]}")
            encoded = encode(rows, self.kv_type)
            self._open[sequence]["rows"][layer][name].append(encoded)
            self._open_bytes += encoded.nbytes
        self._rows[sequence][layer] += n

    def rows(self, sequence, layer, first, last):
        """Rows first … last − 1 as they were recorded, [q, k, v] in the trace's type: read back from the segments, or from
        what is not written yet."""
        parts = []
        for entry, held in zip(self._journal, self._held):
            start, end = held[sequence] if sequence < len(held) else (0, 0)
            if max(start, first) < min(end, last):
                tensors = self._read_back(entry, sequence, layer)
                parts.append([tensor[max(first - start, 0):last - start] for tensor in tensors])
        start, rows = self._open[sequence]["first_row"], self._open[sequence]["rows"][layer]
        if max(start, first) < min(self._rows[sequence][layer], last):
            parts.append([np.concatenate(rows[name])[max(first - start, 0):last - start] for name in "qkv"])
        return [np.concatenate(tensors) for tensors in zip(*parts)]

    def add_tokens(self, sequence, ids, logprobs=None):
        """The next token ids and the natural log-probability that the model gave each: 0 for the first of a sequence, NaN
        for others of a prompt whose logits nobody asked for, and (the default) wherever it is not known."""
        ids = np.asarray(ids, np.int64)
        if logprobs is None:
            logprobs = np.full(ids.shape, np.nan)
            if not self._ids[sequence]:
                logprobs[:1] = 0
        logprobs = np.asarray(logprobs, np.float32)
        if ids.shape != logprobs.shape or ids.ndim != 1 or np.isinf(logprobs).any():
            raise ValueError(f"sequence {sequence}: expected as many log-probabilities, finite or NaN, as ids")
        self._open[sequence]["ids"].append(ids)
        self._open[sequence]["logprobs"].append(logprobs)
        self._ids[sequence] += len(ids)

    def add_eviction(self, sequence, layer, step, head, position):
        """The storage head gave up a position at the end of a step (0: the prompt, i: the i-th decoded token)."""
        self._open[sequence]["evictions"][layer].append((step, head, position))

    def end_step(self, phase, sequences=1, start_ns=None, end_ns=None, counted_bytes=(0,) * len(CAUSES)):
        """Ends a forward pass: `phase` is prefill or decode; every layer of a sequence has the same rows by now."""
        for s, rows in enumerate(self._rows):
            if len(set(rows)) != 1:
                raise ValueError(f"sequence {s}: layers have different numbers of rows at the end of a step: {rows}")
        if phase not in PHASES:
            raise ValueError(f"phase {phase!r}: expected one of {', '.join(PHASES)}")
        self._segment_steps.append((len(self._steps), PHASES.index(phase), sequences, *counted_bytes))
        self._steps.append((len(self._steps), phase, sequences, start_ns, end_ns, *counted_bytes))
        if self._open_bytes >= self.segment_bytes:
            self._end_segment()

    def seal(self):
        """Writes the open segment, the final manifest, kernels.sqlite and the seal."""
        if self._segment_steps or any(part["ids"] for part in self._open):
            self._end_segment()
        for sequence, rows in zip(self.sequences, self._rows):
            if not sequence.requested_new_tokens:
                sequence.requested_new_tokens = max(rows[0] - sequence.prompt, 0)
        write_whole(self.path / "manifest.json", self._manifest_bytes(final=True))
        self._write_kernels()
        journal = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in self._journal).encode()
        write_whole(self.path / "journal.jsonl", journal)
        kernels = (self.path / "kernels.sqlite").read_bytes()
        seal = {
            "format_version": FORMAT_VERSION, "segments": len(self._journal), "steps": len(self._steps),
            "bytes": self._all_bytes, "manifest_xxh3": f"{xxh3((self.path / 'manifest.json').read_bytes()):016x}",
            "journal_xxh3": f"{xxh3(journal):016x}", "kernels_bytes": len(kernels),
            "kernels_xxh3": f"{xxh3(kernels):016x}",
        }
        write_whole(self.path / "seal.json", (json.dumps(seal, separators=(",", ":")) + "\n").encode())
        self._let_go()

    def _manifest_bytes(self, final=False, for_segment=False):
        manifest = dict(self._manifest)
        if for_segment:
            manifest.update(command_line="", host="")
        manifest["layers"] = [layer.as_json() for layer in self.layers]
        manifest["sequences"] = [
            {"id": s, "prompt": sequence.prompt, "requested_new_tokens": sequence.requested_new_tokens,
             "tokens": self._rows[s][0] if final else 0, "stop_reason": sequence.stop_reason if final else "unknown"}
            for s, sequence in enumerate(self.sequences)
        ]
        return (json.dumps(manifest, indent=1) + "\n").encode()

    def _start_segment(self):
        self._open = [self._empty_part(s) for s in range(len(self.sequences))]
        self._open_bytes, self._segment_steps = 0, []

    def _empty_part(self, s):
        return {"first_row": self._rows[s][0], "first_id": self._ids[s], "ids": [], "logprobs": [],
                "evictions": [[] for _ in self.layers], "rows": [{"q": [], "k": [], "v": []} for _ in self.layers]}

    def _read_back(self, entry, sequence, layer):
        """[q, k, v] of a layer in a written segment that has rows of the sequence."""
        with open(self.path / entry["file"], "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
            tensors = []
            for name in "qkv":
                tensor = header[f"s{sequence}.l{layer}.{name}"]
                begin, end = tensor["data_offsets"]
                file.seek(8 + length + begin)
                tensors.append(np.frombuffer(file.read(end - begin), NUMPY_TYPES[self.kv_type]).reshape(tensor["shape"]))
            return tensors

    def _segment_tensors(self):
        """Eight-byte types first, then four, then the rows, as the format has them; empty tensors are left out."""
        tensors = []

        def add(name, kind, parts, dtype, join=np.concatenate):
            if len(parts):
                tensors.append((name, kind, np.ascontiguousarray(join(parts), dtype)))

        add("steps", "I64", self._segment_steps, np.int64, np.asarray)
        for s, part in enumerate(self._open):
            add(f"s{s}.ids", "I64", part["ids"], np.int64)
        for s, part in enumerate(self._open):
            add(f"s{s}.logprobs", "F32", part["logprobs"], np.float32)
            for l, evictions in enumerate(part["evictions"]):
                add(f"s{s}.l{l}.evictions", "I32", evictions, np.int32, np.asarray)
        for s, part in enumerate(self._open):
            for l, rows in enumerate(part["rows"]):
                for name in "qkv":
                    add(f"s{s}.l{l}.{name}", SAFETENSORS_TYPES[self.kv_type], rows[name], None)
        return [tensor for tensor in tensors if tensor[2].size]

    def _end_segment(self):
        number = len(self._journal)
        first_step = self._segment_steps[0][0] if self._segment_steps else len(self._steps)
        metadata = {
            "format": f"kvroof-trace-{FORMAT_VERSION}", "segment": str(number), "first_step": str(first_step),
            "steps": str(len(self._segment_steps)),
            "steps.columns": " ".join(["step", "phase", "sequences", *(f"{cause}_bytes" for cause in CAUSES)]),
        }
        for s, part in enumerate(self._open):
            if any(rows["q"] for rows in part["rows"]) or any(part["evictions"]):
                metadata[f"s{s}.first_row"] = str(part["first_row"])
            if part["ids"]:
                metadata[f"s{s}.first_id"] = str(part["first_id"])
        if number == 0:
            metadata["manifest"] = self._manifest_bytes(for_segment=True).decode()
        data = safetensors_bytes(self._segment_tensors(), metadata)
        name = f"segments/{number:05}.safetensors"
        write_whole(self.path / name, data)
        self._journal.append({"segment": number, "file": name, "first_step": first_step,
                              "steps": len(self._segment_steps), "bytes": len(data), "xxh3": f"{xxh3(data):016x}"})
        with open(self.path / "journal.jsonl", "a", encoding="ascii") as journal:
            journal.write(json.dumps(self._journal[-1], separators=(",", ":")) + "\n")
        self._held.append([(part["first_row"], rows[0]) for part, rows in zip(self._open, self._rows)])
        self._all_bytes += len(data)
        self._start_segment()

    def _write_kernels(self):
        part = self.path / "kernels.sqlite.part"
        part.unlink(missing_ok=True)
        database = sqlite3.connect(part)
        counted = ", ".join(f"{cause}_bytes INTEGER NOT NULL" for cause in CAUSES)
        database.executescript(
            "CREATE TABLE kvroof_step (step INTEGER NOT NULL PRIMARY KEY, phase TEXT NOT NULL, "
            f"sequences INTEGER NOT NULL, start_ns INTEGER, end_ns INTEGER, {counted});" + KERNEL_TABLES)
        marks = ", ".join("?" * (5 + len(CAUSES)))
        database.executemany(f"INSERT INTO kvroof_step VALUES ({marks})", self._steps)
        database.commit()
        database.close()
        os.replace(part, self.path / "kernels.sqlite")
