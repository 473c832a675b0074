// Bytes by cause and arithmetic by kernel family that one engine step must move and do.
//
// The contract between the simulator and an engine that counts its own bytes (tests hold that both agree exactly).
// One call is a decode step of a batch (one token a sequence) or the prefill of one sequence (n tokens). With
// T = tokens of the call, S = tokens whose logits are computed (decode: all; prefill: the last, or all when asked for),
// w = bytes of a weight element, c = bytes of a cache element, counts summed over layers and sequences:
//
//   cause        bytes
//   weights      w · (every matrix, bias and norm vector that the call uses once, whatever T: of routed experts those
//                that any token chose; the head, which is the embedding matrix when tied, the projection before it and
//                the final norm once when S > 0; one row of the embedding, and of the position table if there is one,
//                for each token)
//   kv_write     written rows  · bytes of a row      and of its key, where layers have an index
//   kv_read      attended rows · bytes of a row      a row is read once for all query heads of its group, in a prompt
//                                                    once for a block of queries, see below
//                indexed rows  · bytes of a key      of an index, in the layers that have one
//   compaction   moved rows    · bytes of a row · 2  read and written
//   scores       state_read + state_written + scored · c
//   activations  4 bytes (f32) for each element of:
//                embedding output       T · embedding width                          (written; a row of the position
//                                                                                     table is added where it lies)
//                each norm              T · (width + width)                          (in + out; final norm: S)
//                each linear            T · (in + out)                               (head: S · (width + vocab))
//                rotary                 T · (heads + kv_heads) · head_dim · 2        (layers that turn them)
//                attention              T · (heads · head_dim + heads · v_head_dim)  (q in, out out)
//                each residual          T · (2 · hidden + hidden)
//                gated activation       T · (2 · ffn + ffn);  plain: T · (ffn + ffn)
//                each expert's output   3 · hidden for each token that it passed     (added to the others' sum)
//
// A layer has the linears q, k, v, o, norms_per_layer norms, norms of q and of k where the family has them, and two
// residuals. Its MLP has the linears gate, up, down (plain: up, down); a layer of experts has a router, such an MLP for
// each of the k experts that a token chose, and one for the shared experts with their gate. Latent attention has the
// linears q (or q down, norm, q up), kv down, a norm, the absorbed products of k up and v up of each head, and o; its
// rotary passes all of q and of the latent row. A clamp, a scale or a soft-cap changes what was just written and moves
// nothing. A row is one token's k and v of one storage head, or its latent row; with the scales of its type
// (sim/core/kv_type.hpp). A cache with a residual window (KIVI) writes float16 rows, reads what the tokens' ages say,
// holes in groups of k included, and counts what it converts as compaction: float16 read, codes and scales written.
//
// Compressed rows (sim/model/compressed_rows.hpp) are rows beside those of a window, one for several tokens. A layer
// has the linears q down, norm, q up, the row of a token, the output in groups and what joins them; rotary passes q and
// the row, norming both, and the output. What makes the rows, and keys of their index, are two linears each, whose
// results a buffer takes and gives back. Residual streams are read by a linear and by a mean of them on the way to a
// mixer or an MLP, and read and written after it, in place of the residual.
//
// Layers may have other heads than most (ModelShape::other), whose rows count as several where they are wider, and may
// have no rows of their own but read those of an earlier layer. What a layer adds of an embedding of its own are three
// linears, a gate, norms and a residual; extras count as weights and products alone.
//
// A layer that holds a state in place of a cache (sim/model/state_layers.hpp) reads its sequences' states and writes
// them, in prompts once in each kStateChunk tokens: state_bytes, beside the causes. The engine counts them as
// activations; its CUDA kernels keep them over a whole prompt and write them once. Its other activations are its
// products, its convolution (in + out; a short one takes its gates with it: 4 · hidden), and the norm of its output
// with the gate (3 · values).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "sim/core/byte_counters.hpp"
#include "sim/core/dtype.hpp"
#include "sim/core/kv_type.hpp"
#include "sim/core/residency.hpp"
#include "sim/core/units.hpp"
#include "sim/model/model_shape.hpp"

namespace kvroof {

enum class KernelFamily : std::uint8_t { kLinear, kAttention, kPolicy };
inline constexpr std::size_t kKernelFamilies = 3;

struct StepTraffic {
  ByteCounters bytes;
  KvBytes kv_read;  // what bytes[kKvRead] is made of
  std::uint64_t index_bytes = 0;  // of these, keys of an index
  Flops index_flops;              // of the queries with these keys
  std::uint64_t state_bytes = 0;  // of layers without a cache, read and written
  Flops state_flops;
  std::array<Flops, kKernelFamilies> flops{};  // a multiplication with its addition counts as two

