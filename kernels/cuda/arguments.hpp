// What the kernels are given: plain data, the same for nvcc and for the host compiler.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/engine/random_fill.hpp"
#include "sim/model/query_scale.hpp"

namespace kvroof::cuda {

// Types of weights (the first two) and of cached rows.
enum class Stored : std::uint8_t { kBF16, kF16, kInt8, kInt4 };

// The slots of one storage head of one sequence, in memory of their own.
struct CacheSlots {
  std::byte* keys = nullptr;          // slot s at s · row bytes
  std::byte* values = nullptr;
  float* key_scales = nullptr;        // of each slot, int8 and int4 only
  float* value_scales = nullptr;
  std::uint32_t* positions = nullptr;  // of each slot
  float* logits = nullptr;            // [slots, unit_heads] of the last query, or null: what scores are made of
  std::uint32_t* state = nullptr;     // of a policy, column after column: that of slot s in column c at c · stride + s
  std::uint32_t stride = 0;           // slots that the head has room for
  std::uint32_t* next = nullptr;      // the slot of the victim, which the next token takes
};

// What the host knows of one sequence's row in one layer before it is computed. Every head holds as many slots.
constexpr std::uint32_t kOwnSlot = 0xffffffffU;
struct StepRow {
  std::uint32_t length = 0;       // slots that the row meets, that of its own token included
  std::uint32_t slot = kOwnSlot;  // of its token in every head, or: of the head's last victim
  std::uint32_t recent = 0;       // newest tokens that may not go
  std::uint32_t evicts = 0;       // 1: a victim is chosen after the row
  std::uint32_t sequence = 0;     // as noise is keyed
  float temperature = 1;
  float threshold = 0;            // of the weights that are counted
};

enum class NormMode : std::uint8_t { kNone, kRms, kLayer };
enum class ActivationMode : std::uint8_t { kNone, kSilu, kGelu, kGeluTanh, kRelu, kRelu2, kSigmoid, kClampedSwiglu };

struct DeviceMatrix {
  const std::byte* data = nullptr;  // [rows, cols] of a 16-bit type
  std::uint32_t rows = 0;
  std::uint32_t cols = 0;           // a multiple of 8
};

// Pairs of one expert that are neighbours in the order of experts.
struct ExpertTile {
  std::uint32_t expert = 0;
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};

// Rows of a product that take the matrix and the bias of their own expert; those of all experts lie behind each other.
struct RoutedRows {
  const std::uint32_t* chosen = nullptr;  // [pairs] experts; null: there is one matrix
  std::uint32_t share = 1;                // pairs p of one row of x have the same p / share
  // More than a few pairs: by their experts.
  const std::uint32_t* order = nullptr;       // [pairs]
  const ExpertTile* tiles = nullptr;          // [tile_count]
  const std::uint32_t* tile_count = nullptr;
  std::uint32_t most_tiles = 0;
};

// Matrices of `count` heads, behind each other: head h's takes vectors from x + h · x_step on and writes from
// out + h · out_step on.
struct HeadMatrices {
  std::uint32_t count = 0;  // 0: there is one matrix
  std::uint32_t x_step = 0;
  std::uint32_t out_step = 0;
};

// Split-K: blocks that share the columns of the same rows (linear_many.cuh), and where they leave their partial sums.
struct SplitK {
  std::uint32_t splits = 1;
  float* sums = nullptr;         // [row blocks, splits, kSplitFloats]
  unsigned* finished = nullptr;  // [row blocks]; 0 before and after
};
constexpr std::uint32_t kFewTokens = 4;  // whose products warps make by themselves, a few rows at a time
constexpr std::uint32_t kSmallTile = 16;  // tokens of a block where there are no more
constexpr std::uint32_t kSplitRows = 128, kSplitColumns = 128, kLargeTile = 64;  // of a block
constexpr std::uint32_t kSplitFloats = 2 * kSplitRows * kLargeTile + kLargeTile;  // of W, of the gated, squares of x

// out[t] = f(W · norm(x[t]) + bias), or f(gate) · up, or added to out.
struct LinearArguments {
  const float* x = nullptr;         // [tokens, cols]
  std::uint32_t x_row = 0;          // floats from one vector to the next; 0: cols (set_steps)
  std::uint32_t out_row = 0;        // the same of results; 0: rows
  std::uint32_t tokens = 0;         // ≤ the kernel's kTokens
  NormMode norm = NormMode::kNone;
  const std::byte* norm_scale = nullptr;  // [cols] of the weights' type
  const std::byte* norm_bias = nullptr;   // or null
  float norm_eps = 0;
  float norm_offset = 0;            // added to the scale
  float* norms = nullptr;           // room for each token's centre and factor, made before; null: each block does it
  DeviceMatrix w;
  DeviceMatrix up;                  // rows > 0: out = f(w x) · (up x), or what clamped_swiglu.hpp says
  const std::byte* bias = nullptr;  // [rows], or null
  const std::byte* up_bias = nullptr;
  ActivationMode activation = ActivationMode::kNone;
  bool add = false;                 // to out: the residual connection
  float factor = 1;                 // of the result, before the cap
  float softcap = 0;
  const float* token_factors = nullptr;  // [tokens] of the result, or null
  RoutedRows routed;                // with experts `tokens` are pairs, w and up the first expert's
  HeadMatrices heads;               // w is the first head's; without norm, experts and up
  // splits > 1: of more than kSmallTile and at most kLargeTile tokens, where no block makes norms (SplitKMemory).
  SplitK split_k;
  float* out = nullptr;             // [tokens, rows]
};

// 0 stands for vectors and results that lie behind each other.
inline void set_steps(LinearArguments& a) {
  if (a.x_row == 0) a.x_row = a.w.cols;
  if (a.out_row == 0) a.out_row = a.w.rows;
}

// What a library makes the products of, and what is left to do with them.
struct ProductArguments {
  LinearArguments linear;
  std::byte* rounded = nullptr;  // [tokens, cols]: normed vectors of the weights' type
  const float* ups = nullptr;    // [tokens, rows]: products with linear.up
};

constexpr unsigned kMostExperts = 512;
// So few pairs each read their expert by themselves; more are cut into tiles of one expert.
constexpr unsigned kFewPairs = 8;
constexpr unsigned tile_pairs(unsigned pairs) { return pairs <= 512 ? kSmallTile : kLargeTile; }

// RouterScores of sim/model/config_json.hpp.
enum class RouteScores : std::uint8_t { kSoftmax, kSigmoid, kSparseMixer };

struct RouteArguments {
  const float* logits = nullptr;   // [tokens, experts]
  std::uint32_t tokens = 0;
  std::uint32_t experts = 0;       // ≤ kMostExperts
  std::uint32_t per_token = 0;
  RouteScores scores = RouteScores::kSoftmax;
  const float* bias = nullptr;     // [experts] added to scores for the choice alone, or null
  std::uint32_t groups = 1;
  std::uint32_t top_groups = 1;
  std::uint32_t group_best = 1;    // experts of a group that rank it: 1 or 2
  bool renormalise = false;
  float scale = 1;
  std::uint32_t* chosen = nullptr;  // [tokens, per_token]
  float* weights = nullptr;         // [tokens, per_token]
  float margin = 0;                 // of kSparseMixer, see RoutingRule
};

struct GroupArguments {
  const std::uint32_t* chosen = nullptr;  // [pairs]
  std::uint32_t pairs = 0;
  std::uint32_t experts = 0;
  std::uint32_t most = 0;                 // pairs of a tile
  std::uint32_t* order = nullptr;         // [pairs]
  ExpertTile* tiles = nullptr;            // [pairs / most + experts]
  std::uint32_t* tile_count = nullptr;
  std::uint32_t* passed = nullptr;        // experts with a pair
};

struct AddPairsArguments {
  const float* rows = nullptr;  // [tokens, per_token, cols]
  std::uint32_t tokens = 0;
  std::uint32_t per_token = 0;
  std::uint32_t cols = 0;
  bool add = false;
  float* out = nullptr;         // [tokens, cols]
};

enum class HeadNorm : std::uint8_t { kNone, kHead, kEachHead, kWhole };

// Heads of tokens: head h of token t from x + t · row + h · step on.
struct HeadFloats {
  const float* x = nullptr;
  std::uint32_t row = 0;
  std::uint32_t step = 0;
};

// One projection's heads: q, k or v.
struct HeadPart {
  HeadFloats from;
  std::uint32_t heads = 0;
  std::uint32_t dim = 0;                  // elements of a head, ≤ kMostHeadDim, a multiple of 8
  const std::byte* norm_scale = nullptr;  // [dim], [heads, dim] or [heads · dim], as the norm says
  const std::byte* norm_bias = nullptr;
  bool rotates = false;
  std::uint32_t rotary_first = 0;         // element
  std::uint32_t normed = 0;               // leading elements that a norm of each head is over; 0: all
};

constexpr std::uint32_t kMostHeadDim = 576;

struct PrepareArguments {
  std::uint32_t tokens = 0;
  HeadPart q, k, v;
  float clip = 0;            // 0: none
  HeadNorm norm = HeadNorm::kNone;
  NormMode norm_mode = NormMode::kRms;
  float norm_eps = 0;
  float norm_offset = 0;
  bool norm_last = false;    // after rotation, of each head
  QueryScale query_scale;
  bool adjacent = false;     // rotary pairs (2i, 2i + 1) instead of (i, i + pairs)
  std::uint32_t rotary_pairs = 0;
  const float* cos_sin = nullptr;              // [tokens, pairs, 2]: cosine, sine
  const std::uint32_t* positions = nullptr;  // [tokens]
  // Each KV head is stored `copies` times: head s of `storage heads` holds KV head s / copies. Decoding: the tokens are
  // of different sequences, and `slot_of` says which slot each takes. A prompt: all are of one, token i takes slot i.
  const CacheSlots* slots = nullptr;         // [sequences, storage heads]
  const std::uint32_t* slot_of = nullptr;    // [tokens, storage heads]; null: see `rows`
  const StepRow* rows = nullptr;             // [tokens] that say the slots; null as well: a prompt
  std::uint32_t copies = 1;
  std::uint32_t key_row_bytes = 0;
  std::uint32_t value_row_bytes = 0;
  // [tokens, heads, absorbed + dim], rounded as the keys are (16-bit caches); the absorbed elements lie there already.
  float* q_out = nullptr;
  std::uint32_t absorbed = 0;
  std::byte* k_copy = nullptr;               // [tokens, KV heads, row], or null: the new rows once more, side by side
  std::byte* v_copy = nullptr;
};

// Tokens of a decode step that the product of q, k and v is made for and appended by one launch, and the largest head.
constexpr std::uint32_t kMostAppended = 64;
constexpr std::uint32_t kMostAppendedDim = 256;

// A product with the rows of all heads of q, k and v in this order, and what becomes of each head: no norm over all of
// them at once.
struct AppendArguments {
  LinearArguments linear;
  PrepareArguments heads;
  Stored cache = Stored::kBF16;
  unsigned* finished = nullptr;  // [heads of q, k and v] blocks that are done with theirs; 0 before and after
};

struct RotaryArguments {
  const std::uint32_t* positions = nullptr;  // [tokens]
  const std::uint8_t* use_long = nullptr;    // [tokens], or null
  const float* frequencies = nullptr;        // [pairs]
  const float* long_frequencies = nullptr;   // [pairs], or null
  std::uint32_t tokens = 0;
  std::uint32_t pairs = 0;
  float magnitude = 1;
  float* cos_sin = nullptr;                    // [tokens, pairs, 2]
};

constexpr unsigned kItemSlots = 64;  // of a work item, at least

struct AttentionUnit {
  CacheSlots slots;
  std::uint32_t sequence = 0;
  std::uint32_t first_query_head = 0;
  std::uint32_t query_heads = 0;  // 1 … unit_heads
  std::uint32_t length = 0;       // slots that are met
  std::uint32_t first_item = 0;   // its items lie behind each other
};

// Split-KV: the slots of many units are cut into work items, of which each block takes block_items neighbours, so that
// blocks balance whatever the lengths (as Stream-K does with products). What a block has of one unit is a split.
struct KvSchedule {
  const AttentionUnit* units = nullptr;
  const std::uint32_t* items = nullptr;  // [item_count] unit: the i-th of a unit is its slots from i · item_slots on
  std::uint32_t item_count = 0;
  std::uint32_t item_slots = 0;
  std::uint32_t block_items = 1;
  std::uint32_t most_splits = 1;         // of a unit
  // Null: units say the lengths. Else [sequences]: units are as long as the longest rows to come, and the slots beyond
  // a row's length are left out.
  const StepRow* rows = nullptr;
};

constexpr std::uint32_t blocks_of(const KvSchedule& a) { return (a.item_count + a.block_items - 1) / a.block_items; }

// What a block has of a unit.
struct KvSplit {
  std::uint32_t unit = 0;
  std::uint32_t first = 0;  // slot
  std::uint32_t count = 0;  // slots
  std::uint32_t index = 0;  // among those of the unit
  std::uint32_t splits = 0;
};

struct AttentionArguments : KvSchedule {
  std::uint32_t key_row_bytes = 0;
  std::uint32_t value_row_bytes = 0;    // 0: the leading value_dim elements of a row of k are its v (latent attention)
  const float* q = nullptr;             // [sequences, heads, head_dim], ready to meet the keys
  const std::uint32_t* query = nullptr;  // [sequences] position of the query
  std::uint32_t heads = 0;
  std::uint32_t head_dim = 0;           // ≤ kWidth, a multiple of 8
  std::uint32_t value_dim = 0;          // ≤ kWidth, a multiple of 8
  float scale = 1;
  float softcap = 0;                    // 0: none
  std::uint32_t window = 0;             // 0: none
  const float* alibi = nullptr;         // [heads], or null
  const float* sinks = nullptr;         // [heads], or null; latent attention has none
  std::uint32_t unit_heads = 1;         // query heads that a unit has room for, of logits, splits and sums
  float* split_max = nullptr;           // [units, most_splits, unit_heads]
  float* split_sum = nullptr;
  float* split_out = nullptr;           // [units, most_splits, unit_heads, kWidth]
  unsigned* finished = nullptr;         // [units] splits that are done; 0 before and after
  float* log_sums = nullptr;            // [units, unit_heads] of the exponentials
  float* out = nullptr;                 // [sequences, heads, value_dim]
};

// Latent attention: of a schedule's splits, or of all rows of a prompt.
struct LatentArguments : AttentionArguments {
  const CacheSlots* prompt = nullptr;  // [storage heads]: token i in slot i; null: the schedule says what is met
  std::uint32_t tokens = 0;            // of the prompt: q and out are [tokens, heads, …], log_sums [heads, tokens]
  std::uint32_t group = 0;             // query heads of a storage head
};

constexpr std::uint32_t kPromptQueries = 64;  // that meet the keys together

struct PromptArguments {
  const float* q = nullptr;           // [tokens, heads, head_dim], ready to meet the keys
  const CacheSlots* slots = nullptr;  // [storage heads]: token i in slot i
  std::uint32_t key_row_bytes = 0;
  std::uint32_t value_row_bytes = 0;  // as in AttentionArguments
  std::uint32_t tokens = 0;
  std::uint32_t heads = 0;
  std::uint32_t group = 1;            // query heads of a storage head
  std::uint32_t head_dim = 0;         // ≤ kWidth, a multiple of 8
  std::uint32_t value_dim = 0;
  float scale = 1;
  float softcap = 0;
  std::uint32_t window = 0;
  const float* alibi = nullptr;       // [heads], or null
  const float* sinks = nullptr;       // [heads], or null
  float* log_sums = nullptr;          // [heads, tokens], or null
  float* out = nullptr;               // [tokens, heads, value_dim]
};

// out row t = factor · table row ids[t] (+ positions row): where a pass begins.
struct EmbedArguments {
  const std::byte* table = nullptr;      // [rows, cols], 16-bit; null: the positions alone
  const std::byte* positions = nullptr;  // learned, or null
  const std::int64_t* ids = nullptr;     // [tokens]
  const std::uint32_t* position_rows = nullptr;  // [tokens]
  std::uint32_t tokens = 0;
  std::uint32_t cols = 0;
  float factor = 1;
  float* out = nullptr;                  // [tokens, cols]
};

// Of a row of logits the most probable token, of equals the first, and the logarithm of its probability.
struct DeviceChoice {
  std::uint32_t token = 0;
  float logprob = 0;
};
struct TokenChoiceArguments {
  const float* logits = nullptr;  // [rows, vocab]
  std::uint32_t rows = 0;
  std::uint32_t vocab = 0;
  DeviceChoice* chosen = nullptr;  // [rows]
};

// out row = norm(x row), or out row += norm(x row).
struct NormArguments {
  const float* x = nullptr;  // [rows, cols]
  std::uint32_t rows = 0;
  std::uint32_t cols = 0;
  NormMode mode = NormMode::kRms;
  const std::byte* scale = nullptr;
  const std::byte* bias = nullptr;
  float eps = 0;
  float offset = 0;
  bool add = false;
  float* out = nullptr;
  float factor = 1;  // of what is added
};

struct FillArguments {
  RandomFill fill;
  std::uint64_t count = 0;   // elements of a 16-bit type
  std::byte* out = nullptr;  // aligned to 16 bytes
};

// A row of k and v that changes its slot.
struct RowMove {
  std::uint32_t head = 0;          // of MoveArguments
  std::uint32_t from = 0, to = 0;  // slots
};

// Survivors fill holes, or leave the prompt's buffer. No row is both moved and written over in one call.
struct MoveArguments {
  const CacheSlots* from = nullptr;  // [heads]
  const CacheSlots* to = nullptr;    // [heads]
  const RowMove* rows = nullptr;     // [moves]
  std::uint32_t moves = 0;
  std::uint32_t key_row_bytes = 0;           // multiples of 4
  std::uint32_t value_row_bytes = 0;
  bool scales = false;
  std::uint32_t state_columns = 0;
};

}  // namespace kvroof::cuda