  [[nodiscard]] Flops operator[](KernelFamily f) const { return flops[static_cast<std::size_t>(f)]; }
  StepTraffic& operator+=(const StepTraffic& other);
  friend bool operator==(const StepTraffic&, const StepTraffic&) = default;
};

struct TrafficTypes {
  DType weights = DType::kBF16;
  KvType kv = DType::kBF16;
};

// What one call processes.
struct StepWork {
  std::uint64_t tokens = 0;         // rows of the activations
  std::uint64_t logit_tokens = 0;   // rows whose logits are computed
  std::uint32_t storage_heads = 0;  // KV heads, or query heads for policies that store so
  LayerCounts rows;                 // summed over layers and sequences (resident and allocated are not used)
  std::uint64_t rows_read = 0;      // rows that attention walks when it is not rows.attended, see prefill_rows_read
  std::uint64_t keys_read = 0;      // likewise keys of an index, when it is not rows.indexed
  std::uint64_t head_reads = 1;     // how often the head is read when there are logits
  // Routed experts that some token chose, summed over layers; unknown: as many as expected_experts says.
  std::optional<std::uint64_t> experts = std::nullopt;
  // Of layers without a cache: how often the state of one sequence is read, and written.
  std::uint64_t recurrent_reads = 0, recurrent_writes = 0;
};

// The work of prompts of so many tokens in all: states pass memory once in each kStateChunk tokens, which are
// computed at once (as the published kernels do).
StepWork prompt_work(std::uint64_t prompts, std::uint64_t tokens, std::uint32_t storage_heads, const LayerCounts& rows);

// Routed experts, summed over layers, that at least one of `tokens` tokens chooses: k a layer for one token, and
// E · (1 − mean of (1 − p · k/E)^T) where T tokens choose k of E independently, and experts are p times as popular as
// their mean: evenly on a logarithmic scale, the most popular 8 times as much as the least. Of tables of layers of
// experts that choose by power laws of 1.01 and 1.2, which their authors found latencies of DeepSeek-V3 and Qwen3-235B
// to follow (ai-dynamo/aiconfigurator @095f58a, docs/POWER_LAW_DISTRIBUTION.md), 8 fits both best: 7 and 8 %.
double expected_experts(const ModelShape& shape, std::uint64_t tokens);

// Query heads that share a storage head of a layer of other heads (ModelShape::other).
double other_group(const ModelShape& shape, std::uint32_t storage_heads);

// Rows attended, counted for each query head that meets them: those of the group that shares a storage head.
double query_rows(const ModelShape& shape, const LayerCounts& rows, std::uint32_t storage_heads);

// Hidden elements of the MLP that one token passes: those of its experts together, or of a dense layer.
std::uint64_t widest_mlp(const ModelShape& shape);

// Of a row of v beside k: 0 where v lies in k.
inline std::uint32_t stored_v_width(const ModelShape& shape) { return shape.row_width() - shape.head_dim; }
// One row as attention reads it: k and v of one token in one storage head. Of a type that is by_age(), once it has left
// the window.
KvBytes kv_row(const ModelShape& shape, KvType kv);
inline std::uint64_t row_bytes(const ModelShape& shape, KvType kv) { return kv_row(shape, kv).total(); }
// Keys in an index of so many rows, counted over layers; of compressed rows only `keyed` of them have one.
KvBytes index_keys(const ModelShape& shape, std::uint64_t rows, std::uint64_t keyed);
// What so many rows, counted over layers, take in the cache with their keys in an index.
KvBytes held_bytes(const ModelShape& shape, KvType kv, std::uint64_t rows, std::uint64_t keyed = 0);
// What is held after eviction.
KvBytes resident_bytes(const ModelShape& shape, KvType kv, const LayerCounts& rows);

// A shape without hidden size (imported tensors) has attention, policy and cache traffic only.
constexpr bool attention_only(const ModelShape& shape) { return shape.hidden == 0; }

// Traffic of one call. Pure; allocates nothing, throws nothing.
StepTraffic step_traffic(const ModelShape& shape, TrafficTypes types, const StepWork& work);

// A decode step of a batch: batch[i] holds the counts of sequence i in this step, a cell a layer. `experts` as in
// StepWork.
StepTraffic decode_traffic(const ModelShape& shape, TrafficTypes types, std::uint32_t storage_heads,
                           std::span<const std::span<const LayerCounts>> batch,
                           std::optional<std::uint64_t> experts = {});

// Rows of one storage head that the attention of a prompt walks: a block of query_block consecutive queries walks the
// rows up to its last one once, from the first that its first query sees through the layer's window (0: none). With
// blocks of one, that is the rows attended: n (n + 1) / 2 without a window.
std::uint64_t prefill_rows_read(std::uint32_t prompt, std::uint32_t query_block, std::uint32_t window = 0);

// The prefill of one sequence of `prompt` tokens; layers are the cells of step 0. logit_block is 0 when only the last
// token's logits are computed; otherwise those of all are, in blocks of so many. It and query_block are the engine's.
StepTraffic prefill_traffic(const ModelShape& shape, TrafficTypes types, std::uint32_t storage_heads,
                            std::uint32_t prompt, std::span<const LayerCounts> layers, std::uint32_t logit_block = 0,
                            std::uint32_t query_block = 1, std::optional<std::uint64_t> experts = {});

// Step `step` of one recorded sequence: its prefill for 0, else a decode step of batch 1.
StepTraffic residency_traffic(const ModelShape& shape, TrafficTypes types, const Residency& residency,
                              std::uint32_t step, std::uint32_t query_block = 1);

}  // namespace kvroof
